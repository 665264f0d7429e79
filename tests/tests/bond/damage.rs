//! Carriers whose bytes do not arrive as they were sent.

use std::io::{Read, Write};

use crate::bond::Keys;
use crate::datagrams::arrives;
use crate::links::download_while;
use crate::needs_bond;
use crate::proxy::{Association, socks};
use crate::relay::{Damage, DatagramRelay, Relay};
use crate::world::{GATEWAY, SERVER, SLOW_LINKS, TWO_LINKS, World, accept, at};

/// A download goes on over what is left, and over what comes in place of the damaged carriers.
#[track_caller]
fn survives(damage: Damage) {
    let world = World::new(&TWO_LINKS);
    let keys = Keys::new(&world);
    let gateway = keys.gateway(&[]);
    // Both of the first carriers, so that everything hangs on their successors.
    let relay = Relay::start(&world, damage, 2, 200_000);
    let to = format!("{GATEWAY}:{}", Relay::PORT);
    let client = keys.client_at(&to, &["--intercept", "none"]);
    client.says("wifi is up");
    client.says("lte is up");
    assert_eq!(relay.connections(), 2);
    let long: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_be_bytes).collect();
    let listener = world.listen(SERVER[0], 7);
    let mut application = socks(&world, at(SERVER[0], 7));
    application.write_all(b"give me all").expect("it is taken");
    let (mut server, _) = accept(&listener);
    // Who closes a socket with something unread in it resets the connection.
    server.read_exact(&mut [0; 11]).expect("it arrives");
    std::thread::scope(|scope| {
        let sent = scope.spawn(|| {
            server.write_all(&long).expect("the other side listens");
            drop(server);
        });
        let mut came = Vec::new();
        if let Err(error) = application.read_to_end(&mut came) {
            panic!(
                "{damage:?}: {error} after {}\n{}\n{}",
                came.len(),
                client.said(),
                gateway.said()
            );
        }
        assert_eq!(came.len(), long.len(), "{damage:?}\n{}\n{}", client.said(), gateway.said());
        assert!(came == long, "{damage:?}: something else came");
        sent.join().expect("all was sent");
    });
    client.says("is down");
    client.says_times("is up", 3);
    assert!(relay.connections() > 2, "{damage:?}");
    assert_eq!(client.times("forgotten"), 0, "{}", client.said());
}

#[test]
fn a_flipped_bit_costs_the_carrier_and_nothing_else() {
    needs_bond!();
    survives(Damage::Flip);
}

#[test]
fn a_carrier_that_ends_in_the_middle_costs_nothing_else() {
    needs_bond!();
    survives(Damage::Truncate);
}

#[test]
fn bytes_that_come_twice_cost_the_carrier_and_nothing_else() {
    needs_bond!();
    survives(Damage::Replay);
}

#[test]
fn bytes_that_are_missing_cost_the_carrier_and_nothing_else() {
    needs_bond!();
    survives(Damage::Cut);
}

/// As on a bad radio whose checksums lie: each datagram stands for itself.
#[test]
fn datagrams_of_a_quic_carrier_that_are_damaged_or_come_again_are_none() {
    needs_bond!();
    let world = World::new(&SLOW_LINKS);
    let keys = Keys::new(&world);
    let gateway = keys.gateway(&[]);
    let relay = DatagramRelay::start(&world, 20);
    let to = format!("{GATEWAY}:{}", Relay::PORT);
    let client = keys.client_at(&to, &["--intercept", "none", "--carrier", "quic"]);
    client.says("wifi is up");
    client.says("lte is up");
    let before = relay.damaged();
    download_while(&world, |_| {});
    assert!(relay.damaged() > before + 100, "{} were damaged", relay.damaged() - before);
    let server = world.datagrams(SERVER[0], 4000);
    let association = Association::new(&world);
    for length in 1..100 {
        let data = vec![length; usize::from(length) * 10];
        arrives(&server, &data, || association.send(at(SERVER[0], 4000), &data));
    }
    assert_eq!(client.times("is down") + client.times("forgotten"), 0, "{}", client.said());
    assert_eq!(gateway.times("has ended"), 0, "{}", gateway.said());
}
