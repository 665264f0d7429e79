//! Frames of a lent path, and their encoding.
//!
//! A frame is a type byte, its fields with 8 bytes each, and for data a length of 2 bytes and the
//! sealed message. Numbers are in network byte order.

use std::fmt;

use crate::mux::{MAX_MESSAGE, Message};

/// Maximum length of a sealed message in bytes: a message with the tag of the seal.
pub const MAX_SEALED: usize = MAX_MESSAGE + 16;

/// How a lender treats a message; each class has its own numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Class {
    /// Passed on in order and completely, unless the sender recalls it.
    Bulk,
    /// Passed on first, in order and completely.
    Control,
    /// Passed on before bulk frames, in order; dropped when it has waited too long.
    Datagram,
}

/// One frame; `P` is the type of a sealed message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frame<P> {
    /// A sealed message with its number in its class and direction, counted from 0.
    Sealed { class: Class, number: u64, sealed: P },
    /// In place of a bulk frame that its sender has recalled.
    Dropped { number: u64 },
    /// From the sender to the lender: these bulk frames are no longer needed.
    Recall { first: u64, last: u64 },
    /// From the lender to both ends: it stops to lend. They send nothing new over it.
    Leave,
}

/// Reason why bytes are not a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// A type that does not exist.
    #[error("a frame of unknown type {0}")]
    UnknownType(u8),
    /// A sealed message that no sender seals.
    #[error("a frame of {0} bytes")]
    Length(usize),
}

impl Class {
    pub const ALL: [Self; 3] = [Self::Bulk, Self::Control, Self::Datagram];

    /// Returns the class of a message. All that the peer counts is in one class, so that the count of
    /// an ACK is a number of this class.
    pub fn of<P>(message: &Message<P>) -> Self {
        match message {
            Message::Datagram { .. } | Message::Part { .. } => Self::Datagram,
            message if message.is_ack_eliciting() => Self::Bulk,
            _ => Self::Control,
        }
    }

    /// Returns the number that stands for the class in a frame and in a nonce.
    pub fn code(self) -> u8 {
        match self {
            Self::Bulk => 0,
            Self::Control => 1,
            Self::Datagram => 2,
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bulk => "bulk",
            Self::Control => "control",
            Self::Datagram => "datagram",
        })
    }
}

const DROPPED: u8 = 3;
const RECALL: u8 = 4;
const LEAVE: u8 = 5;

impl<P> Frame<P> {
    /// Appends the frame to `out` except its sealed message, which has this length and follows.
    pub fn encode_head(&self, length: usize, out: &mut Vec<u8>) {
        match self {
            Self::Sealed { class, number, .. } => {
                debug_assert!(length <= MAX_SEALED, "{length} bytes");
                out.push(class.code());
                out.extend(number.to_be_bytes());
                out.extend((length as u16).to_be_bytes());
            }
            Self::Dropped { number } => {
                out.push(DROPPED);
                out.extend(number.to_be_bytes());
            }
            Self::Recall { first, last } => {
                out.push(RECALL);
                out.extend(first.to_be_bytes());
                out.extend(last.to_be_bytes());
            }
            Self::Leave => out.push(LEAVE),
        }
    }

    /// Converts the sealed message.
    pub fn map<Q>(self, convert: impl FnOnce(P) -> Q) -> Frame<Q> {
        match self {
            Self::Sealed { class, number, sealed } => {
                Frame::Sealed { class, number, sealed: convert(sealed) }
            }
            Self::Dropped { number } => Frame::Dropped { number },
            Self::Recall { first, last } => Frame::Recall { first, last },
            Self::Leave => Frame::Leave,
        }
    }
}

impl<'a> Frame<&'a [u8]> {
    /// Decodes the frame at the start of `bytes` and returns it with its length, or `None` if more
    /// bytes are needed.
    ///
    /// # Errors
    /// If no valid frame has this start.
    pub fn decode(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, FrameError> {
        let Some((kind, rest)) = bytes.split_first() else { return Ok(None) };
        let class = Class::ALL.into_iter().find(|class| class.code() == *kind);
        match *kind {
            LEAVE => return Ok(Some((Frame::Leave, 1))),
            DROPPED | RECALL => {}
            _ if class.is_some() => {}
            _ => return Err(FrameError::UnknownType(*kind)),
        }
        let Some((first, rest)) = number(rest) else { return Ok(None) };
        if let Some(class) = class {
            let Some((length, rest)) = rest.split_first_chunk::<2>() else { return Ok(None) };
            let length = usize::from(u16::from_be_bytes(*length));
            if length > MAX_SEALED {
                return Err(FrameError::Length(length));
            }
            let Some((sealed, rest)) = rest.split_at_checked(length) else { return Ok(None) };
            let frame = Frame::Sealed { class, number: first, sealed };
            return Ok(Some((frame, bytes.len() - rest.len())));
        }
        if *kind == DROPPED {
            return Ok(Some((Frame::Dropped { number: first }, bytes.len() - rest.len())));
        }
        let Some((last, rest)) = number(rest) else { return Ok(None) };
        Ok(Some((Frame::Recall { first, last }, bytes.len() - rest.len())))
    }
}

fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<8>()?;
    Some((u64::from_be_bytes(*number), rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frames() -> impl Strategy<Value = Frame<Vec<u8>>> {
        let class = proptest::sample::select(Class::ALL.to_vec());
        let sealed = proptest::collection::vec(any::<u8>(), 0..200);
        prop_oneof![
            (class, any::<u64>(), sealed).prop_map(|(class, number, sealed)| Frame::Sealed {
                class,
                number,
                sealed
            }),
            any::<u64>().prop_map(|number| Frame::Dropped { number }),
            any::<(u64, u64)>().prop_map(|(first, last)| Frame::Recall { first, last }),
            Just(Frame::Leave),
        ]
    }

    fn encoded(frame: &Frame<Vec<u8>>) -> Vec<u8> {
        let mut bytes = Vec::new();
        let sealed = match frame {
            Frame::Sealed { sealed, .. } => &sealed[..],
            _ => &[],
        };
        frame.encode_head(sealed.len(), &mut bytes);
        bytes.extend(sealed);
        bytes
    }

    proptest! {
        #[test]
        fn written_frames_are_read_whatever_follows(frame in frames(), rest: Vec<u8>) {
            let mut bytes = encoded(&frame);
            let length = bytes.len();
            bytes.extend(rest);
            let (read, taken) = Frame::decode(&bytes).unwrap().unwrap();
            prop_assert_eq!((read.map(<[u8]>::to_vec), taken), (frame, length));
        }

        #[test]
        fn the_beginning_of_a_frame_asks_for_more(frame in frames()) {
            let bytes = encoded(&frame);
            for length in 0..bytes.len() {
                prop_assert_eq!(Frame::decode(&bytes[..length]), Ok(None));
            }
        }

        #[test]
        fn any_bytes_are_a_frame_or_an_error(bytes: Vec<u8>) {
            if let Ok(Some((_, taken))) = Frame::decode(&bytes) {
                prop_assert!(taken <= bytes.len());
            }
        }
    }

    #[test]
    fn unknown_types_and_lengths_are_errors_at_once() {
        assert_eq!(Frame::decode(&[6]), Err(FrameError::UnknownType(6)));
        let mut long = vec![0; 9];
        long.extend((MAX_SEALED as u16 + 1).to_be_bytes());
        assert_eq!(Frame::decode(&long), Err(FrameError::Length(MAX_SEALED + 1)));
    }
}
