//! `lab run` and `lab check`: scenarios.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use manyways_lab::Lab;
use manyways_lab::control::Control;
use manyways_lab::radio;
use manyways_lab::run::{RunError, RunReport, lab_spec};
use manyways_lab::timeline::Timeline;
use manyways_lab::warning::{event_warnings, link_warnings};
use manyways_record::document;
use manyways_sys::signal::Termination;
use manyways_trace::scenario::{self, Scenario};
use manyways_unit::Span;

use super::{FarHosts, export, lab_failure, prepare, reader, serve, warn_doubts};
use crate::failure::Failure;

/// Run a scenario: its links, servers, events and workloads, and check its expectations.
///
/// Exit code 0 when every expectation held, 1 when one did not.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  manyways lab run scenarios/outage.toml --json result.json\n  \
                  manyways lab run scenarios/outage.toml --far-host 93.184.216.34,name=example.com,extra-rtt=40ms"
)]
pub struct Args {
    /// The scenario file.
    scenario: PathBuf,
    /// Write the result as JSON to this file (`-` for standard output).
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    far_hosts: FarHosts,
    /// Offset at which links start to read their traces; overrides the scenario's.
    #[arg(long, value_name = "TIME")]
    trace_offset: Option<Span>,
    /// Seed of loss and jitter; overrides the scenario's.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// TCP congestion control; overrides the scenario's.
    #[arg(long, value_name = "NAME")]
    cc: Option<String>,
    /// Write one pcapng file per link into this folder.
    #[arg(long, value_name = "DIR")]
    pcap: Option<PathBuf>,
    /// Write rates, queues and drops over time to this file (JSON lines).
    #[arg(long, value_name = "FILE")]
    timeline: Option<PathBuf>,
}

/// Check a scenario file and point at the line that is wrong.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  manyways lab check scenarios/outage.toml")]
pub struct CheckArgs {
    /// The scenario file.
    scenario: PathBuf,
}

pub fn check(args: CheckArgs) -> Result<ExitCode> {
    let scenario = read_scenario(&args.scenario)?;
    println!(
        "{}: {} links, {} hosts, {} events, {} workloads, {} expectations",
        scenario.name,
        scenario.links.len(),
        scenario.hosts.len().max(1),
        scenario.events.len(),
        scenario.workloads.len(),
        scenario.expectations.len(),
    );
    warn(&scenario);
    Ok(ExitCode::SUCCESS)
}

pub fn run(args: Args) -> Result<ExitCode> {
    let mut scenario = read_scenario(&args.scenario)?;
    let far_hosts = args.far_hosts.parse()?;
    scenario.seed = args.seed.unwrap_or(scenario.seed);
    scenario.trace_offset = args.trace_offset.unwrap_or(scenario.trace_offset);
    if let Some(cc) = args.cc {
        scenario.cc = cc;
    }
    if scenario.workloads.is_empty() {
        return Err(Failure::new("the scenario has no workload to run")
            .hint("add a [[workload]], or use `manyways lab shell --scenario`")
            .into());
    }
    if let Some(folder) = &args.pcap {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    }
    // Checked before the run: after it, the result would be lost.
    if let Some(file) = args.json.as_ref().filter(|file| file.as_os_str() != "-") {
        std::fs::write(file, "").with_context(|| format!("cannot write {}", file.display()))?;
    }
    warn(&scenario);
    let registry = prepare()?;
    let termination = Termination::take().context("cannot watch for signals")?;
    let mut spec = lab_spec(&scenario, format!("{}-{}", scenario.name, std::process::id()));
    spec.pcap = args.pcap;
    spec.far_hosts = far_hosts;
    let mut lab = Lab::start(&registry, spec).map_err(lab_failure)?;
    export(&mut lab, Some(&args.scenario))?;
    for (node, command) in lab.specified_servers() {
        serve(&mut lab, node, &command)?;
    }
    let timeline = args
        .timeline
        .as_ref()
        .map(|file| {
            Timeline::start(&lab, file, Some(&scenario.name))
                .with_context(|| format!("cannot write {}", file.display()))
        })
        .transpose()?;
    let marks = timeline.as_ref().map(Timeline::event_sender);
    let _control =
        Control::start(&lab, marks.clone()).context("cannot open the lab's control socket")?;
    eprintln!("{}: congestion control {}", scenario.name, scenario.cc);
    let count = scenario.workloads.len();
    let mut started = 0;
    let mut progress = |workload: &scenario::Workload| {
        started += 1;
        eprintln!("running `{}` ({started} of {count})", workload.name);
    };
    let report = match manyways_lab::run::run(
        &lab,
        &scenario,
        marks.as_ref(),
        &termination,
        &mut progress,
    ) {
        Ok(report) => report,
        Err(RunError::Lab(error)) => return Err(lab_failure(error).into()),
        Err(RunError::Stopped(signal)) => return Ok(ExitCode::from(128 + signal as u8)),
        Err(error) => return Err(error.into()),
    };
    if let Some(timeline) = timeline {
        timeline.finish().context("cannot write the timeline")?;
    }
    match &args.json {
        Some(file) if file.as_os_str() == "-" => print!("{}", document::to_json(&report)?),
        Some(file) => {
            std::fs::write(file, document::to_json_pretty(&report)?)
                .with_context(|| format!("cannot write {}", file.display()))?;
            print(&report);
        }
        None => print(&report),
    }
    Ok(if report.passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn warn(scenario: &Scenario) {
    scenario.links.iter().for_each(|link| warn_doubts(&link.name, &link_warnings(link)));
    scenario.events.iter().for_each(|event| warn_doubts(&event.link, &event_warnings(event)));
}

/// Reads a scenario; the paths of its traces are relative to it.
pub fn read_scenario(file: &Path) -> Result<Scenario> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::new(format!("cannot read {}: {error}", file.display())))?;
    let folder = file.parent().unwrap_or(Path::new(""));
    let wrong = |line: usize, column: usize, message: String, hint: Option<String>| {
        let place = format!("{}:{line}:{column}", file.display());
        let failure = Failure::usage(format!("{place}: {message}"));
        hint.into_iter().fold(failure, Failure::hint)
    };
    let scenario = scenario::parse(&text, &mut reader(folder))
        .map_err(|error| wrong(error.line, error.column, error.message, error.hint))?;
    for link in &scenario.links {
        // The scenario parser does not read radio profiles.
        radio::profile_of(link).map_err(|error| {
            let (line, column) = scenario::radio_position(&text, &link.name).unwrap_or((1, 1));
            wrong(line, column, error.to_string(), error.hint())
        })?;
    }
    Ok(scenario)
}

fn print(report: &RunReport) {
    println!("{:16} {:>6} {:>9}  received by link", "workload", "exit", "seconds");
    for workload in &report.workloads {
        let exit = match workload.exit {
            Some(code) => code.to_string(),
            None if workload.timed_out => "time".to_owned(),
            None => "signal".to_owned(),
        };
        let links: Vec<_> = workload
            .links
            .iter()
            .map(|link| format!("{} {:.2} MB", link.name, link.down_bytes as f64 / 1e6))
            .collect();
        println!("{:16} {exit:>6} {:>9.3}  {}", workload.name, workload.seconds, links.join(", "));
        for event in &workload.missed_events {
            println!("{:16} missed event: {}", "", super::waiting_text(event));
        }
    }
    for expectation in &report.expectations {
        let measured = match expectation.measured {
            Some(value) => format!("{value}"),
            None => "not there".to_owned(),
        };
        println!(
            "{} {}.{} {} (measured: {measured})",
            if expectation.held { "held  " } else { "FAILED" },
            expectation.workload,
            expectation.value,
            expectation.expected,
        );
    }
}
