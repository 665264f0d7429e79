//! The row of a packet.

use manyways_trace::Time;

use super::FlowId;
use crate::table::{Column, Row, columns};

/// A packet of IP.
#[derive(Clone, Debug)]
pub struct FlowPacket {
    /// When it passed.
    pub at: Time,
    /// Its length with IP's header.
    pub length: u32,
    /// From the local side: up.
    pub is_up: bool,
    /// Which of the capture's interfaces it passed.
    pub interface: u16,
    /// Its flow, of TCP or UDP.
    pub flow: Option<FlowId>,
    /// What the flow's server is called.
    pub application: Option<String>,
}

impl Row for FlowPacket {
    const TABLE: &'static str = "packets";
    const ABOUT: &'static str = "A packet of IP.";
    const COLUMNS: &'static [Column<Self>] = columns! {
        "time" Time "When it passed." |row| row.at;
        "bytes" Count "Its length in bytes, IP's header included." |row| row.length;
        "direction" Text "up, from the local side, or down."
            |row| if row.is_up { "up" } else { "down" };
        "interface" Count "Which of the capture's interfaces it passed, counted from zero."
            |row| row.interface;
        "flow" Flow "The number of its flow; none where it is neither TCP nor UDP."
            |row| row.flow.map(|flow| flow.0);
        "application" Name "The registered domain of the flow's server, or else its address."
            |row| row.application.as_deref();
    };
}
