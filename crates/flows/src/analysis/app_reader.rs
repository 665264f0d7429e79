//! Readers of the application layer of a TCP connection.

use manyways_unit::Time;

use crate::flow::{Connection, Reassembler};
use manyways_wire::dns;
use manyways_wire::http::{Transaction, Transactions};
use manyways_wire::stream::{Endpoint, Exchange, ExchangeDetector, Piece};
use manyways_wire::tcp::{Flags, Segment};
use manyways_wire::{Peek, tls};

const DNS_PORT: u16 = 53;
/// TLS content types, from `change_cipher_spec` to `application_data`.
const RECORD_TYPES: std::ops::RangeInclusive<u8> = 20..=23;
/// Maximum length of a DNS message over TCP, with its length field.
const MAX_DNS_MESSAGE_LEN: usize = 2 + u16::MAX as usize;

/// An element that was read.
#[derive(Debug)]
pub(super) enum AppRecord {
    /// An HTTP/1 request and its response.
    Transaction(Box<Transaction>),
    /// An exchange inferred from changes of direction, and the protocol of the flow.
    Exchange(Exchange, &'static str),
    /// A DNS message.
    Message(Time, Endpoint, Vec<u8>),
}

/// The bytes of both directions in order, and their reader.
#[derive(Debug, Default)]
pub(super) struct AppReader {
    reassemblers: [Reassembler; 2],
    is_closed: [bool; 2],
    parser: AppParser,
}

#[derive(Debug, Default)]
pub(super) enum AppParser {
    /// No payload has passed.
    #[default]
    Waiting,
    Http(Box<Transactions>),
    Tls(Box<tls::Session>),
    Dns(Box<[Vec<u8>; 2]>),
    /// An unknown protocol.
    Other(Box<ExchangeDetector>),
}

impl AppReader {
    pub(super) fn into_parser(self) -> AppParser {
        self.parser
    }

    /// Handles a segment whose payload begins at `offset`. `port` is the server's.
    pub(super) fn handle_segment(
        &mut self,
        now: Time,
        from: Endpoint,
        (connection, port): (&Connection, u16),
        place: Option<u64>,
        segment: &Segment<'_>,
        mut each: impl FnMut(AppRecord),
    ) {
        if segment.flags.has(Flags::RST) {
            if let AppParser::Http(transactions) = &mut self.parser {
                transactions.on_reset();
            }
            self.parser.poll(&mut each);
            return;
        }
        let Self { reassemblers: orders, parser: reader, is_closed } = self;
        // Bytes that were acknowledged but did not pass precede the response to them.
        let other = from.other();
        if let Some(stream) = connection.stream(other)
            && orders[other as usize].next_offset().is_some_and(|next| next < stream.acked())
        {
            orders[other as usize].on_ack(now, stream.acked(), |piece| {
                reader.handle_piece(port, other, &piece, &mut each);
            });
        }
        let Some(stream) = connection.stream(from) else { return };
        if let Some(offset) = place {
            let reassembler = &mut orders[from as usize];
            if connection.syn_options(from).is_some() {
                reassembler.set_start(stream.data_start());
            }
            let piece = Piece { at: now, bytes: segment.payload, length: segment.length.into() };
            if from == Endpoint::Server {
                reader.on_received(connection);
            }
            reassembler
                .push(offset, piece, |piece| reader.handle_piece(port, from, &piece, &mut each));
        }
        if !is_closed[from as usize] && stream.fin().is_some() {
            let next = orders[from as usize].next_offset();
            is_closed[from as usize] = next.is_none_or(|next| Some(next) >= stream.fin());
            if let (true, AppParser::Http(transactions)) = (is_closed[from as usize], &mut *reader)
            {
                transactions.on_fin(from);
                reader.poll(&mut each);
            }
        }
    }

    /// Ends both directions.
    pub(super) fn finish(&mut self, port: u16, mut each: impl FnMut(AppRecord)) {
        let Self { reassemblers: orders, parser: reader, .. } = self;
        for end in [Endpoint::Client, Endpoint::Server] {
            orders[end as usize].finish(|piece| reader.handle_piece(port, end, &piece, &mut each));
        }
        match reader {
            AppParser::Http(transactions) => transactions.finish(),
            AppParser::Tls(session) => session.end(),
            AppParser::Other(turns) => turns.end(),
            AppParser::Waiting | AppParser::Dns(_) => {}
        }
        reader.poll(&mut each);
    }
}

impl AppParser {
    fn handle_piece(
        &mut self,
        port: u16,
        from: Endpoint,
        piece: &Piece<'_>,
        each: &mut impl FnMut(AppRecord),
    ) {
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
                split_messages(&mut messages[from as usize], piece, |message| {
                    each(AppRecord::Message(piece.at, from, message));
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
    /// received. Most segments of a server continue a response, and do not need this.
    fn on_received(&mut self, connection: &Connection) {
        let Some(client) = connection.stream(Endpoint::Client) else { return };
        let received_until = client.last_acked_time();
        let way = || connection.min_rtt_to(Endpoint::Server).unwrap_or_default();
        let handshake = || connection.handshake().server_rtt();
        match self {
            Self::Tls(session) if session.has_pending() => {
                session.set_server_view(received_until, way(), handshake());
            }
            Self::Other(turns) if turns.has_pending() => {
                turns.set_server_view(received_until, way(), handshake());
            }
            _ => {}
        }
    }

    /// Chooses the reader from the first bytes of a connection.
    fn of(port: u16, piece: &Piece<'_>) -> Self {
        match piece.bytes {
            _ if port == DNS_PORT => Self::Dns(Box::default()),
            [kind, rest @ ..]
                if RECORD_TYPES.contains(kind) && rest.first().is_none_or(|v| *v == 3) =>
            {
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

    fn poll(&mut self, each: &mut impl FnMut(AppRecord)) {
        match self {
            Self::Http(transactions) => {
                while let Some(transaction) = transactions.poll() {
                    each(AppRecord::Transaction(Box::new(transaction)));
                }
            }
            Self::Tls(session) => {
                session.poll().into_iter().for_each(|one| each(AppRecord::Exchange(one, "tls")));
            }
            Self::Other(turns) => {
                turns.poll().into_iter().for_each(|one| each(AppRecord::Exchange(one, "other")));
            }
            Self::Waiting | Self::Dns(_) => {}
        }
    }
}

/// Splits a stream into DNS messages. Stops at a gap, because the rest cannot be framed.
fn split_messages(held: &mut Vec<u8>, piece: &Piece<'_>, mut each: impl FnMut(Vec<u8>)) {
    held.extend(piece.bytes);
    while let Peek::Complete(message) = dns::tcp_message(held) {
        let message = message.to_vec();
        held.drain(..2 + message.len());
        each(message);
    }
    // A length field of zero stops the framing for good.
    if piece.length > piece.bytes.len() as u64 || held.len() > MAX_DNS_MESSAGE_LEN {
        *held = vec![0; 2];
    }
}
