//! Ends of processes: a gateway that is restarted or killed, a client that is killed.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};

use manyways_tests::fault;
use nix::sys::signal::Signal;

use crate::bond::{Keys, client_status, has_rules};
use crate::datagrams::arrives;
use crate::needs_bond;
use crate::proxy::{Association, plain, socks, try_plain};
use crate::testbed::{
    GATEWAY, GATEWAY_OUTSIDE, PATIENCE, SERVER, SLOW_LINKS, TWO_LINKS, Testbed, accept, at,
    eventually, nft,
};

/// Opens a connection over which the server sends continuously.
pub fn streaming_connection(
    testbed: &Testbed,
    connect: fn(&Testbed, SocketAddr) -> TcpStream,
) -> TcpStream {
    let listener = testbed.listen(SERVER[0], 7);
    let mut application = connect(testbed, at(SERVER[0], 7));
    let (mut server, _) = accept(&listener);
    std::thread::spawn(move || {
        // Until the connection is closed.
        while server.write_all(&[1; 10_000]).is_ok() {}
    });
    application.read_exact(&mut [0; 20_000]).expect("it begins to come");
    application
}

/// Reads until any end: the kernel closes the connections of a killed process normally if all data
/// was read.
pub fn ends(mut application: TcpStream) {
    let mut buffer = [0; 100_000];
    loop {
        match application.read(&mut buffer) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Reads until the end, which must be a reset.
#[track_caller]
pub fn ends_with_a_reset(mut application: TcpStream) {
    let mut buffer = [0; 100_000];
    let error = loop {
        match application.read(&mut buffer) {
            Ok(0) => panic!("it ended as if all had come"),
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
}

/// Asserts that a new connection through the bond transfers data.
#[track_caller]
pub fn carries(testbed: &Testbed) {
    let listener = testbed.listen(SERVER[0], 8);
    eventually("a connection goes through", || {
        let mut application = socks(testbed, at(SERVER[0], 8));
        application.write_all(b"hello").ok()?;
        listener.set_nonblocking(true).expect("a socket can be told");
        // A connection that was opened while the gateway was down may be reset.
        let (mut server, _) = eventually("it comes or is reset", || match listener.accept() {
            Ok(accepted) => Some(Some(accepted)),
            Err(_) => {
                application.set_nonblocking(true).expect("a socket can be told");
                let waits = matches!(application.read(&mut [0; 1]),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock);
                (!waits).then_some(None)
            }
        })?;
        server.set_nonblocking(false).expect("a socket can be told");
        server.set_read_timeout(Some(PATIENCE)).expect("a socket can be told");
        let mut heard = [0; 5];
        server.read_exact(&mut heard).ok()?;
        (&heard == b"hello").then_some(())
    });
}

/// The counters of the client, which are of all its sessions.
fn totals(testbed: &Testbed) -> Vec<(&'static str, u64)> {
    let status = client_status(testbed, "default");
    ["received_bytes", "header_bytes"]
        .map(|name| (name, status["totals"][name].as_u64().expect("a number")))
        .into()
}

#[test]
fn a_gateway_that_is_started_anew_resets_what_was_and_serves_what_comes() {
    needs_bond!();
    let testbed = Testbed::new(&SLOW_LINKS);
    let keys = Keys::new(&testbed);
    let gateway = keys.gateway(&[]);
    let client = keys.client();
    let application = streaming_connection(&testbed, socks);
    let before = totals(&testbed);
    assert!(before.iter().all(|(_, bytes)| *bytes > 0), "{before:?}");
    drop(gateway);
    let _gateway = keys.gateway(&[]);
    ends_with_a_reset(application);
    carries(&testbed);
    for ((name, before), (_, after)) in before.into_iter().zip(totals(&testbed)) {
        assert!(after >= before, "{name} fell from {before} to {after}");
    }
    // The first, if an attempt was refused before the second gateway listened.
    let said = client.times("does not run") + client.times("does not know the session");
    assert_eq!(said, 1, "{}", client.said());
}

#[test]
fn a_gateway_that_is_killed_and_stays_away_resets_what_was() {
    needs_bond!();
    let testbed = Testbed::new(&SLOW_LINKS);
    let keys = Keys::new(&testbed);
    let mut gateway = keys.gateway(&[]);
    let client = keys.client();
    let application = streaming_connection(&testbed, socks);
    gateway.process.signal(Signal::SIGKILL);
    gateway.process.wait(PATIENCE).expect("it ends");
    ends_with_a_reset(application);
    client.says("the gateway does not run");
    let _gateway = keys.gateway(&[]);
    carries(&testbed);
    assert_eq!(client.times("does not know the session"), 0, "{}", client.said());
}

#[test]
fn a_gateway_that_is_killed_is_noticed_when_it_is_back() {
    needs_bond!();
    a_gateway_is_killed("tcp");
}

/// With QUIC no kernel reports that the gateway has ended.
#[test]
fn a_gateway_that_is_killed_is_noticed_over_quic() {
    needs_bond!();
    a_gateway_is_killed("quic");
}

#[track_caller]
fn a_gateway_is_killed(carrier: &str) {
    let testbed = Testbed::new(&SLOW_LINKS);
    let keys = Keys::new(&testbed);
    let mut gateway = keys.gateway(&[]);
    let to = format!("{GATEWAY}:4433");
    let client = keys.client_at(&to, &["--intercept", "none", "--carrier", carrier]);
    client.says("wifi is up");
    client.says("lte is up");
    let application = streaming_connection(&testbed, socks);
    gateway.process.signal(Signal::SIGKILL);
    gateway.process.wait(PATIENCE).expect("it ends");
    let _gateway = keys.gateway(&[]);
    ends_with_a_reset(application);
    carries(&testbed);
    // The first, if an attempt was refused before the second gateway listened.
    let said = client.times("does not run") + client.times("does not know the session");
    assert_eq!(said, 1, "{}", client.said());
}

#[test]
fn a_client_that_ends_takes_its_connections_along_and_is_gone_at_once() {
    needs_bond!();
    let testbed = Testbed::new(&SLOW_LINKS);
    let keys = Keys::new(&testbed);
    let gateway = keys.gateway(&[]);
    let client = keys.client();
    client.says_times("is up", 2);
    let application = streaming_connection(&testbed, socks);
    // A gateway that serves a client has opened all of its own, beside the connection and two carriers.
    let closed = gateway.descriptors() - 3;
    drop(client);
    ends_with_a_reset(application);
    gateway.says("phone: session closed");
    eventually("all is closed", || (gateway.descriptors() <= closed).then_some(()));
}

/// Restarts are faster than the gateway's detection of dead sessions.
#[test]
fn a_client_that_is_killed_again_and_again_is_let_in_beside_one_that_lives() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    keys.allow(&format!("{} phone sessions=2\n", keys.client));
    let gateway = keys.gateway(&[]);
    let _living = keys.client();
    let listener = testbed.listen(SERVER[0], 7);
    let mut application = socks(&testbed, at(SERVER[0], 7));
    let (mut server, _) = accept(&listener);
    const KILLS: usize = 5;
    for kills in 1..=KILLS {
        let mut short = keys.client_without_proxies(&["--intercept", "none"]);
        short.says("wifi is up");
        short.says("lte is up");
        short.process.signal(Signal::SIGKILL);
        short.process.wait(PATIENCE).expect("it ends");
        gateway.says_times("phone: path 0 closed", kills);
        gateway.says_times("phone: path 1 closed", kills);
    }
    const ROOM: &str = "phone: session evicted";
    assert_eq!(gateway.times(ROOM), KILLS - 1, "each makes room for the next one");
    let second = keys.client_without_proxies(&["--intercept", "none"]);
    second.says("is up");
    // Two live sessions reach the limit, and neither of them is ended for a third one.
    keys.client_without_proxies(&["--intercept", "none"])
        .says("the gateway refuses: phone already has 2 sessions");
    assert_eq!((gateway.times(ROOM), second.times("is down")), (KILLS, 0), "{}", gateway.said());
    application.write_all(b"hello").expect("it is taken");
    let mut heard = [0; 5];
    server.read_exact(&mut heard).expect("its session was there all the time");
    assert_eq!(&heard, b"hello");
}

/// As after a power failure: the gateway receives no notification.
fn vanishes_again_and_again(carrier: &str) {
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    keys.allow(&format!("{} phone sessions=2\n", keys.client));
    let gateway = keys.gateway(&[]);
    let more = ["--intercept", "none", "--carrier", carrier];
    let living = keys.client_at(&format!("{GATEWAY}:4433"), &more);
    living.says("wifi is up");
    living.says("lte is up");
    let listener = testbed.listen(SERVER[0], 7);
    let mut application = socks(&testbed, at(SERVER[0], 7));
    let (mut server, _) = accept(&listener);
    for vanished in 1..=2 {
        let mut vanishing = keys.client_without_proxies(&more);
        gateway.says_times("phone: path 0 from", 1 + vanished);
        gateway.says_times("phone: path 1 from", 1 + vanished);
        // Resets of the kernel for the ended process are blocked.
        let said = gateway.said();
        let carriers = said.lines().filter_map(|line| line.split_once(" from "));
        let carriers = carriers.filter_map(|(_, from)| from.split_once(" over ")?.0.parse().ok());
        let carriers: Vec<SocketAddr> = carriers.collect();
        testbed.host(|| {
            nft("add table inet wall");
            nft("add chain inet wall in { type filter hook input priority filter; }");
            for from in carriers.iter().rev().take(2) {
                let (ip, port) = (from.ip(), from.port());
                nft(&format!("add rule inet wall in ip saddr {ip} th sport {port} drop"));
            }
        });
        vanishing.process.signal(Signal::SIGKILL);
        vanishing.process.wait(PATIENCE).expect("it ends");
    }
    keys.client_without_proxies(&more).says("is up");
    assert_eq!(gateway.times("phone: session closed: its client gives no sign of life"), 2);
    application.write_all(b"hello").expect("it is taken");
    let mut heard = [0; 5];
    server.read_exact(&mut heard).expect("its session was there all the time");
    assert_eq!(&heard, b"hello");
    assert_eq!(living.times("does not know the session"), 0, "{}", living.said());
}

#[test]
fn a_client_that_vanishes_again_and_again_is_let_in_beside_one_that_lives() {
    needs_bond!();
    vanishes_again_and_again("tcp");
}

#[test]
fn a_client_that_vanishes_again_and_again_is_let_in_over_quic() {
    needs_bond!();
    vanishes_again_and_again("quic");
}

/// The first connection after a client was killed: the kernel retransmits its first packet.
fn killed(when_dead: &str, testbed: &Testbed, keys: &Keys<'_>) {
    let mut client = keys.transparent(&["--fail-mode", when_dead]);
    let application = streaming_connection(testbed, plain);
    client.process.signal(Signal::SIGKILL);
    ends(application);
    client.process.wait(PATIENCE).expect("it ends");
}

#[test]
fn where_a_killed_client_fails_open_everything_flows_past_it() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let _gateway = keys.gateway(&[]);
    killed("open", &testbed, &keys);
    for server in SERVER {
        let listener = testbed.listen(server, 9);
        let _application = plain(&testbed, at(server, 9));
        let from = accept(&listener).1.ip().to_string();
        assert!(!GATEWAY_OUTSIDE.contains(&from.as_str()), "{from}");
    }
    // The next client removes the remaining rules, and leaves none.
    let client = keys.transparent(&[]);
    let listener = testbed.listen(SERVER[0], 9);
    let _application = plain(&testbed, at(SERVER[0], 9));
    assert_eq!(accept(&listener).1.ip().to_string(), GATEWAY_OUTSIDE[0]);
    drop(client);
    fault!(!testbed.device(has_rules), "rules remain");
}

/// The gateway does not refuse: it is unreachable or hangs.
#[test]
fn a_gateway_that_goes_silent_cuts_nobody_off() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let gateway = keys.gateway(&[]);
    let client = keys.transparent(&[]);
    let listener = testbed.listen(SERVER[0], 9);
    let mut application = plain(&testbed, at(SERVER[0], 9));
    assert_eq!(accept(&listener).1.ip().to_string(), GATEWAY_OUTSIDE[0]);
    gateway.process.signal(Signal::SIGSTOP);
    application.write_all(b"hello").expect("the client takes it");
    client.says("no network leads to the gateway");
    let comes_from = || {
        let _application = plain(&testbed, at(SERVER[0], 9));
        accept(&listener).1.ip().to_string()
    };
    assert_eq!(comes_from(), "10.64.1.2");
    gateway.process.signal(Signal::SIGCONT);
    eventually("the bond is used again", || (comes_from() == GATEWAY_OUTSIDE[0]).then_some(()));
}

#[test]
fn where_a_killed_client_fails_closed_everything_is_refused_at_once() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let _gateway = keys.gateway(&[]);
    killed("closed", &testbed, &keys);
    for server in SERVER {
        let listener = testbed.listen(server, 9);
        let error = try_plain(&testbed, at(server, 9)).expect_err("nothing goes past");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused, "{error}");
        listener.set_nonblocking(true).expect("a socket can be told");
        assert!(listener.accept().is_err(), "somebody came");
    }
    let client = keys.transparent(&["--fail-mode", "closed"]);
    let listener = testbed.listen(SERVER[0], 9);
    let _application = plain(&testbed, at(SERVER[0], 9));
    assert_eq!(accept(&listener).1.ip().to_string(), GATEWAY_OUTSIDE[0]);
    drop(client);
    fault!(!testbed.device(has_rules), "rules remain");
    let _application = plain(&testbed, at(SERVER[0], 9));
    assert_eq!(accept(&listener).1.ip().to_string(), "10.64.1.2");
}

#[test]
fn a_client_that_leaves_leaves_no_descriptors_behind_at_the_gateway() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let gateway = keys.gateway(&[]);
    let descriptors = || {
        let folder = format!("/proc/{}/fd", gateway.process.pid());
        std::fs::read_dir(folder).expect("the gateway runs").count()
    };
    let (listener, server) = (
        testbed.listen(SERVER[0], 7),
        testbed.internet(|| UdpSocket::bind(at(SERVER[0], 4000))).expect("a port"),
    );
    let mut before = None;
    for _ in 0..2 {
        let client = keys.client();
        // A gateway that serves a client has opened all of its own. It opens further sockets for a
        // moment, for example to list the addresses of its host.
        let with_carriers = || (0..50).map(|_| descriptors()).min().expect("many looks");
        let before = *before.get_or_insert_with(|| with_carriers() - 2);
        let mut application = socks(&testbed, at(SERVER[0], 7));
        application.write_all(b"?").expect("it is taken");
        let (mut peer, _) = accept(&listener);
        peer.read_exact(&mut [0]).expect("it arrives");
        let association = Association::new(&testbed);
        arrives(&server, b"?", || association.send(at(SERVER[0], 4000), b"?"));
        // Two carriers, a connection and the socket of the datagrams.
        eventually("all are open", || (descriptors() >= before + 4).then_some(()));
        client.process.signal(Signal::SIGTERM);
        eventually("all is given back", || (descriptors() == before).then_some(()));
    }
}

#[test]
fn a_gateway_that_is_back_resets_the_quic_connections_of_its_former_process() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let gateway = keys.gateway(&[]);
    let more = ["--intercept", "none", "--carrier", "quic"];
    let client = keys.client_at(&format!("{GATEWAY}:4433"), &more);
    client.says("wifi is up");
    client.says("lte is up");
    let application = streaming_connection(&testbed, socks);
    gateway.process.signal(Signal::SIGKILL);
    let _gateway = keys.gateway(&[]);
    client.says("is down: connection reset");
    ends_with_a_reset(application);
    carries(&testbed);
}
