//! One connection of a client: what it speaks, and who answers it.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use manyways_sys::socket::set_notsent_lowat;
use manyways_unit::{Size, Time};
use manyways_wire::archive::{Connection, Protocol, Tls, TunnelReason, Tunnelled};
use manyways_wire::exchange::http1;
use manyways_wire::tls::{ClientHello, client_hello};
use manyways_wire::{MAX_PEEK_LENGTH, Peek};
use rustls::server::{ClientHello as Hello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{AlertDescription, Error, ServerConfig};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::arrival::Arrival;
use super::assembly::{Assembly, Handshakes};
use super::origin::{NoOrigin, Origin, PROVIDER, shake_hands};
use super::pipe::{Ending, Observation, Observer};
use super::roots::Roots;
use super::spool::Spool;
use super::tunnels::{ServerKey, Tunnels, is_refusal};
use super::writer::Sink;
use super::{Note, Notes, Wall};
use crate::authority::Authority;

/// Time for a connection to the origin, and for each handshake.
const PATIENCE: Duration = Duration::from_secs(60);
/// At the end of the recording, open exchanges have this time to complete.
const GRACE: Duration = Duration::from_secs(1);
/// Bytes that wait unsent in the socket to the origin, so that a request counts as sent when it is.
const MAX_UNSENT: Size = Size::from_bytes(64 << 10);
/// Maximum length of the method of a request.
const MAX_METHOD_LENGTH: usize = 32;
/// First bytes of a client of HTTP/2 (RFC 9113, 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Protocols that the recorder reads.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// The values that the connections of a recording share.
pub(super) struct Shared {
    pub(super) clock: Wall,
    pub(super) sink: Sink,
    pub(super) spool: Arc<Spool>,
    pub(super) roots: Arc<Roots>,
    pub(super) authority: Authority,
    /// Stands in for origins with bad certificates.
    pub(super) distrusted: Authority,
    pub(super) tunnels: RefCell<Tunnels>,
    pub(super) notes: RefCell<Notes>,
    pub(super) next: Cell<usize>,
    /// Becomes true at the end of the recording.
    pub(super) stop: watch::Receiver<bool>,
}

/// The protocol of a client.
enum Spoken {
    Tls(ClientHello),
    Http(Protocol),
    Other,
}

/// Serves a connection from its first byte to its last.
pub(super) async fn serve(shared: Rc<Shared>, client: TcpStream, peer: SocketAddr) {
    let Ok(address) = client.local_addr() else { return };
    let address = SocketAddr::new(address.ip().to_canonical(), address.port());
    let connection =
        Accepted { shared, address, client_port: peer.port(), opened: Time::ZERO, key: None };
    if let Err(error) = connection.serve(client).await {
        tracing::debug!("connection from {peer} to {address}: {error}");
    }
}

struct Accepted {
    shared: Rc<Shared>,
    address: SocketAddr,
    client_port: u16,
    opened: Time,
    key: Option<ServerKey>,
}

impl Accepted {
    async fn serve(mut self, mut client: TcpStream) -> io::Result<()> {
        self.opened = self.shared.clock.now();
        client.set_nodelay(true)?;
        let mut server = match self.connect().await {
            Ok(server) => server,
            Err(error) => {
                let note = Note::Unreachable { server: self.address, reason: error.kind() };
                self.shared.notes.borrow_mut().add(note);
                return reset(&client);
            }
        };
        let connected = self.shared.clock.now();
        let mut prefix = Vec::new();
        let spoken = self.read_first(&mut prefix, &mut client, &server).await?;
        match spoken {
            None => self.tunnel(prefix, client, server, TunnelReason::NotHttp).await,
            Some(Spoken::Other) => self.tunnel(prefix, client, server, TunnelReason::NotHttp).await,
            Some(Spoken::Http(protocol)) => {
                let connect = Some(connected.since(self.opened));
                let host = self.address.to_string();
                let reset_on_end = [dup(&client)?, dup(&server)?];
                let observation = self.observe(
                    protocol,
                    None,
                    host,
                    Handshakes { connect, tls: None },
                    (dup(&server)?, None),
                );
                self.pass(observation, prefix, client, server, reset_on_end).await
            }
            Some(Spoken::Tls(hello)) => {
                let name = hello.server_name.as_ref().map(|name| name.as_str().to_owned());
                let key = ServerKey { address: self.address, name: name.clone() };
                self.key = Some(key.clone());
                let known = self.shared.tunnels.borrow().reason(&key);
                if let Some(reason) = known {
                    return self.tunnel(prefix, client, server, reason).await;
                }
                let offered = hello.protocols.len();
                let protocols: Vec<Vec<u8>> = (hello.protocols.into_iter())
                    .filter(|protocol| PROTOCOLS.contains(&&protocol[..]))
                    .collect();
                if offered > 0 && protocols.is_empty() {
                    return self.tunnel(prefix, client, server, TunnelReason::NotHttp).await;
                }
                let began = self.shared.clock.now();
                let server_fd = dup(&server)?;
                let hands = shake_hands(
                    &self.shared.roots,
                    server,
                    name.as_deref(),
                    self.address.ip(),
                    protocols,
                    self.shared.clock,
                );
                let hands = tokio::time::timeout(PATIENCE, hands).await;
                let origin = match hands.map_err(io::Error::from)? {
                    Ok(origin) => origin,
                    Err(refusal) => {
                        let reason = match refusal {
                            NoOrigin::ClientCertificate => TunnelReason::ClientCertificate,
                            NoOrigin::Failed(error) if is_of_tls(&error) => {
                                tracing::debug!("handshake with {}: {error}", self.address);
                                TunnelReason::Incompatible
                            }
                            // The network or the origin failed, for this connection.
                            NoOrigin::Failed(error) => {
                                let reason = error.kind();
                                let note = Note::Unreachable { server: self.address, reason };
                                self.shared.notes.borrow_mut().add(note);
                                return reset(&client);
                            }
                        };
                        self.shared.tunnels.borrow_mut().learn(key, reason);
                        // The origin has read another handshake on the first one.
                        server = self.connect().await?;
                        return self.tunnel(prefix, client, server, reason).await;
                    }
                };
                let done = self.shared.clock.now();
                let handshakes = Handshakes {
                    connect: Some(connected.since(self.opened) + done.since(began)),
                    tls: Some(done.since(began)),
                };
                self.stand_in(prefix, client, origin, handshakes, server_fd).await
            }
        }
    }

    /// Connects to the address for which the client asked.
    async fn connect(&self) -> io::Result<TcpStream> {
        let connect = tokio::time::timeout(PATIENCE, TcpStream::connect(self.address));
        let stream = connect.await.unwrap_or_else(|elapsed| Err(elapsed.into()))?;
        stream.set_nodelay(true)?;
        set_notsent_lowat(stream.as_fd(), MAX_UNSENT)?;
        Ok(stream)
    }

    /// Reads bytes of the client into `prefix` until it is clear what it speaks. `None` if the server
    /// speaks first, or if one of them closes the connection before.
    async fn read_first(
        &self,
        prefix: &mut Vec<u8>,
        client: &mut TcpStream,
        server: &TcpStream,
    ) -> io::Result<Option<Spoken>> {
        let mut stop = self.shared.stop.clone();
        loop {
            if let Some(spoken) = spoken(prefix) {
                return Ok(Some(spoken));
            }
            tokio::select! {
                read = client.read_buf(prefix) => if read? == 0 { return Ok(None) },
                ready = server.readable() => { ready?; return Ok(None) }
                _ = stop.wait_for(|stop| *stop) => return Err(io::ErrorKind::Interrupted.into()),
            }
        }
    }

    /// Answers the client in the place of the origin, with a certificate for the same names.
    async fn stand_in(
        self,
        prefix: Vec<u8>,
        client: TcpStream,
        origin: Origin,
        handshakes: Handshakes,
        server_fd: OwnedFd,
    ) -> io::Result<()> {
        let shared = Rc::clone(&self.shared);
        let Some(key) = self.key.clone() else { return Ok(()) };
        let mut names = origin.certificate.names.clone();
        if names.is_empty() && origin.is_trusted {
            names.push(key.name.clone().unwrap_or_else(|| self.address.ip().to_string()));
        }
        let issuer = match origin.is_trusted {
            true => &shared.authority,
            false => {
                shared.notes.borrow_mut().add(Note::BadCertificate { server: key.clone() });
                &shared.distrusted
            }
        };
        let certificate = issuer.issue(&names, None).map_err(io::Error::other)?;
        let config = server_config(certificate, origin.alpn.clone()).map_err(io::Error::other)?;
        let client_fd = dup(&client)?;
        let (reader, writer) = client.into_split();
        let client = tokio::io::join(io::Cursor::new(prefix).chain(reader), writer);
        let accept = TlsAcceptor::from(Arc::new(config)).accept(client);
        let accepted = tokio::time::timeout(PATIENCE, accept).await.map_err(io::Error::from)?;
        let client = match accepted {
            Ok(client) => client,
            Err(error) => {
                if let Some(alert) = alert(&error) {
                    // No client accepts the certificate of the distrusted authority.
                    if origin.is_trusted {
                        shared.tunnels.borrow_mut().on_alert(&key, alert);
                        if is_refusal(alert) {
                            shared.notes.borrow_mut().add(Note::Refused { server: key });
                        }
                    }
                }
                return Err(error);
            }
        };
        let protocol = match origin.alpn.as_deref() {
            Some(b"h2") => Protocol::Http2,
            _ => Protocol::Http11,
        };
        let tls = Tls {
            server_name: key.name.clone(),
            alpn: origin.alpn.as_deref().map(|alpn| String::from_utf8_lossy(alpn).into_owned()),
            certificate: Some(origin.certificate),
        };
        let host = key.name.unwrap_or_else(|| self.address.to_string());
        let reset_on_end = [client_fd, server_fd.try_clone()?];
        let server = (server_fd, Some(origin.arrival));
        let observation = self.observe(protocol, Some(tls), host, handshakes, server);
        self.pass(observation, Vec::new(), client, origin.stream, reset_on_end).await
    }

    /// Begins the record of the connection.
    fn observe(
        &self,
        protocol: Protocol,
        tls: Option<Tls>,
        host: String,
        handshakes: Handshakes,
        server: (OwnedFd, Option<Arrival>),
    ) -> Observation {
        let shared = &self.shared;
        let id = shared.next.get();
        shared.next.set(id + 1);
        let is_secure = tls.is_some();
        shared.sink.opened(
            id,
            Connection {
                server: Some(self.address),
                client_port: Some(self.client_port),
                protocol,
                tls,
                opened: Some(self.opened),
                closed: None,
                rtt: None,
            },
        );
        let is_http2 = protocol == Protocol::Http2;
        let observer = match is_http2 {
            true => Observer::Http2(Box::default()),
            false => Observer::Http1(http1::Observer::default()),
        };
        let assembly = Assembly::new(is_secure, host, is_http2, handshakes, &shared.spool);
        Observation::new(id, shared.clock, shared.sink.clone(), server, observer, assembly)
    }

    /// Passes on an observed connection until it ends, or the recording does.
    async fn pass(
        self,
        observation: Observation,
        prefix: Vec<u8>,
        client: impl AsyncRead + AsyncWrite,
        server: impl AsyncRead + AsyncWrite,
        sockets: [OwnedFd; 2],
    ) -> io::Result<()> {
        let mut stop = self.shared.stop.clone();
        let end = async {
            let _ = stop.wait_for(|stop| *stop).await;
            if observation.is_busy() {
                tokio::time::sleep(GRACE).await;
            }
        };
        tokio::select! {
            ending = observation.pass(prefix, client, server) => if ending == Ending::Reset {
                // The reset of one endpoint is passed on to the other one.
                sockets.iter().for_each(|socket| {
                    let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
                });
            },
            () = end => {}
        }
        for unread in observation.end().await {
            self.shared.sink.tunnelled(Tunnelled {
                server: self.address,
                server_name: self.key.as_ref().and_then(|key| key.name.clone()),
                opened: unread.since,
                reason: unread.reason,
                sent: unread.sent,
                received: unread.received,
            });
        }
        Ok(())
    }

    /// Passes on a connection unread.
    async fn tunnel(
        self,
        prefix: Vec<u8>,
        client: TcpStream,
        server: TcpStream,
        reason: TunnelReason,
    ) -> io::Result<()> {
        let (sent, received) = (Cell::new(0), Cell::new(0));
        let (client_reader, client_writer) = client.into_split();
        let (server_reader, server_writer) = server.into_split();
        let mut stop = self.shared.stop.clone();
        tokio::select! {
            _ = async {
                tokio::try_join!(
                    copy(io::Cursor::new(prefix).chain(client_reader), server_writer, &sent),
                    copy(server_reader, client_writer, &received),
                )
            } => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
        let (sent, received) = (sent.get(), received.get());
        // Browsers open connections in case they will need them.
        if sent > 0 || received > 0 {
            self.shared.sink.tunnelled(Tunnelled {
                server: self.address,
                server_name: self.key.and_then(|key| key.name),
                opened: self.opened,
                reason,
                sent,
                received,
            });
        }
        Ok(())
    }
}

/// Returns the protocol of a client that has sent these bytes. `None` if more are needed.
fn spoken(bytes: &[u8]) -> Option<Spoken> {
    if bytes.is_empty() {
        return None;
    }
    match client_hello(bytes) {
        Peek::Complete(hello) => return Some(Spoken::Tls(hello)),
        Peek::More(_) => return None,
        Peek::No => {}
    }
    if PREFACE.starts_with(&bytes[..bytes.len().min(PREFACE.len())]) {
        return (bytes.len() >= PREFACE.len()).then_some(Spoken::Http(Protocol::Http2));
    }
    // A method is a token (RFC 9110, 9.1); those in use are letters and hyphens.
    let is_letter = |byte: &&u8| byte.is_ascii_alphabetic() || **byte == b'-';
    let letters = bytes.iter().take_while(is_letter).count();
    match bytes.get(letters) {
        Some(b' ') if (1..=MAX_METHOD_LENGTH).contains(&letters) => {
            Some(Spoken::Http(Protocol::Http11))
        }
        None if letters <= MAX_METHOD_LENGTH && bytes.len() < MAX_PEEK_LENGTH => None,
        _ => Some(Spoken::Other),
    }
}

async fn copy(
    mut reader: impl AsyncRead + Unpin,
    mut writer: impl AsyncWrite + Unpin,
    count: &Cell<u64>,
) -> io::Result<()> {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let length = reader.read(&mut buffer).await?;
        if length == 0 {
            return writer.shutdown().await;
        }
        writer.write_all(&buffer[..length]).await?;
        count.set(count.get() + length as u64);
    }
}

pub(super) fn server_config(
    certificate: Arc<CertifiedKey>,
    protocol: Option<Vec<u8>>,
) -> Result<ServerConfig, Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::clone(&PROVIDER))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Single(certificate)));
    config.alpn_protocols = protocol.into_iter().collect();
    // The first suite of the provider, which costs the recorder least.
    config.ignore_client_order = true;
    // Each connection to the origin is a new one, too.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// The certificate of every name.
#[derive(Debug)]
struct Single(Arc<CertifiedKey>);

impl ResolvesServerCert for Single {
    fn resolve(&self, _: Hello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

/// Whether a handshake failed because of its messages, and not of the network.
fn is_of_tls(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Error>())
}

/// The alert by which a client ended a handshake.
fn alert(error: &io::Error) -> Option<AlertDescription> {
    match error.get_ref()?.downcast_ref::<Error>()? {
        Error::AlertReceived(alert) => Some(*alert),
        _ => None,
    }
}

fn dup(stream: &TcpStream) -> io::Result<OwnedFd> {
    stream.as_fd().try_clone_to_owned()
}

/// Resets a connection when it is dropped: the client sees that the origin has none either.
fn reset(stream: &TcpStream) -> io::Result<()> {
    SockRef::from(stream).set_linger(Some(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(bytes: &[u8]) -> Option<&'static str> {
        spoken(bytes).map(|spoken| match spoken {
            Spoken::Tls(_) => "tls",
            Spoken::Http(Protocol::Http2) => "h2",
            Spoken::Http(_) => "http",
            Spoken::Other => "other",
        })
    }

    #[test]
    fn first_bytes_tell_what_a_client_speaks() {
        assert_eq!(kind(b""), None);
        assert_eq!(kind(b"GE"), None);
        assert_eq!(kind(b"GET "), Some("http"));
        assert_eq!(kind(b"M-SEARCH * HTTP/1.1\r\n"), Some("http"));
        assert_eq!(kind(b"PRI * HT"), None);
        assert_eq!(kind(PREFACE), Some("h2"));
        assert_eq!(kind(b"P"), None);
        assert_eq!(kind(b"POST /"), Some("http"));
        assert_eq!(kind(b"PROPFIND /"), Some("http"));
        assert_eq!(kind(b"SSH-2.0-"), Some("other"));
        assert_eq!(kind(b" GET /"), Some("other"));
        assert_eq!(kind(b"\r\n"), Some("other"));
        assert_eq!(kind(&[b'A'; 33]), Some("other"));
        assert_eq!(kind(&[0x16, 3, 1]), None);
        assert_eq!(kind(&[0x16, 9, 9, 0, 1, 0]), Some("other"));
    }
}
