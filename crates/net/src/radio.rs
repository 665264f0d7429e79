//! The radio's shells: traces of packets out of files, policies that run over them on all cores, one
//! that runs while packets pass, and timers probed on an interface that is there.

pub mod control;
pub mod probe;
pub mod runs;
pub mod trace;
