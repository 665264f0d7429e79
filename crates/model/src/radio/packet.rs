//! Packets of a trace.

use manyways_unit::Time;

/// Direction, seen from the device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Direction {
    /// Sent by the device.
    Up,
    /// Received by the device.
    Down,
}

/// One packet of a trace, as a radio experiences it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Packet {
    pub at: Time,
    pub direction: Direction,
    /// Length of the IP packet.
    pub bytes: u32,
    /// Index in the trace's list of applications.
    pub app: u16,
    /// Number of the session. All packets of a session are delayed together or not at all.
    pub session: u32,
}
