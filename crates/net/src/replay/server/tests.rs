use std::net::{IpAddr, Ipv4Addr};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use manyways_wire::archive::{Exchange, Protocol};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::super::sample::{Sample, field, interim, run, same, write_file};
use super::super::tls::tests::Authority;
use super::super::{MAX_WHOLE, Outcome};
use super::*;

const A: &str = "https://a.example/a";
type Recorded = manyways_wire::archive::Response;

/// Starts a server on a socket of this host, whose recorded address is that of the socket.
fn start(sample: impl FnOnce(&str) -> Sample) -> (Server, SocketAddr, Arc<Authority>) {
    let listener = StdListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let contents = sample(&address.to_string()).contents();
    let authority = Authority::new();
    let server =
        Server::start(contents, Options::default(), authority.clone(), vec![listener]).unwrap();
    (server, address, authority)
}

fn page(_: &mut Exchange, response: &mut Recorded) {
    response.interim.push(interim(103, &[("Link", "</x>")], Span::ZERO));
    response.trailers.push(field("x-end", "1"));
}

#[test]
fn http2_over_tls() {
    let body = Bytes::from(vec![b'x'; 3 << 20]);
    let fields = [("server", "recorded"), ("content-type", "text/plain")];
    let (server, address, authority) = start(|here| {
        Sample::default().connection(here, Some(("a.example", "h2"))).get(A, &fields, &body, &page)
    });
    run(async {
        let stream = TcpStream::connect(address).await.unwrap();
        let name = ServerName::try_from("a.example").unwrap();
        let stream = authority.client(&["h2", "http/1.1"]).connect(name, stream).await.unwrap();
        let (mut sender, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let request = http::Request::get(A).body(()).unwrap();
        let (response, _) = sender.send_request(request, true).unwrap();
        let response = response.await.unwrap();
        assert_eq!(response.headers()["server"], "recorded");
        let mut incoming = response.into_body();
        let mut read = Vec::new();
        while let Some(piece) = incoming.data().await {
            let piece = piece.unwrap();
            read.extend_from_slice(&piece);
            incoming.flow_control().release_capacity(piece.len()).unwrap();
        }
        assert!(read == body);
        assert_eq!(incoming.trailers().await.unwrap().unwrap()["x-end"], "1");
    });
    let (log, omitted) = server.stop();
    let [served] = &log[..] else { panic!("{log:?}") };
    assert_eq!((served.protocol, served.server, omitted), (Protocol::Http2, address, 0));
    assert_eq!((served.url.as_str(), served.bytes), (A, 3 << 20));
    assert_eq!(served.outcome, Outcome::Hit { exchange: 0 });
}

#[test]
fn http1_over_tls_and_in_plain_text() {
    let fields = [("Content-Length", "5"), ("ETag", "\"1\"")];
    let url = "http://a.example/a";
    let (server, address, authority) = start(|here| {
        Sample::default()
            .connection(here, Some(("a.example", "http/1.1")))
            .get(A, &fields, b"hello", &same)
            .get(url, &fields, b"plain", &same)
    });
    run(async {
        let name = ServerName::try_from("a.example").unwrap();
        let stream = TcpStream::connect(address).await.unwrap();
        let stream = authority.client(&["http/1.1"]).connect(name, stream).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        for _ in 0..2 {
            let request = http::Request::get("/a").header("host", "a.example");
            let request = request.body(Empty::<Bytes>::new()).unwrap();
            let response = sender.send_request(request).await.unwrap();
            assert_eq!(response.headers()["etag"], "\"1\"");
            assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "hello");
        }
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = "GET /a HTTP/1.0\r\nHost: a.example\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"1\"\r\n\r\nplain");
    });
    let (log, _) = server.stop();
    let connections: Vec<u64> = log.iter().map(|served| served.connection).collect();
    assert_eq!(connections, [0, 0, 1]);
    assert_eq!((log[2].protocol, log[2].url.as_str()), (Protocol::Http10, url));
}

#[test]
fn http2_in_plain_text_begins_with_its_preface() {
    let (server, address, _) =
        start(|_| Sample::default().get("http://a.example/a", &[], b"hello", &same));
    run(async {
        let stream = TcpStream::connect(address).await.unwrap();
        let (mut sender, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let request = http::Request::get("http://a.example/a").body(()).unwrap();
        let (response, _) = sender.send_request(request, true).unwrap();
        let mut body = response.await.unwrap().into_body();
        assert_eq!(body.data().await.unwrap().unwrap(), "hello");
    });
    drop(server);
}

#[test]
fn many_requests_wait_at_a_time() {
    let slow = |exchange: &mut Exchange, _: &mut Recorded| {
        exchange.think = Some(Span::from_millis(20));
    };
    let (server, address, _) =
        start(|_| Sample::default().get("http://a.example/a", &[], b"hello", &slow));
    run(async {
        let stream = TcpStream::connect(address).await.unwrap();
        let (sender, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let mut all = tokio::task::JoinSet::new();
        for _ in 0..200 {
            let sender = sender.clone();
            all.spawn(async move {
                let request = http::Request::get("http://a.example/a").body(()).unwrap();
                let mut sender = sender.ready().await.unwrap();
                let (response, _) = sender.send_request(request, true).unwrap();
                response.await.unwrap().into_body().data().await.unwrap().unwrap()
            });
        }
        while let Some(body) = all.join_next().await {
            assert_eq!(body.unwrap(), "hello");
        }
    });
    let (log, _) = server.stop();
    assert_eq!(log.len(), 200);
    let waits = log.iter().map(|served| served.first_byte.unwrap().since(served.at));
    assert!(waits.min().unwrap() >= Span::from_millis(20));
}

#[test]
fn a_socket_for_both_versions_of_ip_knows_ipv4_addresses() {
    let listener = StdListener::bind("[::]:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let contents = Sample::default().get("http://a.example/a", &[], b"x", &same).contents();
    let server =
        Server::start(contents, Options::default(), Authority::new(), vec![listener]).unwrap();
    run(async {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        let request = "GET /a HTTP/1.1\r\nHost: a.example\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.read_to_end(&mut Vec::new()).await.unwrap();
    });
    let served = server.stop().0.remove(0);
    assert_eq!(served.server, SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
}

#[test]
fn a_stopped_server_ends_its_connections() {
    let (server, address, _) = start(|_| Sample::default());
    run(async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = "GET /a HTTP/1.1\r\nHost: a.example\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.read_exact(&mut [0; 12]).await.unwrap();
        drop(server);
        // The rest of the response, and the end.
        let _ = stream.read_to_end(&mut Vec::new()).await;
        assert!(TcpStream::connect(address).await.is_err());
    });
}

#[test]
fn connections_above_the_limit_are_closed() {
    let (server, address, _) = start(|_| Sample::default());
    let places = server.front.places.clone();
    let taken = places.try_acquire_many(MAX_CONNECTIONS as u32).unwrap();
    run(async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0);
        drop(taken);
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
        stream.read_exact(&mut [0; 12]).await.unwrap();
    });
}

#[test]
fn a_damaged_body_breaks_the_response_off() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.zip");
    let url = "http://a.example/";
    let text = b"this text is not compressed";
    let long = [&[7; MAX_WHOLE as usize + 1][..], text].concat();
    let fields = [("Content-Length", "27")];
    let sample = Sample::default().get(&format!("{url}short"), &fields, text, &same).get(
        &format!("{url}long"),
        &[],
        &long,
        &same,
    );
    write_file(&sample.0, &path);
    let mut bytes = std::fs::read(&path).unwrap();
    let is_text = |part: &[u8]| part == text;
    let first = bytes.windows(text.len()).position(is_text).unwrap();
    let last = bytes.windows(text.len()).rposition(is_text).unwrap();
    bytes[first] ^= 1;
    bytes[last] ^= 1;
    assert_ne!(first, last);
    std::fs::write(&path, bytes).unwrap();
    let contents = Arc::new(Contents::open(&path, Default::default()).unwrap());
    let listener = StdListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let server =
        Server::start(contents, Options::default(), Authority::new(), vec![listener]).unwrap();
    run(async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = "GET /short HTTP/1.1\r\nHost: a.example\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        assert_eq!(stream.read_to_end(&mut Vec::new()).await.unwrap(), 0);
        let stream = TcpStream::connect(address).await.unwrap();
        let (mut sender, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let request = http::Request::get(format!("{url}long")).body(()).unwrap();
        let (response, _) = sender.send_request(request, true).unwrap();
        let mut body = response.await.unwrap().into_body();
        let (mut read, mut failed) = (0, None);
        while let Some(piece) = body.data().await {
            match piece {
                Ok(piece) => {
                    read += piece.len();
                    body.flow_control().release_capacity(piece.len()).unwrap();
                }
                Err(error) => {
                    failed = error.reason();
                    break;
                }
            }
        }
        assert_eq!(failed, Some(h2::Reason::INTERNAL_ERROR));
        assert!(read < long.len());
    });
    let (log, _) = server.stop();
    assert!(log.iter().all(|served| served.last_byte.is_none()), "{log:?}");
}
