//! Origins and clients that a recorder cannot read, or that try it.

use std::process::Command;

use manyways_tests::{Need, finish, needs};
use serde_json::Value;

use crate::internet::{Internet, OTHER, by_url, entry};

const NEEDS: Need<'static> = Need::All(&[
    Need::Root,
    Need::Command("nginx"),
    Need::Command("caddy"),
    Need::Command("curl"),
    Need::Command("openssl"),
    Need::Command("python3"),
]);

/// Servers on the ports 80 and 443 of the third address: one thread for each connection. A function
/// `answer(stream, request)` gets the head of each request; `context` is the TLS of the server.
const SERVER: &str = r#"
import socket, ssl, threading, time
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("server.pem", "server.key")
def serve(stream):
    data = b""
    try:
        while True:
            while b"\r\n\r\n" not in data:
                more = stream.recv(65536)
                if not more:
                    return
                data += more
            head, data = data.split(b"\r\n\r\n", 1)
            data = answer(stream, head.decode(), data) or b""
    except OSError:
        pass
    finally:
        stream.close()
def accept(listener, wrap):
    while True:
        stream, _ = listener.accept()
        def handle(stream=stream):
            try:
                first(stream)
                serve(context.wrap_socket(stream, server_side=True) if wrap else stream)
            except OSError:
                stream.close()
        threading.Thread(target=handle, daemon=True).start()
def first(stream):
    pass
def run():
    listeners = [socket.create_server(("203.0.113.30", port)) for port in (80, 443)]
    for listener, wrap in zip(listeners, (False, True)):
        threading.Thread(target=accept, args=(listener, wrap), daemon=True).start()
    threading.Event().wait()
"#;

fn internet(script: &str) -> Internet {
    Internet::new("1ms").with_server(&[SERVER, script, "\nrun()\n"].concat())
}

/// Servers and reasons of the connections that were passed on unread.
fn tunnelled(shown: &Value) -> Vec<(String, String)> {
    let list = shown["tunnelled"].as_array().expect("a list");
    let text = |one: &Value, field: &str| one[field].as_str().unwrap_or_default().to_owned();
    list.iter().map(|one| (text(one, "server_name"), text(one, "reason"))).collect()
}

#[test]
fn all_parts_of_an_exchange_are_recorded() {
    needs!(NEEDS);
    let internet = internet(
        r#"
def answer(stream, head, rest):
    target = head.split()[1]
    if target == "/early":
        stream.sendall(b"HTTP/1.1 103 Early Hints\r\nLink: </x>; rel=preload\r\n\r\n")
        stream.sendall(b"HTTP/1.1 200 Very Fine\r\nX-A: 1\r\nx-a: 2\r\nContent-Length: 2\r\n\r\nok")
    elif target == "/trailers":
        stream.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n")
        stream.sendall(b"3\r\nabc\r\n0\r\nX-Sum: 6\r\n\r\n")
    elif target == "/events":
        stream.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
        # The client has had the first one when it asks for another object.
        released.wait()
        stream.sendall(b"data: 2\n\n")
        raise OSError
    elif target == "/release":
        released.set()
        stream.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
    elif target == "/endless":
        stream.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            stream.sendall(b"x" * 65536)
    elif target == "/cut":
        stream.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this")
        raise OSError
released = threading.Event()
"#,
    );
    let done = internet.run(
        "$RECORD -o a.zip -- sh -c '
            get() { curl -sS --no-alpn https://other.example.test\"$@\" || echo \"failed $?\"; }
            get /early; echo
            get /trailers; echo
            get /events -N | { read line; echo \"$line\"; get /release; cat; }
            get /endless | head -c 100000 | wc -c
            get /cut 2>/dev/null; echo
            curl -sS --no-alpn -k https://203.0.113.30/early; echo
        ' 2>/dev/null",
    );
    let done = done.expect_success();
    let said: Vec<&str> = done.stdout.lines().filter(|line| !line.is_empty()).collect();
    let expected =
        ["ok", "abc", "data: 1", "data: 2", "failed 23", "100000", "only thisfailed 18", "ok"];
    assert_eq!(
        said.iter().filter(|line| **line != "failed 23").collect::<Vec<_>>(),
        expected.iter().filter(|line| **line != "failed 23").collect::<Vec<_>>(),
        "{}",
        done.stderr
    );
    let har = internet.har("a.zip");
    let base = "https://other.example.test";
    let early = entry(&har, &format!("{base}/early"));
    assert_eq!(early["response"]["statusText"], "Very Fine");
    let fields = early["response"]["headers"].to_string();
    assert!(
        fields.contains(r#"{"name":"X-A","value":"1"},{"name":"x-a","value":"2"}"#),
        "{fields}"
    );
    assert!(early["_manyways"].to_string().contains("103"), "{early}");
    let trailers = entry(&har, &format!("{base}/trailers"));
    assert!(trailers["_manyways"].to_string().contains("X-Sum"), "{trailers}");
    assert_eq!(trailers["response"]["content"]["text"], "abc");
    let events = entry(&har, &format!("{base}/events"));
    assert_eq!(events["response"]["content"]["text"], "data: 1\n\ndata: 2\n\n");
    let shown = internet.show("a.zip");
    let aborted = by_url(&shown, "is_aborted");
    for (path, expected) in
        [("/early", false), ("/endless", true), ("/cut", true), ("/events", false)]
    {
        assert_eq!(*aborted[&*format!("{base}{path}")], expected, "{path}");
    }
    // Without a server name.
    assert_eq!(by_url(&shown, "status")[&*format!("https://{OTHER}/early")], 200);
}

#[test]
fn what_is_no_http_is_passed_on_and_listed() {
    needs!(NEEDS);
    let internet = internet(
        r#"
def first(stream):
    if stream.getsockname()[1] == 80:
        stream.sendall(b"hello, I speak first\n")
def answer(stream, head, rest):
    if "Upgrade: websocket" in head:
        stream.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
        stream.sendall(stream.recv(100).upper())
    else:
        stream.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
"#,
    );
    let client = r#"
import socket, ssl, sys
stream = socket.create_connection(("other.example.test", 80))
print(stream.recv(100).decode().strip())
stream.close()
# Plain text on the port of TLS, which the server ends.
stream = socket.create_connection(("other.example.test", 443))
stream.sendall(b"\0\1\2\3 something else")
try:
    print("closed", len(stream.recv(100)) < 100)
except ConnectionResetError:
    print("closed", True)
stream.close()
context = ssl.create_default_context()
stream = context.wrap_socket(socket.create_connection(("other.example.test", 443)), server_hostname="other.example.test")
stream.sendall(b"GET /socket HTTP/1.1\r\nHost: other.example.test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
while b"\r\n\r\n" not in stream.recv(1000):
    pass
stream.sendall(b"whispered")
print(stream.recv(100).decode())
context.set_alpn_protocols(["mqtt"])
try:
    stream = context.wrap_socket(socket.create_connection(("cdn.example.test", 443)), server_hostname="cdn.example.test")
except ssl.SSLError as error:
    # The origin has none of these protocols, and its own certificate is not trusted.
    print("refused")
"#;
    std::fs::write(internet.path("client.py"), client).unwrap();
    let done = internet.run("$RECORD -o a.zip -- python3 client.py").expect_success();
    assert_eq!(
        done.stdout, "hello, I speak first\nclosed True\nWHISPERED\nrefused\n",
        "{}",
        done.stderr
    );
    let mut seen = tunnelled(&internet.show("a.zip"));
    seen.sort();
    let pair = |name: &str, reason: &str| (name.to_owned(), reason.to_owned());
    let expected = [
        pair("", "not HTTP"),
        pair("", "not HTTP"),
        pair("cdn.example.test", "not HTTP"),
        pair("other.example.test", "upgraded, for example to WebSocket"),
    ];
    assert_eq!(seen, expected, "{}", done.stderr);
    assert!(done.stderr.contains("passed on unread"), "{}", done.stderr);
}

#[test]
fn a_client_with_its_own_roots_is_passed_on_after_two_refusals() {
    needs!(NEEDS);
    let internet = Internet::new("1ms");
    internet.put("x", b"content");
    let done = internet.run(
        "$RECORD -o a.zip -- sh -c '
            for i in 1 2 3 4; do curl -sS --cacert authority.pem https://www.example.test/x || echo; done 2>&1
         '",
    );
    let done = done.expect_success();
    let lines: Vec<bool> =
        done.stdout.lines().map(|line| line.contains("contentcontent")).collect();
    assert_eq!(done.stdout.matches("curl: (60)").count(), 2, "{}", done.stdout);
    assert_eq!(lines.last(), Some(&true), "{}", done.stdout);
    let seen = tunnelled(&internet.show("a.zip"));
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert!(
        seen.iter()
            .all(|(name, reason)| name == "www.example.test" && reason.contains("own choice"))
    );
    let said = "refused the recorder's certificate for www.example.test:443 on 2 connections";
    assert!(done.stderr.contains(said), "{}", done.stderr);
}

#[test]
fn a_bad_certificate_of_the_origin_is_a_bad_one_for_the_client() {
    needs!(NEEDS);
    let internet = Internet::new("1ms");
    internet.put("x", b"content");
    // The origin's authority is not trusted without the option.
    let done = internet.run(
        "RECORD='manyways record --internet'
         $RECORD -o a.zip -- sh -c '
            curl -sS https://www.example.test/x 2>/dev/null || echo refused
            curl -sS -k https://www.example.test/x; echo
            curl -sS --resolve wrong.test:443:203.0.113.10 https://wrong.test/x 2>/dev/null || echo refused'",
    );
    let done = done.expect_success();
    assert_eq!(done.stdout, "refused\ncontent\nrefused\n", "{}", done.stderr);
    assert_eq!(internet.show("a.zip")["exchanges"], 1);
    assert!(
        done.stderr.contains("the certificate of www.example.test:443 is not valid here"),
        "{}",
        done.stderr
    );
}

#[test]
fn servers_that_ask_for_client_certificates_are_passed_on() {
    needs!(NEEDS);
    let internet = internet(
        r#"
context.load_verify_locations("client.pem")
context.verify_mode = ssl.CERT_REQUIRED
def answer(stream, head, rest):
    stream.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret")
"#,
    );
    let mut openssl = Command::new("openssl");
    openssl.args([
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
    ]);
    openssl.args(["-subj", "/CN=client", "-keyout"]).arg(internet.path("client.key"));
    finish(openssl.arg("-out").arg(internet.path("client.pem"))).expect_success();
    let done = internet.run(
        "$RECORD -o a.zip -- sh -c '
            curl -sS --cacert authority.pem --cert client.pem --key client.key https://other.example.test/; echo
            curl -sS --cacert authority.pem https://other.example.test/ 2>/dev/null || echo refused
         '",
    );
    let done = done.expect_success();
    assert_eq!(done.stdout, "secret\nrefused\n", "{}", done.stderr);
    let seen = tunnelled(&internet.show("a.zip"));
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert!(seen.iter().all(|(_, reason)| reason.contains("client certificate")), "{seen:?}");
}

#[test]
fn a_handshake_that_fails_once_is_tried_again_for_the_next_connection() {
    needs!(NEEDS);
    let internet = internet(
        r#"
seen = []
def first(stream):
    if stream.getsockname()[1] == 443:
        seen.append(1)
        if len(seen) == 1:
            stream.recv(10)
            raise OSError
def answer(stream, head, rest):
    stream.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
"#,
    );
    let done = internet.run(
        "$RECORD -o a.zip -- sh -c '
            curl -sS https://other.example.test/ 2>/dev/null || echo failed
            curl -sS --no-alpn https://other.example.test/; echo'",
    );
    let done = done.expect_success();
    assert_eq!(done.stdout, "failed\nok\n", "{}", done.stderr);
    let shown = internet.show("a.zip");
    assert_eq!((tunnelled(&shown), &shown["exchanges"]), (Vec::new(), &1.into()));
    assert!(done.stderr.contains("connection to 203.0.113.30:443 failed"), "{}", done.stderr);
}

#[test]
fn servers_with_an_old_version_of_tls_are_passed_on() {
    needs!(NEEDS);
    let internet = internet(
        r#"
context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
context.set_ciphers("ALL:@SECLEVEL=0")
def answer(stream, head, rest):
    stream.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
"#,
    );
    let done = internet.run(
        "$RECORD -o a.zip -- curl -sS --cacert authority.pem --tls-max 1.1 --tlsv1.1 \
            --ciphers ALL:@SECLEVEL=0 https://other.example.test/",
    );
    let done = done.expect_success();
    assert_eq!(done.stdout, "ok", "{}", done.stderr);
    let seen = tunnelled(&internet.show("a.zip"));
    let expected = ("other.example.test".to_owned(), "no common version of TLS".to_owned());
    assert_eq!(seen, [expected]);
}

#[test]
fn bypassed_hosts_are_passed_on() {
    needs!(NEEDS);
    let internet = Internet::new("1ms");
    internet.put("x", b"content");
    let done = internet.run(
        "$RECORD --bypass example.test -o a.zip -- sh -c '
            curl -sS --cacert authority.pem https://www.example.test/x; echo
            curl -sS http://cdn.example.test/x; echo'",
    );
    assert_eq!(done.expect_success().stdout, "content\ncontent\n");
    let shown = internet.show("a.zip");
    assert_eq!(tunnelled(&shown), [("www.example.test".to_owned(), "--bypass".to_owned())]);
    // Without TLS there is no name before the request.
    assert_eq!(shown["exchanges"], 1);
}

#[test]
fn quic_is_refused_and_what_cannot_be_reached_is_named() {
    needs!(NEEDS);
    let internet = Internet::new("1ms");
    let client = r#"
import socket
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.connect(("203.0.113.10", 443))
udp.send(b"x")
try:
    udp.recv(10)
except ConnectionRefusedError:
    print("refused")
# The reset can come before the connection is returned.
try:
    print(socket.create_connection(("203.0.113.30", 80)).recv(10))
except ConnectionResetError:
    print("reset")
"#;
    std::fs::write(internet.path("client.py"), client).unwrap();
    let done = internet.run("$RECORD -o a.zip -- python3 client.py").expect_success();
    assert_eq!(done.stdout, "refused\nreset\n", "{}", done.stderr);
    assert!(
        done.stderr.contains("connection to 203.0.113.30:80 failed: connection refused"),
        "{}",
        done.stderr
    );
}
