//! How fast policies run, and how much memory they take.

use std::path::Path;
use std::process::{Command, Stdio};

use manyways_model::radio::plan::{Learned, Plan};
use manyways_model::radio::simulate::{Decides, Simulation};
use manyways_model::radio::{Packet, profiles, workload};
use manyways_sys::clock::Clock;
use manyways_sys::wait::{Outcome, account};
use manyways_unit::{Span, Time};
use serde::Serialize;

use manyways_rig::order::shuffle;
use manyways_rig::sample::Quartiles;

/// A policy on one core.
#[derive(Clone, Debug, Serialize)]
pub struct Speed {
    pub policy: String,
    /// Millions of packets a second.
    pub mpps: Quartiles,
}

/// A run of the command.
#[derive(Clone, Debug, Serialize)]
pub struct Memory {
    pub days: u64,
    pub packets: u64,
    /// The most that was resident, in MiB.
    pub mib: f64,
}

/// Packets that are in memory, through one policy after the other.
pub fn speed(rounds: u32) -> Vec<Speed> {
    const POLICIES: [&str; 5] = ["status-quo", "threshold", "makeidle", "context", "oracle"];
    const PACKETS: usize = 2_000_000;
    let Some(Ok(profile)) = profiles::named("att-hspa") else { return Vec::new() };
    // Days of several users, one behind the other.
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
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); POLICIES.len()];
    for round in 0..rounds {
        let mut order: Vec<usize> = (0..POLICIES.len()).collect();
        shuffle(&mut order, u64::from(round));
        for place in order {
            let Ok(plan) = Plan::parse(POLICIES[place]) else { continue };
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
            times[place].push(outcome.account.packets as f64 / secs / 1e6);
        }
    }
    let speed = |(policy, mpps): (&str, Vec<f64>)| {
        Some(Speed { policy: policy.to_owned(), mpps: Quartiles::of(mpps)? })
    };
    POLICIES.into_iter().zip(times).filter_map(speed).collect()
}

/// The command over traces of so many days.
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
        let said = manyways_rig::launch::all_of(child.stdout.take());
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
