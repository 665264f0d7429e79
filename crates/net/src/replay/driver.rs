//! A client that issues the requests of a recording again.
//!
//! [`Script`] has the plan and the requests, [`run`] executes them over the network of the calling
//! thread's namespace, as `manyways-model` decides ([`Drive`]). With [`Fetching`], whole objects are
//! fetched by the clients of `manyways get`.

mod get;
mod http1;
mod http2;
mod recording;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use manyways_model::drive::classify::{self, Classification};
use manyways_model::drive::{Action, Drive, Input, Outcome, Plan, Protocol};
use manyways_sys::clock::Clock;
use manyways_unit::{Span, Time};
use manyways_wire::archive::Archive;
use manyways_wire::archive::container::ContainerError;
use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;

pub use self::get::Fetching;
use self::recording::Message;
use super::{Contents, Layout};

/// Time for a connection and its handshake.
const CONNECT_LIMIT: Duration = Duration::from_secs(60);
/// Time for a whole drive.
pub const MAX_DRIVE: Span = Span::from_secs(600);

/// How connections reach the servers.
#[derive(Clone, Debug, Default)]
pub struct Way {
    /// Source addresses of one network, one of each family. Empty: as the kernel decides.
    pub sources: Vec<IpAddr>,
    /// Multipath TCP, with the first subflow from the source.
    pub is_mptcp: bool,
    /// Fetches whole objects; only the rest goes over connections from the source.
    pub fetching: Option<Fetching>,
}

/// The requests of a recording, and when they are issued.
#[derive(Debug)]
pub struct Script {
    plan: Plan,
    messages: Vec<Message>,
    /// Of the connections of the plan.
    targets: Vec<Target>,
}

/// The server of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    address: SocketAddr,
    /// `None` without TLS.
    tls: Option<TlsTarget>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct TlsTarget {
    /// A name, or the address in text.
    name: String,
    /// Whether HTTP/2 is offered.
    is_http2: bool,
}

/// A driven replay that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Driven {
    pub outcome: Outcome,
    /// Whether it ended by itself, and not at [`MAX_DRIVE`].
    pub is_complete: bool,
}

impl Script {
    /// Makes a plan of a recording whose servers are where `layout` has them. Its requests have the first
    /// [`MAX_MATCHED_BODY`](super::MAX_MATCHED_BODY) bytes of the recorded bodies.
    ///
    /// # Errors
    /// The bodies of the requests cannot be read.
    pub fn new(contents: &Contents, layout: &Layout) -> Result<Self, ContainerError> {
        let archive = contents.archive();
        let (plan, messages) = recording::read(archive, &contents.request_bodies()?);
        let targets = (plan.connections().iter().enumerate())
            .map(|(number, planned)| {
                let connection = archive.connections.get(number).filter(|_| planned.is_recorded);
                let first = planned.exchanges.first().and_then(|first| messages.get(*first));
                recording::target(connection, first, planned.protocol, layout)
            })
            .collect();
        Ok(Self { plan, messages, targets })
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }
}

/// Classifies the traffic of a recording.
pub fn classify(archive: &Archive) -> Classification {
    recording::with(archive, |recording| classify::classify(classify::flows(recording)))
}

/// Issues the requests. Blocks until all have ended. `authority` signed the servers' certificates.
///
/// # Errors
/// The system has no descriptors or threads left.
pub fn run(script: &Script, way: &Way, authority: &CertificateDer<'static>) -> io::Result<Driven> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    runtime.block_on(local.run_until(drive(script, way, authority)))
}

/// An order to a connection.
enum Order {
    Send(usize),
    Cancel(usize),
}

/// Where connections report.
type Reports = mpsc::UnboundedSender<Input>;

async fn drive(
    script: &Script,
    way: &Way,
    authority: &CertificateDer<'static>,
) -> io::Result<Driven> {
    let clock = Clock::start();
    let configs = [config(authority, false)?, config(authority, true)?];
    let (reports, mut inputs) = mpsc::unbounded_channel();
    let messages: Rc<[Message]> = script.messages.clone().into();
    let mut orders: HashMap<usize, mpsc::UnboundedSender<Order>> = HashMap::new();
    let mut core = Drive::new(script.plan.clone(), clock.now());
    loop {
        while let Some(action) = core.poll(clock.now()) {
            match action {
                Action::Open(number) => {
                    let (sender, receiver) = mpsc::unbounded_channel();
                    orders.insert(number, sender);
                    let Some(target) = script.targets.get(number).cloned() else { continue };
                    let link = Link {
                        number,
                        way: way.clone(),
                        messages: Rc::clone(&messages),
                        reports: reports.clone(),
                        config: target
                            .tls
                            .as_ref()
                            .map(|tls| Arc::clone(&configs[usize::from(tls.is_http2)])),
                        target,
                    };
                    let fetching = way.fetching.clone();
                    match (fetching, script.plan.connections().get(number)) {
                        (Some(fetching), Some(planned)) => {
                            let exchanges = planned.exchanges.clone();
                            let serving = get::serve(link, fetching, exchanges, receiver);
                            tokio::task::spawn_local(serving);
                        }
                        _ => drop(tokio::task::spawn_local(link.serve(receiver))),
                    }
                }
                Action::Send(exchange) => {
                    let number = core.plan().exchanges()[exchange].connection;
                    let sent = orders.get(&number).map(|order| order.send(Order::Send(exchange)));
                    if !matches!(sent, Some(Ok(()))) {
                        let _ = reports.send(Input::Failed(exchange));
                    }
                }
                Action::Cancel(exchange) => {
                    let number = core.plan().exchanges()[exchange].connection;
                    if let Some(order) = orders.get(&number) {
                        let _ = order.send(Order::Cancel(exchange));
                    }
                }
                // The task of the connection ends when it can get no further order.
                Action::Close(number) => drop(orders.remove(&number)),
            }
        }
        let now = clock.now();
        let is_over = now.since(Time::ZERO) > MAX_DRIVE;
        if core.is_done() || is_over {
            return Ok(Driven { outcome: core.outcome(), is_complete: !is_over });
        }
        let limit = Time::ZERO + MAX_DRIVE;
        let wakeup = core.next_wakeup().map_or(limit, |wakeup| wakeup.min(limit));
        let wait = Duration::from_nanos(wakeup.since(now).as_nanos());
        tokio::select! {
            input = inputs.recv() => if let Some(input) = input { core.handle(clock.now(), input) },
            () = tokio::time::sleep(wait) => {}
        }
    }
}

fn config(authority: &CertificateDer<'static>, is_http2: bool) -> io::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.clone()).map_err(io::Error::other)?;
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let http1 = b"http/1.1".to_vec();
    config.alpn_protocols = if is_http2 { vec![b"h2".to_vec(), http1] } else { vec![http1] };
    // Recorded connections had whole handshakes.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// A connection of the drive.
#[derive(Clone)]
struct Link {
    number: usize,
    way: Way,
    target: Target,
    config: Option<Arc<ClientConfig>>,
    messages: Rc<[Message]>,
    reports: Reports,
}

impl Link {
    async fn serve(self, orders: mpsc::UnboundedReceiver<Order>) {
        if let Err(error) = self.open(orders).await {
            tracing::debug!("connection {} to {}: {error}", self.number, self.target.address);
            let _ = self.reports.send(Input::ConnectionFailed(self.number));
        }
    }

    /// Opens the connection, and executes orders until there are none.
    async fn open(&self, orders: mpsc::UnboundedReceiver<Order>) -> io::Result<()> {
        let limit = |_| io::Error::from(io::ErrorKind::TimedOut);
        let connecting =
            tokio::time::timeout(CONNECT_LIMIT, connect(&self.way, self.target.address));
        let stream = connecting.await.map_err(limit)??;
        let (Some(config), Some(tls)) = (&self.config, &self.target.tls) else {
            return self.speak(stream, false, orders).await;
        };
        let name = ServerName::try_from(tls.name.clone()).map_err(io::Error::other)?;
        let connector = TlsConnector::from(Arc::clone(config));
        let shaking = tokio::time::timeout(CONNECT_LIMIT, connector.connect(name, stream));
        let stream = shaking.await.map_err(limit)??;
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        self.speak(stream, is_http2, orders).await
    }

    async fn speak(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
        is_http2: bool,
        orders: mpsc::UnboundedReceiver<Order>,
    ) -> io::Result<()> {
        match is_http2 {
            true => http2::speak(self, stream, orders).await,
            false => http1::speak(self, stream, orders).await,
        }
    }

    fn report(&self, input: Input) {
        // The drive may have ended.
        let _ = self.reports.send(input);
    }
}

/// Connects over a way.
async fn connect(way: &Way, server: SocketAddr) -> io::Result<TcpStream> {
    let domain = if server.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let transport = match way.is_mptcp {
        true => socket2::Protocol::MPTCP,
        false => socket2::Protocol::TCP,
    };
    let socket = Socket::new(domain, Type::STREAM, Some(transport))?;
    let source = way.sources.iter().find(|source| source.is_ipv4() == server.is_ipv4());
    if let Some(source) = source {
        socket.bind(&SocketAddr::new(*source, 0).into())?;
    }
    socket.set_nonblocking(true)?;
    let stream = TcpSocket::from_std_stream(socket.into()).connect(server).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Whether a connection carries many exchanges at a time.
fn is_http2(protocol: Protocol) -> bool {
    protocol == Protocol::Http2
}
