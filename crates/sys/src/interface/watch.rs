//! Notifications from the kernel about changed links, addresses and routes, within milliseconds.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::link::LinkMessage;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use super::kernel::{Link, messages, read_link};

/// `RTMGRP_LINK`, `RTMGRP_IPV4_IFADDR`, `_ROUTE` and `_RULE`, and those of IPv6.
const GROUPS: u32 = 0x1 | 0x10 | 0x40 | 0x80 | 0x100 | 0x400 | 1 << 18;

/// Message types of `linux/rtnetlink.h`: new and deleted links, addresses, routes and rules.
const LINKS: [u16; 2] = [16, 17];
const ADDRESSES: [u16; 2] = [20, 21];
const ROUTES: [u16; 4] = [24, 25, 32, 33];

/// Receive buffer for the hundreds of messages at the start of a network manager.
const RECEIVE_BUFFER: usize = 1 << 20;
/// Larger than any notification; that of a link takes some kilobytes.
const MAX_DATAGRAM: usize = 1 << 16;
/// Maximum number of datagrams of one call, so that endless route changes do not block the caller.
const MAX_DATAGRAMS: usize = 1024;

/// A subscription to changes in the network namespace of the thread that opened it.
pub struct Watch {
    socket: Socket,
    buffer: Vec<u8>,
}

/// Changes since the last call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Links with a notification, each with its latest state, which may be unchanged.
    pub links: Vec<LinkChange>,
    /// Addresses were added, removed or became usable.
    pub addresses: bool,
    /// Routes or routing rules were added or removed. (The kernel removes IPv4 routes of a removed
    /// link without a notification.)
    pub routes: bool,
    /// Notifications were lost: read the whole state again.
    pub overflowed: bool,
}

/// New state of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkChange {
    /// Interface index of the kernel.
    pub index: u32,
    pub name: String,
    /// Whether the interface is up (administratively).
    pub up: bool,
    /// Whether a cable or an access point is connected.
    pub carrier: bool,
    /// Whether the link was removed.
    pub is_removed: bool,
}

impl LinkChange {
    /// Whether packets can leave through the link.
    pub fn is_operational(&self) -> bool {
        self.up && self.carrier && !self.is_removed
    }
}

impl Changes {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn on_message(&mut self, kind: u16, message: &[u8]) {
        if LINKS.contains(&kind) {
            let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(message);
            match message.map(|message| message.payload) {
                Ok(NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link))) => {
                    self.on_link(&link, false);
                }
                Ok(NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelLink(link))) => {
                    self.on_link(&link, true);
                }
                // A message of a newer kernel.
                _ => self.overflowed = true,
            }
        }
        self.addresses |= ADDRESSES.contains(&kind);
        self.routes |= ROUTES.contains(&kind);
    }

    fn on_link(&mut self, message: &LinkMessage, gone: bool) {
        // Bridges report that a port is deleted when it leaves the bridge.
        if message.header.interface_family == AddressFamily::Bridge {
            return;
        }
        let Link { index, name, up, carrier, .. } = read_link(message);
        self.links.retain(|link| link.index != index);
        self.links.push(LinkChange { index, name, up, carrier, is_removed: gone });
    }
}

impl Watch {
    /// Subscribes to changes from now on.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        // The kernel silently reduces the size to its limit.
        let _ = socket.set_rx_buf_sz(RECEIVE_BUFFER as libc::c_int);
        socket.set_non_blocking(true)?;
        socket.bind(&SocketAddr::new(0, GROUPS))?;
        Ok(Self { socket, buffer: Vec::with_capacity(MAX_DATAGRAM) })
    }

    /// Returns the changes since the last call; does not wait. Before the next call, wait until the
    /// descriptor is readable (through [`AsFd`]).
    pub fn read_changes(&mut self) -> io::Result<Changes> {
        let mut changes = Changes::default();
        for _ in 0..MAX_DATAGRAMS {
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
            // Any process can write to a netlink socket; only the kernel has port 0.
            if sender.port_number() != 0 {
                continue;
            }
            for (kind, _, message) in messages(&self.buffer) {
                changes.on_message(kind, message);
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

    /// Reads until `wanted` holds; returns all changes until then.
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
    fn changes_of_links_addresses_and_routes_are_reported() {
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
            assert!(!link(&changes, "wifi").unwrap().is_operational());
            ip("link set ap up");
            ip("link set wifi up");
            until(&mut watch, |changes| {
                link(changes, "wifi").is_some_and(LinkChange::is_operational)
            });
            ip("addr add 10.0.0.2/24 dev wifi");
            until(&mut watch, |changes| changes.addresses);
            ip("route add default via 10.0.0.1");
            until(&mut watch, |changes| changes.routes);

            ip("link set ap down");
            let changes =
                until(&mut watch, |changes| link(changes, "wifi").is_some_and(|l| !l.carrier));
            let wifi = link(&changes, "wifi").unwrap().clone();
            assert!(wifi.up && !wifi.is_operational() && !wifi.is_removed);
            ip("link del wifi");
            let changes =
                until(&mut watch, |changes| link(changes, "wifi").is_some_and(|l| l.is_removed));
            assert_eq!(link(&changes, "wifi").unwrap().index, wifi.index);
            Ok(())
        });
        done.unwrap();
    }

    #[test]
    fn lost_notifications_are_reported() {
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
    fn a_port_that_leaves_its_bridge_is_not_removed() {
        let mut message = LinkMessage::default();
        message.header.interface_family = AddressFamily::Bridge;
        let mut changes = Changes::default();
        changes.on_link(&message, true);
        assert!(changes.is_empty());
    }
}
