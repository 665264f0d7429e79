//! UDP flows.
//!
//! A [`Table`] has a [`Flow`] for each pair of endpoints. The flow counts the datagrams of each
//! endpoint and follows QUIC.

mod flow;
mod table;

pub use flow::{Flow, Protocol, SenderStats};
pub use table::{EndedFlow, FlowContext, Limits, Table};
