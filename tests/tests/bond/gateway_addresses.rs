//! A gateway with several addresses, with a changed address, or with changed address families,
//! while its client runs.

use std::fs;
use std::io;

use crate::bond::Keys;
use crate::links::exchange_data;
use crate::needs_bond;
use crate::proxy::{plain, socks, try_plain};
use crate::resolver::Resolver;
use crate::testbed::{
    GATEWAY, GATEWAY_OUTSIDE, PATIENCE, SERVER, SLOW_LINKS, TWO_LINKS, Testbed, accept, at,
    eventually, ip, nft,
};

const NAME: &str = "gateway.example:4433";

/// Sets the addresses of the gateway's name, in this order.
fn name(testbed: &Testbed, addresses: &[&str]) {
    let lines = addresses.iter().map(|address| format!("{address} gateway.example\n"));
    let hosts = format!("127.0.0.1 localhost\n{}", lines.collect::<String>());
    fs::write(testbed.path("hosts"), hosts).expect("room for some lines");
}

#[test]
fn a_gateway_is_reached_when_one_of_its_addresses_is_silent() {
    needs_bond!();
    const SILENT: &str = "203.0.113.9";
    for carrier in ["tcp", "quic"] {
        // Each address is first in one run, because the resolver may change the order.
        for addresses in [[SILENT, GATEWAY], [GATEWAY, SILENT]] {
            let testbed = Testbed::new(&TWO_LINKS);
            testbed.host(|| {
                nft("add table inet wall");
                nft("add chain inet wall on { type filter hook forward priority filter; }");
                nft(&format!("add rule inet wall on ip daddr {SILENT} drop"));
            });
            name(&testbed, &addresses);
            let keys = Keys::new(&testbed);
            let _gateway = keys.gateway(&[]);
            let more = ["--intercept", "none", "--carrier", carrier];
            let client = keys.client_at(NAME, &more);
            client.says_times("is up", 2);
            let listener = testbed.listen(SERVER[0], 7);
            let _application = socks(&testbed, at(SERVER[0], 7));
            accept(&listener);
            assert_eq!(client.times("no answer"), 0, "{}", client.said());
        }
    }
}

#[test]
fn a_client_that_starts_before_its_network_waits_for_the_gateways_name() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let _gateway = keys.gateway(&[]);
    // There is no resolver, so no response denies the name.
    let client = keys.client_at(NAME, &["--intercept", "none"]);
    client.says("cannot be resolved yet");
    name(&testbed, &[GATEWAY]);
    client.says_times("is up", 2);
    assert_eq!(client.times("cannot be resolved"), 1, "{}", client.said());
}

#[test]
fn a_gateway_whose_name_does_not_exist_ends_its_client() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let _resolver = Resolver::start(&testbed);
    let keys = Keys::new(&testbed);
    let mut client = keys.client_at(NAME, &["--intercept", "none"]);
    assert_eq!(client.process.wait(PATIENCE).expect("it ends").code(), Some(1));
    assert_eq!(client.times("cannot be resolved:"), 1, "{}", client.said());
}

#[test]
fn a_gateway_that_moved_is_found_by_its_name() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    name(&testbed, &[GATEWAY]);
    let keys = Keys::new(&testbed);
    let gateway = keys.gateway(&[]);
    let client = keys.client_at(NAME, &[]);
    client.says_times("is up", 2);
    client.says("IPv4 and IPv6 are intercepted");
    drop(gateway);
    client.says_times("no connection to", 2);
    name(&testbed, &[GATEWAY_OUTSIDE[0]]);
    let _gateway = keys.gateway_at(&format!("{}:4433", GATEWAY_OUTSIDE[0]), &[]);
    client.says(&format!("the gateway's name now resolves to {}:4433", GATEWAY_OUTSIDE[0]));
    client.says_times("is up", 4);
    let listener = testbed.listen(SERVER[0], 7);
    let _application = plain(&testbed, at(SERVER[0], 7));
    assert_eq!(accept(&listener).1.ip().to_string(), GATEWAY_OUTSIDE[0]);
    // Traffic to the gateway's new address is not intercepted.
    let direct = || testbed.device(|| nft("list set inet manyways-bond direct4")).stdout;
    eventually("it is excepted", || direct().contains(GATEWAY_OUTSIDE[0]).then_some(()));
}

#[test]
fn a_family_that_the_gateway_gains_or_loses_is_taken_in_or_refused() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let route = format!("route add default via {}", SERVER[1]);
    testbed.host(|| ip(&format!("-6 {}", route.replace("add", "del"))));
    let _gateway = keys.gateway(&[]);
    let client = keys.transparent(&[]);
    client.says("IPv4 is intercepted; IPv6 is refused, since the gateway does not reach it");
    let four = testbed.listen(SERVER[0], 7);
    let mut before = plain(&testbed, at(SERVER[0], 7));
    let (mut server, _) = accept(&four);
    let refused = || {
        let error = try_plain(&testbed, at(SERVER[1], 7)).err()?;
        (error.kind() == io::ErrorKind::ConnectionRefused).then_some(())
    };
    let six = testbed.listen(SERVER[1], 7);
    assert_eq!(refused(), Some(()), "it is refused at once");
    // A new carrier reports the families that the gateway reaches.
    let again = |times: usize| {
        testbed.set("lte", "state=no-carrier");
        client.says_times("lte is down", times);
        testbed.set("lte", "state=up");
        client.says_times("lte is up", times + 1);
    };
    testbed.host(|| ip(&format!("-6 {route}")));
    again(1);
    client.says("IPv4 and IPv6 are intercepted");
    let _application = plain(&testbed, at(SERVER[1], 7));
    assert_eq!(accept(&six).1.ip().to_string(), GATEWAY_OUTSIDE[1]);
    testbed.host(|| ip(&format!("-6 {}", route.replace("add", "del"))));
    again(2);
    client.says_times("IPv4 is intercepted; IPv6 is refused", 2);
    assert_eq!(refused(), Some(()), "it is refused again");
    // Other connections are not affected.
    exchange_data(&mut before, &mut server);
}

/// The port refuses connections for a short time, which is not a reason to leave TCP.
#[test]
fn a_gateway_that_is_started_anew_is_met_over_tcp_again() {
    needs_bond!();
    let testbed = Testbed::new(&SLOW_LINKS);
    let keys = Keys::new(&testbed);
    let gateway = keys.gateway(&[]);
    let client = keys.client();
    testbed.host(|| {
        nft("add table inet wall");
        nft("add chain inet wall in { type filter hook input priority filter; }");
        nft("add rule inet wall in tcp dport 4433 tcp flags & (syn | ack) == syn reject with tcp \
             reset");
    });
    drop(gateway);
    // QUIC is not blocked.
    let gateway = keys.gateway(&[]);
    let tried = || client.times("no connection to") + gateway.times("over quic");
    eventually("both networks have tried", || (tried() >= 2).then_some(()));
    assert_eq!(gateway.times("over quic"), 0, "{}", gateway.said());
    testbed.host(|| nft("delete table inet wall"));
    client.says_times("is up", 4);
    gateway.says("path 0 from");
    gateway.says("path 1 from");
    assert_eq!(gateway.times("over quic"), 0, "{}", gateway.said());
}
