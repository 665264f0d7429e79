//! Client of packets without a flow, such as ICMP.

use std::net::IpAddr;

use manyways_unit::LruMap;
use manyways_wire::frame::IpPacket;

/// Maximum number of remembered pairs of addresses.
const MAX_PAIRS: usize = 65_536;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// Remembers which address of a pair initiated the traffic.
#[derive(Clone, Debug, Default)]
pub(super) struct Initiators {
    /// The client of each pair; the lower address is the first of the pair.
    clients: LruMap<[IpAddr; 2], IpAddr>,
}

impl Initiators {
    /// Records the client of a flow. The first record of a pair stays.
    pub fn learn(&mut self, client: IpAddr, server: IpAddr) {
        let pair = pair(client, server);
        if self.clients.get(&pair).is_none() {
            self.clients.insert(pair, client);
            if self.clients.len() > MAX_PAIRS {
                self.clients.pop_oldest();
            }
        }
    }

    /// Returns the client of a packet without a flow: the sender of an echo request; for other
    /// packets the known client of the pair, else the receiver of an ICMP error or reply, else the
    /// sender.
    pub fn client(&mut self, datagram: &IpPacket<'_>) -> IpAddr {
        let IpPacket { source, destination, .. } = *datagram;
        let pair = pair(source, destination);
        let known = self.clients.get(&pair).filter(|_| !is_echo(datagram));
        if let Some(client) = known {
            return *client;
        }
        let client = if is_answer(datagram) { destination } else { source };
        self.learn(client, if client == source { destination } else { source });
        client
    }
}

fn pair(one: IpAddr, other: IpAddr) -> [IpAddr; 2] {
    [one.min(other), one.max(other)]
}

fn is_echo(datagram: &IpPacket<'_>) -> bool {
    let kind = datagram.payload.first();
    matches!((datagram.protocol, kind), (ICMP, Some(0 | 8)) | (ICMPV6, Some(128 | 129)))
}

/// Whether the packet is an echo reply, or an ICMP error about a packet of its receiver.
fn is_answer(datagram: &IpPacket<'_>) -> bool {
    let kind = datagram.payload.first();
    matches!(
        (datagram.protocol, kind),
        (ICMP, Some(0 | 3..=5 | 11 | 12)) | (ICMPV6, Some(1..=4 | 129))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram<'b>(
        [source, destination]: [u8; 2],
        protocol: u8,
        payload: &'b [u8],
    ) -> IpPacket<'b> {
        let address = |last| IpAddr::from([10, 0, 0, last]);
        IpPacket {
            source: address(source),
            destination: address(destination),
            protocol,
            payload,
            payload_length: payload.len(),
            length: 20 + payload.len(),
            fragment: None,
            ecn: 0,
            id: 0,
            hop_limit: 64,
            is_tunnelled: false,
        }
    }

    fn client(initiators: &mut Initiators, ends: [u8; 2], protocol: u8, kind: u8) -> u8 {
        let client = initiators.client(&datagram(ends, protocol, &[kind, 0]));
        let IpAddr::V4(client) = client else { unreachable!() };
        client.octets()[3]
    }

    #[test]
    fn who_asks_for_an_echo_is_the_client() {
        let mut all = Initiators::default();
        // Also if the capture begins with a reply, and if each endpoint pings the other.
        assert_eq!(client(&mut all, [2, 1], ICMP, 0), 1);
        assert_eq!(client(&mut all, [1, 2], ICMP, 8), 1);
        assert_eq!(client(&mut all, [2, 1], ICMP, 8), 2);
        assert_eq!(client(&mut all, [1, 2], ICMP, 0), 2);
        assert_eq!(client(&mut all, [3, 4], ICMPV6, 128), 3);
        assert_eq!(client(&mut all, [4, 3], ICMPV6, 129), 3);
    }

    #[test]
    fn an_error_goes_to_who_has_sent() {
        let mut all = Initiators::default();
        assert_eq!(client(&mut all, [9, 1], ICMP, 11), 1);
        // A known flow takes precedence: here its client sends the error.
        all.learn(IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        assert_eq!(client(&mut all, [1, 2], ICMP, 3), 1);
        assert_eq!(client(&mut all, [2, 1], ICMP, 3), 1);
    }

    #[test]
    fn of_anything_else_the_first_sender_is_the_client() {
        let mut all = Initiators::default();
        const ESP: u8 = 50;
        assert_eq!(client(&mut all, [1, 2], ESP, 8), 1);
        assert_eq!(client(&mut all, [2, 1], ESP, 8), 1);
        let cut = all.client(&datagram([5, 6], ICMP, &[]));
        assert_eq!(cut, IpAddr::from([10, 0, 0, 5]));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut all = Initiators::default();
        for number in 0..MAX_PAIRS as u32 + 10 {
            all.learn(IpAddr::from(number.to_be_bytes()), IpAddr::from([255; 4]));
        }
        assert_eq!(all.clients.len(), MAX_PAIRS);
    }
}
