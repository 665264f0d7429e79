//! Sockets for ICMP echoes.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket as StdUdpSocket};
use std::os::fd::{AsFd, OwnedFd};

use manyways_sys::socket::timed::{recv_timed, set_receive_times};
use manyways_unit::Span;
use manyways_wire::icmp::{self, Icmp};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::Interest;
use tokio::net::UdpSocket;

use crate::path::{PathSpec, bind};
use crate::probe::contract::ProbeError;

/// A socket for echoes to one address over a path.
pub(super) struct EchoSocket {
    /// Behaves as one of UDP: messages to an address, and from any.
    socket: UdpSocket,
    target: SocketAddr,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// The kernel sets identifier and checksum, and delivers only answers to this socket.
    Datagram,
    /// For hosts that permit no datagram socket. It receives every ICMP message of the host, and
    /// this identifier selects its own.
    Raw { identifier: u16 },
}

impl EchoSocket {
    /// # Errors
    /// This user may open neither kind of socket.
    pub(super) fn open(path: &PathSpec, target: IpAddr) -> Result<Self, ProbeError> {
        let open = |kind: Type| -> io::Result<Socket> {
            let (domain, protocol) = match target.is_ipv4() {
                true => (Domain::IPV4, Protocol::ICMPV4),
                false => (Domain::IPV6, Protocol::ICMPV6),
            };
            let socket = Socket::new(domain, kind, Some(protocol))?;
            bind(&socket, path, target)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let (socket, kind) = match open(Type::DGRAM) {
            Ok(socket) => (socket, Kind::Datagram),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let raw = open(Type::RAW).map_err(|raw| match raw.kind() {
                    io::ErrorKind::PermissionDenied => ProbeError::NotPermitted(
                        "this user may not send ICMP echoes: the group is not in \
                         net.ipv4.ping_group_range"
                            .to_owned(),
                    ),
                    _ => ProbeError::io(path, "open a socket for ICMP", raw),
                })?;
                let identifier = std::process::id() as u16;
                (raw, Kind::Raw { identifier })
            }
            Err(error) => return Err(ProbeError::io(path, "open a socket for ICMP", error)),
        };
        // Without them, the time in which this process does not run counts.
        let _ = set_receive_times(socket.as_fd());
        let socket = StdUdpSocket::from(OwnedFd::from(socket));
        let socket = UdpSocket::from_std(socket)
            .map_err(|error| ProbeError::io(path, "wait for a socket", error))?;
        Ok(Self { socket, target: SocketAddr::new(target, 0), kind })
    }

    pub(super) async fn send(&self, sequence: u16, payload: u16) -> io::Result<()> {
        let identifier = match self.kind {
            Kind::Datagram => 0,
            Kind::Raw { identifier } => identifier,
        };
        let message = request(self.target.is_ipv4(), identifier, sequence, payload);
        self.socket.send_to(&message, self.target).await.map(drop)
    }

    /// Waits for an answer to an echo of this socket. Returns its sequence number, and the time
    /// since the kernel received it.
    pub(super) async fn receive(&self, buffer: &mut [u8]) -> io::Result<(u16, Span)> {
        loop {
            let receive = || recv_timed(self.socket.as_fd(), buffer);
            let received = self.socket.async_io(Interest::READABLE, receive).await?;
            let Some(message) = buffer.get(..received.length) else { continue };
            let is_raw = matches!(self.kind, Kind::Raw { .. });
            let found = match self.target.is_ipv4() {
                // A raw socket of IPv4 receives the IP header too.
                true if is_raw => icmp::payload_v4(message).and_then(Icmp::read_v4),
                true => Icmp::read_v4(message),
                false => Icmp::read_v6(message),
            };
            let Some(Icmp::EchoReply { identifier, sequence }) = found else { continue };
            let is_own = match self.kind {
                Kind::Datagram => true,
                Kind::Raw { identifier: own } => identifier == own,
            };
            if is_own && received.source.ip() == self.target.ip() {
                return Ok((sequence, received.age));
            }
        }
    }
}

/// An echo request. The kernel computes the checksum of ICMPv6, whose header it knows.
fn request(is_ipv4: bool, identifier: u16, sequence: u16, payload: u16) -> Vec<u8> {
    let mut message = vec![0; 8 + usize::from(payload)];
    message[0] = if is_ipv4 { 8 } else { 128 };
    message[4..6].copy_from_slice(&identifier.to_be_bytes());
    message[6..8].copy_from_slice(&sequence.to_be_bytes());
    if is_ipv4 {
        let sum = checksum(&message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    message
}

/// The checksum of RFC 1071.
fn checksum(message: &[u8]) -> u16 {
    let words = message
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)])));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_of_a_whole_message_is_zero() {
        for payload in [0, 1, 56, 1_000] {
            let message = request(true, 0x1234, 0xfffe, payload);
            assert_eq!(checksum(&message), 0, "{payload}");
        }
    }
}
