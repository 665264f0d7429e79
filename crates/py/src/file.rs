//! A capture of which the bytes arrive in pieces.

use manyways_unit::Time;
use manyways_wire::capture::{Interface, Packet, Reader, Step};

/// Times of the earliest and the latest packet of a capture, in nanoseconds after the epoch.
pub type Times = Option<(u64, u64)>;

/// A capture that is being read.
#[derive(Default)]
pub struct File {
    reader: Reader,
    /// Received bytes of an incomplete block.
    buffer: Vec<u8>,
    /// Offset of `rest` in the file.
    buffer_offset: u64,
    packets: u64,
    first: Option<Time>,
    latest: Option<Time>,
    error: Option<String>,
}

impl File {
    /// Whether no packet has been read yet.
    pub fn is_new(&self) -> bool {
        self.packets == 0
    }

    /// Reads the next bytes. Passes each complete part of the file to `each`: the packet in it, if
    /// any, and its unchanged bytes.
    pub fn feed(
        &mut self,
        bytes: &[u8],
        mut each: impl FnMut(&Self, Option<(&Interface, &Packet<'_>)>, &[u8]),
    ) {
        if self.error.is_some() {
            return;
        }
        let mut rest = std::mem::take(&mut self.buffer);
        rest.extend_from_slice(bytes);
        let mut at = 0;
        loop {
            let step = match self.reader.step(&rest[at..]) {
                Ok(step) => step,
                Err(broken) => {
                    let offset = self.buffer_offset + at as u64;
                    self.error = Some(format!("{broken} (at byte {offset})"));
                    return;
                }
            };
            match step {
                Step::More(_) => break,
                Step::Other(length) => {
                    each(self, None, &rest[at..at + length]);
                    at += length;
                }
                Step::Packet(packet, length) => {
                    let interface = self.reader.interfaces().get(packet.interface);
                    each(self, interface.map(|it| (it, &packet)), &rest[at..at + length]);
                    self.packets += 1;
                    self.first = Some(self.first.map_or(packet.at, |first| first.min(packet.at)));
                    self.latest = self.latest.max(Some(packet.at));
                    at += length;
                }
            }
        }
        rest.drain(..at);
        self.buffer_offset += at as u64;
        self.buffer = rest;
    }

    /// Ends the capture. Returns the number of packets, the reason if the capture was not read to
    /// its end, and the times of its packets.
    pub fn finish(self) -> (u64, Option<String>, Times) {
        let Self {
            buffer: rest,
            buffer_offset: place,
            packets,
            error: fault,
            reader,
            first,
            latest,
        } = self;
        let is_cut = !rest.is_empty() || reader.interfaces().is_empty() && place == 0;
        let cut = || is_cut.then(|| format!("it ends in the middle of the block at byte {place}"));
        let times = first.zip(latest).map(|(one, other)| (one.as_nanos(), other.as_nanos()));
        (packets, fault.or_else(cut), times)
    }
}
