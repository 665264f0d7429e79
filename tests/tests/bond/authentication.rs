//! Unauthenticated peers of a gateway, and false gateways.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

use rustls::version;

use manyways_tests::testbed::Logged;

use crate::bond::{Keys, key};
use crate::impostor::{Impostor, VERSION, hello, receive, send_and_read, welcome};
use crate::needs_bond;
use crate::proxy::socks;
use crate::testbed::{GATEWAY, PATIENCE, SERVER, TWO_LINKS, Testbed, accept, at};

/// A connection to the gateway without data.
fn connection(testbed: &Testbed) -> TcpStream {
    let stream = testbed.device(|| TcpStream::connect(at(GATEWAY, 4433))).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket can be told");
    stream
}

/// Asserts that the bond still carries a connection.
#[track_caller]
fn carries(testbed: &Testbed) {
    let listener = testbed.listen(SERVER[0], 7);
    let mut application = socks(testbed, at(SERVER[0], 7));
    application.write_all(b"hello").expect("it is taken");
    let mut heard = [0; 5];
    accept(&listener).0.read_exact(&mut heard).expect("it arrives");
    assert_eq!(&heard, b"hello");
}

/// The last log line about a refused peer.
#[track_caller]
fn last_refusal(gateway: &Logged, count: usize) -> String {
    const WORDS: &str = "refused ";
    gateway.says_times(WORDS, count);
    assert_eq!(gateway.times(WORDS), count, "one line each: {}", gateway.said());
    let all = gateway.said();
    all.lines().rfind(|line| line.contains(WORDS)).expect("counted above").to_owned()
}

#[test]
fn whoever_is_no_client_gets_one_line_in_the_log() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let gateway = keys.gateway(&[]);
    let mut count = 0;
    let noise: Vec<u8> = (0..5000_u32).map(|index| ((index * index) >> 3) as u8).collect();
    for bytes in [&noise[..], b"GET / HTTP/1.1\r\nHost: gateway\r\n\r\n", b"SSH-2.0-x\r\n", b""] {
        let mut stream = connection(&testbed);
        stream.write_all(bytes).expect("it is taken");
        stream.shutdown(Shutdown::Write).expect("an open connection");
        let line = {
            count += 1;
            last_refusal(&gateway, count)
        };
        assert!(line.contains("10.64."), "it says from where: {line}");
        // The gateway closes the connection.
        let _ = stream.read_to_end(&mut Vec::new());
    }
    key(&testbed.path("other.key"));
    let (own, other) = (testbed.path("client.key"), testbed.path("other.key"));
    let guise = Impostor::with_key(&own);
    for guise in [
        Impostor { key: None, ..guise },
        Impostor { key: Some(&other), ..guise },
        Impostor { protocol: "h2", ..guise },
        Impostor { key: None, tls: &version::TLS12, ..guise },
    ] {
        if let Ok(mut stream) = guise.handshake(connection(&testbed)) {
            assert_eq!(send_and_read(&mut stream, &hello(VERSION)), b"", "nobody says welcome");
        }
        count += 1;
        last_refusal(&gateway, count);
    }
    let mut stream = guise.handshake(connection(&testbed)).expect("the key is right");
    assert_eq!(send_and_read(&mut stream, &noise), b"");
    count += 1;
    assert!(
        last_refusal(&gateway, count).contains("does not speak the protocol"),
        "{}",
        gateway.said()
    );
    assert_eq!(gateway.times("session started"), 0);
    let _client = keys.client();
    carries(&testbed);
}

#[test]
fn a_client_of_another_version_is_told_and_the_gateway_says_which() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let gateway = keys.gateway(&[]);
    let own = testbed.path("client.key");
    for (count, version) in [(1, 0), (2, VERSION + 1), (3, 255)] {
        let mut stream =
            Impostor::with_key(&own).handshake(connection(&testbed)).expect("the key is right");
        let heard = send_and_read(&mut stream, &hello(version));
        let words = String::from_utf8_lossy(&heard).into_owned();
        assert!(words.contains("this gateway speaks version 2"), "{words:?}");
        let line = last_refusal(&gateway, count);
        let message = format!("the other end speaks version {version} of the protocol");
        assert!(line.contains(&message), "{line}");
    }
}

#[test]
fn a_gateway_of_another_version_is_named_in_one_line() {
    needs_bond!();
    let testbed = Testbed::new(&["wifi:delay=2ms"]);
    let keys = Keys::new(&testbed);
    let listener = testbed.host(|| TcpListener::bind(at(GATEWAY, 4433))).expect("a port");
    let client = keys.client_at(&format!("{GATEWAY}:4433"), &["--intercept", "none"]);
    for _ in 0..2 {
        let mut stream = receive(&testbed.path("gateway.key"), accept(&listener).0);
        stream.write_all(&welcome(9)).and_then(|()| stream.flush()).expect("it is heard");
        let _ = stream.read_to_end(&mut Vec::new());
    }
    client.says("the other end speaks version 9 of the protocol, this one version 2");
    assert_eq!(client.times("speaks version 9"), 1, "{}", client.said());
    client.says("hint: install the same version of manyways at both ends");
}

/// An authorized client that violates the protocol ends only its own carrier.
#[test]
fn a_client_that_breaks_the_protocol_harms_only_itself() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let rogue = key(&testbed.path("rogue.key"));
    keys.allow(&format!("{} phone\n{rogue} rogue\n", keys.client));
    let gateway = keys.gateway(&[]);
    let _client = keys.client();
    let listener = testbed.listen(SERVER[0], 7);
    let mut application = socks(&testbed, at(SERVER[0], 7));
    application.write_all(b"be").expect("it is taken");
    let (mut server, _) = accept(&listener);
    drop(listener);
    for (number, message) in [
        // An undefined type, an undefined kind of address, an excessive length, data beyond the
        // credit, a second Hello, and a message that only a gateway may send.
        &[0xee; 40][..],
        &[&[0x10, 0][..], &[0xff; 600]].concat(),
        &[0x11, 0, 0, 0xff, 0xff],
        &[&[0x11, 0][..], &[0xff; 7], &[0xf0, 0, 1, 1]].concat(),
        &hello(VERSION),
        &welcome(VERSION),
    ]
    .into_iter()
    .enumerate()
    {
        let rogue = testbed.path("rogue.key");
        let mut stream =
            Impostor::with_key(&rogue).handshake(connection(&testbed)).expect("the key is right");
        stream.write_all(&hello(VERSION)).expect("it is taken");
        let mut welcome = [0; 3];
        stream.read_exact(&mut welcome).expect("an answer");
        assert_eq!(welcome[..2], [1, VERSION], "the rogue is let in");
        send_and_read(&mut stream, message);
        gateway.says_times("rogue: path 0 closed", number + 1);
    }
    application.write_all(b"fore").expect("it is taken");
    let mut heard = [0; 6];
    server.read_exact(&mut heard).expect("it arrives");
    assert_eq!(&heard, b"before");
    carries(&testbed);
}
