//! `manyways radio probe` on emulated links with known radios.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use manyways_rig::radio_profile;
use manyways_tests::testbed::eventually;
use manyways_tests::{
    Finished, Need, Outcome, Running, conclusive, finish, folder, manyways, max_lateness, needs,
};
use nix::sys::signal::Signal;
use serde_json::Value;

/// A command in a lab with a radio that is connected for 300 ms after a packet, then needs a promotion
/// of 60 ms, and from 900 ms on one of 120 ms.
fn in_lab(files: &Path, words: &[&str]) -> Command {
    let profile = radio_profile([0.3, 0.9], [0.06, 0.12]);
    fs::write(files.join("radio.toml"), profile).expect("room for a profile");
    let mut command = manyways();
    let link = format!("lte:delay=10ms,rrc={}", files.join("radio.toml").display());
    command.args(["lab", "shell", "--link", &link, "--"]).args(words).current_dir(files);
    command
}

fn probe<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let words = ["manyways", "radio", "probe", "--interface", "lte", "--json"];
    [&words[..], more].concat()
}

fn document(done: &Finished) -> Value {
    serde_json::from_str(&done.stdout)
        .unwrap_or_else(|error| panic!("{error}\n{}\n{}", done.stdout, done.stderr))
}

/// Returns the deviations of the result from the profile: timers of more than 0.1 s, promotions of
/// more than 20 ms.
fn deviations(found: &Value) -> Vec<String> {
    let timers = found["timers"].as_array().expect("a list");
    let number = |value: &Value| value.as_f64().expect("a number");
    let is_near = |timer: &Value, end: f64, promotion: f64| {
        let edges = ["onset", "completion"].map(|edge| number(&timer[edge]["seconds"]));
        edges.iter().all(|seconds| (seconds - end).abs() <= 0.1)
            && (number(&timer["promotion_seconds"]) - promotion).abs() <= 0.02
    };
    let near = [(0.3, 0.06), (0.9, 0.12)];
    let is_right = timers.len() == near.len()
        && timers.iter().zip(near).all(|(timer, (end, late))| is_near(timer, end, late));
    if is_right { Vec::new() } else { vec![format!("{found:#}")] }
}

// Slow: waits for 48 gaps of up to 1.2 s, 30 s in total.
#[test]
fn the_timers_of_an_emulated_radio_are_found() {
    needs!(Need::Root, Need::Command("ip"));
    let ladder = ["--from", "50ms", "--to", "1200ms", "--step", "50ms", "--rounds", "2"];
    let target = ["--target", "198.18.0.1", "--output", "probes.csv"];
    let words = probe(&[&target[..], &ladder].concat());
    let mut last = None;
    conclusive(|| {
        let files = folder();
        let and_status = "\"$@\" && manyways lab status --json >status.json";
        let script = [&["sh", "-c", and_status, "sh"], &words[..]].concat();
        let done = finish(&mut in_lab(files.path(), &script)).expect_success();
        let found = document(&done);
        assert_eq!(found["schema"], "manyways.radio-probe/1");
        let so_far = (&found["planned"], &found["answered"], &found["whole"]);
        assert_eq!(so_far, (&48.into(), &48.into(), &true.into()), "{found:#}");
        assert_eq!(found["method"], "ICMP echo");
        assert!(done.stderr.contains("48 gaps in about 30 s"), "{}", done.stderr);
        let status = fs::read_to_string(files.path().join("status.json")).expect("it is written");
        let wrong = deviations(&found);
        last = Some((files, found));
        Outcome { wrong, lateness: max_lateness(&status) }
    });
    let (files, found) = last.expect("it ran");

    let text = fs::read_to_string(files.path().join("probes.csv")).expect("it is written");
    assert_eq!(text.lines().count(), 49, "{text}");
    // With --resume there is nothing left to do; without it the existing file is refused.
    let mut words = [&words[..], &["--resume"]].concat();
    let done = finish(&mut in_lab(files.path(), &words)).expect_success();
    assert_eq!(document(&done)["timers"], found["timers"]);
    words.pop();
    let done = finish(&mut in_lab(files.path(), &words));
    assert_eq!(done.code(), 2);
    assert!(done.stderr.contains("probes.csv already exists\nhint: --resume"), "{}", done.stderr);
}

/// By TCP to a closed port, while another program sends sometimes.
// Slow: waits for 39 undisturbed gaps of up to 0.7 s.
#[test]
fn disturbed_gaps_do_not_count() {
    needs!(Need::Root, Need::Command("ip"), Need::Command("ping"));
    let files = folder();
    let script = "ping -q -i 1.7 198.18.0.1 > /dev/null & \
                  manyways radio probe --interface lte --json --target 198.18.0.1:9 --from 100ms \
                  --to 700ms --step 50ms --rounds 3; status=$?; kill $!; exit $status";
    let done = finish(&mut in_lab(files.path(), &["sh", "-c", script])).expect_success();
    let found = document(&done);
    assert_eq!((&found["method"], &found["answered"]), (&"TCP to port 9".into(), &39.into()));
    assert!(found["disturbed"].as_u64().expect("a number") > 0, "{found:#}");
    // Every counted gap was undisturbed: after the timer no probe found the radio connected.
    let text = fs::read_to_string(files.path().join("radio-probe-lte.csv")).expect("written");
    let mut count = 0;
    for line in text.lines().skip(1) {
        let fields: Vec<f64> = line.split(',').map(|field| field.parse().unwrap()).collect();
        let [idle, round_trip, silence, ..] = fields[..] else { panic!("{line}") };
        assert!(silence >= idle, "{line}");
        if idle >= 0.35 {
            assert!(round_trip >= 0.08, "{line}");
            count += 1;
        }
    }
    assert_eq!(count, 3 * 8);
}

// Slow: waits for 72 gaps of up to 0.4 s, 16 s in total.
#[test]
fn a_stopped_run_can_be_resumed() {
    needs!(Need::Root, Need::Command("ip"));
    let files = folder();
    let ladder = ["--from", "50ms", "--to", "400ms", "--step", "10ms", "--rounds", "2"];
    let words = probe(&[&["--target", "198.18.0.1", "-o", "probes.csv"][..], &ladder].concat());
    let mut command = in_lab(
        files.path(),
        &[&["sh", "-c", "echo ready; exec \"$@\"", "sh"], &words[..]].concat(),
    );
    let mut running = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::null()));
    let stdout = running.stdout().expect("piped above");
    let mut lines = BufReader::new(stdout).lines();
    // The lab has started its command by then, and forwards a signal to it.
    lines.next().expect("it starts").expect("a pipe can be read");
    let path = files.path().join("probes.csv");
    let written = || fs::read_to_string(&path).map_or(0, |text| text.lines().count());
    eventually("answers are written", || (written() >= 4).then_some(()));
    running.signal(Signal::SIGTERM);
    let output: String = lines.map_while(Result::ok).collect();
    let found: Value = serde_json::from_str(&output).expect("what there is");
    assert_eq!((&found["whole"], &found["planned"]), (&false.into(), &72.into()), "{found:#}");
    assert!(
        found["no_timer"].as_str().is_some_and(|reason| reason.contains("too few")),
        "{found:#}"
    );
    let before = written() - 1;
    assert_eq!(found["answered"], before);

    let done =
        finish(&mut in_lab(files.path(), &[&words[..], &["--resume"]].concat())).expect_success();
    assert!(
        done.stderr.contains(&format!(
            "Resumed probes to 198.18.0.1 over lte by ICMP echo: {} gaps",
            72 - before
        )),
        "{}",
        done.stderr
    );
    assert_eq!((document(&done)["answered"].clone(), written()), (72.into(), 73));
}

#[test]
fn invalid_arguments_are_refused() {
    let probe = |words: &[&str]| finish(manyways().args(["radio", "probe"]).args(words));
    let lo = ["--interface", "lo", "--target", "127.0.0.1"];
    for (words, message, hint) in [
        (
            &["--interface", "nowhere0", "--target", "127.0.0.1"][..],
            "there is no interface `nowhere0`",
            "the interfaces are ",
        ),
        (
            &["--interface", "lo", "--target", "127.0.0.1:http"],
            "no port after the colon",
            "write it like",
        ),
        (
            &[&lo[..], &["--to", "100ms"]].concat(),
            "there is no gap to probe",
            "--from, --to and --step",
        ),
        (
            &[&lo[..], &["--step", "1ms", "--rounds", "1000"]].concat(),
            "more than 100000 probes",
            "--from",
        ),
        (&[&lo[..], &["--step", "0s"]].concat(), "--step", ""),
    ] {
        let done = probe(words);
        assert_eq!(done.code(), 2, "{words:?}: {}", done.stderr);
        for part in [message, hint] {
            assert!(done.stderr.contains(part), "{words:?}: no `{part}` in {}", done.stderr);
        }
    }
    let files = folder();
    let other = files.path().join("other.csv");
    fs::write(&other, "time,bytes\n").expect("room for a file");
    let name = other.display().to_string();
    // The file is checked before the target is probed, but the target must answer first.
    let done = probe(&["--interface", "lo", "--target", "127.0.0.1:9", "-o", &name, "--resume"]);
    assert_eq!(done.code(), 1, "{}", done.stderr);
    assert!(done.stderr.contains("is not a file of radio probes"), "{}", done.stderr);
    assert_eq!(fs::read_to_string(&other).expect("it is there"), "time,bytes\n");
}
