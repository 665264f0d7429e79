//! Captures as files hold them: pcap, pcapng and btsnoop, block by block.
//!
//! A [`Reader`] is given the next bytes of a file and says what they are; it holds none of them, so
//! whoever has the file decides how much of it is in memory. What comes out is a [`Packet`] with the
//! bytes that were captured of it.
//!
//! Times are counted from the Unix epoch here. One before it becomes the epoch itself.

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

/// The longest packet and the longest block that are believed. Kernels merge packets up to 512 KiB
/// for a capture; more than this is a broken length.
pub const BLOCK_LIMIT: usize = 16 << 20;
/// So many interfaces a file may describe.
pub const INTERFACE_LIMIT: usize = 1 << 16;

/// A packet as it was captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// When it passed. A block without a time has that of the packet before it.
    pub at: Time,
    /// Which of [`Reader::interfaces`] it passed.
    pub interface: usize,
    /// The bytes that are there, at most as many as the snap length.
    pub bytes: &'a [u8],
    /// How many bytes it had when it passed, never fewer than are there.
    pub length: usize,
    /// Whether the one who captured sent it (true) or got it; none where nobody says.
    pub is_sent: Option<bool>,
    /// So many packets were lost by the capture itself between the packet before it and this one;
    /// where the file says so.
    pub lost_before: u64,
    /// It is earlier than the packet before it in the capture.
    pub steps_back: bool,
}

/// What a file says of where packets passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// How its packets begin.
    pub link: LinkType,
    /// The most bytes that are kept of a packet; zero where there is no limit.
    pub snap: u32,
    /// Its name; empty where nobody says.
    pub name: String,
    /// So many packets the capture lost there, by the counters at its end.
    pub lost: u64,
}

impl Interface {
    /// What kind of network it belongs to, by its name in Linux, Android and iOS: `wifi`, `cellular`,
    /// `bluetooth` or `ethernet`; none where the name does not say, as `en0` and `any`.
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

/// How a packet begins, by the number that the registry of link-layer types gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkType(pub u16);

impl LinkType {
    /// The address family in the byte order of the one who captured, then IP.
    pub const NULL: Self = Self(0);
    /// Ethernet.
    pub const ETHERNET: Self = Self(1);
    /// PPP, with or without the framing of HDLC.
    pub const PPP: Self = Self(9);
    /// PPPoE's session header.
    pub const PPPOE: Self = Self(51);
    /// IP.
    pub const RAW: Self = Self(101);
    /// IEEE 802.11.
    pub const WIFI: Self = Self(105);
    /// As [`LinkType::NULL`], the most significant byte first.
    pub const LOOP: Self = Self(108);
    /// Linux's cooked header.
    pub const SLL: Self = Self(113);
    /// IEEE 802.11 behind a radiotap header.
    pub const RADIOTAP: Self = Self(127);
    /// Bluetooth's HCI, each packet behind its type (H4).
    pub const HCI_H4: Self = Self(187);
    /// As [`LinkType::HCI_H4`], each behind the way it went.
    pub const HCI_H4_DIRECTED: Self = Self(201);
    /// IPv4.
    pub const IPV4: Self = Self(228);
    /// IPv6.
    pub const IPV6: Self = Self(229);
    /// What Linux's Bluetooth monitor writes, each packet behind its adapter and its opcode.
    pub const BLUETOOTH_MONITOR: Self = Self(254);
    /// The second version of Linux's cooked header.
    pub const SLL2: Self = Self(276);
    /// Bluetooth's HCI without types, data alone. It is in no registry: btsnoop numbers its own.
    pub const HCI_DATA: Self = Self(0xf001);
    /// As [`LinkType::HCI_DATA`], of which the commands and events are.
    pub const HCI_CONTROL: Self = Self(0xf002);
    /// As [`LinkType::HCI_DATA`], of which synchronous and isochronous data are.
    pub const HCI_SYNCHRONOUS: Self = Self(0xf003);
    /// As [`LinkType::HCI_DATA`], what else Linux's Bluetooth monitor writes: adapters that come and
    /// go, and notes.
    pub const HCI_NOTE: Self = Self(0xf004);

    /// Whether packets are those of Bluetooth's HCI, of whatever form.
    pub fn is_bluetooth(self) -> bool {
        [
            Self::HCI_H4,
            Self::HCI_H4_DIRECTED,
            Self::HCI_DATA,
            Self::HCI_CONTROL,
            Self::HCI_SYNCHRONOUS,
            Self::HCI_NOTE,
            Self::BLUETOOTH_MONITOR,
        ]
        .contains(&self)
    }
}

/// What the next bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// A packet, which takes so many bytes of the file.
    Packet(Packet<'a>, usize),
    /// So many bytes without a packet.
    Other(usize),
    /// What is next has at least so many bytes, more than were given.
    More(usize),
}

/// Why a file cannot be read on.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Broken {
    /// It begins like none of the formats.
    #[error("this is no capture: it begins neither as pcap nor as pcapng nor as btsnoop does")]
    Unknown,
    /// It has a version that is not known.
    #[error("{format} in version {version} is not known here")]
    Version {
        /// The name of the format.
        format: &'static str,
        /// As the file says it.
        version: u32,
    },
    /// It says of something that it has an impossible length.
    #[error("{what} of {length} bytes cannot be")]
    Length {
        /// What has that length.
        what: &'static str,
        /// As the file says it.
        length: u64,
    },
    /// The length at a block's end is not that at its beginning.
    #[error("a block says at its beginning that it has {first} bytes, and {last} at its end")]
    Ends {
        /// As its beginning says.
        first: u32,
        /// As its end says.
        last: u32,
    },
    /// A record begins with zeros, as where the end of a file has room that was never written.
    #[error("zeros stand where a packet should begin: the capture was not written to its end")]
    Zeros,
    /// It describes more interfaces than [`INTERFACE_LIMIT`].
    #[error("it describes more than {INTERFACE_LIMIT} interfaces")]
    Interfaces,
    /// A packet passed an interface that was not described before it.
    #[error("a packet passed interface {0}, which nothing before it describes")]
    Interface(u32),
}

/// Reads a capture block by block.
#[derive(Clone, Debug, Default)]
pub struct Reader {
    format: Option<Format>,
    interfaces: Vec<Interface>,
    /// When the last packet passed.
    last: Time,
    /// When the last one did that was handed out.
    before: Time,
}

#[derive(Clone, Debug)]
enum Format {
    Pcap(Pcap),
    Pcapng(Pcapng),
    Btsnoop(Btsnoop),
}

impl Reader {
    /// Says what `bytes` begin with: those of the file after all that earlier answers spoke of. An
    /// answer of [`Step::More`] changes nothing: at the file's end it means that the file was cut.
    #[inline]
    pub fn step<'a>(&mut self, bytes: &'a [u8]) -> Result<Step<'a>, Broken> {
        let mut step = match &mut self.format {
            Some(Format::Pcap(pcap)) => pcap.step(bytes),
            Some(Format::Pcapng(pcapng)) => {
                pcapng.step(bytes, &mut self.interfaces, &mut self.last)
            }
            Some(Format::Btsnoop(btsnoop)) => btsnoop.step(bytes, &mut self.interfaces),
            None => self.begin(bytes),
        };
        if let Ok(Step::Packet(packet, _)) = &mut step {
            packet.steps_back = packet.at < self.before;
            self.before = packet.at;
        }
        step
    }

    /// The interfaces that were described so far. They never change their places.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn begin<'a>(&mut self, bytes: &[u8]) -> Result<Step<'a>, Broken> {
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
            return Err(Broken::Unknown);
        }
        let Some(header) = bytes.first_chunk() else { return Ok(Step::More(pcap::HEADER)) };
        let (pcap, interface) = Pcap::begin(header)?;
        self.format = Some(Format::Pcap(pcap));
        self.interfaces = vec![interface];
        Ok(Step::Other(pcap::HEADER))
    }
}
