//! Connections of arbitrary segments in any order.

use manyways_flows::flow::Connection;
use manyways_unit::{Span, Time};
use manyways_wire::stream::Endpoint;
use manyways_wire::tcp::{Flags, Segment};

/// A data segment at the current position, an acknowledgement of everything, a SYN, and a FIN.
pub(super) const FLOW_WORDS: &[&str] = &[
    "\u{3}\u{18}\0\0\0\0\u{10}\0\u{5}!",
    "\u{2}\u{10}\0\0\0\0\u{10}\0\0\0",
    "\u{2}\u{2}\0\0\0\0\u{10}\0\0\0",
    "\u{2}\u{11}\0\0\0\0\u{10}\0\0\0",
];

/// Bytes of one segment in the input.
const STEP: usize = 10;

/// Segments of one connection, ten bytes each: sender, time and options; flags; sequence number
/// relative to the sender's end; acknowledgement relative to the end of the other side; window;
/// length. With SACK, two positions relative to the acknowledgement follow.
pub(super) fn tcp_flow(bytes: &[u8]) {
    let began = Time::from_millis(1_000);
    let (mut now, mut last) = (began, began);
    let mut connection = Connection::new(now);
    // Next sequence number and latest timestamp of each side.
    let mut ends = [(u32::MAX - 9_000, 0_u32), (77, 0)];
    let mut rest = bytes;
    while let Some((step, behind)) = rest.split_first_chunk::<STEP>() {
        let &[what, flags, s0, s1, a0, a1, w0, w1, l0, l1] = step;
        rest = behind;
        now = match what >> 1 & 7 {
            0 => Time::from_nanos(now.as_nanos() / 2),
            step => now + Span::from_micros(1 << (step * 3)),
        };
        last = last.max(now);
        let from = usize::from(what & 1);
        let relative = |high, low| {
            let value = i32::from(i16::from_be_bytes([high, low]));
            // An odd value is far away.
            (if what & 0x80 != 0 && value & 1 == 1 { value << 16 } else { value }) as u32
        };
        let seq = ends[from].0.wrapping_add(relative(s0, s1));
        let ack = ends[1 - from].0.wrapping_add(relative(a0, a1));
        let mut options = Vec::new();
        if flags & Flags::SYN.0 != 0 {
            options.extend([2, 4, 5, 0xb4, 3, 3, what >> 4, 1]);
        }
        if what & 0x10 != 0 {
            let value = (now.as_nanos() / 1_000_000) as u32;
            options.extend([1, 1, 8, 10]);
            options.extend([value.to_be_bytes(), ends[1 - from].1.to_be_bytes()].concat());
            ends[from].1 = value;
        }
        if what & 0x20 != 0
            && let Some((&[b0, b1, e0, e1], behind)) = rest.split_first_chunk()
        {
            rest = behind;
            let block = [relative(b0, b1), relative(e0, e1)].map(|offset| ack.wrapping_add(offset));
            options.extend([1, 1, 5, 10]);
            options.extend(block.map(u32::to_be_bytes).concat());
        }
        let mut header = vec![0, 80, 0, 90];
        header.extend([seq.to_be_bytes(), ack.to_be_bytes()].concat());
        header.extend([((20 + options.len()) << 2) as u8, flags, w0, w1, 0, 0, 0, 0]);
        header.extend(options);
        let length = usize::from(u16::from_be_bytes([l0, l1]));
        let Some(segment) = Segment::read(&header, header.len() + length) else { continue };
        connection.handle(now, [Endpoint::Client, Endpoint::Server][from], &segment);
        if segment.end().distance_from(manyways_wire::tcp::Seq(ends[from].0)) > 0 {
            ends[from].0 = segment.end().0;
        }
    }
    check(&connection, last.since(Time::ZERO));
}

/// Invariants of any connection.
fn check(connection: &Connection, duration: Span) {
    for end in [Endpoint::Client, Endpoint::Server] {
        let _ = (connection.windows(end), connection.limited_by(end), connection.syn_options(end));
        if let Some(stream) = connection.stream(end) {
            let counts = stream.counts();
            let retransmissions = counts.retransmissions;
            let repairs = retransmissions.fast + retransmissions.timeout + retransmissions.probe;
            assert!(counts.lost_before + counts.lost_after == repairs, "{counts:?}");
            assert!(stream.receiver_rtt().min().is_none_or(|min| min <= duration));
            assert!(stream.acked() >= stream.first());
        }
        if let Some(ack_clock) = connection.ack_clock(end) {
            let (far, whole) = (ack_clock.sender_rtt(), ack_clock.full_rtt());
            assert!(far.min().is_none_or(|min| min <= duration), "{far:?}");
            assert!(whole.count() <= far.count());
        }
    }
    let _ = (connection.initial_window(), connection.is_valid(), connection.first_fin());
}
