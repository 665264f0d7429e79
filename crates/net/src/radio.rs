//! The radio's shells: traces of packets out of files.

pub mod trace;
