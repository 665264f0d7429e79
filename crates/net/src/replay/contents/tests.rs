use manyways_wire::archive::{Abort, Body};

use super::super::sample::{Sample, aborted, field, hollow, same, write_file};
use super::*;

const A: &str = "https://a.example/a";

fn bytes_of(contents: &std::sync::Arc<Contents>, exchange: usize, range: Range<u64>) -> Vec<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut pieces = contents.pieces(exchange, range).await.unwrap();
        let mut all = Vec::new();
        while let Some(piece) = pieces.next().await {
            all.extend(piece.unwrap());
        }
        all
    })
}

#[test]
fn bodies_come_from_the_file_of_the_archive() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.zip");
    // Long enough to be read in pieces.
    let long: Vec<u8> = (0..MAX_WHOLE as u32 / 4 + 100).flat_map(u32::to_le_bytes).collect();
    let sample = Sample::default().get(A, &[], b"short", &same).get(A, &[], &long, &same);
    write_file(&sample.0, &path);
    let contents = std::sync::Arc::new(Contents::open(&path, Rule::Ours).unwrap());
    assert_eq!(contents.archive(), &sample.0.archive);
    for _ in 0..2 {
        assert_eq!(bytes_of(&contents, 0, 0..5), b"short");
    }
    assert!(contents.ready_pieces(0, &(0..5)).is_some(), "it is in the cache");
    assert_eq!(bytes_of(&contents, 0, 1..3), b"ho");
    assert_eq!(bytes_of(&contents, 1, 0..long.len() as u64), long);
    assert!(contents.ready_pieces(1, &(0..5)).is_none(), "it is too long for the cache");
    assert_eq!(bytes_of(&contents, 1, 999_999..1_000_009), long[999_999..1_000_009]);
}

#[test]
fn a_damaged_body_is_an_error_and_not_sent() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.zip");
    let body = b"this text is not compressed".to_vec();
    write_file(&Sample::default().get(A, &[], &body, &same).0, &path);
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.windows(body.len()).position(|part| part == body).unwrap();
    bytes[at] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let contents = std::sync::Arc::new(Contents::open(&path, Rule::Ours).unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let failed = runtime.block_on(contents.pieces(0, 0..5)).unwrap_err();
    assert!(matches!(failed, ContainerError::WrongHash { .. }), "{failed}");
}

#[test]
fn a_missing_or_shorter_body_is_refused() {
    let mut sample = Sample::default().get(A, &[], b"", &same).get(A, &[], b"body", &same);
    sample.0.bodies.clear();
    let failed = Contents::of_import(sample.0, Rule::Ours).unwrap_err();
    assert!(matches!(failed, OpenError::MissingBody { exchange: 1, .. }), "{failed}");
    let longer = |_: &mut Exchange, response: &mut manyways_wire::archive::Response| {
        response.body = response.body.map(|body| Body { length: 5, ..body });
    };
    let sample = Sample::default().get(A, &[], b"body", &longer);
    let failed = Contents::of_import(sample.0, Rule::Ours).unwrap_err();
    assert!(matches!(failed, OpenError::BodyLength { exchange: 0, .. }), "{failed}");
}

#[test]
fn other_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    assert!(matches!(Contents::open(&path, Rule::Ours), Err(OpenError::Io { .. })));
    for (bytes, expected) in
        [(&b"PK\x03\x04 and more"[..], "zip"), (b"{}", "HAR"), (b"", "cut off")]
    {
        std::fs::write(&path, bytes).unwrap();
        let failed = Contents::open(&path, Rule::Ours).unwrap_err().to_string();
        assert!(failed.contains(expected), "{failed}");
    }
}

#[test]
fn bodies_of_a_har_file_can_be_files_in_its_folder_only() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    std::fs::write(folder.path().join("secret"), "secret").unwrap();
    std::fs::write(inner.join("body.txt"), "body").unwrap();
    let har = inner.join("a.har");
    assert_eq!(beside(&har, "body.txt").unwrap(), b"body");
    for name in ["../secret", "/etc/passwd", "", ".", "..", "missing", "./body.txt/.."] {
        assert_eq!(beside(&har, name), None, "{name}");
    }
    let entry = |file: &str| {
        format!(
            r#"{{"startedDateTime":"2026-01-01T00:00:00Z","request":{{"method":"GET",
            "url":"https://a.example/","headers":[]}},"response":{{"status":200,"headers":[
            {{"name":"content-type","value":"text/plain"}}],
            "content":{{"size":4,"mimeType":"text/plain","_file":"{file}"}}}}}}"#
        )
    };
    let text = format!(r#"{{"log":{{"entries":[{},{}]}}}}"#, entry("body.txt"), entry("../secret"));
    std::fs::write(&har, text).unwrap();
    let contents = std::sync::Arc::new(Contents::open(&har, Rule::Ours).unwrap());
    assert_eq!(bytes_of(&contents, 0, 0..4), b"body");
    // The other one is hollow.
    assert_eq!(bytes_of(&contents, 1, 0..4), b"    ");
}

#[test]
fn a_hollow_body_has_the_coding_of_its_head_or_loses_it() {
    let with = |coding: &'static str, length: u64| {
        move |_: &mut Exchange, response: &mut manyways_wire::archive::Response| {
            response.fields.push(field("Content-Encoding", coding));
            response.fields.push(field("Content-Length", "7"));
            response.body = hollow(length);
        }
    };
    let sample = Sample::default()
        .get(A, &[], b"", &with("gzip", 1_000))
        .get(A, &[], b"", &with("gzip", 3))
        .get(A, &[], b"", &with("dcb", 1_000));
    let contents = sample.contents();
    assert_eq!(contents.uncoded(), [1, 2]);
    let names = |exchange: usize| {
        let fields = &contents.prepared(exchange).unwrap().fields;
        fields
            .iter()
            .map(|(field, _)| String::from_utf8_lossy(&field.value).into_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(0), ["gzip", "1000"]);
    assert_eq!(names(1), ["3"]);
    assert_eq!(names(2), ["1000"]);
    assert_eq!(bytes_of(&contents, 0, 0..1_000)[..2], [0x1f, 0x8b]);
    let all = bytes_of(&contents, 2, 0..1_000);
    assert_eq!(all.len(), 1_000);
    assert_eq!(bytes_of(&contents, 2, 10..500), all[10..500]);
}

#[test]
fn the_end_is_that_of_the_recording() {
    let announced = |by| {
        move |exchange: &mut Exchange, response: &mut manyways_wire::archive::Response| {
            exchange.abort = Some(by);
            response.body = response.body.map(|body| Body { is_length_announced: true, ..body });
        }
    };
    let ends = [
        (Sample::default().get(A, &[], b"x", &same), End::Complete),
        (Sample::default().get(A, &[], b"x", &aborted(Abort::Server)), End::Abort),
        (Sample::default().get(A, &[], b"x", &aborted(Abort::Client)), End::Open),
        (Sample::default().get(A, &[], b"x", &aborted(Abort::Recorder)), End::Open),
        (Sample::default().get(A, &[], b"x", &announced(Abort::Client)), End::Abort),
    ];
    for (sample, expected) in ends {
        let contents = sample.contents();
        assert_eq!(contents.prepared(0).unwrap().end, expected);
    }
}

#[test]
fn servers_are_listed_once() {
    let sample = Sample::default()
        .connection("192.0.2.2:443", None)
        .connection("192.0.2.1:443", Some(("a.example", "h2")))
        .connection("192.0.2.2:443", None);
    let expected: Vec<SocketAddr> =
        ["192.0.2.1:443", "192.0.2.2:443"].map(|server| server.parse().unwrap()).into();
    assert_eq!(sample.contents().servers(), expected);
}
