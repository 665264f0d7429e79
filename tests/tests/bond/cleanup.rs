//! A client leaves no changes on the device.

use std::process::Command;

use manyways_tests::{fault, finish};
use nix::sys::signal::Signal;

use crate::bond::Keys;
use crate::needs_bond;
use crate::proxy::plain;
use crate::testbed::{SERVER, TWO_LINKS, Testbed, accept, at};

/// All state of the device that a client may change, as text.
fn device_state(testbed: &Testbed) -> String {
    let looks = [
        "nft list ruleset",
        "ip -4 rule",
        "ip -6 rule",
        "ip -4 route show table all",
        "ip -6 route show table all",
        "ip -o link show",
        "ss -Hlntu",
    ];
    let mut all = String::new();
    for look in looks {
        let mut words = look.split(' ');
        let mut command = Command::new(words.next().expect("a program"));
        let output = testbed.device(|| finish(command.args(words))).expect_success().stdout;
        // Remaining lifetimes of set elements change continuously.
        let lasting = output.lines().map(|line| line.split(" expires ").next().unwrap_or(line));
        all.extend(lasting.map(|line| format!("{look}: {line}\n")));
    }
    all
}

/// Uses the bond once for each family.
fn use_bond(testbed: &Testbed) {
    for server in SERVER {
        let listener = testbed.listen(server, 9);
        let _application = plain(testbed, at(server, 9));
        accept(&listener);
    }
}

#[test]
fn a_client_that_ends_leaves_the_device_as_it_was() {
    needs_bond!("ss");
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let _gateway = keys.gateway(&[]);
    let before = device_state(&testbed);
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut client = keys.transparent(&["--intercept", "all"]);
        assert!(device_state(&testbed) != before, "the test sees what a client does");
        use_bond(&testbed);
        client.process.signal(signal);
        let status = client.process.wait(crate::testbed::PATIENCE).expect("it ends");
        assert!(status.success(), "{status}\n{}", client.said());
        fault!(device_state(&testbed) == before, "{}", device_state(&testbed));
    }
}

#[test]
fn what_a_killed_client_left_goes_with_the_next_one() {
    needs_bond!("ss");
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let _gateway = keys.gateway(&[]);
    let before = device_state(&testbed);
    let mut client = keys.transparent(&[]);
    use_bond(&testbed);
    client.process.signal(Signal::SIGKILL);
    client.process.wait(crate::testbed::PATIENCE).expect("it ends");
    assert!(device_state(&testbed) != before, "it could not clean up");
    let client = keys.transparent(&["--intercept", "to:203.0.113.0/24"]);
    use_bond(&testbed);
    drop(client);
    fault!(device_state(&testbed) == before, "{}", device_state(&testbed));
}

/// The second client names the owner of the rules, and does not change them.
#[test]
fn two_clients_do_not_share_a_device() {
    needs_bond!("ss");
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let _gateway = keys.gateway(&[]);
    let client = keys.transparent(&[]);
    let before = device_state(&testbed);
    let key = keys.file("client.key");
    let gateway = format!("{}:4433", crate::testbed::GATEWAY);
    let words = ["client", "--gateway", &gateway, "--gateway-key", &keys.gateway, "--key", &key];
    let mut second = testbed.device(|| crate::bond::start(&testbed, "second", &words));
    let status = second.process.wait(crate::testbed::PATIENCE).expect("it ends");
    assert_eq!(status.code(), Some(1));
    second.says(&format!(
        "process {} has already installed interception rules",
        client.process.pid()
    ));
    fault!(device_state(&testbed) == before, "{}", device_state(&testbed));
    use_bond(&testbed);
}
