//! The required part of SOCKS5 (RFC 1928): IPv4, no authentication, and a server that confirms
//! immediately.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Commands of a SOCKS5 request (RFC 1928, 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    Connect = 1,
    /// UDP ASSOCIATE.
    Associate = 3,
}

/// Sends a request to a proxy and returns the address in its reply.
pub async fn send_request(
    stream: &mut TcpStream,
    command: Command,
    to: SocketAddrV4,
) -> io::Result<SocketAddr> {
    stream.write_all(&[5, 1, 0]).await?;
    let mut chosen = [0; 2];
    stream.read_exact(&mut chosen).await?;
    let mut request = vec![5, command as u8, 0];
    put_address(&mut request, to);
    stream.write_all(&request).await?;
    let mut head = [0; 4];
    stream.read_exact(&mut head).await?;
    if chosen != [5, 0] || head != [5, 0, 0, 1] {
        return Err(io::Error::other(format!("the proxy refuses: {chosen:?}, {head:?}")));
    }
    Ok(SocketAddrV4::new(Ipv4Addr::from(stream.read_u32().await?), stream.read_u16().await?).into())
}

/// Reads the destination that a client requests, and confirms it.
pub async fn accept_request(stream: &mut TcpStream) -> io::Result<SocketAddrV4> {
    let mut head = [0; 2];
    stream.read_exact(&mut head).await?;
    let mut methods = vec![0; head[1].into()];
    stream.read_exact(&mut methods).await?;
    stream.write_all(&[5, 0]).await?;
    let mut request = [0; 4];
    stream.read_exact(&mut request).await?;
    let unknown = || io::Error::other(format!("not what is supported here: {request:?}"));
    if request[..3] != [5, Command::Connect as u8, 0] {
        return Err(unknown());
    }
    let address = match request[3] {
        1 => Ipv4Addr::from(stream.read_u32().await?),
        // A browser sends even an IPv4 address as a domain name.
        3 => {
            let mut name = vec![0; stream.read_u8().await?.into()];
            stream.read_exact(&mut name).await?;
            str::from_utf8(&name).ok().and_then(|name| name.parse().ok()).ok_or_else(unknown)?
        }
        _ => return Err(unknown()),
    };
    let to = SocketAddrV4::new(address, stream.read_u16().await?);
    stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
    Ok(to)
}

/// The header of a UDP datagram (RFC 1928, 7).
pub fn header(to: SocketAddrV4) -> Vec<u8> {
    let mut out = vec![0; 3];
    put_address(&mut out, to);
    out
}

fn put_address(out: &mut Vec<u8>, address: SocketAddrV4) {
    out.push(1);
    out.extend(address.ip().octets());
    out.extend(address.port().to_be_bytes());
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn an_address_that_is_written_as_a_name_is_heard() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut far, _) = listener.accept().await.unwrap();
        near.write_all(b"\x05\x01\0\x05\x01\0\x03\x09192.0.2.1\x1b\xc6").await.unwrap();
        assert_eq!(accept_request(&mut far).await.unwrap(), "192.0.2.1:7110".parse().unwrap());
    }
}
