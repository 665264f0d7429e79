//! Runs policies over a trace on all cores. The trace is read once for all policies and never held
//! in memory.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use manyways_model::radio::plan::{Learned, Plan};
use manyways_model::radio::policy::{NEVER, Policy};
use manyways_model::radio::simulate::{Decides, Outcome, Simulation};
use manyways_model::radio::{App, Packet, Profile, Survey, Tolerant};

use super::trace::{Progress, Seen, Trace, TraceError};

/// Packets per message from the reader to the workers.
const PIECE: usize = 8_192;
/// Messages in each worker's queue.
const WAITING: usize = 4;
/// Maximum number of stored decisions of a run.
const KEPT: usize = 2_048;

/// A policy on a radio.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// Index of the profile.
    pub profile: usize,
    pub plan: Plan,
}

/// Result of a run.
#[derive(Clone, Debug, Default)]
pub struct Ran {
    pub outcome: Outcome,
    /// Sample of the policy's waits: seconds since the first packet, and seconds of the wait
    /// (infinite if left to the network).
    pub waits: Vec<(f64, f64)>,
    /// Sample of the delays of sessions, in the same form.
    pub holds: Vec<(f64, f64)>,
}

/// Runs all jobs over a trace; `keeps` selects whether decisions are stored.
///
/// A first pass determines the trace properties that policies need in advance, and the
/// delay-tolerant applications, if any job needs them.
///
/// # Errors
/// Returns the fault of the trace.
pub fn run(
    trace: &mut Trace,
    profiles: &[Profile],
    jobs: &[Job],
    tolerant: &Tolerant,
    threads: usize,
    keeps: bool,
    progress: &Progress,
) -> Result<(Seen, Vec<Ran>), TraceError> {
    let mut survey = Survey::new(profiles);
    let mut may_wait = Vec::new();
    if jobs.iter().any(|job| job.plan.quantile().is_some() || job.plan.holds()) {
        trace.read(progress, |packet| survey.push(packet))?;
        may_wait = trace.apps().iter().map(|app: &App| tolerant.may_wait(app)).collect();
    }
    let tolerates = |packet: &Packet| may_wait.get(usize::from(packet.app)) == Some(&true);
    let threads = threads.clamp(1, jobs.len().max(1));
    let mut shares: Vec<Vec<usize>> = vec![Vec::new(); threads];
    // The slowest jobs are distributed first.
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    order.sort_by_key(|job| std::cmp::Reverse(jobs[*job].plan.weight()));
    for (turn, job) in order.into_iter().enumerate() {
        shares[turn % threads].push(job);
    }
    let mut all: Vec<Ran> = vec![Ran::default(); jobs.len()];
    let seen = thread::scope(|scope| {
        let mut senders: Vec<SyncSender<Arc<Vec<Packet>>>> = Vec::new();
        let mut workers = Vec::new();
        for share in &shares {
            let (sender, pieces) = sync_channel::<Arc<Vec<Packet>>>(WAITING);
            senders.push(sender);
            let (survey, tolerates) = (&survey, &tolerates);
            workers.push(scope.spawn(move || {
                let policy = |job: &usize| {
                    let Job { profile, plan } = jobs[*job];
                    let quantile = plan.quantile().and_then(|p| survey.gaps().quantile(p));
                    let learned = Learned {
                        gap: quantile.unwrap_or(NEVER),
                        bursts: survey.bursts_per_period(profile),
                    };
                    let policy = plan.policy(&profiles[profile], learned);
                    Kept { policy, keeps, first: None, waits: Thin::new(), holds: Thin::new() }
                };
                let mut policies: Vec<Kept> = share.iter().map(policy).collect();
                let mut runs: Vec<Simulation<'_, '_>> = policies
                    .iter_mut()
                    .zip(share)
                    .map(|(policy, job)| {
                        let Job { profile, plan } = jobs[*job];
                        let decides = match plan.is_oracle() {
                            true => Decides::Oracle,
                            false => Decides::Policy(policy),
                        };
                        Simulation::new(&profiles[profile], decides, tolerates)
                    })
                    .collect();
                for piece in pieces {
                    for run in &mut runs {
                        piece.iter().for_each(|packet| run.push(*packet));
                    }
                }
                let outcomes: Vec<Outcome> = runs.into_iter().map(Simulation::finish).collect();
                let ran = outcomes.into_iter().zip(policies).map(|(outcome, policy)| Ran {
                    outcome,
                    waits: policy.waits.points,
                    holds: policy.holds.points,
                });
                ran.collect::<Vec<Ran>>()
            }));
        }
        let mut piece = Vec::with_capacity(PIECE);
        let send = |piece: &mut Vec<Packet>| {
            let whole = Arc::new(std::mem::replace(piece, Vec::with_capacity(PIECE)));
            for sender in &senders {
                // A panic of a worker is reported by the join.
                let _ = sender.send(whole.clone());
            }
        };
        let seen = trace.read(progress, |packet| {
            piece.push(*packet);
            if piece.len() == PIECE {
                send(&mut piece);
            }
        });
        send(&mut piece);
        drop(senders);
        for (worker, share) in workers.into_iter().zip(&shares) {
            match worker.join() {
                Ok(ran) => {
                    for (ran, job) in ran.into_iter().zip(share) {
                        all[*job] = ran;
                    }
                }
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        seen
    })?;
    Ok((seen, all))
}

/// A policy whose decisions are stored.
struct Kept {
    policy: Box<dyn Policy + Send>,
    keeps: bool,
    first: Option<f64>,
    waits: Thin,
    holds: Thin,
}

impl Policy for Kept {
    fn observe(&mut self, packet: &Packet, gap: Option<f64>) -> f64 {
        let wait = self.policy.observe(packet, gap);
        if self.keeps {
            let now = packet.at.as_secs_f64();
            let first = *self.first.get_or_insert(now);
            self.waits.push(now - first, wait);
        }
        wait
    }

    fn holds(&self) -> bool {
        self.policy.holds()
    }

    fn begins(&mut self, now: f64) {
        self.policy.begins(now);
    }

    fn hold(&mut self, now: f64) -> f64 {
        let hold = self.policy.hold(now);
        if self.keeps {
            let first = *self.first.get_or_insert(now);
            self.holds.push(now - first, hold);
        }
        hold
    }
}

/// Stores every n-th value, with n growing to limit the number.
struct Thin {
    points: Vec<(f64, f64)>,
    every: u64,
    count: u64,
}

impl Thin {
    fn new() -> Self {
        Self { points: Vec::new(), every: 1, count: 0 }
    }

    fn push(&mut self, at: f64, value: f64) {
        if self.count.is_multiple_of(self.every) {
            if self.points.len() == KEPT {
                let mut place = 0;
                self.points.retain(|_| {
                    place += 1;
                    place % 2 == 1
                });
                self.every *= 2;
            }
            if self.count.is_multiple_of(self.every) {
                self.points.push((at, value));
            }
        }
        self.count += 1;
    }
}

#[cfg(test)]
mod tests {
    use manyways_model::radio::profiles;
    use manyways_unit::Span;

    use super::*;
    use crate::radio::trace::Made;

    fn made(app: &str) -> Trace {
        let lasts = Span::from_secs(20_000);
        Trace::made(Made { app: app.to_owned(), seed: 3, lasts }).unwrap()
    }

    /// With any number of threads the result equals that of a plain loop.
    #[test]
    fn threads_make_no_difference() {
        let names = ["att-hspa", "verizon-lte"];
        let profiles: Vec<Profile> =
            names.iter().map(|name| profiles::named(name).unwrap().unwrap()).collect();
        let texts =
            ["status-quo", "oracle", "iat", "makeidle:20", "context", "makeidle+makeactive"];
        let jobs: Vec<Job> = texts
            .iter()
            .flat_map(|text| {
                let plan = Plan::parse(text).unwrap();
                (0..2).map(move |profile| Job { profile, plan })
            })
            .collect();
        let tolerant = Tolerant::applications(&["im".to_owned()]);
        let outcomes = |threads| -> Vec<Outcome> {
            let progress = Progress::default();
            let mut trace = made("mixed-day");
            let ran = run(&mut trace, &profiles, &jobs, &tolerant, threads, false, &progress);
            ran.unwrap().1.into_iter().map(|ran| ran.outcome).collect()
        };
        let one = outcomes(1);
        assert_eq!(one, outcomes(3));
        assert_eq!(one, outcomes(100));
        assert!(one[10].delays.held > 0 && one[10].delays.held < one[10].delays.count);
        let mut policy = jobs[6].plan.policy(&profiles[0], Learned { gap: NEVER, bursts: 1.0 });
        let never = |_: &Packet| false;
        let mut by_hand = Simulation::new(&profiles[0], Decides::Policy(&mut *policy), &never);
        let mut trace = made("mixed-day");
        trace.read(&Progress::default(), |packet| by_hand.push(*packet)).unwrap();
        assert_eq!(by_hand.finish(), one[6]);
    }

    #[test]
    fn some_decisions_are_kept() {
        let profile = profiles::named("att-hspa").unwrap().unwrap();
        let plan = Plan::parse("makeidle:20+makeactive").unwrap();
        let tolerant = Tolerant::applications(&["*".to_owned()]);
        let jobs = [Job { profile: 0, plan }];
        let progress = Progress::default();
        let (seen, ran) =
            run(&mut made("im"), &[profile], &jobs, &tolerant, 1, true, &progress).unwrap();
        assert!(seen.packets > KEPT as u64);
        let Ran { waits, holds, .. } = &ran[0];
        assert!((KEPT / 2..=KEPT).contains(&waits.len()), "{}", waits.len());
        assert!(waits.is_sorted_by_key(|point| point.0) && !holds.is_empty());
        assert!(holds.iter().all(|(_, hold)| (1.0..=10.0).contains(hold)));
    }

    #[test]
    fn thinning_keeps_even_distances() {
        let mut thin = Thin::new();
        (0..10_000).for_each(|n| thin.push(f64::from(n), 0.0));
        let steps: Vec<f64> = thin.points.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
        assert!(steps.iter().all(|step| *step == steps[0]), "{steps:?}");
        assert!(thin.points.len() <= KEPT);
    }
}
