//! `manyways get` as a user meets it: real servers behind emulated links.
//!
//! Nothing here is timed. A script waits for bytes to have come, and every wait has a deadline that
//! only a hang reaches.

mod broken;
mod far;
mod fewer;
mod files;
mod metered;
mod resume;
mod terminal;
mod unlike;
mod whole;
