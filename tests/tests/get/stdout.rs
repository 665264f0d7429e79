//! `-o -`: the object is written to standard output in order, at the speed of the reader.

use std::fs;

use manyways_tests::object;

use crate::needs_far;
use crate::testbed::{OBJECT_LENGTH, SLOW_LINKS, TWO_LINKS, Testbed};

/// Links that are fast enough to deliver a large amount while the reader waits.
const FAST_LINKS: [&str; 4] = [
    "--link",
    "wifi:down=300mbit,up=50mbit,delay=2ms",
    "--link",
    "lte:down=200mbit,up=50mbit,delay=5ms",
];
/// More bytes than `get` buffers for a reader.
const LARGE: u64 = 48_000_000;
/// Limits the unread bytes of a connection in the kernel to 4 MB. A lab permits 64 MB, and HTTP/1.1 has
/// no other limit: of a first response without an end, a `get` that waits for a processor would find
/// many bytes past the cut, and discard them.
const SMALL_BUFFERS: &str = "echo '4096 131072 4194304' >/proc/sys/net/ipv4/tcp_rmem";

#[test]
fn in_order_over_both_networks() {
    needs_far!();
    let testbed = Testbed::new();
    let urls = ["https://origin.lab/object", "http://origin.lab/object"];
    for (nth, url) in urls.iter().enumerate() {
        testbed
            .run(&TWO_LINKS, &format!("both get -o - {url} >object 2>said-{nth} && whole"))
            .expect_success();
        let output = testbed.read(&format!("said-{nth}"));
        assert!(output.contains("standard output: 2 MB in "), "{output}");
        for name in ["wifi", "lte"] {
            let line = output.lines().find(|line| line.trim_start().starts_with(name));
            assert!(line.is_some_and(|line| !line.contains("not used")), "{output}");
        }
    }
}

#[test]
fn several_urls_follow_each_other() {
    needs_far!();
    let testbed = Testbed::new();
    object(&testbed.path("root"), "second", 300_001, 12);
    let script = "cat $FILES/root/object $FILES/root/second $FILES/root/object >wanted; \
                  get -q -o - https://origin.lab/object http://origin.lab/second \
                    https://origin.lab/object >came && same came wanted";
    testbed.run(&TWO_LINKS, script).expect_success();
}

/// The interface counters show the received bytes while the reader waits.
#[test]
fn a_reader_that_waits_holds_the_servers_back() {
    needs_far!();
    let testbed = Testbed::new();
    object(&testbed.path("root"), "large", LARGE, 13);
    for url in ["https://origin.lab/large", "http://origin.lab/large"] {
        // Time: between two looks at a counter. If a busy machine delivers nothing in between, the
        // upper bound below is checked too early, and holds all the same.
        let script = format!(
            "{SMALL_BUFFERS}; rx() {{ cat /sys/class/net/wifi/statistics/rx_bytes \
                         /sys/class/net/lte/statistics/rx_bytes | {{ read a; read b; echo $((a + b)); }}; }}; \
             quiet() {{ before=$(rx); [ $before -gt 4000000 ] && sleep 0.3 && \
                        [ $(($(rx) - before)) -lt 20000 ]; }}; \
             rm -f pipe; mkfifo pipe; $GET -q -o - {url} >pipe & pid=$!; exec 3<pipe; \
             head -c 1000000 <&3 >came; eventually quiet; rx >waiting; \
             cat <&3 >>came; wait $pid && same came $FILES/root/large"
        );
        testbed.run(&FAST_LINKS, &script).expect_success();
        let came: u64 = testbed.read("waiting").trim().parse().expect("a number");
        // The buffer for the reader, the bytes that it has read, and the bytes in flight or in
        // other buffers: those of the kernel have at most 4 MB for each of two connections.
        assert!(came < 16 * 1024 * 1024 + 1_000_000 + 10_000_000, "{url}: {came} bytes");
    }
}

#[test]
fn a_reader_that_goes_away_ends_it() {
    needs_far!();
    let testbed = Testbed::new();
    let script = "{ get -o - https://origin.lab/object https://origin.lab/object 2>said; echo $? >code; } \
                  | head -c 100000 >part; head -c 100000 $FILES/root/object >right; same part right || exit 9; \
                  get -q -o - https://origin.lab/object 2>full >/dev/full; echo $? >>code";
    testbed.run(&SLOW_LINKS, script).expect_success();
    assert_eq!(testbed.read("code"), "1\n1\n");
    let output = testbed.read("said");
    assert!(output.contains("standard output was closed before the end"), "{output}");
    assert!(!output.contains("panic"), "{output}");
    assert_eq!(output.matches("was closed").count(), 1, "{output}");
    let full = testbed.read("full");
    assert!(full.contains("standard output cannot be written: No space left"), "{full}");
    assert_eq!(testbed.fetched(), [""; 0]);
}

/// A blocked write must not delay the end.
#[test]
fn a_stop_while_nobody_reads() {
    needs_far!();
    let testbed = Testbed::new();
    let script = "mkfifo pipe; $GET -q -o - https://origin.lab/object 2>said >pipe & pid=$!; exec 3<pipe; \
                  come wifi 400000; kill -INT $pid; wait $pid; echo $? >code";
    let script = format!("stop_at wifi 400000 lte 400000; {script}");
    testbed.run(&SLOW_LINKS, &script).expect_success();
    assert_eq!(testbed.read("code"), "1\n");
    assert!(testbed.read("said").contains("stopped before the end"), "{}", testbed.read("said"));
}

/// Written bytes cannot be withdrawn, but the mismatch is an error.
#[test]
fn a_checksum_is_compared_at_the_end() {
    needs_far!("sha256sum");
    let testbed = Testbed::new();
    let script = "sum=$(sha256sum <$FILES/root/object | cut -c-64); \
                  get -q -o - --checksum sha256:$sum https://origin.lab/object >object && whole || exit 1; \
                  get -q -o - --checksum sha256:$(printf '%064d' 7) https://origin.lab/object 2>said >object; \
                  echo $? >code; get -o - --sha256 https://origin.lab/object 2>told >object; \
                  grep -q \"sha256:$sum\" told";
    testbed.run(&TWO_LINKS, script).expect_success();
    assert_eq!(testbed.read("code"), "1\n");
    assert!(testbed.read("said").contains("the checksum is wrong"), "{}", testbed.read("said"));
    assert_eq!(fs::metadata(testbed.path("out/object")).expect("a file").len(), OBJECT_LENGTH);
}

#[test]
fn what_does_not_go_with_it() {
    needs_far!();
    let testbed = Testbed::new();
    for options in ["-c", "--json"] {
        let script =
            format!("get {options} -o - http://origin.lab/object >object 2>said; echo $? >code");
        testbed.run(&TWO_LINKS, &script).expect_success();
        assert_eq!(testbed.read("code"), "2\n");
        let output = testbed.read("said");
        assert!(output.contains("standard output") && output.contains("hint: "), "{output}");
        assert_eq!(testbed.read("object"), "");
    }
}

/// Bytes without a version cannot be continued, and written bytes cannot be withdrawn.
#[test]
fn a_download_that_has_to_begin_anew_fails() {
    needs_far!();
    let testbed = Testbed::new()
        .with_config("location /anew/ { alias ROOT/; etag off; add_header Last-Modified '';}");
    // SIGTERM to nginx closes the connection during the transfer.
    let script = "mkfifo pipe; stop_at wifi 300000; \
                  $GET -o - --scheduler single --via wifi http://origin.lab/anew/object 2>said >pipe & \
                  pid=$!; exec 3<pipe; head -c 100000 <&3 >part; \
                  kill -TERM $(cat $FILES/nginx/pid); go_on wifi; cat <&3 >rest; wait $pid; echo $? >code";
    testbed.run(&TWO_LINKS, script).expect_success();
    assert_eq!(testbed.read("code"), "1\n");
    let output = testbed.read("said");
    assert!(output.contains("part of it was already written to standard output"), "{output}");
}
