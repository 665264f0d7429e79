//! Distribution of packets to shards.

use std::net::IpAddr;

use manyways_wire::capture::LinkType;
use manyways_wire::frame;

const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
const TCP: u8 = 6;

/// Returns the shard of a packet, below `shards`: the packets between two addresses go to the same
/// shard, in both directions. Frames without an IP packet go to shard 0.
pub fn shard(link: LinkType, frame: &[u8], length: usize, shards: u8) -> u8 {
    if shards <= 1 {
        return 0;
    }
    let sum = match plain(link, frame) {
        Some(sum) => sum,
        None => match frame::ip_packet(link, frame, length) {
            Ok(datagram) => number(datagram.source).wrapping_add(number(datagram.destination)),
            Err(_) => return 0,
        },
    };
    // The upper half of a product depends on all bits below it (Knuth, 6.4).
    let mixed = (sum ^ sum >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    ((mixed * u64::from(shards)) >> 32) as u8
}

/// Fast path for TCP directly after an Ethernet header, without a tunnel: returns the sum of the
/// addresses.
fn plain(link: LinkType, frame: &[u8]) -> Option<u64> {
    if link != LinkType::ETHERNET {
        return None;
    }
    let ip = frame.get(14..)?;
    let address = |at: usize| Some(u64::from(u32::from_be_bytes(*ip.get(at..)?.first_chunk()?)));
    match [*frame.get(12)?, *frame.get(13)?] {
        IPV4 if *ip.get(9)? == TCP && ip[0] >> 4 == 4 => {
            Some(address(12)?.wrapping_add(address(16)?))
        }
        IPV6 if *ip.get(6)? == TCP && ip[0] >> 4 == 6 => {
            let mut sum = 0_u64;
            for at in (8..40).step_by(4) {
                sum = sum.wrapping_add(address(at)? << if at % 8 == 0 { 32 } else { 0 });
            }
            Some(sum)
        }
        _ => None,
    }
}

fn number(address: IpAddr) -> u64 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => {
            let bits = u128::from(address);
            ((bits >> 64) as u64).wrapping_add(bits as u64)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An Ethernet frame with the first bytes of an IP packet.
    fn frame(ether: [u8; 2], ip: &[u8]) -> Vec<u8> {
        [&[0; 12][..], &ether, ip].concat()
    }

    fn ipv4(protocol: u8, from: [u8; 4], to: [u8; 4]) -> Vec<u8> {
        let mut ip = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, protocol, 0, 0];
        ip.extend(from.into_iter().chain(to).chain([0; 20]));
        frame(IPV4, &ip)
    }

    fn ipv6(protocol: u8, from: [u8; 16], to: [u8; 16]) -> Vec<u8> {
        let mut ip = vec![0x60, 0, 0, 0, 0, 20, protocol, 64];
        ip.extend(from.into_iter().chain(to).chain([0; 20]));
        frame(IPV6, &ip)
    }

    fn of(frame: &[u8]) -> u8 {
        shard(LinkType::ETHERNET, frame, frame.len(), 7)
    }

    #[test]
    fn both_directions_and_all_protocols_of_two_addresses_go_to_one() {
        let mut used = [0; 7];
        for number in 0..700_u32 {
            let ([_, a, b, c], to) =
                (number.wrapping_mul(0x9e37_79b1).to_be_bytes(), [192, 0, 2, 1]);
            let from = [10, a, b, c];
            let shard = of(&ipv4(TCP, from, to));
            used[usize::from(shard)] += 1;
            assert_eq!(of(&ipv4(TCP, to, from)), shard);
            // This packet takes the slow path.
            assert_eq!(of(&ipv4(17, from, to)), shard);
            let [mut from, to] = [[7; 16], [9; 16]];
            from[5] = a;
            from[15] = c;
            let shard = of(&ipv6(TCP, from, to));
            assert_eq!(of(&ipv6(TCP, to, from)), shard);
            assert_eq!(of(&ipv6(17, from, to)), shard);
        }
        assert!(used.iter().all(|count| (60..140).contains(count)), "{used:?}");
    }

    #[test]
    fn what_has_no_addresses_goes_to_the_first() {
        assert_eq!(of(&[]), 0);
        assert_eq!(of(&frame([0x88, 0xcc], &[1, 2, 3])), 0);
        assert_eq!(of(&ipv4(TCP, [10; 4], [9; 4])[..20]), 0);
    }
}
