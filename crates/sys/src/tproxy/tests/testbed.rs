//! Namespaces, servers, a proxy, and clients.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{
    IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket,
};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::unistd::{Uid, setfsuid};
use socket2::{Domain, Socket, Type};

use crate::clock::Clock;
use crate::netns::NetNs;
use crate::poll::{Poller, Waker};
use crate::socket::set_mark;
use crate::socket::transparent::{
    recv_with_destination, transparent_tcp_listener, transparent_udp, transparent_udp_from,
};
use crate::tproxy::{Names, Target, Targets};

/// The server that answers `direct`.
pub const V4: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 7)), 80);
pub const V6: SocketAddr =
    SocketAddr::new(IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0x113, 0, 0, 0, 0, 7)), 80);
/// Another address of the same server.
pub const OTHER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 8)), 80);
pub const PRIVATE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 9, 9, 9)), 80);
/// Echoes received bytes and keeps the connection open.
pub const ECHO: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 7)), 7);
/// The host's address, for a server on it.
pub const OWN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1)), 0);

/// Timeout of an answer, after which a test fails.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// Timeout of a datagram's answer that may be missing.
const SHORT_TIMEOUT: Duration = Duration::from_millis(1500);

const SETUP: &str = "
far: link set lo up
host: link set lo up
lan: link set lo up
host: addr add 198.51.100.1/24 dev wan
host: addr add 2001:db8:51::1/64 dev wan nodad
far: addr add 198.51.100.2/24 dev wan
far: addr add 2001:db8:51::2/64 dev wan nodad
host: addr add 192.0.2.1/24 dev lan
host: addr add 2001:db8:2::1/64 dev lan nodad
lan: addr add 192.0.2.2/24 dev lan
lan: addr add 2001:db8:2::2/64 dev lan nodad
host: link set wan up
host: link set lan up
far: link set wan up
lan: link set lan up
host: route add default via 198.51.100.2
host: -6 route add default via 2001:db8:51::2
lan: route add default via 192.0.2.1
lan: -6 route add default via 2001:db8:2::1
far: route add default via 198.51.100.1
far: -6 route add default via 2001:db8:51::1
far: addr add 203.0.113.7/32 dev lo
far: addr add 203.0.113.8/32 dev lo
far: addr add 10.9.9.9/32 dev lo
far: addr add 2001:db8:113::7/128 dev lo nodad
";

pub struct Testbed {
    pub host: NetNs,
    pub server: NetNs,
    pub lan: NetNs,
    _servers: Vec<Server>,
}

impl Testbed {
    /// `None` if this user may not create namespaces, or the programs for the rules are missing.
    pub fn new() -> Option<Self> {
        if !crate::sandbox::is_root() {
            eprintln!("skipped: needs root");
            return None;
        }
        for program in ["nft", "ip"] {
            if Command::new(program).arg("-V").output().is_err() {
                eprintln!("skipped: needs {program}");
                return None;
            }
        }
        let [host, far, lan] = [(); 3].map(|()| NetNs::create().unwrap());
        for place in [&host, &far, &lan] {
            // No link-local addresses: their routes appear at arbitrary times.
            place.run(|| fs::write("/proc/sys/net/ipv6/conf/default/addr_gen_mode", "1")).unwrap();
        }
        host.run(|| {
            for (name, other) in [("wan", &far), ("lan", &lan)] {
                // A program can open the descriptors of a namespace through /proc.
                let there = format!(
                    "/proc/{}/fd/{}",
                    std::process::id(),
                    std::os::fd::AsRawFd::as_raw_fd(&other.as_fd()),
                );
                ip(&format!("link add {name} type veth peer name {name} netns {there}"));
            }
            for setting in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
                fs::write(format!("/proc/sys/net/{setting}"), "1")?;
            }
            Ok(())
        })
        .unwrap();
        for line in SETUP.trim().lines() {
            let (place, command) = line.split_once(": ").unwrap();
            let place = match place {
                "host" => &host,
                "far" => &far,
                _ => &lan,
            };
            place
                .run(|| {
                    ip(command);
                    Ok(())
                })
                .unwrap();
        }
        let servers = far.run(|| Ok(vec![Server::direct(), Server::echo()])).unwrap();
        Some(Self { host, server: far, lan, _servers: servers })
    }

    /// Runs a test on the host.
    pub fn run(&self, test: impl FnOnce() + Send) {
        let done = self.host.run(|| {
            test();
            Ok(())
        });
        done.unwrap();
    }
}

pub fn ip(command: &str) {
    let status = Command::new("ip").args(command.split(' ')).status().unwrap();
    assert!(status.success(), "ip {command}");
}

/// Returns all state that rules could leave.
pub fn installed_state() -> String {
    let commands = [
        "nft list ruleset",
        "ip -4 rule",
        "ip -6 rule",
        "ip -4 route show table all",
        "ip -6 route show table all",
    ];
    let mut all = String::new();
    for command in commands {
        let (program, arguments) = command.split_once(' ').unwrap();
        let output = Command::new(program).args(arguments.split(' ')).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        // The remaining time until expiry changes.
        all.extend(
            text.lines().filter(|line| !line.contains("expires")).map(|l| l.to_owned() + "\n"),
        );
    }
    all
}

/// A thread that serves sockets until dropped, and then closes them.
pub struct Server {
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

pub enum ServerSocket {
    Tcp(TcpListener),
    Udp(UdpSocket),
}

impl Server {
    pub fn start(
        sockets: Vec<ServerSocket>,
        mut serve: impl FnMut(&ServerSocket) + Send + 'static,
    ) -> Self {
        let waker = Arc::new(Waker::new().unwrap());
        let stop = Arc::clone(&waker);
        let thread = thread::spawn(move || {
            let mut poller = Poller::new(Clock::start()).unwrap();
            poller.add(stop.as_fd(), u64::MAX - 1).unwrap();
            for (token, socket) in sockets.iter().enumerate() {
                let fd = match socket {
                    ServerSocket::Tcp(listener) => listener.as_fd(),
                    ServerSocket::Udp(socket) => socket.as_fd(),
                };
                poller.add(fd, token as u64).unwrap();
            }
            let mut ready = Vec::new();
            loop {
                poller.wait(None, &mut ready).unwrap();
                if ready.contains(&(u64::MAX - 1)) {
                    return;
                }
                for token in &ready {
                    serve(&sockets[*token as usize]);
                }
            }
        });
        Self { waker, thread: Some(thread) }
    }

    /// Answers `direct` to every client.
    fn direct() -> Self {
        let any = |ip: IpAddr| {
            let at = SocketAddr::new(ip, 80);
            let tcp = transparent_tcp_listener(at, None).unwrap();
            // Answers must have the queried address as their source.
            let udp = transparent_udp(at, None).unwrap();
            [ServerSocket::Tcp(tcp), ServerSocket::Udp(udp)]
        };
        let sockets = [any(Ipv4Addr::UNSPECIFIED.into()), any(Ipv6Addr::UNSPECIFIED.into())];
        Self::start(sockets.into_iter().flatten().collect(), |socket| match socket {
            ServerSocket::Tcp(listener) => {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.write_all(b"direct");
            }
            ServerSocket::Udp(socket) => {
                let received = recv_with_destination(socket.as_fd(), &mut [0; 64]).unwrap();
                let from = transparent_udp_from(received.destination, None).unwrap();
                let _ = from.send_to(b"direct", received.source);
            }
        })
    }

    fn echo() -> Self {
        let listener = TcpListener::bind(ECHO).unwrap();
        Self::start(vec![ServerSocket::Tcp(listener)], |socket| {
            let ServerSocket::Tcp(listener) = socket else { return };
            let (mut stream, _) = listener.accept().unwrap();
            thread::spawn(move || io::copy(&mut stream.try_clone().unwrap(), &mut stream));
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A transparent proxy that answers with the requested destination; ends when dropped.
pub struct Proxy {
    targets: Targets,
    server: Option<Server>,
}

impl Proxy {
    pub fn start() -> Self {
        let mark = Names::default().own_mark;
        let mut sockets = Vec::new();
        let mut ports = Vec::new();
        for ip in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
            let listener = transparent_tcp_listener((ip, 0).into(), Some(mark)).unwrap();
            let datagrams = transparent_udp((ip, 0).into(), Some(mark)).unwrap();
            ports.push(Target::Proxy(listener.local_addr().unwrap().port()));
            ports.push(Target::Proxy(datagrams.local_addr().unwrap().port()));
            sockets.extend([ServerSocket::Tcp(listener), ServerSocket::Udp(datagrams)]);
        }
        let targets =
            Targets { tcp_v4: ports[0], udp_v4: ports[1], tcp_v6: ports[2], udp_v6: ports[3] };
        let server = Server::start(sockets, move |socket| match socket {
            ServerSocket::Tcp(listener) => {
                let (mut stream, _) = listener.accept().unwrap();
                // The client triggers the answer, so that a test can have an open connection.
                thread::spawn(move || {
                    let _ = stream.read(&mut [0]);
                    let to = stream.local_addr().unwrap();
                    let _ = stream.write_all(format!("proxy {to}").as_bytes());
                });
            }
            ServerSocket::Udp(socket) => {
                let received = recv_with_destination(socket.as_fd(), &mut [0; 64]).unwrap();
                let to = received.destination;
                let answerer = transparent_udp_from(to, Some(mark)).unwrap();
                answerer.send_to(format!("proxy {to}").as_bytes(), received.source).unwrap();
            }
        });
        Self { targets, server: Some(server) }
    }

    pub fn targets(&self) -> Targets {
        self.targets
    }
}

impl Drop for Proxy {
    /// Returns once no socket has the proxy's ports: a program that another test is just starting
    /// holds a copy of every descriptor until its `exec`, and connections to it would be reset.
    fn drop(&mut self) {
        drop(self.server.take());
        let Targets { tcp_v4, udp_v4, tcp_v6, udp_v6 } = self.targets;
        let v4 = IpAddr::from(Ipv4Addr::LOCALHOST);
        let v6 = IpAddr::from(Ipv6Addr::LOCALHOST);
        for (kind, ip, target) in [
            (Type::STREAM, v4, tcp_v4),
            (Type::DGRAM, v4, udp_v4),
            (Type::STREAM, v6, tcp_v6),
            (Type::DGRAM, v6, udp_v6),
        ] {
            let Target::Proxy(port) = target else { continue };
            while !is_free(kind, (ip, port).into()) {
                thread::yield_now();
            }
        }
    }
}

fn is_free(kind: Type, at: SocketAddr) -> bool {
    let socket = Socket::new(Domain::for_address(at), kind, None).unwrap();
    // Allows connections in TIME-WAIT, but not a listener.
    socket.set_reuse_address(kind == Type::STREAM).unwrap();
    match socket.bind(&at.into()) {
        Ok(()) => true,
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => false,
        Err(error) => panic!("{at}: {error}"),
    }
}

pub fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    connect_marked(to, 0)
}

pub fn connect_marked(to: SocketAddr, mark: u32) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
    if mark != 0 {
        set_mark(&socket, mark)?;
    }
    connect_with(socket, to)
}

pub fn ask_tcp_through(to: SocketAddr, interface: &str) -> io::Result<String> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
    socket.bind_device(Some(interface.as_bytes()))?;
    answer(&mut connect_with(socket, to)?)
}

pub fn connect_with(socket: Socket, to: SocketAddr) -> io::Result<TcpStream> {
    socket.connect_timeout(&to.into(), ANSWER_TIMEOUT)?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    Ok(stream)
}

/// Returns the answer of a server after the client has closed its sending direction.
pub fn answer(stream: &mut TcpStream) -> io::Result<String> {
    stream.shutdown(Shutdown::Write)?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

pub fn ask_tcp(to: SocketAddr) -> io::Result<String> {
    answer(&mut connect(to)?)
}

pub fn ask_tcp_marked(to: SocketAddr, mark: u32) -> io::Result<String> {
    answer(&mut connect_marked(to, mark)?)
}

/// Creates a socket connected to one peer.
pub fn datagrams(at: &str, to: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind(at).unwrap();
    socket.set_read_timeout(Some(ANSWER_TIMEOUT)).unwrap();
    socket.connect(to).unwrap();
    socket
}

/// Fails with `WouldBlock` if no answer arrives.
pub fn ask_udp(to: SocketAddr, mark: Option<u32>) -> io::Result<String> {
    let any: IpAddr =
        if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    if let Some(mark) = mark {
        set_mark(&socket, mark)?;
    }
    socket.set_read_timeout(Some(SHORT_TIMEOUT))?;
    socket.connect(to)?;
    socket.send(b"question")?;
    let mut buffer = [0; 64];
    let length = socket.recv(&mut buffer)?;
    Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
}

/// Repeats the query if no answer arrives, as resolvers do.
pub fn udp_until(to: SocketAddr, wanted: &str) -> String {
    let mut said = String::new();
    for _ in 0..3 {
        said = ask_udp(to, None).unwrap_or_default();
        if said == wanted {
            break;
        }
    }
    said
}

/// Opens sockets as another user.
pub fn as_user<T: Send>(user: u32, work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        scope
            .spawn(|| {
                setfsuid(Uid::from_raw(user));
                work()
            })
            .join()
            .unwrap()
    })
}

/// A cgroup for one test.
pub struct Group {
    pub folder: PathBuf,
    pub path: String,
}

impl Group {
    pub fn make() -> Option<Self> {
        let path = format!("/manyways-test-{}", std::process::id());
        for root in ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"] {
            let root = PathBuf::from(root);
            let folder = root.join(&path[1..]);
            if root.join("cgroup.controllers").exists() && fs::create_dir(&folder).is_ok() {
                return Some(Self { folder, path });
            }
        }
        eprintln!("skipped: no cgroup can be made");
        None
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.folder);
    }
}
