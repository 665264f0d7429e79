//! Tests every parser of untrusted bytes with mutated input.
//!
//! A [`Target`] accepts any bytes and panics only if a parser has a fault. It may also check
//! invariants of valid input, for example that printing and parsing give an equal value. The runner
//! needs no special compiler: [`Mutator`] mutates the files of `corpus/TARGET/` deterministically
//! for each seed. `cargo test -p manyways-fuzz` runs a few thousand inputs for each target, and
//! `cargo run --release -p manyways-fuzz -- TARGET COUNT` runs COUNT inputs.
//! `fuzz/guided/run TARGET SECONDS` runs libFuzzer, which searches for inputs that reach new code;
//! `fuzz/guided/keep TARGET` stores them in `found/`, and all runs begin with them.
//!
//! A new parser gets a function in [`targets`], an entry in [`targets::ALL`] and a few seeds in
//! `corpus/`. An input that finds a fault becomes a unit test in the module of the parser.
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

/// Maximum length of a mutated input.
pub const MAX_INPUT: usize = 1 << 16;

/// Inputs that libFuzzer found for a target, if they were kept. In the file each input is preceded
/// by its length as a little-endian 32-bit number.
///
/// # Errors
/// The file exists but cannot be read.
pub fn found_inputs(target: &str) -> io::Result<Vec<Vec<u8>>> {
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

/// The committed seeds of a target, and the inputs that libFuzzer found.
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
    // Folders have a different order on each system.
    files.sort();
    let seeds = files.iter().filter_map(|file| std::fs::read(file).ok());
    let found = found_inputs(target.name).unwrap_or_default();
    seeds.filter(|seed| seed.len() <= MAX_INPUT).chain(found).collect()
}

/// Runs a target on its seeds and then on `count` mutated inputs. Returns the input of the first
/// failure as the error; the panic message is on standard error.
pub fn run(target: &Target, count: u64, seed: u64) -> Result<(), Vec<u8>> {
    let corpus = corpus(target);
    let attempt = |input: &[u8]| {
        catch_unwind(AssertUnwindSafe(|| (target.run)(input))).map_err(|_| input.to_vec())
    };
    corpus.iter().try_for_each(|input| attempt(input))?;
    let mut mutator = Mutator::new(seed, &corpus, target.words);
    (0..count).try_for_each(|_| attempt(&mutator.next_input()))
}
