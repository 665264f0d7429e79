//! Links with a radio signal, as programs in the lab see it.

use std::fs;

use manyways_tests::{Finished, Folder, Need, SHELL, finish, folder, manyways, needs};
use serde_json::Value;

use crate::running::{Lab, eventually, lab_shell, shared_host};

/// Prints the position in nanoseconds and the strength of the signal of an interface: the program of
/// `docs/lab.md`.
const PROGRAM: &str = r#"
import bisect, json, os, time
signal = json.load(open(os.environ["LAB_DIR"] + "/signal-wifi.json"))
position = (time.monotonic_ns() - signal["start_monotonic_nanoseconds"]) % signal["period_nanoseconds"]
print(position, signal["samples"]["rssi"][bisect.bisect(signal["samples"]["nanoseconds"], position) - 1])
"#;

fn files() -> Folder {
    let files = folder();
    for (name, text) in [
        ("alternating.csv", "time,rssi,snr\n5,-61,25\n5.2,-74.5,\n"),
        ("long.csv", "time,rssi,snr\n0,-61,25\n3600,-70,\n36000,-80,\n"),
        ("broken.csv", "time,rssi\n0,low\n"),
        ("program.py", PROGRAM),
    ] {
        fs::write(files.path().join(name), text).expect("room for a file");
    }
    files
}

fn signal(lab: &Lab) -> Value {
    lab.status()["links"][0]["signal"].clone()
}

#[test]
fn a_program_in_the_lab_sees_the_current_sample() {
    needs!(Need::Root, Need::Command("ip"), Need::Command("python3"));
    let files = files();
    let file = |name: &str| files.path().join(name).display().to_string();
    let trace = |name: &str| format!("signal=trace:{}", file(name));
    let link = format!("wifi:{}", trace("alternating.csv"));
    let lab = Lab::start(&["--link", &link, "--link", "lte", "--trace-offset", "2h"]);
    let program = format!("python3 {}", file("program.py"));
    let seen = || {
        let line = lab.device(&program).expect_success().stdout;
        let (position, rssi) = line.trim().split_once(' ').expect("two numbers");
        let nanos: u64 = position.parse().expect("a number");
        (nanos as f64 / 1e9, rssi.parse::<f64>().expect("a number"))
    };
    for rssi in [-61.0, -74.5, -61.0] {
        eventually("the sample is in force", || (seen().1 == rssi).then_some(()));
        eventually("the status shows it", || (signal(&lab)["rssi"] == rssi).then_some(()));
    }
    assert_eq!(lab.status()["links"][1]["signal"], Value::Null);

    // The start is that of the traces, with the offset of two hours; the lab and the program have the
    // same clock.
    lab.set(&["wifi", &trace("long.csv")]).expect_success();
    let position = || signal(&lab)["position_seconds"].as_f64().expect("a number");
    let (before, (between, rssi), after) = (position(), seen(), position());
    assert!(7_200.0 < before && before < between && between < after, "{before} {between} {after}");
    assert_eq!(rssi, -70.0);
    let now = signal(&lab);
    assert_eq!((&now["source"], &now["snr"]), (&file("long.csv").into(), &Value::Null));
    let output = finish(manyways().args(["lab", "status", &lab.name])).expect_success().stdout;
    let line = format!("wifi       signal {}: rssi -70 dBm\n", file("long.csv"));
    assert!(output.contains(&line), "{output}");

    let done = lab.set(&["wifi", &trace("broken.csv")]);
    assert_eq!(done.code(), 2);
    let message = "line 2: `low` is not a possible value of rssi\nhint: write a first line like ";
    assert!(done.stderr.contains(message), "{}", done.stderr);
    assert_eq!(seen().1, -70.0, "a refused change has no effect");
    lab.set(&["wifi", "signal=none"]).expect_success();
    assert_eq!(signal(&lab), Value::Null);
    lab.device("! ls $LAB_DIR/signal-*").expect_success();
}

#[test]
fn a_scenario_names_a_signal_and_changes_it() {
    needs!(Need::Root, Need::Command("ip"), Need::Command("python3"));
    let files = files();
    let run = |signal: &str, command: &str| -> Finished {
        let _guard = shared_host();
        let scenario = files.path().join("walk.toml");
        let text = format!(
            "name = \"walk\"\ntrace-offset = \"2h\"\n[link.wifi]\nsignal = \"{signal}\"\n\
             [[event]]\nwhen = \"wifi.up_bytes >= 1\"\nlink = \"wifi\"\nsignal = \"trace:alternating.csv\"\n\
             [[workload]]\nname = \"first\"\nrun = '''{SHELL}\n\
             python3 $SCENARIO_DIR/program.py | grep -- ' -70' || exit\n\
             ping -n -c 1 -W 1 198.18.0.1\n\
             eventually grep alternating $LAB_DIR/signal-wifi.json'''\n\
             [[workload]]\nname = \"second\"\nrun = \"grep long.csv $LAB_DIR/signal-wifi.json\"\n"
        );
        fs::write(&scenario, text).expect("room for a scenario");
        finish(manyways().args(["lab", command]).arg(&scenario))
    };
    run("trace:long.csv", "run").expect_success();
    run("trace:long.csv", "check").expect_success();
    for command in ["run", "check"] {
        let done = run("trace:broken.csv", command);
        assert_eq!(done.code(), 2);
        let message =
            "walk.toml:4:10: signal: `broken.csv`: line 2: `low` is not a possible value of rssi";
        assert!(done.stderr.contains(message), "{}", done.stderr);
    }
}

#[test]
fn a_faulty_signal_is_refused_before_the_lab_starts() {
    let files = files();
    let broken = files.path().join("broken.csv").display().to_string();
    for (value, message) in [
        ("-61", "signal: `-61` is not a signal; write trace:FILE or none"),
        ("trace:/no/such.csv", "signal: cannot read `/no/such.csv`: "),
        (&format!("trace:{broken}"), "line 2: `low` is not a possible value of rssi\nhint: "),
    ] {
        let done =
            finish(&mut lab_shell(&["--link", &format!("wifi:signal={value}"), "--", "true"]));
        assert_eq!(done.code(), 2);
        assert!(done.stderr.contains(message), "{}", done.stderr);
    }
}
