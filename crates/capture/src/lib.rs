//! Captures to tables: opens captures, spreads their packets over the cores, and writes what
//! `manyways_flows::analysis` makes of them.
//!
//! [`Sources`] finds the captures, [`run`] goes through them, and a [`Folder`] takes the tables. A
//! [`Live`] capture is one that does not end by itself: [`follow`] goes along with it, and [`Sets`]
//! take its tables, one folder after the other. [`Tables`] are those of such a folder again, and
//! [`Export`] writes them in formats of others.
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
