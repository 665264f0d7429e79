//! `manyways get` from the user's side: real servers and emulated links.
//!
//! No test measures time. A script waits for received bytes, with a deadline that only a hang
//! reaches.

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
