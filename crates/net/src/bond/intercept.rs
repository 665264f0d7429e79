//! How the traffic of applications comes to the client: proxies that they are told to use, and a
//! transparent one that they do not know of.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::Duration;

use bytes::BytesMut;
use manyways_proto::mux::Target;
use manyways_sys::socket::transparent::{transparent_tcp_listener, transparent_udp};
use tokio::io::{AsyncReadExt, Interest};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::time::{Instant, timeout, timeout_at};

use super::client::Client;
use super::gateway::target;
use super::rules::{Fate, Rules, Traffic};
use super::{connect, datagrams, socks};

/// The first bytes of a connection are waited for no longer: in some protocols the server speaks
/// first.
const FIRST_BYTES: Duration = Duration::from_millis(20);
/// The rest of a name that has begun is waited for longer.
const REST_OF_NAME: Duration = Duration::from_millis(200);
const FIRST: usize = 16 << 10;

/// The doors of a client.
#[derive(Clone)]
pub struct Doors {
    client: Client,
    rules: Rules,
    mark: Option<u32>,
}

impl Doors {
    /// Doors to this client, which let through what the rules say. `mark` is what its own sockets
    /// bear.
    pub fn new(rules: Rules, mark: Option<u32>) -> Self {
        Self { client: rules.client().clone(), rules, mark }
    }

    /// Listens for SOCKS5; the address, with its port.
    ///
    /// # Errors
    /// Where it cannot listen there.
    pub async fn socks(&self, at: SocketAddr) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind(at).await?;
        let bound = listener.local_addr()?;
        let doors = self.clone();
        tokio::task::spawn_local(accept(listener, move |stream, from| {
            let doors = doors.clone();
            async move {
                match socks::hear(stream).await {
                    Ok(socks::Request::Connect(stream, target, first)) => {
                        doors.carry(stream, from, target, first).await;
                    }
                    Ok(socks::Request::Associate(stream, socket)) => {
                        datagrams::associate(doors.rules, doors.mark, stream, socket).await;
                    }
                    Err(error) => tracing::debug!("SOCKS5 from {from}: {error}"),
                }
            }
        }));
        Ok(bound)
    }

    /// Listens for HTTP CONNECT; the address, with its port.
    ///
    /// # Errors
    /// Where it cannot listen there.
    pub async fn connect(&self, at: SocketAddr) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind(at).await?;
        let bound = listener.local_addr()?;
        let doors = self.clone();
        tokio::task::spawn_local(accept(listener, move |stream, from| {
            let doors = doors.clone();
            async move {
                match connect::hear(stream).await {
                    Ok((stream, target, rest)) => {
                        doors.carry(stream, from, target, BytesMut::from(&rest[..])).await;
                    }
                    Err(error) => tracing::debug!("CONNECT from {from}: {error}"),
                }
            }
        }));
        Ok(bound)
    }

    /// Takes in TCP connections that rules of the kernel bring here; the port.
    ///
    /// # Errors
    /// Where it cannot listen there, above all without the right to.
    pub fn transparent_tcp(&self, at: SocketAddr) -> io::Result<u16> {
        let listener = transparent_tcp_listener(at, self.mark)?;
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let port = listener.local_addr()?.port();
        let doors = self.clone();
        tokio::task::spawn_local(accept(listener, move |stream, from| {
            let doors = doors.clone();
            async move {
                let Ok(to) = stream.local_addr() else { return };
                doors.carry(stream, from, target(to), BytesMut::new()).await;
            }
        }));
        Ok(port)
    }

    /// Takes in datagrams that rules of the kernel bring here; the port.
    ///
    /// # Errors
    /// Where it cannot listen there, above all without the right to.
    pub fn transparent_udp(&self, at: SocketAddr) -> io::Result<u16> {
        let socket = transparent_udp(at, self.mark)?;
        socket.set_nonblocking(true)?;
        let port = socket.local_addr()?.port();
        let socket = UdpSocket::from_std(socket)?;
        tokio::task::spawn_local(datagrams::take(self.rules.clone(), self.mark, socket));
        Ok(port)
    }

    /// Hands an application's connection on, once it is clear how.
    async fn carry(
        &self,
        mut stream: TcpStream,
        from: SocketAddr,
        to: Target,
        mut first: BytesMut,
    ) {
        first.reserve(FIRST);
        let mut until = Instant::now() + FIRST_BYTES;
        while first.is_empty() || self.rules.wants_more(&to, &first) {
            match timeout_at(until, stream.read_buf(&mut first)).await {
                // It ended before it began: what it had to say is that.
                Ok(Ok(0)) | Err(_) => break,
                // Who begins to say a name says all of it.
                Ok(Ok(_)) => until = Instant::now() + REST_OF_NAME,
                Ok(Err(_)) => return,
            }
        }
        let Ok(via) = stream.local_addr() else { return };
        let traffic = self.rules.connection(from, via, &to, &first).await;
        if let Some(waiting) = self.rules.held_back(&traffic)
            && !self.rules.wait(&traffic, waiting, hangs_up(&stream)).await
        {
            return;
        }
        self.rules.judge_connection(&traffic);
        match traffic.fate.get() {
            Fate::Bond(label) => {
                let (stream, number) = self.client.carry(stream, to, label, first.freeze());
                self.rules.carried(traffic, stream, number);
            }
            Fate::Block => {
                let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
            }
            Fate::Direct => {
                self.rules.keep(&traffic);
                if let Err(error) = self.past(stream, &to, &first, &traffic).await {
                    tracing::debug!("{from} to {to}, directly: {error}");
                }
            }
        }
    }

    /// A connection that does not go through the bond.
    async fn past(
        &self,
        mut stream: TcpStream,
        to: &Target,
        first: &[u8],
        traffic: &Traffic,
    ) -> io::Result<()> {
        use tokio::io::AsyncWriteExt;
        let addresses: Vec<SocketAddr> = match to {
            Target::Address(address, port) => vec![(*address, *port).into()],
            Target::Name(name, port) => {
                tokio::net::lookup_host((name.as_str(), *port)).await?.collect()
            }
        };
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for address in addresses {
            let socket = match address.is_ipv4() {
                true => tokio::net::TcpSocket::new_v4()?,
                false => tokio::net::TcpSocket::new_v6()?,
            };
            if let Some(mark) = self.mark {
                manyways_sys::socket::set_mark(&socket, mark)?;
            }
            match timeout(Duration::from_secs(15), socket.connect(address)).await {
                Ok(Ok(mut server)) => {
                    server.write_all(first).await?;
                    let (up, down) =
                        tokio::io::copy_bidirectional(&mut stream, &mut server).await?;
                    traffic.bytes.set((first.len() as u64 + up, down));
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

/// Until the other end has reset a connection: one that has no more to say may still listen.
async fn hangs_up(stream: &TcpStream) {
    let _ = stream.ready(Interest::ERROR).await;
}

async fn accept<F: Future<Output = ()> + 'static>(
    listener: TcpListener,
    serve: impl Fn(TcpStream, SocketAddr) -> F,
) {
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                tokio::task::spawn_local(serve(stream, from));
            }
            Err(error) => {
                tracing::warn!(
                    "cannot accept a connection on descriptor {}: {error}",
                    listener.as_raw_fd()
                );
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn who_has_no_more_to_say_still_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let application = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let application = application.into_std().unwrap();
        application.shutdown(std::net::Shutdown::Write).unwrap();
        stream.ready(Interest::READABLE).await.unwrap();
        tokio::select! {
            biased;
            () = hangs_up(&stream) => panic!("it may still listen"),
            () = tokio::task::yield_now() => {}
        }
        socket2::SockRef::from(&application).set_linger(Some(Duration::ZERO)).unwrap();
        drop(application);
        hangs_up(&stream).await;
    }
}
