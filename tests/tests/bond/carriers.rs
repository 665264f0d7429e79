//! Carriers of a session: TCP, and QUIC if TCP is blocked.

use std::process::Command;

use manyways_tests::finish;

use crate::bond::{Keys, network_fields};
use crate::links::download_while;
use crate::needs_bond;
use crate::testbed::{GATEWAY, SLOW_LINKS, TWO_LINKS, Testbed, eventually, nft};

/// A firewall between LTE and the gateway has this verdict on the carriers.
fn falls_back_to_quic(verdict: &str) {
    let testbed = Testbed::new(&SLOW_LINKS);
    let keys = Keys::new(&testbed);
    let gateway = keys.gateway(&[]);
    testbed.host(|| {
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
    assert_eq!(network_fields(&testbed, "default", "carrier"), ["tcp", "quic"]);
    download_while(&testbed, || testbed.set("wifi", "state=no-carrier"));
    assert_eq!(client.times("does not know the session"), 0, "{}", client.said());
}

#[test]
fn where_tcp_does_not_get_through_quic_does() {
    needs_bond!();
    falls_back_to_quic("drop");
}

#[test]
fn where_tcp_is_reset_quic_gets_through() {
    needs_bond!();
    falls_back_to_quic("reject with tcp reset");
}

/// The device's kernel keeps idle carriers alive for middleboxes on the path unless this is
/// disabled; the gateway's kernel detects dead peers.
#[test]
fn kernels_look_after_idle_carriers() {
    needs_bond!("ss");
    for (seconds, kept) in [("240", 2), ("0", 0)] {
        let testbed = Testbed::new(&TWO_LINKS);
        let keys = Keys::new(&testbed);
        let _gateway = keys.gateway(&[]);
        let client = keys.client_without_proxies(&["--intercept", "none", "--keepalive", seconds]);
        client.says("wifi is up");
        client.says("lte is up");
        let looked_after = || {
            let open = finish(Command::new("ss").args(["-Htno", "state", "established"]));
            let open = open.expect_success().stdout;
            let carriers = open.lines().filter(|line| line.contains(":4433"));
            carriers.filter(|line| line.contains("timer:(keepalive,")).count()
        };
        // The kernel shows another timer while data is in flight.
        eventually("the gateway's", || (testbed.host(looked_after) == 2).then_some(()));
        eventually("the device's", || (testbed.device(looked_after) == kept).then_some(()));
    }
}

/// A receiver sends no data that the peer's bond could acknowledge.
fn receiver_notices_silence(carrier: &str) {
    let testbed = Testbed::new(&SLOW_LINKS);
    let keys = Keys::new(&testbed);
    let _gateway = keys.gateway(&[]);
    let more = ["--intercept", "none", "--carrier", carrier];
    let client = keys.client_at(&format!("{GATEWAY}:4433"), &more);
    client.says("wifi is up");
    client.says("lte is up");
    download_while(&testbed, || {
        // It delivers all the time, but not everything.
        let slow = ["--cancel", "lte", "state=up", "down=200kbit"];
        testbed.lab.set(&slow).expect_success();
        testbed.set("wifi", "state=silent");
        eventually("it is suspect", || {
            (network_fields(&testbed, "default", "state") == ["suspect", "up"]).then_some(())
        });
        testbed.set("lte", "down=4mbit");
    });
}

#[test]
fn who_only_receives_notices_that_a_network_is_silent() {
    needs_bond!();
    receiver_notices_silence("tcp");
}

#[test]
fn who_only_receives_over_quic_notices_that_a_network_is_silent() {
    needs_bond!();
    receiver_notices_silence("quic");
}
