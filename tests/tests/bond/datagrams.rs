//! Datagrams: integrity, source addresses, and DNS.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::time::Duration;

use manyways_tests::finish;

use crate::bond::Keys;
use crate::needs_bond;
use crate::proxy::Association;
use crate::resolver::Resolver;
use crate::testbed::{GATEWAY_OUTSIDE, OTHER_SERVER, SERVER, TWO_LINKS, Testbed, at, eventually};

/// Interval after which the test repeats a lost datagram.
const RESEND_INTERVAL: Duration = Duration::from_secs(2);

/// Sends until the server receives the datagram; returns the source address that the server saw.
#[track_caller]
pub fn arrives(
    server: &UdpSocket,
    data: &[u8],
    send: impl Fn() -> io::Result<usize>,
) -> SocketAddr {
    server.set_read_timeout(Some(RESEND_INTERVAL)).expect("a socket can be told");
    let mut buffer = [0; 65_536];
    eventually("a datagram arrives", || {
        send().expect("somebody takes it");
        loop {
            let (length, from) = server.recv_from(&mut buffer).ok()?;
            // Copies of earlier datagrams may still arrive.
            if buffer[..length] == *data {
                return Some(from);
            }
        }
    })
}

fn random_bytes(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 31 + length) as u8).collect()
}

/// The sizes of a QUIC Initial, of a datagram beyond a carrier's packet, and of one that IP
/// fragments.
const LENGTHS: [usize; 5] = [1, 1200, 1400, 1472, 8000];

#[test]
fn datagrams_of_every_length_go_out_and_back_whole() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let (_gateway, _client) = (keys.gateway(&[]), keys.transparent(&[]));
    for (family, address) in SERVER.into_iter().enumerate() {
        let to = at(address, 4000);
        let server = testbed.internet(|| UdpSocket::bind(to)).expect("a port");
        let any = ["0.0.0.0:0", "[::]:0"][family];
        let application = testbed.device(|| UdpSocket::bind(any)).expect("a port");
        let association = Association::new(&testbed);
        for length in LENGTHS {
            let data = random_bytes(length);
            let from = arrives(&server, &data, || application.send_to(&data, to));
            assert_eq!(from.ip().to_string(), GATEWAY_OUTSIDE[family]);
            let came = arrives(&application, &data, || server.send_to(&data, from));
            assert_eq!(came, to, "the answer bears the server's address");

            let from = arrives(&server, &data, || association.send(to, &data));
            assert_eq!(from.ip().to_string(), GATEWAY_OUTSIDE[family]);
            association
                .socket()
                .set_read_timeout(Some(RESEND_INTERVAL))
                .expect("a socket can be told");
            eventually("the answer comes", || {
                server.send_to(&data, from).expect("the gateway listens");
                association.receive().ok().filter(|came| *came == (data.clone(), to))
            });
        }
    }
}

/// A datagram of UDP over IPv4 with the longest payload, and one that fits in no message of a carrier.
const LONG: [usize; 2] = [65_507, 33_000];

fn long_datagrams_go_out_and_back(carrier: &str) {
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let (_gateway, _client) = (keys.gateway(&[]), keys.transparent(&["--carrier", carrier]));
    let to = at(SERVER[0], 4000);
    let server = testbed.internet(|| UdpSocket::bind(to)).expect("a port");
    let application = testbed.device(|| UdpSocket::bind("0.0.0.0:0")).expect("a port");
    for length in LONG {
        let data = random_bytes(length);
        let from = arrives(&server, &data, || application.send_to(&data, to));
        let came = arrives(&application, &data, || server.send_to(&data, from));
        assert_eq!(came, to);
    }
}

#[test]
fn the_longest_datagrams_go_out_and_back_over_tcp() {
    needs_bond!();
    long_datagrams_go_out_and_back("tcp");
}

#[test]
fn the_longest_datagrams_go_out_and_back_over_quic() {
    needs_bond!();
    long_datagrams_go_out_and_back("quic");
}

/// WebRTC and games need this to connect to each other (RFC 4787, REQ-1).
#[test]
fn a_socket_looks_the_same_from_everywhere_and_strangers_may_answer() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let (_gateway, _client) = (keys.gateway(&[]), keys.transparent(&[]));
    let server = |address| testbed.internet(|| UdpSocket::bind(at(address, 4000))).expect("a port");
    let (one, other) = (server(SERVER[0]), server(OTHER_SERVER));
    let sockets = [0, 1].map(|_| testbed.device(|| UdpSocket::bind("0.0.0.0:0")).expect("a port"));
    let seen = sockets.each_ref().map(|socket| {
        let first = arrives(&one, b"one", || socket.send_to(b"one", at(SERVER[0], 4000)));
        let second = arrives(&other, b"two", || socket.send_to(b"two", at(OTHER_SERVER, 4000)));
        assert_eq!(first, second);
        first
    });
    assert_ne!(seen[0], seen[1], "two sockets are two");
    let stranger = testbed.internet(|| UdpSocket::bind(at(SERVER[0], 5000))).expect("a port");
    let from = arrives(&sockets[0], b"hello", || stranger.send_to(b"hello", seen[0]));
    assert_eq!(from, at(SERVER[0], 5000));
}

#[test]
fn names_resolve_through_the_bond_and_beside_it() {
    needs_bond!("getent");
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let (_gateway, _client) = (keys.gateway(&[]), keys.transparent(&[]));
    let resolver = Resolver::start(&testbed);
    // The bond carries the queries to the server's resolver.
    let log = testbed.path("getent");
    let ask = |name| {
        let mut getent = Command::new("getent");
        testbed.device(|| {
            let mut asks = testbed.start(log.clone(), getent.args(["ahostsv4", name]));
            asks.process.wait(crate::testbed::PATIENCE)
        })
    };
    assert!(ask("www.example").expect("it ends").success());
    let output = std::fs::read_to_string(&log).expect("a log");
    assert!(output.contains(SERVER[0]), "{output}");
    assert_eq!(resolver.client_addrs(), [GATEWAY_OUTSIDE[0]]);
    // The queries to the network's own resolver are sent directly, because it is private.
    let enter = ["lab", "enter", &testbed.lab.name, "--", "getent", "ahostsv4", "origin.lab"];
    let said = finish(manyways_tests::manyways().args(enter)).expect_success().stdout;
    assert!(said.contains(crate::testbed::GATEWAY), "{said}");
}
