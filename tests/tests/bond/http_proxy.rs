//! Requests for `http://` URIs through the HTTP proxy.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use crate::bond::{CONNECT, Keys, read_to_end};
use crate::needs_bond;
use crate::proxies::transfer_both_ways;
use crate::testbed::{GATEWAY, GATEWAY_OUTSIDE, PATIENCE, SERVER, TWO_LINKS, Testbed, accept};

/// Sends the beginning of a request to the proxy.
fn send(testbed: &Testbed, request: &str) -> TcpStream {
    let mut stream = testbed.device(|| TcpStream::connect(CONNECT)).expect("the proxy is there");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket can be told");
    stream.write_all(request.as_bytes()).expect("it is taken");
    stream
}

/// Reads until the end of a header.
#[track_caller]
fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("the header has an end");
        head.extend(byte);
    }
    String::from_utf8(head).expect("it is text")
}

#[test]
fn a_download_and_an_upload_by_requests_to_the_http_proxy() {
    needs_bond!("nginx", "curl");
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let (_gateway, _client) = (keys.gateway(&[]), keys.client());
    transfer_both_ways(&testbed, &["--proxy", &format!("http://{CONNECT}")]);
}

/// Also with a rule that bypasses the bond.
#[test]
fn one_request_is_forwarded_without_fields_for_the_proxy() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let _gateway = keys.gateway(&[]);
    let path = testbed.path("policy.toml");
    fs::write(&path, POLICY).expect("room for a file");
    let policy = ["--intercept", "none", "--policy", &path.display().to_string()];
    let client = keys.client_at(&format!("{GATEWAY}:4433"), &policy);
    client.says("lte is up");
    for port in [8080, DIRECT_PORT] {
        let listener = testbed.listen(SERVER[0], port);
        let authority = format!("{}:{port}", SERVER[0]);
        let mut application = send(
            &testbed,
            &format!(
                "POST http://{authority}/a?b HTTP/1.1\r\nHost: other.example\r\nX: y\r\n\
                 Proxy-Connection: keep-alive\r\nConnection: Z\r\nZ: z\r\nAccept: */*\r\n\
                 Content-Length: 10\r\n\r\nfirst"
            ),
        );
        let (mut server, from) = accept(&listener);
        let is_bond = from.ip().to_string() == GATEWAY_OUTSIDE[0];
        assert_eq!(is_bond, port != DIRECT_PORT, "{from}");
        assert_eq!(
            read_head(&mut server),
            format!(
                "POST /a?b HTTP/1.1\r\nHost: {authority}\r\nX: y\r\nAccept: */*\r\n\
                 Content-Length: 10\r\nConnection: close\r\n\r\n"
            )
        );
        // Another request on the connection is not for this server.
        let next = b"-lastGET http://other.example/ HTTP/1.1\r\nCookie: secret\r\n\r\n";
        application.write_all(next).expect("it is taken");
        let mut body = [0; 10];
        server.read_exact(&mut body).expect("the body comes");
        assert_eq!(&body, b"first-last");
        server.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").expect("a reader");
        application.write_all(b"GET /more HTTP/1.1\r\n\r\n").expect("it is taken");
        application.shutdown(Shutdown::Write).expect("an open connection");
        assert_eq!(read_to_end(&mut server), b"", "only the body came");
        drop(server);
        let response = read_to_end(&mut application);
        assert_eq!(response, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    }
    let mut application =
        send(&testbed, &format!("GET http://{}:{BLOCKED_PORT}/ HTTP/1.1\r\n\r\n", SERVER[0]));
    let answer = String::from_utf8(read_to_end(&mut application)).expect("it is text");
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("blocks"), "{answer}");
}

/// Ports of the rules in [`POLICY`].
const DIRECT_PORT: u16 = 8081;
const BLOCKED_PORT: u16 = 8082;
const POLICY: &str = r#"
[[rule]]
name = "beside"
match = { port = 8081 }
use = { direct = true }

[[rule]]
name = "closed"
match = { port = 8082 }
use = { block = true }
"#;

#[test]
fn a_request_that_is_not_for_a_proxy_is_answered_with_a_sentence() {
    needs_bond!();
    let testbed = Testbed::new(&TWO_LINKS);
    let keys = Keys::new(&testbed);
    let (_gateway, _client) = (keys.gateway(&[]), keys.client());
    let listener = testbed.listen(SERVER[0], 8080);
    listener.set_nonblocking(true).expect("a socket can be told");
    let uri = format!("http://{}:8080/", SERVER[0]);
    let long = format!("A: {}\r\n", "b".repeat(40_000));
    for (line, fields, status, words) in [
        ("GET / HTTP/1.1", "", 400, "this is a proxy, not a web server"),
        ("GET https://{}/ HTTP/1.1", "", 400, "http:// URIs, and all other traffic by CONNECT"),
        ("PRI * HTTP/2.0", "", 400, "not HTTP/1.1"),
        ("CONNECT a.example HTTP/1.1", "", 400, "not HOST:PORT"),
        (
            "POST {} HTTP/1.1",
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            400,
            "body is ambiguous",
        ),
        (
            "POST {} HTTP/1.1",
            "Content-Length: 5\r\nContent-Length: 6\r\n",
            400,
            "body is ambiguous",
        ),
        ("POST {} HTTP/1.1", "Transfer-Encoding: chunked, x\r\n", 400, "body is ambiguous"),
        ("POST {} HTTP/1.1", "A: b\r\n Content-Length: 5\r\n", 400, "malformed"),
        ("POST {} HTTP/1.1", "Content-Length : 5\r\n", 400, "malformed"),
        ("POST {} HTTP/1.1", "A: b\nContent-Length: 5\r\n", 400, "line end"),
        ("POST {} HTTP/1.1", "A: b\rContent-Length: 5\r\n", 400, "line end"),
        ("POST {} HTTP/1.1", "A: \0\r\n", 400, "control characters"),
        ("GET {} HTTP/1.1", &long, 431, "too long"),
    ] {
        let line = line.replace("{}", &uri);
        // The unread rest does not cost the application the answer.
        let rest = "0\r\n\r\n".repeat(1000);
        let mut application = send(&testbed, &format!("{line}\r\n{fields}\r\n{rest}"));
        let answer = String::from_utf8(read_to_end(&mut application)).expect("it is text");
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{line} {fields}: {answer}");
        assert!(answer.contains(words), "{line} {fields}: {answer}");
    }
    assert!(listener.accept().is_err(), "a refused request reached the server");
    // The listener works: a request that is valid arrives.
    let _application = send(&testbed, &format!("GET {uri} HTTP/1.1\r\n\r\n"));
    let (mut server, _) = accept(&listener);
    let head = read_head(&mut server);
    assert!(head.starts_with("GET / HTTP/1.1\r\nHost: "), "{head}");
}
