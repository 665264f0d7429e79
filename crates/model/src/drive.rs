//! Driven replays: the exchanges of a recording issued again, with their connections, dependencies
//! and gaps, over any network.
//!
//! A [`Plan`] is made from a [`Recording`]: for each exchange the response that it waits for, the gap
//! after it, and the connection. A [`Drive`] executes the plan: it returns the connections to open
//! and the requests to send, receives reports of their progress, and has the app response time.
//! [`classify`] finds whether an application's traffic is dominated by short or by long flows, and
//! [`oracles`] compares app response times of six ways to use Wi-Fi and LTE.
//!
//! Source of the last two, and of the app response time: Deng's thesis, §2.3 and §2.4.

mod carriage;
pub mod classify;
mod machine;
pub mod oracles;
mod outcome;
mod plan;
mod recording;
mod state;
#[cfg(test)]
mod tests;

pub use self::machine::{Action, Drive, Input};
pub use self::outcome::{ConnectionOutcome, Ending, ExchangeOutcome, Outcome};
pub use self::plan::{
    Cancellation, Opening, Plan, PlannedConnection, PlannedExchange, Predecessor,
    WAITED_FOR_CONNECTION,
};
pub use self::recording::{Completion, Connection, Exchange, Protocol, Recording};
