//! Names to addresses, per path: the question goes to the name servers of one network, through
//! that network, because a content network answers differently on each.
//!
//! Literals, `localhost` and `/etc/hosts` come first. Then `A` and `AAAA` are asked for at once,
//! over UDP and, when the answer was cut, over TCP. What is not done: search domains (a name is
//! asked for as it stands), DNSSEC, mDNS, encrypted DNS, and a cache (a transfer asks once).
//!
//! [`lookup`] takes an interface as discovery found it; [`PathResolver`] is the little it needs.

pub mod message;

use std::fmt::Write as _;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::path::Path;
use std::time::Duration;

use manyways_sys::interface::Interface;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, UdpSocket};
use tokio::time::timeout;

use self::message::{Answer, Family, is_host_name, question, read_answer};

const DNS: u16 = 53;
/// How long a server may take, one span a round. A mobile network that wakes up takes over a
/// second.
const PATIENCE: [Duration; 3] =
    [Duration::from_millis(1500), Duration::from_secs(2), Duration::from_secs(3)];
/// How long the second family is waited for when the first one has brought addresses.
const STRAGGLER: Duration = Duration::from_millis(250);
/// The most servers that are asked.
const SERVER_LIMIT: usize = 4;
/// Packets that are no answer to our question are passed over, this many a question.
const FOREIGN_LIMIT: usize = 32;

/// What a lookup needs to know of a path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PathResolver {
    /// The interface's name, to bind the sockets to; none leaves the choice to the kernel.
    pub interface: Option<String>,
    /// The interface's index, for servers with a link-local address; zero when there is none.
    pub index: u32,
    /// Source addresses: the first of each family is used, and only families that are here are
    /// asked for. None at all leaves the choice to the kernel and asks for both.
    pub addresses: Vec<IpAddr>,
    /// The name servers, asked in this order, the first four.
    pub servers: Vec<IpAddr>,
    /// The servers' port; zero means 53.
    pub port: u16,
}

/// Why a name has no address on a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResolveError {
    /// The text is neither an address nor a host name.
    #[error("`{host}` is not a host name")]
    BadName {
        /// What was asked.
        host: String,
    },
    /// A name server says that there is no such name.
    #[error("the name {host} does not exist, says {server}")]
    NoSuchName {
        /// What was asked.
        host: String,
        /// Who says so.
        server: IpAddr,
    },
    /// The name exists but has no address that this path could use.
    #[error("the name {host} has no address that {path} could reach")]
    NoAddress {
        /// What was asked.
        host: String,
        /// The path's name.
        path: String,
    },
    /// No name server is known on this path.
    #[error("no name server is known for {path}")]
    NoServer {
        /// The path's name.
        path: String,
    },
    /// No name server answered in time or properly.
    #[error("no name server of {path} answers for {host}: {why}")]
    NoAnswer {
        /// What was asked.
        host: String,
        /// The path's name.
        path: String,
        /// What each server did.
        why: String,
    },
}

impl ResolveError {
    /// Whether another path may know better: it may have other name servers.
    pub fn another_path_may_help(&self) -> bool {
        !matches!(self, Self::BadName { .. })
    }

    /// What the user can do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::BadName { .. } => {
                "names are letters, digits, hyphens and dots; other scripts in their xn-- form"
            }
            Self::NoSuchName { .. } => "check the spelling",
            Self::NoAddress { .. } => {
                "it may have an IPv6 address only, where the network has IPv4 only, or the other \
                 way round"
            }
            Self::NoServer { .. } => "add a nameserver line to /etc/resolv.conf",
            Self::NoAnswer { .. } => "`manyways paths` shows the name servers of each network",
        }
        .into()
    }
}

impl From<&Interface> for PathResolver {
    fn from(interface: &Interface) -> Self {
        Self {
            interface: Some(interface.name.clone()),
            index: interface.index,
            addresses: interface.addresses.clone(),
            servers: interface.dns.clone(),
            port: 0,
        }
    }
}

/// The addresses of `host` as seen on `path`, at least one, the family to try first in front.
/// Needs a tokio runtime with I/O and time. Takes at most 26 seconds with four silent servers.
pub async fn lookup(path: &Interface, host: &str) -> Result<Vec<IpAddr>, ResolveError> {
    PathResolver::from(path).lookup(host).await
}

/// What came of asking one server about both families.
enum Round {
    Addresses(Vec<IpAddr>),
    NoSuchName,
    Failed(String),
}

impl PathResolver {
    /// As the free [`lookup`].
    pub async fn lookup(&self, host: &str) -> Result<Vec<IpAddr>, ResolveError> {
        let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        if let Ok(literal) = bare.parse::<IpAddr>() {
            return Ok(vec![literal]);
        }
        if !is_host_name(host) {
            return Err(ResolveError::BadName { host: host.to_owned() });
        }
        // One read of a small local file: not worth a thread.
        let known = std::fs::read(Path::new("/etc/hosts"))
            .map(|file| message::hosts(&file, host))
            .unwrap_or_default();
        if !known.is_empty() {
            return Ok(self.ordered(known));
        }
        // RFC 6761, section 6.3: never asked for.
        let name = host.trim_end_matches('.').to_ascii_lowercase();
        if name == "localhost" || name.ends_with(".localhost") {
            return Ok(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]);
        }
        self.ask(host).await
    }

    async fn ask(&self, host: &str) -> Result<Vec<IpAddr>, ResolveError> {
        let path = || self.interface.clone().unwrap_or_else(|| "this host".into());
        let mut servers: Vec<IpAddr> = self.servers.clone();
        servers.truncate(SERVER_LIMIT);
        if servers.is_empty() {
            return Err(ResolveError::NoServer { path: path() });
        }
        let mut reasons: Vec<Option<String>> = vec![None; servers.len()];
        for patience in PATIENCE {
            for (server, reason) in servers.iter().zip(&mut reasons) {
                match self.round(*server, host, patience).await {
                    Round::Addresses(addresses) if addresses.is_empty() => {
                        return Err(ResolveError::NoAddress { host: host.into(), path: path() });
                    }
                    Round::Addresses(addresses) => return Ok(self.ordered(addresses)),
                    Round::NoSuchName => {
                        return Err(ResolveError::NoSuchName {
                            host: host.into(),
                            server: *server,
                        });
                    }
                    Round::Failed(why) => *reason = Some(why),
                }
            }
        }
        let mut why = String::new();
        for (server, reason) in servers.iter().zip(reasons) {
            let sign = if why.is_empty() { "" } else { "; " };
            // Writing to a String does not fail.
            let _ = write!(why, "{sign}{server}: {}", reason.unwrap_or_default());
        }
        Err(ResolveError::NoAnswer { host: host.into(), path: path(), why })
    }

    async fn round(&self, server: IpAddr, host: &str, patience: Duration) -> Round {
        let has = |v6: bool| {
            self.addresses.is_empty() || self.addresses.iter().any(|ip| ip.is_ipv6() == v6)
        };
        let v4 = async {
            match has(false) {
                true => self.exchange(server, host, Family::V4, patience).await,
                false => Ok(Answer::Addresses(Vec::new())),
            }
        };
        let v6 = async {
            match has(true) {
                true => self.exchange(server, host, Family::V6, patience).await,
                false => Ok(Answer::Addresses(Vec::new())),
            }
        };
        let (mut v4, mut v6) = (std::pin::pin!(v4), std::pin::pin!(v6));
        let brought = |answer: &Result<Answer, String>| matches!(answer, Ok(Answer::Addresses(addresses)) if !addresses.is_empty());
        let late = || Err("half of the answer is late".to_owned());
        let answers = tokio::select! {
            first = &mut v4 => {
                let second = if brought(&first) {
                    timeout(STRAGGLER, v6).await.unwrap_or_else(|_| late())
                } else {
                    v6.await
                };
                [first, second]
            }
            first = &mut v6 => {
                let second = if brought(&first) {
                    timeout(STRAGGLER, v4).await.unwrap_or_else(|_| late())
                } else {
                    v4.await
                };
                [first, second]
            }
        };
        let mut addresses = Vec::new();
        let mut missing = false;
        let mut failure = None;
        for answer in answers {
            match answer {
                Ok(Answer::Addresses(found)) => addresses.extend(found),
                Ok(Answer::NoSuchName) => missing = true,
                Ok(Answer::Unhelpful(why)) => failure = Some(why.to_owned()),
                Ok(Answer::Truncated) => failure = Some("its answer is cut".into()),
                Ok(Answer::Foreign) => failure = Some("its answer makes no sense".into()),
                Err(why) => failure = Some(why),
            }
        }
        match failure {
            _ if !addresses.is_empty() => Round::Addresses(addresses),
            _ if missing => Round::NoSuchName,
            Some(why) => Round::Failed(why),
            None => Round::Addresses(addresses),
        }
    }

    /// One question over UDP and, if need be, TCP.
    async fn exchange(
        &self,
        server: IpAddr,
        host: &str,
        family: Family,
        patience: Duration,
    ) -> Result<Answer, String> {
        let id = random_id();
        let Some(query) = question(id, host, family) else {
            return Err("the question cannot be put".into());
        };
        let read = |bytes: &[u8]| read_answer(bytes, id, host, family);
        let words = |error: io::Error| match error.kind() {
            io::ErrorKind::ConnectionRefused => "it runs no name server".to_owned(),
            io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => {
                "it cannot be reached over this network".to_owned()
            }
            _ => error.to_string(),
        };
        let late = |_| format!("it is silent for {} s", patience.as_secs_f64());
        let answer = timeout(patience, self.over_udp(server, &query, read))
            .await
            .map_err(late)?
            .map_err(words)?;
        if answer != Answer::Truncated {
            return Ok(answer);
        }
        timeout(patience, self.over_tcp(server, &query, read)).await.map_err(late)?.map_err(words)
    }

    async fn over_udp(
        &self,
        server: IpAddr,
        query: &[u8],
        read: impl Fn(&[u8]) -> Answer,
    ) -> io::Result<Answer> {
        let socket = self.socket(server, Type::DGRAM, Protocol::UDP)?;
        let socket = UdpSocket::from_std(socket.into())?;
        // Connected, so that nobody else's packets come in and a closed port is told.
        socket.connect(self.target(server)).await?;
        socket.send(query).await?;
        let mut buffer = [0; 4096];
        for _ in 0..FOREIGN_LIMIT {
            let length = socket.recv(&mut buffer).await?;
            let answer = read(&buffer[..length]);
            if answer != Answer::Foreign {
                return Ok(answer);
            }
        }
        Ok(Answer::Foreign)
    }

    async fn over_tcp(
        &self,
        server: IpAddr,
        query: &[u8],
        read: impl Fn(&[u8]) -> Answer,
    ) -> io::Result<Answer> {
        let socket = self.socket(server, Type::STREAM, Protocol::TCP)?;
        let socket = TcpSocket::from_std_stream(socket.into());
        let mut stream = socket.connect(self.target(server)).await?;
        let length = u16::try_from(query.len()).map_err(io::Error::other)?;
        stream.write_all(&[&length.to_be_bytes(), query].concat()).await?;
        let length = stream.read_u16().await?;
        let mut answer = vec![0; usize::from(length)];
        stream.read_exact(&mut answer).await?;
        Ok(read(&answer))
    }

    /// A socket that takes this path to `server`.
    fn socket(&self, server: IpAddr, kind: Type, protocol: Protocol) -> io::Result<Socket> {
        let domain = if server.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
        let socket = Socket::new(domain, kind, Some(protocol))?;
        socket.set_nonblocking(true)?;
        // A stub on this host is not on any network.
        if server.is_loopback() {
            return Ok(socket);
        }
        if let Some(interface) = &self.interface {
            match socket.bind_device(Some(interface.as_bytes())) {
                // Before Linux 5.7 only root may; then the source address has to do.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
                other => other?,
            }
        }
        let link_local = matches!(server, IpAddr::V6(ip) if ip.is_unicast_link_local());
        let source = self.addresses.iter().find(|ip| ip.is_ipv4() == server.is_ipv4());
        match source {
            Some(source) if !link_local => socket.bind(&SocketAddr::new(*source, 0).into())?,
            None if !self.addresses.is_empty() && !link_local => {
                return Err(io::ErrorKind::NetworkUnreachable.into());
            }
            _ => {}
        }
        Ok(socket)
    }

    fn target(&self, server: IpAddr) -> SocketAddr {
        let port = if self.port == 0 { DNS } else { self.port };
        match server {
            IpAddr::V6(ip) if ip.is_unicast_link_local() => {
                SocketAddrV6::new(ip, port, 0, self.index).into()
            }
            _ => SocketAddr::new(server, port),
        }
    }

    /// IPv6 first (RFC 6724), unless the path's only IPv6 address is a unique local one and the
    /// destination is not, or the path has none: such packets hardly come back.
    fn ordered(&self, mut addresses: Vec<IpAddr>) -> Vec<IpAddr> {
        let unique_local = |ip: &IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unique_local());
        let sources = || self.addresses.iter().filter(|ip| ip.is_ipv6());
        let any = self.addresses.is_empty();
        addresses.sort_by_key(|ip| match ip {
            IpAddr::V6(_) if any || sources().any(|s| unique_local(s) == unique_local(ip)) => 0,
            IpAddr::V4(_) => 1,
            IpAddr::V6(_) => 2,
        });
        addresses
    }
}

/// A number that nobody can guess: the standard library seeds its hashers from the system.
fn random_id() -> u16 {
    (RandomState::new().build_hasher().finish() & 0xffff) as u16
}

#[cfg(test)]
mod tests;
