//! Capture files: pcap, pcapng and btsnoop, block by block.
//!
//! [`Reader`] takes the next bytes of a file and returns the block at their beginning. The reader
//! keeps none of the bytes, so the caller decides how much of the file is in memory. A [`Packet`]
//! contains the captured bytes of a packet.
//!
//! Times count from the Unix epoch; earlier times are replaced by the epoch.

mod btsnoop;
pub mod linux;
mod number;
mod pcap;
mod pcapng;
pub mod pcapng_writer;
#[cfg(test)]
mod tests;

use manyways_unit::Time;
use thiserror::Error;

use self::btsnoop::Btsnoop;
use self::pcap::Pcap;
use self::pcapng::Pcapng;

/// Maximum length of packets and blocks. Kernels merge packets up to 512 KiB in a capture; a longer
/// length is an error in the file.
pub const MAX_BLOCK_LENGTH: usize = 16 << 20;
/// Maximum number of interfaces in a file.
pub const MAX_INTERFACES: usize = 1 << 16;

/// A captured packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Capture time. A block without a time has that of the previous packet.
    pub at: Time,
    /// Index in [`Reader::interfaces`].
    pub interface: usize,
    /// The captured bytes, limited by the snap length.
    pub bytes: &'a [u8],
    /// Original length; at least the length of `bytes`.
    pub length: usize,
    /// Whether the capturing host sent the packet (true) or received it (false); `None` if unknown.
    pub is_sent: Option<bool>,
    /// Packets that the capture dropped between the previous packet and this one; 0 if the file has
    /// no count.
    pub dropped_before: u64,
    /// Whether the packet is earlier than the previous one in the file.
    pub is_out_of_order: bool,
}

/// Description of an interface in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Link-layer type of its packets.
    pub link: LinkType,
    /// Snap length; 0 for no limit.
    pub snap_length: u32,
    /// Empty if unknown.
    pub name: String,
    /// Packets that the capture dropped, from the counters at the end of the file.
    pub dropped: u64,
}

impl Interface {
    /// Kind of network, from interface names of Linux, Android and iOS: `wifi`, `cellular`,
    /// `bluetooth` or `ethernet`; `None` if the name is ambiguous, as `en0` and `any`.
    pub fn network(&self) -> Option<&'static str> {
        let begins =
            |prefixes: &[&str]| prefixes.iter().any(|prefix| self.name.starts_with(prefix));
        let cellular =
            ["rmnet", "v4-rmnet", "r_rmnet", "ccmni", "pdp_ip", "wwan", "wwp", "lte", "cell"];
        match () {
            () if begins(&cellular) => Some("cellular"),
            () if begins(&["wl", "wifi", "swlan"]) => Some("wifi"),
            () if begins(&["bnep", "bt-pan"]) => Some("bluetooth"),
            () if begins(&["eth", "enp", "eno", "ens", "enx"]) => Some("ethernet"),
            () => None,
        }
    }
}

/// Link-layer header type, as a number of the LINKTYPE registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkType(pub u16);

impl LinkType {
    /// Address family in the byte order of the capturing host, then IP.
    pub const NULL: Self = Self(0);
    pub const ETHERNET: Self = Self(1);
    /// PPP, with or without HDLC framing.
    pub const PPP: Self = Self(9);
    /// PPP in HDLC framing, or Cisco HDLC.
    pub const PPP_HDLC: Self = Self(50);
    /// PPPoE session header.
    pub const PPPOE: Self = Self(51);
    /// IP without a link-layer header.
    pub const RAW: Self = Self(101);
    pub const CISCO_HDLC: Self = Self(104);
    pub const WIFI: Self = Self(105);
    /// As [`LinkType::NULL`], in big-endian order.
    pub const LOOP: Self = Self(108);
    /// Linux cooked header.
    pub const SLL: Self = Self(113);
    /// IEEE 802.11 after a radiotap header.
    pub const RADIOTAP: Self = Self(127);
    /// Bluetooth HCI with a packet type before each packet (H4).
    pub const HCI_H4: Self = Self(187);
    /// Properties of a radio before a packet, with the link type of the packet (PPI).
    pub const PPI: Self = Self(192);
    /// As [`LinkType::HCI_H4`], with the direction before each packet.
    pub const HCI_H4_DIRECTED: Self = Self(201);
    pub const IPV4: Self = Self(228);
    pub const IPV6: Self = Self(229);
    /// Linux Bluetooth monitor: adapter index and opcode before each packet.
    pub const BLUETOOTH_MONITOR: Self = Self(254);
    /// Linux cooked header, version 2.
    pub const SLL2: Self = Self(276);
    /// Bluetooth HCI data without packet types. Not a registered number, because btsnoop has its
    /// own numbers.
    pub const HCI_DATA: Self = Self(0xf001);
    /// As [`LinkType::HCI_DATA`], for commands and events.
    pub const HCI_CONTROL: Self = Self(0xf002);
    /// As [`LinkType::HCI_DATA`], for synchronous and isochronous data.
    pub const HCI_SYNCHRONOUS: Self = Self(0xf003);
    /// As [`LinkType::HCI_DATA`], for other records of the Linux Bluetooth monitor: added and
    /// removed adapters, and notes.
    pub const HCI_MONITOR_OTHER: Self = Self(0xf004);

    /// Maps the system-specific numbers for raw IP to the registered one.
    pub(crate) fn normalized(self) -> Self {
        match self.0 {
            12 | 14 => Self::RAW,
            _ => self,
        }
    }

    /// Whether the packets are Bluetooth HCI in any encapsulation.
    pub fn is_bluetooth(self) -> bool {
        [
            Self::HCI_H4,
            Self::HCI_H4_DIRECTED,
            Self::HCI_DATA,
            Self::HCI_CONTROL,
            Self::HCI_SYNCHRONOUS,
            Self::HCI_MONITOR_OTHER,
            Self::BLUETOOTH_MONITOR,
        ]
        .contains(&self)
    }
}

/// Result of reading the next bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// A packet, and the number of bytes of the file that its block has.
    Packet(Packet<'a>, usize),
    /// A number of bytes without a packet.
    Other(usize),
    /// The next block has at least this number of bytes, more than were given.
    More(usize),
}

/// Reason why a file cannot be read further.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum FormatError {
    /// The beginning matches none of the formats.
    #[error("not a capture: it has no signature of pcap, pcapng or btsnoop")]
    Unknown,
    #[error("{format} version {version} is not supported")]
    Version {
        /// Name of the format.
        format: &'static str,
        /// Version in the file.
        version: u32,
    },
    #[error("invalid length of {object}: {length} bytes")]
    Length {
        /// The object with this length.
        object: &'static str,
        /// Length in the file, in bytes.
        length: u64,
    },
    /// The lengths at the two ends of a block differ.
    #[error("the lengths at the two ends of a block differ: {first} and {last} bytes")]
    LengthMismatch {
        /// Length at the beginning, in bytes.
        first: u32,
        /// Length at the end, in bytes.
        last: u32,
    },
    /// A record of zeros, as in preallocated space that was never written.
    #[error("zeros instead of a packet: the capture was not written completely")]
    Zeros,
    /// More interfaces than [`MAX_INTERFACES`].
    #[error("more than {MAX_INTERFACES} interfaces")]
    TooManyInterfaces,
    /// A packet refers to an interface without a description before the packet.
    #[error("a packet refers to interface {0} before its description")]
    Interface(u32),
}

/// Reads a capture block by block.
#[derive(Clone, Debug, Default)]
pub struct Reader {
    format: Option<Format>,
    interfaces: Vec<Interface>,
    /// Time of the last packet.
    last: Time,
    /// Time of the last packet that was returned.
    previous: Time,
}

#[derive(Clone, Debug)]
enum Format {
    Pcap(Pcap),
    Pcapng(Pcapng),
    Btsnoop(Btsnoop),
}

impl Reader {
    /// Reads the block at the beginning of `bytes`, which must follow the bytes of all earlier
    /// results. [`Step::More`] changes no state; at the end of the file it means that the file is
    /// truncated.
    #[inline]
    pub fn step<'a>(&mut self, bytes: &'a [u8]) -> Result<Step<'a>, FormatError> {
        let mut step = match &mut self.format {
            Some(Format::Pcap(pcap)) => pcap.step(bytes),
            Some(Format::Pcapng(pcapng)) => {
                pcapng.step(bytes, &mut self.interfaces, &mut self.last)
            }
            Some(Format::Btsnoop(btsnoop)) => btsnoop.step(bytes, &mut self.interfaces),
            None => self.begin(bytes),
        };
        if let Ok(Step::Packet(packet, _)) = &mut step {
            packet.is_out_of_order = packet.at < self.previous;
            self.previous = packet.at;
        }
        step
    }

    /// The interfaces described so far. Indices never change.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn begin<'a>(&mut self, bytes: &[u8]) -> Result<Step<'a>, FormatError> {
        let Some(magic) = bytes.first_chunk() else { return Ok(Step::More(4)) };
        if *magic == pcapng::SECTION {
            self.format = Some(Format::Pcapng(Pcapng::default()));
            return Ok(Step::Other(0));
        }
        if btsnoop::MAGIC.starts_with(magic) {
            let Some(header) = bytes.first_chunk() else { return Ok(Step::More(btsnoop::HEADER)) };
            let (btsnoop, interfaces) = Btsnoop::begin(header)?;
            self.format = Some(Format::Btsnoop(btsnoop));
            self.interfaces = interfaces;
            return Ok(Step::Other(btsnoop::HEADER));
        }
        if !pcap::is_magic(*magic) {
            return Err(FormatError::Unknown);
        }
        let Some(header) = bytes.first_chunk() else { return Ok(Step::More(pcap::HEADER)) };
        let (pcap, interface) = Pcap::begin(header)?;
        self.format = Some(Format::Pcap(pcap));
        self.interfaces = vec![interface];
        Ok(Step::Other(pcap::HEADER))
    }
}
