//! The radio's shells: traces of packets out of files, and policies that run over them on all cores.

pub mod runs;
pub mod trace;
