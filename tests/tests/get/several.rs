//! Several URLs in one command, and files that exist already.

use serde_json::Value;

use crate::needs_far;
use crate::testbed::{OBJECT_LENGTH, SLOW_LINKS, TWO_LINKS, Testbed};

#[test]
fn a_url_that_fails_does_not_hold_up_the_others() {
    needs_far!();
    let testbed = Testbed::new();
    let finished = testbed.run(
        &TWO_LINKS,
        "get --json http://origin.lab/nothing http://origin.lab/object http://nowhere.lab/other \
         2>said; echo $? >code; whole",
    );
    let document: Value =
        serde_json::from_str(&finished.expect_success().stdout).expect("one line of JSON");
    let transfers = document["transfers"].as_array().expect("a list");
    assert_eq!(transfers.len(), 3);
    assert_eq!(transfers[0]["error"]["message"], "the server answered 404 Not Found");
    assert_eq!(transfers[1]["bytes"], OBJECT_LENGTH);
    assert!(transfers[2]["error"]["message"].is_string());
    let output = testbed.read("said");
    assert!(
        output.contains("http://origin.lab/nothing: the server answered 404 Not Found"),
        "{output}"
    );
    assert!(output.contains("manyways: http://nowhere.lab/other: "), "{output}");
    assert_eq!(testbed.read("code"), "1\n");
    assert_eq!(testbed.fetched(), ["object"]);
}

/// A signal ends all of them.
#[test]
fn a_stop_ends_the_whole_command() {
    needs_far!();
    let testbed = Testbed::new();
    let script = "stop_at wifi 300000 lte 300000; \
                  $GET --json http://origin.lab/object http://origin.lab/other >json 2>said & \
                  pid=$!; come wifi 300000; kill -INT $pid; wait $pid; echo $? >code";
    testbed.run(&SLOW_LINKS, script).expect_success();
    let document: Value = serde_json::from_str(&testbed.read("json")).expect("one line of JSON");
    assert_eq!(document["transfers"].as_array().map(Vec::len), Some(1));
    assert!(!testbed.read("said").contains("other:"), "{}", testbed.read("said"));
    assert_eq!(testbed.read("code"), "1\n");
}

/// The server's log shows that there is no request.
#[test]
fn a_file_that_is_there_already_is_not_fetched_again() {
    needs_far!("sha256sum");
    let testbed = Testbed::new();
    let finished = testbed.run(
        &TWO_LINKS,
        "url=http://origin.lab/object; get -q -c $url && whole || exit 1; \
         sum=$(sha256sum object | cut -c-64); before=$(wc -l <$FILES/nginx/access.log); \
         get --json -c --checksum sha256:$sum $url 2>there; echo $? >code; \
         get -q -c --checksum sha256:$(printf '%064d' 7) $url 2>wrong; echo $? >>code; \
         echo $(($(wc -l <$FILES/nginx/access.log) - before)) >asked; \
         echo $sum >sum; : >object; get -q -c $url && whole || exit 1; \
         echo older >object; get -q $url && whole",
    );
    let document: Value =
        serde_json::from_str(&finished.expect_success().stdout).expect("one line of JSON");
    let there = &document["transfers"][0];
    assert_eq!((&there["already_there"], &there["bytes"]), (&true.into(), &0.into()));
    assert_eq!(there["sha256"], testbed.read("sum").trim());
    let output = testbed.read("there");
    assert!(output.contains("object already exists") && output.contains("without -c"), "{output}");
    let wrong = testbed.read("wrong");
    assert!(wrong.contains("its checksum is wrong") && wrong.contains("without -c"), "{wrong}");
    assert_eq!((testbed.read("code"), testbed.read("asked")), ("0\n1\n".into(), "0\n".into()));
}
