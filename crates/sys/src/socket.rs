//! Connection state in the kernel, and socket options.

mod state;
pub mod timed;
pub mod transparent;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use manyways_unit::{Size, Span};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{setsockopt, sockopt};
use socket2::SockRef;

pub use state::{TcpState, tcp_rtt, tcp_state};

/// Makes a TCP socket writable only while fewer than `max` of its bytes wait for their first
/// transmission, so that the other bytes can still take another path. A write may exceed the limit
/// by far: Linux appends to its last segment, up to 64 KiB, without checking the limit. Therefore
/// check [`is_writable`] before each write.
///
/// # Errors
/// If the descriptor is not a TCP socket.
pub fn set_notsent_lowat(socket: BorrowedFd<'_>, max: Size) -> io::Result<()> {
    let bytes = u32::try_from(max.as_bytes()).unwrap_or(u32::MAX);
    SockRef::from(&socket).set_tcp_notsent_lowat(bytes)
}

/// Whether a socket can be written to. If a TCP socket cannot, `epoll` reports it writable when
/// half of the limit is free.
///
/// # Errors
/// If the descriptor is invalid.
pub fn is_writable(socket: BorrowedFd<'_>) -> io::Result<bool> {
    let mut fds = [PollFd::new(socket, PollFlags::POLLOUT)];
    Ok(poll(&mut fds, PollTimeout::ZERO)? > 0)
}

/// Whether a datagram was not sent because it is larger than the MTU of its route, as far as the
/// kernel knows it.
pub fn is_too_large(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EMSGSIZE)
}

/// Chooses the congestion control of a TCP socket by its name: `cubic`, `reno`, `bbr`.
///
/// # Errors
/// `NotFound` if this kernel does not have it, `PermissionDenied` if it is not in the
/// `net.ipv4.tcp_allowed_congestion_control` of the host and this process is not root.
pub fn set_congestion_control(socket: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    SockRef::from(&socket).set_tcp_congestion(name.as_bytes())
}

/// Ends a TCP connection with `ETIMEDOUT` if sent data stays unacknowledged for this time, rounded
/// up to milliseconds. Zero restores the kernel's default of about 15 minutes.
///
/// # Errors
/// If the descriptor is not a TCP socket.
pub fn set_user_timeout(socket: BorrowedFd<'_>, timeout: Span) -> io::Result<()> {
    let timeout = (!timeout.is_zero()).then(|| {
        // Rounded up, because zero would mean the default.
        std::time::Duration::from_millis(timeout.as_nanos().div_ceil(1_000_000))
    });
    SockRef::from(&socket).set_tcp_user_timeout(timeout)
}

/// Sets the mark of packets that a socket sends, for routing rules and the firewall.
///
/// # Errors
/// `EPERM` without `CAP_NET_ADMIN` (or, since Linux 5.17, `CAP_NET_RAW`).
pub fn set_mark(socket: impl AsFd, mark: u32) -> io::Result<()> {
    SockRef::from(&socket).set_mark(mark)
}

/// Enlarges the receive buffer of a socket: up to `size` with `CAP_NET_ADMIN`, otherwise up to
/// `net.core.rmem_max`.
///
/// # Errors
/// If the descriptor is not a socket.
pub fn set_receive_buffer(socket: BorrowedFd<'_>, size: Size) -> io::Result<()> {
    let bytes = usize::try_from(size.as_bytes()).unwrap_or(usize::MAX);
    // The kernel doubles the value, for its own structures.
    match setsockopt(&socket, sockopt::RcvBufForce, &(bytes / 2)) {
        Ok(()) => Ok(()),
        Err(_) => SockRef::from(&socket).set_recv_buffer_size(bytes / 2),
    }
}

/// Number of packets for which a socket had no room since it was opened. It wraps around.
///
/// # Errors
/// If the descriptor is not a socket.
pub fn dropped_packets(socket: BorrowedFd<'_>) -> io::Result<u32> {
    // The fields of `SO_MEMINFO` (linux/sock_diag.h); the last one is the number of drops.
    const FIELDS: usize = 9;
    const DROPS: usize = 8;
    let mut fields = [0_u32; FIELDS];
    let mut length = size_of_val(&fields) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into `fields`, which are that large, and
    // every bit pattern is valid.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            fields.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(fields[DROPS])
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;

    #[test]
    fn checking_before_each_write_keeps_little_unsent() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        // No process reads: bytes beyond the window stay here.
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
        let timeout = socket.tcp_user_timeout().unwrap();
        assert_eq!(timeout, Some(std::time::Duration::from_millis(2)), "rounded up");
    }

    #[test]
    fn an_unknown_congestion_control_and_a_wrong_socket_are_errors() {
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(set_notsent_lowat(datagrams.as_fd(), Size::from_kib(16)).is_err());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let error = set_congestion_control(listener.as_fd(), "no-such").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn packets_without_room_are_counted() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = receiver.local_addr().unwrap();
        set_receive_buffer(receiver.as_fd(), Size::from_bytes(4_096)).unwrap();
        assert_eq!(dropped_packets(receiver.as_fd()).unwrap(), 0);
        for _ in 0..100 {
            sender.send_to(&[0; 200], to).unwrap();
        }
        receiver.set_nonblocking(true).unwrap();
        let mut received = 0;
        while receiver.recv(&mut [0; 200]).is_ok() {
            received += 1;
        }
        let dropped = dropped_packets(receiver.as_fd()).unwrap();
        assert!(dropped > 0);
        assert_eq!(received + dropped, 100);
    }
}
