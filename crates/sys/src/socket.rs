//! What the kernel knows of a connection.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, BorrowedFd};

use manyways_trace::Span;

/// The smoothed round trip that TCP measures on this connection, `None` before the first sample.
///
/// # Errors
/// Where the descriptor is not a TCP socket.
pub fn tcp_round_trip(socket: BorrowedFd<'_>) -> io::Result<Option<Span>> {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into `info`, which is that large; all of it
    // is zero where the kernel writes less, and every bit pattern is a valid `tcp_info`.
    let info = unsafe {
        let status = libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        );
        if status != 0 {
            return Err(io::Error::last_os_error());
        }
        info.assume_init()
    };
    Ok((info.tcpi_rtt > 0).then(|| Span::from_micros(u64::from(info.tcpi_rtt))))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_connection_has_a_round_trip() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let rtt = tcp_round_trip(near.as_fd()).unwrap().expect("the handshake is a sample");
        assert!(rtt < Span::from_secs(1), "{rtt}");
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(tcp_round_trip(datagrams.as_fd()).is_err());
    }
}
