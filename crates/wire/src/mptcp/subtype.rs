//! MPTCP options by subtype (RFC 8684, 3; version 0 is RFC 6824).

use std::net::IpAddr;

/// An MPTCP option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subtype<'a> {
    /// MP_CAPABLE: sets up an MPTCP connection.
    Capable(Capable),
    /// MP_JOIN: adds a subflow to a connection.
    Join(Join),
    /// DSS: maps sequence numbers of a subflow to data sequence numbers.
    Dss(Dss),
    /// ADD_ADDR: announces an address of the sender.
    AddAddress(AddAddress<'a>),
    /// REMOVE_ADDR: the address IDs that the sender no longer has.
    RemoveAddress(&'a [u8]),
    /// MP_PRIO: changes the priority of a subflow.
    Priority {
        /// Whether the subflow is now a backup.
        is_backup: bool,
        /// Address ID of the subflow; `None` for the subflow that carries the option.
        address: Option<u8>,
    },
    /// MP_FAIL: the data sequence number from which on a checksum was wrong.
    Fail(u64),
    /// MP_FASTCLOSE: closes the whole connection at once; with the receiver's key.
    FastClose(u64),
    /// MP_TCPRST: the reason of a reset of this subflow.
    Reset {
        /// Whether the cause is temporary, so that the peer may try again.
        is_transient: bool,
        /// Reason code (RFC 8684, 3.6).
        reason: u8,
    },
    /// An unknown subtype, or an option of invalid length.
    Other(u8),
}

/// The content of MP_CAPABLE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capable {
    /// Version of MPTCP.
    pub version: u8,
    /// The flags A to H; A is the highest bit.
    pub flags: u8,
    /// The sender's key; absent in a SYN of version 1.
    pub key: Option<u64>,
    /// The receiver's key, in the last segment of the handshake.
    pub peer_key: Option<u64>,
    /// Data-level length, in version 1: number of bytes in this segment, the first of the
    /// connection.
    pub length: Option<u16>,
}

impl Capable {
    /// Whether the sender requires checksums.
    pub fn requires_checksums(&self) -> bool {
        self.flags & 0x80 != 0
    }

    /// Whether no subflow may be opened to the source address and port of this segment (version 1).
    pub fn forbids_joins(&self) -> bool {
        self.flags & 0x20 != 0
    }
}

/// The content of MP_JOIN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// The option in a SYN.
    Syn {
        /// Whether the subflow is a backup.
        is_backup: bool,
        /// ID of the sender's address.
        address: u8,
        /// Token that identifies the connection at the receiver.
        token: u32,
        /// Random number of the sender.
        nonce: u32,
    },
    /// The option in a SYN/ACK.
    SynAck {
        /// Whether the subflow is a backup.
        is_backup: bool,
        /// ID of the sender's address.
        address: u8,
        /// The leftmost 64 bits of the HMAC.
        hmac: u64,
        /// Random number of the sender.
        nonce: u32,
    },
    /// The option in the third segment of the handshake: the HMAC.
    Ack([u8; 20]),
}

/// The content of DSS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dss {
    /// Data ACK: the next data sequence number that the sender expects.
    pub ack: Option<DataSequence>,
    /// `None` if the option maps no bytes.
    pub mapping: Option<Mapping>,
    /// DATA_FIN: the sender has no more data.
    pub is_data_fin: bool,
}

/// A data sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataSequence {
    /// The lower 32 bits.
    Short(u32),
    /// All 64 bits.
    Long(u64),
}

impl DataSequence {
    /// The lower 32 bits.
    pub fn low(self) -> u32 {
        match self {
            Self::Short(low) => low,
            Self::Long(all) => all as u32,
        }
    }
}

/// Maps bytes of a subflow to data sequence numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Data sequence number of the first byte.
    pub data: DataSequence,
    /// Relative sequence number of the first byte in the subflow; the byte after the SYN has number
    /// 1. 0 for a DATA_FIN without data.
    pub subflow: u32,
    /// Number of bytes, including the DATA_FIN. 0 is the infinite mapping: the endpoints fall back
    /// to TCP.
    pub length: u16,
    /// Checksum of the mapping, if checksums were negotiated.
    pub checksum: Option<u16>,
}

/// The content of ADD_ADDR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddAddress<'a> {
    /// Whether the option echoes an address announced by the peer.
    pub is_echo: bool,
    /// ID of the address.
    pub id: u8,
    pub address: IpAddr,
    /// `None` for the port of the first subflow.
    pub port: Option<u16>,
    /// Truncated HMAC that authenticates the address; absent in version 0 and in echoes.
    pub hmac: Option<&'a [u8; 8]>,
}

impl<'a> Subtype<'a> {
    /// Reads an option that [`crate::tcp::Options::mptcp`] returned. `None` only if it is empty.
    pub fn read(content: &'a [u8]) -> Option<Self> {
        let (first, rest) = content.split_first()?;
        let low = first & 0xf;
        let read = match first >> 4 {
            0 => capable(low, rest).map(Self::Capable),
            1 => join(low, rest).map(Self::Join),
            2 => dss(rest).map(Self::Dss),
            3 => add_address(low, rest).map(Self::AddAddress),
            4 => (!rest.is_empty()).then_some(Self::RemoveAddress(rest)),
            5 => (rest.len() <= 1).then(|| Self::Priority {
                is_backup: low & 1 != 0,
                address: rest.first().copied(),
            }),
            6 => u64_at(rest, 1).filter(|_| rest.len() == 9).map(Self::Fail),
            7 => u64_at(rest, 1).filter(|_| rest.len() == 9).map(Self::FastClose),
            8 => match rest {
                [reason] => Some(Self::Reset { is_transient: low & 1 != 0, reason: *reason }),
                _ => None,
            },
            _ => None,
        };
        Some(read.unwrap_or(Self::Other(first >> 4)))
    }
}

fn capable(version: u8, rest: &[u8]) -> Option<Capable> {
    let said = Capable {
        version,
        flags: *rest.first()?,
        key: u64_at(rest, 1),
        peer_key: u64_at(rest, 9),
        length: u16_at(rest, 17),
    };
    // A checksum may follow the length.
    matches!(rest.len(), 1 | 9 | 17 | 19 | 21).then_some(said)
}

fn join(low: u8, rest: &[u8]) -> Option<Join> {
    let (is_backup, address) = (low & 1 != 0, *rest.first()?);
    match rest.len() {
        9 => {
            Some(Join::Syn { is_backup, address, token: u32_at(rest, 1)?, nonce: u32_at(rest, 5)? })
        }
        13 => Some(Join::SynAck {
            is_backup,
            address,
            hmac: u64_at(rest, 1)?,
            nonce: u32_at(rest, 9)?,
        }),
        21 => rest.get(1..)?.first_chunk().copied().map(Join::Ack),
        _ => None,
    }
}

fn dss(rest: &[u8]) -> Option<Dss> {
    let (flags, mut rest) = rest.split_first()?;
    let has = |bit: u8| flags & bit != 0;
    let mut number = |is_long: bool| {
        let (read, length) = match is_long {
            true => (u64_at(rest, 0).map(DataSequence::Long), 8),
            false => (u32_at(rest, 0).map(DataSequence::Short), 4),
        };
        rest = rest.get(length..)?;
        read
    };
    let ack = if has(0x01) { Some(number(has(0x02))?) } else { None };
    let data = if has(0x04) { Some(number(has(0x08))?) } else { None };
    let mapping = match data {
        Some(data) => Some(Mapping {
            data,
            subflow: u32_at(rest, 0)?,
            length: u16_at(rest, 4)?,
            checksum: u16_at(rest, 6),
        }),
        None => None,
    };
    Some(Dss { ack, mapping, is_data_fin: has(0x10) })
}

/// Derives the address family from the length: the field for it in version 0 has become flags in
/// version 1.
fn add_address(low: u8, rest: &[u8]) -> Option<AddAddress<'_>> {
    let (id, rest) = rest.split_first()?;
    let (address, rest) = match rest.len() {
        4 | 6 | 12 | 14 => {
            let (address, rest) = rest.split_first_chunk::<4>()?;
            (IpAddr::from(*address), rest)
        }
        16 | 18 | 24 | 26 => {
            let (address, rest) = rest.split_first_chunk::<16>()?;
            (IpAddr::from(*address), rest)
        }
        _ => return None,
    };
    let port = if rest.len() % 8 == 2 { u16_at(rest, 0) } else { None };
    Some(AddAddress { is_echo: low == 1, id: *id, address, port, hmac: rest.last_chunk() })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_be_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_be_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().copied().map(u64::from_be_bytes)
}
