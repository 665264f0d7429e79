//! `record check`, `show`, `import` and `export`.

use std::fs;

use manyways_tests::{Finished, finish, folder, manyways};

/// A HAR of a browser with one page, a secret, and no body.
const HAR: &str = r#"{"log":{"version":"1.2","creator":{"name":"someone","version":"1"},"pages":[],"entries":[
{"startedDateTime":"2026-01-01T00:00:00Z","time":10,"request":{"method":"GET","url":"https://a.example/","httpVersion":"h2",
"headers":[{"name":"Cookie","value":"secret"},{"name":"Accept","value":"*/*"}],"cookies":[],"queryString":[],"headersSize":-1,"bodySize":0},
"response":{"status":200,"statusText":"","httpVersion":"h2","headers":[{"name":"Set-Cookie","value":"secret"}],"cookies":[],
"content":{"size":5,"mimeType":"text/plain","text":"hello"},"redirectURL":"","headersSize":-1,"bodySize":5},
"cache":{},"timings":{"send":1,"wait":5,"receive":4},"serverIPAddress":"192.0.2.1"},
{"startedDateTime":"2026-01-01T00:00:01Z","time":-1,"request":{"method":"GET","url":"data:,x","headers":[]},
"response":{"status":0},"timings":{}}]}}"#;

fn record(words: &[&str]) -> Finished {
    finish(manyways().arg("record").args(words))
}

#[test]
fn a_har_becomes_an_archive_and_a_har_again() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(path("a.har"), HAR).unwrap();
    let done = record(&["import", &path("a.har"), "-o", &path("a.zip")]).expect_success();
    assert!(done.stderr.contains("entry 2: "), "{}", done.stderr);
    assert!(done.stderr.contains("wrote 1 exchange"), "{}", done.stderr);
    let checked = record(&["check", &path("a.zip")]).expect_success().stdout;
    assert!(checked.ends_with("a.zip: 1 exchange, 1 connection, no problems\n"), "{checked}");
    let shown = record(&["show", "--exchanges", &path("a.zip")]).expect_success().stdout;
    assert!(shown.contains("192.0.2.1:443") && shown.contains("https://a.example/"), "{shown}");

    let done = record(&["classify", &path("a.zip"), "--html", &path("flows.html")]);
    assert!(done.expect_success().stdout.starts_with("short-flow dominated: no flows of 1 long"));
    assert!(fs::read_to_string(path("flows.html")).unwrap().contains("<svg"));

    let done = record(&["export", &path("a.zip"), "-o", &path("b.har")]).expect_success();
    assert!(done.stderr.contains("left out 2 fields with credentials"), "{}", done.stderr);
    let exported = fs::read_to_string(path("b.har")).unwrap();
    assert!(!exported.contains("secret") && exported.contains("hello"), "{exported}");
    record(&["export", "--with-credentials", &path("a.zip"), "-o", &path("c.har")])
        .expect_success();
    assert!(fs::read_to_string(path("c.har")).unwrap().contains("secret"));
    // Nothing is overwritten.
    let done = record(&["export", &path("a.zip"), "-o", &path("b.har")]);
    assert_eq!((done.code(), fs::read_to_string(path("b.har")).unwrap()), (2, exported));
    assert!(done.stderr.contains("already exists"), "{}", done.stderr);
}

#[test]
fn bad_files_are_refused_in_a_sentence() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(path("a.har"), HAR).unwrap();
    record(&["import", &path("a.har"), "-o", &path("a.zip")]).expect_success();
    let archive = fs::read(path("a.zip")).unwrap();
    fs::write(path("cut.zip"), &archive[..archive.len() - 40]).unwrap();
    fs::write(path("cut.har"), &HAR[..600]).unwrap();
    // A byte of the body, which is stored as it is.
    let mut damaged = archive.clone();
    let at = damaged.windows(5).position(|bytes| bytes == b"hello").unwrap();
    damaged[at] = b'j';
    fs::write(path("damaged.zip"), damaged).unwrap();
    for (file, words) in [
        ("cut.zip", "it lacks the directory at its end"),
        ("cut.har", "it is cut off"),
        ("missing", "No such file"),
    ] {
        for command in ["check", "show"] {
            let done = record(&[command, &path(file)]);
            assert_eq!(done.code(), 1, "{file}");
            assert!(
                done.stderr.contains(words) && done.stderr.lines().count() <= 2,
                "{}",
                done.stderr
            );
        }
    }
    let done = record(&["check", &path("damaged.zip")]);
    assert_eq!(done.code(), 1);
    assert!(done.stderr.contains("exchange 1: the body of the response"), "{}", done.stderr);
    let done = record(&["check", "--repair", &path("a.zip")]);
    assert!(done.stderr.contains("there is no journal"), "{}", done.stderr);
}
