//! What a report tells of a run: distributions, and who stands out.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use manyways_unit::{Rate, Size, Span, Time};

use super::busiest::{Busiest, Share};
use super::{Distribution, FlowExchange, HttpTransaction, TcpFlow, UdpFlow};
use crate::flow::{Estimate, Limit, LimitedBy};
use manyways_record::table::Mask;
use manyways_wire::dns::Lookup;
use manyways_wire::stream::End;

/// So many names and as many clients are counted apart.
const PARTIES: usize = 1 << 12;
/// So many slow flows are kept.
const SLOW: usize = 12;
/// A server that sends fewer segments is slow because windows begin small: a very long flow of the
/// paper (campus Wi-Fi, 5.2) has at least so many.
const SEGMENTS: u64 = 50;
/// First windows of more segments are counted together.
pub const WINDOWS: u64 = 64;
/// Where classes of loss end; a flow without any is in a class of its own.
pub const LOSSES: [f64; 3] = [0.001, 0.01, 0.05];

/// What all flows of a run show together; what is kept of them does not grow with their number.
#[derive(Clone, Debug, Default)]
pub struct Overview {
    /// Each HTTP flow's servicing rate.
    pub servicing_rate: Distribution<Rate>,
    /// Times to the responses of HTTP/1.
    pub responses: Distribution<Span>,
    /// Times to those that are inferred, mostly of what is encrypted.
    pub inferred_responses: Distribution<Span>,
    /// Times to the answers of name servers.
    pub lookups: Distribution<Span>,
    /// How many flows with data lost how much of it, on the local and on the remote side: nothing,
    /// then by [`LOSSES`], then more.
    pub losses: [[u64; LOSSES.len() + 2]; 2],
    /// How many flows have a first window of so many segments; one above [`WINDOWS`]: of more.
    pub first_windows: BTreeMap<u64, u64>,
    /// Flows of which the first window is a lower bound only.
    pub bounded_windows: u64,
    /// What flows carry, by the protocols of the tables `tcp` and `udp`.
    pub protocols: BTreeMap<(&'static str, &'static str), Carried>,
    /// What kept servers back, by the kind of the client's device.
    pub limited_by: BTreeMap<Class, LimitedBy>,
    servers: Busiest<Party, PARTIES>,
    clients: Busiest<Party, PARTIES>,
    slow: Vec<Slow>,
}

/// The kind of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// A phone, a tablet or a watch.
    Handheld,
    /// None of these.
    Other,
    /// Nobody knows.
    Unknown,
}

/// Flows, and what they carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// How many flows.
    pub flows: u64,
    /// Bytes of payload: from clients, then from servers.
    pub bytes: [u64; 2],
}

/// What the flows of one server name, or of one client, show.
#[derive(Clone, Debug, Default)]
pub struct Party {
    /// TCP and UDP flows.
    pub carried: Carried,
    /// Medians of its TCP flows.
    pub rtt: Distribution<Span>,
    /// See [`Party::rtt`].
    pub local_rtt: Distribution<Span>,
    /// See [`Party::rtt`].
    pub remote_rtt: Distribution<Span>,
    /// Each flow's median time to a response.
    pub response_time: Distribution<Span>,
    /// Data segments of both ends.
    pub data_segments: u64,
    /// How many were lost on the local and on the remote side.
    pub lost: [u64; 2],
    /// What kept servers back.
    pub limited_by: LimitedBy,
    /// What else is known: who runs the server, or the client's system.
    pub about: Option<String>,
}

/// A flow whose server was kept from sending faster for long.
#[derive(Clone, Debug)]
pub struct Slow {
    /// Its number in all tables.
    pub flow: u64,
    /// When it began.
    pub started: Time,
    /// The address of its client.
    pub client: String,
    /// What its server is called.
    pub server: String,
    /// Bytes of the server's.
    pub bytes: u64,
    /// How long the server had something to send, and was kept back by windows, losses or the path.
    pub busy: Span,
    /// Those bytes in that time.
    pub rate: Rate,
    /// What kept it back.
    pub limited_by: LimitedBy,
    /// The median round trip, and its local and remote half.
    pub rtt: [Option<Span>; 3],
    /// Which part of the segments was lost on the local and on the remote side.
    pub loss: [Option<f64>; 2],
}

impl Overview {
    /// The servers with the most bytes, by registered domain or else by name or address, at most so
    /// many, and all others together.
    pub fn servers(&self, most: usize) -> (Vec<(&str, Party)>, Party) {
        self.servers.largest(most)
    }

    /// The clients with the most bytes, by address.
    pub fn clients(&self, most: usize) -> (Vec<(&str, Party)>, Party) {
        self.clients.largest(most)
    }

    /// The slowest flows: those in which the server sent at least 50 segments, by the rate while
    /// it was neither idle nor thinking; the slowest first.
    pub fn slow(&self) -> &[Slow] {
        &self.slow
    }

    pub(super) fn tcp(&mut self, flow: &TcpFlow, mut mask: Option<&mut Mask>) {
        let bytes = [End::Client, End::Server].map(|end| flow.connection.bytes(end));
        let carried = Carried { flows: 1, bytes };
        let protocol = flow.application.protocol.unwrap_or("nothing");
        self.protocols.entry(("tcp", protocol)).or_default().add(&carried);
        let limited_by = *flow.connection.limited_by(End::Server);
        let class = match flow.joined.is_handheld() {
            Some(true) => Class::Handheld,
            Some(false) => Class::Other,
            None => Class::Unknown,
        };
        add(self.limited_by.entry(class).or_default(), &limited_by);
        let http = flow.application.http.as_ref();
        self.servicing_rate.extend(http.and_then(|http| http.servicing_rate()));
        match flow.first_window() {
            Some((segments, Estimate { is_valid: true, .. })) => {
                *self.first_windows.entry(segments.min(WINDOWS + 1)).or_default() += 1;
            }
            Some(_) => self.bounded_windows += 1,
            None => {}
        }
        let sides = [true, false];
        let lost = sides.map(|is_local| flow.lost(is_local));
        let loss = sides.map(|is_local| flow.loss_rate(is_local));
        for (classes, rate) in self.losses.iter_mut().zip(loss) {
            let Some(rate) = rate else { continue };
            let above = LOSSES.iter().filter(|end| rate > **end).count();
            let class = if rate > 0.0 { above + 1 } else { 0 };
            classes.iter_mut().skip(class).take(1).for_each(|count| *count += 1);
        }
        let rtt = [flow.rtt(), flow.local_rtt(), flow.remote_rtt()];
        let mut party = Party {
            carried,
            data_segments: lost[0].1,
            lost: lost.map(|(lost, _)| lost),
            limited_by,
            about: flow.joined.organisation.clone(),
            ..Party::default()
        };
        party.rtt.extend(rtt[0]);
        party.local_rtt.extend(rtt[1]);
        party.remote_rtt.extend(rtt[2]);
        party.response_time.extend(flow.application.response_times.median());
        let mut shown = |text: String| match &mut mask {
            Some(mask) => mask.name(&text),
            None => text,
        };
        let server = flow.joined.domain().or_else(|| flow.joined.name.clone()).map(&mut shown);
        let texts =
            [flow.server.ip().to_string(), flow.client.ip().to_string(), flow.server_name()];
        let [address, client, name] = texts.map(shown);
        self.servers.at(address, server, &party);
        party.about = flow.joined.system().map(str::to_owned);
        self.clients.with(client.clone(), &party);

        let idle = limited_by.span(Limit::Application) + limited_by.span(Limit::Think);
        let busy = limited_by.all().saturating_sub(idle);
        let server = flow.connection.stream(End::Server);
        let segments = server.map_or(0, |stream| stream.counts().data_segments);
        if segments < SEGMENTS || busy.is_zero() {
            return;
        }
        let rate = Rate::of(Size::from_bytes(bytes[1]), busy);
        let id = mask.map_or(flow.id.0, |mask| mask.flow(flow.id.0));
        let slow = Slow {
            flow: id,
            started: flow.started(),
            client,
            server: name,
            bytes: bytes[1],
            busy,
            rate,
            limited_by,
            rtt,
            loss,
        };
        let key = |slow: &Slow| (slow.rate, Reverse(slow.busy), slow.started, slow.flow);
        let place = self.slow.partition_point(|other| key(other) < key(&slow));
        if place < SLOW {
            self.slow.insert(place, slow);
            self.slow.truncate(SLOW);
        }
    }

    pub(super) fn udp(&mut self, flow: &UdpFlow, mut mask: Option<&mut Mask>) {
        let carried = Carried { flows: 1, bytes: flow.payload() };
        self.protocols.entry(("udp", flow.protocol())).or_default().add(&carried);
        let about = flow.joined.organisation.clone();
        let mut party = Party { carried, about, ..Party::default() };
        let quic = flow.flow.quic();
        party.response_time.extend(quic.and_then(|quic| quic.inferred_response_times().median()));
        let mut shown = |text: String| match &mut mask {
            Some(mask) => mask.name(&text),
            None => text,
        };
        let server = flow.joined.domain().or_else(|| flow.joined.name.clone()).map(&mut shown);
        let [address, client] =
            [flow.server.ip(), flow.client.ip()].map(|ip| shown(ip.to_string()));
        self.servers.at(address, server, &party);
        party.about = flow.joined.system().map(str::to_owned);
        self.clients.with(client, &party);
    }

    pub(super) fn http(&mut self, row: &HttpTransaction) {
        self.responses.extend(row.transaction.response_time());
    }

    pub(super) fn exchange(&mut self, row: &FlowExchange) {
        self.inferred_responses.push(row.exchange.response_time());
    }

    pub(super) fn lookup(&mut self, row: &Lookup) {
        self.lookups.extend(row.latency());
    }
}

fn add(sum: &mut LimitedBy, more: &LimitedBy) {
    for limit in Limit::ALL {
        sum.add(limit, more.span(limit));
    }
}

impl Carried {
    fn add(&mut self, other: &Self) {
        self.flows += other.flows;
        for (sum, more) in self.bytes.iter_mut().zip(other.bytes) {
            *sum += more;
        }
    }

    /// Both directions.
    pub fn all(&self) -> u64 {
        self.bytes.iter().sum()
    }
}

impl Share for Party {
    fn size(&self) -> u64 {
        self.carried.all()
    }

    fn add(&mut self, other: &Self) {
        self.carried.add(&other.carried);
        self.rtt.add(&other.rtt);
        self.local_rtt.add(&other.local_rtt);
        self.remote_rtt.add(&other.remote_rtt);
        self.response_time.add(&other.response_time);
        self.data_segments += other.data_segments;
        for (sum, more) in self.lost.iter_mut().zip(other.lost) {
            *sum += more;
        }
        add(&mut self.limited_by, &other.limited_by);
        if self.about.is_none() {
            self.about.clone_from(&other.about);
        }
    }
}
