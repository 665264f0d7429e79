//! The NAT of a home router or a mobile operator.

use std::net::{IpAddr, Ipv4Addr};

use manyways_unit::{Span, Time};

use super::fragment::{FragmentKey, FragmentTable, addresses};
use super::table::{Endpoint, Table};
use super::{Counters, Side, Verdict};
use crate::segment::Offload;
use crate::segment::checksum::{Delta, pseudo, put_word, sum, word};
use crate::segment::header::{Fragment, Ip, TCP, UDP};

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// A NAT for IPv4 and a stateful firewall for IPv6.
///
/// In the terms of RFC 4787, RFC 5382 and RFC 5508:
/// - Mapping is endpoint-independent: one inside address and port has one outside port, whatever
///   the remote endpoint. All mappings share one external address. The port is preserved if it is
///   free; otherwise it is one of [`FIRST_PORT`](super::FIRST_PORT) and above.
/// - Filtering is endpoint-independent: every outside endpoint can send to the port of a mapping.
/// - TCP, UDP and ICMP echo requests from inside create mappings (TCP: only a SYN does). Traffic in
///   either direction refreshes a mapping; ICMP errors do not.
/// - A mapping is removed after the idle timeout, whatever the state of its connections. Later
///   packets from outside are dropped. TCP packets from inside other than a SYN are dropped or
///   answered with a reset: see [`UnmappedTcp`].
/// - ICMP errors are translated, including the packet that they quote.
/// - The first fragment of a packet is treated like a whole packet. The others follow it if they
///   arrive after it ("received fragments in order"), for a limited number of packets and at most
///   30 s.
/// - There is no hairpinning, no port forwarding and no other protocol: those packets are dropped,
///   and so are packets from inside with the external address as source. The TTL is not changed.
///
/// IPv6 is not translated. Its filtering is also endpoint-independent (recommended by RFC 6092), by
/// inside address, protocol and port, with the same idle timeout. For protocols other than TCP, UDP
/// and ICMPv6, only address and protocol count.
///
/// There are at most [`MAX_MAPPINGS`](super::MAX_MAPPINGS) mappings; a new one then replaces the
/// one that was idle longest.
#[derive(Clone, Debug)]
pub struct Nat {
    external: Ipv4Addr,
    unmapped_tcp: UnmappedTcp,
    table: Table,
    fragments: FragmentTable,
    now: Time,
    dropped: u64,
}

/// Treatment of TCP from inside that belongs to no mapping and opens no connection, usually because
/// the mapping has expired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnmappedTcp {
    /// Dropped silently, as by most NATs: the connection stalls until its sender times out.
    #[default]
    Drop,
    /// Answered with a reset, as by some NATs.
    Reset,
}

/// Kind of a packet.
enum Kind {
    /// TCP or UDP.
    Ports {
        source: u16,
        destination: u16,
        /// Whether the packet may create a mapping.
        opens: bool,
    },
    /// An ICMP echo request or reply.
    Echo { request: bool, id: u16 },
    /// An ICMP error; the packet that it quotes begins at `quote`.
    Error { quote: usize },
    /// Another packet.
    Other,
}

/// One of the two addresses of a packet, with its port.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AddressField {
    Source,
    Destination,
}

impl Nat {
    /// Creates a NAT with the address `external` outside and the idle timeout `idle`.
    pub fn new(external: Ipv4Addr, idle: Span) -> Self {
        Self {
            external,
            unmapped_tcp: UnmappedTcp::default(),
            table: Table::new(idle),
            fragments: FragmentTable::default(),
            now: Time::ZERO,
            dropped: 0,
        }
    }

    /// Sets the treatment of TCP without a mapping.
    pub fn with_unmapped_tcp(mut self, forgotten: UnmappedTcp) -> Self {
        self.unmapped_tcp = forgotten;
        self
    }

    /// Limits the number of mappings, from one to [`MAX_MAPPINGS`](super::MAX_MAPPINGS).
    pub fn with_max_mappings(mut self, mappings: usize) -> Self {
        self.table.set_limit(mappings);
        self
    }

    /// Translates one packet, or drops it.
    pub fn pass(&mut self, now: Time, from: Side, packet: &mut [u8], offload: &Offload) -> Verdict {
        self.now = self.now.max(now);
        self.table.advance(self.now);
        let verdict = match Ip::parse(packet) {
            None => None,
            Some(ip) if from == Side::Inside => self.translate_outbound(packet, &ip, offload),
            Some(ip) => self.translate_inbound(packet, &ip, offload),
        };
        let verdict = verdict.unwrap_or(Verdict::Drop);
        if verdict != Verdict::Forward {
            self.dropped += 1;
        }
        verdict
    }

    /// Removes all mappings, as a restart does; the counters stay.
    pub fn restart(&mut self) {
        self.table.clear();
        self.fragments = FragmentTable::default();
    }

    pub fn counters(&self) -> Counters {
        Counters {
            mappings: self.table.len() as u64,
            created: self.table.created,
            expired: self.table.expired,
            evicted: self.table.evicted,
            dropped: self.dropped,
            stripped: 0,
        }
    }

    /// Processes a packet from inside; `None` drops it.
    fn translate_outbound(
        &mut self,
        packet: &mut [u8],
        ip: &Ip,
        offload: &Offload,
    ) -> Option<Verdict> {
        let [source, destination] = addresses(ip, packet);
        if [source, destination].contains(&IpAddr::V4(self.external)) {
            return None;
        }
        let train = match ip.fragment {
            Fragment::Later(id) => {
                self.fragments.find(self.now, &FragmentKey::new(ip, packet, id))?;
                self.translate(packet, ip, offload, AddressField::Source, self.external, None);
                return Some(Verdict::Forward);
            }
            Fragment::First(id) => Some(FragmentKey::new(ip, packet, id)),
            Fragment::Unfragmented => None,
        };
        let (port, opens) = match classify(packet, ip)? {
            Kind::Ports { source, opens, .. } => (source, opens),
            Kind::Echo { request: true, id } => (id, true),
            Kind::Other if ip.v6 => (0, true),
            Kind::Error { quote } => {
                self.translate_outbound_error(packet, ip, offload, quote)?;
                return Some(Verdict::Forward);
            }
            Kind::Echo { .. } | Kind::Other => return None,
        };
        let endpoint = Endpoint { protocol: ip.protocol, address: source, port };
        let mapping = match self.table.inside(&endpoint) {
            Some(mapping) => {
                self.table.touch(mapping);
                mapping
            }
            None if opens => self.table.insert(endpoint, !ip.v6),
            None => return self.handle_unmapped(packet, ip),
        };
        if let Some(train) = train {
            self.fragments.insert(self.now, train, source);
        }
        let port = self.table.port(mapping);
        self.translate(packet, ip, offload, AddressField::Source, self.external, Some(port));
        Some(Verdict::Forward)
    }

    /// Processes a packet from outside; `None` drops it.
    fn translate_inbound(
        &mut self,
        packet: &mut [u8],
        ip: &Ip,
        offload: &Offload,
    ) -> Option<Verdict> {
        let [_, destination] = addresses(ip, packet);
        if !ip.v6 && destination != IpAddr::V4(self.external) {
            return None;
        }
        let train = match ip.fragment {
            Fragment::Later(id) => {
                let inside = self.fragments.find(self.now, &FragmentKey::new(ip, packet, id))?;
                if let IpAddr::V4(inside) = inside {
                    self.translate(packet, ip, offload, AddressField::Destination, inside, None);
                }
                return Some(Verdict::Forward);
            }
            Fragment::First(id) => Some(FragmentKey::new(ip, packet, id)),
            Fragment::Unfragmented => None,
        };
        let port = match classify(packet, ip)? {
            Kind::Ports { destination, .. } => destination,
            Kind::Echo { request: false, id } => id,
            Kind::Other if ip.v6 => 0,
            Kind::Error { quote } => {
                self.translate_inbound_error(packet, ip, offload, quote)?;
                return Some(Verdict::Forward);
            }
            Kind::Echo { .. } | Kind::Other => return None,
        };
        let mapping = self.find_inbound(ip, destination, port)?;
        self.table.touch(mapping);
        let Endpoint { address, port, .. } = self.table.endpoint(mapping);
        if let Some(train) = train {
            self.fragments.insert(self.now, train, address);
        }
        if let IpAddr::V4(inside) = address {
            self.translate(packet, ip, offload, AddressField::Destination, inside, Some(port));
        }
        Some(Verdict::Forward)
    }

    /// Returns the mapping that an outside endpoint addresses.
    fn find_inbound(&self, ip: &Ip, address: IpAddr, port: u16) -> Option<usize> {
        match address {
            IpAddr::V4(_) => self.table.outside(ip.protocol, port),
            IpAddr::V6(_) => self.table.inside(&Endpoint { protocol: ip.protocol, address, port }),
        }
    }

    /// Translates an ICMP error from inside about a packet that was let in.
    fn translate_outbound_error(
        &self,
        packet: &mut [u8],
        ip: &Ip,
        offload: &Offload,
        quote: usize,
    ) -> Option<()> {
        let quoted = &mut packet[quote..ip.end];
        let inner = Ip::parse_quote(quoted).filter(|inner| inner.v6 == ip.v6)?;
        let [_, address] = addresses(&inner, quoted);
        let port = quoted_port(quoted, &inner, AddressField::Destination)?;
        let mapping = self.table.inside(&Endpoint { protocol: inner.protocol, address, port })?;
        if !ip.v6 {
            let port = self.table.port(mapping);
            let delta = rewrite(
                quoted,
                &inner,
                false,
                AddressField::Destination,
                self.external,
                Some(port),
            );
            update_icmp_checksum(packet, ip, delta);
            self.translate(packet, ip, offload, AddressField::Source, self.external, None);
        }
        Some(())
    }

    /// Translates an ICMP error from outside about a packet that was let out.
    fn translate_inbound_error(
        &self,
        packet: &mut [u8],
        ip: &Ip,
        offload: &Offload,
        quote: usize,
    ) -> Option<()> {
        let quoted = &mut packet[quote..ip.end];
        let inner = Ip::parse_quote(quoted).filter(|inner| inner.v6 == ip.v6)?;
        let [address, _] = addresses(&inner, quoted);
        let port = quoted_port(quoted, &inner, AddressField::Source)?;
        if !ip.v6 && address != IpAddr::V4(self.external) {
            return None;
        }
        let mapping = self.find_inbound(&inner, address, port)?;
        let Endpoint { address, port, .. } = self.table.endpoint(mapping);
        if let IpAddr::V4(inside) = address {
            let delta = rewrite(quoted, &inner, false, AddressField::Source, inside, Some(port));
            update_icmp_checksum(packet, ip, delta);
            self.translate(packet, ip, offload, AddressField::Destination, inside, None);
        }
        Some(())
    }

    /// Changes address and port of a packet; IPv6 packets stay unchanged.
    fn translate(
        &self,
        packet: &mut [u8],
        ip: &Ip,
        offload: &Offload,
        end: AddressField,
        address: Ipv4Addr,
        port: Option<u16>,
    ) {
        if !ip.v6 {
            let pending = offload.needs_csum && usize::from(offload.csum_start) == ip.transport;
            rewrite(packet, ip, pending, end, address, port);
        }
    }

    /// Processes TCP without a mapping.
    fn handle_unmapped(&self, packet: &mut [u8], ip: &Ip) -> Option<Verdict> {
        match self.unmapped_tcp {
            UnmappedTcp::Reset => reset(packet, ip).map(|length| Verdict::Answer { length }),
            UnmappedTcp::Drop => None,
        }
    }
}

/// Returns the kind of a packet with a transport header; `None` if the header is truncated.
fn classify(packet: &[u8], ip: &Ip) -> Option<Kind> {
    let rest = packet.get(ip.transport..ip.end)?;
    let min = match (ip.protocol, ip.v6) {
        (TCP, _) => 20,
        (UDP, _) | (ICMP, false) | (ICMPV6, true) => 8,
        _ => return Some(Kind::Other),
    };
    if rest.len() < min {
        return None;
    }
    Some(match (ip.protocol, rest[0]) {
        (TCP | UDP, _) => Kind::Ports {
            source: word(rest, 0),
            destination: word(rest, 2),
            opens: ip.protocol == UDP || rest[13] & (SYN | ACK | RST) == SYN,
        },
        (ICMP, kind @ (0 | 8)) | (ICMPV6, kind @ (128 | 129)) => {
            Kind::Echo { request: matches!(kind, 8 | 128), id: word(rest, 4) }
        }
        // Unreachable, source quench, time exceeded, parameter problem; the four error types of
        // ICMPv6.
        (ICMP, 3 | 4 | 11 | 12) | (ICMPV6, 1..=4) => Kind::Error { quote: ip.transport + 8 },
        _ => return None,
    })
}

/// Returns the port, or echo identifier, at one end of a packet that an error quotes.
fn quoted_port(quote: &[u8], inner: &Ip, end: AddressField) -> Option<u16> {
    if matches!(inner.fragment, Fragment::Later(_)) {
        return None;
    }
    let rest = quote.get(inner.transport..inner.end)?;
    match (inner.protocol, inner.v6) {
        (TCP | UDP, _) => {
            rest.get(..4).map(|rest| word(rest, if end == AddressField::Source { 0 } else { 2 }))
        }
        // Only a request can have been sent from inside, and only a reply can have been let in.
        (ICMP, false) | (ICMPV6, true) => {
            let request = *rest.first()? == if inner.v6 { 128 } else { 8 };
            let reply = *rest.first()? == if inner.v6 { 129 } else { 0 };
            let expected = if end == AddressField::Source { request } else { reply };
            rest.get(..6).filter(|_| expected).map(|rest| word(rest, 4))
        }
        (_, true) => Some(0),
        _ => None,
    }
}

/// Changes the IPv4 address and the port at one end of a packet, which may be truncated, and
/// updates the checksums. `pending` means that the transport checksum is still to be computed.
/// Returns the change of the sum over all bytes.
fn rewrite(
    bytes: &mut [u8],
    ip: &Ip,
    pending: bool,
    end: AddressField,
    address: Ipv4Addr,
    port: Option<u16>,
) -> Delta {
    let at = if end == AddressField::Source { 12 } else { 16 };
    let mut addresses = Delta::default();
    addresses.change(&bytes[at..at + 4], &address.octets());
    bytes[at..at + 4].copy_from_slice(&address.octets());
    let mut all = addresses;
    let mended = addresses.apply(word(bytes, 10));
    replace(bytes, 10, mended, &mut all);
    if matches!(ip.fragment, Fragment::Later(_)) {
        return all;
    }
    let (port_at, field, mut covered) = match ip.protocol {
        TCP | UDP => (
            if end == AddressField::Source { 0 } else { 2 },
            if ip.protocol == TCP { 16 } else { 6 },
            addresses,
        ),
        // ICMP has no pseudo-header.
        ICMP => (4, 2, Delta::default()),
        _ => return all,
    };
    let (port_at, field) = (ip.transport + port_at, ip.transport + field);
    if let Some(port) = port.filter(|_| port_at + 2 <= ip.end) {
        if !pending {
            covered.word(word(bytes, port_at), port);
        }
        replace(bytes, port_at, port, &mut all);
    }
    if field + 2 <= ip.end {
        let old = word(bytes, field);
        let none = ip.protocol == UDP && old == 0 && !pending;
        let new = match pending {
            _ if none => 0,
            true => covered.apply_to_sum(old),
            false => match covered.apply(old) {
                0 if ip.protocol == UDP => 0xffff,
                new => new,
            },
        };
        replace(bytes, field, new, &mut all);
    }
    all
}

/// Writes a word and records the change of the sum.
fn replace(bytes: &mut [u8], at: usize, new: u16, delta: &mut Delta) {
    delta.word(word(bytes, at), new);
    put_word(bytes, at, new);
}

fn update_icmp_checksum(packet: &mut [u8], ip: &Ip, delta: Delta) {
    let field = ip.transport + 2;
    let mended = delta.apply(word(packet, field));
    put_word(packet, field, mended);
}

/// Turns a TCP packet into the reset that answers it (RFC 9293, section 3.10.7.1) and returns its
/// length. A reset is not answered.
fn reset(packet: &mut [u8], ip: &Ip) -> Option<usize> {
    let tcp = &packet[ip.transport..ip.end];
    let (flags, header) = (tcp[13], usize::from(tcp[12] >> 4) * 4);
    if flags & RST != 0 {
        return None;
    }
    let number = |at: usize| u32::from_be_bytes([tcp[at], tcp[at + 1], tcp[at + 2], tcp[at + 3]]);
    let (sequence, acknowledged, answer) = if flags & ACK != 0 {
        (number(8), 0, RST)
    } else {
        // SYN and FIN count as a byte each.
        let length = tcp.len().saturating_sub(header) as u32
            + u32::from(flags & SYN != 0)
            + u32::from(flags & 1);
        (0, number(4).wrapping_add(length), RST | ACK)
    };
    let ports = [word(tcp, 2), word(tcp, 0)];
    let transport = if ip.v6 { 40 } else { 20 };
    let length = transport + 20;
    let from = if ip.v6 { 8 } else { 12 };
    let (source, destination) = packet[from..transport].split_at_mut((transport - from) / 2);
    source.swap_with_slice(destination);
    if ip.v6 {
        packet[..4].copy_from_slice(&[0x60, 0, 0, 0]);
        put_word(packet, 4, 20);
        (packet[6], packet[7]) = (TCP, 64);
    } else {
        packet[..10].copy_from_slice(&[0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, TCP]);
        put_word(packet, 10, 0);
        let mended = !sum(&packet[..20]);
        put_word(packet, 10, mended);
    }
    let pseudo = pseudo(&packet[from..transport], TCP, 20);
    let tcp = &mut packet[transport..length];
    tcp.fill(0);
    put_word(tcp, 0, ports[0]);
    put_word(tcp, 2, ports[1]);
    tcp[4..8].copy_from_slice(&sequence.to_be_bytes());
    tcp[8..12].copy_from_slice(&acknowledged.to_be_bytes());
    (tcp[12], tcp[13]) = (0x50, answer);
    put_word(tcp, 16, pseudo);
    let finished = !sum(tcp);
    put_word(tcp, 16, finished);
    Some(length)
}
