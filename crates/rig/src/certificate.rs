//! A certificate authority for a single test or benchmark.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use crate::server::ServerError;

/// An authority and server certificates that it signed, as PEM files in a folder.
#[derive(Debug)]
pub struct Authority {
    folder: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

/// First part of the file names of the first server certificate.
const SERVER: &str = "server";

impl Authority {
    /// Creates the authority and a server certificate in `folder`. Each of `names` is a host name or an
    /// address.
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
        let made = Self { folder: folder.to_path_buf(), issuer };
        fs::write(made.authority(), authority_pem)
            .map_err(ServerError::file("write a certificate"))?;
        made.issue(SERVER, names)?;
        Ok(made)
    }

    /// Signs one more server certificate, in the files `STEM.pem` and `STEM.key` of the folder.
    ///
    /// # Errors
    /// If a name is neither a host name nor an address, or if a file cannot be written.
    pub fn issue(&self, stem: &str, names: &[&str]) -> Result<(), ServerError> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut server = CertificateParams::new(names)?;
        server.distinguished_name.push(DnType::CommonName, "manyways server");
        server.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let pem = server.signed_by(&key, &self.issuer)?.pem();
        for (end, text) in [("pem", pem), ("key", key.serialize_pem())] {
            let file = self.folder.join(format!("{stem}.{end}"));
            fs::write(file, text).map_err(ServerError::file("write a certificate"))?;
        }
        Ok(())
    }

    /// PEM file of the authority's certificate, which a client has to trust.
    pub fn authority(&self) -> PathBuf {
        self.folder.join("authority.pem")
    }

    /// PEM file of the server's certificate.
    pub fn certificate(&self) -> PathBuf {
        self.folder.join(format!("{SERVER}.pem"))
    }

    /// PEM file of the server's private key.
    pub fn key(&self) -> PathBuf {
        self.folder.join(format!("{SERVER}.key"))
    }
}
