//! Summary of a run, as text and as JSON.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use manyways_capture::Outcome;
use manyways_flows::analysis::{Distribution, Server};
use manyways_flows::flow::Limit;
use manyways_record::table::VERSION;
use manyways_report::number::span;
use manyways_unit::human::printable;
use manyways_unit::{Span, Time};
use manyways_wire::frame::Opaque;
use serde::Serialize;

/// Maximum number of servers by name.
const SERVERS: usize = 5;

#[derive(Serialize)]
pub struct Document {
    schema: String,
    /// Whether a signal stopped the run before the end.
    is_stopped: bool,
    /// The filter of the run.
    pub filter: Option<String>,
    captures: Vec<Capture>,
    packets: u64,
    bytes: u64,
    /// From the first packet to the last one, including the time between captures.
    seconds: f64,
    /// Time that captures cover.
    recorded_seconds: f64,
    tcp_packets: u64,
    tcp_broken: u64,
    udp_packets: u64,
    other_ip_packets: u64,
    bluetooth_packets: u64,
    not_ip_packets: u64,
    /// Reasons why these frames have no IP packet.
    not_ip: Vec<NotIp>,
    fragments: u64,
    capture_lost: u64,
    clock_steps_back: u64,
    flows: u64,
    valid_flows: u64,
    evicted_flows: u64,
    client_bytes: u64,
    server_bytes: u64,
    data_segments: u64,
    retransmitted: u64,
    spurious: u64,
    lost_local: u64,
    lost_remote: u64,
    unseen_bytes: u64,
    rtt: Option<f64>,
    local_rtt: Option<f64>,
    remote_rtt: Option<f64>,
    /// Number of flows with a round-trip time, and with each of its parts.
    rtt_flows: u64,
    local_rtt_flows: u64,
    remote_rtt_flows: u64,
    limited_by: Vec<Limited>,
    servers: Vec<Top>,
    tables: Vec<Table>,
}

#[derive(Serialize)]
struct Capture {
    name: String,
    packets: u64,
    lost: u64,
    fault: Option<String>,
}

#[derive(Serialize)]
struct NotIp {
    /// `link-type`, `ethertype`, `control`, `encrypted` or `broken`.
    reason: &'static str,
    /// The link type or the ethertype.
    number: Option<u16>,
    name: Option<&'static str>,
    packets: u64,
}

#[derive(Serialize)]
struct Limited {
    by: &'static str,
    share: f64,
}

#[derive(Serialize)]
struct Top {
    server: String,
    flows: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct Table {
    name: String,
    rows: u64,
}

/// The summary as JSON, which is also the file `flows.json` of a folder.
impl Document {
    /// Removes values that may contain anonymized names: paths of captures, and the filter.
    pub fn hide(&mut self) {
        self.filter = None;
        for (number, capture) in (1..).zip(&mut self.captures) {
            capture.name = format!("capture {number}");
            // The filter may contain the names of hosts.
            let fault = capture.fault.as_ref();
            capture.fault = fault.map(|_| "it could not be read to its end".to_owned());
        }
    }
}

pub fn document(outcome: &Outcome, rows: &[(&str, u64)], is_stopped: bool) -> Document {
    let (counters, summary) = (&outcome.counters, &outcome.summary);
    let captures = outcome.captures.iter().map(|capture| Capture {
        name: capture.name.clone(),
        packets: capture.packets,
        lost: capture.missed,
        fault: capture.fault.clone(),
    });
    let not_ip = counters.opaque.iter().map(|(opaque, packets)| NotIp {
        reason: opaque.kind(),
        number: opaque.number(),
        name: opaque.name(),
        packets: *packets,
    });
    let limited_by = Limit::ALL
        .into_iter()
        .map(|limit| Limited { by: limit.name(), share: summary.limited_by.share(limit) });
    let (servers, _) = summary.servers(SERVERS);
    let servers = servers.into_iter().map(|(name, Server { flows, bytes })| Top {
        server: name.to_owned(),
        flows,
        bytes,
    });
    let tables = rows.iter().map(|(name, rows)| Table { name: (*name).to_owned(), rows: *rows });
    Document {
        schema: format!("manyways-flows/{VERSION}"),
        is_stopped,
        filter: None,
        captures: captures.collect(),
        packets: counters.packets,
        bytes: counters.bytes,
        seconds: lasted(outcome).as_secs_f64(),
        recorded_seconds: recorded(outcome).as_secs_f64(),
        tcp_packets: counters.tcp,
        tcp_broken: counters.tcp_broken,
        udp_packets: counters.udp,
        other_ip_packets: counters.others,
        bluetooth_packets: counters.bluetooth,
        not_ip_packets: counters.opaque.values().sum(),
        not_ip: not_ip.collect(),
        fragments: counters.fragments,
        capture_lost: lost(outcome),
        clock_steps_back: counters.steps_back,
        flows: summary.flows,
        valid_flows: summary.valid,
        evicted_flows: counters.evicted,
        client_bytes: summary.bytes[0],
        server_bytes: summary.bytes[1],
        data_segments: summary.data_segments,
        retransmitted: summary.again,
        spurious: summary.spurious,
        lost_local: summary.lost[0],
        lost_remote: summary.lost[1],
        unseen_bytes: summary.unseen,
        rtt: secs(&summary.rtt),
        local_rtt: secs(&summary.local_rtt),
        remote_rtt: secs(&summary.remote_rtt),
        rtt_flows: summary.rtt.count(),
        local_rtt_flows: summary.local_rtt.count(),
        remote_rtt_flows: summary.remote_rtt.count(),
        limited_by: limited_by.collect(),
        servers: servers.collect(),
        tables: tables.collect(),
    }
}

/// The summary as text.
pub fn text(outcome: &Outcome, rows: &[(&str, u64)], folder: Option<&Path>) -> String {
    let (counters, summary) = (&outcome.counters, &outcome.summary);
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        // Names of servers and files may contain control characters.
        let _ = writeln!(text, "{name:<12} {}", printable(&value));
    };
    line(
        "Packets",
        format!(
            "{} in {}, {}, {}",
            count(counters.packets),
            plural(outcome.captures.len() as u64, "capture"),
            size(counters.bytes),
            duration(outcome)
        ),
    );
    let opaque: u64 = counters.opaque.values().sum();
    let broken = counters.tcp_broken;
    line(
        "",
        format!(
            "TCP {}, UDP {}, other IP {}, not IP {}{}",
            count(counters.tcp),
            count(counters.udp),
            count(counters.others),
            count(opaque),
            if broken > 0 {
                format!(", TCP cut or broken {}", count(broken))
            } else {
                String::new()
            }
        ),
    );
    if opaque > 0 {
        line("Not IP", reasons(&counters.opaque));
    }
    let missed = lost(outcome);
    if missed + summary.unseen > 0 {
        line(
            "Not captured",
            format!(
                "{} by the capture's own count; {} that were acknowledged and never seen",
                plural(missed, "packet"),
                size(summary.unseen)
            ),
        );
    }
    line(
        "TCP flows",
        format!(
            "{}, {} with a whole handshake and no reset; {} down, {} up",
            count(summary.flows),
            percent(summary.valid, summary.flows),
            size(summary.bytes[1]),
            size(summary.bytes[0])
        ),
    );
    if counters.evicted > 0 {
        line("", format!("{} evicted before their end", plural(counters.evicted, "flow")));
    }
    if summary.rtt.count() + summary.local_rtt.count() > 0 {
        let of = |samples: &Distribution<Span>| match samples.median() {
            Some(median) => format!("{} ({} flows)", millis(median), count(samples.count())),
            None => "unknown".to_owned(),
        };
        line(
            "Round trip",
            format!(
                "{}; local {}, remote {}: medians of flows' medians",
                of(&summary.rtt),
                of(&summary.local_rtt),
                of(&summary.remote_rtt)
            ),
        );
    }
    line(
        "Loss",
        format!(
            "local {}, remote {} of {} data packets; {} retransmitted, {} of these spuriously",
            percent(summary.lost[0], summary.data_segments),
            percent(summary.lost[1], summary.data_segments),
            count(summary.data_segments),
            count(summary.again),
            count(summary.spurious)
        ),
    );
    let mut limits: Vec<(f64, String)> = Limit::ALL
        .into_iter()
        .map(|limit| (summary.limited_by.share(limit), words(limit)))
        .filter(|(share, _)| *share >= 0.005)
        .collect();
    limits.sort_by(|one, other| other.0.total_cmp(&one.0));
    if !limits.is_empty() {
        let parts: Vec<String> =
            limits.iter().map(|(share, name)| format!("{name} {:.0} %", share * 100.0)).collect();
        line("Limited by", parts.join(", "));
    }
    let (servers, others) = summary.servers(SERVERS);
    for (index, (name, server)) in servers.iter().enumerate() {
        let heading = if index == 0 { "Servers" } else { "" };
        line(
            heading,
            format!("{name}: {} in {}", size(server.bytes), plural(server.flows, "flow")),
        );
    }
    if others.flows > 0 {
        line("", format!("all others: {} in {}", size(others.bytes), plural(others.flows, "flow")));
    }
    if let Some(folder) = folder {
        let tables: Vec<String> =
            rows.iter().map(|(name, rows)| format!("{name} ({})", plural(*rows, "row"))).collect();
        line("Tables", format!("{} in {}", tables.join(", "), folder.display()));
    }
    text
}

/// The name of a limit in the tables, with spaces.
pub fn words(limit: Limit) -> String {
    limit.name().replace('_', " ")
}

/// Explanation of a limit of a server.
pub fn meaning(limit: Limit) -> &'static str {
    match limit {
        Limit::Application => "there is nothing to send, and no client asked",
        Limit::Think => "the server was asked and sends nothing yet",
        Limit::ReceiverWindow => "the client's window has no room",
        Limit::Congestion => "data stand in a queue, so more would not arrive sooner",
        Limit::Loss => "packets are lost although there is no queue",
        Limit::StartUp => {
            "a question or its answer is on its way, or the congestion window still grows; both \
             take round trips, so distance makes it longer"
        }
    }
}

/// Reasons why packets are not IP, most frequent first.
pub fn reasons(opaque: &BTreeMap<Opaque, u64>) -> String {
    const SHOWN: usize = 6;
    let mut all: Vec<(&Opaque, &u64)> = opaque.iter().collect();
    all.sort_by_key(|(_, packets)| Reverse(**packets));
    let shown =
        all.iter().take(SHOWN).map(|(opaque, packets)| format!("{opaque} {}", count(**packets)));
    let mut parts: Vec<String> = shown.collect();
    let others: u64 = all.iter().skip(SHOWN).map(|(_, packets)| **packets).sum();
    if others > 0 {
        parts.push(format!("others {}", count(others)));
    }
    parts.join(", ")
}

/// Lost packets, by the counters of the capture and by its gaps.
pub fn lost(outcome: &Outcome) -> u64 {
    let said: u64 = outcome.captures.iter().map(|capture| capture.missed).sum();
    said.max(outcome.counters.missed)
}

pub fn lasted(outcome: &Outcome) -> Span {
    let (first, last) = (outcome.counters.first, outcome.counters.last);
    first.zip(last).map_or(Span::ZERO, |(first, last)| last.since(first))
}

/// Time that captures cover, within the time of counted packets: excludes the time between
/// captures, and counts overlaps once.
pub fn recorded(outcome: &Outcome) -> Span {
    let Some((first, last)) = outcome.counters.first.zip(outcome.counters.last) else {
        return Span::ZERO;
    };
    let mut times: Vec<(Time, Time)> =
        outcome.captures.iter().filter_map(|capture| capture.times).collect();
    times.sort_unstable();
    let (mut sum, mut until) = (Span::ZERO, first);
    for (begins, ends) in times {
        let (begins, ends) = (begins.max(until), ends.min(last));
        if begins < ends {
            sum += ends.since(begins);
            until = ends;
        }
    }
    sum
}

/// Recorded time, and the total time if that is longer.
pub fn duration(outcome: &Outcome) -> String {
    let (recorded, lasted) = (recorded(outcome), lasted(outcome));
    // The gap between two files of one capture is negligible.
    match recorded.as_secs_f64() < 0.99 * lasted.as_secs_f64() {
        true => format!("{} recorded within {}", span(recorded), span(lasted)),
        false => span(lasted),
    }
}

fn secs(samples: &Distribution<Span>) -> Option<f64> {
    samples.median().map(Span::as_secs_f64)
}

pub fn millis(span: Span) -> String {
    format!("{:.1} ms", span.as_millis_f64())
}

pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "none".to_owned();
    }
    format!("{:.2} %", part as f64 * 100.0 / whole as f64)
}

/// A number with a noun that has a regular plural.
pub fn plural(number: u64, what: &str) -> String {
    format!("{} {what}{}", count(number), if number == 1 { "" } else { "s" })
}

/// Formats a number with a comma as the thousands separator.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1_000.0;
        unit += 1;
    }
    match unit {
        0 => format!("{bytes} B"),
        _ if value < 9.95 => format!("{value:.1} {}", UNITS[unit]),
        _ => format!("{value:.0} {}", UNITS[unit]),
    }
}

#[cfg(test)]
mod tests {
    use manyways_capture::Capture;

    use super::*;

    fn at(seconds: u64) -> Time {
        Time::from_millis(seconds * 1_000)
    }

    #[test]
    fn a_day_of_short_captures_says_how_little_of_it_was_recorded() {
        let capture =
            |begins, ends| Capture { times: Some((at(begins), at(ends))), ..Capture::default() };
        let mut outcome = Outcome {
            // Two captures overlap, one is empty, and they are not sorted.
            captures: vec![
                capture(80_000, 80_010),
                capture(100, 110),
                Capture::default(),
                capture(105, 120),
            ],
            ..Outcome::default()
        };
        (outcome.counters.first, outcome.counters.last) = (Some(at(100)), Some(at(80_010)));
        assert_eq!(recorded(&outcome), Span::from_secs(30));
        assert_eq!(duration(&outcome), "30 s recorded within 22.2 h");
        // With --from and --to, only the time between them counts.
        (outcome.counters.first, outcome.counters.last) = (Some(at(106)), Some(at(118)));
        assert_eq!((recorded(&outcome), duration(&outcome)), (Span::from_secs(12), "12 s".into()));
        assert_eq!(duration(&Outcome::default()), "0 s");
    }

    #[test]
    fn frames_without_ip_are_told_by_their_reason_the_most_frequent_first() {
        let mut outcome = Outcome::default();
        outcome.counters.opaque =
            [(Opaque::Protocol(0x0806), 7), (Opaque::Protocol(0x00f9), 4_120), (Opaque::Broken, 6)]
                .into();
        let text = text(&outcome, &[], None);
        let words = "Not IP       Qualcomm MAP (0x00f9) 4,120, ARP (0x0806) 7, truncated or broken before IP 6";
        assert!(text.contains(words), "{text}");
        let document = serde_json::to_string(&document(&outcome, &[], false)).unwrap();
        let words = r#"{"reason":"ethertype","number":249,"name":"Qualcomm MAP","packets":4120}"#;
        assert!(document.contains(words), "{document}");
        outcome.counters.opaque = (1..=9).map(|number| (Opaque::Protocol(number), 1)).collect();
        assert!(reasons(&outcome.counters.opaque).ends_with("ethertype 0x0006 1, others 3"));
    }

    #[test]
    fn what_is_hidden_names_neither_files_nor_whom_was_looked_for() {
        let captures = ["/home/me/a.pcap", "/home/me/b.pcap"].map(|name| Capture {
            name: name.to_owned(),
            fault: Some(format!("no {name}")),
            ..Capture::default()
        });
        let outcome = Outcome { captures: captures.into(), ..Outcome::default() };
        let mut found = document(&outcome, &[], false);
        found.filter = Some("host 192.0.2.1".to_owned());
        found.hide();
        let text = serde_json::to_string(&found).unwrap();
        assert!(!text.contains("/home") && !text.contains("192.0.2.1"), "{text}");
        assert!(text.contains("\"capture 2\""), "{text}");
    }
}
