//! Packets with the time at which the kernel received them.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use manyways_unit::Span;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt,
};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};

use super::transparent::socket_address;

/// Longest age that is believed: the times are those of the wall clock, which may have been set
/// meanwhile.
const MAX_AGE: Span = Span::from_secs(1);

/// A received packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timed {
    /// Bytes in the buffer.
    pub length: usize,
    pub source: SocketAddr,
    /// Time since the kernel received the packet; zero if it is not known.
    pub age: Span,
}

/// Lets the kernel note when it receives packets for a socket.
///
/// # Errors
/// If the descriptor is not a socket.
pub fn set_receive_times(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?)
}

/// Reads one packet from a datagram or raw socket, with its age after [`set_receive_times`].
///
/// # Errors
/// `InvalidData` if the packet has no source.
pub fn recv_timed(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Timed> {
    let mut parts = [IoSliceMut::new(buffer)];
    let mut space = nix::cmsg_space!(TimeSpec);
    let message = recvmsg::<SockaddrStorage>(
        socket.as_raw_fd(),
        &mut parts,
        Some(&mut space),
        MsgFlags::MSG_CMSG_CLOEXEC,
    )?;
    let received = message.cmsgs()?.find_map(|control| match control {
        ControlMessageOwned::ScmTimestampns(time) => Some(time),
        _ => None,
    });
    let source = message.address.as_ref().and_then(socket_address);
    let source = source.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
    let now = clock_gettime(ClockId::CLOCK_REALTIME)?;
    let age = received.and_then(|received| {
        let since = now - received;
        let nanos = since.tv_sec().checked_mul(1_000_000_000)?.checked_add(since.tv_nsec())?;
        u64::try_from(nanos).ok().map(Span::from_nanos)
    });
    let age = age.filter(|age| *age <= MAX_AGE).unwrap_or_default();
    Ok(Timed { length: message.bytes, source, age })
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_packet_has_the_age_since_its_arrival() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        set_receive_times(receiver.as_fd()).unwrap();
        let mut buffer = [0; 8];
        let mut measure = |wait: Span| {
            let before = Instant::now();
            sender.send_to(b"hello", receiver.local_addr().unwrap()).unwrap();
            let sent = Instant::now();
            while sent.elapsed() < wait.into() {
                std::hint::spin_loop();
            }
            let timed = recv_timed(receiver.as_fd(), &mut buffer).unwrap();
            assert_eq!((timed.length, timed.source), (5, sender.local_addr().unwrap()));
            // The wall clock may run faster than the other one, if something corrects it.
            assert!(Duration::from(timed.age) <= 2 * before.elapsed());
            timed.age
        };
        // The kernel may note the first times too late.
        for _ in 0..100 {
            if measure(Span::from_millis(5)) >= Span::from_millis(5) {
                return;
            }
        }
        panic!("no packet was as old as it is");
    }
}
