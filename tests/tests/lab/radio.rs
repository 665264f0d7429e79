//! Links with an emulated radio.

use std::fs;
use std::path::Path;

use manyways_tests::{
    Folder, Need, Outcome, conclusive, finish, folder, manyways, max_lateness, needs,
};
use serde_json::Value;

use crate::running::{Lab, eventually, lab_shell, shared_host};

/// A radio with the inactivity timer `timer` and a promotion delay of 1 s.
fn profile(timer: &str) -> String {
    let state = |name: &str, more: &str| {
        format!("[[state]]\nname = \"{name}\"\npower = \"1W\"\nsource = \"made up\"\n{more}\n")
    };
    format!(
        "title = \"A radio for tests\"\ntechnology = \"lte\"\n\
         [transfer]\nsend = \"1W\"\nreceive = \"1W\"\nsource = \"made up\"\n{}{}",
        state("connected", &format!("timer = \"{timer}\"")),
        state(
            "idle",
            "promotion-delay = \"1s\"\nlisten-every = \"200ms\"\nlisten-for = \"1ms\"\n\
             listen-power = \"1W\""
        ),
    )
}

fn written(timer: &str) -> (Folder, String) {
    let files = folder();
    let file = files.path().join("radio.toml");
    fs::write(&file, profile(timer)).expect("room for a profile");
    let name = file.display().to_string();
    (files, name)
}

/// The radio of the first link in `lab status --json`.
fn radio(lab: &Lab) -> Value {
    lab.status()["links"][0]["radio"].clone()
}

/// Round-trip time of one ping in milliseconds.
fn ping(lab: &Lab) -> f64 {
    let output = lab.device("ping -n -c 1 -W 60 198.18.0.1").expect_success().stdout;
    let time = output.split("time=").nth(1).and_then(|rest| rest.split(' ').next());
    time.and_then(|time| time.parse().ok()).unwrap_or_else(|| panic!("{output}"))
}

#[test]
fn a_packet_wakes_the_radio_and_the_device_sends_it_to_sleep() {
    needs!(Need::Root, Need::Command("ping"), Need::Command("ip"));
    let (_files, file) = written("1h");
    let lab = Lab::start(&["--link", &format!("lte:delay=1ms,rrc={file}"), "--link", "wifi"]);
    let seen = radio(&lab);
    assert_eq!((&seen["state"], &seen["promotions"]), (&"idle".into(), &0.into()), "{seen}");
    assert_eq!(seen["profile"], *file);

    assert!(ping(&lab) >= 1_002.0, "a promotion and twice the delay");
    let seen = radio(&lab);
    assert_eq!((&seen["state"], &seen["promotions"]), (&"connected".into(), &1.into()), "{seen}");
    // Both directions share one radio, which stays connected for an hour.
    ping(&lab);
    lab.host("origin", "ping -n -c 1 -W 60 10.64.1.2").expect_success();
    assert_eq!(radio(&lab)["promotions"], 1);

    lab.set(&["lte", "rrc=dormant"]).expect_success();
    let seen = radio(&lab);
    assert_eq!((&seen["state"], &seen["sleeps"]), (&"idle".into(), &1.into()), "{seen}");
    // A packet lost before the radio does not cause a promotion.
    lab.set(&["lte", "state=silent"]).expect_success();
    assert_eq!(lab.device("ping -n -c 1 -W 1 198.18.0.1").code(), 1);
    lab.set(&["lte", "state=up"]).expect_success();
    let seen = radio(&lab);
    assert_eq!((&seen["state"], &seen["promotions"]), (&"idle".into(), &1.into()), "{seen}");
    // Here the server wakes the radio; the reply arrives while it is connected.
    lab.host("origin", "ping -n -c 1 -W 60 10.64.1.2").expect_success();
    let seen = radio(&lab);
    let from = serde_json::json!([{ "state": "idle", "count": 2 }]);
    assert_eq!((&seen["promotions"], &seen["promotions_from"]), (&2.into(), &from), "{seen}");

    let output = finish(manyways().args(["lab", "status", &lab.name])).expect_success().stdout;
    let line = format!("lte        radio {file}: connected; 2 promotions (2 from idle)");
    assert!(output.contains(&line), "{output}");
    let done = lab.set(&["wifi", "rrc=dormant"]);
    assert_eq!(done.code(), 2);
    assert!(done.stderr.contains("link `wifi` has no radio\nhint: "), "{}", done.stderr);
    let done = lab.set(&["lte", &format!("rrc={file}")]);
    assert_eq!(done.code(), 2);
    assert!(done.stderr.contains("`rrc` cannot change while the link runs"), "{}", done.stderr);
}

#[test]
fn a_silence_lets_the_radio_go() {
    needs!(Need::Root, Need::Command("ping"), Need::Command("ip"));
    let (_files, file) = written("400ms");
    let lab = Lab::start(&["--link", &format!("lte:rrc={file}")]);
    for _ in 0..2 {
        let before = radio(&lab)["promotions"].as_u64();
        ping(&lab);
        // The reply of a busy machine may come after the timer has expired, and is one more.
        assert!(radio(&lab)["promotions"].as_u64() > before);
        eventually("the radio is idle", || (radio(&lab)["state"] == "idle").then_some(()));
    }
}

/// The transmission of 1428 bytes takes longer than the timer, and the reply follows immediately.
#[test]
fn what_is_being_sent_keeps_the_radio_awake() {
    needs!(Need::Root, Need::Command("ping"), Need::Command("ip"));
    let (_files, file) = written("400ms");
    conclusive(|| {
        let lab = Lab::start(&["--link", &format!("lte:up=10kbit,rrc={file}")]);
        lab.device("ping -n -c 1 -s 1400 -W 60 198.18.0.1").expect_success();
        let promotions = &radio(&lab)["promotions"];
        let wrong = (*promotions != 1).then(|| format!("{promotions} promotions"));
        let lateness = max_lateness(&lab.status().to_string());
        Outcome { wrong: wrong.into_iter().collect(), lateness }
    });
}

/// Packets that wait for a promotion are in the link's queue.
#[test]
fn a_burst_waits_in_order_and_within_the_queue() {
    needs!(Need::Root, Need::Command("ping"), Need::Command("ip"));
    let (_files, file) = written("1h");
    let link = format!("lte:down=unlimited,up=10mbit,up-queue=5p,rrc={file}");
    let lab = Lab::start(&["--link", &link]);
    let output = lab.device("ping -n -c 9 -l 9 -W 5 198.18.0.1; true").stdout;
    // The first packets wait for a second, in which all others arrive.
    let order: Vec<&str> =
        output.split("icmp_seq=").skip(1).filter_map(|rest| rest.split(' ').next()).collect();
    assert!(output.contains("9 packets transmitted, 5 received"), "{output}");
    assert_eq!(order, ["1", "2", "3", "4", "5"], "{output}");
    assert_eq!(radio(&lab)["promotions"], 1);
}

#[test]
fn a_scenario_has_a_radio_and_says_what_is_wrong_with_one() {
    needs!(Need::Root, Need::Command("ping"), Need::Command("ip"));
    let (files, _) = written("1h");
    let text = "name = \"radio\"\n[link.lte]\ndelay = \"1ms\"\nrrc = \"./radio.toml\"\n\
                [[event]]\nat = \"2s\"\nlink = \"lte\"\nrrc = \"dormant\"\n\
                [[workload]]\nname = \"ping\"\nrun = \"ping -n -c 2 -i 4 198.18.0.1\"\n\
                [[workload]]\nname = \"again\"\nrun = \"ping -n -c 1 198.18.0.1\"\n\
                [[expect]]\nworkload = \"ping\"\nvalue = \"lte.promotions\"\nis = \"== 2\"\n\
                [[expect]]\nworkload = \"again\"\nvalue = \"lte.promotions\"\nis = \"== 1\"\n";
    let file = files.path().join("scenario.toml");
    fs::write(&file, text).expect("room for a scenario");
    let lab = |what: &str, file: &Path| {
        let _guard = shared_host();
        finish(manyways().args(["lab", what]).arg(file))
    };
    lab("check", &file).expect_success();
    let done = lab("run", &file).expect_success();
    assert!(
        done.stdout.contains("held   again.lte.promotions == 1 (measured: 1)"),
        "{}",
        done.stdout
    );

    for (radio, message, hint) in [
        ("ltee", ":4:7: link `lte`: there is no radio profile `ltee`", "did you mean `lte`?"),
        ("wimax", ":4:7: link `lte`: there is no radio profile `wimax`", "use one of 3g-i997, "),
        ("./no.toml", ":4:7: rrc: cannot read `./no.toml`", ""),
        (
            "./scenario.toml",
            ":4:7: link `lte`: rrc: `./scenario.toml`: line ",
            "the keys are title",
        ),
    ] {
        let wrong = files.path().join("scenario.toml");
        fs::write(&wrong, text.replace("./radio.toml", radio)).expect("room for a scenario");
        for what in ["check", "run"] {
            let done = lab(what, &wrong);
            assert_eq!(done.code(), 2, "{radio}: {}", done.stderr);
            for part in [message, hint] {
                assert!(done.stderr.contains(part), "{radio}: no `{part}` in {}", done.stderr);
            }
        }
    }
    let done = finish(lab_shell(&["--link", "lte:rrc=ltee"]).args(["--", "true"]));
    assert_eq!(done.code(), 2);
    assert!(done.stderr.contains("hint: did you mean `lte`?"), "{}", done.stderr);
}
