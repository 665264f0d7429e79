//! Carriers whose bytes are damaged in transit.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};

use manyways_tests::fault;

use crate::bond::Keys;
use crate::datagrams::arrives;
use crate::links::{download_while, exchange_data, idle};
use crate::needs_bond;
use crate::proxy::{Association, socks};
use crate::relay::{Damage, DatagramRelay, Receiver, Relay};
use crate::testbed::{GATEWAY, PATIENCE, SERVER, SLOW_LINKS, TWO_LINKS, Testbed, accept, at};

/// A transfer continues over the remaining carriers and over the successors of the damaged ones.
#[track_caller]
fn check_survival(damage: Damage) {
    for towards in [Receiver::Client, Receiver::Gateway] {
        check_survival_towards(damage, towards);
    }
}

#[track_caller]
fn check_survival_towards(damage: Damage, towards: Receiver) {
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let gateway = keys.gateway(&[]);
    // Both of the first carriers are damaged, so that the transfer depends on their successors.
    let relay = Relay::start(&testbed, (damage, towards), 2, 200_000);
    let to = format!("{GATEWAY}:{}", Relay::PORT);
    let client = keys.client_at(&to, &["--intercept", "none"]);
    client.says("wifi is up");
    client.says("lte is up");
    assert_eq!(relay.connections(), 2);
    let long: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_be_bytes).collect();
    let listener = testbed.listen(SERVER[0], 7);
    let mut application = socks(&testbed, at(SERVER[0], 7));
    application.write_all(b"begin").expect("it is taken");
    let (mut server, _) = accept(&listener);
    // Closing a socket with unread data would reset the connection.
    server.read_exact(&mut [0; 5]).expect("it arrives");
    let (mut from, mut to) = match towards {
        Receiver::Client => (server, application),
        Receiver::Gateway => (application, server),
    };
    std::thread::scope(|scope| {
        let sent = scope.spawn(|| {
            from.write_all(&long).expect("the other side listens");
            from.shutdown(Shutdown::Write).expect("an open connection");
        });
        let mut came = Vec::new();
        let said = || format!("{damage:?} {towards:?}\n{}\n{}", client.said(), gateway.said());
        if let Err(error) = to.read_to_end(&mut came) {
            panic!("{error} after {}: {}", came.len(), said());
        }
        assert_eq!(came.len(), long.len(), "{}", said());
        fault!(came == long, "something else came: {}", said());
        sent.join().expect("all was sent");
    });
    client.says("is down");
    client.says_times("is up", 3);
    assert!(relay.connections() > 2, "{damage:?}");
    assert_eq!(client.times("does not know the session"), 0, "{}", client.said());
}

#[test]
fn a_flipped_bit_costs_the_carrier_and_nothing_else() {
    needs_bond!();
    check_survival(Damage::Flip);
}

#[test]
fn a_carrier_that_ends_in_the_middle_costs_nothing_else() {
    needs_bond!();
    check_survival(Damage::Truncate);
}

#[test]
fn bytes_that_come_twice_cost_the_carrier_and_nothing_else() {
    needs_bond!();
    check_survival(Damage::Replay);
}

#[test]
fn bytes_that_are_missing_cost_the_carrier_and_nothing_else() {
    needs_bond!();
    check_survival(Damage::Cut);
}

/// A failed handshake is retried.
#[test]
fn damage_to_the_first_words_costs_an_attempt() {
    needs_bond!();
    for damage in [Damage::Flip, Damage::Truncate, Damage::Replay, Damage::Cut] {
        for towards in [Receiver::Client, Receiver::Gateway] {
            let testbed = Testbed::new(&TWO_LINKS);
            let keys = Keys::new(&testbed);
            let gateway = keys.gateway(&[]);
            let relay = Relay::start(&testbed, (damage, towards), 2, 0);
            let to = format!("{GATEWAY}:{}", Relay::PORT);
            let client = keys.client_at(&to, &["--intercept", "none", "--carrier", "tcp"]);
            client.says("wifi is up");
            client.says("lte is up");
            assert!(relay.connections() >= 4, "{damage:?} {towards:?}");
            let (_listener, mut application, mut server) = idle(&testbed);
            exchange_data(&mut application, &mut server);
            assert_eq!(gateway.times("session started"), 1, "{}", gateway.said());
        }
    }
}

/// A recording of all bytes of a client is useless.
#[test]
fn a_carrier_that_is_played_again_opens_nothing() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let gateway = keys.gateway(&[]);
    let relay = Relay::listen(&testbed);
    let to = format!("{GATEWAY}:{}", Relay::PORT);
    let client = keys.client_at(&to, &["--intercept", "none", "--carrier", "tcp"]);
    client.says("wifi is up");
    client.says("lte is up");
    let (listener, mut application, mut server) = idle(&testbed);
    let recorded = relay.client_bytes();
    let mut stranger =
        testbed.device(|| TcpStream::connect(at(GATEWAY, 4433))).expect("it listens");
    stranger.set_read_timeout(Some(PATIENCE)).expect("a socket can be told");
    stranger.write_all(&recorded).expect("it is taken");
    // The gateway closes the connection, with or without unread data.
    match stranger.read_to_end(&mut Vec::new()) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
    }
    gateway.says("refused ");
    assert_eq!(gateway.times("session started"), 1, "{}", gateway.said());
    assert_eq!(gateway.times("phone: path"), 2, "{}", gateway.said());
    listener.set_nonblocking(true).expect("a socket can be told");
    assert!(listener.accept().is_err(), "it was opened again");
    exchange_data(&mut application, &mut server);
}

/// As on a link whose checksums miss errors: each datagram is protected separately.
// Slow: lost datagrams are sent again after 2 s.
#[test]
fn datagrams_of_a_quic_carrier_that_are_damaged_or_come_again_are_none() {
    needs_bond!();
    let testbed = Testbed::new(&SLOW_LINKS);
    let keys = Keys::new(&testbed);
    let gateway = keys.gateway(&[]);
    let relay = DatagramRelay::start(&testbed, 20);
    let to = format!("{GATEWAY}:{}", Relay::PORT);
    let client = keys.client_at(&to, &["--intercept", "none", "--carrier", "quic"]);
    client.says("wifi is up");
    client.says("lte is up");
    let before = relay.damaged();
    download_while(&testbed, || {});
    assert!(relay.damaged() > before + 100, "{} were damaged", relay.damaged() - before);
    let server = testbed.udp_server(SERVER[0], 4000);
    let association = Association::new(&testbed);
    for length in 1..100 {
        let data = vec![length; usize::from(length) * 10];
        arrives(&server, &data, || association.send(at(SERVER[0], 4000), &data));
    }
    assert_eq!(
        client.times("is down") + client.times("does not know the session"),
        0,
        "{}",
        client.said()
    );
    // On a loaded machine the client replaces a carrier that is silent for too long; nothing else
    // ends one.
    let ends = [&client, &gateway];
    assert_eq!(ends.map(|end| end.times("violated the protocol")), [0, 0], "{}", client.said());
    let replaced = gateway.times(" closed: the connection ended");
    assert_eq!(gateway.times(" closed: "), replaced, "{}", gateway.said());
}
