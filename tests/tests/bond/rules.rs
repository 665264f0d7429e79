//! The kernel's rules that bring traffic to a client: others take them away, and they are gone when
//! it ends.

use std::process::Command;

use manyways_tests::finish;

use crate::bond::Keys;
use crate::needs_bond;
use crate::proxy::plain;
use crate::world::{OUTSIDE, SERVER, TWO_LINKS, World, accept, at, ip, nft};

/// What the device opens goes through the bond.
#[track_caller]
fn goes_through(world: &World) {
    for (server, outside) in SERVER.into_iter().zip(OUTSIDE) {
        let listener = world.listen(server, 7);
        let _application = plain(world, at(server, 7));
        assert_eq!(accept(&listener).1.ip().to_string(), outside);
    }
}

/// All that a client has told the device's kernel.
fn left(world: &World) -> String {
    let show = |words: &str| finish(Command::new("sh").args(["-c", words])).stdout;
    world.device(|| {
        show(
            "nft list ruleset
            for family in -4 -6; do
                ip $family rule show pref 417; ip $family route show table 4917
            done",
        )
    })
}

/// As the host's own packet filter does when it is loaded anew.
#[test]
fn rules_that_are_flushed_come_back() {
    needs_bond!();
    let world = World::new(&TWO_LINKS);
    let keys = Keys::new(&world);
    let _gateway = keys.gateway(&[]);
    let client = keys.transparent(&["--when-dead", "closed"]);
    client.says("IPv4 and IPv6 are taken in");
    for times in 1..=2 {
        world.device(|| nft("flush ruleset"));
        client.says_times("which are put back: the nftables table is gone", times);
        goes_through(&world);
    }
    assert_eq!(client.times("which are put back"), 2, "{}", client.said());
    assert_eq!(client.times("not renewed"), 0, "{}", client.said());
    drop(client);
    assert_eq!(left(&world), "");
}

/// As systemd-networkd does, which takes the rules of others for leftovers.
#[test]
fn routing_rules_and_routes_that_are_removed_come_back() {
    needs_bond!();
    let world = World::new(&TWO_LINKS);
    let keys = Keys::new(&world);
    let _gateway = keys.gateway(&[]);
    let client = keys.transparent(&[]);
    client.says("IPv4 and IPv6 are taken in");
    for (words, part) in [
        ("-4 rule del pref 417", "a routing rule of IPv4"),
        ("-6 rule del pref 417", "a routing rule of IPv6"),
        ("-4 route flush table 4917", "the route of IPv4"),
        ("-6 route flush table 4917", "the route of IPv6"),
    ] {
        world.device(|| ip(words));
        client.says(&format!("which are put back: {part} is gone"));
        goes_through(&world);
    }
    assert_eq!(client.times("which are put back"), 4, "{}", client.said());
    drop(client);
    assert_eq!(left(&world), "");
}
