use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use manyways_unit::{Span, Time};
use manyways_wire::archive::container::{Reader, check};
use manyways_wire::archive::{
    Archive, Body, Connection, Digest, Exchange, Protocol, Request, Response, Timings,
    TunnelReason, Tunnelled,
};
use manyways_wire::har;

use crate::record::assembly::Finished;
use crate::record::spool::BodySource;
use crate::record::writer::{ArchiveWriter, RepairError, Sink, Written, journal_of, repair};

fn connection(port: u16) -> Connection {
    Connection {
        server: Some(([192, 0, 2, 1], 443).into()),
        client_port: Some(port),
        protocol: Protocol::Http11,
        tls: None,
        opened: Some(Time::from_nanos(u64::from(port))),
        closed: None,
        rtt: None,
    }
}

fn exchange(number: u64, body: Vec<u8>) -> Finished {
    let protocol = Protocol::Http11;
    let hollow =
        |length| Body { length, decoded_length: None, digest: None, is_length_announced: true };
    let exchange = Exchange {
        connection: None,
        stream: None,
        page: None,
        started: Time::from_nanos(1_000 - number),
        timings: Timings { wait: Some(Span::from_millis(50)), ..Timings::default() },
        request: Request {
            method: "GET".to_owned(),
            url: format!("http://a.example/{number}"),
            protocol,
            fields: Vec::new(),
            body: None,
            trailers: Vec::new(),
        },
        response: Some(Response {
            status: 200,
            reason: "OK".to_owned(),
            protocol,
            fields: Vec::new(),
            interim: Vec::new(),
            body: Some(hollow(body.len() as u64)),
            trailers: Vec::new(),
            arrivals: Vec::new(),
        }),
        think: Some(Span::from_millis(50)),
        abort: None,
    };
    Finished { exchange, request_body: None, response_body: Some(BodySource::Memory(body)) }
}

fn tunnelled() -> Tunnelled {
    Tunnelled {
        server: ([192, 0, 2, 9], 443).into(),
        server_name: Some("pinned.example".to_owned()),
        opened: Time::from_nanos(7),
        reason: TunnelReason::Pinned,
        sent: 1,
        received: 2,
    }
}

/// Sends two connections with three exchanges; the round-trip times are 30 and 20 ms.
async fn send(sink: &Sink) {
    sink.opened(4, connection(1_000));
    sink.opened(9, connection(2_000));
    sink.exchange(4, exchange(1, b"one".to_vec()), Some(Span::from_millis(30))).await;
    sink.exchange(9, exchange(2, vec![7; 5_000]), Some(Span::from_millis(20))).await;
    sink.tunnelled(tunnelled());
    sink.closed(4, Time::from_nanos(9_999), Some(Span::from_millis(30)));
    sink.exchange(9, exchange(3, b"one".to_vec()), Some(Span::from_millis(20))).await;
}

fn opened(path: &Path) -> Archive {
    let mut reader = Reader::open(File::open(path).unwrap()).unwrap();
    let text = reader.har().unwrap();
    let read = har::read(text.as_bytes()).unwrap();
    assert!(read.warnings.is_empty(), "{:?}", read.warnings);
    assert_eq!(check(&mut reader, &read.archive), []);
    read.archive
}

fn digests(archive: &Archive) -> Vec<Option<Digest>> {
    let bodies = archive.exchanges.iter();
    bodies.map(|one| one.response.as_ref().unwrap().body.unwrap().digest).collect()
}

/// Checks that an archive contains all that [`send`] sends.
fn check_content(archive: &Archive) {
    let urls: Vec<&str> = archive.exchanges.iter().map(|one| &*one.request.url).collect();
    // In the order of their starts.
    assert_eq!(urls, ["http://a.example/3", "http://a.example/2", "http://a.example/1"]);
    let connections: Vec<_> = archive.exchanges.iter().map(|one| one.connection).collect();
    assert_eq!(connections, [Some(1), Some(1), Some(0)]);
    // The server's distance is the least that a connection to it has seen.
    let rtts: Vec<_> = archive.connections.iter().map(|one| one.rtt.unwrap()).collect();
    assert_eq!(rtts, [Span::from_millis(20); 2]);
    assert!(archive.exchanges.iter().all(|one| one.think == Some(Span::from_millis(30))));
    assert_eq!(archive.tunnelled, [tunnelled()]);
    assert_eq!(archive.creator, "test 1");
}

#[tokio::test]
async fn an_archive_has_all_exchanges_and_only_its_user_can_read_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.zip");
    let (writer, sink) = ArchiveWriter::create(&path, "test 1").unwrap();
    for path in [&path, &journal_of(&path)] {
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    }
    send(&sink).await;
    drop(sink);
    let Written { archive, lost_bodies } = writer.finish().unwrap();
    check_content(&archive);
    assert_eq!((lost_bodies, opened(&path)), (0, archive.clone()));
    let one = Some(Digest::of(b"one"));
    assert_eq!(digests(&archive), [one, Some(Digest::of(&[7; 5_000])), one]);
    assert_eq!(archive.connections[0].closed, Some(Time::from_nanos(9_999)));
    assert!(!journal_of(&path).exists());
    // Nothing is overwritten, and nothing remains of the attempt.
    assert!(ArchiveWriter::create(&path, "test 1").is_err());
    assert_eq!(opened(&path), archive);
    assert!(!journal_of(&path).exists());
}

#[tokio::test]
async fn a_killed_recording_is_repaired_to_its_last_whole_exchange() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.zip");
    let (writer, sink) = ArchiveWriter::create(&path, "test 1").unwrap();
    send(&sink).await;
    drop(sink);
    // The thread has written everything, and the archive has no end.
    writer.abandon();
    let (archive, journal) = (fs::read(&path).unwrap(), fs::read(journal_of(&path)).unwrap());
    let lines = |text: &[u8]| text.iter().filter(|byte| **byte == b'\n').count();
    assert_eq!(lines(&journal), 4);

    let whole = repair(&path).unwrap();
    check_content(&whole.archive);
    assert_eq!((whole.lost_bodies, opened(&path)), (0, whole.archive.clone()));
    assert!(!journal_of(&path).exists());
    assert!(matches!(repair(&path), Err(RepairError::NoJournal { .. })));

    // Cut anywhere, as a kill cuts.
    for cut in (0..journal.len()).step_by(97) {
        fs::write(&path, &archive).unwrap();
        fs::write(journal_of(&path), &journal[..cut]).unwrap();
        let repaired = repair(&path).unwrap().archive;
        let expected = lines(&journal[..cut]);
        assert_eq!(repaired.exchanges.len() + repaired.tunnelled.len(), expected, "{cut}");
    }
    for cut in (0..archive.len()).step_by(61) {
        fs::write(&path, &archive[..cut]).unwrap();
        fs::write(journal_of(&path), &journal).unwrap();
        let Written { archive: repaired, lost_bodies } = repair(&path).unwrap();
        let hollow = digests(&repaired).iter().filter(|digest| digest.is_none()).count();
        assert_eq!((repaired.exchanges.len(), lost_bodies), (3, hollow as u64), "{cut}");
        assert_eq!(opened(&path), repaired, "{cut}");
    }
}

#[tokio::test]
async fn lines_of_a_journal_that_are_damaged_cost_only_themselves() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.zip");
    let (writer, sink) = ArchiveWriter::create(&path, "test 1").unwrap();
    send(&sink).await;
    drop(sink);
    writer.abandon();
    let journal = fs::read_to_string(journal_of(&path)).unwrap();
    let damaged = journal.replacen("\"log\"", "\"lag\"", 1) + "{}\n\u{0}\n";
    fs::write(journal_of(&path), damaged).unwrap();
    let repaired = repair(&path).unwrap().archive;
    assert_eq!((repaired.exchanges.len(), repaired.tunnelled.len()), (2, 1));
}
