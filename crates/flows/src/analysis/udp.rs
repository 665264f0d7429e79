//! The row of a UDP flow.

use std::net::SocketAddr;

use super::{FlowId, Joined, Side, tcp};
use crate::columns::columns;
use crate::quic;
use crate::udp::{Flow, Protocol, Sent};
use manyways_record::table::{Column, Row};
use manyways_unit::Samples;
use manyways_wire::stream::End;

/// A UDP flow.
#[derive(Debug)]
pub struct UdpFlow {
    /// Its number in all tables.
    pub id: FlowId,
    /// Who began it.
    pub client: SocketAddr,
    /// The other end.
    pub server: SocketAddr,
    /// What passed.
    pub flow: Flow,
    /// Which end is on the near side of the capture point.
    pub local: Side,
    /// What is known from elsewhere.
    pub joined: Joined,
}

impl UdpFlow {
    fn quic(&self) -> Option<&quic::Flow> {
        self.flow.quic()
    }

    fn sent<T>(&self, end: End, what: impl Fn(&Sent) -> T) -> Option<T> {
        self.flow.sent(end).map(what)
    }

    /// Name and protocols of QUIC's hello.
    pub fn server_name(&self) -> Option<&str> {
        Some(self.quic()?.hello()?.server_name.as_ref()?.as_str())
    }

    /// Bytes of payload: of the client, then of the server.
    pub(super) fn payload(&self) -> [u64; 2] {
        let of = |end| self.sent(end, |sent| sent.payload.as_bytes()).unwrap_or(0);
        [End::Client, End::Server].map(of)
    }

    /// What it speaks, as its row says it.
    pub(super) fn protocol(&self) -> &'static str {
        protocol(self.flow.protocol())
    }

    fn spin(&self, half: impl Fn(&quic::Spin) -> &Samples) -> Option<&Samples> {
        self.quic()?.spin().filter(|spin| spin.is_plausible()).map(half)
    }
}

fn protocol(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Quic => "quic",
        Protocol::MaybeQuic => "maybe quic",
        Protocol::Dns => "dns",
        Protocol::Unknown => "other",
    }
}

impl Row for UdpFlow {
    const TABLE: &'static str = "udp";
    const ABOUT: &'static str = "A UDP flow, of QUIC or anything else.";
    const COLUMNS: &'static [Column<Self>] = columns! {
        "flow" Flow "The flow's number in all tables." |row| row.id.0;
        "client" Address "Address of the end that began." |row| tcp::address(row.client);
        "client_port" Count "Its port." |row| row.client.port();
        "server" Address "Address of the other end." |row| tcp::address(row.server);
        "server_port" Count "Its port." |row| row.server.port();
        "local_end" Text "Which end is on the local side of the capture point: client or server."
            |row| row.local.name();
        "started" Time "When the first packet passed." |row| row.flow.started();
        "ended" Time "When the last packet passed." |row| row.flow.last();
        "duration" Span "From the first packet to the last one."
            |row| row.flow.last().since(row.flow.started());
        "longest_gap" Span "The longest time in which nothing passed." |row| row.flow.longest_gap();
        both "packets" Count "Packets" |row, end| row.sent(end, |sent| sent.packets).unwrap_or(0);
        both "bytes" Count "Bytes of payload"
            |row, end| row.sent(end, |sent| sent.payload.as_bytes()).unwrap_or(0);
        both "ip_bytes" Count "Bytes of the IP packets"
            |row, end| row.sent(end, |sent| sent.whole.as_bytes()).unwrap_or(0);
        both "ce" Count "Packets that a router marked for congestion (ECN)"
            |row, end| row.sent(end, |sent| sent.ecn[3]).unwrap_or(0);
        "protocol" Text
            "What it speaks: quic, maybe quic (the capture began in the middle), dns, or other."
            |row| row.protocol();
        "quic_version" Text "QUIC's version, in hexadecimal digits."
            |row| row.quic().and_then(|quic| quic.version(End::Client)).map(|v| format!("{v:08x}"));
        "name" Name "What the server is called: the best of the names below."
            |row| row.joined.name.as_deref();
        "name_source" Text "Where that is from: tls, dns, dns of another (client), hosts or reverse."
            |row| row.joined.name_source;
        "domain" Name "The registered domain of that name." |row| row.joined.domain();
        "sni" Name "The server's name in QUIC's hello." |row| row.server_name();
        "alpn" Text "The application protocols that the client offers, the best one first."
            |row| row.quic().and_then(|q| q.hello()).map(|hello| tcp::protocols(&hello.protocols));
        "ja4" Text "The JA4 fingerprint of QUIC's hello, where all of it was captured."
            |row| row.quic().and_then(|quic| quic.hello()?.ja4.as_deref());
        "handshake_server_rtt" Span "From the client's first flight to the server's answer."
            |row| row.quic().and_then(|quic| quic.handshake().to_server());
        "handshake_client_rtt" Span "From that answer to the client's reply."
            |row| row.quic().and_then(|quic| quic.handshake().to_client());
        "spin_rtt" Span "Median round trip by the spin bit, where it moves."
            |row| row.spin(quic::Spin::whole).and_then(Samples::median);
        "spin_samples" Count "How many round trips that is of."
            |row| row.spin(quic::Spin::whole).map(Samples::count);
        "response_time" Span "Median time to a response, inferred from changes of direction."
            |row| row.quic().and_then(|quic| quic.inferred_response_times().median());
        "retried" Flag "The server sent a Retry." |row| row.quic().map(quic::Flow::was_retried);
        "early_data" Flag "The client sent 0-RTT data."
            |row| row.quic().map(quic::Flow::has_early_data);
        "organisation" Text "Who runs the server's address."
            |row| row.joined.organisation.as_deref();
        "asn" Count "The number of its autonomous system." |row| row.joined.asn;
        "cdn" Text "The content network." |row| row.joined.cdn.as_deref();
        "system" Text "The client's operating system." |row| row.joined.system();
        "is_handheld" Flag "The client is a phone, a tablet or a watch." |row| row.joined.is_handheld();
    };
}
