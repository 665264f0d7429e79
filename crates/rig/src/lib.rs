//! Shared infrastructure of benchmarks, the demonstration and the tests.
//!
//! - External programs ([`programs`]), web servers with certificates and files to serve ([`Site`],
//!   [`Server`], [`Origin`]), processes that end in bounded time ([`Running`]), and missing
//!   requirements of the machine ([`needs!`]).
//! - Benchmarks: the contenders of a [`cell`] take turns in each round, in a lab that [`launch`]
//!   builds. [`results`] runs the cells, writes the records after each and resumes old runs;
//!   [`sample`] and [`target`] compare, and [`page`] writes Markdown with missed targets first.
//! - Programs that fetch an object from an [`Origin`] ([`download`]), for a benchmark and for the
//!   demonstration.
//!
//! The crate does not depend on the internals of a subcommand: it runs `manyways` by its command
//! line, like any other program. Charts and target values belong to the families of benchmarks.
#![forbid(unsafe_code)]

pub mod cell;
mod certificate;
pub mod download;
pub mod launch;
pub mod links;
pub mod machine;
mod need;
mod object;
pub mod order;
mod origin;
pub mod page;
mod process;
pub mod programs;
pub mod progress;
pub mod results;
pub mod sample;
mod server;
pub mod sockets;
pub mod target;

pub use certificate::Authority;
pub use need::{Need, lack};
pub use object::{folder, object, same_content};
pub use origin::{Origin, WARM_UP};
pub use process::{Finished, Running, finish};
pub use server::{Server, Site, SiteError};
