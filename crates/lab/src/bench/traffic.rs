//! Traffic between two namespaces for measuring an emulator, independent of the emulator between
//! them.

use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use manyways_sys::clock::Clock;
use manyways_sys::netns::NetNs;
use manyways_sys::poll::Poller;
use manyways_unit::{Span, Time};
use socket2::Socket;

/// Received bytes over time: `(when, bytes so far)`.
pub type Arrivals = Vec<(Time, u64)>;

/// Fills a TCP connection from `sender` to `receiver`, which listens on `address`, for `length`.
/// Returns the payload bytes that the receiver read, sampled every 10 ms.
pub fn tcp(
    sender: &NetNs,
    receiver: &NetNs,
    address: SocketAddr,
    length: Span,
) -> io::Result<Arrivals> {
    let listener = receiver.run(|| TcpListener::bind(address))?;
    let address = listener.local_addr()?;
    let outgoing = sender.run(|| TcpStream::connect_timeout(&address, Duration::from_secs(5)))?;
    let (incoming, _) = listener.accept()?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let writer = thread::spawn(move || {
        let block = vec![0_u8; 256 * 1024];
        let mut outgoing = outgoing;
        // The receiver closes the connection at the end.
        while !stopped.load(Ordering::Relaxed) && outgoing.write_all(&block).is_ok() {}
    });
    let received = receive(incoming, length);
    stop.store(true, Ordering::Relaxed);
    let _ = writer.join();
    received
}

fn receive(incoming: TcpStream, length: Span) -> io::Result<Arrivals> {
    const LOOK: Span = Span::from_millis(10);
    incoming.set_read_timeout(Some(Duration::from_secs(2)))?;
    let socket = Socket::from(incoming);
    let mut block = vec![MaybeUninit::uninit(); 1024 * 1024];
    let clock = Clock::start();
    let (mut bytes, mut next) = (0_u64, Time::ZERO);
    let mut arrivals = Vec::with_capacity(1024);
    loop {
        // Discarded in the kernel: copying 10 Gbit/s would take a large part of a core from the
        // measured system.
        let read = socket.recv_with_flags(&mut block, MSG_TRUNC)?;
        if read == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the sender closed the connection",
            ));
        }
        bytes += read as u64;
        let now = clock.now();
        if now >= next {
            arrivals.push((now, bytes));
            next = now + LOOK;
        }
        if now >= Time::ZERO + length {
            let _ = socket.shutdown(Shutdown::Both);
            return Ok(arrivals);
        }
    }
}

/// Linux: `recv` on TCP discards the bytes instead of copying them.
const MSG_TRUNC: i32 = 0x20;

/// Sending and arrival time of one datagram.
#[derive(Clone, Copy, Debug)]
pub struct DatagramTimes {
    /// On the measuring clock.
    pub sent: Time,
    /// On the same clock.
    pub arrived: Time,
}

/// Schedule of datagrams.
#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    /// Payload bytes, at least 8.
    pub size: usize,
    /// Datagrams per burst.
    pub burst: u32,
    /// Time from one burst to the next.
    pub interval: Span,
    /// Total duration.
    pub duration: Span,
}

/// Sends datagrams from `sender` to `receiver`, which listens on `address`. Returns those that
/// arrived, in their order of arrival and by `clock`, and the number sent.
pub fn udp(
    sender: &NetNs,
    receiver: &NetNs,
    address: SocketAddr,
    pattern: Pattern,
    clock: Clock,
) -> io::Result<(Vec<DatagramTimes>, u64)> {
    let incoming = receiver.run(|| UdpSocket::bind(address))?;
    let address = incoming.local_addr()?;
    // The receiver must not lose datagrams if it is not scheduled for some milliseconds.
    socket2::SockRef::from(&incoming).set_recv_buffer_size(8 << 20)?;
    incoming.set_read_timeout(Some(Duration::from_millis(500)))?;
    let outgoing = sender.run(|| {
        let any: SocketAddr =
            if address.is_ipv6() { ([0; 8], 0).into() } else { ([0; 4], 0).into() };
        let socket = UdpSocket::bind(any)?;
        socket.connect(address)?;
        Ok(socket)
    })?;
    let writer = thread::spawn(move || send(&outgoing, clock, pattern));
    let mut trips = Vec::new();
    let mut block = [0; 2048];
    let mut first = true;
    loop {
        match incoming.recv(&mut block) {
            Ok(count) => {
                let arrived = clock.now();
                if let Some(stamp) = block[..count].first_chunk::<8>() {
                    let sent = Time::from_nanos(u64::from_be_bytes(*stamp));
                    trips.push(DatagramTimes { sent, arrived });
                }
                first = false;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if first && !writer.is_finished() {
                    continue;
                }
                break;
            }
            Err(error) => return Err(error),
        }
    }
    let sent = writer.join().map_err(|_| io::Error::other("the sender panicked"))??;
    Ok((trips, sent))
}

fn send(outgoing: &UdpSocket, clock: Clock, pattern: Pattern) -> io::Result<u64> {
    let mut block = vec![0; pattern.size.max(8)];
    let mut poller = Poller::new(clock)?;
    let mut ready = Vec::new();
    let mut due = clock.now();
    let end = due + pattern.duration;
    let mut sent = 0;
    while due < end {
        while clock.now() < due {
            poller.wait(Some(due), &mut ready)?;
        }
        for _ in 0..pattern.burst {
            block[..8].copy_from_slice(&clock.now().as_nanos().to_be_bytes());
            // A full queue drops a datagram, as on any network.
            sent += u64::from(outgoing.send(&block).is_ok());
        }
        due += pattern.interval;
    }
    Ok(sent)
}

/// Measures round-trip times of `count` small sequential exchanges over UDP.
pub fn ping(
    client: &NetNs,
    server: &NetNs,
    address: SocketAddr,
    count: usize,
) -> io::Result<Vec<Span>> {
    let echo = server.run(|| UdpSocket::bind(address))?;
    let address = echo.local_addr()?;
    echo.set_read_timeout(Some(Duration::from_millis(500)))?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let server = thread::spawn(move || {
        let mut block = [0; 64];
        while !stopped.load(Ordering::Relaxed) {
            if let Ok((count, from)) = echo.recv_from(&mut block) {
                let _ = echo.send_to(&block[..count], from);
            }
        }
    });
    let times = client.run(|| {
        let socket = UdpSocket::bind(SocketAddr::from(([0; 4], 0)))?;
        socket.connect(address)?;
        socket.set_read_timeout(Some(Duration::from_secs(2)))?;
        let clock = Clock::start();
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let begun = clock.now();
            socket.send(&[1; 16])?;
            socket.recv(&mut [0; 64])?;
            times.push(clock.now().since(begun));
        }
        Ok(times)
    });
    stop.store(true, Ordering::Relaxed);
    let _ = server.join();
    times
}
