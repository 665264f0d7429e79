//! A flood of strangers: a client with the gateway's public key connects all the same.
// Time: strangers come at a rate. No test concludes from a time: the flood ends after the client has
// connected, or else the test fails.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use manyways_tests::testbed::Namespace;
use socket2::{Domain, Protocol, Socket, Type};

use crate::bond::Keys;
use crate::impostor::Impostor;
use crate::needs_bond;
use crate::testbed::{GATEWAY, Testbed, at, ip};

/// A network whose round trip takes 200 ms, so that a handshake is long.
const FAR_LINK: [&str; 1] = ["lte:delay=100ms"];
/// Connections of strangers in a second.
const RATE: u32 = 3_000;
/// Connections that strangers hold; more than the gateway keeps.
const HELD: usize = 600;
/// Strangers come for so long, unless the client connects before.
const LONGEST: Duration = Duration::from_secs(20);

/// The address of a stranger: all in one /24, or each in another one.
fn stranger(number: u32, networks: u32) -> IpAddr {
    let network = number % networks;
    let [_, _, high, low] = network.to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(10, 128 + high, low, (number % 200) as u8 + 1))
}

/// Runs `during` while strangers knock on the gateway in its own namespace. `knock` takes the number
/// and the address of a stranger, and returns what keeps its connection open.
fn under_flood<K>(
    host: &Namespace,
    networks: u32,
    knock: impl Fn(u32, SocketAddr) -> K + Sync,
    during: impl FnOnce(),
) {
    let (is_over, has_ended) = (AtomicBool::new(false), AtomicBool::new(false));
    let (ready, is_ready) = mpsc::channel();
    let flood = || {
        // The kernel takes all of these for its own.
        ip("route add local 10.128.0.0/9 dev lo");
        let began = Instant::now();
        let mut held = VecDeque::new();
        for number in 0.. {
            if is_over.load(Ordering::Relaxed) || began.elapsed() > LONGEST {
                break;
            }
            held.push_back(knock(number, SocketAddr::new(stranger(number, networks), 0)));
            if held.len() > HELD {
                held.pop_front();
                let _ = ready.send(());
            }
            let due = began + Duration::from_secs(1) * number / RATE;
            thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        has_ended.store(true, Ordering::Relaxed);
    };
    thread::scope(|scope| {
        scope.spawn(|| host.run(flood));
        is_ready.recv().expect("strangers come");
        during();
        assert!(!has_ended.load(Ordering::Relaxed), "the client had to wait for the end");
        is_over.store(true, Ordering::Relaxed);
    });
}

/// A connection without a word.
fn knock_tcp(_: u32, from: SocketAddr) -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).expect("a socket");
    socket.bind(&from.into()).expect("an own address");
    socket.set_nonblocking(true).expect("a socket can be told");
    let _ = socket.connect(&at(GATEWAY, 4433).into());
    socket
}

/// The first packets of QUIC clients that do not know the gateway.
fn first_packets(count: usize) -> Vec<Vec<u8>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let sink = tokio::net::UdpSocket::bind("127.0.0.1:0").await.expect("a port");
        let to = sink.local_addr().expect("it is bound");
        let endpoint = quinn::Endpoint::client(at("127.0.0.1", 0)).expect("a port");
        let tls = Arc::new(Impostor::client_without_key());
        let tls = quinn::crypto::rustls::QuicClientConfig::try_from(tls).expect("TLS 1.3");
        let config = quinn::ClientConfig::new(Arc::new(tls));
        let mut packets = Vec::new();
        for _ in 0..count {
            let connecting = endpoint.connect_with(config.clone(), to, "gateway.invalid");
            let _connecting = connecting.expect("a sound configuration");
            let mut packet = vec![0; 2_000];
            let length = sink.recv(&mut packet).await.expect("it begins");
            packet.truncate(length);
            packets.push(packet);
        }
        packets
    })
}

/// A client of this carrier connects at once while these strangers come, and the gateway writes
/// little about them.
fn a_client_connects<K>(carrier: &str, networks: u32, knock: impl Fn(u32, SocketAddr) -> K + Sync) {
    let testbed = Testbed::new(&FAR_LINK);
    let keys = Keys::new(&testbed);
    let gateway = keys.gateway(&[]);
    under_flood(&testbed.host_namespace(), networks, knock, || {
        let more = ["--intercept", "none", "--carrier", carrier];
        let client = keys.client_at(&format!("{GATEWAY}:4433"), &more);
        client.says("lte is up");
        assert_eq!(client.times("cannot connect"), 0, "{}", client.said());
    });
    assert!(gateway.times("refused") <= 22, "{}", gateway.said());
}

#[test]
fn strangers_of_one_network_lock_nobody_out() {
    needs_bond!();
    a_client_connects("tcp", 1, knock_tcp);
}

#[test]
fn strangers_of_many_networks_lock_nobody_out() {
    needs_bond!();
    a_client_connects("tcp", 1_000, knock_tcp);
}

#[test]
fn strangers_that_use_quic_lock_nobody_out() {
    needs_bond!();
    let packets = first_packets(3_000);
    a_client_connects("quic", 1_000, |number, from| {
        let socket = UdpSocket::bind(from).expect("an own address");
        let _ = socket.send_to(&packets[number as usize % packets.len()], at(GATEWAY, 4433));
    });
}
