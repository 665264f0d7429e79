//! A relay between client and gateway that damages data.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::testbed::{GATEWAY, Testbed, at};

/// Direction of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Receiver {
    Client,
    Gateway,
}

/// Damage after a number of bytes.
#[derive(Clone, Copy, Debug)]
pub enum Damage {
    /// One bit is inverted.
    Flip,
    /// The rest is missing, and the connection ends normally.
    Truncate,
    /// The last bytes are repeated.
    Replay,
    /// A part is missing.
    Cut,
}

/// A relay on the gateway's host that damages some connections.
pub struct Relay {
    connections: Arc<AtomicUsize>,
    client_bytes: Arc<Mutex<Vec<u8>>>,
}

impl Relay {
    /// Port of the relay.
    pub const PORT: u16 = 4434;

    /// Damages the first `connections` connections in one direction, each after `after` bytes.
    pub fn start(
        testbed: &Testbed,
        (damage, towards): (Damage, Receiver),
        connections: usize,
        after: usize,
    ) -> Self {
        let listener =
            testbed.host(|| TcpListener::bind(at(GATEWAY, Self::PORT))).expect("a port is free");
        let namespace = testbed.host_namespace();
        let seen = Arc::<AtomicUsize>::default();
        let heard = Arc::<Mutex<Vec<u8>>>::default();
        let (count, ear) = (Arc::clone(&seen), Arc::clone(&heard));
        thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let number = count.fetch_add(1, Ordering::SeqCst);
                let harm =
                    |way| (number < connections && way == towards).then_some((damage, after));
                let (down_harm, up_harm) = (harm(Receiver::Client), harm(Receiver::Gateway));
                let ear = (number == 0).then(|| Arc::clone(&ear));
                let Ok(gateway) = namespace.run(|| TcpStream::connect(at(GATEWAY, 4433))) else {
                    continue;
                };
                let (up, down) = (client.try_clone(), gateway.try_clone());
                let (up, down) = (up.expect("a descriptor"), down.expect("a descriptor"));
                thread::spawn(move || pass(up, gateway, up_harm, ear));
                thread::spawn(move || pass(down, client, down_harm, None));
            }
        });
        Self { connections: seen, client_bytes: heard }
    }

    /// A relay without damage.
    pub fn listen(testbed: &Testbed) -> Self {
        Self::start(testbed, (Damage::Flip, Receiver::Client), 0, 0)
    }

    /// All bytes of the client on the first connection.
    pub fn client_bytes(&self) -> Vec<u8> {
        self.client_bytes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Number of accepted connections.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// A relay for datagrams on the gateway's host, at the same port. It damages one in `one_of`
/// datagrams of each direction, with alternating kinds of damage.
pub struct DatagramRelay {
    damaged: Arc<AtomicUsize>,
}

impl DatagramRelay {
    /// Maximum number of source addresses in these tests.
    const SENDERS: usize = 16;

    pub fn start(testbed: &Testbed, one_of: usize) -> Self {
        let damaged = Arc::<AtomicUsize>::default();
        let bind = |port| UdpSocket::bind(at(GATEWAY, port)).expect("a port is free");
        let door = Arc::new(testbed.host(|| bind(Relay::PORT)));
        let senders = Arc::<Mutex<Vec<SocketAddr>>>::default();
        let behind: Vec<Arc<UdpSocket>> =
            testbed.host(|| (0..Self::SENDERS).map(|_| Arc::new(bind(0))).collect());
        for (number, socket) in behind.iter().cloned().enumerate() {
            socket.connect(at(GATEWAY, 4433)).expect("an address");
            let (door, senders) = (Arc::clone(&door), Arc::clone(&senders));
            let mut harm = DatagramDamage::new(one_of, &damaged);
            thread::spawn(move || {
                let mut buffer = [0; 65_536];
                loop {
                    // An error is an ICMP message for a gateway that does not run.
                    let Ok(length) = socket.recv(&mut buffer) else { continue };
                    let to = senders.lock().unwrap_or_else(PoisonError::into_inner)[number];
                    harm.pass(&mut buffer[..length], |bytes| door.send_to(bytes, to));
                }
            });
        }
        let mut harm = DatagramDamage::new(one_of, &damaged);
        thread::spawn(move || {
            let mut buffer = [0; 65_536];
            while let Ok((length, from)) = door.recv_from(&mut buffer) {
                let mut senders = senders.lock().unwrap_or_else(PoisonError::into_inner);
                let number = senders.iter().position(|sender| *sender == from);
                let number = number.unwrap_or_else(|| {
                    senders.push(from);
                    senders.len() - 1
                });
                harm.pass(&mut buffer[..length], |bytes| behind[number].send(bytes));
            }
        });
        Self { damaged }
    }

    /// Number of damaged datagrams.
    pub fn damaged(&self) -> usize {
        self.damaged.load(Ordering::SeqCst)
    }
}

/// Damage of the datagrams in one direction.
struct DatagramDamage {
    one_of: usize,
    count: usize,
    damaged: Arc<AtomicUsize>,
    /// An earlier datagram for a replay.
    earlier: Vec<u8>,
}

impl DatagramDamage {
    fn new(one_of: usize, damaged: &Arc<AtomicUsize>) -> Self {
        Self { one_of, count: 0, damaged: Arc::clone(damaged), earlier: Vec::new() }
    }

    fn pass(&mut self, bytes: &mut [u8], send: impl Fn(&[u8]) -> io::Result<usize>) {
        self.count += 1;
        let half = bytes.len() / 2;
        if !self.count.is_multiple_of(self.one_of) {
            let _ = send(bytes);
            return;
        }
        self.damaged.fetch_add(1, Ordering::SeqCst);
        let _ = match self.count / self.one_of % 4 {
            0 => {
                bytes[half] ^= 0x10;
                send(bytes)
            }
            1 => send(&bytes[..half]),
            2 => send(&bytes[half..]),
            _ => {
                let _ = send(&self.earlier);
                self.earlier = bytes.to_vec();
                send(bytes).and_then(|_| send(bytes))
            }
        };
    }
}

fn pass(
    mut from: TcpStream,
    mut to: TcpStream,
    damage: Option<(Damage, usize)>,
    ear: Option<Arc<Mutex<Vec<u8>>>>,
) {
    let mut buffer = [0; 4096];
    let mut passed = 0;
    let mut damage = damage;
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let bytes = &mut buffer[..count];
        if let Some(ear) = &ear {
            ear.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        }
        passed += count;
        let due = damage.take_if(|(_, after)| passed > *after);
        let done = match due {
            None => to.write_all(bytes),
            Some((Damage::Flip, _)) => {
                bytes[count / 2] ^= 0x10;
                to.write_all(bytes)
            }
            Some((Damage::Truncate, _)) => to.write_all(&bytes[..count / 2]).and_then(|()| {
                from.shutdown(Shutdown::Both)?;
                to.shutdown(Shutdown::Both)
            }),
            Some((Damage::Replay, _)) => to.write_all(bytes).and_then(|()| to.write_all(bytes)),
            Some((Damage::Cut, _)) => to.write_all(&bytes[count / 2..]),
        };
        if done.is_err() {
            break;
        }
    }
    // The other direction ends too, as in a broken connection.
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
