//! The radio's shells: traces of packets out of files, policies that run over them on all cores, and
//! one that runs while packets pass.

pub mod control;
pub mod runs;
pub mod trace;
