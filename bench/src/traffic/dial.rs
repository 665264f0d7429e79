//! How a client reaches the server: directly from one of its addresses, or through a proxy.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::os::fd::AsFd;

use manyways_lab::DEFAULT_CC;
use manyways_sys::socket::set_congestion_control;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::socks::{self, Command};

/// The way to the server.
#[derive(Clone, Debug, clap::Args)]
pub struct Dialer {
    /// The server.
    #[arg(long, value_name = "ADDR:PORT")]
    pub server: SocketAddrV4,
    /// Through this SOCKS5 proxy.
    #[arg(long, value_name = "ADDR:PORT")]
    pub socks: Option<SocketAddr>,
    /// From this address.
    #[arg(long, value_name = "ADDR")]
    pub from: Option<IpAddr>,
    /// With the kernel's MPTCP.
    #[arg(long)]
    pub mptcp: bool,
}

impl Dialer {
    /// Connects to the server.
    pub async fn dial(&self) -> io::Result<TcpStream> {
        let Some(proxy) = self.socks else {
            return connect(self.from, self.mptcp, self.server.into()).await;
        };
        let mut stream = connect(None, false, proxy).await?;
        socks::send_request(&mut stream, Command::Connect, self.server).await?;
        Ok(stream)
    }
}

/// Connects with the common congestion control on all subflows. Later MPTCP subflows inherit it
/// from the socket if it is set before connect(); they do not inherit it from a route.
pub async fn connect(from: Option<IpAddr>, mptcp: bool, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = socket(mptcp, to)?;
    if let Some(from) = from {
        socket.bind(&SocketAddr::new(from, 0).into())?;
    }
    let stream = TcpSocket::from_std_stream(socket.into()).connect(to).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Listens for TCP, or for MPTCP if `mptcp`.
pub fn listen(mptcp: bool, at: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket(mptcp, at)?;
    socket.set_reuse_address(true)?;
    socket.bind(&at.into())?;
    socket.listen(1024)?;
    TcpListener::from_std(socket.into())
}

/// Accepts a connection and sets its congestion control: only the first subflow of an accepted
/// socket inherits it from the listener.
pub async fn accept(listener: &TcpListener) -> io::Result<TcpStream> {
    let (stream, _) = listener.accept().await?;
    set_congestion_control(stream.as_fd(), DEFAULT_CC)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Accepts connections until the process is killed.
pub async fn serve<F>(listener: TcpListener, answer: impl Fn(TcpStream) -> F) -> io::Result<()>
where
    F: Future<Output = io::Result<()>> + 'static,
{
    loop {
        let answered = answer(accept(&listener).await?);
        // Errors of a connection are ignored here: both its endpoints detect them.
        tokio::task::spawn_local(answered);
    }
}

fn socket(mptcp: bool, to: SocketAddr) -> io::Result<Socket> {
    let protocol = if mptcp { Protocol::MPTCP } else { Protocol::TCP };
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(protocol))?;
    set_congestion_control(socket.as_fd(), DEFAULT_CC)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}
