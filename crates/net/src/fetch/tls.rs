//! TLS configuration from the accepted certificates.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

/// The certificates that are accepted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Trust {
    /// The roots of this host (or of `SSL_CERT_FILE`, `SSL_CERT_DIR`).
    #[default]
    System,
    /// Only the roots in this PEM file.
    File(PathBuf),
    /// Any certificate. Anyone on the path can read and change the bytes.
    Anybody,
}

/// Why no TLS configuration can be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrustError {
    /// The file cannot be read, or contains no usable certificate.
    #[error("no certificate could be read from {path}: {why}", path = .path.display())]
    File { path: PathBuf, why: String },
    /// rustls rejects the configuration.
    #[error("TLS cannot be set up: {0}")]
    Setup(#[from] Error),
}

/// Returns a configuration for TLS 1.2 and later, with HTTP/2 preferred by ALPN.
pub(super) fn config(trust: &Trust) -> Result<Arc<ClientConfig>, TrustError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    let mut config = match trust {
        Trust::Anybody => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(NoQuestions(provider)))
            .with_no_client_auth(),
        Trust::System => builder.with_root_certificates(system_roots()).with_no_client_auth(),
        Trust::File(path) => {
            let failed = |why: String| TrustError::File { path: path.clone(), why };
            let named = certificates(path).map_err(|error| failed(error.to_string()))?;
            let mut roots = RootCertStore::empty();
            for certificate in &named {
                roots.add(certificate.clone()).map_err(|error| failed(error.to_string()))?;
            }
            let roots = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .map_err(|_| failed("it holds none".to_owned()))?;
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(RootsOrItself { roots, named }))
                .with_no_client_auth()
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, pem::Error> {
    CertificateDer::pem_file_iter(path)?.collect()
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

/// Accepts certificates of a file's roots, and also the certificates in the file: self-signed
/// servers are often trusted by their own certificate. The server's name must match in both cases.
#[derive(Debug)]
struct RootsOrItself {
    roots: Arc<WebPkiServerVerifier>,
    named: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for RootsOrItself {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verdict = self.roots.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        // rustls rejects a CA certificate as a server certificate, but only after it has checked
        // the validity dates.
        let refused =
            matches!(&verdict, Err(Error::InvalidCertificate(CertificateError::Other(_))));
        if refused && self.named.iter().any(|named| named == end_entity) {
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
        self.roots.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.roots.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.roots.supported_verify_schemes()
    }
}

/// Accepts every certificate, but still checks signatures, so that a faulty peer is detected.
#[derive(Debug)]
struct NoQuestions(Arc<CryptoProvider>);

impl ServerCertVerifier for NoQuestions {
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
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
