//! What the tests of the real binary stand on: the binary itself, real web servers, certificates
//! and files to serve. The tests are in `tests/tests`; they know `manyways` only by its command
//! line, as a user does.
//!
//! Start with [`manyways()`] and [`Finished`]; a test that needs more than an ordinary user has
//! begins with [`needs!`].
#![forbid(unsafe_code)]

mod binary;
mod certificate;
mod need;
mod object;
mod process;
mod profile;
mod server;

pub use binary::{manyways, manyways_path};
pub use certificate::Authority;
pub use need::{Need, lack};
pub use object::{folder, object, same_content};
pub use process::{Finished, Running, finish};
pub use profile::RADIO;
pub use server::{Server, Site};
