//! Being told by the kernel that a link, an address or a route has changed, within milliseconds.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::link::LinkMessage;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use super::kernel::{Link, messages, read_link};

/// `RTMGRP_LINK`, `RTMGRP_IPV4_IFADDR`, `_ROUTE` and `_RULE`, and those of IPv6.
const GROUPS: u32 = 0x1 | 0x10 | 0x40 | 0x80 | 0x100 | 0x400 | 1 << 18;

/// Types of messages, of `linux/rtnetlink.h`: of links, addresses, routes and rules, new and gone.
const LINKS: [u16; 2] = [16, 17];
const ADDRESSES: [u16; 2] = [20, 21];
const ROUTES: [u16; 4] = [24, 25, 32, 33];

/// Room for the hundreds of messages that come at once when a network manager starts.
const BUFFER: usize = 1 << 20;
/// More than one notification takes; that of a link is some kilobytes.
const DATAGRAM: usize = 1 << 16;
/// Datagrams that one call reads: where routes change without end, there are other things to do.
const AT_ONCE: usize = 1024;

/// A subscription to changes in the network namespace of the thread that opened it.
pub struct Watch {
    socket: Socket,
    buffer: Vec<u8>,
}

/// What has changed since one looked last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The links that said something, each with what it said last. It may be as it was before.
    pub links: Vec<LinkChange>,
    /// Addresses have come or gone, or may be used now.
    pub addresses: bool,
    /// Routes or routing rules have come or gone. (A route of IPv4 that goes with its link goes
    /// without a word.)
    pub routes: bool,
    /// More has happened than the kernel could keep: look at everything again.
    pub overflowed: bool,
}

/// A link's new state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkChange {
    /// The kernel's number for it.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Whether it is switched on.
    pub up: bool,
    /// Whether there is a cable, or an access point.
    pub carrier: bool,
    /// Whether it is no more.
    pub gone: bool,
}

impl LinkChange {
    /// Whether packets can leave through it.
    pub fn works(&self) -> bool {
        self.up && self.carrier && !self.gone
    }
}

impl Changes {
    /// Whether there is nothing to look at.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn take(&mut self, kind: u16, message: &[u8]) {
        if LINKS.contains(&kind) {
            let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(message);
            match message.map(|message| message.payload) {
                Ok(NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link))) => {
                    self.link(&link, false);
                }
                Ok(NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelLink(link))) => {
                    self.link(&link, true);
                }
                // Of a kernel that is newer than we are.
                _ => self.overflowed = true,
            }
        }
        self.addresses |= ADDRESSES.contains(&kind);
        self.routes |= ROUTES.contains(&kind);
    }

    fn link(&mut self, message: &LinkMessage, gone: bool) {
        // Bridges say of their ports that they have gone, when they are ports no more.
        if message.header.interface_family == AddressFamily::Bridge {
            return;
        }
        let Link { index, name, up, carrier, .. } = read_link(message);
        self.links.retain(|link| link.index != index);
        self.links.push(LinkChange { index, name, up, carrier, gone });
    }
}

impl Watch {
    /// Subscribes; changes from now on are told.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        // Where less is allowed, the kernel gives less.
        let _ = socket.set_rx_buf_sz(BUFFER as libc::c_int);
        socket.set_non_blocking(true)?;
        socket.bind(&SocketAddr::new(0, GROUPS))?;
        Ok(Self { socket, buffer: Vec::with_capacity(DATAGRAM) })
    }

    /// What has changed since the last call; does not wait. Wait for the descriptor to be readable
    /// (through [`AsFd`]) before it is called again.
    pub fn read_changes(&mut self) -> io::Result<Changes> {
        let mut changes = Changes::default();
        for _ in 0..AT_ONCE {
            self.buffer.clear();
            let sender = match self.socket.recv_from(&mut self.buffer, 0) {
                Ok((_, sender)) => sender,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    changes.overflowed = true;
                    continue;
                }
                Err(error) => return Err(error),
            };
            // Any process can write to a netlink socket; only the kernel is number 0.
            if sender.port_number() != 0 {
                continue;
            }
            for (kind, _, message) in messages(&self.buffer) {
                changes.take(kind, message);
            }
        }
        Ok(changes)
    }
}

impl AsRawFd for Watch {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;
    use crate::netns::NetNs;

    fn ip(command: &str) {
        let status = Command::new("ip").args(command.split(' ')).status().unwrap();
        assert!(status.success(), "ip {command}");
    }

    /// Reads until `wanted` has come; all that came until then.
    fn until(watch: &mut Watch, wanted: impl Fn(&Changes) -> bool) -> Changes {
        loop {
            let mut fds = [PollFd::new(watch.as_fd(), PollFlags::POLLIN)];
            let ready = poll(&mut fds, PollTimeout::from(20_000_u16)).unwrap();
            assert_eq!(ready, 1, "nothing came");
            let changes = watch.read_changes().unwrap();
            assert!(!changes.is_empty() && !changes.overflowed);
            if wanted(&changes) {
                return changes;
            }
        }
    }

    fn link<'a>(changes: &'a Changes, name: &str) -> Option<&'a LinkChange> {
        changes.links.iter().find(|link| link.name == name)
    }

    #[test]
    fn links_addresses_and_routes_are_told() {
        if !crate::sandbox::is_root() {
            eprintln!("skipped: making a network namespace needs root");
            return;
        }
        let namespace = NetNs::create().unwrap();
        let done = namespace.run(|| {
            let mut watch = Watch::open()?;
            assert!(watch.read_changes()?.is_empty(), "nothing has happened");
            ip("link add wifi type veth peer name ap");
            let changes = until(&mut watch, |changes| link(changes, "wifi").is_some());
            assert!(!link(&changes, "wifi").unwrap().works());
            ip("link set ap up");
            ip("link set wifi up");
            until(&mut watch, |changes| link(changes, "wifi").is_some_and(LinkChange::works));
            ip("addr add 10.0.0.2/24 dev wifi");
            until(&mut watch, |changes| changes.addresses);
            ip("route add default via 10.0.0.1");
            until(&mut watch, |changes| changes.routes);

            ip("link set ap down");
            let changes =
                until(&mut watch, |changes| link(changes, "wifi").is_some_and(|l| !l.carrier));
            let wifi = link(&changes, "wifi").unwrap().clone();
            assert!(wifi.up && !wifi.works() && !wifi.gone);
            ip("link del wifi");
            let changes =
                until(&mut watch, |changes| link(changes, "wifi").is_some_and(|l| l.gone));
            assert_eq!(link(&changes, "wifi").unwrap().index, wifi.index);
            Ok(())
        });
        done.unwrap();
    }

    #[test]
    fn what_was_lost_is_said() {
        if !crate::sandbox::is_root() {
            eprintln!("skipped: making a network namespace needs root");
            return;
        }
        let namespace = NetNs::create().unwrap();
        let done = namespace.run(|| {
            let mut watch = Watch::open()?;
            watch.socket.set_rx_buf_sz(1_i32)?;
            ip("link add one type veth peer name two");
            for _ in 0..8 {
                ip("link set one up");
                ip("link set one down");
            }
            assert!(watch.read_changes()?.overflowed);
            ip("link del one");
            Ok(())
        });
        done.unwrap();
    }

    #[test]
    fn a_port_that_leaves_its_bridge_is_not_gone() {
        let mut message = LinkMessage::default();
        message.header.interface_family = AddressFamily::Bridge;
        let mut changes = Changes::default();
        changes.link(&message, true);
        assert!(changes.is_empty());
    }
}
