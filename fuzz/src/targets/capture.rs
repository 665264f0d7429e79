//! Captures, their frames, and the segments in the frames.

use manyways_wire::capture::{LinkType, MAX_INTERFACES, Reader, Step};
use manyways_wire::frame::{self, IpPacket};
use manyways_wire::tcp::Segment;

pub(super) const CAPTURE_WORDS: &[&str] = &[
    "\u{a}\r\r\u{a}\0\0\0\u{1c}\u{1a}+<M\0\u{1}\0\0",
    "\0\0\0\u{1}\0\0\0\u{14}\0\u{1}\0\0\0\0\0\0\0\0\0\u{14}",
    "\0\0\0\u{6}\0\0\0\u{20}",
    "\0\0\0\u{5}\0\0\0\u{18}",
    "btsnoop\0\0\0\0\u{1}\0\0\u{3}",
];
pub(super) const FRAME_WORDS: &[&str] = &[
    "E\0\0(\0\0\0\0@\u{6}\0\0",
    "`\0\0\0\0\u{14}\u{6}@",
    "\u{8}\0E\0",
    "\u{c}\0\0\0\0\0\0\0",
    "0\0\u{8}\0",
    "\u{8}h\u{8}h",
];

/// A file has the same packets independent of the sizes of the reads, and each packet can be
/// parsed.
pub(super) fn capture(bytes: &[u8]) {
    let whole = packets(bytes, bytes.len());
    assert_eq!(whole, packets(bytes, 7));
}

/// The number of packets, a checksum of their times and lengths, and the position of the end. Each
/// read makes `more` bytes available beyond the requested ones.
fn packets(file: &[u8], more: usize) -> (u64, u64, usize) {
    let (mut reader, mut count, mut sum, mut at) = (Reader::default(), 0, 0_u64, 0);
    let mut end = more.min(file.len());
    loop {
        match reader.step(&file[at..end]) {
            Ok(Step::Packet(packet, length)) => {
                assert!(length > 0 && packet.bytes.len() <= packet.length);
                let link = reader.interfaces()[packet.interface].link;
                if let Ok(found) = frame::ip_packet(link, packet.bytes, packet.length) {
                    check_datagram(&found);
                }
                let said = packet.at.as_nanos() ^ packet.dropped_before;
                sum = sum.rotate_left(5).wrapping_add(said).wrapping_add(packet.length as u64);
                count += 1;
                at += length;
            }
            Ok(Step::Other(length)) => at += length,
            Ok(Step::More(length)) => {
                assert!(length > end - at);
                if end == file.len() {
                    break;
                }
                end = (at + length).saturating_add(more).min(file.len());
            }
            Err(why) => {
                assert!(!why.to_string().is_empty());
                break;
            }
        }
        assert!(at <= end && reader.interfaces().len() <= MAX_INTERFACES);
    }
    (count, sum, at)
}

/// The first two bytes select the link type of the frame; the frame is parsed whole and truncated
/// to a quarter.
pub(super) fn frame(bytes: &[u8]) {
    let Some((link, frame)) = bytes.split_first_chunk() else { return };
    let link = LinkType(u16::from_be_bytes(*link));
    for there in [frame, &frame[..frame.len() / 4]] {
        if let Ok(found) = frame::ip_packet(link, there, frame.len()) {
            check_datagram(&found);
        }
        for found in frame::further_packets(link, there, frame.len()).flatten() {
            check_datagram(&found);
        }
    }
}

fn check_datagram(found: &IpPacket<'_>) {
    assert!(found.payload.len() <= found.payload_length && found.payload_length <= found.length);
    if let Some(unread) = frame::unread(found) {
        assert!(!unread.to_string().is_empty() && unread.hint() != Some(""));
    }
    let Some(segment) = Segment::read(found.payload, found.payload_length) else { return };
    assert!(segment.payload.len() <= segment.length as usize);
    let options = segment.options;
    assert!(options.sack().as_slice().len() <= 4);
    assert!(options.window_scale().is_none_or(|scale| scale <= 14));
    let _ = (options.mss(), options.mptcp().count(), options.timestamps(), segment.end());
}
