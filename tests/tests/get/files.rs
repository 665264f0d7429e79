//! Files that cannot be written, and hosts without a usable network.

use manyways_tests::manyways_path;

use crate::needs_far;
use crate::testbed::{OBJECT_LENGTH, SLOW_LINKS, TWO_LINKS, Testbed, Transfer};

/// The first disk is too small for the object. The second one fills up under way; the part file then
/// makes room for the resume file.
#[test]
fn a_disk_without_space() {
    needs_far!("unshare");
    let testbed = Testbed::new();
    let script = "mkdir tiny; unshare --mount sh -c '. $FILES/preamble; \
                    mount -t tmpfs -o size=1m none tiny; \
                    get --json -o tiny/object https://origin.lab/object 2>small; echo $? >code; \
                    ls -A tiny >left; mount -o remount,size=4m tiny; \
                    stop_at wifi 500000 lte 500000; \
                    $GET --json -o tiny/object https://origin.lab/object 2>full & pid=$!; \
                    come wifi 500000; cat /dev/zero >tiny/other 2>errors; go_on wifi lte; \
                    wait $pid; echo $? >>code; rm tiny/other; \
                    get -c --json -o tiny/object https://origin.lab/object && \
                    same tiny/object $FILES/root/object && ls -A tiny >>left'";
    let finished = testbed.run(&SLOW_LINKS, script).expect_success();
    let [small, full, rest] = &Transfer::all(&finished.stdout)[..] else {
        panic!("{}", finished.stdout)
    };
    assert_eq!((testbed.read("code"), testbed.read("left")), ("1\n1\n".into(), "object\n".into()));
    let message = |failed: &Transfer| failed.0["error"]["message"].to_string();
    let words = "tiny/object: 2 MB are needed, and 1.05 MB are free";
    assert!(message(small).contains(words), "{small:?}");
    assert_eq!((small.number("bytes"), &small.0["error"]["resumable"]), (0, &false.into()));
    assert!(testbed.read("small").contains("name a file on another disk with -o"));
    assert!(message(full).contains("the disk is full"), "{full:?}");
    assert_eq!(full.0["error"]["resumable"], true, "{full:?}");
    let output = testbed.read("full");
    assert!(output.contains("free some space, then run the same command with -c"), "{output}");
    assert!(rest.number("bytes") < OBJECT_LENGTH, "{rest:?}");
}

#[test]
fn a_folder_that_may_not_be_written_to() {
    needs_far!("setpriv");
    let testbed = Testbed::new();
    std::fs::copy(manyways_path(), testbed.path("manyways")).expect("room for the binary");
    let script = "mkdir -m 755 closed; setpriv --reuid 65534 --regid 65534 --clear-groups \
                    $FILES/manyways get -o closed/object http://origin.lab/object 2>said; \
                    echo $? >code; ls -A closed >left; mkdir -m 777 open; cd open; \
                    echo older >object; chmod 444 object; chown 65534 object; \
                    setpriv --reuid 65534 --regid 65534 --clear-groups \
                    $FILES/manyways get http://origin.lab/object 2>../read-only-said; \
                    echo $? >>../code; cat object >>../left; ls -A >>../left; cd ..; \
                    manyways get -o missing/object http://origin.lab/object 2>missing-said; \
                    manyways get -o closed http://origin.lab/object 2>folder-said; \
                    manyways get -q -o /dev/stdout http://origin.lab/object | cat >object && whole";
    testbed.run(&TWO_LINKS, script).expect_success();
    assert_eq!(testbed.read("code"), "1\n1\n");
    assert_eq!(testbed.read("left"), "older\nobject\n");
    for (file, reason) in [
        ("said", "closed/object.manyways-part cannot be written: permission denied"),
        ("read-only-said", "object is read-only for this user"),
        ("missing-said", "missing/object cannot be written: no such file"),
        ("folder-said", "closed is a folder"),
    ] {
        let output = testbed.read(file);
        assert!(output.contains(reason) && output.contains("-o"), "{output}");
    }
}

/// The file cannot be renamed, and no part file remains.
#[test]
fn a_disk_or_folder_that_goes_under_way() {
    needs_far!("unshare");
    for (harm, reason) in [
        ("rm -r tiny/folder", "no such file or directory"),
        ("umount --lazy tiny", "no such file or directory"),
    ] {
        let testbed = Testbed::new();
        let script = format!(
            "mkdir tiny; unshare --mount sh -c '. $FILES/preamble; \
               mount -t tmpfs none tiny; mkdir tiny/folder; \
               stop_at wifi 300000 lte 300000; \
               $GET --json -o tiny/folder/object https://origin.lab/object >json 2>said & pid=$!; \
               come wifi 300000; {harm}; wait $pid; echo $? >code; ! test -e tiny/folder/object'"
        );
        testbed.run(&SLOW_LINKS, &script).expect_success();
        let output = testbed.read("said");
        assert_eq!(testbed.read("code"), "1\n", "{harm}: {output}");
        let error = &Transfer::only(&testbed.read("json")).0["error"];
        assert!(error["message"].as_str().is_some_and(|words| words.contains(reason)), "{error}");
        assert!(error["hint"].is_string(), "{error}");
        assert_eq!(error["resumable"], false, "{error}");
    }
}

#[test]
fn no_network_at_all() {
    needs_far!("ip");
    let testbed = Testbed::new();
    let script = "ip link set wifi down; ip link set lte down; \
                  manyways get http://origin.lab/object 2>said; echo $? >code; \
                  manyways get --via wifi http://origin.lab/object 2>via-said; true";
    testbed.run(&TWO_LINKS, script).expect_success();
    assert_eq!(testbed.read("code"), "1\n");
    let output = testbed.read("said");
    assert!(output.contains("no network of this host can be used"), "{output}");
    assert!(output.contains("`manyways paths` shows the reason for each"), "{output}");
    assert!(
        testbed.read("via-said").contains("wifi cannot be used: "),
        "{}",
        testbed.read("via-said")
    );
}

#[test]
fn a_strict_reverse_path_filter_is_named() {
    needs_far!("ip");
    let testbed = Testbed::new();
    // The route from LTE to the server differs from that of the main table.
    let script = "echo 1 >/proc/sys/net/ipv4/conf/all/rp_filter; \
                  echo 1 >/proc/sys/net/ipv4/conf/lte/rp_filter; \
                  manyways paths >paths; ip rule del oif lte; ip rule del from 10.64.2.2; \
                  ip -6 addr flush dev lte; manyways paths >without; \
                  manyways get --via lte http://198.18.0.1/object 2>said; echo $? >code; \
                  manyways get --json http://198.18.0.1/object >json 2>both; true";
    testbed.run(&TWO_LINKS, script).expect_success();
    let without = testbed.read("without");
    assert!(without.contains("rp_filter"), "{without}\nbefore:\n{}", testbed.read("paths"));
    let output = testbed.read("said");
    assert!(output.contains("lte cannot be used") && output.contains("rp_filter"), "{output}");
    assert_eq!(testbed.read("code"), "1\n");
    assert!(testbed.fetched().contains(&"object".to_owned()), "{}", testbed.read("both"));
}
