//! Row of a UDP flow.

use std::net::SocketAddr;

use super::{Enrichment, FlowId, LocalEndpoint, tcp};
use crate::columns::{SCHEMA, columns};
use crate::quic;
use crate::udp::{Flow, Protocol, SenderStats};
use manyways_record::table::{Column, Row};
use manyways_unit::Samples;
use manyways_wire::quic::version;
use manyways_wire::stream::Endpoint;

/// A UDP flow that has ended.
#[derive(Debug)]
pub struct UdpFlow {
    pub id: FlowId,
    /// The sender of the first datagram.
    pub client: SocketAddr,
    pub server: SocketAddr,
    pub flow: Flow,
    /// The endpoint on the local side of the capture point.
    pub local: LocalEndpoint,
    pub enrichment: Enrichment,
}

impl UdpFlow {
    fn quic(&self) -> Option<&quic::Flow> {
        self.flow.quic()
    }

    fn sent<T>(&self, end: Endpoint, what: impl Fn(&SenderStats) -> T) -> Option<T> {
        self.flow.sent(end).map(what)
    }

    /// Server name in the ClientHello of QUIC (SNI), if it is a host name.
    pub fn server_name(&self) -> Option<&str> {
        Some(self.quic()?.client_hello()?.server_name.as_ref()?.as_str())
    }

    /// The version of QUIC, if its ClientHello cannot be decrypted.
    pub(super) fn undecrypted_version(&self) -> Option<u32> {
        self.quic()?.undecrypted_version()
    }

    /// Payload bytes of the client, then of the server.
    pub(super) fn payload(&self) -> [u64; 2] {
        let of = |end| self.sent(end, |sent| sent.payload.as_bytes()).unwrap_or(0);
        [Endpoint::Client, Endpoint::Server].map(of)
    }

    /// Returns the value of the column `protocol`.
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
    const SCHEMA: &'static str = SCHEMA;
    const ABOUT: &'static str = "A UDP flow, of QUIC or anything else.";
    const COLUMNS: &'static [Column<Self>] = columns! {
        "flow" Flow "The flow's number in all tables." |row| row.id.0;
        "client" Address "Address of the endpoint that initiated the flow." |row| tcp::address(row.client);
        "client_port" Count "Its port." |row| row.client.port();
        "server" Address "Address of the other endpoint." |row| tcp::address(row.server);
        "server_port" Count "Its port." |row| row.server.port();
        "local_end" Text "The endpoint on the local side of the capture point: client or server."
            |row| row.local.name();
        "started" Time "Time of the earliest packet." |row| row.flow.started();
        "ended" Time "Time of the latest packet." |row| row.flow.last();
        "duration" Span "From the earliest packet to the latest one."
            |row| row.flow.last().since(row.flow.started());
        "longest_gap" Span "The longest time without a packet." |row| row.flow.longest_gap();
        both "packets" Count "Packets" |row, end| row.sent(end, |sent| sent.packets).unwrap_or(0);
        both "bytes" Count "Bytes of payload"
            |row, end| row.sent(end, |sent| sent.payload.as_bytes()).unwrap_or(0);
        both "ip_bytes" Count "Bytes of the IP packets"
            |row, end| row.sent(end, |sent| sent.ip_size.as_bytes()).unwrap_or(0);
        both "ce" Count "Packets with a congestion mark (ECN CE)"
            |row, end| row.sent(end, |sent| sent.ecn[3]).unwrap_or(0);
        "protocol" Text
            "Protocol: quic, maybe quic (the capture began in the middle), dns, or other."
            |row| row.protocol();
        "quic_version" Text "QUIC's version, in hexadecimal digits."
            |row| row.quic().and_then(|quic| quic.version(Endpoint::Client)).map(|v| format!("{v:08x}"));
        "quic_undecrypted" Text
            "Name of the version, if the ClientHello could not be decrypted because the keys of the \
             version are not known: draft-29, Q046, T051, mvfst faceb002, or a number."
            |row| row.undecrypted_version().map(version::name);
        "name" Name "The best known host name of the server."
            |row| row.enrichment.name.as_deref();
        "name_source" Text "Source of the name: tls, dns, dns of another (client), hosts or reverse."
            |row| row.enrichment.name_source;
        "domain" Name "The registered domain of the server's name." |row| row.enrichment.domain();
        "sni" Name "The server name in the ClientHello of QUIC, as sent."
            |row| row.quic().and_then(|quic| quic.client_hello()?.sni());
        "alpn" Text "The application protocols that the client offers, preferred first."
            |row| row.quic().and_then(|q| q.client_hello()).map(|hello| tcp::alpn_list(&hello.protocols));
        "ja4" Text "The JA4 fingerprint of QUIC's hello, where all of it was captured."
            |row| row.quic().and_then(|quic| quic.client_hello()?.ja4.as_deref());
        "handshake_server_rtt" Span "From the client's first flight to the server's response."
            |row| row.quic().and_then(|quic| quic.handshake().server_rtt());
        "handshake_client_rtt" Span "From the server's response to the client's reply."
            |row| row.quic().and_then(|quic| quic.handshake().client_rtt());
        "spin_rtt" Span "Median round-trip time by the spin bit, if the endpoints support it."
            |row| row.spin(quic::Spin::full_rtt).and_then(Samples::median);
        "spin_samples" Count "Number of these round trips."
            |row| row.spin(quic::Spin::full_rtt).map(Samples::count);
        "response_time" Span "Median time to a response, inferred from changes of direction."
            |row| row.quic().and_then(|quic| quic.inferred_response_times().median());
        "retried" Flag "The server sent a Retry." |row| row.quic().map(quic::Flow::was_retried);
        "early_data" Flag "The client sent 0-RTT data."
            |row| row.quic().map(quic::Flow::has_early_data);
        "organisation" Text "The organisation that owns the server's address."
            |row| row.enrichment.organisation.as_deref();
        "asn" Count "The organisation's autonomous system number." |row| row.enrichment.asn;
        "cdn" Text "The content delivery network." |row| row.enrichment.cdn.as_deref();
        "system" Text "The client's operating system." |row| row.enrichment.system();
        "is_handheld" Flag "The client is a phone, a tablet or a watch." |row| row.enrichment.is_handheld();
    };
}
