//! The server side of a download: objects of random bytes, served by nginx on the hosts of a lab,
//! and by other web servers.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use manyways_lab::Lab;
use manyways_unit::Size;

use crate::certificate::Authority;
use crate::programs::program;
use crate::server::{Server, ServerConfig, ServerError};
use crate::web_server::WebServer;

/// Size of the object that warms up connections.
pub const WARM_UP: Size = Size::from_bytes(64_000);
/// A separate port for the server with MPTCP, so that the sockets of the other servers are plain
/// TCP.
const MPTCP_PORT: u16 = 8443;
/// The ports of web servers other than nginx are this one plus the position in [`WebServer::ALL`].
const OTHER_PORT: u16 = 8500;

/// A server of an [`Origin`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// nginx on every host.
    Plain,
    /// nginx with MPTCP.
    Mptcp,
    /// A web server on the first host.
    Other(WebServer),
}

/// Running servers, which end with the lab. Their files are in the lab's folder and are removed
/// with it.
#[derive(Debug)]
pub struct Origin {
    folder: PathBuf,
    name: String,
    content: Vec<u8>,
    authority: Option<Authority>,
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
        let origin = Self { folder, name: name.to_owned(), content, authority: Some(authority) };
        let more = "    access_log off;\n    ssl_protocols TLSv1.2 TLSv1.3;";
        let nginx = |name: &str, plain: &[u16], secure: u16| {
            origin.server(WebServer::Nginx, name, plain, secure, more)
        };
        for host in 0..hosts {
            nginx(&format!("plain-{host}"), &[80], 443)?.serve(lab, host)?;
        }
        if let Some(mptcpize) = program("mptcpize") {
            nginx("mptcp", &[], MPTCP_PORT)?.launched_by(&mptcpize, &["run"]).serve(lab, 0)?;
        }
        Ok(origin)
    }

    /// Starts a web server with the same objects on the first host; see [`Service::Other`].
    ///
    /// # Errors
    /// If the server is not installed or does not start, or if a file cannot be written.
    pub fn start_other(&self, lab: &mut Lab, server: WebServer) -> Result<(), ServerError> {
        self.server(server, server.name(), &[], other_port(server), "")?.serve(lab, 0)
    }

    fn server(
        &self,
        server: WebServer,
        name: &str,
        plain: &[u16],
        secure: u16,
        extra_config: &str,
    ) -> Result<Server, ServerError> {
        let folder = self.folder.join(name);
        fs::create_dir_all(&folder).map_err(ServerError::file("make the server's folder"))?;
        let any = |port: u16| [([0; 4], port).into(), ([0_u16; 8], port).into()];
        let config = ServerConfig {
            root: &self.folder.join("www"),
            plain: &plain.iter().flat_map(|port| any(*port)).collect::<Vec<_>>(),
            secure: &any(secure),
            authority: self.authority.as_ref(),
            extra_config,
        };
        server.configure(&folder, &config)
    }

    /// The URL of an object at a server.
    pub fn url(&self, size: Size, service: Service) -> String {
        let port = match service {
            Service::Plain => String::new(),
            Service::Mptcp => format!(":{MPTCP_PORT}"),
            Service::Other(server) => format!(":{}", other_port(server)),
        };
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

fn other_port(server: WebServer) -> u16 {
    OTHER_PORT + server as u16
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
        let (folder, name, content) = (PathBuf::new(), String::new(), vec![1, 2, 3]);
        let origin = Origin { folder, name, content, authority: None };
        assert!(origin.is_prefix(&[1, 2], Size::from_bytes(2)));
        assert!(origin.is_prefix(&[1, 2, 3], Size::from_bytes(2)));
        assert!(!origin.is_prefix(&[1, 3], Size::from_bytes(2)));
        assert!(!origin.is_prefix(&[1, 2], Size::from_bytes(3)));
        assert!(!origin.is_prefix(&[1, 2, 3, 4], Size::from_bytes(4)));
        assert_eq!(origin.object(Size::from_bytes(2)), [1, 2]);
    }
}
