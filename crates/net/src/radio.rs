//! The radio's shells: traces of packets out of files, and its timers probed on an interface.

pub mod probe;
pub mod trace;
