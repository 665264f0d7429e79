//! Shipped scenarios, scenarios of tests, and invalid scenarios.

use std::fs;
use std::path::{Path, PathBuf};

use manyways_tests::{Finished, Need, SHELL, fault, finish, folder, manyways, needs};
use serde_json::Value;

use crate::running::{eventually, nginx_script, shared_host};

fn shipped() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios")
}

fn run(file: &Path) -> (Finished, Value) {
    let _guard = shared_host();
    let done = finish(manyways().args(["lab", "run"]).arg(file).args(["--json", "-"]));
    let report = serde_json::from_str(&done.stdout)
        .unwrap_or_else(|error| panic!("{error}\n{}\n{}", done.stdout, done.stderr));
    (done, report)
}

/// Writes a scenario and runs it; every workload must succeed.
pub fn run_text(text: &str) -> Value {
    let files = folder();
    let file = files.path().join("written.toml");
    fs::write(&file, text).expect("room for a scenario");
    let (done, report) = run(&file);
    assert!(report["passed"] == true, "{report:#}\n{}", done.stderr);
    done.expect_success();
    report
}

/// Asserts all expectations of a shipped scenario except those that a busy machine can fail.
fn run_shipped(name: &str) {
    needs!(
        Need::Root,
        Need::Command("nginx"),
        Need::Command("curl"),
        Need::Command("mptcpize"),
        Need::Command("ip")
    );
    let (done, report) = run(&shipped().join(name));
    assert_eq!(report["schema"], "manyways.lab-run/1");
    for workload in report["workloads"].as_array().expect("a list") {
        assert_eq!(workload["exit"], 0, "{report:#}\n{}", done.stderr);
        assert_eq!(workload["timed_out"], false);
    }
    for expectation in report["expectations"].as_array().expect("a list") {
        let held = expectation["held"] == true || expectation["value"] == "seconds";
        assert!(held, "{expectation:#}\n{}", done.stderr);
    }
}

#[test]
fn an_event_that_never_happens_is_reported() {
    needs!(Need::Root, Need::Command("ip"), Need::Command("ping"));
    let text = r#"
        name = "missed"
        [link.wifi]
        [link.lte]
        [[event]]
        when = "wifi.up_bytes >= 100"
        link = "lte"
        state = "paused"
        [[event]]
        when = "lte.up_bytes >= 1KB"
        until = "lte.up_bytes >= 500"
        link = "wifi"
        state = "silent"
        [[workload]]
        name = "one"
        run = "ping -q -c 1 -s 100 -I wifi 198.18.0.1"
        [[expect]]
        workload = "one"
        value = "missed_events"
        is = "== 1"
    "#;
    let report = run_text(text);
    let missed = serde_json::json!([{"link": "wifi", "set": ["state=silent"], "made": false,
        "in_seconds": null, "counter": "lte.up_bytes", "remaining": 1_000}]);
    assert_eq!(report["workloads"][0]["missed_events"], missed);
    let files = folder();
    let file = files.path().join("missed.toml");
    fs::write(&file, text).expect("room for a scenario");
    let done = finish(manyways().args(["lab", "check"]).arg(file)).expect_success();
    assert!(done.stderr.contains("link `wifi`: the event never happens"), "{}", done.stderr);
}

#[test]
fn mptcp_over_two_links() {
    run_shipped("mptcp.toml");
}

#[test]
fn a_scripted_outage() {
    run_shipped("outage.toml");
}

#[test]
fn three_links() {
    run_shipped("three-links.toml");
}

#[test]
fn links_that_follow_traces() {
    run_shipped("traces.toml");
}

#[test]
fn two_hosts() {
    run_shipped("two-hosts.toml");
}

#[test]
fn wifi_and_lte() {
    run_shipped("wifi-lte.toml");
}

#[test]
fn every_shipped_scenario_is_right_and_has_its_test() {
    let tests = include_str!("scenarios.rs");
    let mut count = 0;
    for file in fs::read_dir(shipped()).expect("the scenarios are there").flatten() {
        let name = file.file_name().to_string_lossy().into_owned();
        if name.ends_with(".toml") {
            finish(manyways().args(["lab", "check"]).arg(file.path())).expect_success();
            assert!(tests.contains(&format!("run_shipped(\"{name}\")")), "nobody runs {name}");
            count += 1;
        }
    }
    assert!(count >= 6);
}

/// Bytes that a workload received over a link.
fn down_bytes(report: &Value, workload: usize, link: usize) -> u64 {
    report["workloads"][workload]["links"][link]["down_bytes"].as_u64().expect("a number")
}

/// Every capacity format, with files of other projects.
#[test]
fn traces_of_others() {
    needs!(Need::Root, Need::Command("nginx"), Need::Command("curl"));
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/traces");
    let mahimahi = traces.join("mahimahi/TMobile-LTE-short.down");
    needs!(Need::File(&mahimahi.display().to_string()));
    let trace =
        |name: &str| traces.join(name).canonicalize().expect("a trace").display().to_string();
    let text = format!(
        "name = \"others\"\n\
         [link.lte]\ndown = \"trace:{}\"\nup = \"trace:{}\"\ndelay = \"5ms\"\n\
         [link.walk]\ndown = \"trace:{}\"\nup = \"10mbit\"\n\
         [link.bicycle]\ndown = \"trace:{}\"\nup = \"10mbit\"\n\
         [host.origin]\nserve = ['sh {} origin']\n\
         {}",
        trace("mahimahi/TMobile-LTE-short.down"),
        trace("mahimahi/TMobile-LTE-short.up"),
        trace("mbps/5g_trace_100_walking.txt"),
        trace("abr/4Glogs/report_bicycle_0001.json"),
        nginx_script(),
        ["lte", "walk", "bicycle"]
            .map(|link| format!(
                "[[workload]]\nname = \"{link}\"\n\
                 run = \"curl -sSf --interface {link} -o /dev/null http://origin.lab/1M\"\n"
            ))
            .concat(),
    );
    let report = run_text(&text);
    for link in 0..3 {
        assert!(down_bytes(&report, link, link) > 1_000_000, "{report:#}");
    }
}

#[test]
fn an_outage_with_and_without_carrier() {
    needs!(Need::Root, Need::Command("ip"), Need::Command("ping"));
    // Packets over LTE are the clock of the events: the kernel reports a change of the carrier up
    // to a second late. Each workload starts with the links as specified; the second one ends
    // before the first event.
    let report = run_text(&format!(
        "name = \"outages\"\n[link.wifi]\ndelay = \"1ms\"\n[link.lte]\n\
         [[event]]\nwhen = \"lte.up_bytes >= 1\"\nlink = \"wifi\"\nstate = \"no-carrier\"\n\
         [[event]]\nwhen = \"lte.up_bytes >= 1001\"\nlink = \"wifi\"\nstate = \"up\"\n\
         [[event]]\nwhen = \"lte.up_bytes >= 2001\"\nlink = \"wifi\"\nstate = \"silent\"\n\
         [[event]]\nwhen = \"lte.up_bytes >= 3001\"\nlink = \"wifi\"\nloss = \"50%\"\nstate = \"up\"\n\
         [[workload]]\nname = \"first\"\nrun = '''{SHELL}\n\
         tick() {{ ping -q -c 1 -s 972 -W 60 -I lte 198.18.0.1 >/dev/null; }}\n\
         shows() {{ ip link show wifi | grep -q $1; }}\n\
         passes() {{ ping -q -c 1 -W 1 -I wifi 198.18.0.1 >/dev/null; }}\n\
         fails() {{ ! passes; }}\n\
         tick; eventually shows NO-CARRIER; tick; eventually shows LOWER_UP; eventually passes\n\
         tick; eventually fails; tick; eventually passes\n'''\n\
         [[workload]]\nname = \"second\"\nrun = \"ping -q -c 20 -i 0.002 -I wifi 198.18.0.1 | grep -q ' 0% packet loss'\"\n",
    ));
    assert!(report["workloads"][0]["links"][0]["up_dropped"].as_u64() > Some(0), "{report:#}");
}

/// A server host has additional delay, and each gateway resolves a name differently.
#[test]
fn hosts_differ_in_delay_and_in_who_tells_their_names() {
    needs!(Need::Root, Need::Command("ip"), Need::Command("ping"));
    let text = "name = \"cdn\"\n[link.wifi]\n[link.lte]\n\
        [host.near]\nnames = [\"cdn.lab@wifi\", \"both.lab\"]\nextra-delay = { lte = \"150ms\" }\n\
        [host.far]\nnames = [\"cdn.lab@lte\"]\nextra-delay = { wifi = \"150ms\" }\n\
        [[workload]]\nname = \"delays\"\nrun = '''\n\
        rtt() { ping -c 1 -I $1 $2 | sed -n 's/.*time=\\([0-9]*\\).*/\\1/p'; }\n\
        wn=$(rtt wifi near.lab) wf=$(rtt wifi far.lab) ln=$(rtt lte near.lab) lf=$(rtt lte far.lab)\n\
        echo $wn $wf $ln $lf\n\
        [ $wf -ge 300 ] && [ $ln -ge 300 ] && [ $((wf - wn)) -gt 100 ] && [ $((ln - lf)) -gt 100 ]\n'''\n\
        [[workload]]\nname = \"names\"\nrun = '''\n\
        for gateway in 10.64.1.1 10.64.2.1; do\n\
        echo nameserver $gateway > $LAB_DIR/resolv.conf\n\
        for name in cdn.lab both.lab; do getent ahostsv4 $name | sed -n '1s/ .*//p'; done\n\
        done > $LAB_DIR/seen; cat $LAB_DIR/seen\n\
        [ \"$(echo $(cat $LAB_DIR/seen))\" = '198.18.0.1 198.18.0.1 198.18.0.2 198.18.0.1' ]\n'''\n";
    run_text(text);
}

#[test]
fn what_is_expected_decides_the_exit_code() {
    needs!(Need::Root, Need::Command("ip"));
    let files = folder();
    let file = files.path().join("fails.toml");
    let text = "name = \"fails\"\n[link.wifi]\n[[workload]]\nname = \"one\"\nrun = \"exit 3\"\n\
                [[expect]]\nworkload = \"one\"\nvalue = \"exit\"\nis = \"== 3\"\n";
    fs::write(&file, text).unwrap();
    let (done, report) = run(&file);
    assert_eq!((done.code(), &report["passed"]), (0, &Value::Bool(true)));

    // The workload has no expectations, so it must succeed; it is killed at its timeout.
    let hangs = "[[workload]]\nname = \"hangs\"\nrun = \"sleep 1000\"\ntimeout = \"300ms\"\n";
    fs::write(&file, format!("{text}{hangs}")).unwrap();
    let (done, report) = run(&file);
    assert_eq!((done.code(), &report["passed"]), (1, &Value::Bool(false)));
    assert_eq!(report["workloads"][1]["timed_out"], true);
    assert_eq!(report["workloads"][1]["exit"], Value::Null);

    fs::write(&file, text.replace("== 3", "== 0")).unwrap();
    let (done, report) = run(&file);
    assert_eq!((done.code(), &report["passed"]), (1, &Value::Bool(false)));
    assert_eq!(report["expectations"][0]["measured"], 3.0);
    assert_eq!(report["expectations"][0]["held"], false);
}

#[test]
fn a_workload_finds_its_scenario_and_its_lab() {
    needs!(Need::Root, Need::Command("ip"));
    let files = folder();
    fs::write(files.path().join("note"), "here").unwrap();
    let file = files.path().join("places.toml");
    let run_this = "grep -q here $SCENARIO_DIR/note && grep -q localhost $LAB_DIR/hosts";
    fs::write(
        &file,
        format!(
            "name = \"places\"\n[link.wifi]\n[[workload]]\nname = \"look\"\nrun = \"{run_this}\"\n"
        ),
    )
    .unwrap();
    let (done, _) = run(&file);
    done.expect_success();
    // A second run with a relative file name.
    let _guard = shared_host();
    let words = ["lab", "run", "places.toml"];
    let done = finish(manyways().args(words).current_dir(files.path())).expect_success();
    assert!(done.stdout.starts_with("workload"), "{}", done.stdout);
}

#[test]
fn a_shell_can_take_its_links_from_a_scenario() {
    needs!(Need::Root, Need::Command("ip"), Need::Command("nginx"), Need::Command("curl"));
    let file = shipped().join("two-hosts.toml");
    let _guard = shared_host();
    let ask = "curl -sS http://cdn.lab/address && ls $SCENARIO_DIR/two-hosts.toml >/dev/null";
    let words = ["lab", "shell", "--scenario", file.to_str().unwrap(), "--", "sh", "-c", ask];
    let done = finish(manyways().args(words)).expect_success();
    assert_eq!(done.stdout, "fd00:64:1::2\n");
}

#[test]
fn a_wrong_scenario_is_pointed_at() {
    let files = folder();
    let file = files.path().join("wrong.toml");
    let good = "name = \"x\"\n[link.wifi]\ndown = \"1mbit\"\n";
    for (text, place, message) in [
        ("name = \"x\"\n", "1:1", "the scenario has no link"),
        ("name = \"x\"\n[link.wifi]\ndown = \"1mbitt\"\n", "3:8", "capacity"),
        ("name = \"x\"\n[link.wifi]\n  dwn = \"1mbit\"\n", "3:3", "dwn"),
        ("name = \"x\"\n[link.wifi\n", "2:", ""),
        (&format!("{good}down = \"2mbit\"\n"), "4:1", "`down` is given twice"),
        (&format!("{good}[link.wifi]\n"), "4:7", "`[link.wifi]` is given twice"),
        (&format!("{good}[[event]]\nat = \"1s\"\nlink = \"lte\"\nstate = \"up\"\n"), "6:8", "lte"),
        (&format!("{good}loss = \"trace:x\"\n"), "4:8", ""),
        (&format!("{good}up = \"trace:nowhere\"\n"), "4:6", "cannot read `nowhere`"),
        (&format!("{good}[[workload]]\nname = \"w\"\n"), "4:1", "run"),
    ] {
        fs::write(&file, text).unwrap();
        for verb in ["check", "run"] {
            let done = finish(manyways().args(["lab", verb]).arg(&file));
            assert_eq!(done.code(), 2, "{text}\n{}", done.stderr);
            let start = format!("manyways: {}:{place}", file.display());
            assert!(done.stderr.starts_with(&start), "{start}\n{}", done.stderr);
            assert!(done.stderr.contains(message), "{message}\n{}", done.stderr);
        }
    }
    let done = finish(manyways().args(["lab", "check", "/nowhere/x.toml"]));
    assert!(
        done.code() > 0 && done.stderr.contains("cannot read /nowhere/x.toml"),
        "{}",
        done.stderr
    );
}

/// A stopped run stops its workload.
#[test]
fn a_stopped_run_leaves_nothing() {
    needs!(Need::Root, Need::Command("ip"));
    let files = folder();
    let (file, pid) = (files.path().join("long.toml"), files.path().join("pid"));
    let text = format!(
        "name = \"long\"\n[link.wifi]\n[[workload]]\nname = \"long\"\n\
         run = \"echo $LAB_NAME > {0}.new && mv {0}.new {0} && exec sleep 1000\"\n",
        pid.display()
    );
    fs::write(&file, text).unwrap();
    let _guard = shared_host();
    let mut command = manyways();
    let mut running = manyways_tests::Running::start(command.args(["lab", "run"]).arg(&file));
    let lab = eventually("the workload starts", || fs::read_to_string(&pid).ok());
    running.signal(nix::sys::signal::Signal::SIGINT);
    let status = running.wait(crate::running::PATIENCE).expect("it ends");
    assert_eq!(status.code(), Some(130));
    let left = crate::running::processes_of(lab.trim());
    fault!(left.is_empty(), "processes remain: {left}");
}
