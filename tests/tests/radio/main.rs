//! `manyways radio`: on traces, on a pair of interfaces, and on emulated radios.

mod control;
mod probe;
mod traces;
