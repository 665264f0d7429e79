//! What one end of a session sends, record by record.

use manyways_unit::Time;

use crate::LIMIT;
use crate::stream::End;
use crate::tls::hello;
use crate::tls::reader::{ALERT, APPLICATION_DATA, HANDSHAKE, Part, Record};

/// So many bytes of a message tell a hello from what is sealed: its type and its length.
const PEEKED: usize = hello::HEADER;
const CLIENT_HELLO: u8 = 1;
const SERVER_HELLO: u8 = 2;
const NEW_SESSION_TICKET: u8 = 4;

/// One end.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    end: End,
    record: Record,
    /// The first bytes of its content.
    peeked: [u8; PEEKED],
    /// How many of them are there; none when no more are awaited.
    peeks: Option<u8>,
    /// A hello as far as it is there, while it is read.
    #[allow(clippy::box_collection, reason = "there is one for a moment, and room for it always")]
    pub(super) message: Option<Box<Vec<u8>>>,
    /// No record was there yet, and the next one is the first of all.
    is_new: bool,
    /// It had bytes of which nobody knows in what record they were.
    pub(super) is_torn: bool,
    /// Its latest record is data of the application.
    pub(super) is_data: bool,
    /// The first byte of its first hello.
    pub(super) hello: Option<Time>,
    /// It sent another handshake message in the clear. Of a client this is its part of the keys,
    /// which only TLS up to 1.2 has, and only for a new session.
    pub(super) has_more: bool,
    /// When it changed to the new keys.
    pub(super) changed: Option<Time>,
    /// Its first handshake record after that, before TLS 1.3.
    pub(super) finished: Option<Time>,
    /// Its first data.
    pub(super) data: Option<Time>,
}

/// What is heard of an end.
pub(super) enum Heard<'a> {
    /// A record begins.
    Record(Record),
    /// The first record of all is none that a session begins with.
    NoHello,
    /// A record holds the beginning of a hello.
    Hello(Record),
    /// A hello from its beginning, as far as it was captured.
    Message(&'a [u8]),
    /// A record holds a session ticket in the clear.
    Ticket(Record),
    /// A record holds a handshake message under new keys.
    Finished(Record),
    /// An alert in the clear: level and description.
    Alert(Record, [u8; 2]),
    /// Bytes of the application.
    Data(Time, u64),
    /// Bytes of no known record.
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

    /// Takes what the reader told, and tells what it means.
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
        // A message goes on in the next record, or not at all (RFC 8446, 5.1).
        if record.kind != HANDSHAKE {
            self.finish(tell);
        }
        // A message may even begin with less than what tells what it is.
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

    /// The rest of the bytes once so many of a record's content are there, the first time.
    fn peek<'a>(&mut self, bytes: &'a [u8], wanted: usize) -> Option<&'a [u8]> {
        let have = usize::from(self.peeks?);
        let (mine, rest) = bytes.split_at(bytes.len().min(wanted - have));
        self.peeked.iter_mut().skip(have).zip(mine).for_each(|(place, byte)| *place = *byte);
        let have = have + mine.len();
        self.peeks = (have < wanted).then_some(have as u8);
        (have == wanted).then_some(rest)
    }

    /// The first bytes of a handshake record are there.
    fn judge(&mut self, tell: &mut impl FnMut(&mut Self, Heard<'_>)) {
        let whole = hello::whole(&self.peeked).unwrap_or(0);
        // Behind the change of keys there is a second hello, or something sealed, which looks like
        // a hello that fills its record in one of four billion cases.
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

    /// What comes next of a record was not captured.
    fn is_hidden(&mut self, tell: &mut impl FnMut(&mut Self, Heard<'_>)) {
        let Some(have) = self.peeks.take() else { return };
        // Where a session begins, a handshake record can be nothing else.
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

    /// There is no more of the hello.
    pub(super) fn finish(&mut self, tell: &mut impl FnMut(&mut Self, Heard<'_>)) {
        if let Some(message) = self.message.take() {
            tell(self, Heard::Message(&message));
        }
    }
}
