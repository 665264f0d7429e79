//! `TCP_INFO`: TCP's measurements of a path.

use std::io;
use std::mem::{MaybeUninit, offset_of, size_of};
use std::os::fd::{AsRawFd, BorrowedFd};

use manyways_unit::{Rate, Size, Span};

/// State and measurements of a TCP connection. Values that an old kernel does not provide are zero
/// or `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TcpState {
    /// Smoothed round-trip time; `None` before the first sample.
    pub rtt: Option<Span>,
    /// Mean deviation of the round-trip time; `None` before the first sample.
    pub rtt_var: Option<Span>,
    /// Minimum round-trip time of the last minutes (Linux 4.6); `None` before the first sample.
    pub min_rtt: Option<Span>,
    /// Retransmission timeout.
    pub rto: Span,
    /// Congestion window in packets.
    pub cwnd: u32,
    /// Slow start threshold in packets.
    pub ssthresh: u32,
    /// Maximum payload of a packet.
    pub mss: Size,
    /// Packets in flight: sent and not acknowledged, including those considered lost.
    pub unacked: u32,
    /// Packets of `unacked` that were acknowledged by SACK.
    pub sacked: u32,
    /// Packets of `unacked` that are considered lost.
    pub lost: u32,
    /// Bytes in the send buffer that were never sent (Linux 4.6).
    pub unsent: Size,
    /// Latest delivery rate; zero before the first sample (Linux 4.9).
    pub delivery_rate: Rate,
    /// Whether `delivery_rate` was limited by the application, not by the path.
    pub app_limited: bool,
    /// Bytes acknowledged by the peer, since the start (Linux 4.1).
    pub bytes_acked: Size,
    /// Bytes sent, without retransmissions, since the start (Linux 4.19).
    pub bytes_sent: Size,
    /// Bytes received in order, since the start (Linux 4.1).
    pub bytes_received: Size,
    /// Consecutive timeouts without an acknowledgment; the connection stalls if this is not zero.
    pub retransmits: u32,
    /// Retransmitted packets, since the start.
    pub total_retrans: u32,
    /// Packets with data that were sent, including retransmissions, since the start (Linux 4.6).
    pub data_packets: u32,
    /// Time since the last data was sent, in kernel ticks of 1 to 10 ms.
    pub last_data_sent: Span,
    /// Time since the last data was received, in kernel ticks of 1 to 10 ms.
    pub last_data_recv: Span,
    /// Time since the last acknowledgment was received, in kernel ticks of 1 to 10 ms.
    pub last_ack_recv: Span,
}

impl TcpState {
    /// Returns the bytes that are sent and not acknowledged: at most the kernel's full packets, of
    /// which it reports the number only, so that small ones do not count as full ones.
    #[must_use]
    pub fn in_flight(&self) -> Size {
        let packets = u64::from(self.unacked.saturating_sub(self.sacked));
        let full = Size::from_bytes(packets * self.mss.as_bytes());
        if self.bytes_sent.is_zero() {
            return full;
        }
        full.min(self.bytes_sent.saturating_sub(self.bytes_acked))
    }
}

/// The start of `struct tcp_info` of `linux/tcp.h`, which only grows at its end. The struct in libc
/// ends at the version of 2009.
#[repr(C)]
#[derive(Clone, Copy)]
struct TcpInfo {
    state: u8,
    ca_state: u8,
    retransmits: u8,
    probes: u8,
    backoff: u8,
    options: u8,
    window_scales: u8,
    /// Bit fields: whether the delivery rate is application-limited, and how Fast Open failed.
    flags: u8,
    rto: u32,
    ato: u32,
    snd_mss: u32,
    rcv_mss: u32,
    unacked: u32,
    sacked: u32,
    lost: u32,
    retrans: u32,
    fackets: u32,
    last_data_sent: u32,
    last_ack_sent: u32,
    last_data_recv: u32,
    last_ack_recv: u32,
    pmtu: u32,
    rcv_ssthresh: u32,
    rtt: u32,
    rttvar: u32,
    snd_ssthresh: u32,
    snd_cwnd: u32,
    advmss: u32,
    reordering: u32,
    rcv_rtt: u32,
    rcv_space: u32,
    total_retrans: u32,
    // Older kernels do not provide the following fields.
    pacing_rate: u64,
    max_pacing_rate: u64,
    bytes_acked: u64,
    bytes_received: u64,
    segs_out: u32,
    segs_in: u32,
    notsent_bytes: u32,
    min_rtt: u32,
    data_segs_in: u32,
    data_segs_out: u32,
    delivery_rate: u64,
    busy_time: u64,
    rwnd_limited: u64,
    sndbuf_limited: u64,
    delivered: u32,
    delivered_ce: u32,
    bytes_sent: u64,
    bytes_retrans: u64,
}

// Offsets of the kernel's header on every architecture that aligns u64 to 8 bytes.
#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(offset_of!(TcpInfo, rtt) == 68);
    assert!(offset_of!(TcpInfo, pacing_rate) == 104);
    assert!(offset_of!(TcpInfo, notsent_bytes) == 144);
    assert!(offset_of!(TcpInfo, bytes_sent) == 200);
    assert!(size_of::<TcpInfo>() == 216);
};

/// The first bit field in [`TcpInfo::flags`].
const APP_LIMITED: u8 = if cfg!(target_endian = "little") { 0x01 } else { 0x80 };

/// Returns TCP's state and measurements of a connection.
///
/// # Errors
/// If the descriptor is not a TCP socket.
pub fn tcp_state(socket: BorrowedFd<'_>) -> io::Result<TcpState> {
    let (info, length) = tcp_info(socket)?;
    Ok(to_tcp_state(&info, length))
}

/// Returns the smoothed round-trip time of a connection; `None` before the first sample.
///
/// # Errors
/// If the descriptor is not a TCP socket.
pub fn tcp_rtt(socket: BorrowedFd<'_>) -> io::Result<Option<Span>> {
    Ok(tcp_state(socket)?.rtt)
}

/// Returns the struct, zero where the kernel did not write, and the number of bytes written.
fn tcp_info(socket: BorrowedFd<'_>) -> io::Result<(TcpInfo, usize)> {
    let mut info = MaybeUninit::<TcpInfo>::zeroed();
    let mut length = size_of::<TcpInfo>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into `info`, which is that large; all of it
    // is zero where the kernel writes less, and every bit pattern is a valid `TcpInfo`.
    unsafe {
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
        Ok((info.assume_init(), length as usize))
    }
}

fn to_tcp_state(info: &TcpInfo, length: usize) -> TcpState {
    let micros = |value: u32| Span::from_micros(u64::from(value));
    let millis = |value: u32| Span::from_millis(u64::from(value));
    let sampled = info.rtt > 0;
    // Before the first sample the kernel reports the largest number.
    let has_min = length >= offset_of!(TcpInfo, min_rtt) + size_of::<u32>()
        && !matches!(info.min_rtt, 0 | u32::MAX);
    TcpState {
        rtt: sampled.then(|| micros(info.rtt)),
        rtt_var: sampled.then(|| micros(info.rttvar)),
        min_rtt: has_min.then(|| micros(info.min_rtt)),
        rto: micros(info.rto),
        cwnd: info.snd_cwnd,
        ssthresh: info.snd_ssthresh,
        mss: Size::from_bytes(u64::from(info.snd_mss)),
        unacked: info.unacked,
        sacked: info.sacked,
        lost: info.lost,
        unsent: Size::from_bytes(u64::from(info.notsent_bytes)),
        delivery_rate: Rate::from_bps(info.delivery_rate.saturating_mul(8)),
        app_limited: info.flags & APP_LIMITED != 0,
        bytes_acked: Size::from_bytes(info.bytes_acked),
        bytes_sent: Size::from_bytes(info.bytes_sent.saturating_sub(info.bytes_retrans)),
        bytes_received: Size::from_bytes(info.bytes_received),
        retransmits: u32::from(info.retransmits),
        total_retrans: info.total_retrans,
        data_packets: info.data_segs_out,
        last_data_sent: millis(info.last_data_sent),
        last_data_recv: millis(info.last_data_recv),
        last_ack_recv: millis(info.last_ack_recv),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::AsFd;

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn a_connection_has_a_round_trip() {
        let (near, _far) = pair();
        let rtt = tcp_rtt(near.as_fd()).unwrap().expect("the handshake is a sample");
        assert!(rtt < Span::from_secs(1), "{rtt}");
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(tcp_rtt(datagrams.as_fd()).is_err());
    }

    #[test]
    fn received_bytes_are_acknowledged_and_bytes_beyond_the_window_unsent() {
        let (mut near, mut far) = pair();
        let mut answer = [0; 1000];
        near.write_all(&[7; 1000]).unwrap();
        far.read_exact(&mut answer).unwrap();
        far.write_all(&answer).unwrap();
        near.read_exact(&mut answer).unwrap();
        let state = tcp_state(near.as_fd()).unwrap();
        // The handshake's SYN counts as one byte.
        assert!(state.bytes_acked.as_bytes() >= 1000, "{state:?}");
        assert_eq!(state.bytes_received.as_bytes(), 1000);
        assert!(state.cwnd > 0 && state.mss.as_bytes() > 500, "{state:?}");
        assert!(state.delivery_rate.as_bps() > 0, "{state:?}");
        assert!(state.min_rtt.unwrap() <= state.rtt.unwrap() + state.rtt_var.unwrap());
        assert_eq!((state.retransmits, state.unsent), (0, Size::ZERO));

        near.set_nonblocking(true).unwrap();
        while near.write(&[7; 65_536]).is_ok() {}
        assert_eq!(near.write(&[7]).unwrap_err().kind(), ErrorKind::WouldBlock);
        let state = tcp_state(near.as_fd()).unwrap();
        assert!(state.unsent > Size::ZERO, "no reader: {state:?}");
    }

    #[test]
    fn small_packets_in_flight_count_their_bytes() {
        let (near, _far) = pair();
        let state = TcpState {
            mss: Size::from_bytes(1_000),
            unacked: 12,
            sacked: 2,
            bytes_acked: Size::from_bytes(50_001),
            bytes_sent: Size::from_bytes(50_600),
            ..tcp_state(near.as_fd()).unwrap()
        };
        assert_eq!(state.in_flight(), Size::from_bytes(599));
        // Packets that SACK has acknowledged are not in flight.
        let sent = Size::from_bytes(62_001);
        assert_eq!(
            TcpState { bytes_sent: sent, ..state }.in_flight(),
            Size::from_bytes(10_000),
            "full packets",
        );
        let unknown = TcpState { bytes_sent: Size::ZERO, ..state };
        assert_eq!(unknown.in_flight(), Size::from_bytes(10_000), "an older kernel");
    }

    #[test]
    fn an_older_kernel_provides_fewer_values() {
        let (near, _far) = pair();
        let (mut info, _) = tcp_info(near.as_fd()).unwrap();
        info.min_rtt = 0;
        let state = to_tcp_state(&info, offset_of!(TcpInfo, pacing_rate));
        assert!(state.rtt.is_some());
        assert_eq!(state.min_rtt, None);
        info.min_rtt = u32::MAX;
        assert_eq!(to_tcp_state(&info, size_of::<TcpInfo>()).min_rtt, None, "no sample yet");
    }
}
