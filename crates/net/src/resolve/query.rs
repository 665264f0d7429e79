//! One query to one name server, over UDP or TCP.

use std::future::{Future, poll_fn};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::pin::Pin;
use std::task::Poll;

use manyways_proto::resolve::{Edns, Family, QueryAnswer, Transport};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, UdpSocket};

use super::PathResolver;
use super::message::{DnsAnswer, ResponseCode, encode_query, parse_response};

/// The port of name servers.
pub(super) const DNS_PORT: u16 = 53;
/// Packets that do not answer the query and are ignored before the query fails.
const MAX_UNRELATED: usize = 32;

/// Why a query was not answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// The host runs no name server.
    #[error("no name server runs there")]
    NotRunning,
    /// No route of the path leads to the server.
    #[error("unreachable over this network")]
    Unreachable,
    /// The server reports an error.
    #[error("{0}")]
    Response(ResponseCode),
    /// The received packets do not answer the query.
    #[error("the answers do not fit the query")]
    Unrelated,
    /// The query cannot be encoded or sent.
    #[error("the query cannot be sent")]
    NotSent,
    /// The server closed the connection before its answer was complete.
    #[error("the connection was closed too early")]
    Closed,
    /// Another error of the operating system, with its number.
    #[error("{}", io::Error::from_raw_os_error(*.0))]
    System(i32),
}

impl From<io::Error> for QueryError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::NotRunning,
            io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => Self::Unreachable,
            _ => error.raw_os_error().map_or(Self::Closed, Self::System),
        }
    }
}

/// An answer and its size.
pub(crate) struct Response {
    pub(crate) answer: DnsAnswer,
    /// Bytes of all received messages, without headers.
    #[cfg_attr(not(feature = "probe"), expect(dead_code, reason = "only probes count bytes"))]
    pub(crate) length: usize,
}

type Answer = QueryAnswer<QueryError>;
type Running<'a> = Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;

/// The unanswered queries of one look-up: at most one per family.
pub(super) struct Queries<'a> {
    resolver: &'a PathResolver,
    host: &'a str,
    running: Vec<(Family, Running<'a>)>,
}

impl<'a> Queries<'a> {
    pub(super) fn new(resolver: &'a PathResolver, host: &'a str) -> Self {
        Self { resolver, host, running: Vec::new() }
    }

    /// Starts a query, and drops an unanswered one of the same family.
    pub(super) fn start(
        &mut self,
        server: IpAddr,
        family: Family,
        transport: Transport,
        edns: Edns,
    ) {
        self.running.retain(|(other, _)| *other != family);
        let (resolver, host) = (self.resolver, self.host);
        let query = Box::pin(async move {
            let response = resolver.query(server, host, family, transport, edns).await;
            match response.map(|response| response.answer) {
                Ok(DnsAnswer::Addresses(addresses)) => QueryAnswer::Addresses(addresses),
                Ok(DnsAnswer::NoSuchName) => QueryAnswer::NoSuchName,
                Ok(DnsAnswer::Truncated) => QueryAnswer::Truncated,
                Ok(DnsAnswer::Failed(code)) if code.may_concern_edns() => {
                    QueryAnswer::EdnsError(QueryError::Response(code))
                }
                Ok(DnsAnswer::Failed(code)) => QueryAnswer::Failed(QueryError::Response(code)),
                Ok(DnsAnswer::Unrelated) => QueryAnswer::Failed(QueryError::Unrelated),
                Err(error) => QueryAnswer::Failed(error),
            }
        });
        self.running.push((family, query));
    }

    /// Returns the next answer; never ready without a query.
    pub(super) async fn next(&mut self) -> (Family, Answer) {
        poll_fn(|context| {
            for at in 0..self.running.len() {
                if let Poll::Ready(answer) = self.running[at].1.as_mut().poll(context) {
                    let (family, _) = self.running.swap_remove(at);
                    return Poll::Ready((family, answer));
                }
            }
            Poll::Pending
        })
        .await
    }
}

impl PathResolver {
    /// Sends one query to a name server and waits for its answer. The caller sets the timeout.
    ///
    /// # Errors
    /// The server does not answer properly; `NotSent` if `host` is not a host name.
    pub(crate) async fn query(
        &self,
        server: IpAddr,
        host: &str,
        family: Family,
        transport: Transport,
        edns: Edns,
    ) -> Result<Response, QueryError> {
        let id = random_id();
        let query = encode_query(id, host, family, edns).ok_or(QueryError::NotSent)?;
        let parse = |bytes: &[u8]| parse_response(bytes, id, host, family);
        Ok(match transport {
            Transport::Udp => self.over_udp(server, &query, parse).await?,
            Transport::Tcp => self.over_tcp(server, &query, parse).await?,
        })
    }

    async fn over_udp(
        &self,
        server: IpAddr,
        query: &[u8],
        parse: impl Fn(&[u8]) -> DnsAnswer,
    ) -> io::Result<Response> {
        let socket = self.socket(server, Type::DGRAM, Protocol::UDP)?;
        let socket = UdpSocket::from_std(socket.into())?;
        // A connected socket receives no packets of other hosts, and reports a closed port.
        socket.connect(self.target(server)).await?;
        socket.send(query).await?;
        let (mut buffer, mut length) = ([0; 4096], 0);
        for _ in 0..MAX_UNRELATED {
            let received = socket.recv(&mut buffer).await?;
            length += received;
            let answer = parse(&buffer[..received]);
            if answer != DnsAnswer::Unrelated {
                return Ok(Response { answer, length });
            }
        }
        Ok(Response { answer: DnsAnswer::Unrelated, length })
    }

    async fn over_tcp(
        &self,
        server: IpAddr,
        query: &[u8],
        parse: impl Fn(&[u8]) -> DnsAnswer,
    ) -> io::Result<Response> {
        let socket = self.socket(server, Type::STREAM, Protocol::TCP)?;
        let socket = TcpSocket::from_std_stream(socket.into());
        let mut stream = socket.connect(self.target(server)).await?;
        let length = u16::try_from(query.len()).map_err(io::Error::other)?;
        stream.write_all(&[&length.to_be_bytes(), query].concat()).await?;
        let length = stream.read_u16().await?;
        let mut answer = vec![0; usize::from(length)];
        stream.read_exact(&mut answer).await?;
        Ok(Response { answer: parse(&answer), length: answer.len() + 2 })
    }

    /// Creates a socket whose packets reach `server` over this path.
    fn socket(&self, server: IpAddr, kind: Type, protocol: Protocol) -> io::Result<Socket> {
        let domain = if server.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
        let socket = Socket::new(domain, kind, Some(protocol))?;
        socket.set_nonblocking(true)?;
        // A stub resolver on this host is not reached over a network.
        if server.is_loopback() {
            return Ok(socket);
        }
        if let Some(interface) = &self.interface {
            match socket.bind_device(Some(interface.as_bytes())) {
                // Linux before 5.7 permits this only to root; then binding to the source address
                // must suffice.
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
        let port = if self.port == 0 { DNS_PORT } else { self.port };
        match server {
            IpAddr::V6(ip) if ip.is_unicast_link_local() => {
                SocketAddrV6::new(ip, port, 0, self.index).into()
            }
            _ => SocketAddr::new(server, port),
        }
    }
}

/// An unpredictable number: the standard library seeds its hashers from the system.
fn random_id() -> u16 {
    (RandomState::new().build_hasher().finish() & 0xffff) as u16
}
