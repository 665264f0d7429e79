//! Evaluation of captures of tcpdump: the phases of a request, and the order of datagrams.

use std::fs;
use std::path::Path;

use manyways_unit::Time;
use manyways_wire::capture::{Reader, Step};
use manyways_wire::frame::ip_packet;
use manyways_wire::tcp::{Flags, Segment};
use manyways_wire::udp::Datagram;

use super::record::Quantities;

/// The phases of a request, with the names of our documents, and the last two together. A capture of
/// HTTP/2 over TLS does not show which packet has the head: settings come before it.
pub const PHASES: [&str; 6] = ["lookup", "connect", "tls", "first byte", "body", "response"];

/// Port of name servers.
const DNS_PORT: u16 = 53;
/// Port of servers without TLS.
const PLAIN_PORT: u16 = 80;
/// Payload of the first packet of a response, at least.
const MIN_RESPONSE: u32 = 1_000;
/// Place of the sequence number in the payload of a datagram.
const SEQUENCE: std::ops::Range<usize> = 16..24;

/// A packet of a capture.
#[derive(Clone, Copy, Debug)]
enum Seen {
    Tcp { server_port: u16, is_sent: bool, flags: Flags, length: u32 },
    Query,
    Answer,
}

/// Calls `each` with the time, the protocol number and the payload of each IP packet.
fn packets(file: &Path, mut each: impl FnMut(Time, u8, &[u8], usize)) -> Result<(), String> {
    let bytes = fs::read(file).map_err(|error| format!("there is no capture: {error}"))?;
    let (mut reader, mut rest) = (Reader::default(), &bytes[..]);
    loop {
        let step = reader.step(rest).map_err(|error| format!("the capture: {error}"))?;
        let length = match step {
            Step::More(_) => return Ok(()),
            Step::Other(length) => length,
            Step::Packet(packet, length) => {
                let link = reader.interfaces().get(packet.interface).map(|one| one.link);
                let ip = link.and_then(|link| ip_packet(link, packet.bytes, packet.length).ok());
                if let Some(ip) = ip {
                    each(packet.at, ip.protocol, ip.payload, ip.payload_length);
                }
                length
            }
        };
        rest = rest.get(length..).unwrap_or_default();
    }
}

/// The durations of the phases of the only request in a capture at the client.
///
/// # Errors
/// The capture cannot be read.
pub fn phases(file: &Path) -> Result<Quantities, String> {
    let mut seen = Vec::new();
    packets(file, |at, protocol, payload, length| {
        let packet = match protocol {
            17 => Datagram::read(payload, length).and_then(|udp| {
                match (udp.source_port, udp.destination_port) {
                    (_, DNS_PORT) => Some(Seen::Query),
                    (DNS_PORT, _) => Some(Seen::Answer),
                    _ => None,
                }
            }),
            6 => Segment::read(payload, length).map(|tcp| {
                // A client's port is larger than any port of a server here.
                let is_sent = tcp.destination_port < tcp.source_port;
                let server_port = tcp.destination_port.min(tcp.source_port);
                Seen::Tcp { server_port, is_sent, flags: tcp.flags, length: tcp.length }
            }),
            _ => None,
        };
        seen.extend(packet.map(|packet| (at, packet)));
    })?;
    Ok(of_request(&seen))
}

/// The client sends its last handshake message, and with it or after it the request, as soon as it
/// has the messages of the server, which is when it sends data the second time.
fn of_request(seen: &[(Time, Seen)]) -> Quantities {
    let first = |from: Option<Time>, is: &dyn Fn(&Seen) -> bool| {
        let from = from?;
        seen.iter().find(|(at, packet)| *at >= from && is(packet)).map(|(at, _)| *at)
    };
    let last = |is: &dyn Fn(&Seen) -> bool| {
        seen.iter().rev().find(|(_, packet)| is(packet)).map(|(at, _)| *at)
    };
    let data = |sent: bool| move |packet: &Seen| matches!(packet, Seen::Tcp { is_sent, length, .. } if *is_sent == sent && *length > 0);
    let syn = |sent: bool| {
        move |packet: &Seen| {
            matches!(packet, Seen::Tcp { is_sent, flags, .. }
                if *is_sent == sent && flags.has(Flags::SYN))
        }
    };
    let start = Some(Time::ZERO);
    let query = first(start, &|packet| matches!(packet, Seen::Query));
    let answer = last(&|packet| matches!(packet, Seen::Answer));
    let (asked, opened) = (first(start, &syn(true)), first(start, &syn(false)));
    let is_tls = seen.iter().any(
        |(_, packet)| matches!(packet, Seen::Tcp { server_port, .. } if *server_port != PLAIN_PORT),
    );
    let hello = first(opened, &data(true));
    let request = if is_tls { first(first(hello, &data(false)), &data(true)) } else { hello };
    // Settings and tickets of the server are short, the head comes with the first part of the body.
    let response = first(
        request,
        &|packet| matches!(packet, Seen::Tcp { is_sent: false, length, .. } if *length >= MIN_RESPONSE),
    );
    // After the client has closed, only the server's farewell comes.
    let closed = seen.iter().find(|(_, packet)| {
        matches!(packet, Seen::Tcp { is_sent: true, flags, .. }
            if flags.has(Flags::FIN) || flags.has(Flags::RST))
    });
    let end = seen
        .iter()
        .rev()
        .find(|(at, packet)| data(false)(packet) && closed.is_none_or(|(closed, _)| at <= closed));
    let end = end.map(|(at, _)| *at);
    let between = |from: Option<Time>, to: Option<Time>| {
        Some(to?.as_secs_f64() * 1e3 - from?.as_secs_f64() * 1e3)
    };
    let durations = [
        between(query, answer),
        between(asked, opened),
        between(opened, request).filter(|_| is_tls),
        between(request, response),
        between(response, end),
        between(request, end),
    ];
    let named = PHASES.iter().zip(durations);
    named.filter_map(|(phase, value)| Some((format!("true {phase}, ms"), value?))).collect()
}

/// Number of datagrams that arrived after one with a higher number (RFC 4737, 3.3), in a capture at
/// their receiver.
///
/// # Errors
/// The capture cannot be read.
pub fn reordered(file: &Path, sender_port: u16) -> Result<f64, String> {
    let (mut highest, mut count) = (None, 0);
    packets(file, |_, protocol, payload, length| {
        let datagram = Datagram::read(payload, length).filter(|_| protocol == 17);
        let datagram = datagram.filter(|udp| udp.source_port == sender_port);
        let sequence = datagram.and_then(|udp| udp.payload.get(SEQUENCE)?.try_into().ok());
        let Some(sequence) = sequence.map(u64::from_be_bytes) else { return };
        count += u64::from(highest.is_some_and(|highest| sequence < highest));
        highest = highest.max(Some(sequence));
    })?;
    Ok(count as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(server_port: u16, is_sent: bool, flags: Flags, length: u32) -> Seen {
        Seen::Tcp { server_port, is_sent, flags, length }
    }

    #[test]
    fn a_request_has_its_phases_with_and_without_tls() {
        let (syn, ack) = (Flags::SYN, Flags::ACK);
        let at = |millis: u64, packet| (Time::from_millis(millis), packet);
        let plain = [
            at(0, Seen::Query),
            at(30, Seen::Answer),
            at(31, tcp(80, true, syn, 0)),
            at(61, tcp(80, false, syn, 0)),
            at(62, tcp(80, true, ack, 100)),
            at(95, tcp(80, false, ack, 1_400)),
            at(99, tcp(80, false, ack, 1_400)),
        ];
        let found = of_request(&plain);
        let all = ["lookup", "connect", "first byte", "body"];
        let values = all.map(|phase| found[&format!("true {phase}, ms")].round());
        assert_eq!((values, found.len()), ([30.0, 30.0, 33.0, 4.0], 5));
        let secure = [
            at(31, tcp(443, true, syn, 0)),
            at(61, tcp(443, false, syn, 0)),
            at(62, tcp(443, true, ack, 300)),
            at(92, tcp(443, false, ack, 1_400)),
            at(93, tcp(443, true, ack, 80)),
            at(94, tcp(443, true, ack, 100)),
            at(120, tcp(443, false, ack, 200)),
            at(124, tcp(443, false, ack, 1_200)),
            at(125, tcp(443, true, Flags::FIN, 24)),
            at(155, tcp(443, false, ack, 24)),
        ];
        let found = of_request(&secure);
        let values = ["connect", "tls", "first byte", "body"];
        let values = values.map(|phase| found[&format!("true {phase}, ms")].round());
        assert_eq!(values, [30.0, 32.0, 31.0, 0.0]);
        assert_eq!(found["true response, ms"].round(), 31.0);
        assert!(of_request(&[]).is_empty());
    }
}
