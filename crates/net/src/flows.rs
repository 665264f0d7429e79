//! Captures to tables: opens captures, spreads their packets over the cores, and writes what
//! `manyways_wire::analysis` makes of them.
//!
//! [`Sources`] finds the captures, [`run`] goes through them, and a [`Folder`] takes the tables.

mod align;
mod block;
mod folder;
mod input;
mod parquet;
#[cfg(test)]
mod tests;
mod work;

pub use self::align::{AlignError, Alignment, LOG, Site, Taken, align};
pub use self::folder::{Folder, FolderError};
pub use self::input::{Source, SourceError, Sources};
pub use self::work::{Capture, Outcome, Plan, Progress, RunError, run};
