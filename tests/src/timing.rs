//! Experiments whose result depends on times: on a busy machine they are inconclusive, not wrong.

use std::fs;
use std::time::{Duration, Instant};

/// Result of an experiment.
#[derive(Debug)]
pub struct Outcome {
    /// Each deviation from the truth, as one sentence.
    pub wrong: Vec<String>,
    /// Longest time that a lab released a packet too late.
    pub lateness: Duration,
}

/// Returns the longest time that any link released a packet too late, from `lab status --json`.
///
/// # Panics
/// If the text is not the status of a lab.
#[track_caller]
pub fn max_lateness(status: &str) -> Duration {
    let status: serde_json::Value = serde_json::from_str(status).expect("it is JSON");
    let links = status["links"].as_array().expect("a list");
    let late = links.iter().map(|link| link["max_lateness_seconds"].as_f64().expect("a number"));
    Duration::from_secs_f64(late.fold(0.0, f64::max))
}

/// Lateness of a lab up to which a wrong result is the fault of the program under test.
const MAX_LATENESS: Duration = Duration::from_micros(300);
/// Share of the time in which a program waited for a processor, up to which the same holds.
const MAX_STALLED: f64 = 0.05;
/// Number of runs of an inconclusive experiment.
const RUNS: usize = 3;

/// Runs an experiment. A wrong result of a machine that was not busy is a failure at once; on a
/// busy machine the result is inconclusive, and the experiment is repeated.
///
/// # Panics
/// If a result is wrong, or inconclusive three times.
#[track_caller]
pub fn conclusive(mut experiment: impl FnMut() -> Outcome) {
    let mut all = Vec::new();
    for _ in 0..RUNS {
        // Time: the share of it in which programs waited for a processor.
        let (begin, before) = (Instant::now(), stalled());
        let Outcome { wrong, lateness } = experiment();
        if wrong.is_empty() {
            return;
        }
        let share = (stalled() - before).as_secs_f64() / begin.elapsed().as_secs_f64();
        let busy = format!(
            "packets were up to {:.3} ms late, and programs waited for a processor in {:.0} % of \
             the time",
            lateness.as_secs_f64() * 1e3,
            share * 100.0
        );
        assert!(lateness > MAX_LATENESS || share > MAX_STALLED, "{wrong:#?}\n{busy}");
        eprintln!("inconclusive: {wrong:#?}\n{busy}");
        all.push(format!("{wrong:#?}\n{busy}"));
    }
    panic!("inconclusive {RUNS} times:\n{}", all.join("\n"));
}

/// Total time in which a program waited for a processor (the kernel's pressure stall information);
/// without it, a machine never counts as busy.
fn stalled() -> Duration {
    let text = fs::read_to_string("/proc/pressure/cpu").unwrap_or_default();
    let total = text.lines().next().and_then(|line| line.rsplit_once("total=")?.1.parse().ok());
    Duration::from_micros(total.unwrap_or_default())
}
