//! Captures of what a link carries: one pcapng file a link (draft-ietf-opsawg-pcapng), and a second
//! one for what it dropped.
//!
//! The relay's thread only copies bytes into a buffer; a thread of the writer's own cuts
//! super-packets into wire packets, finishes their checksums and writes. When the disk is slower
//! than the link the buffer fills up: then packets are left out and counted in the statistics at
//! the file's end, and the relay is never held up.
//!
//! Blocks are only ever appended, whole, at the latest [`LINGER`] after the packet: a lab that is
//! killed leaves a file that can be read up to there.

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

/// Longest time from a packet to its place in the file, if the disk keeps up.
pub const LINGER: Duration = Duration::from_millis(100);

/// Most bytes that wait to be written; packets beyond are left out.
pub const MAX_WAITING: usize = 32 << 20;

/// Packets begin with their IP header; the version tells IPv4 from IPv6.
const LINKTYPE_RAW: u16 = 101;

/// With so many bytes waiting the writer does not linger.
const PLENTY: usize = 1 << 20;

/// Writes one link's packets to a pcapng file.
///
/// Times are nanoseconds; packets from the device are marked outbound, those to it inbound.
/// Packets that were dropped, each with its cause as a comment, go to a second file: `wifi.pcapng`
/// has `wifi-dropped.pcapng` beside it from the first drop on. In one file a reader would take them
/// for packets that passed.
#[derive(Debug)]
pub struct PcapWriter {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<io::Result<Written>>>,
}

/// What a capture holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Wire packets that passed.
    pub passed: u64,
    /// Wire packets that were dropped on the link.
    pub dropped: u64,
    /// Packets (a super-packet counts once) that were left out because the disk was too slow.
    pub missed: u64,
}

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    work: Condvar,
    done: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    /// Packets as [`Entry`] writes them.
    bytes: Vec<u8>,
    /// Wall clock at the origin of the caller's time, in nanoseconds since the Unix epoch.
    epoch: Option<u64>,
    latest: Time,
    missed: u64,
    /// Times that somebody asked for everything to be written, and times that it was.
    asked: u64,
    answered: u64,
    finish: bool,
}

impl PcapWriter {
    /// Makes the file of the link `name`, replacing one that is there. A file of drops that is
    /// there goes, too.
    ///
    /// # Errors
    /// When the file cannot be made or its first bytes cannot be written.
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
        shared.lock().bytes.reserve(2 * PLENTY);
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("lab-pcap".into())
            .spawn(move || write(&theirs, passed, open))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Says what the wall clock shows at [`Time::ZERO`], as time since the Unix epoch. Without it,
    /// the first packet is taken to be of the moment in which it is recorded.
    pub fn set_epoch(&mut self, epoch: Span) {
        self.shared.lock().epoch = Some(epoch.as_nanos());
    }

    /// Records a packet that came from `from`.
    pub fn record(&mut self, at: Time, from: Side, packet: &[u8], offload: &Offload) {
        self.put(at, from, None, [&[], packet], offload);
    }

    /// Records a part of a packet, as it is written to a device: headers, then payload.
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

    /// Records a packet, or a part of one, that was dropped on the link, with a comment that says so.
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

    /// Waits until everything that was recorded has been written, or could not be.
    pub fn flush(&self) {
        let mut waiting = self.shared.lock();
        waiting.asked += 1;
        let mine = waiting.asked;
        self.shared.work.notify_one();
        while waiting.answered < mine {
            waiting = self.shared.done.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Writes what is left, and the statistics.
    ///
    /// # Errors
    /// The first one that writing met; nothing was written after it.
    pub fn finish(mut self) -> io::Result<Written> {
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
        let entry =
            Entry { at, from, cause, offload: *offload, length: parts[0].len() + parts[1].len() };
        let mut waiting = self.shared.lock();
        if waiting.bytes.len() + Entry::HEADER + entry.length > MAX_WAITING {
            waiting.missed += 1;
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
        // A wake-up is a system call: one when there is work at all, one when there is plenty.
        if before == 0 || (before < PLENTY && after >= PLENTY) {
            self.shared.work.notify_one();
        }
    }

    fn join(&mut self) -> io::Result<Written> {
        let Some(thread) = self.thread.take() else { return Ok(Written::default()) };
        self.shared.lock().finish = true;
        self.shared.work.notify_one();
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the capture's thread panicked")))
    }
}

impl Drop for PcapWriter {
    fn drop(&mut self) {
        if let Err(error) = self.join() {
            tracing::warn!(%error, "a capture is not complete");
        }
    }
}

impl Shared {
    /// No code that holds the lock can leave a half-made state behind.
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for work, lingers for more of it, and swaps it for `empty`.
    fn take(&self, empty: &mut Vec<u8>) -> Taken {
        let idle = |w: &mut Waiting| w.bytes.is_empty() && !w.finish && w.asked == w.answered;
        let waiting = self.lock();
        let waiting = self.work.wait_while(waiting, idle).unwrap_or_else(PoisonError::into_inner);
        let few = |w: &mut Waiting| w.bytes.len() < PLENTY && !w.finish && w.asked == w.answered;
        let (mut waiting, _) = self
            .work
            .wait_timeout_while(waiting, LINGER, few)
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut waiting.bytes, empty);
        Taken {
            epoch: waiting.epoch.unwrap_or(0),
            latest: waiting.latest,
            missed: waiting.missed,
            asked: waiting.asked,
            // What came after this look at `finish` cannot be: the writer itself has set it.
            finish: waiting.finish,
        }
    }
}

struct Taken {
    epoch: u64,
    latest: Time,
    missed: u64,
    asked: u64,
    finish: bool,
}

/// The writer's thread.
fn write(shared: &Shared, mut passed: Output, open: Open) -> io::Result<Written> {
    let mut taken = Vec::with_capacity(2 * PLENTY);
    let (mut open, mut dropped) = (Some(open), None::<Output>);
    let mut opened = Ok(());
    loop {
        taken.clear();
        let state = shared.take(&mut taken);
        let mut rest = taken.as_slice();
        while let Some((entry, packet, after)) = Entry::take(rest) {
            rest = after;
            if entry.cause.is_none() {
                passed.cut(state.epoch, &entry, packet);
                continue;
            }
            if let Some(open) = open.take() {
                match open() {
                    Ok(output) => dropped = Some(output),
                    Err(error) => opened = Err(error),
                }
            }
            if let Some(dropped) = &mut dropped {
                dropped.cut(state.epoch, &entry, packet);
            }
        }
        passed.write(&state, state.missed);
        if let Some(dropped) = &mut dropped {
            dropped.write(&state, 0);
        }
        shared.lock().answered = state.asked;
        shared.done.notify_all();
        if state.finish {
            let dropped = dropped.map_or(Ok(0), Output::end);
            opened?;
            return Ok(Written { passed: passed.end()?, dropped: dropped?, missed: state.missed });
        }
    }
}

/// Makes the file of drops when the first one comes.
type Open = Box<dyn FnOnce() -> io::Result<Output> + Send>;

/// One file.
struct Output {
    file: Box<dyn Write + Send>,
    /// Blocks that wait to be written.
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

    /// Makes blocks of a packet's segments.
    fn cut(&mut self, epoch: u64, entry: &Entry, packet: &[u8]) {
        let at = epoch.saturating_add(entry.at.as_nanos());
        let direction = match entry.from {
            Side::Device => Direction::Outbound,
            Side::Far => Direction::Inbound,
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
                // Shown as it is: somebody may be looking for just this.
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

    /// Writes the blocks that wait, and the statistics when they are the last.
    fn write(&mut self, state: &Taken, missed: u64) {
        if state.finish {
            let end = state.epoch.saturating_add(state.latest.as_nanos());
            pcapng_writer::statistics(&mut self.blocks, state.epoch, end, self.packets, missed);
        }
        // After an error a reader would lose its way in what follows.
        if self.result.is_ok() {
            self.result = self.file.write_all(&self.blocks).and_then(|()| self.file.flush());
        }
        self.blocks.clear();
    }

    /// Wire packets in the file.
    fn end(self) -> io::Result<u64> {
        self.result.map(|()| self.packets)
    }
}

/// What stands before a packet's bytes in the buffer between the threads.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Entry {
    at: Time,
    from: Side,
    cause: Option<Cause>,
    offload: Offload,
    length: usize,
}

impl Entry {
    const HEADER: usize = 24;

    fn to_bytes(self) -> [u8; Self::HEADER] {
        let mut bytes = [0; Self::HEADER];
        bytes[..8].copy_from_slice(&self.at.as_nanos().to_ne_bytes());
        bytes[8..12].copy_from_slice(&(self.length as u32).to_ne_bytes());
        bytes[12..22].copy_from_slice(&self.offload.to_bytes());
        bytes[22] = (self.from == Side::Device).into();
        bytes[23] = match self.cause {
            None => 0,
            Some(Cause::Queue) => 1,
            Some(Cause::Aqm) => 2,
            Some(Cause::Loss) => 3,
            Some(Cause::Down) => 4,
        };
        bytes
    }

    /// Takes the first entry, with its packet, off the buffer.
    fn take(buffer: &[u8]) -> Option<(Self, &[u8], &[u8])> {
        let (head, rest) = buffer.split_first_chunk::<{ Self::HEADER }>()?;
        let (at, tail) = head.split_first_chunk::<8>()?;
        let (length, tail) = tail.split_first_chunk::<4>()?;
        let (offload, tail) = tail.split_first_chunk::<10>()?;
        let length = u32::from_ne_bytes(*length) as usize;
        let (packet, rest) = rest.split_at_checked(length)?;
        let entry = Self {
            at: Time::from_nanos(u64::from_ne_bytes(*at)),
            from: if tail[0] == 0 { Side::Far } else { Side::Device },
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
