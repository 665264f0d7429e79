//! Cached path estimates of earlier transfers.

use serde_json::Value;

use crate::needs_far;
use crate::testbed::{TWO_LINKS, Testbed, Transfer};

#[test]
fn a_file_for_each_network_that_brought_enough() {
    needs_far!();
    let testbed = Testbed::new();
    let finished = testbed.run(
        &TWO_LINKS,
        "both get --json --cache nets https://origin.lab/object && whole; ls nets >files; \
         cat nets/*-lte-* >lte",
    );
    Transfer::only(&finished.expect_success().stdout).assert_paths(&["wifi", "lte"]);
    assert_eq!(testbed.read("files").lines().count(), 2, "{}", testbed.read("files"));
    let lte: Value = serde_json::from_str(&testbed.read("lte")).expect("JSON");
    assert_eq!((&lte["schema"], &lte["name"]), (&"manyways.network/1".into(), &"lte".into()));
    assert_eq!(lte["gateway"], "10.64.2.1");
    let rate = lte["rate_bps"].as_u64().expect("a rate");
    // The link has 12 Mbit/s; values outside of the bounds belong to another link or unit.
    assert!((1_000_000..50_000_000).contains(&rate), "{lte}");
}

#[test]
fn what_is_kept_is_used_and_what_is_broken_is_harmless() {
    needs_far!();
    let testbed = Testbed::new();
    let finished = testbed.run(
        &TWO_LINKS,
        "again() { MANYWAYS_LOG=debug; export MANYWAYS_LOG; both get --json --cache nets https://origin.lab/object 2>$1 && whole; }; \
         again first || exit 1; \
         sed -i 's/\"rtt_seconds\":[^,]*/\"rtt_seconds\":0.025/' nets/*; again known || exit 1; \
         for file in nets/*; do head -c 50 /dev/urandom >$file; done; again broken || exit 1; \
         cat nets/* >mended; \
         rm -r nets; echo >nets; again blocked",
    );
    for transfer in Transfer::all(&finished.expect_success().stdout) {
        transfer.assert_paths(&["wifi", "lte"]);
    }
    let known = testbed.read("known");
    for name in ["wifi", "lte"] {
        let remembered = |said: &str| {
            said.lines()
                .any(|line| line.contains(&format!("{name}: ")) && line.contains("remembered"))
        };
        assert!(remembered(&known), "{known}");
        assert!(!remembered(&testbed.read("broken").replace("cannot store the estimate", "")));
    }
    assert!(known.contains("with 25 ms are remembered"), "{known}");
    assert_eq!(testbed.read("mended").matches("manyways.network/1").count(), 2);
    assert!(
        testbed.read("blocked").contains("cannot store the estimate"),
        "{}",
        testbed.read("blocked")
    );
}

#[test]
fn nothing_is_kept_where_that_is_not_wanted() {
    needs_far!("find");
    let testbed = Testbed::new();
    let finished = testbed.run(
        &TWO_LINKS,
        "export XDG_CACHE_HOME=$PWD/cache; \
         get -q --cache off https://origin.lab/object && whole && ! test -e cache && \
         both get -q https://origin.lab/object && whole && find cache -type f",
    );
    let files = finished.expect_success().stdout;
    assert_eq!(files.matches("cache/manyways/networks/").count(), 2, "{files}");
}
