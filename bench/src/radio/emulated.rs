//! Accuracy of inference for known radios, and the processor time of the live controller.

use std::fs;
use std::path::Path;
use std::process::Command;

use manyways_rig::{Server, ServerConfig, radio_profile};
use manyways_unit::Span;
use serde::Serialize;
use serde_json::Value;

use super::{json, output};

/// A recording of a real network.
#[derive(Clone, Debug, Serialize)]
pub struct Recording {
    pub file: String,
    pub probes: u64,
    /// Start and end of the longest timer, in seconds.
    pub onset: f64,
    pub completion: f64,
    /// Timers that others found in the recording, in seconds.
    pub published_timers: Vec<f64>,
    /// Whether the network releases all devices at the same idle time.
    pub is_sudden: bool,
}

/// An emulated radio, and its inferred properties.
#[derive(Clone, Debug, Serialize)]
pub struct InferredRadio {
    /// Timers of the profile and inferred timers, in seconds.
    pub timers: [f64; 2],
    pub found_timers: Vec<f64>,
    pub promotions: [f64; 2],
    pub found_promotions: Vec<f64>,
}

/// Processor share of the live controller under load.
#[derive(Clone, Debug, Serialize)]
pub struct ControllerLoad {
    pub policy: String,
    pub source: String,
    pub packets: u64,
    /// Packets per second.
    pub rate: f64,
    /// Share of a core.
    pub cpu: f64,
}

/// Timers of the emulated profile, in seconds.
const TIMERS: [f64; 2] = [0.333, 0.874];
const PROMOTIONS: [f64; 2] = [0.075, 0.140];
/// Duration of a controller run, in seconds.
const CONTROL_SECONDS: u64 = 20;

/// File name, whether the release is sudden, and published timers of each recording.
const RECORDINGS: [(&str, bool, &[f64]); 6] = [
    ("S20US_162_Verizon_4G", true, &[10.0]),
    ("SALMONBERRY_299_TMobile_4G", true, &[5.0]),
    ("RASPBERRY_670_TMobile_NSA", false, &[10.2]),
    ("SALMONBERRY_299_Verizon_NSAmmwave", false, &[11.2]),
    ("S20US_TMobile_SA", false, &[10.2, 15.0]),
    ("RASPBERRY_670_Verizon_NSAlow", false, &[]),
];

/// Infers the timers of the recordings in `folder`.
pub fn recordings(binary: &Path, folder: &Path) -> Result<Vec<Recording>, String> {
    let mut all = Vec::new();
    for (name, is_sudden, known) in RECORDINGS {
        let file = folder.join(format!("{name}.csv"));
        let mut command = Command::new(binary);
        command.args(["radio", "infer", "--json", "--probes"]).arg(&file);
        let said = output(&mut command, Span::from_secs(60))?;
        let found = json(&said)?;
        let release = &found["release"];
        let timers = release["timers"].as_array().cloned().unwrap_or_default();
        // A recording without an inferred timer counts as a miss.
        let last = timers.last().cloned().unwrap_or_default();
        let secs = |edge: &str| last[edge]["seconds"].as_f64().unwrap_or(f64::NAN);
        all.push(Recording {
            file: name.to_owned(),
            probes: release["probes"].as_u64().unwrap_or(0),
            onset: secs("onset"),
            completion: secs("completion"),
            published_timers: known.to_vec(),
            is_sudden,
        });
    }
    Ok(all)
}

/// Probes an emulated link with a known radio, `runs` times.
pub fn probe(binary: &Path, runs: u32) -> Result<Vec<InferredRadio>, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let file = folder.path().join("radio.toml");
    fs::write(&file, radio_profile(TIMERS, PROMOTIONS)).map_err(|error| error.to_string())?;
    let link = format!("lte:delay=15ms,jitter=5ms,rrc={}", file.display());
    let mut all = Vec::new();
    for run_number in 1..=runs {
        let mut command = Command::new(binary);
        command
            .args(["lab", "shell", "--link", &link, "--"])
            .arg(binary)
            .args(["radio", "probe", "--interface", "lte", "--json", "--target", "198.18.0.1"])
            .args(["--from", "50ms", "--to", "1200ms", "--step", "50ms", "--rounds", "2"])
            .args(["--seed", &run_number.to_string(), "--output"])
            .arg(folder.path().join(format!("probes-{run_number}.csv")))
            .current_dir(folder.path());
        let said = output(&mut command, Span::from_secs(180))?;
        let found = json(&said)?;
        let timers = found["timers"].as_array().cloned().unwrap_or_default();
        let each = |value: &dyn Fn(&Value) -> Option<f64>| {
            timers.iter().map(|timer| value(timer).unwrap_or(f64::NAN)).collect::<Vec<f64>>()
        };
        all.push(InferredRadio {
            timers: TIMERS,
            found_timers: each(&|timer| timer["onset"]["seconds"].as_f64()),
            promotions: PROMOTIONS,
            found_promotions: each(&|timer| timer["promotion_seconds"].as_f64()),
        });
    }
    Ok(all)
}

/// Runs the controller on an emulated link with 1000 packets/s.
pub fn control(binary: &Path) -> Result<Vec<ControllerLoad>, String> {
    let mut all = Vec::new();
    for (policy, counters) in
        [("makeidle", false), ("context", false), ("status-quo", false), ("makeidle", true)]
    {
        // 500 requests and 500 replies per second.
        let watches = if counters { "--counters" } else { "" };
        let script = format!(
            "ping -q -i 0.002 -s 100 -w {} 198.18.0.1 > /dev/null & \
             '{}' radio control --interface lte --profile verizon-lte --policy {policy} --json \
             {watches} --for {CONTROL_SECONDS}s; status=$?; kill $! 2> /dev/null; exit $status",
            CONTROL_SECONDS + 5,
            binary.display()
        );
        let mut command = Command::new(binary);
        command.args(["lab", "shell", "--link", "lte:delay=1ms", "--", "sh", "-c", &script]);
        let said = output(&mut command, Span::from_secs(CONTROL_SECONDS + 60))?;
        let last = said.lines().rev().find(|line| line.starts_with('{')).unwrap_or("{}");
        let summary = json(last)?;
        let number = |key: &str| summary[key].as_f64().unwrap_or(f64::NAN);
        all.push(ControllerLoad {
            policy: policy.to_owned(),
            source: if counters { "counters" } else { "capture" }.to_owned(),
            packets: number("packets") as u64,
            rate: number("packets") / number("seconds"),
            cpu: number("cpu_share"),
        });
    }
    Ok(all)
}

/// A traffic pattern through an emulated radio that the controller demotes.
#[derive(Clone, Debug, Serialize)]
pub struct Pattern {
    pub pattern: String,
    pub joules: f64,
    pub status_quo: f64,
    pub switches: u64,
    pub status_quo_switches: u64,
    /// Promotions that the lab's radio counted.
    pub promotions: u64,
    /// The saving in the thesis.
    pub thesis: String,
}

/// Runs the patterns of the thesis (section 4.6.7), about 6 minutes each.
pub fn patterns(binary: &Path) -> Result<Vec<Pattern>, String> {
    const DOWNLOAD: &str = "curl -sfo /dev/null http://198.18.0.1:8080/1MB";
    let patterns = [
        ("a ping every 15 s", "ping -q -i 15 -c 25 198.18.0.1 > /dev/null".to_owned(), 370, "62 %"),
        (
            "1 MB, and 60 s of nothing",
            format!("for i in 1 2 3 4 5 6; do {DOWNLOAD}; sleep 60; done"),
            375,
            "15 %",
        ),
        (
            "1 MB, and 10 to 110 s of nothing",
            format!("for s in 83 24 107 41 66 12; do {DOWNLOAD}; sleep $s; done"),
            345,
            "20 %",
        ),
    ];
    let folder = manyways_rig::folder();
    fs::write(folder.path().join("1MB"), vec![0; 1_000_000]).map_err(|error| error.to_string())?;
    let site = ServerConfig {
        root: folder.path(),
        plain: &[([0, 0, 0, 0], 8080).into()],
        secure: &[],
        authority: None,
        extra_config: "",
    };
    let server = Server::nginx(folder.path(), &site).map_err(|error| error.to_string())?;
    let server = server.command().join(" ");
    let mut all = Vec::new();
    for (pattern, traffic, seconds, thesis) in patterns {
        let script = format!(
            "'{0}' radio control --interface lte --profile att-hspa --policy makeidle:10 \
             --actuator exec --command \"'{0}' lab set lte rrc=dormant\" --min-interval 1ms --json \
             --for {seconds}s > control.json & control=$!; ({traffic}) & wait $control; \
             cat control.json; '{0}' lab status --json",
            binary.display()
        );
        let mut command = Command::new(binary);
        command
            .args(["lab", "shell", "--link", "lte:down=5mbit,up=2mbit,delay=30ms,rrc=att-hspa"])
            .args(["--far", &server, "--", "sh", "-c", &script])
            .current_dir(folder.path());
        let said = output(&mut command, Span::from_secs(seconds + 60))?;
        let mut lines = said.lines().rev().filter(|line| line.starts_with('{'));
        let status = json(lines.next().unwrap_or("{}"))?;
        let summary = json(lines.next().unwrap_or("{}"))?;
        let number = |key: &str| summary[key].as_f64().unwrap_or(f64::NAN);
        all.push(Pattern {
            pattern: pattern.to_owned(),
            joules: number("joules"),
            status_quo: number("status_quo_joules"),
            switches: number("switches") as u64,
            status_quo_switches: number("status_quo_switches") as u64,
            promotions: status["links"][0]["radio"]["promotions"].as_u64().unwrap_or(0),
            thesis: thesis.to_owned(),
        });
    }
    Ok(all)
}
