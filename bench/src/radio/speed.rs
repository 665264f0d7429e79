//! Speed and memory of the policies.

use std::path::Path;
use std::process::{Command, Stdio};

use manyways_model::radio::plan::{Learned, Plan};
use manyways_model::radio::simulate::{Decides, Simulation};
use manyways_model::radio::{Packet, profiles, workload};
use manyways_rig::cell::{Cell, Contender, Run};
use manyways_rig::launch::{DriveError, all_of};
use manyways_rig::sample::Quartiles;
use manyways_sys::clock::Clock;
use manyways_sys::wait::{Outcome, account};
use manyways_trace::scenario::LinkSpec;
use manyways_unit::{Span, Time};
use serde::Serialize;

/// Speed of a policy on one core.
#[derive(Clone, Debug, Serialize)]
pub struct Speed {
    pub policy: String,
    /// Million packets per second.
    pub mpps: Quartiles,
}

/// A policy as a contender, by its name.
#[derive(Clone, Copy, Debug)]
struct Policy(&'static str);

impl Contender for Policy {
    fn name(&self, _links: &[LinkSpec]) -> String {
        self.0.to_owned()
    }
}

/// Memory of one run of `manyways radio simulate`.
#[derive(Clone, Debug, Serialize)]
pub struct Memory {
    pub days: u64,
    pub packets: u64,
    /// Peak resident memory.
    pub mib: f64,
}

/// Measures the speed of each policy on packets that are in memory.
pub fn speed(rounds: u32) -> Result<Vec<Speed>, String> {
    const POLICIES: [&str; 5] = ["status-quo", "threshold", "makeidle", "context", "oracle"];
    const PACKETS: usize = 2_000_000;
    let Some(Ok(profile)) = profiles::named("att-hspa") else {
        return Ok(Vec::new());
    };
    // Days of several users, one after the other.
    let mut packets: Vec<Packet> = Vec::with_capacity(PACKETS);
    for seed in 1_000.. {
        let days = workload::mixed(seed, Span::from_secs(4 * 86_400));
        let begins = packets.last().map_or(Span::ZERO, |last| last.at.since(Time::ZERO));
        packets.extend(days.map(|packet| Packet { at: packet.at + begins, ..packet }));
        if packets.len() >= PACKETS {
            break;
        }
    }
    packets.truncate(PACKETS);
    let clock = Clock::start();
    let cell = Cell {
        name: "speed".to_owned(),
        contenders: POLICIES.map(Policy).to_vec(),
        rounds,
        ..Cell::<Policy, ()>::default()
    };
    let mut record = cell.record(());
    let run = |_, Policy(name): &Policy| {
        let plan = Plan::parse(name).map_err(|error| DriveError::Site(error.to_string()))?;
        let learned = Learned { gap: f64::INFINITY, bursts: 1.0 };
        let mut policy = plan.policy(&profile, learned);
        let never = |_: &Packet| false;
        let decides =
            if plan.is_oracle() { Decides::Oracle } else { Decides::Policy(&mut *policy) };
        let begins = clock.now();
        let mut simulation = Simulation::new(&profile, decides, &never);
        packets.iter().for_each(|packet| simulation.push(*packet));
        let outcome = std::hint::black_box(simulation.finish());
        let secs = clock.now().since(begins).as_secs_f64();
        Ok(Run::of(outcome.account.packets as f64 / secs / 1e6, None))
    };
    cell.run_rounds(&cell.contenders, 0, &mut record, &mut |_| (), run)
        .map_err(|error| error.to_string())?;
    let speed = |policy: &str| {
        let mpps = record.values(|run| run.contender == policy, |mpps| Some(*mpps));
        Some(Speed { policy: policy.to_owned(), mpps: Quartiles::of(mpps.into_values())? })
    };
    Ok(POLICIES.into_iter().filter_map(speed).collect())
}

/// Measures the memory of the command over traces of these numbers of days.
pub fn memory(binary: &Path, days: &[u64]) -> Result<Vec<Memory>, String> {
    let mut all = Vec::new();
    for days in days {
        let lasts = format!("{days}d");
        let mut child = Command::new(binary)
            .args(["radio", "simulate", "--app", "mixed-day", "--seed", "1000", "--lasts", &lasts])
            .args(["--profile", "att-hspa", "--policy", "makeidle,context,makeidle+makeactive"])
            .args(["--tolerant", "email,news", "--json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("{}: {error}", binary.display()))?;
        let said = all_of(child.stdout.take());
        let (outcome, usage) =
            account(&child, Some(Span::from_secs(600)), None).map_err(|error| error.to_string())?;
        let Outcome::Exited(status) = outcome else {
            return Err("radio simulate did not end in time".to_owned());
        };
        if !status.success() {
            return Err(format!("radio simulate failed: {said}"));
        }
        let document: serde_json::Value =
            serde_json::from_str(&said).map_err(|error| error.to_string())?;
        let packets = document["traces"][0]["packets"].as_u64().unwrap_or(0);
        let mib = usage.memory.as_bytes() as f64 / f64::from(1 << 20);
        all.push(Memory { days: *days, packets, mib });
    }
    Ok(all)
}
