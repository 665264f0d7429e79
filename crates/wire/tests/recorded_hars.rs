//! Reads every page load of the shared collection, and compares it with the list of its files, which
//! another program made. Skipped if the collection is absent, because it cannot be shipped.
#![allow(clippy::disallowed_methods, reason = "a test is a shell: it opens the files")]
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::BTreeSet;
use std::path::Path;

use manyways_wire::archive::Archive;
use manyways_wire::har::{self, Content, Import};

/// Returns the name, the number of entries and the number of hosts of each file; empty if the
/// collection is absent.
fn listed(folder: &Path) -> Vec<(String, usize, usize)> {
    let Ok(index) = std::fs::read_to_string(folder.join("index.csv")) else {
        eprintln!("skipped: the shared HAR files are absent");
        return Vec::new();
    };
    let row = |line: &str| {
        let columns: Vec<&str> = line.split(',').collect();
        (columns[0].to_owned(), columns[5].parse().unwrap(), columns[6].parse().unwrap())
    };
    index.lines().skip(1).map(row).collect()
}

fn hosts(archive: &Archive) -> usize {
    let host = |url: &str| url.split('/').nth(2).unwrap().split(':').next().unwrap().to_owned();
    archive.exchanges.iter().map(|e| host(&e.request.url)).collect::<BTreeSet<_>>().len()
}

#[test]
fn every_recorded_page_load_becomes_an_archive_and_a_file_again() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/har");
    let files = listed(&folder);
    if files.is_empty() {
        return;
    }
    let (mut exchanges, mut unanswered, mut left_out) = (0, 0, Vec::new());
    for (name, entries, expected_hosts) in &files {
        let import = har::read(&std::fs::read(folder.join(name)).unwrap());
        let Import { archive, warnings, left_out: count, .. } =
            import.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(archive.exchanges.len() + count, *entries, "{name}");
        // A host may have only an entry that is left out.
        let expected = expected_hosts - count..=*expected_hosts;
        assert!(expected.contains(&hosts(&archive)), "{name}: {} hosts", hosts(&archive));
        exchanges += archive.exchanges.len();
        unanswered += archive.exchanges.iter().filter(|e| e.response.is_none()).count();
        let messages = warnings.iter().map(ToString::to_string);
        left_out.extend(messages.filter(|message| message.ends_with("the entry is left out")));

        assert!(!archive.creator.is_empty() && archive.pages.len() == 1, "{name}");
        assert!(archive.exchanges.is_sorted_by_key(|exchange| exchange.started), "{name}");
        let connected = archive.exchanges.iter().filter(|e| e.connection.is_some()).count();
        assert!(connected * 4 > archive.exchanges.len(), "{name}: {connected}");

        let mut written = Vec::new();
        har::write(&archive, |_, _| Content::Omitted, &mut written).unwrap();
        let again = har::read(&written).unwrap();
        assert_eq!(again, Import { archive, ..Import::default() }, "{name}");
    }
    assert_eq!((files.len(), exchanges, unanswered), (71, 6_816, 43));
    assert_eq!(left_out.len(), 2, "{left_out:?}");
    assert!(left_out.iter().all(|message| message.contains("status 101")), "{left_out:?}");
}
