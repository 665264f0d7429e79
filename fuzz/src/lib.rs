//! Feeds every parser of foreign bytes with broken input.
//!
//! A [`Target`] takes any bytes and panics only where a parser has a fault: it may also check what
//! must hold of whatever reads (it writes back the same, its parts are in order). The runner here
//! needs no special compiler: [`Mutator`] changes the files of `corpus/TARGET/` in ways that
//! parsers do not expect, the same way for the same seed. `cargo test -p manyways-fuzz` runs a
//! few thousand inputs a target, `cargo run --release -p manyways-fuzz -- TARGET COUNT` as many
//! as one likes, and `fuzz/guided/run TARGET SECONDS` lets libFuzzer look for new code; what it
//! finds, `fuzz/guided/keep TARGET` puts into `found/`, and all runs begin with it.
//!
//! A new parser gets a function in [`targets`], a line in [`targets::ALL`] and a few seeds in
//! `corpus/`. An input that finds a fault becomes a unit test beside the parser.
#![forbid(unsafe_code)]

mod mutate;
pub mod targets;

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

pub use mutate::Mutator;
pub use targets::Target;

/// The longest input that a run makes of its seeds.
pub const MAX_INPUT: usize = 1 << 16;

/// What libFuzzer has found for a target, where that was kept: inputs of the length that stands
/// before each, as four bytes, the lowest first.
///
/// # Errors
/// The file is there, and cannot be read.
pub fn found(target: &str) -> io::Result<Vec<Vec<u8>>> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("found/{target}.gz"));
    let mut packed = match File::open(&file) {
        Ok(file) => MultiGzDecoder::new(BufReader::new(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    packed.read_to_end(&mut bytes)?;
    let (mut all, mut rest) = (Vec::new(), &bytes[..]);
    while let Some((length, more)) = rest.split_first_chunk() {
        let one = more.split_at_checked(u32::from_le_bytes(*length) as usize);
        let (input, behind) = one.ok_or(io::ErrorKind::UnexpectedEof)?;
        all.push(input.to_vec());
        rest = behind;
    }
    if rest.is_empty() { Ok(all) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// The committed seeds of a target, and what was found with them.
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
    let seeds = files.iter().filter_map(|file| std::fs::read(file).ok());
    let found = found(target.name).unwrap_or_default();
    seeds.filter(|seed| seed.len() <= MAX_INPUT).chain(found).collect()
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
