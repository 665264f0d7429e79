//! Transfers that fail because no network delivers anything for a minute. Tests start in the order of
//! their names: these take the longest, so their module comes first.

use crate::faulty::Expected::{Fails, Whole};
use crate::faulty::at_once;
use crate::needs_far;
use crate::path_failures::simulate_change;
use crate::testbed::{OBJECT_LENGTH, Testbed, Transfer};

/// Links that are slow enough that both can fail during a transfer on a busy machine.
const LINKS: [&str; 4] =
    ["--link", "wifi:down=3mbit,up=2mbit,delay=4ms", "--link", "lte:down=2mbit,up=2mbit,delay=9ms"];

/// No event reports the failure of a network: it just delivers no bytes.
// Slow: a transfer that receives nothing fails after 60 s.
#[test]
fn both_networks_silent() {
    needs_far!();
    let testbed = Testbed::new();
    let silence = "manyways lab set --lab $LAB_NAME wifi state=silent && \
                   manyways lab set --lab $LAB_NAME lte state=silent";
    let script = format!(
        "$GET --json https://origin.lab/object >json 2>said & pid=$!; \
         come wifi 300000; come lte 200000; {silence}; wait $pid; echo $? >code; \
         test -e object && exit 8; \
         manyways lab set --lab $LAB_NAME wifi state=up && \
         manyways lab set --lab $LAB_NAME lte state=up && \
         get -c --json https://origin.lab/object >rest && whole"
    );
    testbed.run(&LINKS, &script).expect_success();
    let (code, output) = (testbed.read("code"), testbed.read("said"));
    assert_eq!(code, "1\n", "{output}");
    assert!(output.contains("no data arrived over any network for 10 s; waiting for"), "{output}");
    assert!(output.contains("no data arrived over any network for 60 s\n"), "{output}");
    assert!(output.contains("hint: run the same command with -c to continue"), "{output}");
    let came = Transfer::only(&testbed.read("json")).number("bytes");
    assert_eq!(Transfer::only(&testbed.read("rest")).number("bytes"), OBJECT_LENGTH - came);
}

// Slow: a transfer without a network fails after 60 s.
#[test]
fn when_all_are_gone_the_rest_can_come_later() {
    needs_far!();
    let testbed = Testbed::new();
    let set = simulate_change(
        "manyways lab set --lab $LAB_NAME wifi state=no-carrier && manyways lab set --lab $LAB_NAME lte state=no-carrier",
    );
    let script = format!(
        "{set}; test -e object && exit 1; ls; \
         manyways lab set --lab $LAB_NAME wifi state=up && manyways lab set --lab $LAB_NAME lte state=up && \
         eventually manyways paths >/dev/null && \
         eventually get -c --json https://origin.lab/object >rest 2>again && whole"
    );
    testbed.run(&LINKS, &script).expect_success();
    let output = testbed.read("said");
    assert_eq!(testbed.read("code"), "1\n", "{output}");
    assert!(output.contains("run the same command with -c to continue"), "{output}");
    let failed = Transfer::only(&testbed.read("json"));
    assert_eq!(failed.0["error"]["resumable"], true);
    let came = failed.number("bytes");
    let rest = Transfer::all(&testbed.read("rest")).pop().expect("it came");
    assert!(came > 400_000, "{failed:?}");
    assert_eq!(rest.number("bytes"), OBJECT_LENGTH - came);
}

// Slow: a transfer that receives nothing fails after 60 s.
#[test]
fn ends_that_do_not_end() {
    needs_far!();
    at_once(&[
        ("https://origin.lab/lte/stops/object?1", Whole, &[]),
        ("http://origin.lab/lte/stops/object?1", Whole, &[]),
        ("https://origin.lab/wifi/stops/object?2", Whole, &[]),
        ("https://origin.lab/lte/head-only/object", Whole, &[]),
        ("https://origin.lab/wifi/no-head/object", Whole, &[]),
        ("http://origin.lab/lte/no-head/object", Whole, &[]),
        ("https://origin.lab/once/stops/object?3", Whole, &[]),
        ("https://origin.lab/always/head-only/object", Fails, &["no data arrived for"]),
        ("http://origin.lab/always/no-head/object", Fails, &["no data arrived for"]),
        ("https://origin.lab:448/always/good/object", Fails, &["no connection within 15 s"]),
    ]);
}
