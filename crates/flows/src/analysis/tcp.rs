//! The row of a TCP flow.

use std::net::SocketAddr;

use manyways_unit::{Span, Time};

use super::application::Application;
use super::conversation::Traffic;
use super::{FlowId, Joined, Side};
use crate::columns::columns;
use crate::flow::{Connection, Counts, Estimate, Limit, Releases, Stream};
use manyways_record::table::{Column, Row, Value};
use manyways_unit::Samples;
use manyways_wire::stream::End;
use manyways_wire::tls::Session;

/// A TCP flow that is over, or of which the capture has no more.
#[derive(Clone, Debug)]
pub struct TcpFlow {
    /// Its number in all tables.
    pub id: FlowId,
    /// Who began it.
    pub client: SocketAddr,
    /// The other end.
    pub server: SocketAddr,
    /// What passed.
    pub connection: Connection,
    /// What its packets add up to besides.
    pub traffic: Traffic,
    /// What it carries.
    pub application: Application,
    /// Which end is on the near side of the capture point.
    pub local: Side,
    /// What is known from elsewhere.
    pub joined: Joined,
}

/// An address without its port.
pub(super) fn address(end: SocketAddr) -> String {
    end.ip().to_string()
}

/// Names of protocols (ALPN) with commas between, without those that are made up.
pub(super) fn protocols(list: &[Vec<u8>]) -> String {
    let is_plain = |name: &&Vec<u8>| name.iter().all(|byte| byte.is_ascii_graphic());
    let names = list.iter().filter(is_plain).map(|name| String::from_utf8_lossy(name).into_owned());
    names.collect::<Vec<_>>().join(",")
}

impl TcpFlow {
    /// When it began.
    pub fn started(&self) -> Time {
        self.connection.started()
    }

    /// Its median round trip.
    pub fn rtt(&self) -> Option<Span> {
        median(whole(self, End::Server))
    }

    /// The median of the half between the capture point and the local end.
    pub fn local_rtt(&self) -> Option<Span> {
        median(self.halves(End::Server).0)
    }

    /// The median of the half between the capture point and the remote end.
    pub fn remote_rtt(&self) -> Option<Span> {
        median(self.halves(End::Server).1)
    }

    /// The shortest of those.
    pub fn remote_rtt_min(&self) -> Option<Span> {
        least(self.halves(End::Server).1)
    }

    /// What the server is called: its address, where it has no better name.
    pub fn server_name(&self) -> String {
        self.joined.name.clone().unwrap_or_else(|| address(self.server))
    }

    fn stream(&self, end: End) -> Option<&Stream> {
        self.connection.stream(end)
    }

    fn count<T: Default>(&self, end: End, count: impl Fn(&Counts) -> T) -> T {
        self.stream(end).map_or_else(T::default, |stream| count(&stream.counts()))
    }

    fn releases(&self, end: End) -> Option<&Releases> {
        self.connection.releases(end)
    }

    /// Round trips between the capture point and the local end, then the remote one, as the data of
    /// this end shows them.
    fn halves(&self, of: End) -> (Option<&Samples>, Option<&Samples>) {
        let near = self.stream(of).map(Stream::near);
        let far = self.releases(of).map(Releases::far);
        // What an end sends is acknowledged by the other one: `near` is between here and there.
        if self.local.end() == of.other() { (near, far) } else { (far, near) }
    }

    fn is_local(&self, end: End) -> bool {
        self.local.end() == end
    }

    /// Segments of both ends that were lost on the local side, or on the remote one, and all that
    /// went that way.
    pub(super) fn lost(&self, on_local: bool) -> (u64, u64) {
        let mut sums = (0, 0);
        for end in [End::Client, End::Server] {
            let Some(counts) = self.stream(end).map(Stream::counts) else { continue };
            // An end's segments first pass its own side.
            let is_before = self.is_local(end) == on_local;
            let lost = if is_before { counts.lost_before } else { counts.lost_behind };
            sums.0 += u64::from(lost);
            sums.1 += counts.data_segments;
        }
        sums
    }

    pub(super) fn loss_rate(&self, on_local: bool) -> Option<f64> {
        let (lost, sent) = self.lost(on_local);
        (sent > 0).then(|| lost as f64 / sent as f64)
    }

    /// Data segments of the server, by which the paper tells short flows from long ones.
    fn data(&self) -> u64 {
        self.count(End::Server, |counts| counts.data_segments)
    }

    fn share(&self, end: End, limit: Limit) -> Value<'_> {
        let limited_by = self.connection.limited_by(end);
        if limited_by.all().is_zero() {
            return Value::Absent;
        }
        limited_by.share(limit).into()
    }

    fn limited_by(&self, end: End) -> Option<&'static str> {
        let limited_by = self.connection.limited_by(end);
        let most = Limit::ALL.into_iter().max_by_key(|limit| limited_by.span(*limit))?;
        (!limited_by.all().is_zero()).then_some(most.name())
    }

    /// The wait before the first request, those between, and the one after the last response.
    fn waits(&self) -> [Option<Span>; 3] {
        self.application.waits(self.connection.handshake().done, self.connection.first_fin())
    }

    fn session(&self) -> Option<&Session> {
        self.application.tls.as_deref()
    }

    fn method(&self) -> Option<&'static str> {
        let releases = self.releases(End::Server).filter(|releases| releases.far().count() > 0)?;
        Some(if releases.by_stamp() > 0 { "stamps" } else { "window" })
    }

    /// The server's first window in segments, and what is known of it.
    pub(super) fn first_window(&self) -> Option<(u64, Estimate)> {
        let estimate = self.connection.first_window()?;
        Some((estimate.bytes.div_ceil(self.connection.payload().into()), estimate))
    }
}

fn median(samples: Option<&Samples>) -> Option<Span> {
    samples.and_then(Samples::median)
}

fn least(samples: Option<&Samples>) -> Option<Span> {
    samples.and_then(Samples::least)
}

fn whole(flow: &TcpFlow, end: End) -> Option<&Samples> {
    flow.releases(end).map(Releases::whole)
}

/// The first windows that a paper calls short, long and very long flows overlap: G1 has 1 to 10 data
/// packets, G2 at least 10, G3 at least 50 (campus Wi-Fi, 5.2).
const GROUPS: [u64; 3] = [10, 10, 50];

impl Row for TcpFlow {
    const TABLE: &'static str = "tcp";
    const ABOUT: &'static str = "A TCP connection, or what the capture has of it.";
    const COLUMNS: &'static [Column<Self>] = columns! {
        "flow" Flow "The flow's number in all tables." |flow| flow.id.0;
        "client" Address "Address of the end that began." |flow| address(flow.client);
        "client_port" Count "Its port." |flow| flow.client.port();
        "server" Address "Address of the other end." |flow| address(flow.server);
        "server_port" Count "Its port." |flow| flow.server.port();
        "local_end" Text "Which end is on the local side of the capture point: client or server."
            |flow| flow.local.name();
        "started" Time "When the first packet passed." |flow| flow.started();
        "handshake_done" Time "When the acknowledgement of the server's SYN passed."
            |flow| flow.connection.handshake().done;
        "first_fin" Time "When the first FIN passed." |flow| flow.connection.first_fin();
        "ended" Time "When the last packet passed." |flow| flow.connection.last();
        "duration" Span "From the first packet to the last one."
            |flow| flow.connection.last().since(flow.started());
        "is_valid" Flag "It has a whole handshake and no RST (campus Wi-Fi, 3.1)."
            |flow| flow.connection.is_valid();
        "has_syn" Flag "The client's SYN passed." |flow| flow.connection.handshake().syn.is_some();
        "syns" Count "How often the client's SYN passed." |flow| flow.connection.handshake().syns;
        "reset_by" Text "Who sent the first RST: client or server."
            |flow| flow.connection.reset().map(|(_, end)| super::name(end));
        both "packets" Count "Packets" |flow, end| flow.connection.packets(end);
        both "data_packets" Count "Data packets, merged ones counted as those that they were"
            |flow, end| flow.count(end, |counts| counts.data_segments);
        both "bytes" Count "Bytes of payload, those sent again included"
            |flow, end| flow.connection.bytes(end);
        both "unique_bytes" Count "Bytes of payload, each counted once"
            |flow, end| flow.stream(end).map_or(0, Stream::length);
        both "ip_bytes" Count "Bytes of the IP packets" |flow, end| flow.traffic.ip_bytes(end);
        "is_g1" Flag "The server sent 1 to 10 data packets (campus Wi-Fi, 5.2)."
            |flow| (1..=GROUPS[0]).contains(&flow.data());
        "is_g2" Flag "The server sent at least 10 data packets." |flow| flow.data() >= GROUPS[1];
        "is_g3" Flag "The server sent at least 50 data packets." |flow| flow.data() >= GROUPS[2];
        "rtt" Span "Median round trip of the server's data and its acknowledgement, both halves."
            |flow| flow.rtt();
        "rtt_min" Span "The shortest of those." |flow| least(whole(flow, End::Server));
        "rtt_samples" Count "How many there were."
            |flow| whole(flow, End::Server).map_or(0, Samples::count);
        "local_rtt" Span "Median of the half between capture point and local end."
            |flow| flow.local_rtt();
        "local_rtt_min" Span "The shortest of those." |flow| least(flow.halves(End::Server).0);
        "remote_rtt" Span "Median of the half between capture point and remote end."
            |flow| flow.remote_rtt();
        "remote_rtt_min" Span "The shortest of those." |flow| flow.remote_rtt_min();
        "rtt_method" Text "How the far half was found: by stamps, or by following Reno's window."
            |flow| flow.method();
        "up_rtt" Span "As rtt, by the client's data." |flow| median(whole(flow, End::Client));
        "up_rtt_min" Span "The shortest of those." |flow| least(whole(flow, End::Client));
        "up_local_rtt" Span "As local_rtt, by the client's data."
            |flow| median(flow.halves(End::Client).0);
        "up_local_rtt_min" Span "The shortest of those." |flow| least(flow.halves(End::Client).0);
        "up_remote_rtt" Span "As remote_rtt, by the client's data."
            |flow| median(flow.halves(End::Client).1);
        "up_remote_rtt_min" Span "The shortest of those." |flow| least(flow.halves(End::Client).1);
        "handshake_server_rtt" Span "From the SYN to the server's answer, where each passed once."
            |flow| flow.connection.handshake().to_server();
        "handshake_client_rtt" Span "From that answer to its acknowledgement."
            |flow| flow.connection.handshake().to_client();
        both "again_fast" Count "Segments sent again after repeated acknowledgements or SACK"
            |flow, end| flow.count(end, |counts| counts.again.fast);
        both "again_timeout" Count "Segments sent again after a timeout"
            |flow, end| flow.count(end, |counts| counts.again.timeout);
        both "again_probe" Count "Segments sent again to probe for a lost tail"
            |flow, end| flow.count(end, |counts| counts.again.probe);
        both "again_spurious" Count "Segments sent again though the first copy had arrived"
            |flow, end| flow.count(end, |counts| counts.again.spurious);
        both "reordered" Count "Segments that something overtook"
            |flow, end| flow.count(end, |counts| counts.reordered);
        both "duplicated" Count "Packets seen twice that were sent once"
            |flow, end| flow.count(end, |counts| counts.duplicated);
        both "lost_before" Count "Segments lost between their sender and the capture point"
            |flow, end| flow.count(end, |counts| counts.lost_before);
        both "lost_behind" Count "Segments lost between the capture point and their receiver"
            |flow, end| flow.count(end, |counts| counts.lost_behind);
        "local_loss" Number "Of both ends' data segments, the share lost on the local side."
            |flow| flow.loss_rate(true);
        "remote_loss" Number "The share lost on the remote side." |flow| flow.loss_rate(false);
        both "unseen" Count "Bytes that were acknowledged and never passed: the capture missed them"
            |flow, end| flow.count(end, |counts| counts.unseen);
        both "ce" Count "Packets that a router marked for congestion (ECN)"
            |flow, end| flow.traffic.marked(end);
        both "ect" Count "Packets that could be marked" |flow, end| flow.traffic.capable(end);
        "icwnd" Count "The server's first congestion window, in segments." |flow| flow.first_window().map(|(segments, _)| segments);
        "icwnd_bytes" Count "The same in bytes."
            |flow| flow.connection.first_window().map(|estimate| estimate.bytes);
        "icwnd_is_valid" Flag
            "It is an estimate; otherwise a lower bound: a short or paced answer, or TLS's first one."
            |flow| flow.connection.first_window().map(|estimate| estimate.is_valid);
        "client_mss" Count "The largest payload that the client takes, by its SYN."
            |flow| flow.connection.hello(End::Client).map(|hello| hello.mss);
        "server_mss" Count "The same of the server."
            |flow| flow.connection.hello(End::Server).map(|hello| hello.mss);
        "client_scale" Count "By how many bits the client's windows are shifted."
            |flow| flow.connection.hello(End::Client).and_then(|hello| hello.scale);
        "client_window_first" Count "The client's first window after its SYN, in bytes."
            |flow| flow.connection.windows(End::Client).map(|windows| windows.first);
        "client_window_min" Count "Its smallest one."
            |flow| flow.connection.windows(End::Client).map(|windows| windows.least);
        "client_window_max" Count "Its largest one."
            |flow| flow.connection.windows(End::Client).map(|windows| windows.most);
        "client_window_closed" Count "How often it was closed."
            |flow| flow.connection.windows(End::Client).map(|windows| windows.closed);
        "client_window_limited" Flag "It kept the server from sending at least once."
            |flow| !flow.connection.limited_by(End::Server).span(Limit::ReceiverWindow).is_zero();
        "server_window_max" Count "The server's largest window, in bytes."
            |flow| flow.connection.windows(End::Server).map(|windows| windows.most);
        both "in_flight_max" Count "The most bytes on their way at a time"
            |flow, end| flow.count(end, |counts| counts.most_in_flight);
        both "limited_by" Text "What kept the sender back for the longest time: application, think, receiver_window, congestion, loss or start_up"
            |flow, end| flow.limited_by(end);
        both "limited_application" Number "Share of the time between data segments in which there was nothing to send"
            |flow, end| flow.share(end, Limit::Application);
        both "limited_think" Number "Share in which it was asked and had nothing to send yet"
            |flow, end| flow.share(end, Limit::Think);
        both "limited_receiver_window" Number "Share in which the receiver's window was full"
            |flow, end| flow.share(end, Limit::ReceiverWindow);
        both "limited_congestion" Number "Share in which the path and its queue were full"
            |flow, end| flow.share(end, Limit::Congestion);
        both "limited_loss" Number "Share in which losses without a queue kept the window small"
            |flow, end| flow.share(end, Limit::Loss);
        both "limited_start_up" Number "Share in which the congestion window still grew, or a question or its answer was on its way: both take round trips"
            |flow, end| flow.share(end, Limit::StartUp);
        both "held_back" Count "Acknowledgements for it that were probably delayed on purpose"
            |flow, end| flow.count(end, |counts| counts.held_back);
        both "keep_alives" Count "Segments that only ask whether the other end is there"
            |flow, end| flow.count(end, |counts| counts.keep_alives);
        both "window_probes" Count "Segments that only ask whether the window is still closed"
            |flow, end| flow.count(end, |counts| counts.window_probes);
        "protocol" Text "What it carries: http, tls, dns or other." |flow| flow.application.protocol;
        "name" Name "What the server is called: the best of the names that are known."
            |flow| flow.joined.name.as_deref();
        "name_source" Text "Where that is from: http, tls, dns, dns of another (client), hosts or reverse."
            |flow| flow.joined.name_source;
        "domain" Name "The registered domain of that name." |flow| flow.joined.domain();
        "requests" Count "Requests of HTTP/1."
            |flow| flow.application.http.as_ref().map(|http| http.requests);
        "has_other_methods" Flag "One of them is no GET."
            |flow| flow.application.http.as_ref().map(|_| flow.application.has_others);
        "downloading" Span
            "Time from requests to the last bytes of their responses, overlaps counted once."
            |flow| flow.application.http.as_ref().map(|http| http.downloading);
        "downloaded" Count "Bytes of those responses."
            |flow| flow.application.http.as_ref().map(|http| http.downloaded);
        "servicing_rate" Number
            "Those bytes by that time, in bit/s: the paper's per-flow servicing rate."
            |flow| flow.application.http.as_ref().and_then(|http| http.servicing_rate())
                .map(|rate| rate.as_bps() as f64);
        "wait_first" Span "From the end of the handshake to the first request: T_S."
            |flow| flow.waits()[0];
        "wait_between" Span "From the ends of responses to the next requests: T_G."
            |flow| flow.waits()[1];
        "wait_last" Span "From the end of the last response to the first FIN: T_F."
            |flow| flow.waits()[2];
        "response_time" Span
            "Median time from a request to its response; inferred where protocol is not http."
            |flow| flow.application.response_times.median();
        "responses" Count "How many responses that is of."
            |flow| flow.application.response_times.count();
        "tls_version" Text "TLS's version, as far as it can be known."
            |flow| flow.session().and_then(Session::version).map(|version| version.to_string());
        "sni" Name "The server's name in the client's hello."
            |flow| flow.application.server_name();
        "alpn" Text "The application protocols that the client offers, the best one first."
            |flow| flow.application.offer().map(|offer| protocols(&offer.protocols));
        "ja4" Text "The JA4 fingerprint of the client's hello, where all of it was captured."
            |flow| flow.application.offer().and_then(|offer| offer.ja4.as_deref());
        "ech" Flag "The client encrypts its hello, or pretends to."
            |flow| flow.application.offer().map(|offer| offer.encrypts_hello);
        "tls_handshake" Span "From the client's hello to the end of the handshake."
            |flow| flow.session().and_then(Session::handshake_time);
        "tls_resumed" Flag "An earlier session was resumed."
            |flow| flow.session().and_then(Session::is_resumed);
        "organisation" Text "Who runs the server's address."
            |flow| flow.joined.organisation.as_deref();
        "asn" Count "The number of its autonomous system." |flow| flow.joined.asn;
        "cdn" Text "The content network." |flow| flow.joined.cdn.as_deref();
        "cluster" Count "Which of the organisation's places it is at, the nearest one being 0."
            |flow| flow.joined.cluster.map(|cluster| cluster.0);
        "cluster_rtt" Span "The round trip in the middle of that place's."
            |flow| flow.joined.cluster.map(|cluster| cluster.1);
        "system" Text "The client's operating system." |flow| flow.joined.system();
        "is_handheld" Flag "The client is a phone, a tablet or a watch."
            |flow| flow.joined.is_handheld();
        "device_evidence" Text "What that is known by: user-agent, concurrent, pool, dhcp or tls."
            |flow| flow.joined.evidence().map(|evidence| evidence.0.name());
        "device_confidence" Number "How far that may be believed, from 0 to 1: a judgement."
            |flow| flow.joined.evidence().map(|evidence| evidence.1);
        "concurrency" Number
            "How many flows the client's address has at a time, this one included: counted in bins of 0.3 s and averaged over the flow's life."
            |flow| flow.joined.concurrency;
    };
}
