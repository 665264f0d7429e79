//! Proxies that other hosts can reach, and proxies with a password.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use manyways_tests::testbed::Logged;
use manyways_tests::{finish, same_content};

use crate::bond::{CONNECT, Keys, SOCKS, read_to_end};
use crate::needs_bond;
use crate::proxies::without_proxy_variables;
use crate::testbed::{PATIENCE, SERVER, TWO_LINKS, Testbed, ip};

/// A password that no other text contains.
const SECRET: &str = "s3cr3t:w0rd";

/// Writes a password file, and returns its path.
fn password_file(testbed: &Testbed, text: &str, mode: u32) -> String {
    let path = testbed.path("password");
    fs::write(&path, text).expect("room for a line");
    fs::set_permissions(&path, Permissions::from_mode(mode)).expect("its permissions");
    path.display().to_string()
}

/// Waits until a client ends with this exit code.
#[track_caller]
fn ends_with(client: &mut Logged, code: i32) {
    let status = client.process.wait(PATIENCE).expect("it ends");
    assert_eq!(status.code(), Some(code), "{}", client.said());
}

#[test]
fn a_proxy_that_other_hosts_reach_needs_a_password_or_a_permission() {
    needs_bond!("nginx", "curl");
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let _gateway = keys.gateway(&[]);
    let _web = testbed.web_server();
    let guest = testbed.add_guest("lan");
    let router = guest.run(|| ip("-4 route show default")).stdout;
    let router = router.split(' ').nth(2).expect("a route has a router").to_owned();
    let (near, far) = (format!("{router}:1080"), "0.0.0.0:1080");
    for (option, at) in
        [("--socks", far), ("--socks", "[::]:1080"), ("--http-proxy", near.as_str())]
    {
        let mut client = keys.client_without_proxies(&["--intercept", "none", option, at]);
        ends_with(&mut client, 2);
        let words = format!("{option} {at}: other hosts could use this proxy without a password");
        assert_eq!(client.times(&words), 1, "{}", client.said());
        assert_eq!(client.times("hint: set one with --proxy-password-file FILE, or"), 1);
    }
    let file = password_file(&testbed, &format!("ann:{SECRET}\n"), 0o600);
    for (options, user) in [
        (vec!["--open-proxy"], None),
        (vec!["--proxy-password-file", &file], Some(format!("ann:{SECRET}"))),
    ] {
        let options = [&["--intercept", "none", "--socks", far], &options[..]].concat();
        let client = keys.client_without_proxies(&options);
        client.says("SOCKS5 proxy listens on 0.0.0.0:1080");
        let came = testbed.path("came");
        let mut curl = Command::new("curl");
        without_proxy_variables(&mut curl).args(["-q", "-sSf", "--max-time", "90", "-o"]);
        curl.arg(&came).args(["--proxy", &format!("socks5h://{near}")]);
        curl.args(user.iter().flat_map(|user| ["--proxy-user", user]));
        curl.arg(format!("http://{}/object", SERVER[0]));
        guest.finish(&mut curl).expect_success();
        assert!(same_content(&came, &testbed.path("root/object")));
    }
}

#[test]
fn a_password_file_that_others_can_read_is_refused() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let line = format!("ann:{SECRET}\n");
    for (text, mode, words, hint) in [
        (line.as_str(), 0o644, "can be read by other users than its owner", "hint: chmod 600 "),
        (line.as_str(), 0o640, "can be read by other users than its owner", "hint: chmod 600 "),
        (":\n", 0o600, "is not one line user:password", "hint: write a user name"),
        ("ann:a\nbob:b\n", 0o600, "is not one line user:password", "hint: write a user name"),
    ] {
        let file = password_file(&testbed, text, mode);
        let options = ["--intercept", "none", "--socks", SOCKS, "--proxy-password-file", &file];
        let mut client = keys.client_without_proxies(&options);
        ends_with(&mut client, 1);
        assert_eq!((client.times(words), client.times(hint)), (1, 1), "{}", client.said());
        assert!(!client.said().contains("w0rd"), "{}", client.said());
    }
}

/// Sends bytes to a proxy, and returns all bytes of its answer.
fn answer(testbed: &Testbed, door: &str, request: &[u8]) -> Vec<u8> {
    let mut stream = testbed.device(|| TcpStream::connect(door)).expect("the proxy is there");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket can be told");
    stream.write_all(request).expect("it is taken");
    read_to_end(&mut stream)
}

#[test]
fn a_proxy_with_a_password_serves_only_those_who_send_it() {
    needs_bond!("nginx", "curl");
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let _gateway = keys.gateway(&[]);
    let file = password_file(&testbed, &format!("ann:{SECRET}\n"), 0o600);
    let doors = ["--socks", SOCKS, "--http-proxy", CONNECT, "--proxy-password-file", &file];
    let client = keys.client_without_proxies(&[&["--intercept", "none"], &doors[..]].concat());
    client.says("lte is up");
    let _web = testbed.web_server();
    let (socks, http) = (format!("socks5h://{SOCKS}"), format!("http://{CONNECT}"));
    let curl = |door: &[&str], user: &str| {
        let mut curl = Command::new("curl");
        without_proxy_variables(&mut curl).args(["-q", "-sSf", "--max-time", "90", "--proxy"]);
        curl.args(door).args(["--proxy-user", user, "-o"]).arg(testbed.path("came"));
        testbed.device(|| finish(curl.arg(format!("http://{}/object", SERVER[0]))))
    };
    for door in [&[socks.as_str()][..], &[&http], &[&http, "--proxytunnel"]] {
        curl(door, &format!("ann:{SECRET}")).expect_success();
        assert!(same_content(&testbed.path("came"), &testbed.path("root/object")));
        for wrong in ["ann:s3cr3t", &format!("bob:{SECRET}"), "ann:"] {
            assert!(!curl(door, wrong).status.success(), "{door:?} {wrong}");
        }
    }
    assert_eq!(testbed.web_clients().len(), 3, "no request with a wrong password got through");
    // Without any: SOCKS5 offers no method, and HTTP asks for it.
    assert_eq!(answer(&testbed, SOCKS, &[5, 1, 0]), [5, 0xff]);
    for request in [
        format!("CONNECT {}:80 HTTP/1.1\r\n\r\n", SERVER[0]),
        format!("GET http://{}/object HTTP/1.1\r\n\r\n", SERVER[0]),
    ] {
        let answer = String::from_utf8(answer(&testbed, CONNECT, request.as_bytes()));
        let answer = answer.expect("it is text");
        assert!(answer.starts_with("HTTP/1.1 407 "), "{answer}");
        let field = "\r\nProxy-Authenticate: Basic realm=\"manyways\"\r\n";
        assert!(answer.contains(field), "{answer}");
    }
    let mut wrong = testbed.device(|| TcpStream::connect(SOCKS)).expect("the proxy is there");
    wrong.write_all(&[5, 2, 0, 2, 1, 3, b'a', b'n', b'n', 1, b'x']).expect("it is taken");
    let mut heard = Vec::new();
    let _ = wrong.read_to_end(&mut heard);
    assert_eq!(heard, [5, 2, 1, 1], "the password is asked for, and refused");
    client.says("gives no valid user name and password");
    assert!(!client.said().contains("s3cr3t"), "{}", client.said());
}
