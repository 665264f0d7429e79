//! Devices, separated by address and time.

use std::net::IpAddr;

use manyways_unit::{Span, Time};

use super::classify::Leases;
use super::{Classification, Evidence, Finding, Flow, Lease, System, same};

/// Idle times after which an address belongs to another device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gaps {
    /// An address without a flow for this time has a new owner.
    pub idle: Span,
    /// An address has a new owner after this time if a user agent contradicts the previous ones.
    /// After a shorter time the address counts as shared.
    pub changed: Span,
}

impl Default for Gaps {
    /// 30 min, a typical lease time of guest networks, and 30 s.
    fn default() -> Self {
        Self { idle: Span::from_secs(30 * 60), changed: Span::from_secs(30) }
    }
}

/// The device that had an address for a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    pub address: IpAddr,
    /// Hardware address of the DHCP lease. `None` without a lease in the capture.
    pub hardware: Option<[u8; 6]>,
    /// Start of its first flow.
    pub first: Time,
    /// End of the last of its flows.
    pub last: Time,
    /// Number of its flows.
    pub flows: u64,
    /// From the best evidence of any flow.
    pub handheld: Option<Finding<bool>>,
    /// From the best evidence of any flow.
    pub system: Option<Finding<System>>,
    /// Whether its flows have contradicting devices, so that several devices share the address.
    pub shared: bool,
    /// Number of flows by their best evidence, in the order of [`Evidence::ALL`].
    pub evidence: [u64; Evidence::ALL.len()],
}

impl Device {
    /// Whether the hardware address is locally administered, which means that the device chose it
    /// at random.
    pub fn hardware_is_local(&self) -> bool {
        self.hardware.is_some_and(|bytes| bytes[0] & 2 != 0)
    }
}

/// Lists the devices of each address, by address and time, from flows and the [`Classification`] of
/// each flow.
///
/// An address has a new device after a long idle time, after a lease to another hardware address,
/// and after a shorter idle time if a user agent contradicts the previous ones. Rows of different
/// addresses are never joined.
pub fn devices(
    flows: &[Flow],
    classes: &[Classification],
    leases: &[Lease],
    gaps: Gaps,
) -> Vec<Device> {
    let leases = Leases::of(leases);
    let mut order: Vec<(&Flow, &Classification)> = flows.iter().zip(classes).collect();
    order.sort_by_key(|(flow, _)| (flow.address, flow.started, flow.ended));
    let mut devices = Vec::new();
    let mut current: Option<Row> = None;
    for (flow, class) in order {
        let hardware = leases.at(flow.address, flow.started).and_then(|lease| lease.hardware);
        let going_on = current.take_if(|row| row.is_same_device(flow, class, hardware, gaps));
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

/// A row under construction.
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

    fn is_same_device(
        &self,
        flow: &Flow,
        class: &Classification,
        hardware: Option<[u8; 6]>,
        gaps: Gaps,
    ) -> bool {
        let gap = flow.started.since(self.device.last);
        let other_hardware = match (self.device.hardware, hardware) {
            (Some(known), Some(now)) => known != now,
            _ => false,
        };
        let contradicts = self.handheld.contradicts(class.handheld, same)
            || self.system.contradicts(class.system, System::combine);
        let others = gap > gaps.idle || other_hardware || (contradicts && gap >= gaps.changed);
        flow.address == self.device.address && !others
    }

    fn add(&mut self, flow: &Flow, class: &Classification, hardware: Option<[u8; 6]>) {
        let device = &mut self.device;
        device.last = device.last.max(flow.started).max(flow.ended);
        device.flows += 1;
        device.hardware = device.hardware.or(hardware);
        device.shared |= class.shared;
        let by_handheld = class.handheld.map(|found| found.evidence);
        let by_system = class.system.map(|found| found.evidence);
        // A flow with two kinds of evidence counts for the better one.
        if let Some(evidence) = by_handheld.into_iter().chain(by_system).min() {
            device.evidence[evidence as usize] += 1;
        }
        self.handheld.add(class.handheld, same);
        self.system.add(class.system, System::combine);
    }

    fn finish(self) -> Device {
        let shared = self.device.shared
            || self.handheld.by_evidence[0].contradicted
            || self.system.by_evidence[0].contradicted;
        Device { handheld: self.handheld.best(), system: self.system.best(), shared, ..self.device }
    }
}

/// Values of the flows, by evidence.
struct Votes<T> {
    by_evidence: [Vote<T>; Evidence::ALL.len()],
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
        Self { by_evidence: std::array::from_fn(|_| vote()) }
    }
}

impl<T: Copy> Votes<T> {
    fn add(&mut self, found: Option<Finding<T>>, agreed: impl Fn(T, T) -> Option<T>) {
        let Some(found) = found else { return };
        let vote = &mut self.by_evidence[found.evidence as usize];
        vote.flows += 1;
        vote.confidence += found.confidence;
        match vote.value.map(|value| agreed(value, found.value)) {
            None => vote.value = Some(found.value),
            Some(Some(both)) => vote.value = Some(both),
            Some(None) => vote.contradicted = true,
        }
    }

    /// Whether the user agent of a flow contradicts the previous ones.
    fn contradicts(&self, found: Option<Finding<T>>, agreed: impl Fn(T, T) -> Option<T>) -> bool {
        let now = found.filter(|found| found.evidence == Evidence::UserAgent);
        match (self.by_evidence[Evidence::UserAgent as usize].value, now) {
            (Some(before), Some(now)) => agreed(before, now.value).is_none(),
            _ => false,
        }
    }

    /// Returns the value of the best evidence. `None` if that evidence contradicts itself: weaker
    /// evidence cannot decide.
    fn best(&self) -> Option<Finding<T>> {
        let (evidence, vote) =
            Evidence::ALL.into_iter().zip(&self.by_evidence).find(|(_, vote)| vote.flows > 0)?;
        let value = vote.value.filter(|_| !vote.contradicted)?;
        Some(Finding { value, evidence, confidence: vote.confidence / vote.flows as f64 })
    }
}
