//! The far side: nginx with one file, and a certificate that only the demonstration trusts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use manyways_lab::{Lab, Place};
use manyways_sys::signal::Termination;
use manyways_sys::wait::{Outcome, wait};
use manyways_unit::{Size, Span};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use sha2::{Digest, Sha256};

use super::watch::{Stopped, complaint};
use crate::failure::Failure;
use crate::lab::lab_failure;

/// The name that the lab gives its far host.
const HOST: &str = "origin.lab";
const OBJECT: &str = "8MB";
const OBJECT_SIZE: Size = Size::from_bytes(8_000_000);
/// Small, for the first request.
const GREETING: &str = "hello";
const PATIENCE: Span = Span::from_secs(15);

/// A running web server in a lab; its files lie in the lab's folder and go with it.
pub struct Site {
    folder: PathBuf,
    sha256: String,
    server: String,
    mptcp: Result<PathBuf, String>,
}

/// Where nginx is.
pub fn nginx() -> Result<PathBuf, Failure> {
    program("nginx").ok_or_else(|| {
        Failure::new("nginx, which serves the file, is not installed")
            .hint("install it (Debian: apt-get install nginx-light), or run `make demo`")
    })
}

/// A program on the path, or where servers are, which an ordinary user's path lacks.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let sbin = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(sbin).map(|f| f.join(name)).find(|file| file.is_file())
}

impl Site {
    pub fn start(lab: &mut Lab, nginx: &Path) -> Result<Self> {
        let folder = lab.folder().join("demo");
        let www = folder.join("www");
        fs::create_dir_all(&www).context("cannot make the server's folder")?;
        let object = random(OBJECT_SIZE)?;
        fs::write(www.join(OBJECT), &object).context("cannot write the file to serve")?;
        fs::write(www.join(GREETING), "hello\n").context("cannot write the file to serve")?;
        certify(&folder).context("cannot make the server's certificate")?;
        fs::write(folder.join("nginx.conf"), CONFIGURATION)
            .context("cannot write the server's configuration")?;
        // The server must speak MPTCP before a client can, and takes plain TCP as well.
        let mptcp = program("mptcpize")
            .ok_or_else(|| "mptcpize is not installed (Debian: package mptcpize)".to_owned());
        let mut words: Vec<String> = Vec::new();
        if let Ok(mptcpize) = &mptcp {
            words.extend([quoted(mptcpize), "run".to_owned()]);
        }
        let errors = folder.join("error.log");
        words.extend([
            quoted(nginx),
            format!("-p {} -e {} -c nginx.conf", quoted(&folder), quoted(&errors)),
        ]);
        lab.serve(0, &format!("exec {} 2>/dev/null", words.join(" "))).map_err(|error| {
            let said = fs::read_to_string(&errors).unwrap_or_default();
            match said.lines().find(|line| line.contains("[emerg]")) {
                Some(line) => Failure::new(format!("nginx does not start: {line}")),
                None => lab_failure(error),
            }
        })?;
        Ok(Self { sha256: hex(&object), server: version(nginx), folder, mptcp })
    }

    /// One small request over every link, so that no contender pays for what is done once: the
    /// server's and the resolvers' first answer. It also shows that the server answers.
    pub fn warm_up(&self, lab: &Lab, termination: &Termination) -> Result<()> {
        let mut command = Command::new(this_program()?);
        command
            .args(["get", "--quiet", "--cache", "off", "--cacert"])
            .arg(self.authority())
            .args(["-o", "/dev/null"]);
        self.greet(command, lab, termination)?.map_err(|said| {
            Failure::new(format!("the server in the lab does not answer: {said}")).into()
        })
    }

    /// Runs a command that fetches a small file, and gives its complaint when it does not.
    pub fn greet(
        &self,
        mut command: Command,
        lab: &Lab,
        termination: &Termination,
    ) -> Result<Result<(), String>> {
        command
            .arg(format!("https://{HOST}/{GREETING}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = lab.spawn(Place::Device, command).map_err(lab_failure)?;
        match wait(&mut child, Some(PATIENCE), Some(termination))? {
            Outcome::Exited(status) if status.success() => Ok(Ok(())),
            Outcome::Signal(ended) => Err(Stopped(ended.signal).into()),
            _ => {
                let _ = child.kill();
                let said = child.wait_with_output()?.stderr;
                Ok(Err(complaint(&String::from_utf8_lossy(&said))))
            }
        }
    }

    pub fn url(&self) -> String {
        format!("https://{HOST}/{OBJECT}")
    }

    /// The certificate authority to trust.
    pub fn authority(&self) -> PathBuf {
        self.folder.join("authority.pem")
    }

    /// Where a contender writes.
    pub fn download(&self) -> PathBuf {
        self.folder.join("download")
    }

    /// Where `manyways get` says what it does.
    pub fn events(&self) -> PathBuf {
        self.folder.join("events")
    }

    pub fn size(&self) -> Size {
        OBJECT_SIZE
    }

    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// Name and version of the server.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The program that makes others speak MPTCP, or why there is none.
    pub fn mptcpize(&self) -> Result<&Path, String> {
        self.mptcp.as_deref().map_err(Clone::clone)
    }
}

/// The binary that is running: the one to show.
pub fn this_program() -> Result<PathBuf> {
    std::env::current_exe().context("cannot tell where this program is")
}

/// Everything is below the prefix, and nobody but root is known: the lab may run in a user
/// namespace.
const CONFIGURATION: &str = "\
user root;
daemon off;
worker_processes 1;
pid nginx.pid;
error_log error.log;
events {}
http {
    access_log off;
    default_type application/octet-stream;
    sendfile on;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    ssl_certificate server.pem;
    ssl_certificate_key server.key;
    ssl_protocols TLSv1.2 TLSv1.3;
    server {
        listen 80;
        listen [::]:80;
        listen 443 ssl http2;
        listen [::]:443 ssl http2;
        root www;
    }
}
";

fn certify(folder: &Path) -> Result<()> {
    let mut authority = CertificateParams::new(Vec::new())?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    // Names that differ: OpenSSL calls a certificate self-signed whose issuer is called as it is.
    authority.distinguished_name.push(DnType::CommonName, "manyways demo");
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let authority_key = KeyPair::generate()?;
    fs::write(folder.join("authority.pem"), authority.self_signed(&authority_key)?.pem())?;
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate()?;
    let mut server = CertificateParams::new(vec![HOST.to_owned()])?;
    server.distinguished_name.push(DnType::CommonName, HOST);
    fs::write(folder.join("server.pem"), server.signed_by(&key, &issuer)?.pem())?;
    fs::write(folder.join("server.key"), key.serialize_pem())?;
    Ok(())
}

/// Bytes that no compression shrinks.
fn random(size: Size) -> Result<Vec<u8>> {
    use std::io::Read;
    let mut bytes = vec![0; size.as_bytes() as usize];
    fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .context("cannot read random bytes")?;
    Ok(bytes)
}

/// The SHA-256 in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn version(nginx: &Path) -> String {
    let said = Command::new(nginx).arg("-v").output().map(|output| output.stderr);
    let said = String::from_utf8_lossy(&said.unwrap_or_default()).into_owned();
    said.rsplit("nginx/")
        .next()
        .map(str::trim)
        .filter(|v| !v.is_empty())
        .map_or_else(|| "nginx".to_owned(), |version| format!("nginx {version}"))
}

/// A path as one word of the shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stays_one_word() {
        assert_eq!(quoted(Path::new("/a b/it's")), r"'/a b/it'\''s'");
    }

    #[test]
    fn hashes_are_as_sha256sum_prints_them() {
        assert_eq!(hex(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
