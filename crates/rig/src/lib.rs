//! Shared infrastructure of benchmarks, the demonstration and the tests.
//!
//! - External programs ([`programs`]), web servers with certificates and files to serve
//!   ([`Authority`], [`WebServer`], [`Server`], [`Origin`]), processes that end in bounded time
//!   ([`Running`]), and missing requirements of the machine ([`needs!`]).
//! - Network namespaces with sockets and programs in them ([`testbed`]), waits for events, and the
//!   mark of failures that no busy machine can cause ([`patience`]).
//! - Benchmarks: the contenders of a [`cell`] take turns in each round, in a lab that [`launch`]
//!   builds, or are processes that [`measure`] watches. [`results`] runs the cells, writes the records after each and resumes old runs;
//!   [`sample`] and [`target`] compare, and [`page`] writes Markdown with missed targets first.
//! - Programs that fetch an object from an [`Origin`] ([`download`]), and the event log of such a
//!   transfer ([`transfer`]), for a benchmark and for the demonstration.
//! - A page that plays a film in a browser ([`film_page`]).
//!
//! The crate does not depend on the internals of a subcommand: it runs `manyways` by its command
//! line, like any other program, and reads its output and its event log. Charts and target values
//! belong to the families of benchmarks.
#![forbid(unsafe_code)]

pub mod cell;
mod certificate;
pub mod download;
pub mod film_page;
pub mod launch;
pub mod links;
pub mod machine;
pub mod measure;
mod need;
mod object;
pub mod order;
mod origin;
pub mod page;
pub mod patience;
mod process;
mod profile;
pub mod programs;
pub mod progress;
pub mod results;
pub mod sample;
mod server;
pub mod sockets;
pub mod target;
pub mod testbed;
pub mod transfer;
mod web_server;

pub use certificate::Authority;
pub use need::{Need, missing};
pub use object::{Folder, folder, object, same_content};
pub use origin::{Origin, Service, WARM_UP};
pub use patience::FAULT;
pub use process::{Finished, Running, assert_no_panic, finish};
pub use profile::radio_profile;
pub use server::{Server, ServerConfig, ServerError};
pub use web_server::WebServer;
