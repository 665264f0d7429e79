//! A header's options.

use super::Seq;

const END: u8 = 0;
const NOTHING: u8 = 1;
const MSS: u8 = 2;
const SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const STAMPS: u8 = 8;
const MPTCP: u8 = 30;

/// The largest scale that a window can have (RFC 7323, 2.3): larger ones mean this one.
const MOST_SCALE: u8 = 14;

/// The options of a segment, read when they are asked for: most segments have time stamps only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options<'a> {
    bytes: &'a [u8],
    stamps: Option<Stamps>,
}

/// What RFC 7323's option says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamps {
    /// The sender's clock.
    pub value: u32,
    /// The last one that came from the other end.
    pub echo: u32,
}

/// What came in out of order: up to four ranges, each from its first byte to that after its last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SackBlocks {
    blocks: [(Seq, Seq); 4],
    count: usize,
}

/// What matters here of an option of MPTCP (RFC 8684; version 0 is RFC 6824).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MpTcp {
    /// A connection can have several paths.
    Capable {
        /// The protocol's version.
        version: u8,
        /// The sender's key, where it is there: in a SYN of version 1 it is not.
        key: Option<u64>,
        /// The key of the other end, in what ends the handshake.
        peer_key: Option<u64>,
    },
    /// One more path of a connection.
    Join {
        /// Of which one, in a SYN: the receiver's token.
        token: Option<u32>,
        /// The address's number.
        address: u8,
        /// This path is for when others fail.
        is_backup: bool,
    },
    /// What there is otherwise, by its subtype.
    Other(u8),
}

impl<'a> Options<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        // As most senders write it, in front and at a multiple of four.
        let stamps = match bytes {
            [NOTHING, NOTHING, STAMPS, 10, rest @ ..] => read_stamps(rest),
            _ => each(bytes).find(|(kind, _)| *kind == STAMPS).and_then(|(_, c)| read_stamps(c)),
        };
        Self { bytes, stamps }
    }

    /// How many bytes they take, as far as they were captured.
    pub fn length(&self) -> usize {
        self.bytes.len()
    }

    /// The clocks of both ends.
    pub fn stamps(&self) -> Option<Stamps> {
        self.stamps
    }

    /// The largest payload that the sender takes; in a SYN.
    pub fn mss(&self) -> Option<u16> {
        let content = self.find(MSS)?;
        (content.len() == 2).then(|| u16::from_be_bytes([content[0], content[1]]))
    }

    /// By how many bits the sender's windows are shifted, at most 14; in a SYN.
    pub fn window_scale(&self) -> Option<u8> {
        match self.find(SCALE)? {
            [scale] => Some((*scale).min(MOST_SCALE)),
            _ => None,
        }
    }

    /// The sender understands SACK; in a SYN.
    pub fn is_sack_permitted(&self) -> bool {
        self.find(SACK_PERMITTED).is_some()
    }

    /// What the sender has beyond its acknowledgement.
    pub fn sack(&self) -> SackBlocks {
        let mut found = SackBlocks::default();
        // The usual option of stamps and nothing else.
        if self.bytes.len() <= 12 && self.stamps.is_some() {
            return found;
        }
        for block in self.find(SACK).unwrap_or_default().chunks_exact(8).take(4) {
            let number = |at: usize| {
                Seq(u32::from_be_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]))
            };
            found.blocks[found.count] = (number(0), number(4));
            found.count += 1;
        }
        found
    }

    /// The first option of MPTCP that says more than how bytes are numbered, or else the first.
    pub fn mptcp(&self) -> Option<MpTcp> {
        let mut found = None;
        for (_, content) in each(self.bytes).filter(|(kind, _)| *kind == MPTCP) {
            match read_mptcp(content) {
                Some(MpTcp::Other(subtype)) => found = found.or(Some(MpTcp::Other(subtype))),
                Some(said) => return Some(said),
                None => {}
            }
        }
        found
    }

    fn find(&self, wanted: u8) -> Option<&'a [u8]> {
        each(self.bytes).find(|(kind, _)| *kind == wanted).map(|(_, content)| content)
    }
}

impl SackBlocks {
    /// The ranges, the latest first.
    pub fn as_slice(&self) -> &[(Seq, Seq)] {
        &self.blocks[..self.count]
    }
}

/// Kinds and contents, up to the end or what is none.
fn each(bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        while let [NOTHING, more @ ..] = rest {
            rest = more;
        }
        let [kind, length, more @ ..] = rest else { return None };
        let content = more.get(..usize::from(*length).checked_sub(2)?)?;
        rest = &more[content.len()..];
        (*kind != END).then_some((*kind, content))
    })
}

fn read_stamps(content: &[u8]) -> Option<Stamps> {
    let [a, b, c, d, e, f, g, h, ..] = content else { return None };
    let (value, echo) =
        (u32::from_be_bytes([*a, *b, *c, *d]), u32::from_be_bytes([*e, *f, *g, *h]));
    Some(Stamps { value, echo })
}

fn read_mptcp(content: &[u8]) -> Option<MpTcp> {
    let first = *content.first()?;
    let key = |at: usize| content.get(at..)?.first_chunk().copied().map(u64::from_be_bytes);
    match first >> 4 {
        0 => Some(MpTcp::Capable { version: first & 0xf, key: key(2), peer_key: key(10) }),
        1 => {
            // A token and a number in a SYN, the half of a hash in its answer, a whole one then.
            let token = match content.len() {
                10 => content.get(2..)?.first_chunk().copied().map(u32::from_be_bytes),
                _ => None,
            };
            Some(MpTcp::Join { token, address: *content.get(1)?, is_backup: first & 1 == 1 })
        }
        subtype => Some(MpTcp::Other(subtype)),
    }
}
