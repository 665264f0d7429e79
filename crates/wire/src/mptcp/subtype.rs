//! What an option of MPTCP says (RFC 8684, 3; version 0 is RFC 6824).

use std::net::IpAddr;

/// An option of MPTCP, by its subtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subtype<'a> {
    /// A connection can have several subflows (MP_CAPABLE).
    Capable(Capable),
    /// One more subflow of a connection (MP_JOIN).
    Join(Join),
    /// How the bytes of a subflow are numbered in the connection (DSS).
    Sequence(Sequence),
    /// The sender has one more address (ADD_ADDR).
    AddAddress(AddAddress<'a>),
    /// The addresses of these numbers are the sender's no more (REMOVE_ADDR).
    RemoveAddress(&'a [u8]),
    /// The sender wants a subflow to be a backup, or no more (MP_PRIO).
    Priority {
        /// To be one.
        is_backup: bool,
        /// The subflow of this address of the sender, or else the one that this passes in.
        address: Option<u8>,
    },
    /// A checksum was wrong from this byte of the connection on (MP_FAIL).
    Fail(u64),
    /// The whole connection is to end at once; with the receiver's key (MP_FASTCLOSE).
    FastClose(u64),
    /// Why this subflow is reset (MP_TCPRST).
    Reset {
        /// The other end may try again: what happened is not for ever.
        is_transient: bool,
        /// The reason's number in the registry of RFC 8684, 3.6.
        reason: u8,
    },
    /// Something else, or of a length that it cannot have.
    Other(u8),
}

/// How a connection begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capable {
    /// The protocol's version.
    pub version: u8,
    /// The flags A to H, A being the highest bit.
    pub flags: u8,
    /// The sender's key; in a SYN of version 1 it is not there.
    pub key: Option<u64>,
    /// The receiver's key, in what ends the handshake.
    pub peer_key: Option<u64>,
    /// So many bytes come with it, in version 1: they are the connection's first.
    pub length: Option<u16>,
}

impl Capable {
    /// The sender wants checksums.
    pub fn wants_checksums(&self) -> bool {
        self.flags & 0x80 != 0
    }

    /// No subflow may go to the address and port that this comes from (version 1).
    pub fn forbids_joins(&self) -> bool {
        self.flags & 0x20 != 0
    }
}

/// How a subflow joins a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// In a SYN.
    Ask {
        /// It is for when others fail.
        is_backup: bool,
        /// The number of the sender's address.
        address: u8,
        /// What the receiver calls the connection.
        token: u32,
        /// The sender's random number.
        nonce: u32,
    },
    /// In its answer.
    Answer {
        /// It is for when others fail.
        is_backup: bool,
        /// The number of the sender's address.
        address: u8,
        /// The first half of a hash of both keys and numbers.
        hmac: u64,
        /// The sender's random number.
        nonce: u32,
    },
    /// In what ends the handshake: a hash of both keys and numbers.
    Confirm([u8; 20]),
}

/// How bytes are numbered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sequence {
    /// The sender has all of the connection's bytes before this one.
    pub ack: Option<Number>,
    /// The numbers of bytes of this subflow.
    pub mapping: Option<Mapping>,
    /// The sender's last byte was sent.
    pub is_last: bool,
}

/// The number of a byte of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// The lower half of it.
    Short(u32),
    /// All of it.
    Long(u64),
}

impl Number {
    /// The lower half.
    pub fn low(self) -> u32 {
        match self {
            Self::Short(low) => low,
            Self::Long(all) => all as u32,
        }
    }
}

/// Bytes of a subflow and which ones of the connection they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The first one's number in the connection.
    pub data: Number,
    /// Its number in the subflow, where the byte behind the SYN has number 1; zero where the end of
    /// the connection comes alone.
    pub subflow: u32,
    /// How many they are, the end of the connection included. Zero says that this subflow's bytes
    /// are those of the connection from here on: the ends fall back to TCP.
    pub length: u16,
    /// The checksum over them, where one was agreed on.
    pub checksum: Option<u16>,
}

/// An address that can be connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddAddress<'a> {
    /// It only says that the other end's address was heard of.
    pub is_echo: bool,
    /// Its number.
    pub id: u8,
    /// What it is.
    pub address: IpAddr,
    /// The port, where it is not that of the first subflow.
    pub port: Option<u16>,
    /// The end of a hash that shows who says so; not in version 0 and not in an echo.
    pub hmac: Option<&'a [u8; 8]>,
}

impl<'a> Subtype<'a> {
    /// Reads what [`crate::tcp::Options::mptcp`] finds. None only where nothing is there.
    pub fn read(content: &'a [u8]) -> Option<Self> {
        let (first, rest) = content.split_first()?;
        let low = first & 0xf;
        let read = match first >> 4 {
            0 => capable(low, rest).map(Self::Capable),
            1 => join(low, rest).map(Self::Join),
            2 => sequence(rest).map(Self::Sequence),
            3 => add_address(low, rest).map(Self::AddAddress),
            4 => (!rest.is_empty()).then_some(Self::RemoveAddress(rest)),
            5 => (rest.len() <= 1).then(|| Self::Priority {
                is_backup: low & 1 != 0,
                address: rest.first().copied(),
            }),
            6 => eight(rest, 1).filter(|_| rest.len() == 9).map(Self::Fail),
            7 => eight(rest, 1).filter(|_| rest.len() == 9).map(Self::FastClose),
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
        key: eight(rest, 1),
        peer_key: eight(rest, 9),
        length: two(rest, 17),
    };
    // A checksum may come behind the length.
    matches!(rest.len(), 1 | 9 | 17 | 19 | 21).then_some(said)
}

fn join(low: u8, rest: &[u8]) -> Option<Join> {
    let (is_backup, address) = (low & 1 != 0, *rest.first()?);
    match rest.len() {
        9 => Some(Join::Ask { is_backup, address, token: four(rest, 1)?, nonce: four(rest, 5)? }),
        13 => {
            Some(Join::Answer { is_backup, address, hmac: eight(rest, 1)?, nonce: four(rest, 9)? })
        }
        21 => rest.get(1..)?.first_chunk().copied().map(Join::Confirm),
        _ => None,
    }
}

fn sequence(rest: &[u8]) -> Option<Sequence> {
    let (flags, mut rest) = rest.split_first()?;
    let has = |bit: u8| flags & bit != 0;
    let mut number = |is_long: bool| {
        let (read, length) = match is_long {
            true => (eight(rest, 0).map(Number::Long), 8),
            false => (four(rest, 0).map(Number::Short), 4),
        };
        rest = rest.get(length..)?;
        read
    };
    let ack = if has(0x01) { Some(number(has(0x02))?) } else { None };
    let data = if has(0x04) { Some(number(has(0x08))?) } else { None };
    let mapping = match data {
        Some(data) => Some(Mapping {
            data,
            subflow: four(rest, 0)?,
            length: two(rest, 4)?,
            checksum: two(rest, 6),
        }),
        None => None,
    };
    Some(Sequence { ack, mapping, is_last: has(0x10) })
}

/// The lengths tell the family; version 0 says it in four bits that are flags in version 1.
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
    let port = if rest.len() % 8 == 2 { two(rest, 0) } else { None };
    Some(AddAddress { is_echo: low == 1, id: *id, address, port, hmac: rest.last_chunk() })
}

fn two(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_be_bytes)
}

fn four(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_be_bytes)
}

fn eight(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().copied().map(u64::from_be_bytes)
}
