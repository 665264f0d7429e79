//! TLS to servers of the web: the accepted certificates, and the handshake over a path.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use manyways_unit::human::without_bom;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore,
    SignatureScheme,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::plain;

/// The certificates that are accepted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Trust {
    /// The roots of this host (or of `SSL_CERT_FILE`, `SSL_CERT_DIR`).
    #[default]
    System,
    /// Only the roots in this PEM file.
    File(PathBuf),
    /// Any certificate. Anyone on the path can read and change the bytes.
    AnyCertificate,
}

/// Why no TLS configuration can be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrustError {
    /// The file cannot be read, or contains no usable certificate.
    #[error("no certificate could be read from {path}: {reason}", path = .path.display())]
    File {
        path: PathBuf,
        #[source]
        reason: TrustFileError,
    },
    /// rustls rejects the configuration.
    #[error("TLS cannot be set up: {0}")]
    Setup(#[from] Error),
}

/// Why a file of certificates cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrustFileError {
    /// The file cannot be read, or is not in PEM format.
    #[error(transparent)]
    Pem(#[from] pem::Error),
    /// A certificate cannot be used.
    #[error(transparent)]
    Certificate(#[from] Error),
    /// The file contains no certificate.
    #[error("the file contains no certificate")]
    Empty,
}

/// Why a TLS handshake failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// TLS has no form for this host name.
    #[error("{0} is not a TLS server name")]
    ServerName(String),
    /// The server's certificate is not accepted.
    #[error("the certificate of {0} is not accepted: {reason}", reason = certificate(.1))]
    Certificate(SocketAddr, CertificateError),
    /// The server or this host rejects the handshake.
    #[error("the TLS handshake with {0} failed: {reason}", reason = failure(.1))]
    Rejected(SocketAddr, #[source] Error),
    /// The connection was lost during the handshake.
    #[error("the TLS handshake with {0} broke off: {reason}", reason = plain(.1))]
    ConnectionLost(SocketAddr, #[source] io::Error),
}

/// Adds TLS to a connection to `host` at the address `server`.
///
/// # Errors
/// [`TlsError`] contains the cause.
pub async fn handshake<S>(
    config: Arc<ClientConfig>,
    host: &str,
    server: SocketAddr,
    stream: S,
) -> Result<TlsStream<S>, TlsError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let name =
        ServerName::try_from(host.to_owned()).map_err(|_| TlsError::ServerName(host.to_owned()))?;
    TlsConnector::from(config).connect(name, stream).await.map_err(|error| {
        tracing::debug!("TLS handshake with {server}: {error:?}");
        match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
            Some(Error::InvalidCertificate(error)) => TlsError::Certificate(server, error.clone()),
            Some(error) => TlsError::Rejected(server, error.clone()),
            None => TlsError::ConnectionLost(server, error),
        }
    })
}

/// Describes a certificate error for users.
fn certificate(error: &CertificateError) -> &'static str {
    match error {
        CertificateError::UnknownIssuer => "its issuer is not trusted by this host",
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "it is for another name"
        }
        CertificateError::Revoked => "it was revoked",
        CertificateError::BadEncoding => "it cannot be read",
        CertificateError::BadSignature => "its signature is wrong",
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "it is not meant for servers"
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "its signature algorithm is not accepted"
        }
        // rustls has no separate variant for this error.
        other if other.to_string().contains("CaUsedAsEndEntity") => {
            "it is self-signed, and this host does not trust it"
        }
        _ => "it is not valid",
    }
}

/// Describes a handshake error for users.
fn failure(error: &Error) -> &'static str {
    match error {
        Error::InvalidMessage(_) => "the server does not speak TLS",
        Error::PeerIncompatible(_) => {
            "the server supports neither TLS 1.2 nor TLS 1.3, or no common cipher suite"
        }
        Error::NoApplicationProtocol => "the server speaks neither HTTP/2 nor HTTP/1.1",
        Error::NoCertificatesPresented => "the server has no certificate",
        Error::AlertReceived(alert) => match alert {
            AlertDescription::HandshakeFailure
            | AlertDescription::InsufficientSecurity
            | AlertDescription::ProtocolVersion => {
                "the server accepts no TLS version or cipher suite of this program"
            }
            AlertDescription::UnrecognisedName => "the server does not know this name",
            AlertDescription::NoApplicationProtocol => {
                "the server speaks neither HTTP/2 nor HTTP/1.1"
            }
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::AccessDenied => "the server requires a client certificate",
            AlertDescription::InternalError => "the server reported an internal error",
            _ => "the server refused the handshake",
        },
        _ => "the server sent invalid TLS messages",
    }
}

/// Returns a configuration for TLS 1.2 and later, which offers these protocols by ALPN, the
/// preferred one first.
///
/// # Errors
/// Fails if the trusted certificates cannot be read.
pub fn config(trust: &Trust, protocols: &[&[u8]]) -> Result<Arc<ClientConfig>, TrustError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    let mut config = match trust {
        Trust::System => builder.with_root_certificates(system_roots()).with_no_client_auth(),
        Trust::AnyCertificate | Trust::File(_) => {
            let accepted = match trust {
                Trust::File(path) => Some(FileVerifier::read(path, &provider)?),
                _ => None,
            };
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Verifier { accepted, provider }))
                .with_no_client_auth()
        }
    };
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(Arc::new(config))
}

/// Returns what decides whether a certificate is accepted.
///
/// # Errors
/// Fails if the trusted certificates cannot be read, or if there are none.
#[cfg(feature = "record")]
pub(crate) fn verifier(trust: &Trust) -> Result<Arc<dyn ServerCertVerifier>, TrustError> {
    let provider = Arc::new(ring::default_provider());
    let accepted = match trust {
        Trust::System => {
            let builder =
                WebPkiServerVerifier::builder_with_provider(system_roots().into(), provider);
            return match builder.build() {
                Ok(verifier) => Ok(verifier),
                Err(error) => Err(Error::General(error.to_string()).into()),
            };
        }
        Trust::File(path) => Some(FileVerifier::read(path, &provider)?),
        Trust::AnyCertificate => None,
    };
    Ok(Arc::new(Verifier { accepted, provider }))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, pem::Error> {
    let text = std::fs::read(path).map_err(pem::Error::Io)?;
    // Otherwise the first line would not begin a certificate.
    CertificateDer::pem_slice_iter(without_bom(&text)).collect()
}

fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let native = rustls_native_certs::load_native_certs();
    for error in &native.errors {
        tracing::warn!("system roots: {error}");
    }
    let (_, ignored) = roots.add_parsable_certificates(native.certs);
    if ignored > 0 {
        tracing::debug!("{ignored} of the system's roots were not understood");
    }
    // Without any root, http:// still works, and a TLS handshake reports the missing root.
    roots
}

/// The roots of a file, and the file's certificates themselves: self-signed servers are often
/// trusted by their own certificate. The server's name must match in both cases.
#[derive(Debug)]
struct FileVerifier {
    roots: Arc<WebPkiServerVerifier>,
    listed: Vec<CertificateDer<'static>>,
}

impl FileVerifier {
    fn read(path: &Path, provider: &Arc<CryptoProvider>) -> Result<Self, TrustError> {
        let failed = |reason| TrustError::File { path: path.to_owned(), reason };
        let named = certificates(path).map_err(|error| failed(error.into()))?;
        let mut roots = RootCertStore::empty();
        for certificate in &named {
            roots.add(certificate.clone()).map_err(|error| failed(error.into()))?;
        }
        let roots = Arc::new(roots);
        let roots = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(provider))
            .build()
            .map_err(|_| failed(TrustFileError::Empty))?;
        Ok(Self { roots, listed: named })
    }
}

/// Key types for which ring has no algorithm. A server with such a key signs only by its scheme.
const UNVERIFIED_SCHEMES: [SignatureScheme; 2] =
    [SignatureScheme::ECDSA_NISTP521_SHA512, SignatureScheme::ED448];

/// Accepts the certificates in `accepted`; every certificate if it is `None`. The signatures of a
/// handshake are not checked then either: a peer that may present any certificate can also sign
/// with its key, and webpki refuses certificates before version 3 and short keys. The Finished
/// messages still prove that the handshake has not been changed.
#[derive(Debug)]
struct Verifier {
    accepted: Option<FileVerifier>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(FileVerifier { roots, listed: named }) = &self.accepted else {
            return Ok(ServerCertVerified::assertion());
        };
        let verdict =
            roots.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        // rustls rejects a CA certificate as a server certificate, but only after it has checked
        // the validity dates.
        let refused =
            matches!(&verdict, Err(Error::InvalidCertificate(CertificateError::Other(_))));
        if refused && named.iter().any(|named| named == end_entity) {
            let parsed = ParsedCertificate::try_from(end_entity)?;
            verify_server_name(&parsed, server_name)?;
            return Ok(ServerCertVerified::assertion());
        }
        verdict
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if self.accepted.is_none() {
            return Ok(HandshakeSignatureValid::assertion());
        }
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if self.accepted.is_none() {
            return Ok(HandshakeSignatureValid::assertion());
        }
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let mut schemes = self.provider.signature_verification_algorithms.supported_schemes();
        if self.accepted.is_none() {
            schemes.extend(UNVERIFIED_SCHEMES);
        }
        schemes
    }
}

#[cfg(test)]
mod tests;
