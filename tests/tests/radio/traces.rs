//! `manyways radio` on traces: text and JSON output.

use std::fs;
use std::path::Path;
use std::process::Command;

use manyways_tests::{Finished, finish, folder, manyways, manyways_path};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use serde_json::Value;

fn radio(files: &Path, words: &[&str]) -> Finished {
    finish(manyways().arg("radio").args(words).current_dir(files))
}

fn document(done: &Finished) -> Value {
    serde_json::from_str(&done.stdout)
        .unwrap_or_else(|error| panic!("{error}\n{}\n{}", done.stdout, done.stderr))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is not a number"))
}

/// An hour of heartbeats every 30 s, whose energy can be calculated by hand.
fn heartbeats(files: &Path) {
    radio(files, &["generate", "--heartbeat", "30s", "--duration", "1h", "-o", "beats.csv"])
        .expect_success();
}

#[test]
fn the_energy_of_heartbeats_equals_the_closed_form() {
    let files = folder();
    heartbeats(files.path());
    let words = ["energy", "beats.csv", "--profile", "att-hspa", "--json", "--report", "a.html"];
    let timeline = ["--timeline", "a.csv", "--battery", "4Ah"];
    let done = radio(files.path(), &[&words[..], &timeline].concat()).expect_success();
    let found = document(&done);
    assert_eq!(found["schema"], "manyways.radio-energy/2");
    let one = &found["radios"][0];
    // 121 heartbeats, each with a whole tail and a switch.
    let each = 6.2 * 0.916 + 10.4 * 0.659 + 1.10;
    assert!((number(&one["joules"]) / (121.0 * each) - 1.0).abs() < 1e-9, "{one:#}");
    assert_eq!((&one["switches"], &one["packets"]), (&121.into(), &121.into()));
    assert_eq!(one["owners"][0]["name"], "heartbeat");
    assert_eq!(one["periodic"][0]["interval_seconds"], 30.0);
    let periodic = one["bursts"].as_array().unwrap().iter().find(|one| one["kind"] == "periodic");
    assert_eq!(periodic.unwrap()["bursts"], 121);
    let day = number(&one["mah_a_day"]);
    assert!((number(&one["battery_share_a_day"]) - day / 4_000.0).abs() < 1e-12);
    let sheet = fs::read_to_string(files.path().join("a.csv")).unwrap();
    assert_eq!(sheet.lines().next(), Some("trace,radio,begins,ends,state,joules"));
    let joules = |line: &str| line.rsplit(',').next().unwrap().parse::<f64>().unwrap();
    let sum: f64 = sheet.lines().skip(1).map(joules).sum();
    assert!((sum / number(&one["joules"]) - 1.0).abs() < 1e-6, "{sum}");
    let page = fs::read_to_string(files.path().join("a.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("heartbeat") && !page.contains("http:"));
    // The same trace from standard input, with text output.
    let script = "\"$1\" radio energy - --profile att-hspa < beats.csv";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh"]).arg(manyways_path()).current_dir(files.path());
    let done = finish(&mut shell).expect_success();
    assert!(done.stdout.contains("; 121 switches"), "{}", done.stdout);
}

/// If the trace contains the network, Wi-Fi packets count for Wi-Fi and cellular ones for LTE.
#[test]
fn a_device_has_several_radios() {
    let files = folder();
    heartbeats(files.path());
    let words = ["energy", "--radio", "lte=beats.csv", "--radio", "wifi=beats.csv", "--json"];
    let found = document(&radio(files.path(), &words).expect_success());
    assert_eq!(found["device"], true);
    let [lte, wifi] = [0, 1].map(|index| number(&found["radios"][index]["joules"]));
    assert!((number(&found["joules"]) - lte - wifi).abs() < 1e-9 && lte > wifi);
}

#[test]
fn batching_saves_switches() {
    let files = folder();
    heartbeats(files.path());
    let words = ["whatif", "beats.csv", "--profile", "att-hspa", "--json", "--batch", "1min,5min"];
    let more = ["--prefetch", "5min", "--shift", "1min", "--without", "--app", "heart*"];
    let found = document(&radio(files.path(), &[&words[..], &more].concat()).expect_success());
    let lines = found["lines"].as_array().unwrap();
    let changes: Vec<&str> = lines.iter().map(|line| line["change"].as_str().unwrap()).collect();
    let expected =
        ["unchanged", "batch 60 s", "batch 5 min", "shift 60 s", "prefetch 5 min", "without"];
    assert_eq!(changes, expected);
    // Heartbeats at 0, 30, 60 … wait for whole minutes: 61 switches remain, and 13 for five
    // minutes.
    let switches: Vec<u64> = lines.iter().map(|line| line["switches"].as_u64().unwrap()).collect();
    // With a delay of at most a minute, the heartbeat at 30 s is delayed and takes those at 60 and
    // 90 s along.
    assert_eq!(switches, [121, 61, 13, 41, 11, 0]);
    let moves: Vec<&Value> = lines.iter().map(|line| &line["direction"]).collect();
    assert_eq!(moves, ["", "later", "later", "later", "sooner", ""]);
    let done = radio(
        files.path(),
        &["whatif", "beats.csv", "--profile", "lte", "--app", "mail", "--without"],
    );
    assert_eq!(done.code(), 1);
    assert!(done.stderr.contains("hint: the applications are: heartbeat"), "{}", done.stderr);
}

#[test]
fn policies_are_compared_and_none_beats_the_oracle() {
    let files = folder();
    let words = ["simulate", "--app", "mixed-day", "--seed", "1-2", "--duration", "12h", "--json"];
    let what = ["--policy", "fixed,threshold,makeidle,context,makeidle+makeactive"];
    let more = ["--tolerant", "news,im,email", "--sweep", "n=50,100", "--sweep", "e-switch=1,2"];
    let out = ["--parquet", "a.parquet", "--report", "a.html", "--profile", "att-hspa"];
    let all = [&words[..], &what, &more, &out].concat();
    let found = document(&radio(files.path(), &all).expect_success());
    assert_eq!(found["schema"], "manyways.radio-simulate/1");
    let totals = found["totals"].as_array().unwrap();
    // Seven requested policies, the timers and the oracle, for two energies of a switch.
    assert_eq!(totals.len(), 2 * 9);
    assert_eq!(found["runs"].as_array().unwrap().len(), 2 * 2 * 9);
    for run in totals {
        let (policy, share) = (run["policy"].as_str().unwrap(), number(&run["saved_of_oracle"]));
        match policy {
            "status-quo" => assert_eq!(share, 0.0),
            "oracle" => assert_eq!(share, 1.0),
            _ if policy.contains("makeactive") => assert!(run["held"].as_u64() > Some(0)),
            _ => assert!(share < 1.0 && run["held"] == 0, "{run:#}"),
        }
    }
    // Runs with any number of threads are equal.
    let words = [&all[..], &["--threads", "1"]].concat();
    assert_eq!(document(&radio(files.path(), &words).expect_success()), found);
    let table = fs::File::open(files.path().join("a.parquet")).unwrap();
    let table = SerializedFileReader::new(table).unwrap();
    let notes = table.metadata().file_metadata().key_value_metadata().unwrap();
    let version = notes.iter().find(|note| note.key == "manyways.schema").unwrap();
    assert_eq!(version.value.as_deref(), Some("manyways-radio/1"));
    let rows: Vec<Row> = table.get_row_iter(None).unwrap().map(Result::unwrap).collect();
    let runs = found["runs"].as_array().unwrap();
    assert_eq!(rows.len(), runs.len());
    for (row, run) in rows.iter().zip(runs) {
        let value = |column| row.get_column_iter().find(|(name, _)| *name == column).unwrap().1;
        assert_eq!(*value("trace"), Field::Str(run["trace"].as_str().unwrap().to_owned()));
        assert_eq!(*value("energy"), Field::Double(number(&run["joules"])));
        assert_eq!(*value("switches"), Field::Long(run["switches"].as_i64().unwrap()));
        let delay = run["p95_delay_seconds"].as_f64();
        assert_eq!(*value("p95_delay"), delay.map_or(Field::Null, Field::Double));
    }
    let page = fs::read_to_string(files.path().join("a.html")).unwrap();
    for words in
        ["figures 4-9 and 4-17", "figure 4-12", "figure 4-13", "figure 4-14", "figure 4-16"]
    {
        assert!(page.contains(words), "{words}");
    }
}

/// Rules by domain and port, applied to the output of `manyways flows`.
#[test]
fn only_sessions_named_by_rules_are_delayed() {
    let files = folder();
    let mut trace = "time,bytes,direction,app,port,flow\n".to_owned();
    for beat in 0..200 {
        let at = 60 * beat;
        trace += &format!("{at},100,up,a.example.org,993,{}\n", 2 * beat);
        trace += &format!("{}.5,100,up,b.example.net,443,{}\n", at + 20, 2 * beat + 1);
    }
    fs::write(files.path().join("trace.csv"), trace).unwrap();
    let rules = "[[delay-tolerant]]\ndomain = \"*.example.org\"\nport = 993\n";
    fs::write(files.path().join("rules.toml"), rules).unwrap();
    let words =
        ["simulate", "trace.csv", "--profile", "att-hspa", "--json", "--rules", "rules.toml"];
    let policy = ["--policy", "makeactive-fixed:delay=30"];
    let found = document(&radio(files.path(), &[&words[..], &policy].concat()).expect_success());
    let totals = found["totals"].as_array().unwrap();
    let run = totals.iter().find(|run| run["policy"] == "makeactive-fixed:delay=30").unwrap();
    // Half of the sessions are delay-tolerant, and each waits for the next session of the other
    // half.
    assert_eq!((&run["sessions"], &run["held"]), (&200.into(), &200.into()));
    assert!((number(&run["mean_delay_seconds"]) - 20.5).abs() < 1e-6, "{run:#}");
    fs::write(files.path().join("rules.toml"), rules.replace("993", "99300")).unwrap();
    let done = radio(files.path(), &[&words[..], &policy].concat());
    assert_eq!(done.code(), 2);
    let expected = "rules.toml:3:8: port: `99300` is not a port or a range of ports";
    assert!(done.stderr.contains(expected), "{}", done.stderr);
}

#[test]
fn a_profile_of_ones_own_is_checked_and_drawn() {
    let files = folder();
    let done = radio(files.path(), &["profiles", "lte"]).expect_success();
    fs::write(files.path().join("mine.toml"), &done.stdout).unwrap();
    let done =
        radio(files.path(), &["check", "mine.toml", "--report", "mine.html"]).expect_success();
    assert!(done.stdout.contains("The tail lasts 10.1 s"), "{}", done.stdout);
    assert!(fs::read_to_string(files.path().join("mine.html")).unwrap().contains("<svg"));
    let text = fs::read_to_string(files.path().join("mine.toml")).unwrap();
    fs::write(files.path().join("mine.toml"), text.replace("timer = \"10s\"", "timer = \"-1s\""))
        .unwrap();
    let done = radio(files.path(), &["check", "mine.toml"]);
    assert_eq!(done.code(), 2);
    assert!(done.stderr.contains("mine.toml:32:9: timer: "), "{}", done.stderr);
    let all = document(&radio(files.path(), &["profiles", "--json"]).expect_success());
    let names: Vec<&str> = all["profiles"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    assert!(names.contains(&"5g-sa") && names.contains(&"bluetooth"), "{names:?}");
}

/// Samples of a monitor without noise for the pieces of a timeline, from a time on, at a constant
/// interval: CSV with watts at the middle of each sample.
fn monitor(pieces: &str, from: f64, step: f64) -> String {
    let mut joules: Vec<f64> = Vec::new();
    for line in pieces.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let number = |place: usize| fields[place].parse::<f64>().expect("a number");
        let (start, end, spent) = (number(2) - from, number(3) - from, number(5));
        // Pieces that start on an edge belong to the sample after it.
        let place = |at: f64| (at / step + 1e-7) as usize;
        let last = place(end);
        if joules.len() <= last {
            joules.resize(last + 1, 0.0);
        }
        if end <= start {
            joules[last] += spent;
            continue;
        }
        for (step_place, joules) in joules.iter_mut().enumerate().skip(place(start)) {
            let (low, high) = (step_place as f64 * step, (step_place + 1) as f64 * step);
            *joules += spent * (high.min(end) - low.max(start)).max(0.0) / (end - start);
        }
    }
    let mut text = "time,watts\n".to_owned();
    for (index, joules) in joules.iter().enumerate() {
        text += &format!("{:.6},{:.9}\n", from + (index as f64 + 0.5) * step, joules / step);
    }
    text
}

/// Mean power of a state over a timeline.
fn mean_power(pieces: &str, state: &str) -> f64 {
    let (mut joules, mut secs) = (0.0, 0.0);
    for line in pieces.lines().filter(|line| line.contains(state)) {
        let fields: Vec<&str> = line.split(',').collect();
        let number = |place: usize| fields[place].parse::<f64>().expect("a number");
        secs += number(3) - number(2);
        joules += number(5);
    }
    joules / secs
}

/// Values of a profile that a fit has found, and all values of the profile by name.
fn found(files: &Path, trace: &str, profile: &str, more: &[&str]) -> Vec<Value> {
    let words = ["infer", trace, "--power", "monitor.csv", "--profile", profile, "--json"];
    let found = document(&radio(files, &[&words[..], more].concat()).expect_success());
    found["powers"]["numbers"].as_array().expect("a list").clone()
}

#[test]
fn powers_are_fitted_to_samples_of_a_monitor() {
    let files = folder();
    let path = |name: &str| files.path().join(name);
    let day = ["--app", "mixed-day", "--duration", "3h", "--seed", "5"];
    let im = ["--app", "im", "--duration", "1h", "--seed", "7"];
    for (made, profile, from, step) in
        [(&day[..], "att-hspa", None, 0.05), (&im, "lte", Some(0.0), 0.1), (&im, "lte", None, 0.1)]
    {
        let words = [&["generate", "-o", "a.csv", "--force"], made].concat();
        radio(files.path(), &words).expect_success();
        let words = ["energy", "a.csv", "--profile", profile, "--timeline", "pieces.csv"];
        radio(files.path(), &words).expect_success();
        let pieces = fs::read_to_string(path("pieces.csv")).unwrap();
        let first = pieces.lines().nth(1).unwrap().split(',').nth(2).unwrap().parse().unwrap();
        fs::write(path("monitor.csv"), monitor(&pieces, from.unwrap_or(first), step)).unwrap();
        let numbers = found(files.path(), "a.csv", profile, &[]);
        assert!(numbers.len() >= 9, "{numbers:#?}");
        for one in &numbers {
            let (value, own) = (number(&one["value"]), number(&one["profile_value"]));
            assert!((value - own).abs() <= 1e-6 + 0.01 * own, "{one:#}");
        }
    }
}

/// The energy of quantities that only occur together is not attributed to one of them.
#[test]
fn indistinguishable_quantities_keep_their_values() {
    let files = folder();
    let path = |name: &str| files.path().join(name);
    heartbeats(files.path());
    let words = ["energy", "beats.csv", "--profile", "lte", "--timeline", "pieces.csv"];
    radio(files.path(), &words).expect_success();
    let pieces = fs::read_to_string(path("pieces.csv")).unwrap();
    fs::write(path("monitor.csv"), monitor(&pieces, 0.0, 0.1)).unwrap();
    let numbers = found(files.path(), "beats.csv", "lte", &["-o", "mine.toml"]);
    let one = |name: &str| numbers.iter().find(|one| one["name"] == name).unwrap();
    for name in ["sending, per Mbit", "continuous reception", "promotion from RRC_IDLE"] {
        assert_eq!((&one(name)["found"], &one(name)["value"]), (&"not-apart".into(), &Value::Null));
        assert_eq!(one(name)["not_apart_from"].as_array().unwrap().len(), 3, "{:#}", one(name));
    }
    assert_eq!(one("receiving")["found"], "not-seen");
    for (name, watts) in [("long DRX", 1.091), ("RRC_IDLE", 0.019955)] {
        assert_eq!(one(name)["found"], "determined");
        let whole = number(&one(name)["whole_cycles_value"]);
        assert!((whole / watts - 1.0).abs() < 1e-3, "{:#}", one(name));
    }
    // Each stay begins with an on duration. With the times of the samples' starts, too.
    let early = found(files.path(), "beats.csv", "lte", &["--offset=-0.05"]);
    let mean = mean_power(&pieces, "RRC_IDLE");
    assert!(mean > 0.0201, "{mean}");
    for numbers in [&numbers, &early] {
        let idle = numbers.iter().find(|one| one["name"] == "RRC_IDLE").unwrap();
        assert!((number(&idle["value"]) / mean - 1.0).abs() < 0.01, "{mean}: {idle:#}");
    }
    let mine = fs::read_to_string(path("mine.toml")).unwrap();
    assert!(mine.contains("send-per-mbit = \"0.43839J\""), "{mine}");
    let words = ["infer", "beats.csv", "--power", "monitor.csv", "--profile", "lte"];
    let text = radio(files.path(), &words).expect_success().stdout;
    assert!(text.contains("sending, per Mbit        not determined"), "{text}");
    let together = "Not separable in this trace, so not determined individually: sending, per Mbit; continuous reception; short DRX; \
                    promotion from RRC_IDLE.";
    assert!(text.contains(together), "{text}");
}

/// A fit corrects a wrong profile, except for values that were not measured.
#[test]
fn measured_values_become_a_profile() {
    let files = folder();
    let path = |name: &str| files.path().join(name);
    // Heartbeats, each connected for 1 s and then idle; the rest of the device takes 0.3 W.
    let beats = ["generate", "--heartbeat", "20s", "--duration", "1h", "-o", "beats.csv"];
    radio(files.path(), &beats).expect_success();
    let mut monitor = "time,watts\n".to_owned();
    for step in 0..36_000 {
        let at = f64::from(step) * 0.1 + 0.05;
        let watts = if at % 20.0 < 8.0 { 1.3 } else { 0.3 };
        monitor += &format!("{at:.2},{watts}\n");
    }
    fs::write(path("monitor.csv"), monitor).unwrap();
    let mut probes = "idle,round_trip\n".to_owned();
    for round in 0..10 {
        for step in 1..=30 {
            let idle = f64::from(step) * 0.5;
            let slow = if idle > 7.75 { 0.4 } else { 0.05 };
            probes += &format!("{idle},{}\n", slow + f64::from(round) * 1e-3);
        }
    }
    fs::write(path("probes.csv"), probes).unwrap();
    let script = "gzip -c probes.csv | \"$1\" radio infer --probes - --json";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh"]).arg(manyways_path()).current_dir(files.path());
    assert_eq!(document(&finish(&mut shell).expect_success())["release"]["probes"], 300);
    let wrong = radio(files.path(), &["profiles", "lte"]).expect_success().stdout;
    let wrong = wrong.replace("power = \"1.06W\"", "power = \"2W\"").replace("1.68W", "2W");
    fs::write(path("wrong.toml"), wrong).unwrap();
    let words = ["infer", "--probes", "probes.csv", "beats.csv", "--power", "monitor.csv"];
    let output = ["--profile", "wrong.toml", "-o", "mine.toml"];
    let done = radio(files.path(), &[&words[..], &output].concat()).expect_success();
    assert!(
        done.stderr
            .contains("mine.toml contains wrong.toml with the measured values, without the 279 mW")
    );
    let found = document(&radio(files.path(), &["check", "mine.toml", "--json"]).expect_success());
    let mine = &found["profiles"][0];
    assert!((number(&mine["tail_seconds"]) - 7.75).abs() < 0.3, "{mine:#}");
    let states = mine["states"].as_array().unwrap();
    let long = states.iter().find(|state| state["name"] == "long DRX").unwrap();
    // The profile's power in idle, 20 mW, is unchanged.
    assert!((number(&long["mean_watts"]) - 1.02).abs() < 0.05, "{long:#}");
    let text = fs::read_to_string(path("mine.toml")).unwrap();
    assert!(text.contains("round trips after gaps") && text.contains("a power monitor"));
    // The file is not replaced without --force.
    let again = [&words[..], &output].concat();
    assert_eq!(radio(files.path(), &again).code(), 2);
    assert_eq!(fs::read_to_string(path("mine.toml")).unwrap(), text);
    radio(files.path(), &[&again[..], &["--force"]].concat()).expect_success();
    // A fit that explains nothing does not change a profile.
    let flat: String =
        (0..36_000).map(|step| format!("{:.2},1.5\n", f64::from(step) * 0.1)).collect();
    fs::write(path("monitor.csv"), "time,watts\n".to_owned() + &flat).unwrap();
    let done = radio(files.path(), &[&again[..], &["--force"]].concat());
    assert!(
        done.code() == 1 && done.stderr.contains("only 0.0 % of the variance"),
        "{}",
        done.stderr
    );
    assert_eq!(fs::read_to_string(path("mine.toml")).unwrap(), text);
    let twice = ["infer", "--probes", "-", "beats.csv", "--power", "-", "--profile", "lte"];
    let done = radio(files.path(), &twice);
    assert!(done.code() == 2 && done.stderr.contains("only one input"), "{}", done.stderr);
    let done = radio(files.path(), &["infer", "--probes", "p.csv", "--profile", "lte", "-o", "-"]);
    assert!(done.code() == 2 && done.stderr.contains("cannot be a file's name"), "{}", done.stderr);
}

/// Each heartbeat of a persistent connection can be moved.
#[test]
fn heartbeats_of_one_connection_are_batched_and_shifted() {
    let files = folder();
    let mut text = "time,bytes,direction,app,flow\n".to_owned();
    for second in 0..3_600 {
        if second % 30 == 0 {
            text += &format!("{second},100,up,im,1\n{second}.2,60,down,im,1\n");
        }
        if second % 600 == 10 {
            text += &format!("{second},500,up,browser,2\n");
        }
    }
    fs::write(files.path().join("day.csv"), text).unwrap();
    let words = ["whatif", "day.csv", "--profile", "lte", "--app", "im", "--json"];
    let changes = ["--batch", "5min", "--shift", "10min", "--without"];
    let found = document(&radio(files.path(), &[&words[..], &changes].concat()).expect_success());
    let [now, batch, shift, without] = &found["lines"].as_array().unwrap()[..] else {
        panic!("{found:#}")
    };
    let switches = |line: &Value| line["switches"].as_u64().unwrap();
    // The browser finds the radio connected, 10 s after a heartbeat.
    assert_eq!(switches(now), 120, "{found:#}");
    // At 0, 5, … 60 minutes; the browser six times, 10 s after them.
    assert!((13..=19).contains(&switches(batch)), "{found:#}");
    // All wait for the browser; heartbeats after its last visit pass at their limit.
    assert!((6..=8).contains(&switches(shift)), "{found:#}");
    assert_eq!(switches(without), 6, "{found:#}");
    let saved = |line: &Value| number(&line["joules_saved"]);
    assert!(saved(now) == 0.0 && saved(without) > saved(batch) && saved(batch) > 0.0);
}

#[test]
fn local_addresses_beside_a_list_of_packets_are_pointed_out() {
    let files = folder();
    heartbeats(files.path());
    let words = ["energy", "beats.csv", "--profile", "lte", "--local", "10.0.0.0/8"];
    let done = radio(files.path(), &words).expect_success();
    let warning = "manyways: --local has no effect on beats.csv: it is not a capture\n";
    assert_eq!(done.stderr, warning);
}

/// Every command uses the built-in profile, and reports if a file has that name too.
#[test]
fn a_known_name_stands_before_a_file() {
    let files = folder();
    let wifi = radio(files.path(), &["profiles", "wifi"]).expect_success().stdout;
    fs::write(files.path().join("lte"), wifi).unwrap();
    let technology = |done: &Finished| document(done)["profiles"][0]["technology"].clone();
    let done = radio(files.path(), &["check", "lte", "--json"]).expect_success();
    assert_eq!(technology(&done), "lte");
    assert!(done.stderr.contains("hint: write ./lte for the file"), "{}", done.stderr);
    let done = radio(files.path(), &["check", "./lte", "--json"]).expect_success();
    assert!(technology(&done) == "wifi" && done.stderr.is_empty(), "{}", done.stderr);
}

#[test]
fn bad_input_gets_a_sentence_and_a_hint() {
    let files = folder();
    let write = |name: &str, text: &str| fs::write(files.path().join(name), text).unwrap();
    write("broken.toml", "# mine\ntitel = \"x\"\n");
    write("twice.csv", "time,bytes,direction,time\n1,1,up,1\n");
    fs::create_dir(files.path().join("empty")).unwrap();
    write("unsorted.csv", "time,bytes,direction\n2,1,up\n1,1,up\n");
    write("nan.csv", "time,bytes,direction\nNaN,1,up\n");
    write("negative.csv", "time,bytes,direction\n-1,1,up\n");
    write("sideways.csv", "time,bytes,direction\n1,1,left\n");
    write("empty.csv", "");
    write("good.csv", "time,bytes,direction\n1,1,up\n");
    for (words, code, message) in [
        (vec!["energy", "unsorted.csv", "--profile", "lte"], 1, "line 3: the time is earlier than"),
        (vec!["energy", "nan.csv", "--profile", "lte"], 1, "line 2: `NaN` is not a time"),
        (vec!["energy", "negative.csv", "--profile", "lte"], 1, "line 2: `-1` is not a time"),
        (vec!["energy", "sideways.csv", "--profile", "lte"], 1, "`left` is not a direction"),
        (vec!["energy", "empty.csv", "--profile", "lte"], 1, "there is no packet in empty.csv"),
        (vec!["energy", "none.csv", "--profile", "lte"], 1, "cannot read none.csv"),
        (vec!["energy", "good.csv", "--profile", "ltee"], 2, "did you mean `lte`?"),
        (vec!["energy", "good.csv"], 2, "the radio is missing"),
        (vec!["simulate", "good.csv", "--policy", "makeidel"], 2, "did you mean `makeidle`?"),
        (vec!["simulate", "good.csv", "--policy", "makeidle:m=3"], 2, "its parameters are: n"),
        (vec!["simulate", "good.csv", "--policy", "makeactive"], 2, "no session is delay-tolerant"),
        (vec!["simulate", "good.csv", "--sweep", "m=3"], 2, "use one of e-switch"),
        (vec!["simulate", "--app", "mixedday"], 2, "mixed-day"),
        (vec!["generate", "--app", "im", "--seed", "1-3"], 2, "name a folder with -o"),
        (vec!["whatif", "good.csv", "--profile", "lte"], 2, "no change is given"),
        (vec!["infer"], 2, "neither --probes nor --power is given"),
        (vec!["check", "broken.toml"], 2, "broken.toml:2:1: the profile has no `titel`"),
        (vec!["energy", "good.csv", "--profile", "broken.toml"], 2, "broken.toml:2:1: "),
        (vec!["energy", "empty", "--profile", "lte"], 1, "hint: write the tables of the folder"),
        (vec!["whatif", "good.csv", "--profile", "lte", "--batch", "0s"], 2, "above 0 and up to"),
        (vec!["energy", "twice.csv", "--profile", "lte"], 1, "the column `time` occurs twice"),
        (vec!["infer", "--probes", "good.csv"], 1, "there is no column `idle`"),
        (vec!["infer", "--probes", "p.csv", "good.csv"], 2, "a trace has no effect"),
        (vec!["infer", "--probes", "p.csv", "--local", "10.0.0.0/8"], 2, "--local has no effect"),
        (vec!["infer", "--probes", "p.csv", "--window", "2s"], 2, "--window has no effect"),
        (vec!["infer", "--probes", "p.csv", "--offset", "1"], 2, "--offset has no effect"),
        (vec!["infer", "--probes", "p.csv", "--force"], 2, "--force has no effect"),
        (vec!["infer", "--probes", "p.csv", "--profile", "lte"], 2, "--profile has no effect"),
    ] {
        let done = radio(files.path(), &words);
        assert_eq!(done.code(), code, "{words:?}: {}", done.stderr);
        assert!(done.stderr.contains(message), "{words:?}: {}", done.stderr);
        assert!(done.stdout.is_empty(), "{words:?}: {}", done.stdout);
    }
}

/// Inputs are not overwritten, and neither are devices and pipes replaced.
#[test]
fn outputs_do_not_overwrite_inputs() {
    let files = folder();
    heartbeats(files.path());
    let before = fs::read(files.path().join("beats.csv")).unwrap();
    fs::hard_link(files.path().join("beats.csv"), files.path().join("same.csv")).unwrap();
    for words in [
        vec!["energy", "beats.csv", "--profile", "lte", "--timeline", "beats.csv"],
        vec!["energy", "beats.csv", "--profile", "lte", "--report", "same.csv"],
        vec!["energy", "beats.csv", "--profile", "lte", "--report", "a", "--timeline", "a"],
        vec!["simulate", "beats.csv", "--parquet", "./beats.csv"],
        vec!["check", "same.csv", "--report", "beats.csv"],
    ] {
        let done = radio(files.path(), &words);
        assert_eq!(done.code(), 2, "{words:?}: {}", done.stderr);
        assert!(done.stderr.contains("is used twice"), "{words:?}: {}", done.stderr);
    }
    assert_eq!(fs::read(files.path().join("beats.csv")).unwrap(), before);
    // A symbolic link is kept, and a pipe is written to directly.
    let table = files.path().join("table");
    std::os::unix::fs::symlink("real.parquet", &table).unwrap();
    fs::write(files.path().join("real.parquet"), "old").unwrap();
    radio(files.path(), &["simulate", "beats.csv", "--parquet", "table"]).expect_success();
    assert!(fs::symlink_metadata(&table).unwrap().is_symlink());
    assert!(fs::read(files.path().join("real.parquet")).unwrap().starts_with(b"PAR1"));
    let script = "mkfifo pipe && (\"$1\" radio generate --heartbeat 30s -o pipe & cat pipe) | wc -l; \
                  test -p pipe";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh"]).arg(manyways_path()).current_dir(files.path());
    assert_eq!(finish(&mut shell).expect_success().stdout.trim(), "122");
}
