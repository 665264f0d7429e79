//! A short run of every target, the same each time.

use manyways_fuzz::{corpus, run, targets};

#[test]
fn no_target_finds_a_fault() {
    for target in targets::ALL {
        if let Err(input) = run(target, 3_000, 1) {
            panic!("{}: fault on input b\"{}\"", target.name, input.escape_ascii());
        }
    }
}

#[test]
fn every_target_has_seeds() {
    for target in targets::ALL {
        assert!(!corpus(target).is_empty(), "{}", target.name);
    }
}
