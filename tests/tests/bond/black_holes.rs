//! Networks that lose large packets without an ICMP message, so that handshakes pass and data does not.

use std::io::{Read, Write};
use std::thread;
use std::time::Duration;

use crate::bond::{Keys, network_fields};
use crate::needs_bond;
use crate::proxy::socks;
use crate::testbed::{GATEWAY, SERVER, SLOW_LINKS, Testbed, accept, at, eventually, nft};

/// Packets from the gateway that match this are lost on Wi-Fi. Returns the messages of the client after
/// a download that the server begins after this time.
#[track_caller]
fn download_through(links: &[&str], lost: &str, thinks: Duration) -> String {
    let testbed = Testbed::new(links);
    let keys = Keys::new(&testbed);
    let _gateway = keys.gateway(&[]);
    testbed.device(|| {
        nft(&format!(
            "table inet hole {{ chain in {{ type filter hook prerouting priority -300; \
             iifname wifi {lost} drop; }}; }}"
        ));
    });
    let client = keys.client_at(&format!("{GATEWAY}:4433"), &["--intercept", "none"]);
    client.says_times("is up", links.len());
    let listener = testbed.listen(SERVER[0], 7);
    let mut application = socks(&testbed, at(SERVER[0], 7));
    let (mut server, _) = accept(&listener);
    let data = [7; 200_000];
    application.write_all(b"?").expect("it takes it");
    server.read_exact(&mut [0]).expect("the question comes");
    // Time: the client needs some milliseconds to have all its messages acknowledged. If it has not,
    // the download is one more that begins at once.
    thread::sleep(thinks);
    thread::scope(|scope| {
        scope.spawn(|| server.write_all(&data).expect("the other side listens"));
        let mut came = [0; 200_000];
        application.read_exact(&mut came).expect("it comes");
        assert!(came == data, "something else came");
    });
    if links.len() == 1 {
        eventually("it is up", || {
            (network_fields(&testbed, "default", "state") == ["up"]).then_some(())
        });
    }
    client.said()
}

#[test]
fn small_packets_get_through_where_large_ones_are_lost() {
    needs_bond!();
    let said = download_through(&SLOW_LINKS[..1], "meta length > 1300", Duration::ZERO);
    assert!(said.contains("wifi is up, with small packets: larger ones are lost"), "{said}");
    assert!(said.matches("wifi is up").count() <= 3, "{said}");
}

#[test]
fn a_client_that_only_waits_notices_that_large_packets_are_lost() {
    needs_bond!();
    let thinks = Duration::from_millis(300);
    let said = download_through(&SLOW_LINKS[..1], "meta length > 1300", thinks);
    assert!(said.contains("wifi is up, with small packets: larger ones are lost"), "{said}");
}

#[test]
fn quic_gets_through_where_tcp_carries_only_handshakes() {
    needs_bond!();
    let said =
        download_through(&SLOW_LINKS[..1], "meta l4proto tcp meta length > 1000", Duration::ZERO);
    assert!(said.matches("wifi is up").count() <= 4, "{said}");
}

#[test]
fn another_network_carries_what_a_black_hole_loses() {
    needs_bond!();
    download_through(&SLOW_LINKS, "meta length > 1000", Duration::ZERO);
}
