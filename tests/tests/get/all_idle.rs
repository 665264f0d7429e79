//! Transfers that fail because no network delivers anything for a while.

use crate::faulty::Expected::{Fails, Whole};
use crate::faulty::{Case, at_once, at_once_with};
use crate::needs_far;
use crate::path_failures::simulate_change_with;
use crate::testbed::{OBJECT_LENGTH, Testbed, Transfer};

/// Links that are slow enough that both can fail during a transfer on a busy machine.
const LINKS: [&str; 4] =
    ["--link", "wifi:down=3mbit,up=2mbit,delay=4ms", "--link", "lte:down=2mbit,up=2mbit,delay=9ms"];

/// No event reports the failure of a network: it just delivers no bytes.
#[test]
fn both_networks_silent() {
    needs_far!();
    let testbed = Testbed::new();
    let script = "stop_at wifi 300000 lte 200000; \
                  $GET --json --idle-timeout 12s https://origin.lab/object >json 2>said & pid=$!; \
                  come wifi 300000; come lte 200000; \
                  change wifi state=silent; change lte state=silent; wait $pid; echo $? >code; \
                  test -e object && exit 8; \
                  go_on wifi lte; \
                  get -c --json https://origin.lab/object >rest && whole";
    testbed.run(&LINKS, script).expect_success();
    let (code, output) = (testbed.read("code"), testbed.read("said"));
    assert_eq!(code, "1\n", "{output}");
    let told = output.lines().filter_map(|line| {
        let (seconds, rest) =
            line.split_once("no data arrived over any network for ")?.1.split_once(" s")?;
        Some((seconds.parse::<u32>().expect("a number"), rest.starts_with("; waiting for")))
    });
    let [(first, true), .., (last, false)] = told.collect::<Vec<_>>()[..] else {
        panic!("{output}")
    };
    assert!(first >= 10 && last >= 12, "{output}");
    assert!(output.contains("hint: run the same command with -c to continue"), "{output}");
    let came = Transfer::only(&testbed.read("json")).number("bytes");
    assert_eq!(Transfer::only(&testbed.read("rest")).number("bytes"), OBJECT_LENGTH - came);
}

#[test]
fn when_all_are_gone_the_rest_can_come_later() {
    needs_far!();
    let testbed = Testbed::new();
    let set = simulate_change_with(
        "--idle-timeout 12s",
        "until_kept object.manyways 200001; change wifi state=no-carrier; change lte state=no-carrier",
    );
    let script = format!(
        "{set}; test -e object && exit 1; ls; \
         go_on wifi lte; \
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
    assert!(came > 200_000, "{failed:?}");
    assert_eq!(rest.number("bytes"), OBJECT_LENGTH - came);
}

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
    ]);
}

// Slow: failures after 15 s and 25 s.
#[test]
fn ends_that_never_end() {
    needs_far!();
    let cases: [Case; 3] = [
        ("https://origin.lab/always/head-only/object", Fails, &["no data arrived for"]),
        ("http://origin.lab/always/no-head/object", Fails, &["no data arrived for"]),
        ("https://origin.lab:448/always/good/object", Fails, &["no connection within 15 s"]),
    ];
    at_once_with("--idle-timeout 25s", &cases);
}
