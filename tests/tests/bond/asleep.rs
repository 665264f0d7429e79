//! Sessions and carriers without a packet for longer than their timeouts, which are a tenth of the
//! usual ones.

use std::io::{self, Read};
use std::net::TcpStream;

use nix::sys::signal::Signal;

use crate::bond::{Keys, network_fields};
use crate::links::{exchange_data, idle};
use crate::needs_bond;
use crate::process_ends::{carries, ends, ends_with_a_reset, streaming_connection};
use crate::proxy::{plain, socks};
use crate::testbed::{
    GATEWAY, GATEWAY_OUTSIDE, SERVER, SLOW_LINKS, TWO_LINKS, Testbed, accept, at, eventually,
};

/// Options of a gateway that ends idle QUIC connections early.
const SHORT_IDLE: [&str; 2] = ["--quic-idle-timeout", "6s"];
/// Options of a gateway that forgets absent clients early.
const SHORT_LINGER: [&str; 2] = ["--session-linger", "4s"];

/// QUIC carriers have no keep-alive, so an idle one ends. Applications do not notice.
#[test]
fn a_connection_that_is_idle_for_longer_than_quic_goes_on() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let gateway = keys.gateway(&SHORT_IDLE);
    let more = ["--intercept", "none", "--carrier", "quic"];
    let client = keys.client_at(&format!("{GATEWAY}:4433"), &more);
    client.says("wifi is up");
    client.says("lte is up");
    let (_listener, mut application, mut server) = idle(&testbed);
    client.says("wifi is down");
    client.says("lte is down");
    exchange_data(&mut application, &mut server);
    assert_eq!(gateway.times("session started"), 1, "{}", gateway.said());
    assert_eq!(client.times("does not know the session"), 0, "{}", client.said());
}

/// Waits until the QUIC carriers of a client have ended for lack of packets.
fn both_networks_sleep(testbed: &Testbed, client: &str) {
    eventually("both networks sleep", || {
        (network_fields(testbed, client, "state") == ["asleep", "asleep"]).then_some(())
    });
}

/// The gateway still has the session.
#[test]
fn quic_that_sleeps_wakes_without_a_word() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let gateway = keys.gateway(&SHORT_IDLE);
    let client = keys.client_without_proxies(&["--carrier", "quic", "--intercept", "all"]);
    client.says("wifi is up");
    client.says("lte is up");
    both_networks_sleep(&testbed, "default");
    let listener = testbed.listen(SERVER[0], 7);
    let mut application = plain(&testbed, at(SERVER[0], 7));
    let (mut server, from) = accept(&listener);
    assert_eq!(from.ip().to_string(), GATEWAY_OUTSIDE[0], "it did not go past");
    exchange_data(&mut application, &mut server);
    assert_eq!(gateway.times("session started"), 1, "{}", gateway.said());
    assert_eq!(client.times("is down"), 0, "{}", client.said());
}

/// The gateway has removed the session.
#[test]
fn quic_that_sleeps_for_long_wakes_without_a_word() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let gateway = keys.gateway(&[SHORT_IDLE, SHORT_LINGER].concat());
    let more = ["--intercept", "none", "--carrier", "quic", "--session-lifetime", "2s"];
    let client = keys.client_at(&format!("{GATEWAY}:4433"), &more);
    client.says("wifi is up");
    client.says("lte is up");
    both_networks_sleep(&testbed, "default");
    gateway.says("session closed: its client is gone");
    assert_eq!(network_fields(&testbed, "default", "state"), ["asleep", "asleep"]);
    let listener = testbed.listen(SERVER[0], 7);
    let mut application = socks(&testbed, at(SERVER[0], 7));
    let (mut server, _) = accept(&listener);
    exchange_data(&mut application, &mut server);
    assert_eq!(
        client.times("is down") + client.times("does not know the session"),
        0,
        "{}",
        client.said()
    );
}

/// The gateway waits for some time, since a client may return with another address.
#[test]
fn a_client_that_is_killed_is_forgotten_by_the_gateway() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let gateway = keys.gateway(&SHORT_LINGER);
    let client = keys.client();
    let listener = testbed.listen(SERVER[0], 7);
    let applications: Vec<TcpStream> = (0..10).map(|_| socks(&testbed, at(SERVER[0], 7))).collect();
    let servers: Vec<TcpStream> = (0..10).map(|_| accept(&listener).0).collect();
    // Ten streams and two carriers are among the open descriptors; the gateway may have opened
    // others for a moment.
    let closed = gateway.descriptors() - 12;
    client.process.signal(Signal::SIGKILL);
    applications.into_iter().for_each(ends);
    gateway.says("session closed: its client is gone");
    eventually("all is closed", || (gateway.descriptors() <= closed).then_some(()));
    for mut server in servers {
        let error = server.read(&mut [0; 1]).expect_err("it did not end well");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
    }
    let _client = keys.client();
    carries(&testbed);
}

/// A device that sleeps for longer than the gateway keeps its session, which is shorter with QUIC.
#[test]
fn a_client_that_slept_for_long_learns_that_it_was_forgotten() {
    needs_bond!();
    let testbed = Testbed::new(&SLOW_LINKS);
    let keys = Keys::new(&testbed);
    let gateway = keys.gateway(&[SHORT_IDLE, SHORT_LINGER].concat());
    let more = ["--intercept", "none", "--carrier", "quic"];
    let client = keys.client_at(&format!("{GATEWAY}:4433"), &more);
    client.says("wifi is up");
    client.says("lte is up");
    let application = streaming_connection(&testbed, socks);
    // A gateway that serves a client has opened all of its own. The connection is one more; carriers
    // over QUIC have none.
    let closed = gateway.descriptors() - 1;
    client.process.signal(Signal::SIGSTOP);
    for link in ["wifi", "lte"] {
        testbed.set(link, "state=no-carrier");
    }
    gateway.says_times("closed: the peer has been silent for too long", 2);
    gateway.says("session closed: its client is gone");
    eventually("all is closed", || (gateway.descriptors() <= closed).then_some(()));
    for link in ["wifi", "lte"] {
        testbed.set(link, "state=up");
    }
    client.process.signal(Signal::SIGCONT);
    ends_with_a_reset(application);
    carries(&testbed);
    assert_eq!(client.times("does not know the session"), 1, "{}", client.said());
}
