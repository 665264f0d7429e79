//! TUN devices that carry super-packets (`IFF_VNET_HDR`).

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

/// Bytes of the `virtio_net_hdr` before every packet.
pub const HEADER_SIZE: usize = 10;

/// Maximum bytes of one packet: an IPv6 header and the largest payload without jumbograms.
pub const MAX_PACKET: usize = 65_535 + 40;

const TUN_F_CSUM: libc::c_uint = 0x01;
const TUN_F_TSO4: libc::c_uint = 0x02;
const TUN_F_TSO6: libc::c_uint = 0x04;
const TUN_F_TSO_ECN: libc::c_uint = 0x08;
// Newer than Debian 12's headers.
const TUN_F_USO4: libc::c_uint = 0x20;
const TUN_F_USO6: libc::c_uint = 0x40;
const TUNSETCARRIER: libc::c_ulong = 0x4004_54e2;

/// One TUN device, which is removed when dropped.
#[derive(Debug)]
pub struct Tun {
    file: File,
    name: String,
    udp_offload: bool,
}

impl Tun {
    /// Creates the device `name` in the calling thread's network namespace, with all offloads that
    /// the kernel supports, in non-blocking mode.
    pub fn create(name: &str) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open("/dev/net/tun")
            .map_err(|error| {
                io::Error::new(error.kind(), format!("cannot open /dev/net/tun: {error}"))
            })?;
        if name.len() >= libc::IFNAMSIZ {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "interface name too long"));
        }
        // SAFETY: an all-zero `ifreq` is valid plain data.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags =
            (libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
        // SAFETY: the descriptor is open and the argument points to a valid `ifreq`.
        check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &request) })?;
        let size: libc::c_int = HEADER_SIZE as libc::c_int;
        // SAFETY: the argument points to an int, as TUNSETVNETHDRSZ requires.
        check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETVNETHDRSZ as _, &size) })?;
        let tcp = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;
        let mut udp_offload = true;
        let set = |flags: libc::c_uint| {
            let flags = libc::c_ulong::from(flags);
            // SAFETY: TUNSETOFFLOAD takes its flags by value.
            check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD as _, flags) })
        };
        if set(tcp | TUN_F_USO4 | TUN_F_USO6).is_err() {
            udp_offload = false;
            set(tcp)?;
        }
        Ok(Self { file, name: name.to_owned(), udp_offload })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the kernel supports UDP super-packets in both directions.
    pub fn udp_offload(&self) -> bool {
        self.udp_offload
    }

    /// Reads one packet: its [`HEADER_SIZE`] bytes into `header`, the rest into `packet`. Returns
    /// the packet's length, or `None` if no packet is waiting.
    pub fn read(
        &self,
        header: &mut [u8; HEADER_SIZE],
        packet: &mut [u8],
    ) -> io::Result<Option<usize>> {
        let mut parts = [IoSliceMut::new(header), IoSliceMut::new(packet)];
        match (&self.file).read_vectored(&mut parts) {
            Ok(count) => Ok(count.checked_sub(HEADER_SIZE)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes one packet from its parts: header, IP and transport headers, payload.
    ///
    /// # Errors
    /// `EIO` if the offload header does not match the bytes: count the error and continue.
    pub fn write(
        &self,
        header: &[u8; HEADER_SIZE],
        packet_header: &[u8],
        payload: &[u8],
    ) -> io::Result<()> {
        use std::io::Write;
        let parts = [IoSlice::new(header), IoSlice::new(packet_header), IoSlice::new(payload)];
        (&self.file).write_vectored(&parts).map(|_| ())
    }

    /// Sets the carrier: without it the interface is up but has no link.
    pub fn set_carrier(&self, carrier: bool) -> io::Result<()> {
        let value = libc::c_int::from(carrier);
        // SAFETY: the argument points to an int, as TUNSETCARRIER requires.
        check(unsafe { libc::ioctl(self.file.as_raw_fd(), TUNSETCARRIER as _, &value) })
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
