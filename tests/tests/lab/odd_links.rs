//! Valid but unusual links and server commands, with their warnings.

use manyways_tests::{Need, finish, folder, manyways, needs};

use crate::running::{Lab, TWO_LINKS, script_in};

#[test]
fn a_link_called_5g_is_cellular() {
    needs!(Need::Root, Need::Command("ip"));
    let seen = script_in(&["--link", "5g:delay=1ms"], "manyways paths").expect_success().stdout;
    assert!(seen.contains("5g    cellular"), "{seen}");
}

#[test]
fn twelve_links_give_no_warning_and_eight_endpoints() {
    needs!(Need::Root, Need::Command("ip"), Need::File("/proc/sys/net/mptcp/enabled"));
    let names: Vec<String> = (1..=12).map(|number| format!("link{number}")).collect();
    let options: Vec<&str> = names.iter().flat_map(|name| ["--link", name.as_str()]).collect();
    let done = script_in(&options, "ip mptcp endpoint show").expect_success();
    assert!(!done.stderr.contains("WARN"), "{}", done.stderr);
    // Each of the first eight links has an endpoint.
    let devices: Vec<&str> =
        done.stdout.lines().filter_map(|line| line.split(" dev ").nth(1)).collect();
    assert_eq!(devices.len(), 8, "{}", done.stdout);
    for name in &names[..8] {
        let has = |device: &&str| device.split(' ').next() == Some(name.as_str());
        assert!(devices.iter().any(|device| has(&device.trim())), "{name}: {}", done.stdout);
    }
}

#[test]
fn a_link_that_carries_nothing_or_too_much_is_named_at_the_start() {
    needs!(Need::Root, Need::Command("ip"));
    for (link, message) in [
        ("wifi:down=0", "link `wifi`: `down` is 0, so no packet passes in this direction"),
        ("wifi:loss=100%", "link `wifi`: `loss` is 100 %, so no packet passes in this direction"),
        (
            "wifi:up=100gbit",
            "`up` is 100 Gbit/s, but the emulator forwards at most about 10 Gbit/s",
        ),
    ] {
        let done = script_in(&["--link", link], "true").expect_success();
        let output = format!("{message}\nhint: ");
        assert!(done.stderr.contains(&output), "{link}: {}", done.stderr);
    }
    let lab = Lab::start(&TWO_LINKS);
    let done = lab.set(&["wifi", "down=0bit"]).expect_success();
    assert!(done.stderr.contains("`down` is 0"), "{}", done.stderr);
    assert_eq!(lab.set(&["wifi", "down=10mbit", "loss=1%"]).expect_success().stderr, "");
}

#[test]
fn checking_a_scenario_names_a_trace_of_zeros() {
    let files = folder();
    std::fs::write(files.path().join("zeros"), "0 0\n1 0\n").expect("room for a trace");
    let text = "name = \"one\"\n[link.wifi]\ndown = \"trace:zeros\"\n";
    std::fs::write(files.path().join("a.toml"), text).expect("room for a scenario");
    let check = finish(manyways().args(["lab", "check", "a.toml"]).current_dir(files.path()));
    let output = check.expect_success().stderr;
    assert!(output.contains("link `wifi`: `down` is a trace without capacity"), "{output}");
}

/// The round-trip time is longer than the resolver timeout of the C library with all retries.
#[test]
fn names_resolve_over_a_link_with_seconds_of_delay() {
    needs!(Need::Root, Need::Command("ip"), Need::Command("getent"));
    let finished =
        script_in(&["--link", "wifi:delay=4s"], "getent ahostsv4 origin.lab").expect_success();
    assert!(finished.stdout.contains("198.18.0.1"), "{finished:?}");
}

#[test]
fn a_far_command_that_is_no_server_is_named() {
    needs!(Need::Root, Need::Command("ip"));
    let done = script_in(&["--link", "wifi", "--far", "sleep 1000"], "echo on").expect_success();
    assert_eq!(done.stdout, "on\n");
    let said = "the far command `sleep 1000` listens on no port after 10 s";
    assert!(done.stderr.contains(said) && done.stderr.contains("hint: "), "{}", done.stderr);
}

/// In both outer labs the process that creates the inner lab has the same id.
#[test]
fn two_labs_can_each_hold_a_lab() {
    needs!(Need::Root, Need::Command("ip"));
    let (first, second) = (Lab::start(&TWO_LINKS), Lab::start(&TWO_LINKS));
    // In a separate session: the command that starts the inner lab ends before it.
    let nested = "mkfifo $LAB_DIR/go $LAB_DIR/named; \
                  setsid manyways lab shell --cc reno --link inner -- \
                    sh -c \"echo \\$LAB_NAME > $LAB_DIR/named; read x < $LAB_DIR/go\" \
                    </dev/null >/dev/null 2>&1 & \
                  cat $LAB_DIR/named";
    let inside = |lab: &Lab| {
        let done = lab.device(nested).expect_success();
        done.stdout.trim().to_owned()
    };
    let names = [&first, &second].map(inside);
    assert!(names[0] != names[1] && names.iter().all(|name| name.starts_with("lab-")), "{names:?}");
    let listed = finish(manyways().args(["lab", "list", "--json"])).expect_success().stdout;
    let listed: serde_json::Value = serde_json::from_str(&listed).expect("it is JSON");
    for name in &names {
        let mut labs = listed["labs"].as_array().expect("a list").iter();
        let lab = labs.find(|lab| lab["name"] == **name).expect("it is listed");
        // The process id in this namespace, not in that of the outer lab.
        let pid = lab["pid"].as_i64().expect("it is visible from here");
        let command = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).expect("it runs");
        assert!(command.contains("inner"), "{command}");
        // The inner lab can be entered from here.
        let done = finish(manyways().args(["lab", "enter", name, "--", "ls", "/sys/class/net"]));
        assert!(done.expect_success().stdout.contains("inner"), "{name}");
    }
    for lab in [&first, &second] {
        lab.device("echo > $LAB_DIR/go").expect_success();
    }
}
