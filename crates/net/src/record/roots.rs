//! Which certificates of origins are accepted.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ring::digest::{Context, SHA256, SHA256_OUTPUT_LEN};
use rustls::Error;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

use crate::path::Trust;
use crate::path::tls::{TrustError, verifier};

/// An accepted chain is accepted again without verification for this time: browsers open many
/// connections to an origin at once.
const VALID: Duration = Duration::from_secs(60);
/// Maximum number of chains to remember.
const MAX_CHAINS: usize = 1_024;

/// SHA-256 of a server name and a chain.
type ChainDigest = [u8; SHA256_OUTPUT_LEN];

/// Which certificates of origins are accepted.
#[derive(Debug)]
pub(super) struct Roots {
    /// A certificate is accepted if one of these accepts it.
    verifiers: Vec<Arc<dyn ServerCertVerifier>>,
    /// When each chain was accepted.
    accepted: Mutex<HashMap<ChainDigest, UnixTime>>,
}

impl Roots {
    /// The roots of this host, and those of a file.
    pub(super) fn new(file: Option<PathBuf>) -> Result<Arc<Self>, TrustError> {
        let mut verifiers = Vec::new();
        match verifier(&Trust::System) {
            Ok(verifier) => verifiers.push(verifier),
            // A host without any roots; those of the file may suffice.
            Err(error) => tracing::debug!("no roots of the system: {error}"),
        }
        if let Some(file) = file {
            verifiers.push(verifier(&Trust::File(file))?);
        }
        Ok(Arc::new(Self { verifiers, accepted: Mutex::default() }))
    }

    /// Accepts the chain of a server or returns why not.
    pub(super) fn accept(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), Error> {
        let digest = digest(end_entity, intermediates, name);
        let lock = || self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
        if lock().get(&digest).is_some_and(|then| is_valid(*then, now)) {
            return Ok(());
        }
        let mut refusal = Error::General("this host has no roots".to_owned());
        for verifier in &self.verifiers {
            match verifier.verify_server_cert(end_entity, intermediates, name, &[], now) {
                Ok(_) => {
                    let mut accepted = lock();
                    if accepted.len() >= MAX_CHAINS {
                        accepted.clear();
                    }
                    accepted.insert(digest, now);
                    return Ok(());
                }
                Err(error) => refusal = error,
            }
        }
        Err(refusal)
    }
}

/// Whether a chain that was accepted `then` counts. Not if the clock has been set back.
fn is_valid(then: UnixTime, now: UnixTime) -> bool {
    now.as_secs().checked_sub(then.as_secs()).is_some_and(|age| age < VALID.as_secs())
}

fn digest(
    end_entity: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
    name: &ServerName<'_>,
) -> ChainDigest {
    let mut context = Context::new(&SHA256);
    let name = name.to_str();
    let certificates = std::iter::once(end_entity).chain(intermediates).map(|one| &one[..]);
    for part in std::iter::once(name.as_bytes()).chain(certificates) {
        context.update(&part.len().to_be_bytes());
        context.update(part);
    }
    let mut bytes = [0; SHA256_OUTPUT_LEN];
    bytes.copy_from_slice(context.finish().as_ref());
    bytes
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified};
    use rustls::{CertificateError, DigitallySignedStruct, SignatureScheme};

    use super::*;

    /// Accepts the certificate `good`, and counts.
    #[derive(Debug, Default)]
    struct Counting(AtomicUsize);

    impl ServerCertVerifier for Counting {
        fn verify_server_cert(
            &self,
            end_entity: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> Result<ServerCertVerified, Error> {
            self.0.fetch_add(1, Relaxed);
            match &end_entity[..] {
                b"good" => Ok(ServerCertVerified::assertion()),
                _ => Err(CertificateError::UnknownIssuer.into()),
            }
        }

        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            unreachable!("the watcher verifies signatures")
        }

        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            unreachable!("the watcher verifies signatures")
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            Vec::new()
        }
    }

    /// Verifications of these chains: leaf, intermediate, name and second; and whether the last one
    /// is accepted.
    fn verifications(chains: &[(&str, &str, &str, u64)]) -> (usize, bool) {
        let counting = Arc::new(Counting::default());
        let verifiers: Vec<Arc<dyn ServerCertVerifier>> =
            vec![Arc::<Counting>::clone(&counting), Arc::<Counting>::clone(&counting)];
        let roots = Roots { verifiers, accepted: Mutex::default() };
        let mut is_accepted = false;
        for (leaf, intermediate, name, second) in chains {
            let leaf = CertificateDer::from(leaf.as_bytes());
            let intermediates = [CertificateDer::from(intermediate.as_bytes())];
            let name = ServerName::try_from(*name).unwrap();
            let now = UnixTime::since_unix_epoch(Duration::from_secs(*second));
            is_accepted = roots.accept(&leaf, &intermediates, &name, now).is_ok();
        }
        (counting.0.load(Relaxed), is_accepted)
    }

    #[test]
    fn an_accepted_chain_is_verified_once_a_minute() {
        let at = |second| ("good", "one", "a.example", second);
        assert_eq!(verifications(&[at(100)]), (1, true));
        assert_eq!(verifications(&[at(100), at(100), at(159)]), (1, true));
        assert_eq!(verifications(&[at(100), at(160)]), (2, true));
        assert_eq!(verifications(&[at(100), at(99)]), (2, true), "the clock was set back");
    }

    #[test]
    fn another_name_or_chain_is_verified() {
        let first = ("good", "one", "a.example", 100);
        assert_eq!(verifications(&[first, ("good", "one", "b.example", 100)]), (2, true));
        assert_eq!(verifications(&[first, ("good", "two", "a.example", 100)]), (2, true));
        assert_eq!(verifications(&[first, ("bad", "one", "a.example", 100)]), (3, false));
        // The same bytes in a row.
        assert_eq!(verifications(&[first, ("goodo", "ne", "a.example", 100)]), (3, false));
    }

    #[test]
    fn a_refused_chain_is_verified_each_time() {
        let bad = ("bad", "one", "a.example", 100);
        assert_eq!(verifications(&[bad, bad]), (4, false));
    }

    #[test]
    fn the_number_of_remembered_chains_is_bounded() {
        let roots =
            Roots { verifiers: vec![Arc::new(Counting::default())], accepted: Mutex::default() };
        let now = UnixTime::since_unix_epoch(Duration::from_secs(100));
        for number in 0..3 * MAX_CHAINS {
            let name = ServerName::try_from(format!("{number}.example")).unwrap();
            roots.accept(&CertificateDer::from(&b"good"[..]), &[], &name, now).unwrap();
        }
        assert_eq!(roots.accepted.lock().unwrap().len(), MAX_CHAINS);
    }
}
