//! Interception scope: traffic that a client intercepts, and traffic that is sent directly.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use manyways_tests::{finish, manyways};

use crate::bond::Keys;
use crate::needs_bond;
use crate::testbed::{
    GATEWAY, GATEWAY_OUTSIDE, OTHER_SERVER, PRIVATE, SERVER, TWO_LINKS, Testbed, accept, at,
    eventually,
};

/// User id of `nobody` on almost every system.
const NOBODY_UID: &str = "65534";

/// A function that runs a bash script as an application, with a given user and namespace.
type Run<'a> = &'a dyn Fn(&str);

/// Asserts that connections and datagrams of an application to this server go through the bond, or
/// directly.
#[track_caller]
fn check_interception(testbed: &Testbed, through: bool, to: SocketAddr, run: Run<'_>) {
    let is_through = |from: SocketAddr| GATEWAY_OUTSIDE.contains(&from.ip().to_string().as_str());
    let listener = testbed.listen(&to.ip().to_string(), to.port());
    run(&format!("echo hello > /dev/tcp/{}/{}", to.ip(), to.port()));
    let from = accept(&listener).1;
    assert_eq!(is_through(from), through, "a connection to {to} came from {from}");
    let server = testbed.udp_server(&to.ip().to_string(), to.port());
    server.set_read_timeout(Some(Duration::from_secs(2))).expect("a socket can be told");
    // The test repeats a lost datagram.
    let from = eventually("a datagram comes", || {
        run(&format!("echo hello > /dev/udp/{}/{}", to.ip(), to.port()));
        server.recv_from(&mut [0; 9]).ok()
    });
    assert_eq!(is_through(from.1), through, "a datagram to {to} came from {}", from.1);
}

fn bash(words: &[&str], script: &str) {
    let mut command = Command::new("bash");
    if let Some((first, rest)) = words.split_first() {
        command = Command::new(first);
        command.args(rest).arg("bash");
    }
    finish(command.args(["-c", script])).expect_success();
}

/// The policy does not apply to traffic that is not intercepted.
#[test]
fn who_asks_why_hears_what_is_not_taken_in() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let (_gateway, _client) = (keys.gateway(&[]), keys.transparent(&[]));
    let why = |host: &str| {
        let mut command = manyways();
        command.env("LAB_DIR", testbed.path("")).args(["bond", "why", host]);
        testbed.device(|| finish(&mut command)).expect_success().stdout
    };
    // The rules are installed shortly before the client's status changes.
    let loopback = "not intercepted: 127.0.0.1 is loopback (127.0.0.0/8)\n";
    eventually("it is said", || why("localhost").starts_with(loopback).then_some(()));
    for (host, words) in [
        (GATEWAY, "is the gateway itself"),
        (PRIVATE, "is private (192.168.0.0/16), and --include-private is not given"),
        ("10.64.1.2", "is this host itself"),
        ("10.64.1.77", "is on a network of this host (10.64.1.0/24)"),
    ] {
        let output = why(host);
        assert!(output.starts_with(&format!("not intercepted: {host} {words}\n")), "{output}");
        assert!(output.contains("if the application uses the client's proxy"), "{output}");
    }
    for taken in [SERVER[0], &format!("http://{}/object", SERVER[0]), "www.example.com"] {
        let output = why(taken);
        assert!(output.starts_with("buffer-aware over all, by the default\n"), "{output}");
    }
}

#[test]
fn who_asks_why_hears_what_it_depends_on_and_what_is_without_a_network() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let ask = |words: &[&str]| {
        let mut command = manyways();
        command.env("LAB_DIR", testbed.path("")).arg("bond").args(words);
        testbed.device(|| finish(&mut command)).stdout
    };
    let gateway = keys.gateway(&[]);
    let _client = keys.transparent(&["--intercept", "user:root"]);
    let _nothing = keys.client_without_proxies(&["--intercept", "none", "--name", "nothing"]);
    let depends = "intercepted if user root sends it\nbuffer-aware over all";
    let why = ["why", SERVER[0]];
    eventually("it is said", || ask(&why).starts_with(depends).then_some(()));
    let asked = ask(&["why", SERVER[0], "--user", "root"]);
    assert!(asked.starts_with("buffer-aware over all, by the default\npaths: "), "{asked}");
    let refused =
        format!("\nthe gateway refuses {PRIVATE}, unless its --permit includes this address\n");
    assert!(ask(&["why", PRIVATE]).contains(&refused), "{}", ask(&["why", PRIVATE]));
    let nothing = ["why", SERVER[0], "--name", "nothing"];
    let words = "not intercepted: the client has neither interception nor a proxy";
    eventually("it is said", || ask(&nothing).starts_with(words).then_some(()));
    assert!(!ask(&["status"]).contains("no network leads"), "{}", ask(&["status"]));
    drop(gateway);
    let words = "\nno network leads to the gateway: intercepted traffic goes directly 8 s after the last path \
                 is lost (--fail-mode open), and connections to the proxy wait\n";
    eventually("it is said", || ask(&why).contains(words).then_some(()));
    eventually("it is said", || ask(&["status"]).contains(words).then_some(()));
}

/// The interface may appear later, so the client runs.
#[test]
fn names_that_no_network_has_are_told_with_those_that_there_are() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let _gateway = keys.gateway(&[]);
    let client = keys.client_at(
        &format!("{GATEWAY}:4433"),
        &["--via", "wfi, lte", "--intercept", "from:elsewhere"],
    );
    client.says("lte is up");
    client.says("--via: this host has no network \"wfi\" yet");
    client.says("hint: did you mean wifi?");
    client.says("--intercept: this host has no network \"elsewhere\" yet");
    client.says("hint: the networks are: ");
    assert_eq!(
        client.times("this host has no network") + client.times("wifi is up"),
        2,
        "{}",
        client.said()
    );
}

#[test]
fn what_one_user_sends_is_taken_in_and_what_others_send_is_not() {
    needs_bond!("bash", "setpriv");
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let _gateway = keys.gateway(&[]);
    let _client = keys.transparent(&["--intercept", &format!("user:{NOBODY_UID}")]);
    for server in SERVER {
        let to = at(server, 7);
        let become_nobody = ["setpriv", "--reuid", NOBODY_UID, "--clear-groups"];
        check_interception(&testbed, true, to, &|script| {
            testbed.device(|| bash(&become_nobody, script))
        });
        check_interception(&testbed, false, to, &|script| testbed.device(|| bash(&[], script)));
    }
}

#[test]
fn a_user_who_is_not_there_is_said() {
    let words = ["bond", "client", "--gateway", "127.0.0.1:1", "--gateway-key"];
    let key = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    let more = [key, "--key", "/dev/null", "--intercept", "user:no-such-user"];
    let done = finish(manyways().args(words).args(more));
    assert_eq!(done.code(), 2, "{}", done.stderr);
    let first = done.stderr.lines().next().expect("it says why");
    assert!(first.ends_with("there is no user no-such-user"), "{first}");
}

#[test]
fn what_goes_to_some_addresses_is_taken_in_and_several_selections_add_up() {
    needs_bond!("bash", "setpriv");
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let _gateway = keys.gateway(&[]);
    let selections = [format!("to:{OTHER_SERVER}"), "to:2001:db8:113::/48".to_owned()];
    let user = format!("user:{NOBODY_UID}");
    let words = ["--intercept", &selections[0], "--intercept", &selections[1]];
    let _client = keys.transparent(&[&words[..], &["--intercept", &user]].concat());
    let anybody: Run<'_> = &|script| testbed.device(|| bash(&[], script));
    check_interception(&testbed, true, at(OTHER_SERVER, 7), anybody);
    check_interception(&testbed, true, at(SERVER[1], 7), anybody);
    check_interception(&testbed, false, at(SERVER[0], 7), anybody);
    let become_nobody = ["setpriv", "--reuid", NOBODY_UID, "--clear-groups"];
    check_interception(&testbed, true, at(SERVER[0], 7), &|script| {
        testbed.device(|| bash(&become_nobody, script))
    });
}

/// A router intercepts the traffic of its clients and sends its own directly.
#[test]
fn what_comes_in_on_an_interface_is_taken_in_and_nothing_else() {
    needs_bond!("bash");
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let _gateway = keys.gateway(&[]);
    let (lan, cellar) = (testbed.add_guest("lan"), testbed.add_guest("cellar"));
    let _client = keys.transparent(&["--intercept", "from:lan"]);
    for server in SERVER {
        let to = at(server, 7);
        check_interception(&testbed, true, to, &|script| lan.run(|| bash(&[], script)));
        check_interception(&testbed, false, to, &|script| cellar.run(|| bash(&[], script)));
        check_interception(&testbed, false, to, &|script| testbed.device(|| bash(&[], script)));
    }
}

/// A cgroup for this test.
struct Cgroup {
    folder: PathBuf,
    /// Path from the root of the hierarchy.
    path: String,
}

impl Cgroup {
    /// Creates the cgroup if the host supports it, including the packet filter.
    fn new() -> Result<Self, String> {
        let path = format!("/manyways-bond-{}", std::process::id());
        let roots = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(Path::new);
        let root = roots.into_iter().find(|root| root.join("cgroup.controllers").exists());
        let root = root.ok_or("there is no hierarchy of cgroups of version 2")?;
        let cgroup = Self { folder: root.join(&path[1..]), path };
        fs::create_dir(&cgroup.folder)
            .map_err(|error| format!("no cgroup can be made: {error}"))?;
        let place = cgroup.folder.strip_prefix("/sys/fs/cgroup").expect("it begins so").display();
        let done = finish(Command::new("nft").args(["--check"]).arg(format!(
            "table inet manyways-probe {{ chain probe {{ type filter hook output priority 0; \
             socket cgroupv2 level 1 \"{place}\"; }}; }}"
        )));
        match done.status.success() {
            true => Ok(cgroup),
            false => Err(format!("nftables cannot match cgroups here: {}", done.stderr.trim())),
        }
    }

    /// Folder for a nested cgroup.
    fn below(&self) -> PathBuf {
        self.folder.join("below")
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(self.below());
        let _ = fs::remove_dir(&self.folder);
    }
}

#[test]
fn what_a_cgroup_sends_is_taken_in_and_what_others_send_is_not() {
    needs_bond!("bash");
    let cgroup = match Cgroup::new() {
        Ok(cgroup) => cgroup,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let _gateway = keys.gateway(&[]);
    let below = cgroup.below();
    let _client = keys.transparent(&["--intercept", &format!("cgroup:{}", cgroup.path)]);
    fs::create_dir(&below).expect("room for a cgroup");
    for server in SERVER {
        let to = at(server, 7);
        for folder in [&cgroup.folder, &below] {
            let join = format!("echo $$ > {}/cgroup.procs && ", folder.display());
            let run = |script: &str| testbed.device(|| bash(&[], &(join.clone() + script)));
            check_interception(&testbed, true, to, &run);
        }
        check_interception(&testbed, false, to, &|script| testbed.device(|| bash(&[], script)));
    }
}
