//! A part of a capture, and the positions of its packets.

use std::io::{self, Read};
use std::sync::Arc;

use manyways_flows::analysis::shard;
use manyways_unit::Time;
use manyways_wire::capture::{Broken, Interface, Packet, Reader, Step};

use super::reading::Seen;

/// Number of bytes processed together; small enough for the cache of a core.
const LENGTH: usize = 256 << 10;

/// Bytes of a capture and the packets in them.
#[derive(Debug, Default)]
pub(super) struct Block {
    bytes: Buffer,
    packets: Vec<Place>,
    /// Indices of the packets of each shard.
    shards: Vec<Vec<u32>>,
    /// The interfaces described up to the end of the block.
    interfaces: Arc<[Interface]>,
}

/// Position and metadata of a packet.
#[derive(Debug)]
struct Place {
    at: Time,
    begin: u32,
    captured: u32,
    length: u32,
    interface: u16,
    is_sent: Option<bool>,
    lost_before: u64,
    steps_back: bool,
}

/// Bytes of a capture. The allocation is kept from block to block, so that it is zeroed only once.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    room: Vec<u8>,
    filled: usize,
}

/// Reason why a capture ended.
#[derive(Debug)]
pub(super) enum End {
    /// The capture was read completely.
    Whole,
    /// The capture has no bytes.
    Empty,
    /// The capture ends within the packet or block that begins at this offset.
    Cut(u64),
    /// The bytes at this offset are invalid.
    Broken(u64, Broken),
    /// Reading failed after this offset.
    Failed(u64, io::Error),
}

/// Splits a capture into blocks.
pub(super) struct Blocks {
    source: Box<dyn Read + Send>,
    reader: Reader,
    shards: u8,
    /// Bytes that belong to the next block.
    rest: Buffer,
    /// Offset of `rest` in the capture.
    place: u64,
    /// Whether the source has ended or failed.
    is_over: bool,
    /// The error, reported after all bytes before it are processed.
    failed: Option<io::Error>,
    interfaces: Arc<[Interface]>,
}

impl Blocks {
    pub(super) fn new(source: Box<dyn Read + Send>, shards: u8) -> Self {
        Self {
            source,
            reader: Reader::default(),
            shards,
            rest: Buffer::default(),
            place: 0,
            is_over: false,
            failed: None,
            interfaces: Arc::default(),
        }
    }

    /// Time of the first packet; `None` if there is none near the beginning.
    pub(super) fn begins(&mut self) -> Option<Time> {
        let mut bytes = std::mem::take(&mut self.rest);
        self.fill(&mut bytes, LENGTH);
        self.rest = bytes;
        let (mut reader, mut at) = (self.reader.clone(), 0);
        loop {
            match reader.step(&self.rest.bytes()[at..]).ok()? {
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
    pub(super) fn next(&mut self, block: &mut Block) -> Option<End> {
        let Block { bytes, packets, shards, .. } = block;
        packets.clear();
        shards.iter_mut().for_each(Vec::clear);
        let count = self.shards;
        shards.resize_with(count.into(), Vec::new);
        let end = self.each(bytes, |interface, packet, begin| {
            let shard = shard(interface.link, packet.bytes, packet.length, count);
            if let Some(shard) = shards.get_mut(usize::from(shard)) {
                shard.push(packets.len() as u32);
            }
            packets.push(Place {
                at: packet.at,
                begin: begin as u32,
                captured: packet.bytes.len() as u32,
                length: u32::try_from(packet.length).unwrap_or(u32::MAX),
                interface: packet.interface as u16,
                is_sent: packet.is_sent,
                lost_before: packet.lost_before,
                steps_back: packet.steps_back,
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
    pub(super) fn each(
        &mut self,
        bytes: &mut Buffer,
        mut found: impl FnMut(&Interface, &Packet<'_>, usize),
    ) -> Option<End> {
        std::mem::swap(bytes, &mut self.rest);
        let (mut at, mut wanted, mut is_empty) = (0, LENGTH, true);
        loop {
            self.fill(bytes, wanted);
            let end = self.step(bytes.bytes(), &mut at, |interface, packet, begin| {
                is_empty = false;
                found(interface, packet, begin);
            });
            // A part without a complete packet is extended, to guarantee progress.
            match end {
                Ok(more) if is_empty && !self.is_over => {
                    wanted = (at + more).max(bytes.filled + 1);
                }
                end => {
                    self.rest.take_from(bytes, at);
                    self.place += at as u64;
                    if !is_empty {
                        return None;
                    }
                    let ends = self.place + self.rest.filled as u64;
                    return match (end, self.failed.take()) {
                        (Err(broken), _) => Some(End::Broken(self.place, broken)),
                        (Ok(_), Some(error)) => Some(End::Failed(ends, error)),
                        (Ok(_), None) if self.place == 0 && self.rest.filled == 0 => {
                            Some(End::Empty)
                        }
                        (Ok(_), None) if self.rest.filled == 0 => Some(End::Whole),
                        (Ok(_), None) => Some(End::Cut(self.place)),
                    };
                }
            }
        }
    }

    fn fill(&mut self, bytes: &mut Buffer, wanted: usize) {
        while !self.is_over && bytes.filled < wanted {
            match self.source.read(bytes.room(wanted)) {
                Ok(count) => {
                    bytes.filled += count;
                    self.is_over = count == 0;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.is_over = true;
                    self.failed = Some(error);
                }
            }
        }
    }

    /// Finds the packets in `bytes`. Returns the minimum length of the block after them.
    fn step(
        &mut self,
        bytes: &[u8],
        at: &mut usize,
        mut found: impl FnMut(&Interface, &Packet<'_>, usize),
    ) -> Result<usize, Broken> {
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
        &self.room[..self.filled]
    }

    /// The free space up to `wanted` bytes in total.
    fn room(&mut self, wanted: usize) -> &mut [u8] {
        if self.room.len() < wanted {
            self.room.resize(wanted, 0);
        }
        &mut self.room[self.filled..wanted]
    }

    /// Appends the bytes that `write` writes, and returns its result.
    fn append<T>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        self.room.truncate(self.filled);
        let said = write(&mut self.room);
        self.filled = self.room.len();
        said
    }

    /// Moves the bytes of `other` from `at` on into this buffer.
    fn take_from(&mut self, other: &mut Self, at: usize) {
        let length = other.filled - at;
        (self.filled, other.filled) = (0, at);
        self.room(length).copy_from_slice(&other.room[at..at + length]);
        self.filled = length;
    }
}

impl Block {
    /// Clears the block, for packets of these interfaces of a live capture.
    pub(super) fn begin(&mut self, interfaces: &Arc<[Interface]>) {
        self.bytes.filled = 0;
        self.packets.clear();
        self.shards.iter_mut().for_each(Vec::clear);
        self.interfaces = interfaces.clone();
    }

    /// Whether the block should be processed before more packets are added.
    pub(super) fn is_full(&self) -> bool {
        self.bytes.filled >= LENGTH
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
        let begin = self.bytes.filled;
        let length = length + self.bytes.append(write);
        let bytes = &self.bytes.bytes()[begin..];
        let shard = usize::from(shard(link, bytes, length, shards));
        if self.shards.len() <= shard {
            self.shards.resize_with(shard + 1, Vec::new);
        }
        self.shards[shard].push(self.packets.len() as u32);
        self.packets.push(Place {
            at,
            begin: begin as u32,
            captured: bytes.len() as u32,
            length: u32::try_from(length).unwrap_or(u32::MAX),
            interface: 0,
            is_sent: Some(is_sent),
            lost_before: 0,
            steps_back,
        });
    }

    /// Summary of the packets.
    pub(super) fn seen(&self) -> Seen {
        let times = self.packets.first().zip(self.packets.last());
        let times = times.map(|(first, last)| (first.at, last.at));
        Seen { times, count: self.packets.len() as u64 }
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

    fn packet(&self, place: &Place) -> Option<(&Interface, Packet<'_>)> {
        let begin = place.begin as usize;
        let packet = Packet {
            at: place.at,
            interface: place.interface.into(),
            bytes: &self.bytes.bytes()[begin..begin + place.captured as usize],
            length: place.length as usize,
            is_sent: place.is_sent,
            lost_before: place.lost_before,
            steps_back: place.steps_back,
        };
        Some((self.interfaces.get(usize::from(place.interface))?, packet))
    }
}
