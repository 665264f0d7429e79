//! A middlebox that does not support MPTCP and removes its options.

use super::{Counters, Verdict};
use crate::segment::Offload;
use crate::segment::checksum::{Delta, put_word, sum, word};
use crate::segment::header::{Fragment, Ip, TCP};

/// TCP option kinds.
const END: u8 = 0;
const NOP: u8 = 1;
const MPTCP: u8 = 30;

/// Replaces TCP option 30 (MPTCP, RFC 8684) with padding, in both directions. Two MPTCP hosts then
/// fall back to plain TCP, as with real middleboxes that remove the option.
#[derive(Clone, Debug, Default)]
pub struct StripMptcp {
    counters: Counters,
}

impl StripMptcp {
    /// Strips one packet, which is always forwarded.
    pub fn pass(&mut self, packet: &mut [u8], offload: &Offload) -> Verdict {
        self.counters.stripped += strip(packet, offload).unwrap_or(0);
        Verdict::Forward
    }

    pub fn counters(&self) -> Counters {
        self.counters
    }
}

/// Returns the number of replaced options; `None` if the packet cannot have any.
fn strip(packet: &mut [u8], offload: &Offload) -> Option<u64> {
    let ip = Ip::parse(packet)?;
    if ip.protocol != TCP || matches!(ip.fragment, Fragment::Later(_)) {
        return None;
    }
    let tcp = packet.get_mut(ip.transport..ip.end)?;
    let length = usize::from(*tcp.get(12)? >> 4) * 4;
    let before = sum(tcp.get(20..length)?);
    let options = &mut tcp[20..length];
    let (mut at, mut stripped) = (0, 0);
    while at < options.len() {
        let size = match options[at] {
            END => break,
            NOP => 1,
            // An option that does not fit ends the options in every TCP stack.
            _ => match options.get(at + 1).map(|size| usize::from(*size)) {
                Some(size) if size >= 2 && at + size <= options.len() => size,
                _ => break,
            },
        };
        if options[at] == MPTCP {
            options[at..at + size].fill(NOP);
            stripped += 1;
        }
        at += size;
    }
    let pending = offload.needs_csum && usize::from(offload.csum_start) == ip.transport;
    if stripped > 0 && !pending {
        let mut delta = Delta::default();
        delta.word(before, sum(&tcp[20..length]));
        let mended = delta.apply(word(tcp, 16));
        put_word(tcp, 16, mended);
    }
    Some(stripped)
}
