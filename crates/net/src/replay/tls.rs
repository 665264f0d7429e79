//! TLS of recorded servers: the certificate and the protocol of each server address and name.

use std::collections::HashMap;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use manyways_wire::archive::{Certificate, Connection, Protocol};
use rustls::crypto::ring;
use rustls::server::{Acceptor, ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{Error, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

use crate::authority::Authority;

/// Maximum duration of a handshake, and of the wait for the first byte of a connection.
pub const MAX_HANDSHAKE: Duration = Duration::from_secs(30);
/// Names that are not in the recording and have a certificate of their own.
pub const MAX_OTHER_NAMES: usize = 4_096;

/// Issues certificates that clients of the replay trust.
pub trait Certificates: Debug + Send + Sync {
    /// Returns a certificate with its key for these names and addresses, of the recorded kind if it is
    /// known. It may block, and is called once for each recorded server and name. `None` if there cannot
    /// be one: then handshakes fail.
    fn certificate(
        &self,
        names: &[String],
        recorded: Option<&Certificate>,
    ) -> Option<Arc<CertifiedKey>>;
}

impl Certificates for Authority {
    fn certificate(
        &self,
        names: &[String],
        recorded: Option<&Certificate>,
    ) -> Option<Arc<CertifiedKey>> {
        // The length of the chain decides how many packets a handshake takes.
        self.issue(names, recorded.map(|certificate| certificate.chain_length)).ok()
    }
}

/// Configurations of the recorded servers.
#[derive(Debug)]
pub(super) struct Servers {
    certificates: Arc<dyn Certificates>,
    /// One for each recorded connection with TLS that differs from the others.
    configs: HashMap<Key, Arc<ServerConfig>>,
    /// The same by name alone, and by address alone.
    by_name: HashMap<String, Arc<ServerConfig>>,
    by_server: HashMap<SocketAddr, Arc<ServerConfig>>,
    others: Mutex<HashMap<String, Arc<ServerConfig>>>,
}

type Key = (SocketAddr, Option<String>);

/// The certificate of a configuration.
#[derive(Debug)]
struct Only(Arc<CertifiedKey>);

impl ResolvesServerCert for Only {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

impl Servers {
    /// Makes the configurations of all recorded servers. A server whose certificate cannot be issued has
    /// none.
    pub(super) fn new(connections: &[Connection], certificates: Arc<dyn Certificates>) -> Self {
        let (configs, by_name, by_server) =
            <(HashMap<_, _>, HashMap<_, _>, HashMap<_, _>)>::default();
        let mut all = Self { certificates, configs, by_name, by_server, others: Mutex::default() };
        // Connections with a known certificate first.
        let has_names = |connection: &&Connection| {
            let certificate = connection.tls.as_ref().and_then(|tls| tls.certificate.as_ref());
            certificate.is_some_and(|certificate| !certificate.names.is_empty())
        };
        let known = connections.iter().filter(has_names);
        for connection in known.chain(connections.iter().filter(|one| !has_names(one))) {
            all.add(connection);
        }
        all
    }

    fn add(&mut self, connection: &Connection) {
        let (Some(server), Some(tls)) = (connection.server, &connection.tls) else { return };
        let name = tls.server_name.as_deref().map(str::to_ascii_lowercase);
        let key = (server, name.clone());
        if self.configs.contains_key(&key) {
            return;
        }
        let recorded = tls.certificate.as_ref();
        let names = recorded.map(|recorded| recorded.names.clone()).filter(|all| !all.is_empty());
        let own = || vec![name.clone().unwrap_or_else(|| server.ip().to_string())];
        let protocols: &[&[u8]] = match (tls.alpn.as_deref(), connection.protocol) {
            (Some("h2" | "h3"), _) | (None, Protocol::Http2 | Protocol::Http3) => {
                &[b"h2", b"http/1.1"]
            }
            (Some(_), _) => &[b"http/1.1"],
            (None, _) => &[],
        };
        let Some(config) = self.config(&names.unwrap_or_else(own), recorded, protocols) else {
            return;
        };
        if let Some(name) = name {
            self.by_name.entry(name).or_insert_with(|| config.clone());
        }
        self.by_server.entry(server).or_insert_with(|| config.clone());
        self.configs.insert(key, config);
    }

    /// Returns the configuration for a server address and the name that a client asks for: the recorded
    /// one of both, else of the name on another address; without a name, one of the address. Another name
    /// has a certificate for itself, so that its requests get their answers: misses.
    fn choose(&self, server: SocketAddr, name: Option<&str>) -> Option<Arc<ServerConfig>> {
        let name = name.map(str::to_ascii_lowercase);
        let key = (server, name);
        if let Some(config) = self.configs.get(&key) {
            return Some(config.clone());
        }
        let (server, name) = key;
        let recorded = match &name {
            Some(name) => self.by_name.get(name),
            None => self.by_server.get(&server),
        };
        if let Some(config) = recorded {
            return Some(config.clone());
        }
        let name = name.unwrap_or_else(|| server.ip().to_string());
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(config) = others.get(&name) {
            return Some(config.clone());
        }
        if others.len() >= MAX_OTHER_NAMES {
            return None;
        }
        let config = self.config(std::slice::from_ref(&name), None, &[b"h2", b"http/1.1"])?;
        others.insert(name, config.clone());
        Some(config)
    }

    fn config(
        &self,
        names: &[String],
        recorded: Option<&Certificate>,
        protocols: &[&[u8]],
    ) -> Option<Arc<ServerConfig>> {
        let key = self.certificates.certificate(names, recorded)?;
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider);
        let versions = builder.with_safe_default_protocol_versions().ok()?;
        let mut config = versions.with_no_client_auth().with_cert_resolver(Arc::new(Only(key)));
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Some(Arc::new(config))
    }

    /// Accepts a client. The second value is whether it speaks HTTP/2.
    ///
    /// # Errors
    /// The handshake fails, or takes too long.
    pub(super) async fn accept<S>(
        &self,
        server: SocketAddr,
        stream: S,
    ) -> std::io::Result<(TlsStream<S>, bool)>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let handshake = async {
            let start = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
            let name = start.client_hello().server_name().map(str::to_owned);
            let config = self.choose(server, name.as_deref());
            let none = || std::io::Error::other(Error::General("no certificate".to_owned()));
            start.into_stream(config.ok_or_else(none)?).await
        };
        let stream = timeout(MAX_HANDSHAKE, handshake).await??;
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok((stream, is_http2))
    }
}

#[cfg(test)]
pub(super) mod tests;
