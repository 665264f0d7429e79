//! A gateway that drops root privileges.

use std::fs::{self, Permissions};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use manyways_tests::testbed::Logged;
use manyways_tests::{Need, finish, folder, manyways, needs};
use nix::unistd::User;

use crate::bond::{Keys, key};
use crate::datagrams::arrives;
use crate::needs_bond;
use crate::proxy::{Association, Destination, try_socks};
use crate::resolver::Resolver;
use crate::testbed::{GATEWAY, GATEWAY_OUTSIDE, SERVER, TWO_LINKS, Testbed, accept, at};

/// The value of a status field for each thread of an endpoint.
fn field(end: &Logged, name: &str) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{}/task", end.process.pid())).expect("it runs");
    let status = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("status")).ok();
    let field = |status: String| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.expect("every kernel has it").split_whitespace().collect::<Vec<_>>().join(" ")
    };
    threads.flatten().filter_map(status).map(field).collect()
}

#[test]
fn a_gateway_that_gives_up_root_keeps_nothing_of_it_and_serves() {
    needs_bond!();
    needs!(Need::User("nobody"));
    let nobody = User::from_name("nobody").ok().flatten().expect("needed above");
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    // The unprivileged user must be able to read the allow file again.
    fs::set_permissions(testbed.path(""), Permissions::from_mode(0o711)).expect("its permissions");
    keys.allow("");
    let gateway = keys.gateway(&["--user", "nobody"]);
    let client = keys.client_at(&format!("{GATEWAY}:4433"), &["--intercept", "none"]);
    gateway.says("refused ");
    keys.allow(&format!("{} phone\n", keys.client));
    client.says("is up");
    let _resolver = Resolver::start(&testbed);
    let listener = testbed.listen(SERVER[0], 7);
    let _application =
        try_socks(&testbed, &Destination::Name("www.example", 7)).expect("the proxy is there");
    accept(&listener);
    let server = testbed.udp_server(SERVER[0], 4000);
    let association = Association::new(&testbed);
    let from = arrives(&server, b"hello", || association.send(at(SERVER[0], 4000), b"hello"));
    assert_eq!(from.ip().to_string(), GATEWAY_OUTSIDE[0]);
    // Includes the threads that were started for name resolution.
    let (user, group) = (nobody.uid, nobody.gid);
    for (name, value) in [
        ("Uid", format!("{user} {user} {user} {user}")),
        ("Gid", format!("{group} {group} {group} {group}")),
        ("Groups", group.to_string()),
        ("CapInh", "0000000000000000".to_owned()),
        ("CapPrm", "0000000000000000".to_owned()),
        ("CapEff", "0000000000000000".to_owned()),
        ("CapAmb", "0000000000000000".to_owned()),
        ("NoNewPrivs", "1".to_owned()),
    ] {
        let found = field(&gateway, name);
        assert!(!found.is_empty() && found.iter().all(|one| *one == value), "{name}: {found:?}");
    }
}

/// All sockets below a folder.
fn sockets(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").flatten();
    let found = entries.flat_map(|entry| match entry.file_type().expect("its kind") {
        kind if kind.is_dir() => sockets(&entry.path()),
        kind if kind.is_socket() => vec![entry.path()],
        _ => Vec::new(),
    });
    found.collect()
}

#[test]
fn a_gateway_that_gave_up_root_is_asked_and_takes_its_socket_away() {
    needs_bond!();
    needs!(Need::User("nobody"));
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let here = testbed.path("");
    fs::set_permissions(&here, Permissions::from_mode(0o711)).expect("its permissions");
    // A second time with the remains of the first gateway, and once as root.
    for user in [&["--user", "nobody"][..], &["--user", "nobody"], &[]] {
        let gateway = keys.gateway(user);
        let mut command = manyways();
        command.env("LAB_DIR", &here).args(["bond", "status", "--gateway", "--json"]);
        finish(&mut command).expect_success();
        assert_eq!(sockets(&here).len(), 1, "{user:?}");
        drop(gateway);
        assert_eq!(sockets(&here), Vec::<PathBuf>::new(), "{user:?}");
    }
}

/// A gateway that has dropped root cannot read a changed list of root, so the list of the start
/// remains in force.
#[test]
fn a_list_that_cannot_be_read_any_more_is_said_once_and_stays_in_force() {
    needs_bond!();
    needs!(Need::User("nobody"));
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    fs::set_permissions(testbed.path(""), Permissions::from_mode(0o711)).expect("its permissions");
    let gateway = keys.gateway(&["--user", "nobody"]);
    let hidden = testbed.path("hidden");
    fs::write(&hidden, "").expect("room for nothing");
    fs::set_permissions(&hidden, Permissions::from_mode(0o600)).expect("the same");
    fs::rename(&hidden, testbed.path("allow")).expect("the same folder");
    const SAID: &str = "the previous list stays in force";
    gateway.says(SAID);
    assert!(gateway.said().contains("allow: Permission denied"), "{}", gateway.said());
    gateway.says("(--user) must have permission to read");
    // Each of these connections triggers a check of the file.
    let client = keys.client();
    assert_eq!(gateway.times(SAID), 1, "{}", gateway.said());
    fs::set_permissions(testbed.path("allow"), Permissions::from_mode(0o644)).expect("the same");
    keys.allow("");
    gateway.says("phone: session closed: its key was removed from the allow file");
    client.says("the gateway does not know this key");
    // Logged again, because the file was readable in between.
    fs::remove_file(testbed.path("allow")).expect("it is there");
    gateway.says_times(SAID, 2);
    assert!(gateway.said().contains("allow: No such file"), "{}", gateway.said());
}

#[test]
fn a_gateway_that_cannot_become_a_user_says_so_in_one_line() {
    let folder = folder();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let public = key(&folder.path().join("key"));
    fs::write(file("allow"), format!("{public} phone\n")).expect("room for a line");
    for (user, message) in [
        ("no-such-user", "there is no user no-such-user: make one with `useradd"),
        ("root", "the user root is root: name an unprivileged user"),
    ] {
        let words = ["--listen", "127.0.0.1:0", "--allow", &file("allow"), "--key", &file("key")];
        let done = finish(manyways().args(["bond", "gateway", "--user", user]).args(words));
        assert_eq!(done.code(), 1, "{}", done.stderr);
        let [line] = done.stderr.lines().collect::<Vec<_>>()[..] else {
            panic!("not one line: {}", done.stderr)
        };
        assert!(line.starts_with("manyways: ") && line.contains(message), "{line}");
    }
}

#[test]
fn a_gateway_whose_user_cannot_read_its_list_does_not_start() {
    needs_bond!();
    needs!(Need::User("nobody"));
    let folder = folder();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let public = key(&folder.path().join("key"));
    fs::write(file("allow"), format!("{public} phone\n")).expect("room for a line");
    fs::set_permissions(file("allow"), Permissions::from_mode(0o600)).expect("its permissions");
    let words = ["--listen", "127.0.0.1:0", "--allow", &file("allow"), "--key", &file("key")];
    let done = finish(manyways().args(["bond", "gateway", "--user", "nobody"]).args(words));
    assert_eq!(done.code(), 1, "{}", done.stderr);
    let expected = format!("the user nobody cannot read {}: Permission denied", file("allow"));
    assert!(done.stderr.contains(&expected), "{}", done.stderr);
}
