//! Flags of an interface.

use std::io;
use std::os::fd::AsRawFd;

use socket2::{Domain, Socket, Type};

/// Whether an interface of this thread's network namespace is up and can carry packets; `false` if
/// there is none of this name.
///
/// # Errors
/// The kernel cannot be asked.
pub fn is_running(interface: &str) -> io::Result<bool> {
    // SAFETY: all bytes zero are a valid value of this structure of integers.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte remains zero, and ends the name.
    if interface.len() >= request.ifr_name.len() {
        return Ok(false);
    }
    for (place, byte) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *place = byte as libc::c_char;
    }
    // Any socket will do; this one has no address.
    let socket = Socket::new(Domain::UNIX, Type::DGRAM, None)?;
    // SAFETY: the request lives during the call, which writes only its flags.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS as _, &mut request) };
    if done < 0 {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::ENODEV) => Ok(false),
            _ => Err(error),
        };
    }
    // SAFETY: the kernel has set the flags.
    let flags = libc::c_int::from(unsafe { request.ifr_ifru.ifru_flags });
    let wanted = libc::IFF_UP | libc::IFF_RUNNING;
    Ok(flags & wanted == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_interface_does_not_run() {
        for name in ["", "nowhere0", "a-name-longer-than-the-kernel-permits"] {
            assert!(!is_running(name).unwrap(), "{name}");
        }
    }
}
