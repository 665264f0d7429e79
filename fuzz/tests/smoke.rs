//! A short run of every target, the same each time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use manyways_fuzz::{corpus, found_inputs, run, targets};

// Slow: 3,000 inputs for each target.
#[test]
fn no_target_finds_a_fault() {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(target) = targets::ALL.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(input) = run(target, 3_000, 1) {
                        panic!("{}: fault on input b\"{}\"", target.name, input.escape_ascii());
                    }
                }
            });
        }
    });
}

#[test]
fn what_was_found_is_read_to_its_end() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("found");
    let mut count = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert!(targets::named(name).is_some(), "{name} is no target");
        assert!(!found_inputs(name).unwrap().is_empty(), "{name}");
        count += 1;
    }
    assert!(count > 0);
}

#[test]
fn every_target_has_seeds() {
    for target in targets::ALL {
        assert!(!corpus(target).is_empty(), "{}", target.name);
    }
}
