//! Datagrams at the gateway. All datagrams of an application's socket use one socket per IP
//! version, whatever their destinations: the mapping is endpoint-independent (RFC 4787, REQ-1).

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use bytes::Bytes;
use manyways_proto::bond::idle::{FLOW_IDLE_TIMEOUT, IdleTable};
use manyways_proto::bond::rate_limit::Direction;
use manyways_proto::mux::{FlowId, Input};
use manyways_sys::clock::Clock;
use tokio::net::UdpSocket;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::carrier::Chunk;
use super::descriptors::{ClientDescriptors, Descriptor};
use super::gateway::to_destination;
use super::session::SessionHandle;
use super::timer;

/// Maximum size of a datagram, in bytes.
const MAX_DATAGRAM: usize = 65_536;

/// The sockets of a session's datagram flows.
pub(super) struct FlowSockets {
    handle: SessionHandle,
    descriptors: ClientDescriptors,
    clock: Clock,
    /// Shared, because each datagram is copied out of it at once.
    buffer: Rc<RefCell<Vec<u8>>>,
    open: Rc<RefCell<IdleTable<FlowId, FlowSocket>>>,
    /// Notified when a flow was added.
    opened: Rc<Notify>,
}

struct FlowSocket {
    /// IPv4, IPv6.
    sockets: [Option<Rc<UdpSocket>>; 2],
    tasks: Vec<AbortHandle>,
    descriptors: Vec<Descriptor>,
    label: u8,
}

impl Drop for FlowSocket {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Drop for FlowSockets {
    fn drop(&mut self) {
        // The task of the idle flows sees that they are gone, and ends: it has the session.
        self.opened.notify_one();
    }
}

impl FlowSockets {
    pub(super) fn new(handle: SessionHandle, descriptors: ClientDescriptors) -> Self {
        let clock = handle.with(|session| session.clock());
        let table = IdleTable::new(clock.now(), FLOW_IDLE_TIMEOUT);
        let open: Rc<RefCell<_>> = Rc::new(RefCell::new(table));
        let opened = Rc::new(Notify::new());
        let (weak, owner, more) = (Rc::downgrade(&open), handle.clone(), Rc::clone(&opened));
        tokio::task::spawn_local(async move {
            let next_wakeup = || weak.upgrade().map(|open| open.borrow().next_wakeup());
            while let Some(wakeup) = next_wakeup() {
                tokio::select! {
                    () = timer::until(&clock, wakeup) => {}
                    () = more.notified() => {}
                }
                let Some(open) = weak.upgrade() else { break };
                let idle = open.borrow_mut().expire(clock.now());
                for (flow, _) in idle {
                    owner.handle(Input::CloseFlow { flow });
                }
            }
        });
        let buffer = Rc::new(RefCell::new(vec![0; MAX_DATAGRAM]));
        Self { handle, descriptors, clock, buffer, open, opened }
    }

    pub(super) async fn send(&self, flow: FlowId, label: u8, to: SocketAddr, data: &[u8]) {
        let Some(socket) = self.socket(flow, label, to).await else { return };
        // A datagram that the network does not accept is lost.
        let _ = socket.send_to(data, to).await;
    }

    async fn socket(&self, flow: FlowId, label: u8, to: SocketAddr) -> Option<Rc<UdpSocket>> {
        let family = usize::from(to.is_ipv6());
        {
            let now = self.clock.now();
            let mut open = self.open.borrow_mut();
            match open.use_at(now, flow) {
                Some(known) => {
                    known.label = label;
                    if let Some(socket) = &known.sockets[family] {
                        return Some(Rc::clone(socket));
                    }
                }
                None => {
                    let new = FlowSocket {
                        sockets: [None, None],
                        tasks: Vec::new(),
                        descriptors: Vec::new(),
                        label,
                    };
                    open.insert(now, flow, new);
                    self.opened.notify_one();
                }
            }
        }
        let any: SocketAddr = match to.is_ipv6() {
            true => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
            false => (std::net::Ipv4Addr::UNSPECIFIED, 0).into(),
        };
        let descriptor = self.descriptors.take()?;
        let socket = Rc::new(UdpSocket::bind(any).await.ok()?);
        let (handle, open, clock) = (self.handle.clone(), Rc::downgrade(&self.open), self.clock);
        let (reader, buffer) = (Rc::clone(&socket), Rc::clone(&self.buffer));
        let task = tokio::task::spawn_local(async move {
            loop {
                if reader.readable().await.is_err() {
                    return;
                }
                // Not borrowed while the task waits.
                let received = reader.try_recv_from(&mut buffer.borrow_mut());
                let Ok((length, from)) = received else { continue };
                let Some(open) = open.upgrade() else { return };
                let label = open.borrow_mut().use_at(clock.now(), flow).map(|known| known.label);
                let Some(label) = label else { return };
                if !handle.with(|session| session.admit_datagram(Direction::Down, length)) {
                    continue;
                }
                let data = Chunk(Bytes::copy_from_slice(&buffer.borrow()[..length]));
                handle.handle(Input::Datagram { flow, label, peer: to_destination(from), data });
            }
        });
        let mut open = self.open.borrow_mut();
        let known = open.use_at(self.clock.now(), flow)?;
        known.tasks.push(task.abort_handle());
        known.descriptors.push(descriptor);
        known.sockets[family] = Some(Rc::clone(&socket));
        Some(socket)
    }

    pub(super) fn close(&self, flow: FlowId) {
        self.open.borrow_mut().remove(flow);
    }
}
