//! Messages that control something.

use std::fmt;

use manyways_unit::Time;

/// A message that controls a connection, a channel or a stream.
///
/// Events that come with every packet of data (completed packets, credits beside data) are none of
/// these; they are in what a stream adds up to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Control {
    /// When it passed; where it came in parts, when the last one did.
    pub at: Time,
    /// Who speaks.
    pub layer: Layer,
    /// What its specification calls it.
    pub name: &'static str,
    /// Which of the host's adapters it passed.
    pub adapter: u16,
    /// The connection that it is about or came over.
    pub handle: Option<u16>,
    /// The other end, where it is known.
    pub peer: Option<Address>,
    /// The L2CAP channel that it came over, by the number that it was addressed to.
    pub cid: Option<u16>,
    /// The RFCOMM stream that it is about; 0 is the session itself.
    pub dlci: Option<u8>,
    /// Which way it went.
    pub direction: Option<Direction>,
    /// What it says, as far as it was captured: numbers as they are sent, in the units of their
    /// specification.
    pub values: Vec<(&'static str, u64)>,
}

/// Who speaks in a control message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layer {
    /// The host to its controller, or back.
    Hci,
    /// L2CAP's signalling.
    L2cap,
    /// RFCOMM.
    Rfcomm,
}

/// Which way something went, as seen by the host that captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From the host.
    Sent,
    /// To the host.
    Received,
}

/// A device's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(
    /// In the order in which it is written.
    pub [u8; 6],
);

impl Control {
    /// One of its values.
    pub fn value(&self, name: &str) -> Option<u64> {
        self.values.iter().find(|(of, _)| *of == name).map(|(_, value)| *value)
    }
}

impl Direction {
    /// The other one.
    pub fn back(self) -> Self {
        match self {
            Self::Sent => Self::Received,
            Self::Received => Self::Sent,
        }
    }

    /// Its place where there is something for each direction.
    pub(super) fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hci => "HCI",
            Self::L2cap => "L2CAP",
            Self::Rfcomm => "RFCOMM",
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02X}:{b:02X}:{c:02X}:{d:02X}:{e:02X}:{g:02X}")
    }
}
