use std::sync::Arc;

use Endpoint::{Client, Server};
use manyways_unit::Size;
use proptest::prelude::*;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, SupportedKxGroup, ring};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    ClientConfig, ClientConnection, Connection, DigitallySignedStruct, Error, ServerConfig,
    ServerConnection, SignatureScheme, SupportedProtocolVersion, version,
};

use super::*;
use crate::sample::{extension, message, records, sized, sni};

/// One-way delay between the endpoints.
const ONE_WAY_DELAY: Span = Span::from_millis(20);

/// A verifier that accepts every certificate.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify_tls12_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}

fn provider(groups: &[&'static dyn SupportedKxGroup]) -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider { kx_groups: groups.to_vec(), ..ring::default_provider() })
}

const OLD: &[&SupportedProtocolVersion] = &[&version::TLS12];
const ALL: &[&SupportedProtocolVersion] = &[&version::TLS13, &version::TLS12];

fn client(versions: &[&'static SupportedProtocolVersion]) -> ClientConfig {
    let groups = [ring::kx_group::X25519, ring::kx_group::SECP256R1];
    let builder = ClientConfig::builder_with_provider(provider(&groups));
    let mut config = builder
        .with_protocol_versions(versions)
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}

/// A server with a certificate of this length.
fn server(group: &'static dyn SupportedKxGroup, certificate: usize) -> ServerConfig {
    use ::ring::rand::SystemRandom;
    use ::ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
    let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &SystemRandom::new());
    let key = PrivatePkcs8KeyDer::from(key.unwrap().as_ref().to_vec());
    let key = ring::sign::any_ecdsa_type(&key.into()).unwrap();
    let certified = CertifiedKey::new(vec![vec![7; certificate].into()], key);
    let mut config = ServerConfig::builder_with_provider(provider(&[group]))
        .with_protocol_versions(ALL)
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    config.alpn_protocols = vec![b"h2".to_vec()];
    config.max_early_data_size = 16 * 1024;
    config.ticketer = ring::Ticketer::new().unwrap();
    config
}

fn usual() -> ServerConfig {
    server(ring::kx_group::X25519, 3000)
}

/// A server with session IDs instead of tickets.
fn without_tickets() -> ServerConfig {
    let mut config = usual();
    config.ticketer = ServerConfig::builder_with_provider(provider(&[ring::kx_group::X25519]))
        .with_protocol_versions(ALL)
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(config.cert_resolver.clone())
        .ticketer;
    config
}

/// Data captured at the client, with sender and time.
type Passed = Vec<(Endpoint, Time, Vec<u8>)>;

/// A client and a server with a one-way delay of 20 ms. Consecutive data of an endpoint is one
/// part.
struct Pair {
    client: Connection,
    server: Connection,
    now: Time,
    passed: Passed,
}

impl Pair {
    fn new(client: &Arc<ClientConfig>, server: &Arc<ServerConfig>) -> Self {
        let name = ServerName::try_from("shop.example.com").unwrap();
        Self {
            client: ClientConnection::new(client.clone(), name).unwrap().into(),
            server: ServerConnection::new(server.clone()).unwrap().into(),
            now: Time::from_millis(1000),
            passed: Vec::new(),
        }
    }

    /// Exchanges data until neither endpoint has more.
    fn run(&mut self) {
        loop {
            let asked = carry(&mut self.client, &mut self.server);
            if !asked.is_empty() {
                self.passed.push((Client, self.now, asked));
            }
            self.now += ONE_WAY_DELAY * 2;
            let answered = carry(&mut self.server, &mut self.client);
            if answered.is_empty() {
                return;
            }
            self.passed.push((Server, self.now, answered));
        }
    }

    fn client_says(&mut self, bytes: usize) {
        write(&mut self.client, bytes);
    }

    fn server_says(&mut self, bytes: usize) {
        write(&mut self.server, bytes);
    }
}

fn write(end: &mut Connection, bytes: usize) {
    use std::io::Write as _;
    end.set_buffer_limit(None);
    end.writer().write_all(&vec![0; bytes]).unwrap();
}

/// Transfers the pending data of one endpoint to the other.
fn carry(from: &mut Connection, to: &mut Connection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while from.wants_write() {
        from.write_tls(&mut bytes).unwrap();
    }
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        to.read_tls(&mut rest).unwrap();
        to.process_new_packets().unwrap();
        let there = to.process_new_packets().unwrap().plaintext_bytes_to_read();
        std::io::copy(&mut std::io::Read::take(to.reader(), there as u64), &mut std::io::sink())
            .unwrap();
    }
    bytes
}

/// A complete connection: the handshake, a request of 300 bytes and its response of 20,000 bytes
/// after another 60 ms, then a second request and response.
fn conversation(client: ClientConfig, server: ServerConfig) -> Pair {
    let mut pair = Pair::new(&Arc::new(client), &Arc::new(server));
    pair.run();
    talk(&mut pair);
    pair
}

fn talk(pair: &mut Pair) {
    for (request, response) in [(300, 20_000), (100, 50)] {
        pair.now += Span::from_secs(1);
        pair.client_says(request);
        let asked = carry(&mut pair.client, &mut pair.server);
        pair.passed.push((Client, pair.now, asked));
        pair.now += ONE_WAY_DELAY * 5;
        pair.server_says(response);
        let answered = carry(&mut pair.server, &mut pair.client);
        pair.passed.push((Server, pair.now, answered));
    }
    pair.now += Span::from_secs(1);
    pair.client.send_close_notify();
    let closed = carry(&mut pair.client, &mut pair.server);
    pair.passed.push((Client, pair.now, closed));
    pair.now += ONE_WAY_DELAY * 2;
    pair.server.send_close_notify();
    let closed = carry(&mut pair.server, &mut pair.client);
    pair.passed.push((Server, pair.now, closed));
}

/// Follows a session with packets of at most `packet` bytes, of which `snap` bytes are captured.
fn follow(mut session: Session, passed: &Passed, packet: usize, snap: usize) -> Followed {
    let mut exchanges = Vec::new();
    for (from, at, bytes) in passed {
        for packet in bytes.chunks(packet) {
            let known = &packet[..packet.len().min(snap)];
            session.handle(*from, &Piece { at: *at, bytes: known, length: packet.len() as u64 });
            exchanges.extend(session.poll());
        }
    }
    session.end();
    exchanges.extend(session.poll());
    assert_eq!(session.exchanges(), exchanges.len() as u64);
    Followed { session, exchanges }
}

struct Followed {
    session: Session,
    exchanges: Vec<Exchange>,
}

impl Followed {
    /// All public results of the session as text.
    fn told(&self) -> String {
        let session = &self.session;
        let (client_hello, server_hello) = (session.client_hello(), session.server_hello());
        let said = (session.is_tls(), session.version(), session.has_retry_request());
        let rest =
            (session.is_resumed(), session.times(), session.closed(), session.boundary_losses());
        format!(
            "{client_hello:?} {server_hello:?} {said:?} {rest:?} {:?} {:?}",
            session.alerts(),
            self.exchanges
        )
    }

    /// Checks the requests of 300 and of 100 bytes.
    fn check_talk(&self) {
        let [.., first, second] = self.exchanges.as_slice() else { panic!("{:?}", self.exchanges) };
        assert_eq!(first.response_time(), ONE_WAY_DELAY * 5);
        assert_eq!(second.response_time(), ONE_WAY_DELAY * 5);
        let sizes = |one: &Exchange| (one.request.as_bytes(), one.response.as_bytes());
        // Two records for 20,000 bytes; each has a header and an authentication tag.
        assert!((321..=330).contains(&sizes(first).0), "{first:?}");
        assert!((20_042..=20_060).contains(&sizes(first).1), "{first:?}");
        assert!((121..=130).contains(&sizes(second).0), "{second:?}");
        assert!((71..=80).contains(&sizes(second).1), "{second:?}");
    }
}

fn ms(millis: u64) -> Option<Time> {
    Some(Time::from_millis(millis))
}

#[test]
fn a_new_session_of_tls_1_3() {
    let pair = conversation(client(ALL), usual());
    let all = follow(Session::default(), &pair.passed, 1448, usize::MAX);
    let session = &all.session;
    assert_eq!(session.is_tls(), Some(true));
    let client_hello = session.client_hello().unwrap();
    assert!(
        client_hello.is_complete
            && !client_hello.has_ech
            && !client_hello.has_psk
            && !client_hello.has_early_data
    );
    assert_eq!(client_hello.server_name.as_ref().unwrap().as_str(), "shop.example.com");
    assert_eq!(*client_hello.protocols, [b"h2".to_vec(), b"http/1.1".to_vec()]);
    assert_eq!(*client_hello.versions, [Version::TLS_1_3, Version::TLS_1_2]);
    assert_eq!(client_hello.newest_version(), Some(Version::TLS_1_3));
    assert!(client_hello.ja4.as_ref().unwrap().starts_with("t13d"), "{client_hello:?}");
    let server_hello = session.server_hello().unwrap();
    assert!(server_hello.is_complete);
    assert_eq!(
        (server_hello.version, server_hello.protocol.as_ref()),
        (Some(Version::TLS_1_3), None)
    );
    assert_eq!(server_hello.cipher_suite, Some(0x1302));
    assert_eq!((session.is_resumed(), session.has_retry_request()), (Some(false), Some(false)));
    let times = session.times();
    assert_eq!((times.client_hello, times.server_hello), (ms(1000), ms(1040)));
    assert_eq!(
        (times.handshake_end, session.handshake_time()),
        (ms(1040), Some(ONE_WAY_DELAY * 2))
    );
    // The server sends only session tickets before the first request.
    assert_eq!((times.server_data, times.client_data), (ms(1080), ms(2120)));
    assert_eq!((session.boundary_losses(), session.alerts()), (0, &[][..]));
    assert_eq!(session.closed().map(|closed| closed.1), Some(Client));
    assert_eq!(all.exchanges.len(), 2);
    all.check_talk();
}

#[test]
fn a_new_session_of_tls_1_2() {
    let pair = conversation(client(OLD), usual());
    let all = follow(Session::default(), &pair.passed, 1448, usize::MAX);
    let session = &all.session;
    let client_hello = session.client_hello().unwrap();
    assert!(client_hello.ja4.as_ref().unwrap().starts_with("t12d"), "{client_hello:?}");
    let server_hello = session.server_hello().unwrap();
    assert_eq!(server_hello.version, Some(Version::TLS_1_2));
    assert_eq!(server_hello.protocol.as_deref(), Some(&b"h2"[..]));
    assert_eq!((session.is_resumed(), session.has_retry_request()), (Some(false), Some(false)));
    let times = session.times();
    // ClientHello at 1000 ms, ServerHello and client keys at 1040 ms, then the server's Finished.
    assert_eq!((times.client_hello, times.server_hello), (ms(1000), ms(1040)));
    assert_eq!(
        (times.handshake_end, session.handshake_time()),
        (ms(1080), Some(ONE_WAY_DELAY * 4))
    );
    assert_eq!(session.closed().map(|closed| closed.1), Some(Client));
    assert_eq!(all.exchanges.len(), 2);
    all.check_talk();
}

/// The second of two connections with the same configurations.
fn resumed(versions: &[&'static SupportedProtocolVersion], early: usize) -> Pair {
    let mut config = client(versions);
    config.enable_early_data = early > 0;
    let mut server = usual();
    if early > 0 {
        // A server with early data must detect replays.
        server.ticketer = without_tickets().ticketer;
    }
    let (client, server) = (Arc::new(config), Arc::new(server));
    let mut pair = Pair::new(&client, &server);
    pair.run();
    let mut pair = Pair::new(&client, &server);
    if early > 0 {
        use std::io::Write as _;
        let Connection::Client(client) = &mut pair.client else { unreachable!() };
        client.early_data().unwrap().write_all(&vec![0; early]).unwrap();
    }
    pair.run();
    talk(&mut pair);
    pair
}

#[test]
fn resumed_sessions_are_recognized() {
    let all = follow(Session::default(), &resumed(OLD, 0).passed, 1448, usize::MAX);
    assert_eq!(all.session.version(), Some(Version::TLS_1_2));
    assert_eq!(all.session.is_resumed(), Some(true));
    // The client's Finished is the last handshake message.
    assert_eq!(all.session.times().handshake_end, ms(1040));
    all.check_talk();

    let all = follow(Session::default(), &resumed(ALL, 0).passed, 1448, usize::MAX);
    assert_eq!(all.session.version(), Some(Version::TLS_1_3));
    assert_eq!(all.session.is_resumed(), Some(true));
    assert!(all.session.client_hello().unwrap().has_psk);
    assert_eq!(all.session.times().handshake_end, ms(1040));
    all.check_talk();
}

#[test]
fn early_data_does_not_end_the_handshake() {
    for early in [48, 5000] {
        let pair = resumed(ALL, early);
        assert_eq!(pair.passed[0].0, Client);
        assert!(pair.passed[0].2.len() > 200 + early);
        // Some early data arrives after the ServerHello.
        let mut late = pair.passed.clone();
        let rest = late[0].2.split_off(pair.passed[0].2.len() - early / 2);
        late.insert(2, (Client, Time::from_millis(1040), rest));
        for passed in [&pair.passed, &late] {
            let all = follow(Session::default(), passed, 1448, usize::MAX);
            assert!(all.session.client_hello().unwrap().has_early_data);
            let times = all.session.times();
            assert_eq!((times.handshake_end, times.client_data), (ms(1040), ms(2120)), "{early}");
            all.check_talk();
        }
    }
}

#[test]
fn a_hello_retry_request_precedes_a_second_hello() {
    let pair = conversation(client(ALL), server(ring::kx_group::SECP256R1, 500));
    let all = follow(Session::default(), &pair.passed, 1448, usize::MAX);
    let session = &all.session;
    assert_eq!(session.has_retry_request(), Some(true));
    assert_eq!(session.version(), Some(Version::TLS_1_3));
    assert_eq!(session.is_resumed(), Some(false));
    let times = session.times();
    assert_eq!((times.client_hello, times.server_hello), (ms(1000), ms(1040)));
    assert_eq!(times.handshake_end, ms(1080));
    all.check_talk();
}

#[test]
fn truncated_packets_yield_all_that_headers_show() {
    // A snap length of 96 leaves 30 bytes of TCP data with timestamps, or 42 without.
    for snap in [30, 42] {
        let pair = conversation(client(ALL), usual());
        let all = follow(Session::default(), &pair.passed, 1448, snap);
        let session = &all.session;
        assert_eq!(session.is_tls(), Some(true));
        let client_hello = session.client_hello().unwrap();
        assert!(
            !client_hello.is_complete
                && client_hello.ja4.is_none()
                && client_hello.server_name.is_none()
        );
        assert_eq!(
            (client_hello.newest_version(), client_hello.legacy_version),
            (None, Version::TLS_1_2)
        );
        assert_eq!(session.server_hello().unwrap().cipher_suite, None);
        assert_eq!((session.is_resumed(), session.has_retry_request()), (None, Some(false)));
        // Recognized because everything after the ServerHello is encrypted.
        assert_eq!(session.version(), Some(Version::TLS_1_3));
        assert_eq!(session.times().client_hello, ms(1000));
        assert_eq!(session.times().handshake_end, ms(1040));
        // After the ServerHello, and within the long response.
        assert!(session.boundary_losses() >= 2, "{}", session.boundary_losses());
        all.check_talk();

        for server in [usual(), without_tickets()] {
            let pair = conversation(client(OLD), server);
            let all = follow(Session::default(), &pair.passed, 1448, snap);
            assert_eq!(all.session.version(), None);
            assert_eq!(all.session.times().handshake_end, ms(1080));
            all.check_talk();
        }
        let pair = resumed(OLD, 0);
        let all = follow(Session::default(), &pair.passed, 1448, snap);
        assert_eq!(all.session.times().handshake_end, ms(1040));
        all.check_talk();
    }
    // Not even a header is captured.
    let pair = conversation(client(ALL), usual());
    let none = follow(Session::default(), &pair.passed, 1448, 4);
    assert_eq!((none.session.is_tls(), none.exchanges.len()), (None, 0));
    assert_eq!(none.session.times(), Times::default());
    // With IPv6 and timestamps, ten bytes remain.
    let few = follow(Session::default(), &pair.passed, 1448, 10);
    assert_eq!(few.session.is_tls(), Some(true));
    assert_eq!(few.session.times().client_hello, ms(1000));
}

#[test]
fn a_session_is_followed_from_its_middle() {
    for versions in [ALL, OLD] {
        let pair = conversation(client(versions), usual());
        // After the handshake, in the middle of a record.
        let at = pair.passed.iter().position(|part| part.1 > Time::from_millis(2000)).unwrap();
        let mut passed = pair.passed[at..].to_vec();
        passed.insert(0, (Server, Time::from_millis(1900), vec![0x55; 700]));
        let all = follow(Session::midway(), &passed, 1448, usize::MAX);
        assert_eq!(all.session.is_tls(), Some(true));
        assert_eq!((all.session.client_hello(), all.session.server_hello()), (None, None));
        assert_eq!(all.session.version(), None);
        let times = all.session.times();
        assert_eq!(
            (times.client_hello, times.server_hello, times.handshake_end),
            (None, None, None)
        );
        assert_eq!(all.session.handshake_time(), None);
        all.check_talk();
        // The capture missed the first packets of the connection.
        let mut torn = Session::default();
        torn.handle(Client, &Piece::uncaptured(Time::ZERO, 517));
        torn.handle(Server, &Piece::uncaptured(Time::ZERO, 3000));
        let torn = follow(torn, &passed, 1448, usize::MAX);
        assert_eq!(torn.session.is_tls(), Some(true));
        torn.check_talk();
    }
}

#[test]
fn a_missing_packet_of_the_handshake_leaves_its_end_unknown() {
    let pair = conversation(client(ALL), usual());
    let mut session = Session::default();
    let mut exchanges = Vec::new();
    for (offset, (from, at, bytes)) in pair.passed.iter().enumerate() {
        let bytes = bytes.as_slice();
        let piece = match offset {
            // The client's Finished message.
            2 => Piece::uncaptured(*at, bytes.len() as u64),
            _ => Piece::captured(*at, bytes),
        };
        session.handle(*from, &piece);
        exchanges.extend(session.poll());
    }
    session.end();
    exchanges.extend(session.poll());
    assert_eq!(session.version(), Some(Version::TLS_1_3));
    assert_eq!((session.times().handshake_end, session.boundary_losses()), (None, 1));
    let all = Followed { session, exchanges };
    all.check_talk();
}

#[test]
fn a_lost_boundary_is_found_at_the_beginning_of_a_packet_only() {
    let record = |length: usize| [&[23, 3, 3][..], &sized(2, &vec![0x17; length])].concat();
    let mut session = Session::midway();
    let mut at = 0;
    let mut say = |session: &mut Session, from, bytes: &[u8], length: u64| {
        at += 10;
        session.handle(from, &Piece { at: Time::from_millis(at), bytes, length });
    };
    say(&mut session, Client, &record(100), 105);
    assert_eq!((session.is_tls(), session.boundary_losses()), (Some(true), 0));
    // A record of 1,000 bytes, of which 50 are captured; the next header is missing.
    let long = record(1000);
    say(&mut session, Server, &long[..50], 1200);
    assert_eq!(session.boundary_losses(), 1);
    // A header in the middle of a packet does not count.
    let inside = [&[0; 3][..], &record(30)].concat();
    say(&mut session, Server, &inside, inside.len() as u64);
    say(&mut session, Server, &record(200), 205);
    assert_eq!(session.boundary_losses(), 1);
    // Record boundaries are known again: an invalid header is a new loss.
    say(&mut session, Server, b"GET / HTTP/1.1", 14);
    assert_eq!(session.boundary_losses(), 2);
    session.end();
    let one = session.poll().unwrap();
    assert_eq!((one.request, one.response_time()), (Size::from_bytes(105), Span::from_millis(10)));
    let response = 1200 + inside.len() as u64 + 205;
    assert!((response..=response + 14).contains(&one.response.as_bytes()), "{one:?}");
}

#[test]
fn other_protocols_are_recognized_at_once() {
    let long = [&[22, 3, 1][..], &sized(2, &[0; 100])].concat();
    for (from, bytes) in [
        (Client, &b"G"[..]),
        (Client, b"SSH-2.0"),
        (Server, b"220 mail.example"),
        (Server, b"SSH-2.0"),
        // A record of another version, an empty one, and one that is too long.
        (Client, b"\x16\x02"),
        (Client, b"\x16\x03\x01\0\0"),
        (Client, b"\x16\x03\x01\x48\x01"),
        // Records that cannot begin a session.
        (Client, b"\x17\x03\x03\0\x50"),
        (Server, b"\x14\x03\x03\0\x01\x01"),
        (Client, &long),
        // A ServerHello from the client.
        (Client, b"\x16\x03\x03\0\x7a\x02\0\0\x76"),
    ] {
        let mut session = Session::default();
        session.handle(from, &Piece::captured(Time::ZERO, bytes));
        assert_eq!(session.is_tls(), Some(false), "{bytes:02x?}");
        // The result is final.
        let hello = records(&message(&[sni(b"a.example")]), 600);
        session.handle(Client, &Piece::captured(Time::ZERO, &hello));
        assert_eq!((session.is_tls(), session.client_hello()), (Some(false), None));
    }
    let mut session = Session::default();
    assert_eq!(session.is_tls(), None);
    session.handle(Server, &Piece::captured(Time::ZERO, b"\x16\x03\x03"));
    assert_eq!(session.is_tls(), None);
}

#[test]
fn a_connection_midway_without_records_is_not_tls() {
    let mut session = Session::midway();
    for packet in 0..MAX_FAILED_RESYNCS {
        assert_eq!(session.is_tls(), None, "{packet}");
        session.handle(Server, &Piece::uncaptured(Time::ZERO, 1448));
        session.handle(Client, &Piece::captured(Time::ZERO, b"\x17\x03\x05\0\x20 and more"));
    }
    assert_eq!(session.is_tls(), Some(false));
}

fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    [&[kind, 3, 3][..], &sized(2, content)].concat()
}

/// A ServerHello with this random value, of TLS 1.3 or of an earlier version.
fn answer(random: [u8; 32], is_new: bool) -> Vec<u8> {
    let version = if is_new { extension(43, &[3, 4]) } else { Vec::new() };
    let body = [&[3, 3][..], &random, &[0, 0xc0, 0x2f, 0], &sized(2, &version)].concat();
    record(22, &[&[2][..], &sized(3, &body)].concat())
}

/// Time at which the handshake ended, with parts 10 ms apart.
fn over(parts: &[(Endpoint, Vec<u8>)]) -> Option<Time> {
    let mut session = Session::default();
    for (offset, (from, bytes)) in parts.iter().enumerate() {
        session.handle(*from, &Piece::captured(Time::from_millis(offset as u64 * 10), bytes));
    }
    assert_eq!(session.is_tls(), Some(true));
    session.times().handshake_end
}

#[test]
fn an_encrypted_message_is_not_taken_for_a_hello() {
    let [changed, key] = [record(20, &[1]), record(22, &[16, 0, 0, 1, 0])];
    let sealed = |first: u8| record(22, &[&[first, 0, 0, 60][..], &[5; 36]].concat());
    let parts = [
        (Client, records(&message(&[sni(b"a.example")]), 600)),
        (Server, answer([7; 32], false)),
        (Client, [key, changed.clone(), sealed(1)].concat()),
        (Server, changed),
        (Server, sealed(2)),
    ];
    assert_eq!(over(&parts), ms(40));
    // The client's Finished does not end the handshake, because it sent a key exchange.
    assert_eq!(over(&parts[..4]), None);
}

#[test]
fn a_client_certificate_begins_the_last_flight() {
    let parts = [
        (Client, records(&message(&[sni(b"a.example")]), 600)),
        (Server, answer([7; 32], true)),
        (Client, record(23, &[5; 811])),
    ];
    assert_eq!(over(&parts), ms(20));
}

#[test]
fn early_data_around_a_hello_retry_request_ends_no_handshake() {
    let retry = [
        0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8,
        0x91, 0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8,
        0x33, 0x9c,
    ];
    let hello = records(&message(&[extension(42, &[]), sni(b"a.example")]), 600);
    let parts = [
        (Client, hello.clone()),
        (Client, record(23, &[5; 100])),
        (Server, answer(retry, true)),
        (Client, record(23, &[5; 69])),
        (Client, hello),
        (Server, answer([7; 32], true)),
        (Client, record(23, &[5; 69])),
    ];
    assert_eq!(over(&parts), ms(60));
    assert_eq!(over(&parts[..6]), None);
}

#[test]
fn alerts_in_the_clear() {
    let hello = records(&message(&[sni(b"a.example")]), 600);
    let mut session = Session::default();
    session.handle(Client, &Piece::captured(Time::from_millis(5), &hello));
    // One alert in two pieces, and one with its header only.
    let at = Time::from_millis(9);
    session.handle(Server, &Piece::captured(at, b"\x15\x03\x03\0\x02\x02"));
    session.handle(Server, &Piece::captured(Time::from_millis(10), b"\x28"));
    session.handle(Server, &Piece { at, bytes: b"\x15\x03\x03\0\x02\x02", length: 7 });
    let alert = Alert { at, from: Server, level: 2, description: 40 };
    assert_eq!((session.alerts(), session.closed()), (&[alert][..], None));
    for _ in 0..MAX_ALERTS {
        session.handle(Client, &Piece::captured(at, b"\x15\x03\x03\0\x02\x01\0"));
    }
    assert_eq!(session.alerts().len(), MAX_ALERTS);
    assert_eq!(session.closed(), Some((at, Client)));
}

#[test]
fn a_hello_may_be_spread_over_records_and_end_early() {
    let message = message(&[extension(0xfe0d, &[2; 300]), sni(b"a.example")]);
    let expected = ClientHelloDetails::read(&message, crate::tls::Transport::Tcp);
    assert!(
        expected
            .as_ref()
            .is_some_and(|client_hello| client_hello.is_complete && client_hello.has_ech)
    );
    for size in [1, 3, 4, 50, 1000] {
        let mut session = Session::default();
        for (offset, byte) in records(&message, size).chunks(1).enumerate() {
            session.handle(Client, &Piece::captured(Time::from_millis(offset as u64), byte));
        }
        assert_eq!(session.client_hello(), expected.as_ref(), "{size}");
        assert_eq!(session.times().client_hello, Some(Time::ZERO), "{size}");
    }
    // The hello is read when the connection ends, or when another record follows.
    let cut = &records(&message, 1000)[..100];
    let mut session = Session::default();
    session.handle(Client, &Piece::captured(Time::ZERO, cut));
    assert_eq!(session.client_hello(), None);
    session.end();
    assert_eq!(session.client_hello().map(|client_hello| client_hello.is_complete), Some(false));
    let mut session = Session::default();
    session.handle(Client, &Piece::captured(Time::ZERO, &records(&message[..90], 1000)));
    session.handle(Client, &Piece::captured(Time::ZERO, b"\x15\x03\x03\0\x02\x02\x28"));
    assert_eq!(session.client_hello().map(|client_hello| client_hello.is_complete), Some(false));
}

#[test]
fn a_hello_that_is_too_long_is_not_kept() {
    let mut session = Session::default();
    session.handle(Client, &Piece::captured(Time::ZERO, b"\x16\x03\x01\x40\0\x01\xff\xff\xff"));
    for _ in 0..100 {
        session.handle(Client, &Piece::captured(Time::ZERO, &[3; 1000]));
    }
    assert_eq!(session.client.sender.message, None);
    assert_eq!((session.is_tls(), session.client_hello()), (Some(true), None));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn results_do_not_depend_on_packet_boundaries(
        versions in prop::sample::select(vec![ALL, OLD]),
        certificate in 10_usize..5000,
        cuts in prop::collection::vec(1_usize..3000, 1..40),
    ) {
        let pair = conversation(client(versions), server(ring::kx_group::X25519, certificate));
        let whole = follow(Session::default(), &pair.passed, usize::MAX, usize::MAX);
        let mut session = Session::default();
        let mut exchanges = Vec::new();
        let mut sizes = cuts.iter().cycle();
        for (from, at, bytes) in &pair.passed {
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
                session.handle(*from, &Piece::captured(*at, piece));
                exchanges.extend(session.poll());
                rest = after;
            }
        }
        session.end();
        exchanges.extend(session.poll());
        prop_assert_eq!(Followed { session, exchanges }.told(), whole.told());
        let bytes = follow(Session::default(), &pair.passed, 1, usize::MAX);
        prop_assert_eq!(bytes.told(), whole.told());
    }

    #[test]
    fn any_bytes_in_any_pieces_never_panic(
        parts in prop::collection::vec(
            (
                any::<bool>(),
                prop::collection::vec(prop_oneof![any::<u8>(), 0_u8..4, 20_u8..24], 0..60),
                prop_oneof![Just(0_u64), 0_u64..3000, Just(u64::MAX)],
                0_u64..100,
            ),
            0..30,
        ),
        is_midway in any::<bool>(),
        begins in any::<bool>(),
    ) {
        let mut session = if is_midway { Session::midway() } else { Session::default() };
        if begins {
            let hello = records(&message(&[sni(b"a.example")]), 40);
            session.handle(Client, &Piece::captured(Time::ZERO, &hello));
        }
        let mut exchanges = 0;
        for (asks, bytes, more, at) in parts {
            let length = (bytes.len() as u64).saturating_add(more);
            let from = if asks { Client } else { Server };
            session.handle(from, &Piece { at: Time::from_millis(at), bytes: &bytes, length });
            exchanges += u64::from(session.poll().is_some());
        }
        session.end();
        exchanges += u64::from(session.poll().is_some());
        prop_assert_eq!(exchanges, session.exchanges());
        prop_assert!(session.alerts().len() <= MAX_ALERTS);
    }
}
