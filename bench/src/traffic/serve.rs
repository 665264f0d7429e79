//! The server: it gives as many bytes as are asked for, and sends datagrams back.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use manyways_sys::clock::Clock;
use manyways_trace::Time;
use tokio::net::{TcpListener, TcpStream, UdpSocket};

use super::ask::{Ask, Content};
use super::{call, dial};

/// Give whoever asks as many bytes as they ask for, and send datagrams back.
#[derive(clap::Args)]
pub struct ServeArgs {
    /// Where to listen, for TCP and UDP.
    #[arg(long, value_name = "ADDR:PORT")]
    listen: SocketAddr,
    /// Where to listen for MPTCP.
    #[arg(long, value_name = "ADDR:PORT")]
    mptcp: Option<SocketAddr>,
}

pub async fn run(args: &ServeArgs) -> io::Result<()> {
    let content = Rc::new(Content::new());
    let datagrams = UdpSocket::bind(args.listen).await?;
    tokio::task::spawn_local(echo(datagrams));
    if let Some(at) = args.mptcp {
        tokio::task::spawn_local(serve(dial::listen(true, at)?, Rc::clone(&content)));
    }
    serve(dial::listen(false, args.listen)?, content).await
}

async fn serve(listener: TcpListener, content: Rc<Content>) -> io::Result<()> {
    loop {
        let stream = dial::accept(&listener).await?;
        let content = Rc::clone(&content);
        // Whoever goes before the end has its reasons.
        tokio::task::spawn_local(async move { answer(stream, &content).await });
    }
}

async fn answer(mut stream: TcpStream, content: &Content) -> io::Result<()> {
    while let Some(ask) = Ask::hear(&mut stream).await? {
        content.send(ask, &mut stream).await?;
    }
    Ok(())
}

/// Sends every datagram back with the time at which it came.
async fn echo(socket: UdpSocket) -> io::Result<()> {
    let clock = Clock::start();
    let mut buffer = [0; 2048];
    loop {
        let (length, from) = socket.recv_from(&mut buffer).await?;
        let now = clock.absolute(Time::ZERO) + clock.now().as_nanos();
        if let Some(packet) = buffer.get_mut(..length) {
            call::stamp(packet, now);
            // A client that went away needs none.
            let _ = socket.send_to(packet, from).await;
        }
    }
}
