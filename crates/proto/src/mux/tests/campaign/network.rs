//! Emulated paths, and the connections over them.

use manyways_unit::{Random, Span, Time};

use super::scenario::{End, PathPlan};
use crate::bond::dial::CarrierTransport;
use crate::mux::tests::lane::{Lane, Link, half};
use crate::mux::tests::simulation::{CLIENT, GATEWAY, Piece};
use crate::mux::{CarrierId, Message, TransportInfo};
use crate::sched::PathId;

/// Time without an exchange after which a QUIC connection ends.
pub const QUIC_IDLE_TIMEOUT: Span = Span::from_secs(60);
/// Times after which a client and a gateway close a TCP connection that is interrupted: keepalives
/// and retransmissions without response. Shorter than in practice, to save steps.
pub const TCP_TIMEOUTS: [Span; 2] = [Span::from_secs(120), Span::from_secs(180)];
/// Time without an exchange after which the client's kernel sends a TCP keepalive. Shorter than in
/// practice.
const TCP_KEEPALIVE: Span = Span::from_secs(60);
/// Maximum length of a QUIC datagram.
const MAX_DATAGRAM: usize = 1_200;

#[derive(Debug)]
pub struct Path {
    pub link: Link,
    pub datagrams: [f64; 3],
    /// Whether the client's interface works.
    pub has_link: bool,
    pub is_silent: bool,
    /// Transports over which new connections are dropped.
    pub blocked: Vec<CarrierTransport>,
}

/// Content of a connection.
#[derive(Clone, Debug)]
pub enum Item {
    /// The client connects.
    Connect,
    /// The gateway accepts, and has proved its key.
    Accept,
    Message(Message<Piece>),
    /// A keepalive of TCP.
    Probe,
    /// The sender has closed the connection, or does not know it.
    Close,
}

/// State of a connection at one endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Before the welcome.
    Handshake,
    /// A carrier of the session with this number.
    Carrier(u64, CarrierId),
    Closed,
}

/// A connection between client and gateway.
#[derive(Debug)]
pub struct Connection {
    pub path: PathId,
    pub transport: CarrierTransport,
    pub sides: [Side; 2],
    /// Run of the gateway that has accepted the connection.
    pub run: Option<u64>,
    /// Whether nothing gets through any longer, for example because a NAT has lost its mapping.
    pub is_lost: bool,
    /// Time since which nothing gets through.
    pub interrupted_since: Option<Time>,
    /// Time of the last exchange.
    active_at: Time,
    /// To the gateway, to the client.
    lanes: [Lane<Item>; 2],
    /// Datagrams of QUIC in flight, with their arrivals.
    datagrams: [Vec<(Time, Message<Piece>)>; 2],
    random: Random,
}

impl Path {
    pub fn new(plan: &PathPlan) -> Self {
        Self {
            link: plan.link,
            datagrams: plan.datagrams,
            has_link: true,
            is_silent: false,
            blocked: Vec::new(),
        }
    }

    pub fn works(&self) -> bool {
        self.has_link && !self.is_silent
    }
}

impl Connection {
    pub fn new(now: Time, path: PathId, transport: CarrierTransport, random: Random) -> Self {
        Self {
            path,
            transport,
            sides: [Side::Handshake; 2],
            run: None,
            is_lost: false,
            interrupted_since: None,
            active_at: now,
            lanes: Default::default(),
            datagrams: Default::default(),
            random,
        }
    }

    fn is_quic(&self) -> bool {
        self.transport == CarrierTransport::Quic
    }

    pub fn is_interrupted(&self) -> bool {
        self.interrupted_since.is_some()
    }

    /// An endpoint sends an item.
    pub fn submit(&mut self, now: Time, path: &Path, from: End, item: Item) {
        let size = match &item {
            Item::Message(message) => {
                let payload = message.payload().map_or(0, |piece| piece.len);
                let mut head = Vec::with_capacity(64);
                message.encode_head(payload, &mut head);
                head.len() + payload
            }
            _ => 40,
        };
        if !self.is_interrupted() {
            self.active_at = now;
        }
        match item {
            Item::Message(message @ (Message::Datagram { .. } | Message::Part { .. }))
                if self.is_quic() =>
            {
                self.submit_datagram(now, path, from, message);
            }
            item => self.lanes[from].submit(now, &path.link, size, item),
        }
    }

    fn submit_datagram(&mut self, now: Time, path: &Path, from: End, message: Message<Piece>) {
        let [lost, doubled, delayed] = path.datagrams;
        let copies = 1 + u64::from(self.random.chance(doubled));
        for _ in 0..copies {
            if self.random.chance(lost) {
                continue;
            }
            let extra = match self.random.chance(delayed) {
                true => Span::from_millis(self.random.up_to(100)),
                false => Span::ZERO,
            };
            self.datagrams[from].push((now + half(path.link.rtt) + extra, message.clone()));
        }
    }

    /// Returns an item that has arrived from an endpoint.
    pub fn take_arrived(&mut self, now: Time, from: End) -> Option<Item> {
        if self.is_interrupted() {
            self.datagrams[from].retain(|(at, _)| *at > now);
            return None;
        }
        let datagrams = &mut self.datagrams[from];
        let item = match datagrams.iter().position(|(at, _)| *at <= now) {
            Some(at) => Item::Message(datagrams.swap_remove(at).1),
            None => self.lanes[from].take_arrived(now)?.1,
        };
        self.active_at = now;
        Some(item)
    }

    /// Removes all items of an endpoint, and returns the share of them that still arrives, in
    /// 1/256.
    pub fn cut(&mut self, from: End, share: u8) -> Vec<Item> {
        let lane = &mut self.lanes[from];
        let arriving = lane.len() * usize::from(share) / 256;
        let arriving = (0..arriving).filter_map(|_| lane.take_next()).map(|(_, item)| item);
        let arriving = arriving.collect();
        lane.clear();
        arriving
    }

    /// Updates whether anything gets through.
    pub fn set_interrupted(&mut self, now: Time, link: &Link, interrupted: bool) {
        match (self.interrupted_since, interrupted) {
            (None, true) => self.interrupted_since = Some(now),
            (Some(_), false) => {
                self.interrupted_since = None;
                self.active_at = now;
                self.lanes.iter_mut().for_each(|lane| lane.resend(now, link));
            }
            _ => {}
        }
    }

    /// Returns when an endpoint closes the connection if nothing is exchanged before.
    pub fn deadline(&self, end: End) -> Option<Time> {
        match (end, self.sides[end]) {
            // The dialer abandons an attempt.
            (CLIENT, Side::Handshake) | (_, Side::Closed) => return None,
            _ => {}
        }
        match self.transport {
            CarrierTransport::Quic => Some(self.active_at + QUIC_IDLE_TIMEOUT),
            CarrierTransport::Tcp => Some(self.interrupted_since? + TCP_TIMEOUTS[end]),
        }
    }

    /// Returns when the client sends a keepalive.
    pub fn keepalive_at(&self) -> Option<Time> {
        let probes = !self.is_quic() && !self.is_interrupted();
        let is_carrier = matches!(self.sides[CLIENT], Side::Carrier(..));
        (probes && is_carrier).then(|| self.active_at + TCP_KEEPALIVE)
    }

    pub fn next_event(&self, now: Time) -> Option<Time> {
        let deadlines = [CLIENT, GATEWAY].into_iter().filter_map(|end| self.deadline(end));
        let datagrams = self.datagrams.iter().flatten().map(|(at, _)| *at);
        let lanes = self.lanes.iter().filter(|_| !self.is_interrupted());
        let lanes = lanes.flat_map(|lane| lane.next_events(now)).flatten();
        deadlines.chain(self.keepalive_at()).chain(datagrams).chain(lanes).min()
    }

    /// Returns the inputs for the mux of an endpoint: state of the transport, and free bytes.
    pub fn report(&self, now: Time, path: &Path, end: End) -> (TransportInfo, usize) {
        let silent = self.is_interrupted();
        let limit = self.is_quic().then_some(MAX_DATAGRAM);
        let (info, free) = self.lanes[end].report(now, &path.link, silent, self.is_quic(), limit);
        // A congestion window that is full lets nothing pass, whether or not it is reported.
        match silent && self.is_quic() {
            true => (info, self.lanes[end].report(now, &path.link, true, false, limit).1),
            false => (info, free),
        }
    }

    /// Whether neither endpoint knows the connection.
    pub fn is_over(&self) -> bool {
        self.sides == [Side::Closed; 2]
    }
}
