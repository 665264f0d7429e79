//! User agents of concurrent flows of one address (campus Wi-Fi paper, 3.2).

use manyways_unit::Time;

use super::{CONCURRENT_CONFIDENCE, Flow};
use crate::device::{System, unanimous};

/// User agents of an address, with the lives of their flows.
pub(super) struct AddressContext {
    handheld: [Lifetimes; 2],
    systems: Vec<(System, Lifetimes)>,
}

/// Evidence of flows that are concurrent with a flow, with confidence.
pub(super) struct Corroboration {
    pub(super) handheld: Option<(bool, f64)>,
    pub(super) system: Option<(System, f64)>,
    /// Whether two concurrent flows cannot belong to one device.
    pub(super) contradicts: bool,
}

impl AddressContext {
    pub(super) fn of<'a>(flows: impl Iterator<Item = &'a Flow>) -> Self {
        let mut context =
            Self { handheld: [Lifetimes::default(), Lifetimes::default()], systems: vec![] };
        for flow in flows {
            let Some(properties) = flow.agent.filter(|properties| !properties.robot) else {
                continue;
            };
            if let Some(handheld) = properties.handheld {
                context.handheld[usize::from(handheld)].push(flow, properties.confidence);
            }
            if let Some(system) = properties.system {
                let at = context.systems.iter().position(|(known, _)| *known == system);
                let at = at.unwrap_or_else(|| {
                    context.systems.push((system, Lifetimes::default()));
                    context.systems.len() - 1
                });
                context.systems[at].1.push(flow, properties.confidence);
            }
        }
        let systems = context.systems.iter_mut().map(|(_, lives)| lives);
        context.handheld.iter_mut().chain(systems).for_each(Lifetimes::settle);
        context
    }

    /// Returns the evidence of all flows, `flow` included, that overlap with the life of `flow`.
    pub(super) fn corroboration(&self, flow: &Flow) -> Corroboration {
        let [not, held] = &self.handheld;
        let (handheld, both) = match (not.mean_confidence(flow), held.mean_confidence(flow)) {
            (Some(_), Some(_)) => (None, true),
            (Some(confidence), None) => (Some((false, confidence)), false),
            (None, Some(confidence)) => (Some((true, confidence)), false),
            (None, None) => (None, false),
        };
        let there = || {
            self.systems
                .iter()
                .filter_map(|(system, lives)| Some((*system, lives.mean_confidence(flow)?)))
        };
        let system = unanimous(there().map(|(system, _)| system), System::combine);
        Corroboration {
            handheld,
            system: there().find(|(found, _)| Some(*found) == system),
            contradicts: both || (system.is_none() && there().next().is_some()),
        }
    }
}

/// Lives of the flows with equal evidence.
#[derive(Default)]
struct Lifetimes {
    /// Start and end times, each with its confidence, which `settle` turns into prefix sums. In
    /// millionths, because integers can be subtracted exactly.
    starts: Vec<(Time, u64)>,
    ends: Vec<(Time, u64)>,
}

impl Lifetimes {
    fn push(&mut self, flow: &Flow, confidence: f64) {
        let millionths = (confidence.clamp(0.0, 1.0) * 1e6) as u64;
        self.starts.push((flow.started, millionths));
        self.ends.push((flow.ended.max(flow.started), millionths));
    }

    fn settle(&mut self) {
        for times in [&mut self.starts, &mut self.ends] {
            times.sort_unstable();
            let mut sum = 0;
            for (_, confidence) in times {
                sum += *confidence;
                *confidence = sum;
            }
        }
    }

    /// Returns the average confidence of the flows that overlap with `flow`: those that begin
    /// before its end, minus those that end before its start. `None` if there are none.
    fn mean_confidence(&self, flow: &Flow) -> Option<f64> {
        let until = flow.ended.max(flow.started);
        let begun = self.starts.partition_point(|(time, _)| *time <= until);
        let over = self.ends.partition_point(|(time, _)| *time < flow.started);
        let sum = |times: &[(Time, u64)], count: usize| {
            count.checked_sub(1).and_then(|last| times.get(last)).map_or(0, |(_, sum)| *sum)
        };
        let count = begun.checked_sub(over).filter(|count| *count > 0)?;
        let millionths = sum(&self.starts, begun).saturating_sub(sum(&self.ends, over));
        Some(CONCURRENT_CONFIDENCE * millionths as f64 / 1e6 / count as f64)
    }
}
