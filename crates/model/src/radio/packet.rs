//! What passes the radio.

use manyways_unit::Time;

/// Which way a packet goes, as seen from the device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Direction {
    /// The device sends it.
    Up,
    /// The device receives it.
    Down,
}

/// A packet of a trace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Packet {
    /// When it passes.
    pub at: Time,
    /// Which way it goes.
    pub direction: Direction,
    /// Its length on the network layer, in bytes.
    pub bytes: u32,
    /// The application that it belongs to: a place in the trace's list of names.
    pub app: u16,
    /// The session that it belongs to. All packets of a session are held back together or not at
    /// all.
    pub session: u32,
}
