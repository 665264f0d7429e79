//! Shells of the radio models: packet traces from files, policies run over traces on all cores, a
//! policy run on live traffic, timers probed on an interface, and the JSON documents of all results.

pub mod control;
pub mod energy;
pub mod event;
pub mod infer;
mod lines;
pub mod probe;
pub mod profiles;
pub mod runs;
pub mod trace;
pub mod whatif;
