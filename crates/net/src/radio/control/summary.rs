//! Summary of a run for people and programs.

use manyways_unit::Span;
use serde::{Deserialize, Serialize};

use super::Outcome;

/// Figures of a run, as in the event `radio-summary`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Summary {
    pub seconds: f64,
    pub packets: u64,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    /// Packets that the capture lost.
    pub missed_packets: u64,
    /// Packets from before a fast dormancy that were reported after it.
    pub late_packets: u64,
    pub sleeps: u64,
    pub false_sleeps: u64,
    /// `None` without dormancies.
    pub mean_wait_seconds: Option<f64>,
    pub switches: u64,
    pub status_quo_switches: u64,
    pub joules: f64,
    pub status_quo_joules: f64,
    /// Saved share of all energy; `None` if there was none.
    pub saved_share: Option<f64>,
    /// Saved share of the energy of tails; `None` if there was none.
    pub saved_tail_share: Option<f64>,
    pub commands: u64,
    pub failed_commands: u64,
    /// Delay-tolerant connections, delayed ones, and delayed ones that were given up.
    pub connections: u64,
    pub held_connections: u64,
    pub given_up_connections: u64,
    /// Of the delayed connections that have passed. `None` if there are none.
    pub mean_hold_seconds: Option<f64>,
    pub median_hold_seconds: Option<f64>,
    pub p95_hold_seconds: Option<f64>,
    pub cpu_seconds: f64,
    pub cpu_share: f64,
    pub wakeups: u64,
    /// The failure that ended the run, if any.
    pub error: Option<String>,
}

impl Summary {
    pub fn of(outcome: &Outcome) -> Self {
        let control = &outcome.control;
        let (account, status_quo) = (&control.account, &control.status_quo);
        let [sent_bytes, received_bytes] = account.bytes;
        let saved = |now: f64, before: f64| (before > 0.0).then(|| 1.0 - now / before);
        let delays = &outcome.delays;
        let (lasts, cpu) = (outcome.duration.as_secs_f64(), outcome.cpu.as_secs_f64());
        Self {
            seconds: lasts,
            packets: account.packets,
            sent_bytes,
            received_bytes,
            missed_packets: outcome.dropped,
            late_packets: control.late_packets,
            sleeps: account.dormancies,
            false_sleeps: control.false_switches,
            mean_wait_seconds: (account.dormancies > 0)
                .then(|| account.wait_time.as_secs_f64() / account.dormancies as f64),
            switches: account.promotion_count,
            status_quo_switches: status_quo.promotion_count,
            joules: account.total(),
            status_quo_joules: status_quo.total(),
            saved_share: saved(account.total(), status_quo.total()),
            saved_tail_share: saved(account.tail_energy(), status_quo.tail_energy()),
            commands: outcome.commands,
            failed_commands: outcome.failed,
            connections: delays.count + outcome.abandoned,
            held_connections: delays.delayed + outcome.abandoned,
            given_up_connections: outcome.abandoned,
            mean_hold_seconds: delays.mean().map(Span::as_secs_f64),
            median_hold_seconds: delays.quantile(0.5).map(Span::as_secs_f64),
            p95_hold_seconds: delays.quantile(0.95).map(Span::as_secs_f64),
            cpu_seconds: cpu,
            cpu_share: if lasts > 0.0 { cpu / lasts } else { 0.0 },
            wakeups: outcome.wakeups,
            error: outcome.error.clone(),
        }
    }
}
