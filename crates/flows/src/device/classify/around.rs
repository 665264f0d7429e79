//! User agents of concurrent flows of one address (campus Wi-Fi paper, 3.2).

use manyways_unit::Time;

use super::{CONCURRENT_CONFIDENCE, Flow};
use crate::device::{System, unanimous};

/// User agents of an address, with the lives of their flows.
pub(super) struct Around {
    handheld: [Lives; 2],
    systems: Vec<(System, Lives)>,
}

/// Evidence of flows that are concurrent with a flow, with confidence.
pub(super) struct Beside {
    pub(super) handheld: Option<(bool, f64)>,
    pub(super) system: Option<(System, f64)>,
    /// Whether two concurrent flows cannot belong to one device.
    pub(super) contradicts: bool,
}

impl Around {
    pub(super) fn of<'a>(flows: impl Iterator<Item = &'a Flow>) -> Self {
        let mut around = Self { handheld: [Lives::default(), Lives::default()], systems: vec![] };
        for flow in flows {
            let Some(sight) = flow.agent.filter(|sight| !sight.robot) else { continue };
            if let Some(handheld) = sight.handheld {
                around.handheld[usize::from(handheld)].push(flow, sight.confidence);
            }
            if let Some(system) = sight.system {
                let at = around.systems.iter().position(|(known, _)| *known == system);
                let at = at.unwrap_or_else(|| {
                    around.systems.push((system, Lives::default()));
                    around.systems.len() - 1
                });
                around.systems[at].1.push(flow, sight.confidence);
            }
        }
        let systems = around.systems.iter_mut().map(|(_, lives)| lives);
        around.handheld.iter_mut().chain(systems).for_each(Lives::settle);
        around
    }

    /// Returns the evidence of all flows, `flow` included, that overlap with the life of `flow`.
    pub(super) fn beside(&self, flow: &Flow) -> Beside {
        let [not, held] = &self.handheld;
        let (handheld, both) = match (not.beside(flow), held.beside(flow)) {
            (Some(_), Some(_)) => (None, true),
            (Some(confidence), None) => (Some((false, confidence)), false),
            (None, Some(confidence)) => (Some((true, confidence)), false),
            (None, None) => (None, false),
        };
        let there = || {
            self.systems.iter().filter_map(|(system, lives)| Some((*system, lives.beside(flow)?)))
        };
        let system = unanimous(there().map(|(system, _)| system), System::agreed);
        Beside {
            handheld,
            system: there().find(|(found, _)| Some(*found) == system),
            contradicts: both || (system.is_none() && there().next().is_some()),
        }
    }
}

/// Lives of the flows with equal evidence.
#[derive(Default)]
struct Lives {
    /// Start and end times, each with its confidence, which `settle` turns into prefix sums. In
    /// millionths, because integers can be subtracted exactly.
    begun: Vec<(Time, u64)>,
    ended: Vec<(Time, u64)>,
}

impl Lives {
    fn push(&mut self, flow: &Flow, confidence: f64) {
        let millionths = (confidence.clamp(0.0, 1.0) * 1e6) as u64;
        self.begun.push((flow.started, millionths));
        self.ended.push((flow.ended.max(flow.started), millionths));
    }

    fn settle(&mut self) {
        for times in [&mut self.begun, &mut self.ended] {
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
    fn beside(&self, flow: &Flow) -> Option<f64> {
        let until = flow.ended.max(flow.started);
        let begun = self.begun.partition_point(|(time, _)| *time <= until);
        let over = self.ended.partition_point(|(time, _)| *time < flow.started);
        let sum = |times: &[(Time, u64)], count: usize| {
            count.checked_sub(1).and_then(|last| times.get(last)).map_or(0, |(_, sum)| *sum)
        };
        let count = begun.checked_sub(over).filter(|count| *count > 0)?;
        let millionths = sum(&self.begun, begun).saturating_sub(sum(&self.ended, over));
        Some(CONCURRENT_CONFIDENCE * millionths as f64 / 1e6 / count as f64)
    }
}
