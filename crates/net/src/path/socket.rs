//! Sockets that are bound to a path.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpSocket;

use super::PathSpec;

/// Creates a socket whose packets leave through the path's interface.
///
/// Binding to an interface needs no privilege since Linux 5.7. If it is refused, the socket is
/// bound only to the source address, which is enough if the host routes by source.
pub fn socket(path: &PathSpec, server: SocketAddr) -> io::Result<TcpSocket> {
    let transport = if path.mptcp { Protocol::MPTCP } else { Protocol::TCP };
    let socket = bound(path, server, Type::STREAM, transport)?;
    Ok(TcpSocket::from_std_stream(socket.into()))
}

/// Creates an unconnected UDP socket to a server over a path.
pub fn udp_socket(path: &PathSpec, server: SocketAddr) -> io::Result<UdpSocket> {
    Ok(bound(path, server, Type::DGRAM, Protocol::UDP)?.into())
}

fn bound(
    path: &PathSpec,
    server: SocketAddr,
    kind: Type,
    transport: Protocol,
) -> io::Result<Socket> {
    let domain = if server.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, kind, Some(transport))?;
    bind(&socket, path, server.ip())?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Binds a new socket to the path's interface, and to its address of the server's family.
pub(crate) fn bind(socket: &Socket, path: &PathSpec, server: IpAddr) -> io::Result<()> {
    if let Some(device) = &path.device
        && let Err(error) = socket.bind_device(Some(device.as_bytes()))
    {
        if error.kind() != io::ErrorKind::PermissionDenied {
            return Err(error);
        }
        tracing::debug!(
            "{}: cannot bind the socket to the interface, so it is bound to an address only: {error}",
            path.name
        );
    }
    if let Some(source) = path.source(server) {
        match socket.bind(&SocketAddr::new(source, 0).into()) {
            // The interface has a different address by now, which the kernel selects.
            Err(error)
                if error.kind() == io::ErrorKind::AddrNotAvailable && path.device.is_some() =>
            {
                tracing::debug!("{}: {source} is no longer its address", path.name);
            }
            bound => bound?,
        }
    }
    Ok(())
}

/// Formats an I/O error without its number, for example `(os error 111)`.
pub fn plain(error: &io::Error) -> String {
    // tokio-rustls adds the URL of its documentation to this error.
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return "the connection was closed too early".to_owned();
    }
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_lose_their_number() {
        let error = io::Error::from_raw_os_error(111);
        assert_eq!(plain(&error), "connection refused");
    }
}
