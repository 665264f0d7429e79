//! The seal of messages on a lent path: the lender between the two ends sees class, number and length.
//!
//! The two ends derive a key for each direction from the seed of the ticket (HKDF, RFC 5869) and seal
//! each message of the mux with AES-128-GCM (RFC 5116). The nonce is the class and
//! the number, which the lender cannot change or use twice without an error at the other end.

use bytes::{Buf, Bytes, BytesMut};
use manyways_proto::mux::{Message, Seed};
use manyways_proto::relay::{Class, Frame, FrameError};
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Salt};

use super::carrier::{COPY_THRESHOLD, Chunk, Received};

/// Seals the messages of one direction.
pub(super) struct Sealer {
    key: LessSafeKey,
    /// The next number of each class.
    next: [u64; 3],
}

/// Opens the messages of one direction.
pub(super) struct Opener {
    key: LessSafeKey,
    next: [u64; 3],
}

/// A direction, as the client sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    Up,
    Down,
}

/// A lender that does not do its part.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SealError {
    /// Bytes that are not a frame.
    #[error("the lender sent {0}")]
    Frame(#[from] FrameError),
    /// A message that was changed, or is not of this path.
    #[error("the lender changed messages on their way")]
    Forged,
    /// A message is missing, comes late or again.
    #[error("the lender left out or repeated messages")]
    Number,
    /// The other end sealed something else than one message.
    #[error("the other end sealed something else than a message")]
    Content,
}

impl SealError {
    /// Whether the lender is at fault, and not the other end.
    pub(super) fn is_forged(self) -> bool {
        self != Self::Content
    }
}

impl Way {
    pub(super) fn opposite(self) -> Self {
        match self {
            Self::Up => Self::Down,
            Self::Down => Self::Up,
        }
    }
}

struct KeyLength;

impl KeyType for KeyLength {
    fn len(&self) -> usize {
        16
    }
}

fn key(seed: &Seed, way: Way) -> Option<LessSafeKey> {
    let info: [&[u8]; 1] = [match way {
        Way::Up => b"manyways lend up",
        Way::Down => b"manyways lend down",
    }];
    let mut bytes = [0; 16];
    let pseudorandom = Salt::new(HKDF_SHA256, b"manyways lend/1").extract(&seed.0);
    pseudorandom.expand(&info, KeyLength).ok()?.fill(&mut bytes).ok()?;
    Some(LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &bytes).ok()?))
}

fn nonce(class: Class, number: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[0] = class.code();
    bytes[4..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

impl Sealer {
    /// Creates the sealer of one direction; `None` if the library has no such key.
    pub(super) fn new(seed: &Seed, way: Way) -> Option<Self> {
        Some(Self { key: key(seed, way)?, next: [0; 3] })
    }

    /// Appends the frame of a message to `out`.
    pub(super) fn seal(&mut self, message: &Message<Chunk>, out: &mut Vec<u8>) {
        let class = Class::of(message);
        let next = &mut self.next[usize::from(class.code())];
        let number = *next;
        *next += 1;
        let payload = message.payload().map_or(&[][..], |chunk| &chunk.0[..]);
        let mut head = Vec::with_capacity(64);
        message.encode_head(payload.len(), &mut head);
        let length = head.len() + payload.len() + AES_128_GCM.tag_len();
        Frame::Sealed { class, number, sealed: () }.encode_head(length, out);
        let start = out.len();
        out.extend_from_slice(&head);
        out.extend_from_slice(payload);
        let sealed = &mut out[start..];
        // The library refuses only lengths beyond those of a message.
        match self.key.seal_in_place_separate_tag(nonce(class, number), Aad::empty(), sealed) {
            Ok(tag) => out.extend_from_slice(tag.as_ref()),
            Err(_) => out.truncate(start),
        }
    }
}

impl Opener {
    /// Creates the opener of one direction; `None` if the library has no such key.
    pub(super) fn new(seed: &Seed, way: Way) -> Option<Self> {
        Some(Self { key: key(seed, way)?, next: [0; 3] })
    }

    /// Takes the complete frames at the start of `bytes`, and calls `with` for each.
    pub(super) fn open(
        &mut self,
        bytes: &mut BytesMut,
        mut with: impl FnMut(Received),
    ) -> Result<(), SealError> {
        while let Some((frame, length)) = Frame::decode(bytes)? {
            match frame.map(<[u8]>::len) {
                Frame::Sealed { class, number, sealed } => {
                    let mut whole = bytes.split_to(length);
                    whole.advance(length - sealed);
                    with(Received::Message(self.open_one(class, number, whole)?));
                }
                Frame::Dropped { number } => {
                    bytes.advance(length);
                    self.count(Class::Bulk, number)?;
                    with(Received::Dropped);
                }
                Frame::Leave => {
                    bytes.advance(length);
                    with(Received::Leave);
                }
                Frame::Recall { .. } => return Err(SealError::Forged),
            }
        }
        Ok(())
    }

    fn open_one(
        &mut self,
        class: Class,
        number: u64,
        mut sealed: BytesMut,
    ) -> Result<Message<Chunk>, SealError> {
        self.count(class, number)?;
        let opened = self.key.open_in_place(nonce(class, number), Aad::empty(), &mut sealed);
        let length = opened.map_err(|_| SealError::Forged)?.len();
        sealed.truncate(length);
        let (message, taken) = match Message::decode(&sealed) {
            Ok(Some((message, taken))) => (message.map(|data| data.len()), taken),
            _ => return Err(SealError::Content),
        };
        // The class shows which numbers the sender counts.
        if taken != length || Class::of(&message) != class {
            return Err(SealError::Content);
        }
        let payload = message.payload().copied().unwrap_or_default();
        sealed.advance(length - payload);
        let data = match payload >= COPY_THRESHOLD {
            true => sealed.freeze(),
            false => Bytes::copy_from_slice(&sealed),
        };
        Ok(message.map(|_| Chunk(data)))
    }

    /// Checks the number of a frame: datagrams may be missing, others not.
    fn count(&mut self, class: Class, number: u64) -> Result<(), SealError> {
        let next = &mut self.next[usize::from(class.code())];
        let fits = match class {
            Class::Datagram => number >= *next,
            Class::Bulk | Class::Control => number == *next,
        };
        if !fits {
            return Err(SealError::Number);
        }
        *next = number.saturating_add(1);
        Ok(())
    }
}

/// Both ends of one direction of a path over a lender, to test them with any bytes between.
#[doc(hidden)]
pub struct SealedWay {
    sealer: Sealer,
    opener: Opener,
    begun: BytesMut,
}

/// A message or event at the other end.
#[doc(hidden)]
#[derive(Debug)]
pub enum Opened {
    Message(Message<Vec<u8>>),
    Dropped,
    Leave,
}

impl SealedWay {
    pub fn new(seed: &Seed) -> Option<Self> {
        let (sealer, opener) = (Sealer::new(seed, Way::Up)?, Opener::new(seed, Way::Up)?);
        Some(Self { sealer, opener, begun: BytesMut::new() })
    }

    /// Returns the frame of a message.
    pub fn seal(&mut self, message: Message<&[u8]>) -> Vec<u8> {
        let mut frame = Vec::new();
        self.sealer.seal(&message.map(|data| Chunk(Bytes::copy_from_slice(data))), &mut frame);
        frame
    }

    /// Processes further bytes of the lender.
    ///
    /// # Errors
    /// If the lender does not do its part.
    pub fn open(&mut self, bytes: &[u8], mut with: impl FnMut(Opened)) -> Result<(), SealError> {
        self.begun.extend_from_slice(bytes);
        self.opener.open(&mut self.begun, |received| match received {
            Received::Message(message) => {
                with(Opened::Message(message.map(|Chunk(data)| data.to_vec())));
            }
            Received::Dropped => with(Opened::Dropped),
            Received::Leave => with(Opened::Leave),
            Received::Frame(_) => {}
        })
    }
}

#[cfg(test)]
mod tests {
    use manyways_proto::mux::StreamId;

    use super::*;

    const SEED: Seed = Seed([7; 32]);

    fn data(offset: u64, length: usize) -> Message<Chunk> {
        let data = Chunk(Bytes::from(vec![b'x'; length]));
        Message::Data { stream: StreamId(3), offset, fin: false, data }
    }

    fn sealed(messages: &[Message<Chunk>]) -> Vec<u8> {
        let (mut sealer, mut out) = (Sealer::new(&SEED, Way::Down).unwrap(), Vec::new());
        for message in messages {
            sealer.seal(message, &mut out);
        }
        out
    }

    /// The texts of what an end of the path receives.
    fn opened(bytes: &[u8], way: Way) -> Result<Vec<String>, SealError> {
        let (mut opener, mut received) = (Opener::new(&SEED, way).unwrap(), Vec::new());
        let mut bytes = BytesMut::from(bytes);
        opener.open(&mut bytes, |one| {
            received.push(match one {
                Received::Message(message) => format!("{message:?}"),
                Received::Dropped => "dropped".to_owned(),
                Received::Leave => "leave".to_owned(),
                Received::Frame(frame) => panic!("{frame:?} is not opened"),
            });
        })?;
        Ok(received)
    }

    fn frame(frame: Frame<()>) -> Vec<u8> {
        let mut bytes = Vec::new();
        frame.encode_head(0, &mut bytes);
        bytes
    }

    #[test]
    fn sealed_messages_are_opened_and_show_nothing_of_their_content() {
        let messages = [data(0, 20), Message::Ack { count: 5 }, data(20, 16_384), data(16_404, 0)];
        let bytes = sealed(&messages);
        assert!(!bytes.windows(8).any(|window| window == b"xxxxxxxx"));
        let expected: Vec<String> = messages.iter().map(|message| format!("{message:?}")).collect();
        assert_eq!(opened(&bytes, Way::Down).unwrap(), expected);
        assert_eq!(opened(&bytes, Way::Up), Err(SealError::Forged));
    }

    #[test]
    fn a_part_of_a_frame_waits_for_the_rest() {
        let bytes = sealed(&[data(0, 3_000)]);
        let mut opener = Opener::new(&SEED, Way::Down).unwrap();
        let (mut buffer, mut count) = (BytesMut::new(), 0);
        for byte in bytes {
            buffer.extend_from_slice(&[byte]);
            opener.open(&mut buffer, |_| count += 1).unwrap();
        }
        assert_eq!((count, buffer.len()), (1, 0));
    }

    #[test]
    fn a_lender_cannot_change_repeat_swap_or_leave_out_a_message() {
        let [first, second] = [sealed(&[data(0, 50)]), sealed(&[data(0, 50), data(50, 50)])];
        let second = &second[first.len()..];
        for at in 0..first.len() {
            let mut changed = first.clone();
            changed[at] ^= 1;
            let result = opened(&changed, Way::Down);
            assert!(result.is_err() || result == Ok(vec![]), "byte {at}: {result:?}");
        }
        for wrong in [[&first[..], &first[..]].concat(), [second, &first[..]].concat()] {
            assert_eq!(opened(&wrong, Way::Down), Err(SealError::Number));
        }
        assert_eq!(opened(second, Way::Down), Err(SealError::Number));
        assert_eq!(
            opened(&frame(Frame::Recall { first: 0, last: 1 }), Way::Down),
            Err(SealError::Forged)
        );
    }

    #[test]
    fn dropped_messages_count_and_datagrams_may_be_missing() {
        let both = sealed(&[data(0, 50), data(50, 50)]);
        let second = &both[both.len() / 2..];
        let mut bytes = frame(Frame::Dropped { number: 0 });
        bytes.extend_from_slice(second);
        bytes.extend(frame(Frame::Leave));
        let received = opened(&bytes, Way::Down).unwrap();
        assert_eq!((received.len(), &*received[0], &*received[2]), (3, "dropped", "leave"));
        assert_eq!(opened(&frame(Frame::Dropped { number: 1 }), Way::Down), Err(SealError::Number));
        let datagram = |number| {
            let peer = manyways_proto::mux::Destination::Address([192, 0, 2, 1].into(), 53);
            let (flow, data) =
                (manyways_proto::mux::FlowId(1), Chunk(Bytes::from_static(b"question")));
            Message::Datagram { flow, number, label: 0, peer, data }
        };
        let both = sealed(&[datagram(1), datagram(2)]);
        let half = both.len() / 2;
        assert_eq!(opened(&both[half..], Way::Down).unwrap().len(), 1);
        let swapped = [&both[half..], &both[..half]].concat();
        assert_eq!(opened(&swapped, Way::Down), Err(SealError::Number));
    }
}
