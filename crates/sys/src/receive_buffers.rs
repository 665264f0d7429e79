//! Sockets of another process that has no option for a required setting.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use manyways_unit::Size;
use nix::sys::socket::{setsockopt, sockopt::RcvBufForce};

use crate::wait::pidfd;

/// Sets the receive buffer of every socket of a process to `size`, beyond the host's limit. Returns
/// the number of sockets. Sockets that the process opens later keep their default.
///
/// # Errors
/// `EPERM` without root.
pub fn enlarge_receive_buffers(pid: i32, size: Size) -> io::Result<usize> {
    let process = pidfd(pid)?;
    let bytes = usize::try_from(size.as_bytes()).unwrap_or(usize::MAX);
    let mut count = 0;
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd"))? {
        let entry = entry?;
        // A descriptor may have been closed since the folder was read.
        let is_socket = std::fs::read_link(entry.path())
            .is_ok_and(|target| target.as_os_str().as_encoded_bytes().starts_with(b"socket:"));
        let number = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
        if let Some(number) = number.filter(|_| is_socket) {
            setsockopt(&duplicate(&process, number)?, RcvBufForce, &bytes)?;
            count += 1;
        }
    }
    Ok(count)
}

/// Duplicates a descriptor of another process.
fn duplicate(process: &impl AsFd, number: i32) -> io::Result<OwnedFd> {
    let process = process.as_fd().as_raw_fd();
    // SAFETY: a plain system call with an open descriptor.
    match unsafe { libc::syscall(libc::SYS_pidfd_getfd, process, number, 0) } {
        ..0 => Err(io::Error::last_os_error()),
        // SAFETY: the kernel has just created the descriptor for us.
        fd => Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) }),
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::process::{Command, Stdio};

    use nix::sys::socket::{getsockopt, sockopt::RcvBuf};

    use super::*;

    #[test]
    fn the_buffer_of_a_socket_that_another_process_has_grows() {
        if !crate::sandbox::is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        let ours = UdpSocket::bind("127.0.0.1:0").unwrap();
        let theirs = OwnedFd::from(ours.try_clone().unwrap());
        let mut child = Command::new("sleep").arg("60").stdin(Stdio::from(theirs)).spawn().unwrap();
        let count = enlarge_receive_buffers(child.id() as i32, Size::from_mib(8));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(count.unwrap() >= 1);
        // The kernel doubles the value for its overhead.
        assert_eq!(getsockopt(&ours, RcvBuf).unwrap(), 16 << 20);
    }
}
