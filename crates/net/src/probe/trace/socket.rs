//! Raw sockets of a trace.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket as StdUdpSocket};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use manyways_wire::icmp::{self, Icmp};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::UdpSocket;

use super::TraceMethod;
use super::packet::FlowFields;
use crate::path::{PathSpec, bind, udp_socket};
use crate::probe::contract::ProbeError;

/// The sockets of a trace to one address.
pub(super) struct TraceSocket {
    flow: FlowFields,
    packets: UdpSocket,
    /// ICMP messages to this host.
    messages: UdpSocket,
    /// Keeps the source port, so that no other program gets it.
    _port: Option<Socket>,
    is_reached: AtomicBool,
}

/// An answer to a probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TraceAnswer {
    pub(super) number: u16,
    pub(super) from: IpAddr,
    /// Whether the route ends there.
    pub(super) is_end: bool,
}

impl TraceSocket {
    pub(super) async fn open(
        path: &PathSpec,
        target: IpAddr,
        method: TraceMethod,
    ) -> Result<Self, ProbeError> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::PermissionDenied => ProbeError::NotPermitted(
                "a trace needs raw sockets: run it as root or with CAP_NET_RAW".to_owned(),
            ),
            _ => ProbeError::io(path, "open a raw socket", error),
        };
        let domain = if target.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
        let raw = |protocol: Protocol| -> io::Result<UdpSocket> {
            let socket = Socket::new(domain, Type::RAW, Some(protocol))?;
            bind(&socket, path, target)?;
            socket.set_nonblocking(true)?;
            UdpSocket::from_std(StdUdpSocket::from(OwnedFd::from(socket)))
        };
        let icmp = if target.is_ipv4() { Protocol::ICMPV4 } else { Protocol::ICMPV6 };
        let messages = raw(icmp).map_err(failed)?;
        let packets = match method {
            TraceMethod::Icmp => raw(icmp),
            TraceMethod::Udp(_) => raw(Protocol::UDP),
            TraceMethod::Tcp(_) => raw(Protocol::TCP),
        };
        let packets = packets.map_err(failed)?;
        let reserved = match method {
            TraceMethod::Icmp => None,
            TraceMethod::Udp(_) => Some((Type::DGRAM, Protocol::UDP)),
            TraceMethod::Tcp(_) => Some((Type::STREAM, Protocol::TCP)),
        };
        let source = source(path, target).map_err(failed)?;
        let reserve = |(kind, protocol)| -> io::Result<Socket> {
            let socket = Socket::new(domain, kind, Some(protocol))?;
            socket.bind(&SocketAddr::new(source, 0).into())?;
            Ok(socket)
        };
        let reserved = reserved.map(reserve).transpose().map_err(failed)?;
        let port = match &reserved {
            Some(socket) => socket.local_addr().map_err(failed)?.as_socket().map(|a| a.port()),
            None => None,
        };
        let port = port.unwrap_or(std::process::id() as u16);
        let flow = FlowFields { method, source, target, port };
        let is_reached = AtomicBool::new(false);
        Ok(Self { flow, packets, messages, _port: reserved, is_reached })
    }

    pub(super) fn target(&self) -> IpAddr {
        self.flow.target
    }

    /// Whether the target itself has answered.
    pub(super) fn is_reached(&self) -> bool {
        self.is_reached.load(Ordering::Relaxed)
    }

    pub(super) async fn send(
        &self,
        path: &PathSpec,
        ttl: usize,
        number: u16,
    ) -> Result<(), ProbeError> {
        let ttl = u32::try_from(ttl).unwrap_or(u32::MAX);
        let socket = SockRef::from(&self.packets);
        let set = match self.flow.target.is_ipv4() {
            true => socket.set_ttl_v4(ttl),
            false => socket.set_unicast_hops_v6(ttl),
        };
        set.map_err(|error| ProbeError::io(path, "set the TTL", error))?;
        let packet = self.flow.packet(number);
        match self.packets.send_to(&packet, SocketAddr::new(self.flow.target, 0)).await {
            Ok(_) => Ok(()),
            Err(error) if path.has_carrier() && is_of_network(&error) => Ok(()),
            Err(error) => Err(ProbeError::io(path, "send", error)),
        }
    }

    /// Waits for the next answer to a packet of this trace.
    pub(super) async fn receive(&self, buffer: &mut [u8]) -> io::Result<TraceAnswer> {
        let mut segment = vec![0; 256];
        let is_tcp = matches!(self.flow.method, TraceMethod::Tcp(_));
        loop {
            let (from, answer) = tokio::select! {
                received = self.messages.recv_from(buffer) => match received {
                    Ok((length, from)) => (from.ip(), self.message(&buffer[..length], from.ip())),
                    Err(error) if is_of_network(&error) => continue,
                    Err(error) => return Err(error),
                },
                received = self.packets.recv_from(&mut segment), if is_tcp => match received {
                    Ok((length, from)) => (from.ip(), self.segment(&segment[..length], from.ip())),
                    Err(error) if is_of_network(&error) => continue,
                    Err(error) => return Err(error),
                },
            };
            if let Some((number, is_end)) = answer {
                if from == self.flow.target {
                    self.is_reached.store(true, Ordering::Relaxed);
                }
                return Ok(TraceAnswer { number, from, is_end });
            }
        }
    }

    fn message(&self, packet: &[u8], from: IpAddr) -> Option<(u16, bool)> {
        let message = match self.flow.target.is_ipv4() {
            true => Icmp::read_v4(icmp::payload_v4(packet)?),
            false => Icmp::read_v6(packet),
        };
        self.flow.answered_by(message?, from)
    }

    fn segment(&self, packet: &[u8], from: IpAddr) -> Option<(u16, bool)> {
        if from != self.flow.target {
            return None;
        }
        let segment = match self.flow.target.is_ipv4() {
            true => icmp::payload_v4(packet)?,
            false => packet,
        };
        self.flow.acknowledged_by(segment).map(|number| (number, true))
    }
}

/// The address from which packets to the target leave.
fn source(path: &PathSpec, target: IpAddr) -> io::Result<IpAddr> {
    if let Some(source) = path.source(target) {
        return Ok(source);
    }
    let server = SocketAddr::new(target, TraceMethod::UDP_PORT);
    let socket = udp_socket(path, server)?;
    socket.connect(server)?;
    Ok(socket.local_addr()?.ip())
}

/// Errors that mean a lost packet: the next one can arrive.
fn is_of_network(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
    matches!(error.kind(), HostUnreachable | NetworkUnreachable | ConnectionRefused)
}
