//! Bytes that devices receive that lend, borrow or pair.

use std::collections::{BTreeSet, HashMap};

use manyways_net::bond::{Opened, SealedWay};
use manyways_proto::bond::pairing::{MAX_MESSAGE, PairMessage};
use manyways_proto::bond::tickets::{Loan, TicketError, Tickets};
use manyways_proto::mux::{Message, Seed, TicketId};
use manyways_proto::relay::{Class, Frame, Lane};
use manyways_proto::sched::PathId;
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

/// A message to seal, and what a lender may do with the frame.
pub(super) const SEALED_WORDS: &[&str] = &[
    "p\u{16}\u{1}",
    "p\u{11}\0\0\0\u{1}a",
    "p\u{20}\u{1}\u{1}\0\u{4}\x005\u{1}\u{1}\u{1}\u{1}\0\u{1}q",
    "d\u{11}\0\0\0\u{1}a",
    "l\u{11}\0\0\0\u{1}a",
    "t\u{11}\0\0\0\u{1}a",
    "c\u{14}\u{1}\u{11}\0\0\0\u{1}a",
    "b\u{5}",
    "b\u{3}\0\0\0\0\0\0\0\0",
];
pub(super) const TICKET_WORDS: &[&str] = &["i\0\0", "r\0\0", "w\u{3b}\0", "r\u{1}\u{1}"];

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

/// Frames of sealed messages between which a lender changes, repeats, drops or invents some: the other
/// end gets each message at its place, or an error.
pub(super) fn sealed_messages(bytes: &[u8]) {
    let Some(mut way) = SealedWay::new(&Seed([7; 32])) else { return };
    let (mut rest, mut sealed) = (bytes, Sealed::default());
    while let Some((act, after)) = rest.split_first() {
        rest = after;
        let mut frames: Vec<u8>;
        if *act == b'b' {
            // Bytes of the lender.
            let (own, after) = rest.split_at(rest.len().min(9));
            (frames, rest) = (own.to_vec(), after);
        } else {
            let change = match (*act, rest) {
                (b'c', [at, by, after @ ..]) => {
                    rest = after;
                    Some((usize::from(*at), *by))
                }
                _ => None,
            };
            let Ok(Some((message, length))) = Message::decode(rest) else { return };
            if matches!(message, Message::Hello(_) | Message::Welcome(_)) {
                return;
            }
            rest = &rest[length..];
            let class = Class::of(&message);
            let number = sealed.add(class, message.clone().map(<[u8]>::to_vec));
            frames = way.seal(message);
            match act {
                b'd' => {
                    frames.clear();
                    Frame::<()>::Dropped { number }.encode_head(0, &mut frames);
                }
                b'l' => frames.clear(),
                b't' => frames = frames.repeat(2),
                _ => {}
            }
            if let Some((at, by)) = change {
                let at = at % frames.len();
                frames[at] ^= by;
            }
        }
        // In two parts, as a connection may deliver them.
        let (first, second) = frames.split_at(frames.len() / 2);
        for part in [first, second] {
            if way.open(part, |opened| sealed.check(opened)).is_err() {
                return;
            }
        }
    }
}

/// The sealed messages by class, and the number of the next one that the other end may get.
#[derive(Default)]
struct Sealed {
    messages: [Vec<Message<Vec<u8>>>; 3],
    next: [usize; 3],
}

impl Sealed {
    fn add(&mut self, class: Class, message: Message<Vec<u8>>) -> u64 {
        let of_class = &mut self.messages[usize::from(class.code())];
        of_class.push(message);
        of_class.len() as u64 - 1
    }

    fn check(&mut self, opened: Opened) {
        let (class, message) = match opened {
            Opened::Message(message) => (Class::of(&message), Some(message)),
            // Whether the sender permits that, the mux knows.
            Opened::Dropped => (Class::Bulk, None),
            Opened::Leave => return,
        };
        let code = usize::from(class.code());
        let next = &mut self.next[code];
        if let Some(message) = message {
            let later = self.messages[code].get(*next..).unwrap_or_default();
            let place = later.iter().position(|sealed| *sealed == message);
            let missing = place.expect("a message that was sealed and has not come yet");
            assert!(missing == 0 || class == Class::Datagram, "{missing} messages are missing");
            *next += missing;
        }
        *next += 1;
    }
}

/// Tickets that are given, used and expire in any order, by sessions and lenders of one byte.
pub(super) fn tickets(bytes: &[u8]) {
    const LIFETIME: Span = Span::from_secs(60);
    let mut tickets: Tickets<u8, u8> = Tickets::new();
    let (mut now, mut given, mut joins) = (Time::from_millis(1), HashMap::new(), BTreeSet::new());
    for (number, act) in bytes.chunks_exact(3).enumerate() {
        let &[act, first, second] = act else { return };
        let (id, path) = (|number: u8| TicketId([number; 16]), PathId(second % PathId::LIMIT));
        match act {
            b'i' => {
                // Identifiers are random, and do not come twice.
                let Ok(number) = u8::try_from(number) else { return };
                let (session, lender, rtt) = (first % 4, second % 4, Span::from_millis(6));
                let seed = Seed([number; 32]);
                let issued = tickets.issue(now, (id(number), seed), session, path, (lender, rtt));
                let valid = given
                    .values()
                    .filter(|(until, _, of)| is_valid_at(now, until) && *of == session);
                assert_eq!(issued.is_err(), valid.count() >= 32);
                if let Ok(join) = issued {
                    assert!(joins.insert(join), "join {join} is of two loans");
                    given.insert(number, (now + LIFETIME, lender, session));
                }
            }
            b'r' => {
                let lender = second % 4;
                let expected = match given.get(&first).filter(|(until, ..)| is_valid_at(now, until))
                {
                    None => Err(TicketError::Invalid),
                    Some((_, of, _)) if *of != lender => Err(TicketError::OtherLender),
                    Some((.., session)) => Ok(*session),
                };
                let loan = tickets.redeem(now, id(first), &lender);
                assert_eq!(loan.map(|Loan { session, .. }| session), expected);
                // It is for one use.
                if expected.is_ok() {
                    given.remove(&first);
                }
            }
            _ => now += Span::from_millis(u64::from(first) * 250),
        }
        let has = |lender: u8| {
            given.values().any(|(until, of, _)| is_valid_at(now, until) && *of == lender)
        };
        for lender in 0..4 {
            assert_eq!(tickets.expects(now, &lender), has(lender));
        }
    }
}

fn is_valid_at(now: Time, until: &Time) -> bool {
    now < *until
}
