//! Encodes a packet as a pcap record.

use std::io::{self, Write};

use super::ScheduledPacket;

/// Writes a packet as a pcap record; returns the number of written bytes.
pub(super) fn write(
    at: u64,
    packet: &ScheduledPacket,
    snap: usize,
    out: &mut dyn Write,
) -> io::Result<u64> {
    let is_web = packet.flow.is_multiple_of(2);
    let syn = packet.flags & 0x02 != 0;
    let options: &[u8] = match syn {
        true => &[2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0, 1, 3, 3, 7],
        false => &[1, 1, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0],
    };
    let mut bytes = [0_u8; 14 + 20 + 40];
    bytes[12] = 8;
    let header = 20 + options.len();
    let length = 20 + header + packet.length as usize;
    let ip = &mut bytes[14..];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&(length as u16).to_be_bytes());
    ip[8] = 64;
    ip[9] = 6;
    let [_, a, b, c] = packet.flow.to_be_bytes();
    let client = [10, a, b, c];
    let server = [198, 18, (packet.flow % 7) as u8, (packet.flow % 251) as u8];
    let (from, to) = if packet.is_up { (client, server) } else { (server, client) };
    ip[12..16].copy_from_slice(&from);
    ip[16..20].copy_from_slice(&to);
    let tcp = &mut ip[20..];
    let ports = (40_000_u16, if is_web { 80_u16 } else { 443 });
    let (from, to) = if packet.is_up { ports } else { (ports.1, ports.0) };
    tcp[..2].copy_from_slice(&from.to_be_bytes());
    tcp[2..4].copy_from_slice(&to.to_be_bytes());
    tcp[4..8].copy_from_slice(&packet.seq.to_be_bytes());
    tcp[8..12].copy_from_slice(&packet.ack.to_be_bytes());
    tcp[12] = ((header / 4) << 4) as u8;
    tcp[13] = packet.flags;
    tcp[14..16].copy_from_slice(&8_192_u16.to_be_bytes());
    tcp[20..header].copy_from_slice(options);
    let stamps = 20 + if syn { 8 } else { 4 };
    tcp[stamps..stamps + 4].copy_from_slice(&packet.timestamp.to_be_bytes());
    tcp[stamps + 4..stamps + 8].copy_from_slice(&packet.echo.to_be_bytes());
    let there = (14 + length).min(snap);
    out.write_all(&((at / 1_000_000_000) as u32 + 1_700_000_000).to_le_bytes())?;
    out.write_all(&((at % 1_000_000_000) as u32).to_le_bytes())?;
    out.write_all(&(there as u32).to_le_bytes())?;
    out.write_all(&((14 + length) as u32).to_le_bytes())?;
    let headers = 14 + 20 + header;
    out.write_all(&bytes[..headers.min(there)])?;
    let mut rest = there.saturating_sub(headers);
    let head: &[u8] = match (is_web, packet.is_up) {
        (true, true) => b"GET /an/object/of/some/length HTTP/1.1\r\nHost: www.example.net\r\n\r\n",
        (true, false) => b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nServer: one\r\n\r\n",
        (false, true) => b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        (false, false) => b"\x17\x03\x03\x40\x00",
    };
    if packet.is_head {
        let there = head.len().min(rest);
        out.write_all(&head[..there])?;
        rest -= there;
    }
    const FILL: [u8; 1_500] = [b'x'; 1_500];
    out.write_all(&FILL[..rest])?;
    Ok(16 + there as u64)
}
