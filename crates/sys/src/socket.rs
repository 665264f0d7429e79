//! What the kernel knows of a connection, and what it can be told about a socket.

mod state;
pub mod transparent;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use manyways_unit::{Size, Span};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::SockRef;

pub use state::{TcpState, tcp_round_trip, tcp_state};

/// Lets a TCP socket be writable only while fewer than `most` of its bytes wait to be sent for the
/// first time, so that they wait where they can still take another path. A write may exceed that by
/// far: Linux adds to the last of its segments, up to 64 KiB, without a look at what waits. So ask
/// [`is_writable`] before.
///
/// # Errors
/// Where the descriptor is not a TCP socket.
pub fn set_notsent_lowat(socket: BorrowedFd<'_>, most: Size) -> io::Result<()> {
    let bytes = u32::try_from(most.as_bytes()).unwrap_or(u32::MAX);
    SockRef::from(&socket).set_tcp_notsent_lowat(bytes)
}

/// Whether a socket can be written to. Where a TCP socket cannot, `epoll` tells when half of what may
/// wait is free.
///
/// # Errors
/// Where the descriptor is none.
pub fn is_writable(socket: BorrowedFd<'_>) -> io::Result<bool> {
    let mut fds = [PollFd::new(socket, PollFlags::POLLOUT)];
    Ok(poll(&mut fds, PollTimeout::ZERO)? > 0)
}

/// Chooses the congestion control of a TCP socket by its name: `cubic`, `reno`, `bbr`.
///
/// # Errors
/// `NotFound` where this kernel does not have it, `PermissionDenied` where it is not among the
/// `net.ipv4.tcp_allowed_congestion_control` of the host and this is not root.
pub fn set_congestion_control(socket: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    SockRef::from(&socket).set_tcp_congestion(name.as_bytes())
}

/// Ends a TCP connection with `ETIMEDOUT` when what it sent stays unacknowledged for so long; zero
/// goes back to the kernel's own patience of about a quarter of an hour. In whole milliseconds.
///
/// # Errors
/// Where the descriptor is not a TCP socket.
pub fn set_user_timeout(socket: BorrowedFd<'_>, patience: Span) -> io::Result<()> {
    let patience = (!patience.is_zero()).then(|| {
        // Rounded up, because zero would mean the opposite.
        std::time::Duration::from_millis(patience.as_nanos().div_ceil(1_000_000))
    });
    SockRef::from(&socket).set_tcp_user_timeout(patience)
}

/// Marks what a socket sends, for routing rules and the firewall.
///
/// # Errors
/// `EPERM` without `CAP_NET_ADMIN` (or, since Linux 5.17, `CAP_NET_RAW`).
pub fn set_mark(socket: impl AsFd, mark: u32) -> io::Result<()> {
    SockRef::from(&socket).set_mark(mark)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;

    #[test]
    fn who_asks_before_each_write_keeps_little_unsent() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        // Nobody reads: what the window does not take stays here.
        let _far = listener.accept().unwrap();
        set_notsent_lowat(near.as_fd(), Size::from_bytes(6_144)).unwrap();
        near.set_nonblocking(true).unwrap();
        let mut written = 0;
        while is_writable(near.as_fd()).unwrap() {
            written += near.write(&[0; 1_000]).unwrap();
            assert!(written < 64 << 20, "it never has enough");
        }
        let unsent = tcp_state(near.as_fd()).unwrap().unsent;
        assert!(unsent.as_bytes() <= 4_096, "{unsent} wait");
    }

    #[test]
    fn options_are_kept_by_the_kernel() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        set_notsent_lowat(near.as_fd(), Size::from_kib(16)).unwrap();
        set_congestion_control(near.as_fd(), "reno").unwrap();
        set_user_timeout(near.as_fd(), Span::from_micros(1500)).unwrap();
        let socket = SockRef::from(&near);
        assert_eq!(socket.tcp_notsent_lowat().unwrap(), 16 * 1024);
        assert!(socket.tcp_congestion().unwrap().starts_with(b"reno\0"));
        let patience = socket.tcp_user_timeout().unwrap();
        assert_eq!(patience, Some(std::time::Duration::from_millis(2)), "rounded up");
    }

    #[test]
    fn an_unknown_congestion_control_and_a_wrong_socket_are_errors() {
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(set_notsent_lowat(datagrams.as_fd(), Size::from_kib(16)).is_err());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let error = set_congestion_control(listener.as_fd(), "no-such").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
