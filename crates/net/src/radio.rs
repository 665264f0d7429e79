//! The radio's shells: traces of packets out of files, policies that run over them on all cores, one
//! that runs while packets pass, and timers that are probed on an interface.

pub mod control;
pub mod probe;
pub mod runs;
pub mod trace;
