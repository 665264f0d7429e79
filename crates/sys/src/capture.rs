//! Captures packets of a network interface through a ring that the kernel fills (`AF_PACKET`,
//! `TPACKET_V3`).
//!
//! The kernel writes packets, limited to a snap length, one after the other into shared blocks. It
//! passes a block to the process when the block is full, or [`MAX_LATENCY`] after its first packet.
//! A
//! [`Ring`] returns packets unchanged; VLAN tags and cooked headers are interpreted elsewhere.

mod block;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use manyways_unit::{Size, Span};

pub use self::block::Frame;

/// Maximum time of a packet in the ring before it is passed on.
pub const MAX_LATENCY: Span = Span::from_millis(50);
/// Bytes of a block. Four of the longest packets (64 KiB, merged by the kernel) fit.
const BLOCK_SIZE: usize = 256 << 10;
/// The kernel requires a frame size, which has no meaning for packets of variable size.
const FRAME_SIZE: usize = 2_048;
/// Offset of `block_status`, which holds the owner of a block: kernel or process (packet(7)).
const STATUS_OFFSET: usize = 8;
const ALL_PROTOCOLS: u16 = libc::ETH_P_ALL as u16;

/// How to capture.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Index of the interface; `None` for all interfaces.
    pub interface: Option<u32>,
    /// Whether to omit the link-layer header, which differs between the links of a host. Each frame
    /// then has its protocol in [`Frame::protocol`].
    pub cooked: bool,
    /// Snap length in bytes.
    pub snap_length: u32,
    /// Size of the ring, in which packets wait if they arrive faster than they are read.
    pub buffer: Size,
    /// Whether to capture packets for other hosts, too.
    pub promiscuous: bool,
}

/// Counters of the kernel since the last query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets written to the ring.
    pub captured: u64,
    /// Packets dropped because the ring was full.
    pub dropped: u64,
}

/// A capture that runs until dropped. It is readable (through [`AsFd`]) when a block or an error is
/// available.
#[derive(Debug)]
pub struct Ring {
    socket: OwnedFd,
    memory: *mut u8,
    blocks: usize,
    next: usize,
}

// SAFETY: the memory is shared with the kernel only, and is only touched through `&mut self`.
unsafe impl Send for Ring {}

impl Ring {
    /// Starts a capture in the calling thread's network namespace.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`, `ENODEV` if the interface does not exist, `ENETDOWN` if it is
    /// down, `ENOMEM` if the buffer is too large.
    pub fn open(options: &Options) -> io::Result<Self> {
        let kind = if options.cooked { libc::SOCK_DGRAM } else { libc::SOCK_RAW };
        // Without a protocol no packet arrives from any interface before the setup is complete.
        // SAFETY: a plain system call.
        let socket = unsafe { libc::socket(libc::AF_PACKET, kind | libc::SOCK_CLOEXEC, 0) };
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just created the descriptor for us.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        let version = libc::tpacket_versions::TPACKET_V3 as libc::c_int;
        set(&socket, libc::SOL_PACKET, libc::PACKET_VERSION, &version)?;
        limit_length(&socket, options.snap_length)?;
        // Requests timestamps of the arrival instead of the copy into the ring. Without them the
        // capture is still valid.
        let _ = set(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1_i32);
        let wanted = usize::try_from(options.buffer.as_bytes()).unwrap_or(usize::MAX);
        let blocks = (wanted / BLOCK_SIZE).clamp(2, 1 << 14);
        let ring = libc::tpacket_req3 {
            tp_block_size: BLOCK_SIZE as u32,
            tp_block_nr: blocks as u32,
            tp_frame_size: FRAME_SIZE as u32,
            tp_frame_nr: (BLOCK_SIZE / FRAME_SIZE * blocks) as u32,
            tp_retire_blk_tov: (MAX_LATENCY.as_nanos() / 1_000_000) as u32,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        set(&socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &ring)?;
        let memory = map(&socket, BLOCK_SIZE * blocks)?;
        let ring = Self { socket, memory, blocks, next: 0 };
        if let Some(index) = options.interface.filter(|_| options.promiscuous) {
            let request = libc::packet_mreq {
                mr_ifindex: index as i32,
                mr_type: libc::PACKET_MR_PROMISC as u16,
                mr_alen: 0,
                mr_address: [0; 8],
            };
            set(&ring.socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &request)?;
        }
        ring.bind(options.interface)?;
        match ring.error()? {
            Some(error) => Err(error),
            None => Ok(ring),
        }
    }

    /// Passes the frames of the next block to `each`, in their order. Returns false if the kernel
    /// has not released a block.
    pub fn read_block(&mut self, mut each: impl FnMut(&Frame<'_>)) -> bool {
        // SAFETY: the mapping has `blocks` blocks of this length, and `next` is below `blocks`.
        let begin = unsafe { self.memory.add(self.next * BLOCK_SIZE) };
        // SAFETY: it is within the block and aligned as the block is, to a page and to 4 bytes.
        let status = unsafe { AtomicU32::from_ptr(begin.add(STATUS_OFFSET).cast()) };
        if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return false;
        }
        // SAFETY: the kernel does not change a released block until it is given back below.
        let bytes = unsafe { std::slice::from_raw_parts(begin, BLOCK_SIZE) };
        block::frames(bytes).for_each(|frame| each(&frame));
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % self.blocks;
        true
    }

    /// Returns the counters since the last call.
    pub fn counts(&self) -> io::Result<Counts> {
        let mut stats = libc::tpacket_stats_v3 { tp_packets: 0, tp_drops: 0, tp_freeze_q_cnt: 0 };
        get(&self.socket, libc::SOL_PACKET, libc::PACKET_STATISTICS, &mut stats)?;
        // The kernel's first number includes the dropped packets.
        let taken = stats.tp_packets.saturating_sub(stats.tp_drops);
        Ok(Counts { captured: taken.into(), dropped: stats.tp_drops.into() })
    }

    /// Returns the error since the last call: `ENETDOWN` if the interface went down or was removed.
    pub fn error(&self) -> io::Result<Option<io::Error>> {
        let mut number: libc::c_int = 0;
        get(&self.socket, libc::SOL_SOCKET, libc::SO_ERROR, &mut number)?;
        Ok((number != 0).then(|| io::Error::from_raw_os_error(number)))
    }

    fn bind(&self, interface: Option<u32>) -> io::Result<()> {
        // SAFETY: all zeros is a valid address.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = ALL_PROTOCOLS.to_be();
        address.sll_ifindex = interface.unwrap_or(0) as i32;
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the address is valid and of this length.
        check(unsafe { libc::bind(self.socket.as_raw_fd(), (&raw const address).cast(), length) })
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the memory was mapped with this length, and no borrow of it remains.
        unsafe { libc::munmap(self.memory.cast(), self.blocks * BLOCK_SIZE) };
    }
}

/// Accepts every packet and limits it to `snap` bytes.
fn limit_length(socket: &OwnedFd, snap: u32) -> io::Result<()> {
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let mut pass = libc::sock_filter { code: RETURN, jt: 0, jf: 0, k: snap.max(1) };
    let program = libc::sock_fprog { len: 1, filter: &raw mut pass };
    set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

fn map(socket: &OwnedFd, length: usize) -> io::Result<*mut u8> {
    let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: a new mapping at an address that the kernel chooses.
    let memory =
        unsafe { libc::mmap(std::ptr::null_mut(), length, rights, flags, socket.as_raw_fd(), 0) };
    if memory == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(memory.cast()) }
}

fn set<T>(socket: &OwnedFd, level: i32, name: i32, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    let value: *const T = value;
    // SAFETY: the value is valid and of this length, and is only read.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value.cast(), length) })
}

/// `T` consists of plain numbers, for which any bytes are valid.
fn get<T>(socket: &OwnedFd, level: i32, name: i32, value: &mut T) -> io::Result<()> {
    let mut length = size_of::<T>() as libc::socklen_t;
    let value: *mut T = value;
    // SAFETY: the value has room for `length` bytes.
    check(unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, name, value.cast(), &raw mut length)
    })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;
    use crate::netns::NetNs;

    fn options(interface: Option<u32>) -> Options {
        let buffer = Size::from_kib(512);
        Options { interface, cooked: false, snap_length: 60, buffer, promiscuous: true }
    }

    /// Runs `work` in a new namespace with `lo` up, which has the index 1 and no other traffic.
    fn alone(work: impl FnOnce() -> io::Result<()> + Send) {
        if !crate::sandbox::is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        NetNs::create()
            .unwrap()
            .run(|| {
                let up =
                    std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status();
                assert!(up.unwrap().success());
                work()
            })
            .unwrap();
    }

    /// Reads until a UDP packet of this length has arrived.
    fn until(ring: &mut Ring, carried: usize) -> Vec<(usize, usize, u8)> {
        let mut seen = Vec::new();
        loop {
            let mut fds = [PollFd::new(ring.as_fd(), PollFlags::POLLIN)];
            poll(&mut fds, PollTimeout::from(10_000_u16)).unwrap();
            while ring.read_block(|frame| {
                assert!(frame.at.as_secs_f64() > 1e9);
                assert_eq!((frame.hardware, frame.vlan), (772, None));
                if frame.protocol == 0x0800 && frame.bytes.get(23) == Some(&17) {
                    seen.push((frame.length, frame.bytes.len(), frame.kind));
                }
            }) {}
            if seen.iter().filter(|(length, ..)| *length == 42 + carried).count() == 2 {
                return seen;
            }
        }
    }

    #[test]
    fn packets_come_cut_and_with_their_length() {
        alone(|| {
            let mut ring = Ring::open(&options(Some(1)))?;
            let one = UdpSocket::bind("127.0.0.1:0")?;
            for carried in [3, 1_000] {
                one.send_to(&vec![0; carried], "127.0.0.1:9")?;
            }
            // A loopback device receives every packet that it sends: each appears twice.
            let mut seen = until(&mut ring, 1_000);
            seen.sort_unstable();
            assert_eq!(seen, [(45, 45, 0), (45, 45, 4), (1_042, 60, 0), (1_042, 60, 4)]);
            let counts = ring.counts()?;
            assert!(counts.captured >= 4 && counts.dropped == 0, "{counts:?}");
            assert_eq!(ring.counts()?, Counts::default());
            assert!(ring.error()?.is_none());
            Ok(())
        });
    }

    #[test]
    fn dropped_packets_are_counted_and_the_capture_continues() {
        alone(|| {
            let mut ring = Ring::open(&Options { snap_length: 65_535, ..options(None) })?;
            let one = UdpSocket::bind("127.0.0.1:0")?;
            for _ in 0..40 {
                one.send_to(&[0; 30_000], "127.0.0.1:9")?;
            }
            let mut taken = 0;
            while ring.read_block(|_| taken += 1) {}
            let counts = ring.counts()?;
            assert!(counts.dropped > 0 && taken > 0, "{counts:?} {taken}");
            one.send_to(&[0; 7], "127.0.0.1:9")?;
            assert_eq!(until(&mut ring, 7).last().map(|last| last.0), Some(49));
            Ok(())
        });
    }

    #[test]
    fn an_interface_that_is_not_there_or_down_is_refused() {
        alone(|| {
            let error = Ring::open(&options(Some(77))).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
            let ring = Ring::open(&options(Some(1)))?;
            let down =
                std::process::Command::new("ip").args(["link", "set", "lo", "down"]).status();
            assert!(down?.success());
            let error = ring.error()?.and_then(|error| error.raw_os_error());
            assert_eq!(error, Some(libc::ENETDOWN));
            Ok(())
        });
    }
}
