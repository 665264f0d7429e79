//! The messages of one endpoint, record by record.

use manyways_unit::Time;

use crate::LIMIT;
use crate::stream::End;
use crate::tls::hello;
use crate::tls::reader::{ALERT, APPLICATION_DATA, HANDSHAKE, Part, Record};

/// Number of bytes that distinguish a hello from encrypted data: type and length of a handshake
/// message.
const PEEKED: usize = hello::HEADER;
const CLIENT_HELLO: u8 = 1;
const SERVER_HELLO: u8 = 2;
const NEW_SESSION_TICKET: u8 = 4;

#[derive(Clone, Debug)]
pub(super) struct Sender {
    end: End,
    record: Record,
    /// The first bytes of the record's content.
    peeked: [u8; PEEKED],
    /// Number of valid bytes in `peeked`; `None` if no more are needed.
    peeks: Option<u8>,
    /// The hello that is being read.
    #[allow(clippy::box_collection, reason = "rarely present, and a pointer is small")]
    pub(super) message: Option<Box<Vec<u8>>>,
    /// Whether no record was read yet, so that the next one is the first.
    is_new: bool,
    /// Whether the direction had bytes of an unknown record.
    pub(super) is_torn: bool,
    /// Whether the current record is application data.
    pub(super) is_data: bool,
    /// Time of the first byte of the first hello.
    pub(super) hello: Option<Time>,
    /// Whether another unencrypted handshake message was sent. For a client this is its key
    /// exchange, which exists only in full handshakes up to TLS 1.2.
    pub(super) has_more: bool,
    /// Time of the ChangeCipherSpec.
    pub(super) changed: Option<Time>,
    /// Time of the first handshake record after the ChangeCipherSpec, before TLS 1.3.
    pub(super) finished: Option<Time>,
    /// Time of the first application data.
    pub(super) data: Option<Time>,
}

/// An event in the direction of one endpoint.
pub(super) enum Heard<'a> {
    Record(Record),
    /// The first record cannot begin a session.
    NoHello,
    /// A record contains the beginning of a hello.
    Hello(Record),
    /// A hello from its beginning, as far as captured.
    Message(&'a [u8]),
    /// A record contains an unencrypted session ticket.
    Ticket(Record),
    /// A record contains an encrypted handshake message.
    Finished(Record),
    /// An unencrypted alert: level and description.
    Alert(Record, [u8; 2]),
    /// Application data: time and number of bytes.
    Data(Time, u64),
    /// Bytes of an unknown record: time and number.
    Stray(Time, u64),
}

impl Sender {
    pub(super) fn new(end: End, is_midway: bool) -> Self {
        Self {
            end,
            record: Record::default(),
            peeked: [0; PEEKED],
            peeks: None,
            message: None,
            is_new: !is_midway,
            is_torn: is_midway,
            is_data: false,
            hello: None,
            has_more: false,
            changed: None,
            finished: None,
            data: None,
        }
    }

    /// Processes a part of the direction and calls `tell` for each event.
    pub(super) fn takes(&mut self, part: Part<'_>, tell: &mut impl FnMut(&mut Self, Heard<'_>)) {
        match part {
            Part::Record(record) => self.begins(record, tell),
            Part::Body { at, bytes, length } => self.goes_on(at, bytes, length, tell),
            Part::Stray { at, length } => {
                (self.is_new, self.is_torn) = (false, true);
                self.finish(tell);
                tell(self, Heard::Stray(at, length));
            }
        }
    }

    fn begins(&mut self, record: Record, tell: &mut impl FnMut(&mut Self, Heard<'_>)) {
        // A message continues in the next record or ends (RFC 8446, 5.1).
        if record.kind != HANDSHAKE {
            self.finish(tell);
        }
        // The first record of a message may be shorter than the bytes that identify the message.
        let is_same = [self.record.kind, record.kind] == [HANDSHAKE; 2];
        let carried = self.peeks.filter(|have| is_same && *have > 0);
        let at = carried.map_or(record.at, |_| self.record.at);
        self.record = Record { at, ..record };
        self.is_data = false;
        self.peeks = self.message.is_none().then_some(carried.unwrap_or(0));
        let may_be_first = match self.end {
            End::Client => record.kind == HANDSHAKE,
            End::Server => [ALERT, HANDSHAKE].contains(&record.kind),
        };
        if self.is_new && !may_be_first {
            self.is_new = false;
            tell(self, Heard::NoHello);
        }
        tell(self, Heard::Record(record));
    }

    fn goes_on(
        &mut self,
        at: Time,
        bytes: &[u8],
        length: u64,
        tell: &mut impl FnMut(&mut Self, Heard<'_>),
    ) {
        let is_cut = (bytes.len() as u64) < length;
        match self.record.kind {
            APPLICATION_DATA if self.is_data => tell(self, Heard::Data(at, length)),
            ALERT if self.record.length == 2 => {
                let is_there = self.peek(bytes, 2).is_some();
                if is_there {
                    let [level, description, ..] = self.peeked;
                    tell(self, Heard::Alert(self.record, [level, description]));
                }
            }
            HANDSHAKE => {
                let mut content = bytes;
                if let Some(rest) = self.peek(bytes, PEEKED) {
                    self.judge(tell);
                    content = rest;
                }
                if let Some(message) = &mut self.message {
                    message.extend_from_slice(content);
                    let whole = hello::whole(message);
                    if is_cut || whole.is_some_and(|n| n > LIMIT || n <= message.len()) {
                        self.finish(tell);
                    }
                }
            }
            _ => {}
        }
        if is_cut {
            self.is_hidden(tell);
        }
    }

    /// Collects the first `wanted` bytes of a record; returns the remaining bytes once, when these
    /// are complete.
    fn peek<'a>(&mut self, bytes: &'a [u8], wanted: usize) -> Option<&'a [u8]> {
        let have = usize::from(self.peeks?);
        let (mine, rest) = bytes.split_at(bytes.len().min(wanted - have));
        self.peeked.iter_mut().skip(have).zip(mine).for_each(|(place, byte)| *place = *byte);
        let have = have + mine.len();
        self.peeks = (have < wanted).then_some(have as u8);
        (have == wanted).then_some(rest)
    }

    /// Classifies a handshake record by its first bytes.
    fn judge(&mut self, tell: &mut impl FnMut(&mut Self, Heard<'_>)) {
        let whole = hello::whole(&self.peeked).unwrap_or(0);
        // After a ChangeCipherSpec there is a second hello, or an encrypted message, which looks
        // like a hello that fills its record in one of four billion cases.
        let fits = self.changed.is_none() || whole == usize::from(self.record.length);
        let is_hello = fits && self.peeked.first() == Some(&self.hello_kind());
        if is_hello {
            let is_wanted = self.hello.is_none() || self.end == End::Server;
            self.message = is_wanted.then(|| Box::new(self.peeked.to_vec()));
            self.is_new = false;
            tell(self, Heard::Hello(self.record));
        } else if self.is_new {
            self.is_new = false;
            tell(self, Heard::NoHello);
        } else if self.changed.is_none() {
            self.has_more = true;
            if self.peeked.first() == Some(&NEW_SESSION_TICKET) {
                tell(self, Heard::Ticket(self.record));
            }
        } else {
            tell(self, Heard::Finished(self.record));
        }
    }

    /// Handles a record whose further bytes were not captured.
    fn is_hidden(&mut self, tell: &mut impl FnMut(&mut Self, Heard<'_>)) {
        let Some(have) = self.peeks.take() else { return };
        // At the beginning of a session, a handshake record is a hello.
        let known = self.peeked.get(..have.into()).unwrap_or_default();
        if self.is_new && self.record.kind == HANDSHAKE {
            self.is_new = false;
            let is_hello = known.first().is_none_or(|kind| *kind == self.hello_kind());
            let heard = if is_hello { Heard::Hello(self.record) } else { Heard::NoHello };
            tell(self, heard);
        }
    }

    fn hello_kind(&self) -> u8 {
        match self.end {
            End::Client => CLIENT_HELLO,
            End::Server => SERVER_HELLO,
        }
    }

    /// Ends a hello, complete or not.
    pub(super) fn finish(&mut self, tell: &mut impl FnMut(&mut Self, Heard<'_>)) {
        if let Some(message) = self.message.take() {
            tell(self, Heard::Message(&message));
        }
    }
}
