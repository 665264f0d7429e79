//! Energy that policies save, on traces of held-out seeds, by `manyways radio simulate`.

use std::path::Path;
use std::process::Command;

use manyways_model::radio::workload::FIRST_HELD_OUT_SEED;
use manyways_model::radio::workload::apps::APPS;
use manyways_unit::Span;
use serde::{Deserialize, Serialize};

use super::{Results, output};

/// The operators of the thesis.
pub const OPERATORS: [&str; 4] = ["att-hspa", "tmobile-3g", "verizon-3g", "verizon-lte"];
/// All policies, in the order of the tables.
const POLICIES: &str = "status-quo,fixed,iat,threshold,printed,makeidle,context,oracle,\
                        makeidle+makeactive-fixed,makeidle+makeactive:experts=5,\
                        makeidle+makeactive:experts=10,makeidle+makeactive:experts=20";
/// Delays sessions by a constant time.
const FIXED: &str = "makeidle+makeactive-fixed";
/// Numbers of experts of the learning policies.
const EXPERTS: [usize; 3] = [5, 10, 20];
/// Policies on single applications.
const OF_APPS: &str = "status-quo,fixed,iat,threshold,makeidle,context,oracle,makeidle+makeactive";
/// Policies whose parameters of the radio are swept.
const OF_SWEEPS: &str = "status-quo,threshold,makeidle,context,oracle";
/// Parameters of the radio, and their values.
const SWEEPS: [(&str, &[f64]); 2] =
    [("e-switch", &[0.5, 0.75, 1.0, 1.5, 2.0]), ("turn-off", &[0.1, 0.2, 0.4])];

/// Results of a policy over one trace or over all of them; ratios are those of sums, and `None` if
/// they are not finite.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Row {
    #[serde(skip_serializing)]
    profile: String,
    #[serde(skip_serializing)]
    variant: String,
    pub policy: String,
    pub joules: f64,
    pub saved: Option<f64>,
    pub saved_of_tail: Option<f64>,
    pub saved_of_oracle: Option<f64>,
    pub switches_by_status_quo: Option<f64>,
    pub switches_by_oracle: Option<f64>,
    pub false_switches: Option<f64>,
    pub missed_switches: Option<f64>,
    #[serde(alias = "mean_delay_seconds")]
    pub mean_delay: Option<f64>,
    #[serde(alias = "median_delay_seconds")]
    pub median_delay: Option<f64>,
    pub switches: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Operator {
    pub name: String,
    pub rows: Vec<Row>,
    pub context: ContextComparison,
}

/// Our policy compared with others, one value for each trace.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ContextComparison {
    /// Share of the energy difference between MakeIdle and Oracle that our policy saves.
    pub recovered: Vec<f64>,
    /// Switches divided by those of MakeIdle.
    pub switches: Vec<f64>,
    /// Energy divided by that of the threshold timer.
    pub by_threshold: Vec<f64>,
}

/// Constant delays compared with learned ones.
#[derive(Clone, Debug, Serialize)]
pub struct ConstantDelay {
    pub operator: String,
    pub experts: usize,
    pub learning_switches: u64,
    pub learning_mean_delay: f64,
    pub learning_median_delay: f64,
    /// Mean delay divided by that of the fixed bound.
    pub delay_by_fixed_bound: f64,
    /// The constant delay in seconds with the smallest maximum of its two ratios to learning.
    pub best_constant_seconds: f64,
    pub best_switches: f64,
    pub best_delay: f64,
}

/// Savings on a single application.
#[derive(Clone, Debug, Serialize)]
pub struct AppSavings {
    pub app: String,
    /// By operator, then by policy.
    pub saved: Vec<Vec<f64>>,
    pub policies: Vec<String>,
}

/// Savings with another switch energy.
#[derive(Clone, Debug, Serialize)]
pub struct SweepPoint {
    pub operator: String,
    pub parameter: String,
    pub makeidle: f64,
    pub context: f64,
    pub oracle: f64,
    pub threshold: f64,
}

/// The document of `manyways radio simulate`.
#[derive(Deserialize)]
struct Simulated {
    traces: Vec<Packets>,
    /// Sums over all traces.
    totals: Vec<Row>,
    /// By trace.
    runs: Vec<Row>,
}

#[derive(Deserialize)]
struct Packets {
    packets: u64,
}

/// Simulates traces of held-out seeds on all carriers: policies were developed with other seeds.
/// Background traffic of applications is delay-tolerant, interactive traffic is not.
fn simulate(
    binary: &Path,
    (app, seeds, lasts): (&str, u64, &str),
    policies: &str,
    sweep: Option<String>,
) -> Result<Simulated, String> {
    let tolerant: Vec<&str> = APPS.iter().map(|app| app.name).collect();
    let seeds = format!("{FIRST_HELD_OUT_SEED}-{}", FIRST_HELD_OUT_SEED + seeds - 1);
    let mut command = Command::new(binary);
    command.args([
        "radio",
        "simulate",
        "--json",
        "--app",
        app,
        "--seed",
        &seeds,
        "--duration",
        lasts,
    ]);
    command.args(["--profile", &OPERATORS.join(","), "--policy", policies]);
    command.args(["--tolerant", &tolerant.join(",")]);
    command.args(sweep.iter().flat_map(|sweep| ["--sweep", sweep]));
    let said = output(&mut command, Span::from_secs(7_200))?;
    let simulated: Simulated =
        serde_json::from_str(&said).map_err(|error| format!("radio simulate: {error}"))?;
    let has = |carrier: &str, policy: &str| {
        simulated.totals.iter().any(|row| row.profile == carrier && row.policy == policy)
    };
    let missing = policies.split(',').find(|policy| OPERATORS.iter().any(|one| !has(one, policy)));
    missing.map_or(Ok(simulated), |policy| Err(format!("radio simulate has no row of {policy}")))
}

impl Simulated {
    fn total(&self, carrier: &str, variant: &str, policy: &str) -> Row {
        let is_it =
            |row: &&Row| row.profile == carrier && row.variant == variant && row.policy == policy;
        self.totals.iter().find(is_it).cloned().unwrap_or_default()
    }

    fn saved(&self, carrier: &str, variant: &str, policy: &str) -> f64 {
        self.total(carrier, variant, policy).saved.unwrap_or(f64::NAN)
    }

    /// Compares policies on each trace.
    fn by_trace<'a>(
        &'a self,
        carrier: &'a str,
        policies: [&'a str; 3],
        value: fn([&Row; 3]) -> f64,
    ) -> Vec<f64> {
        let of = |policy: &'a str| {
            self.runs.iter().filter(move |row| row.profile == carrier && row.policy == policy)
        };
        let [a, b, c] = policies.map(of);
        a.zip(b).zip(c).map(|((a, b), c)| value([a, b, c])).collect()
    }
}

/// Simulates mixed days, with constant delays from one second to the highest number of experts.
pub fn mixed(binary: &Path, seeds: u64, days: u64, results: &mut Results) -> Result<(), String> {
    let constant = |seconds: usize| format!("{FIXED}:delay={seconds}");
    let constants = (1..=EXPERTS[2]).map(constant).collect::<Vec<_>>().join(",");
    let policies = format!("{POLICIES},{constants}");
    let traces = ("mixed-day", seeds, &*format!("{days}d"));
    let simulated = simulate(binary, traces, &policies, None)?;
    let carrier = |name: &str| {
        let by_trace = |policies, value| simulated.by_trace(name, policies, value);
        let energy = |[a, b, _]: [&Row; 3]| a.joules / b.joules;
        let switches = |[a, b, _]: [&Row; 3]| a.switches as f64 / b.switches as f64;
        let ours = ContextComparison {
            recovered: by_trace(["makeidle", "context", "oracle"], |[makeidle, ours, oracle]| {
                (makeidle.joules - ours.joules) / (makeidle.joules - oracle.joules)
            }),
            switches: by_trace(["context", "makeidle", "oracle"], switches),
            by_threshold: by_trace(["context", "threshold", "oracle"], energy),
        };
        let rows = POLICIES.split(',').map(|policy| simulated.total(name, "", policy));
        Operator { name: name.to_owned(), rows: rows.collect(), context: ours }
    };
    let best = |carrier: &str, experts: usize| {
        let row = |policy: &str| simulated.total(carrier, "", policy);
        let mean = |row: &Row| row.mean_delay.unwrap_or(f64::NAN);
        let learning = row(&format!("makeidle+makeactive:experts={experts}"));
        let ratios = (1..=experts).map(|hold| {
            let constant = row(&constant(hold));
            let switches = constant.switches as f64 / learning.switches as f64;
            (hold as f64, switches, mean(&constant) / mean(&learning))
        });
        let best = ratios.min_by(|a, b| a.1.max(a.2).total_cmp(&b.1.max(b.2)));
        let (best_hold, best_switches, best_delay) = best.unwrap_or_default();
        ConstantDelay {
            operator: carrier.to_owned(),
            experts,
            learning_switches: learning.switches,
            learning_mean_delay: mean(&learning),
            learning_median_delay: learning.median_delay.unwrap_or(f64::NAN),
            delay_by_fixed_bound: mean(&learning) / mean(&row(FIXED)),
            best_constant_seconds: best_hold,
            best_switches,
            best_delay,
        }
    };
    let constants =
        OPERATORS.iter().flat_map(|carrier| EXPERTS.map(|experts| best(carrier, experts)));
    results.packets = simulated.traces.iter().map(|trace| trace.packets).sum();
    results.constants = constants.collect();
    results.operators = OPERATORS.map(carrier).into();
    Ok(())
}

/// Simulates two hours of each application alone.
pub fn apps(binary: &Path, seeds: u64) -> Result<Vec<AppSavings>, String> {
    let policies: Vec<String> = OF_APPS.split(',').skip(1).map(str::to_owned).collect();
    let one = |app: &str| {
        let simulated = simulate(binary, (app, seeds, "2h"), OF_APPS, None)?;
        let saved =
            |carrier| policies.iter().map(|policy| simulated.saved(carrier, "", policy)).collect();
        let (app, saved) = (app.to_owned(), OPERATORS.map(saved).into());
        Ok(AppSavings { app, saved, policies: policies.clone() })
    };
    APPS.iter().map(|app| one(app.name)).collect()
}

/// Simulates other switch energies, and other shares of the energy for turning the radio off.
pub fn sweep(binary: &Path, seeds: u64, days: u64) -> Result<Vec<SweepPoint>, String> {
    let mut all: Vec<SweepPoint> = Vec::new();
    for (key, values) in SWEEPS {
        let list: Vec<String> = values.iter().map(f64::to_string).collect();
        let traces = ("mixed-day", seeds, &*format!("{days}d"));
        let sweep = Some(format!("{key}={}", list.join(",")));
        let simulated = simulate(binary, traces, OF_SWEEPS, sweep)?;
        all.extend(OPERATORS.iter().flat_map(|carrier| {
            values.iter().map(|value| {
                let saved = |policy| simulated.saved(carrier, &format!("{key}={value}"), policy);
                SweepPoint {
                    operator: (*carrier).to_owned(),
                    parameter: match key {
                        "turn-off" => format!("turn-off {:.0} %", value * 100.0),
                        _ => format!("E_switch × {value}"),
                    },
                    makeidle: saved("makeidle"),
                    context: saved("context"),
                    oracle: saved("oracle"),
                    threshold: saved("threshold"),
                }
            })
        }));
    }
    all.sort_by_key(|one| OPERATORS.iter().position(|carrier| *carrier == one.operator));
    Ok(all)
}
