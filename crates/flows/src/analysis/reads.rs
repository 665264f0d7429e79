//! Readers of the application layer of a TCP connection.

use manyways_unit::Time;

use crate::flow::{Connection, Order};
use manyways_wire::dns;
use manyways_wire::http::{Transaction, Transactions};
use manyways_wire::stream::{End, Exchange, Piece, Turns};
use manyways_wire::tcp::{Flags, Segment};
use manyways_wire::{Peek, tls};

const DNS: u16 = 53;
/// TLS content types, from `change_cipher_spec` to `application_data`.
const RECORDS: std::ops::RangeInclusive<u8> = 20..=23;
/// Maximum length of a DNS message over TCP, with its length field.
const MESSAGE: usize = 2 + u16::MAX as usize;

/// An element that was read.
#[derive(Debug)]
pub(super) enum Read {
    /// An HTTP/1 request and its response.
    Transaction(Box<Transaction>),
    /// An exchange inferred from changes of direction, and the protocol of the flow.
    Exchange(Exchange, &'static str),
    /// A DNS message.
    Message(Time, End, Vec<u8>),
}

/// The bytes of both directions in order, and their reader.
#[derive(Debug, Default)]
pub(super) struct Reads {
    orders: [Order; 2],
    is_closed: [bool; 2],
    reader: Reader,
}

#[derive(Debug, Default)]
pub(super) enum Reader {
    /// No payload has passed.
    #[default]
    Waiting,
    Http(Box<Transactions>),
    Tls(Box<tls::Session>),
    Dns(Box<[Vec<u8>; 2]>),
    /// An unknown protocol.
    Other(Box<Turns>),
}

impl Reads {
    pub(super) fn into_reader(self) -> Reader {
        self.reader
    }

    /// Handles a segment whose payload begins at offset `place`. `port` is the server's.
    pub(super) fn segment(
        &mut self,
        now: Time,
        from: End,
        (connection, port): (&Connection, u16),
        place: Option<u64>,
        segment: &Segment<'_>,
        mut each: impl FnMut(Read),
    ) {
        if segment.flags.has(Flags::RST) {
            if let Reader::Http(transactions) = &mut self.reader {
                transactions.reset();
            }
            self.reader.poll(&mut each);
            return;
        }
        let Self { orders, reader, is_closed } = self;
        // Bytes that were acknowledged but did not pass precede the response to them.
        let other = from.other();
        if let Some(stream) = connection.stream(other)
            && orders[other as usize].next().is_some_and(|next| next < stream.acked())
        {
            orders[other as usize].acked(now, stream.acked(), |piece| {
                reader.takes(port, other, &piece, &mut each);
            });
        }
        let Some(stream) = connection.stream(from) else { return };
        if let Some(place) = place {
            let order = &mut orders[from as usize];
            if connection.hello(from).is_some() {
                order.begins(stream.begin());
            }
            let piece = Piece { at: now, bytes: segment.payload, length: segment.length.into() };
            if from == End::Server {
                reader.hears(connection);
            }
            order.pass(place, piece, |piece| reader.takes(port, from, &piece, &mut each));
        }
        if !is_closed[from as usize] && stream.fin().is_some() {
            let next = orders[from as usize].next();
            is_closed[from as usize] = next.is_none_or(|next| Some(next) >= stream.fin());
            if let (true, Reader::Http(transactions)) = (is_closed[from as usize], &mut *reader) {
                transactions.closed(from);
                reader.poll(&mut each);
            }
        }
    }

    /// Ends both directions.
    pub(super) fn finish(&mut self, port: u16, mut each: impl FnMut(Read)) {
        let Self { orders, reader, .. } = self;
        for end in [End::Client, End::Server] {
            orders[end as usize].end(|piece| reader.takes(port, end, &piece, &mut each));
        }
        match reader {
            Reader::Http(transactions) => transactions.finish(),
            Reader::Tls(session) => session.end(),
            Reader::Other(turns) => turns.end(),
            Reader::Waiting | Reader::Dns(_) => {}
        }
        reader.poll(&mut each);
    }
}

impl Reader {
    fn takes(&mut self, port: u16, from: End, piece: &Piece<'_>, each: &mut impl FnMut(Read)) {
        if let Self::Waiting = self {
            *self = Self::of(port, piece);
        }
        let is_other = match self {
            Self::Http(transactions) => {
                transactions.handle(from, piece);
                transactions.is_http() == Some(false)
            }
            Self::Tls(session) => {
                session.handle(from, piece);
                session.is_tls() == Some(false)
            }
            Self::Dns(messages) => {
                collect(&mut messages[from as usize], piece, |message| {
                    each(Read::Message(piece.at, from, message));
                });
                false
            }
            Self::Other(turns) => {
                turns.handle(piece.at, from, piece.length);
                false
            }
            Self::Waiting => false,
        };
        self.poll(each);
        if is_other {
            *self = Self::Other(Box::default());
        }
    }

    /// Informs the reader, when the server sends, of the client's bytes that the server has
    /// received.
    fn hears(&mut self, connection: &Connection) {
        let Some(client) = connection.stream(End::Client) else { return };
        let way = || connection.shortest_way(End::Server).unwrap_or_default();
        match self {
            Self::Tls(session) => session.hears(client.heard(), way()),
            Self::Other(turns) => turns.hears(client.heard(), way()),
            Self::Waiting | Self::Http(_) | Self::Dns(_) => {}
        }
    }

    /// Chooses the reader from the first bytes of a connection.
    fn of(port: u16, piece: &Piece<'_>) -> Self {
        match piece.bytes {
            _ if port == DNS => Self::Dns(Box::default()),
            [kind, rest @ ..] if RECORDS.contains(kind) && rest.first().is_none_or(|v| *v == 3) => {
                // A connection that does not begin with a ClientHello began before the capture.
                let is_hello = *kind == 22;
                let session =
                    if is_hello { tls::Session::default() } else { tls::Session::midway() };
                Self::Tls(Box::new(session))
            }
            [_, ..] => Self::Http(Box::default()),
            [] => Self::Other(Box::default()),
        }
    }

    fn poll(&mut self, each: &mut impl FnMut(Read)) {
        match self {
            Self::Http(transactions) => {
                while let Some(transaction) = transactions.poll() {
                    each(Read::Transaction(Box::new(transaction)));
                }
            }
            Self::Tls(session) => {
                session.poll().into_iter().for_each(|one| each(Read::Exchange(one, "tls")));
            }
            Self::Other(turns) => {
                turns.poll().into_iter().for_each(|one| each(Read::Exchange(one, "other")));
            }
            Self::Waiting | Self::Dns(_) => {}
        }
    }
}

/// Splits a stream into DNS messages. Stops at a gap, because the rest cannot be framed.
fn collect(held: &mut Vec<u8>, piece: &Piece<'_>, mut each: impl FnMut(Vec<u8>)) {
    held.extend(piece.bytes);
    while let Peek::Complete(message) = dns::framed(held) {
        let message = message.to_vec();
        held.drain(..2 + message.len());
        each(message);
    }
    // A length field of zero stops the framing for good.
    if piece.length > piece.bytes.len() as u64 || held.len() > MESSAGE {
        *held = vec![0; 2];
    }
}
