//! Datagrams of applications, at the client: each socket of theirs is a flow, and each end that it
//! talks to is decided about for itself.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use manyways_proto::mux::{FlowId, Target};
use manyways_sys::socket::transparent::{recv_with_original, transparent_udp_from};
use manyways_wire::quic::Initials;
use tokio::io::{AsyncReadExt, Interest};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::gateway::target;
use super::rules::{Fate, Rules, Traffic};
use super::socks;

/// A flow of datagrams that nobody uses for so long is over.
const IDLE: Duration = Duration::from_secs(150);
const LARGEST: usize = 65_536;
/// So many ends of one socket are remembered. With more, those of before are decided about anew.
const PEERS: usize = 4096;
/// So many datagrams wait until it is clear what becomes of them.
const WAITING: usize = 16;
const DNS: u16 = 53;
/// Ports below this may only be had with a capability.
const PRIVILEGED: u16 = 1024;

/// One socket of an application.
struct Outgoing {
    rules: Rules,
    mark: Option<u32>,
    flow: FlowId,
    /// Its address, and where it sends to as it sees it; none where that is the target itself.
    from: SocketAddr,
    via: Option<SocketAddr>,
    peers: RefCell<HashMap<Target, Peer>>,
    /// Sockets past the bond, for IPv4 and IPv6.
    outside: RefCell<[Option<Outside>; 2]>,
}

/// A socket past the bond, and who reads it.
type Outside = (Rc<UdpSocket>, AbortHandle);
/// What comes back, and from where.
type Answers = mpsc::UnboundedReceiver<(Target, Bytes)>;

/// An end that it talks to.
struct Peer {
    traffic: Rc<Traffic>,
    /// The beginning of a QUIC connection, until it shows a name or that there is none.
    initials: Option<Initials>,
    /// What waits for the decision; none once it was taken.
    waiting: Option<Vec<Bytes>>,
}

impl Outgoing {
    fn new(
        rules: Rules,
        mark: Option<u32>,
        from: SocketAddr,
        via: Option<SocketAddr>,
    ) -> (Rc<Self>, Answers) {
        let (flow, answers) = rules.client().open_flow();
        let (peers, outside) = (RefCell::default(), RefCell::default());
        (Rc::new(Self { rules, mark, flow, from, via, peers, outside }), answers)
    }

    /// The application sent something.
    fn send(self: &Rc<Self>, to: Target, data: &[u8]) {
        let mut peers = self.peers.borrow_mut();
        if peers.len() >= PEERS && !peers.contains_key(&to) {
            peers.clear();
        }
        let peer = peers.entry(to.clone()).or_insert_with(|| self.meet(&to));
        if is_dns(&to) {
            self.rules.asked(self.flow, data);
        }
        let peeking = peer.initials.is_some();
        self.rules.peek(&peer.traffic, &mut peer.initials, data);
        if let Some(waiting) = &mut peer.waiting {
            if waiting.len() < WAITING {
                waiting.push(Bytes::copy_from_slice(data));
            }
            return;
        }
        let traffic = Rc::clone(&peer.traffic);
        let named = peeking && peer.initials.is_none();
        drop(peers);
        if named {
            self.rules.judge_now(&traffic);
        }
        self.pass(&traffic, to, Bytes::copy_from_slice(data));
    }

    /// An end that it did not send to before.
    fn meet(self: &Rc<Self>, to: &Target) -> Peer {
        let via = self.via.or(match to {
            Target::Address(address, port) => Some(SocketAddr::new(*address, *port)),
            Target::Name(..) => None,
        });
        let traffic = self.rules.datagrams(self.flow, self.from, via.unwrap_or(self.from), to);
        let (own, asked, to) = (Rc::clone(self), Rc::clone(&traffic), to.clone());
        tokio::task::spawn_local(async move {
            own.rules.judge(&asked).await;
            let waited = {
                let mut peers = own.peers.borrow_mut();
                let peer = peers.get_mut(&to).filter(|peer| Rc::ptr_eq(&peer.traffic, &asked));
                peer.and_then(|peer| peer.waiting.take())
            };
            for data in waited.unwrap_or_default() {
                own.pass(&asked, to.clone(), data);
            }
        });
        Peer { traffic, initials: Some(Initials::new()), waiting: Some(Vec::new()) }
    }

    fn pass(self: &Rc<Self>, traffic: &Rc<Traffic>, to: Target, data: Bytes) {
        self.rules.passed(traffic, data.len(), 0);
        match traffic.fate.get() {
            Fate::Bond(label) => self.rules.client().send(self.flow, label, to, data),
            Fate::Block => {}
            Fate::Direct => {
                let own = Rc::clone(self);
                tokio::task::spawn_local(async move {
                    if let Err(error) = own.past(&to, &data).await {
                        tracing::debug!("{} to {to}, directly: {error}", own.from);
                    }
                });
            }
        }
    }

    /// Sends past the bond.
    async fn past(&self, to: &Target, data: &[u8]) -> io::Result<()> {
        let to = match to {
            Target::Address(address, port) => SocketAddr::new(*address, *port),
            Target::Name(name, port) => tokio::net::lookup_host((name.as_str(), *port))
                .await?
                .next()
                .ok_or(io::ErrorKind::NotFound)?,
        };
        self.outside(to)?.send_to(data, to).await?;
        Ok(())
    }

    fn outside(&self, to: SocketAddr) -> io::Result<Rc<UdpSocket>> {
        let slot = &mut self.outside.borrow_mut()[usize::from(to.is_ipv6())];
        if let Some((socket, _)) = slot {
            return Ok(Rc::clone(socket));
        }
        let any: SocketAddr = match to.is_ipv6() {
            true => (Ipv6Addr::UNSPECIFIED, 0).into(),
            false => (Ipv4Addr::UNSPECIFIED, 0).into(),
        };
        let socket = std::net::UdpSocket::bind(any)?;
        if let Some(mark) = self.mark {
            manyways_sys::socket::set_mark(&socket, mark)?;
        }
        socket.set_nonblocking(true)?;
        let socket = Rc::new(UdpSocket::from_std(socket)?);
        let receiver = self.rules.client().flow_receiver(self.flow);
        let reader = Rc::clone(&socket);
        let task = tokio::task::spawn_local(async move {
            let Some(receiver) = receiver else { return };
            let mut buffer = vec![0; LARGEST];
            while !receiver.is_closed() {
                if let Ok((length, from)) = reader.recv_from(&mut buffer).await {
                    let data = Bytes::copy_from_slice(&buffer[..length]);
                    let _ = receiver.send((target(from), data));
                }
            }
        });
        *slot = Some((Rc::clone(&socket), task.abort_handle()));
        Ok(socket)
    }

    /// Whether the application may have what came from there.
    fn came(&self, from: &Target, data: &[u8]) -> bool {
        if is_dns(from) {
            self.rules.answered(self.flow, data);
        }
        let traffic = self.peers.borrow().get(from).map(|peer| Rc::clone(&peer.traffic));
        // Who was never sent to may answer all the same: the rules speak of what was.
        let Some(traffic) = traffic else { return true };
        self.rules.passed(&traffic, 0, data.len());
        traffic.fate.get() != Fate::Block
    }

    fn end(&self) {
        for (_, task) in self.outside.borrow_mut().iter_mut().filter_map(Option::take) {
            task.abort();
        }
        self.peers.borrow_mut().clear();
        self.rules.client().close_flow(self.flow);
    }
}

fn is_dns(target: &Target) -> bool {
    let (Target::Address(_, port) | Target::Name(_, port)) = target;
    *port == DNS
}

/// Carries the datagrams of a SOCKS5 association as long as its connection lives.
pub(super) async fn associate(
    rules: Rules,
    mark: Option<u32>,
    mut control: TcpStream,
    socket: UdpSocket,
) {
    let (Ok(own), Ok(asked_by)) = (socket.local_addr(), control.peer_addr()) else { return };
    let mut application: Option<(Rc<Outgoing>, Answers)> = None;
    let mut buffer = vec![0; LARGEST];
    let mut end = [0; 1];
    loop {
        let answered = async {
            match &mut application {
                Some((_, answers)) => answers.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = control.read(&mut end) => break,
            received = socket.recv_from(&mut buffer) => {
                let Ok((length, from)) = received else { continue };
                // Only the application that asked for it may use it.
                let known = application.as_ref().map_or(from.ip() == asked_by.ip(), |(known, _)| {
                    known.from == from
                });
                let Some((to, data)) = socks::unwrap_datagram(&buffer[..length]) else { continue };
                if !known {
                    continue;
                }
                let (outgoing, _) = application
                    .get_or_insert_with(|| Outgoing::new(rules.clone(), mark, from, Some(own)));
                outgoing.send(to, data);
            }
            answer = answered => {
                let (Some((from, data)), Some((outgoing, _))) = (answer, &application) else {
                    break;
                };
                if outgoing.came(&from, &data) {
                    let _ = socket
                        .send_to(&socks::wrap_datagram(&from, &data), outgoing.from)
                        .await;
                }
            }
        }
    }
    if let Some((outgoing, _)) = application {
        outgoing.end();
    }
}

/// Carries the datagrams that rules of the kernel bring to `socket`.
pub(super) async fn take(rules: Rules, mark: Option<u32>, socket: UdpSocket) {
    let mut known: HashMap<SocketAddr, (Rc<Outgoing>, Instant)> = HashMap::new();
    let (gone, mut ended) = mpsc::unbounded_channel::<(SocketAddr, FlowId)>();
    let mut buffer = vec![0; LARGEST];
    let mut swept = Instant::now();
    loop {
        tokio::select! {
            Some((from, flow)) = ended.recv() => {
                if known.get(&from).is_some_and(|(outgoing, _)| outgoing.flow == flow) {
                    known.remove(&from);
                }
                continue;
            }
            ready = socket.readable() => {
                if ready.is_err() {
                    return;
                }
                let received = socket.try_io(Interest::READABLE, || {
                    recv_with_original(socket.as_fd(), &mut buffer)
                });
                let Ok(received) = received else { continue };
                let (from, to) = (received.source, received.destination);
                let (outgoing, used) = known.entry(from).or_insert_with(|| {
                    let (outgoing, answers) = Outgoing::new(rules.clone(), mark, from, None);
                    let answering = answer(Rc::clone(&outgoing), answers, gone.clone());
                    tokio::task::spawn_local(answering);
                    (outgoing, Instant::now())
                });
                *used = Instant::now();
                outgoing.send(target(to), &buffer[..received.length]);
            }
        }
        if swept.elapsed() > IDLE / 10 {
            swept = Instant::now();
            known.retain(|_, (outgoing, used)| {
                let idle = used.elapsed() > IDLE;
                if idle {
                    outgoing.end();
                }
                !idle
            });
        }
    }
}

/// Gives an application its answers, in the name of whoever sent them.
async fn answer(
    outgoing: Rc<Outgoing>,
    mut answers: Answers,
    gone: mpsc::UnboundedSender<(SocketAddr, FlowId)>,
) {
    let mut sockets: HashMap<SocketAddr, std::net::UdpSocket> = HashMap::new();
    while let Some((from, data)) = answers.recv().await {
        if !outgoing.came(&from, &data) {
            continue;
        }
        let Target::Address(address, port) = from else { continue };
        let from = SocketAddr::new(address, port);
        // Bounded: an application may talk to many.
        if sockets.len() > 64 {
            sockets.clear();
        }
        let socket = match sockets.entry(from) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(entry) => {
                match transparent_udp_from(from, outgoing.mark) {
                    Ok(socket) => entry.insert(socket),
                    Err(error) => {
                        complain(from, &error);
                        continue;
                    }
                }
            }
        };
        let _ = socket.send_to(&data, outgoing.from);
    }
    outgoing.end();
    let _ = gone.send((outgoing.from, outgoing.flow));
}

/// Says that an application gets no answer: of each cause once, since it may be so of each datagram.
fn complain(from: SocketAddr, error: &io::Error) {
    static SAID: Mutex<Vec<io::ErrorKind>> = Mutex::new(Vec::new());
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if said.contains(&error.kind()) {
        tracing::debug!("no answer in the name of {from}: {error}");
        return;
    }
    said.push(error.kind());
    let hint = hint(from, error.kind());
    tracing::warn!("no answer in the name of {from}, nor maybe of others: {error}{hint}");
}

/// What the user can do about it.
fn hint(from: SocketAddr, kind: io::ErrorKind) -> &'static str {
    let is_denied = kind == io::ErrorKind::PermissionDenied;
    match is_denied && from.port() < PRIVILEGED {
        true => "; ports below 1024 need CAP_NET_BIND_SERVICE: has a unit taken it away?",
        false => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_not_answer_as_a_name_server_hears_of_the_capability() {
        let hint = |port, kind| hint(SocketAddr::from(([192, 0, 2, 1], port)), kind);
        let capability = "CAP_NET_BIND_SERVICE";
        assert!(hint(53, io::ErrorKind::PermissionDenied).contains(capability));
        assert_eq!(hint(1024, io::ErrorKind::PermissionDenied), "");
        assert_eq!(hint(53, io::ErrorKind::AddrInUse), "");
    }
}
