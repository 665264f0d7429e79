//! Requests of second runs, with seeds that no rule was tuned on.

use manyways_model::matching::mutations::{
    Asked, Parameters, Sample, index, population, second_run,
};
use manyways_model::matching::{Index, Rule, Session};
use manyways_rig::launch::DriveError;

use super::cells::Seeds;
use super::plan::Cell;
use crate::figures::{Figures, Record};

pub const OURS: &str = "ours";
pub const MAHIMAHI: &str = "Mahimahi's";
/// Shares in per cent.
pub const MISSED: &str = "missed, %";
pub const WRONG: &str = "wrong object, %";

pub fn measure(
    replay: &super::Replay,
    cell: &Cell,
    seeds: Seeds,
    record: &mut Record,
    progress: &mut dyn FnMut(u32),
) -> Result<(), DriveError> {
    cell.run_rounds(&cell.contenders, replay.tools.seed, record, progress, |_, contender| {
        let rule = match *contender {
            MAHIMAHI => Rule::Mahimahi { user_agent: true },
            _ => Rule::Ours,
        };
        let mut counts = Counts::default();
        let parameters = Parameters::default();
        for seed in seeds.first..seeds.first + seeds.count {
            let recorded = population(&parameters, seed);
            let asked = second_run(&parameters, &recorded, seed);
            counts.add(&index(rule, &recorded), &recorded, &asked);
        }
        Ok(Figures::run(Ok(counts.figures())))
    })
}

#[derive(Debug, Default)]
struct Counts {
    asked: u32,
    /// Of objects that were recorded.
    known: u32,
    missed: u32,
    wrong: u32,
}

impl Counts {
    fn add(&mut self, index: &Index, recorded: &[Sample], asked: &[Asked]) {
        let mut session = Session::new();
        for request in asked {
            let fields = request.rendered.borrowed_fields();
            let answer = index.find(&mut session, &request.rendered.request(&fields));
            let found = answer.hit().and_then(|hit| recorded.get(hit.id)).map(|one| one.object);
            self.asked += 1;
            self.known += u32::from(request.object.is_some());
            self.missed += u32::from(request.object.is_some() && found.is_none());
            self.wrong += u32::from(found.is_some() && found != request.object);
        }
    }

    fn figures(&self) -> Figures {
        let share = |part: u32, whole: u32| f64::from(part) / f64::from(whole) * 100.0;
        Figures::of([
            ("requests", f64::from(self.asked)),
            (MISSED, share(self.missed, self.known)),
            (WRONG, share(self.wrong, self.asked)),
        ])
    }
}
