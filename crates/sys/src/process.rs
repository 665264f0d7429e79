//! Finds the process that owns a connection.
//!
//! The kernel reports a socket's user and inode (`NETLINK_SOCK_DIAG`). The process that has this
//! inode open is then searched in `/proc`, which shows other users' processes only to root.

mod diag;

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use diag::SocketInfo;

/// The transport of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// Owner of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Owner {
    /// User that created the socket.
    pub uid: u32,
    /// The process that has the socket open. `None` if its descriptors are not visible, or no
    /// process has it open. If several have, the one found first.
    pub process: Option<Process>,
}

/// A process, with its accessible properties.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Process {
    pub pid: i32,
    /// The kernel's name for it, up to 15 bytes (`comm`).
    pub name: String,
    /// File name of its program; `None` for another user's process, or a kernel thread.
    pub program: Option<String>,
    /// Its cgroup (version 2), as a path from the root of the hierarchy. `None` if it is unknown.
    pub cgroup: Option<String>,
}

/// Number of remembered processes: most connections belong to a process with earlier connections.
const MAX_RECENT: usize = 16;
/// Maximum number of descriptors that one search checks.
const MAX_DESCRIPTORS: usize = 200_000;

/// Finds owners, and remembers the most recent ones.
#[derive(Debug, Default)]
pub struct OwnerLookup {
    recent: VecDeque<i32>,
}

/// [`OwnerLookup::find`] for a single connection.
pub fn owner_of(
    local: SocketAddr,
    remote: SocketAddr,
    protocol: Protocol,
) -> io::Result<Option<Owner>> {
    OwnerLookup::default().find(local, remote, protocol)
}

impl OwnerLookup {
    /// Returns the owner of the socket that is connected from `local` to `remote`. `None` if there
    /// is none in the calling thread's network namespace. A datagram socket need not be
    /// connected to `remote`, nor be bound to the address of `local`, but must have its port.
    ///
    /// Blocks for milliseconds if there are many processes.
    ///
    /// # Errors
    /// If the kernel does not answer; for UDP `NotFound` if it lacks the module `udp_diag`. (A
    /// missing `tcp_diag` cannot be distinguished from a missing connection.)
    pub fn find(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        protocol: Protocol,
    ) -> io::Result<Option<Owner>> {
        let Some(SocketInfo { uid, inode }) = diag::find(local, remote, protocol)? else {
            return Ok(None);
        };
        let process = (inode != 0).then(|| self.holder(uid, inode)).flatten();
        Ok(Some(Owner { uid, process }))
    }

    fn holder(&mut self, uid: u32, inode: u32) -> Option<Process> {
        let wanted = format!("socket:[{inode}]");
        let mut remaining = MAX_DESCRIPTORS;
        let pid = self
            .recent
            .iter()
            .copied()
            .find(|pid| has_open(*pid, &wanted, &mut remaining))
            .or_else(|| search(uid, &wanted, &mut remaining))?;
        self.recent.retain(|known| *known != pid);
        self.recent.push_front(pid);
        self.recent.truncate(MAX_RECENT);
        process(pid)
    }
}

/// Searches all processes, those of the socket's user first.
fn search(uid: u32, wanted: &str, remaining: &mut usize) -> Option<i32> {
    let mut others = Vec::new();
    for entry in fs::read_dir("/proc").ok()?.filter_map(Result::ok) {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        match entry.metadata() {
            Ok(facts) if facts.uid() == uid => {
                if has_open(pid, wanted, remaining) {
                    return Some(pid);
                }
            }
            // A socket can be passed on, and a process can change its user.
            Ok(_) => others.push(pid),
            Err(_) => {}
        }
    }
    others.into_iter().find(|pid| has_open(*pid, wanted, remaining))
}

fn has_open(pid: i32, wanted: &str, remaining: &mut usize) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    descriptors.filter_map(Result::ok).any(|descriptor| {
        *remaining = remaining.saturating_sub(1);
        *remaining > 0
            && fs::read_link(descriptor.path()).is_ok_and(|target| target == Path::new(wanted))
    })
}

fn process(pid: i32) -> Option<Process> {
    let folder = Path::new("/proc").join(pid.to_string());
    // A name can contain any bytes.
    let name = fs::read(folder.join("comm")).ok()?;
    let program = fs::read_link(folder.join("exe")).ok();
    let cgroups = fs::read_to_string(folder.join("cgroup")).unwrap_or_default();
    Some(Process {
        pid,
        name: String::from_utf8_lossy(name.strip_suffix(b"\n").unwrap_or(&name)).into_owned(),
        program: program.and_then(|path| {
            let name = path.file_name()?.to_string_lossy().into_owned();
            // The kernel appends this if an update has replaced the file.
            Some(name.strip_suffix(" (deleted)").unwrap_or(&name).to_owned())
        }),
        cgroup: cgroups.lines().find_map(|line| line.strip_prefix("0::")).map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::process::{Command, Stdio};

    use super::*;

    fn pid_of(local: SocketAddr, remote: SocketAddr, protocol: Protocol) -> i32 {
        let owner = owner_of(local, remote, protocol).unwrap().expect("the socket exists");
        assert_eq!(owner.uid, nix::unistd::geteuid().as_raw());
        owner.process.expect("it is our own").pid
    }

    #[test]
    fn our_own_connections_are_ours() {
        let own = std::process::id() as i32;
        for at in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(at).unwrap();
            let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (local, remote) = (near.local_addr().unwrap(), near.peer_addr().unwrap());
            assert_eq!(pid_of(local, remote, Protocol::Tcp), own);

            let connected = UdpSocket::bind(at).unwrap();
            let free = UdpSocket::bind(at).unwrap();
            connected.connect(free.local_addr().unwrap()).unwrap();
            let (local, remote) = (connected.local_addr().unwrap(), free.local_addr().unwrap());
            assert_eq!(pid_of(local, remote, Protocol::Udp), own);
            assert_eq!(pid_of(remote, local, Protocol::Udp), own);
        }
    }

    #[test]
    fn a_socket_of_both_families_is_found_by_its_ipv4_addresses() {
        let own = std::process::id() as i32;
        let both = |kind| {
            let socket = socket2::Socket::new(socket2::Domain::IPV6, kind, None).unwrap();
            socket.set_only_v6(false).unwrap();
            socket
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let remote = listener.local_addr().unwrap();
        let mapped: SocketAddr = format!("[::ffff:127.0.0.1]:{}", remote.port()).parse().unwrap();
        let near = both(socket2::Type::STREAM);
        near.connect(&mapped.into()).unwrap();
        let local = listener.accept().unwrap().1;
        assert_eq!(pid_of(local, remote, Protocol::Tcp), own);

        let free = both(socket2::Type::DGRAM);
        free.bind(&"[::]:0".parse::<SocketAddr>().unwrap().into()).unwrap();
        let port = free.local_addr().unwrap().as_socket().unwrap().port();
        assert_eq!(pid_of(([127, 0, 0, 1], port).into(), remote, Protocol::Udp), own);
    }

    #[test]
    fn a_missing_connection_has_no_owner() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let local = listener.local_addr().unwrap();
        let nobody = "127.0.0.1:1".parse().unwrap();
        // The listener has this port, but not this connection.
        assert_eq!(owner_of(local, nobody, Protocol::Tcp).unwrap(), None);
        let other = UdpSocket::bind("127.0.0.2:0").unwrap();
        let elsewhere = ([127, 0, 0, 1], other.local_addr().unwrap().port()).into();
        assert_eq!(owner_of(elsewhere, nobody, Protocol::Udp).unwrap(), None);
    }

    #[test]
    fn a_connected_socket_is_preferred_to_one_that_is_open_to_all() {
        let remote = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let bind = |at: SocketAddr| {
            let socket =
                socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).unwrap();
            socket.set_reuse_address(true).unwrap();
            socket.bind(&at.into()).unwrap();
            UdpSocket::from(socket)
        };
        let connected = bind("127.0.0.1:0".parse().unwrap());
        let local = connected.local_addr().unwrap();
        connected.connect(remote).unwrap();
        // Another process has a socket with the same port.
        let open = bind(([0, 0, 0, 0], local.port()).into());
        let theirs = Stdio::from(std::os::fd::OwnedFd::from(open));
        let mut child = Command::new("sleep").arg("60").stdin(theirs).spawn().unwrap();
        let found = pid_of(local, remote, Protocol::Udp);
        let other = owner_of(([127, 0, 0, 9], local.port()).into(), remote, Protocol::Udp);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found, std::process::id() as i32);
        let process = other.unwrap().unwrap().process.unwrap();
        assert_eq!((process.pid, process.name.as_str()), (child.id() as i32, "sleep"));
        assert!(process.program.is_some());
    }

    #[test]
    fn recent_owners_are_checked_first() {
        let mut owners = OwnerLookup::default();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let local = socket.local_addr().unwrap();
        for _ in 0..2 {
            let found = owners.find(local, local, Protocol::Udp).unwrap().unwrap();
            assert_eq!(found.process.unwrap().pid, std::process::id() as i32);
            assert_eq!(owners.recent, [std::process::id() as i32]);
        }
    }
}
