//! Middleboxes that change packets in place: any packets from both sides over time.

use std::net::Ipv4Addr;

use manyways_link::middlebox::{Middlebox, Nat, Side, UnmappedTcp, Verdict};
use manyways_link::segment::Offload;
use manyways_unit::{Span, Time};

const EXTERNAL: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
/// Length of a packet's prefix: side, pause, length and virtio header.
const PREFIX_LENGTH: usize = 14;

/// A sequence of packets, each with a prefix.
pub(super) fn middlebox(bytes: &[u8]) {
    let nat = || Nat::new(EXTERNAL, Span::from_secs(30));
    let mut boxes = [
        Middlebox::nat(EXTERNAL, Span::from_secs(30)),
        Middlebox::Nat(Box::new(nat().with_unmapped_tcp(UnmappedTcp::Reset))),
        Middlebox::Nat(Box::new(nat().with_unmapped_tcp(UnmappedTcp::Reset).with_max_mappings(2))),
        Middlebox::strip_mptcp(),
    ];
    let mut now = Time::ZERO;
    let mut rest = bytes;
    while let Some((head, after)) = rest.split_first_chunk::<PREFIX_LENGTH>() {
        let [side, pause, high, low, header @ ..] = head;
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(after.len());
        let (packet, after) = after.split_at(length);
        rest = after;
        now += Span::from_millis(u64::from(*pause) * 200);
        let from = if side & 1 == 0 { Side::Inside } else { Side::Outside };
        let offload = Offload::from_bytes(header);
        for middlebox in &mut boxes {
            check(middlebox, now, from, packet, &offload);
        }
    }
}

fn check(middlebox: &mut Middlebox, now: Time, from: Side, packet: &[u8], offload: &Offload) {
    let before = middlebox.counters();
    let mut changed = packet.to_vec();
    let verdict = middlebox.pass(now, from, &mut changed, offload);
    let after = middlebox.counters();
    assert!(after.created >= before.created && after.dropped >= before.dropped);
    assert_eq!(after.mappings, after.created - after.expired - after.evicted);
    match (&middlebox, verdict) {
        (Middlebox::StripMptcp(_), verdict) => {
            assert_eq!(verdict, Verdict::Forward);
            // A stripped packet has no more options to strip.
            let once = changed.clone();
            middlebox.pass(now, from, &mut changed, offload);
            assert_eq!(changed, once);
            assert_eq!(middlebox.counters().stripped, after.stripped);
        }
        (Middlebox::Nat(_), Verdict::Forward) => {
            let v4 = packet.first().is_some_and(|byte| byte >> 4 == 4);
            match from {
                Side::Inside if v4 => assert_eq!(changed[12..16], EXTERNAL.octets()),
                Side::Outside if v4 => assert_ne!(changed[16..20], EXTERNAL.octets()),
                _ => assert_eq!(changed, packet, "IPv6 is not translated"),
            }
            check_nat_response(middlebox, now, from, packet, &changed);
        }
        (_, Verdict::Answer { length }) => {
            assert!(from == Side::Inside && (40..=changed.len()).contains(&length));
            assert!(after.dropped > before.dropped);
        }
        _ => assert_eq!(after.dropped, before.dropped + 1),
    }
}

/// The response to a UDP packet that a NAT forwarded over IPv4 is translated back to its sender.
fn check_nat_response(
    middlebox: &mut Middlebox,
    now: Time,
    from: Side,
    sent: &[u8],
    changed: &[u8],
) {
    let whole = u16::from_be_bytes([sent[6], sent[7]]) & 0x3fff == 0;
    let plain = sent.len() >= 28 && sent[0] == 0x45 && sent[9] == 17 && whole;
    if from != Side::Inside || !plain || sent[12..16] == EXTERNAL.octets() {
        return;
    }
    let mut answer = changed.to_vec();
    answer[12..16].copy_from_slice(&changed[16..20]);
    answer[16..20].copy_from_slice(&changed[12..16]);
    answer[20..22].copy_from_slice(&changed[22..24]);
    answer[22..24].copy_from_slice(&changed[20..22]);
    let verdict = middlebox.pass(now, Side::Outside, &mut answer, &Offload::default());
    assert_eq!(verdict, Verdict::Forward);
    assert_eq!(answer[16..20], sent[12..16]);
    assert_eq!(answer[22..24], sent[20..22]);
}
