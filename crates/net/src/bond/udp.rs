//! Datagrams at the gateway: one socket for each socket of an application, whatever it sends to, so
//! that its address looks the same from everywhere (RFC 4787 REQ-1).

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use manyways_proto::mux::{FlowId, Input};
use tokio::net::UdpSocket;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::carrier::Chunk;
use super::gateway::target;
use super::limit::Way;
use super::session::Handle;

/// A flow without a datagram for so long is over (RFC 4787 REQ-5 asks for two minutes).
const IDLE: Duration = Duration::from_secs(150);
const LARGEST: usize = 65_536;

/// The sockets of a session's flows.
pub(super) struct Outlets {
    handle: Handle,
    open: Rc<RefCell<HashMap<FlowId, Outlet>>>,
}

struct Outlet {
    /// For IPv4 and for IPv6.
    sockets: [Option<Rc<UdpSocket>>; 2],
    tasks: Vec<AbortHandle>,
    used: Instant,
    label: u8,
}

impl Drop for Outlet {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Outlets {
    pub(super) fn new(handle: Handle) -> Self {
        let open: Rc<RefCell<HashMap<FlowId, Outlet>>> = Rc::default();
        let (swept, owner) = (Rc::downgrade(&open), handle.clone());
        tokio::task::spawn_local(async move {
            loop {
                tokio::time::sleep(IDLE / 10).await;
                let Some(open) = swept.upgrade() else { break };
                let idle: Vec<FlowId> = open
                    .borrow()
                    .iter()
                    .filter(|(_, outlet)| outlet.used.elapsed() > IDLE)
                    .map(|(flow, _)| *flow)
                    .collect();
                for flow in idle {
                    open.borrow_mut().remove(&flow);
                    owner.handle(Input::CloseFlow { flow });
                }
            }
        });
        Self { handle, open }
    }

    pub(super) async fn send(&self, flow: FlowId, label: u8, to: SocketAddr, data: &[u8]) {
        let Some(socket) = self.socket(flow, label, to).await else { return };
        // What the network does not take is lost, as datagrams are.
        let _ = socket.send_to(data, to).await;
    }

    async fn socket(&self, flow: FlowId, label: u8, to: SocketAddr) -> Option<Rc<UdpSocket>> {
        let family = usize::from(to.is_ipv6());
        {
            let mut open = self.open.borrow_mut();
            let outlet = open.entry(flow).or_insert_with(|| Outlet {
                sockets: [None, None],
                tasks: Vec::new(),
                used: Instant::now(),
                label,
            });
            outlet.used = Instant::now();
            outlet.label = label;
            if let Some(socket) = &outlet.sockets[family] {
                return Some(Rc::clone(socket));
            }
        }
        let any: SocketAddr = match to.is_ipv6() {
            true => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
            false => (std::net::Ipv4Addr::UNSPECIFIED, 0).into(),
        };
        let socket = Rc::new(UdpSocket::bind(any).await.ok()?);
        let (handle, open) = (self.handle.clone(), Rc::downgrade(&self.open));
        let reader = Rc::clone(&socket);
        let task = tokio::task::spawn_local(async move {
            let mut buffer = vec![0; LARGEST];
            loop {
                let Ok((length, from)) = reader.recv_from(&mut buffer).await else { continue };
                let Some(open) = open.upgrade() else { return };
                let label = match open.borrow_mut().get_mut(&flow) {
                    Some(outlet) => {
                        outlet.used = Instant::now();
                        outlet.label
                    }
                    None => return,
                };
                if !handle.with(|session| session.passes(Way::Down, length)) {
                    continue;
                }
                let data = Chunk(Bytes::copy_from_slice(&buffer[..length]));
                handle.handle(Input::Datagram { flow, label, peer: target(from), data });
            }
        });
        let mut open = self.open.borrow_mut();
        let outlet = open.get_mut(&flow)?;
        outlet.tasks.push(task.abort_handle());
        outlet.sockets[family] = Some(Rc::clone(&socket));
        Some(socket)
    }

    pub(super) fn close(&self, flow: FlowId) {
        self.open.borrow_mut().remove(&flow);
    }
}
