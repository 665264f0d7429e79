//! The network that is lent, which is not one at which other devices find this one.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use manyways_sys::interface;
use tokio::net::TcpListener;

use super::LendError;
use super::pairs::{PairedDevice, PairedRole};
use crate::bond::gateway;
use crate::path::PathSpec;

/// Returns the interface with an address. That of loopback is not a network with strangers.
fn interface_of(address: SocketAddr) -> Option<String> {
    if address.ip().is_loopback() {
        return None;
    }
    interface::owner(address).ok().flatten()
}

/// Returns the interface over which the kernel reaches an address. No packet is sent.
fn interface_towards(to: SocketAddr) -> Option<String> {
    let any = match to {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(to).ok()?;
    let mut own = socket.local_addr().ok()?;
    if let (SocketAddr::V6(own), SocketAddr::V6(to)) = (&mut own, to) {
        own.set_scope_id(to.scope_id());
    }
    interface_of(own)
}

/// Whether the network at which this device listens, over `device`, is the one that it would lend.
pub(super) fn is_lent(device: &str, via: Option<&PathSpec>, gateway: &[SocketAddr]) -> bool {
    match via {
        Some(via) => via.device.as_deref() == Some(device),
        None => gateway.iter().any(|to| interface_towards(*to).as_deref() == Some(device)),
    }
}

/// A socket that listens, and the interface over which connections arrive at it.
pub(super) struct Port {
    pub(super) listener: TcpListener,
    pub(super) device: Option<String>,
}

impl Port {
    /// Listens at an address, which is not one of the lent network. Without `via`, the kernel reaches
    /// the gateways of paired devices over that one.
    pub(super) fn open(
        address: SocketAddr,
        via: Option<&PathSpec>,
        devices: &[PairedDevice],
    ) -> Result<Self, LendError> {
        // An IPv4 address may be written as an IPv6 address.
        let address = match (address.ip().to_canonical(), address) {
            (canonical, SocketAddr::V6(_)) if canonical.is_ipv4() => {
                SocketAddr::new(canonical, address.port())
            }
            _ => address,
        };
        let lent = via.map_or(&[][..], |via| &via.addresses);
        let device = interface_of(address);
        let gateways = devices.iter().filter_map(|device| match &device.role {
            PairedRole::Borrower { gateway, .. } => Some(&gateway[..]),
            PairedRole::Lender { .. } => None,
        });
        let is_lent = device.as_deref().is_some_and(|device| {
            is_lent(device, via, &[]) || gateways.into_iter().any(|to| is_lent(device, via, to))
        });
        if is_lent || lent.contains(&address.ip()) || address.ip().is_unspecified() {
            return Err(LendError::ListenOnLent(address.ip()));
        }
        let failed = |error| LendError::Listen(address, error);
        // Linux accepts connections to an address on all interfaces.
        let listener = match gateway::listener(address, device.as_deref()) {
            Err(error) if device.is_some() && error.kind() == io::ErrorKind::PermissionDenied => {
                tracing::warn!(
                    "before Linux 5.7, only root can listen on one network alone: the others, also \
                     the lent one, may reach {address}"
                );
                gateway::listener(address, None)
            }
            bound => bound,
        };
        Ok(Self { listener: listener.map_err(failed)?, device })
    }
}
