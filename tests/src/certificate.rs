//! A certificate authority of a test's own, made with the openssl command.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::finish;

/// An authority and one server certificate of it, as PEM files in a folder.
#[derive(Debug)]
pub struct Authority {
    folder: PathBuf,
}

impl Authority {
    /// Makes both in `folder`. The certificate is for `names`, each a host name or an address.
    ///
    /// # Panics
    /// When openssl is not there or does not want to.
    pub fn new(folder: &Path, names: &[&str]) -> Self {
        let made = Self { folder: folder.to_path_buf() };
        let subjects: Vec<String> = names
            .iter()
            .map(|name| match name.parse::<std::net::IpAddr>() {
                Ok(address) => format!("IP:{address}"),
                Err(_) => format!("DNS:{name}"),
            })
            .collect();
        // A configuration of our own, because the system's makes every certificate an authority.
        let config = made.folder.join("openssl.cnf");
        let text = format!(
            "[req]\ndistinguished_name=name\nprompt=no\n[name]\nCN=manyways tests\n\
             [authority]\nbasicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign\n\
             subjectKeyIdentifier=hash\n\
             [server]\nbasicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\n\
             extendedKeyUsage=serverAuth\nsubjectAltName={}\n",
            subjects.join(",")
        );
        fs::write(&config, text).expect("room for a configuration");
        made.request("authority", &made.authority_key(), &made.authority(), &[]);
        let (authority, key) = (made.authority(), made.authority_key());
        let signed_by = ["-CA".as_ref(), authority.as_path(), "-CAkey".as_ref(), key.as_path()];
        made.request("server", &made.key(), &made.certificate(), &signed_by);
        made
    }

    fn request(&self, kind: &str, key: &Path, certificate: &Path, signed_by: &[&Path]) {
        finish(
            Command::new("openssl")
                .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"])
                .args(["-noenc", "-days", "2", "-extensions", kind, "-config"])
                .arg(self.folder.join("openssl.cnf"))
                .arg("-keyout")
                .arg(key)
                .arg("-out")
                .arg(certificate)
                .args(signed_by),
        )
        .succeeded();
    }

    /// What a client has to trust.
    pub fn authority(&self) -> PathBuf {
        self.folder.join("authority.pem")
    }

    fn authority_key(&self) -> PathBuf {
        self.folder.join("authority.key")
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
