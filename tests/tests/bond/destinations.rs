//! Destinations: servers that do not exist, and addresses that a gateway does not permit.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use manyways_tests::fault;

use crate::bond::{Keys, SOCKS};
use crate::needs_bond;
use crate::proxy::{Association, Destination, socks, socks_at, try_plain, try_socks};
use crate::resolver::{Resolver, SILENT};
use crate::testbed::{
    GATEWAY, GATEWAY_OUTSIDE, PRIVATE, SERVER, TWO_LINKS, Testbed, accept, at, eventually,
};

/// Proxy address of another client.
const OTHER: &str = "127.0.0.1:1081";

/// The proxy confirms before the result of the gateway's connection is known; a failure resets the
/// connection.
#[track_caller]
fn is_reset(opened: io::Result<TcpStream>) {
    let mut stream = match opened {
        Ok(stream) => stream,
        Err(error) => {
            assert!(is_end(&error), "{error}");
            return;
        }
    };
    let error = stream.read(&mut [0; 1]).expect_err("it is not to be an orderly end");
    assert!(is_end(&error), "{error}");
}

fn is_end(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused)
}

/// Asserts that the bond still carries a connection.
#[track_caller]
fn carries(testbed: &Testbed) {
    let listener = testbed.listen(SERVER[0], 7);
    let mut application = socks(testbed, at(SERVER[0], 7));
    application.write_all(b"hello").expect("it is taken");
    let mut heard = [0; 5];
    accept(&listener).0.read_exact(&mut heard).expect("it arrives");
    assert_eq!(&heard, b"hello");
}

#[test]
fn a_server_that_is_not_there_resets() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let (gateway, _client) = (keys.gateway(&[]), keys.transparent(&[]));
    let _resolver = Resolver::start(&testbed);
    for server in SERVER {
        is_reset(try_plain(&testbed, at(server, 1)));
        is_reset(try_socks(&testbed, &Destination::Address(at(server, 1))));
    }
    gateway.says_times("connection refused", 4);
    // A nonexistent neighbour of the servers: the last router reports it.
    is_reset(try_plain(&testbed, at("203.0.113.99", 80)));
    gateway.says("cannot connect to 203.0.113.99:80: no route to the server");
    is_reset(try_socks(&testbed, &Destination::Name("nobody.example", 80)));
    gateway.says("cannot connect to nobody.example:80: name not resolved");
    carries(&testbed);
}

/// Neither the slow name nor the silent server delays other connections.
#[test]
fn a_name_that_takes_long_holds_up_nobody() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let (gateway, _client) = (keys.gateway(&[]), keys.client());
    let _resolver = Resolver::start(&testbed);
    let slow: Vec<io::Result<TcpStream>> =
        (0..20).map(|_| try_socks(&testbed, &Destination::Name(SILENT, 80))).collect();
    let listener = testbed.listen(SERVER[0], 7);
    let _application =
        try_socks(&testbed, &Destination::Name("www.example", 7)).expect("the proxy is there");
    accept(&listener);
    assert_eq!(gateway.times("cannot connect to slow.example:80"), 0, "{}", gateway.said());
    slow.into_iter().for_each(is_reset);
    gateway.says_times("cannot connect to slow.example:80", 20);
}

/// All ways to address the gateway itself or its neighbours.
const CLOSED: [&str; 15] = [
    "127.0.0.1",
    "127.1.2.3",
    "0.0.0.0",
    "10.64.1.2",
    PRIVATE,
    "169.254.1.1",
    "100.64.1.1",
    GATEWAY,
    GATEWAY_OUTSIDE[0],
    "::1",
    "fe80::1",
    "fd00:18::1",
    GATEWAY_OUTSIDE[1],
    "::ffff:203.0.113.1",
    "64:ff9b::cb00:7101",
];

/// Listens at every address that the gateway could reach.
fn listen_everywhere(testbed: &Testbed) -> (TcpListener, UdpSocket, TcpListener) {
    let any: SocketAddr = "[::]:8080".parse().expect("an address");
    let listener = testbed.host(|| TcpListener::bind(any)).expect("a port");
    let socket = testbed.host(|| UdpSocket::bind(any)).expect("a port");
    for own in [&listener, &testbed.listen(PRIVATE, 8080)] {
        own.set_nonblocking(true).expect("a socket can be told");
    }
    socket.set_nonblocking(true).expect("a socket can be told");
    (listener, socket, testbed.listen(PRIVATE, 8080))
}

#[test]
fn the_gateway_is_no_way_to_itself_or_its_neighbours() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let (gateway, _client) = (keys.gateway(&[]), keys.client());
    let _resolver = Resolver::start(&testbed);
    let (listener, socket, private) = listen_everywhere(&testbed);
    private.set_nonblocking(true).expect("a socket can be told");
    for (count, address) in (1..).zip(CLOSED) {
        is_reset(try_socks(&testbed, &Destination::Address(at(address, 8080))));
        gateway.says_times("destination not permitted", count);
        assert!(listener.accept().is_err() && private.accept().is_err(), "{address}");
    }
    for name in ["localhost", "inside.example", "self.example"] {
        is_reset(try_socks(&testbed, &Destination::Name(name, 8080)));
        gateway.says(&format!("cannot connect to {name}:8080: destination not permitted"));
    }
    let association = Association::new(&testbed);
    for address in CLOSED {
        association.send(at(address, 8080), b"hello").expect("it is taken");
    }
    // Earlier datagrams would have arrived before this one.
    let server = testbed.internet(|| UdpSocket::bind(at(SERVER[0], 4000))).expect("a port");
    server.set_nonblocking(true).expect("a socket can be told");
    eventually("a datagram comes", || {
        association.send(at(SERVER[0], 4000), b"hello").expect("it is taken");
        server.recv_from(&mut [0; 9]).ok()
    });
    assert!(socket.recv_from(&mut [0; 9]).is_err(), "a datagram got through");
}

#[test]
fn what_is_opened_is_open_and_nothing_else() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let gateway = keys.gateway(&["--permit", "192.168.77.0/24", "--permit", "::1"]);
    let _client = keys.client();
    let (listener, _socket, private) = listen_everywhere(&testbed);
    let _application = socks(&testbed, at(PRIVATE, 8080));
    accept(&private);
    let _application = socks(&testbed, at("::1", 8080));
    accept(&listener);
    is_reset(try_socks(&testbed, &Destination::Address(at("127.0.0.1", 8080))));
    gateway.says("cannot connect to 127.0.0.1:8080: destination not permitted");
    assert_eq!(gateway.times("destination not permitted"), 1, "{}", gateway.said());
}

/// Each direction separately, independent of the number of connections and sessions.
#[test]
fn a_client_is_as_fast_as_it_may_be() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    keys.allow(&format!("{} phone rate=8mbit\n", keys.client));
    let (_gateway, _client) = (keys.gateway(&[]), keys.client());
    let other = keys.client_without_proxies(&["--intercept", "none", "--socks", OTHER]);
    other.says("lte is up");
    let listener = testbed.listen(SERVER[0], 7);
    let open: Vec<(TcpStream, TcpStream)> = [SOCKS, SOCKS, OTHER]
        .iter()
        .map(|door| {
            let to = Destination::Address(at(SERVER[0], 7));
            (socks_at(&testbed, door, &to).expect("a proxy"), accept(&listener).0)
        })
        .collect();
    let bytes: Vec<u8> = (0..100_000_u32).flat_map(u32::to_be_bytes).collect();
    let say = |mut from: &TcpStream| from.write_all(&bytes).expect("the other side listens");
    let hear = |mut to: &TcpStream| {
        let mut came = vec![0; bytes.len()];
        to.read_exact(&mut came).expect("it comes");
        fault!(came == bytes, "something else came");
    };
    // Time: a lower bound; a busy machine only adds to it.
    let begun = Instant::now();
    thread::scope(|scope| {
        for (application, server) in &open {
            scope.spawn(move || say(application));
            scope.spawn(move || say(server));
            scope.spawn(move || hear(application));
            scope.spawn(move || hear(server));
        }
    });
    // 1.2 MB in each direction, less the initial burst.
    let took = begun.elapsed();
    assert!(took > Duration::from_millis(1_150), "{took:?}");
}

/// At the previous rate the transfer would take hours.
#[test]
fn a_rate_that_changes_is_for_connections_that_are_there_too() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let limits = |limits: &str| keys.allow(&format!("{} phone {limits}\n", keys.client));
    limits("rate=100bit");
    let (gateway, _client) = (keys.gateway(&[]), keys.client());
    let listener = testbed.listen(SERVER[0], 7);
    let mut application = socks(&testbed, at(SERVER[0], 7));
    let (mut server, _) = accept(&listener);
    let mut hear = |length: usize| {
        application.read_exact(&mut vec![0; length]).expect("it comes");
    };
    server.write_all(&[1; 100_000]).expect("the other side listens");
    hear(1);
    limits("rate=80mbit streams=7");
    gateway.says("phone: rate limit changed to 80 Mbit/s");
    gateway.says("phone: new limits of streams and flows apply to the next session");
    hear(99_999);
    limits("rate=100bit");
    gateway.says("phone: rate limit changed to 100 bit/s");
    server.write_all(&[1; 100_000]).expect("the other side listens");
    hear(1);
    limits("");
    gateway.says("phone: rate limit removed");
    hear(99_999);
}

#[test]
fn a_client_may_have_so_many_streams_and_sessions() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    keys.allow(&format!("{} phone streams=2 sessions=1\n", keys.client));
    let gateway = keys.gateway(&[]);
    let client = keys.client();
    let listener = testbed.listen(SERVER[0], 7);
    let mut open: Vec<(TcpStream, TcpStream)> =
        (0..2).map(|_| (socks(&testbed, at(SERVER[0], 7)), accept(&listener).0)).collect();
    is_reset(try_socks(&testbed, &Destination::Address(at(SERVER[0], 7))));
    // A stream that ends makes room for another.
    drop(open.pop());
    eventually("there is room again", || {
        let mut application = socks(&testbed, at(SERVER[0], 7));
        listener.set_nonblocking(true).expect("a socket can be told");
        application.write_all(b"hello").ok()?;
        application.set_read_timeout(Some(Duration::from_millis(200))).ok()?;
        let end = application.read(&mut [0; 1]).expect_err("the server says nothing");
        (!is_end(&end)).then_some(())
    });
    let second = keys.client_without_proxies(&["--intercept", "none"]);
    second.says_times("the gateway refuses: phone already has 1 session", 2);
    gateway.says("phone already has 1 session");
    // After the end of the first session, the second one is accepted.
    drop(client);
    second.says("is up");
}
