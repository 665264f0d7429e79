//! The far side: nginx with objects of every size, and a certificate that only the contenders
//! trust.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use manyways_lab::{Lab, LabError};
use manyways_unit::Size;

use crate::launch::DriveError;
use crate::programs::{program, quoted, version};

/// Every contender asks for this name. Which host it leads to may depend on the link.
pub const NAME: &str = "www.lab";
/// The object that warms connections up.
pub const WARM_UP: Size = Size::from_bytes(64_000);
/// The largest object.
pub const LARGEST: Size = Size::from_bytes(20_000_000);
/// Where the server listens under mptcpize: apart, so that the others' sockets are plain TCP.
const MPTCP_PORT: u16 = 8443;

/// What runs, by where it is.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The binary under test.
    pub manyways: PathBuf,
    /// The server.
    pub nginx: PathBuf,
    /// Makes the certificate.
    pub openssl: PathBuf,
    /// Tells the sockets' congestion control.
    pub ss: PathBuf,
    /// A rival, and what warms it up.
    pub curl: Option<PathBuf>,
    /// A rival.
    pub aria2: Option<PathBuf>,
    /// Gives a program the kernel's MPTCP.
    pub mptcpize: Option<PathBuf>,
}

impl Programs {
    /// Looks for them on the path, and where servers are, which an ordinary user's path lacks.
    ///
    /// # Errors
    /// One sentence about what cannot be done without.
    pub fn find(manyways: PathBuf) -> Result<Self, String> {
        if !manyways.is_file() {
            return Err(format!(
                "there is no {}: build it with cargo build --release -p manyways-cli",
                manyways.display()
            ));
        }
        let needed = |name: &str| {
            program(name).ok_or_else(|| format!("{name} is not installed: run scripts/setup bench"))
        };
        Ok(Self {
            manyways,
            nginx: needed("nginx")?,
            openssl: needed("openssl")?,
            ss: needed("ss")?,
            curl: program("curl"),
            aria2: program("aria2c"),
            mptcpize: program("mptcpize"),
        })
    }

    /// What the page says about them: names and versions.
    pub fn versions(&self) -> Vec<String> {
        let found = [
            (Some(&self.manyways), "--version"),
            (Some(&self.nginx), "-v"),
            (self.curl.as_ref(), "--version"),
            (self.aria2.as_ref(), "--version"),
        ];
        found.iter().filter_map(|(program, option)| version((*program)?, option)).collect()
    }
}

/// Why there is no far side.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SiteError {
    /// A file.
    #[error("cannot {0}: {1}")]
    File(&'static str, io::Error),
    /// openssl did not want to.
    #[error("openssl makes no certificate: {0}")]
    Certificate(String),
    /// The server did not start.
    #[error("nginx does not start: {0}")]
    Server(String),
    /// The lab refused.
    #[error(transparent)]
    Lab(#[from] LabError),
}

impl From<SiteError> for DriveError {
    fn from(error: SiteError) -> Self {
        Self::Site(error.to_string())
    }
}

/// The running servers; their files lie in the lab's folder and go with it.
#[derive(Debug)]
pub struct Site {
    folder: PathBuf,
    content: Vec<u8>,
}

impl Site {
    /// Starts the same server on each of `hosts` hosts, with objects of these sizes, and once more
    /// under mptcpize on the first.
    pub fn start(
        lab: &mut Lab,
        programs: &Programs,
        hosts: usize,
        sizes: &[Size],
    ) -> Result<Self, SiteError> {
        let folder = lab.folder().join("site");
        let www = folder.join("www");
        let file = |doing| move |error| SiteError::File(doing, error);
        fs::create_dir_all(&www).map_err(file("make the server's folder"))?;
        let content = random(LARGEST).map_err(file("read random bytes"))?;
        for size in sizes.iter().chain([&WARM_UP, &LARGEST]) {
            let object = content.get(..size.as_bytes() as usize).unwrap_or(&content);
            fs::write(www.join(size.as_bytes().to_string()), object)
                .map_err(file("write the objects"))?;
        }
        let site = Self { folder, content };
        site.certify(&programs.openssl)?;
        for host in 0..hosts {
            let listen = "listen 80; listen [::]:80; listen 443 ssl http2; \
                          listen [::]:443 ssl http2;";
            site.serve(lab, host, &format!("plain-{host}"), listen, &[programs.nginx.as_os_str()])?;
        }
        if let Some(mptcpize) = &programs.mptcpize {
            let listen =
                format!("listen {MPTCP_PORT} ssl http2; listen [::]:{MPTCP_PORT} ssl http2;");
            let words = [mptcpize.as_os_str(), OsStr::new("run"), programs.nginx.as_os_str()];
            site.serve(lab, 0, "mptcp", &listen, &words)?;
        }
        Ok(site)
    }

    fn serve(
        &self,
        lab: &mut Lab,
        host: usize,
        name: &str,
        listen: &str,
        words: &[&OsStr],
    ) -> Result<(), SiteError> {
        let folder = self.folder.join(name);
        let errors = folder.join("error.log");
        fs::create_dir_all(&folder)
            .and_then(|()| fs::write(folder.join("nginx.conf"), configuration(listen)))
            .map_err(|error| SiteError::File("write the server's configuration", error))?;
        let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
        let (prefix, log) = (quoted(folder.as_os_str()), quoted(errors.as_os_str()));
        let command =
            format!("exec {} -p {prefix} -e {log} -c nginx.conf 2>/dev/null", words.join(" "));
        lab.serve(host, &command).map_err(|error| {
            let said = fs::read_to_string(&errors).unwrap_or_default();
            match said.lines().find(|line| line.contains("[emerg]")) {
                Some(line) => SiteError::Server(line.to_owned()),
                None => error.into(),
            }
        })?;
        Ok(())
    }

    /// Where an object is; the other port is the server's that speaks MPTCP.
    pub fn url(&self, size: Size, mptcp: bool) -> String {
        let port = if mptcp { format!(":{MPTCP_PORT}") } else { String::new() };
        format!("https://{NAME}{port}/{}", size.as_bytes())
    }

    /// The certificate authority to trust.
    pub fn authority(&self) -> PathBuf {
        self.folder.join("authority.pem")
    }

    /// Where a contender writes.
    pub fn download(&self) -> PathBuf {
        self.folder.join("download")
    }

    /// Where a contender writes what went on.
    pub fn events(&self) -> PathBuf {
        self.folder.join("events")
    }

    /// A folder of the benchmark's own.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether these are the first bytes of an object, at least so many. More may be there where
    /// all was asked for and only so much wanted.
    pub fn is_beginning(&self, bytes: &[u8], least: Size) -> bool {
        bytes.len() as u64 >= least.as_bytes() && self.content.starts_with(bytes)
    }

    /// An authority and a certificate of it, by a configuration of our own: the system's makes
    /// every certificate an authority.
    fn certify(&self, openssl: &Path) -> Result<(), SiteError> {
        let text = format!(
            "[req]\ndistinguished_name=name\nprompt=no\n[name]\nCN=manyways bench\n\
             [authority]\nbasicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign\n\
             subjectKeyIdentifier=hash\n\
             [server]\nbasicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\n\
             extendedKeyUsage=serverAuth\nsubjectAltName=DNS:{NAME}\n"
        );
        fs::write(self.folder.join("openssl.cnf"), text)
            .map_err(|error| SiteError::File("write openssl's configuration", error))?;
        let made = |kind: &str, signed_by: &[&str]| {
            let output = Command::new(openssl)
                .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"])
                .args(["-noenc", "-days", "2", "-config", "openssl.cnf", "-extensions", kind])
                .args(["-keyout", &format!("{kind}.key"), "-out", &format!("{kind}.pem")])
                .args(signed_by)
                .current_dir(&self.folder)
                .stdin(Stdio::null())
                .output()
                .map_err(|error| SiteError::Certificate(error.to_string()))?;
            if output.status.success() {
                return Ok(());
            }
            let said = String::from_utf8_lossy(&output.stderr);
            Err(SiteError::Certificate(said.lines().last().unwrap_or_default().to_owned()))
        };
        made("authority", &[])?;
        made("server", &["-CA", "authority.pem", "-CAkey", "authority.key"])
    }
}

/// Everything is below the prefix, and nobody but root is known: the lab may run in a user
/// namespace.
fn configuration(listen: &str) -> String {
    format!(
        "user root;\ndaemon off;\nworker_processes 1;\npid nginx.pid;\nerror_log error.log;\n\
         events {{}}\n\
         http {{\n    access_log off;\n    default_type application/octet-stream;\n    \
         sendfile on;\n    client_body_temp_path body;\n    proxy_temp_path proxy;\n    \
         fastcgi_temp_path fastcgi;\n    uwsgi_temp_path uwsgi;\n    scgi_temp_path scgi;\n    \
         ssl_certificate ../server.pem;\n    ssl_certificate_key ../server.key;\n    \
         ssl_protocols TLSv1.2 TLSv1.3;\n    server {{ {listen} root ../www; }}\n}}\n"
    )
}

/// Bytes that no compression shrinks.
fn random(size: Size) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; size.as_bytes() as usize];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_beginning_of_the_content_is_an_object() {
        let site = Site { folder: PathBuf::new(), content: vec![1, 2, 3] };
        assert!(site.is_beginning(&[1, 2], Size::from_bytes(2)));
        assert!(site.is_beginning(&[1, 2, 3], Size::from_bytes(2)));
        assert!(!site.is_beginning(&[1, 3], Size::from_bytes(2)));
        assert!(!site.is_beginning(&[1, 2], Size::from_bytes(3)));
        assert!(!site.is_beginning(&[1, 2, 3, 4], Size::from_bytes(4)));
    }
}
