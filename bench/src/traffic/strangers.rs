//! Strangers that knock on a gateway: connections without a word, or first packets of QUIC clients
//! that do not know it.

use std::collections::{HashSet, VecDeque};
use std::io::{self, ErrorKind, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use manyways_unit::Span;
use quinn::crypto::rustls::QuicClientConfig;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme, version};
use socket2::{Domain, Protocol, Socket, Type};

use super::Measurement;

/// Knock on a gateway from other addresses of 10.128.0.0/9, which must be local ones, until standard
/// input ends. The program prints a line once as many connections are open as stay open, and at the
/// end how many came a second since then. If the time ends first, it reports nothing.
#[derive(clap::Args)]
pub struct StrangersArgs {
    /// The gateway.
    #[arg(long, value_name = "ADDR:PORT")]
    to: SocketAddrV4,
    /// How many networks (/24) they come from.
    #[arg(long, value_name = "N")]
    networks: u32,
    /// How many come in a second.
    #[arg(long, value_name = "N")]
    rate: u32,
    /// For how long at most.
    #[arg(long, value_name = "TIME")]
    length: Span,
    /// First packets of QUIC, and not connections of TCP.
    #[arg(long)]
    quic: bool,
}

/// Connections that stay open; more than a gateway keeps.
const HELD: usize = 600;
/// Different first packets of QUIC.
const PACKETS: usize = 3_000;

/// Round-trip time that a client assumes, so that it does not repeat its first packet meanwhile.
const NO_RETRANSMISSION: Duration = Duration::from_secs(60);

/// Knocks until standard input ends.
///
/// # Errors
/// If the time is over before.
pub fn knock(args: &StrangersArgs) -> io::Result<Measurement> {
    manyways_sys::privilege::raise_file_limit()?;
    let packets = if args.quic { first_packets(PACKETS)? } else { Vec::new() };
    let stopped = input_end();
    let (begun, length) = (Instant::now(), Duration::from(args.length));
    let (mut held, mut number) = (VecDeque::new(), 0);
    let (mut ready, mut noticed) = (begun, 0);
    while !stopped.load(Ordering::Relaxed) {
        if begun.elapsed() > length {
            return Err(io::Error::new(ErrorKind::TimedOut, "the time of the strangers is over"));
        }
        let from = SocketAddr::new(address(number, args.networks), 0);
        let packet = packets.get(number as usize % PACKETS);
        held.push_back(Stranger::come(from, args.to.into(), packet)?);
        if held.len() > HELD {
            noticed += held.pop_front().map_or(0, |oldest| u32::from(oldest.is_noticed()));
        }
        if number as usize == HELD {
            writeln!(io::stdout(), "ready")?;
            ready = Instant::now();
        }
        number += 1;
        let due = begun + Duration::from_secs(1) * number / args.rate;
        sleep(due.saturating_duration_since(Instant::now()));
    }
    Ok(summarize(number.saturating_sub(HELD as u32 + 1), noticed, ready.elapsed()))
}

/// The rate of those that came in a time, and the share of noticed ones among those that left. One
/// more left than came: the first left when the time began.
fn summarize(came: u32, noticed: u32, time: Duration) -> Measurement {
    let share = f64::from(noticed) / f64::from(came + 1);
    Measurement {
        value: f64::from(came) / time.as_secs_f64(),
        extra: [("noticed".to_owned(), share)].into(),
        ..Measurement::default()
    }
}

/// Becomes true at the end of standard input.
fn input_end() -> Arc<AtomicBool> {
    let ended = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&ended);
    std::thread::spawn(move || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        seen.store(true, Ordering::Relaxed);
    });
    ended
}

fn address(number: u32, networks: u32) -> IpAddr {
    let [_, _, high, low] = (number % networks.max(1)).to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(10, 128 + (high & 127), low, (number % 200) as u8 + 1))
}

enum Stranger {
    Connection(Socket),
    Packet(UdpSocket),
}

impl Stranger {
    /// Sends this packet, or else connects.
    fn come(from: SocketAddr, to: SocketAddr, packet: Option<&Vec<u8>>) -> io::Result<Self> {
        if let Some(packet) = packet {
            let socket = UdpSocket::bind(from)?;
            socket.set_nonblocking(true)?;
            socket.send_to(packet, to)?;
            return Ok(Self::Packet(socket));
        }
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
        socket.bind(&from.into())?;
        socket.set_nonblocking(true)?;
        let _ = socket.connect(&to.into());
        Ok(Self::Connection(socket))
    }

    /// Whether the gateway has accepted the connection, also if it closed it since, or has answered
    /// the packet.
    fn is_noticed(&self) -> bool {
        match self {
            Self::Connection(socket) => match socket.take_error() {
                Ok(None) => socket.peer_addr().is_ok(),
                Ok(Some(error)) => {
                    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
                }
                Err(_) => false,
            },
            Self::Packet(socket) => socket.recv(&mut [0; 64]).is_ok(),
        }
    }
}

/// The first packets of so many connections. All connections stay open until the end, because a
/// dropped one sends a packet that closes it, which the gateway would forget at once.
fn first_packets(count: usize) -> io::Result<Vec<Vec<u8>>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let sink = tokio::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let to = sink.local_addr()?;
        let endpoint = quinn::Endpoint::client((Ipv4Addr::LOCALHOST, 0).into())?;
        let tls = QuicClientConfig::try_from(Arc::new(tls()?)).map_err(io::Error::other)?;
        let mut config = quinn::ClientConfig::new(Arc::new(tls));
        let mut transport = quinn::TransportConfig::default();
        transport.initial_rtt(NO_RETRANSMISSION);
        config.transport_config(Arc::new(transport));
        let (mut packets, mut open, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
        while packets.len() < count {
            let connecting = endpoint.connect_with(config.clone(), to, "gateway.invalid");
            open.push(connecting.map_err(io::Error::other)?);
            let mut packet = vec![0; 2_000];
            let length = sink.recv(&mut packet).await?;
            packet.truncate(length);
            // A packet of a connection that has one already would not open another.
            if seen.insert(connection_id(&packet).to_vec()) {
                packets.push(packet);
            }
        }
        Ok(packets)
    })
}

/// The destination of a first packet, by which the gateway distinguishes connections.
fn connection_id(packet: &[u8]) -> &[u8] {
    let length = packet.get(5).copied().unwrap_or_default();
    packet.get(6..6 + usize::from(length)).unwrap_or_default()
}

/// The TLS of a client that accepts any gateway and has no key.
fn tls() -> io::Result<ClientConfig> {
    let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&version::TLS13])
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AcceptAny))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"manyways-bond/1".to_vec()];
    Ok(config)
}

#[derive(Debug)]
struct AcceptAny;

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_come_from_as_many_networks_as_asked() {
        let networks = |count| {
            let all = (0..5_000).map(|number| match address(number, count) {
                IpAddr::V4(address) => u32::from(address) >> 8,
                IpAddr::V6(_) => 0,
            });
            all.collect::<std::collections::BTreeSet<_>>().len()
        };
        assert_eq!((networks(1), networks(1_000)), (1, 1_000));
    }

    #[test]
    fn every_first_packet_opens_a_connection() {
        let packets = first_packets(50).unwrap();
        let ids: HashSet<&[u8]> = packets.iter().map(|packet| connection_id(packet)).collect();
        assert_eq!(ids.len(), 50);
        // The least size of the first packet of a client (RFC 9000, 14.1).
        assert!(packets.iter().all(|packet| packet.len() >= 1200 && packet[0] & 0xf0 == 0xc0));
    }

    #[test]
    fn the_rate_is_that_since_as_many_were_there_as_stay() {
        let measurement = summarize(5_999, 4_500, Duration::from_secs(2));
        assert_eq!((measurement.value, measurement.extra["noticed"]), (2999.5, 0.75));
    }
}
