//! Real TCP (smoltcp) over pipes in virtual time: one pipe per direction, or two with an observer
//! between them. Tests of other crates, and the benchmark of probes, include this file by its path;
//! it needs `smoltcp` and `manyways-link` as dependencies.
#![allow(dead_code, reason = "not every crate that includes this file uses all of it")]

use std::collections::{HashMap, VecDeque};

use manyways_link::{Output, Packet, Pipe};
use manyways_trace::scenario::DirectionSpec;
use manyways_unit::{Size, Span, Time};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp;
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};

const MTU: usize = 1500;

/// One direction with the bytes of its packets.
struct Wire {
    /// In the order in which packets pass them.
    pipes: Vec<Pipe>,
    bytes: HashMap<u64, Vec<u8>>,
    sent: u64,
}

/// A packet observed between two pipes of a direction.
pub struct Passed {
    pub at: Time,
    /// Whether it is sent towards the device.
    pub is_down: bool,
    pub bytes: Vec<u8>,
}

/// Packets that a host sends and receives.
#[derive(Default)]
struct Port {
    received: VecDeque<Vec<u8>>,
    sent: VecDeque<Vec<u8>>,
}

/// A host with one interface.
pub struct Host {
    interface: Interface,
    port: Port,
    pub sockets: SocketSet<'static>,
    address: IpAddress,
}

/// A device, a server and the two directions between them.
pub struct Link {
    pub device: Host,
    pub server: Host,
    down: Wire,
    up: Wire,
    passed: Vec<Passed>,
}

impl Link {
    pub fn new(down: &DirectionSpec, up: &DirectionSpec, seed: u64) -> Self {
        Self::chain(&[down], &[up], seed)
    }

    /// Creates a link with several pipes per direction; the first one is next to the sender.
    pub fn chain(down: &[&DirectionSpec], up: &[&DirectionSpec], seed: u64) -> Self {
        Self {
            device: Host::new([10, 0, 0, 1]),
            server: Host::new([10, 0, 0, 2]),
            down: Wire::new(down, seed),
            up: Wire::new(up, seed.wrapping_add(1)),
            passed: Vec::new(),
        }
    }

    /// Returns the first pipe towards the device.
    pub fn down(&mut self) -> &mut Pipe {
        &mut self.down.pipes[0]
    }

    /// Returns the first pipe from the device.
    pub fn up(&mut self) -> &mut Pipe {
        &mut self.up.pipes[0]
    }

    /// Returns all pipes towards the device, and all from it.
    pub fn pipes(&self) -> [&[Pipe]; 2] {
        [&self.down.pipes, &self.up.pipes]
    }

    /// Returns the packets observed since the last call, in order.
    pub fn take_passed(&mut self) -> Vec<Passed> {
        std::mem::take(&mut self.passed)
    }

    /// Connects a socket of the device to a new socket of the server: (device's, server's).
    pub fn connect(
        &mut self,
        port: u16,
        socket: impl Fn() -> tcp::Socket<'static>,
    ) -> [SocketHandle; 2] {
        let mut listener = socket();
        listener.listen(port).expect("a port above zero");
        let listener = self.server.sockets.add(listener);
        let mut caller = socket();
        let server = (self.server.address, port);
        caller
            .connect(self.device.interface.context(), server, 40_000 + port)
            .expect("a new socket");
        [self.device.sockets.add(caller), listener]
    }

    /// Processes all events due at `now`. Call again after using sockets.
    pub fn pump(&mut self, now: Time) {
        self.down.deliver(now, &mut self.device.port, |at, bytes| {
            self.passed.push(Passed { at, is_down: true, bytes: bytes.to_vec() });
        });
        self.up.deliver(now, &mut self.server.port, |at, bytes| {
            self.passed.push(Passed { at, is_down: false, bytes: bytes.to_vec() });
        });
        self.device.poll(now);
        self.server.poll(now);
        self.up.send(now, &mut self.device.port);
        self.down.send(now, &mut self.server.port);
    }

    /// Returns the time for the next [`Link::pump`] call, later than `now`.
    pub fn next_wakeup(&mut self, now: Time) -> Option<Time> {
        let pipes = self.down.pipes.iter().chain(&self.up.pipes).filter_map(Pipe::next_wakeup);
        let hosts = [self.device.next_wakeup(now), self.server.next_wakeup(now)];
        let next = pipes.chain(hosts.into_iter().flatten()).min();
        next.map(|next| next.max(now + Span::from_nanos(1)))
    }
}

impl Wire {
    fn new(specs: &[&DirectionSpec], seed: u64) -> Self {
        // A single pipe draws the same random numbers as the first of several.
        let pipe =
            |(index, spec): (usize, &&DirectionSpec)| Pipe::new(spec, seed + 2 * index as u64);
        let pipes = specs.iter().enumerate().map(pipe).collect();
        Self { pipes, bytes: HashMap::new(), sent: 0 }
    }

    fn send(&mut self, now: Time, port: &mut Port) {
        for bytes in port.sent.drain(..) {
            let size = Size::from_bytes(bytes.len() as u64);
            self.pipes[0].handle(now, Packet::single(self.sent, size));
            self.bytes.insert(self.sent, bytes);
            self.sent += 1;
        }
    }

    fn deliver(&mut self, now: Time, port: &mut Port, mut passes: impl FnMut(Time, &[u8])) {
        for index in 0..self.pipes.len() {
            while let Some(output) = self.pipes[index].poll(now) {
                let id = match output {
                    Output::Deliver { id, .. } => id,
                    Output::Drop { id, .. } => {
                        self.bytes.remove(&id);
                        continue;
                    }
                };
                match self.pipes.get_mut(index + 1) {
                    Some(next) => {
                        let Some(bytes) = self.bytes.get(&id) else { continue };
                        passes(now, bytes);
                        next.handle(now, Packet::single(id, Size::from_bytes(bytes.len() as u64)));
                    }
                    None => port.received.extend(self.bytes.remove(&id)),
                }
            }
        }
    }
}

impl Host {
    fn new(address: [u8; 4]) -> Self {
        let address = IpAddress::Ipv4(address.into());
        let mut port = Port::default();
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = 1;
        let mut interface = Interface::new(config, &mut port, Instant::ZERO);
        interface.update_ip_addrs(|all| all.push(IpCidr::new(address, 24)).expect("room for one"));
        Self { interface, port, sockets: SocketSet::new(vec![]), address }
    }

    pub fn socket(&mut self, handle: SocketHandle) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(handle)
    }

    fn poll(&mut self, now: Time) {
        self.interface.poll(instant(now), &mut self.port, &mut self.sockets);
    }

    /// smoltcp counts in microseconds: the earliest next wake-up is 1 µs after now.
    fn next_wakeup(&mut self, now: Time) -> Option<Time> {
        let at = self.interface.poll_at(instant(now), &self.sockets)?;
        let at = at.max(instant(now) + smoltcp::time::Duration::from_micros(1));
        Some(Time::from_nanos(u64::try_from(at.total_micros()).ok()? * 1_000))
    }
}

fn instant(time: Time) -> Instant {
    Instant::from_micros((time.as_nanos() / 1_000) as i64)
}

struct Received(Vec<u8>);
struct Sent<'a>(&'a mut VecDeque<Vec<u8>>);

impl RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl TxToken for Sent<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut bytes = vec![0; len];
        let result = f(&mut bytes);
        self.0.push_back(bytes);
        result
    }
}

impl Device for Port {
    type RxToken<'a> = Received;
    type TxToken<'a> = Sent<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Received, Sent<'_>)> {
        let bytes = self.received.pop_front()?;
        Some((Received(bytes), Sent(&mut self.sent)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Sent<'_>> {
        Some(Sent(&mut self.sent))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = MTU;
        capabilities
    }
}
