//! Queries the kernel for a socket by its addresses: `linux/inet_diag.h`.

use std::io;
use std::net::{IpAddr, SocketAddr};

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST};
use netlink_sys::{Socket, SocketAddr as NetlinkAddr, protocols::NETLINK_SOCK_DIAG};

use super::Protocol;
use crate::interface::kernel::{HEADER_SIZE, messages};

/// `SOCK_DIAG_BY_FAMILY` of `linux/sock_diag.h`.
const BY_FAMILY: u16 = 20;
/// Maximum number of sockets of one port that are checked.
const MAX_SOCKETS: usize = 10_000;
/// Bytes of `struct inet_diag_msg`.
const RESPONSE_SIZE: usize = 72;

/// A socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SocketInfo {
    pub(super) uid: u32,
    /// Zero if it no longer belongs to a process.
    pub(super) inode: u32,
}

pub(super) fn find(
    local: SocketAddr,
    remote: SocketAddr,
    protocol: Protocol,
) -> io::Result<Option<SocketInfo>> {
    let (local, remote) = (canonical_address(local), canonical_address(remote));
    if local.is_ipv4() != remote.is_ipv4() {
        return Ok(None);
    }
    let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
    socket.bind_auto()?;
    socket.connect(&NetlinkAddr::new(0, 0))?;
    match protocol {
        Protocol::Tcp => tcp(&socket, local, remote),
        Protocol::Udp => udp(&socket, local, remote),
    }
}

/// Finds the exact connection. The kernel finds IPv6 sockets with IPv4 traffic by their IPv4
/// addresses.
fn tcp(socket: &Socket, local: SocketAddr, remote: SocketAddr) -> io::Result<Option<SocketInfo>> {
    let family = if local.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let question = DiagRequest {
        family,
        protocol: libc::IPPROTO_TCP,
        flags: NLM_F_REQUEST,
        ports: (local.port(), remote.port()),
        addresses: (bytes(local.ip()), bytes(remote.ip())),
    };
    let mut found = None;
    let asked = question.send(socket, |answer| {
        // If the connection does not exist, the kernel returns a listener of its port.
        if answer.local == local && answer.remote == remote {
            found = Some(answer.socket);
        }
    });
    match asked {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
        Ok(()) => Ok(found),
    }
}

/// Datagram sockets are queried by their port: for an exact query, kernels disagree about the order
/// of the addresses, and an unconnected socket has neither.
fn udp(socket: &Socket, local: SocketAddr, remote: SocketAddr) -> io::Result<Option<SocketInfo>> {
    let families: &[i32] =
        if local.is_ipv4() { &[libc::AF_INET, libc::AF_INET6] } else { &[libc::AF_INET6] };
    let mut best: Option<(u8, SocketInfo)> = None;
    for family in families {
        let question = DiagRequest {
            family: *family,
            protocol: libc::IPPROTO_UDP,
            flags: NLM_F_REQUEST | NLM_F_DUMP,
            ports: (local.port(), 0),
            addresses: ([0; 16], [0; 16]),
        };
        question.send(socket, |answer| {
            let fit = match_score(answer.local, local).zip(match_score(answer.remote, remote));
            if let Some(rank) = fit.map(|(own, far)| own + 2 * far)
                && answer.local.port() == local.port()
                && best.is_none_or(|(other, _)| rank > other)
            {
                best = Some((rank, answer.socket));
            }
        })?;
    }
    Ok(best.map(|(_, found)| found))
}

/// Returns how well an end of a socket matches: 1 exactly, 0 if unspecified, `None` if it differs.
fn match_score(end: SocketAddr, wanted: SocketAddr) -> Option<u8> {
    if end == wanted {
        Some(1)
    } else if end.ip().is_unspecified() {
        Some(0)
    } else {
        None
    }
}

/// `struct inet_diag_req_v2`, for sockets in any state.
struct DiagRequest {
    family: i32,
    protocol: i32,
    flags: u16,
    /// Of the local and the remote end; in a dump, zero matches any.
    ports: (u16, u16),
    addresses: ([u8; 16], [u8; 16]),
}

struct DiagResponse {
    local: SocketAddr,
    remote: SocketAddr,
    socket: SocketInfo,
}

impl DiagRequest {
    fn send(&self, socket: &Socket, mut take: impl FnMut(DiagResponse)) -> io::Result<()> {
        socket.send(&self.bytes(), 0)?;
        let mut taken = 0;
        loop {
            let (datagram, _) = socket.recv_from_full()?;
            for (kind, _, message) in messages(&datagram) {
                let payload = &message[HEADER_SIZE..];
                match i32::from(kind) {
                    libc::NLMSG_DONE => return Ok(()),
                    libc::NLMSG_ERROR => {
                        let code =
                            payload.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
                        if code == 0 {
                            return Ok(());
                        }
                        return Err(io::Error::from_raw_os_error(code.saturating_neg()));
                    }
                    _ => {}
                }
                if let Some(answer) = read(payload)
                    && taken < MAX_SOCKETS
                {
                    taken += 1;
                    take(answer);
                }
                if self.flags & NLM_F_DUMP == 0 {
                    return Ok(());
                }
            }
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut text = Vec::with_capacity(HEADER_SIZE + 56);
        // The header; its length is set last.
        text.extend([0; 4]);
        text.extend(BY_FAMILY.to_ne_bytes());
        text.extend(self.flags.to_ne_bytes());
        text.extend([0; 8]);
        // No extensions; all states.
        text.extend([self.family as u8, self.protocol as u8, 0, 0]);
        text.extend(u32::MAX.to_ne_bytes());
        text.extend(self.ports.0.to_be_bytes());
        text.extend(self.ports.1.to_be_bytes());
        text.extend(self.addresses.0);
        text.extend(self.addresses.1);
        // Any interface, and no cookie.
        text.extend([0; 4]);
        text.extend([0xff; 8]);
        let length = (text.len() as u32).to_ne_bytes();
        text[..4].copy_from_slice(&length);
        text
    }
}

/// Parses a `struct inet_diag_msg`.
fn read(payload: &[u8]) -> Option<DiagResponse> {
    let text: &[u8; RESPONSE_SIZE] = payload.first_chunk()?;
    let port = |at: usize| u16::from_be_bytes([text[at], text[at + 1]]);
    let number =
        |at: usize| u32::from_ne_bytes([text[at], text[at + 1], text[at + 2], text[at + 3]]);
    let address = |at: usize| -> Option<IpAddr> {
        let bytes: [u8; 16] = text.get(at..at + 16)?.try_into().ok()?;
        match i32::from(text[0]) {
            libc::AF_INET => Some(IpAddr::from([bytes[0], bytes[1], bytes[2], bytes[3]])),
            libc::AF_INET6 => Some(IpAddr::from(bytes)),
            _ => None,
        }
    };
    Some(DiagResponse {
        local: canonical_address((address(8)?, port(4)).into()),
        remote: canonical_address((address(24)?, port(6)).into()),
        socket: SocketInfo { uid: number(64), inode: number(68) },
    })
}

fn bytes(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&ip.octets());
            bytes
        }
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// Removes zone and flow label, and converts IPv4-mapped addresses to IPv4.
fn canonical_address(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    #[test]
    fn an_answer_that_is_cut_off_or_of_another_family_is_none() {
        let mut answer = [0; RESPONSE_SIZE];
        answer[0] = libc::AF_INET6 as u8;
        answer[8..24].copy_from_slice(&Ipv6Addr::LOCALHOST.octets());
        answer[64..68].copy_from_slice(&7_u32.to_ne_bytes());
        assert_eq!(read(&answer).unwrap().socket, SocketInfo { uid: 7, inode: 0 });
        assert!(read(&answer[..71]).is_none());
        answer[0] = libc::AF_UNIX as u8;
        assert!(read(&answer).is_none());
    }
}
