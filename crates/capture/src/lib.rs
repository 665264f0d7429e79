//! From captures to tables: opens captures, distributes their packets over the cores, and writes
//! the tables of `manyways_flows::analysis`.
//!
//! [`Sources`] finds captures, [`run`] reads them, and a [`Folder`] stores the tables. [`Live`] is
//! a capture on an interface: [`follow`] analyses it while it continues, and [`Sets`] stores its
//! tables in one folder for each period. [`Tables`] reads the tables of a folder, and [`Export`]
//! writes them in other formats.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod align;
mod block;
mod desk;
mod export;
mod folder;
mod input;
mod live;
mod parquet;
mod reading;
mod sets;
mod tables;
#[cfg(test)]
mod tests;
mod work;

pub use self::align::{AlignError, Alignment, LOG, Site, Taken, align};
pub use self::export::{Export, ExportError, Format, Written};
pub use self::folder::{Folder, FolderError, write_table};
pub use self::input::CAPTURES;
pub use self::input::{Source, SourceError, Sources};
pub use self::live::{Devices, Listener, Live, LiveError, Watch, follow};
pub use self::sets::Sets;
pub use self::tables::{Tables, TablesError};
pub use self::work::{Capture, Outcome, Plan, Progress, RunError, run};
