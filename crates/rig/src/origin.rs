//! The server side of a download: objects of random bytes, served by nginx on the hosts of a lab.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use manyways_lab::Lab;
use manyways_unit::Size;

use crate::certificate::Authority;
use crate::programs::program;
use crate::server::{Server, ServerConfig, ServerError};

/// Size of the object that warms up connections.
pub const WARM_UP: Size = Size::from_bytes(64_000);
/// A separate port for the server with MPTCP, so that the sockets of the other servers are plain
/// TCP.
const MPTCP_PORT: u16 = 8443;

/// Running servers, which end with the lab. Their files are in the lab's folder and are removed
/// with it.
#[derive(Debug)]
pub struct Origin {
    folder: PathBuf,
    name: String,
    content: Vec<u8>,
}

impl Origin {
    /// Starts nginx on the first `hosts` hosts of a lab. The first host runs a second nginx under
    /// mptcpize if mptcpize is installed. For each size there is an object with a prefix of the
    /// same random bytes. Each server has a certificate for `name`.
    ///
    /// # Errors
    /// If nginx is not installed or does not start, or if a file cannot be written.
    pub fn start(
        lab: &mut Lab,
        hosts: usize,
        name: &str,
        sizes: &[Size],
    ) -> Result<Self, ServerError> {
        let folder = lab.folder().join("site");
        let root = folder.join("www");
        fs::create_dir_all(&root).map_err(ServerError::file("make the server's folder"))?;
        let sizes = || sizes.iter().chain([&WARM_UP]);
        let largest = sizes().copied().max().unwrap_or(WARM_UP);
        let content = random(largest).map_err(ServerError::file("read random bytes"))?;
        for size in sizes() {
            let object = content.get(..size.as_bytes() as usize).unwrap_or(&content);
            fs::write(root.join(size.as_bytes().to_string()), object)
                .map_err(ServerError::file("write the objects"))?;
        }
        let authority = Authority::new(&folder, &[name])?;
        let server = |name: &str, plain: &[u16], secure: u16| {
            let folder = folder.join(name);
            fs::create_dir_all(&folder).map_err(ServerError::file("make the server's folder"))?;
            let any = |port: u16| [([0; 4], port).into(), ([0_u16; 8], port).into()];
            let config = ServerConfig {
                root: &root,
                plain: &plain.iter().flat_map(|port| any(*port)).collect::<Vec<_>>(),
                secure: &any(secure),
                authority: Some(&authority),
                extra_config: "    access_log off;\n    ssl_protocols TLSv1.2 TLSv1.3;",
            };
            Server::nginx(&folder, &config)
        };
        for host in 0..hosts {
            server(&format!("plain-{host}"), &[80], 443)?.serve(lab, host)?;
        }
        if let Some(mptcpize) = program("mptcpize") {
            server("mptcp", &[], MPTCP_PORT)?.launched_by(&mptcpize, &["run"]).serve(lab, 0)?;
        }
        Ok(Self { folder, name: name.to_owned(), content })
    }

    /// The URL of an object, at the server with MPTCP if `mptcp`.
    pub fn url(&self, size: Size, mptcp: bool) -> String {
        let port = if mptcp { format!(":{MPTCP_PORT}") } else { String::new() };
        format!("https://{}{port}/{}", self.name, size.as_bytes())
    }

    /// PEM file of the certificate authority that the client has to trust.
    pub fn authority(&self) -> PathBuf {
        self.folder.join("authority.pem")
    }

    /// File into which a contender writes the object.
    pub fn download(&self) -> PathBuf {
        self.folder.join("download")
    }

    /// File into which `manyways get` writes its event log.
    pub fn events(&self) -> PathBuf {
        self.folder.join("events")
    }

    /// Folder that is removed with the lab.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn object(&self, size: Size) -> &[u8] {
        self.content.get(..size.as_bytes() as usize).unwrap_or(&self.content)
    }

    /// Whether `bytes` are a prefix of the content and at least `min` long. A program that
    /// requests the whole object and stops early can have more than `min`.
    pub fn is_prefix(&self, bytes: &[u8], min: Size) -> bool {
        bytes.len() as u64 >= min.as_bytes() && self.content.starts_with(bytes)
    }
}

/// Random bytes, which are incompressible.
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
        let origin = Origin { folder: PathBuf::new(), name: String::new(), content: vec![1, 2, 3] };
        assert!(origin.is_prefix(&[1, 2], Size::from_bytes(2)));
        assert!(origin.is_prefix(&[1, 2, 3], Size::from_bytes(2)));
        assert!(!origin.is_prefix(&[1, 3], Size::from_bytes(2)));
        assert!(!origin.is_prefix(&[1, 2], Size::from_bytes(3)));
        assert!(!origin.is_prefix(&[1, 2, 3, 4], Size::from_bytes(4)));
        assert_eq!(origin.object(Size::from_bytes(2)), [1, 2]);
    }
}
