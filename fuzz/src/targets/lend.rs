//! Bytes that devices receive that lend, borrow or pair.

use manyways_proto::bond::pairing::{MAX_MESSAGE, PairMessage};
use manyways_proto::relay::{Class, Frame, Lane};
use manyways_unit::{Size, Span, Time};

pub(super) const PAIR_WORDS: &[&str] = &[
    "\u{1}0123456789abcdef0123456789abcdefphone",
    "\u{2}0123456789abcdef0123456789abcdef192.0.2.1:4433",
    " [2001:db8::1]:4433",
    " [fe80::1%2]:65535",
    " [::ffff:192.0.2.1]:0",
    "\u{4}the code is wrong",
    "\u{1b}[2J",
];
pub(super) const FRAME_WORDS: &[&str] = &[
    "\0\0\0\0\0\0\0\0\0\0\0",
    "\u{1}\0\0\0\0\0\0\0\0\0\u{1}x",
    "\u{2}\0\0\0\0\0\0\0\u{1}\0\u{2}xy",
    "\u{3}\0\0\0\0\0\0\0\0",
    "\u{4}\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\u{2}",
    "\u{5}",
];

/// A message of a device that pairs.
pub(super) fn pair_message(bytes: &[u8]) {
    let Ok(message) = PairMessage::decode(bytes) else { return };
    let again = message.encode();
    assert!(again.len() <= MAX_MESSAGE);
    assert_eq!(PairMessage::decode(&again), Ok(message));
}

/// Frames that come to a lender, which passes them on from time to time.
pub(super) fn relay_frames(bytes: &[u8]) {
    const LIMIT: u64 = 2_000;
    let mut lane: Lane<Vec<u8>> = Lane::new(Size::from_bytes(LIMIT));
    let (mut now, mut rest, mut checks) = (Time::ZERO, bytes, Checks::default());
    while let Ok(Some((frame, length))) = Frame::decode(rest) {
        assert!(0 < length && length <= rest.len());
        let read = &rest[..length];
        rest = &rest[length..];
        let (mut again, mut size) = (Vec::new(), 0);
        let sealed = match frame {
            Frame::Sealed { sealed, .. } => sealed,
            _ => &[],
        };
        frame.encode_head(sealed.len(), &mut again);
        again.extend(sealed);
        size += sealed.len() as u64;
        assert_eq!(again, read);
        for cut in [0, 1, length / 2, length - 1] {
            assert!(cut >= length || Frame::decode(&read[..cut]) == Ok(None));
        }
        checks.note(&frame);
        if lane.receive(now, frame.map(<[u8]>::to_vec)).is_err() {
            return;
        }
        now += Span::from_millis(size % 200);
        // A lender reads no more while the lane has no room.
        while !lane.has_room() || size % 3 == 0 {
            let Some(frame) = lane.poll(now, size % 2 == 0 && lane.has_room()) else { break };
            checks.pass_on(&frame);
        }
        assert!(lane.has_room());
    }
    while let Some(frame) = lane.poll(now, false) {
        checks.pass_on(&frame);
    }
    assert!(lane.is_empty() && lane.status().backlog.is_zero());
    checks.end();
}

/// Numbers of frames by class.
#[derive(Default)]
struct Checks {
    received: [u64; 3],
    passed_on: [u64; 3],
    recalled: Vec<(u64, u64)>,
}

impl Checks {
    fn note(&mut self, frame: &Frame<&[u8]>) {
        match frame {
            Frame::Sealed { class, .. } => self.received[usize::from(class.code())] += 1,
            Frame::Recall { first, last } => self.recalled.push((*first, *last)),
            Frame::Dropped { .. } | Frame::Leave => {}
        }
    }

    fn pass_on(&mut self, frame: &Frame<Vec<u8>>) {
        let (class, number) = match frame {
            Frame::Sealed { class, number, .. } => (*class, *number),
            Frame::Dropped { number } => {
                let is_in = |(first, last): &(u64, u64)| first <= number && number <= last;
                assert!(self.recalled.iter().any(is_in), "{number} was not recalled");
                (Class::Bulk, *number)
            }
            Frame::Recall { .. } | Frame::Leave => panic!("{frame:?} is passed on"),
        };
        let next = &mut self.passed_on[usize::from(class.code())];
        assert!(number == *next || class == Class::Datagram && number > *next);
        *next = number + 1;
    }

    /// Everything but datagrams was passed on.
    fn end(&self) {
        for class in [Class::Bulk, Class::Control] {
            let at = usize::from(class.code());
            assert_eq!(self.passed_on[at], self.received[at], "{class}");
        }
    }
}
