//! Data of a report: histograms, and the largest servers, clients and slow flows.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use manyways_unit::{Rate, Size, Span, Time};

use super::busiest::{Busiest, Share};
use super::{Distribution, FlowExchange, HttpTransaction, TcpFlow, UdpFlow};
use crate::flow::{Estimate, Limit, LimitedBy};
use manyways_record::table::Mask;
use manyways_wire::dns::Lookup;
use manyways_wire::stream::End;

/// Maximum number of servers, and of clients, with separate counters.
const PARTIES: usize = 1 << 12;
/// Maximum number of slow flows.
const SLOW: usize = 12;
/// Minimum number of data segments of a slow flow, because shorter flows are limited by their
/// initial window: the very long flows of the paper (campus Wi-Fi, 5.2).
const SEGMENTS: u64 = 50;
/// Larger initial windows, in segments, are counted together.
pub const WINDOWS: u64 = 64;
/// Upper bounds of the classes of loss; flows without loss have their own class.
pub const LOSSES: [f64; 3] = [0.001, 0.01, 0.05];

/// Statistics of all flows of a run, in bounded memory.
#[derive(Clone, Debug, Default)]
pub struct Overview {
    /// Servicing rate of each HTTP flow.
    pub servicing_rate: Distribution<Rate>,
    /// Response times of HTTP/1.
    pub responses: Distribution<Span>,
    /// Response times of inferred exchanges, most of which are encrypted.
    pub inferred_responses: Distribution<Span>,
    /// Latencies of DNS queries.
    pub lookups: Distribution<Span>,
    /// Flows with data by their loss on the local and on the remote side: none, up to each value of
    /// [`LOSSES`], more.
    pub losses: [[u64; LOSSES.len() + 2]; 2],
    /// Flows by their initial window in segments; the key `WINDOWS + 1` stands for all larger ones.
    pub first_windows: BTreeMap<u64, u64>,
    /// Flows with only a lower bound of the initial window.
    pub bounded_windows: u64,
    /// Traffic by the protocols of the tables `tcp` and `udp`.
    pub protocols: BTreeMap<(&'static str, &'static str), Carried>,
    /// Sender limits of servers, by the kind of the client's device.
    pub limited_by: BTreeMap<Class, LimitedBy>,
    servers: Busiest<Party, PARTIES>,
    clients: Busiest<Party, PARTIES>,
    slow: Vec<Slow>,
}

/// Kind of device that a flow belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    Handheld,
    /// Any other device.
    Other,
    /// A device of unknown kind.
    Unknown,
}

/// Number of flows and their payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    pub flows: u64,
    /// Payload bytes: from clients, then from servers.
    pub bytes: [u64; 2],
}

/// Statistics of the flows of one server name, or of one client.
#[derive(Clone, Debug, Default)]
pub struct Party {
    /// TCP and UDP flows.
    pub carried: Carried,
    /// Median round-trip time of each TCP flow.
    pub rtt: Distribution<Span>,
    /// Median of each TCP flow between capture point and local endpoint.
    pub local_rtt: Distribution<Span>,
    /// Median of each TCP flow between capture point and remote endpoint.
    pub remote_rtt: Distribution<Span>,
    /// Median response time of each flow.
    pub response_time: Distribution<Span>,
    /// Data segments of both endpoints.
    pub data_segments: u64,
    /// Segments lost on the local and on the remote side.
    pub lost: [u64; 2],
    /// Sender limits of the servers.
    pub limited_by: LimitedBy,
    /// Organisation of a server, or operating system of a client; `None` if unknown.
    pub about: Option<String>,
}

/// A flow whose server was limited for a long time.
#[derive(Clone, Debug)]
pub struct Slow {
    /// Identifier of the flow in all tables.
    pub flow: u64,
    pub started: Time,
    /// Address of the client.
    pub client: String,
    /// Name of the server.
    pub server: String,
    /// Bytes that the server sent.
    pub bytes: u64,
    /// Time in which the server had data to send, and was limited by a window, loss or the path.
    pub busy: Span,
    /// `bytes` per `busy`.
    pub rate: Rate,
    /// Time of each sender limit.
    pub limited_by: LimitedBy,
    /// Median round-trip time, and its local and remote part.
    pub rtt: [Option<Span>; 3],
    /// Share of segments lost on the local and on the remote side, 0 to 1.
    pub loss: [Option<f64>; 2],
}

impl Overview {
    /// Returns the servers with the most bytes, at most `most`, and the sum of the others. Keys are
    /// registered domains, or else names or addresses.
    pub fn servers(&self, most: usize) -> (Vec<(&str, Party)>, Party) {
        self.servers.largest(most)
    }

    /// Returns the clients with the most bytes by address, at most `most`, and the sum of the
    /// others.
    pub fn clients(&self, most: usize) -> (Vec<(&str, Party)>, Party) {
        self.clients.largest(most)
    }

    /// Returns the flows with the lowest [`Slow::rate`], slowest first, of those with at least 50
    /// data segments of the server.
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

    /// Sum of both directions.
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
