//! The received object must match the server's `Repr-Digest` (RFC 9530).

use std::process::Command;

use manyways_tests::finish;

use crate::needs_far;
use crate::testbed::{SLOW_LINKS, TWO_LINKS, Testbed, Transfer};

/// A SHA-256 digest in the header's encoding: of the empty object.
const EMPTY_DIGEST: &str = "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=";

/// A server whose nginx adds these headers to every 200 and 206.
fn server_with_headers(headers: &[(&str, String)]) -> Testbed {
    let lines = headers.iter().map(|(name, value)| format!("    add_header {name} '{value}';\n"));
    Testbed::new().with_config(&lines.collect::<String>())
}

fn object_digest() -> String {
    let testbed = Testbed::new();
    let script = "openssl dgst -sha256 -binary \"$0\" | openssl base64 -A";
    let finished = finish(Command::new("sh").args(["-c", script]).arg(testbed.path("root/object")));
    finished.expect_success().stdout.trim().to_owned()
}

#[test]
fn the_right_one_is_believed() {
    needs_far!("openssl");
    let right = object_digest();
    let testbed = server_with_headers(&[("Repr-Digest", format!("md5=:AAAA:, sha-256=:{right}:"))]);
    let script = "for url in https://origin.lab http://origin.lab; do \
                    both get --json $url/object && whole && rm object || exit 1; \
                  done; get -q -o - https://origin.lab/object >object && whole";
    let finished = testbed.run(&TWO_LINKS, script).expect_success();
    for transfer in Transfer::all(&finished.stdout) {
        transfer.assert_paths(&["wifi", "lte"]);
        // Without a request for it, the report has no checksum.
        assert!(transfer.0["sha256"].is_null(), "{transfer:?}");
    }
}

#[test]
fn a_wrong_one_is_an_error_and_leaves_nothing() {
    needs_far!("openssl", "sha256sum");
    let testbed = server_with_headers(&[("Repr-Digest", format!("sha-256=:{EMPTY_DIGEST}:"))]);
    let script = "for url in https://origin.lab http://origin.lab; do \
                    get $url/object 2>said; echo $? >>code; \
                  done; ls | grep object; \
                  get -q -o - https://origin.lab/object >object 2>read; echo $? >>code; rm object; \
                  get -q -o /dev/null https://origin.lab/object || exit 1; \
                  sum=$(sha256sum <$FILES/root/object | cut -c-64); \
                  get -q --checksum sha256:$sum https://origin.lab/object && whole";
    let finished = testbed.run(&TWO_LINKS, script).expect_success();
    assert_eq!(finished.stdout, "");
    assert_eq!(testbed.read("code"), "1\n1\n1\n");
    for said in ["said", "read"] {
        let output = testbed.read(said);
        assert!(output.contains("the server announced e3b0c44298fc"), "{output}");
        assert!(output.contains("hint: "), "{output}");
    }
}

/// Every response of the second run is a 206; its header still applies to the whole object.
#[test]
fn a_download_that_goes_on_is_compared_as_a_whole() {
    needs_far!("openssl");
    let begun = "stop_at wifi 500000 lte 500000; $GET -q https://origin.lab/object 2>said & pid=$!; \
                 come wifi 500000; kill -INT $pid; wait $pid; test -e object.manyways || exit 7; \
                 go_on wifi lte; ";
    let right = server_with_headers(&[("Repr-Digest", format!("sha-256=:{}:", object_digest()))]);
    right
        .run(&SLOW_LINKS, &format!("{begun} get -q -c https://origin.lab/object && whole"))
        .expect_success();
    let wrong = server_with_headers(&[("Repr-Digest", format!("sha-256=:{EMPTY_DIGEST}:"))]);
    let script = format!("{begun} get -c https://origin.lab/object 2>again; echo $? >code");
    wrong.run(&SLOW_LINKS, &script).expect_success();
    assert_eq!(wrong.read("code"), "1\n");
    assert!(wrong.read("again").contains("Repr-Digest"), "{}", wrong.read("again"));
    assert_eq!(wrong.fetched(), [""; 0]);
}

#[test]
fn what_says_nothing_about_the_whole_does_not_count() {
    needs_far!("openssl");
    let nothing = format!("sha-256=:{EMPTY_DIGEST}:");
    for (name, value) in [
        ("Content-Digest", nothing.clone()),
        ("Repr-Digest", nothing.replace("sha-256", "sha-512")),
        ("Repr-Digest", "sha-256=?".to_owned()),
        ("Repr-Digest", "sha-256=:AAAA:".to_owned()),
    ] {
        let testbed = server_with_headers(&[(name, value.clone())]);
        let finished = testbed.run(&TWO_LINKS, "get -q https://origin.lab/object && whole");
        assert!(finished.status.success(), "{name}: {value}: {}", finished.stderr);
    }
}
