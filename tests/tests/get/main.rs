//! `manyways get` as a user meets it: real servers behind emulated links.
//!
//! Nothing here is timed. A script waits for bytes to have come, and every wait has a deadline that
//! only a hang reaches.

mod answers;
mod broken;
mod digest;
mod events;
mod far;
mod faulty;
mod fewer;
mod files;
mod interfaces;
mod left;
mod limits;
mod login;
mod metered;
mod options;
mod remembered;
mod resume;
mod several;
mod stdout;
mod terminal;
mod unlike;
mod whole;
mod words;
