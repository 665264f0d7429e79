//! Connections over one path, with the HTTP version that the server selects.

use std::collections::HashSet;
use std::fmt;
use std::future::poll_fn;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use bytes::Bytes;
use h2::{Ping, Reason};
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use manyways_proto::fetch::{PathError, PathErrorKind};
use manyways_unit::Span;
use rustls::{AlertDescription, ClientConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::discarded::{CancelledStreams, DiscardedBytes, DrainingStream, FrameCounter};
use super::location::Origin;
use crate::path::tls::{self, TlsError};
use crate::path::{self, ConnectError, LookupError, PathSpec, SharedAddresses, plain};
use crate::resolve::ResolveError;

/// Largest flow-control window (RFC 9113 §6.9.1).
pub(super) const MAX_WINDOW: u32 = (1 << 31) - 1;
/// Largest DATA frame. Large frames save wake-ups, because each frame costs one.
const MAX_FRAME: u32 = 64 << 10;
/// Largest response head, which waits in memory. HTTP/2 counts 32 bytes more for each field (RFC
/// 9113 §10.5.1).
pub(super) const MAX_HEAD: u32 = 400_000;
/// Maximum number of fields in a response head over HTTP/1.1.
pub(super) const MAX_FIELDS: usize = 5_000;

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
    pub(super) discarded: DiscardedBytes,
    pub(super) cancelled_streams: CancelledStreams,
    pub(super) http1_origins: Http1Origins,
    /// Whether a response has arrived.
    pub(super) has_answered: Arc<AtomicBool>,
    driver: Arc<Driver>,
    /// A duplicated descriptor of the socket, for TCP_INFO.
    socket: Arc<OwnedFd>,
}

/// Parameters of a connection: path, TLS, counters, and the start of HTTP/2.
#[derive(Clone)]
pub(super) struct DialParams {
    pub(super) path: Arc<PathSpec>,
    pub(super) tls: Arc<ClientConfig>,
    pub(super) discarded: DiscardedBytes,
    /// Initial window of an HTTP/2 stream.
    pub(super) window: u32,
    /// Initial flow-control window of an HTTP/2 connection.
    pub(super) connection_window: u32,
    /// Whether HTTP/2 is used without TLS and negotiation.
    pub(super) prior_knowledge: bool,
    /// Receives a message for each acknowledged PING.
    pub(super) pongs: mpsc::UnboundedSender<()>,
    /// Whether the server has complained about too many frames: it gets no PINGs.
    pub(super) pings_disabled: Arc<AtomicBool>,
    /// DNS results of all paths.
    pub(super) shared_addresses: SharedAddresses,
    pub(super) http1_origins: Http1Origins,
    pub(super) address_filter: AddressFilter,
}

/// Which addresses may be connected to; without a callback all.
#[derive(Clone, Default)]
pub(super) struct AddressFilter(pub(super) Option<Arc<Permits>>);

type Permits = dyn Fn(&Origin, IpAddr) -> bool + Send + Sync;

impl AddressFilter {
    fn permits(&self, origin: &Origin, address: IpAddr) -> bool {
        self.0.as_ref().is_none_or(|permits| permits(origin, address))
    }
}

impl fmt::Debug for AddressFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AddressFilter")
    }
}

/// Origins whose servers have refused HTTP/2 over a path: the path uses HTTP/1.1 for them.
#[derive(Clone, Default)]
pub(super) struct Http1Origins(Arc<Mutex<HashSet<Origin>>>);

impl Http1Origins {
    pub(super) fn contains(&self, origin: &Origin) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(origin)
    }

    /// Adds the origin if its server refuses HTTP/2 with this error.
    pub(super) fn observe(&self, origin: &Origin, error: &h2::Error) {
        let refuses = [Reason::HTTP_1_1_REQUIRED, Reason::INADEQUATE_SECURITY];
        if error.is_remote() && error.reason().is_some_and(|reason| refuses.contains(&reason)) {
            let mut origins = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            origins.insert(origin.clone());
        }
    }
}

/// The task that does the I/O of a connection. It ends with the last handle to the connection.
struct Driver {
    task: AbortHandle,
    /// Orders for an HTTP/2 connection; `None` for HTTP/1.1.
    commands: Option<mpsc::UnboundedSender<Http2Command>>,
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A change of an HTTP/2 connection instead of one stream.
enum Http2Command {
    /// Set the window of every stream.
    Window(u32),
    /// Set the window of the connection.
    ConnectionWindow(u32),
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

    /// Whether the connection belongs to `origin`, is not known to be closed, and has not been
    /// refused for its HTTP version.
    pub(super) fn is_usable_for(&self, origin: &Origin) -> bool {
        let open = match &self.sender {
            Sender::Http1(sender) => !sender.is_closed(),
            Sender::Http2(_) => {
                !self.driver.task.is_finished() && !self.http1_origins.contains(origin)
            }
        };
        open && self.origin == *origin
    }

    /// Returns a second handle; `None` for HTTP/1.1, which takes one request at a time.
    pub(super) fn second_handle(&self) -> Option<Self> {
        let Sender::Http2(sender) = &self.sender else { return None };
        Some(Self {
            origin: self.origin.clone(),
            server: self.server,
            sender: Sender::Http2(sender.clone()),
            discarded: self.discarded.clone(),
            cancelled_streams: self.cancelled_streams.clone(),
            http1_origins: self.http1_origins.clone(),
            has_answered: Arc::clone(&self.has_answered),
            driver: Arc::clone(&self.driver),
            socket: Arc::clone(&self.socket),
        })
    }

    /// Sets the window of every stream, including open ones.
    pub(super) fn set_window(&self, bytes: u32) {
        self.send_command(Http2Command::Window(bytes));
    }

    /// Sets the window of the connection.
    pub(super) fn set_connection_window(&self, bytes: u32) {
        self.send_command(Http2Command::ConnectionWindow(bytes));
    }

    /// Sends a PING. Returns whether the connection can.
    pub(super) fn ping(&self) -> bool {
        self.send_command(Http2Command::Ping)
    }

    /// Returns whether the connection accepts orders; a closed one does not.
    fn send_command(&self, order: Http2Command) -> bool {
        self.driver.commands.as_ref().is_some_and(|orders| orders.send(order).is_ok())
    }

    /// The smallest RTT of TCP, from the kernel. On a new connection this is that of the SYN; the
    /// smoothed RTT includes delayed acknowledgements during the handshake of TLS.
    pub(super) fn min_rtt(&self) -> Option<Span> {
        manyways_sys::socket::tcp_state(self.socket.as_fd()).ok()?.min_rtt
    }

    /// The smoothed RTT of TCP, from the kernel.
    pub(super) fn smoothed_rtt(&self) -> Option<Span> {
        manyways_sys::socket::tcp_rtt(self.socket.as_fd()).ok().flatten()
    }
}

/// Connects to `origin`. The caller sets the timeout. Discarded bytes are counted as late.
pub(super) async fn dial(means: &DialParams, origin: &Origin) -> Result<Connection, PathError> {
    let permits = |address| means.address_filter.permits(origin, address);
    let (host, answers) = (&origin.host, &means.shared_addresses);
    let connected = path::connect_if(&means.path, host, origin.port, answers, permits).await;
    let (stream, server) = connected.map_err(connect_fault)?;
    // Requests are small and must not be delayed. A failure costs only time.
    let _ = stream.set_nodelay(true);
    let socket = stream.as_fd().try_clone_to_owned().map_err(|error| {
        PathError::transient(
            PathErrorKind::Connect,
            format!("no second descriptor: {}", plain(&error)),
        )
    })?;
    let dialled = HttpSetup { params: means, origin, server, socket: Arc::new(socket) };
    let stream = DrainingStream::new(stream, means.discarded.clone());
    let is_http1 = means.http1_origins.contains(origin);
    if !origin.secure {
        return match means.prior_knowledge && !is_http1 {
            true => dialled.http2(stream).await,
            false => dialled.http1(stream).await,
        };
    }
    let mut tls = Arc::clone(&means.tls);
    if is_http1 {
        Arc::make_mut(&mut tls).alpn_protocols = vec![Protocol::Http1.name().into()];
    }
    let stream = tls::handshake(tls, &origin.host, server, stream).await;
    let stream = stream.map_err(|error| {
        let again = matches!(error, TlsError::ConnectionLost(..));
        PathError { kind: tls_class(&error), message: error.to_string(), is_retryable: again }
    })?;
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        dialled.http2(stream).await
    } else {
        dialled.http1(stream).await
    }
}

fn connect_fault(error: ConnectError) -> PathError {
    let (class, again) = match &error {
        ConnectError::LinkDown => (PathErrorKind::LinkDown, true),
        ConnectError::Unresolved(LookupError::Unknown { .. })
        | ConnectError::Unresolved(LookupError::Resolver(ResolveError::NoSuchName { .. })) => {
            (PathErrorKind::NoSuchName, false)
        }
        ConnectError::Unresolved(unresolved) => (PathErrorKind::Dns, unresolved.is_retryable()),
        ConnectError::Forbidden { .. } => (PathErrorKind::Forbidden, false),
        ConnectError::NoAddress { .. } => (PathErrorKind::Connect, false),
        ConnectError::Tcp(_, error) if error.kind() == ErrorKind::ConnectionRefused => {
            (PathErrorKind::Refused, true)
        }
        ConnectError::Tcp(..) | ConnectError::NotAttempted => (PathErrorKind::Connect, true),
    };
    PathError { kind: class, message: error.to_string(), is_retryable: again }
}

fn tls_class(error: &TlsError) -> PathErrorKind {
    use AlertDescription::{AccessDenied, BadCertificate, CertificateRequired};
    match error {
        TlsError::Certificate(..)
        | TlsError::Rejected(_, rustls::Error::NoCertificatesPresented)
        | TlsError::Rejected(
            _,
            rustls::Error::AlertReceived(AccessDenied | BadCertificate | CertificateRequired),
        ) => PathErrorKind::Certificate,
        TlsError::Rejected(_, rustls::Error::InvalidMessage(_)) => PathErrorKind::NotTls,
        _ => PathErrorKind::Tls,
    }
}

/// A server with a TCP connection, before HTTP begins.
struct HttpSetup<'a> {
    params: &'a DialParams,
    origin: &'a Origin,
    server: SocketAddr,
    socket: Arc<OwnedFd>,
}

impl HttpSetup<'_> {
    async fn http2<S>(self, stream: S) -> Result<Connection, PathError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (server, cancelled) = (self.server, CancelledStreams::default());
        let stream = FrameCounter::new(stream, self.params.discarded.clone(), cancelled.clone());
        let handshake = h2::client::Builder::new()
            .initial_window_size(self.params.window)
            .initial_connection_window_size(self.params.connection_window)
            .max_frame_size(MAX_FRAME)
            .max_header_list_size(MAX_HEAD)
            .enable_push(false)
            .handshake::<_, Bytes>(stream)
            .await;
        let (sender, connection) = handshake.map_err(|error| {
            let words = format!("{server} does not speak HTTP/2: {error}");
            PathError::transient(PathErrorKind::Protocol, words)
        })?;
        let (orders, received) = mpsc::unbounded_channel();
        let driven = drive(connection, received, self.params.pongs.clone());
        let calm = Arc::clone(&self.params.pings_disabled);
        let (http1_origins, origin) = (self.params.http1_origins.clone(), self.origin.clone());
        let driver = tokio::spawn(async move {
            if let Err(error) = driven.await {
                // The current request may survive this error and fail later without a connection.
                if error.reason() == Some(Reason::ENHANCE_YOUR_CALM) {
                    calm.store(true, Ordering::Relaxed);
                }
                http1_origins.observe(&origin, &error);
                tracing::debug!("HTTP/2 connection to {server} ended: {error}");
            }
        });
        let driver = Driver { task: driver.abort_handle(), commands: Some(orders) };
        Ok(self.connection(Sender::Http2(sender), cancelled, driver))
    }

    async fn http1<S>(self, stream: S) -> Result<Connection, PathError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let server = self.server;
        // As browsers and curl do: a field that cannot be read does not make the object unusable.
        let handshake = hyper::client::conn::http1::Builder::new()
            .allow_obsolete_multiline_headers_in_responses(true)
            .allow_spaces_after_header_name_in_responses(true)
            .ignore_invalid_headers_in_responses(true)
            .max_headers(MAX_FIELDS)
            .max_buf_size(MAX_HEAD as usize)
            .handshake(TokioIo::new(stream))
            .await;
        let (sender, connection) = handshake.map_err(|error| {
            PathError::transient(
                PathErrorKind::Protocol,
                format!("{server} does not speak HTTP: {error}"),
            )
        })?;
        let driver = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!("HTTP/1.1 connection to {server} ended: {error}");
            }
        });
        let driver = Driver { task: driver.abort_handle(), commands: None };
        Ok(self.connection(Sender::Http1(sender), CancelledStreams::default(), driver))
    }

    fn connection(self, sender: Sender, cancelled: CancelledStreams, driver: Driver) -> Connection {
        Connection {
            origin: self.origin.clone(),
            server: self.server,
            sender,
            discarded: self.params.discarded.clone(),
            cancelled_streams: cancelled,
            http1_origins: self.params.http1_origins.clone(),
            has_answered: Arc::default(),
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
    mut orders: mpsc::UnboundedReceiver<Http2Command>,
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
                Http2Command::Window(bytes) => window = Some(bytes),
                Http2Command::ConnectionWindow(bytes) => connection.set_target_window_size(bytes),
                // A PING is already under way.
                Http2Command::Ping if pinging => {}
                Http2Command::Ping => {
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
