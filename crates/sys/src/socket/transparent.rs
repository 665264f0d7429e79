//! Sockets that accept connections and datagrams for other hosts, and answer with their addresses.
//! They need `CAP_NET_ADMIN` when they are created, and rules that redirect the traffic to them:
//! [`crate::tproxy`].
//!
//! All of them are blocking, like new sockets of the standard library.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6, TcpListener, UdpSocket};
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::sys::socket::sockopt::{Ipv4OrigDstAddr, Ipv6OrigDstAddr};
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrIn, SockaddrIn6, SockaddrStorage, recvmsg, setsockopt,
};
use socket2::{Domain, Protocol, Socket, Type};

/// Maximum number of connections that wait to be accepted.
const MAX_PENDING_CONNECTIONS: i32 = 4096;

/// Creates a listener for connections to any destination. Accepted connections have the original
/// destination as their local address. IPv6 only, if `at` is an IPv6 address.
///
/// The connections inherit `mark`.
pub fn transparent_tcp_listener(at: SocketAddr, mark: Option<u32>) -> io::Result<TcpListener> {
    let socket = transparent(at, Type::STREAM, Protocol::TCP, mark)?;
    socket.bind(&at.into())?;
    socket.listen(MAX_PENDING_CONNECTIONS)?;
    Ok(socket.into())
}

/// Creates a socket for datagrams to any destination; read it with [`recv_with_destination`]. IPv6
/// only, if `at` is an IPv6 address.
pub fn transparent_udp(at: SocketAddr, mark: Option<u32>) -> io::Result<UdpSocket> {
    let socket = transparent(at, Type::DGRAM, Protocol::UDP, mark)?;
    if at.is_ipv4() {
        setsockopt(&socket, Ipv4OrigDstAddr, &true)?;
    } else {
        setsockopt(&socket, Ipv6OrigDstAddr, &true)?;
    }
    socket.bind(&at.into())?;
    Ok(socket.into())
}

/// Creates a socket that sends datagrams from `source`, an address of another host. Leave it
/// unconnected: the kernel delivers incoming datagrams to a connected socket instead of the
/// listener.
///
/// Several sockets may have the same source.
pub fn transparent_udp_from(source: SocketAddr, mark: Option<u32>) -> io::Result<UdpSocket> {
    let socket = transparent(source, Type::DGRAM, Protocol::UDP, mark)?;
    socket.bind(&source.into())?;
    Ok(socket.into())
}

fn transparent(
    at: SocketAddr,
    kind: Type,
    protocol: Protocol,
    mark: Option<u32>,
) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(at), kind, Some(protocol))?;
    socket.set_reuse_address(true)?;
    if at.is_ipv4() {
        socket.set_ip_transparent_v4(true)?;
    } else {
        socket.set_only_v6(true)?;
        socket.set_ip_transparent_v6(true)?;
    }
    if let Some(mark) = mark {
        socket.set_mark(mark)?;
    }
    Ok(socket)
}

/// One datagram for another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes in the buffer.
    pub length: usize,
    /// Whether the datagram was longer than the buffer, so that its end is lost.
    pub truncated: bool,
    pub source: SocketAddr,
    /// The original destination.
    pub destination: SocketAddr,
}

/// Reads one datagram from a socket of [`transparent_udp`].
///
/// # Errors
/// `InvalidData` if the kernel reports no original destination: the socket is of another kind.
pub fn recv_with_destination(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Received> {
    let mut parts = [IoSliceMut::new(buffer)];
    // Space for both families: an IPv6 socket that also accepts IPv4 gets either.
    let mut space = nix::cmsg_space!(libc::sockaddr_in, libc::sockaddr_in6);
    let message = recvmsg::<SockaddrStorage>(
        socket.as_raw_fd(),
        &mut parts,
        Some(&mut space),
        MsgFlags::MSG_CMSG_CLOEXEC,
    )?;
    let source = message.address.as_ref().and_then(socket_address);
    let destination = message.cmsgs()?.find_map(|control| match control {
        ControlMessageOwned::Ipv4OrigDstAddr(to) => Some(v4(SockaddrIn::from(to).into())),
        ControlMessageOwned::Ipv6OrigDstAddr(to) => Some(v6(SockaddrIn6::from(to).into())),
        _ => None,
    });
    let (Some(source), Some(destination)) = (source, destination) else {
        let sentence = "the kernel reports no original destination of this datagram";
        return Err(io::Error::new(io::ErrorKind::InvalidData, sentence));
    };
    Ok(Received {
        length: message.bytes,
        truncated: message.flags.contains(MsgFlags::MSG_TRUNC),
        source,
        destination,
    })
}

fn v4(address: SocketAddrV4) -> SocketAddr {
    SocketAddr::V4(address)
}

/// Drops the flow label; the zone counts only for link-local addresses.
fn v6(address: SocketAddrV6) -> SocketAddr {
    let zone = if address.ip().is_unicast_link_local() { address.scope_id() } else { 0 };
    SocketAddr::V6(SocketAddrV6::new(*address.ip(), address.port(), 0, zone))
}

pub(super) fn socket_address(address: &SockaddrStorage) -> Option<SocketAddr> {
    if let Some(address) = address.as_sockaddr_in() {
        return Some(v4((*address).into()));
    }
    let address = v6((*address.as_sockaddr_in6()?).into());
    // An IPv4 sender on a socket of both families.
    Some(match address.ip() {
        IpAddr::V6(ip) => match ip.to_ipv4_mapped() {
            Some(ip) => SocketAddr::from((ip, address.port())),
            None => address,
        },
        IpAddr::V4(_) => address,
    })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_datagram_has_its_original_destination() {
        if !crate::sandbox::is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        for (any, own) in [("0.0.0.0:0", "127.0.0.3"), ("[::]:0", "::1")] {
            let socket = transparent_udp(any.parse().unwrap(), Some(7)).unwrap();
            let to = SocketAddr::new(own.parse().unwrap(), socket.local_addr().unwrap().port());
            let sender = UdpSocket::bind((own, 0)).unwrap();
            sender.send_to(b"hello", to).unwrap();
            let mut buffer = [0; 4];
            let received = recv_with_destination(socket.as_fd(), &mut buffer).unwrap();
            assert_eq!(&buffer, b"hell");
            let source = sender.local_addr().unwrap();
            let expected = Received { length: 4, truncated: true, source, destination: to };
            assert_eq!(received, expected);
        }
    }

    #[test]
    fn a_plain_socket_is_refused() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(b"hello", socket.local_addr().unwrap()).unwrap();
        let error = recv_with_destination(socket.as_fd(), &mut [0; 9]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn two_answer_in_the_name_of_a_foreign_address() {
        if !crate::sandbox::is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let foreign = "203.0.113.9:53".parse().unwrap();
        let one = transparent_udp_from(foreign, None).unwrap();
        let _two = transparent_udp_from(foreign, None).unwrap();
        one.send_to(b"answer", receiver.local_addr().unwrap()).unwrap();
        let mut buffer = [0; 16];
        assert_eq!(receiver.recv_from(&mut buffer).unwrap(), (6, foreign));
    }
}
