//! Metered networks.

use crate::needs_far;
use crate::testbed::{OBJECT_LENGTH, Testbed, Transfer};

const LINKS: [&str; 4] = [
    "--link",
    "wifi:down=8mbit,up=4mbit,delay=4ms",
    "--link",
    "lte:down=12mbit,up=4mbit,delay=9ms,metered=yes",
];
/// Maximum number of buffered bytes of one connection over LTE: in its queue and in the server.
const MAX_BUFFERED: u64 = 600_000;

#[test]
fn no_more_than_is_allowed() {
    needs_far!();
    let testbed = Testbed::new();
    let script = "for allowed in 500KB no yes; do \
                    before=$(cat /sys/class/net/lte/statistics/rx_bytes); \
                    [ $allowed = no ] && gate= || gate=both; \
                    $gate get --metered $allowed --json https://origin.lab/object && whole || exit 1; \
                    echo $(($(cat /sys/class/net/lte/statistics/rx_bytes) - before)) >>counted; \
                  done; ! get --via lte --metered no https://origin.lab/object 2>said; \
                  get --via lte --metered 500KB --json https://origin.lab/object 2>spent; \
                  echo $? >code; get -c --json https://origin.lab/object && whole";
    let finished = testbed.run(&LINKS, script).expect_success();
    let transfers = Transfer::all(&finished.stdout);
    let [some, none, all, spent, rest] = transfers.as_slice() else {
        panic!("{}", finished.stdout)
    };
    let counted: Vec<u64> =
        testbed.read("counted").lines().map(|line| line.parse().expect("a number")).collect();

    some.assert_paths(&["wifi", "lte"]);
    assert!(some.bytes("lte") <= 500_000, "{some:?}");
    assert!(some.number("metered_bytes") >= some.bytes("lte"), "{some:?}");
    assert!(counted[0] < 500_000 + MAX_BUFFERED, "{counted:?}");
    none.assert_paths(&["wifi"]);
    assert_eq!(none.number("metered_bytes"), 0);
    assert!(counted[1] < 2_000, "{counted:?}");
    all.assert_paths(&["wifi", "lte"]);
    assert!(all.number("metered_bytes") >= all.bytes("lte"), "{all:?}");
    // The link has delivered at least the counted bytes.
    for (transfer, counted) in [(some, counted[0]), (all, counted[2])] {
        assert!(transfer.number("metered_bytes") <= counted, "{counted}: {transfer:?}");
    }

    let output = testbed.read("said");
    assert!(output.contains("only metered networks lead to the server: lte"), "{output}");
    assert_eq!(testbed.read("code"), "1\n");
    // The summary of the first run.
    assert!(finished.stderr.contains(", metered, limit reached\n"), "{}", finished.stderr);
    let output = testbed.read("spent");
    assert!(output.contains("their limit permits 500 KB of the 2 MB that are missing"), "{output}");
    assert!(output.contains("their limit is used up"), "{output}");
    assert!(
        output.contains("increase --metered or wait for another network, then run"),
        "{output}"
    );
    assert_eq!(spent.number("bytes"), 500_000);
    assert_eq!(rest.number("bytes"), OBJECT_LENGTH - 500_000);
}
