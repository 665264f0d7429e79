//! A connection over one path: name, TCP, TLS, and the HTTP version that the server chose.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use manyways_proto::fetch::{Fault, FaultClass};
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, CertificateError, ClientConfig};
use socket2::{Domain, Protocol as Transport, Socket, Type};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio_rustls::TlsConnector;

use super::PathSpec;
use super::late::{Cancelled, Frames, Late, Unread};
use super::location::Origin;
use super::path::Unresolved;

/// The next address of a server is tried beside the one before it after this (RFC 8305 §5).
const STAGGER: Duration = Duration::from_millis(250);
/// At most so many addresses of a server are tried.
const MOST_ADDRESSES: usize = 8;
/// HTTP/2 windows: a stream may have so much under way…
const STREAM_WINDOW: u32 = 8 << 20;
/// …and a connection so much.
const CONNECTION_WINDOW: u32 = 16 << 20;

/// The HTTP version of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
}

impl Protocol {
    /// As ALPN names it: `http/1.1` or `h2`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http1 => "http/1.1",
            Self::Http2 => "h2",
        }
    }
}

/// A connection that can take a request.
pub(super) struct Connection {
    pub(super) origin: Origin,
    pub(super) server: SocketAddr,
    pub(super) sender: Sender,
    pub(super) late: Late,
    pub(super) cancelled: Cancelled,
    driver: Arc<Driver>,
}

/// The task that moves the connection's bytes; it ends with the last handle to the connection.
struct Driver(AbortHandle);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub(super) enum Sender {
    Http1(hyper::client::conn::http1::SendRequest<Empty<Bytes>>),
    Http2(h2::client::SendRequest<Bytes>),
}

impl Connection {
    pub(super) fn protocol(&self) -> Protocol {
        match self.sender {
            Sender::Http1(_) => Protocol::Http1,
            Sender::Http2(_) => Protocol::Http2,
        }
    }

    /// Whether it serves `origin` and is not known to be closed.
    pub(super) fn serves(&self, origin: &Origin) -> bool {
        let open = match &self.sender {
            Sender::Http1(sender) => !sender.is_closed(),
            Sender::Http2(_) => !self.driver.0.is_finished(),
        };
        open && self.origin == *origin
    }

    /// A second handle, where several requests can share the connection.
    pub(super) fn twin(&self) -> Option<Self> {
        let Sender::Http2(sender) = &self.sender else { return None };
        Some(Self {
            origin: self.origin.clone(),
            server: self.server,
            sender: Sender::Http2(sender.clone()),
            late: self.late.clone(),
            cancelled: self.cancelled.clone(),
            driver: Arc::clone(&self.driver),
        })
    }
}

/// Connects to `origin` over `path`. The caller bounds the time. What comes for nothing is counted
/// in `late`.
pub(super) async fn dial(
    path: &PathSpec,
    origin: &Origin,
    tls: &Arc<ClientConfig>,
    late: &Late,
) -> Result<Connection, Fault> {
    if !path.has_carrier() {
        return Err(Fault::passing(FaultClass::Down, "its link is down"));
    }
    let addresses = match origin.address() {
        Some(address) => vec![address],
        None => path.names.lookup(&origin.host).await.map_err(|Unresolved { words, again }| {
            Fault { class: FaultClass::Dns, words, again }
        })?,
    };
    let reachable = addresses.iter().copied().filter(|address| path.has_family(*address));
    let servers: Vec<SocketAddr> = interleave(reachable)
        .into_iter()
        .take(MOST_ADDRESSES)
        .map(|address| SocketAddr::new(address, origin.port))
        .collect();
    if servers.is_empty() {
        let words = format!("{} has no address of a family that this path has", origin.host);
        return Err(Fault::lasting(FaultClass::Connect, words));
    }
    let (stream, server) = connect(path, &servers).await?;
    // Requests are small and wait for nothing; failing to say so costs only time.
    let _ = stream.set_nodelay(true);
    let stream = Unread::new(stream, late.clone());
    if origin.secure {
        secure(stream, server, origin, tls, late).await
    } else {
        http1(stream, server, origin, late).await
    }
}

async fn secure(
    stream: Unread,
    server: SocketAddr,
    origin: &Origin,
    tls: &Arc<ClientConfig>,
    late: &Late,
) -> Result<Connection, Fault> {
    let name = ServerName::try_from(origin.host.clone())
        .map_err(|_| Fault::lasting(FaultClass::Tls, format!("{} is no TLS name", origin.host)))?;
    let stream = TlsConnector::from(Arc::clone(tls)).connect(name, stream).await;
    let stream = stream.map_err(|error| tls_fault(&error, server))?;
    let h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    if !h2 {
        return http1(stream, server, origin, late).await;
    }
    let cancelled = Cancelled::default();
    let stream = Frames::new(stream, late.clone(), cancelled.clone());
    let handshake = h2::client::Builder::new()
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .enable_push(false)
        .handshake::<_, Bytes>(stream)
        .await;
    let (sender, connection) = handshake.map_err(|error| {
        Fault::passing(FaultClass::Protocol, format!("{server} does not speak HTTP/2: {error}"))
    })?;
    let driver = tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!("HTTP/2 connection to {server} ended: {error}");
        }
    });
    let driver = Arc::new(Driver(driver.abort_handle()));
    let (origin, late, sender) = (origin.clone(), late.clone(), Sender::Http2(sender));
    Ok(Connection { origin, server, sender, late, cancelled, driver })
}

async fn http1<S>(
    stream: S,
    server: SocketAddr,
    origin: &Origin,
    late: &Late,
) -> Result<Connection, Fault>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (sender, connection) = handshake.map_err(|error| {
        Fault::passing(FaultClass::Protocol, format!("{server} does not speak HTTP: {error}"))
    })?;
    let driver = tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!("HTTP/1.1 connection to {server} ended: {error}");
        }
    });
    let driver = Arc::new(Driver(driver.abort_handle()));
    let (origin, late, sender) = (origin.clone(), late.clone(), Sender::Http1(sender));
    Ok(Connection { origin, server, sender, late, cancelled: Cancelled::default(), driver })
}

/// Happy eyeballs, light: each address is tried a little after the one before it, or at once when
/// that failed; the first that answers wins.
async fn connect(
    path: &PathSpec,
    servers: &[SocketAddr],
) -> Result<(TcpStream, SocketAddr), Fault> {
    let mut attempts = JoinSet::new();
    let mut waiting = servers.iter().copied();
    let mut last = None;
    loop {
        let next = waiting.next();
        if let Some(server) = next {
            match socket(path, server) {
                Ok(socket) => {
                    attempts.spawn(async move { (socket.connect(server).await, server) });
                }
                Err(error) => {
                    last = Some((error, server));
                    continue;
                }
            }
        }
        let stagger = tokio::time::sleep(STAGGER);
        tokio::select! {
            joined = attempts.join_next() => match joined {
                Some(Ok((Ok(stream), server))) => return Ok((stream, server)),
                Some(Ok((Err(error), server))) => last = Some((error, server)),
                Some(Err(_)) => {}
                None if next.is_none() => break,
                None => {}
            },
            () = stagger, if next.is_some() => {}
        }
    }
    let words = match last {
        Some((error, server)) => format!("no connection to {server}: {}", plain(&error)),
        None => "no address to connect to".to_owned(),
    };
    Err(Fault::passing(FaultClass::Connect, words))
}

/// A socket whose packets leave through the path's interface.
///
/// Binding to the interface needs no privilege since Linux 5.7; where it is refused, the source
/// address has to do, which is enough where the host routes by source.
fn socket(path: &PathSpec, server: SocketAddr) -> io::Result<TcpSocket> {
    let domain = if server.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, Type::STREAM, Some(Transport::TCP))?;
    if let Some(device) = &path.device
        && let Err(error) = socket.bind_device(Some(device.as_bytes()))
    {
        if error.kind() != io::ErrorKind::PermissionDenied {
            return Err(error);
        }
        tracing::debug!("{}: bound to an address only: {error}", path.name);
    }
    if let Some(source) = path.source(server.ip()) {
        socket.bind(&SocketAddr::new(source, 0).into())?;
    }
    socket.set_nonblocking(true)?;
    Ok(TcpSocket::from_std_stream(socket.into()))
}

/// Alternates the families, beginning with the resolver's first choice (RFC 8305 §4).
fn interleave(addresses: impl Iterator<Item = IpAddr>) -> Vec<IpAddr> {
    let addresses: Vec<IpAddr> = addresses.collect();
    let first_is_v4 = addresses.first().is_some_and(IpAddr::is_ipv4);
    let (first, second): (Vec<IpAddr>, Vec<IpAddr>) =
        addresses.into_iter().partition(|address| address.is_ipv4() == first_is_v4);
    let mut second = second.into_iter();
    let mut mixed = Vec::new();
    for address in first {
        mixed.push(address);
        mixed.extend(second.next());
    }
    mixed.extend(second);
    mixed
}

fn tls_fault(error: &io::Error, server: SocketAddr) -> Fault {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidCertificate(why)) => Fault::lasting(
            FaultClass::Tls,
            format!("the certificate of {server} is not accepted: {}", certificate(why)),
        ),
        Some(why) => Fault::lasting(
            FaultClass::Tls,
            format!("the TLS handshake with {server} failed: {}", handshake(why)),
        ),
        None => Fault::passing(
            FaultClass::Tls,
            format!("the TLS handshake with {server} broke off: {}", plain(error)),
        ),
    }
}

/// What is wrong with a certificate, in words for people who did not write the library.
fn certificate(why: &CertificateError) -> String {
    let words = match why {
        CertificateError::UnknownIssuer => "nobody whom this host trusts has issued it",
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "it has expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "it is for another name"
        }
        CertificateError::Revoked => "it was revoked",
        CertificateError::BadEncoding => "it cannot be read",
        CertificateError::BadSignature => "its signature is wrong",
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "it is not meant for servers"
        }
        CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "it is signed in a way that is not accepted"
        }
        // The library has no name of its own for this one.
        other if other.to_string().contains("CaUsedAsEndEntity") => {
            "it was issued by itself, and this host does not trust it"
        }
        other => {
            tracing::debug!("certificate: {other:?}");
            "it has a fault"
        }
    };
    words.to_owned()
}

/// Why a handshake failed, likewise.
fn handshake(why: &rustls::Error) -> &'static str {
    tracing::debug!("handshake: {why:?}");
    match why {
        rustls::Error::InvalidMessage(_) => "what answers there does not speak TLS",
        rustls::Error::PeerIncompatible(_) => {
            "the server offers no version of TLS from 1.2 on that both understand"
        }
        rustls::Error::NoApplicationProtocol => "the server speaks neither HTTP/2 nor HTTP/1.1",
        rustls::Error::NoCertificatesPresented => "the server has no certificate",
        rustls::Error::AlertReceived(alert) => match alert {
            AlertDescription::HandshakeFailure
            | AlertDescription::InsufficientSecurity
            | AlertDescription::ProtocolVersion => {
                "the server accepts nothing that this program offers"
            }
            AlertDescription::UnrecognisedName => "the server does not know this name",
            AlertDescription::NoApplicationProtocol => {
                "the server speaks neither HTTP/2 nor HTTP/1.1"
            }
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::AccessDenied => "the server wants a certificate from its clients",
            AlertDescription::InternalError => "the server had an error of its own",
            _ => "the server refused it",
        },
        _ => "the server's messages make no sense",
    }
}

/// An I/O error without the `(os error 111)` that tells a user nothing.
pub(super) fn plain(error: &io::Error) -> String {
    // The library that found it out adds its address.
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return "it was closed too early".to_owned();
    }
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_alternate() {
        let list = |text: &str| -> Vec<IpAddr> {
            text.split(' ').map(|address| address.parse().unwrap()).collect()
        };
        let mixed = interleave(list("::1 ::2 ::3 1.1.1.1").into_iter());
        assert_eq!(mixed, list("::1 1.1.1.1 ::2 ::3"));
        assert!(interleave(std::iter::empty()).is_empty());
    }

    #[test]
    fn errors_lose_their_number() {
        let error = io::Error::from_raw_os_error(111);
        assert_eq!(plain(&error), "connection refused");
    }
}
