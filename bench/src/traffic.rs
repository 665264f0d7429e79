//! The traffic of a benchmark: who asks, who answers, and the splice that the kernel's MPTCP needs
//! to be compared with. Each runs as a process of its own somewhere in a lab.

pub mod ask;
mod browse;
mod call;
mod crowd;
mod dial;
mod files;
mod load;
mod page;
mod requests;
mod serve;
mod socks;
mod splice;
mod stream;
pub mod web;

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::{Deserialize, Serialize};

pub use self::load::LoadArgs;
pub use self::serve::ServeArgs;
pub use self::splice::SpliceArgs;

/// What a load generator says of what it did, as one line of JSON on its standard output.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Told {
    /// The figure that it is about: seconds, but for what says otherwise.
    pub value: f64,
    /// Every single one, where there are several.
    #[serde(default)]
    pub samples: Vec<f64>,
    /// What else there is to know.
    #[serde(default)]
    pub more: BTreeMap<String, f64>,
}

/// Loads a server.
pub fn load(args: &LoadArgs) -> Result<(), String> {
    let told = run(load::run(args)).map_err(|error| error.to_string())?;
    tell(&told)?;
    if args.holds() {
        // What was opened stays so until whoever asked for it has seen enough.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
    }
    Ok(())
}

/// Answers for ever.
pub fn serve(args: &ServeArgs) -> Result<(), String> {
    run(serve::run(args)).map_err(|error| error.to_string())
}

/// Hands connections on for ever.
pub fn splice(args: &SpliceArgs) -> Result<(), String> {
    run(splice::run(args)).map_err(|error| error.to_string())
}

fn tell(told: &Told) -> Result<(), String> {
    let line = serde_json::to_string(told).map_err(|error| error.to_string())?;
    let mut out = io::stdout();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|error| error.to_string())
}

fn run<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    manyways_sys::privilege::raise_file_limit()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, work)
}
