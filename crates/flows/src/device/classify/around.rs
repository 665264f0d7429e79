//! What the flows of one address say beside each other (campus Wi-Fi paper, 3.2).

use manyways_unit::Time;

use super::{CONCURRENT_CONFIDENCE, Flow};
use crate::device::{System, unanimous};

/// What the user agents of an address say, by when they were there.
pub(super) struct Around {
    handheld: [Lives; 2],
    systems: Vec<(System, Lives)>,
}

/// What is said beside a flow, each with a confidence.
pub(super) struct Beside {
    pub(super) handheld: Option<(bool, f64)>,
    pub(super) system: Option<(System, f64)>,
    /// Two that are there with the flow cannot be one device.
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

    /// What is said at any time of this flow's life, itself included.
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

/// The lives of flows that say the same.
#[derive(Default)]
struct Lives {
    /// When they began, and when they ended: each with the confidence in it and, once settled, in
    /// all before it. In millionths, so that what is added can be taken away again exactly.
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

    /// The confidence in those that share a moment with this flow, on average. None when there are
    /// none: those are all that begin before it ends, but for those that end before it begins.
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
