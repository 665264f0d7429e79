//! A certificate authority of this machine, which issues certificates for the servers that a
//! recording or a replay stands in for.
//!
//! A holder of its key can impersonate any server to a program that trusts the authority. So the key
//! is only readable by the user, no trust store of the host contains the authority, and only
//! commands that `manyways` starts for this purpose get its certificate.

pub mod environment;

use std::collections::HashMap;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use manyways_sys::clock::Clock;
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use rustls::crypto::ring::sign::any_ecdsa_type;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SigningKey};

/// Name of the file with the certificate and the key, in PEM.
const FILE_NAME: &str = "authority.pem";
/// Name of the subject of the authority, by which users recognise it.
const SUBJECT: &str = "manyways recordings on this machine";
/// Certificates are valid for this time. Programs accept at most 398 days of public authorities, and
/// any of others; a recording lasts hours.
const VALIDITY: Duration = Duration::from_secs(90 * 24 * 3600);
/// They are valid from this time before their issue, in case a clock is late.
const EARLIER: Duration = Duration::from_secs(24 * 3600);
/// Maximum number of certificates that are kept for the next connection. A page needs some tens.
const MAX_KEPT: usize = 4096;
/// Maximum length to which a certificate is padded, in bytes. Longer chains are rare; handshake
/// messages have at most 16 MiB, and programs accept less.
const MAX_PADDED_LENGTH: usize = 32 << 10;
/// Object identifier of the padding, below the example arc of IANA (RFC 5612): no program knows it.
const PADDING: [u64; 9] = [1, 3, 6, 1, 4, 1, 32473, 1, 1];

/// Why the authority cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuthorityError {
    #[error("cannot keep the recorder's certificate authority in {}: {error}", path.display())]
    Folder { path: PathBuf, error: io::Error },
    #[error("the certificate authority in {} is damaged: {reason}", path.display())]
    Damaged { path: PathBuf, reason: String },
    #[error("other users can read the key of the certificate authority in {}", path.display())]
    Readable { path: PathBuf },
    #[error("no certificate can be made: {0}")]
    Issue(String),
}

impl AuthorityError {
    /// Returns a hint for the user.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Damaged { path, .. } | Self::Readable { path } => {
                Some(format!("remove {}; the next run makes a new one", path.display()))
            }
            _ => None,
        }
    }
}

/// A certificate authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    pem: String,
    /// The key of all servers, because making keys takes longer than signing.
    key: KeyPair,
    signing_key: Arc<dyn SigningKey>,
    issued: Mutex<HashMap<Template, Arc<CertifiedKey>>>,
}

impl fmt::Debug for Authority {
    /// Without the keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authority")
    }
}

/// The values that distinguish certificates.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Template {
    names: Vec<String>,
    length: Option<u32>,
}

impl Authority {
    /// Opens the authority in a folder, or makes a new one there, whose file only this user can read.
    ///
    /// # Errors
    /// The file cannot be read or made, is damaged, or others can read it.
    pub fn open(folder: &Path) -> Result<Self, AuthorityError> {
        let path = folder.join(FILE_NAME);
        let failed = |error| AuthorityError::Folder { path: path.clone(), error };
        match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let (key, certificate) = generate()?;
                let text = certificate.pem() + &key.serialize_pem();
                store(folder, &path, &text).map_err(failed)?;
            }
            Err(error) => return Err(failed(error)),
            Ok(_) => {}
        }
        // Read back even if it was just made: another process may have been earlier.
        if fs::metadata(&path).map_err(failed)?.permissions().mode() & 0o077 != 0 {
            return Err(AuthorityError::Readable { path });
        }
        let text = fs::read_to_string(&path).map_err(failed)?;
        Self::parse(&text).map_err(|reason| AuthorityError::Damaged { path, reason })
    }

    /// Makes an authority that no program trusts, and that is not kept: programs refuse its
    /// certificates unless they accept any.
    pub fn distrusted() -> Result<Self, AuthorityError> {
        let (key, certificate) = generate()?;
        Self::new(key, certificate.der().clone()).map_err(AuthorityError::Issue)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let sentence = |error: pem::Error| error.to_string();
        let certificate = CertificateDer::from_pem_slice(text.as_bytes()).map_err(sentence)?;
        let key = PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(sentence)?;
        Self::new(KeyPair::try_from(&key).map_err(|error| error.to_string())?, certificate)
    }

    fn new(key: KeyPair, certificate: CertificateDer<'static>) -> Result<Self, String> {
        let sentence = |error: rcgen::Error| error.to_string();
        let own = KeyPair::generate().map_err(sentence)?;
        let der = PrivateKeyDer::try_from(own.serialize_der())?;
        Ok(Self {
            // Only the subject and the key of the authority enter a certificate.
            issuer: Issuer::new(parameters().map_err(sentence)?, key),
            pem: encode_pem(&certificate),
            certificate,
            signing_key: any_ecdsa_type(&der).map_err(|error| error.to_string())?,
            key: own,
            issued: Mutex::default(),
        })
    }

    /// Returns the certificate of the authority, in PEM.
    pub fn certificate_pem(&self) -> &str {
        &self.pem
    }

    /// Returns the certificate of the authority.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// Returns a certificate for these DNS names and addresses, with its key on P-256. Names that no
    /// certificate can have are left out. With `length`, the certificate is padded to this number
    /// of bytes, at most 32 KiB, if it is shorter.
    ///
    /// # Errors
    /// The certificate cannot be made.
    pub fn issue(
        &self,
        names: &[String],
        length: Option<u32>,
    ) -> Result<Arc<CertifiedKey>, AuthorityError> {
        let template = Template { names: names.to_vec(), length };
        let mut issued = self.issued.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = issued.get(&template) {
            return Ok(Arc::clone(known));
        }
        let sentence = |error: rcgen::Error| AuthorityError::Issue(error.to_string());
        let mut certificate = self.sign(names, 0).map_err(sentence)?;
        let wanted = length.map_or(0, |length| MAX_PADDED_LENGTH.min(length as usize));
        if let Some(missing) = wanted.checked_sub(certificate.len()) {
            certificate = self.sign(names, missing).map_err(sentence)?;
        }
        let key = CertifiedKey::new(vec![certificate], Arc::clone(&self.signing_key));
        if issued.len() >= MAX_KEPT {
            issued.clear();
        }
        Ok(Arc::clone(issued.entry(template).or_insert(Arc::new(key))))
    }

    fn sign(
        &self,
        names: &[String],
        padding: usize,
    ) -> Result<CertificateDer<'static>, rcgen::Error> {
        let mut params = CertificateParams::default();
        params.subject_alt_names = names.iter().filter_map(|name| alternative(name)).collect();
        params.distinguished_name = DistinguishedName::new();
        // A common name has at most 64 characters (RFC 5280, A.1); programs read the alternative
        // names.
        if let Some(name) = names.iter().find(|name| name.len() <= 64 && name.is_ascii()) {
            params.distinguished_name.push(DnType::CommonName, name.as_str());
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let now = Duration::from_nanos(Clock::start().epoch().as_nanos());
        let epoch = rcgen::date_time_ymd(1970, 1, 1);
        params.not_before = epoch + now.saturating_sub(EARLIER);
        params.not_after = epoch + now + VALIDITY;
        if padding > 0 {
            let content = vec![0; padding.saturating_sub(PADDING_HEAD)];
            params.custom_extensions = vec![CustomExtension::from_oid_content(&PADDING, content)];
        }
        Ok(params.signed_by(&self.key, &self.issuer)?.der().clone())
    }
}

/// About the length of the padding without its content: tags, lengths and identifier.
const PADDING_HEAD: usize = 24;

/// Returns a name as an alternative name of a certificate; `None` if it cannot be one.
fn alternative(name: &str) -> Option<SanType> {
    Some(match name.parse() {
        Ok(address) => SanType::IpAddress(address),
        Err(_) => SanType::DnsName(name.to_owned().try_into().ok()?),
    })
}

/// Returns the parameters of the authority's own certificate.
fn parameters() -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new([])?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, SUBJECT);
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2049, 12, 31);
    Ok(params)
}

fn generate() -> Result<(KeyPair, rcgen::Certificate), AuthorityError> {
    let sentence = |error: rcgen::Error| AuthorityError::Issue(error.to_string());
    let key = KeyPair::generate().map_err(sentence)?;
    let certificate = parameters().and_then(|own| own.self_signed(&key)).map_err(sentence)?;
    Ok((key, certificate))
}

/// Stores the text in a new file that only this user can read. A file of another process that was
/// earlier stays.
fn store(folder: &Path, path: &Path, text: &str) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    // Two processes, or threads, can be here at once.
    static DRAFTS: AtomicU64 = AtomicU64::new(0);
    let number = DRAFTS.fetch_add(1, Relaxed);
    let draft = folder.join(format!("{FILE_NAME}.{}-{number}", std::process::id()));
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let written = options.open(&draft).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    // Unlike a renamed file, a link never replaces one.
    let linked = written.and_then(|()| match fs::hard_link(&draft, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    });
    let _ = fs::remove_file(&draft);
    linked
}

fn encode_pem(certificate: &CertificateDer<'_>) -> String {
    let text = crate::base64::encode(certificate);
    let lines: Vec<&str> =
        text.as_bytes().chunks(64).map(|line| str::from_utf8(line).unwrap_or_default()).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use manyways_wire::archive::KeyKind;
    use manyways_wire::x509;
    use rustls::RootCertStore;
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier;
    use rustls::pki_types::{ServerName, UnixTime};

    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn accepts(root: &Authority, issued: &CertifiedKey, name: &str) -> bool {
        let mut roots = RootCertStore::empty();
        roots.add(root.certificate().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            WebPkiServerVerifier::builder_with_provider(roots.into(), provider).build().unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let leaf = &issued.cert[0];
        verifier.verify_server_cert(leaf, &[], &name, &[], UnixTime::now()).is_ok()
    }

    #[test]
    fn certificates_are_valid_for_their_names_only() {
        let authority = Authority::distrusted().unwrap();
        let own = names(&["a.example", "*.b.example", "192.0.2.7", "2001:db8::7", "no\u{e4}me"]);
        let issued = authority.issue(&own, None).unwrap();
        for name in ["a.example", "x.b.example", "192.0.2.7", "2001:db8::7"] {
            assert!(accepts(&authority, &issued, name), "{name}");
        }
        for name in ["b.example", "c.example", "192.0.2.8"] {
            assert!(!accepts(&authority, &issued, name), "{name}");
        }
        let read = x509::certificate(&issued.cert[0]).unwrap();
        assert_eq!((&read.names[..], read.key), (&own[..4], Some(KeyKind::P256)));
        assert!(!accepts(&Authority::distrusted().unwrap(), &issued, "a.example"));
    }

    #[test]
    fn a_certificate_is_padded_to_a_length() {
        let authority = Authority::distrusted().unwrap();
        let own = names(&["a.example"]);
        let length = |wanted| authority.issue(&own, wanted).unwrap().cert[0].len();
        let short = length(None);
        assert!(short < 700, "{short}");
        // Signatures differ in length by some bytes.
        assert!(length(Some(100)).abs_diff(short) < 8);
        for wanted in [1_500, 2_900, 4_300, 9_000] {
            assert!(
                length(Some(wanted)).abs_diff(wanted as usize) < 16,
                "{}",
                length(Some(wanted))
            );
        }
        assert!(length(Some(u32::MAX)) <= MAX_PADDED_LENGTH + 16);
        let padded = authority.issue(&own, Some(4_300)).unwrap();
        assert!(accepts(&authority, &padded, "a.example"));
        assert!(Arc::ptr_eq(&padded, &authority.issue(&own, Some(4_300)).unwrap()));
    }

    #[test]
    fn a_folder_keeps_one_authority_that_only_its_user_can_read() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("a/b");
        let opened: Vec<Authority> = thread::scope(|scope| {
            let open = || Authority::open(&state).unwrap();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(open)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let first = opened[0].certificate_pem();
        assert!(opened.iter().all(|authority| authority.certificate_pem() == first));
        let issued = opened[0].issue(&names(&["a.example"]), None).unwrap();
        assert!(accepts(&opened[3], &issued, "a.example"));
        let left: Vec<_> =
            fs::read_dir(&state).unwrap().map(|one| one.unwrap().file_name()).collect();
        assert_eq!(left, [FILE_NAME]);
        let path = state.join(FILE_NAME);
        let mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

        mode(0o640);
        assert!(matches!(Authority::open(&state), Err(AuthorityError::Readable { .. })));
        mode(0o600);
        let text = fs::read_to_string(&path).unwrap();
        for damaged in ["", &text[..text.len() / 2], &text.replace("PRIVATE", "PUBLIC")] {
            fs::write(&path, damaged).unwrap();
            let error = Authority::open(&state).err().unwrap();
            assert!(matches!(error, AuthorityError::Damaged { .. }), "{error}");
            assert!(error.hint().unwrap().contains("remove"));
        }
    }
}
