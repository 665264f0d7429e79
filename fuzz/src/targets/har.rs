//! HAR files of this and of other programs.

use manyways_wire::har::{self, Content};

pub(super) const WORDS: &[&str] = &[
    "{\"log\":{\"entries\":[",
    "{\"request\":{\"url\":\"http://a.example/\"},\"response\":{\"status\":200}}",
    "\"_manyways\":{",
    "\"schema\":\"manyways.archive/1\"",
    "\"headers\":[{\"name\":\"a\",\"value\":\"b\"}]",
    "\"Content-Encoding\"",
    "\"encoding\":\"base64\"",
    "\"text\":\"",
    "\"connection\":",
    "\"startedDateTime\":\"2026-01-02T03:04:05.678+01:00\"",
    "\"timings\":{\"connect\":",
    "\"_file\":\"",
    "\\ud83d",
    "null",
    "-1",
    "1e300",
    "18446744073709551615",
    "}},",
    "]}}",
];

/// An archive reads back as itself, also with the bodies that were in the file.
pub(super) fn har(bytes: &[u8]) {
    let read = har::read_with_files(bytes, |name| Some(name.as_bytes().to_vec()));
    let Ok(import) = read.map_err(|error| error.to_string()) else { return };
    let mut written = Vec::new();
    har::write(&import.archive, |_, _| Content::Omitted, &mut written).expect("memory");
    let again = har::read(&written).expect("a file that was written");
    assert_eq!(again.archive, import.archive);
    assert!(again.warnings.is_empty() && again.bodies.is_empty(), "{:?}", again.warnings);

    let mut written = Vec::new();
    let embedded = |body: &manyways_wire::archive::Body, _: &[_]| {
        let found = import.bodies.iter().find(|(digest, _)| body.digest == Some(*digest));
        found.map_or(Content::Omitted, |(_, bytes)| Content::Embedded {
            decoded: bytes.into(),
            encoded: None,
        })
    };
    har::write(&import.archive, embedded, &mut written).expect("memory");
    let again = har::read(&written).expect("a file that was written");
    assert_eq!(again.archive, import.archive);
    assert!(again.warnings.is_empty(), "{:?}", again.warnings);
    assert!(again.bodies.iter().all(|body| import.bodies.contains(body)));
}
