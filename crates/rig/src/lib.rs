//! What benchmarks, the demonstration and the tests stand on: other programs, web servers with
//! certificates and files to serve, processes that end in bounded time, and what a machine lacks.
//!
//! The crate knows no subcommand's internals: `manyways` is one program among others here, known by
//! its command line. Start with [`Site`] and [`Server`]; a test that needs more than an ordinary
//! user has begins with [`needs!`].
#![forbid(unsafe_code)]

mod certificate;
mod need;
mod object;
mod origin;
mod process;
pub mod programs;
mod server;

pub use certificate::Authority;
pub use need::{Need, lack};
pub use object::{folder, object, same_content};
pub use origin::{Origin, WARM_UP};
pub use process::{Finished, Running, finish};
pub use server::{Server, Site, SiteError};
