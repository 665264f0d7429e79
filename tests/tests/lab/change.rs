//! Running labs: `lab set`, `lab enter`, `lab list`.

use manyways_tests::{Need, finish, manyways, needs};

use crate::running::{Lab, TWO_LINKS, eventually, name};

/// Whether a packet passes a link in both directions within `timeout` seconds.
fn ping(lab: &Lab, link: &str, timeout: u32) -> bool {
    let ping = format!("ping -q -c 1 -W {timeout} -I {link} 198.18.0.1");
    lab.device(&ping).status.success()
}

/// The timeout allows for a busy machine.
fn is_passing(lab: &Lab, link: &str) -> bool {
    ping(lab, link, 30)
}

fn is_blocked(lab: &Lab, link: &str) -> bool {
    !ping(lab, link, 1)
}

#[test]
fn set_changes_a_link_while_it_runs() {
    needs!(Need::Root, Need::Command("ping"), Need::Command("ip"));
    let lab = Lab::start(&TWO_LINKS);
    assert!(is_passing(&lab, "wifi"));
    let set = |words: &[&str]| lab.set(words).expect_success();

    set(&["wifi", "loss=100%"]);
    assert!(is_blocked(&lab, "wifi"));
    assert!(is_passing(&lab, "lte"), "the other link is not concerned");
    set(&["wifi", "loss=none", "up-loss=100%"]);
    assert!(is_blocked(&lab, "wifi"));
    set(&["wifi", "loss=none"]);
    assert!(is_passing(&lab, "wifi"));

    set(&["wifi", "state=silent"]);
    assert!(is_blocked(&lab, "wifi"));
    let link = "ip -br link show wifi; ip route get 198.18.0.1";
    let seen = lab.device(link).expect_success().stdout;
    assert!(seen.contains("LOWER_UP") && seen.contains("dev wifi"), "nobody is told: {seen}");

    // The kernel handles a carrier change asynchronously.
    let shows = |state: &str, route: &str| {
        eventually(state, || {
            let seen = lab.device(link).expect_success().stdout;
            (seen.contains(state) && seen.contains(route)).then_some(())
        });
    };
    set(&["wifi", "state=no-carrier"]);
    shows("NO-CARRIER", "dev lte");
    set(&["wifi", "state=up"]);
    shows("LOWER_UP", "dev wifi");
    assert!(is_passing(&lab, "wifi"));

    // A rate of zero delivers nothing; waiting packets are delivered after the rate is raised.
    set(&["wifi", "down=0bit"]);
    assert!(is_blocked(&lab, "wifi"));
    set(&["wifi", "down=5mbit", "up=unlimited", "delay=3ms"]);
    assert!(is_passing(&lab, "wifi"));
}

#[test]
fn set_refuses_what_it_cannot_do() {
    needs!(Need::Root, Need::Command("ip"));
    let lab = Lab::start(&TWO_LINKS);
    for (words, message, hint) in [
        (&["wlan", "down=1mbit"][..], "there is no link `wlan`", "the links are wifi, lte"),
        (&["wifi", "dwn=1mbit"], "a link has no key `dwn`", "did you mean `down`?"),
        (&["wifi", "mtu=1400"], "`mtu` cannot change while the link runs", ""),
        (&["wifi", "down=trace:no-such-file"], "cannot read", "no-such-file"),
        (&["wifi", "loss=2"], "loss", ""),
        (
            &["--when", "wlan.down_bytes >= 1KB", "wifi", "state=paused"],
            "there is no link `wlan`",
            "",
        ),
        (&["--when", "wifi.down >= 1KB", "wifi", "state=paused"], "wifi.down >= 1KB", "down_bytes"),
        (&["--when", "wifi.down_bytes < 1KB", "wifi", "state=paused"], ">=", ""),
        (&["--until", "wifi.promotions >= 1", "wifi", "state=paused"], "radio", ""),
        (&["--when", "wifi.down_bytes >= 0", "wifi", "state=paused"], "a size above 0", "300KB"),
        (&["--cancel", "--after", "2s", "wifi"], "nothing is to be changed", "state=paused"),
        (&["--after", "-2s", "wifi", "state=paused"], "--after: `-2s`", ""),
        (&["--cancel", "wlan"], "there is no link `wlan`", ""),
    ] {
        let done = lab.set(words);
        assert_eq!(done.code(), 2, "{words:?}: {}", done.stderr);
        for part in [message, hint] {
            assert!(done.stderr.contains(part), "{words:?}: no `{part}` in {}", done.stderr);
        }
    }
}

#[test]
fn enter_opens_a_second_command_on_the_device_or_on_a_host() {
    needs!(Need::Root, Need::Command("ip"));
    let hosts = ["--host", "near", "--host", "far:wifi=10ms"];
    let lab = Lab::start(&[&TWO_LINKS[..], &hosts].concat());
    let addresses = "ip -o -4 addr | awk '{print $2, $4}'; echo $LAB_NAME; cat /etc/resolv.conf";
    let device = lab.device(addresses).expect_success().stdout;
    assert!(device.contains("lte 10.64.2.2/24") && device.contains(&lab.name), "{device}");
    assert!(device.contains("nameserver 10.64.1.1"), "{device}");
    let far = lab.host("far", addresses).expect_success().stdout;
    assert!(far.contains("lo 198.18.0.2/32") && far.contains(&lab.name), "{far}");
    assert_eq!(lab.device("exit 9").code(), 9);

    let done = lab.host("nowhere", "true");
    assert_eq!(done.code(), 1);
    assert!(done.stderr.contains("has no host `nowhere`"), "{}", done.stderr);
    assert!(done.stderr.contains("hint: its hosts are near, far"), "{}", done.stderr);
}

#[test]
fn list_names_what_runs() {
    needs!(Need::Root, Need::Command("ip"));
    let lab = Lab::start(&TWO_LINKS);
    let text = finish(manyways().args(["lab", "list"])).expect_success().stdout;
    let line = text.lines().find(|line| line.starts_with(&lab.name)).expect("the lab is listed");
    assert!(line.ends_with("links wifi, lte"), "{line}");
    let text = finish(manyways().args(["lab", "list", "--json"])).expect_success().stdout;
    let list: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    assert_eq!(list["schema"], "manyways.labs/1");
    let labs = list["labs"].as_array().expect("a list");
    let listed = labs.iter().find(|one| one["name"] == *lab.name).expect("the lab is listed");
    assert_eq!(listed["pid"], lab.process.pid());
    assert_eq!(listed["hosts"], serde_json::json!(["origin"]));
}

#[test]
fn a_lab_that_is_not_there_cannot_be_entered() {
    let nobody = name("nobody");
    for words in [&["enter", &nobody][..], &["set", "--lab", &nobody, "wifi", "down=1mbit"]] {
        let done = finish(manyways().arg("lab").args(words));
        assert_eq!(done.code(), 1);
        let message = format!("manyways: no lab called `{nobody}` is running\nhint: ");
        assert!(done.stderr.starts_with(&message), "{}", done.stderr);
    }
}

#[test]
fn a_name_is_given_once() {
    needs!(Need::Root, Need::Command("ip"));
    let lab = Lab::start(&TWO_LINKS);
    let done =
        finish(crate::running::lab_shell(&TWO_LINKS).args(["--name", &lab.name, "--", "true"]));
    assert_eq!(done.code(), 1);
    let message = format!("a lab called `{}` already exists", lab.name);
    assert!(done.stderr.contains(&message), "{}", done.stderr);
    assert!(lab.device("true").status.success(), "and the first one goes on");
}

/// Both links deliver at once, and each pauses at exactly the packet that reaches the value.
#[test]
fn changes_happen_at_a_byte() {
    needs!(Need::Root, Need::Command("ip"), Need::Command("ping"));
    let lab = Lab::start(&TWO_LINKS);
    // The answer to a ping of 972 bytes is 1000 bytes long.
    let pings = |link: &str, count: u32| {
        let ping = format!("ping -q -c {count} -i 0.002 -s 972 -W 300 -I {link} 198.18.0.1");
        lab.device(&format!("{ping} >/dev/null; echo $?")).expect_success()
    };
    let delivered = |link: usize| {
        let status = lab.device("manyways lab status --json").expect_success().stdout;
        let status: serde_json::Value = serde_json::from_str(&status).expect("it is JSON");
        assert!(status["links"][link]["max_lateness_seconds"].is_f64(), "{status}");
        status["links"][link]["down"]["delivered_bytes"].as_u64().expect("a number")
    };
    // Not from the start of the lab, but from now on.
    pings("wifi", 3);
    let before = delivered(0);
    let set = |words: &[&str]| lab.set(words).expect_success();
    set(&[
        "--when",
        "wifi.down_bytes >= 4500",
        "--until",
        "lte.up_bytes >= 2KB",
        "wifi",
        "state=paused",
    ]);
    set(&["--when", "lte.down_bytes >= 3000", "lte", "state=silent"]);
    std::thread::scope(|scope| {
        let wifi = scope.spawn(|| pings("wifi", 8));
        eventually("five answers", || (delivered(0) == before + 5_000).then_some(()));
        // The first request over LTE does not release it yet, the second one does.
        assert_eq!(pings("lte", 1).stdout, "0\n");
        assert_eq!(delivered(0), before + 5_000);
        assert_eq!(pings("lte", 1).stdout, "0\n");
        assert_eq!(wifi.join().expect("it ends").stdout, "0\n");
    });
    assert_eq!(delivered(0), before + 8_000);
    assert_eq!(pings("lte", 1).stdout, "0\n");
    assert!(is_blocked(&lab, "lte"), "silent after three answers");

    // A planned change can be cancelled.
    set(&["--when", "wifi.down_bytes >= 100", "wifi", "state=silent"]);
    assert_eq!(set(&["--cancel", "wifi"]).stdout, "wifi: 1 waiting change removed\n");
    set(&["--when", "wifi.down_bytes >= 100", "wifi", "state=silent"]);
    assert_eq!(set(&["--cancel", "wifi", "state=up"]).stdout, "");
    assert!(is_passing(&lab, "wifi"));
    assert!(is_passing(&lab, "wifi"));
}

/// Each ends without a trace, in any order, and the status shows it.
#[test]
fn temporary_changes_end_one_by_one() {
    needs!(Need::Root, Need::Command("ip"), Need::Command("ping"));
    let lab = Lab::start(&TWO_LINKS);
    let status = || {
        let status = lab.device("manyways lab status --json").expect_success().stdout;
        serde_json::from_str::<serde_json::Value>(&status).expect("it is JSON")
    };
    let set = |words: &[&str]| lab.set(words).expect_success();
    let after_lte = |bytes: &str, settings: &[&str]| {
        let until = format!("lte.down_bytes >= {bytes}");
        set(&[&["--until", &until, "wifi"], settings].concat())
    };
    after_lte("100", &["state=paused", "up-delay=9ms"]);
    after_lte("200", &["state=silent", "loss=1%"]);
    // It lasts.
    set(&["wifi", "up-delay=7ms"]);
    assert_eq!(set(&["--cancel", "wifi"]).stdout, "wifi: no waiting changes removed\n");
    let seen = status();
    assert_eq!(seen["links"][0]["state"], "silent");
    let expected = |words: &[&str], more: u64| {
        serde_json::json!({"link": "wifi", "set": words, "made": true, "in_seconds": null,
            "counter": "lte.down_bytes", "remaining": more})
    };
    let both = [
        expected(&["state=paused", "up-delay=9ms"], 100),
        expected(&["state=silent", "loss=0.01"], 200),
    ];
    assert_eq!(seen["waiting"], serde_json::Value::from(both.to_vec()));
    let text = lab.device("manyways lab status").expect_success().stdout;
    assert!(text.contains("wifi: state=silent loss=0.01 is undone after 200 B more"), "{text}");
    // 128 bytes: the first one ends, and the second one still covers its state.
    lab.device("ping -q -c 1 -s 100 -I lte 198.18.0.1").expect_success();
    let seen = status();
    assert_eq!(seen["links"][0]["state"], "silent");
    assert_eq!(seen["waiting"][0]["remaining"], 72, "{seen}");
    lab.device("ping -q -c 1 -s 100 -I lte 198.18.0.1").expect_success();
    let seen = status();
    assert_eq!((&seen["links"][0]["state"], &seen["waiting"]), (&"up".into(), &[0; 0].into()));
    assert!(is_passing(&lab, "wifi"));
}
