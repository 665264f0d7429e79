//! Driven replays: the exchanges of a recording issued again, with their connections, dependencies
//! and gaps, over any network.
//!
//! A [`Plan`] is made from a [`Recording`]: for each exchange the response that it waits for, the gap
//! after it, and the connection.

mod carriage;
mod plan;
mod recording;
#[cfg(test)]
mod tests;

pub use self::plan::{
    Cancellation, Opening, Plan, PlannedConnection, PlannedExchange, Predecessor,
    WAITED_FOR_CONNECTION,
};
pub use self::recording::{Completion, Connection, Exchange, Protocol, Recording};
