//! Networks that fail during a transfer.

use crate::needs_far;
use crate::testbed::{SLOW_LINKS, Testbed, Transfer};

/// Starts a download, and changes the links once both have delivered bytes.
pub fn simulate_change(then: &str) -> String {
    simulate_change_with("", then)
}

/// The same with options of the command.
pub fn simulate_change_with(options: &str, then: &str) -> String {
    format!(
        "stop_at wifi 300000 lte 200000; \
         $GET {options} --json https://origin.lab/object >json 2>said & pid=$!; \
         come wifi 300000; come lte 200000; {then}; wait $pid; echo $? >code"
    )
}

#[test]
fn a_network_that_goes_silent_or_loses_its_carrier() {
    needs_far!();
    for (link, state, other) in [("wifi", "silent", "lte"), ("lte", "no-carrier", "wifi")] {
        let testbed = Testbed::new();
        let set = simulate_change(&format!("change {link} state={state}; go_on {other}"));
        testbed.run(&SLOW_LINKS, &format!("{set}; whole")).expect_success();
        assert_eq!(testbed.read("code"), "0\n", "{link} {state}: {}", testbed.read("said"));
        Transfer::only(&testbed.read("json")).assert_paths(&["wifi", "lte"]);
    }
}

#[test]
fn a_network_that_comes_back_is_used_again() {
    needs_far!();
    let testbed = Testbed::new();
    // Wi-Fi delivers a part, and the rest after LTE has come back.
    let script = "stop_at wifi 300000; change --when 'lte.down_bytes >= 100KB' lte state=no-carrier; \
         $GET --json https://origin.lab/object >json 2>said & pid=$!; \
         eventually grep -q 'lte is gone' said; come wifi 300000; \
         start=$(cat /sys/class/net/lte/statistics/rx_bytes); \
         change lte state=up; come lte 300000 $start; go_on wifi; wait $pid && whole";
    testbed.run(&SLOW_LINKS, script).expect_success();
    Transfer::only(&testbed.read("json")).assert_paths(&["wifi", "lte"]);
}

/// The server overwrites the object in place, so that the responses in progress continue with bytes
/// of the new version, or replaces the file. The download begins again with the new version.
#[test]
fn an_object_that_changes_under_way() {
    needs_far!();
    let root = "$FILES/root";
    for change in [
        format!("dd if={root}/new of={root}/object conv=notrunc status=none"),
        format!("mv {root}/new {root}/object"),
    ] {
        for url in ["https://origin.lab/object", "http://origin.lab/object"] {
            let testbed = Testbed::new();
            // The modification time has a resolution of a second.
            let script = format!(
                "touch -d 2020-01-01 {root}/object; head -c 2000001 /dev/urandom >{root}/new; \
                 stop_at wifi 300000 lte 200000; $GET --json {url} >json 2>said & pid=$!; \
                 come wifi 300000; come lte 200000; {change}; go_on wifi lte; wait $pid && whole"
            );
            testbed.run(&SLOW_LINKS, &script).expect_success();
            let said = testbed.read("said");
            assert!(said.contains("begins again with the new version"), "{change}: {said}");
            Transfer::only(&testbed.read("json")).assert_paths(&["wifi", "lte"]);
        }
    }
}
