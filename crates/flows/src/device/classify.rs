//! What each flow's device is, by all that is known.

mod around;

use std::net::IpAddr;

use manyways_unit::Time;

use super::{Sight, System};
use around::Around;
use manyways_unit::Prefix;
use manyways_unit::PrefixMap;

/// How far it is believed that a flow belongs to the same device as one of the same address at the
/// same time: this times as much as what that one says itself.
const CONCURRENT_CONFIDENCE: f64 = 0.9;
/// How far a pool is believed, and as much where flows show that many share an address of it.
const POOL_CONFIDENCE: f64 = 0.9;
const SHARED_POOL_CONFIDENCE: f64 = 0.45;

/// What is known of a flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flow {
    /// The client's address.
    pub address: IpAddr,
    /// The time of its first packet.
    pub started: Time,
    /// The time of its last packet.
    pub ended: Time,
    /// What its user agents tell together ([`Sight::agreed`]).
    pub agent: Option<Sight>,
    /// What its TLS hello tells ([`ja4`](super::ja4)).
    pub tls: Option<Sight>,
}

/// Addresses that the user knows to be those of such devices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pool {
    /// The addresses.
    pub prefix: Prefix,
    /// Whether the devices are handheld.
    pub handheld: Option<bool>,
    /// Their system.
    pub system: Option<System>,
}

/// Who had an address for a time, as DHCP gave it out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lease {
    /// The address.
    pub address: IpAddr,
    /// Since when it is the device's.
    pub from: Time,
    /// Until when, unless another lease of the address begins earlier.
    pub until: Time,
    /// The device's hardware address.
    pub hardware: Option<[u8; 6]>,
    /// What the request tells of the device ([`dhcp`](super::dhcp)).
    pub sight: Option<Sight>,
}

/// What says so, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Evidence {
    /// A user agent in the flow.
    UserAgent,
    /// A user agent in another flow of the same address at the same time.
    Concurrent,
    /// A pool of addresses that the user gave.
    Pool,
    /// How the device asked for its address.
    Dhcp,
    /// The flow's TLS hello.
    Tls,
}

impl Evidence {
    /// All, the best first.
    pub const ALL: [Self; 5] =
        [Self::UserAgent, Self::Concurrent, Self::Pool, Self::Dhcp, Self::Tls];

    /// Its name in tables.
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

/// An answer, where it comes from, and how far it may be believed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finding<T> {
    /// The answer.
    pub value: T,
    /// What says so.
    pub evidence: Evidence,
    /// From 0 to 1: a judgement, not a measurement.
    pub confidence: f64,
}

/// What a flow's device is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Class {
    /// Whether it is handheld.
    pub handheld: Option<Finding<bool>>,
    /// Its system.
    pub system: Option<Finding<System>>,
    /// The system's version, from what told the system ([`Sight::version`]).
    pub version: Option<(u16, u16)>,
    /// Flows of the same address at the same time tell of different devices, as behind an address
    /// translator.
    pub shared: bool,
}

/// What the device of each flow is, in the order of `flows`, in O(n log n).
///
/// Each kind of evidence fills in what better evidence left open, and is passed over whole where it
/// contradicts that. [`System::Apple`] is open as to which one.
///
/// A flow takes over what the user agents of flows say that share a moment and the address with it.
/// What is taken over is not handed on. Where those contradict each other the address is shared:
/// nothing is taken over, the lease is passed over as it is only the translator's, and a pool is
/// believed half as much; the flow's own hello still counts.
pub fn classify(flows: &[Flow], pools: &[Pool], leases: &[Lease]) -> Vec<Class> {
    let leases = Leases::of(leases);
    let ranges = PrefixMap::of(pools.iter().zip(0..).map(|(pool, index)| (pool.prefix, index)));
    let mut order: Vec<usize> = (0..flows.len()).collect();
    order.sort_unstable_by_key(|index| flows[*index].address);

    let mut classes = vec![Class::default(); flows.len()];
    for same in order.chunk_by(|a, b| flows[*a].address == flows[*b].address) {
        let address = flows[same[0]].address;
        let around = Around::of(same.iter().map(|index| &flows[*index]));
        let pool = ranges.find(address).and_then(|index| pools.get(index as usize));
        for index in same {
            let flow = &flows[*index];
            let class = &mut classes[*index];
            class.offer_sight(Evidence::UserAgent, flow.agent);
            let beside = around.beside(flow);
            class.shared = beside.contradicts;
            if !beside.contradicts {
                class.offer(Evidence::Concurrent, beside.handheld, beside.system, None);
            }
            if let Some(pool) = pool {
                let confidence =
                    if class.shared { SHARED_POOL_CONFIDENCE } else { POOL_CONFIDENCE };
                let handheld = pool.handheld.map(|value| (value, confidence));
                let system = pool.system.map(|value| (value, confidence));
                class.offer(Evidence::Pool, handheld, system, None);
            }
            if let Some(lease) = leases.at(address, flow.started).filter(|_| !class.shared) {
                class.offer_sight(Evidence::Dhcp, lease.sight);
            }
            class.offer_sight(Evidence::Tls, flow.tls);
        }
    }
    classes
}

impl Class {
    fn offer_sight(&mut self, evidence: Evidence, sight: Option<Sight>) {
        let Some(sight) = sight.filter(|sight| !sight.robot) else { return };
        let handheld = sight.handheld.map(|value| (value, sight.confidence));
        let system = sight.system.map(|value| (value, sight.confidence));
        self.offer(evidence, handheld, system, sight.version);
    }

    /// Fills in what is open, unless it contradicts what is not.
    fn offer(
        &mut self,
        evidence: Evidence,
        handheld: Option<(bool, f64)>,
        system: Option<(System, f64)>,
        version: Option<(u16, u16)>,
    ) {
        let known = self.system.map(|found| found.value);
        let agreed = match (known, system) {
            (Some(known), Some((offered, _))) => known.agreed(offered),
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

/// Leases by address and when they begin.
pub(super) struct Leases<'a>(Vec<&'a Lease>);

impl<'a> Leases<'a> {
    pub(super) fn of(leases: &'a [Lease]) -> Self {
        let mut sorted: Vec<&Lease> = leases.iter().collect();
        sorted.sort_by_key(|lease| (lease.address, lease.from));
        Self(sorted)
    }

    /// The lease that began last, if it holds at this time.
    pub(super) fn at(&self, address: IpAddr, time: Time) -> Option<&'a Lease> {
        let end = self.0.partition_point(|lease| (lease.address, lease.from) <= (address, time));
        let lease = *self.0.get(end.checked_sub(1)?)?;
        (lease.address == address && time <= lease.until).then_some(lease)
    }
}
