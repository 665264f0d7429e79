//! Files of recordings of HTTP traffic.

use std::io::{self, Cursor, Read};

use manyways_wire::archive::container::{HAR_NAME, Reader, Writer, check, recover};
use manyways_wire::archive::{Archive, Digest};

/// Signatures and names of a zip archive.
pub(super) const WORDS: &[&str] = &[
    "PK\u{1}\u{2}",
    "PK\u{3}\u{4}",
    "PK\u{5}\u{6}",
    "PK\u{6}\u{6}",
    "PK\u{6}\u{7}",
    "\u{14}\0",
    "\u{8}\0",
    "\u{1}\0\u{8}\0",
    HAR_NAME,
    "bodies/",
    "../",
    "\0\0\0\0",
];

/// Opens a file and reads everything: a body in parts is that in one, and no longer than stated.
pub(super) fn container(bytes: &[u8]) {
    let Ok(mut reader) = Reader::open(Cursor::new(bytes)) else { return };
    let _ = reader.har();
    let digests: Vec<Digest> = reader.digests().copied().collect();
    for digest in &digests {
        let length = reader.length(digest);
        let Ok(body) = reader.body(digest) else {
            let mut parts = reader.open_body(digest).into_iter();
            assert!(parts.all(|mut parts| io::copy(&mut parts, &mut io::sink()).is_err()));
            continue;
        };
        assert_eq!(Some(body.len() as u64), length);
        let mut parts = Vec::new();
        assert!(
            reader.open_body(digest).is_ok_and(|mut body| body.read_to_end(&mut parts).is_ok())
        );
        assert_eq!(parts, body);
    }
    assert_eq!(check(&mut reader, &Archive::default()).len(), digests.len());
}

/// Continues a file behind its whole bodies: the result is an archive of them.
pub(super) fn recovered(bytes: &[u8]) {
    let Ok(found) = recover(&mut Cursor::new(bytes)) else { return };
    assert!(found.length() <= bytes.len() as u64);
    let mut digests: Vec<Digest> = found.digests().copied().collect();
    let cut = |file: &mut Cursor<Vec<u8>>, length| {
        file.get_mut().truncate(length as usize);
        Ok(())
    };
    let Ok(mut writer) = Writer::resume(Cursor::new(bytes.to_vec()), cut, found) else { return };
    digests.extend(writer.add_body(bytes));
    digests.sort();
    digests.dedup();
    let finished = writer.finish(|_| "{}".into());
    assert!(finished.is_ok_and(|dropped| dropped.is_empty()));
    let mut reader = Reader::open(writer.into_inner()).expect("is whole");
    assert!(reader.har().is_ok_and(|har| har == "{}"));
    assert!(reader.digests().eq(&digests));
    for digest in &digests {
        assert!(reader.body(digest).is_ok());
    }
}
