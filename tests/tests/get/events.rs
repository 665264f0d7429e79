//! `--events`: the event log of a run.

use manyways_net::fetch::TransferEvent;
use manyways_record::event::{Record, parse};
use serde_json::Value;

use crate::needs_far;
use crate::testbed::{OBJECT_LENGTH, TWO_LINKS, Testbed, Transfer};

#[test]
fn every_transfer_is_in_the_log_from_start_to_end() {
    needs_far!();
    let testbed = Testbed::new();
    let script = "ln -s object $FILES/root/twin; \
                  get --json --events log https://origin.lab/object https://origin.lab/twin && \
                  whole && same object twin";
    let finished = testbed.run(&TWO_LINKS, script).expect_success();
    let document: Value = serde_json::from_str(&finished.stdout).expect("one line of JSON");
    for transfer in document["transfers"].as_array().expect("a list") {
        assert_eq!(transfer["events_file"], "log");
    }
    let log = parse(testbed.read("log").as_bytes()).expect("a log");
    assert_eq!((log.header.tool.as_str(), log.skipped), ("get", 0));
    assert_eq!(log.header.subject.as_deref(), Some("https://origin.lab/object"));
    let mut before = None;
    for (number, name) in [(0, "object"), (1, "twin")] {
        let mut bytes = [("wifi", 0), ("lte", 0)];
        let (mut start, mut end) = (None, None);
        for Record { time, event } in &log.records {
            match event {
                TransferEvent::TransferStart { transfer, url } if *transfer == number => {
                    assert_eq!(*url, format!("https://origin.lab/{name}"));
                    start = Some(*time);
                }
                TransferEvent::PathSample(sample) if sample.transfer == number => {
                    let known = bytes.iter_mut().find(|(path, _)| *path == sample.path);
                    known.expect("a path of the lab").1 = sample.bytes;
                }
                TransferEvent::TransferEnd { transfer, complete, bytes } if *transfer == number => {
                    assert_eq!((*complete, *bytes), (true, OBJECT_LENGTH));
                    end = Some(*time);
                }
                _ => {}
            }
        }
        assert!(start.is_some() && before <= start && start < end, "{log:?}");
        assert_eq!(bytes.iter().map(|(_, bytes)| bytes).sum::<u64>(), OBJECT_LENGTH);
        before = end;
    }
}

#[test]
fn a_log_that_cannot_be_written_is_said_before_anything_is_fetched() {
    needs_far!();
    let testbed = Testbed::new();
    let script = "get --events missing/log http://origin.lab/object 2>said; echo $? >code; \
                  get --json --events /dev/full http://origin.lab/object 2>full; \
                  get --json http://origin.lab/object 2>without && whole";
    let finished = testbed.run(&TWO_LINKS, script).expect_success();
    assert_eq!(testbed.read("code"), "1\n");
    let output = testbed.read("said");
    assert!(output.contains("missing/log cannot be written: No such file"), "{output}");
    assert!(output.contains("hint: name another file with --events"), "{output}");
    assert!(
        testbed.read("full").contains("/dev/full cannot be written: No space left"),
        "{output}"
    );
    let all = Transfer::all(&finished.stdout);
    let [without] = all.as_slice() else { panic!("{}", finished.stdout) };
    assert_eq!(without.0.get("events_file"), None);
    assert!(without.0["duplicate_bytes"].is_u64(), "{without:?}");
    for path in ["wifi", "lte"] {
        let path = without.path(path);
        assert!(path["overshoot_bytes"].is_u64() && path["duplicate_bytes"].is_u64(), "{path}");
        assert!(path["rtt_seconds"].is_null() || path["rtt_seconds"].is_f64(), "{path}");
    }
}
