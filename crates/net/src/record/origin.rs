//! TLS to the origin: the recorder is a client like the recorded one, and learns what it needs to
//! stand in for the origin.

use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use manyways_unit::Time;
use manyways_wire::archive::{Certificate, KeyKind};
use manyways_wire::x509;
use rustls::CipherSuite::TLS13_AES_128_GCM_SHA256;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, Resumption, WantsClientCert};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ConfigBuilder, DigitallySignedStruct, Error, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Wall;
use super::arrival::{Arrival, ByRecord, Records};
use super::roots::Roots;

/// The cryptography of both sides. AES with 128 bits is first, as in browsers: its SHA-256 is faster
/// than the SHA-384 of the other.
pub(super) static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
    let mut provider = ring::default_provider();
    provider.cipher_suites.sort_by_key(|suite| suite.suite() != TLS13_AES_128_GCM_SHA256);
    Arc::new(provider)
});

/// The stream under TLS, with the recorder's clock.
type TimedRecords = Records<TcpStream, Box<dyn Fn() -> Time>>;

/// A connection to the origin after its handshake.
pub(super) struct Origin {
    pub(super) stream: ByRecord<TlsStream<TimedRecords>>,
    /// Of the bytes of the stream.
    pub(super) arrival: Arrival,
    /// The protocol that it chose.
    pub(super) alpn: Option<Vec<u8>>,
    pub(super) certificate: Certificate,
    /// Whether its certificate is accepted for the name.
    pub(super) is_trusted: bool,
}

/// Why there is no handshake with the origin.
#[derive(Debug)]
pub(super) enum NoOrigin {
    /// The origin asks for a certificate of the client.
    ClientCertificate,
    /// The handshake failed otherwise.
    Failed(io::Error),
}

/// Shakes hands with the origin: with the name that the client sent, or else for its address, and
/// with these protocols.
pub(super) async fn shake_hands(
    roots: &Arc<Roots>,
    stream: TcpStream,
    name: Option<&str>,
    address: IpAddr,
    protocols: Vec<Vec<u8>>,
    clock: Wall,
) -> Result<Origin, NoOrigin> {
    let watcher = Arc::new(Watcher {
        roots: Arc::clone(roots),
        refusal: Mutex::new(None),
        is_asked: AtomicBool::new(false),
    });
    let mut config = builder(&watcher)
        .map_err(|error| NoOrigin::Failed(io::Error::other(error)))?
        .with_client_cert_resolver(Arc::<Watcher>::clone(&watcher));
    config.alpn_protocols = protocols;
    // Without resumption each handshake shows the certificate, and is as long as a first one.
    config.resumption = Resumption::disabled();
    let server = match name {
        Some(name) => ServerName::try_from(name.to_owned())
            .map_err(|error| NoOrigin::Failed(io::Error::other(error)))?,
        None => ServerName::IpAddress(address.into()),
    };
    let now: Box<dyn Fn() -> Time> = Box::new(move || clock.now());
    let stream = Records::new(stream, now);
    let arrival = stream.arrival();
    let connected = TlsConnector::from(Arc::new(config)).connect(server, stream).await;
    // Some servers ask and do without; the client might have had one.
    if watcher.is_asked.load(Relaxed) {
        return Err(NoOrigin::ClientCertificate);
    }
    let stream = connected.map_err(NoOrigin::Failed)?;
    let connection = stream.get_ref().1;
    let chain = connection.peer_certificates().unwrap_or_default();
    let read = chain.first().and_then(|leaf| x509::certificate(leaf));
    let read = read.unwrap_or(x509::Certificate { names: Vec::new(), key: None });
    let refusal = watcher.refusal.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(error) = &refusal {
        tracing::debug!("the certificate of {address} ({name:?}) is refused: {error}");
    }
    Ok(Origin {
        alpn: connection.alpn_protocol().map(<[u8]>::to_vec),
        certificate: Certificate {
            names: read.names,
            key: read.key.unwrap_or(KeyKind::P256),
            chain_length: chain.iter().map(|one| one.len() as u32).sum(),
        },
        is_trusted: refusal.is_none(),
        stream: ByRecord::new(stream),
        arrival,
    })
}

fn builder(watcher: &Arc<Watcher>) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, Error> {
    Ok(ClientConfig::builder_with_provider(Arc::clone(&PROVIDER))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::<Watcher>::clone(watcher)))
}

/// Notes what the origin does in a handshake. A certificate that is not accepted does not end the
/// handshake: the client gets one that it will not accept either, and decides.
#[derive(Debug)]
struct Watcher {
    roots: Arc<Roots>,
    refusal: Mutex<Option<Error>>,
    is_asked: AtomicBool,
}

impl ServerCertVerifier for Watcher {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let accepted = self.roots.accept(end_entity, intermediates, server_name, now);
        if let Err(refusal) = accepted {
            *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some(refusal);
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &PROVIDER.signature_verification_algorithms;
        self.tolerate(rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &PROVIDER.signature_verification_algorithms;
        self.tolerate(rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        PROVIDER.signature_verification_algorithms.supported_schemes()
    }
}

impl Watcher {
    /// A wrong signature is a wrong certificate. That of an unaccepted certificate may be of a kind
    /// that webpki does not read.
    fn tolerate(
        &self,
        verdict: Result<HandshakeSignatureValid, Error>,
    ) -> Result<HandshakeSignatureValid, Error> {
        if let Err(error) = verdict {
            *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
        Ok(HandshakeSignatureValid::assertion())
    }
}

impl ResolvesClientCert for Watcher {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.is_asked.store(true, Relaxed);
        None
    }

    fn has_certs(&self) -> bool {
        true
    }
}
