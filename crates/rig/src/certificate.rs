//! A certificate authority that only one test or benchmark trusts.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use crate::server::SiteError;

/// An authority and one server certificate of it, as PEM files in a folder.
#[derive(Debug)]
pub struct Authority {
    folder: PathBuf,
}

impl Authority {
    /// Makes both in `folder`. The certificate is for `names`, each a host name or an address.
    ///
    /// # Errors
    /// When a name is neither, or a file cannot be written.
    pub fn new(folder: &Path, names: &[&str]) -> Result<Self, SiteError> {
        let mut authority = CertificateParams::new(Vec::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        // Subjects that differ: OpenSSL takes a certificate whose issuer has its own name for
        // self-signed.
        authority.distinguished_name.push(DnType::CommonName, "manyways authority");
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let authority_key = KeyPair::generate()?;
        let authority_pem = authority.self_signed(&authority_key)?.pem();
        let issuer = Issuer::new(authority, authority_key);

        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut server = CertificateParams::new(names)?;
        server.distinguished_name.push(DnType::CommonName, "manyways server");
        server.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let server_pem = server.signed_by(&key, &issuer)?.pem();

        let made = Self { folder: folder.to_path_buf() };
        for (file, pem) in [
            (made.authority(), authority_pem),
            (made.certificate(), server_pem),
            (made.key(), key.serialize_pem()),
        ] {
            fs::write(file, pem).map_err(SiteError::file("write a certificate"))?;
        }
        Ok(made)
    }

    /// The certificate of the authority, which a client has to trust.
    pub fn authority(&self) -> PathBuf {
        self.folder.join("authority.pem")
    }

    /// The server's certificate.
    pub fn certificate(&self) -> PathBuf {
        self.folder.join("server.pem")
    }

    /// The server's key.
    pub fn key(&self) -> PathBuf {
        self.folder.join("server.key")
    }
}
