//! One QUIC connection as it passes, from its first datagram to its last.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem;

use manyways_unit::{Span, Time};

use super::handshake::Handshake;
use super::requests::Requests;
use super::spin::Spin;
use manyways_unit::Samples;
use manyways_wire::Peek;
use manyways_wire::quic::Initials;
use manyways_wire::quic::header::{Kind, Long, ONE, Packet, Packets, Short, TWO};
use manyways_wire::stream::{End, Exchange};
use manyways_wire::tls::Offer;

/// So many datagrams that look like a version nobody knows are waited through for an answer that
/// looks the same.
const UNDECIDED: u32 = 16;
/// A client fills each datagram with an Initial packet to this length, and a server each that is to
/// be acknowledged (RFC 9000, 14.1).
pub(crate) const FULL: usize = 1_200;

/// What passes between the two ends of a QUIC connection, as far as it is not secret.
///
/// It knows which end began from whoever feeds it. It holds a client's datagrams with Initial
/// packets, which it puts together, until the hello is there: at most [`manyways_wire::LIMIT`] bytes.
#[derive(Default)]
pub struct Flow {
    is_quic: Option<bool>,
    /// Datagrams that say nothing about that.
    undecided: u32,
    versions: [Option<u32>; 2],
    ids: Ids,
    long_headers: u64,
    was_negotiated: bool,
    was_retried: bool,
    has_early_data: bool,
    handshake: Handshake,
    hello: Hello,
    spin: Option<Box<Spin>>,
    requests: Requests,
}

/// The ids that the ends are addressed by in packets with long headers; kept as a number each, as
/// all that matters is whether two are the same.
#[derive(Clone, Copy, Debug, Default)]
struct Ids {
    /// What the client calls itself.
    client: Option<Id>,
    /// What the client calls the server until that says what it is called.
    first: Option<Id>,
    /// What a Retry says the server is called.
    retry: Option<Id>,
    /// What the server calls itself.
    server: Option<Id>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Id {
    length: u8,
    hash: u64,
}

#[derive(Default)]
enum Hello {
    #[default]
    Expected,
    Coming(Box<Coming>),
    /// All of it, or all that passed.
    Read(Box<Offer>),
    /// It was cut, is of another version, or did not pass.
    Missing,
}

/// A hello of which more may come.
#[derive(Default)]
struct Coming {
    initials: Initials,
    /// What is there once name and protocols are: the keys behind them may be in another datagram.
    offer: Option<Offer>,
}

impl Flow {
    /// Nothing passed yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether a datagram begins with a long header of a version that is known: that of other
    /// protocols it is by no chance worth to mention.
    pub fn begins_with(captured: &[u8], length: usize) -> bool {
        let first = Packets::of(captured, length).next();
        matches!(first, Some(Packet::Long(long)) if long.is_known() && long.is_fixed)
    }

    /// A datagram of that length passes, of which `captured` is there. What comes back is an
    /// exchange that is over with it.
    pub fn handle(
        &mut self,
        now: Time,
        from: End,
        captured: &[u8],
        length: usize,
    ) -> Option<Exchange> {
        if self.is_quic == Some(false) || captured.is_empty() {
            return None;
        }
        let length = length.max(captured.len());
        let (mut has_initial, mut inside) = (false, 0);
        let mut packets = Packets::of(captured, length).peekable();
        self.judge(packets.peek(), captured);
        if self.is_quic == Some(false) {
            return None;
        }
        for packet in packets {
            match packet {
                Packet::Long(long) => {
                    self.handle_long(now, from, &long, length);
                    has_initial |= long.kind == Kind::Initial;
                    if long.kind == Kind::ZeroRtt {
                        inside += long.length.unwrap_or(0);
                    }
                }
                Packet::Short(short) => {
                    self.handle_short(now, from, short);
                    inside += short.length;
                }
            }
        }
        if from == End::Client {
            self.read_hello(has_initial, captured, length);
        }
        // What is answered sooner than in half the time that the first answer took, is not.
        let trip = self.handshake.to_server().map_or(Span::ZERO, half);
        self.requests.handle(now, from, [length, inside], trip)
    }

    /// Nothing passes any more: the last exchange is over.
    pub fn end(&mut self) -> Option<Exchange> {
        self.give_up_hello();
        self.requests.end()
    }

    /// Whether it is QUIC; none while it may be or not, as without any long header.
    pub fn is_quic(&self) -> Option<bool> {
        self.is_quic
    }

    /// The version in the first packet with a long header of this end, but for a server's list of
    /// versions. It may be one that nobody knows.
    pub fn version(&self, end: End) -> Option<u32> {
        self.versions[end as usize]
    }

    /// What the client says first, as soon as the server's name and the protocols are known.
    pub fn hello(&self) -> Option<&Offer> {
        match &self.hello {
            Hello::Read(offer) => Some(offer),
            Hello::Coming(coming) => coming.offer.as_ref(),
            Hello::Expected | Hello::Missing => None,
        }
    }

    /// How it began.
    pub fn handshake(&self) -> &Handshake {
        &self.handshake
    }

    /// The server did not know the client's version, and listed those that it knows.
    pub fn was_negotiated(&self) -> bool {
        self.was_negotiated
    }

    /// The server sent the client back for a token.
    pub fn was_retried(&self) -> bool {
        self.was_retried
    }

    /// The client sent data with its hello (0-RTT).
    pub fn has_early_data(&self) -> bool {
        self.has_early_data
    }

    /// How many packets with long headers passed.
    pub fn long_headers(&self) -> u64 {
        self.long_headers
    }

    /// How long the id is that this end chose for itself; it may be none at all.
    pub fn id_length(&self, end: End) -> Option<u8> {
        let id = match end {
            End::Client => self.ids.client,
            End::Server => self.ids.server,
        };
        id.map(|id| id.length)
    }

    /// The spin bit, where it moves as one that both ends turn.
    pub fn spin(&self) -> Option<&Spin> {
        self.spin.as_deref().filter(|spin| spin.is_plausible())
    }

    /// How long the server took to respond, inferred from sizes and changes of direction; see
    /// [`Exchange`] and [`CONFIRMS`](super::CONFIRMS) for how that may be wrong. The trip to the
    /// server and back is in it. The first may be for what servers say unasked once a client is
    /// known, and is too short then.
    pub fn inferred_response_times(&self) -> &Samples {
        self.requests.times()
    }

    /// Whether this datagram of the client begins another connection between the same ports: one
    /// with an Initial packet for a server that is not known, when the handshake was over.
    pub fn is_another(&self, captured: &[u8], length: usize) -> bool {
        let Some(Packet::Long(long)) = Packets::of(captured, length).next() else { return false };
        let id = Some(Id::of(long.destination));
        let is_over = self.handshake.done.is_some() || self.is_quic.is_none() && self.saw_no_long();
        is_over
            && length >= FULL
            && long.kind == Kind::Initial
            && ![self.ids.first, self.ids.retry, self.ids.server].contains(&id)
    }

    fn saw_no_long(&self) -> bool {
        self.long_headers == 0
    }

    /// What a datagram's first packet says about what this is.
    fn judge(&mut self, first: Option<&Packet<'_>>, captured: &[u8]) {
        /// A long header up to its ids' end, with the longest ids.
        const IDS: usize = 1 + 4 + 1 + 20 + 1 + 20;
        if self.is_quic.is_some() {
            return;
        }
        self.is_quic = match first {
            Some(Packet::Long(long)) if long.is_known() => Some(long.is_fixed),
            // RFC 9287 allows it to those who have met.
            Some(Packet::Short(short)) if !short.is_fixed => Some(false),
            Some(Packet::Long(_)) if self.undecided >= UNDECIDED => Some(false),
            None if captured.len() >= IDS => Some(false),
            _ => None,
        };
        self.undecided = self.undecided.saturating_add(1);
    }

    fn handle_long(&mut self, now: Time, from: End, long: &Long<'_>, length: usize) {
        self.long_headers += 1;
        let (destination, source) = (Id::of(long.destination), Id::of(long.source));
        if from == End::Server {
            // A version that nobody knows, or a list of them, for what the client has called itself.
            let is_answer = self.ids.client == Some(destination)
                && match long.kind {
                    Kind::Negotiation => self.ids.first == Some(source),
                    _ => self.version(End::Client) == Some(long.version),
                };
            if is_answer && self.is_quic.is_none() {
                self.is_quic = Some(true);
            }
        }
        if long.kind == Kind::Negotiation {
            if from == End::Server && self.is_quic == Some(true) {
                self.was_negotiated = true;
                self.starts_again();
                self.ids = Ids::default();
            }
            return;
        }
        self.versions[from as usize].get_or_insert(long.version);
        let ids = &mut self.ids;
        match from {
            End::Client => {
                ids.client.get_or_insert(source);
                ids.first.get_or_insert(destination);
            }
            End::Server if long.kind == Kind::Retry => {
                ids.retry = Some(source);
                self.was_retried = true;
                self.handshake.restarts();
            }
            End::Server => {
                ids.server.get_or_insert(source);
            }
        }
        match (from, long.kind) {
            (End::Client, Kind::Initial) if self.is_for_known_server(destination) => {
                self.handshake.replies(now);
            }
            (End::Client, Kind::Initial) => self.handshake.asks(now),
            (End::Client, Kind::Handshake) => self.handshake.replies(now),
            (End::Client, Kind::ZeroRtt) => self.has_early_data = true,
            (End::Server, Kind::Initial) => self.handshake.answers(now, length >= FULL),
            _ => {}
        }
    }

    /// Only who has read the server's answer knows what the server calls itself (RFC 9000, 7.2),
    /// unless that is what it was called before.
    fn is_for_known_server(&self, destination: Id) -> bool {
        let Ids { first, retry, server, .. } = self.ids;
        server == Some(destination) && first != server && retry != server
    }

    /// The client begins anew with another version, hello and all.
    fn starts_again(&mut self) {
        self.handshake.restarts();
        if !matches!(self.hello, Hello::Read(_)) {
            self.hello = Hello::Expected;
        }
    }

    fn handle_short(&mut self, now: Time, from: End, short: Short) {
        if from == End::Client {
            self.handshake.is_done(now);
        }
        // Others may have something else there.
        if self.version(End::Server).or(self.version(End::Client)).is_some_and(|it| !is_known(it)) {
            return;
        }
        let handshake = &self.handshake;
        let trip = handshake.to_server().zip(handshake.to_client());
        let least = trip.map(|(far, near)| half(far + near));
        self.spin.get_or_insert_default().handle(now, from, short.spin, least);
    }

    /// Puts the client's hello together.
    fn read_hello(&mut self, has_initial: bool, captured: &[u8], length: usize) {
        if self.handshake.done.is_some() {
            self.give_up_hello();
        }
        // Nothing that was cut can be opened.
        if !has_initial || captured.len() < length {
            return;
        }
        if matches!(self.hello, Hello::Expected) {
            self.hello = Hello::Coming(Box::default());
        }
        let Hello::Coming(coming) = &mut self.hello else { return };
        match coming.initials.datagram(captured) {
            Peek::Complete(_) => match coming.initials.offer() {
                Some(offer) if offer.is_whole => self.hello = Hello::Read(Box::new(offer)),
                Some(offer) => coming.offer = Some(offer),
                None => self.hello = Hello::Missing,
            },
            Peek::No => self.give_up_hello(),
            Peek::More(_) => {}
        }
    }

    /// What is missing of the hello now does not come any more.
    fn give_up_hello(&mut self) {
        self.hello = match mem::take(&mut self.hello) {
            Hello::Coming(coming) => {
                coming.offer.map_or(Hello::Missing, |offer| Hello::Read(Box::new(offer)))
            }
            Hello::Read(offer) => Hello::Read(offer),
            Hello::Expected | Hello::Missing => Hello::Missing,
        };
    }
}

impl std::fmt::Debug for Flow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Flow")
            .field("is_quic", &self.is_quic)
            .field("versions", &self.versions)
            .field("handshake", &self.handshake)
            .field("hello", &self.hello())
            .finish_non_exhaustive()
    }
}

impl Id {
    fn of(id: &[u8]) -> Self {
        let mut hasher = DefaultHasher::new();
        id.hash(&mut hasher);
        Self { length: u8::try_from(id.len()).unwrap_or(u8::MAX), hash: hasher.finish() }
    }
}

fn is_known(version: u32) -> bool {
    version == ONE || version == TWO || manyways_wire::quic::header::DRAFTS.contains(&version)
}

fn half(span: Span) -> Span {
    Span::from_nanos(span.as_nanos() / 2)
}

#[cfg(test)]
mod tests;
