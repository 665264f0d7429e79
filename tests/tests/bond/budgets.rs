//! A client that takes as much as it can: others keep their share of the gateway.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::bond::{Keys, SOCKS, key, start};
use crate::needs_bond;
use crate::proxy::{Destination, socks_at};
use crate::testbed::{GATEWAY, SERVER, TWO_LINKS, Testbed, accept, at};

/// Proxy address of the other client.
const OTHER: &str = "127.0.0.1:1081";
/// More connections than a client gets of a gateway that may open 1,024 files.
const MANY: usize = 400;

#[test]
fn a_gateway_with_little_memory_warns_and_serves() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let other = key(&testbed.path("other.key"));
    keys.allow(&format!("{} one\n{other} other\n", keys.client));
    let gateway = keys.gateway(&["--memory", "10MiB"]);
    gateway.says("there is 10.49 MB of memory for the buffers of 2 clients together");
    let client = keys.client();
    client.says_times("is up", 2);
    // Longer than the buffers.
    let data: Vec<u8> = (0..12 << 20).map(|index: u32| (index / 3) as u8).collect();
    let listener = testbed.listen(SERVER[0], 8);
    let to = Destination::Address(at(SERVER[0], 8));
    let mut application = socks_at(&testbed, SOCKS, &to).expect("the proxy is there");
    let (mut server, _) = accept(&listener);
    let sent = data.clone();
    std::thread::scope(|scope| {
        scope.spawn(|| application.write_all(&sent).expect("it is taken"));
        let mut came = vec![0; data.len()];
        server.read_exact(&mut came).expect("it arrives");
        assert!(came == data, "the upload arrives whole");
    });
    std::thread::scope(|scope| {
        scope.spawn(|| server.write_all(&sent).expect("it is taken"));
        let mut came = vec![0; data.len()];
        application.read_exact(&mut came).expect("it arrives");
        assert!(came == data, "the download arrives whole");
    });
}

#[test]
fn a_key_with_many_idle_connections_leaves_room_for_another_one() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let other = key(&testbed.path("other.key"));
    keys.allow(&format!("{} greedy\n{other} modest\n", keys.client));
    let gateway = keys.gateway_with_open_files(1_024);
    gateway.says("this process may open 1024 files: 2 clients can have at most 576 connections");
    let _greedy = keys.client();
    let (gateway_address, own) = (format!("{GATEWAY}:4433"), keys.file("other.key"));
    let words = [
        &["client", "--gateway", &gateway_address, "--gateway-key", &keys.gateway][..],
        &["--key", &own, "--intercept", "none", "--name", "modest"],
        &["--socks", OTHER],
    ]
    .concat();
    let modest = testbed.device(|| start(&testbed, "modest", &words));
    modest.says_times("is up", 2);
    let (_crowd, listener) = (testbed.listen(SERVER[0], 7), testbed.listen(SERVER[0], 8));
    let open = |door, port| {
        let to = Destination::Address(at(SERVER[0], port));
        socks_at(&testbed, door, &to).expect("the proxy is there")
    };
    let _held: Vec<TcpStream> = (0..MANY).map(|_| open(SOCKS, 7)).collect();
    gateway.says("greedy: connections are refused: it has ");
    for _ in 0..20 {
        let mut application = open(OTHER, 8);
        application.write_all(b"?").expect("it is taken");
        let (mut server, _) = accept(&listener);
        server.write_all(b"!").expect("it is taken");
        application.read_exact(&mut [0]).expect("it arrives");
    }
    assert_eq!(gateway.times("greedy: connections are refused"), 1, "{}", gateway.said());
    assert_eq!(gateway.times("modest: connections are refused"), 0, "{}", gateway.said());
    assert_eq!(gateway.times("cannot accept"), 0, "{}", gateway.said());
}
