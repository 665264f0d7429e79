//! Command lines and outputs of the programs, ours and those of others.

use serde_json::Value;

use super::record::Quantities;

/// Number that a program printed, or none.
fn number(value: &Value) -> Option<f64> {
    value.as_f64()
}

fn millis(value: &Value) -> Option<f64> {
    Some(number(value)? * 1e3)
}

fn add(all: &mut Quantities, name: &str, value: Option<f64>) {
    all.extend(value.map(|value| (name.to_owned(), value)));
}

/// The only result of `manyways probe … --json`.
///
/// # Errors
/// The output has no complete result.
pub fn result(output: &str) -> Result<Value, String> {
    let document: Value = serde_json::from_str(output)
        .map_err(|error| format!("its output cannot be read: {error}"))?;
    let result = document["results"].get(0).cloned().unwrap_or_default();
    match (result["ending"].as_str(), result["message"].as_str()) {
        (Some("complete"), _) => Ok(result),
        (ending, message) => {
            Err(format!("it ended as {}", message.or(ending).unwrap_or("nothing")))
        }
    }
}

/// The bytes that a probe predicted and used.
pub fn cost(result: &Value) -> Quantities {
    let mut all = Quantities::new();
    for (way, bytes) in [("up", "bytes up"), ("down", "bytes down")] {
        for kind in ["predicted", "used"] {
            add(&mut all, &format!("{kind} {bytes}"), number(&result[kind][way]));
        }
    }
    all
}

/// The quantities of a probe; the name of its measurement is that of the field.
pub fn quantities(result: &Value) -> Quantities {
    let mut all = Quantities::new();
    let (ping, tcp, udp) = (&result["ping"], &result["tcp"], &result["udp"]);
    add(&mut all, "median, ms", millis(&ping["median"]));
    add(&mut all, "rate, Mbit/s", number(&tcp["rate"]).map(|rate| rate / 1e6));
    add(&mut all, "bytes", number(&tcp["bytes"]));
    add(&mut all, "seconds", number(&tcp["duration"]));
    add(&mut all, "loss, %", number(&udp["loss"]).map(|loss| loss * 100.0));
    add(&mut all, "reordered", number(&udp["reordered"]));
    let loaded = &result["load"]["directions"][0];
    add(&mut all, "idle, ms", millis(&loaded["idle_median"]));
    add(&mut all, "loaded, ms", millis(&loaded["loaded_median"]));
    add(&mut all, "delay after hop", number(&result["trace"]["delay"]["after"]));
    add(&mut all, "loss after hop", number(&result["trace"]["loss"]["after"]));
    for phase in super::packets::PHASES {
        add(&mut all, &format!("{phase}, ms"), millis(&result["http"][phase.replace(' ', "_")]));
    }
    let parts = ["first_byte", "body"].map(|phase| millis(&result["http"][phase]));
    add(&mut all, "response, ms", parts[0].zip(parts[1]).map(|(first, body)| first + body));
    let queries = result["dns"]["queries"].as_array().into_iter().flatten();
    let fastest = queries.filter_map(|query| millis(&query["time"])).reduce(f64::min);
    add(&mut all, "answer, ms", fastest);
    all
}

/// The median of `fping -C`, which prints the round trips on its standard error.
pub fn fping(output: &str) -> Quantities {
    let times = output.lines().find_map(|line| line.split_once(" : "));
    let times = times.into_iter().flat_map(|(_, times)| times.split_whitespace());
    let median = manyways_rig::sample::median(times.filter_map(|time| time.parse().ok()));
    let mut all = Quantities::new();
    add(&mut all, "median, ms", median);
    all
}

/// The receiver's figures of `iperf3 --json`.
///
/// # Errors
/// The output is an error.
pub fn iperf3(output: &str) -> Result<Quantities, String> {
    let document: Value = serde_json::from_str(output)
        .map_err(|error| format!("its output cannot be read: {error}"))?;
    if let Some(error) = document["error"].as_str() {
        return Err(error.to_owned());
    }
    let end = &document["end"];
    let mut all = Quantities::new();
    let received = number(&end["sum_received"]["bits_per_second"]);
    let datagrams = end["sum"]["lost_percent"].is_number();
    if datagrams {
        add(&mut all, "loss, %", number(&end["sum"]["lost_percent"]));
    } else {
        add(&mut all, "rate, Mbit/s", received.map(|rate| rate / 1e6));
        add(&mut all, "bytes", number(&end["sum_received"]["bytes"]));
        add(&mut all, "seconds", number(&end["sum_received"]["seconds"]));
    }
    Ok(all)
}

/// The hop after which delay or loss begins, as a reader of `mtr --report` would see it: the first
/// hop that has at least half of the last hop's mean, or of its loss.
pub fn mtr(output: &str) -> Quantities {
    // "  3.|-- 10.0.2.2   0.0%    10    0.1   0.1   0.0   0.3   0.1": loss, sent, last, mean.
    let rows = output.lines().filter_map(|line| {
        let mut words = line.split_once("|--")?.1.split_whitespace().skip(1);
        let loss: f64 = words.next()?.trim_end_matches('%').parse().ok()?;
        let mean: f64 = words.nth(2)?.parse().ok()?;
        Some((loss, mean))
    });
    let rows: Vec<(f64, f64)> = rows.collect();
    let begin = |column: fn(&(f64, f64)) -> f64| {
        let last = column(rows.last()?);
        let first = rows.iter().position(|row| column(row) >= last / 2.0)?;
        (last > 0.0).then_some(first as f64)
    };
    let mut all = Quantities::new();
    add(&mut all, "loss after hop", begin(|row| row.0));
    add(&mut all, "delay after hop", begin(|row| row.1));
    all
}

/// The time of `dig -u`.
pub fn dig(output: &str) -> Quantities {
    let time = output.lines().find_map(|line| line.split_once("Query time: "));
    let time = time.and_then(|(_, time)| {
        let (time, unit) = time.split_once(' ')?;
        let time: f64 = time.parse().ok()?;
        Some(if unit.starts_with("usec") { time / 1e3 } else { time })
    });
    let mut all = Quantities::new();
    add(&mut all, "answer, ms", time);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outputs_of_other_programs_are_read() {
        assert_eq!(fping("198.18.0.1 : 5.1 - 5.3 5.2\n")["median, ms"], 5.2);
        assert_eq!(dig(";; Query time: 29512 usec\n")["answer, ms"], 29.512);
        assert_eq!(dig(";; Query time: 30 msec\n")["answer, ms"], 30.0);
        let report = "HOST: here  Loss%   Snt   Last   Avg  Best  Wrst StDev\n\
                        1.|-- 10.0.0.2   0.0%   100    0.1   0.2   0.0   0.3   0.1\n\
                        2.|-- 10.0.1.2   0.0%   100   40.1  40.2  40.0  40.3   0.1\n\
                        3.|-- 10.0.2.2   3.0%   100   40.1  40.2  40.0  40.3   0.1\n";
        let found = mtr(report);
        assert_eq!((found["loss after hop"], found["delay after hop"]), (2.0, 1.0));
        assert!(mtr("").is_empty());
        let tcp =
            r#"{"end": {"sum_received": {"bits_per_second": 5e6, "bytes": 7, "seconds": 2}}}"#;
        assert_eq!(iperf3(tcp).unwrap()["rate, Mbit/s"], 5.0);
        let udp = r#"{"end": {"sum": {"lost_percent": 2.5}}}"#;
        assert_eq!(iperf3(udp).unwrap()["loss, %"], 2.5);
        assert_eq!(iperf3(r#"{"error": "busy"}"#), Err("busy".to_owned()));
    }

    #[test]
    fn an_early_end_is_no_result() {
        let ended = r#"{"results": [{"ending": "failed", "message": "wifi is gone"}]}"#;
        assert_eq!(result(ended), Err("it ended as wifi is gone".to_owned()));
        let complete = r#"{"results": [{"ending": "complete", "ping": {"median": 0.05}}]}"#;
        assert_eq!(quantities(&result(complete).unwrap())["median, ms"], 50.0);
    }
}
