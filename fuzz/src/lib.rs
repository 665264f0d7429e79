//! Feeds every parser of foreign bytes with broken input.
//!
//! A [`Target`] takes any bytes and panics only where a parser has a fault: it may also check what
//! must hold of whatever reads (it writes back the same, its parts are in order). The runner here
//! needs no special compiler: [`Mutator`] changes the files of `corpus/TARGET/` in ways that
//! parsers do not expect, the same way for the same seed. `cargo test -p manyways-fuzz` runs a
//! few thousand inputs a target, `cargo run --release -p manyways-fuzz -- TARGET COUNT` as many
//! as one likes, and `fuzz/guided/run TARGET SECONDS` lets libFuzzer look for new code.
//!
//! A new parser gets a function in [`targets`], a line in [`targets::ALL`] and a few seeds in
//! `corpus/`. An input that finds a fault becomes a unit test beside the parser.
#![forbid(unsafe_code)]

mod mutate;
pub mod targets;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

pub use mutate::Mutator;
pub use targets::Target;

/// The longest input that a run makes of its seeds.
pub const MAX_INPUT: usize = 1 << 16;

/// The committed seeds of a target.
pub fn corpus(target: &Target) -> Vec<Vec<u8>> {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name)];
    folders.extend(
        target.more_seeds.iter().map(|folder| Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)),
    );
    let mut files: Vec<PathBuf> = folders
        .iter()
        .filter_map(|folder| std::fs::read_dir(folder).ok())
        .flat_map(|entries| entries.filter_map(|entry| entry.ok().map(|entry| entry.path())))
        .filter(|path| path.is_file())
        .collect();
    // The order of a folder is not the same everywhere.
    files.sort();
    files
        .iter()
        .filter_map(|file| std::fs::read(file).ok())
        .filter(|seed| seed.len() <= MAX_INPUT)
        .collect()
}

/// Runs a target on its seeds and then on `count` changed ones. The input that found a fault
/// comes back; the panic message is on stderr.
pub fn run(target: &Target, count: u64, seed: u64) -> Result<(), Vec<u8>> {
    let corpus = corpus(target);
    let attempt = |input: &[u8]| {
        catch_unwind(AssertUnwindSafe(|| (target.run)(input))).map_err(|_| input.to_vec())
    };
    corpus.iter().try_for_each(|input| attempt(input))?;
    let mut mutator = Mutator::new(seed, &corpus, target.words);
    (0..count).try_for_each(|_| attempt(&mutator.next_input()))
}
