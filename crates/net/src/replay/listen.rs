//! Sockets of the servers.

use std::io;
use std::net::{Ipv6Addr, SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

/// Maximum number of connections of a port that wait to be accepted.
const MAX_PENDING_CONNECTIONS: i32 = 4096;

/// Listens on these ports at all addresses of the calling thread's network namespace, IPv4 and IPv6;
/// with `is_mptcp` also for the kernel's Multipath TCP.
///
/// # Errors
/// A port is in use, or the kernel lacks Multipath TCP.
pub fn listen(ports: &[u16], is_mptcp: bool) -> io::Result<Vec<TcpListener>> {
    let transport = if is_mptcp { Protocol::MPTCP } else { Protocol::TCP };
    let each = ports.iter().map(|port| {
        let socket = Socket::new(Domain::IPV6, Type::STREAM, Some(transport))?;
        socket.set_only_v6(false)?;
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddr::from((Ipv6Addr::UNSPECIFIED, *port)).into())?;
        socket.listen(MAX_PENDING_CONNECTIONS)?;
        Ok(socket.into())
    });
    each.collect()
}
