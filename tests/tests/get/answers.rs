//! Invalid and unusual responses: an error that names the fault, and never a wrong file.

use crate::faulty::Expected::{
    Fails, Newer, OnlyOver, Resumable, Unresumable, Whole, WholeOrResumable,
};
use crate::faulty::{at_once, one_by_one, with};
use crate::needs_far;

const WIFI: &[&str] = &["wifi"];
const BOTH: &[&str] = &["wifi", "lte"];

#[test]
fn ranges_that_are_none() {
    needs_far!();
    one_by_one(&[
        ("https://origin.lab/always/good/object", OnlyOver(BOTH), &[]),
        (
            "https://origin.lab/always/refuses-ranges/object",
            OnlyOver(WIFI),
            &["does not answer range requests, so only one path is used"],
        ),
        (
            "https://origin.lab/ranges/whole/object",
            OnlyOver(WIFI),
            &["does not answer range requests, so only one path is used"],
        ),
        (
            "http://origin.lab/ranges/whole/object",
            OnlyOver(WIFI),
            &["does not answer range requests, so only one path is used"],
        ),
    ]);
}

#[test]
fn ranges_that_are_others() {
    needs_far!();
    one_by_one(&[
        (
            "https://origin.lab/ranges/no-content-range/object",
            OnlyOver(WIFI),
            &["lte is no longer used: the server sent a part of the object without Content-Range"],
        ),
        (
            "http://origin.lab/lte/no-content-range/object",
            OnlyOver(WIFI),
            &["lte is no longer used: the server sent a part of the object without Content-Range"],
        ),
        (
            "https://origin.lab/ranges/odd-content-range/object",
            OnlyOver(WIFI),
            &["lte is no longer used: the server sent another part of the object"],
        ),
        (
            "https://origin.lab/ranges/other-range/object",
            OnlyOver(WIFI),
            &["lte is no longer used: the server sent another part of the object"],
        ),
        (
            "https://origin.lab/ranges/more-range/object",
            OnlyOver(WIFI),
            &["lte is no longer used: the server sent another part of the object"],
        ),
        // A short range is allowed.
        ("https://origin.lab/ranges/short-range/object", OnlyOver(BOTH), &[]),
        ("http://origin.lab/ranges/short-range/object", OnlyOver(BOTH), &[]),
        (
            "https://origin.lab/plain/part-of-all/object",
            Fails,
            &[
                "the server's response is inconsistent: it sent a part of the object although all was asked for",
            ],
        ),
    ]);
}

#[test]
fn versions_that_differ() {
    needs_far!();
    one_by_one(&[
        (
            "https://origin.lab/lte/changed/object",
            OnlyOver(WIFI),
            &["lte is no longer used: the server has another version of the object there"],
        ),
        (
            "https://origin.lab/lte/quietly-changed/object",
            OnlyOver(WIFI),
            &["lte is no longer used: the server has another version of the object there"],
        ),
        (
            "https://origin.lab/lte/other-etag/object",
            OnlyOver(WIFI),
            &["lte is no longer used: the server has another version of the object there"],
        ),
        (
            "http://origin.lab/ranges/other-total/object",
            OnlyOver(WIFI),
            &["lte is no longer used: the server has another version of the object there"],
        ),
        (
            "https://origin.lab/always/weak-etag/object",
            OnlyOver(WIFI),
            &["neither a strong ETag nor a usable Last-Modified, so only one path is used"],
        ),
        (
            "https://origin.lab/always/no-etag/object",
            OnlyOver(WIFI),
            &["neither a strong ETag nor a usable Last-Modified, so only one path is used"],
        ),
        (
            "https://origin.lab/always/etag-each/object",
            OnlyOver(WIFI),
            &["lte is no longer used: the server has another version of the object there"],
        ),
    ]);
}

/// The download restarts once; an object that changes continuously is an error.
#[test]
fn versions_that_change_under_way() {
    needs_far!();
    one_by_one(&[
        (
            "https://origin.lab/always/replaced/object",
            Newer,
            &["begins again with the new version"],
        ),
        ("http://origin.lab/always/replaced/object", Newer, &["begins again with the new version"]),
        (
            "https://origin.lab/always/restless/object",
            Unresumable,
            &["begins again with the new version", "the object has changed on the server"],
        ),
        (
            "http://origin.lab/always/restless/object",
            Unresumable,
            &["begins again with the new version", "the object has changed on the server"],
        ),
    ]);
}

// Slow: 16 downloads, one after the other, with pauses before new attempts.
#[test]
fn bodies_that_are_not_what_was_announced() {
    needs_far!();
    one_by_one(&[
        // A piece that ends in a frame with excess bytes is discarded as a whole.
        ("https://origin.lab/ranges/more/object", WholeOrResumable, &[]),
        ("http://origin.lab/ranges/more/object", Whole, &[]),
        ("https://origin.lab/lte/more-chunked/object", Whole, &[]),
        ("http://origin.lab/lte/more-chunked/object", Whole, &[]),
        ("https://origin.lab/ranges/more-chunked/object", WholeOrResumable, &[]),
        ("http://origin.lab/ranges/more-chunked/object", WholeOrResumable, &[]),
        ("https://origin.lab/ranges/less/object", Whole, &[]),
        ("http://origin.lab/ranges/less/object", Whole, &[]),
        ("https://origin.lab/ranges/less-chunked/object", Whole, &[]),
        ("http://origin.lab/ranges/less-chunked/object", Whole, &[]),
        ("https://origin.lab/once/less/object", Whole, &[]),
        ("http://origin.lab/once/less/object", Whole, &[]),
        ("https://origin.lab/once/nothing/object", Whole, &[]),
        ("http://origin.lab/once/nothing/object", Whole, &[]),
        ("https://origin.lab/once/more/object", Whole, &[]),
        ("http://origin.lab/once/more/object", Whole, &[]),
    ]);
}

#[test]
fn lengths_that_are_not_told() {
    needs_far!();
    one_by_one(&[
        (
            "https://origin.lab/always/chunked/object",
            OnlyOver(WIFI),
            &["does not tell the length, so only one path is used"],
        ),
        (
            "http://origin.lab/always/chunked/object",
            OnlyOver(WIFI),
            &["does not tell the length, so only one path is used"],
        ),
        (
            "http://origin.lab/always/until-close/object",
            OnlyOver(WIFI),
            &["does not tell the length, so only one path is used"],
        ),
        // The Content-Range of a range has the length.
        ("https://origin.lab/ranges/chunked/object", OnlyOver(BOTH), &[]),
        ("http://origin.lab/ranges/chunked/object", OnlyOver(BOTH), &[]),
        ("http://origin.lab/ranges/until-close/object", OnlyOver(BOTH), &[]),
    ]);
}

#[test]
fn encodings_that_nobody_asked_for() {
    needs_far!();
    one_by_one(&[
        (
            "https://origin.lab/always/encoded/object",
            OnlyOver(WIFI),
            &[
                "with a Content-Encoding, so only one path is used and the bytes are kept as they came",
            ],
        ),
        (
            "https://origin.lab/ranges/encoded/object",
            OnlyOver(WIFI),
            &["lte is no longer used: the server sent another part of the object"],
        ),
    ]);
}

// Slow: 16 downloads, one after the other, with pauses before new attempts.
#[test]
fn streams_and_connections_that_end() {
    needs_far!();
    one_by_one(&[
        ("https://origin.lab/once/reset/object", Whole, &[]),
        ("http://origin.lab/once/reset/object", Whole, &[]),
        ("https://origin.lab/once/calm/object", Whole, &[]),
        ("https://origin.lab/once/goaway-calm/object", Whole, &[]),
        ("https://origin.lab/always/goaway/object", Whole, &[]),
        ("http://origin.lab/always/goaway/object", Whole, &[]),
        ("https://origin.lab/once/refused/object", Whole, &[]),
        ("https://origin.lab/once/closed/object", Whole, &[]),
        ("http://origin.lab/once/closed/object", Whole, &[]),
        ("http://origin.lab/once/half-head/object", Whole, &[]),
        ("https://origin.lab/lte/reset/object", Whole, &[]),
        ("https://origin.lab/lte/calm/object", Whole, &[]),
        ("https://origin.lab/lte/goaway-calm/object", Whole, &[]),
        ("https://origin.lab:445/always/good/object", Whole, &[]),
        ("https://origin.lab:446/always/good/object", OnlyOver(BOTH), &[]),
        ("https://origin.lab:447/always/good/object", OnlyOver(BOTH), &[]),
    ]);
}

// Slow: 13 transfers share the links until they have given up.
#[test]
fn servers_that_never_end_well() {
    needs_far!();
    at_once(&[
        // Without a range, the first response is whole: if lte asks late, it brings all. So with `closed`.
        ("https://origin.lab/ranges/reset/object", WholeOrResumable, &[]),
        ("https://origin.lab/always/hollow/object", Resumable, &["before its announced length"]),
        ("http://origin.lab/always/hollow/object", Resumable, &["before its announced length"]),
        ("https://origin.lab/ranges/closed/object", WholeOrResumable, &[]),
        ("http://origin.lab/ranges/closed/object", WholeOrResumable, &[]),
        ("https://origin.lab/always/closed/object", Fails, &["every network failed ("]),
        ("http://origin.lab/always/closed/object", Fails, &["closed the connection too early"]),
        ("http://origin.lab/always/half-head/object", Fails, &["every network failed ("]),
        ("http://origin.lab/always/babble/object", Fails, &["does not answer in HTTP/1.1"]),
        // A closed port, and HTTP/1.1 instead of HTTP/2 frames.
        ("http://origin.lab:81/always/good/object", Fails, &["connection refused"]),
        ("https://origin.lab:449/always/good/object", Fails, &["every network failed ("]),
        ("https://origin.lab/always/refused/object", Fails, &["refused"]),
        ("http://origin.lab/always/huge-head/object", Fails, &["head is larger than 400 KB"]),
    ]);
}

#[test]
fn statuses_that_bring_nothing() {
    needs_far!();
    one_by_one(&[
        ("https://origin.lab/always/404/object", Fails, &["the server answered 404 Not Found"]),
        ("https://origin.lab/always/401/object", Fails, &["the server answered 401 Unauthorized"]),
        ("https://origin.lab/always/403/object", Fails, &["the server answered 403 Forbidden"]),
        ("https://origin.lab/always/416/object", Fails, &["416 Range Not Satisfiable"]),
        ("https://origin.lab/always/202/object", Fails, &["the server answered 202 Accepted"]),
        (
            "https://origin.lab/lte/401/object",
            OnlyOver(WIFI),
            &["lte is no longer used: the server answered with status 401"],
        ),
        (
            "https://origin.lab/lte/403/object",
            OnlyOver(WIFI),
            &["lte is no longer used: the server answered with status 403"],
        ),
        ("https://origin.lab/wifi/401/object", OnlyOver(&["lte"]), &["wifi is no longer used"]),
        (
            "https://origin.lab/lte/416/object",
            OnlyOver(WIFI),
            &["lte is no longer used: the server has another version of the object there"],
        ),
        ("https://origin.lab/once/503/object", Whole, &[]),
        ("https://origin.lab/lte/503/object", Whole, &[]),
        ("https://origin.lab/lte/429/object", Whole, &[]),
    ]);
}

#[test]
fn a_status_that_stays_ends_the_attempts() {
    needs_far!();
    with(
        "--retry 1",
        &[(
            "https://origin.lab/always/503/object",
            Fails,
            &[
                "status 503; retrying in 1 s (1 of 1)",
                "the server answered 503 Service Unavailable",
            ],
        )],
    );
}

#[test]
fn redirects() {
    needs_far!();
    one_by_one(&[
        ("https://origin.lab/always/away/object", OnlyOver(BOTH), &[]),
        ("http://origin.lab/always/away/object", OnlyOver(BOTH), &[]),
        (
            "https://origin.lab/always/loop/object",
            Fails,
            &["the server redirects more than 10 times"],
        ),
        (
            "https://origin.lab/always/downgrade/object",
            Fails,
            &[
                "the server redirects from https to http://origin.lab/always/good/object, which is not safe",
            ],
        ),
        (
            "https://origin.lab/always/nowhere/object",
            Fails,
            &["the server redirects to an unusable address"],
        ),
        ("https://origin.lab/always/no-location/object", Fails, &["302"]),
        // As URLs that are signed for one client address.
        ("https://origin.lab/always/signed/object", OnlyOver(BOTH), &[]),
        ("http://origin.lab/always/signed/object", OnlyOver(BOTH), &[]),
    ]);
}

/// The caller's size may be wrong; that of the server applies.
// Slow: 24 downloads, one after the other.
#[test]
fn sizes_that_are_wrong() {
    needs_far!();
    for size in ["1000000", "3000000", "1"] {
        with(
            &format!("--size {size}"),
            &[
                ("https://origin.lab/always/good/object", Whole, &[]),
                ("http://origin.lab/always/good/object", Whole, &[]),
                ("https://origin.lab/always/whole/object", Whole, &[]),
                ("http://origin.lab/always/whole/object", Whole, &[]),
                ("https://origin.lab/lte/changed/object", Whole, &[]),
                ("https://origin.lab/always/chunked/object", Whole, &[]),
                ("https://origin.lab/always/404/object", Fails, &["404 Not Found"]),
                ("https://origin.lab/always/signed/object", Whole, &[]),
            ],
        );
    }
}

// Slow: 77 downloads, one after the other.
#[test]
fn every_scheduler_brings_the_right_file() {
    needs_far!();
    for options in [
        "--scheduler fixed-chunk=128KiB",
        "--scheduler msplayer",
        "--scheduler equal-split",
        "--scheduler single",
        "--no-pipelining",
        "--cut-method reset",
        "--single-server",
    ] {
        with(
            options,
            &[
                ("https://origin.lab/always/good/object", Whole, &[]),
                ("http://origin.lab/always/good/object", Whole, &[]),
                ("https://origin.lab/once/less/object", Whole, &[]),
                ("http://origin.lab/once/reset/object", Whole, &[]),
                ("https://origin.lab/ranges/whole/object", Whole, &[]),
                ("https://origin.lab/lte/changed/object", Whole, &[]),
                ("https://origin.lab/lte/403/object", Whole, &[]),
                ("https://origin.lab/always/goaway/object", Whole, &[]),
                ("https://origin.lab/ranges/short-range/object", Whole, &[]),
                ("https://origin.lab/always/signed/object", Whole, &[]),
                ("https://origin.lab/always/chunked/object", Whole, &[]),
            ],
        );
    }
}

/// Only a checksum can reveal it.
#[test]
fn another_object_under_the_same_version() {
    needs_far!();
    with(
        &format!("--checksum sha256:{}", "0".repeat(64)),
        &[(
            "https://origin.lab/lte/secretly-changed/object",
            Fails,
            &["the checksum is wrong: the object's SHA-256 is"],
        )],
    );
}
