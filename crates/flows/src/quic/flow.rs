//! One QUIC connection.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem;

use manyways_unit::{Span, Time};

use super::handshake::Handshake;
use super::requests::Requests;
use super::spin::Spin;
use manyways_unit::Samples;
use manyways_wire::Peek;
use manyways_wire::quic::header::{
    Kind, LongHeader, Packet, Packets, ShortHeader, VERSION_1, VERSION_2,
};
use manyways_wire::quic::{Initials, version};
use manyways_wire::stream::{Endpoint, Exchange};
use manyways_wire::tls::ClientHelloDetails;

/// Maximum number of datagrams that look like an unknown version, until a similar response of the
/// server.
const MAX_UNDECIDED: u32 = 16;
/// A client pads each datagram with an Initial packet to this length in bytes, and so does a server
/// if the packet is ACK-eliciting (RFC 9000, 14.1).
pub(crate) const MIN_INITIAL_DATAGRAM: usize = 1_200;

/// State of a QUIC connection, from its unprotected parts.
///
/// The caller determines the endpoint that initiated the connection. Stores the client's Initial
/// packets until the ClientHello is complete: at most [`manyways_wire::MAX_PEEK_LENGTH`] bytes.
#[derive(Default)]
pub struct Flow {
    is_quic: Option<bool>,
    /// Whether the connection has the headers of Google's QUIC before Q044, of which only the version
    /// is read.
    has_public_headers: bool,
    /// Datagrams without evidence for or against QUIC.
    undecided: u32,
    versions: [Option<u32>; 2],
    ids: Ids,
    long_headers: u64,
    was_negotiated: bool,
    was_retried: bool,
    has_early_data: bool,
    handshake: Handshake,
    hello: HelloState,
    spin: Option<Box<Spin>>,
    requests: Requests,
}

/// Connection IDs in long headers; each stored as a number, because they are only compared.
#[derive(Clone, Copy, Debug, Default)]
struct Ids {
    /// ID that the client chose for itself.
    client: Option<Id>,
    /// ID that the client chose for the server.
    first: Option<Id>,
    /// ID of the server in a Retry packet.
    retry: Option<Id>,
    /// ID that the server chose for itself.
    server: Option<Id>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Id {
    length: u8,
    hash: u64,
}

#[derive(Default)]
enum HelloState {
    #[default]
    Expected,
    Partial(Box<PartialHello>),
    /// Complete, or as far as captured.
    Read(Box<ClientHelloDetails>),
    /// Truncated, of an unknown version, or not in the capture.
    Missing,
}

/// An incomplete ClientHello.
#[derive(Default)]
struct PartialHello {
    initials: Initials,
    /// Set once server name and protocols are known: the key shares after them may be in another
    /// datagram.
    client_hello: Option<ClientHelloDetails>,
}

impl Flow {
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether a datagram begins with a header of a known version, or of one from before the standard.
    /// Other protocols match with negligible probability.
    pub fn is_start(captured: &[u8], length: usize) -> bool {
        match Packets::new(captured, length).next() {
            Some(Packet::Long(long)) if long.is_known() => long.fixed_bit,
            Some(Packet::Long(long)) => version::is_early(long.version),
            _ => version::in_public_header(captured).is_some(),
        }
    }

    /// Handles a datagram of `length` bytes, of which `captured` were captured. Returns an exchange
    /// that this datagram ends.
    pub fn handle(
        &mut self,
        now: Time,
        from: Endpoint,
        captured: &[u8],
        length: usize,
    ) -> Option<Exchange> {
        if self.is_quic == Some(false) || captured.is_empty() {
            return None;
        }
        if self.is_quic.is_none()
            && let Some(version) = version::in_public_header(captured)
        {
            (self.is_quic, self.has_public_headers) = (Some(true), true);
            self.versions[from as usize] = Some(version);
        }
        if self.has_public_headers {
            return None;
        }
        let length = length.max(captured.len());
        let (mut has_initial, mut inside) = (false, 0);
        let mut packets = Packets::new(captured, length).peekable();
        self.classify(packets.peek(), captured);
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
        if from == Endpoint::Client {
            self.read_hello(has_initial, captured, length);
        }
        // A response in less than half of the first response's time belongs to an earlier request.
        let one_way_delay = self.handshake.server_rtt().map_or(Span::ZERO, half);
        self.requests.handle(now, from, [length, inside], one_way_delay)
    }

    /// Ends the connection and returns the last exchange.
    pub fn end(&mut self) -> Option<Exchange> {
        self.give_up_hello();
        self.requests.end()
    }

    /// Whether the flow is QUIC. `None` while undecided, for example without a long header.
    pub fn is_quic(&self) -> Option<bool> {
        self.is_quic
    }

    /// Version in the first long header of this endpoint, except Version Negotiation. May be
    /// unknown.
    pub fn version(&self, end: Endpoint) -> Option<u32> {
        self.versions[end as usize]
    }

    /// The version, if its ClientHello cannot be decrypted.
    pub fn undecrypted_version(&self) -> Option<u32> {
        let version = self.version(Endpoint::Client).or(self.version(Endpoint::Server))?;
        let is_readable = version::is_decrypted(version) || self.client_hello().is_some();
        (self.is_quic == Some(true) && !is_readable).then_some(version)
    }

    /// Returns the ClientHello, once the server name and the protocols are known.
    pub fn client_hello(&self) -> Option<&ClientHelloDetails> {
        match &self.hello {
            HelloState::Read(offer) => Some(offer),
            HelloState::Partial(coming) => coming.client_hello.as_ref(),
            HelloState::Expected | HelloState::Missing => None,
        }
    }

    pub fn handshake(&self) -> &Handshake {
        &self.handshake
    }

    /// Whether the server sent Version Negotiation.
    pub fn was_negotiated(&self) -> bool {
        self.was_negotiated
    }

    /// Whether the server sent Retry.
    pub fn was_retried(&self) -> bool {
        self.was_retried
    }

    /// Whether the client sent 0-RTT data.
    pub fn has_early_data(&self) -> bool {
        self.has_early_data
    }

    /// Number of packets with long headers.
    pub fn long_headers(&self) -> u64 {
        self.long_headers
    }

    /// Length in bytes of the connection ID that this endpoint chose for itself; may be 0.
    pub fn id_length(&self, end: Endpoint) -> Option<u8> {
        let id = match end {
            Endpoint::Client => self.ids.client,
            Endpoint::Server => self.ids.server,
        };
        id.map(|id| id.length)
    }

    /// Returns the spin bit, if it behaves like one that both endpoints support.
    pub fn spin(&self) -> Option<&Spin> {
        self.spin.as_deref().filter(|spin| spin.is_plausible())
    }

    /// Response times, inferred from sizes and changes of direction, including the round trip to
    /// the server; see [`Exchange`] and [`MAX_ACK_ONLY_LEN`](super::MAX_ACK_ONLY_LEN) for errors.
    /// The first may be too short, because servers send some data unsolicited after the handshake.
    pub fn inferred_response_times(&self) -> &Samples {
        self.requests.response_times()
    }

    /// Whether this datagram of the client begins another connection between the same ports: an
    /// Initial packet to an unknown connection ID, after the handshake.
    pub fn is_new_connection(&self, captured: &[u8], length: usize) -> bool {
        let Some(Packet::Long(long)) = Packets::new(captured, length).next() else { return false };
        let id = Some(Id::of(long.destination_cid));
        let is_over = self.handshake.completed.is_some()
            || self.is_quic.is_none() && self.lacks_long_headers();
        is_over
            && length >= MIN_INITIAL_DATAGRAM
            && long.kind == Kind::Initial
            && ![self.ids.first, self.ids.retry, self.ids.server].contains(&id)
    }

    fn lacks_long_headers(&self) -> bool {
        self.long_headers == 0
    }

    /// Decides from a datagram's first packet whether the flow is QUIC.
    fn classify(&mut self, first: Option<&Packet<'_>>, captured: &[u8]) {
        /// Maximum length of a long header up to the end of its connection IDs.
        const IDS: usize = 1 + 4 + 1 + 20 + 1 + 20;
        if self.is_quic.is_some() {
            return;
        }
        self.is_quic = match first {
            Some(Packet::Long(long)) if long.is_known() => Some(long.fixed_bit),
            Some(Packet::Long(long)) if version::is_early(long.version) => Some(true),
            // RFC 9287 permits a clear fixed bit only after negotiation.
            Some(Packet::Short(short)) if !short.fixed_bit => Some(false),
            Some(Packet::Long(_)) if self.undecided >= MAX_UNDECIDED => Some(false),
            None if captured.len() >= IDS => Some(false),
            _ => None,
        };
        self.undecided = self.undecided.saturating_add(1);
    }

    fn handle_long(&mut self, now: Time, from: Endpoint, long: &LongHeader<'_>, length: usize) {
        self.long_headers += 1;
        let (destination, source) = (Id::of(long.destination_cid), Id::of(long.source_cid));
        if from == Endpoint::Server {
            // An unknown version or Version Negotiation, addressed to the client's ID.
            let is_answer = self.ids.client == Some(destination)
                && match long.kind {
                    Kind::VersionNegotiation => self.ids.first == Some(source),
                    _ => self.version(Endpoint::Client) == Some(long.version),
                };
            if is_answer && self.is_quic.is_none() {
                self.is_quic = Some(true);
            }
        }
        if long.kind == Kind::VersionNegotiation {
            if from == Endpoint::Server && self.is_quic == Some(true) {
                self.was_negotiated = true;
                self.restart();
                self.ids = Ids::default();
            }
            return;
        }
        self.versions[from as usize].get_or_insert(long.version);
        let ids = &mut self.ids;
        match from {
            Endpoint::Client => {
                ids.client.get_or_insert(source);
                ids.first.get_or_insert(destination);
            }
            Endpoint::Server if long.kind == Kind::Retry => {
                ids.retry = Some(source);
                self.was_retried = true;
                self.handshake.on_restart();
            }
            Endpoint::Server => {
                ids.server.get_or_insert(source);
            }
        }
        match (from, long.kind) {
            (Endpoint::Client, Kind::Initial) if self.is_for_known_server(destination) => {
                self.handshake.on_client_reply(now);
            }
            (Endpoint::Client, Kind::Initial) => self.handshake.on_client_initial(now),
            (Endpoint::Client, Kind::Handshake) => self.handshake.on_client_reply(now),
            (Endpoint::Client, Kind::ZeroRtt) => self.has_early_data = true,
            (Endpoint::Server, Kind::Initial) => {
                self.handshake.on_server_initial(now, length >= MIN_INITIAL_DATAGRAM)
            }
            _ => {}
        }
    }

    /// Whether a packet proves that the client has read the server's response: it is addressed to
    /// the ID that the server chose (RFC 9000, 7.2), unless that equals an earlier ID.
    fn is_for_known_server(&self, destination: Id) -> bool {
        let Ids { first, retry, server, .. } = self.ids;
        server == Some(destination) && first != server && retry != server
    }

    /// Handles a client that starts again with another version.
    fn restart(&mut self) {
        self.handshake.on_restart();
        if !matches!(self.hello, HelloState::Read(_)) {
            self.hello = HelloState::Expected;
        }
    }

    fn handle_short(&mut self, now: Time, from: Endpoint, short: ShortHeader) {
        if from == Endpoint::Client {
            self.handshake.on_short_header(now);
        }
        // Bits may have another meaning in other versions.
        if self
            .version(Endpoint::Server)
            .or(self.version(Endpoint::Client))
            .is_some_and(|it| !is_known(it))
        {
            return;
        }
        let handshake = &self.handshake;
        let trip = handshake.server_rtt().zip(handshake.client_rtt());
        let min = trip.map(|(sender_rtt, receiver_rtt)| half(sender_rtt + receiver_rtt));
        self.spin.get_or_insert_default().handle(now, from, short.spin_bit, min);
    }

    /// Reassembles the ClientHello.
    fn read_hello(&mut self, has_initial: bool, captured: &[u8], length: usize) {
        if self.handshake.completed.is_some() {
            self.give_up_hello();
        }
        // A truncated packet cannot be decrypted.
        if !has_initial || captured.len() < length {
            return;
        }
        if matches!(self.hello, HelloState::Expected) {
            self.hello = HelloState::Partial(Box::default());
        }
        let HelloState::Partial(coming) = &mut self.hello else { return };
        match coming.initials.datagram(captured) {
            Peek::Complete(_) => match coming.initials.hello_details() {
                Some(client_hello) if client_hello.is_complete => {
                    self.hello = HelloState::Read(Box::new(client_hello))
                }
                Some(client_hello) => coming.client_hello = Some(client_hello),
                None => self.hello = HelloState::Missing,
            },
            Peek::No => self.give_up_hello(),
            Peek::More(_) => {}
        }
    }

    /// Completes the ClientHello without its missing part.
    fn give_up_hello(&mut self) {
        self.hello = match mem::take(&mut self.hello) {
            HelloState::Partial(coming) => {
                coming.client_hello.map_or(HelloState::Missing, |client_hello| {
                    HelloState::Read(Box::new(client_hello))
                })
            }
            HelloState::Read(offer) => HelloState::Read(offer),
            HelloState::Expected | HelloState::Missing => HelloState::Missing,
        };
    }
}

impl std::fmt::Debug for Flow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Flow")
            .field("is_quic", &self.is_quic)
            .field("versions", &self.versions)
            .field("handshake", &self.handshake)
            .field("hello", &self.client_hello())
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
    version == VERSION_1
        || version == VERSION_2
        || manyways_wire::quic::header::DRAFT_VERSIONS.contains(&version)
}

fn half(span: Span) -> Span {
    Span::from_nanos(span.as_nanos() / 2)
}

#[cfg(test)]
mod tests;
