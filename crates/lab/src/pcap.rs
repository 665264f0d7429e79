//! Captures of the packets on a link: one pcapng file per link (draft-ietf-opsawg-pcapng), and a
//! second one for dropped packets.
//!
//! The relay's thread only copies bytes into a buffer; a separate thread segments super-packets
//! into wire packets, completes their checksums and writes. If the disk is slower than the link,
//! the buffer fills up. Further packets are then omitted and counted in the statistics at the end
//! of the file, and the relay is never delayed.
//!
//! Blocks are only appended, complete, at most [`MAX_WRITE_DELAY`] after the packet: the file of a
//! killed lab can be read up to there.

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use manyways_link::Cause;
use manyways_link::middlebox::Side;
use manyways_link::segment::{self, Offload};
use manyways_sys::clock::Clock;
use manyways_unit::{Span, Time};

use manyways_wire::capture::pcapng_writer::{self, Direction};

/// Maximum time from a packet to its block in the file, if the disk is fast enough.
pub const MAX_WRITE_DELAY: Duration = Duration::from_millis(100);

/// Maximum bytes that wait to be written; packets beyond are omitted.
pub const MAX_QUEUED_BYTES: usize = 32 << 20;

/// Packets start with their IP header, whose version distinguishes IPv4 from IPv6.
const LINKTYPE_RAW: u16 = 101;

/// With at least this number of waiting bytes, the writer does not wait for more.
const WRITE_THRESHOLD: usize = 1 << 20;

/// Writes one link's packets to a pcapng file.
///
/// Times are nanoseconds; packets from the device are marked outbound, packets to it inbound.
/// Dropped packets, each with its cause as a comment, are written to a second file, which is
/// created at the first drop: `wifi-dropped.pcapng` for `wifi.pcapng`. In a single file a reader
/// would mistake them for packets that passed.
#[derive(Debug)]
pub struct PcapWriter {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<io::Result<CaptureCounts>>>,
}

/// Packet counts of a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CaptureCounts {
    /// Wire packets that passed.
    pub passed: u64,
    /// Wire packets dropped on the link.
    pub dropped: u64,
    /// Packets omitted because the disk was too slow; a super-packet counts once.
    pub omitted: u64,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<WriteQueue>,
    work: Condvar,
    done: Condvar,
}

#[derive(Debug, Default)]
struct WriteQueue {
    /// Packets as written by [`PacketEntry`].
    bytes: Vec<u8>,
    /// Wall clock at the origin of the caller's time, in nanoseconds since the Unix epoch.
    epoch: Option<u64>,
    latest: Time,
    omitted: u64,
    /// Number of flush requests, and of those completed.
    flushes_requested: u64,
    flushes_completed: u64,
    finish: bool,
}

impl PcapWriter {
    /// Creates the file of the link `name` and replaces an existing one. Removes an existing file
    /// of drops.
    ///
    /// # Errors
    /// If the file cannot be created or its first bytes cannot be written.
    pub fn create(path: &Path, name: &str) -> io::Result<Self> {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let beside = path.with_file_name(format!("{stem}-dropped.pcapng"));
        match std::fs::remove_file(&beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let passed = Output::start(Box::new(File::create(path)?), name)?;
        let name = format!("{name}-dropped");
        let open = move || Output::start(Box::new(File::create(&beside)?), &name);
        Self::start(passed, Box::new(open))
    }

    fn start(passed: Output, open: Open) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        shared.lock().bytes.reserve(2 * WRITE_THRESHOLD);
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("lab-pcap".into())
            .spawn(move || write(&theirs, passed, open))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Sets the wall clock at [`Time::ZERO`], as time since the Unix epoch. Without it, the time at
    /// which the first packet is recorded counts as the time of that packet.
    pub fn set_epoch(&mut self, epoch: Span) {
        self.shared.lock().epoch = Some(epoch.as_nanos());
    }

    /// Records a packet that was sent from `from`.
    pub fn record(&mut self, at: Time, from: Side, packet: &[u8], offload: &Offload) {
        self.put(at, from, None, [&[], packet], offload);
    }

    /// Records a part of a packet in the form that a device gets: headers, then payload.
    pub fn record_slice(
        &mut self,
        at: Time,
        from: Side,
        header: &[u8],
        payload: &[u8],
        offload: &Offload,
    ) {
        self.put(at, from, None, [header, payload], offload);
    }

    /// Records a packet, or a part of one, that was dropped on the link, with a comment.
    pub fn record_drop(
        &mut self,
        at: Time,
        from: Side,
        cause: Cause,
        header: &[u8],
        payload: &[u8],
        offload: &Offload,
    ) {
        self.put(at, from, Some(cause), [header, payload], offload);
    }

    /// Waits until all recorded packets have been written or failed to be written.
    pub fn flush(&self) {
        let mut waiting = self.shared.lock();
        waiting.flushes_requested += 1;
        let mine = waiting.flushes_requested;
        self.shared.work.notify_one();
        while waiting.flushes_completed < mine {
            waiting = self.shared.done.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Writes the remaining packets and the statistics.
    ///
    /// # Errors
    /// The first error of a write; nothing was written after it.
    pub fn finish(mut self) -> io::Result<CaptureCounts> {
        self.join()
    }

    fn put(
        &mut self,
        at: Time,
        from: Side,
        cause: Option<Cause>,
        parts: [&[u8]; 2],
        offload: &Offload,
    ) {
        let entry = PacketEntry {
            at,
            from,
            cause,
            offload: *offload,
            length: parts[0].len() + parts[1].len(),
        };
        let mut waiting = self.shared.lock();
        if waiting.bytes.len() + PacketEntry::HEADER + entry.length > MAX_QUEUED_BYTES {
            waiting.omitted += 1;
            return;
        }
        if waiting.epoch.is_none() {
            waiting.epoch = Some(Clock::start().epoch().as_nanos().saturating_sub(at.as_nanos()));
        }
        let before = waiting.bytes.len();
        waiting.latest = waiting.latest.max(at);
        waiting.bytes.extend_from_slice(&entry.to_bytes());
        waiting.bytes.extend_from_slice(parts[0]);
        waiting.bytes.extend_from_slice(parts[1]);
        let after = waiting.bytes.len();
        drop(waiting);
        // A wake-up is a system call: one for the first work, one when there is plenty.
        if before == 0 || (before < WRITE_THRESHOLD && after >= WRITE_THRESHOLD) {
            self.shared.work.notify_one();
        }
    }

    fn join(&mut self) -> io::Result<CaptureCounts> {
        let Some(thread) = self.thread.take() else { return Ok(CaptureCounts::default()) };
        self.shared.lock().finish = true;
        self.shared.work.notify_one();
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the capture's thread panicked")))
    }
}

impl Drop for PcapWriter {
    fn drop(&mut self) {
        if let Err(error) = self.join() {
            tracing::warn!(%error, "a capture is incomplete");
        }
    }
}

impl Shared {
    /// No code that holds the lock can leave an inconsistent state.
    fn lock(&self) -> MutexGuard<'_, WriteQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for work, waits [`MAX_WRITE_DELAY`] for more of it, and swaps it for `empty`.
    fn take_batch(&self, empty: &mut Vec<u8>) -> BatchState {
        let idle = |w: &mut WriteQueue| {
            w.bytes.is_empty() && !w.finish && w.flushes_requested == w.flushes_completed
        };
        let waiting = self.lock();
        let waiting = self.work.wait_while(waiting, idle).unwrap_or_else(PoisonError::into_inner);
        let few = |w: &mut WriteQueue| {
            w.bytes.len() < WRITE_THRESHOLD
                && !w.finish
                && w.flushes_requested == w.flushes_completed
        };
        let (mut waiting, _) = self
            .work
            .wait_timeout_while(waiting, MAX_WRITE_DELAY, few)
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut waiting.bytes, empty);
        BatchState {
            epoch: waiting.epoch.unwrap_or(0),
            latest: waiting.latest,
            omitted: waiting.omitted,
            flushes_requested: waiting.flushes_requested,
            // There are no packets after `finish` was read as set: the writer itself sets it.
            finish: waiting.finish,
        }
    }
}

struct BatchState {
    epoch: u64,
    latest: Time,
    omitted: u64,
    flushes_requested: u64,
    finish: bool,
}

/// Runs the writer's thread.
fn write(shared: &Shared, mut passed: Output, open: Open) -> io::Result<CaptureCounts> {
    let mut taken = Vec::with_capacity(2 * WRITE_THRESHOLD);
    let (mut open, mut dropped) = (Some(open), None::<Output>);
    let mut opened = Ok(());
    loop {
        taken.clear();
        let state = shared.take_batch(&mut taken);
        let mut rest = taken.as_slice();
        while let Some((entry, packet, after)) = PacketEntry::parse(rest) {
            rest = after;
            if entry.cause.is_none() {
                passed.append_segments(state.epoch, &entry, packet);
                continue;
            }
            if let Some(open) = open.take() {
                match open() {
                    Ok(output) => dropped = Some(output),
                    Err(error) => opened = Err(error),
                }
            }
            if let Some(dropped) = &mut dropped {
                dropped.append_segments(state.epoch, &entry, packet);
            }
        }
        passed.write(&state, state.omitted);
        if let Some(dropped) = &mut dropped {
            dropped.write(&state, 0);
        }
        shared.lock().flushes_completed = state.flushes_requested;
        shared.done.notify_all();
        if state.finish {
            let dropped = dropped.map_or(Ok(0), Output::end);
            opened?;
            return Ok(CaptureCounts {
                passed: passed.end()?,
                dropped: dropped?,
                omitted: state.omitted,
            });
        }
    }
}

/// Creates the file of drops at the first drop.
type Open = Box<dyn FnOnce() -> io::Result<Output> + Send>;

/// One file.
struct Output {
    file: Box<dyn Write + Send>,
    /// Blocks to write.
    blocks: Vec<u8>,
    /// One wire packet.
    wire: Vec<u8>,
    packets: u64,
    result: io::Result<()>,
}

impl Output {
    fn start(mut file: Box<dyn Write + Send>, name: &str) -> io::Result<Self> {
        let mut blocks = Vec::new();
        pcapng_writer::section(&mut blocks);
        pcapng_writer::interface(&mut blocks, name, LINKTYPE_RAW, 0);
        file.write_all(&blocks)?;
        file.flush()?;
        blocks.clear();
        Ok(Self { file, blocks, wire: Vec::new(), packets: 0, result: Ok(()) })
    }

    /// Appends blocks of a packet's segments.
    fn append_segments(&mut self, epoch: u64, entry: &PacketEntry, packet: &[u8]) {
        let at = epoch.saturating_add(entry.at.as_nanos());
        let direction = match entry.from {
            Side::Inside => Direction::Outbound,
            Side::Outside => Direction::Inbound,
        };
        let comment = entry.cause.map(|cause| match cause {
            Cause::Queue => "dropped: queue",
            Cause::Aqm => "dropped: aqm",
            Cause::Loss => "dropped: loss",
            Cause::Down => "dropped: down",
        });
        let plan = segment::plan(packet, &entry.offload);
        for index in 0..plan.as_ref().map_or(1, |plan| plan.segments) {
            self.wire.clear();
            match &plan {
                Ok(plan) => {
                    segment::wire(packet, &entry.offload, plan, index, &mut self.wire);
                }
                // Written unsegmented: malformed packets are of interest, too.
                Err(_) => self.wire.extend_from_slice(packet),
            }
            pcapng_writer::packet(
                &mut self.blocks,
                at,
                &self.wire,
                self.wire.len(),
                direction,
                comment,
            );
            self.packets += 1;
        }
    }

    /// Writes the waiting blocks, and the statistics at the end.
    fn write(&mut self, state: &BatchState, dropped: u64) {
        if state.finish {
            let end = state.epoch.saturating_add(state.latest.as_nanos());
            pcapng_writer::statistics(&mut self.blocks, state.epoch, end, self.packets, dropped);
        }
        // After an error the file could be inconsistent, and a reader could not continue.
        if self.result.is_ok() {
            self.result = self.file.write_all(&self.blocks).and_then(|()| self.file.flush());
        }
        self.blocks.clear();
    }

    /// Returns the number of wire packets in the file.
    fn end(self) -> io::Result<u64> {
        self.result.map(|()| self.packets)
    }
}

/// Header of a packet in the buffer between the threads.
#[derive(Clone, Copy, Debug, PartialEq)]
struct PacketEntry {
    at: Time,
    from: Side,
    cause: Option<Cause>,
    offload: Offload,
    length: usize,
}

impl PacketEntry {
    const HEADER: usize = 24;

    fn to_bytes(self) -> [u8; Self::HEADER] {
        let mut bytes = [0; Self::HEADER];
        bytes[..8].copy_from_slice(&self.at.as_nanos().to_ne_bytes());
        bytes[8..12].copy_from_slice(&(self.length as u32).to_ne_bytes());
        bytes[12..22].copy_from_slice(&self.offload.to_bytes());
        bytes[22] = (self.from == Side::Inside).into();
        bytes[23] = match self.cause {
            None => 0,
            Some(Cause::Queue) => 1,
            Some(Cause::Aqm) => 2,
            Some(Cause::Loss) => 3,
            Some(Cause::Down) => 4,
        };
        bytes
    }

    /// Parses the first entry of the buffer, with its packet; also returns the rest.
    fn parse(buffer: &[u8]) -> Option<(Self, &[u8], &[u8])> {
        let (head, rest) = buffer.split_first_chunk::<{ Self::HEADER }>()?;
        let (at, tail) = head.split_first_chunk::<8>()?;
        let (length, tail) = tail.split_first_chunk::<4>()?;
        let (offload, tail) = tail.split_first_chunk::<10>()?;
        let length = u32::from_ne_bytes(*length) as usize;
        let (packet, rest) = rest.split_at_checked(length)?;
        let entry = Self {
            at: Time::from_nanos(u64::from_ne_bytes(*at)),
            from: if tail[0] == 0 { Side::Outside } else { Side::Inside },
            cause: match tail[1] {
                1 => Some(Cause::Queue),
                2 => Some(Cause::Aqm),
                3 => Some(Cause::Loss),
                4 => Some(Cause::Down),
                _ => None,
            },
            offload: Offload::from_bytes(offload),
            length,
        };
        Some((entry, packet, rest))
    }
}
