//! `-c` after a kill, a stop, and a change of the object.

use crate::needs_far;
use crate::testbed::{OBJECT_LENGTH, SLOW_LINKS, Testbed, Transfer};

/// Kills a transfer after a number of bytes over Wi-Fi, when the resume file lists most of them:
/// the disk of a loaded machine may be late.
fn killed(signal: &str, bytes: u32) -> String {
    let kept = if bytes < 100_000 { 0 } else { bytes / 10 * 9 };
    format!(
        "before=$(cat /sys/class/net/wifi/statistics/rx_bytes); stop_at wifi {bytes} lte {bytes}; \
         $GET https://origin.lab/object 2>said & pid=$!; come wifi {bytes} $before; \
         until_kept object.manyways {kept}; kill -{signal} $pid; wait $pid; echo $? >code; go_on wifi lte; "
    )
}

#[test]
fn after_a_kill_at_any_point() {
    needs_far!();
    let testbed = Testbed::new();
    let points = [20_000, 300_000, 700_000, 1_000_000];
    let script: String = points
        .iter()
        .map(|bytes| {
            let killed = killed("KILL", *bytes);
            format!(
                "{killed} test -e object && exit 1; get -c --json https://origin.lab/object && whole && rm object || exit 1; "
            )
        })
        .collect();
    let finished = testbed.run(&SLOW_LINKS, &script).expect_success();
    let came: Vec<u64> =
        Transfer::all(&finished.stdout).iter().map(|transfer| transfer.number("bytes")).collect();
    assert_eq!(came.len(), points.len());
    // Only bytes that were not flushed to the disk are downloaded again.
    assert!(came[0] <= OBJECT_LENGTH, "{came:?}");
    for (came, killed_after) in came.iter().zip(points).skip(1) {
        assert!(*came < OBJECT_LENGTH, "{came} after {killed_after}");
    }
    assert!(came[3] < came[1], "{came:?}");
}

/// The server's log shows that `-c` requests only the missing ranges.
#[test]
fn after_a_stop_only_the_rest_is_asked_for() {
    needs_far!();
    for (signal, bytes) in [("INT", 500_000), ("TERM", 900_000)] {
        let testbed = Testbed::new();
        let script = format!(
            "{} get -H 'User-Agent: again' -c --json https://origin.lab/object && whole",
            killed(signal, bytes)
        );
        let finished = testbed.run(&SLOW_LINKS, &script).expect_success();
        assert_eq!(testbed.read("code"), "1\n");
        let output = testbed.read("said");
        assert!(output.contains("stopped before the end"), "{output}");
        assert!(output.contains("run the same command with -c to continue"), "{output}");
        let rest = Transfer::only(&finished.stdout);
        let missing = rest.number("bytes");
        assert!(missing <= OBJECT_LENGTH - u64::from(bytes) * 9 / 10, "{missing} after {bytes}");
        // nginx may log an interrupted request only after the end of its connection.
        assert!(testbed.sent_to("again") > 0, "the log is no witness");
        assert!(
            testbed.sent_to("again") < OBJECT_LENGTH,
            "{} of {missing}",
            testbed.sent_to("again")
        );
        assert_eq!(testbed.fetched(), ["object"]);
    }
}

#[test]
fn an_object_that_changed_meanwhile_is_not_mixed() {
    needs_far!();
    let testbed = Testbed::new();
    let script = format!(
        "{} head -c 2000001 /dev/urandom >$FILES/root/new; touch -d '-1 hour 1 minute' $FILES/root/new; \
         mv $FILES/root/new $FILES/root/object; \
         get -c https://origin.lab/object 2>changed; echo $? >code; test -e object && exit 1; \
         get -c https://origin.lab/object 2>again && exit 1; \
         get https://origin.lab/object 2>anew && whole",
        killed("KILL", 700_000)
    );
    testbed.run(&SLOW_LINKS, &script).expect_success();
    assert_eq!(testbed.read("code"), "1\n");
    for said in ["changed", "again"] {
        let output = testbed.read(said);
        assert!(output.contains("the object has changed on the server"), "{output}");
        assert!(output.contains("run it without -c to fetch the new version"), "{output}");
    }
    let anew = testbed.read("anew");
    assert!(anew.contains("is discarded; -c would have continued it"), "{anew}");
    assert_eq!(testbed.fetched(), ["object"]);
}
