//! Row of a TCP flow.

use std::net::SocketAddr;

use manyways_unit::{Span, Time};

use super::application::Application;
use super::flow_state::Traffic;
use super::{Enrichment, FlowId, LocalEndpoint};
use crate::columns::{SCHEMA, columns};
use crate::flow::{AckClock, Connection, Counts, Estimate, SenderLimit, Stream};
use manyways_record::table::{Column, Row, Value};
use manyways_unit::Samples;
use manyways_wire::stream::Endpoint;
use manyways_wire::tls::Session;

/// A TCP flow that has ended, or of which the capture has no more packets.
#[derive(Clone, Debug)]
pub struct TcpFlow {
    pub id: FlowId,
    /// The endpoint that initiated the connection.
    pub client: SocketAddr,
    pub server: SocketAddr,
    pub connection: Connection,
    /// Sizes and ECN marks of the IP packets.
    pub traffic: Traffic,
    pub application: Application,
    /// The endpoint on the local side of the capture point.
    pub local: LocalEndpoint,
    pub enrichment: Enrichment,
}

/// Returns the address without the port.
pub(super) fn address(end: SocketAddr) -> String {
    end.ip().to_string()
}

/// Formats ALPN protocols with commas, without GREASE values (RFC 8701).
pub(super) fn alpn_list(list: &[Vec<u8>]) -> String {
    let is_plain = |name: &&Vec<u8>| name.iter().all(|byte| byte.is_ascii_graphic());
    let names = list.iter().filter(is_plain).map(|name| String::from_utf8_lossy(name).into_owned());
    names.collect::<Vec<_>>().join(",")
}

impl TcpFlow {
    /// Time of the earliest packet.
    pub fn started(&self) -> Time {
        self.connection.started()
    }

    /// Median round-trip time. `None` without samples.
    pub fn rtt(&self) -> Option<Span> {
        median(full_rtt(self, Endpoint::Server))
    }

    /// Median round-trip time between the capture point and the local endpoint. `None` without
    /// samples.
    pub fn local_rtt(&self) -> Option<Span> {
        median(self.partial_rtts(Endpoint::Server).0)
    }

    /// Median round-trip time between the capture point and the remote endpoint. `None` without
    /// samples.
    pub fn remote_rtt(&self) -> Option<Span> {
        median(self.partial_rtts(Endpoint::Server).1)
    }

    /// Minimum round-trip time between the capture point and the remote endpoint. `None` without
    /// samples.
    pub fn remote_rtt_min(&self) -> Option<Span> {
        min_rtt(self.partial_rtts(Endpoint::Server).1)
    }

    /// Returns the best name of the server, or else its address.
    pub fn server_name(&self) -> String {
        self.enrichment.name.clone().unwrap_or_else(|| address(self.server))
    }

    fn stream(&self, end: Endpoint) -> Option<&Stream> {
        self.connection.stream(end)
    }

    fn counter<T: Default>(&self, end: Endpoint, count: impl Fn(&Counts) -> T) -> T {
        self.stream(end).map_or_else(T::default, |stream| count(&stream.counts()))
    }

    fn ack_clock(&self, end: Endpoint) -> Option<&AckClock> {
        self.connection.ack_clock(end)
    }

    /// Returns the round-trip times between the capture point and the local endpoint, and between
    /// the capture point and the remote endpoint, measured with the data of endpoint `of`.
    fn partial_rtts(&self, of: Endpoint) -> (Option<&Samples>, Option<&Samples>) {
        let near = self.stream(of).map(Stream::receiver_rtt);
        let far = self.ack_clock(of).map(AckClock::sender_rtt);
        // The other endpoint acknowledges the data: `near` measures the side of the receiver.
        if self.local.end() == of.other() { (near, far) } else { (far, near) }
    }

    fn is_local(&self, end: Endpoint) -> bool {
        self.local.end() == end
    }

    /// Returns the segments of both endpoints that were lost on the local or on the remote side,
    /// and the number of data segments.
    pub(super) fn lost(&self, on_local: bool) -> (u64, u64) {
        let mut sums = (0, 0);
        for end in [Endpoint::Client, Endpoint::Server] {
            let Some(counts) = self.stream(end).map(Stream::counts) else { continue };
            // A segment first passes the side of its sender.
            let is_before = self.is_local(end) == on_local;
            let lost = if is_before { counts.lost_before } else { counts.lost_after };
            sums.0 += u64::from(lost);
            sums.1 += counts.data_segments;
        }
        sums
    }

    pub(super) fn loss_rate(&self, on_local: bool) -> Option<f64> {
        let (lost, sent) = self.lost(on_local);
        (sent > 0).then(|| lost as f64 / sent as f64)
    }

    /// Data segments of the server; the paper groups flows by this number.
    fn data_segments(&self) -> u64 {
        self.counter(Endpoint::Server, |counts| counts.data_segments)
    }

    fn limit_share(&self, end: Endpoint, limit: SenderLimit) -> Value<'_> {
        let limited_by = self.connection.limited_by(end);
        if limited_by.total().is_zero() {
            return Value::Absent;
        }
        limited_by.share(limit).into()
    }

    fn limited_by(&self, end: Endpoint) -> Option<&'static str> {
        let limited_by = self.connection.limited_by(end);
        let most = SenderLimit::ALL.into_iter().max_by_key(|limit| limited_by.span(*limit))?;
        (!limited_by.total().is_zero()).then_some(most.name())
    }

    /// Returns the times before the first request, between requests, and after the last response.
    fn user_waits(&self) -> [Option<Span>; 3] {
        self.application
            .user_waits(self.connection.handshake().completed, self.connection.first_fin())
    }

    fn session(&self) -> Option<&Session> {
        self.application.tls.as_deref()
    }

    fn rtt_method(&self) -> Option<&'static str> {
        let ack_clock = self
            .ack_clock(Endpoint::Server)
            .filter(|ack_clock| ack_clock.sender_rtt().count() > 0)?;
        Some(if ack_clock.timestamp_samples() > 0 { "stamps" } else { "window" })
    }

    /// Returns the server's initial window in segments, and its estimate.
    pub(super) fn initial_window(&self) -> Option<(u64, Estimate)> {
        let estimate = self.connection.initial_window()?;
        Some((estimate.bytes.div_ceil(self.connection.max_payload().into()), estimate))
    }
}

fn median(samples: Option<&Samples>) -> Option<Span> {
    samples.and_then(Samples::median)
}

fn min_rtt(samples: Option<&Samples>) -> Option<Span> {
    samples.and_then(Samples::min)
}

fn full_rtt(flow: &TcpFlow, end: Endpoint) -> Option<&Samples> {
    flow.ack_clock(end).map(AckClock::full_rtt)
}

/// Minimum numbers of data segments of the overlapping groups G1, G2 and G3 of flows. G1 has 1 to 10
/// packets, G2 at least 10, G3 at least 50 (campus Wi-Fi paper, 5.2).
const GROUP_MIN_PACKETS: [u64; 3] = [10, 10, 50];

impl Row for TcpFlow {
    const TABLE: &'static str = "tcp";
    const SCHEMA: &'static str = SCHEMA;
    const ABOUT: &'static str = "A TCP connection, or what the capture has of it.";
    const COLUMNS: &'static [Column<Self>] = columns! {
        "flow" Flow "The flow's number in all tables." |flow| flow.id.0;
        "client" Address "Address of the endpoint that initiated the flow." |flow| address(flow.client);
        "client_port" Count "Its port." |flow| flow.client.port();
        "server" Address "Address of the other endpoint." |flow| address(flow.server);
        "server_port" Count "Its port." |flow| flow.server.port();
        "local_end" Text "The endpoint on the local side of the capture point: client or server."
            |flow| flow.local.name();
        "started" Time "Time of the earliest packet." |flow| flow.started();
        "handshake_done" Time "Time of the first acknowledgment of the server's SYN."
            |flow| flow.connection.handshake().completed;
        "first_fin" Time "Time of the first FIN." |flow| flow.connection.first_fin();
        "ended" Time "Time of the latest packet." |flow| flow.connection.last();
        "duration" Span "From the earliest packet to the latest one."
            |flow| flow.connection.last().since(flow.started());
        "is_valid" Flag "The handshake is complete and there was no RST (campus Wi-Fi, 3.1)."
            |flow| flow.connection.is_valid();
        "has_syn" Flag "The client's SYN is in the capture." |flow| flow.connection.handshake().syn.is_some();
        "syns" Count "Number of SYNs of the client." |flow| flow.connection.handshake().syns;
        "reset_by" Text "Sender of the first RST: client or server."
            |flow| flow.connection.reset().map(|(_, end)| super::endpoint_name(end));
        both "packets" Count "Packets" |flow, end| flow.connection.packets(end);
        both "data_segments" Count "Data segments; a merged packet counts as its original segments"
            |flow, end| flow.counter(end, |counts| counts.data_segments);
        both "bytes" Count "Bytes of payload, including retransmissions"
            |flow, end| flow.connection.bytes(end);
        both "unique_bytes" Count "Bytes of payload, each counted once"
            |flow, end| flow.stream(end).map_or(0, Stream::unique_bytes);
        both "ip_bytes" Count "Bytes of the IP packets" |flow, end| flow.traffic.ip_bytes(end);
        "is_g1" Flag "The server sent 1 to 10 data segments (campus Wi-Fi, 5.2)."
            |flow| (1..=GROUP_MIN_PACKETS[0]).contains(&flow.data_segments());
        "is_g2" Flag "The server sent at least 10 data segments." |flow| flow.data_segments() >= GROUP_MIN_PACKETS[1];
        "is_g3" Flag "The server sent at least 50 data segments." |flow| flow.data_segments() >= GROUP_MIN_PACKETS[2];
        "rtt" Span "Median round-trip time of the server's data and its acknowledgment, both halves."
            |flow| flow.rtt();
        "rtt_min" Span "The minimum of these times." |flow| min_rtt(full_rtt(flow, Endpoint::Server));
        "rtt_samples" Count "Number of these samples."
            |flow| full_rtt(flow, Endpoint::Server).map_or(0, Samples::count);
        "local_rtt" Span "Median of the half between capture point and local endpoint."
            |flow| flow.local_rtt();
        "local_rtt_min" Span "The minimum of these times." |flow| min_rtt(flow.partial_rtts(Endpoint::Server).0);
        "remote_rtt" Span "Median of the half between capture point and remote endpoint."
            |flow| flow.remote_rtt();
        "remote_rtt_min" Span "The minimum of these times." |flow| flow.remote_rtt_min();
        "rtt_method" Text "Measurement of the far half: by timestamps, or by simulation of Reno's window."
            |flow| flow.rtt_method();
        "up_rtt" Span "Like rtt, for the client's data." |flow| median(full_rtt(flow, Endpoint::Client));
        "up_rtt_min" Span "The minimum of these times." |flow| min_rtt(full_rtt(flow, Endpoint::Client));
        "up_local_rtt" Span "Like local_rtt, for the client's data."
            |flow| median(flow.partial_rtts(Endpoint::Client).0);
        "up_local_rtt_min" Span "The minimum of these times." |flow| min_rtt(flow.partial_rtts(Endpoint::Client).0);
        "up_remote_rtt" Span "Like remote_rtt, for the client's data."
            |flow| median(flow.partial_rtts(Endpoint::Client).1);
        "up_remote_rtt_min" Span "The minimum of these times." |flow| min_rtt(flow.partial_rtts(Endpoint::Client).1);
        "handshake_server_rtt" Span "From the SYN to the SYN/ACK, if each passed once."
            |flow| flow.connection.handshake().server_rtt();
        "handshake_client_rtt" Span "From the SYN/ACK to its acknowledgment."
            |flow| flow.connection.handshake().client_rtt();
        both "retransmitted_fast" Count "Segments retransmitted after duplicate acknowledgments or SACK"
            |flow, end| flow.counter(end, |counts| counts.retransmissions.fast);
        both "retransmitted_timeout" Count "Segments retransmitted after a timeout"
            |flow, end| flow.counter(end, |counts| counts.retransmissions.timeout);
        both "retransmitted_probe" Count "Segments retransmitted as tail loss probes"
            |flow, end| flow.counter(end, |counts| counts.retransmissions.probe);
        both "retransmitted_spurious" Count "Segments retransmitted spuriously: the first copy had arrived"
            |flow, end| flow.counter(end, |counts| counts.retransmissions.spurious);
        both "syns_again" Count "SYNs that were sent again; without data, they are not data segments"
            |flow, end| flow.counter(end, |counts| counts.syns_again);
        both "fins_again" Count "FINs without data that were sent again"
            |flow, end| flow.counter(end, |counts| counts.fins_again);
        both "reordered" Count "Segments that were reordered"
            |flow, end| flow.counter(end, |counts| counts.reordered);
        both "duplicated" Count "Packets that the network duplicated"
            |flow, end| flow.counter(end, |counts| counts.duplicated);
        both "lost_before" Count "Segments lost between their sender and the capture point"
            |flow, end| flow.counter(end, |counts| counts.lost_before);
        both "lost_after" Count "Segments lost between the capture point and their receiver"
            |flow, end| flow.counter(end, |counts| counts.lost_after);
        "local_loss" Number "Share of both endpoints' data segments that were lost on the local side."
            |flow| flow.loss_rate(true);
        "remote_loss" Number "Share lost on the remote side." |flow| flow.loss_rate(false);
        both "refused" Count "Segments whose numbers do not fit the connection; they count nowhere else"
            |flow, end| flow.connection.refused(end);
        both "refused_acks" Count "Segments of which only the acknowledgment number does not fit; that number counts nowhere"
            |flow, end| flow.connection.refused_acks(end);
        both "unseen" Count "Bytes that were acknowledged but are not in the capture"
            |flow, end| flow.counter(end, |counts| counts.uncaptured);
        both "ce" Count "Packets with a congestion mark (ECN CE)"
            |flow, end| flow.traffic.marked(end);
        both "ect" Count "Packets of an ECN-capable transport (ECT or CE)" |flow, end| flow.traffic.ecn_capable(end);
        "icwnd" Count "The server's initial congestion window, in segments." |flow| flow.initial_window().map(|(segments, _)| segments);
        "icwnd_bytes" Count "The server's initial congestion window, in bytes."
            |flow| flow.connection.initial_window().map(|estimate| estimate.bytes);
        "icwnd_is_valid" Flag
            "The initial window is an estimate; otherwise a lower bound, because the response is short, paced, or part of the TLS handshake."
            |flow| flow.connection.initial_window().map(|estimate| estimate.is_valid);
        "client_mss" Count "Maximum segment size in the client's SYN."
            |flow| flow.connection.syn_options(Endpoint::Client).and_then(|options| options.mss);
        "server_mss" Count "Maximum segment size in the server's SYN."
            |flow| flow.connection.syn_options(Endpoint::Server).and_then(|options| options.mss);
        "client_scale" Count "Window scale of the client, in bits."
            |flow| flow.connection.syn_options(Endpoint::Client).and_then(|options| options.scale);
        "client_window_first" Count "The client's first window after its SYN, in bytes."
            |flow| flow.connection.windows(Endpoint::Client).map(|windows| windows.first);
        "client_window_min" Count "The client's smallest window, in bytes."
            |flow| flow.connection.windows(Endpoint::Client).map(|windows| windows.min);
        "client_window_max" Count "The client's largest window, in bytes."
            |flow| flow.connection.windows(Endpoint::Client).map(|windows| windows.max);
        "client_window_closed" Count "Number of times that the client's window closed."
            |flow| flow.connection.windows(Endpoint::Client).map(|windows| windows.closed);
        "client_window_limited" Flag "The client's window limited the server at least once."
            |flow| !flow.connection.limited_by(Endpoint::Server).span(SenderLimit::ReceiverWindow).is_zero();
        "server_window_max" Count "The server's largest window, in bytes."
            |flow| flow.connection.windows(Endpoint::Server).map(|windows| windows.max);
        both "in_flight_max" Count "Maximum number of bytes in flight"
            |flow, end| flow.counter(end, |counts| counts.max_in_flight);
        both "limited_by" Text "The sender limit with the longest time: application, think, receiver_window, congestion, loss or slow_start"
            |flow, end| flow.limited_by(end);
        both "limited_time" Span "Time between data segments, of which the shares limited_... are; the summary, the report and `ask limits` add it up over all flows"
            |flow, end| Some(flow.connection.limited_by(end).total()).filter(|time| !time.is_zero());
        both "limited_application" Number "Share of the time between data segments without data to send"
            |flow, end| flow.limit_share(end, SenderLimit::Application);
        both "limited_think" Number "Share between a request and available data"
            |flow, end| flow.limit_share(end, SenderLimit::Think);
        both "limited_receiver_window" Number "Share in which the receiver's window was full"
            |flow, end| flow.limit_share(end, SenderLimit::ReceiverWindow);
        both "limited_congestion" Number "Share in which the path was at capacity and its queue was in use"
            |flow, end| flow.limit_share(end, SenderLimit::Congestion);
        both "limited_loss" Number "Share in which losses without a queue limited the window"
            |flow, end| flow.limit_share(end, SenderLimit::Loss);
        both "limited_slow_start" Number "Share in which the congestion window was in initial growth, or a request or its response was in flight"
            |flow, end| flow.limit_share(end, SenderLimit::SlowStart);
        both "delayed_acks" Count "Acknowledgments of this data that were probably delayed"
            |flow, end| flow.counter(end, |counts| counts.delayed_acks);
        both "keep_alives" Count "Keep-alive probes"
            |flow, end| flow.counter(end, |counts| counts.keep_alives);
        both "window_probes" Count "Zero-window probes"
            |flow, end| flow.counter(end, |counts| counts.window_probes);
        "protocol" Text "Application protocol: http, tls, dns or other." |flow| flow.application.protocol;
        "name" Name "The best known host name of the server."
            |flow| flow.enrichment.name.as_deref();
        "name_source" Text "Source of the name: http, tls, dns, dns of another (client), hosts or reverse."
            |flow| flow.enrichment.name_source;
        "domain" Name "The registered domain of the server's name." |flow| flow.enrichment.domain();
        "requests" Count "Requests of HTTP/1."
            |flow| flow.application.http.as_ref().map(|http| http.requests);
        "has_other_methods" Flag "At least one request has a method other than GET."
            |flow| flow.application.http.as_ref().map(|_| flow.application.has_other_methods);
        "downloading" Span
            "Time from requests to the last bytes of their responses, overlaps counted once."
            |flow| flow.application.http.as_ref().map(|http| http.download_time);
        "downloaded" Count "Bytes of the responses."
            |flow| flow.application.http.as_ref().map(|http| http.downloaded);
        "servicing_rate" Number
            "Downloaded bytes per downloading time, in bit/s: the paper's per-flow servicing rate."
            |flow| flow.application.http.as_ref().and_then(|http| http.servicing_rate())
                .map(|rate| rate.as_bps() as f64);
        "wait_first" Span "From the end of the handshake to the first request: T_S."
            |flow| flow.user_waits()[0];
        "wait_between" Span "From the ends of responses to the next requests: T_G."
            |flow| flow.user_waits()[1];
        "wait_last" Span "From the end of the last response to the first FIN: T_F."
            |flow| flow.user_waits()[2];
        "response_time" Span
            "Median time from a request to its response; inferred if protocol is not http."
            |flow| flow.application.response_times.median();
        "responses" Count "Number of responses with a response time."
            |flow| flow.application.response_times.count();
        "tls_version" Text "TLS version, if known."
            |flow| flow.session().and_then(Session::version).map(|version| version.to_string());
        "sni" Name "The server name in the client's ClientHello, as sent."
            |flow| flow.application.client_hello().and_then(|client_hello| client_hello.sni());
        "alpn" Text "The application protocols that the client offers, preferred first."
            |flow| flow.application.client_hello().map(|client_hello| alpn_list(&client_hello.protocols));
        "ja4" Text "The JA4 fingerprint of the client's hello, where all of it was captured."
            |flow| flow.application.client_hello().and_then(|client_hello| client_hello.ja4.as_deref());
        "ech" Flag "The ClientHello has the extension of Encrypted Client Hello, which may be GREASE."
            |flow| flow.application.client_hello().map(|client_hello| client_hello.has_ech);
        "tls_handshake" Span "From the ClientHello to the end of the handshake."
            |flow| flow.session().and_then(Session::handshake_time);
        "tls_resumed" Flag "An earlier session was resumed."
            |flow| flow.session().and_then(Session::is_resumed);
        "organisation" Text "The organisation that owns the server's address."
            |flow| flow.enrichment.organisation.as_deref();
        "asn" Count "The organisation's autonomous system number." |flow| flow.enrichment.asn;
        "cdn" Text "The content delivery network." |flow| flow.enrichment.cdn.as_deref();
        "cluster" Count "Cluster of the organisation's servers, numbered from the nearest, which is 0."
            |flow| flow.enrichment.cluster.map(|cluster| cluster.0);
        "cluster_rtt" Span "Median round-trip time of the cluster."
            |flow| flow.enrichment.cluster.map(|cluster| cluster.1);
        "system" Text "The client's operating system." |flow| flow.enrichment.system();
        "is_handheld" Flag "The client is a phone, a tablet or a watch."
            |flow| flow.enrichment.is_handheld();
        "device_evidence" Text "Evidence of this: user-agent, concurrent, pool, dhcp or tls."
            |flow| flow.enrichment.evidence().map(|evidence| evidence.0.name());
        "device_confidence" Number "Confidence in this, from 0 to 1: an estimate."
            |flow| flow.enrichment.evidence().map(|evidence| evidence.1);
        "concurrency" Number
            "Number of concurrent flows of the client's address, including this flow: counted in bins of 0.3 s and averaged over the flow's life."
            |flow| flow.enrichment.concurrency;
    };
}
