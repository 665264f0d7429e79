//! Connections over one path: DNS, TCP, TLS, and the HTTP version that the server selects.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use bytes::Bytes;
use h2::Ping;
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use manyways_proto::fetch::{Fault, FaultClass};
use manyways_proto::happy_eyeballs::{DialConfig, DialInput, DialOutput, Dialer};
use manyways_unit::{Span, Time};
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, CertificateError, ClientConfig};
use socket2::{Domain, Protocol as Transport, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until};
use tokio_rustls::TlsConnector;

use super::PathSpec;
use super::answers::Answers;
use super::late::{Cancelled, Frames, Late, Unread};
use super::location::Origin;
use super::path::Unresolved;

/// Returns the connection window for this stream window. When one stream replaces another, the rest
/// of the previous one is still in flight; two full windows would overrun the queue. Credit that is
/// withheld for an exact end also counts, so one window is not enough.
fn connection_window(stream: u32) -> u32 {
    stream.saturating_add(stream / 2).min(MOST_WINDOW)
}

/// Largest flow-control window (RFC 9113 §6.9.1).
pub(super) const MOST_WINDOW: u32 = (1 << 31) - 1;
/// Largest DATA frame. Large frames save wake-ups, because each frame costs one.
const MOST_FRAME: u32 = 64 << 10;

/// The HTTP version of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    Http1,
    Http2,
}

impl Protocol {
    /// The ALPN identifier: `http/1.1` or `h2`.
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
    /// A duplicated descriptor of the socket, for TCP_INFO.
    socket: Arc<OwnedFd>,
}

/// Parameters of a connection: path, TLS, counters, and the start of HTTP/2.
#[derive(Clone)]
pub(super) struct Means {
    pub(super) path: Arc<PathSpec>,
    pub(super) tls: Arc<ClientConfig>,
    pub(super) late: Late,
    /// Initial window of an HTTP/2 stream.
    pub(super) window: u32,
    /// Whether HTTP/2 is used without TLS and negotiation.
    pub(super) prior_knowledge: bool,
    /// Receives a message for each acknowledged PING.
    pub(super) pongs: mpsc::UnboundedSender<()>,
    /// Whether the server has complained about too many frames: it gets no PINGs.
    pub(super) calm: Arc<AtomicBool>,
    /// DNS results of all paths.
    pub(super) answers: Answers,
}

/// The task that does the I/O of a connection. It ends with the last handle to the connection.
struct Driver {
    task: AbortHandle,
    /// Orders for an HTTP/2 connection; `None` for HTTP/1.1.
    orders: Option<mpsc::UnboundedSender<Order>>,
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A change of an HTTP/2 connection instead of one stream.
enum Order {
    /// Set the window of every stream.
    Window(u32),
    Ping,
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

    /// Whether the connection belongs to `origin` and is not known to be closed.
    pub(super) fn serves(&self, origin: &Origin) -> bool {
        let open = match &self.sender {
            Sender::Http1(sender) => !sender.is_closed(),
            Sender::Http2(_) => !self.driver.task.is_finished(),
        };
        open && self.origin == *origin
    }

    /// Returns a second handle; `None` for HTTP/1.1, which takes one request at a time.
    pub(super) fn twin(&self) -> Option<Self> {
        let Sender::Http2(sender) = &self.sender else { return None };
        Some(Self {
            origin: self.origin.clone(),
            server: self.server,
            sender: Sender::Http2(sender.clone()),
            late: self.late.clone(),
            cancelled: self.cancelled.clone(),
            driver: Arc::clone(&self.driver),
            socket: Arc::clone(&self.socket),
        })
    }

    /// Sets the window of every stream, including open ones.
    pub(super) fn set_window(&self, bytes: u32) {
        self.order(Order::Window(bytes));
    }

    /// Sends a PING. Returns whether the connection can.
    pub(super) fn ping(&self) -> bool {
        self.order(Order::Ping)
    }

    /// Returns whether the connection accepts orders; a closed one does not.
    fn order(&self, order: Order) -> bool {
        self.driver.orders.as_ref().is_some_and(|orders| orders.send(order).is_ok())
    }

    /// The smoothed RTT of TCP, from the kernel.
    pub(super) fn round_trip(&self) -> Option<Span> {
        manyways_sys::socket::tcp_round_trip(self.socket.as_fd()).ok().flatten()
    }
}

/// Connects to `origin`. The caller sets the timeout. Discarded bytes are counted as late.
pub(super) async fn dial(means: &Means, origin: &Origin) -> Result<Connection, Fault> {
    let path = &*means.path;
    if !path.has_carrier() {
        return Err(Fault::passing(FaultClass::Down, "its link is down"));
    }
    let (stream, server) = reach(means, origin).await?;
    // Requests are small and must not be delayed. A failure costs only time.
    let _ = stream.set_nodelay(true);
    let socket = stream.as_fd().try_clone_to_owned().map_err(|error| {
        Fault::passing(FaultClass::Connect, format!("no second descriptor: {}", plain(&error)))
    })?;
    let dialled = Dialled { means, origin, server, socket: Arc::new(socket) };
    let stream = Unread::new(stream, means.late.clone());
    if !origin.secure {
        return match means.prior_knowledge {
            true => dialled.http2(stream).await,
            false => dialled.http1(stream).await,
        };
    }
    let name = ServerName::try_from(origin.host.clone()).map_err(|_| {
        Fault::lasting(FaultClass::Tls, format!("{} is not a TLS server name", origin.host))
    })?;
    let stream = TlsConnector::from(Arc::clone(&means.tls)).connect(name, stream).await;
    let stream = stream.map_err(|error| tls_fault(&error, server))?;
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        dialled.http2(stream).await
    } else {
        dialled.http1(stream).await
    }
}

/// Connects over TCP to an address from the path's own name servers. `proto::happy_eyeballs`
/// decides about the attempts and connects speculatively to addresses that another path has
/// resolved.
async fn reach(means: &Means, origin: &Origin) -> Result<(TcpStream, SocketAddr), Fault> {
    let path = &*means.path;
    let started = Instant::now();
    let now = || Time::ZERO + Span::from(started.elapsed());
    let config = DialConfig::default();
    let mut dialer = Dialer::new(config);
    let mut attempts = Attempts::default();
    let own = async {
        match origin.address() {
            Some(address) => Ok(vec![address]),
            None => path.names.lookup(&origin.host).await.inspect(|own| {
                means.answers.say(&origin.host, own);
            }),
        }
    };
    let other = means.answers.hear(&origin.host);
    tokio::pin!(own, other);
    let (mut has_own, mut has_other) = (false, origin.address().is_some());
    loop {
        while let Some(output) = dialer.poll(now()) {
            match output {
                DialOutput::Connect(server) => {
                    if let Err(error) = attempts.start(path, server) {
                        attempts.last_error = Some((error, server));
                        dialer.handle(now(), DialInput::Failed(server));
                    }
                }
                DialOutput::Abort => attempts = Attempts::default(),
                DialOutput::Use(server) => {
                    if let Some(stream) = attempts.take(server) {
                        return Ok((stream, server));
                    }
                }
                DialOutput::Failed => return Err(attempts.fault()),
            }
        }
        let wakeup = dialer.next_wakeup();
        let timer = async {
            match wakeup {
                Some(at) => sleep_until(started + at.since(Time::ZERO).into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            own = &mut own, if !has_own => {
                has_own = true;
                let own = own.map_err(|Unresolved { words, again }| {
                    Fault { class: FaultClass::Dns, words, again }
                })?;
                let servers = servers(path, origin, config, &own);
                if servers.is_empty() {
                    let host = &origin.host;
                    let words = format!("{host} has no address of a family that this path has");
                    return Err(Fault::lasting(FaultClass::Connect, words));
                }
                dialer.handle(now(), DialInput::OwnAddresses(servers));
            }
            other = &mut other, if !has_own && !has_other => {
                has_other = true;
                let servers = servers(path, origin, config, &other);
                dialer.handle(now(), DialInput::OtherAddresses(servers));
            }
            (server, connected) = attempts.next(), if !attempts.running.is_empty() => {
                let input = match connected {
                    Ok(stream) => {
                        attempts.connected.push((server, stream));
                        DialInput::Connected(server)
                    }
                    Err(error) => {
                        attempts.last_error = Some((error, server));
                        DialInput::Failed(server)
                    }
                };
                dialer.handle(now(), input);
            }
            () = timer => {}
        }
    }
}

/// Returns the addresses of a server in the order of the attempts.
fn servers(
    path: &PathSpec,
    origin: &Origin,
    config: DialConfig,
    addresses: &[IpAddr],
) -> Vec<SocketAddr> {
    let selected = config.select(addresses, |address| path.has_family(address));
    selected.into_iter().map(|address| SocketAddr::new(address, origin.port)).collect()
}

/// The connection attempts of one path to one server.
#[derive(Default)]
struct Attempts {
    running: JoinSet<(SocketAddr, io::Result<TcpStream>)>,
    connected: Vec<(SocketAddr, TcpStream)>,
    last_error: Option<(io::Error, SocketAddr)>,
}

impl Attempts {
    fn start(&mut self, path: &PathSpec, server: SocketAddr) -> io::Result<()> {
        let socket = socket(path, server)?;
        self.running.spawn(async move { (server, socket.connect(server).await) });
        Ok(())
    }

    /// Returns the next attempt that ends; pending while none is under way.
    async fn next(&mut self) -> (SocketAddr, io::Result<TcpStream>) {
        loop {
            match self.running.join_next().await {
                Some(Ok(ended)) => return ended,
                // These tasks do not panic and are not aborted while they are awaited.
                Some(Err(_)) => {}
                None => std::future::pending().await,
            }
        }
    }

    fn take(&mut self, server: SocketAddr) -> Option<TcpStream> {
        let at = self.connected.iter().position(|(other, _)| *other == server)?;
        Some(self.connected.swap_remove(at).1)
    }

    fn fault(self) -> Fault {
        let words = match self.last_error {
            Some((error, server)) => format!("no connection to {server}: {}", plain(&error)),
            None => "no address to connect to".to_owned(),
        };
        Fault::passing(FaultClass::Connect, words)
    }
}

/// A server with a TCP connection, before HTTP begins.
struct Dialled<'a> {
    means: &'a Means,
    origin: &'a Origin,
    server: SocketAddr,
    socket: Arc<OwnedFd>,
}

impl Dialled<'_> {
    async fn http2<S>(self, stream: S) -> Result<Connection, Fault>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (server, cancelled) = (self.server, Cancelled::default());
        let stream = Frames::new(stream, self.means.late.clone(), cancelled.clone());
        let handshake = h2::client::Builder::new()
            .initial_window_size(self.means.window)
            .initial_connection_window_size(connection_window(self.means.window))
            .max_frame_size(MOST_FRAME)
            .enable_push(false)
            .handshake::<_, Bytes>(stream)
            .await;
        let (sender, connection) = handshake.map_err(|error| {
            let words = format!("{server} does not speak HTTP/2: {error}");
            Fault::passing(FaultClass::Protocol, words)
        })?;
        let (orders, received) = mpsc::unbounded_channel();
        let driven = drive(connection, received, self.means.pongs.clone());
        let calm = Arc::clone(&self.means.calm);
        let driver = tokio::spawn(async move {
            if let Err(error) = driven.await {
                // The current request may survive this error and fail later without a connection.
                if error.reason() == Some(h2::Reason::ENHANCE_YOUR_CALM) {
                    calm.store(true, Ordering::Relaxed);
                }
                tracing::debug!("HTTP/2 connection to {server} ended: {error}");
            }
        });
        let driver = Driver { task: driver.abort_handle(), orders: Some(orders) };
        Ok(self.connection(Sender::Http2(sender), cancelled, driver))
    }

    async fn http1<S>(self, stream: S) -> Result<Connection, Fault>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let server = self.server;
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = handshake.map_err(|error| {
            Fault::passing(FaultClass::Protocol, format!("{server} does not speak HTTP: {error}"))
        })?;
        let driver = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!("HTTP/1.1 connection to {server} ended: {error}");
            }
        });
        let driver = Driver { task: driver.abort_handle(), orders: None };
        Ok(self.connection(Sender::Http1(sender), Cancelled::default(), driver))
    }

    fn connection(self, sender: Sender, cancelled: Cancelled, driver: Driver) -> Connection {
        Connection {
            origin: self.origin.clone(),
            server: self.server,
            sender,
            late: self.means.late.clone(),
            cancelled,
            driver: Arc::new(driver),
            socket: self.socket,
        }
    }
}

/// Drives an HTTP/2 connection and executes its orders.
///
/// h2 allows only one unacknowledged SETTINGS frame. A new window waits for the acknowledgment, and
/// only the latest one is sent.
async fn drive<S>(
    mut connection: h2::client::Connection<S, Bytes>,
    mut orders: mpsc::UnboundedReceiver<Order>,
    pongs: mpsc::UnboundedSender<()>,
) -> Result<(), h2::Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut pings = connection.ping_pong();
    let (mut window, mut pinging) = (None, false);
    poll_fn(|context| {
        while let Poll::Ready(Some(order)) = orders.poll_recv(context) {
            match order {
                Order::Window(bytes) => {
                    window = Some(bytes);
                    connection.set_target_window_size(connection_window(bytes));
                }
                // A PING is already under way.
                Order::Ping if pinging => {}
                Order::Ping => {
                    let sent = pings.as_mut().map(|pings| pings.send_ping(Ping::opaque()));
                    pinging = sent.is_some_and(|sent| sent.is_ok());
                }
            }
        }
        if let Some(bytes) = window
            && connection.set_initial_window_size(bytes).is_ok()
        {
            window = None;
        }
        let ended = Pin::new(&mut connection).poll(context);
        if pinging
            && let Some(pings) = &mut pings
            && let Poll::Ready(Ok(_)) = pings.poll_pong(context)
        {
            pinging = false;
            // The receiver may have been dropped.
            let _ = pongs.send(());
        }
        // The previous SETTINGS frame may have been acknowledged just now.
        if let Some(bytes) = window
            && connection.set_initial_window_size(bytes).is_ok()
        {
            window = None;
            return Pin::new(&mut connection).poll(context);
        }
        ended
    })
    .await
}

/// Creates a socket whose packets leave through the path's interface.
///
/// Binding to an interface needs no privilege since Linux 5.7. If it is refused, the socket is
/// bound only to the source address, which is enough if the host routes by source.
pub(crate) fn socket(path: &PathSpec, server: SocketAddr) -> io::Result<TcpSocket> {
    let transport = if path.mptcp { Transport::MPTCP } else { Transport::TCP };
    let socket = bound(path, server, Type::STREAM, transport)?;
    Ok(TcpSocket::from_std_stream(socket.into()))
}

/// Creates an unconnected UDP socket to a server over a path.
#[cfg(feature = "bond")]
pub(crate) fn udp_socket(path: &PathSpec, server: SocketAddr) -> io::Result<std::net::UdpSocket> {
    Ok(bound(path, server, Type::DGRAM, Transport::UDP)?.into())
}

fn bound(
    path: &PathSpec,
    server: SocketAddr,
    kind: Type,
    transport: Transport,
) -> io::Result<Socket> {
    let domain = if server.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, kind, Some(transport))?;
    if let Some(device) = &path.device
        && let Err(error) = socket.bind_device(Some(device.as_bytes()))
    {
        if error.kind() != io::ErrorKind::PermissionDenied {
            return Err(error);
        }
        tracing::debug!("{}: bound to an address only: {error}", path.name);
    }
    if let Some(source) = path.source(server.ip()) {
        match socket.bind(&SocketAddr::new(source, 0).into()) {
            // The interface has a different address by now, which the kernel selects.
            Err(error)
                if error.kind() == io::ErrorKind::AddrNotAvailable && path.device.is_some() =>
            {
                tracing::debug!("{}: {source} is no longer its address", path.name);
            }
            bound => bound?,
        }
    }
    socket.set_nonblocking(true)?;
    Ok(socket)
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

/// Describes a certificate error for users.
fn certificate(why: &CertificateError) -> String {
    let words = match why {
        CertificateError::UnknownIssuer => "its issuer is not trusted by this host",
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
        // rustls has no separate variant for this error.
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

/// Describes a handshake error for users.
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
            AlertDescription::InternalError => "the server reported an internal error",
            _ => "the server refused it",
        },
        _ => "the server's messages make no sense",
    }
}

/// Formats an I/O error without its number, for example `(os error 111)`.
pub(crate) fn plain(error: &io::Error) -> String {
    // tokio-rustls adds the URL of its documentation to this error.
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
    use crate::fetch::location::Location;
    use crate::fetch::path::{Lookup, Names};
    use crate::fetch::tls::Trust;

    #[test]
    fn errors_lose_their_number() {
        let error = io::Error::from_raw_os_error(111);
        assert_eq!(plain(&error), "connection refused");
    }

    /// A name server that answers when it is notified.
    struct Slow(tokio::sync::Notify, Result<Vec<IpAddr>, Unresolved>);

    impl Names for Slow {
        fn lookup<'a>(&'a self, _: &'a str) -> Lookup<'a> {
            Box::pin(async {
                self.0.notified().await;
                self.1.clone()
            })
        }
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn means(names: Arc<dyn Names>) -> Means {
        let (pongs, _) = mpsc::unbounded_channel();
        let names = PathSpec { names, ..PathSpec::from_address("a", address("127.0.0.9")) };
        Means {
            path: Arc::new(names),
            tls: crate::fetch::tls::config(&Trust::Anybody).unwrap(),
            late: Late::default(),
            window: 65_535,
            prior_knowledge: false,
            pongs,
            calm: Arc::default(),
            answers: Answers::default(),
        }
    }

    async fn listener(address: &str) -> (tokio::net::TcpListener, Origin) {
        let listener = tokio::net::TcpListener::bind((address, 0)).await.unwrap();
        let url = format!("http://a.test:{}/", listener.local_addr().unwrap().port());
        let origin = Location::parse(&url).unwrap().origin().clone();
        (listener, origin)
    }

    /// The path's own name server answers only after the speculative connection was accepted.
    #[tokio::test]
    async fn what_another_path_heard_is_knocked_at() {
        let (listener, origin) = listener("127.0.0.1").await;
        let own = vec![address("127.0.0.2"), address("127.0.0.1")];
        let names = Arc::new(Slow(tokio::sync::Notify::new(), Ok(own)));
        let means = means(names.clone());
        let server = async {
            let (stream, from) = listener.accept().await.unwrap();
            names.0.notify_one();
            (stream, from)
        };
        means.answers.say("other.test", &[address("127.0.0.3")]);
        let tell = async { means.answers.say("a.test", &[address("127.0.0.1")]) };
        let (reached, (_, from), ()) = tokio::join!(reach(&means, &origin), server, tell);
        let (stream, server) = reached.unwrap();
        assert_eq!(server, listener.local_addr().unwrap());
        // The speculative connection is used, and there was no second one.
        assert_eq!(stream.local_addr().unwrap(), from);
        assert!(nothing_of(listener.accept()).await);
    }

    /// Whether a future is not ready immediately.
    async fn nothing_of<T>(future: impl Future<Output = T>) -> bool {
        tokio::select! {
            biased;
            _ = future => false,
            () = tokio::task::yield_now() => true,
        }
    }

    #[tokio::test]
    async fn a_server_that_is_not_the_paths_own_is_left() {
        let (other, origin) = listener("127.0.0.1").await;
        let port = other.local_addr().unwrap().port();
        let mine = tokio::net::TcpListener::bind(("127.0.0.2", port)).await.unwrap();
        let names = Arc::new(Slow(tokio::sync::Notify::new(), Ok(vec![address("127.0.0.2")])));
        let means = means(names.clone());
        means.answers.say("a.test", &[address("127.0.0.1")]);
        let server = async {
            let knocked = other.accept().await.unwrap();
            names.0.notify_one();
            knocked
        };
        let (reached, (mut left, _)) = tokio::join!(reach(&means, &origin), server);
        assert_eq!(reached.unwrap().1, mine.local_addr().unwrap());
        let mut said = Vec::new();
        tokio::io::AsyncReadExt::read_to_end(&mut left, &mut said).await.unwrap();
        assert!(said.is_empty());
    }

    #[tokio::test]
    async fn a_path_without_names_fails_though_another_has_them() {
        let (_listener, origin) = listener("127.0.0.1").await;
        let none = Unresolved { words: "nobody knows".into(), again: true };
        let names = Arc::new(Slow(tokio::sync::Notify::new(), Err(none)));
        names.0.notify_one();
        let means = means(names);
        means.answers.say("a.test", &[address("127.0.0.1")]);
        assert_eq!(reach(&means, &origin).await.unwrap_err().class, FaultClass::Dns);
    }
}
