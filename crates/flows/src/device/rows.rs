//! Who was there: devices as far as addresses and times tell them apart.

use std::net::IpAddr;

use manyways_unit::{Span, Time};

use super::classify::Leases;
use super::{Class, Evidence, Finding, Flow, Lease, System, same};

/// When an address is somebody else's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gaps {
    /// After so long without a flow, whatever comes then.
    pub idle: Span,
    /// After so long, when a user agent then contradicts what user agents said before. Sooner than
    /// an address is given to somebody else, it is one address that many share.
    pub changed: Span,
}

impl Default for Gaps {
    /// Half an hour, about what networks for guests lease addresses for, and half a minute.
    fn default() -> Self {
        Self { idle: Span::from_secs(30 * 60), changed: Span::from_secs(30) }
    }
}

/// Who had an address for a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// The address.
    pub address: IpAddr,
    /// The hardware address that it was leased to.
    pub hardware: Option<[u8; 6]>,
    /// When its first flow started.
    pub first: Time,
    /// When the last of its flows ended.
    pub last: Time,
    /// How many flows it has.
    pub flows: u64,
    /// Whether it is handheld, by the best evidence of any flow.
    pub handheld: Option<Finding<bool>>,
    /// Its system, by the best evidence of any flow.
    pub system: Option<Finding<System>>,
    /// Its flows tell of different devices: this is more than one.
    pub shared: bool,
    /// How many flows are known by each kind of evidence, in the order of [`Evidence::ALL`].
    pub evidence: [u64; Evidence::ALL.len()],
}

impl Device {
    /// Whether the hardware address was made up by the device rather than by its maker (the bit
    /// for locally administered addresses): it tells nothing beyond this row.
    pub fn hardware_is_local(&self) -> bool {
        self.hardware.is_some_and(|bytes| bytes[0] & 2 != 0)
    }
}

/// Who had which address when, by address and time, from flows and the [`Class`] of each.
///
/// An address is somebody else's after a long silence, when its lease goes to other hardware, and
/// when a user agent contradicts those before a shorter silence. Rows of different addresses are
/// never joined.
pub fn devices(flows: &[Flow], classes: &[Class], leases: &[Lease], gaps: Gaps) -> Vec<Device> {
    let leases = Leases::of(leases);
    let mut order: Vec<(&Flow, &Class)> = flows.iter().zip(classes).collect();
    order.sort_by_key(|(flow, _)| (flow.address, flow.started, flow.ended));
    let mut devices = Vec::new();
    let mut current: Option<Row> = None;
    for (flow, class) in order {
        let hardware = leases.at(flow.address, flow.started).and_then(|lease| lease.hardware);
        let going_on = current.take_if(|row| row.goes_on_with(flow, class, hardware, gaps));
        let mut row = going_on.unwrap_or_else(|| {
            devices.extend(current.take().map(Row::finish));
            Row::new(flow)
        });
        row.add(flow, class, hardware);
        current = Some(row);
    }
    devices.extend(current.map(Row::finish));
    devices
}

/// A row that grows.
struct Row {
    device: Device,
    handheld: Votes<bool>,
    system: Votes<System>,
}

impl Row {
    fn new(flow: &Flow) -> Self {
        let device = Device {
            address: flow.address,
            hardware: None,
            first: flow.started,
            last: flow.started,
            flows: 0,
            handheld: None,
            system: None,
            shared: false,
            evidence: [0; Evidence::ALL.len()],
        };
        Self { device, handheld: Votes::default(), system: Votes::default() }
    }

    fn goes_on_with(
        &self,
        flow: &Flow,
        class: &Class,
        hardware: Option<[u8; 6]>,
        gaps: Gaps,
    ) -> bool {
        let gap = flow.started.since(self.device.last);
        let other_hardware = match (self.device.hardware, hardware) {
            (Some(known), Some(now)) => known != now,
            _ => false,
        };
        let contradicts = self.handheld.contradicts(class.handheld, same)
            || self.system.contradicts(class.system, System::agreed);
        let others = gap > gaps.idle || other_hardware || (contradicts && gap >= gaps.changed);
        flow.address == self.device.address && !others
    }

    fn add(&mut self, flow: &Flow, class: &Class, hardware: Option<[u8; 6]>) {
        let device = &mut self.device;
        device.last = device.last.max(flow.started).max(flow.ended);
        device.flows += 1;
        device.hardware = device.hardware.or(hardware);
        device.shared |= class.shared;
        let by_handheld = class.handheld.map(|found| found.evidence);
        let by_system = class.system.map(|found| found.evidence);
        // A flow that is known by two counts by the better one.
        if let Some(evidence) = by_handheld.into_iter().chain(by_system).min() {
            device.evidence[evidence as usize] += 1;
        }
        self.handheld.add(class.handheld, same);
        self.system.add(class.system, System::agreed);
    }

    fn finish(self) -> Device {
        let shared = self.device.shared
            || self.handheld.by[0].contradicted
            || self.system.by[0].contradicted;
        Device { handheld: self.handheld.best(), system: self.system.best(), shared, ..self.device }
    }
}

/// What flows say, by what evidence.
struct Votes<T> {
    by: [Vote<T>; Evidence::ALL.len()],
}

struct Vote<T> {
    value: Option<T>,
    contradicted: bool,
    flows: u64,
    confidence: f64,
}

impl<T> Default for Votes<T> {
    fn default() -> Self {
        let vote = || Vote { value: None, contradicted: false, flows: 0, confidence: 0.0 };
        Self { by: std::array::from_fn(|_| vote()) }
    }
}

impl<T: Copy> Votes<T> {
    fn add(&mut self, found: Option<Finding<T>>, agreed: impl Fn(T, T) -> Option<T>) {
        let Some(found) = found else { return };
        let vote = &mut self.by[found.evidence as usize];
        vote.flows += 1;
        vote.confidence += found.confidence;
        match vote.value.map(|value| agreed(value, found.value)) {
            None => vote.value = Some(found.value),
            Some(Some(both)) => vote.value = Some(both),
            Some(None) => vote.contradicted = true,
        }
    }

    /// Whether the user agent of a flow contradicts those before it.
    fn contradicts(&self, found: Option<Finding<T>>, agreed: impl Fn(T, T) -> Option<T>) -> bool {
        let now = found.filter(|found| found.evidence == Evidence::UserAgent);
        match (self.by[Evidence::UserAgent as usize].value, now) {
            (Some(before), Some(now)) => agreed(before, now.value).is_none(),
            _ => false,
        }
    }

    /// What the best evidence says. Where that contradicts itself, the rest cannot decide.
    fn best(&self) -> Option<Finding<T>> {
        let (evidence, vote) =
            Evidence::ALL.into_iter().zip(&self.by).find(|(_, vote)| vote.flows > 0)?;
        let value = vote.value.filter(|_| !vote.contradicted)?;
        Some(Finding { value, evidence, confidence: vote.confidence / vote.flows as f64 })
    }
}
