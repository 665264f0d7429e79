//! Messages between client and gateway, and their encoding.
//!
//! A message is a type byte and its fields; types with payload end with a length and the payload.
//! Numbers are variable-length integers (RFC 9000 §16) unless specified otherwise. There is no
//! padding. A carrier delivers a sequence of complete messages in order. An invalid message is an
//! error of the carrier.

mod loan;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub use loan::{LoanMessage, Seed, TicketId};

use crate::sched::{PathId, PathSet, SchedulerKind, StreamPolicy};

/// Supported version of the protocol.
pub const VERSION: u8 = 2;
/// Maximum payload of a message in bytes.
pub const MAX_PAYLOAD: usize = 16 * 1024;
/// Maximum length of a message in bytes, including its header.
pub const MAX_MESSAGE: usize = MAX_PAYLOAD + 512;
/// Maximum number of parts of a datagram: the longest one of UDP, in QUIC packets of 1,200 bytes.
pub const MAX_PARTS: u8 = 64;
/// Maximum length of a DATA message without its payload.
pub const MAX_DATA_HEADER: usize = 1 + 8 + 8 + 2;
/// Maximum length of a host name (RFC 1035 §2.3.4) and of the text of a refusal.
const MAX_NAME: usize = 255;
const MAGIC: [u8; 4] = *b"mway";

/// Number of a stream within its session, in the order in which the client opens streams.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StreamId(pub u64);

/// Number of a datagram flow, which has the datagrams of one socket; assigned by the client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FlowId(pub u32);

/// Destination of a stream or datagram.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Destination {
    Address(IpAddr, u16),
    /// A host name that the gateway resolves.
    Name(String, u16),
}

/// A number that stands for a stream policy, and that policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Label {
    pub id: u8,
    /// Increases with each change of the policy; the highest version is valid.
    pub version: u64,
    pub stream_policy: StreamPolicy,
}

/// Reason of a stream reset.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ResetCode {
    /// Aborted by the application or the server.
    Aborted,
    /// The server refused the connection (RST).
    Refused,
    /// No route to the server.
    Unreachable,
    /// No response from the server in time.
    Timeout,
    /// The host name cannot be resolved.
    NameNotFound,
    /// The gateway does not permit this destination.
    Forbidden,
    Limit,
    /// The session has ended.
    SessionEnded,
}

/// Reason for which a gateway refuses a carrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RefuseCode {
    /// The gateway has another protocol version.
    Version,
    /// A limit of this key is reached.
    Limit,
    /// The gateway is shutting down.
    Closing,
    /// The carrier resumes a session that the gateway does not have, for example after a restart.
    UnknownSession,
    /// The ticket of a lender is not valid.
    Ticket,
}

/// First message of a client on a carrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    pub version: u8,
    pub session: [u8; 16],
    pub path: PathId,
    /// Whether the session had earlier carriers.
    pub resumes: bool,
    /// Initial receive credit of the session, in bytes.
    pub credit: u64,
    /// Initial receive credit of each stream, in bytes.
    pub stream_credit: u64,
}

/// First message of a gateway on a carrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Welcome {
    pub version: u8,
    /// Initial receive credit of the session, in bytes.
    pub credit: u64,
    /// Initial receive credit of each stream, in bytes.
    pub stream_credit: u64,
    /// Maximum number of open streams.
    pub streams: u64,
    /// Whether the gateway has IPv4 connectivity.
    pub v4: bool,
    /// Whether the gateway has IPv6 connectivity.
    pub v6: bool,
    /// Whether the gateway gives tickets for lenders.
    pub lends: bool,
    /// Random number of the session, from its begin at the gateway. A client that gets another one has
    /// another session, without its streams: a hello that was late began it.
    pub instance: u64,
}

/// A message; `P` is the type of its payload.
#[allow(missing_docs, reason = "the fields are those of the variant")]
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message<P> {
    Hello(Hello),
    /// The gateway accepts the carrier.
    Welcome(Welcome),
    /// The gateway refuses the carrier; the text is for the user.
    Refuse(RefuseCode, String),
    /// A new stream with its first bytes.
    Open {
        stream: StreamId,
        label: Label,
        destination: Destination,
        /// Whether the client expects [`Message::Opened`].
        confirm: bool,
        data: P,
    },
    /// The gateway has connected a stream to its destination.
    Opened {
        stream: StreamId,
    },
    /// Bytes of a stream from `offset`; with `fin` they are the last.
    Data {
        stream: StreamId,
        offset: u64,
        fin: bool,
        data: P,
    },
    /// Ends a stream in both directions; `end` bytes of it were sent.
    Reset {
        stream: StreamId,
        code: ResetCode,
        end: u64,
    },
    /// Maximum offset that a stream may send.
    StreamCredit {
        stream: StreamId,
        max_offset: u64,
    },
    /// Maximum total of bytes that all streams may send.
    Credit {
        max_total: u64,
    },
    /// Number of received messages on this carrier for which [`Message::is_ack_eliciting`] is true.
    Ack {
        count: u64,
    },
    /// [`Message::Ack`] of another carrier: that over a device of this join number.
    AckOf {
        join: u32,
        count: u64,
    },
    /// Number of datagrams and parts that have come over the device of this join number, which may
    /// drop some.
    DatagramsOf {
        join: u32,
        count: u64,
    },
    /// The device of the carrier may drop these messages, counted from 0 as in [`Message::Ack`].
    Recalled {
        first: u64,
        last: u64,
    },
    /// A message about a path over a lender.
    Loan(LoanMessage),
    /// The policy of a label.
    Relabel(Label),
    /// Changes the label of a stream unless it has a later revision. The label from `Open` is
    /// revision 0.
    Assign {
        stream: StreamId,
        label: u8,
        revision: u32,
    },
    /// A datagram to or from `peer`. `number` counts the datagrams of a flow and direction.
    Datagram {
        flow: FlowId,
        number: u32,
        label: u8,
        peer: Destination,
        data: P,
    },
    /// A part of a datagram that is too long for a carrier: `index` of `count`.
    Part {
        flow: FlowId,
        number: u32,
        index: u8,
        count: u8,
        label: u8,
        peer: Destination,
        data: P,
    },
    CloseFlow {
        flow: FlowId,
    },
    /// The sender's interface of this path is down; so are all carriers over it.
    PathDown {
        path: PathId,
    },
    /// Requests a [`Message::Pong`] with the same number.
    Ping {
        number: u32,
    },
    /// Response to [`Message::Ping`].
    Pong {
        number: u32,
    },
    /// The sender ends the session; its carriers will not be resumed.
    Bye,
}

/// Reason why bytes cannot be decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The first bytes are not of this protocol.
    #[error("the other end does not speak the protocol of manyways bond")]
    WrongProtocol,
    /// Unknown message type.
    #[error("a message of the unknown type {0:#04x}")]
    UnknownType(u8),
    /// A field has an invalid value.
    #[error("a message whose {0} is wrong")]
    InvalidField(&'static str),
    /// Longer than the maximum length.
    #[error("a message that is too long")]
    TooLong,
}

mod kind {
    pub const HELLO: u8 = b'm';
    pub const WELCOME: u8 = 0x01;
    pub const REFUSE: u8 = 0x02;
    pub const OPEN: u8 = 0x10;
    pub const DATA: u8 = 0x11;
    pub const DATA_FIN: u8 = 0x12;
    pub const RESET: u8 = 0x13;
    pub const STREAM_CREDIT: u8 = 0x14;
    pub const CREDIT: u8 = 0x15;
    pub const ACK: u8 = 0x16;
    pub const RELABEL: u8 = 0x17;
    pub const ASSIGN: u8 = 0x18;
    pub const PATH_DOWN: u8 = 0x19;
    pub const OPEN_CONFIRM: u8 = 0x1a;
    pub const OPENED: u8 = 0x1b;
    pub const ACK_OF: u8 = 0x1c;
    pub const RECALLED: u8 = 0x1d;
    pub const LOAN: u8 = 0x1e;
    pub const DATAGRAMS_OF: u8 = 0x1f;
    pub const DATAGRAM: u8 = 0x20;
    pub const PART: u8 = 0x21;
    pub const CLOSE_FLOW: u8 = 0x23;
    pub const PING: u8 = 0x30;
    pub const PONG: u8 = 0x31;
    pub const BYE: u8 = 0x32;
}

impl<P> Message<P> {
    /// Returns whether the receiver counts the message, and the sender keeps it until it is
    /// acknowledged.
    pub fn is_ack_eliciting(&self) -> bool {
        !matches!(
            self,
            Self::Hello(_)
                | Self::Welcome(_)
                | Self::Refuse(..)
                | Self::Ack { .. }
                | Self::AckOf { .. }
                | Self::DatagramsOf { .. }
                | Self::Recalled { .. }
                | Self::Loan(_)
                | Self::Datagram { .. }
                | Self::Part { .. }
                | Self::Ping { .. }
                | Self::Pong { .. }
                | Self::Bye
        )
    }

    /// Returns whether the message results from traffic of an application, which keeps a radio
    /// connected.
    pub fn is_traffic(&self) -> bool {
        !matches!(
            self,
            Self::Ping { .. }
                | Self::Pong { .. }
                | Self::Ack { .. }
                | Self::AckOf { .. }
                | Self::DatagramsOf { .. }
        )
    }

    /// Returns the data of the application.
    pub fn payload(&self) -> Option<&P> {
        match self {
            Self::Open { data, .. }
            | Self::Data { data, .. }
            | Self::Datagram { data, .. }
            | Self::Part { data, .. } => Some(data),
            _ => None,
        }
    }

    /// Appends the message to `out` except its payload, which has length `payload` and follows.
    pub fn encode_head(&self, payload: usize, out: &mut Vec<u8>) {
        match self {
            Self::Hello(hello) => {
                out.extend(MAGIC);
                out.extend([hello.version, hello.path.0, u8::from(hello.resumes)]);
                out.extend(hello.session);
                put_number(out, hello.credit);
                put_number(out, hello.stream_credit);
            }
            Self::Welcome(welcome) => {
                let flags =
                    u8::from(welcome.v4) | u8::from(welcome.v6) << 1 | u8::from(welcome.lends) << 2;
                out.extend([kind::WELCOME, welcome.version, flags]);
                put_number(out, welcome.credit);
                put_number(out, welcome.stream_credit);
                put_number(out, welcome.streams);
                out.extend(welcome.instance.to_be_bytes());
            }
            Self::Refuse(code, words) => {
                out.extend([kind::REFUSE, code.number()]);
                put_name(out, words);
            }
            Self::Open { stream, label, destination: target, confirm, .. } => {
                out.push(if *confirm { kind::OPEN_CONFIRM } else { kind::OPEN });
                put_number(out, stream.0);
                put_label(out, label);
                put_destination(out, target);
                put_length(out, payload);
            }
            Self::Opened { stream } => {
                out.push(kind::OPENED);
                put_number(out, stream.0);
            }
            Self::Data { stream, offset, fin, .. } => {
                out.push(if *fin { kind::DATA_FIN } else { kind::DATA });
                put_number(out, stream.0);
                put_number(out, *offset);
                put_length(out, payload);
            }
            Self::Reset { stream, code, end } => {
                out.extend([kind::RESET, code.number()]);
                put_number(out, stream.0);
                put_number(out, *end);
            }
            Self::StreamCredit { stream, max_offset: most } => {
                out.push(kind::STREAM_CREDIT);
                put_number(out, stream.0);
                put_number(out, *most);
            }
            Self::Credit { max_total: most } => {
                out.push(kind::CREDIT);
                put_number(out, *most);
            }
            Self::Ack { count } => {
                out.push(kind::ACK);
                put_number(out, *count);
            }
            Self::AckOf { join, count } => {
                out.push(kind::ACK_OF);
                put_number(out, (*join).into());
                put_number(out, *count);
            }
            Self::DatagramsOf { join, count } => {
                out.push(kind::DATAGRAMS_OF);
                put_number(out, (*join).into());
                put_number(out, *count);
            }
            Self::Loan(message) => {
                out.push(kind::LOAN);
                message.encode(out);
            }
            Self::Recalled { first, last } => {
                out.push(kind::RECALLED);
                put_number(out, *first);
                put_number(out, *last);
            }
            Self::Relabel(label) => {
                out.push(kind::RELABEL);
                put_label(out, label);
            }
            Self::Assign { stream, label, revision } => {
                out.extend([kind::ASSIGN, *label]);
                put_number(out, stream.0);
                put_number(out, (*revision).into());
            }
            Self::Datagram { flow, number: count, label, peer, .. } => {
                out.push(kind::DATAGRAM);
                put_datagram(out, *flow, *count, *label, peer);
                put_length(out, payload);
            }
            Self::Part { flow, number, index, count, label, peer, .. } => {
                out.extend([kind::PART, *index, *count]);
                put_datagram(out, *flow, *number, *label, peer);
                put_length(out, payload);
            }
            Self::PathDown { path } => out.extend([kind::PATH_DOWN, path.0]),
            Self::CloseFlow { flow } => {
                out.push(kind::CLOSE_FLOW);
                put_number(out, flow.0.into());
            }
            Self::Ping { number: count } => {
                out.push(kind::PING);
                put_number(out, (*count).into());
            }
            Self::Pong { number: count } => {
                out.push(kind::PONG);
                put_number(out, (*count).into());
            }
            Self::Bye => out.push(kind::BYE),
        }
    }
}

impl<T> Message<T> {
    /// Converts the payload with `hold`.
    pub fn map<P>(self, hold: impl FnOnce(T) -> P) -> Message<P> {
        match self {
            Self::Hello(hello) => Message::Hello(hello),
            Self::Welcome(welcome) => Message::Welcome(welcome),
            Self::Refuse(code, words) => Message::Refuse(code, words),
            Self::Open { stream, label, destination: target, confirm, data } => {
                Message::Open { stream, label, destination: target, confirm, data: hold(data) }
            }
            Self::Opened { stream } => Message::Opened { stream },
            Self::Data { stream, offset, fin, data } => {
                Message::Data { stream, offset, fin, data: hold(data) }
            }
            Self::Reset { stream, code, end } => Message::Reset { stream, code, end },
            Self::StreamCredit { stream, max_offset: most } => {
                Message::StreamCredit { stream, max_offset: most }
            }
            Self::Credit { max_total: most } => Message::Credit { max_total: most },
            Self::Ack { count } => Message::Ack { count },
            Self::AckOf { join, count } => Message::AckOf { join, count },
            Self::DatagramsOf { join, count } => Message::DatagramsOf { join, count },
            Self::Recalled { first, last } => Message::Recalled { first, last },
            Self::Loan(message) => Message::Loan(message),
            Self::Relabel(label) => Message::Relabel(label),
            Self::Assign { stream, label, revision } => Message::Assign { stream, label, revision },
            Self::Datagram { flow, number, label, peer, data } => {
                Message::Datagram { flow, number, label, peer, data: hold(data) }
            }
            Self::Part { flow, number, index, count, label, peer, data } => {
                Message::Part { flow, number, index, count, label, peer, data: hold(data) }
            }
            Self::CloseFlow { flow } => Message::CloseFlow { flow },
            Self::PathDown { path } => Message::PathDown { path },
            Self::Ping { number } => Message::Ping { number },
            Self::Pong { number } => Message::Pong { number },
            Self::Bye => Message::Bye,
        }
    }
}

impl<P: AsRef<[u8]>> Message<P> {
    /// Appends the complete message to `out`. The payload has at most [`MAX_PAYLOAD`] bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let payload = self.payload().map_or(&[][..], AsRef::as_ref);
        self.encode_head(payload.len(), out);
        out.extend_from_slice(payload);
    }
}

impl<'a> Message<&'a [u8]> {
    /// Decodes the message at the start of `bytes` and returns it with its length, or `None` if
    /// more bytes are needed.
    ///
    /// # Errors
    /// If no valid message has this start, regardless of the following bytes.
    pub fn decode(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, DecodeError> {
        let mut reader = Decoder { remaining: bytes, is_incomplete: false };
        match reader.message() {
            Ok(message) => Ok(Some((message, bytes.len() - reader.remaining.len()))),
            Err(_) if reader.is_incomplete && bytes.len() < MAX_MESSAGE => Ok(None),
            Err(_) if reader.is_incomplete => Err(DecodeError::TooLong),
            Err(error) => Err(error),
        }
    }
}

/// Reads fields. `is_incomplete` is set if an error only means that bytes are missing.
struct Decoder<'a> {
    remaining: &'a [u8],
    is_incomplete: bool,
}

impl<'a> Decoder<'a> {
    fn message(&mut self) -> Result<Message<&'a [u8]>, DecodeError> {
        Ok(match self.byte()? {
            kind::HELLO => Message::Hello(self.hello()?),
            kind::WELCOME => {
                let version = self.byte()?;
                if version != VERSION {
                    // As in `hello`.
                    self.remaining = &[];
                    return Ok(Message::Welcome(Welcome { version, ..Welcome::default() }));
                }
                let flags = self.byte()?;
                Message::Welcome(Welcome {
                    version,
                    credit: self.number()?,
                    stream_credit: self.number()?,
                    streams: self.number()?,
                    v4: flags & 1 != 0,
                    v6: flags & 2 != 0,
                    lends: flags & 4 != 0,
                    instance: u64::from_be_bytes(self.array()?),
                })
            }
            kind::REFUSE => Message::Refuse(RefuseCode::from_number(self.byte()?)?, self.name()?),
            which @ (kind::OPEN | kind::OPEN_CONFIRM) => {
                let stream = StreamId(self.number()?);
                let label = self.label()?;
                let target = self.destination()?;
                let confirm = which == kind::OPEN_CONFIRM;
                let data = self.payload()?;
                Message::Open { stream, label, destination: target, confirm, data }
            }
            kind::OPENED => Message::Opened { stream: StreamId(self.number()?) },
            which @ (kind::DATA | kind::DATA_FIN) => {
                let stream = StreamId(self.number()?);
                let offset = self.number()?;
                let data = self.payload()?;
                Message::Data { stream, offset, fin: which == kind::DATA_FIN, data }
            }
            kind::RESET => {
                let code = ResetCode::from_number(self.byte()?)?;
                Message::Reset { stream: StreamId(self.number()?), code, end: self.number()? }
            }
            kind::STREAM_CREDIT => Message::StreamCredit {
                stream: StreamId(self.number()?),
                max_offset: self.number()?,
            },
            kind::CREDIT => Message::Credit { max_total: self.number()? },
            kind::ACK => Message::Ack { count: self.number()? },
            kind::ACK_OF => Message::AckOf { join: self.number32()?, count: self.number()? },
            kind::DATAGRAMS_OF => {
                Message::DatagramsOf { join: self.number32()?, count: self.number()? }
            }
            kind::LOAN => Message::Loan(self.loan()?),
            kind::RECALLED => Message::Recalled { first: self.number()?, last: self.number()? },
            kind::RELABEL => Message::Relabel(self.label()?),
            kind::ASSIGN => {
                let label = self.byte()?;
                let stream = StreamId(self.number()?);
                Message::Assign { stream, label, revision: self.number32()? }
            }
            kind::DATAGRAM => {
                let (flow, number, label, peer) = self.datagram()?;
                Message::Datagram { flow, number, label, peer, data: self.payload()? }
            }
            kind::PART => {
                let (index, count) = (self.byte()?, self.byte()?);
                if !(2..=MAX_PARTS).contains(&count) || index >= count {
                    return Err(DecodeError::InvalidField("part"));
                }
                let (flow, number, label, peer) = self.datagram()?;
                let data = self.payload()?;
                Message::Part { flow, number, index, count, label, peer, data }
            }
            kind::PATH_DOWN => match self.byte()? {
                path if path < PathId::LIMIT => Message::PathDown { path: PathId(path) },
                _ => return Err(DecodeError::InvalidField("path")),
            },
            kind::CLOSE_FLOW => Message::CloseFlow { flow: FlowId(self.number32()?) },
            kind::PING => Message::Ping { number: self.number32()? },
            kind::PONG => Message::Pong { number: self.number32()? },
            kind::BYE => Message::Bye,
            other => return Err(DecodeError::UnknownType(other)),
        })
    }

    fn hello(&mut self) -> Result<Hello, DecodeError> {
        for expected in &MAGIC[1..] {
            if self.byte()? != *expected {
                return Err(DecodeError::WrongProtocol);
            }
        }
        let version = self.byte()?;
        if version != VERSION {
            // The fields of other versions are unknown; the version is enough for a refusal.
            self.remaining = &[];
            let (session, path) = ([0; 16], PathId(0));
            return Ok(Hello {
                version,
                session,
                path,
                resumes: false,
                credit: 0,
                stream_credit: 0,
            });
        }
        let (path, resumes) = (self.byte()?, self.byte()?);
        if path >= PathId::LIMIT {
            return Err(DecodeError::InvalidField("path"));
        }
        Ok(Hello {
            version,
            path: PathId(path),
            resumes: resumes != 0,
            session: self.array()?,
            credit: self.number()?,
            stream_credit: self.number()?,
        })
    }

    fn datagram(&mut self) -> Result<(FlowId, u32, u8, Destination), DecodeError> {
        Ok((FlowId(self.number32()?), self.number32()?, self.byte()?, self.destination()?))
    }

    fn label(&mut self) -> Result<Label, DecodeError> {
        let (id, scheduler, primary, priority) =
            (self.byte()?, self.byte()?, self.byte()?, self.byte()?);
        let scheduler = *SchedulerKind::ALL
            .get(usize::from(scheduler))
            .ok_or(DecodeError::InvalidField("scheduler"))?;
        let primary = match primary {
            u8::MAX => None,
            path if path < PathId::LIMIT => Some(PathId(path)),
            _ => return Err(DecodeError::InvalidField("primary path")),
        };
        let paths = PathSet::from_bits(self.number32()?);
        let version = self.number()?;
        Ok(Label {
            id,
            version,
            stream_policy: StreamPolicy { scheduler, paths, primary, priority },
        })
    }

    fn destination(&mut self) -> Result<Destination, DecodeError> {
        let host = self.byte()?;
        let port = u16::from_be_bytes(self.array()?);
        Ok(match host {
            4 => Destination::Address(Ipv4Addr::from(self.array::<4>()?).into(), port),
            6 => Destination::Address(Ipv6Addr::from(self.array::<16>()?).into(), port),
            0 => Destination::Name(self.name()?, port),
            _ => return Err(DecodeError::InvalidField("kind of address")),
        })
    }

    fn name(&mut self) -> Result<String, DecodeError> {
        let length = usize::from(self.byte()?);
        let bytes = self.take(length)?;
        let text = std::str::from_utf8(bytes).map_err(|_| DecodeError::InvalidField("text"))?;
        // The text is displayed, and control characters could manipulate a terminal.
        if text.chars().any(char::is_control) {
            return Err(DecodeError::InvalidField("text"));
        }
        Ok(text.to_owned())
    }

    fn payload(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = usize::from(u16::from_be_bytes(self.array()?));
        if length > MAX_PAYLOAD {
            return Err(DecodeError::TooLong);
        }
        self.take(length)
    }

    fn number(&mut self) -> Result<u64, DecodeError> {
        let first = self.byte()?;
        let more = (1usize << (first >> 6)) - 1;
        let rest = self.take(more)?;
        let low = u64::from(first & 0x3f);
        Ok(rest.iter().fold(low, |value, byte| value << 8 | u64::from(*byte)))
    }

    fn number32(&mut self) -> Result<u32, DecodeError> {
        u32::try_from(self.number()?).map_err(|_| DecodeError::InvalidField("number"))
    }

    fn byte(&mut self) -> Result<u8, DecodeError> {
        Ok(self.array::<1>()?[0])
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let bytes = self.take(N)?;
        bytes.try_into().map_err(|_| DecodeError::TooLong)
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let Some((taken, rest)) = self.remaining.split_at_checked(count) else {
            self.is_incomplete = true;
            return Err(DecodeError::TooLong);
        };
        self.remaining = rest;
        Ok(taken)
    }
}

/// Appends a number of up to 62 bits; larger values are clamped.
fn put_number(out: &mut Vec<u8>, value: u64) {
    match value {
        0..0x40 => out.push(value as u8),
        0x40..0x4000 => out.extend((value as u16 | 0x4000).to_be_bytes()),
        0x4000..0x4000_0000 => out.extend((value as u32 | 0x8000_0000).to_be_bytes()),
        _ => out.extend((value.min((1 << 62) - 1) | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

fn put_length(out: &mut Vec<u8>, bytes: usize) {
    debug_assert!(bytes <= MAX_PAYLOAD, "{bytes} bytes in a message");
    out.extend((bytes as u16).to_be_bytes());
}

fn put_name(out: &mut Vec<u8>, text: &str) {
    let mut end = text.len().min(MAX_NAME);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    out.push(end as u8);
    out.extend_from_slice(&text.as_bytes()[..end]);
}

fn put_label(out: &mut Vec<u8>, label: &Label) {
    let StreamPolicy { scheduler, paths, primary, priority } = label.stream_policy;
    let scheduler =
        SchedulerKind::ALL.iter().position(|kind| *kind == scheduler).unwrap_or_default();
    let primary = primary.map_or(u8::MAX, |path| path.0);
    out.extend([label.id, scheduler as u8, primary, priority]);
    put_number(out, paths.bits().into());
    put_number(out, label.version);
}

fn put_destination(out: &mut Vec<u8>, target: &Destination) {
    match target {
        Destination::Address(IpAddr::V4(address), port) => {
            out.push(4);
            out.extend(port.to_be_bytes());
            out.extend(address.octets());
        }
        Destination::Address(IpAddr::V6(address), port) => {
            out.push(6);
            out.extend(port.to_be_bytes());
            out.extend(address.octets());
        }
        Destination::Name(host, port) => {
            out.push(0);
            out.extend(port.to_be_bytes());
            put_name(out, host);
        }
    }
}

fn put_datagram(out: &mut Vec<u8>, flow: FlowId, count: u32, label: u8, peer: &Destination) {
    put_number(out, flow.0.into());
    put_number(out, count.into());
    out.push(label);
    put_destination(out, peer);
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(IpAddr::V6(address), port) => write!(f, "[{address}]:{port}"),
            Self::Address(address, port) => write!(f, "{address}:{port}"),
            Self::Name(name, port) => write!(f, "{name}:{port}"),
        }
    }
}

impl fmt::Display for ResetCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Aborted => "connection aborted",
            Self::Refused => "connection refused",
            Self::Unreachable => "no route to the server",
            Self::Timeout => "no answer in time",
            Self::NameNotFound => "name not resolved",
            Self::Forbidden => "destination not permitted",
            Self::Limit => "too many connections of this client",
            Self::SessionEnded => "session ended",
        })
    }
}

impl ResetCode {
    const ALL: [Self; 8] = [
        Self::Aborted,
        Self::Refused,
        Self::Unreachable,
        Self::Timeout,
        Self::NameNotFound,
        Self::Forbidden,
        Self::Limit,
        Self::SessionEnded,
    ];

    fn number(self) -> u8 {
        Self::ALL.iter().position(|code| *code == self).unwrap_or_default() as u8
    }

    fn from_number(number: u8) -> Result<Self, DecodeError> {
        Self::ALL.get(usize::from(number)).copied().ok_or(DecodeError::InvalidField("reset code"))
    }
}

impl RefuseCode {
    const ALL: [Self; 5] =
        [Self::Version, Self::Limit, Self::Closing, Self::UnknownSession, Self::Ticket];

    fn number(self) -> u8 {
        Self::ALL.iter().position(|code| *code == self).unwrap_or_default() as u8
    }

    fn from_number(number: u8) -> Result<Self, DecodeError> {
        Self::ALL.get(usize::from(number)).copied().ok_or(DecodeError::InvalidField("refusal"))
    }
}
