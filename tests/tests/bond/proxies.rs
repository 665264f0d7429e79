//! Client interfaces: SOCKS5, the HTTP proxy, and interception.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::process::Command;
use std::thread;

use manyways_tests::{fault, finish, object, same_content};

use crate::bond::{CONNECT, Keys, SOCKS, read_to_end};
use crate::needs_bond;
use crate::proxy::{plain, socks};
use crate::testbed::{GATEWAY_OUTSIDE, OBJECT_LENGTH, SERVER, TWO_LINKS, Testbed, accept, at};

/// Downloads and uploads an object over both address families through a proxy.
#[track_caller]
pub fn transfer_both_ways(testbed: &Testbed, door: &[&str]) {
    let _web = testbed.web_server();
    let sent = object(&testbed.path("root"), "sent", OBJECT_LENGTH / 2, 8);
    for host in [SERVER[0].to_owned(), format!("[{}]", SERVER[1])] {
        let curl = |words: &[&str]| {
            let common = ["-q", "--silent", "--show-error", "--fail", "--max-time", "90"];
            let mut command = Command::new("curl");
            without_proxy_variables(&mut command);
            testbed.device(|| finish(command.args(common).args(door).args(words))).expect_success();
        };
        let (came, put) = (testbed.path("came"), testbed.path("put/sent"));
        curl(&["-o", &came.display().to_string(), &format!("http://{host}/object")]);
        fault!(same_content(&came, &testbed.path("root/object")), "{host}");
        curl(&["-T", &sent.display().to_string(), &format!("http://{host}/put/sent")]);
        fault!(same_content(&put, &sent), "{host}");
        std::fs::remove_file(put).expect("it came");
    }
    let through = [GATEWAY_OUTSIDE[0], GATEWAY_OUTSIDE[0], GATEWAY_OUTSIDE[1], GATEWAY_OUTSIDE[1]];
    assert_eq!(testbed.web_clients(), through, "the gateway's addresses, not the device's");
}

/// Removes the environment variables with which curl would use another proxy.
pub fn without_proxy_variables(command: &mut Command) -> &mut Command {
    for variable in ["http_proxy", "https_proxy", "all_proxy", "ALL_PROXY"] {
        command.env_remove(variable);
    }
    command
}

#[test]
fn a_download_and_an_upload_through_socks5() {
    needs_bond!("nginx", "curl");
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let (_gateway, _client) = (keys.gateway(&[]), keys.client());
    transfer_both_ways(&testbed, &["--proxy", &format!("socks5h://{SOCKS}")]);
}

#[test]
fn a_download_and_an_upload_through_http_connect() {
    needs_bond!("nginx", "curl");
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let (_gateway, _client) = (keys.gateway(&[]), keys.client());
    transfer_both_ways(&testbed, &["--proxy", &format!("http://{CONNECT}"), "--proxytunnel"]);
}

#[test]
fn a_download_and_an_upload_of_an_application_that_knows_nothing() {
    needs_bond!("nginx", "curl");
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let (_gateway, _client) = (keys.gateway(&[]), keys.transparent(&[]));
    transfer_both_ways(&testbed, &["--noproxy", "*"]);
}

/// QUIC is used if TCP is blocked, or if it is configured.
#[test]
fn a_download_and_an_upload_over_quic() {
    needs_bond!("nginx", "curl", "ss");
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let (_gateway, _client) = (keys.gateway(&[]), keys.transparent(&["--carrier", "quic"]));
    transfer_both_ways(&testbed, &["--noproxy", "*"]);
    let open = testbed.device(|| finish(Command::new("ss").args(["-Htn"])));
    let tcp = open.expect_success().stdout;
    assert!(!tcp.contains(":4433"), "no carrier is TCP: {tcp}");
}

/// As in SSH, SMTP and many databases: the client sends nothing before the server.
#[test]
fn a_server_that_speaks_first_is_heard() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let (_gateway, _client) = (keys.gateway(&[]), keys.transparent(&[]));
    for server in SERVER {
        let listener = testbed.listen(server, 22);
        for connect in [plain, socks] {
            let mut application = connect(&testbed, at(server, 22));
            let (mut stream, from) = accept(&listener);
            assert!(GATEWAY_OUTSIDE.contains(&from.ip().to_string().as_str()), "{from}");
            stream.write_all(b"who are you?\n").expect("somebody listens");
            let mut heard = [0; 13];
            application.read_exact(&mut heard).expect("the server speaks");
            assert_eq!(&heard, b"who are you?\n");
            application.write_all(b"nobody\n").expect("the server listens");
            drop(application);
            assert_eq!(read_to_end(&mut stream), b"nobody\n");
        }
    }
}

#[test]
fn either_side_may_stop_speaking_and_go_on_listening() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let (_gateway, _client) = (keys.gateway(&[]), keys.transparent(&[]));
    let long: Vec<u8> = (0..300_000_u32).flat_map(u32::to_be_bytes).collect();
    for connect in [plain, socks] {
        for application_first in [true, false] {
            let listener = testbed.listen(SERVER[0], 7);
            let mut application = connect(&testbed, at(SERVER[0], 7));
            application.write_all(b"begin").expect("it is taken");
            let (mut server, _) = accept(&listener);
            let mut begin = [0; 5];
            server.read_exact(&mut begin).expect("it begins");
            let (mut first, mut second) = match application_first {
                true => (application, server),
                false => (server, application),
            };
            first.write_all(b"that is all").expect("it is taken");
            first.shutdown(Shutdown::Write).expect("an open connection");
            assert_eq!(read_to_end(&mut second), b"that is all");
            thread::scope(|scope| {
                scope.spawn(|| {
                    second.write_all(&long).expect("the other side listens");
                    second.shutdown(Shutdown::Write).expect("an open connection");
                });
                assert!(read_to_end(&mut first) == long, "what came after is not what was sent");
            });
        }
    }
}

#[test]
fn a_client_says_what_it_takes_in() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let _gateway = keys.gateway(&[]);
    // Several clients can run if at most one of them has the rules.
    let more = ["--intercept", "user:nobody", "--intercept", "to:203.0.113.0/24", "--name", "some"];
    let some = keys.client_without_proxies(&more);
    some.says("intercepts traffic of user 65534, and packets to 203.0.113.0/24, TCP and UDP");
    some.says("IPv4 and IPv6 are intercepted");
    assert_eq!(some.times("nothing is intercepted"), 0, "{}", some.said());
    let none = keys.client_without_proxies(&["--intercept", "none", "--name", "none"]);
    none.says("nothing is intercepted, so no application uses this bond");
    none.says("hint: --socks 127.0.0.1:1080");
    let proxies = keys.client();
    proxies.says(&format!("SOCKS5 proxy listens on {SOCKS}"));
    proxies.says(&format!("HTTP proxy listens on {CONNECT}"));
    assert_eq!(proxies.times("intercept"), 0, "{}", proxies.said());
}
