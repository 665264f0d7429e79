//! Infrastructure for the tests of the real binary: the binary itself, and the web servers,
//! certificates and files of `manyways-rig`. The tests are in `tests/tests`; they use only the
//! command line of `manyways`, as a user does.
//!
//! Start with [`manyways()`], [`Finished`] and [`Lab`]. A test with special requirements begins with
//! [`needs!`].
#![forbid(unsafe_code)]

mod binary;
mod lab;
mod profile;
mod timing;

pub use binary::{manyways, manyways_path};
pub use lab::{Lab, alone, lab_name, shared_host};
pub use manyways_rig::patience::SHELL;
pub use manyways_rig::testbed;
pub use manyways_rig::{
    Authority, FAULT, Finished, Folder, Need, Running, Server, ServerConfig, ServerError,
    WebServer, fault, finish, folder, missing, needs, object, same_content,
};
pub use profile::RADIO;
pub use timing::{Outcome, conclusive, max_lateness};
