//! Capturing what passes a network interface: a ring that the kernel fills (`AF_PACKET`,
//! `TPACKET_V3`).
//!
//! The kernel writes packets, cut to a snap length, one behind the other into blocks that both share,
//! and hands a block over when it is full or [`LATENCY`] after its first packet. A [`Ring`] gives out
//! what is in it as it is; what a VLAN tag or a cooked header is, is known elsewhere.

mod block;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use manyways_unit::{Size, Span};

pub use self::block::Frame;

/// So long a packet waits at most until it is handed out.
pub const LATENCY: Span = Span::from_millis(50);
/// The bytes of a block. The longest packets, 64 KiB that the kernel put together, fit four times.
const BLOCK: usize = 256 << 10;
/// The kernel wants to hear of frames, which blocks of varying packets do not have.
const FRAME: usize = 2_048;
/// Where in a block the word is that says whose it is.
const STATUS: usize = 8;
const ALL_PROTOCOLS: u16 = libc::ETH_P_ALL as u16;

/// How to capture.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The interface's number; none for all of them.
    pub interface: Option<u32>,
    /// Leave out the link's header, which not all links of one host have in common. Each frame says
    /// what it carries.
    pub cooked: bool,
    /// The most bytes that are kept of a packet.
    pub snap: u32,
    /// What the ring may hold: packets that come in faster than they are taken wait there.
    pub buffer: Size,
    /// Take what is for others as well.
    pub promiscuous: bool,
}

/// What the kernel counted since it was last asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that were put into the ring.
    pub taken: u64,
    /// Packets for which it had no room.
    pub dropped: u64,
}

/// A capture that goes on until this is dropped. It is readable (through [`AsFd`]) when there is
/// something to take, or an error.
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
    /// Begins to capture in the calling thread's network namespace.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`, `ENODEV` without such an interface, `ENETDOWN` where it is
    /// down, `ENOMEM` where the buffer is too large.
    pub fn open(options: &Options) -> io::Result<Self> {
        let kind = if options.cooked { libc::SOCK_DGRAM } else { libc::SOCK_RAW };
        // With no protocol nothing arrives before all is set, from whatever interface.
        // SAFETY: a plain system call.
        let socket = unsafe { libc::socket(libc::AF_PACKET, kind | libc::SOCK_CLOEXEC, 0) };
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made it for us.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        let version = libc::tpacket_versions::TPACKET_V3 as libc::c_int;
        set(&socket, libc::SOL_PACKET, libc::PACKET_VERSION, &version)?;
        cut(&socket, options.snap)?;
        // Stamps of the moment in which a packet came in rather than of that in which it was put
        // into the ring. Without them the capture is still right.
        let _ = set(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1_i32);
        let wanted = usize::try_from(options.buffer.as_bytes()).unwrap_or(usize::MAX);
        let blocks = (wanted / BLOCK).clamp(2, 1 << 14);
        let ring = libc::tpacket_req3 {
            tp_block_size: BLOCK as u32,
            tp_block_nr: blocks as u32,
            tp_frame_size: FRAME as u32,
            tp_frame_nr: (BLOCK / FRAME * blocks) as u32,
            tp_retire_blk_tov: (LATENCY.as_nanos() / 1_000_000) as u32,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        set(&socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &ring)?;
        let memory = map(&socket, BLOCK * blocks)?;
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

    /// Gives out the frames of the next block, in their order, where the kernel has handed one over;
    /// says whether it has.
    pub fn take(&mut self, mut each: impl FnMut(&Frame<'_>)) -> bool {
        // SAFETY: there are so many blocks of this length in the mapping, and `next` is below that.
        let begin = unsafe { self.memory.add(self.next * BLOCK) };
        // SAFETY: it is within the block and aligned as the block is, to a page and to 4 bytes.
        let status = unsafe { AtomicU32::from_ptr(begin.add(STATUS).cast()) };
        if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return false;
        }
        // SAFETY: what is handed over the kernel leaves alone until it is given back below.
        let bytes = unsafe { std::slice::from_raw_parts(begin, BLOCK) };
        block::frames(bytes).for_each(|frame| each(&frame));
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % self.blocks;
        true
    }

    /// What was counted since this was last asked.
    pub fn counts(&self) -> io::Result<Counts> {
        let mut stats = libc::tpacket_stats_v3 { tp_packets: 0, tp_drops: 0, tp_freeze_q_cnt: 0 };
        get(&self.socket, libc::SOL_PACKET, libc::PACKET_STATISTICS, &mut stats)?;
        // The kernel's first number has those that were dropped in it.
        let taken = stats.tp_packets.saturating_sub(stats.tp_drops);
        Ok(Counts { taken: taken.into(), dropped: stats.tp_drops.into() })
    }

    /// What went wrong since this was last asked: `ENETDOWN` when the interface went down or away.
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
        // SAFETY: it was mapped with this length, and nothing borrows from it any more.
        unsafe { libc::munmap(self.memory.cast(), self.blocks * BLOCK) };
    }
}

/// Lets every packet pass, with so many bytes of it.
fn cut(socket: &OwnedFd, snap: u32) -> io::Result<()> {
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let mut pass = libc::sock_filter { code: RETURN, jt: 0, jf: 0, k: snap.max(1) };
    let program = libc::sock_fprog { len: 1, filter: &raw mut pass };
    set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

fn map(socket: &OwnedFd, length: usize) -> io::Result<*mut u8> {
    let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: a new mapping at a place of the kernel's choice.
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

/// `T` is plain numbers, for which any bytes are valid.
fn get<T>(socket: &OwnedFd, level: i32, name: i32, value: &mut T) -> io::Result<()> {
    let mut length = size_of::<T>() as libc::socklen_t;
    let value: *mut T = value;
    // SAFETY: the value has room for so many bytes.
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
        Options { interface, cooked: false, snap: 60, buffer, promiscuous: true }
    }

    /// `lo` of a new namespace is up, has the number 1, and nobody else talks there.
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

    /// Takes until a packet of UDP with so many bytes has come.
    fn until(ring: &mut Ring, carried: usize) -> Vec<(usize, usize, u8)> {
        let mut seen = Vec::new();
        loop {
            let mut fds = [PollFd::new(ring.as_fd(), PollFlags::POLLIN)];
            poll(&mut fds, PollTimeout::from(10_000_u16)).unwrap();
            while ring.take(|frame| {
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
            // What a loopback device sends it gets: each is there twice.
            let mut seen = until(&mut ring, 1_000);
            seen.sort_unstable();
            assert_eq!(seen, [(45, 45, 0), (45, 45, 4), (1_042, 60, 0), (1_042, 60, 4)]);
            let counts = ring.counts()?;
            assert!(counts.taken >= 4 && counts.dropped == 0, "{counts:?}");
            assert_eq!(ring.counts()?, Counts::default());
            assert!(ring.error()?.is_none());
            Ok(())
        });
    }

    #[test]
    fn what_finds_no_room_is_counted_and_the_ring_goes_on() {
        alone(|| {
            let mut ring = Ring::open(&Options { snap: 65_535, ..options(None) })?;
            let one = UdpSocket::bind("127.0.0.1:0")?;
            for _ in 0..40 {
                one.send_to(&[0; 30_000], "127.0.0.1:9")?;
            }
            let mut taken = 0;
            while ring.take(|_| taken += 1) {}
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
