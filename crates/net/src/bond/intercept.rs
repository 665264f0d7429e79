//! How the traffic of applications comes to the client: proxies that they are told to use, and a
//! transparent one that they do not know of.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use manyways_proto::mux::{FlowId, Target};
use manyways_sys::socket::transparent::{
    recv_with_original, transparent_tcp_listener, transparent_udp, transparent_udp_from,
};
use tokio::io::{AsyncReadExt, Interest};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::client::Client;
use super::gateway::target;
use super::{connect, socks};

/// The first bytes of a connection are waited for no longer: in some protocols the server speaks
/// first.
const FIRST_BYTES: Duration = Duration::from_millis(20);
const FIRST: usize = 16 << 10;
/// A flow of datagrams that nobody uses for so long is over.
const IDLE: Duration = Duration::from_secs(150);
const LARGEST: usize = 65_536;

/// Who is told what an application is about to do, and says how it is treated.
pub trait Classify {
    /// A connection of the application at `from`. `first` are its first bytes.
    fn connection(&self, from: SocketAddr, to: &Target, first: &[u8]) -> Fate;
    /// A flow of datagrams.
    fn flow(&self, from: SocketAddr, to: &Target, first: &[u8]) -> Fate;
}

/// What becomes of a connection or flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It goes through the bond with this label.
    Bond(u8),
    /// It goes past the bond.
    Direct,
    /// It does not go.
    Block,
}

/// Everything goes through the bond in the same way.
#[derive(Clone, Copy, Debug, Default)]
pub struct Everything;

impl Classify for Everything {
    fn connection(&self, _: SocketAddr, _: &Target, _: &[u8]) -> Fate {
        Fate::Bond(0)
    }

    fn flow(&self, _: SocketAddr, _: &Target, _: &[u8]) -> Fate {
        Fate::Bond(0)
    }
}

/// The doors of a client.
#[derive(Clone)]
pub struct Doors {
    client: Client,
    classify: Rc<dyn Classify>,
    mark: Option<u32>,
}

impl Doors {
    /// Doors to this client. `mark` is what its own sockets bear.
    pub fn new(client: Client, classify: Rc<dyn Classify>, mark: Option<u32>) -> Self {
        Self { client, classify, mark }
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
                    Ok(socks::Request::Connect(stream, target)) => {
                        doors.carry(stream, from, target, BytesMut::new()).await;
                    }
                    Ok(socks::Request::Associate(stream, socket)) => {
                        doors.associate(stream, socket).await;
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
        tokio::task::spawn_local(self.clone().take_datagrams(socket));
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
        if first.is_empty() {
            first.reserve(FIRST);
            match timeout(FIRST_BYTES, stream.read_buf(&mut first)).await {
                // It ended before it began: what it had to say is that.
                Ok(Ok(_)) | Err(_) => {}
                Ok(Err(_)) => return,
            }
        }
        match self.classify.connection(from, &to, &first) {
            Fate::Bond(label) => self.client.carry(stream, to, label, first.freeze()),
            Fate::Block => {
                let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
            }
            Fate::Direct => {
                if let Err(error) = self.past(stream, &to, &first).await {
                    tracing::debug!("{from} to {to}, directly: {error}");
                }
            }
        }
    }

    /// A connection that does not go through the bond.
    async fn past(&self, mut stream: TcpStream, to: &Target, first: &[u8]) -> io::Result<()> {
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
                    tokio::io::copy_bidirectional(&mut stream, &mut server).await?;
                    return Ok(());
                }
                Ok(Err(error)) => last = error,
                Err(_) => last = io::ErrorKind::TimedOut.into(),
            }
        }
        let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
        Err(last)
    }

    /// The datagrams of a SOCKS5 association.
    async fn associate(&self, mut control: TcpStream, socket: UdpSocket) {
        let (flow, mut answers) = self.client.open_flow();
        let mut application = None;
        let mut label = None;
        let mut buffer = vec![0; LARGEST];
        let mut end = [0; 1];
        loop {
            tokio::select! {
                // The association lives as long as its connection.
                _ = control.read(&mut end) => break,
                received = socket.recv_from(&mut buffer) => {
                    let Ok((length, from)) = received else { continue };
                    // Only the application that asked for it may use it.
                    if *application.get_or_insert(from) != from {
                        continue;
                    }
                    let Some((to, data)) = socks::unwrap_datagram(&buffer[..length]) else {
                        continue;
                    };
                    let fate = *label.get_or_insert_with(|| self.classify.flow(from, &to, data));
                    if let Fate::Bond(label) = fate {
                        self.client.send(flow, label, to, Bytes::copy_from_slice(data));
                    }
                }
                answer = answers.recv() => {
                    let (Some((from, data)), Some(to)) = (answer, application) else { break };
                    let _ = socket.send_to(&socks::wrap_datagram(&from, &data), to).await;
                }
            }
        }
        self.client.close_flow(flow);
    }

    async fn take_datagrams(self, socket: UdpSocket) {
        /// What an application's socket sends: its flow, and since when nothing came.
        struct Known {
            flow: FlowId,
            fate: Fate,
            used: Instant,
        }
        let mut known: HashMap<SocketAddr, Known> = HashMap::new();
        let (gone, mut ended) = mpsc::unbounded_channel::<SocketAddr>();
        let mut buffer = vec![0; LARGEST];
        let mut swept = Instant::now();
        loop {
            tokio::select! {
                Some(from) = ended.recv() => {
                    known.remove(&from);
                    continue;
                }
                ready = socket.readable() => {
                    if ready.is_err() {
                        return;
                    }
                    let received = socket.try_io(Interest::READABLE, || {
                        recv_with_original(socket.as_fd(), &mut buffer)
                    });
                    let Ok(received) = received else { continue };
                    let (from, to) = (received.source, received.destination);
                    let data = &buffer[..received.length];
                    let entry = known.entry(from).or_insert_with(|| {
                        let fate = self.classify.flow(from, &target(to), data);
                        let (flow, answers) = self.client.open_flow();
                        let answering = self.clone().answer(from, flow, answers, gone.clone());
                        tokio::task::spawn_local(answering);
                        Known { flow, fate, used: Instant::now() }
                    });
                    entry.used = Instant::now();
                    if let Fate::Bond(label) = entry.fate {
                        let data = Bytes::copy_from_slice(data);
                        self.client.send(entry.flow, label, target(to), data);
                    }
                }
            }
            if swept.elapsed() > IDLE / 10 {
                swept = Instant::now();
                let client = &self.client;
                known.retain(|_, flow| {
                    let idle = flow.used.elapsed() > IDLE;
                    if idle {
                        client.close_flow(flow.flow);
                    }
                    !idle
                });
            }
        }
    }

    /// Gives an application its answers, in the name of whoever sent them.
    async fn answer(
        self,
        to: SocketAddr,
        flow: FlowId,
        mut answers: mpsc::UnboundedReceiver<(Target, Bytes)>,
        gone: mpsc::UnboundedSender<SocketAddr>,
    ) {
        let mut sockets: HashMap<SocketAddr, std::net::UdpSocket> = HashMap::new();
        while let Some((from, data)) = answers.recv().await {
            let Target::Address(address, port) = from else { continue };
            let from = SocketAddr::new(address, port);
            // Bounded: an application may talk to many.
            if sockets.len() > 64 {
                sockets.clear();
            }
            let socket = match sockets.entry(from) {
                std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
                std::collections::hash_map::Entry::Vacant(entry) => {
                    match transparent_udp_from(from, self.mark) {
                        Ok(socket) => entry.insert(socket),
                        Err(error) => {
                            tracing::debug!("no answer in the name of {from}: {error}");
                            continue;
                        }
                    }
                }
            };
            let _ = socket.send_to(&data, to);
        }
        self.client.close_flow(flow);
        let _ = gone.send(to);
    }
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
