//! A part of a capture, and the positions of its packets.

use std::io::{self, Read};
use std::sync::Arc;

use manyways_flows::analysis::shard;
use manyways_unit::Time;
use manyways_wire::capture::{FormatError, Interface, Packet, Reader, Step};

use super::sequence::BlockSummary;

/// Number of bytes processed together; small enough for the cache of a core.
const BLOCK_LENGTH: usize = 256 << 10;

/// Bytes of a capture and the packets in them.
#[derive(Debug, Default)]
pub(super) struct Block {
    bytes: Buffer,
    packets: Vec<PacketEntry>,
    /// Indices of the packets of each shard.
    shards: Vec<Vec<u32>>,
    /// The interfaces described up to the end of the block.
    interfaces: Arc<[Interface]>,
}

/// Position and metadata of a packet.
#[derive(Debug)]
struct PacketEntry {
    at: Time,
    offset: u32,
    captured_length: u32,
    original_length: u32,
    interface: u16,
    is_sent: Option<bool>,
    dropped_before: u64,
    is_out_of_order: bool,
}

/// Bytes of a capture. The allocation is kept from block to block, so that it is zeroed only once.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    storage: Vec<u8>,
    length: usize,
}

/// Reason why a capture ended.
#[derive(Debug)]
pub(super) enum CaptureEnd {
    /// The capture was read completely.
    Complete,
    /// The capture has no bytes.
    Empty,
    /// The capture ends within the packet or block that begins at this offset.
    Truncated(u64),
    /// The bytes at this offset are invalid.
    Invalid(u64, FormatError),
    /// Reading failed after this offset.
    ReadFailed(u64, io::Error),
}

/// Splits a capture into blocks.
pub(super) struct Blocks {
    source: Box<dyn Read + Send>,
    reader: Reader,
    shards: u8,
    /// Bytes that belong to the next block.
    remainder: Buffer,
    /// Offset of `remainder` in the capture.
    offset: u64,
    /// Whether the source has ended or failed.
    is_ended: bool,
    /// The error, reported after all bytes before it are processed.
    error: Option<io::Error>,
    interfaces: Arc<[Interface]>,
}

impl Blocks {
    pub(super) fn new(source: Box<dyn Read + Send>, shards: u8) -> Self {
        Self {
            source,
            reader: Reader::default(),
            shards,
            remainder: Buffer::default(),
            offset: 0,
            is_ended: false,
            error: None,
            interfaces: Arc::default(),
        }
    }

    /// Time of the first packet; `None` if there is none near the beginning.
    pub(super) fn first_packet_time(&mut self) -> Option<Time> {
        let mut bytes = std::mem::take(&mut self.remainder);
        self.fill(&mut bytes, BLOCK_LENGTH);
        self.remainder = bytes;
        let (mut reader, mut at) = (self.reader.clone(), 0);
        loop {
            match reader.step(&self.remainder.bytes()[at..]).ok()? {
                Step::Packet(packet, _) => return Some(packet.at),
                Step::Other(length) => at += length,
                Step::More(_) => return None,
            }
        }
    }

    /// The reader, with the interfaces of the capture.
    pub(super) fn reader(&self) -> &Reader {
        &self.reader
    }

    /// Fills a used block with the next packets; returns the reason if there are none.
    pub(super) fn next(&mut self, block: &mut Block) -> Option<CaptureEnd> {
        let Block { bytes, packets, shards, .. } = block;
        packets.clear();
        shards.iter_mut().for_each(Vec::clear);
        let count = self.shards;
        shards.resize_with(count.into(), Vec::new);
        let end = self.read_packets(bytes, |interface, packet, begin| {
            let shard = shard(interface.link, packet.bytes, packet.length, count);
            if let Some(shard) = shards.get_mut(usize::from(shard)) {
                shard.push(packets.len() as u32);
            }
            packets.push(PacketEntry {
                at: packet.at,
                offset: begin as u32,
                captured_length: packet.bytes.len() as u32,
                original_length: u32::try_from(packet.length).unwrap_or(u32::MAX),
                interface: packet.interface as u16,
                is_sent: packet.is_sent,
                dropped_before: packet.dropped_before,
                is_out_of_order: packet.is_out_of_order,
            });
        });
        if self.interfaces.len() != self.reader.interfaces().len() {
            self.interfaces = self.reader.interfaces().into();
        }
        block.interfaces = self.interfaces.clone();
        end
    }

    /// Reads the next part of the capture into `bytes` and passes its packets to `found`, with
    /// their offsets in `bytes`. Returns the reason if there are none.
    pub(super) fn read_packets(
        &mut self,
        bytes: &mut Buffer,
        mut found: impl FnMut(&Interface, &Packet<'_>, usize),
    ) -> Option<CaptureEnd> {
        std::mem::swap(bytes, &mut self.remainder);
        let (mut at, mut wanted, mut is_empty) = (0, BLOCK_LENGTH, true);
        loop {
            self.fill(bytes, wanted);
            let end = self.find_packets(bytes.bytes(), &mut at, |interface, packet, begin| {
                is_empty = false;
                found(interface, packet, begin);
            });
            // A part without a complete packet is extended, to guarantee progress.
            match end {
                Ok(more) if is_empty && !self.is_ended => {
                    wanted = (at + more).max(bytes.length + 1);
                }
                end => {
                    self.remainder.take_from(bytes, at);
                    self.offset += at as u64;
                    if !is_empty {
                        return None;
                    }
                    let ends = self.offset + self.remainder.length as u64;
                    return match (end, self.error.take()) {
                        (Err(broken), _) => Some(CaptureEnd::Invalid(self.offset, broken)),
                        (Ok(_), Some(error)) => Some(CaptureEnd::ReadFailed(ends, error)),
                        (Ok(_), None) if self.offset == 0 && self.remainder.length == 0 => {
                            Some(CaptureEnd::Empty)
                        }
                        (Ok(_), None) if self.remainder.length == 0 => Some(CaptureEnd::Complete),
                        (Ok(_), None) => Some(CaptureEnd::Truncated(self.offset)),
                    };
                }
            }
        }
    }

    fn fill(&mut self, bytes: &mut Buffer, wanted: usize) {
        while !self.is_ended && bytes.length < wanted {
            match self.source.read(bytes.free_space(wanted)) {
                Ok(count) => {
                    bytes.length += count;
                    self.is_ended = count == 0;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.is_ended = true;
                    self.error = Some(error);
                }
            }
        }
    }

    /// Finds the packets in `bytes`. Returns the minimum length of the block after them.
    fn find_packets(
        &mut self,
        bytes: &[u8],
        at: &mut usize,
        mut found: impl FnMut(&Interface, &Packet<'_>, usize),
    ) -> Result<usize, FormatError> {
        loop {
            match self.reader.step(&bytes[*at..])? {
                Step::More(more) => return Ok(more),
                Step::Other(length) => *at += length,
                Step::Packet(packet, length) => {
                    *at += length;
                    if let Some(interface) = self.reader.interfaces().get(packet.interface) {
                        let begin = packet.bytes.as_ptr() as usize - bytes.as_ptr() as usize;
                        found(interface, &packet, begin);
                    }
                }
            }
        }
    }
}

impl Buffer {
    fn bytes(&self) -> &[u8] {
        &self.storage[..self.length]
    }

    /// The free space up to `wanted` bytes in total.
    fn free_space(&mut self, wanted: usize) -> &mut [u8] {
        if self.storage.len() < wanted {
            self.storage.resize(wanted, 0);
        }
        &mut self.storage[self.length..wanted]
    }

    /// Appends the bytes that `write` writes, and returns its result.
    fn append<T>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        self.storage.truncate(self.length);
        let said = write(&mut self.storage);
        self.length = self.storage.len();
        said
    }

    /// Moves the bytes of `other` from `at` on into this buffer.
    fn take_from(&mut self, other: &mut Self, at: usize) {
        let length = other.length - at;
        (self.length, other.length) = (0, at);
        self.free_space(length).copy_from_slice(&other.storage[at..at + length]);
        self.length = length;
    }
}

impl Block {
    /// Clears the block, for packets of these interfaces of a live capture.
    pub(super) fn begin(&mut self, interfaces: &Arc<[Interface]>) {
        self.bytes.length = 0;
        self.packets.clear();
        self.shards.iter_mut().for_each(Vec::clear);
        self.interfaces = interfaces.clone();
    }

    /// Whether the block should be processed before more packets are added.
    pub(super) fn is_full(&self) -> bool {
        self.bytes.length >= BLOCK_LENGTH
    }

    /// Adds a packet of the first interface with its time, which is before that of the previous
    /// packet if `steps_back`. `length` is the original length. `write` appends the captured bytes
    /// and returns the number of bytes that `length` lacks.
    pub(super) fn push(
        &mut self,
        (at, steps_back): (Time, bool),
        is_sent: bool,
        length: usize,
        shards: u8,
        write: impl FnOnce(&mut Vec<u8>) -> usize,
    ) {
        let Some(link) = self.interfaces.first().map(|interface| interface.link) else { return };
        let begin = self.bytes.length;
        let length = length + self.bytes.append(write);
        let bytes = &self.bytes.bytes()[begin..];
        let shard = usize::from(shard(link, bytes, length, shards));
        if self.shards.len() <= shard {
            self.shards.resize_with(shard + 1, Vec::new);
        }
        self.shards[shard].push(self.packets.len() as u32);
        self.packets.push(PacketEntry {
            at,
            offset: begin as u32,
            captured_length: bytes.len() as u32,
            original_length: u32::try_from(length).unwrap_or(u32::MAX),
            interface: 0,
            is_sent: Some(is_sent),
            dropped_before: 0,
            is_out_of_order: steps_back,
        });
    }

    /// Summary of the packets.
    pub(super) fn summary(&self) -> BlockSummary {
        let mut summary = BlockSummary::default();
        self.packets.iter().for_each(|packet| summary.add(packet.at));
        summary
    }

    /// The packets of a shard.
    pub(super) fn packets(&self, shard: u8) -> impl Iterator<Item = (&Interface, Packet<'_>)> {
        let of_shard = self.shards.get(usize::from(shard)).into_iter().flatten();
        of_shard.filter_map(|index| self.packet(self.packets.get(*index as usize)?))
    }

    /// The packets of all shards.
    pub(super) fn all(&self) -> impl Iterator<Item = (&Interface, Packet<'_>)> {
        self.packets.iter().filter_map(|place| self.packet(place))
    }

    fn packet(&self, place: &PacketEntry) -> Option<(&Interface, Packet<'_>)> {
        let begin = place.offset as usize;
        let packet = Packet {
            at: place.at,
            interface: place.interface.into(),
            bytes: &self.bytes.bytes()[begin..begin + place.captured_length as usize],
            length: place.original_length as usize,
            is_sent: place.is_sent,
            dropped_before: place.dropped_before,
            is_out_of_order: place.is_out_of_order,
        };
        Some((self.interfaces.get(usize::from(place.interface))?, packet))
    }
}
