//! What benchmarks, the demonstration and the tests stand on.
//!
//! - Other programs ([`programs`]), web servers with certificates and files to serve ([`Site`],
//!   [`Server`], [`Origin`]), processes that end in bounded time ([`Running`]), and what a machine
//!   lacks ([`needs!`]).
//! - Benchmarks: contenders take turns in the rounds of a [`cell`], in a lab that [`launch`] builds.
//!   [`results`] runs the cells, writes their records down after each and goes on after an end;
//!   [`sample`] and [`target`] compare, and [`page`] writes Markdown, misses first.
//! - Programs that fetch an object from an [`Origin`] ([`download`]), for a benchmark and for the
//!   demonstration.
//!
//! The crate knows no subcommand's internals: `manyways` is one program among others here, known by
//! its command line. It draws no chart and decides no target: a family of benchmarks does.
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
