//! Bluetooth packets, as in captures.

use std::collections::BTreeMap;

use manyways_wire::bluetooth::{Event, Host, MAX_CONNECTIONS, MAX_STREAMS, StreamId};
use manyways_wire::capture::{Interface, LinkType, Packet, Reader, Step};

pub(super) const BLUETOOTH_WORDS: &[&str] = &[
    "btsnoop\0\0\0\0\u{1}\0\0\u{3}",
    "\u{2}\u{b} \u{c}\0\u{8}\0\u{1}\0",
    "\u{2}\u{7}\u{4}\0\u{3}\0@\0",
    "\u{3}\u{7}\u{8}\0Q\0@\0\0\0\0\0",
    "\u{14}\u{7}\u{a}\0",
    "\u{4}\u{13}\u{5}\u{1}\u{b}\0\u{1}\0",
    "\u{1b}?\u{1}",
];

/// A capture file. Then the same bytes as a sequence of packets of one connection, each preceded by
/// a byte with its length and direction.
pub(super) fn bluetooth(bytes: &[u8]) {
    let (mut reader, mut watched, mut rest) = (Reader::default(), CheckedHost::default(), bytes);
    loop {
        match reader.step(rest) {
            Ok(Step::Packet(packet, length)) => {
                watched.handle(&reader.interfaces()[packet.interface], &packet);
                rest = &rest[length..];
            }
            Ok(Step::Other(length)) => rest = &rest[length..],
            Ok(Step::More(_)) | Err(_) => break,
        }
    }
    watched.finish();

    let mut watched = CheckedHost::default();
    let interface =
        Interface { link: LinkType::HCI_DATA, snap_length: 0, name: String::new(), dropped: 0 };
    let mut rest = bytes;
    while let Some((first, behind)) = rest.split_first() {
        let (packet, next) = behind.split_at(behind.len().min(usize::from(first >> 1)));
        let boundary = if packet.len() % 5 == 4 { 0x10 } else { 0 };
        let header = [0x0b, boundary, packet.len() as u8, 0];
        let whole = [&header, packet].concat();
        let there = whole.len() - whole.len() / 7;
        let packet = Packet {
            at: Default::default(),
            interface: 0,
            bytes: &whole[..there],
            length: whole.len(),
            is_sent: Some(first & 1 == 0),
            dropped_before: 0,
            is_out_of_order: false,
        };
        watched.handle(&interface, &packet);
        rest = next;
    }
    watched.finish();
}

/// A host, and the delivered bytes of its streams.
#[derive(Default)]
struct CheckedHost {
    host: Host,
    bytes: BTreeMap<StreamId, u64>,
}

impl CheckedHost {
    fn handle(&mut self, interface: &Interface, packet: &Packet<'_>) {
        self.host.handle(interface, packet, |data| {
            assert!(data.piece.bytes.len() as u64 <= data.piece.length);
            *self.bytes.entry(data.stream).or_default() += data.piece.length;
        });
        self.check_streams();
    }

    /// A finished stream delivered at most its counted bytes, and its identifier is not reused.
    fn check_streams(&mut self) {
        while let Some(event) = self.host.poll() {
            let Event::Stream(stream) = event else { continue };
            let brought = self.bytes.remove(&stream.id).unwrap_or(0);
            assert!(brought <= stream.bytes && stream.uncaptured <= stream.bytes);
            assert!(stream.credits.is_none_or(|credits| credits.spent <= credits.granted));
        }
        assert!(self.bytes.len() <= MAX_CONNECTIONS * MAX_STREAMS);
    }

    fn finish(mut self) {
        let bytes = &mut self.bytes;
        self.host.finish(|data| *bytes.entry(data.stream).or_default() += data.piece.length);
        self.check_streams();
        assert!(self.bytes.is_empty(), "every stream ends");
    }
}
