//! What the tests of the real binary stand on: the binary itself, and what `manyways-rig` has for
//! them: real web servers, certificates and files to serve. The tests are in `tests/tests`; they
//! know `manyways` only by its command line, as a user does.
//!
//! Start with [`manyways()`] and [`Finished`]; a test that needs more than an ordinary user has
//! begins with [`needs!`].
#![forbid(unsafe_code)]

mod binary;
mod profile;

pub use binary::{manyways, manyways_path};
pub use manyways_rig::{
    Authority, Finished, Need, Running, Server, Site, SiteError, finish, folder, lack, needs,
    object, same_content,
};
pub use profile::RADIO;
