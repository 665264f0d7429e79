//! Whatever passes, no share is above 1, and nothing counts that did not pass.

use std::collections::HashMap;

use manyways_flows::analysis::Record;
use manyways_flows::flow::{SenderLimit, Stream};
use manyways_record::table::{Row, Value};
use manyways_wire::stream::Endpoint;
use proptest::prelude::*;

use super::harness::{ACK, Conversation, FIN, PSH, Passed, SYN, analyse, bytes};

/// A change of a captured packet.
#[derive(Clone, Debug)]
enum Damage {
    Drop(usize),
    Repeat(usize, usize),
    Move(usize, usize),
    /// Bits of a byte of the IP packet.
    Flip(usize, usize, u8),
    Truncate(usize, usize),
    Late(usize, u64),
}

fn damages() -> impl Strategy<Value = Vec<Damage>> {
    let at = 0_usize..1_000;
    let one = prop_oneof![
        at.clone().prop_map(Damage::Drop),
        (at.clone(), 0_usize..40).prop_map(|(at, by)| Damage::Repeat(at, by)),
        (at.clone(), 0_usize..40).prop_map(|(at, by)| Damage::Move(at, by)),
        (at.clone(), 20_usize..44, any::<u8>())
            .prop_map(|(at, byte, bits)| Damage::Flip(at, byte, bits)),
        (at.clone(), 20_usize..80).prop_map(|(at, length)| Damage::Truncate(at, length)),
        (at, 0_u64..3_000).prop_map(|(at, by)| Damage::Late(at, by)),
    ];
    prop::collection::vec(one, 0..40)
}

/// Connections one after the other between the same ports.
fn talk(parts: &[(u32, u32, u8, u16)]) -> Vec<Passed> {
    let mut packets = Vec::new();
    let mut millis = 1_000;
    for (client, server, what, length) in parts {
        let mut talk = Conversation::new(millis, [*client, *server]);
        match what % 4 {
            0 => talk.handshake(),
            1 => talk.up(SYN, b""),
            2 => talk.down(SYN | ACK, b""),
            _ => {}
        }
        for number in 0..what / 4 {
            talk.exchange(&"x".repeat(number.into()), (*length).into());
            talk.down(ACK | PSH, &vec![0; (*length).into()]);
        }
        if what % 3 == 0 {
            talk.up(ACK | FIN, b"");
        }
        millis = talk.millis + u64::from(*length);
        packets.extend(talk.packets);
    }
    packets
}

fn damaged(packets: &[Passed], damages: &[Damage]) -> Vec<(u64, Vec<u8>)> {
    let mut all: Vec<(u64, Vec<u8>)> =
        packets.iter().map(|packet| (packet.millis, bytes(packet))).collect();
    for damage in damages {
        let count = all.len().max(1);
        match damage {
            _ if all.is_empty() => {}
            Damage::Drop(at) => _ = all.remove(at % count),
            Damage::Repeat(at, by) => {
                let copy = all[at % count].clone();
                all.insert((at % count + by).min(count), copy);
            }
            Damage::Move(at, by) => {
                let moved = all.remove(at % count);
                all.insert((at % count + by).min(count - 1), moved);
            }
            Damage::Flip(at, byte, bits) => {
                let bytes = &mut all[at % count].1;
                let byte = byte % bytes.len();
                // The addresses and the fragment stay, so that the packet stays in its flow.
                bytes[byte] ^= if (20..24).contains(&byte) { 0 } else { *bits };
            }
            Damage::Truncate(at, length) => all[at % count].1.truncate(*length),
            Damage::Late(at, by) => all[at % count].0 += by,
        }
    }
    all
}

/// Payload of the TCP packets of each direction, by the client's port.
fn payloads(packets: &[(u64, Vec<u8>)]) -> HashMap<bool, u64> {
    let mut sums = HashMap::new();
    for (_, bytes) in packets {
        let (Some(total), Some(header)) = (bytes.get(2..4), bytes.get(32)) else { continue };
        let total = u64::from(u16::from_be_bytes([total[0], total[1]]));
        let payload = total.saturating_sub(20 + u64::from(header >> 4) * 4);
        *sums.entry(bytes[12] == 192).or_default() += payload;
    }
    sums
}

proptest! {
    #[test]
    fn every_share_is_a_share(
        parts in prop::collection::vec((any::<u32>(), any::<u32>(), any::<u8>(), 0_u16..3_000), 1..4),
        damages in damages(),
    ) {
        let parts: Vec<_> =
            parts.into_iter().map(|(one, other, what, length)| (one, other, what % 40, length)).collect();
        let packets = damaged(&talk(&parts), &damages);
        let payloads = payloads(&packets);
        let mut unique = HashMap::<bool, u64>::new();
        for record in analyse(packets).0 {
            let Record::Tcp(flow) = record else { continue };
            for end in [Endpoint::Client, Endpoint::Server] {
                let limited_by = flow.connection.limited_by(end);
                for limit in SenderLimit::ALL {
                    prop_assert!((0.0..=1.0).contains(&limited_by.share(limit)));
                }
                let Some(stream) = flow.connection.stream(end) else { continue };
                let counts = stream.counts();
                let lost = u64::from(counts.lost_before) + u64::from(counts.lost_after);
                prop_assert!(lost <= counts.data_segments, "{counts:?}");
                prop_assert!(u64::from(counts.retransmissions.total()) <= counts.data_segments);
                prop_assert!(stream.unique_bytes() <= counts.bytes, "{stream:?}");
                let is_client = (end == Endpoint::Client) == (flow.client.port() == 40_000);
                *unique.entry(is_client).or_default() += Stream::unique_bytes(stream);
            }
            let row = &*flow;
            for column in <manyways_flows::analysis::TcpFlow as Row>::COLUMNS {
                let name = column.name;
                if let Value::Number(value) = (column.value)(row)
                    && (name.ends_with("_loss") || name.contains("_limited_"))
                {
                    prop_assert!((0.0..=1.0).contains(&value), "{name} {value}");
                }
            }
        }
        for (end, bytes) in unique {
            prop_assert!(bytes <= payloads.get(&end).copied().unwrap_or(0), "{end} {bytes} {payloads:?}");
        }
    }
}
