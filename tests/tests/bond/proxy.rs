//! An application that uses a proxy: SOCKS5 byte by byte (RFC 1928).

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};

use crate::bond::SOCKS;
use crate::testbed::{PATIENCE, Testbed};

/// Destination of a request: an address or a name.
pub enum Destination<'a> {
    Address(SocketAddr),
    Name(&'a str, u16),
}

impl Destination<'_> {
    fn encode(&self) -> Vec<u8> {
        let (mut bytes, port) = match self {
            Self::Address(address) => (ip(address.ip()), address.port()),
            Self::Name(name, port) => {
                let length = u8::try_from(name.len()).expect("a short name");
                ([&[3, length], name.as_bytes()].concat(), *port)
            }
        };
        bytes.extend(port.to_be_bytes());
        bytes
    }
}

fn ip(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => [&[1][..], &v4.octets()].concat(),
        IpAddr::V6(v6) => [&[4][..], &v6.octets()].concat(),
    }
}

/// Sends a request to a proxy; returns its connection and the address in its reply.
fn request(
    testbed: &Testbed,
    door: &str,
    what: u8,
    to: &Destination<'_>,
) -> io::Result<(TcpStream, SocketAddr)> {
    let mut stream = testbed.device(|| TcpStream::connect(door))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(&[5, 1, 0])?;
    let mut method = [0; 2];
    stream.read_exact(&mut method)?;
    assert_eq!(method, [5, 0], "no password is wanted");
    stream.write_all(&[&[5, what, 0], &to.encode()[..]].concat())?;
    let mut head = [0; 4];
    stream.read_exact(&mut head)?;
    if head[1] != 0 {
        return Err(io::Error::other(format!("SOCKS5 answers {}", head[1])));
    }
    let mut address = [0; 6];
    assert_eq!(head[3], 1, "an IPv4 address");
    stream.read_exact(&mut address)?;
    let [a, b, c, d, high, low] = address;
    Ok((stream, SocketAddr::from(([a, b, c, d], u16::from_be_bytes([high, low])))))
}

/// A connection through SOCKS5, or its error.
pub fn try_socks(testbed: &Testbed, to: &Destination<'_>) -> io::Result<TcpStream> {
    socks_at(testbed, SOCKS, to)
}

/// A connection through the proxy of another client.
pub fn socks_at(testbed: &Testbed, door: &str, to: &Destination<'_>) -> io::Result<TcpStream> {
    Ok(request(testbed, door, 1, to)?.0)
}

/// A connection through SOCKS5 to an address.
#[track_caller]
pub fn socks(testbed: &Testbed, to: SocketAddr) -> TcpStream {
    try_socks(testbed, &Destination::Address(to)).expect("the proxy is there")
}

/// A connection of an application without a proxy.
pub fn try_plain(testbed: &Testbed, to: SocketAddr) -> io::Result<TcpStream> {
    let stream = testbed.device(|| TcpStream::connect_timeout(&to, PATIENCE))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// [`try_plain`] that must succeed.
#[track_caller]
pub fn plain(testbed: &Testbed, to: SocketAddr) -> TcpStream {
    try_plain(testbed, to).expect("a connection")
}

/// Datagrams through SOCKS5 (UDP ASSOCIATE).
pub struct Association {
    /// The association ends with this connection.
    _control: TcpStream,
    socket: UdpSocket,
    relay: SocketAddr,
}

impl Association {
    #[track_caller]
    pub fn new(testbed: &Testbed) -> Self {
        let any = Destination::Address(SocketAddr::from(([0, 0, 0, 0], 0)));
        let (control, relay) = request(testbed, SOCKS, 3, &any).expect("the proxy is there");
        let socket = testbed.device(|| UdpSocket::bind("127.0.0.1:0")).expect("a socket");
        Self { _control: control, socket, relay }
    }

    pub fn send(&self, to: SocketAddr, data: &[u8]) -> io::Result<usize> {
        let datagram = [&[0, 0, 0], &Destination::Address(to).encode()[..], data].concat();
        self.socket.send_to(&datagram, self.relay)
    }

    /// A received datagram, and its source as reported by the proxy.
    pub fn receive(&self) -> io::Result<(Vec<u8>, SocketAddr)> {
        let mut buffer = [0; 65_536];
        let (length, _) = self.socket.recv_from(&mut buffer)?;
        let (head, rest) = buffer[..length].split_at(4);
        let (address, rest): (IpAddr, _) = match head[3] {
            1 => (<[u8; 4]>::try_from(&rest[..4]).expect("four").into(), &rest[4..]),
            4 => (<[u8; 16]>::try_from(&rest[..16]).expect("sixteen").into(), &rest[16..]),
            other => panic!("an address of kind {other}"),
        };
        let port = u16::from_be_bytes([rest[0], rest[1]]);
        Ok((rest[2..].to_vec(), SocketAddr::new(address, port)))
    }

    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }
}
