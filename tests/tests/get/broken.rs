//! Networks that fail during a transfer.

use crate::far::{Far, SLOW_LINKS, Transfer};
use crate::needs_far;

/// Starts a download, and changes the links once both have delivered bytes.
fn changed(then: &str) -> String {
    format!(
        "$GET --json https://origin.lab/object >json 2>said & pid=$!; \
         come wifi 300000; come lte 200000; {then}; wait $pid; echo $? >code"
    )
}

#[test]
fn a_network_that_goes_silent_or_loses_its_carrier() {
    needs_far!();
    for (link, state) in [("wifi", "silent"), ("lte", "no-carrier")] {
        let far = Far::new();
        let set = changed(&format!("manyways lab set --lab $LAB_NAME {link} state={state}"));
        far.run(&SLOW_LINKS, &format!("{set}; whole")).succeeded();
        assert_eq!(far.read("code"), "0\n", "{link} {state}: {}", far.read("said"));
        Transfer::only(&far.read("json")).came_over(&["wifi", "lte"]);
    }
}

#[test]
fn when_all_are_gone_the_rest_can_come_later() {
    needs_far!();
    let far = Far::new();
    let set = changed(
        "manyways lab set --lab $LAB_NAME wifi state=no-carrier && manyways lab set --lab $LAB_NAME lte state=no-carrier",
    );
    let script = format!(
        "{set}; test -e object && exit 1; ls; \
         manyways lab set --lab $LAB_NAME wifi state=up && manyways lab set --lab $LAB_NAME lte state=up && \
         eventually manyways paths >/dev/null && \
         eventually get -c --json https://origin.lab/object >rest 2>again && whole"
    );
    far.run(&SLOW_LINKS, &script).succeeded();
    let said = far.read("said");
    assert_eq!(far.read("code"), "1\n", "{said}");
    assert!(said.contains("run the same command with -c to go on"), "{said}");
    let failed = Transfer::only(&far.read("json"));
    assert_eq!(failed.0["error"]["resumable"], true);
    let came = failed.number("bytes");
    let rest = Transfer::all(&far.read("rest")).pop().expect("it came");
    assert!(came > 400_000, "{failed:?}");
    assert_eq!(rest.number("bytes"), crate::far::LENGTH - came);
}

#[test]
fn a_network_that_comes_back_is_used_again() {
    needs_far!();
    let far = Far::new();
    let script = "manyways lab set --lab $LAB_NAME wifi down=700kbit; \
         $GET --json https://origin.lab/object >json 2>said & pid=$!; come lte 100000; \
         manyways lab set --lab $LAB_NAME lte state=no-carrier; \
         eventually grep -q 'lte is gone' said; \
         start=$(cat /sys/class/net/lte/statistics/rx_bytes); \
         manyways lab set --lab $LAB_NAME lte state=up; come lte 300000 $start; \
         manyways lab set --lab $LAB_NAME wifi down=8mbit; wait $pid && whole";
    far.run(&SLOW_LINKS, script).succeeded();
    Transfer::only(&far.read("json")).came_over(&["wifi", "lte"]);
}

/// A transfer of the first version may finish; the file never has bytes of two versions.
#[test]
fn an_object_that_changes_under_way() {
    needs_far!();
    let far = Far::new();
    let change = "cp $FILES/root/object before; \
                  head -c 2000001 /dev/urandom >$FILES/root/new && mv $FILES/root/new $FILES/root/object";
    let script = format!("{}; true", changed(change));
    far.run(&SLOW_LINKS, &script).succeeded();
    let said = far.read("said");
    if far.read("code") == "0\n" {
        assert!(manyways_tests::same_content(&far.path("out/before"), &far.path("out/object")));
        Transfer::only(&far.read("json")).came_over(&["wifi", "lte"]);
    } else {
        // The bytes of the old version remain until the user discards them.
        assert!(!far.fetched().contains(&"object".to_owned()), "{said}");
        assert!(said.contains("the object has changed on the server"), "{said}");
    }
}
