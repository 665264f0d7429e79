use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use manyways_unit::{Span, Time};
use manyways_wire::archive::{Abort, Archive, Protocol, TunnelReason};
use manyways_wire::exchange::http1;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

use crate::record::Wall;
use crate::record::arrival::{Arrival, Records};
use crate::record::assembly::{Assembly, Handshakes};
use crate::record::pipe::{Ending, Observation, Observer, Unread};
use crate::record::spool::Spool;
use crate::record::writer::ArchiveWriter;

/// Passes on what a client and a server do, and returns the recording.
async fn pass<F: Future<Output = ()>>(
    prefix: &[u8],
    act: impl FnOnce(DuplexStream, DuplexStream) -> F,
) -> (Ending, Vec<Unread>, Archive) {
    pass_with(None, prefix, act).await
}

/// The same with times at which the bytes of the server arrive.
async fn pass_with<F: Future<Output = ()>>(
    arrival: Option<Arrival>,
    prefix: &[u8],
    act: impl FnOnce(DuplexStream, DuplexStream) -> F,
) -> (Ending, Vec<Unread>, Archive) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("a.zip");
    let (writer, sink) = ArchiveWriter::create(&path, "test").unwrap();
    sink.opened(
        0,
        manyways_wire::archive::Connection {
            server: None,
            client_port: None,
            protocol: Protocol::Http11,
            tls: None,
            opened: None,
            closed: None,
            rtt: None,
        },
    );
    let spool = Spool::new(folder.path());
    let assembly =
        Assembly::new(false, "a.example".to_owned(), false, Handshakes::default(), &spool);
    let no_socket: OwnedFd = File::open("/dev/null").unwrap().into();
    let observer = Observer::Http1(http1::Observer::default());
    let observation =
        Observation::new(0, Wall::start(), sink.clone(), (no_socket, arrival), observer, assembly);
    drop(sink);
    let ((client, near), (far, server)) = (duplex(1_000), duplex(1_000));
    let passed = observation.pass(prefix.to_vec(), near, far);
    let (ending, ()) = tokio::join!(passed, act(client, server));
    let unread = observation.end().await;
    drop(observation);
    (ending, unread, writer.finish().unwrap().archive)
}

async fn read(stream: &mut DuplexStream, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await.unwrap();
    bytes
}

#[tokio::test]
async fn bytes_pass_unchanged_in_both_directions_at_once() {
    let length = 300_000;
    let request =
        format!("POST /up HTTP/1.1\r\nHost: a.example\r\nContent-Length: {length}\r\n\r\n");
    let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
    let (up, down) = (vec![b'u'; length], vec![b'd'; length]);
    let (ending, unread, archive) = pass(&request.as_bytes()[..20], async |client, server| {
        let (mut client_reader, mut client_writer) = tokio::io::split(client);
        let (mut server_reader, mut server_writer) = tokio::io::split(server);
        let mut head = vec![0; request.len()];
        client_writer.write_all(&request.as_bytes()[20..]).await.unwrap();
        server_reader.read_exact(&mut head).await.unwrap();
        assert_eq!(head, request.as_bytes());
        // Both send before they read: a proxy that waits for one of them would stop for ever.
        let send_up = async {
            client_writer.write_all(&up).await.unwrap();
            client_writer.shutdown().await.unwrap();
        };
        let send_down = async {
            server_writer.write_all(response.as_bytes()).await.unwrap();
            server_writer.write_all(&down).await.unwrap();
            server_writer.shutdown().await.unwrap();
        };
        let (mut got_up, mut got_down) = (Vec::new(), Vec::new());
        let (_, _, up_length, down_length) = tokio::join!(
            send_up,
            send_down,
            server_reader.read_to_end(&mut got_up),
            client_reader.read_to_end(&mut got_down)
        );
        assert_eq!((up_length.unwrap(), got_up == up), (length, true));
        assert_eq!(down_length.unwrap(), response.len() + length);
        assert!(got_down.ends_with(&down));
    })
    .await;
    assert_eq!((ending, unread), (Ending::Closed, Vec::new()));
    let [exchange] = &archive.exchanges[..] else { panic!("not one exchange") };
    let bodies = [exchange.request.body, exchange.response.as_ref().unwrap().body];
    assert!(bodies.iter().all(|body| body.unwrap().length == length as u64));
    assert!(bodies.iter().all(|body| body.unwrap().digest.is_some()));
    assert_eq!(exchange.abort, None);
}

#[tokio::test]
async fn a_client_that_resets_has_aborted_its_request() {
    let request = b"GET / HTTP/1.1\r\n\r\n";
    let (ending, _, archive) = pass(b"", async |mut client, mut server| {
        client.write_all(request).await.unwrap();
        read(&mut server, request.len()).await;
        drop(client);
        // More than the buffers hold, so that writing to the client fails.
        let response = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n";
        server.write_all(response).await.unwrap();
        let written = server.write_all(&[b'x'; 100_000]).await;
        assert!(written.is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe));
    })
    .await;
    assert_eq!(ending, Ending::Reset);
    assert_eq!(archive.exchanges[0].abort, Some(Abort::Client));
}

#[tokio::test]
async fn bytes_of_other_protocols_pass_and_are_counted() {
    let upgrade = b"GET /socket HTTP/1.1\r\nUpgrade: websocket\r\n\r\n";
    let accept = b"HTTP/1.1 101 Switching Protocols\r\n\r\n";
    for (first, answer, reason, is_first_counted) in [
        (&upgrade[..], &accept[..], TunnelReason::Upgraded, false),
        (&b"NOT HTTP AT ALL\r\n\r\n"[..], &b"really"[..], TunnelReason::NotHttp, true),
    ] {
        let (ending, unread, archive) = pass(b"", async |mut client, mut server| {
            client.write_all(first).await.unwrap();
            assert_eq!(read(&mut server, first.len()).await, first);
            server.write_all(answer).await.unwrap();
            assert_eq!(read(&mut client, answer.len()).await, answer);
            client.write_all(b"\x81ping").await.unwrap();
            assert_eq!(read(&mut server, 5).await, b"\x81ping");
            server.write_all(b"\x81pongs").await.unwrap();
            assert_eq!(read(&mut client, 6).await, b"\x81pongs");
        })
        .await;
        assert_eq!((ending, archive.exchanges.len()), (Ending::Closed, 0));
        let [Unread { reason: seen, sent, received, .. }] = unread[..] else {
            panic!("{unread:?}")
        };
        let counted = if is_first_counted { answer.len() as u64 } else { 0 };
        assert_eq!((seen, sent, received), (reason, 5, 6 + counted));
    }
}

#[tokio::test]
async fn a_response_begins_when_its_record_arrived_and_ends_when_it_is_read() {
    let exchange = async |arrived: Time| {
        let arrival = Records::new(tokio::io::empty(), move || arrived).arrival();
        let request = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";
        let (_, _, archive) = pass_with(Some(arrival), request, async |client, mut server| {
            read(&mut server, request.len()).await;
            server.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
            drop(client);
        })
        .await;
        (archive.exchanges[0].think, archive.exchanges[0].timings.receive)
    };
    // The request is sent and the response read at the time of the clock, within half an hour.
    let (now, half) = (Wall::start().now(), Some(Span::from_secs(1_800)));
    let (think, _) = exchange(now + Span::from_secs(3_600)).await;
    assert!(think > half, "{think:?}");
    let (think, receive) = exchange(now - Span::from_secs(3_600)).await;
    assert!(think < half && receive > half, "{think:?}, {receive:?}");
}
