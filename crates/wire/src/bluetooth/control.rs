//! Control messages.

use std::fmt;

use manyways_unit::Time;

/// A message that controls a connection, a channel or a stream.
///
/// Messages that accompany every data packet (completed packets, credits next to data) are not
/// included; they are part of the summary of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Control {
    /// Time of the message, or of its last fragment.
    pub at: Time,
    /// Protocol of the message.
    pub layer: Layer,
    /// Name in the specification.
    pub name: &'static str,
    /// Index of the host's adapter.
    pub adapter: u16,
    /// Handle of the connection that the message is about or was received over.
    pub handle: Option<u16>,
    /// `None` if unknown.
    pub peer: Option<Address>,
    /// Destination L2CAP channel ID of the message.
    pub cid: Option<u16>,
    /// RFCOMM stream that the message is about; 0 is the session itself.
    pub dlci: Option<u8>,
    pub direction: Option<Direction>,
    /// Captured parameters: raw numbers in the units of the specification.
    pub values: Vec<(&'static str, u64)>,
}

/// Protocol of a control message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layer {
    /// Between the host and its controller.
    Hci,
    /// L2CAP signalling.
    L2cap,
    Rfcomm,
}

/// Direction of a packet, seen from the capturing host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From the host.
    Sent,
    /// To the host.
    Received,
}

/// A Bluetooth device address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(
    /// Most significant byte first, as the address is written.
    pub [u8; 6],
);

impl Control {
    /// The parameter `name`.
    pub fn value(&self, name: &str) -> Option<u64> {
        self.values.iter().find(|(of, _)| *of == name).map(|(_, value)| *value)
    }
}

impl Direction {
    /// The opposite direction.
    pub fn opposite(self) -> Self {
        match self {
            Self::Sent => Self::Received,
            Self::Received => Self::Sent,
        }
    }

    /// Index into arrays with one entry for each direction.
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
