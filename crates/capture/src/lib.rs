//! From captures to tables: opens captures, distributes their packets over the cores, and writes
//! the tables of `manyways_flows::analysis`.
//!
//! [`Sources`] finds captures, [`run`] reads them, and a [`Folder`] stores the tables.
//! [`LiveCapture`] is a capture on an interface: [`run_live`] analyses it while it continues, and
//! [`Sets`] stores its tables in one folder for each period. [`Tables`] reads the tables of a
//! folder, and [`Export`] writes them in other formats.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod align;
mod block;
mod document;
mod export;
mod folder;
mod input;
mod live;
mod parquet;
mod sequence;
mod sets;
mod tables;
#[cfg(test)]
mod tests;
mod work;
mod work_queue;

pub use self::align::{AlignError, AlignedCapture, Alignment, MAX_LOG_LENGTH, PointCapture, align};
pub use self::document::{Document, undecrypted_versions};
pub use self::export::{Export, ExportError, ExportedTable, Format};
pub use self::folder::{Folder, FolderError, write_table};
pub use self::input::CAPTURE_MAGIC;
pub use self::input::{Source, SourceError, Sources};
pub use self::live::{Listener, LiveCapture, LiveError, LiveInterface, LiveOptions, run_live};
pub use self::sets::Sets;
pub use self::tables::{Tables, TablesError, read_table};
pub use self::work::{CaptureStats, Progress, RunError, RunOptions, RunReport, run};
