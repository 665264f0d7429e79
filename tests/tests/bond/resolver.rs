//! A DNS resolver on the internet with a few names, which does not answer for one name.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::testbed::{GATEWAY, SERVER, Testbed, at};

/// Names and their addresses. Other names do not exist, except [`SILENT`].
const ZONE: [(&str, &str); 5] = [
    ("www.example", SERVER[0]),
    ("hidden-from-lenders.example", SERVER[0]),
    ("inside.example", "192.168.77.2"),
    ("self.example", "127.0.0.1"),
    ("gw.example", GATEWAY),
];
/// A name for which the resolver never answers.
pub const SILENT: &str = "slow.example";

/// A resolver that runs until the test ends.
pub struct Resolver(Arc<Mutex<BTreeSet<String>>>);

impl Resolver {
    pub fn start(testbed: &Testbed) -> Self {
        let socket = testbed.internet(|| UdpSocket::bind(at(SERVER[0], 53))).expect("a port");
        let askers = Arc::<Mutex<BTreeSet<String>>>::default();
        let seen = Arc::clone(&askers);
        thread::spawn(move || {
            let mut buffer = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                seen.lock().unwrap_or_else(PoisonError::into_inner).insert(from.ip().to_string());
                answer(&socket, &buffer[..length], from);
            }
        });
        Self(askers)
    }

    /// Source addresses of the queries.
    pub fn client_addrs(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

fn answer(socket: &UdpSocket, question: &[u8], to: SocketAddr) -> Option<()> {
    let mut name = Vec::new();
    let mut at = 12;
    loop {
        let length = usize::from(*question.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        name.push(std::str::from_utf8(question.get(at..at + length)?).ok()?);
        at += length;
    }
    let name = name.join(".");
    let kind = question.get(at..at + 2)?;
    let end = at + 4;
    if name == SILENT {
        return None;
    }
    let known = ZONE.iter().find(|(known, _)| *known == name);
    let address = known.filter(|_| kind == [0, 1]).map(|(_, address)| *address);
    // QR, RD, RA; and NXDOMAIN if the name does not exist.
    let flags = [0x81, if known.is_some() { 0x80 } else { 0x83 }];
    let counts = [0, 1, 0, u8::from(address.is_some()), 0, 0, 0, 0];
    let mut text = [question.get(..2)?, &flags, &counts, question.get(12..end)?].concat();
    if let Some(address) = address {
        let address: Ipv4Addr = address.parse().ok()?;
        text.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        text.extend(address.octets());
    }
    socket.send_to(&text, to).ok().map(drop)
}
