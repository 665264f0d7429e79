//! Whom to trust, as a TLS configuration.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// Whose certificates are accepted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Trust {
    /// The roots of this host (or of `SSL_CERT_FILE`, `SSL_CERT_DIR`).
    #[default]
    System,
    /// Only the roots in this PEM file.
    File(PathBuf),
    /// Everybody's. Anyone on the way can read and change what comes.
    Anybody,
}

/// Why no TLS configuration came about.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrustError {
    /// The file cannot be read, or holds no certificate.
    #[error("no certificate could be read from {path}: {why}", path = .path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The library refused.
    #[error("TLS cannot be set up: {0}")]
    Setup(#[from] Error),
}

/// TLS 1.2 and up, with HTTP/2 preferred by ALPN.
pub(super) fn config(trust: &Trust) -> Result<Arc<ClientConfig>, TrustError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    let mut config = match trust {
        Trust::Anybody => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(NoQuestions(provider)))
            .with_no_client_auth(),
        Trust::System | Trust::File(_) => {
            builder.with_root_certificates(roots(trust)?).with_no_client_auth()
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn roots(trust: &Trust) -> Result<RootCertStore, TrustError> {
    let mut roots = RootCertStore::empty();
    if let Trust::File(path) = trust {
        let failed = |why: String| TrustError::File { path: path.clone(), why };
        let read =
            CertificateDer::pem_file_iter(path).map_err(|error| failed(error.to_string()))?;
        for certificate in read {
            let certificate = certificate.map_err(|error| failed(error.to_string()))?;
            roots.add(certificate).map_err(|error| failed(error.to_string()))?;
        }
        if roots.is_empty() {
            return Err(failed("it holds none".to_owned()));
        }
        return Ok(roots);
    }
    let native = rustls_native_certs::load_native_certs();
    for error in &native.errors {
        tracing::warn!("system roots: {error}");
    }
    let (_, ignored) = roots.add_parsable_certificates(native.certs);
    if ignored > 0 {
        tracing::debug!("{ignored} of the system's roots were not understood");
    }
    // Without any root, plain http:// still works and a handshake will say what is missing.
    Ok(roots)
}

/// Accepts every certificate; signatures are still checked, so that a broken peer is not mistaken.
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
