//! The messages of one endpoint, record by record.

use manyways_unit::Time;

use crate::MAX_PEEK_LENGTH;
use crate::stream::Endpoint;
use crate::tls::hello;
use crate::tls::reader::{ALERT, APPLICATION_DATA, HANDSHAKE, RecordHeader, RecordPart};

/// Number of bytes that distinguish a hello from encrypted data: type and length of a handshake
/// message.
const PREFIX_LENGTH: usize = hello::HEADER;
const CLIENT_HELLO: u8 = 1;
const SERVER_HELLO: u8 = 2;
const NEW_SESSION_TICKET: u8 = 4;

#[derive(Clone, Debug)]
pub(super) struct Sender {
    endpoint: Endpoint,
    record: RecordHeader,
    /// The first bytes of the record's content.
    prefix: [u8; PREFIX_LENGTH],
    /// Number of valid bytes in `prefix`; `None` if no more are needed.
    prefix_length: Option<u8>,
    /// The hello that is being read.
    #[allow(clippy::box_collection, reason = "rarely present, and a pointer is small")]
    pub(super) message: Option<Box<Vec<u8>>>,
    /// Whether no record was read yet, so that the next one is the first.
    is_first: bool,
    /// Whether the direction had bytes of an unknown record.
    pub(super) has_unknown_record: bool,
    /// Whether the current record is application data.
    pub(super) is_data: bool,
    /// Time of the first byte of the first hello.
    pub(super) hello: Option<Time>,
    /// Whether another unencrypted handshake message was sent. For a client this is its key
    /// exchange, which exists only in full handshakes up to TLS 1.2.
    pub(super) has_more_messages: bool,
    /// Time of the ChangeCipherSpec.
    pub(super) cipher_changed: Option<Time>,
    /// Time of the first handshake record after the ChangeCipherSpec, before TLS 1.3.
    pub(super) finished: Option<Time>,
    /// Time of the first application data.
    pub(super) data: Option<Time>,
}

/// An event in the direction of one endpoint.
pub(super) enum SenderEvent<'a> {
    Record(RecordHeader),
    /// The first record cannot begin a session.
    NoHello,
    /// A record contains the beginning of a hello.
    Hello(RecordHeader),
    /// A hello from its beginning, as far as captured.
    Message(&'a [u8]),
    /// A record contains an unencrypted session ticket.
    Ticket(RecordHeader),
    /// A record contains an encrypted handshake message.
    Finished(RecordHeader),
    /// An unencrypted alert: level and description.
    Alert(RecordHeader, [u8; 2]),
    /// Application data: time and number of bytes.
    Data(Time, u64),
    /// Bytes of an unknown record: time and number.
    Stray(Time, u64),
}

impl Sender {
    pub(super) fn new(end: Endpoint, is_midway: bool) -> Self {
        Self {
            endpoint: end,
            record: RecordHeader::default(),
            prefix: [0; PREFIX_LENGTH],
            prefix_length: None,
            message: None,
            is_first: !is_midway,
            has_unknown_record: is_midway,
            is_data: false,
            hello: None,
            has_more_messages: false,
            cipher_changed: None,
            finished: None,
            data: None,
        }
    }

    /// Processes a part of the direction and calls `tell` for each event.
    pub(super) fn handle(
        &mut self,
        part: RecordPart<'_>,
        tell: &mut impl FnMut(&mut Self, SenderEvent<'_>),
    ) {
        match part {
            RecordPart::Record(record) => self.on_header(record, tell),
            RecordPart::Body { at, bytes, length } => self.on_body(at, bytes, length, tell),
            RecordPart::Stray { at, length } => {
                (self.is_first, self.has_unknown_record) = (false, true);
                self.finish(tell);
                tell(self, SenderEvent::Stray(at, length));
            }
        }
    }

    fn on_header(
        &mut self,
        record: RecordHeader,
        tell: &mut impl FnMut(&mut Self, SenderEvent<'_>),
    ) {
        // A message continues in the next record or ends (RFC 8446, 5.1).
        if record.kind != HANDSHAKE {
            self.finish(tell);
        }
        // The first record of a message may be shorter than the bytes that identify the message.
        let is_same = [self.record.kind, record.kind] == [HANDSHAKE; 2];
        let carried = self.prefix_length.filter(|have| is_same && *have > 0);
        let at = carried.map_or(record.start, |_| self.record.start);
        self.record = RecordHeader { start: at, ..record };
        self.is_data = false;
        self.prefix_length = self.message.is_none().then_some(carried.unwrap_or(0));
        let may_be_first = match self.endpoint {
            Endpoint::Client => record.kind == HANDSHAKE,
            Endpoint::Server => [ALERT, HANDSHAKE].contains(&record.kind),
        };
        if self.is_first && !may_be_first {
            self.is_first = false;
            tell(self, SenderEvent::NoHello);
        }
        tell(self, SenderEvent::Record(record));
    }

    fn on_body(
        &mut self,
        at: Time,
        bytes: &[u8],
        length: u64,
        tell: &mut impl FnMut(&mut Self, SenderEvent<'_>),
    ) {
        let is_cut = (bytes.len() as u64) < length;
        match self.record.kind {
            APPLICATION_DATA if self.is_data => tell(self, SenderEvent::Data(at, length)),
            ALERT if self.record.length == 2 => {
                let is_there = self.collect_prefix(bytes, 2).is_some();
                if is_there {
                    let [level, description, ..] = self.prefix;
                    tell(self, SenderEvent::Alert(self.record, [level, description]));
                }
            }
            HANDSHAKE => {
                let mut content = bytes;
                if let Some(rest) = self.collect_prefix(bytes, PREFIX_LENGTH) {
                    self.classify(tell);
                    content = rest;
                }
                if let Some(message) = &mut self.message {
                    message.extend_from_slice(content);
                    let whole = hello::message_length(message);
                    if is_cut || whole.is_some_and(|n| n > MAX_PEEK_LENGTH || n <= message.len()) {
                        self.finish(tell);
                    }
                }
            }
            _ => {}
        }
        if is_cut {
            self.on_truncated(tell);
        }
    }

    /// Collects the first `wanted` bytes of a record; returns the remaining bytes once, when these
    /// are complete.
    fn collect_prefix<'a>(&mut self, bytes: &'a [u8], wanted: usize) -> Option<&'a [u8]> {
        let have = usize::from(self.prefix_length?);
        let (mine, rest) = bytes.split_at(bytes.len().min(wanted - have));
        self.prefix.iter_mut().skip(have).zip(mine).for_each(|(place, byte)| *place = *byte);
        let have = have + mine.len();
        self.prefix_length = (have < wanted).then_some(have as u8);
        (have == wanted).then_some(rest)
    }

    /// Classifies a handshake record by its first bytes.
    fn classify(&mut self, tell: &mut impl FnMut(&mut Self, SenderEvent<'_>)) {
        let whole = hello::message_length(&self.prefix).unwrap_or(0);
        // After a ChangeCipherSpec there is a second hello, or an encrypted message, which looks
        // like a hello that fills its record in one of four billion cases.
        let fits = self.cipher_changed.is_none() || whole == usize::from(self.record.length);
        let is_hello = fits && self.prefix.first() == Some(&self.hello_kind());
        if is_hello {
            let is_wanted = self.hello.is_none() || self.endpoint == Endpoint::Server;
            self.message = is_wanted.then(|| Box::new(self.prefix.to_vec()));
            self.is_first = false;
            tell(self, SenderEvent::Hello(self.record));
        } else if self.is_first {
            self.is_first = false;
            tell(self, SenderEvent::NoHello);
        } else if self.cipher_changed.is_none() {
            self.has_more_messages = true;
            if self.prefix.first() == Some(&NEW_SESSION_TICKET) {
                tell(self, SenderEvent::Ticket(self.record));
            }
        } else {
            tell(self, SenderEvent::Finished(self.record));
        }
    }

    /// Handles a record whose further bytes were not captured.
    fn on_truncated(&mut self, tell: &mut impl FnMut(&mut Self, SenderEvent<'_>)) {
        let Some(have) = self.prefix_length.take() else { return };
        // At the beginning of a session, a handshake record is a hello.
        let known = self.prefix.get(..have.into()).unwrap_or_default();
        if self.is_first && self.record.kind == HANDSHAKE {
            self.is_first = false;
            let is_hello = known.first().is_none_or(|kind| *kind == self.hello_kind());
            let event =
                if is_hello { SenderEvent::Hello(self.record) } else { SenderEvent::NoHello };
            tell(self, event);
        }
    }

    fn hello_kind(&self) -> u8 {
        match self.endpoint {
            Endpoint::Client => CLIENT_HELLO,
            Endpoint::Server => SERVER_HELLO,
        }
    }

    /// Ends a hello, complete or not.
    pub(super) fn finish(&mut self, tell: &mut impl FnMut(&mut Self, SenderEvent<'_>)) {
        if let Some(message) = self.message.take() {
            tell(self, SenderEvent::Message(&message));
        }
    }
}
