//! Datagrams under the rules of a policy.

use std::fs;
use std::net::UdpSocket;

use manyways_tests::testbed::Logged;

use crate::bond::Keys;
use crate::datagrams::arrives;
use crate::needs_bond;
use crate::proxy::{Association, plain};
use crate::testbed::{GATEWAY_OUTSIDE, SERVER, TWO_LINKS, Testbed, accept, at};

const POLICY: &str = r#"
[[rule]]
name = "calls"
match = { port = "4001", protocol = "udp" }
use = { paths = "wifi" }
[[rule]]
name = "games"
match = { port = 4002, protocol = "udp" }
use = { paths = "lte" }
[[rule]]
name = "past"
match = { port = 4003, protocol = "udp" }
use = { direct = true }
[[rule]]
name = "never"
match = { port = 4004, protocol = "udp" }
use = { block = true }
"#;
const WIFI: u16 = 4001;
const LTE: u16 = 4002;
const DIRECT: u16 = 4003;
const BLOCKED: u16 = 4004;

fn client(testbed: &Testbed, keys: &Keys<'_>) -> Logged {
    fs::write(testbed.path("policy.toml"), POLICY).expect("room for a file");
    keys.transparent(&["--policy", &keys.file("policy.toml")])
}

/// An application and a server that exchange datagrams at a port.
struct Exchange<'a> {
    testbed: &'a Testbed,
    application: UdpSocket,
    server: UdpSocket,
    port: u16,
}

impl<'a> Exchange<'a> {
    fn new(testbed: &'a Testbed, port: u16) -> Self {
        let application = testbed.device(|| UdpSocket::bind("0.0.0.0:0")).expect("a port");
        Self { testbed, application, server: testbed.udp_server(SERVER[0], port), port }
    }

    fn send(&self, data: &[u8]) -> std::io::Result<usize> {
        self.application.send_to(data, at(SERVER[0], self.port))
    }

    /// Exchanges datagrams one after the other; returns the source address that the server saw.
    #[track_caller]
    fn exchange(&self, count: u8) -> String {
        let mut seen = None;
        for number in 0..count {
            let data = [number; 1000];
            let from = arrives(&self.server, &data, || self.send(&data));
            let to = arrives(&self.application, &data, || self.server.send_to(&data, from));
            assert_eq!(to, at(SERVER[0], self.port), "the answer bears the server's address");
            assert_eq!(*seen.get_or_insert(from), from, "it keeps its address");
        }
        seen.expect("one at least").ip().to_string()
    }

    /// Asserts that no datagram has arrived at the server.
    #[track_caller]
    fn assert_silent(&self) {
        self.server.set_nonblocking(true).expect("a socket can be told");
        let heard = self.server.recv_from(&mut [0; 1]);
        assert!(heard.is_err(), "{} heard something", self.port);
        self.server.set_nonblocking(false).expect("a socket can be told");
    }

    /// Received and sent bytes of the device's links during the exchanges: Wi-Fi, LTE.
    #[track_caller]
    fn link_bytes(&self, exchanges: u8) -> [[u64; 2]; 2] {
        let before = ["wifi", "lte"].map(|link| carried(self.testbed, link));
        assert_eq!(self.exchange(exchanges), GATEWAY_OUTSIDE[0]);
        let after = ["wifi", "lte"].map(|link| carried(self.testbed, link));
        [0, 1].map(|link| [0, 1].map(|direction| after[link][direction] - before[link][direction]))
    }
}

/// Received and sent bytes of a link of the device.
fn carried(testbed: &Testbed, link: &str) -> [u64; 2] {
    let all = testbed.device(|| fs::read_to_string("/proc/thread-self/net/dev"));
    let all = all.expect("every kernel has it");
    let line = all.lines().find_map(|line| line.trim().strip_prefix(link)?.strip_prefix(':'));
    let numbers: Vec<u64> =
        line.expect("the link is there").split_whitespace().flat_map(str::parse).collect();
    [numbers[0], numbers[8]]
}

/// Both directions: the gateway obeys the rule too.
#[test]
fn datagrams_keep_to_the_network_of_their_rule_and_wait_for_it() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let (_gateway, client) = (keys.gateway(&[]), client(&testbed, &keys));
    let (calls, games) = (Exchange::new(&testbed, WIFI), Exchange::new(&testbed, LTE));
    for (talk, own) in [(&calls, 0), (&games, 1)] {
        let costs = talk.link_bytes(200);
        let (own, other) = (costs[own], costs[1 - own]);
        assert!(own.iter().all(|bytes| *bytes > 200_000), "{own:?} {other:?}");
        assert!(other.iter().all(|bytes| *bytes < 20_000), "{own:?} {other:?}");
    }
    testbed.set("wifi", "state=no-carrier");
    client.says("wifi is down");
    calls.send(b"hello").expect("somebody takes it");
    games.exchange(10);
    calls.assert_silent();
    testbed.set("wifi", "state=up");
    calls.exchange(10);
}

#[test]
fn datagrams_go_past_or_nowhere_where_their_rule_says_so() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let (_gateway, _client) = (keys.gateway(&[]), client(&testbed, &keys));
    let (past, never, calls) = (
        Exchange::new(&testbed, DIRECT),
        Exchange::new(&testbed, BLOCKED),
        Exchange::new(&testbed, WIFI),
    );
    assert_eq!(past.exchange(10), "10.64.1.2", "the device's own address");
    never.send(b"hello").expect("somebody takes it");
    assert_eq!(calls.exchange(10), GATEWAY_OUTSIDE[0]);
    never.assert_silent();
    // The rules apply to SOCKS5 too.
    let association = Association::new(&testbed);
    let from =
        arrives(&past.server, b"socks", || association.send(at(SERVER[0], DIRECT), b"socks"));
    assert!(!GATEWAY_OUTSIDE.contains(&from.ip().to_string().as_str()), "{from}");
    association.send(at(SERVER[0], BLOCKED), b"socks").expect("somebody takes it");
    let from = arrives(&calls.server, b"socks", || association.send(at(SERVER[0], WIFI), b"socks"));
    assert_eq!(from.ip().to_string(), GATEWAY_OUTSIDE[0]);
    never.assert_silent();
    // The rules apply to datagrams only.
    for port in [DIRECT, BLOCKED] {
        let listener = testbed.listen(SERVER[0], port);
        let _application = plain(&testbed, at(SERVER[0], port));
        assert_eq!(accept(&listener).1.ip().to_string(), GATEWAY_OUTSIDE[0]);
    }
}
