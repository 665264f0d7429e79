//! The kernel rules that redirect traffic to a client: other programs remove them, and the client
//! removes them at its end.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use manyways_tests::{SHELL, fault, finish};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use crate::bond::Keys;
use crate::needs_bond;
use crate::proxy::{plain, try_plain};
use crate::resolver::Resolver;
use crate::testbed::{
    GATEWAY, GATEWAY_OUTSIDE, PATIENCE, SERVER, TWO_LINKS, Testbed, accept, at, eventually, ip, nft,
};

/// Asserts that the device's connections go through the bond.
#[track_caller]
fn goes_through(testbed: &Testbed) {
    for (server, outside) in SERVER.into_iter().zip(GATEWAY_OUTSIDE) {
        let listener = testbed.listen(server, 7);
        let _application = plain(testbed, at(server, 7));
        assert_eq!(accept(&listener).1.ip().to_string(), outside);
    }
}

/// Clients have left no state in the device's kernel.
#[track_caller]
fn assert_nothing_remains(testbed: &Testbed) {
    let show = |words: &str| finish(Command::new("sh").args(["-c", words])).stdout;
    let left = testbed.device(|| {
        show(
            "nft list ruleset
            for family in -4 -6; do
                ip $family rule show pref 417; ip $family route show table 4917
            done",
        )
    });
    fault!(left.is_empty(), "rules or routes of a client are left: {left}");
}

/// As if the host's packet filter were reloaded.
#[test]
fn rules_that_are_flushed_come_back() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let _gateway = keys.gateway(&[]);
    let client = keys.transparent(&["--fail-mode", "closed"]);
    client.says("IPv4 and IPv6 are intercepted");
    for times in 1..=2 {
        testbed.device(|| nft("flush ruleset"));
        client.says_times("and are restored: the nftables table is missing", times);
        goes_through(&testbed);
    }
    assert_eq!(client.times("and are restored"), 2, "{}", client.said());
    drop(client);
    assert_nothing_remains(&testbed);
}

/// As systemd-networkd does, which removes foreign rules as leftovers.
#[test]
fn routing_rules_and_routes_that_are_removed_come_back() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let _gateway = keys.gateway(&[]);
    let client = keys.transparent(&[]);
    client.says("IPv4 and IPv6 are intercepted");
    for (words, part) in [
        ("-4 rule del pref 417", "an IPv4 routing rule"),
        ("-6 rule del pref 417", "an IPv6 routing rule"),
        ("-4 route flush table 4917", "the IPv4 route"),
        ("-6 route flush table 4917", "the IPv6 route"),
    ] {
        testbed.device(|| ip(words));
        client.says(&format!("and are restored: {part} is missing"));
        goes_through(&testbed);
    }
    assert_eq!(client.times("and are restored"), 4, "{}", client.said());
    drop(client);
    assert_nothing_remains(&testbed);
}

/// An `nft` that waits before it removes the rules.
struct SlowNft<'a>(&'a Testbed);

impl<'a> SlowNft<'a> {
    fn new(testbed: &'a Testbed) -> Self {
        let (waits, gate) = (testbed.path("waits"), testbed.path("gate"));
        let path = testbed.path("bin").join("nft");
        fs::create_dir(testbed.path("bin")).expect("room for a folder");
        let script = format!(
            "#!/bin/sh
            {SHELL}
            input=$(cat)
            case $input in 'delete table'*)
                echo $$ >> {}
                eventually test -e {};;
            esac
            PATH={}
            printf '%s\\n' \"$input\" | nft \"$@\"\n",
            waits.display(),
            gate.display(),
            std::env::var("PATH").unwrap_or_default(),
        );
        fs::write(&path, script).expect("room for a script");
        fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("its permissions");
        Self(testbed)
    }

    /// Processes that have reached the gate.
    fn waiters(&self) -> Vec<Pid> {
        let pids = fs::read_to_string(self.0.path("waits")).unwrap_or_default();
        pids.split_inclusive('\n')
            .filter_map(|line| Some(Pid::from_raw(line.strip_suffix('\n')?.parse().ok()?)))
            .collect()
    }

    /// The process that waits after `others` earlier ones.
    #[track_caller]
    fn waiter(&self, others: usize) -> Pid {
        eventually("it waits", || self.waiters().get(others).copied())
    }

    fn release(&self) {
        fs::write(self.0.path("gate"), "").expect("room for a file");
    }
}

/// As a terminal does on Ctrl-C, or a shell that ends a job.
#[test]
fn a_client_whose_group_is_told_to_end_leaves_nothing() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let _gateway = keys.gateway(&[]);
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut client = keys.transparent(&[]);
        let group = Pid::from_raw(client.process.pid());
        killpg(group, signal).expect("it is there");
        client.process.wait(PATIENCE).expect("it ends");
        assert_nothing_remains(&testbed);
    }
    let slow = SlowNft::new(&testbed);
    let mut client = keys.transparent(&[]);
    client.process.signal(Signal::SIGINT);
    slow.waiter(0);
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        killpg(Pid::from_raw(client.process.pid()), signal).expect("it is there");
    }
    slow.release();
    client.process.wait(PATIENCE).expect("it ends");
    assert_nothing_remains(&testbed);
    assert_eq!(slow.waiters().len(), 1, "what takes the rules out was ended too");
}

/// As systemd does without `KillMode=mixed`.
#[test]
fn a_client_takes_its_rules_out_though_the_program_that_does_it_is_ended() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let _gateway = keys.gateway(&[]);
    let slow = SlowNft::new(&testbed);
    let mut client = keys.transparent(&[]);
    client.process.signal(Signal::SIGTERM);
    for others in 0..2 {
        kill(slow.waiter(others), Signal::SIGTERM).expect("it waits");
    }
    slow.waiter(2);
    slow.release();
    client.process.wait(PATIENCE).expect("it ends");
    assert_nothing_remains(&testbed);
    assert_eq!(client.times("cannot remove the packet filter rules"), 0, "{}", client.said());
}

#[test]
fn a_client_that_cannot_take_its_rules_out_says_so() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let _gateway = keys.gateway(&[]);
    let slow = SlowNft::new(&testbed);
    let mut client = keys.transparent(&[]);
    client.process.signal(Signal::SIGTERM);
    for others in 0..3 {
        kill(slow.waiter(others), Signal::SIGTERM).expect("it waits");
    }
    client.process.wait(PATIENCE).expect("it ends");
    client.says("cannot remove the packet filter rules");
    client.says("`nft delete table inet manyways-bond` removes them");
}

/// Asserts that connections of the device are refused immediately.
#[track_caller]
fn is_refused(testbed: &Testbed) {
    for server in SERVER {
        let listener = testbed.listen(server, 9);
        let error = try_plain(testbed, at(server, 9)).expect_err("nothing goes past");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused, "{error}");
        listener.set_nonblocking(true).expect("a socket can be told");
        assert!(listener.accept().is_err(), "somebody came");
    }
}

#[test]
fn where_nothing_may_go_past_all_is_refused_until_the_gateway_answers() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let client = keys.client_at(&format!("{GATEWAY}:4433"), &["--fail-mode", "closed"]);
    client.says("intercepted traffic is refused: the gateway has not answered yet");
    is_refused(&testbed);
    // Long enough for the gateway to count as unreachable.
    client.says("no network leads to the gateway");
    is_refused(&testbed);
    let _gateway = keys.gateway(&[]);
    client.says("IPv4 and IPv6 are intercepted");
    goes_through(&testbed);
    assert_eq!(client.times("since the gateway does not reach it"), 0, "{}", client.said());
    drop(client);
    assert_nothing_remains(&testbed);
}

/// The rules of a killed client refuse the DNS query for the gateway's name.
#[test]
fn a_client_that_fails_closed_finds_its_gateway_again_where_it_was() {
    needs_bond!();
    const NAME: &str = "gw.example:4433";
    let testbed = Testbed::new(&TWO_LINKS);
    let _resolver = Resolver::start(&testbed);
    let keys = Keys::new(&testbed);
    let _gateway = keys.gateway(&[]);
    let closed = ["--fail-mode", "closed"];
    for _ in 0..2 {
        let mut client = keys.client_at(NAME, &closed);
        client.says("IPv4 and IPv6 are intercepted");
        client.process.signal(Signal::SIGKILL);
        client.process.wait(PATIENCE).expect("it ends");
    }
    let client = keys.client_at(NAME, &closed);
    client.says("trying its last known addresses, 198.18.0.1:4433");
    client.says("IPv4 and IPv6 are intercepted");
    goes_through(&testbed);
    drop(client);
    assert_nothing_remains(&testbed);
    // A client without remembered addresses logs a hint.
    let mut client = keys.client_at(NAME, &closed);
    client.says("IPv4 and IPv6 are intercepted");
    client.process.signal(Signal::SIGKILL);
    client.process.wait(PATIENCE).expect("it ends");
    fs::remove_dir_all(testbed.path("state")).expect("it is there");
    let client = keys.client_at(NAME, &closed);
    client.says("the gateway \"gw.example:4433\" cannot be resolved yet");
    client.says("block the lookup: `nft delete table inet manyways-bond` removes them");
    testbed.device(|| nft("delete table inet manyways-bond"));
    client.says("IPv4 and IPv6 are intercepted");
    goes_through(&testbed);
}

#[test]
fn destinations_that_are_selected_in_vain_are_said() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let vain = ["to:10.88.0.0/16", "to:127.0.0.0/8", "to:198.18.0.1", "to:0.0.0.0/0"];
    let words: Vec<&str> = vain.iter().flat_map(|to| ["--intercept", *to]).collect();
    let to = format!("{GATEWAY}:4433");
    let client = keys.client_at(&to, &[&words[..], &["--fail-mode", "closed"]].concat());
    client.says("the gateway has not answered yet");
    for words in [
        "to:10.88.0.0/16 intercepts nothing: 10.0.0.0/8 is private, or a network of this host",
        "hint: --include-private intercepts private networks too",
        "to:127.0.0.0/8 intercepts nothing: it is loopback (127.0.0.0/8)",
        "to:198.18.0.1 intercepts nothing: it is the gateway itself",
    ] {
        assert_eq!(client.times(words), 1, "{words}: {}", client.said());
    }
    assert_eq!(client.times("intercepts nothing"), 3, "{}", client.said());
    drop(client);
    let client = keys
        .client_at(&to, &["--intercept", vain[0], "--include-private", "--fail-mode", "closed"]);
    client.says("the gateway has not answered yet");
    assert_eq!(client.times("intercepts nothing"), 0, "{}", client.said());
}
