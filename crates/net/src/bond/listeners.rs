//! Entry points for connections and datagrams of applications: proxies that applications are
//! configured to use, and a transparent proxy to which kernel rules redirect traffic.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;
use manyways_proto::bond::first_bytes::{self, FirstBytes};
use manyways_proto::bond::io_limits::IoLimits;
use manyways_proto::bond::routing::Routing;
use manyways_proto::mux::Destination;
use manyways_sys::socket::transparent::{transparent_tcp_listener, transparent_udp};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::time::timeout;

use super::client::Client;
use super::enforcer::{PolicyEnforcer, TrackedFlow};
use super::gateway::to_destination;
use super::{datagrams, http_connect, socks, timer};

/// Size of the buffer for a connection's first bytes.
const MAX_FIRST_BYTES: usize = 16 << 10;

/// The listening sockets of a client.
#[derive(Clone)]
pub struct Listeners {
    client: Client,
    enforcer: PolicyEnforcer,
    limits: IoLimits,
    socket_mark: Option<u32>,
}

impl Listeners {
    /// Creates listeners for a client. The enforcer's policy decides about connections and
    /// datagrams. `socket_mark` is the mark of the client's own sockets.
    pub fn new(enforcer: PolicyEnforcer, socket_mark: Option<u32>) -> Self {
        let client = enforcer.client().clone();
        Self { client, enforcer, limits: IoLimits::default(), socket_mark }
    }

    /// Listens for SOCKS5. Returns the address, with its port.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub async fn socks(&self, at: SocketAddr) -> io::Result<SocketAddr> {
        self.listen(at, |own, stream, from| async move {
            match socks::accept(stream, &own.limits).await {
                Ok(socks::SocksRequest::Connect(stream, target, first)) => {
                    own.carry(stream, from, target, first).await;
                }
                Ok(socks::SocksRequest::Associate(stream, socket)) => {
                    datagrams::associate(own.enforcer, own.socket_mark, stream, socket).await;
                }
                Err(error) => tracing::debug!("SOCKS5 from {from}: {error}"),
            }
        })
        .await
    }

    /// Listens for HTTP CONNECT. Returns the address, with its port.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub async fn http_connect(&self, at: SocketAddr) -> io::Result<SocketAddr> {
        self.listen(at, |own, stream, from| async move {
            match http_connect::accept(stream, &own.limits).await {
                Ok((stream, target, rest)) => {
                    own.carry(stream, from, target, BytesMut::from(&rest[..])).await;
                }
                Err(error) => tracing::debug!("CONNECT from {from}: {error}"),
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
            own.carry(stream, from, to_destination(to), BytesMut::new()).await;
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

    /// Carries an application's connection as the policy decides.
    async fn carry(
        &self,
        mut stream: TcpStream,
        from: SocketAddr,
        to: Destination,
        mut first: BytesMut,
    ) {
        if !self.read_first_bytes(&mut stream, &to, &mut first).await {
            return;
        }
        let Ok(via) = stream.local_addr() else { return };
        let flow = self.enforcer.new_connection(from, via, &to, &first).await;
        if let Some(delayed) = self.enforcer.delay_for(&flow) {
            let gone = wait_for_reset(&stream);
            if !self.enforcer.wait_while_delayed(&flow, delayed, gone).await {
                return;
            }
        }
        match self.enforcer.decide_connection(&flow) {
            Routing::Bond(label) => {
                let (stream, number) = self.client.carry(stream, to, label, first.freeze());
                self.enforcer.on_stream_opened(flow, stream, number);
            }
            Routing::Block => {
                let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
            }
            Routing::Direct => {
                if let Err(error) = self.carry_direct(stream, &to, &first, &flow).await {
                    tracing::debug!("direct connection from {from} to {to} failed: {error}");
                }
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
    async fn carry_direct(
        &self,
        mut stream: TcpStream,
        to: &Destination,
        first: &[u8],
        flow: &TrackedFlow,
    ) -> io::Result<()> {
        let addresses: Vec<SocketAddr> = match to {
            Destination::Address(address, port) => vec![(*address, *port).into()],
            Destination::Name(name, port) => {
                tokio::net::lookup_host((name.as_str(), *port)).await?.collect()
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
                Ok(Ok(mut server)) => {
                    server.write_all(first).await?;
                    let (up, down) =
                        tokio::io::copy_bidirectional(&mut stream, &mut server).await?;
                    self.enforcer.set_bytes(flow, first.len() as u64 + up, down);
                    return Ok(());
                }
                Ok(Err(error)) => last = error,
                Err(_) => last = io::ErrorKind::TimedOut.into(),
            }
        }
        let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
        Err(last)
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
