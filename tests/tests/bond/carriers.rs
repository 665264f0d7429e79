//! Carriers of a session: TCP, QUIC if TCP is blocked, and idle QUIC.

use std::process::Command;

use manyways_tests::finish;

use crate::bond::{Keys, networks};
use crate::links::{download_while, idle, speak};
use crate::needs_bond;
use crate::proxy::{plain, socks};
use crate::world::{GATEWAY, OUTSIDE, SERVER, SLOW_LINKS, TWO_LINKS, World, accept, at};
use crate::world::{eventually, nft};

#[test]
fn where_tcp_does_not_get_through_quic_does() {
    needs_bond!();
    for verdict in ["drop", "reject with tcp reset"] {
        let world = World::new(&SLOW_LINKS);
        let keys = Keys::new(&world);
        let gateway = keys.gateway(&[]);
        // A firewall between LTE and the gateway.
        world.host(|| {
            nft(&format!(
                "table inet wall {{ chain in {{ type filter hook input priority filter; \
                 ip saddr 10.64.2.2 tcp dport 4433 {verdict}; }}; }}"
            ));
        });
        let client = keys.client();
        let over = |path: &str, carrier: &str| {
            let said = gateway.said();
            let own = said.lines().filter(|line| line.contains(path));
            own.filter(|line| line.ends_with(carrier)).count()
        };
        assert_eq!((over("path 0 from", "over tcp"), over("path 0 from", "over quic")), (1, 0));
        assert_eq!((over("path 1 from", "over tcp"), over("path 1 from", "over quic")), (0, 1));
        assert_eq!(networks(&world, "default", "carrier"), ["tcp", "quic"]);
        download_while(&world, |_| world.set("wifi", "state=no-carrier"));
        assert_eq!(client.times("does not know the session"), 0, "{}", client.said());
    }
}

/// The device's kernel keeps idle carriers alive for middleboxes on the path unless this is
/// disabled; the gateway's kernel detects dead peers.
#[test]
fn kernels_look_after_idle_carriers() {
    needs_bond!("ss");
    for (seconds, kept) in [("240", 2), ("0", 0)] {
        let world = World::new(&TWO_LINKS);
        let keys = Keys::new(&world);
        let _gateway = keys.gateway(&[]);
        let client = keys.doorless(&["--intercept", "none", "--keepalive", seconds]);
        client.says("wifi is up");
        client.says("lte is up");
        let looked_after = || {
            let open = finish(Command::new("ss").args(["-Htno", "state", "established"]));
            let open = open.succeeded().stdout;
            let carriers = open.lines().filter(|line| line.contains(":4433"));
            carriers.filter(|line| line.contains("timer:(keepalive,")).count()
        };
        // The kernel shows another timer while data is in flight.
        eventually("the gateway's", || (world.host(looked_after) == 2).then_some(()));
        eventually("the device's", || (world.device(looked_after) == kept).then_some(()));
    }
}

/// A receiver sends no data that the peer's bond could acknowledge.
#[test]
fn who_only_receives_notices_that_a_network_is_silent() {
    needs_bond!();
    for carrier in ["tcp", "quic"] {
        let world = World::new(&SLOW_LINKS);
        let keys = Keys::new(&world);
        let _gateway = keys.gateway(&[]);
        let more = ["--intercept", "none", "--carrier", carrier];
        let client = keys.client_at(&format!("{GATEWAY}:4433"), &more);
        client.says("wifi is up");
        client.says("lte is up");
        download_while(&world, |is_under_way| {
            world.set("wifi", "state=silent");
            eventually("it is suspect", || {
                let is_suspect = networks(&world, "default", "state") == ["suspect", "up"];
                assert!(
                    is_suspect || is_under_way(),
                    "{carrier}: it has not seen it in all that time"
                );
                is_suspect.then_some(())
            });
        });
    }
}

/// QUIC carriers have no keep-alive, so an idle one ends. Applications do not notice.
#[test]
fn a_connection_that_is_idle_for_longer_than_quic_goes_on() {
    needs_bond!();
    let world = World::new(&TWO_LINKS);
    let keys = Keys::new(&world);
    let gateway = keys.gateway(&[]);
    let more = ["--intercept", "none", "--carrier", "quic"];
    let client = keys.client_at(&format!("{GATEWAY}:4433"), &more);
    client.says("wifi is up");
    client.says("lte is up");
    let (_listener, mut application, mut server) = idle(&world);
    client.says("wifi is down");
    client.says("lte is down");
    speak(&mut application, &mut server);
    assert_eq!(gateway.times("session started"), 1, "{}", gateway.said());
    assert_eq!(client.times("does not know the session"), 0, "{}", client.said());
}

/// One carrier is used again while the gateway still has its state, and another one after the
/// gateway has removed it.
#[test]
fn quic_that_sleeps_wakes_without_a_word() {
    needs_bond!();
    let world = World::new(&TWO_LINKS);
    let keys = Keys::new(&world);
    let gateway = keys.gateway(&[]);
    let more = ["--carrier", "quic", "--name", "light"];
    let light = keys.doorless(&[&more[..], &["--intercept", "all"]].concat());
    let more = ["--carrier", "quic", "--name", "deep", "--intercept", "none"];
    let deep = keys.client_at(&format!("{GATEWAY}:4433"), &more);
    for client in [&light, &deep] {
        client.says("wifi is up");
        client.says("lte is up");
    }
    for name in ["light", "deep"] {
        eventually("both networks sleep", || {
            (networks(&world, name, "state") == ["asleep", "asleep"]).then_some(())
        });
    }
    let forgotten = "session closed: its client is gone";
    let listener = world.listen(SERVER[0], 7);
    let mut application = plain(&world, at(SERVER[0], 7));
    let (mut server, from) = accept(&listener);
    assert_eq!(from.ip().to_string(), OUTSIDE[0], "it did not go past");
    speak(&mut application, &mut server);
    assert_eq!(gateway.times(forgotten), 0, "{}", gateway.said());
    assert_eq!(light.times("is down"), 0, "{}", light.said());

    gateway.says(forgotten);
    assert_eq!(networks(&world, "deep", "state"), ["asleep", "asleep"]);
    let mut application = socks(&world, at(SERVER[0], 7));
    let (mut server, _) = accept(&listener);
    speak(&mut application, &mut server);
    assert_eq!(
        deep.times("is down") + deep.times("does not know the session"),
        0,
        "{}",
        deep.said()
    );
}
