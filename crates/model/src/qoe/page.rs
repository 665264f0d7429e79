//! The dependency graph of a page load.
//!
//! A [`Load`] is what a browser reported of one load of a page: its requests, the tasks of its main
//! thread, and its marks.

mod load;
mod millis;

pub use self::load::{
    Arrival, Blocking, EventKind, Initiator, Kind, Load, Loading, Marks, Priority, Protocol,
    Request, Task, TaskKind, Times, flatten,
};
