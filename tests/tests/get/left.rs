//! Invalid remains of an earlier run.

use crate::far::{Far, LENGTH, SLOW_LINKS, TWO_LINKS, Transfer};
use crate::needs_far;

/// Leaves an unfinished download.
const BEGUN: &str = "$GET https://origin.lab/object 2>said & pid=$!; come wifi 500000; \
                     kill -INT $pid; wait $pid; test -e object.manyways || exit 7; ";

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
    let far = Far::new();
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
        "{BEGUN} mv object.manyways kept.manyways; mv object.manyways-part kept.manyways-part; {tries} \
         get --json https://origin.lab/object >anew 2>said-anew && whole || exit 10; \
         ls | grep object"
    );
    let seen = far.run(&SLOW_LINKS, &script).succeeded();
    for (nth, (harm, words)) in cases.iter().enumerate() {
        let said = far.read(&format!("said-{nth}"));
        assert_eq!(far.read(&format!("code-{nth}")), "1\n", "{harm}: {said}");
        assert!(said.contains(words), "{harm}: {said}");
        assert!(said.contains("hint: run it without -c to start over"), "{harm}: {said}");
        let failed = Transfer::only(&far.read(&format!("json-{nth}")));
        assert_eq!(failed.0["error"]["resumable"], false, "{harm}: {failed:?}");
        assert_eq!(failed.number("bytes"), 0, "{harm}");
    }
    assert_eq!(Transfer::only(&far.read("anew")).number("bytes"), LENGTH);
    assert_eq!(seen.stdout, "object\n");
}

/// The resume state is of another version than the server's object.
#[test]
fn a_resume_file_of_another_version() {
    needs_far!("sed");
    for harm in [
        "sed -i 's|\"etag\":\"[^,}]*|\"etag\":\"\\\\\"0-0\\\\\"\"|'",
        "sed -i 's|\"length\":2000001|\"length\":2000002|'",
    ] {
        let far = Far::new();
        let script = format!(
            "{BEGUN} cp object.manyways kept; {harm} object.manyways; \
             cmp kept object.manyways && exit 8; cp object.manyways-part part; \
             get -c https://origin.lab/object 2>changed; echo $? >code; \
             cmp part object.manyways-part || exit 9; test -e object && exit 10; \
             cp kept object.manyways; get -c https://origin.lab/object && whole"
        );
        far.run(&SLOW_LINKS, &script).succeeded();
        assert_eq!(far.read("code"), "1\n");
        let said = far.read("changed");
        assert!(said.contains("the object has changed on the server"), "{harm}: {said}");
        assert!(said.contains("hint: run it without -c to fetch the new version"), "{said}");
    }
}

#[test]
fn a_shorter_version_leaves_nothing_of_the_longer_one() {
    needs_far!();
    let far = Far::new();
    let script = format!(
        "{BEGUN} head -c 100000 /dev/urandom >$FILES/root/new; \
         touch -d '-2 hours' $FILES/root/new; mv $FILES/root/new $FILES/root/object; \
         get https://origin.lab/object && whole && ls | grep object"
    );
    assert_eq!(far.run(&SLOW_LINKS, &script).succeeded().stdout, "object\n");
}

/// Missing ranges of any position and size are downloaded.
#[test]
fn whatever_is_missing_is_fetched() {
    needs_far!("dd");
    let cases: [&[(u64, u64)]; 6] = [
        &[(0, LENGTH - 1)],
        &[(1, LENGTH)],
        &[(0, 1_000_000), (1_000_001, LENGTH)],
        &[(0, 1), (3, 700_000), (700_002, 1_500_000), (1_500_003, LENGTH)],
        &[(1_000_000, 1_000_001)],
        &[(0, LENGTH)],
    ];
    let far = Far::new();
    let mut script = format!("{BEGUN} cp object.manyways kept; ");
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
    far.run(&SLOW_LINKS, &format!("{script} true")).succeeded();
    for (nth, done) in cases.iter().enumerate() {
        let said = far.read(&format!("said-{nth}"));
        assert_eq!(far.read(&format!("code-{nth}")), "0\n", "{done:?}: {said}");
        assert_eq!(far.read(&format!("whole-{nth}")), "0\n", "{done:?}: {said}");
        let came = Transfer::only(&far.read(&format!("json-{nth}"))).number("bytes");
        let missing: u64 = gaps(done).map(|(from, to)| to - from).sum();
        assert_eq!(came, missing, "{done:?}: {said}");
    }
}

fn gaps(done: &[(u64, u64)]) -> impl Iterator<Item = (u64, u64)> {
    let starts = std::iter::once(0).chain(done.iter().map(|(_, to)| *to));
    let ends = done.iter().map(|(from, _)| *from).chain([LENGTH]);
    starts.zip(ends).filter(|(from, to)| from < to)
}

/// Repeated SIGKILL at many positions.
#[test]
fn after_kills_at_many_points() {
    needs_far!();
    let far = Far::new();
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
    far.run(&TWO_LINKS, &format!("{script} true")).succeeded();
}

/// Without received bytes there is no state to keep.
#[test]
fn a_stop_before_the_first_byte() {
    needs_far!();
    let far = Far::new();
    let server = far.faulty();
    let script = "$GET --json https://origin.lab:448/always/good/object >json 2>said & pid=$!; \
                  come wifi 60; kill -INT $pid; wait $pid; echo $? >code; ls | grep object; true";
    let links = [&TWO_LINKS[..], &["--far", &server]].concat();
    let seen = far.run_with(&links, script).succeeded();
    assert_eq!((far.read("code"), seen.stdout), ("1\n".into(), String::new()));
    assert_eq!(far.read("said"), "manyways: stopped before the end\n");
    assert_eq!(Transfer::only(&far.read("json")).0["error"]["resumable"], false);
}

/// Two processes would write into one file.
#[test]
fn a_second_download_to_the_same_file() {
    needs_far!();
    let far = Far::new();
    let script = "$GET https://origin.lab/object 2>first & pid=$!; come wifi 300000; \
                  get https://origin.lab/object 2>second; echo $? >code; \
                  get -c https://origin.lab/object 2>third; wait $pid && whole";
    far.run(&SLOW_LINKS, script).succeeded();
    assert_eq!(far.read("code"), "1\n");
    for said in ["second", "third"] {
        let said = far.read(said);
        assert!(said.contains("another download is writing object"), "{said}");
    }
    assert_eq!(far.fetched(), ["object"]);
}
