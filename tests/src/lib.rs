//! Infrastructure for the tests of the real binary: the binary itself, and the web servers,
//! certificates and files of `manyways-rig`. The tests are in `tests/tests`; they use only the
//! command line of `manyways`, as a user does.
//!
//! Start with [`manyways()`] and [`Finished`]. A test with special requirements begins with
//! [`needs!`].
#![forbid(unsafe_code)]

mod binary;
mod profile;

pub use binary::{manyways, manyways_path};
pub use manyways_rig::{
    Authority, Finished, Need, Running, Server, Site, SiteError, finish, folder, lack, needs,
    object, same_content,
};
pub use profile::RADIO;
