//! Energy that policies save, on traces of held-out seeds.

use std::collections::BTreeMap;

use manyways_model::radio::plan::Plan;
use manyways_model::radio::simulate::{Delays, Outcome};
use manyways_model::radio::workload::apps::APPS;
use manyways_model::radio::workload::{HELD_BACK, is_held_back};
use manyways_model::radio::{Profile, Tolerant, profiles};
use manyways_net::radio::runs::{self, Job};
use manyways_net::radio::trace::{Made, Progress, Trace};
use manyways_unit::Span;
use serde::Serialize;

use manyways_rig::sample::Quartiles;

/// The carriers of the thesis.
pub const CARRIERS: [&str; 4] = ["att-hspa", "tmobile-3g", "verizon-3g", "verizon-lte"];
/// All policies, in the order of the tables.
const POLICIES: [&str; 12] = [
    "status-quo",
    "fixed",
    "iat",
    "threshold",
    "printed",
    "makeidle",
    "context",
    "oracle",
    "makeidle+makeactive-fixed",
    "makeidle+makeactive:experts=5",
    "makeidle+makeactive:experts=10",
    "makeidle+makeactive:experts=20",
];
const STATUS_QUO: usize = 0;
const THRESHOLD: usize = 3;
const MAKE_IDLE: usize = 5;
const CONTEXT: usize = 6;
const ORACLE: usize = 7;
/// Number of experts of each learning policy, and its index in [`POLICIES`].
const LEARNING: [(usize, usize); 3] = [(5, 9), (10, 10), (20, 11)];

/// Results of a policy over all traces; ratios are those of sums.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    pub policy: String,
    pub joules: f64,
    pub saved: f64,
    pub saved_of_tail: f64,
    pub saved_of_oracle: f64,
    pub switches_by_status_quo: f64,
    pub switches_by_oracle: f64,
    pub false_switches: f64,
    pub missed_switches: f64,
    pub mean_delay: Option<f64>,
    pub median_delay: Option<f64>,
    pub switches: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Carrier {
    pub name: String,
    pub rows: Vec<Row>,
    pub ours: Ours,
}

/// Our policy compared with others, one value for each trace.
#[derive(Clone, Debug, Serialize)]
pub struct Ours {
    /// Share of the energy difference between MakeIdle and Oracle that our policy saves.
    pub recovered: Vec<f64>,
    /// Switches divided by those of MakeIdle.
    pub switches: Vec<f64>,
    /// Energy divided by that of the threshold timer.
    pub by_threshold: Vec<f64>,
}

/// Constant delays compared with learned ones.
#[derive(Clone, Debug, Serialize)]
pub struct Constant {
    pub carrier: String,
    pub experts: usize,
    pub learning_switches: u64,
    pub learning_mean_delay: f64,
    pub learning_median_delay: f64,
    /// Mean delay divided by that of the fixed bound.
    pub delay_by_fixed_bound: f64,
    /// The constant delay in seconds with the smallest maximum of its two ratios to learning.
    pub best_hold: f64,
    pub best_switches: f64,
    pub best_delay: f64,
}

/// Savings on a single application.
#[derive(Clone, Debug, Serialize)]
pub struct OfApps {
    pub app: String,
    /// By carrier, then by policy.
    pub saved: Vec<Vec<f64>>,
    pub policies: Vec<String>,
}

/// Savings with another switch energy.
#[derive(Clone, Debug, Serialize)]
pub struct Swept {
    pub carrier: String,
    pub what: String,
    pub makeidle: f64,
    pub context: f64,
    pub oracle: f64,
    pub threshold: f64,
}

pub struct Mixed {
    pub traces: usize,
    pub packets: u64,
    pub carriers: Vec<Carrier>,
}

/// Sums over several runs.
#[derive(Clone, Default)]
struct Sum {
    joules: f64,
    tail: f64,
    switches: u64,
    decided: [u64; 4],
    delays: Delays,
}

impl Sum {
    fn add(&mut self, outcome: &Outcome) {
        self.joules += outcome.account.total();
        self.tail += outcome.account.tail();
        self.switches += outcome.account.switches;
        let switches = &outcome.switches;
        let decided = [switches.right, switches.wrong, switches.stayed, switches.missed];
        for (sum, one) in self.decided.iter_mut().zip(decided) {
            *sum += one;
        }
        self.delays.merge(&outcome.delays);
    }

    fn row(&self, policy: &str, status_quo: &Self, oracle: &Self) -> Row {
        let saved = status_quo.joules - self.joules;
        let [right, wrong, stayed, missed] = self.decided.map(|count| count as f64);
        Row {
            policy: policy.to_owned(),
            joules: self.joules,
            saved: saved / status_quo.joules,
            saved_of_tail: saved / status_quo.tail,
            saved_of_oracle: saved / (status_quo.joules - oracle.joules),
            switches_by_status_quo: self.switches as f64 / status_quo.switches as f64,
            switches_by_oracle: self.switches as f64 / oracle.switches as f64,
            false_switches: wrong / (wrong + stayed),
            missed_switches: missed / (missed + right),
            mean_delay: self.delays.mean(),
            median_delay: self.delays.quantile(0.5),
            switches: self.switches,
        }
    }
}

fn carriers() -> Result<Vec<Profile>, String> {
    CARRIERS.iter().map(|name| profile(name)).collect()
}

fn profile(name: &str) -> Result<Profile, String> {
    match profiles::named(name) {
        Some(Ok(profile)) => Ok(profile),
        Some(Err(error)) => Err(format!("{name}: {error}")),
        None => Err(format!("there is no profile {name}")),
    }
}

fn plan(text: &str) -> Result<Plan, String> {
    Plan::parse(text).map_err(|error| error.to_string())
}

/// Background traffic of applications is delay-tolerant, interactive traffic is not.
fn may_wait() -> Tolerant {
    let names: Vec<String> = APPS.iter().map(|app| app.name.to_owned()).collect();
    Tolerant::applications(&names)
}

fn run(made: Made, profiles: &[Profile], jobs: &[Job]) -> Result<(u64, Vec<Outcome>), String> {
    assert!(is_held_back(made.seed), "only seeds that are held back judge");
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut trace = Trace::made(made).map_err(|error| error.to_string())?;
    let progress = Progress::default();
    let ran = runs::run(&mut trace, profiles, jobs, &may_wait(), threads, false, &progress);
    let (seen, ran) = ran.map_err(|error| error.to_string())?;
    Ok((seen.packets, ran.into_iter().map(|ran| ran.outcome).collect()))
}

/// Simulates days of users with several applications.
pub fn mixed(seeds: u64, days: u64) -> Result<(Mixed, Vec<Constant>), String> {
    const HOLDS: usize = 20;
    let profiles = carriers()?;
    let mut policies: Vec<String> = POLICIES.map(str::to_owned).to_vec();
    policies.extend((1..=HOLDS).map(|hold| format!("makeidle+makeactive-fixed:hold={hold}")));
    let mut jobs = Vec::new();
    for carrier in 0..profiles.len() {
        for policy in &policies {
            jobs.push(Job { profile: carrier, plan: plan(policy)? });
        }
    }
    let mut sums = vec![Sum::default(); jobs.len()];
    let mut ours =
        vec![
            Ours { recovered: Vec::new(), switches: Vec::new(), by_threshold: Vec::new() };
            profiles.len()
        ];
    let mut packets = 0;
    for seed in HELD_BACK..HELD_BACK + seeds {
        let lasts = Span::from_secs(days * 86_400);
        let made = Made { app: "mixed-day".to_owned(), seed, lasts };
        let (count, outcomes) = run(made, &profiles, &jobs)?;
        packets += count;
        for (sum, outcome) in sums.iter_mut().zip(&outcomes) {
            sum.add(outcome);
        }
        for (ours, outcomes) in ours.iter_mut().zip(outcomes.chunks(policies.len())) {
            let of = |policy: usize| &outcomes[policy].account;
            let left = of(MAKE_IDLE).total() - of(ORACLE).total();
            ours.recovered.push((of(MAKE_IDLE).total() - of(CONTEXT).total()) / left);
            ours.switches.push(of(CONTEXT).switches as f64 / of(MAKE_IDLE).switches as f64);
            ours.by_threshold.push(of(CONTEXT).total() / of(THRESHOLD).total());
        }
    }
    let mut carriers = Vec::new();
    let mut constants = Vec::new();
    for (place, (name, ours)) in CARRIERS.iter().zip(ours).enumerate() {
        let sums = &sums[place * policies.len()..][..policies.len()];
        let rows = policies.iter().zip(sums);
        let rows: Vec<Row> =
            rows.map(|(policy, sum)| sum.row(policy, &sums[STATUS_QUO], &sums[ORACLE])).collect();
        for (experts, run) in LEARNING {
            let learning = &rows[run];
            let delay = learning.mean_delay.unwrap_or(f64::NAN);
            let fixed = &rows[POLICIES.len() - 4];
            let ratios = (1..=experts).map(|hold| {
                let constant = &rows[POLICIES.len() + hold - 1];
                let switches = constant.switches as f64 / learning.switches as f64;
                (hold as f64, switches, constant.mean_delay.unwrap_or(f64::NAN) / delay)
            });
            let best = ratios.min_by(|a, b| a.1.max(a.2).total_cmp(&b.1.max(b.2)));
            let (best_hold, best_switches, best_delay) = best.unwrap_or_default();
            constants.push(Constant {
                carrier: (*name).to_owned(),
                experts,
                learning_switches: learning.switches,
                learning_mean_delay: delay,
                learning_median_delay: learning.median_delay.unwrap_or(f64::NAN),
                delay_by_fixed_bound: delay / fixed.mean_delay.unwrap_or(f64::NAN),
                best_hold,
                best_switches,
                best_delay,
            });
        }
        let rows = rows.into_iter().take(POLICIES.len()).collect();
        carriers.push(Carrier { name: (*name).to_owned(), rows, ours });
    }
    Ok((Mixed { traces: seeds as usize, packets, carriers }, constants))
}

/// Simulates two hours of each application alone.
pub fn apps(seeds: u64) -> Result<Vec<OfApps>, String> {
    const SHOWN: [&str; 8] = [
        "status-quo",
        "fixed",
        "iat",
        "threshold",
        "makeidle",
        "context",
        "oracle",
        "makeidle+makeactive",
    ];
    let profiles = carriers()?;
    let mut jobs = Vec::new();
    for profile in 0..profiles.len() {
        for policy in SHOWN {
            jobs.push(Job { profile, plan: plan(policy)? });
        }
    }
    let mut all = Vec::new();
    for app in APPS {
        let mut sums = vec![Sum::default(); jobs.len()];
        for seed in HELD_BACK..HELD_BACK + seeds {
            let lasts = Span::from_secs(7_200);
            let made = Made { app: app.name.to_owned(), seed, lasts };
            let (_, outcomes) = run(made, &profiles, &jobs)?;
            for (sum, outcome) in sums.iter_mut().zip(&outcomes) {
                sum.add(outcome);
            }
        }
        let saved = sums.chunks(SHOWN.len()).map(|sums| {
            let saved = sums.iter().skip(1).map(|sum| 1.0 - sum.joules / sums[0].joules);
            saved.collect()
        });
        all.push(OfApps {
            app: app.name.to_owned(),
            saved: saved.collect(),
            policies: SHOWN[1..].iter().map(|name| (*name).to_owned()).collect(),
        });
    }
    Ok(all)
}

/// Simulates other switch energies, and other shares of the energy for turning the radio off.
pub fn sweep(seeds: u64, days: u64) -> Result<Vec<Swept>, String> {
    const POLICIES: [&str; 5] = ["status-quo", "threshold", "makeidle", "context", "oracle"];
    let mut profiles = Vec::new();
    let mut names = Vec::new();
    for carrier in CARRIERS {
        let usual = profile(carrier)?;
        for factor in [0.5, 0.75, 1.0, 1.5, 2.0] {
            profiles.push(usual.clone().with_switches(factor));
            names.push((carrier, format!("E_switch × {factor}")));
        }
        for share in [0.1, 0.2, 0.4] {
            profiles.push(usual.clone().with_turn_off(share));
            names.push((carrier, format!("turn-off {:.0} %", share * 100.0)));
        }
    }
    let mut jobs = Vec::new();
    for profile in 0..profiles.len() {
        for policy in POLICIES {
            jobs.push(Job { profile, plan: plan(policy)? });
        }
    }
    let mut joules = vec![0.0; jobs.len()];
    for seed in HELD_BACK..HELD_BACK + seeds {
        let lasts = Span::from_secs(days * 86_400);
        let made = Made { app: "mixed-day".to_owned(), seed, lasts };
        let (_, outcomes) = run(made, &profiles, &jobs)?;
        for (sum, outcome) in joules.iter_mut().zip(&outcomes) {
            *sum += outcome.account.total();
        }
    }
    let swept =
        names.into_iter().zip(joules.chunks(POLICIES.len())).map(|((carrier, what), all)| {
            let saved = |policy: usize| 1.0 - all[policy] / all[0];
            Swept {
                carrier: carrier.to_owned(),
                what,
                threshold: saved(1),
                makeidle: saved(2),
                context: saved(3),
                oracle: saved(4),
            }
        });
    Ok(swept.collect())
}

impl Ours {
    /// Quartiles of each comparison.
    pub fn quartiles(&self) -> BTreeMap<&'static str, Quartiles> {
        let all = [
            ("recovered", &self.recovered),
            ("switches", &self.switches),
            ("by_threshold", &self.by_threshold),
        ];
        let of = |(name, values): (&'static str, &Vec<f64>)| {
            Some((name, Quartiles::of(values.iter().copied())?))
        };
        all.into_iter().filter_map(of).collect()
    }
}
