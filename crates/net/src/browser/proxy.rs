//! A SOCKS5 proxy (RFC 1928) on loopback whose connections leave over one network, for a browser, which
//! cannot be bound to one itself.
//!
//! It looks up names with the name servers of the network. Other programs of this host could use it as
//! well while it exists; they could bind to the network themselves.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use manyways_proto::happy_eyeballs::Config;
use manyways_sys::clock::Clock;
use manyways_unit::Time;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use crate::path::{PathSpec, RaceError, plain, race, socket};

/// Connections at a time; further ones wait.
const MAX_CONNECTIONS: usize = 512;
/// Connections that are remembered.
const MAX_REMEMBERED: usize = 20_000;
/// Time for a request of the browser.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Codes of a reply (RFC 1928, 6).
const GRANTED: u8 = 0;
const HOST_UNREACHABLE: u8 = 4;
const REFUSED: u8 = 5;
const NOT_SUPPORTED: u8 = 7;

/// A running proxy. It ends, with its connections, when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    known: Arc<Mutex<Vec<ProxiedConnection>>>,
    task: AbortHandle,
}

/// A connection that the proxy opened for the browser. Times are of the kernel's monotonic clock, as those
/// of the browser are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProxiedConnection {
    pub host: String,
    pub port: u16,
    /// The browser asked for it.
    pub requested: Time,
    /// The name is looked up; at once for an address.
    pub resolved: Option<Time>,
    /// TCP's handshake has ended.
    pub connected: Option<Time>,
    /// The reason if there is no connection, as a sentence without a capital.
    pub failure: Option<String>,
}

impl Proxy {
    /// Starts a proxy on the runtime of the caller.
    ///
    /// # Errors
    /// There is no port.
    pub async fn start(path: PathSpec) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let known = Arc::new(Mutex::new(Vec::new()));
        let task = tokio::spawn(serve(listener, path, Arc::clone(&known))).abort_handle();
        Ok(Self { address, known, task })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The connections so far, in the order in which the browser asked for them.
    pub fn connections(&self) -> Vec<ProxiedConnection> {
        lock(&self.known).clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now() -> Time {
    Time::from_nanos(Clock::start().absolute(Time::ZERO))
}

async fn serve(listener: TcpListener, path: PathSpec, known: Arc<Mutex<Vec<ProxiedConnection>>>) {
    let path = Arc::new(path);
    let mut connections = JoinSet::new();
    loop {
        if connections.len() == MAX_CONNECTIONS {
            connections.join_next().await;
            continue;
        }
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let (path, known) = (Arc::clone(&path), Arc::clone(&known));
                    connections.spawn(async move {
                        if let Err(error) = forward(stream, &path, &known).await {
                            tracing::debug!("a connection of the browser failed: {error}");
                        }
                    });
                }
                Err(error) => {
                    // There are no descriptors left until a connection ends.
                    tracing::debug!("no connection of the browser is accepted: {error}");
                    if connections.join_next().await.is_none() {
                        return;
                    }
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn forward(
    mut stream: TcpStream,
    path: &PathSpec,
    known: &Mutex<Vec<ProxiedConnection>>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let request = timeout(REQUEST_TIMEOUT, request(&mut stream)).await;
    let Some((host, port)) = request.map_err(|_| io::ErrorKind::TimedOut)?? else {
        return reply(&mut stream, NOT_SUPPORTED).await;
    };
    let mut connection = ProxiedConnection {
        host: host.clone(),
        port,
        requested: now(),
        resolved: None,
        connected: None,
        failure: None,
    };
    let opened = open(path, &host, port, &mut connection).await;
    let code = match &opened {
        Ok(_) => GRANTED,
        Err((code, failure)) => {
            connection.failure = Some(failure.clone());
            *code
        }
    };
    {
        let mut known = lock(known);
        if known.len() < MAX_REMEMBERED {
            known.push(connection);
        }
    }
    reply(&mut stream, code).await?;
    if let Ok(mut server) = opened {
        copy_bidirectional(&mut stream, &mut server).await?;
    }
    Ok(())
}

async fn open(
    path: &PathSpec,
    host: &str,
    port: u16,
    connection: &mut ProxiedConnection,
) -> Result<TcpStream, (u8, String)> {
    let found = path.resolver.lookup(host).await;
    let found = found.map_err(|error| (HOST_UNREACHABLE, error.to_string()))?;
    connection.resolved = Some(now());
    let config = Config::default();
    let own = config.select(&found, |address| path.has_family(address));
    let own: Vec<SocketAddr> = own.into_iter().map(|ip| SocketAddr::new(ip, port)).collect();
    if own.is_empty() {
        let text = format!("{host} and {} have no address family in common", path.name);
        return Err((HOST_UNREACHABLE, text));
    }
    let attempt = |server| async move { socket(path, server)?.connect(server).await };
    let ready = std::future::ready(Ok(own));
    let connected = race(config, ready, std::future::pending(), attempt, |_| false).await;
    let (stream, _) = connected.map_err(|error| {
        let error: io::Error = match error {
            RaceError::Failed(Some(error)) => error,
            _ => io::ErrorKind::TimedOut.into(),
        };
        (REFUSED, format!("no connection to {host}: {}", plain(&error)))
    })?;
    connection.connected = Some(now());
    // Fails only if the connection has ended, which the copying reports.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

/// Reads the destination that a client requests. `None` if it requests anything but a connection.
async fn request(stream: &mut TcpStream) -> io::Result<Option<(String, u16)>> {
    let bad = || io::Error::from(io::ErrorKind::InvalidData);
    let [version, count] = read(stream).await?;
    if version != 5 {
        return Err(bad());
    }
    let mut methods = vec![0; count.into()];
    stream.read_exact(&mut methods).await?;
    if !methods.contains(&0) {
        stream.write_all(&[5, 0xff]).await?;
        return Err(bad());
    }
    stream.write_all(&[5, 0]).await?;
    let [version, command, _, kind] = read(stream).await?;
    let host = match kind {
        1 => IpAddr::from(Ipv4Addr::from(read::<4>(stream).await?)).to_string(),
        4 => IpAddr::from(Ipv6Addr::from(read::<16>(stream).await?)).to_string(),
        3 => {
            let [length] = read(stream).await?;
            let mut name = vec![0; length.into()];
            stream.read_exact(&mut name).await?;
            String::from_utf8(name).map_err(|_| bad())?
        }
        _ => return Err(bad()),
    };
    let port = u16::from_be_bytes(read(stream).await?);
    Ok((version == 5 && command == 1).then_some((host, port)))
}

async fn read<const N: usize>(stream: &mut TcpStream) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

/// Answers a request. The address in the answer is of no use to a browser.
async fn reply(stream: &mut TcpStream, code: u8) -> io::Result<()> {
    stream.write_all(&[5, code, 0, 1, 0, 0, 0, 0, 0, 0]).await
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ask(proxy: &Proxy, request: &[u8]) -> (TcpStream, [u8; 12]) {
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        stream.write_all(&[5, 1, 0]).await.unwrap();
        stream.write_all(request).await.unwrap();
        let answer = read(&mut stream).await.unwrap();
        (stream, answer)
    }

    #[tokio::test]
    async fn connections_are_opened_by_name_and_address() {
        let proxy = Proxy::start(PathSpec::loopback()).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        for host in [b"\x01\x7f\0\0\x01".as_slice(), b"\x03\x09localhost", b"\x03\x09127.0.0.1"] {
            let request = [b"\x05\x01\0", host, &port.to_be_bytes()].concat();
            let (mut near, answer) = ask(&proxy, &request).await;
            assert_eq!(answer[..4], [5, 0, 5, 0], "{host:?}");
            let (mut far, _) = listener.accept().await.unwrap();
            near.write_all(b"hello").await.unwrap();
            assert_eq!(&read::<5>(&mut far).await.unwrap(), b"hello");
            far.write_all(b"there").await.unwrap();
            assert_eq!(&read::<5>(&mut near).await.unwrap(), b"there");
        }
        let known = proxy.connections();
        assert_eq!(known.len(), 3);
        assert!(known.iter().all(|one| {
            one.port == port
                && one.requested <= one.resolved.unwrap()
                && one.resolved <= one.connected
        }));
        assert_eq!(known[1].host, "localhost");
    }

    #[tokio::test]
    async fn a_failure_is_an_answer_and_is_remembered() {
        let proxy = Proxy::start(PathSpec::loopback()).await.unwrap();
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let port = closed.port().to_be_bytes();
        let (_, answer) =
            ask(&proxy, &[b"\x05\x01\0\x01\x7f\0\0\x01", port.as_slice()].concat()).await;
        assert_eq!(answer[3], REFUSED);
        let failure = proxy.connections()[0].failure.clone().unwrap();
        assert_eq!(failure, "no connection to 127.0.0.1: connection refused");
        // Datagrams.
        let (_, answer) = ask(&proxy, b"\x05\x03\0\x01\x7f\0\0\x01\0\x01").await;
        assert_eq!(answer[3], NOT_SUPPORTED);
        assert_eq!(proxy.connections().len(), 1);
    }

    #[tokio::test]
    async fn what_is_no_request_is_dropped() {
        let proxy = Proxy::start(PathSpec::loopback()).await.unwrap();
        for bytes in
            [b"GET / HTTP/1.1\r\n\r\n".as_slice(), b"\x05\x01\x02", b"\x05\x01\0\x05\x01\0\x09a"]
        {
            let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
            stream.write_all(bytes).await.unwrap();
            // It ends, perhaps after an answer, and perhaps by a reset because of unread bytes.
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
        assert!(proxy.connections().is_empty());
    }
}
