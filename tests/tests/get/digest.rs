//! The received object must match the server's `Repr-Digest` (RFC 9530).

use std::process::Command;

use manyways_tests::finish;

use crate::far::{Far, SLOW_LINKS, TWO_LINKS, Transfer};
use crate::needs_far;

/// A SHA-256 digest in the header's encoding: of the empty object.
const OF_NOTHING: &str = "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=";

/// A server whose nginx adds these headers to every 200 and 206.
fn announcing(headers: &[(&str, String)]) -> Far {
    let lines = headers.iter().map(|(name, value)| format!("    add_header {name} '{value}';\n"));
    Far::new().more(&lines.collect::<String>())
}

fn of_object() -> String {
    let far = Far::new();
    let script = "openssl dgst -sha256 -binary \"$0\" | openssl base64 -A";
    let seen = finish(Command::new("sh").args(["-c", script]).arg(far.path("root/object")));
    seen.succeeded().stdout.trim().to_owned()
}

#[test]
fn the_right_one_is_believed() {
    needs_far!("openssl");
    let right = of_object();
    let far = announcing(&[("Repr-Digest", format!("md5=:AAAA:, sha-256=:{right}:"))]);
    let script = "for url in https://origin.lab http://origin.lab; do \
                    get --json $url/object && whole && rm object || exit 1; \
                  done; get -q -o - https://origin.lab/object >object && whole";
    let seen = far.run(&TWO_LINKS, script).succeeded();
    for transfer in Transfer::all(&seen.stdout) {
        transfer.came_over(&["wifi", "lte"]);
        // Without a request for it, the report has no checksum.
        assert!(transfer.0["sha256"].is_null(), "{transfer:?}");
    }
}

#[test]
fn a_wrong_one_is_an_error_and_leaves_nothing() {
    needs_far!("openssl", "sha256sum");
    let far = announcing(&[("Repr-Digest", format!("sha-256=:{OF_NOTHING}:"))]);
    let script = "for url in https://origin.lab http://origin.lab; do \
                    get $url/object 2>said; echo $? >>code; \
                  done; ls | grep object; \
                  get -q -o - https://origin.lab/object >object 2>read; echo $? >>code; rm object; \
                  get -q -o /dev/null https://origin.lab/object || exit 1; \
                  sum=$(sha256sum <$FILES/root/object | cut -c-64); \
                  get -q --checksum sha256:$sum https://origin.lab/object && whole";
    let seen = far.run(&TWO_LINKS, script).succeeded();
    assert_eq!(seen.stdout, "");
    assert_eq!(far.read("code"), "1\n1\n1\n");
    for said in ["said", "read"] {
        let said = far.read(said);
        assert!(said.contains("the server announced e3b0c44298fc"), "{said}");
        assert!(said.contains("hint: "), "{said}");
    }
}

/// Every response of the second run is a 206; its header still applies to the whole object.
#[test]
fn a_download_that_goes_on_is_compared_as_a_whole() {
    needs_far!("openssl");
    let begun = "$GET -q https://origin.lab/object 2>said & pid=$!; come wifi 500000; kill -INT $pid; \
                 wait $pid; test -e object.manyways || exit 7; ";
    let right = announcing(&[("Repr-Digest", format!("sha-256=:{}:", of_object()))]);
    right
        .run(&SLOW_LINKS, &format!("{begun} get -q -c https://origin.lab/object && whole"))
        .succeeded();
    let wrong = announcing(&[("Repr-Digest", format!("sha-256=:{OF_NOTHING}:"))]);
    let script = format!("{begun} get -c https://origin.lab/object 2>again; echo $? >code");
    wrong.run(&SLOW_LINKS, &script).succeeded();
    assert_eq!(wrong.read("code"), "1\n");
    assert!(wrong.read("again").contains("Repr-Digest"), "{}", wrong.read("again"));
    assert_eq!(wrong.fetched(), [""; 0]);
}

#[test]
fn what_says_nothing_about_the_whole_does_not_count() {
    needs_far!("openssl");
    let nothing = format!("sha-256=:{OF_NOTHING}:");
    for (name, value) in [
        ("Content-Digest", nothing.clone()),
        ("Repr-Digest", nothing.replace("sha-256", "sha-512")),
        ("Repr-Digest", "sha-256=?".to_owned()),
        ("Repr-Digest", "sha-256=:AAAA:".to_owned()),
    ] {
        let far = announcing(&[(name, value.clone())]);
        let seen = far.run(&TWO_LINKS, "get -q https://origin.lab/object && whole");
        assert!(seen.status.success(), "{name}: {value}: {}", seen.stderr);
    }
}
