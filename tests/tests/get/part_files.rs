//! Invalid remains of an earlier run.

use manyways_tests::fault;

use crate::needs_far;
use crate::testbed::{OBJECT_LENGTH, SLOW_LINKS, TWO_LINKS, Testbed, Transfer};

/// Leaves an unfinished download.
const UNFINISHED: &str = "stop_at wifi 500000 lte 500000; \
                     $GET https://origin.lab/object 2>said & pid=$!; come wifi 500000; \
                     kill -INT $pid; wait $pid; test -e object.manyways || exit 7; go_on wifi lte; ";

/// `-c` rejects the resume file, changes nothing and prints a hint; without `-c` the file is
/// discarded.
#[test]
fn a_resume_file_that_does_not_match() {
    needs_far!("sed");
    let cases = [
        // Damage to the resume file, and the text of the error.
        ("echo garbage >object.manyways", "it is damaged"),
        (": >object.manyways", "it is damaged"),
        ("head -c 40 kept.manyways >object.manyways", "it is damaged"),
        ("head -c 9000000 /dev/zero >object.manyways", "it is too large"),
        ("sed -i 's|resume/1|resume/9|' object.manyways", "it has the format manyways.resume/9"),
        ("sed -i 's|\\[\\[0,|[[1900000,|' object.manyways", "its ranges contradict each other"),
        ("sed -i 's|\"length\":2000001|\"length\":1000|' object.manyways", "contradict each other"),
        (
            "sed -i 's|lab/object|lab/another|' object.manyways",
            "is of another URL: https://origin.lab/another",
        ),
        (": >object.manyways-part", "is shorter than its resume file states"),
        ("rm object.manyways-part", "is shorter than its resume file states"),
    ];
    let testbed = Testbed::new();
    let tries: String = cases
        .iter()
        .enumerate()
        .map(|(nth, (harm, _))| {
            format!(
                "cp kept.manyways object.manyways; cp kept.manyways-part object.manyways-part; {harm}; \
                 cp object.manyways before; get -c --json https://origin.lab/object >json-{nth} 2>said-{nth}; \
                 echo $? >code-{nth}; cmp before object.manyways || exit 8; \
                 test -e object && exit 9; "
            )
        })
        .collect();
    let script = format!(
        "{UNFINISHED} mv object.manyways kept.manyways; mv object.manyways-part kept.manyways-part; {tries} \
         get --json https://origin.lab/object >anew 2>said-anew && whole || exit 10; \
         ls | grep object"
    );
    let finished = testbed.run(&SLOW_LINKS, &script).expect_success();
    for (nth, (harm, words)) in cases.iter().enumerate() {
        let output = testbed.read(&format!("said-{nth}"));
        assert_eq!(testbed.read(&format!("code-{nth}")), "1\n", "{harm}: {output}");
        assert!(output.contains(words), "{harm}: {output}");
        assert!(output.contains("hint: run it without -c to start over"), "{harm}: {output}");
        let failed = Transfer::only(&testbed.read(&format!("json-{nth}")));
        assert_eq!(failed.0["error"]["resumable"], false, "{harm}: {failed:?}");
        assert_eq!(failed.number("bytes"), 0, "{harm}");
    }
    assert_eq!(Transfer::only(&testbed.read("anew")).number("bytes"), OBJECT_LENGTH);
    assert_eq!(finished.stdout, "object\n");
}

/// The resume state is of another version than the server's object.
#[test]
fn a_resume_file_of_another_version() {
    needs_far!("sed");
    for harm in [
        "sed -i 's|\"etag\":\"[^,}]*|\"etag\":\"\\\\\"0-0\\\\\"\"|'",
        "sed -i 's|\"length\":2000001|\"length\":2000002|'",
    ] {
        let testbed = Testbed::new();
        let script = format!(
            "{UNFINISHED} cp object.manyways kept; {harm} object.manyways; \
             cmp kept object.manyways && exit 8; cp object.manyways-part part; \
             get -c https://origin.lab/object 2>changed; echo $? >code; \
             cmp part object.manyways-part || exit 9; test -e object && exit 10; \
             cp kept object.manyways; get -c https://origin.lab/object && whole"
        );
        testbed.run(&SLOW_LINKS, &script).expect_success();
        assert_eq!(testbed.read("code"), "1\n");
        let output = testbed.read("changed");
        assert!(output.contains("the object has changed on the server"), "{harm}: {output}");
        assert!(output.contains("hint: run it without -c to fetch the new version"), "{output}");
    }
}

#[test]
fn a_shorter_version_leaves_nothing_of_the_longer_one() {
    needs_far!();
    let testbed = Testbed::new();
    let script = format!(
        "{UNFINISHED} head -c 100000 /dev/urandom >$FILES/root/new; \
         touch -d '-2 hours' $FILES/root/new; mv $FILES/root/new $FILES/root/object; \
         get https://origin.lab/object && whole && ls | grep object"
    );
    assert_eq!(testbed.run(&SLOW_LINKS, &script).expect_success().stdout, "object\n");
}

/// Missing ranges of any position and size are downloaded.
#[test]
fn whatever_is_missing_is_fetched() {
    needs_far!("dd");
    let cases: [&[(u64, u64)]; 6] = [
        &[(0, OBJECT_LENGTH - 1)],
        &[(1, OBJECT_LENGTH)],
        &[(0, 1_000_000), (1_000_001, OBJECT_LENGTH)],
        &[(0, 1), (3, 700_000), (700_002, 1_500_000), (1_500_003, OBJECT_LENGTH)],
        &[(1_000_000, 1_000_001)],
        &[(0, OBJECT_LENGTH)],
    ];
    let testbed = Testbed::new();
    let mut script = format!("{UNFINISHED} cp object.manyways kept; ");
    for (nth, done) in cases.iter().enumerate() {
        let done: Vec<String> = done.iter().map(|(from, to)| format!("[{from},{to}]")).collect();
        // The ranges in the resume state are correct, and all other bytes are wrong.
        let gaps: String = gaps(cases[nth])
            .map(|(from, to)| {
                format!(
                    "dd if=/dev/zero of=object.manyways-part bs=1 seek={from} count={} \
                     conv=notrunc status=none; ",
                    (to - from).min(5_000)
                )
            })
            .collect();
        script.push_str(&format!(
            "rm -f object; cp $FILES/root/object object.manyways-part; {gaps} \
             sed 's|\"done\":.*|\"done\":[{}]}}|' kept >object.manyways; \
             get -c --json https://origin.lab/object >json-{nth} 2>said-{nth}; echo $? >code-{nth}; \
             whole; echo $? >whole-{nth}; ",
            done.join(",")
        ));
    }
    testbed.run(&SLOW_LINKS, &format!("{script} true")).expect_success();
    for (nth, done) in cases.iter().enumerate() {
        let output = testbed.read(&format!("said-{nth}"));
        assert_eq!(testbed.read(&format!("code-{nth}")), "0\n", "{done:?}: {output}");
        fault!(testbed.read(&format!("whole-{nth}")) == "0\n", "wrong bytes: {done:?}: {output}");
        let came = Transfer::only(&testbed.read(&format!("json-{nth}"))).number("bytes");
        let missing: u64 = gaps(done).map(|(from, to)| to - from).sum();
        assert_eq!(came, missing, "{done:?}: {output}");
    }
}

fn gaps(done: &[(u64, u64)]) -> impl Iterator<Item = (u64, u64)> {
    let starts = std::iter::once(0).chain(done.iter().map(|(_, to)| *to));
    let ends = done.iter().map(|(from, _)| *from).chain([OBJECT_LENGTH]);
    starts.zip(ends).filter(|(from, to)| from < to)
}

/// Repeated SIGKILL at many positions.
// Slow: 13 downloads, each stopped twice, one after the other.
#[test]
fn after_kills_at_many_points() {
    needs_far!();
    let testbed = Testbed::new();
    let mut script = String::from(
        "rx() { echo $(($(cat /sys/class/net/wifi/statistics/rx_bytes) + \
                       $(cat /sys/class/net/lte/statistics/rx_bytes))); }; \
         beyond() { [ $(($(rx) - before)) -ge $1 ]; }; \
         over() { kill -0 $pid 2>/dev/null || return 0; beyond $1; }; ",
    );
    for first in (0..2_000_000).step_by(160_000) {
        // Two interrupted runs, and a complete third one.
        for (options, bytes) in [("", first), ("-c", 350_000)] {
            script.push_str(&format!(
                "before=$(rx); $GET {options} https://origin.lab/object 2>said & pid=$!; \
                 eventually over {bytes}; kill -KILL $pid 2>/dev/null; wait $pid; \
                 if test -e object; then whole || exit 8; fi; "
            ));
        }
        script.push_str(
            "test -e object || get -c https://origin.lab/object 2>said; whole || exit 9; \
             test -e object.manyways && exit 10; test -e object.manyways-part && exit 11; rm object; ",
        );
    }
    testbed.run(&TWO_LINKS, &format!("{script} true")).expect_success();
}

/// Without received bytes there is no state to keep.
#[test]
fn a_stop_before_the_first_byte() {
    needs_far!();
    let testbed = Testbed::new();
    let server = testbed.faulty();
    let script = "$GET --json https://origin.lab:448/always/good/object >json 2>said & pid=$!; \
                  come wifi 60; kill -INT $pid; wait $pid; echo $? >code; ls | grep object; true";
    let links = [&TWO_LINKS[..], &["--far", &server]].concat();
    let finished = testbed.run_with(&links, script).expect_success();
    assert_eq!((testbed.read("code"), finished.stdout), ("1\n".into(), String::new()));
    assert_eq!(testbed.read("said"), "manyways: stopped before the end\n");
    assert_eq!(Transfer::only(&testbed.read("json")).0["error"]["resumable"], false);
}

/// Two processes would write into one file.
#[test]
fn a_second_download_to_the_same_file() {
    needs_far!();
    let testbed = Testbed::new();
    let script = "stop_at wifi 300000 lte 300000; \
                  $GET https://origin.lab/object 2>first & pid=$!; come wifi 300000; \
                  get https://origin.lab/object 2>second; echo $? >code; \
                  get -c https://origin.lab/object 2>third; go_on wifi lte; wait $pid && whole";
    testbed.run(&SLOW_LINKS, script).expect_success();
    assert_eq!(testbed.read("code"), "1\n");
    for said in ["second", "third"] {
        let output = testbed.read(said);
        assert!(output.contains("another download is writing object"), "{output}");
    }
    assert_eq!(testbed.fetched(), ["object"]);
}
