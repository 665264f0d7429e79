//! A certificate authority for a single test or benchmark.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use crate::server::ServerError;

/// An authority and one server certificate that it signed, as PEM files in a folder.
#[derive(Debug)]
pub struct Authority {
    folder: PathBuf,
}

impl Authority {
    /// Creates the authority and the server certificate in `folder`. Each of `names` is a host name
    /// or an address.
    ///
    /// # Errors
    /// If a name is neither, or if a file cannot be written.
    pub fn new(folder: &Path, names: &[&str]) -> Result<Self, ServerError> {
        let mut authority = CertificateParams::new(Vec::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        // The subjects must differ: OpenSSL treats a certificate as self-signed if its issuer
        // equals its subject.
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
            fs::write(file, pem).map_err(ServerError::file("write a certificate"))?;
        }
        Ok(made)
    }

    /// PEM file of the authority's certificate, which a client has to trust.
    pub fn authority(&self) -> PathBuf {
        self.folder.join("authority.pem")
    }

    /// PEM file of the server's certificate.
    pub fn certificate(&self) -> PathBuf {
        self.folder.join("server.pem")
    }

    /// PEM file of the server's private key.
    pub fn key(&self) -> PathBuf {
        self.folder.join("server.key")
    }
}
