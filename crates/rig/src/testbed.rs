//! Network namespaces with programs and sockets in them, and waits that end.
//!
//! A [`Namespace`] has no name in the system: it disappears with its value and its processes, also
//! if the test panics. Every wait panics after [`PATIENCE`].

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use manyways_sys::netns::NetNs;

pub use crate::patience::{PATIENCE, eventually, eventually_gone};
use crate::process::{Finished, Running, assert_no_panic, finish};

/// Accepts the next connection, and limits its reads and writes to [`PATIENCE`].
///
/// # Panics
/// If no connection comes within [`PATIENCE`].
#[track_caller]
pub fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    listener.set_nonblocking(true).expect("a socket can be told");
    let (stream, from) = eventually("a connection comes", || listener.accept().ok());
    stream.set_nonblocking(false).expect("a socket can be told");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket can be told");
    stream.set_write_timeout(Some(PATIENCE)).expect("a socket can be told");
    (stream, from)
}

/// Runs iproute2 in the namespace of the calling thread, with arguments that contain no spaces.
///
/// # Panics
/// If it fails.
#[track_caller]
pub fn ip(arguments: &str) -> Finished {
    finish(Command::new("ip").args(arguments.split(' '))).expect_success()
}

/// Changes the packet filter in the namespace of the calling thread.
///
/// # Panics
/// If nft fails.
#[track_caller]
pub fn nft(command: &str) -> Finished {
    finish(Command::new("nft").arg(command)).expect_success()
}

/// A network namespace. Its methods panic if this process may not create or enter namespaces.
#[derive(Debug)]
pub struct Namespace(NetNs);

impl Namespace {
    /// Creates a namespace that contains only `lo`, which is down.
    #[track_caller]
    pub fn new() -> Self {
        Self(NetNs::create().expect("root may make a namespace"))
    }

    /// Opens a namespace by its file.
    #[track_caller]
    pub fn open(path: &Path) -> Self {
        Self(NetNs::open(path).expect("root may open a namespace"))
    }

    /// Another handle to the same namespace.
    #[track_caller]
    pub fn share(&self) -> Self {
        Self(self.0.try_clone().expect("a descriptor is free"))
    }

    /// The namespace's file, for `nsenter --net=` and `ip link set netns`, as long as this value
    /// exists.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_fd().as_raw_fd()).into()
    }

    /// Runs `act` on a thread in the namespace; its sockets and programs stay there. A panic of
    /// `act` is a panic of the caller.
    pub fn run<R: Send>(&self, act: impl FnOnce() -> R + Send) -> R {
        let done = thread::scope(|scope| {
            let within = scope.spawn(|| {
                self.0.enter().expect("root may enter a namespace");
                act()
            });
            within.join()
        });
        done.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// [`finish`] in the namespace.
    pub fn finish(&self, command: &mut Command) -> Finished {
        self.run(|| finish(command))
    }

    /// [`Running::start`] in the namespace.
    pub fn start(&self, command: &mut Command) -> Running {
        self.run(|| Running::start(command))
    }

    /// A listening TCP socket. Waits until the address is free: a program that another thread
    /// starts holds the previous socket for a short time.
    pub fn listen(&self, address: SocketAddr) -> TcpListener {
        self.run(|| eventually("the port is free", || TcpListener::bind(address).ok()))
    }

    /// A UDP socket, as soon as the address is free.
    pub fn bind(&self, address: SocketAddr) -> UdpSocket {
        self.run(|| eventually("the port is free", || UdpSocket::bind(address).ok()))
    }

    /// Connects two namespaces by a veth pair that is up. Each side is the name of the interface
    /// and its addresses with their prefix lengths, separated by spaces.
    pub fn connect(&self, near: (&str, &str), other: &Self, far: (&str, &str)) {
        let there = other.path();
        let add = format!("link add name {} type veth peer name {} netns", near.0, far.0);
        self.run(|| ip(&format!("{add} {}", there.display())));
        for (namespace, (name, addresses)) in [(self, near), (other, far)] {
            namespace.run(|| {
                for address in addresses.split_whitespace() {
                    let nodad = if address.contains(':') { " nodad" } else { "" };
                    ip(&format!("addr add {address} dev {name}{nodad}"));
                }
                ip(&format!("link set dev {name} up"));
            });
        }
    }

    /// Forwards IPv4 and IPv6 packets between the interfaces.
    pub fn forward(&self) {
        self.run(|| {
            for file in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
                fs::write(format!("/proc/sys/net/{file}"), "1").expect("root may forward");
            }
        });
    }
}

impl From<NetNs> for Namespace {
    fn from(namespace: NetNs) -> Self {
        Self(namespace)
    }
}

impl Default for Namespace {
    fn default() -> Self {
        Self::new()
    }
}

/// A process with its output in a file, which is printed if the test fails.
#[derive(Debug)]
pub struct Logged {
    pub process: Running,
    log: PathBuf,
}

impl Logged {
    /// Starts the process in the namespace of the calling thread; `log` receives both streams.
    #[track_caller]
    pub fn start(log: PathBuf, command: &mut Command) -> Self {
        let file = File::create(&log).expect("room for a log");
        let stdout = file.try_clone().expect("a descriptor is free");
        Self { process: Running::start(command.stdout(stdout).stderr(file)), log }
    }

    /// The whole output so far.
    pub fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Number of lines that contain `words`.
    pub fn times(&self, words: &str) -> usize {
        self.said().lines().filter(|line| line.contains(words)).count()
    }

    /// Waits until at least `times` lines contain `words`.
    #[track_caller]
    pub fn says_times(&self, words: &str, times: usize) {
        let what = format!("{words:?}, {times} times");
        eventually(&what, || (self.times(words) >= times).then_some(()));
    }

    /// Waits until a line contains `words`.
    #[track_caller]
    pub fn says(&self, words: &str) {
        self.says_times(words, 1);
    }

    /// Resident memory in bytes.
    #[track_caller]
    pub fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.pid()));
        let status = status.expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let amount = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
        amount.map(|kib: u64| kib * 1024).expect("a process has memory")
    }

    /// Number of open file descriptors.
    #[track_caller]
    pub fn descriptors(&self) -> usize {
        let open = fs::read_dir(format!("/proc/{}/fd", self.process.pid()));
        let count = open.map_or(0, Iterator::count);
        assert!(count > 0, "it has ended");
        count
    }
}

impl Drop for Logged {
    fn drop(&mut self) {
        // It may panic at its end.
        self.process.end();
        if thread::panicking() {
            eprintln!("{}:\n{}", self.log.display(), self.said());
        } else {
            assert_no_panic(&self.said());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Need, needs};

    #[test]
    fn namespaces_are_connected_and_go_with_their_value() {
        needs!(Need::Root, Need::Command("ip"));
        let (near, far) = (Namespace::new(), Namespace::new());
        near.connect(("a", "192.0.2.1/24 2001:db8::1/64"), &far, ("b", "192.0.2.2/24"));
        let listener = far.listen(([192, 0, 2, 2], 7).into());
        let client = near.run(|| TcpStream::connect("192.0.2.2:7")).unwrap();
        assert_eq!(accept(&listener).1, client.local_addr().unwrap());
        assert!(near.run(|| ip("-6 addr")).stdout.contains("2001:db8::1/64"));
        let path = near.path();
        let panicked = thread::spawn(move || near.run(|| panic!("it fails"))).join();
        assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"it fails"));
        // A veth device disappears with its peer's namespace.
        assert!(!path.exists());
        drop((listener, client));
        eventually("the peer has gone", || {
            (!far.run(|| ip("-o link")).stdout.contains(" b@")).then_some(())
        });
    }
}
