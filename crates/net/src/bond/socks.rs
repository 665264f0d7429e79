//! SOCKS5 (RFC 1928), for applications that are configured to use a proxy: CONNECT and UDP
//! ASSOCIATE, without authentication or with user name and password (RFC 1929).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use manyways_proto::bond::io_limits::IoLimits;
use manyways_proto::mux::Destination;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use super::proxy_connection::{PendingReply, ProxyConnection, socks_reply};
use super::proxy_password::ProxyPassword;

const VERSION: u8 = 5;
/// Version of the exchange of user name and password (RFC 1929).
const PASSWORD_VERSION: u8 = 1;
/// Authentication methods.
const NO_AUTHENTICATION: u8 = 0;
const PASSWORD: u8 = 2;
const NO_ACCEPTABLE_METHOD: u8 = 0xff;
/// Maximum length of a request, or of the header of a datagram: three bytes, then the address type
/// and a name with its length and port.
const MAX_HEADER: usize = 3 + 1 + 1 + 255 + 2;

/// The request of an application.
#[derive(Debug)]
pub(super) enum SocksRequest {
    /// A connection, which is not answered yet, with the first bytes that followed the request.
    Connect(ProxyConnection),
    /// Datagrams, which arrive at this socket until the TCP connection ends.
    Associate(TcpStream, UdpSocket),
}

/// Reads an application's request, and answers it unless it is for a connection.
pub(super) async fn accept(
    stream: TcpStream,
    limits: &IoLimits,
    password: Option<&ProxyPassword>,
) -> io::Result<SocksRequest> {
    let request = timeout(Duration::from(limits.proxy_request), negotiate(stream, password)).await;
    request.map_err(|_| io::ErrorKind::TimedOut)?
}

type ApplicationStream = BufReader<TcpStream>;

async fn negotiate(
    stream: TcpStream,
    password: Option<&ProxyPassword>,
) -> io::Result<SocksRequest> {
    let mut stream = ApplicationStream::with_capacity(MAX_HEADER, stream);
    if stream.read_u8().await? != VERSION {
        return Err(protocol_error("the application does not speak SOCKS5"));
    }
    let methods = read_short(&mut stream).await?;
    let method = if password.is_some() { PASSWORD } else { NO_AUTHENTICATION };
    if !methods.contains(&method) {
        stream.write_all(&[VERSION, NO_ACCEPTABLE_METHOD]).await?;
        return Err(protocol_error("the application offers no acceptable authentication method"));
    }
    stream.write_all(&[VERSION, method]).await?;
    if let Some(password) = password {
        authenticate(&mut stream, password).await?;
    }
    let mut head = [0; 3];
    stream.read_exact(&mut head).await?;
    let target = read_destination(&mut stream).await?;
    match head {
        [VERSION, 1, _] => {
            let first = BytesMut::from(stream.buffer());
            let (stream, reply) = (stream.into_inner(), PendingReply::Socks);
            let connection = ProxyConnection { stream, to: target, first, body: None, reply };
            Ok(SocksRequest::Connect(connection))
        }
        [VERSION, 3, _] => {
            // UDP uses the address at which TCP reaches this host.
            let here = stream.get_ref().local_addr()?.ip();
            let socket = UdpSocket::bind((here, 0)).await?;
            let mut answer = vec![VERSION, 0, 0];
            put_address(&mut answer, socket.local_addr()?);
            stream.write_all(&answer).await?;
            Ok(SocksRequest::Associate(stream.into_inner(), socket))
        }
        _ => {
            stream.write_all(&socks_reply(7)).await?;
            Err(protocol_error("the command is not supported"))
        }
    }
}

async fn read_destination(stream: &mut ApplicationStream) -> io::Result<Destination> {
    let address: IpAddr = match stream.read_u8().await? {
        1 => Ipv4Addr::from(stream.read_u32().await?).into(),
        4 => Ipv6Addr::from(stream.read_u128().await?).into(),
        3 => {
            let name = read_short(stream).await?;
            let port = stream.read_u16().await?;
            let name =
                host(&name).ok_or_else(|| protocol_error("the host name is empty or malformed"))?;
            return Ok(destination_from_name(name, port));
        }
        _ => {
            stream.write_all(&socks_reply(8)).await?;
            return Err(protocol_error("the address type is unknown"));
        }
    };
    Ok(Destination::Address(address, stream.read_u16().await?))
}

/// Checks the user name and password of an application.
async fn authenticate(stream: &mut ApplicationStream, password: &ProxyPassword) -> io::Result<()> {
    if stream.read_u8().await? != PASSWORD_VERSION {
        return Err(protocol_error("the application does not send a user name and password"));
    }
    let user = read_short(stream).await?;
    let given = read_short(stream).await?;
    let is_right = password.matches(&user, &given);
    stream.write_all(&[PASSWORD_VERSION, u8::from(!is_right)]).await?;
    if is_right { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

/// Reads bytes that are preceded by their number.
async fn read_short(stream: &mut ApplicationStream) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::from(stream.read_u8().await?)];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

fn put_address(out: &mut Vec<u8>, address: SocketAddr) {
    match address.ip() {
        IpAddr::V4(v4) => {
            out.push(1);
            out.extend(v4.octets());
        }
        IpAddr::V6(v6) => {
            out.push(4);
            out.extend(v6.octets());
        }
    }
    out.extend(address.port().to_be_bytes());
}

fn host(bytes: &[u8]) -> Option<&str> {
    let name = std::str::from_utf8(bytes).ok()?;
    (!name.is_empty() && !name.chars().any(char::is_control)).then_some(name)
}

/// Returns a name, or the address if the name is the text of an address.
fn destination_from_name(name: &str, port: u16) -> Destination {
    match name.parse() {
        Ok(address) => Destination::Address(address, port),
        Err(_) => Destination::Name(name.to_owned(), port),
    }
}

/// Returns the destination and the payload of an application's datagram; `None` if malformed.
pub(super) fn unwrap_datagram(bytes: &[u8]) -> Option<(Destination, &[u8])> {
    // Fragments are optional and not supported (RFC 1928, 7).
    let rest = bytes.strip_prefix(&[0, 0, 0])?;
    let (kind, rest) = rest.split_first()?;
    let port = |bytes: &[u8]| Some(u16::from_be_bytes(bytes.get(..2)?.try_into().ok()?));
    let (target, rest) = match kind {
        1 => {
            let (address, rest) = rest.split_first_chunk::<4>()?;
            (Destination::Address(Ipv4Addr::from(*address).into(), port(rest)?), rest)
        }
        4 => {
            let (address, rest) = rest.split_first_chunk::<16>()?;
            (Destination::Address(Ipv6Addr::from(*address).into(), port(rest)?), rest)
        }
        3 => {
            let (length, rest) = rest.split_first()?;
            let (name, rest) = rest.split_at_checked(usize::from(*length))?;
            (destination_from_name(host(name)?, port(rest)?), rest)
        }
        _ => return None,
    };
    Some((target, rest.get(2..)?))
}

/// Encapsulates a datagram for an application, with its source.
pub(super) fn wrap_datagram(from: &Destination, data: &Bytes) -> Vec<u8> {
    let mut out = Vec::with_capacity(MAX_HEADER + data.len());
    out.extend([0, 0, 0]);
    match from {
        Destination::Address(address, port) => {
            put_address(&mut out, SocketAddr::new(*address, *port))
        }
        Destination::Name(name, port) => {
            let name = &name.as_bytes()[..name.len().min(255)];
            out.push(3);
            out.push(name.len() as u8);
            out.extend(name);
            out.extend(port.to_be_bytes());
        }
    }
    out.extend_from_slice(data);
    out
}

fn protocol_error(words: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, words.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_are_wrapped_and_unwrapped() {
        for target in [
            Destination::Address("192.0.2.1".parse().unwrap(), 53),
            Destination::Address("2001:db8::1".parse().unwrap(), 443),
            Destination::Name("a.example".to_owned(), 1),
        ] {
            let wrapped = wrap_datagram(&target, &Bytes::from_static(b"hello"));
            assert_eq!(unwrap_datagram(&wrapped), Some((target, &b"hello"[..])));
            for length in 0..wrapped.len() - 5 {
                assert_eq!(unwrap_datagram(&wrapped[..length]), None);
            }
        }
        assert_eq!(unwrap_datagram(&[0, 0, 1, 1, 1, 1, 1, 1, 0, 1]), None);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn an_application_that_does_not_wait_for_the_reply_loses_nothing() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut application = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let request = [5, 2, 2, 0, 5, 1, 0, 3, 9];
        let said = [&request[..], b"a.example\x01\xbb", &[7; 5_000]].concat();
        application.write_all(&said).await.unwrap();
        let stream = listener.accept().await.unwrap().0;
        let request = accept(stream, &IoLimits::default(), None).await.unwrap();
        let SocksRequest::Connect(ProxyConnection { mut stream, to, first, reply, .. }) = request
        else {
            panic!("it is a connection")
        };
        reply.accept(&mut stream).await.unwrap();
        assert_eq!(to, Destination::Name("a.example".to_owned(), 443));
        let mut rest = vec![0; 5_000 - first.len()];
        stream.read_exact(&mut rest).await.unwrap();
        assert!(first.iter().chain(&rest).all(|byte| *byte == 7));
        let mut answer = [0; 12];
        application.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer[..4], [5, 0, 5, 0]);
    }
}
