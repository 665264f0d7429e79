//! Entry points for connections and datagrams of applications: proxies that applications are
//! configured to use, and a transparent proxy to which kernel rules redirect traffic.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use manyways_proto::bond::first_bytes::{self, FirstBytes};
use manyways_proto::bond::io_limits::IoLimits;
use manyways_proto::bond::routing::Routing;
use manyways_proto::mux::Destination;
use manyways_sys::socket::transparent::{transparent_tcp_listener, transparent_udp};
use manyways_wire::http::RequestBody;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::time::timeout;

use super::client::Client;
use super::enforcer::{PolicyEnforcer, TrackedFlow};
use super::gateway::to_destination;
use super::proxy_connection::{PendingReply, ProxyConnection, Refusal};
use super::proxy_password::ProxyPassword;
use super::session::StreamRequest;
use super::{datagrams, http_proxy, socks, timer};

/// Size of the buffer for a connection's first bytes.
const MAX_FIRST_BYTES: usize = 16 << 10;

/// Options of the proxies of a client.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct ProxyOptions {
    /// The user name and password that applications must send.
    pub password: Option<ProxyPassword>,
    /// Answer an application only after the gateway has connected to the server, so that the answer
    /// has the reason of a failure. Otherwise a failure resets the application's connection.
    pub wait_for_server: bool,
}

/// The listening sockets of a client.
#[derive(Clone)]
pub struct Listeners {
    proxies: Rc<ProxyOptions>,
    client: Client,
    enforcer: PolicyEnforcer,
    limits: IoLimits,
    socket_mark: Option<u32>,
}

impl Listeners {
    /// Creates listeners for a client. The enforcer's policy decides about connections and
    /// datagrams. `socket_mark` is the mark of the client's own sockets.
    pub fn new(enforcer: PolicyEnforcer, socket_mark: Option<u32>, proxies: ProxyOptions) -> Self {
        let (client, proxies) = (enforcer.client().clone(), Rc::new(proxies));
        Self { client, enforcer, limits: IoLimits::default(), socket_mark, proxies }
    }

    /// Listens for SOCKS5. Returns the address, with its port.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub async fn socks(&self, at: SocketAddr) -> io::Result<SocketAddr> {
        self.listen(at, |own, stream, from| async move {
            match socks::accept(stream, &own.limits, own.proxies.password.as_ref()).await {
                Ok(socks::SocksRequest::Connect(connection)) => {
                    own.carry_proxied(connection, from).await;
                }
                Ok(socks::SocksRequest::Associate(stream, socket)) => {
                    datagrams::associate(own.enforcer, own.socket_mark, stream, socket).await;
                }
                Err(error) => log_refused_request("SOCKS5", from, &error),
            }
        })
        .await
    }

    /// Listens as an HTTP proxy. Returns the address, with its port.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub async fn http_proxy(&self, at: SocketAddr) -> io::Result<SocketAddr> {
        self.listen(at, |own, stream, from| async move {
            match http_proxy::accept(stream, &own.limits, own.proxies.password.as_ref()).await {
                Ok(connection) => own.carry_proxied(connection, from).await,
                Err(error) => log_refused_request("HTTP", from, &error),
            }
        })
        .await
    }

    /// Accepts TCP connections that kernel rules redirect to `at`. Returns the port.
    ///
    /// # Errors
    /// If the address cannot be bound, for example without CAP_NET_ADMIN.
    pub fn transparent_tcp(&self, at: SocketAddr) -> io::Result<u16> {
        let listener = transparent_tcp_listener(at, self.socket_mark)?;
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let port = listener.local_addr()?.port();
        self.serve(listener, |own, stream, from| async move {
            let Ok(to) = stream.local_addr() else { return };
            let (to, first) = (to_destination(to), BytesMut::new());
            own.carry(AppConnection { stream, from, to, first, body: None, reply: None }).await;
        });
        Ok(port)
    }

    async fn listen<F: Future<Output = ()> + 'static>(
        &self,
        at: SocketAddr,
        serve: impl Fn(Self, TcpStream, SocketAddr) -> F + 'static,
    ) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind(at).await?;
        let bound = listener.local_addr()?;
        self.serve(listener, serve);
        Ok(bound)
    }

    /// Runs `serve` in a separate task for each accepted connection.
    fn serve<F: Future<Output = ()> + 'static>(
        &self,
        listener: TcpListener,
        serve: impl Fn(Self, TcpStream, SocketAddr) -> F + 'static,
    ) {
        let own = self.clone();
        tokio::task::spawn_local(accept_each(listener, self.limits, move |stream, from| {
            tokio::task::spawn_local(serve(own.clone(), stream, from));
        }));
    }

    /// Receives datagrams that kernel rules redirect to `at`. Returns the port.
    ///
    /// # Errors
    /// If the address cannot be bound, for example without CAP_NET_ADMIN.
    pub fn transparent_udp(&self, at: SocketAddr) -> io::Result<u16> {
        let socket = transparent_udp(at, self.socket_mark)?;
        socket.set_nonblocking(true)?;
        let port = socket.local_addr()?.port();
        let socket = UdpSocket::from_std(socket)?;
        let serve = datagrams::serve_transparent(self.enforcer.clone(), self.socket_mark, socket);
        tokio::task::spawn_local(serve);
        Ok(port)
    }

    /// Carries a connection through a proxy.
    async fn carry_proxied(&self, connection: ProxyConnection, from: SocketAddr) {
        let ProxyConnection { mut stream, to, first, body, reply } = connection;
        let waits = match reply {
            PendingReply::Response => true,
            // The name of the server, about which the policy has rules, is in bytes that the
            // application sends after the answer.
            PendingReply::Socks | PendingReply::Connect => {
                self.proxies.wait_for_server && !self.enforcer.needs_more_bytes(&to, &first)
            }
        };
        if !waits && reply.accept(&mut stream).await.is_err() {
            return;
        }
        let reply = waits.then_some(reply);
        self.carry(AppConnection { stream, from, to, first, body, reply }).await;
    }

    /// Carries an application's connection as the policy decides.
    async fn carry(&self, mut connection: AppConnection) {
        // An application that waits for an answer sends nothing.
        if connection.reply.is_none() {
            let AppConnection { stream, to, first, .. } = &mut connection;
            if !self.read_first_bytes(stream, to, first).await {
                return;
            }
        }
        let AppConnection { stream, from, to, first, .. } = &connection;
        let Ok(via) = stream.local_addr() else { return };
        let flow = self.enforcer.new_connection(*from, via, to, first).await;
        if let Some(delayed) = self.enforcer.delay_for(&flow) {
            let gone = wait_for_reset(stream);
            if !self.enforcer.wait_while_delayed(&flow, delayed, gone).await {
                return;
            }
        }
        match self.enforcer.decide_connection(&flow) {
            Routing::Bond(label) => self.carry_in_bond(connection, label, flow).await,
            Routing::Block => self.refuse(connection, Refusal::Blocked).await,
            Routing::Direct => self.carry_direct(connection, &flow).await,
        }
    }

    /// Carries a connection in the bond.
    async fn carry_in_bond(&self, connection: AppConnection, label: u8, flow: Rc<TrackedFlow>) {
        let AppConnection { mut stream, from, to, first, body, reply } = connection;
        let request = StreamRequest { target: to.clone(), label, first: first.freeze(), body };
        let Some(reply) = reply else {
            let (stream, number) = self.client.carry_request(stream, request);
            return self.enforcer.on_stream_opened(flow, stream, number);
        };
        let mut opening = self.client.open_confirmed(request);
        self.enforcer.on_stream_opened(flow, opening.stream, opening.number);
        let handle = self.client.handle();
        let limit = Duration::from(self.limits.server_answer);
        let outcome = tokio::select! {
            outcome = timeout(limit, opening.outcome()) => outcome,
            () = wait_for_reset(&stream) => return handle.abandon(&opening),
        };
        let refusal = match outcome {
            Ok(Ok(())) => match reply.accept(&mut stream).await {
                Ok(()) => return handle.attach_opened(&opening, stream),
                Err(_) => return handle.abandon(&opening),
            },
            Ok(Err(code)) => Refusal::Failed(code),
            Err(_) => Refusal::NoAnswer,
        };
        handle.abandon(&opening);
        let (first, body, reply) = (BytesMut::new(), None, Some(reply));
        self.refuse(AppConnection { stream, from, to, first, body, reply }, refusal).await;
    }

    /// Refuses a connection: by an answer if the application waits for one, otherwise by a reset.
    async fn refuse(&self, connection: AppConnection, refusal: Refusal) {
        let AppConnection { stream, to, reply, .. } = connection;
        match reply {
            Some(reply) => {
                let limit = Duration::from(self.limits.proxy_request);
                reply.refuse(stream, &to, refusal, limit).await;
            }
            None => {
                let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
            }
        }
    }

    /// Reads the first bytes of an application. Returns false if its connection is broken.
    async fn read_first_bytes(
        &self,
        stream: &mut TcpStream,
        to: &Destination,
        first: &mut BytesMut,
    ) -> bool {
        first.reserve(MAX_FIRST_BYTES);
        let clock = self.client.clock();
        let mut waiting = FirstBytes::new(clock.now(), first_bytes::Config::default());
        loop {
            let needs_more = first.is_empty() || self.enforcer.needs_more_bytes(to, first);
            let deadline = waiting.deadline(clock.now(), needs_more);
            if deadline.is_none() {
                return true;
            }
            tokio::select! {
                read = stream.read_buf(first) => match read {
                    // The application has closed its direction of the connection.
                    Ok(0) => return true,
                    Ok(_) => waiting.on_received(clock.now()),
                    Err(_) => return false,
                },
                () = timer::until(&clock, deadline) => return true,
            }
        }
    }

    /// Carries a connection directly, outside the bond.
    async fn carry_direct(&self, mut connection: AppConnection, flow: &TrackedFlow) {
        let (from, to) = (connection.from, connection.to.clone());
        let failed =
            |error| tracing::debug!("direct connection from {from} to {to} failed: {error}");
        let mut server = match self.connect_directly(&to).await {
            Ok(server) => server,
            Err(error) => {
                failed(&error);
                return self.refuse(connection, Refusal::from_error(&error)).await;
            }
        };
        let copied = async {
            if let Some(reply) = connection.reply {
                reply.accept(&mut connection.stream).await?;
            }
            let AppConnection { stream, first, body, .. } = connection;
            server.write_all(&first).await?;
            let mut application = RequestStream { stream, body };
            let (up, down) = tokio::io::copy_bidirectional(&mut application, &mut server).await?;
            self.enforcer.set_bytes(flow, first.len() as u64 + up, down);
            io::Result::Ok(())
        };
        if let Err(error) = copied.await {
            failed(&error);
        }
    }

    /// Connects to a server outside the bond.
    async fn connect_directly(&self, to: &Destination) -> io::Result<TcpStream> {
        let addresses: Vec<SocketAddr> = match to {
            Destination::Address(address, port) => vec![(*address, *port).into()],
            Destination::Name(name, port) => {
                let found = tokio::net::lookup_host((name.as_str(), *port)).await;
                found.map_err(|error| io::Error::new(io::ErrorKind::NotFound, error))?.collect()
            }
        };
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for address in addresses {
            let socket = match address.is_ipv4() {
                true => tokio::net::TcpSocket::new_v4()?,
                false => tokio::net::TcpSocket::new_v6()?,
            };
            if let Some(mark) = self.socket_mark {
                manyways_sys::socket::set_mark(&socket, mark)?;
            }
            let limit = Duration::from(self.limits.direct_connect);
            match timeout(limit, socket.connect(address)).await {
                Ok(Ok(server)) => return Ok(server),
                Ok(Err(error)) => last = error,
                Err(_) => last = io::ErrorKind::TimedOut.into(),
            }
        }
        Err(last)
    }
}

/// A connection of an application.
struct AppConnection {
    stream: TcpStream,
    /// Address of the application's socket.
    from: SocketAddr,
    to: Destination,
    /// The first bytes for the server.
    first: BytesMut,
    /// Delimits the further bytes for the server; `None` if all bytes are for the server.
    body: Option<RequestBody>,
    /// The answer that the application waits for.
    reply: Option<PendingReply>,
}

/// A connection of an application from which only the bytes for the server are read.
struct RequestStream {
    stream: TcpStream,
    body: Option<RequestBody>,
}

impl AsyncRead for RequestStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let before = buffer.filled().len();
            ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
            let came = buffer.filled().len() - before;
            let Some(body) = self.body.as_mut().filter(|_| came > 0) else {
                return Poll::Ready(Ok(()));
            };
            let length = body.take(&buffer.filled()[before..]);
            buffer.set_filled(before + length);
            // No bytes would mean the end of the stream.
            if length > 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl AsyncWrite for RequestStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Logs a request that a proxy has not accepted. It contains no password.
fn log_refused_request(proxy: &str, from: SocketAddr, error: &io::Error) {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            tracing::info!("{proxy} proxy: {from} gives no valid user name and password");
        }
        _ => tracing::debug!("{proxy} proxy: request from {from} refused: {error}"),
    }
}

/// Waits until the application resets a connection. An application that has finished sending may
/// still read.
async fn wait_for_reset(stream: &TcpStream) {
    let _ = stream.ready(Interest::ERROR).await;
}

/// Passes each accepted connection to `serve`, until the task ends.
pub(super) async fn accept_each(
    listener: TcpListener,
    limits: IoLimits,
    mut serve: impl FnMut(TcpStream, SocketAddr),
) {
    loop {
        match listener.accept().await {
            Ok((stream, from)) => serve(stream, from),
            Err(error) => {
                // The most likely cause is a lack of descriptors; some may be free soon.
                tracing::warn!("cannot accept a connection: {error}");
                tokio::time::sleep(Duration::from(limits.accept_retry)).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn an_application_that_has_no_more_to_send_is_not_gone() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let application = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let application = application.into_std().unwrap();
        application.shutdown(std::net::Shutdown::Write).unwrap();
        stream.ready(Interest::READABLE).await.unwrap();
        tokio::select! {
            biased;
            () = wait_for_reset(&stream) => panic!("it may still read"),
            () = tokio::task::yield_now() => {}
        }
        socket2::SockRef::from(&application).set_linger(Some(Duration::ZERO)).unwrap();
        drop(application);
        wait_for_reset(&stream).await;
    }
}
