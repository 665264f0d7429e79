//! A host with three networks to a server that answers with the address of the client, and so
//! reports the network.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use super::super::{EgressNetwork, Names};
use crate::tproxy::command;
use crate::tproxy::tests::testbed::{
    self, Server, ServerSocket, connect_with, installed_state, ip,
};

/// The server's addresses.
pub const V4: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 7)), 81);
pub const V6: SocketAddr =
    SocketAddr::new(IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0x113, 0, 0, 0, 0, 7)), 81);
pub const OTHER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 8)), 81);
/// In the same network as the host.
pub const ON_LINK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 51, 100, 2)), 81);

/// `wan` is the network that the host itself uses.
const SETUP: &str = "
host: addr add 198.51.101.1/24 dev cell
host: addr add 2001:db8:52::1/64 dev cell nodad
host: addr add 198.51.102.1 peer 198.51.102.2/32 dev ppp
far: addr add 198.51.101.2/24 dev cell
far: addr add 2001:db8:52::2/64 dev cell nodad
far: addr add 198.51.102.2 peer 198.51.102.1/32 dev ppp
host: link set cell up
host: link set ppp up
far: link set cell up
far: link set ppp up
";

pub struct Testbed {
    inner: testbed::Testbed,
    _server: Server,
}

impl Testbed {
    /// `None` if this user may not create namespaces, or the programs for the rules are missing.
    pub fn new() -> Option<Self> {
        let inner = testbed::Testbed::new()?;
        let there = format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            std::os::fd::AsRawFd::as_raw_fd(&std::os::fd::AsFd::as_fd(&inner.server)),
        );
        inner.run(|| {
            for name in ["cell", "ppp"] {
                ip(&format!("link add {name} type veth peer name {name} netns {there}"));
            }
        });
        for line in SETUP.trim().lines() {
            let (place, command) = line.split_once(": ").unwrap();
            let place = if place == "host" { &inner.host } else { &inner.server };
            let run = || {
                ip(command);
                Ok(())
            };
            place.run(run).unwrap();
        }
        inner.run(|| {
            // The kernel reports a new link some time later.
            while installed_state().contains("linkdown") {
                thread::yield_now();
            }
        });
        // As providers do: packets with the address of another network are dropped.
        let filter = "table inet provider {\nchain enter {\ntype filter hook prerouting priority \
                      raw; policy accept;\nmeta l4proto { tcp, udp } fib saddr . iif oif missing \
                      drop\n}\n}\n";
        let start = || {
            command::nft(filter).unwrap();
            Ok(start_server())
        };
        let server = inner.server.run(start).unwrap();
        Some(Self { inner, _server: server })
    }

    /// Runs a test on the host.
    pub fn run(&self, test: impl FnOnce() + Send) {
        self.inner.run(test);
    }

    /// Returns a socket of the server that the test reads itself.
    pub fn server_socket(&self, at: SocketAddr) -> UdpSocket {
        let socket = self.inner.server.run(|| UdpSocket::bind(at)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket
    }
}

fn start_server() -> Server {
    let mut sockets = Vec::new();
    for at in [V4, V6, OTHER, ON_LINK] {
        sockets.push(ServerSocket::Tcp(TcpListener::bind(at).unwrap()));
        // One for each address, so that answers have the right source.
        sockets.push(ServerSocket::Udp(UdpSocket::bind(at).unwrap()));
    }
    Server::start(sockets, |socket| match socket {
        ServerSocket::Tcp(listener) => {
            let (mut stream, from) = listener.accept().unwrap();
            thread::spawn(move || answer_each_block(&mut stream, from.ip()));
        }
        ServerSocket::Udp(socket) => {
            let (_, from) = socket.recv_from(&mut [0; 64]).unwrap();
            let _ = socket.send_to(network_of(from.ip()).as_bytes(), from);
        }
    })
}

/// The size of a block, which does not fit into one packet.
pub const BLOCK: usize = 50_000;

/// Answers each block that starts with 1 after its end, and each other byte at once.
fn answer_each_block(stream: &mut TcpStream, from: IpAddr) -> io::Result<()> {
    let mut first = [0];
    loop {
        stream.read_exact(&mut first)?;
        if first == [1] {
            stream.read_exact(&mut [0; BLOCK - 1])?;
        }
        stream.write_all(network_of(from).as_bytes())?;
    }
}

fn network_of(client: IpAddr) -> &'static str {
    match client.to_string().as_str() {
        "198.51.100.1" | "2001:db8:51::1" => "wan.",
        "198.51.101.1" | "2001:db8:52::1" => "cell",
        "198.51.102.1" => "ppp.",
        "198.51.100.77" => "own.",
        _ => "lost",
    }
}

/// Asks over an existing connection.
pub fn ask(stream: &mut TcpStream) -> io::Result<String> {
    ask_with(stream, &[0])
}

/// Asks with a block of data.
pub fn ask_with(stream: &mut TcpStream, data: &[u8]) -> io::Result<String> {
    stream.write_all(data)?;
    let mut answer = [0; 4];
    stream.read_exact(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).trim_end_matches('.').to_owned())
}

/// Returns the network of a new connection.
pub fn tcp(to: SocketAddr) -> String {
    ask(&mut testbed::connect(to).unwrap()).unwrap()
}

/// Returns the network of a new connection from a socket that the application prepared.
pub fn tcp_from(to: SocketAddr, prepare: impl FnOnce(&Socket) -> io::Result<()>) -> String {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None).unwrap();
    prepare(&socket).unwrap();
    ask(&mut connect_with(socket, to).unwrap()).unwrap()
}

/// Returns a socket for datagrams to the server.
pub fn datagrams(to: SocketAddr) -> UdpSocket {
    testbed::datagrams(if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }, to)
}

/// Returns the network of one datagram.
pub fn ask_datagram(socket: &UdpSocket) -> String {
    socket.send(b"question").unwrap();
    let mut buffer = [0; 64];
    let length = socket.recv(&mut buffer).unwrap();
    String::from_utf8_lossy(&buffer[..length]).trim_end_matches('.').to_owned()
}

/// Returns the network of a new flow of datagrams.
pub fn udp(to: SocketAddr) -> String {
    ask_datagram(&datagrams(to))
}

/// Asserts the network of new flows of each protocol and family.
#[track_caller]
pub fn assert_all(network: &str) {
    for to in [V4, V6] {
        assert_eq!(tcp(to), network, "TCP {to}");
        assert_eq!(udp(to), network, "UDP {to}");
    }
}

/// Both networks with a gateway; `wan` is first.
pub fn networks() -> [EgressNetwork; 2] {
    let gateways = |texts: [&str; 2]| texts.map(|text| text.parse::<IpAddr>().unwrap());
    [
        EgressNetwork::new("wan", &gateways(["198.51.100.2", "2001:db8:51::2"]), 0x100_0000),
        EgressNetwork::new("cell", &gateways(["198.51.101.2", "2001:db8:52::2"]), 0x200_0000),
    ]
}

pub fn names() -> Names {
    Names::default()
}
