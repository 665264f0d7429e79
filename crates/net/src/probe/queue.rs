//! One probe at a time on an interface, over all processes of this network namespace.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use manyways_sys::interface::Interface;

/// Interval in which a waiting probe looks whether the interface is free.
const POLL: Duration = Duration::from_millis(50);

/// The right to probe an interface, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    /// The kernel releases the name of the socket with the process, so that none remains after a
    /// kill; abstract names belong to a network namespace, as interfaces do.
    _socket: Option<UnixDatagram>,
}

/// Waits until no other probe uses the interface. The order of those that wait is not defined.
pub(super) async fn turn(interface: &Interface) -> Turn {
    let name = format!("manyways-probe-{}", interface.index);
    loop {
        let bound = SocketAddr::from_abstract_name(&name)
            .and_then(|address| UnixDatagram::bind_addr(&address));
        match bound {
            Ok(socket) => return Turn { _socket: Some(socket) },
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                tokio::time::sleep(POLL).await;
            }
            // A sandbox may forbid such sockets; then nothing can be known about other probes.
            Err(error) => {
                tracing::debug!("{}: cannot wait for other probes: {error}", interface.name);
                return Turn { _socket: None };
            }
        }
    }
}
