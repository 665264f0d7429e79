//! Servers whose objects can be downloaded over only one network.

use crate::needs_far;
use crate::testbed::{TWO_LINKS, Testbed, Transfer};

#[test]
fn one_network_is_used_and_it_is_said() {
    needs_far!();
    let testbed = Testbed::new().with_config(
        "location /bare/ { alias ROOT/; etag off; add_header Last-Modified \"\"; }\n\
         location /whole/ { alias ROOT/; max_ranges 0; }\n\
         location /weak/ { alias ROOT/; etag off; add_header ETag 'W/\"1\"'; \
                           add_header Last-Modified \"\"; }",
    );
    let finished = testbed.run(
        &TWO_LINKS,
        "over() { get --json http://origin.lab/$kind/object 2>said-$kind; }; \
         for kind in bare whole weak; do \
           told said-$kind wifi 'so only one path is used' over && whole || exit 1; \
         done",
    );
    let finished = finished.expect_success();
    for (transfer, (kind, reason)) in Transfer::all(&finished.stdout).iter().zip([
        ("bare", "neither a strong ETag nor a usable Last-Modified, so only one path is used"),
        ("whole", "does not answer range requests, so only one path is used"),
        ("weak", "neither a strong ETag nor a usable Last-Modified, so only one path is used"),
    ]) {
        transfer.assert_paths(&["wifi"]);
        let output = testbed.read(&format!("said-{kind}"));
        assert!(output.contains(reason), "{kind}: {output}");
    }
}

/// Its bytes cannot be distinguished from those of another version, so no part file remains.
#[test]
fn what_has_no_version_is_not_continued() {
    needs_far!("nginx");
    let testbed = Testbed::new()
        .with_config("location /bare/ { alias ROOT/; etag off; add_header Last-Modified \"\";}");
    let finished = testbed.run(
        &TWO_LINKS,
        "stop_at wifi 300000; change lte state=paused; \
         $GET http://origin.lab/bare/object 2>said & come wifi 300000; kill -INT $!; wait $!; \
         echo $? >code; go_on wifi; change lte state=up; ls | grep manyways; \
         first wifi get -c --json http://origin.lab/bare/object 2>again && whole",
    );
    let finished = finished.expect_success();
    Transfer::only(&finished.stdout).assert_paths(&["wifi"]);
    assert_eq!(testbed.read("code"), "1\n");
    assert!(!testbed.read("said").contains("-c"), "{}", testbed.read("said"));
    assert!(
        testbed
            .read("again")
            .contains("no unfinished download exists, so the download starts from")
    );
}
