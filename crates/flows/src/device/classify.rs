//! Classification of the device of each flow, from all evidence.

mod address_context;

use std::net::IpAddr;

use manyways_unit::Time;

use super::{DeviceProperties, System};
use address_context::AddressContext;
use manyways_unit::Prefix;
use manyways_unit::PrefixMap;

/// Confidence that a flow belongs to the same device as a concurrent flow of the same address;
/// multiplied by the confidence of that flow.
const CONCURRENT_CONFIDENCE: f64 = 0.9;
/// Confidence in a pool; the second value applies to an address of the pool that several devices
/// share.
const POOL_CONFIDENCE: f64 = 0.9;
const SHARED_POOL_CONFIDENCE: f64 = 0.45;

/// Evidence of one flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flow {
    /// The client's address.
    pub address: IpAddr,
    /// The time of its first packet.
    pub started: Time,
    /// The time of its last packet.
    pub ended: Time,
    /// Combined properties from the flow's user agents ([`DeviceProperties::combine`]).
    pub agent: Option<DeviceProperties>,
    /// Properties from the ClientHello ([`ja4`](super::ja4)).
    pub tls: Option<DeviceProperties>,
}

/// Addresses that the user assigns to a kind of device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pool {
    pub prefix: Prefix,
    pub handheld: Option<bool>,
    pub system: Option<System>,
}

/// DHCP lease of an address.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lease {
    pub address: IpAddr,
    /// Start of the lease.
    pub from: Time,
    /// End of the lease, unless a later lease of the address begins earlier.
    pub until: Time,
    pub hardware: Option<[u8; 6]>,
    /// Sight of the DHCP request ([`dhcp`](super::dhcp)).
    pub device: Option<DeviceProperties>,
}

/// Source of a finding, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Evidence {
    /// A user agent in the flow.
    UserAgent,
    /// A user agent in another flow of the same address at the same time.
    Concurrent,
    /// An address pool from the user.
    Pool,
    /// The DHCP request of the device.
    Dhcp,
    /// The ClientHello of the flow.
    Tls,
}

impl Evidence {
    /// All kinds of evidence, best first.
    pub const ALL: [Self; 5] =
        [Self::UserAgent, Self::Concurrent, Self::Pool, Self::Dhcp, Self::Tls];

    /// Returns the value of table columns.
    pub fn name(self) -> &'static str {
        match self {
            Self::UserAgent => "user-agent",
            Self::Concurrent => "concurrent",
            Self::Pool => "pool",
            Self::Dhcp => "dhcp",
            Self::Tls => "tls",
        }
    }
}

/// A property with its source and its confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finding<T> {
    pub value: T,
    pub evidence: Evidence,
    /// From 0 to 1: an estimate, not a measurement.
    pub confidence: f64,
}

/// Device of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Classification {
    pub handheld: Option<Finding<bool>>,
    pub system: Option<Finding<System>>,
    /// The system's version, from the evidence of the system ([`DeviceProperties::version`]).
    pub version: Option<(u16, u16)>,
    /// Whether concurrent flows of the address have contradicting devices, as behind a NAT.
    pub shared: bool,
}

/// Classifies the device of each flow, in the order of `flows`, in O(n log n) time.
///
/// Each kind of evidence fills in properties that better evidence left open, and is ignored as a
/// whole if it contradicts better evidence. [`System::Apple`] may be refined to a specific system.
///
/// A flow inherits the user agents of concurrent flows of its address. Inherited evidence is not
/// inherited further. If the concurrent flows contradict each other, the address is shared: the
/// flow inherits nothing, the lease is ignored because it belongs to the NAT, and a pool has half
/// the confidence; the flow's own ClientHello still counts.
pub fn classify(flows: &[Flow], pools: &[Pool], leases: &[Lease]) -> Vec<Classification> {
    let leases = Leases::of(leases);
    let ranges = PrefixMap::of(pools.iter().zip(0..).map(|(pool, index)| (pool.prefix, index)));
    let mut order: Vec<usize> = (0..flows.len()).collect();
    order.sort_unstable_by_key(|index| flows[*index].address);

    let mut classes = vec![Classification::default(); flows.len()];
    for same in order.chunk_by(|a, b| flows[*a].address == flows[*b].address) {
        let address = flows[same[0]].address;
        let context = AddressContext::of(same.iter().map(|index| &flows[*index]));
        let pool = ranges.find(address).and_then(|index| pools.get(index as usize));
        for index in same {
            let flow = &flows[*index];
            let class = &mut classes[*index];
            class.apply_properties(Evidence::UserAgent, flow.agent);
            let beside = context.corroboration(flow);
            class.shared = beside.contradicts;
            if !beside.contradicts {
                class.apply(Evidence::Concurrent, beside.handheld, beside.system, None);
            }
            if let Some(pool) = pool {
                let confidence =
                    if class.shared { SHARED_POOL_CONFIDENCE } else { POOL_CONFIDENCE };
                let handheld = pool.handheld.map(|value| (value, confidence));
                let system = pool.system.map(|value| (value, confidence));
                class.apply(Evidence::Pool, handheld, system, None);
            }
            if let Some(lease) = leases.at(address, flow.started).filter(|_| !class.shared) {
                class.apply_properties(Evidence::Dhcp, lease.device);
            }
            class.apply_properties(Evidence::Tls, flow.tls);
        }
    }
    classes
}

impl Classification {
    fn apply_properties(&mut self, evidence: Evidence, properties: Option<DeviceProperties>) {
        let Some(properties) = properties.filter(|properties| !properties.robot) else { return };
        let handheld = properties.handheld.map(|value| (value, properties.confidence));
        let system = properties.system.map(|value| (value, properties.confidence));
        self.apply(evidence, handheld, system, properties.version);
    }

    /// Fills in open properties, unless the evidence contradicts a known property.
    fn apply(
        &mut self,
        evidence: Evidence,
        handheld: Option<(bool, f64)>,
        system: Option<(System, f64)>,
        version: Option<(u16, u16)>,
    ) {
        let known = self.system.map(|found| found.value);
        let agreed = match (known, system) {
            (Some(known), Some((offered, _))) => known.combine(offered),
            (known, offered) => known.or(offered.map(|(value, _)| value)),
        };
        let system_contradicts = agreed.is_none() && known.is_some();
        let handheld_contradicts = self
            .handheld
            .is_some_and(|found| handheld.is_some_and(|(offered, _)| offered != found.value));
        if system_contradicts || handheld_contradicts {
            return;
        }
        if let (None, Some((value, confidence))) = (self.handheld, handheld) {
            self.handheld = Some(Finding { value, evidence, confidence });
        }
        if let (Some(value), Some((_, confidence))) = (agreed.filter(|_| agreed != known), system) {
            self.system = Some(Finding { value, evidence, confidence });
            self.version = version;
        }
    }
}

/// Leases, sorted by address and start.
pub(super) struct Leases<'a>(Vec<&'a Lease>);

impl<'a> Leases<'a> {
    pub(super) fn of(leases: &'a [Lease]) -> Self {
        let mut sorted: Vec<&Lease> = leases.iter().collect();
        sorted.sort_by_key(|lease| (lease.address, lease.from));
        Self(sorted)
    }

    /// Returns the latest lease of `address` that began before `time`, if it has not ended.
    pub(super) fn at(&self, address: IpAddr, time: Time) -> Option<&'a Lease> {
        let end = self.0.partition_point(|lease| (lease.address, lease.from) <= (address, time));
        let lease = *self.0.get(end.checked_sub(1)?)?;
        (lease.address == address && time <= lease.until).then_some(lease)
    }
}
