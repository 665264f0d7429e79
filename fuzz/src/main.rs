//! `manyways-fuzz TARGET|all COUNT [SEED]`: a long run with an ordinary compiler.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use manyways_fuzz::{Target, run, targets};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (chosen, count, seed) = match &args[..] {
        [name, count] => (name, count.parse(), Ok(1)),
        [name, count, seed] => (name, count.parse(), seed.parse()),
        _ => return usage(),
    };
    let (Ok(count), Ok(seed)) = (count, seed) else { return usage() };
    let all: Vec<&Target> =
        targets::ALL.iter().filter(|target| chosen == "all" || chosen == target.name).collect();
    if all.is_empty() {
        return usage();
    }
    for target in all {
        if let Err(input) = run(target, count, seed) {
            let file = std::env::temp_dir().join(format!("manyways-fuzz-{}", target.name));
            match std::fs::write(&file, &input) {
                Ok(()) => eprintln!("{}: the input is in {}", target.name, file.display()),
                Err(_) => eprintln!("{}: the input is {}", target.name, input.escape_ascii()),
            }
            return ExitCode::FAILURE;
        }
        println!("{}: {count} inputs, no fault", target.name);
    }
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    let names: Vec<&str> = targets::ALL.iter().map(|target| target.name).collect();
    eprintln!("usage: manyways-fuzz TARGET|all COUNT [SEED]; targets: {}", names.join(", "));
    ExitCode::from(2)
}
