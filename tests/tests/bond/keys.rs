//! Authentication: wrong keys and invalid allow files, each with its message.

use std::fs::{self, Permissions};
use std::io::{self, Read};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use manyways_tests::{Finished, finish, folder, manyways};

use crate::bond::{Keys, key};
use crate::datagrams::arrives;
use crate::links::{exchange_data, idle};
use crate::needs_bond;
use crate::proxy::{Association, plain};
use crate::testbed::{GATEWAY, PATIENCE, SERVER, TWO_LINKS, Testbed, accept, at, eventually};

/// A public key without a known private key.
const UNKNOWN_KEY: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

/// Asserts exit code 1 with one error and one hint.
#[track_caller]
fn fails(words: &[&str], message: &str, hint: &str) {
    let done: Finished = finish(manyways().arg("bond").args(words));
    assert_eq!(done.code(), 1, "{}", done.stderr);
    let lines: Vec<&str> = done.stderr.lines().collect();
    let [first, second] = lines[..] else { panic!("not two lines: {}", done.stderr) };
    assert!(first.starts_with("manyways: ") && first.contains(message), "{first}");
    assert!(second.starts_with("hint: ") && second.contains(hint), "{second}");
}

#[test]
fn a_private_key_is_there_and_its_owners_alone() {
    let folder = folder();
    let file = |name: &str| folder.path().join(name).display().to_string();
    key(&folder.path().join("good"));
    key(&folder.path().join("open"));
    fs::set_permissions(file("open"), Permissions::from_mode(0o644)).expect("its permissions");
    fs::write(file("garbage"), [0xff; 100]).expect("room for a file");
    fs::set_permissions(file("garbage"), Permissions::from_mode(0o600)).expect("its permissions");
    fs::write(file("letter"), "to whom it may concern").expect("room for a file");
    fs::set_permissions(file("letter"), Permissions::from_mode(0o644)).expect("its permissions");
    fs::write(file("allow"), format!("{UNKNOWN_KEY} phone\n")).expect("room for a line");
    for (name, message, hint) in [
        ("missing", "No such file", "manyways bond keygen"),
        ("open", "can be read by other users", "chmod 600"),
        ("garbage", "holds no Ed25519 private key", "manyways bond keygen"),
        ("letter", "holds no Ed25519 private key", "manyways bond keygen"),
    ] {
        let allow = file("allow");
        let name = file(name);
        let gateway = ["gateway", "--listen", "127.0.0.1:0", "--allow", &allow, "--key", &name];
        fails(&gateway, message, hint);
        let to = ["client", "--gateway", "127.0.0.1:1", "--gateway-key", UNKNOWN_KEY];
        fails(&[&to[..], &["--intercept", "none", "--key", &name]].concat(), message, hint);
        fails(&["keygen", "--show", &name], message, hint);
    }
    let nowhere = file("no/folder/key");
    fails(
        &["keygen", &nowhere],
        "no/folder does not exist",
        &format!("mkdir -p {}", file("no/folder")),
    );
    fails(&["keygen", "--show", &nowhere], "No such file", &format!("keygen {nowhere}"));
    fails(&["keygen", &file("good")], "exists already, and stays as it is", "keygen --show");
    let folder = folder.path().display().to_string();
    fails(&["keygen", &folder], "File exists", "name a file in it");
    fails(&["keygen", "--show", &folder], "Is a directory", "name a file in it");
}

#[test]
fn a_list_that_does_not_read_says_its_line() {
    let folder = folder();
    let file = |name: &str| folder.path().join(name).display().to_string();
    key(&folder.path().join("key"));
    for (list, message) in [
        ("\u{0}\u{1}garbage", "allow:1: "),
        ("# nothing\nkey phone", "allow:2: \"key\" is not a public key"),
        (&format!("{UNKNOWN_KEY} phone streams=many"), "\"many\" is not a number"),
        (&format!("{UNKNOWN_KEY} one\n{UNKNOWN_KEY} two"), "occurs twice"),
    ] {
        fs::write(file("allow"), list).expect("room for a line");
        let words = ["--listen", "127.0.0.1:0", "--allow", &file("allow"), "--key", &file("key")];
        fails(&[&["gateway"], &words[..]].concat(), message, "KEY phone");
    }
    fs::write(file("allow"), [0xff, 0xfe]).expect("room for two bytes");
    let words = ["--listen", "127.0.0.1:0", "--allow", &file("allow"), "--key", &file("key")];
    fails(&[&["gateway"], &words[..]].concat(), "allow: ", "KEY phone");
}

#[test]
fn a_port_that_is_taken_is_said() {
    let folder = folder();
    let file = |name: &str| folder.path().join(name).display().to_string();
    key(&folder.path().join("key"));
    fs::write(file("allow"), format!("{UNKNOWN_KEY} phone\n")).expect("room for a line");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = taken.local_addr().expect("it has one").to_string();
    let words = ["--listen", &address, "--allow", &file("allow"), "--key", &file("key")];
    let gateway = [&["gateway"], &words[..]].concat();
    fails(&gateway, &format!("cannot listen on {address}"), "another gateway");
    let elsewhere = ["gateway", "--listen", "192.0.2.1:4433"];
    let elsewhere = [&elsewhere, &words[2..]].concat();
    fails(&elsewhere, "cannot listen on 192.0.2.1:4433", "this host has no address 192.0.2.1");
    let words = ["--gateway", "127.0.0.1:1", "--gateway-key", UNKNOWN_KEY, "--key", &file("key")];
    let doors = ["--intercept", "none", "--quiet", "--socks", &address];
    let done = finish(manyways().args(["bond", "client"]).args(words).args(doors));
    assert_eq!(done.code(), 1, "{}", done.stderr);
    let message = format!("cannot listen on {address} for SOCKS5");
    assert!(done.stderr.contains(&message), "{}", done.stderr);
}

#[test]
fn a_gateway_with_another_key_gets_nothing() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let mut keys = Keys::new(&testbed);
    let gateway = keys.gateway(&[]);
    keys.gateway = UNKNOWN_KEY.to_owned();
    let client = keys.client_at(&format!("{GATEWAY}:4433"), &["--intercept", "none"]);
    client.says_times("the gateway has another key than the one that was given", 2);
    client.says("hint: compare --gateway-key");
    gateway.says_times("it expects a gateway with another key", 2);
    assert_eq!(client.times("is up") + gateway.times("session started"), 0);
    // Each network logs the error once, independent of the number of attempts.
    gateway.says_times("refused ", 5);
    assert_eq!(client.times("another key"), 2, "{}", client.said());
}

#[test]
fn a_client_that_is_not_known_is_told_and_let_in_once_it_is() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    keys.allow(&format!("{UNKNOWN_KEY} somebody\n"));
    let gateway = keys.gateway(&[]);
    let client = keys.client_at(&format!("{GATEWAY}:4433"), &["--intercept", "none"]);
    client.says_times("the gateway does not know this key", 2);
    client.says("hint: add this client's public key");
    gateway.says(&format!("unknown key {}: not in the allow file", keys.client));
    gateway.says_times("its key is not in the allow file", 2);
    assert_eq!(gateway.times(&keys.client), 1, "{}", gateway.said());
    assert_eq!(client.times("is up") + gateway.times("session started"), 0);
    // An invalid file leaves the previous list in force.
    keys.allow("garbage\n");
    gateway.says("the previous list stays in force");
    keys.allow(&format!("{} phone\n", keys.client));
    client.says("is up");
    gateway.says("phone: session started");
}

/// A lost device: its sessions end, and it is refused until its key is added again.
fn removed_key_ends_its_sessions(carrier: &str) {
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let others = format!("{} other\n", key(&testbed.path("other.key")));
    keys.allow(&format!("{} phone\n{others}", keys.client));
    let gateway = keys.gateway(&[]);
    let (to, file) = (format!("{GATEWAY}:4433"), keys.file("other.key"));
    let words = ["client", "--gateway", &to, "--gateway-key", &keys.gateway, "--key", &file];
    let doorless = ["--intercept", "none", "--name", "other"];
    let other =
        testbed.device(|| crate::bond::start(&testbed, "other", &[&words[..], &doorless].concat()));
    other.says_times("is up", 2);
    let before = gateway.descriptors();
    let client = keys.client_at(&to, &["--intercept", "none", "--carrier", carrier]);
    client.says_times("is up", 2);
    let (_listener, mut application, mut server) = idle(&testbed);
    let echo = testbed.udp_server(SERVER[0], 4000);
    let association = Association::new(&testbed);
    arrives(&echo, b"hello", || association.send(at(SERVER[0], 4000), b"hello"));
    keys.allow(&others);
    gateway.says("phone: session closed: its key was removed from the allow file");
    let ended = application.read(&mut [0; 1]).expect_err("it ends");
    assert_eq!(ended.kind(), io::ErrorKind::ConnectionReset, "{ended}");
    let ended = server.read(&mut [0; 1]).expect_err("it ends");
    assert_eq!(ended.kind(), io::ErrorKind::ConnectionReset, "{ended}");
    client.says_times("the gateway does not know this key", 2);
    client.says("hint: add this client's public key");
    // The sockets of its datagrams are closed too.
    eventually("all is closed", || (gateway.descriptors() <= before).then_some(()));
    assert_eq!(gateway.times("other: session closed") + other.times("is down"), 0);
    keys.allow(&format!("{} phone\n", keys.client));
    client.says_times("is up", 3);
    gateway.says("other: session closed");
}

// Slow: pauses between attempts grow while the gateway refuses the key.
#[test]
fn a_key_that_is_taken_out_ends_its_sessions_and_no_others() {
    needs_bond!();
    removed_key_ends_its_sessions("tcp");
}

// Slow: pauses between attempts grow while the gateway refuses the key.
#[test]
fn a_key_that_is_taken_out_ends_its_sessions_over_quic() {
    needs_bond!();
    removed_key_ends_its_sessions("quic");
}

/// As with editors that truncate a file before they write it.
#[test]
fn a_list_that_is_empty_for_a_moment_ends_no_session() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let gateway = keys.gateway(&[]);
    let _client = keys.client();
    let (_listener, mut application, mut server) = idle(&testbed);
    keys.allow("");
    gateway.says("allow: no keys");
    keys.allow(&format!("{} phone\n", keys.client));
    gateway.says("allow: 1 key");
    exchange_data(&mut application, &mut server);
    assert_eq!(gateway.times("session closed"), 0, "{}", gateway.said());
}

/// Traffic that the bond does not carry yet is sent directly, for any time.
#[test]
fn a_client_that_is_not_let_in_keeps_nobody_from_the_internet() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    keys.allow("");
    let gateway = keys.gateway(&[]);
    let mut client = keys.client_at(&format!("{GATEWAY}:4433"), &[]);
    // With growing delays between attempts, the client has long stopped waiting for the gateway.
    gateway.says_times("refused ", 14);
    let listener = testbed.listen(SERVER[0], 7);
    let _application = plain(&testbed, at(SERVER[0], 7));
    assert_eq!(accept(&listener).1.ip().to_string(), "10.64.1.2");
    // The client ends on SIGTERM.
    client.process.signal(nix::sys::signal::Signal::SIGTERM);
    let status = client.process.wait(PATIENCE).expect("it ends");
    assert!(status.success(), "{status}: {}", client.said());
}
