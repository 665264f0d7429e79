//! Traffic of a benchmark: load generators, the server, and the splice through which kernel MPTCP
//! is measured. Each runs as a separate process on a node of a lab.

mod browse;
pub mod browser;
mod call;
mod combine;
pub mod content;
mod crowd;
pub mod dial;
mod download;
mod files;
mod forward;
mod greedy;
mod load;
pub mod page;
mod requests;
mod serve;
mod socks;
mod splice;
mod strangers;
mod stream;
mod upload;
mod visit;
pub mod web;

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::{Deserialize, Serialize};

pub use self::forward::ForwardArgs;
pub use self::load::LoadArgs;
pub use self::serve::ServeArgs;
pub use self::splice::SpliceArgs;
pub use self::strangers::StrangersArgs;
pub use self::visit::VisitArgs;

/// The result of a load generator, printed as one line of JSON on standard output.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// The measured figure; in seconds unless the load generator defines another unit.
    pub value: f64,
    /// The individual samples; empty if there is only one.
    #[serde(default)]
    pub samples: Vec<f64>,
    /// Additional figures by name.
    #[serde(default)]
    pub extra: BTreeMap<String, f64>,
}

/// Runs a load generator and prints its result.
pub fn load(args: &LoadArgs) -> Result<(), String> {
    let measurement = run(load::run(args)).map_err(|error| error.to_string())?;
    print_result(&measurement)?;
    if args.keeps_connections() {
        // The connections stay open until the parent closes standard input.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
    }
    Ok(())
}

/// Runs a proxy until the process is killed.
pub fn forward(args: &ForwardArgs) -> Result<(), String> {
    run(forward::run(args)).map_err(|error| error.to_string())
}

/// Runs the server until the process is killed.
pub fn serve(args: &ServeArgs) -> Result<(), String> {
    run(serve::run(args)).map_err(|error| error.to_string())
}

/// Knocks on a gateway as strangers, and prints how many came.
pub fn strangers(args: &StrangersArgs) -> Result<(), String> {
    print_result(&strangers::knock(args).map_err(|error| error.to_string())?)
}

/// Loads a page in a browser and prints the result.
pub fn visit(args: &VisitArgs) -> Result<(), String> {
    print_result(&run(visit::run(args)).map_err(|error| error.to_string())?)
}

/// Runs the splice until the process is killed.
pub fn splice(args: &SpliceArgs) -> Result<(), String> {
    run(splice::run(args)).map_err(|error| error.to_string())
}

fn print_result(measurement: &Measurement) -> Result<(), String> {
    let line = serde_json::to_string(measurement).map_err(|error| error.to_string())?;
    let mut out = io::stdout();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|error| error.to_string())
}

pub fn run<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    manyways_sys::privilege::raise_file_limit()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, work)
}
