//! `--via auto`: networks that a running `manyways steer run` advises.

use serde_json::Value;

use crate::needs_far;
use crate::testbed::{OBJECT_LENGTH, SLOW_LINKS, TWO_LINKS, Testbed, Transfer};

/// `steer` starts a run and waits for its first choice; `end` ends it. `auto` is a download that
/// waits for advice as long as a busy machine needs.
const STEER: &str = r#"
export XDG_STATE_HOME="$FILES/out/state"
steer() {
  manyways steer run --events steered >steer.log 2>&1 & STEER=$!
  eventually grep -qs steer-choice steered
}
end() { kill -INT $STEER; wait $STEER || exit 97; }
AUTO="$GET --via auto --advice-timeout 60s --json"
received() { cat /sys/class/net/$1/statistics/rx_bytes; }
"#;

#[test]
fn a_download_uses_both_networks_for_the_shortest_time_and_the_preferred_one() {
    needs_far!("ip", "nft");
    let testbed = Testbed::new();
    let script = format!(
        r#"{STEER}
        steer
        is_both() {{
            manyways steer why origin.lab --size {OBJECT_LENGTH} --both --goal fast --json |
                grep -q '"decision":.*"networks":\["\(wifi","lte\|lte","wifi\)"\],"reason"'
        }}
        eventually is_both
        both $AUTO --goal fast --size {OBJECT_LENGTH} https://origin.lab/object >fast 2>said-fast
        whole || exit 9
        manyways steer prefer lte --for 10m
        before=$(received wifi)
        $AUTO --events events https://origin.lab/object >lte 2>said-lte && whole || exit 9
        echo $(($(received wifi) - before)) >counted
        # Four downloads make the sizes of an application known.
        head -c 9000 "$FILES/root/object" >"$FILES/root/small"
        for number in 1 2 3 4; do $AUTO -q https://origin.lab/small >more || exit 9; done
        manyways steer why origin.lab --app 'manyways get' --json >why
        end"#
    );
    testbed.run(&TWO_LINKS, &script).expect_success();
    Transfer::only(&testbed.read("fast")).assert_paths(&["wifi", "lte"]);
    let said = testbed.read("said-fast");
    assert!(said.contains(" advised\n"), "{said}");
    let lte = Transfer::only(&testbed.read("lte"));
    lte.assert_paths(&["lte"]);
    assert_eq!(lte.path("wifi")["requests"], 0);
    // Pings of `steer run` use Wi-Fi too.
    let counted: u64 = testbed.read("counted").trim().parse().expect("a number");
    assert!(counted < 100_000, "{counted}");
    assert!(testbed.read("said-lte").starts_with("manyways: lte is advised\n"));
    let events = testbed.read("events");
    let states: Vec<&str> = events.lines().filter(|line| line.contains("path-state")).collect();
    assert_eq!(states.len(), 1, "{states:?}");
    assert!(states[0].contains(r#""path":"lte","state":"up""#), "{states:?}");
    // Downloads that have ended are known to later ones.
    let why: Value = serde_json::from_str(&testbed.read("why")).expect("JSON");
    assert_eq!(why["sizes"]["source"], "app-and-host", "{why}");
}

#[test]
fn a_preference_moves_a_running_download() {
    needs_far!("ip", "nft");
    let testbed = Testbed::new();
    // LTE answers slowly from 300 KB on: the download would take minutes there.
    let script = format!(
        r#"{STEER}
        steer
        manyways steer prefer lte --for 10m
        change --when 'lte.down_bytes >= 300KB' lte down=50kbit
        $AUTO --events events https://origin.lab/object >json 2>said & pid=$!
        come lte 300000
        grep -q joined said && exit 9
        manyways steer prefer wifi --for 10m
        eventually grep -q 'lte left as advised' said
        wait $pid && whole || exit 9
        end"#
    );
    testbed.run(&SLOW_LINKS, &script).expect_success();
    let said = testbed.read("said");
    let lines: Vec<&str> = said.lines().take(3).collect();
    assert_eq!(
        lines,
        [
            "manyways: lte is advised",
            "manyways: wifi joined as advised",
            "manyways: lte left as advised",
        ]
    );
    let transfer = Transfer::only(&testbed.read("json"));
    transfer.assert_paths(&["wifi", "lte"]);
    assert!(transfer.bytes("lte") < 1_000_000, "{transfer:?}");
    let events = testbed.read("events");
    assert!(events.contains(r#""path":"lte","state":"down","reason":"not advised""#), "{events}");
}

#[test]
fn without_advice_all_networks_are_used() {
    needs_far!("ip", "nft");
    let testbed = Testbed::new();
    let script = format!(
        r#"{STEER}
        both $AUTO https://origin.lab/object >none 2>said-none && whole || exit 9
        steer
        kill -STOP $STEER
        both $GET --via auto --advice-timeout 10ms --json https://origin.lab/object >silent \
            2>said-silent
        whole || exit 9
        kill -CONT $STEER
        $AUTO -q http://localhost:1/ -o nothing >local 2>said-local && exit 8
        end"#
    );
    testbed.run(&TWO_LINKS, &script).expect_success();
    for name in ["none", "silent"] {
        Transfer::only(&testbed.read(name)).assert_paths(&["wifi", "lte"]);
    }
    let said = testbed.read("said-none");
    let words = "manyways: no `manyways steer run` runs here: all networks are used\n";
    assert!(said.starts_with(words), "{said}");
    let said = testbed.read("said-silent");
    assert!(said.lines().next().is_some_and(|line| line.ends_with(": all networks are used")));
    // There is nothing to advise on the loopback interface.
    assert!(!testbed.read("said-local").contains("advise"));
}
