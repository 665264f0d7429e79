//! TCP options.

use super::Seq;

const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;
const MPTCP: u8 = 30;

/// Largest valid window scale; larger values count as this one (RFC 7323, 2.3).
const MAX_WINDOW_SCALE: u8 = 14;

/// The options of a segment. Only timestamps are read at once, because most segments have no other
/// option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options<'a> {
    bytes: &'a [u8],
    timestamps: Option<Timestamps>,
    is_truncated: bool,
}

/// The timestamps option (RFC 7323, 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamps {
    /// TSval: the sender's clock.
    pub tsval: u32,
    /// TSecr: the most recent TSval received from the peer.
    pub tsecr: u32,
}

/// The blocks of the SACK option (RFC 2018): at most four ranges, each from its first sequence
/// number to the one after its last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SackBlocks {
    blocks: [(Seq, Seq); 4],
    count: usize,
}

impl<'a> Options<'a> {
    #[inline]
    pub(super) fn new(bytes: &'a [u8], is_cut: bool) -> Self {
        // Most senders put the timestamps first, aligned to four bytes.
        let stamps = match bytes {
            [NOP, NOP, TIMESTAMPS, 10, rest @ ..] => read_timestamps(rest),
            [] => None,
            _ => find(bytes, TIMESTAMPS).and_then(read_timestamps),
        };
        Self { bytes, timestamps: stamps, is_truncated: is_cut }
    }

    /// Whether the segment has timestamps and no space for another option of more than two bytes.
    #[inline]
    pub fn has_only_timestamps(&self) -> bool {
        self.bytes.len() <= 12 && self.timestamps.is_some()
    }

    /// Number of captured option bytes.
    pub fn length(&self) -> usize {
        self.bytes.len()
    }

    /// The timestamps, or `None` if the segment has none.
    pub fn timestamps(&self) -> Option<Timestamps> {
        self.timestamps
    }

    /// Maximum segment size that the sender accepts; only in a SYN.
    pub fn mss(&self) -> Option<u16> {
        let content = self.find(MSS)?;
        (content.len() == 2).then(|| u16::from_be_bytes([content[0], content[1]]))
    }

    /// Shift of the sender's windows in bits, at most 14; only in a SYN.
    pub fn window_scale(&self) -> Option<u8> {
        match self.find(WINDOW_SCALE)? {
            [scale] => Some((*scale).min(MAX_WINDOW_SCALE)),
            _ => None,
        }
    }

    /// Whether the sender supports SACK; only in a SYN.
    pub fn is_sack_permitted(&self) -> bool {
        self.find(SACK_PERMITTED).is_some()
    }

    /// Blocks that arrived above the cumulative acknowledgment.
    pub fn sack(&self) -> SackBlocks {
        let mut found = SackBlocks::default();
        for block in self.find(SACK).unwrap_or_default().chunks_exact(8).take(4) {
            let number = |at: usize| {
                Seq(u32::from_be_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]))
            };
            found.blocks[found.count] = (number(0), number(4));
            found.count += 1;
        }
        found
    }

    /// Whether some options were not captured.
    pub fn is_truncated(&self) -> bool {
        self.is_truncated
    }

    /// Whether the segment has an MPTCP option, or may have one because the options were truncated.
    /// The check is cheap for segments with timestamps only.
    pub fn may_have_mptcp(&self) -> bool {
        self.is_truncated || !self.has_only_timestamps() && self.mptcp().next().is_some()
    }

    /// The captured MPTCP options, without kind and length. [`crate::mptcp::Subtype`] reads them.
    pub fn mptcp(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        iterate(self.bytes).filter(|(kind, _)| *kind == MPTCP).map(|(_, content)| content)
    }

    fn find(&self, wanted: u8) -> Option<&'a [u8]> {
        find(self.bytes, wanted)
    }
}

impl SackBlocks {
    /// The blocks in the order of the option: the most recent first.
    pub fn as_slice(&self) -> &[(Seq, Seq)] {
        &self.blocks[..self.count]
    }
}

#[inline(never)]
fn find(bytes: &[u8], wanted: u8) -> Option<&[u8]> {
    iterate(bytes).find(|(kind, _)| *kind == wanted).map(|(_, content)| content)
}

/// Kinds and contents of the options, until the end of the list or the first invalid option.
fn iterate(bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        while let [NOP, more @ ..] = rest {
            rest = more;
        }
        let [kind, length, more @ ..] = rest else { return None };
        let content = more.get(..usize::from(*length).checked_sub(2)?)?;
        rest = &more[content.len()..];
        (*kind != END).then_some((*kind, content))
    })
}

fn read_timestamps(content: &[u8]) -> Option<Timestamps> {
    let [a, b, c, d, e, f, g, h, ..] = content else { return None };
    let (value, echo) =
        (u32::from_be_bytes([*a, *b, *c, *d]), u32::from_be_bytes([*e, *f, *g, *h]));
    Some(Timestamps { tsval: value, tsecr: echo })
}
