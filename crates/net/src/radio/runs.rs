//! Runs policies over a trace on all cores. The trace is read once for all policies and never held
//! in memory.

mod document;
mod table;

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use manyways_model::radio::compare::Sum;
use manyways_model::radio::sweep::{Job, Variants};
use manyways_model::radio::{
    App, Decider, DelayTolerance, Delays, Outcome, Packet, Policy, Profile, Simulation,
    TraceProfile,
};
use manyways_unit::{Span, Time};

pub use self::document::{Document, Run};
pub use self::table::{TableError, write_table};
use super::trace::{Progress, Trace, TraceError, TraceStats};

/// Packets per message from the reader to the workers.
const BATCH_PACKETS: usize = 8_192;
/// Messages in each worker's queue.
const QUEUE_BATCHES: usize = 4;
/// Maximum number of stored decisions of a run.
const MAX_POINTS: usize = 2_048;

/// Result of a run.
#[derive(Clone, Debug, Default)]
pub struct RunResult {
    pub outcome: Outcome,
    /// Sample of the policy's waits: seconds since the first packet, and seconds of the wait
    /// (infinite if left to the network).
    pub waits: Vec<(f64, f64)>,
    /// Sample of the delays of sessions, in the same form.
    pub delays: Vec<(f64, f64)>,
}

/// Results of a trace.
#[derive(Clone, Debug)]
pub struct TraceResult {
    /// Name of the trace.
    pub trace: String,
    pub trace_stats: TraceStats,
    /// One entry per run, in the order of the jobs.
    pub runs: Vec<RunResult>,
}

/// Results of all traces.
#[derive(Clone, Debug)]
pub struct Results {
    pub variants: Variants,
    pub traces: Vec<TraceResult>,
}

impl Results {
    /// Sum of a run over all traces.
    pub fn sum(&self, run: usize) -> Sum {
        let mut sum = Sum::default();
        for trace in &self.traces {
            self.add(&mut sum, trace, run);
        }
        sum
    }

    /// Sum of a run over one trace.
    pub fn trace_sum(&self, trace: &TraceResult, run: usize) -> Sum {
        let mut sum = Sum::default();
        self.add(&mut sum, trace, run);
        sum
    }

    fn add(&self, sum: &mut Sum, trace: &TraceResult, run: usize) {
        let job = &self.variants.jobs[run];
        let [status_quo, oracle] = self.variants.baselines[job.profile];
        let outcome = |run: usize| &trace.runs[run].outcome;
        sum.add(outcome(run), outcome(status_quo), outcome(oracle));
    }

    /// Whether policies delay sessions, but no session is delay-tolerant.
    pub fn has_nothing_to_delay(&self) -> bool {
        let mut runs =
            self.variants.jobs.iter().enumerate().filter(|(_, job)| job.plan.delays_sessions());
        let held =
            |run: usize| self.traces.iter().any(|one| one.runs[run].outcome.delays.count > 0);
        self.variants.jobs.iter().any(|job| job.plan.delays_sessions())
            && runs.all(|(run, _)| !held(run))
    }

    /// Quantile of the delays of delayed sessions over all traces.
    pub fn delay(&self, run: usize, share: f64) -> Option<Span> {
        let mut all = Delays::default();
        for trace in &self.traces {
            all.merge(&trace.runs[run].outcome.delays);
        }
        all.quantile(share)
    }
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
    tolerant: &DelayTolerance,
    threads: usize,
    keeps: bool,
    progress: &Progress,
) -> Result<(TraceStats, Vec<RunResult>), TraceError> {
    let mut traffic = TraceProfile::new(profiles);
    let mut may_wait = Vec::new();
    if jobs.iter().any(|job| job.plan.quantile().is_some() || job.plan.delays_sessions()) {
        trace.read(progress, |packet| traffic.push(packet))?;
        may_wait = trace.apps().iter().map(|app: &App| tolerant.is_delay_tolerant(app)).collect();
    }
    let tolerates = |packet: &Packet| may_wait.get(usize::from(packet.app)) == Some(&true);
    let threads = threads.clamp(1, jobs.len().max(1));
    let mut shares: Vec<Vec<usize>> = vec![Vec::new(); threads];
    // The slowest jobs are distributed first.
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    order.sort_by_key(|job| std::cmp::Reverse(jobs[*job].plan.cost_per_packet()));
    for (turn, job) in order.into_iter().enumerate() {
        shares[turn % threads].push(job);
    }
    let mut all: Vec<RunResult> = vec![RunResult::default(); jobs.len()];
    let stats = thread::scope(|scope| {
        let mut senders: Vec<SyncSender<Arc<Vec<Packet>>>> = Vec::new();
        let mut workers = Vec::new();
        for share in &shares {
            let (sender, pieces) = sync_channel::<Arc<Vec<Packet>>>(QUEUE_BATCHES);
            senders.push(sender);
            let (traffic, tolerates) = (&traffic, &tolerates);
            workers.push(scope.spawn(move || {
                let policy = |job: &usize| {
                    let Job { profile, plan } = jobs[*job];
                    let learned = plan.learned(traffic, profile);
                    let policy = plan.policy(&profiles[profile], learned);
                    RecordingPolicy {
                        policy,
                        is_recording: keeps,
                        start: None,
                        waits: ThinnedSeries::new(),
                        delays: ThinnedSeries::new(),
                    }
                };
                let mut policies: Vec<RecordingPolicy> = share.iter().map(policy).collect();
                let mut runs: Vec<Simulation<'_, '_>> = policies
                    .iter_mut()
                    .zip(share)
                    .map(|(policy, job)| {
                        let Job { profile, plan } = jobs[*job];
                        let decides = match plan.is_oracle() {
                            true => Decider::Oracle,
                            false => Decider::Policy(policy),
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
                let ran = outcomes.into_iter().zip(policies).map(|(outcome, policy)| RunResult {
                    outcome,
                    waits: policy.waits.points,
                    delays: policy.delays.points,
                });
                ran.collect::<Vec<RunResult>>()
            }));
        }
        let mut piece = Vec::with_capacity(BATCH_PACKETS);
        let send = |piece: &mut Vec<Packet>| {
            let whole = Arc::new(std::mem::replace(piece, Vec::with_capacity(BATCH_PACKETS)));
            for sender in &senders {
                // A panic of a worker is reported by the join.
                let _ = sender.send(whole.clone());
            }
        };
        let seen = trace.read(progress, |packet| {
            piece.push(*packet);
            if piece.len() == BATCH_PACKETS {
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
    Ok((stats, all))
}

/// A policy whose decisions are stored.
struct RecordingPolicy {
    policy: Box<dyn Policy + Send>,
    is_recording: bool,
    start: Option<Time>,
    waits: ThinnedSeries,
    delays: ThinnedSeries,
}

impl Policy for RecordingPolicy {
    fn observe(&mut self, packet: &Packet, gap: Option<Span>) -> Span {
        let wait = self.policy.observe(packet, gap);
        if self.is_recording {
            let first = *self.start.get_or_insert(packet.at);
            self.waits.push(packet.at.since(first), wait);
        }
        wait
    }

    fn delays_sessions(&self) -> bool {
        self.policy.delays_sessions()
    }

    fn on_session(&mut self, now: Time) {
        self.policy.on_session(now);
    }

    fn session_delay(&mut self, now: Time) -> Span {
        let hold = self.policy.session_delay(now);
        if self.is_recording {
            let first = *self.start.get_or_insert(now);
            self.delays.push(now.since(first), hold);
        }
        hold
    }
}

/// Stores every n-th value, with n growing to limit the number.
struct ThinnedSeries {
    points: Vec<(f64, f64)>,
    stride: u64,
    count: u64,
}

impl ThinnedSeries {
    fn new() -> Self {
        Self { points: Vec::new(), stride: 1, count: 0 }
    }

    fn push(&mut self, at: Span, value: Span) {
        let (at, value) = (at.as_secs_f64(), value.as_secs_f64());
        if self.count.is_multiple_of(self.stride) {
            if self.points.len() == MAX_POINTS {
                let mut place = 0;
                self.points.retain(|_| {
                    place += 1;
                    place % 2 == 1
                });
                self.stride *= 2;
            }
            if self.count.is_multiple_of(self.stride) {
                self.points.push((at, value));
            }
        }
        self.count += 1;
    }
}

#[cfg(test)]
mod tests {
    use manyways_model::radio::{NEVER, PolicySpec, Priors, profiles};
    use manyways_unit::Span;

    use super::*;
    use crate::radio::trace::TraceGenerator;

    fn generated(app: &str) -> Trace {
        let lasts = Span::from_secs(20_000);
        Trace::generated(TraceGenerator { app: app.to_owned(), seed: 3, duration: lasts }).unwrap()
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
                let plan = PolicySpec::parse(text).unwrap();
                (0..2).map(move |profile| Job { profile, plan })
            })
            .collect();
        let tolerant = DelayTolerance::applications(&["im".to_owned()]);
        let outcomes = |threads| -> Vec<Outcome> {
            let progress = Progress::default();
            let mut trace = generated("mixed-day");
            let ran = run(&mut trace, &profiles, &jobs, &tolerant, threads, false, &progress);
            ran.unwrap().1.into_iter().map(|ran| ran.outcome).collect()
        };
        let one = outcomes(1);
        assert_eq!(one, outcomes(3));
        assert_eq!(one, outcomes(100));
        assert!(one[10].delays.delayed > 0 && one[10].delays.delayed < one[10].delays.count);
        let mut policy = jobs[6]
            .plan
            .policy(&profiles[0], Priors { gap_quantile: NEVER, bursts_per_period: 1.0 });
        let never = |_: &Packet| false;
        let mut by_hand = Simulation::new(&profiles[0], Decider::Policy(&mut *policy), &never);
        let mut trace = generated("mixed-day");
        trace.read(&Progress::default(), |packet| by_hand.push(*packet)).unwrap();
        assert_eq!(by_hand.finish(), one[6]);
    }

    #[test]
    fn some_decisions_are_kept() {
        let profile = profiles::named("att-hspa").unwrap().unwrap();
        let plan = PolicySpec::parse("makeidle:20+makeactive").unwrap();
        let tolerant = DelayTolerance::applications(&["*".to_owned()]);
        let jobs = [Job { profile: 0, plan }];
        let progress = Progress::default();
        let (stats, ran) =
            run(&mut generated("im"), &[profile], &jobs, &tolerant, 1, true, &progress).unwrap();
        assert!(stats.packets > MAX_POINTS as u64);
        let RunResult { waits, delays: holds, .. } = &ran[0];
        assert!((MAX_POINTS / 2..=MAX_POINTS).contains(&waits.len()), "{}", waits.len());
        assert!(waits.is_sorted_by_key(|point| point.0) && !holds.is_empty());
        assert!(holds.iter().all(|(_, hold)| (1.0..=10.0).contains(hold)));
    }

    #[test]
    fn thinning_keeps_even_distances() {
        let mut thin = ThinnedSeries::new();
        (0..10_000).for_each(|n| thin.push(Span::from_secs(n), Span::ZERO));
        let steps: Vec<f64> = thin.points.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
        assert!(steps.iter().all(|step| *step == steps[0]), "{steps:?}");
        assert!(thin.points.len() <= MAX_POINTS);
    }
}
