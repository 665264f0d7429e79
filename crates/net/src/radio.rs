//! Shells of the radio models: packet traces from files, policies run over traces on all cores, a
//! policy run on live traffic, and timers probed on an interface.

pub mod control;
pub mod probe;
pub mod runs;
pub mod trace;
