//! Servers whose objects can be downloaded over only one network.

use crate::far::{Far, TWO_LINKS, Transfer};
use crate::needs_far;

#[test]
fn one_network_is_used_and_it_is_said() {
    needs_far!();
    let far = Far::new().more(
        "location /bare/ { alias ROOT/; etag off; add_header Last-Modified \"\"; }\n\
         location /whole/ { alias ROOT/; max_ranges 0; }\n\
         location /weak/ { alias ROOT/; etag off; add_header ETag 'W/\"1\"'; \
                           add_header Last-Modified \"\"; }",
    );
    let seen = far.run(
        &TWO_LINKS,
        "for kind in bare whole weak; do \
           get --json http://origin.lab/$kind/object 2>said-$kind && whole || exit 1; \
         done",
    );
    let seen = seen.succeeded();
    for (transfer, (kind, why)) in Transfer::all(&seen.stdout).iter().zip([
        ("bare", "neither a strong ETag nor a usable Last-Modified, so only one path is used"),
        ("whole", "does not answer range requests, so only one path is used"),
        ("weak", "neither a strong ETag nor a usable Last-Modified, so only one path is used"),
    ]) {
        transfer.came_over(&["wifi"]);
        let said = far.read(&format!("said-{kind}"));
        assert!(said.contains(why), "{kind}: {said}");
    }
}

/// Its bytes cannot be distinguished from those of another version, so no part file remains.
#[test]
fn what_has_no_version_is_not_continued() {
    needs_far!("nginx");
    let far = Far::new().more(
        "location /bare/ { alias ROOT/; etag off; add_header Last-Modified \"\"; limit_rate 400k; }",
    );
    let seen = far.run(
        &TWO_LINKS,
        "$GET http://origin.lab/bare/object 2>said & come wifi 300000; kill -INT $!; wait $!; \
         echo $? >code; ls | grep manyways; get -c --json http://origin.lab/bare/object 2>again && whole",
    );
    let seen = seen.succeeded();
    Transfer::only(&seen.stdout).came_over(&["wifi"]);
    assert_eq!(far.read("code"), "1\n");
    assert!(!far.read("said").contains("-c"), "{}", far.read("said"));
    assert!(far.read("again").contains("no unfinished download to continue, so it begins anew"));
}
