//! An endpoint with the TLS of a bond that violates the protocol afterwards.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use rustls::client::AlwaysResolvesClientRawPublicKeys;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::{default_provider, sign};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    ServerConnection, SignatureScheme, StreamOwned, SupportedProtocolVersion, version,
};

/// ALPN name of the protocol.
const PROTOCOL: &str = "manyways-bond/1";
/// The protocol version of this code.
pub const VERSION: u8 = 2;

pub type Client = StreamOwned<ClientConnection, TcpStream>;

/// Properties with which an impostor imitates a client.
#[derive(Clone, Copy)]
pub struct Impostor<'a> {
    pub key: Option<&'a Path>,
    pub protocol: &'a str,
    pub tls: &'static SupportedProtocolVersion,
}

impl<'a> Impostor<'a> {
    /// All properties of a client with this key.
    pub fn with_key(key: &'a Path) -> Self {
        Self { key: Some(key), protocol: PROTOCOL, tls: &version::TLS13 }
    }

    /// The TLS of a client without a key, for QUIC.
    pub fn client_without_key() -> ClientConfig {
        Impostor { key: None, protocol: PROTOCOL, tls: &version::TLS13 }.config()
    }

    fn config(self) -> ClientConfig {
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[self.tls])
            .expect("the provider has them")
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AcceptAny));
        let mut config = match self.key {
            Some(key) => {
                let resolver = AlwaysResolvesClientRawPublicKeys::new(certified(key));
                builder.with_client_cert_resolver(Arc::new(resolver))
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![self.protocol.into()];
        config
    }

    /// Performs a handshake with a gateway. With TLS 1.3 the client may learn of its failure only
    /// later.
    pub fn handshake(self, mut stream: TcpStream) -> io::Result<Client> {
        let config = self.config();
        let name = ServerName::try_from("gateway.invalid").expect("a name");
        let mut tls = ClientConnection::new(Arc::new(config), name).expect("a sound configuration");
        while tls.is_handshaking() {
            tls.complete_io(&mut stream)?;
        }
        Ok(StreamOwned::new(tls, stream))
    }
}

/// Performs the handshake as a gateway with this key, and reads the client's Hello.
#[track_caller]
pub fn receive(key: &Path, stream: TcpStream) -> StreamOwned<ServerConnection, TcpStream> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&version::TLS13])
        .expect("the provider has it")
        .with_client_cert_verifier(Arc::new(AcceptAny))
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(certified(key))));
    config.alpn_protocols = vec![PROTOCOL.into()];
    let tls = ServerConnection::new(Arc::new(config)).expect("a sound configuration");
    let mut stream = StreamOwned::new(tls, stream);
    let mut hello = [0; 23];
    stream.read_exact(&mut hello).expect("the client greets");
    assert_eq!((&hello[..4], hello[4]), (&b"mway"[..], VERSION));
    stream
}

/// The first message of a client of this version.
pub fn hello(version: u8) -> Vec<u8> {
    let credit = (0x8000_0000_u32 | 1 << 20).to_be_bytes();
    [&b"mway"[..], &[version, 0, 0], &[7; 16], &credit, &credit].concat()
}

/// The response of a gateway of this version.
pub fn welcome(version: u8) -> Vec<u8> {
    let credit = (0x8000_0000_u32 | 1 << 20).to_be_bytes();
    [&[1, version, 3][..], &credit, &credit, &[10], &[7; 8]].concat()
}

/// Sends bytes and reads until the peer closes the connection, which it must do.
#[track_caller]
pub fn send_and_read(stream: &mut Client, words: &[u8]) -> Vec<u8> {
    let mut heard = Vec::new();
    if stream.write_all(words).and_then(|()| stream.flush()).is_ok()
        && let Err(error) = stream.read_to_end(&mut heard)
    {
        assert_ne!(error.kind(), io::ErrorKind::WouldBlock, "it does not hang up");
    }
    heard
}

fn certified(key: &Path) -> Arc<CertifiedKey> {
    let der = PrivatePkcs8KeyDer::from_pem_file(key).expect("keygen makes PEM");
    let key = sign::any_eddsa_type(&der).expect("an Ed25519 key");
    let public = key.public_key().expect("it has a public half").to_vec();
    Arc::new(CertifiedKey::new(vec![CertificateDer::from(public)], key))
}

/// Accepts any certificate.
#[derive(Debug)]
struct AcceptAny;

impl ServerCertVerifier for AcceptAny {
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
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
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

impl ClientCertVerifier for AcceptAny {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
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
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
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
