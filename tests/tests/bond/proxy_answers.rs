//! Answers of the proxies that depend on the gateway's connection to the server.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};

use crate::bond::{CONNECT, Keys, read_to_end};
use crate::needs_bond;
use crate::proxy::{Destination, socks, try_socks};
use crate::resolver::Resolver;
use crate::testbed::{GATEWAY, PATIENCE, SERVER, TWO_LINKS, Testbed, accept, at};

/// Sends a request to the HTTP proxy, and returns the whole answer.
fn ask(testbed: &Testbed, line: &str) -> String {
    let mut stream = testbed.device(|| TcpStream::connect(CONNECT)).expect("the proxy is there");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket can be told");
    stream.write_all(format!("{line} HTTP/1.1\r\n\r\n").as_bytes()).expect("it is taken");
    String::from_utf8(read_to_end(&mut stream)).expect("it is text")
}

#[test]
fn a_proxy_that_waits_gives_the_reason_of_a_failure() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let _gateway = keys.gateway(&[]);
    let waits = ["--intercept", "none", "--wait-for-server"];
    let client = keys.client_at(&format!("{GATEWAY}:4433"), &waits);
    client.says("lte is up");
    let _resolver = Resolver::start(&testbed);
    for (host, port, code, status, reason) in [
        (SERVER[0], 1, 5, 502, "connection refused"),
        ("203.0.113.99", 80, 3, 502, "no route to the server"),
        ("nobody.example", 80, 4, 502, "name not resolved"),
        ("127.0.0.1", 8080, 2, 403, "destination not permitted"),
        ("inside.example", 8080, 2, 403, "destination not permitted"),
    ] {
        let to = match host.parse::<IpAddr>() {
            Ok(address) => Destination::Address((address, port).into()),
            Err(_) => Destination::Name(host, port),
        };
        let error = try_socks(&testbed, &to).expect_err("there is no server");
        assert_eq!(error.to_string(), format!("SOCKS5 answers {code}"), "{host}:{port}");
        for line in [format!("CONNECT {host}:{port}"), format!("GET http://{host}:{port}/")] {
            let answer = ask(&testbed, &line);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{line}: {answer}");
            let words = format!("\r\n\r\nmanyways: cannot connect to {host}:{port}: {reason}\n");
            assert!(answer.ends_with(&words), "{line}: {answer}");
        }
    }
}

/// Whether the server or the application sends first, and when the server closes its direction at
/// once.
#[test]
fn a_proxy_that_waits_carries_both_directions() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let _gateway = keys.gateway(&[]);
    let waits = ["--intercept", "none", "--wait-for-server"];
    let client = keys.client_at(&format!("{GATEWAY}:4433"), &waits);
    client.says("lte is up");
    for server in SERVER {
        let listener = testbed.listen(server, 7);
        for connect in [socks, connect_tunnel] {
            // A server that sends nothing: only the gateway's confirmation is an answer.
            let mut application = connect(&testbed, at(server, 7));
            let (mut server, _) = accept(&listener);
            application.write_all(b"hello").expect("the server listens");
            server.read_exact(&mut [0; 5]).expect("the application speaks");
            server.write_all(b"who are you?").expect("somebody listens");
            let mut heard = [0; 12];
            application.read_exact(&mut heard).expect("the server speaks");
            assert_eq!(&heard, b"who are you?");
            application.write_all(b"nobody").expect("the server listens");
            drop(application);
            assert_eq!(read_to_end(&mut server), b"nobody");
        }
        let accepting = listener.try_clone().expect("a descriptor is free");
        let serving = std::thread::spawn(move || {
            let (mut server, _) = accept(&accepting);
            server.write_all(b"closed").expect("somebody listens");
            server.shutdown(std::net::Shutdown::Write).expect("an open connection");
            read_to_end(&mut server)
        });
        let mut application = socks(&testbed, at(server, 7));
        assert_eq!(read_to_end(&mut application), b"closed");
        application.write_all(b"why?").expect("the server listens");
        drop(application);
        assert_eq!(serving.join().expect("no panic"), b"why?");
    }
}

/// The response to an HTTP request has the reason without the option, because it costs nothing.
#[test]
fn a_proxy_that_does_not_wait_gives_the_reason_to_requests_only() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let (_gateway, _client) = (keys.gateway(&[]), keys.client());
    let answer = ask(&testbed, &format!("GET http://{}:1/", SERVER[0]));
    assert!(
        answer.starts_with("HTTP/1.1 502 ") && answer.contains("connection refused"),
        "{answer}"
    );
    let mut stream = testbed.device(|| TcpStream::connect(CONNECT)).expect("the proxy is there");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket can be told");
    let request = format!("CONNECT {}:1 HTTP/1.1\r\n\r\n", SERVER[0]);
    stream.write_all(request.as_bytes()).expect("it is taken");
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).expect("it is answered at once");
    assert_eq!(&answer, b"HTTP/1.1 200");
    stream.read_to_end(&mut Vec::new()).expect_err("it is reset");
}

/// [`socks`] with HTTP CONNECT.
#[track_caller]
fn connect_tunnel(testbed: &Testbed, to: SocketAddr) -> TcpStream {
    let mut stream = testbed.device(|| TcpStream::connect(CONNECT)).expect("the proxy is there");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket can be told");
    stream.write_all(format!("CONNECT {to} HTTP/1.1\r\n\r\n").as_bytes()).expect("it is taken");
    let mut answer = [0; 39];
    stream.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 200 Connection established\r\n\r\n");
    stream
}
