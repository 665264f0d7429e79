//! The dependency graph of a page load, its critical path, and what-if replays.
//!
//! A [`Load`] is what a browser reported of one load of a page: its requests, the tasks of its main
//! thread, and its marks. [`Graph::of`] infers what each activity waited for. [`Graph::replay`] runs
//! the graph again in virtual time, with a [`Change`] of the network, the processor or an object.
//! [`Graph::critical_path`] and [`Graph::slack`] evaluate a replay. [`known`] has pages with known edges.

mod cause;
mod graph;
pub mod known;
mod load;
mod millis;
mod network;
mod path;
mod replay;
mod steps;
#[cfg(test)]
mod tests;
mod wait;

pub use self::cause::{Edge, EdgeKind};
pub use self::graph::{Graph, GraphTask};
pub use self::load::{
    Arrival, Blocking, EventKind, Initiator, Kind, Load, Loading, Marks, Priority, Protocol,
    Request, Task, TaskKind, Times, flatten,
};
pub use self::path::{Activity, CriticalPath, Goal, PathStep, Shares};
pub use self::replay::{Change, Replay, RequestTimes};
