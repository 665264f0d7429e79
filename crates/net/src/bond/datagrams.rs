//! Datagrams of applications at the client. Each socket of an application is one datagram flow of
//! the session. The policy decides about each destination of the socket.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use manyways_proto::bond::idle::{FLOW_IDLE_TIMEOUT, IdleTable};
use manyways_proto::bond::routing::Routing;
use manyways_proto::mux::{Destination, FlowId};
use manyways_sys::socket::transparent::{recv_with_destination, transparent_udp_from};
use manyways_wire::quic::Initials;
use tokio::io::{AsyncReadExt, Interest};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::enforcer::{PolicyEnforcer, TrackedFlow};
use super::gateway::to_destination;
use super::socks;

/// Maximum size of a datagram, in bytes.
const MAX_DATAGRAM: usize = 65_536;
/// Maximum destinations of a socket. One more clears the table, and all are decided about again.
const MAX_DESTINATIONS: usize = 4096;
/// Maximum datagrams to a destination that wait for its decision. Further ones are dropped.
const MAX_PENDING: usize = 16;
/// Maximum sockets that send replies to an application from the addresses of servers.
const MAX_REPLY_SOCKETS: usize = 64;
const DNS_PORT: u16 = 53;
/// Binding to a port below this one needs CAP_NET_BIND_SERVICE.
const FIRST_UNPRIVILEGED_PORT: u16 = 1024;

/// A UDP socket of an application.
struct ApplicationSocket {
    enforcer: PolicyEnforcer,
    socket_mark: Option<u32>,
    flow: FlowId,
    /// Address of the application's socket.
    from: SocketAddr,
    /// Destination address that the application uses; `None` if it is the final destination.
    via: Option<SocketAddr>,
    destinations: RefCell<HashMap<Destination, DestinationState>>,
    /// Sockets for direct traffic: IPv4, IPv6.
    direct_sockets: RefCell<[Option<DirectSocket>; 2]>,
}

/// A socket for direct traffic, and the task that reads it.
type DirectSocket = (Rc<UdpSocket>, AbortHandle);
/// Replies to an application, with their sources.
type ReplyReceiver = mpsc::UnboundedReceiver<(Destination, Bytes)>;

struct DestinationState {
    flow: Rc<TrackedFlow>,
    /// Parser of the first QUIC packets; `None` once they have shown a name, or that there is none.
    initials: Option<Initials>,
    /// Datagrams that wait for the decision; `None` after the decision.
    pending: Option<Vec<Bytes>>,
}

impl ApplicationSocket {
    fn new(
        enforcer: PolicyEnforcer,
        socket_mark: Option<u32>,
        from: SocketAddr,
        via: Option<SocketAddr>,
    ) -> (Rc<Self>, ReplyReceiver) {
        let (flow, replies) = enforcer.client().open_flow();
        let (destinations, direct_sockets) = (RefCell::default(), RefCell::default());
        let socket = Self { enforcer, socket_mark, flow, from, via, destinations, direct_sockets };
        (Rc::new(socket), replies)
    }

    /// Handles a datagram of the application.
    fn send(self: &Rc<Self>, to: Destination, data: &[u8]) {
        let mut destinations = self.destinations.borrow_mut();
        let is_full = destinations.len() >= MAX_DESTINATIONS && !destinations.contains_key(&to);
        let forgotten = if is_full { std::mem::take(&mut *destinations) } else { HashMap::new() };
        let destination =
            destinations.entry(to.clone()).or_insert_with(|| self.add_destination(&to));
        if is_dns(&to) {
            self.enforcer.on_dns_query(self.flow, data);
        }
        let was_peeking = destination.initials.is_some();
        self.enforcer.peek_datagram(&destination.flow, &mut destination.initials, data);
        if let Some(pending) = &mut destination.pending {
            if pending.len() < MAX_PENDING {
                pending.push(Bytes::copy_from_slice(data));
            }
            return;
        }
        let flow = Rc::clone(&destination.flow);
        let is_named = was_peeking && destination.initials.is_none();
        drop(destinations);
        drop(forgotten);
        if is_named {
            self.enforcer.decide_now(&flow);
        }
        self.forward(&flow, to, Bytes::copy_from_slice(data));
    }

    /// Adds a new destination of the application, and starts its decision.
    fn add_destination(self: &Rc<Self>, to: &Destination) -> DestinationState {
        let via = self.via.or(match to {
            Destination::Address(address, port) => Some(SocketAddr::new(*address, *port)),
            Destination::Name(..) => None,
        });
        let via = via.unwrap_or(self.from);
        let flow = self.enforcer.new_datagram_flow(self.flow, self.from, via, to);
        let (own, decided, to) = (Rc::clone(self), Rc::clone(&flow), to.clone());
        tokio::task::spawn_local(async move {
            own.enforcer.decide_datagrams(&decided).await;
            let pending = {
                let mut destinations = own.destinations.borrow_mut();
                let destination = destinations.get_mut(&to);
                let destination = destination.filter(|one| Rc::ptr_eq(&one.flow, &decided));
                destination.and_then(|destination| destination.pending.take())
            };
            for data in pending.unwrap_or_default() {
                own.forward(&decided, to.clone(), data);
            }
        });
        DestinationState { flow, initials: Some(Initials::new()), pending: Some(Vec::new()) }
    }

    fn forward(self: &Rc<Self>, flow: &Rc<TrackedFlow>, to: Destination, data: Bytes) {
        self.enforcer.count_datagram(flow, data.len(), 0);
        match self.enforcer.routing(flow) {
            Routing::Bond(label) => self.enforcer.client().send(self.flow, label, to, data),
            Routing::Block => {}
            Routing::Direct => {
                let own = Rc::clone(self);
                tokio::task::spawn_local(async move {
                    if let Err(error) = own.send_direct(&to, &data).await {
                        tracing::debug!("{} to {to}, directly: {error}", own.from);
                    }
                });
            }
        }
    }

    /// Sends a datagram directly, outside the bond.
    async fn send_direct(&self, to: &Destination, data: &[u8]) -> io::Result<()> {
        let to = match to {
            Destination::Address(address, port) => SocketAddr::new(*address, *port),
            Destination::Name(name, port) => tokio::net::lookup_host((name.as_str(), *port))
                .await?
                .next()
                .ok_or(io::ErrorKind::NotFound)?,
        };
        self.direct_socket(to)?.send_to(data, to).await?;
        Ok(())
    }

    fn direct_socket(&self, to: SocketAddr) -> io::Result<Rc<UdpSocket>> {
        let slot = &mut self.direct_sockets.borrow_mut()[usize::from(to.is_ipv6())];
        if let Some((socket, _)) = slot {
            return Ok(Rc::clone(socket));
        }
        let any: SocketAddr = match to.is_ipv6() {
            true => (Ipv6Addr::UNSPECIFIED, 0).into(),
            false => (Ipv4Addr::UNSPECIFIED, 0).into(),
        };
        let socket = std::net::UdpSocket::bind(any)?;
        if let Some(mark) = self.socket_mark {
            manyways_sys::socket::set_mark(&socket, mark)?;
        }
        socket.set_nonblocking(true)?;
        let socket = Rc::new(UdpSocket::from_std(socket)?);
        let receiver = self.enforcer.client().flow_receiver(self.flow);
        let reader = Rc::clone(&socket);
        let task = tokio::task::spawn_local(async move {
            let Some(receiver) = receiver else { return };
            let mut buffer = vec![0; MAX_DATAGRAM];
            while !receiver.is_closed() {
                if let Ok((length, from)) = reader.recv_from(&mut buffer).await {
                    let data = Bytes::copy_from_slice(&buffer[..length]);
                    let _ = receiver.send((to_destination(from), data));
                }
            }
        });
        *slot = Some((Rc::clone(&socket), task.abort_handle()));
        Ok(socket)
    }

    /// Returns whether to deliver a reply to the application.
    fn accept_reply(&self, from: &Destination, data: &[u8]) -> bool {
        if is_dns(from) {
            self.enforcer.on_dns_response(self.flow, data);
        }
        let flow = self.destinations.borrow().get(from).map(|one| Rc::clone(&one.flow));
        // A host to which the application has not sent may reply: rules are about destinations.
        let Some(flow) = flow else { return true };
        self.enforcer.count_datagram(&flow, 0, data.len());
        self.enforcer.routing(&flow) != Routing::Block
    }

    fn close(&self) {
        for (_, task) in self.direct_sockets.borrow_mut().iter_mut().filter_map(Option::take) {
            task.abort();
        }
        self.destinations.borrow_mut().clear();
        self.enforcer.client().close_flow(self.flow);
    }
}

fn is_dns(target: &Destination) -> bool {
    let (Destination::Address(_, port) | Destination::Name(_, port)) = target;
    *port == DNS_PORT
}

/// Carries the datagrams of a SOCKS5 association until its TCP connection ends.
pub(super) async fn associate(
    enforcer: PolicyEnforcer,
    socket_mark: Option<u32>,
    mut control: TcpStream,
    socket: UdpSocket,
) {
    let (Ok(own), Ok(asked_by)) = (socket.local_addr(), control.peer_addr()) else { return };
    let mut application: Option<(Rc<ApplicationSocket>, ReplyReceiver)> = None;
    let mut buffer = vec![0; MAX_DATAGRAM];
    let mut end = [0; 1];
    loop {
        let reply = async {
            match &mut application {
                Some((_, replies)) => replies.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = control.read(&mut end) => break,
            received = socket.recv_from(&mut buffer) => {
                let Ok((length, from)) = received else { continue };
                // Only the application that requested the association may use the socket.
                let known = application.as_ref().map_or(from.ip() == asked_by.ip(), |(known, _)| {
                    known.from == from
                });
                let Some((to, data)) = socks::unwrap_datagram(&buffer[..length]) else { continue };
                if !known {
                    continue;
                }
                let (outgoing, _) = application.get_or_insert_with(|| {
                    ApplicationSocket::new(enforcer.clone(), socket_mark, from, Some(own))
                });
                outgoing.send(to, data);
            }
            reply = reply => {
                let (Some((from, data)), Some((outgoing, _))) = (reply, &application) else {
                    break;
                };
                if outgoing.accept_reply(&from, &data) {
                    let _ = socket
                        .send_to(&socks::wrap_datagram(&from, &data), outgoing.from)
                        .await;
                }
            }
        }
    }
    if let Some((outgoing, _)) = application {
        outgoing.close();
    }
}

/// Carries the datagrams that kernel rules redirect to `socket`.
pub(super) async fn serve_transparent(
    enforcer: PolicyEnforcer,
    socket_mark: Option<u32>,
    socket: UdpSocket,
) {
    let clock = enforcer.client().clock();
    let mut known: IdleTable<SocketAddr, Rc<ApplicationSocket>> =
        IdleTable::new(clock.now(), FLOW_IDLE_TIMEOUT);
    let (gone, mut ended) = mpsc::unbounded_channel::<(SocketAddr, FlowId)>();
    let mut buffer = vec![0; MAX_DATAGRAM];
    loop {
        tokio::select! {
            Some((from, flow)) = ended.recv() => {
                if known.get(from).is_some_and(|outgoing| outgoing.flow == flow) {
                    known.remove(from);
                }
                continue;
            }
            ready = socket.readable() => {
                if ready.is_err() {
                    return;
                }
                let received = socket.try_io(Interest::READABLE, || {
                    recv_with_destination(socket.as_fd(), &mut buffer)
                });
                let Ok(received) = received else { continue };
                let (from, to) = (received.source, received.destination);
                let now = clock.now();
                let outgoing = match known.use_at(now, from) {
                    Some(outgoing) => Rc::clone(outgoing),
                    None => {
                        let (outgoing, replies) =
                            ApplicationSocket::new(enforcer.clone(), socket_mark, from, None);
                        let replying = run_replies(Rc::clone(&outgoing), replies, gone.clone());
                        tokio::task::spawn_local(replying);
                        known.insert(now, from, Rc::clone(&outgoing));
                        outgoing
                    }
                };
                outgoing.send(to_destination(to), &buffer[..received.length]);
            }
        }
        for (_, outgoing) in known.expire(clock.now()) {
            outgoing.close();
        }
    }
}

/// Sends replies to an application, each from the address of its source.
async fn run_replies(
    outgoing: Rc<ApplicationSocket>,
    mut replies: ReplyReceiver,
    gone: mpsc::UnboundedSender<(SocketAddr, FlowId)>,
) {
    let mut sockets: HashMap<SocketAddr, std::net::UdpSocket> = HashMap::new();
    while let Some((from, data)) = replies.recv().await {
        if !outgoing.accept_reply(&from, &data) {
            continue;
        }
        let Destination::Address(address, port) = from else { continue };
        let from = SocketAddr::new(address, port);
        if sockets.len() > MAX_REPLY_SOCKETS {
            sockets.clear();
        }
        let socket = match sockets.entry(from) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(entry) => {
                match transparent_udp_from(from, outgoing.socket_mark) {
                    Ok(socket) => entry.insert(socket),
                    Err(error) => {
                        log_reply_failure(from, &error);
                        continue;
                    }
                }
            }
        };
        let _ = socket.send_to(&data, outgoing.from);
    }
    outgoing.close();
    let _ = gone.send((outgoing.from, outgoing.flow));
}

/// Warns that an application gets no reply: once for each error kind, because each datagram may
/// fail.
fn log_reply_failure(from: SocketAddr, error: &io::Error) {
    static REPORTED: Mutex<Vec<io::ErrorKind>> = Mutex::new(Vec::new());
    let mut reported = REPORTED.lock().unwrap_or_else(PoisonError::into_inner);
    if reported.contains(&error.kind()) {
        tracing::debug!("cannot send a reply from {from}: {error}");
        return;
    }
    reported.push(error.kind());
    let hint = hint(from, error.kind());
    tracing::warn!("cannot send replies from {from} and possibly other addresses: {error}{hint}");
}

fn hint(from: SocketAddr, kind: io::ErrorKind) -> &'static str {
    let is_denied = kind == io::ErrorKind::PermissionDenied;
    match is_denied && from.port() < FIRST_UNPRIVILEGED_PORT {
        true => "; replies from ports below 1024 need CAP_NET_BIND_SERVICE: check the systemd unit",
        false => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_without_the_capability_is_told_of_it() {
        let hint = |port, kind| hint(SocketAddr::from(([192, 0, 2, 1], port)), kind);
        let capability = "CAP_NET_BIND_SERVICE";
        assert!(hint(53, io::ErrorKind::PermissionDenied).contains(capability));
        assert_eq!(hint(1024, io::ErrorKind::PermissionDenied), "");
        assert_eq!(hint(53, io::ErrorKind::AddrInUse), "");
    }
}
