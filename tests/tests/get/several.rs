//! Several URLs in one command, and files that exist already.

use serde_json::Value;

use crate::far::{Far, LENGTH, SLOW_LINKS, TWO_LINKS};
use crate::needs_far;

#[test]
fn a_url_that_fails_does_not_hold_up_the_others() {
    needs_far!();
    let far = Far::new();
    let seen = far.run(
        &TWO_LINKS,
        "get --json http://origin.lab/nothing http://origin.lab/object http://nowhere.lab/other \
         2>said; echo $? >code; whole",
    );
    let document: Value = serde_json::from_str(&seen.succeeded().stdout).expect("one line of JSON");
    let transfers = document["transfers"].as_array().expect("a list");
    assert_eq!(transfers.len(), 3);
    assert_eq!(transfers[0]["error"]["message"], "the server answered 404 Not Found");
    assert_eq!(transfers[1]["bytes"], LENGTH);
    assert!(transfers[2]["error"]["message"].is_string());
    let said = far.read("said");
    assert!(
        said.contains("http://origin.lab/nothing: the server answered 404 Not Found"),
        "{said}"
    );
    assert!(said.contains("manyways: http://nowhere.lab/other: "), "{said}");
    assert_eq!(far.read("code"), "1\n");
    assert_eq!(far.fetched(), ["object"]);
}

/// A signal ends all of them.
#[test]
fn a_stop_ends_the_whole_command() {
    needs_far!();
    let far = Far::new();
    let script = "$GET --json http://origin.lab/object http://origin.lab/other >json 2>said & \
                  pid=$!; come wifi 300000; kill -INT $pid; wait $pid; echo $? >code";
    far.run(&SLOW_LINKS, script).succeeded();
    let document: Value = serde_json::from_str(&far.read("json")).expect("one line of JSON");
    assert_eq!(document["transfers"].as_array().map(Vec::len), Some(1));
    assert!(!far.read("said").contains("other:"), "{}", far.read("said"));
    assert_eq!(far.read("code"), "1\n");
}

/// The server's log shows that there is no request.
#[test]
fn a_file_that_is_there_already_is_not_fetched_again() {
    needs_far!("sha256sum");
    let far = Far::new();
    let seen = far.run(
        &TWO_LINKS,
        "url=http://origin.lab/object; get -q -c $url && whole || exit 1; \
         sum=$(sha256sum object | cut -c-64); before=$(wc -l <$FILES/nginx/access.log); \
         get --json -c --checksum sha256:$sum $url 2>there; echo $? >code; \
         get -q -c --checksum sha256:$(printf '%064d' 7) $url 2>wrong; echo $? >>code; \
         echo $(($(wc -l <$FILES/nginx/access.log) - before)) >asked; \
         echo $sum >sum; : >object; get -q -c $url && whole || exit 1; \
         echo older >object; get -q $url && whole",
    );
    let document: Value = serde_json::from_str(&seen.succeeded().stdout).expect("one line of JSON");
    let there = &document["transfers"][0];
    assert_eq!((&there["already_there"], &there["bytes"]), (&true.into(), &0.into()));
    assert_eq!(there["sha256"], far.read("sum").trim());
    let said = far.read("there");
    assert!(said.contains("object already exists") && said.contains("without -c"), "{said}");
    let wrong = far.read("wrong");
    assert!(wrong.contains("its checksum is wrong") && wrong.contains("without -c"), "{wrong}");
    assert_eq!((far.read("code"), far.read("asked")), ("0\n1\n".into(), "0\n".into()));
}
