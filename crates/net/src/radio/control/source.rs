//! Packets of an interface, with the properties that a policy needs.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;

use manyways_model::radio::{Direction, Packet};
use manyways_sys::capture::{Frame, Options, Ring};
use manyways_sys::clock::Clock;
use manyways_sys::interface::{self, Device};
use manyways_unit::{Size, Span, Time};
use thiserror::Error;

/// Holds more than 10 000 packets while the thread is busy.
const RING_SIZE: Size = Size::from_kib(2_048);
/// `PACKET_OTHERHOST` and `PACKET_OUTGOING` (packet(7)).
const PACKET_OTHERHOST: u8 = 3;
const PACKET_OUTGOING: u8 = 4;
/// Counters of all interfaces in the thread's namespace, and the maximum of bytes read.
const COUNTERS_FILE: &str = "/proc/net/dev";
const MAX_COUNTERS_SIZE: usize = 1 << 20;

/// Source of packet times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SourceKind {
    /// Each packet individually; requires the right to capture.
    Capture,
    /// The interface's counters at this interval. Of several packets in one interval only the sum
    /// is known, and the time is that of the second read.
    Counters(Span),
}

/// Observes the packets of an interface, by capture or by counters.
#[derive(Debug)]
pub struct Source {
    name: String,
    index: u32,
    backend: Backend,
}

#[derive(Debug)]
enum Backend {
    /// Packets read from the ring, packets that the kernel reports as put into it, and packets
    /// dropped for lack of space.
    Ring {
        ring: Ring,
        captured: u64,
        put: u64,
        dropped: u64,
    },
    Counters {
        file: File,
        step: Span,
        text: Vec<u8>,
        last: Counters,
    },
}

/// Counts since the creation of the interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Counters {
    /// Bytes and packets.
    received: [u64; 2],
    sent: [u64; 2],
}

/// Reason why an interface cannot be observed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    #[error("there is no interface {name}")]
    Missing {
        name: String,
        /// Names of the existing interfaces.
        others: Vec<String>,
    },
    /// This process is not permitted to capture.
    #[error("capturing packets is not allowed")]
    Forbidden,
    #[error("the interface {0} is down")]
    Down(String),
    /// Another failure of a system call.
    #[error("cannot watch {name}: {error}")]
    System {
        name: String,
        #[source]
        error: io::Error,
    },
}

impl OpenError {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Missing { others, .. } => {
                Some(format!("the interfaces are: {}", others.join(", ")))
            }
            Self::Forbidden => Some(
                "run as root, grant the capability (sudo setcap cap_net_raw+ep \
                 \"$(command -v manyways)\"), or watch the counters (--counters)"
                    .into(),
            ),
            Self::Down(name) => Some(format!("bring the interface up: ip link set {name} up")),
            Self::System { .. } => None,
        }
    }
}

impl Source {
    /// Starts watching.
    ///
    /// # Errors
    /// Fails if the interface does not exist or is down, or if permission is missing.
    pub fn open(name: &str, watch: SourceKind) -> Result<Self, OpenError> {
        let system = |error| OpenError::System { name: name.to_owned(), error };
        let all = interface::devices().map_err(|error| system(io::Error::other(error)))?;
        let Some(device) = all.iter().find(|device| device.name == name) else {
            let others = all.into_iter().map(|device| device.name).collect();
            return Err(OpenError::Missing { name: name.to_owned(), others });
        };
        if !device.is_up {
            return Err(OpenError::Down(name.to_owned()));
        }
        let watched = match watch {
            SourceKind::Capture => {
                let options = Options {
                    interface: Some(device.index),
                    // Lengths are those of IP packets then.
                    cooked: true,
                    snap_length: 1,
                    buffer: RING_SIZE,
                    promiscuous: false,
                };
                let ring = Ring::open(&options).map_err(|error| match error.kind() {
                    io::ErrorKind::PermissionDenied => OpenError::Forbidden,
                    io::ErrorKind::NetworkDown => OpenError::Down(name.to_owned()),
                    _ => system(error),
                })?;
                Backend::Ring { ring, captured: 0, put: 0, dropped: 0 }
            }
            SourceKind::Counters(step) => {
                let file = File::open(COUNTERS_FILE).map_err(system)?;
                let mut text = Vec::new();
                read_file(&file, &mut text).map_err(system)?;
                let last = parse_counters(&text, name).unwrap_or_default();
                Backend::Counters { file, step, text, last }
            }
        };
        Ok(Self { name: name.to_owned(), index: device.index, backend: watched })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Readable when packets can be read; `None` with counters.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.backend {
            Backend::Ring { ring, .. } => Some(ring.as_fd()),
            Backend::Counters { .. } => None,
        }
    }

    /// Read interval of the counters; `None` with a capture.
    pub(super) fn read_interval(&self) -> Option<Span> {
        match &self.backend {
            Backend::Ring { .. } => None,
            Backend::Counters { step, .. } => Some(*step),
        }
    }

    /// Passes all new packets to `each`, in order.
    pub(super) fn read_packets(
        &mut self,
        clock: &Clock,
        mut each: impl FnMut(&Packet),
    ) -> io::Result<()> {
        let now = clock.now();
        match &mut self.backend {
            Backend::Ring { ring, captured: taken, .. } => {
                // Read each time, because the wall clock can be set.
                let epoch = clock.epoch();
                let give = |frame: &Frame<'_>| {
                    *taken += 1;
                    if frame.kind != PACKET_OTHERHOST {
                        each(&captured_packet(frame, epoch, now));
                    }
                };
                let mut give = give;
                while ring.read_block(&mut give) {}
            }
            Backend::Counters { file, text, last, .. } => {
                read_file(file, text)?;
                // A removed interface is reported by [`Source::is_up`].
                let Some(counters) = parse_counters(text, &self.name) else { return Ok(()) };
                // A request is sent before its answer is received.
                let ways = [
                    (Direction::Up, last.sent, counters.sent),
                    (Direction::Down, last.received, counters.received),
                ];
                *last = counters;
                for (direction, before, after) in ways {
                    counted_packets(direction, before, after, now).for_each(|packet| each(&packet));
                }
            }
        }
        Ok(())
    }

    /// Whether all packets until now were read; if not, the descriptor becomes readable soon.
    pub(super) fn is_current(&mut self) -> io::Result<bool> {
        match &mut self.backend {
            Backend::Ring { ring, captured: taken, put, dropped: missed } => {
                let counts = ring.counts()?;
                *put += counts.captured;
                *missed += counts.dropped;
                Ok(put == taken)
            }
            Backend::Counters { .. } => Ok(true),
        }
    }

    /// Packets dropped for lack of space.
    pub(super) fn dropped(&mut self) -> io::Result<u64> {
        self.is_current()?;
        match &self.backend {
            Backend::Ring { dropped: missed, .. } => Ok(*missed),
            Backend::Counters { .. } => Ok(0),
        }
    }

    /// Whether the interface failed; `is_ready` is whether its descriptor was readable.
    pub(super) fn has_failed(&mut self, is_ready: bool) -> io::Result<bool> {
        match &self.backend {
            Backend::Ring { ring, .. } => Ok(is_ready && ring.error()?.is_some()),
            Backend::Counters { text, .. } => Ok(parse_counters(text, &self.name).is_none()),
        }
    }

    /// Whether the interface is up; `None` if it was removed.
    pub(super) fn is_up(&self) -> io::Result<Option<bool>> {
        let same = |device: &&Device| device.index == self.index;
        let all = interface::devices().map_err(io::Error::other)?;
        Ok(all.iter().find(same).map(|device| device.is_up))
    }
}

fn captured_packet(frame: &Frame<'_>, epoch: Span, now: Time) -> Packet {
    let at = Time::ZERO + frame.at.since(Time::ZERO).saturating_sub(epoch);
    let direction = if frame.kind == PACKET_OUTGOING { Direction::Up } else { Direction::Down };
    let bytes = u32::try_from(frame.length).unwrap_or(u32::MAX);
    Packet { at: at.min(now), direction, bytes, app: 0, session: 0 }
}

/// The packets counted between two reads, with equal lengths. Counters that decreased were reset.
fn counted_packets(
    direction: Direction,
    before: [u64; 2],
    after: [u64; 2],
    now: Time,
) -> impl Iterator<Item = Packet> {
    let [bytes, packets] = [0, 1].map(|index| after[index].saturating_sub(before[index]));
    // More packets in one interval make no difference.
    let packets = packets.min(1 << 16);
    (0..packets).map(move |number| {
        // The last packet has the remainder.
        let more = if number + 1 == packets { bytes % packets } else { 0 };
        let bytes = u32::try_from(bytes / packets + more).unwrap_or(u32::MAX);
        Packet { at: now, direction, bytes, app: 0, session: 0 }
    })
}

/// Reads the whole file from its start.
fn read_file(file: &File, text: &mut Vec<u8>) -> io::Result<()> {
    const STEP: usize = 8_192;
    let mut length = 0;
    while length < MAX_COUNTERS_SIZE {
        if text.len() < length + STEP {
            text.resize(length + STEP, 0);
        }
        match file.read_at(&mut text[length..], length as u64)? {
            0 => break,
            more => length += more,
        }
    }
    text.truncate(length);
    Ok(())
}

/// Counters of an interface in the text of [`COUNTERS_FILE`].
fn parse_counters(text: &[u8], name: &str) -> Option<Counters> {
    let rest = text.split(|byte| *byte == b'\n').find_map(|line| {
        line.trim_ascii_start().strip_prefix(name.as_bytes())?.strip_prefix(b":")
    })?;
    let mut numbers = rest.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let mut number =
        |skip: usize| -> Option<u64> { std::str::from_utf8(numbers.nth(skip)?).ok()?.parse().ok() };
    let received = [number(0)?, number(0)?];
    let sent = [number(6)?, number(0)?];
    Some(Counters { received, sent })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &[u8] = b"Inter-|   Receive                       |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop
    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16
 wwan0:1000       7    0    0    0     0          0         0     333       5    0    0    0
 wwan01: 1 1 0 0 0 0 0 0 1 1 0 0 0
broken: 1 x 0 0 0 0 0 0 1 1 0 0 0
 short: 1 2 3
";

    #[test]
    fn the_kernels_counters_are_read() {
        let lo = Counters { received: [1, 2], sent: [9, 10] };
        assert_eq!(parse_counters(TEXT, "lo"), Some(lo));
        let wwan = Counters { received: [1_000, 7], sent: [333, 5] };
        assert_eq!(parse_counters(TEXT, "wwan0"), Some(wwan));
        for name in ["wwan", "eth0", "broken", "short", "", "face |bytes"] {
            assert_eq!(parse_counters(TEXT, name), None, "{name}");
        }
        let mut text = vec![1; 20_000];
        read_file(&File::open(COUNTERS_FILE).unwrap(), &mut text).unwrap();
        assert!(text.starts_with(b"Inter-|"));
    }

    #[test]
    fn counted_packets_come_with_all_their_bytes() {
        let now = Time::from_millis(5);
        let packets = |before, after| -> Vec<u32> {
            let all = counted_packets(Direction::Up, before, after, now);
            all.map(|packet| packet.bytes).collect()
        };
        assert_eq!(packets([100, 1], [450, 4]), [116, 116, 118]);
        assert_eq!(packets([100, 1], [100, 1]), [0; 0]);
        assert_eq!(packets([100, 9], [50, 2]), [0; 0], "counters were reset");
        assert_eq!(packets([0, 0], [u64::MAX, 1]), [u32::MAX]);
        assert_eq!(packets([0, 0], [0, u64::MAX]).len(), 1 << 16);
    }

    #[test]
    fn a_frame_has_its_time_on_our_clock() {
        let frame = Frame {
            at: Time::from_nanos(1_000_000_007),
            bytes: &[],
            length: 60,
            vlan: None,
            protocol: 0x0800,
            interface: 3,
            hardware: 1,
            kind: PACKET_OUTGOING,
            address: ([0; 8], 0),
        };
        let (epoch, now) = (Span::from_secs(1), Time::from_millis(3));
        let sent = captured_packet(&frame, epoch, now);
        assert_eq!((sent.at, sent.direction, sent.bytes), (Time::from_nanos(7), Direction::Up, 60));
        let received = captured_packet(&Frame { kind: 0, ..frame }, epoch, Time::from_nanos(3));
        // Never in the future, and never before the start.
        assert_eq!((received.at, received.direction), (Time::from_nanos(3), Direction::Down));
        assert_eq!(captured_packet(&frame, Span::from_secs(9), now).at, Time::ZERO);
    }

    proptest! {
        #[test]
        fn arbitrary_counters_do_not_panic(
            at in 0..TEXT.len(), byte in any::<u8>(), length in 0..TEXT.len(),
        ) {
            let mut text = TEXT.to_vec();
            text[at] = byte;
            text.truncate(length);
            parse_counters(&text, "wwan0");
        }
    }
}
