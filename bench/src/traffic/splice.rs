//! A transparent splice, which makes kernel MPTCP, or plain TCP over one link, comparable with a
//! tunnel. Each flow has a separate connection. Its first segment contains the destination and the
//! flow's first bytes, so that the splice costs a flow no round trip except its own handshake.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::str::FromStr;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional_with_sizes};
use tokio::net::TcpStream;

use super::{dial, socks};

/// Hand connections on, each over one of its own.
#[derive(clap::Args)]
pub struct SpliceArgs {
    /// At the far end: listen here for plain TCP.
    #[arg(long, value_name = "ADDR:PORT", conflicts_with = "socks")]
    plain: Option<SocketAddr>,
    /// At the far end: listen here for MPTCP.
    #[arg(long, value_name = "ADDR:PORT", conflicts_with = "socks")]
    mptcp: Option<SocketAddr>,
    /// At the near end: a SOCKS5 port of loopback, how its connections go on, from which address
    /// and to which far end: 1081,mptcp,10.0.0.1,192.0.2.1:7001. Without a far end they go straight
    /// to where they are to go. May be given more than once.
    #[arg(long, value_name = "PORT,tcp|mptcp,FROM[,TO]")]
    socks: Vec<SocksPort>,
}

/// A SOCKS5 port of the splice, and how its connections continue.
#[derive(Clone, Debug)]
struct SocksPort {
    port: u16,
    mptcp: bool,
    source: IpAddr,
    remote: Option<SocketAddr>,
}

impl FromStr for SocksPort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fields: Vec<&str> = text.split(',').collect();
        let (port, kind, from, far) = match fields[..] {
            [port, kind, from] => (port, kind, from, None),
            [port, kind, from, far] => (port, kind, from, Some(far)),
            _ => return Err("it has three or four parts".to_owned()),
        };
        let far = far.map(|far| far.parse().map_err(|error| format!("{far}: {error}")));
        Ok(Self {
            port: port.parse().map_err(|error| format!("{port}: {error}"))?,
            mptcp: kind == "mptcp",
            source: from.parse().map_err(|error| format!("{from}: {error}"))?,
            remote: far.transpose()?,
        })
    }
}

/// Bytes that are read from one side before they are written to the other.
const BUFFER: usize = 64 << 10;

pub async fn run(args: &SpliceArgs) -> io::Result<()> {
    for (at, mptcp) in [(args.plain, false), (args.mptcp, true)] {
        if let Some(at) = at {
            tokio::task::spawn_local(dial::serve(dial::listen(mptcp, at)?, serve_remote));
        }
    }
    for door in args.socks.clone() {
        let listener = dial::listen(false, (Ipv4Addr::LOCALHOST, door.port).into())?;
        tokio::task::spawn_local(dial::serve(listener, move |stream| {
            serve_socks(stream, door.clone())
        }));
    }
    std::future::pending().await
}

async fn serve_socks(mut stream: TcpStream, door: SocksPort) -> io::Result<()> {
    let to = socks::accept_request(&mut stream).await?;
    let mut first = Vec::with_capacity(BUFFER);
    if door.remote.is_some() {
        first.extend(to.ip().octets());
        first.extend(to.port().to_be_bytes());
    }
    let connecting = dial::connect(Some(door.source), door.mptcp, door.remote.unwrap_or(to.into()));
    // The handshake and the first read from the application run concurrently.
    let (on, length) = tokio::join!(connecting, stream.read_buf(&mut first));
    let mut on = on?;
    length?;
    on.write_all(&first).await?;
    join(stream, on).await
}

async fn serve_remote(mut stream: TcpStream) -> io::Result<()> {
    let address = Ipv4Addr::from(stream.read_u32().await?);
    let to = SocketAddrV4::new(address, stream.read_u16().await?);
    let on = dial::connect(None, false, to.into()).await?;
    join(stream, on).await
}

pub async fn join(mut one: TcpStream, mut other: TcpStream) -> io::Result<()> {
    copy_bidirectional_with_sizes(&mut one, &mut other, BUFFER, BUFFER).await?;
    Ok(())
}
