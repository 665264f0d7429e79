//! Row of a TCP flow.

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
    pub local: Side,
    pub joined: Joined,
}

/// Returns the address without the port.
pub(super) fn address(end: SocketAddr) -> String {
    end.ip().to_string()
}

/// Formats ALPN protocols with commas, without GREASE values (RFC 8701).
pub(super) fn protocols(list: &[Vec<u8>]) -> String {
    let is_plain = |name: &&Vec<u8>| name.iter().all(|byte| byte.is_ascii_graphic());
    let names = list.iter().filter(is_plain).map(|name| String::from_utf8_lossy(name).into_owned());
    names.collect::<Vec<_>>().join(",")
}

impl TcpFlow {
    /// Time of the first packet.
    pub fn started(&self) -> Time {
        self.connection.started()
    }

    /// Median round-trip time. `None` without samples.
    pub fn rtt(&self) -> Option<Span> {
        median(whole(self, End::Server))
    }

    /// Median round-trip time between the capture point and the local endpoint. `None` without
    /// samples.
    pub fn local_rtt(&self) -> Option<Span> {
        median(self.halves(End::Server).0)
    }

    /// Median round-trip time between the capture point and the remote endpoint. `None` without
    /// samples.
    pub fn remote_rtt(&self) -> Option<Span> {
        median(self.halves(End::Server).1)
    }

    /// Minimum round-trip time between the capture point and the remote endpoint. `None` without
    /// samples.
    pub fn remote_rtt_min(&self) -> Option<Span> {
        least(self.halves(End::Server).1)
    }

    /// Returns the best name of the server, or else its address.
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

    /// Returns the round-trip times between the capture point and the local endpoint, and between
    /// the capture point and the remote endpoint, measured with the data of endpoint `of`.
    fn halves(&self, of: End) -> (Option<&Samples>, Option<&Samples>) {
        let near = self.stream(of).map(Stream::near);
        let far = self.releases(of).map(Releases::far);
        // The other endpoint acknowledges the data: `near` measures the side of the receiver.
        if self.local.end() == of.other() { (near, far) } else { (far, near) }
    }

    fn is_local(&self, end: End) -> bool {
        self.local.end() == end
    }

    /// Returns the segments of both endpoints that were lost on the local or on the remote side,
    /// and the number of data segments.
    pub(super) fn lost(&self, on_local: bool) -> (u64, u64) {
        let mut sums = (0, 0);
        for end in [End::Client, End::Server] {
            let Some(counts) = self.stream(end).map(Stream::counts) else { continue };
            // A segment first passes the side of its sender.
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

    /// Data segments of the server; the paper groups flows by this number.
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

    /// Returns the times before the first request, between requests, and after the last response.
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

    /// Returns the server's initial window in segments, and its estimate.
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

/// Minimum numbers of data packets of the overlapping groups G1, G2 and G3 of flows. G1 has 1 to 10
/// packets, G2 at least 10, G3 at least 50 (campus Wi-Fi paper, 5.2).
const GROUPS: [u64; 3] = [10, 10, 50];

impl Row for TcpFlow {
    const TABLE: &'static str = "tcp";
    const ABOUT: &'static str = "A TCP connection, or what the capture has of it.";
    const COLUMNS: &'static [Column<Self>] = columns! {
        "flow" Flow "The flow's number in all tables." |flow| flow.id.0;
        "client" Address "Address of the endpoint that initiated the flow." |flow| address(flow.client);
        "client_port" Count "Its port." |flow| flow.client.port();
        "server" Address "Address of the other endpoint." |flow| address(flow.server);
        "server_port" Count "Its port." |flow| flow.server.port();
        "local_end" Text "The endpoint on the local side of the capture point: client or server."
            |flow| flow.local.name();
        "started" Time "Time of the first packet." |flow| flow.started();
        "handshake_done" Time "Time of the first acknowledgment of the server's SYN."
            |flow| flow.connection.handshake().done;
        "first_fin" Time "Time of the first FIN." |flow| flow.connection.first_fin();
        "ended" Time "Time of the last packet." |flow| flow.connection.last();
        "duration" Span "From the first packet to the last one."
            |flow| flow.connection.last().since(flow.started());
        "is_valid" Flag "The handshake is complete and there was no RST (campus Wi-Fi, 3.1)."
            |flow| flow.connection.is_valid();
        "has_syn" Flag "The client's SYN is in the capture." |flow| flow.connection.handshake().syn.is_some();
        "syns" Count "Number of SYNs of the client." |flow| flow.connection.handshake().syns;
        "reset_by" Text "Sender of the first RST: client or server."
            |flow| flow.connection.reset().map(|(_, end)| super::name(end));
        both "packets" Count "Packets" |flow, end| flow.connection.packets(end);
        both "data_packets" Count "Data packets; a merged packet counts as its original packets"
            |flow, end| flow.count(end, |counts| counts.data_segments);
        both "bytes" Count "Bytes of payload, including retransmissions"
            |flow, end| flow.connection.bytes(end);
        both "unique_bytes" Count "Bytes of payload, each counted once"
            |flow, end| flow.stream(end).map_or(0, Stream::length);
        both "ip_bytes" Count "Bytes of the IP packets" |flow, end| flow.traffic.ip_bytes(end);
        "is_g1" Flag "The server sent 1 to 10 data packets (campus Wi-Fi, 5.2)."
            |flow| (1..=GROUPS[0]).contains(&flow.data());
        "is_g2" Flag "The server sent at least 10 data packets." |flow| flow.data() >= GROUPS[1];
        "is_g3" Flag "The server sent at least 50 data packets." |flow| flow.data() >= GROUPS[2];
        "rtt" Span "Median round-trip time of the server's data and its acknowledgment, both halves."
            |flow| flow.rtt();
        "rtt_min" Span "The minimum of these times." |flow| least(whole(flow, End::Server));
        "rtt_samples" Count "Number of these samples."
            |flow| whole(flow, End::Server).map_or(0, Samples::count);
        "local_rtt" Span "Median of the half between capture point and local endpoint."
            |flow| flow.local_rtt();
        "local_rtt_min" Span "The minimum of these times." |flow| least(flow.halves(End::Server).0);
        "remote_rtt" Span "Median of the half between capture point and remote endpoint."
            |flow| flow.remote_rtt();
        "remote_rtt_min" Span "The minimum of these times." |flow| flow.remote_rtt_min();
        "rtt_method" Text "Measurement of the far half: by timestamps, or by simulation of Reno's window."
            |flow| flow.method();
        "up_rtt" Span "Like rtt, for the client's data." |flow| median(whole(flow, End::Client));
        "up_rtt_min" Span "The minimum of these times." |flow| least(whole(flow, End::Client));
        "up_local_rtt" Span "Like local_rtt, for the client's data."
            |flow| median(flow.halves(End::Client).0);
        "up_local_rtt_min" Span "The minimum of these times." |flow| least(flow.halves(End::Client).0);
        "up_remote_rtt" Span "Like remote_rtt, for the client's data."
            |flow| median(flow.halves(End::Client).1);
        "up_remote_rtt_min" Span "The minimum of these times." |flow| least(flow.halves(End::Client).1);
        "handshake_server_rtt" Span "From the SYN to the SYN/ACK, if each passed once."
            |flow| flow.connection.handshake().to_server();
        "handshake_client_rtt" Span "From the SYN/ACK to its acknowledgment."
            |flow| flow.connection.handshake().to_client();
        both "again_fast" Count "Segments retransmitted after duplicate acknowledgments or SACK"
            |flow, end| flow.count(end, |counts| counts.again.fast);
        both "again_timeout" Count "Segments retransmitted after a timeout"
            |flow, end| flow.count(end, |counts| counts.again.timeout);
        both "again_probe" Count "Segments retransmitted as tail loss probes"
            |flow, end| flow.count(end, |counts| counts.again.probe);
        both "again_spurious" Count "Segments retransmitted spuriously: the first copy had arrived"
            |flow, end| flow.count(end, |counts| counts.again.spurious);
        both "reordered" Count "Segments that were reordered"
            |flow, end| flow.count(end, |counts| counts.reordered);
        both "duplicated" Count "Packets that the network duplicated"
            |flow, end| flow.count(end, |counts| counts.duplicated);
        both "lost_before" Count "Segments lost between their sender and the capture point"
            |flow, end| flow.count(end, |counts| counts.lost_before);
        both "lost_behind" Count "Segments lost between the capture point and their receiver"
            |flow, end| flow.count(end, |counts| counts.lost_behind);
        "local_loss" Number "Share of both endpoints' data segments that were lost on the local side."
            |flow| flow.loss_rate(true);
        "remote_loss" Number "Share lost on the remote side." |flow| flow.loss_rate(false);
        both "unseen" Count "Bytes that were acknowledged but are not in the capture"
            |flow, end| flow.count(end, |counts| counts.unseen);
        both "ce" Count "Packets with a congestion mark (ECN CE)"
            |flow, end| flow.traffic.marked(end);
        both "ect" Count "Packets of an ECN-capable transport (ECT or CE)" |flow, end| flow.traffic.capable(end);
        "icwnd" Count "The server's initial congestion window, in segments." |flow| flow.first_window().map(|(segments, _)| segments);
        "icwnd_bytes" Count "The server's initial congestion window, in bytes."
            |flow| flow.connection.first_window().map(|estimate| estimate.bytes);
        "icwnd_is_valid" Flag
            "The initial window is an estimate; otherwise a lower bound, because the response is short, paced, or part of the TLS handshake."
            |flow| flow.connection.first_window().map(|estimate| estimate.is_valid);
        "client_mss" Count "Maximum segment size in the client's SYN."
            |flow| flow.connection.hello(End::Client).map(|hello| hello.mss);
        "server_mss" Count "Maximum segment size in the server's SYN."
            |flow| flow.connection.hello(End::Server).map(|hello| hello.mss);
        "client_scale" Count "Window scale of the client, in bits."
            |flow| flow.connection.hello(End::Client).and_then(|hello| hello.scale);
        "client_window_first" Count "The client's first window after its SYN, in bytes."
            |flow| flow.connection.windows(End::Client).map(|windows| windows.first);
        "client_window_min" Count "The client's smallest window, in bytes."
            |flow| flow.connection.windows(End::Client).map(|windows| windows.least);
        "client_window_max" Count "The client's largest window, in bytes."
            |flow| flow.connection.windows(End::Client).map(|windows| windows.most);
        "client_window_closed" Count "Number of times that the client's window closed."
            |flow| flow.connection.windows(End::Client).map(|windows| windows.closed);
        "client_window_limited" Flag "The client's window limited the server at least once."
            |flow| !flow.connection.limited_by(End::Server).span(Limit::ReceiverWindow).is_zero();
        "server_window_max" Count "The server's largest window, in bytes."
            |flow| flow.connection.windows(End::Server).map(|windows| windows.most);
        both "in_flight_max" Count "Maximum number of bytes in flight"
            |flow, end| flow.count(end, |counts| counts.most_in_flight);
        both "limited_by" Text "The sender limit with the longest time: application, think, receiver_window, congestion, loss or start_up"
            |flow, end| flow.limited_by(end);
        both "limited_application" Number "Share of the time between data segments without data to send"
            |flow, end| flow.share(end, Limit::Application);
        both "limited_think" Number "Share between a request and available data"
            |flow, end| flow.share(end, Limit::Think);
        both "limited_receiver_window" Number "Share in which the receiver's window was full"
            |flow, end| flow.share(end, Limit::ReceiverWindow);
        both "limited_congestion" Number "Share in which the path was at capacity and its queue was in use"
            |flow, end| flow.share(end, Limit::Congestion);
        both "limited_loss" Number "Share in which losses without a queue limited the window"
            |flow, end| flow.share(end, Limit::Loss);
        both "limited_start_up" Number "Share in which the congestion window was in initial growth, or a request or its response was in flight"
            |flow, end| flow.share(end, Limit::StartUp);
        both "held_back" Count "Acknowledgments of this data that were probably delayed"
            |flow, end| flow.count(end, |counts| counts.held_back);
        both "keep_alives" Count "Keep-alive probes"
            |flow, end| flow.count(end, |counts| counts.keep_alives);
        both "window_probes" Count "Zero-window probes"
            |flow, end| flow.count(end, |counts| counts.window_probes);
        "protocol" Text "Application protocol: http, tls, dns or other." |flow| flow.application.protocol;
        "name" Name "The best known name of the server."
            |flow| flow.joined.name.as_deref();
        "name_source" Text "Source of the name: http, tls, dns, dns of another (client), hosts or reverse."
            |flow| flow.joined.name_source;
        "domain" Name "The registered domain of the server's name." |flow| flow.joined.domain();
        "requests" Count "Requests of HTTP/1."
            |flow| flow.application.http.as_ref().map(|http| http.requests);
        "has_other_methods" Flag "At least one request has a method other than GET."
            |flow| flow.application.http.as_ref().map(|_| flow.application.has_others);
        "downloading" Span
            "Time from requests to the last bytes of their responses, overlaps counted once."
            |flow| flow.application.http.as_ref().map(|http| http.downloading);
        "downloaded" Count "Bytes of the responses."
            |flow| flow.application.http.as_ref().map(|http| http.downloaded);
        "servicing_rate" Number
            "Downloaded bytes per downloading time, in bit/s: the paper's per-flow servicing rate."
            |flow| flow.application.http.as_ref().and_then(|http| http.servicing_rate())
                .map(|rate| rate.as_bps() as f64);
        "wait_first" Span "From the end of the handshake to the first request: T_S."
            |flow| flow.waits()[0];
        "wait_between" Span "From the ends of responses to the next requests: T_G."
            |flow| flow.waits()[1];
        "wait_last" Span "From the end of the last response to the first FIN: T_F."
            |flow| flow.waits()[2];
        "response_time" Span
            "Median time from a request to its response; inferred if protocol is not http."
            |flow| flow.application.response_times.median();
        "responses" Count "Number of responses with a response time."
            |flow| flow.application.response_times.count();
        "tls_version" Text "TLS version, if known."
            |flow| flow.session().and_then(Session::version).map(|version| version.to_string());
        "sni" Name "The server name in the client's ClientHello."
            |flow| flow.application.server_name();
        "alpn" Text "The application protocols that the client offers, preferred first."
            |flow| flow.application.offer().map(|offer| protocols(&offer.protocols));
        "ja4" Text "The JA4 fingerprint of the client's hello, where all of it was captured."
            |flow| flow.application.offer().and_then(|offer| offer.ja4.as_deref());
        "ech" Flag "The ClientHello has the extension of Encrypted Client Hello, which may be GREASE."
            |flow| flow.application.offer().map(|offer| offer.encrypts_hello);
        "tls_handshake" Span "From the ClientHello to the end of the handshake."
            |flow| flow.session().and_then(Session::handshake_time);
        "tls_resumed" Flag "An earlier session was resumed."
            |flow| flow.session().and_then(Session::is_resumed);
        "organisation" Text "The organisation that owns the server's address."
            |flow| flow.joined.organisation.as_deref();
        "asn" Count "The organisation's autonomous system number." |flow| flow.joined.asn;
        "cdn" Text "The content delivery network." |flow| flow.joined.cdn.as_deref();
        "cluster" Count "Cluster of the organisation's servers, numbered from the nearest, which is 0."
            |flow| flow.joined.cluster.map(|cluster| cluster.0);
        "cluster_rtt" Span "Median round-trip time of the cluster."
            |flow| flow.joined.cluster.map(|cluster| cluster.1);
        "system" Text "The client's operating system." |flow| flow.joined.system();
        "is_handheld" Flag "The client is a phone, a tablet or a watch."
            |flow| flow.joined.is_handheld();
        "device_evidence" Text "Evidence of this: user-agent, concurrent, pool, dhcp or tls."
            |flow| flow.joined.evidence().map(|evidence| evidence.0.name());
        "device_confidence" Number "Confidence in this, from 0 to 1: an estimate."
            |flow| flow.joined.evidence().map(|evidence| evidence.1);
        "concurrency" Number
            "Number of concurrent flows of the client's address, including this flow: counted in bins of 0.3 s and averaged over the flow's life."
            |flow| flow.joined.concurrency;
    };
}
