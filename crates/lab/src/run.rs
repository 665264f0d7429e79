//! Runs a scenario: its workloads one after the other, and the check of its expectations.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::event::LabEvent;
use manyways_link::schedule::Due;
use manyways_sys::clock::Clock;
use manyways_sys::signal::{Termination, send};
use manyways_sys::wait::{Outcome, wait};
use manyways_trace::scenario::{Expectation, Scenario, Workload};
use manyways_unit::Span;
use serde::Serialize;

use super::control::WaitingStatus;
use super::relay::{LinkStats, Snapshot};
use super::timeline::EventSender;
use super::{Lab, LabError, LabSpec, Node};

const SIGKILL: i32 = 9;

/// Result of a scenario.
#[derive(Clone, Debug, Serialize)]
pub struct RunReport {
    /// The scenario's name.
    pub scenario: String,
    /// Seed of all randomness.
    pub seed: u64,
    /// TCP congestion control of every namespace.
    pub cc: String,
    /// In the order in which they ran.
    pub workloads: Vec<WorkloadReport>,
    /// In the order of the scenario.
    pub expectations: Vec<ExpectationReport>,
    /// Whether all expectations hold, and all workloads without expectations succeeded.
    pub passed: bool,
}

manyways_record::document!(RunReport, "manyways.lab-run/1");

/// Result of one workload.
#[derive(Clone, Debug, Serialize)]
pub struct WorkloadReport {
    pub name: String,
    /// Exit code; `None` if the workload was killed.
    pub exit: Option<i32>,
    /// Whether the workload was killed at its timeout.
    pub timed_out: bool,
    /// Duration.
    pub seconds: f64,
    /// Counters of the links during the workload.
    pub links: Vec<LinkReport>,
    /// Events that waited for a counter when the workload ended.
    pub missed_events: Vec<WaitingStatus>,
}

/// Counters of one link during one workload.
#[derive(Clone, Debug, Serialize)]
pub struct LinkReport {
    pub name: String,
    /// IP bytes delivered to the device.
    pub down_bytes: u64,
    /// IP bytes delivered to the far side.
    pub up_bytes: u64,
    /// Packets towards the device that were dropped.
    pub down_dropped: u64,
    /// Packets from the device that were dropped.
    pub up_dropped: u64,
    /// Longest time that a packet was released after it was due.
    pub max_lateness_seconds: f64,
    /// Promotions of the radio; `None` if the link has no radio.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub promotions: Option<u64>,
}

/// Result of one expectation.
#[derive(Clone, Debug, Serialize)]
pub struct ExpectationReport {
    /// Name of the workload.
    pub workload: String,
    /// Name of the value.
    pub value: String,
    /// The comparison, as in `<= 3.5`.
    pub expected: String,
    /// `None` if the workload has no such value.
    pub measured: Option<f64>,
    /// Whether the expectation holds.
    pub held: bool,
}

/// Reasons why a scenario did not run to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The lab failed.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// A workload could not be watched.
    #[error("cannot watch a workload: {0}")]
    Wait(#[from] io::Error),
    /// A termination signal was received.
    #[error("stopped by signal {0}")]
    Stopped(i32),
}

/// Returns the specification of the lab that a scenario describes.
pub fn lab_spec(scenario: &Scenario, name: String) -> LabSpec {
    LabSpec {
        numbered: true,
        devices: scenario.devices.clone(),
        hosts: scenario.hosts.clone(),
        cc: scenario.cc.clone(),
        seed: scenario.seed,
        trace_offset: scenario.trace_offset,
        ..LabSpec::new(name, scenario.links.clone())
    }
}

/// Runs the workloads in a lab that was made from the scenario and whose server commands have been
/// started. The output of workloads is redirected to standard error. `progress` receives the name
/// of each workload before it starts.
pub fn run(
    lab: &Lab,
    scenario: &Scenario,
    timeline: Option<&EventSender>,
    termination: &Termination,
    progress: &mut dyn FnMut(&Workload),
) -> Result<RunReport, RunError> {
    let mut workloads = Vec::with_capacity(scenario.workloads.len());
    for workload in &scenario.workloads {
        progress(workload);
        workloads.push(run_workload(lab, scenario, workload, timeline, termination)?);
    }
    let expectations: Vec<_> = scenario.expectations.iter().map(|e| check(e, &workloads)).collect();
    let passed = passed(&workloads, &expectations);
    Ok(RunReport {
        scenario: scenario.name.clone(),
        seed: scenario.seed,
        cc: scenario.cc.clone(),
        workloads,
        expectations,
        passed,
    })
}

fn run_workload(
    lab: &Lab,
    scenario: &Scenario,
    workload: &Workload,
    timeline: Option<&EventSender>,
    termination: &Termination,
) -> Result<WorkloadReport, RunError> {
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", &workload.run])
        .stdin(Stdio::null())
        .stdout(io::stderr().as_fd().try_clone_to_owned()?)
        // A separate process group, so that descendants of the workload end with it.
        .process_group(0);
    record_event(timeline, LabEvent::WorkloadStart { workload: workload.name.clone() });
    lab.restart(scenario.trace_offset, &scenario.events)?;
    let before = lab.relay().snapshot()?;
    let clock = Clock::start();
    let device = workload.device.as_deref().and_then(|name| lab.device(name)).unwrap_or(0);
    let mut child = lab.spawn(Node::Device(device), command)?;
    let outcome = wait(&mut child, Some(workload.timeout), Some(termination))?;
    let seconds = Span::from_nanos(clock.now().as_nanos()).as_secs_f64();
    let after = lab.relay().snapshot()?;
    let (exit, timed_out) = match outcome {
        Outcome::Exited(status) => (status.code(), false),
        Outcome::TimedOut | Outcome::Signal(_) => {
            // The workload may have ended by itself just now.
            let _ = send(-(child.id() as i32), SIGKILL);
            child.wait()?;
            (None, true)
        }
    };
    if let Outcome::Signal(ended) = outcome {
        return Err(RunError::Stopped(ended.signal));
    }
    record_event(
        timeline,
        LabEvent::WorkloadEnd { workload: workload.name.clone(), exit, seconds },
    );
    Ok(WorkloadReport {
        name: workload.name.clone(),
        exit,
        timed_out,
        seconds,
        links: links(lab, &before, &after),
        missed_events: missed_events(lab, &after),
    })
}

fn record_event(timeline: Option<&EventSender>, event: LabEvent) {
    if let Some(timeline) = timeline {
        timeline.record(event);
    }
}

/// Returns the changes that wait for a counter. Those at a time may be meant for longer workloads.
fn missed_events(lab: &Lab, after: &Snapshot) -> Vec<WaitingStatus> {
    let missed =
        after.waiting.iter().filter(|change| !change.is_made && matches!(change.due, Due::When(_)));
    missed.map(|change| WaitingStatus::new(after.at, change, lab.links())).collect()
}

fn links(lab: &Lab, before: &Snapshot, after: &Snapshot) -> Vec<LinkReport> {
    let report = |name: &str, before: &LinkStats, after: &LinkStats| {
        let bytes = |a: u64, b: u64| b - a;
        LinkReport {
            name: name.to_owned(),
            down_bytes: bytes(
                before.down.delivered.size.as_bytes(),
                after.down.delivered.size.as_bytes(),
            ),
            up_bytes: bytes(
                before.up.delivered.size.as_bytes(),
                after.up.delivered.size.as_bytes(),
            ),
            down_dropped: after.down.dropped_packets() - before.down.dropped_packets(),
            up_dropped: after.up.dropped_packets() - before.up.dropped_packets(),
            max_lateness_seconds: after.max_lateness.as_secs_f64(),
            promotions: before
                .radio
                .as_ref()
                .zip(after.radio.as_ref())
                .map(|(before, after)| after.total_promotions() - before.total_promotions()),
        }
    };
    lab.links()
        .iter()
        .zip(before.links.iter().zip(&after.links))
        .map(|(link, (before, after))| report(&link.name, before, after))
        .collect()
}

fn check(expectation: &Expectation, workloads: &[WorkloadReport]) -> ExpectationReport {
    let measured = workloads
        .iter()
        .find(|workload| workload.name == expectation.workload)
        .and_then(|workload| value(workload, &expectation.value));
    let bound = expectation.bound;
    let held = measured.is_some_and(|measured| match expectation.op.as_str() {
        "<" => measured < bound,
        "<=" => measured <= bound,
        "==" => measured == bound,
        ">=" => measured >= bound,
        ">" => measured > bound,
        _ => false,
    });
    ExpectationReport {
        workload: expectation.workload.clone(),
        value: expectation.value.clone(),
        expected: format!("{} {bound}", expectation.op),
        measured,
        held,
    }
}

/// Whether all expectations hold; a workload without expectations must succeed.
fn passed(workloads: &[WorkloadReport], expectations: &[ExpectationReport]) -> bool {
    let expected = |w: &WorkloadReport| expectations.iter().any(|e| e.workload == w.name);
    expectations.iter().all(|e| e.held)
        && workloads.iter().all(|w| w.exit == Some(0) || (expected(w) && !w.timed_out))
}

/// Returns a value of a workload by its name: `exit`, `seconds`, `missed_events`,
/// `LINK.down_bytes` and so on.
fn value(workload: &WorkloadReport, name: &str) -> Option<f64> {
    match name.split_once('.') {
        None => match name {
            "exit" => workload.exit.map(f64::from),
            "missed_events" => Some(workload.missed_events.len() as f64),
            // A workload that was killed has no duration.
            "seconds" if !workload.timed_out => Some(workload.seconds),
            _ => None,
        },
        Some((link, counter)) => {
            let link = workload.links.iter().find(|l| l.name == link)?;
            Some(match counter {
                "down_bytes" => link.down_bytes,
                "up_bytes" => link.up_bytes,
                "down_dropped" => link.down_dropped,
                "up_dropped" => link.up_dropped,
                "promotions" => link.promotions?,
                _ => return None,
            } as f64)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload() -> WorkloadReport {
        WorkloadReport {
            name: "fetch".into(),
            exit: Some(0),
            timed_out: false,
            seconds: 2.5,
            links: vec![LinkReport {
                name: "wifi".into(),
                down_bytes: 1000,
                up_bytes: 10,
                down_dropped: 1,
                up_dropped: 0,
                max_lateness_seconds: 0.0,
                promotions: None,
            }],
            missed_events: Vec::new(),
        }
    }

    fn expect(value: &str, op: &str, bound: f64) -> ExpectationReport {
        let expectation =
            Expectation { workload: "fetch".into(), value: value.into(), op: op.into(), bound };
        check(&expectation, &[workload()])
    }

    #[test]
    fn expectations_compare_measured_values() {
        assert!(expect("exit", "==", 0.0).held);
        assert!(expect("seconds", "<=", 2.5).held);
        assert!(!expect("seconds", "<", 2.5).held);
        assert!(expect("wifi.down_bytes", ">", 999.0).held);
        assert!(!expect("wifi.up_dropped", ">", 0.0).held);
        assert!(expect("missed_events", "==", 0.0).held);
        let mut cellular = workload();
        cellular.links[0].promotions = Some(3);
        assert_eq!(value(&cellular, "wifi.promotions"), Some(3.0));
        assert_eq!(value(&workload(), "wifi.promotions"), None);
    }

    #[test]
    fn a_workload_that_was_killed_never_passes() {
        let killed = WorkloadReport { exit: None, timed_out: true, ..workload() };
        assert_eq!(value(&killed, "seconds"), None);
        let bytes = expect("wifi.down_bytes", ">", 0.0);
        assert!(passed(&[workload()], std::slice::from_ref(&bytes)));
        assert!(!passed(&[killed], &[bytes]));
    }

    #[test]
    fn a_workload_without_expectations_must_succeed() {
        let failed = WorkloadReport { name: "other".into(), exit: Some(1), ..workload() };
        assert!(!passed(&[workload(), failed], &[expect("exit", "==", 0.0)]));
        assert!(passed(&[workload()], &[]));
    }

    #[test]
    fn a_value_that_is_not_there_never_holds() {
        assert!(!expect("lte.down_bytes", ">=", 0.0).held);
        assert_eq!(expect("lte.down_bytes", ">=", 0.0).measured, None);
    }
}
