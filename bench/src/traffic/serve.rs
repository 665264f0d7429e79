//! The server: it sends the requested number of bytes, and echoes datagrams.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use manyways_sys::clock::Clock;
use manyways_unit::Time;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UdpSocket};

use super::content::{ByteRequest, Content};
use super::{call, dial, web};

/// Send each client the requested number of bytes, take those of others, and return datagrams.
#[derive(clap::Args)]
pub struct ServeArgs {
    /// Address to listen on, for TCP and UDP.
    #[arg(long, value_name = "ADDR:PORT")]
    listen: SocketAddr,
    /// Where to listen for MPTCP.
    #[arg(long, value_name = "ADDR:PORT")]
    mptcp: Option<SocketAddr>,
    /// Where to serve web pages, at this port and those after it, one an origin.
    #[arg(long, value_name = "ADDR:PORT")]
    web: Option<SocketAddr>,
    /// Where to send datagrams back too, as a relay of calls does.
    #[arg(long, value_name = "ADDR:PORT")]
    relay: Option<SocketAddr>,
}

pub async fn run(args: &ServeArgs) -> io::Result<()> {
    let content = Rc::new(Content::new());
    for at in [Some(args.listen), args.relay].into_iter().flatten() {
        tokio::task::spawn_local(echo(UdpSocket::bind(at).await?));
    }
    if let Some(at) = args.web {
        web::serve(at)?;
    }
    let answering = move |stream| answer(stream, Rc::clone(&content));
    if let Some(at) = args.mptcp {
        tokio::task::spawn_local(dial::serve(dial::listen(true, at)?, answering.clone()));
    }
    dial::serve(dial::listen(false, args.listen)?, answering).await
}

async fn answer(mut stream: TcpStream, content: Rc<Content>) -> io::Result<()> {
    while let Some(request) = ByteRequest::read(&mut stream).await? {
        match request.is_upload {
            true => {
                content.receive(request.bytes, &mut stream, |_| {}).await?;
                tokio::time::sleep(request.think_time).await;
                stream.write_u8(0).await?;
            }
            false => content.send(request, &mut stream).await?,
        }
    }
    Ok(())
}

/// Echoes every datagram with its receive time.
async fn echo(socket: UdpSocket) -> io::Result<()> {
    let clock = Clock::start();
    let mut buffer = [0; 2048];
    loop {
        let (length, from) = socket.recv_from(&mut buffer).await?;
        let now = clock.absolute(Time::ZERO) + clock.now().as_nanos();
        if let Some(packet) = buffer.get_mut(..length) {
            call::stamp(packet, now);
            // The send may fail if the client has ended.
            let _ = socket.send_to(packet, from).await;
        }
    }
}
