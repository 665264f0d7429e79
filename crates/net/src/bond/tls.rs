//! TLS 1.3 between client and gateway, which authenticate each other by raw public keys (RFC 7250),
//! without certificate authorities, names or other versions of TLS.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error,
    PeerMisbehaved, ServerConfig, SignatureScheme,
};

use super::key::{PrivateKey, PublicKey};

/// Protocol ID of the bond in ALPN (RFC 7301).
pub(super) const ALPN_PROTOCOL: &[u8] = b"manyways-bond/1";

/// Protocol ID of a pipe, between a client and a lender.
pub(super) const PIPE_PROTOCOL: &[u8] = b"manyways-pipe/1";
/// Protocol ID of a pairing.
pub(super) const PAIR_PROTOCOL: &[u8] = b"manyways-pair/1";

/// Returns whether a key is authorized.
pub(crate) type KeyPredicate = dyn Fn(&PublicKey) -> bool + Send + Sync;

/// Creates the configuration of a client of the server with this key.
pub(crate) fn client(
    own: &PrivateKey,
    server: PublicKey,
    protocol: &[u8],
) -> Result<Arc<ClientConfig>, Error> {
    client_of(own, Arc::new(move |key| *key == server), protocol)
}

/// Creates the configuration of a client of any server that `accept` authorizes.
pub(super) fn client_of(
    own: &PrivateKey,
    accept: Arc<KeyPredicate>,
    protocol: &[u8],
) -> Result<Arc<ClientConfig>, Error> {
    let provider = Arc::new(ring::default_provider());
    let verifier = RawKeyVerifier { accept, provider };
    let mut config = ClientConfig::builder_with_provider(Arc::clone(&verifier.provider))
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(Arc::new(
            certified_key(own)?,
        ))));
    config.alpn_protocols = vec![protocol.to_vec()];
    config.enable_sni = false;
    // Without resumption, each carrier is authenticated separately.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// Creates the configuration of a server. `accept` authorizes the keys of clients.
pub(crate) fn server(
    own: &PrivateKey,
    accept: Arc<KeyPredicate>,
    protocols: &[&[u8]],
) -> Result<Arc<ServerConfig>, Error> {
    let provider = Arc::new(ring::default_provider());
    let verifier = RawKeyVerifier { accept, provider };
    let mut config = ServerConfig::builder_with_provider(Arc::clone(&verifier.provider))
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(Arc::new(verifier))
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(Arc::new(
            certified_key(own)?,
        ))));
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

fn certified_key(own: &PrivateKey) -> Result<CertifiedKey, Error> {
    let key = ring::sign::any_eddsa_type(
        &own.der().clone_key().secret_pkcs8().ok_or(Error::General("no PKCS #8".to_owned()))?,
    )?;
    Ok(CertifiedKey::new(vec![CertificateDer::from(own.public().spki())], key))
}

trait Pkcs8 {
    fn secret_pkcs8(&self) -> Option<rustls::pki_types::PrivatePkcs8KeyDer<'_>>;
}

impl Pkcs8 for rustls::pki_types::PrivateKeyDer<'_> {
    fn secret_pkcs8(&self) -> Option<rustls::pki_types::PrivatePkcs8KeyDer<'_>> {
        match self {
            Self::Pkcs8(der) => Some(der.clone_key()),
            _ => None,
        }
    }
}

/// Returns the public key that the peer has proved to own; `None` if there is no Ed25519 key.
pub(crate) fn peer_key(certificates: Option<&[CertificateDer<'_>]>) -> Option<PublicKey> {
    PublicKey::from_spki(certificates?.first()?)
}

/// Authenticates the peer by its key only.
struct RawKeyVerifier {
    accept: Arc<KeyPredicate>,
    provider: Arc<CryptoProvider>,
}

impl RawKeyVerifier {
    fn verify_key(&self, presented: &CertificateDer<'_>) -> Result<(), Error> {
        match PublicKey::from_spki(presented) {
            Some(key) if (self.accept)(&key) => Ok(()),
            _ => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify_signature(
        &self,
        message: &[u8],
        presented: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature_with_raw_key(
            message,
            &SubjectPublicKeyInfoDer::from(presented.as_ref()),
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }
}

impl fmt::Debug for RawKeyVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RawKeyVerifier")
    }
}

impl ServerCertVerifier for RawKeyVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verify_key(end_entity).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for RawKeyVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.verify_key(end_entity).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
