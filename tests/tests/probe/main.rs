//! `manyways probe` over emulated links, and over routes of namespaces; and films.

mod film;
mod networks;
mod page;
mod routes;
mod server;
mod video;

use manyways_tests::Finished;
use serde_json::Value;

/// The results of a probe, one for each network.
fn results(done: &Finished) -> Vec<Value> {
    let document: Value = serde_json::from_str(&done.stdout)
        .unwrap_or_else(|error| panic!("{error}\n{}\n{}", done.stdout, done.stderr));
    assert_eq!(document["schema"], "manyways.probe/1");
    document["results"].as_array().expect("a list of results").clone()
}
