//! Somebody between client and gateway who does not pass everything on as it was.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::world::{GATEWAY, World, at};

/// What happens to the bytes towards the client, once so many have passed.
#[derive(Clone, Copy, Debug)]
pub enum Damage {
    /// One bit is another.
    Flip,
    /// The rest is missing, and the connection ends as if all was there.
    Truncate,
    /// What came last comes again.
    Replay,
    /// A piece is missing.
    Cut,
}

/// A relay on the host of the gateway, which damages some connections.
pub struct Relay {
    seen: Arc<AtomicUsize>,
}

impl Relay {
    /// The port at which clients find it.
    pub const PORT: u16 = 4434;

    /// Damages the first connections, so many of them, each after so many bytes.
    pub fn start(world: &World, damage: Damage, connections: usize, after: usize) -> Self {
        let listener =
            world.host(|| TcpListener::bind(at(GATEWAY, Self::PORT))).expect("a port is free");
        let namespace = world.within_host();
        let seen = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&seen);
        thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let damaged = count.fetch_add(1, Ordering::SeqCst) < connections;
                let Ok(gateway) = namespace(&|| TcpStream::connect(at(GATEWAY, 4433))) else {
                    continue;
                };
                let (up, down) = (client.try_clone(), gateway.try_clone());
                let (up, down) = (up.expect("a descriptor"), down.expect("a descriptor"));
                thread::spawn(move || pass(up, gateway, None));
                let damage = damaged.then_some((damage, after));
                thread::spawn(move || pass(down, client, damage));
            }
        });
        Self { seen }
    }

    /// How many connections there were.
    pub fn connections(&self) -> usize {
        self.seen.load(Ordering::SeqCst)
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, damage: Option<(Damage, usize)>) {
    let mut buffer = [0; 4096];
    let mut passed = 0;
    let mut damage = damage;
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let bytes = &mut buffer[..count];
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
    // The other direction ends as well: so does a connection that breaks.
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
