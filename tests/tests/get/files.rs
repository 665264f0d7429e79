//! Files that cannot be written, and hosts without a usable network.

use manyways_tests::manyways_path;

use crate::far::{Far, SLOW_LINKS, TWO_LINKS, Transfer};
use crate::needs_far;

#[test]
fn a_full_disk() {
    needs_far!("unshare");
    let far = Far::new();
    let script = "mkdir tiny; unshare --mount sh -c '\
                    mount -t tmpfs -o size=1m none tiny; \
                    manyways get --json -o tiny/object http://origin.lab/object; echo $? >code; \
                    test -e tiny/object && exit 1; mount -o remount,size=4m tiny; \
                    manyways get -c --json -o tiny/object http://origin.lab/object && \
                    cmp tiny/object $FILES/root/object'";
    let seen = far.run(&TWO_LINKS, script).succeeded();
    let [full, rest] = &Transfer::all(&seen.stdout)[..] else { panic!("{}", seen.stdout) };
    assert_eq!(far.read("code"), "1\n");
    let said = full.0["error"]["message"].as_str().expect("an error");
    assert!(said.contains("the disk is full"), "{said}");
    if full.0["error"]["resumable"] == true {
        assert!(seen.stderr.contains("make room, then run the same command with -c"));
    }
    assert!(rest.number("bytes") > 0);
}

#[test]
fn a_folder_that_may_not_be_written_to() {
    needs_far!("setpriv");
    let far = Far::new();
    std::fs::copy(manyways_path(), far.path("manyways")).expect("room for the binary");
    let script = "mkdir -m 755 closed; setpriv --reuid 65534 --regid 65534 --clear-groups \
                    $FILES/manyways get -o closed/object http://origin.lab/object 2>said; \
                    echo $? >code; ls -A closed >left; \
                    manyways get -o missing/object http://origin.lab/object 2>missing-said; \
                    manyways get -o closed http://origin.lab/object 2>folder-said; true";
    far.run(&TWO_LINKS, script).succeeded();
    assert_eq!((far.read("code"), far.read("left")), ("1\n".into(), String::new()));
    for (file, why) in [
        ("said", "closed/object.manyways-part cannot be written: permission denied"),
        ("missing-said", "missing/object.manyways-part cannot be written: no such file"),
        ("folder-said", "closed is a folder"),
    ] {
        let said = far.read(file);
        assert!(said.contains(why) && said.contains("-o"), "{said}");
    }
}

/// The file cannot be renamed, and no part file remains.
#[test]
fn a_disk_or_folder_that_goes_under_way() {
    needs_far!("unshare");
    for (harm, why) in [
        ("rm -r tiny/folder", "no such file or directory"),
        ("umount --lazy tiny", "no such file or directory"),
    ] {
        let far = Far::new();
        let script = format!(
            "mkdir tiny; export GET; unshare --mount sh -c '\
               mount -t tmpfs none tiny; mkdir tiny/folder; \
               $GET --json -o tiny/folder/object https://origin.lab/object >json 2>said & pid=$!; \
               tries=0; while [ $(cat /sys/class/net/wifi/statistics/rx_bytes) -lt 300000 ]; do \
                 tries=$((tries + 1)); [ $tries -lt 3000 ] || exit 99; sleep 0.01; \
               done; {harm}; wait $pid; echo $? >code; ! test -e tiny/folder/object'"
        );
        far.run(&SLOW_LINKS, &script).succeeded();
        let said = far.read("said");
        assert_eq!(far.read("code"), "1\n", "{harm}: {said}");
        let error = &Transfer::only(&far.read("json")).0["error"];
        assert!(error["message"].as_str().is_some_and(|words| words.contains(why)), "{error}");
        assert!(error["hint"].is_string(), "{error}");
        assert_eq!(error["resumable"], false, "{error}");
    }
}

#[test]
fn no_network_at_all() {
    needs_far!("ip");
    let far = Far::new();
    let script = "ip link set wifi down; ip link set lte down; \
                  manyways get http://origin.lab/object 2>said; echo $? >code; \
                  manyways get --via wifi http://origin.lab/object 2>via-said; true";
    far.run(&TWO_LINKS, script).succeeded();
    assert_eq!(far.read("code"), "1\n");
    let said = far.read("said");
    assert!(said.contains("no network of this host can be used"), "{said}");
    assert!(said.contains("`manyways paths` shows the reason for each"), "{said}");
    assert!(far.read("via-said").contains("wifi cannot be used: "), "{}", far.read("via-said"));
}

#[test]
fn a_strict_reverse_path_filter_is_named() {
    needs_far!("ip");
    let far = Far::new();
    // The route from LTE to the server differs from that of the main table.
    let script = "echo 1 >/proc/sys/net/ipv4/conf/all/rp_filter; \
                  echo 1 >/proc/sys/net/ipv4/conf/lte/rp_filter; \
                  manyways paths >paths; ip rule del oif lte; ip rule del from 10.64.2.2; \
                  ip -6 addr flush dev lte; manyways paths >without; \
                  manyways get --via lte http://198.18.0.1/object 2>said; echo $? >code; \
                  manyways get --json http://198.18.0.1/object >json 2>both; true";
    far.run(&TWO_LINKS, script).succeeded();
    let without = far.read("without");
    assert!(without.contains("rp_filter"), "{without}\nbefore:\n{}", far.read("paths"));
    let said = far.read("said");
    assert!(said.contains("lte cannot be used") && said.contains("rp_filter"), "{said}");
    assert_eq!(far.read("code"), "1\n");
    assert!(far.fetched().contains(&"object".to_owned()), "{}", far.read("both"));
}
