//! Netlink queries for the discovery of interfaces. None of them changes anything.

use std::io;
use std::net::IpAddr;

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use manyways_unit::Prefix;

/// Maximum number of messages of a dump; a longer dump is truncated.
const MAX_DUMP_MESSAGES: usize = 100_000;

pub(super) struct Kernel {
    socket: Socket,
    sequence: u32,
}

/// Properties of one interface in a link dump.
#[derive(Debug, Clone, Default)]
pub(super) struct Link {
    pub index: u32,
    pub name: String,
    pub alias: String,
    /// The driver's name of a software device: `tun`, `bridge`, `wireguard`.
    pub software: Option<String>,
    /// The ARPHRD_ number.
    pub hardware: u16,
    pub mtu: u32,
    pub controller: Option<u32>,
    pub up: bool,
    pub carrier: bool,
    pub loopback: bool,
}

/// One address of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Address {
    pub index: u32,
    pub ip: IpAddr,
    /// The network that the address makes reachable; on a point-to-point link the peer's side.
    pub subnet: Prefix,
    /// Deprecated, under duplicate address detection, or a duplicate.
    pub is_unusable: bool,
    /// An IPv6 privacy address.
    pub temporary: bool,
    /// Whether the address is valid beyond its link.
    pub routable: bool,
}

/// A default route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DefaultRoute {
    pub index: u32,
    pub gateway: Option<IpAddr>,
    pub metric: u32,
}

/// Route of a packet, as chosen by the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RouteResult {
    /// Through one of these interfaces, each with its gateway.
    Unicast(Vec<(u32, Option<IpAddr>)>),
    /// To this host itself.
    Local,
    /// No route.
    Unreachable,
    /// A rule or route forbids the destination.
    Forbidden,
}

impl Kernel {
    pub(super) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self { socket, sequence: 0 })
    }

    pub(super) fn links(&mut self) -> io::Result<Vec<Link>> {
        let mut links = Vec::new();
        self.dump(
            RouteNetlinkMessage::GetLink(LinkMessage::default()),
            |_| true,
            |message| {
                if let RouteNetlinkMessage::NewLink(link) = message {
                    links.push(read_link(&link));
                }
            },
        )?;
        Ok(links)
    }

    pub(super) fn addresses(&mut self) -> io::Result<Vec<Address>> {
        let mut addresses = Vec::new();
        let question = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        self.dump(
            question,
            |_| true,
            |message| {
                if let RouteNetlinkMessage::NewAddress(address) = message {
                    addresses.extend(read_address(&address));
                }
            },
        )?;
        Ok(addresses)
    }

    /// Returns the default routes of all tables, best metric first.
    pub(super) fn default_routes(&mut self) -> io::Result<Vec<DefaultRoute>> {
        let mut routes = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut question = RouteMessage::default();
            question.header.address_family = family;
            // The second byte of a route message is the prefix length. A router may have a million
            // routes: parsing only default routes is sufficient.
            let is_default = |payload: &[u8]| payload.get(1) == Some(&0);
            let found = self.dump(RouteNetlinkMessage::GetRoute(question), is_default, |message| {
                if let RouteNetlinkMessage::NewRoute(route) = message
                    && route.header.kind == RouteType::Unicast
                {
                    let metric = route
                        .attributes
                        .iter()
                        .find_map(|attribute| match attribute {
                            RouteAttribute::Priority(metric) => Some(*metric),
                            _ => None,
                        })
                        .unwrap_or(0);
                    routes.extend(
                        next_hops(&route).into_iter().map(|(index, gateway)| DefaultRoute {
                            index,
                            gateway,
                            metric,
                        }),
                    );
                }
            });
            match found {
                // A kernel without IPv6.
                Err(error) if family == AddressFamily::Inet6 && is_unsupported(&error) => {}
                other => other?,
            }
        }
        routes.sort_by_key(|route| route.metric);
        Ok(routes)
    }

    /// Returns the route that the kernel would choose to `destination` for a socket bound to the
    /// address `source` and the interface `out`, if given.
    pub(super) fn route(
        &mut self,
        destination: IpAddr,
        source: Option<IpAddr>,
        out: Option<u32>,
    ) -> io::Result<RouteResult> {
        let mut question = RouteMessage::default();
        let bits = if destination.is_ipv4() { 32 } else { 128 };
        question.header.address_family =
            if destination.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        question.header.destination_prefix_length = bits;
        // Requests the matching entry of a table, not the result: for IPv4 with an interface and
        // without a route, the result would be the kernel's fallback, which looks for the
        // destination on the link itself.
        question.header.flags = RouteFlags::FibMatch;
        question.attributes.push(RouteAttribute::Destination(destination.into()));
        if let Some(source) = source {
            question.header.source_prefix_length = bits;
            question.attributes.push(RouteAttribute::Source(source.into()));
        }
        if let Some(out) = out {
            question.attributes.push(RouteAttribute::Oif(out));
        }
        let mut way = RouteResult::Unreachable;
        let answer = self.request(RouteNetlinkMessage::GetRoute(question), |message| {
            if let RouteNetlinkMessage::NewRoute(route) = message {
                way = match route.header.kind {
                    RouteType::Unicast => RouteResult::Unicast(next_hops(&route)),
                    RouteType::Local => RouteResult::Local,
                    RouteType::BlackHole | RouteType::Prohibit | RouteType::Unreachable => {
                        RouteResult::Forbidden
                    }
                    _ => RouteResult::Unreachable,
                };
            }
        });
        match answer {
            Ok(()) => Ok(way),
            Err(error) => match error.raw_os_error() {
                Some(libc::EACCES) => Ok(RouteResult::Forbidden),
                // Answer for blackhole routes, but also for a source address that was removed
                // meanwhile.
                Some(
                    libc::ENETUNREACH
                    | libc::EHOSTUNREACH
                    | libc::EINVAL
                    | libc::ENODEV
                    | libc::ENETDOWN
                    | libc::EADDRNOTAVAIL,
                ) => Ok(RouteResult::Unreachable),
                _ if is_unsupported(&error) => Ok(RouteResult::Unreachable),
                _ => Err(error),
            },
        }
    }

    fn dump(
        &mut self,
        question: RouteNetlinkMessage,
        wanted: impl Fn(&[u8]) -> bool,
        take: impl FnMut(RouteNetlinkMessage),
    ) -> io::Result<()> {
        self.send(question, NLM_F_REQUEST | NLM_F_DUMP)?;
        self.receive(true, wanted, take)
    }

    fn request(
        &mut self,
        question: RouteNetlinkMessage,
        take: impl FnMut(RouteNetlinkMessage),
    ) -> io::Result<()> {
        self.send(question, NLM_F_REQUEST)?;
        self.receive(false, |_| true, take)
    }

    fn send(&mut self, question: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(question));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        Ok(())
    }

    /// Reads until the end of the answer. A message that cannot be parsed is skipped: one unusual
    /// device must not hide the others.
    fn receive(
        &mut self,
        dump: bool,
        wanted: impl Fn(&[u8]) -> bool,
        mut take: impl FnMut(RouteNetlinkMessage),
    ) -> io::Result<()> {
        let mut taken = 0;
        loop {
            let (bytes, _) = self.socket.recv_from_full()?;
            for (kind, sequence, message) in messages(&bytes) {
                if sequence != self.sequence {
                    continue;
                }
                match i32::from(kind) {
                    libc::NLMSG_DONE => return Ok(()),
                    libc::NLMSG_ERROR => {
                        let code = message
                            .get(HEADER_SIZE..HEADER_SIZE + 4)
                            .and_then(|code| code.try_into().ok())
                            .map_or(0, i32::from_ne_bytes);
                        return match code {
                            0 => Ok(()),
                            code => Err(io::Error::from_raw_os_error(code.saturating_neg())),
                        };
                    }
                    _ => {}
                }
                if wanted(&message[HEADER_SIZE..])
                    && let Ok(NetlinkMessage {
                        payload: NetlinkPayload::InnerMessage(inner), ..
                    }) = NetlinkMessage::<RouteNetlinkMessage>::deserialize(message)
                    && taken < MAX_DUMP_MESSAGES
                {
                    taken += 1;
                    take(inner);
                }
                if !dump {
                    return Ok(());
                }
            }
        }
    }
}

/// Bytes of a message header.
pub(crate) const HEADER_SIZE: usize = 16;

/// Iterates over the messages of one datagram, including headers, with type and sequence number.
pub(crate) fn messages(datagram: &[u8]) -> impl Iterator<Item = (u16, u32, &[u8])> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let (length, kind, sequence) = header(rest)?;
        if length < HEADER_SIZE || length > rest.len() {
            return None;
        }
        let (message, after) = rest.split_at(length);
        // Messages are padded to four bytes, the last one possibly not.
        rest = after.get(length.next_multiple_of(4) - length..).unwrap_or_default();
        Some((kind, sequence, message))
    })
}

/// Returns length, type and sequence number.
fn header(bytes: &[u8]) -> Option<(usize, u16, u32)> {
    let length = u32::from_ne_bytes(bytes.get(0..4)?.try_into().ok()?);
    let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    let sequence = u32::from_ne_bytes(bytes.get(8..12)?.try_into().ok()?);
    Some((usize::try_from(length).ok()?, kind, sequence))
}

fn is_unsupported(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EOPNOTSUPP))
}

pub(super) fn read_link(message: &LinkMessage) -> Link {
    let flags = message.header.flags;
    let mut link = Link {
        index: message.header.index,
        hardware: u16::from(message.header.link_layer_type),
        up: flags.contains(LinkFlags::Up),
        carrier: flags.contains(LinkFlags::LowerUp) && !flags.contains(LinkFlags::Dormant),
        loopback: flags.contains(LinkFlags::Loopback),
        ..Link::default()
    };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name.clone_from(name),
            LinkAttribute::IfAlias(alias) => link.alias.clone_from(alias),
            LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
            LinkAttribute::Controller(index) => link.controller = Some(*index),
            LinkAttribute::LinkInfo(infos) => {
                link.software = infos.iter().find_map(|info| match info {
                    LinkInfo::Kind(kind) => Some(kind.to_string()),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    link
}

fn read_address(message: &AddressMessage) -> Option<Address> {
    let mut flags = AddressFlags::from_bits_retain(message.header.flags.bits().into());
    let (mut local, mut address) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            // On a point-to-point link the other address is the peer's.
            AddressAttribute::Local(ip) => local = Some(*ip),
            AddressAttribute::Address(ip) => address = Some(*ip),
            AddressAttribute::Flags(all) => flags = *all,
            _ => {}
        }
    }
    let ip = local.or(address)?;
    // An optimistic address may be used during duplicate address detection.
    let unchecked =
        flags.contains(AddressFlags::Tentative) && !flags.contains(AddressFlags::Optimistic);
    Some(Address {
        index: message.header.index,
        ip,
        subnet: Prefix::containing(address.unwrap_or(ip), message.header.prefix_len),
        is_unusable: unchecked
            || flags.intersects(AddressFlags::Deprecated | AddressFlags::Dadfailed),
        temporary: ip.is_ipv6() && flags.contains(AddressFlags::Secondary),
        routable: matches!(message.header.scope, AddressScope::Universe | AddressScope::Site),
    })
}

fn next_hops(route: &RouteMessage) -> Vec<(u32, Option<IpAddr>)> {
    let mut hops = Vec::new();
    if let Some(index) = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Oif(index) => Some(*index),
        _ => None,
    }) {
        hops.push((index, gateway(&route.attributes)));
    }
    for attribute in &route.attributes {
        if let RouteAttribute::MultiPath(paths) = attribute {
            hops.extend(paths.iter().map(|hop| (hop.interface_index, gateway(&hop.attributes))));
        }
    }
    hops
}

fn gateway(attributes: &[RouteAttribute]) -> Option<IpAddr> {
    attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Gateway(RouteAddress::Inet(ip))
        | RouteAttribute::Via(RouteVia::Inet(ip)) => Some(IpAddr::from(*ip)),
        RouteAttribute::Gateway(RouteAddress::Inet6(ip))
        | RouteAttribute::Via(RouteVia::Inet6(ip)) => Some(IpAddr::from(*ip)),
        _ => None,
    })
}
