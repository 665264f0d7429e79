//! Speed and memory of the policies.

use std::path::Path;
use std::process::{Command, Stdio};

use manyways_model::radio::{
    Decider, NEVER, Outcome, Packet, PolicySpec, Priors, Profile, Simulation, profiles, workload,
};
use manyways_rig::cell::{Cell, Run};
use manyways_rig::launch::DriveError;
use manyways_rig::measure::measure;
use manyways_rig::sample::Quartiles;
use manyways_sys::clock::Clock;
use manyways_unit::{Span, Time};
use serde::Serialize;

/// Speed of a policy on one core.
#[derive(Clone, Debug, Serialize)]
pub struct Speed {
    pub policy: String,
    /// Million packets per second.
    pub mpps: Quartiles,
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
        contenders: POLICIES.to_vec(),
        rounds,
        ..Cell::<&str, ()>::default()
    };
    let mut record = cell.record(());
    let run = |_, name: &&str| {
        let begins = clock.now();
        let outcome = simulate(&profile, name, packets.iter().copied());
        let outcome = std::hint::black_box(outcome.map_err(DriveError::Server)?);
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

/// Runs one policy over packets. Sessions are not delayed.
pub fn simulate(
    profile: &Profile,
    policy: &str,
    packets: impl Iterator<Item = Packet>,
) -> Result<Outcome, String> {
    let plan = PolicySpec::parse(policy).map_err(|error| error.to_string())?;
    let mut policy = plan.policy(profile, Priors { gap_quantile: NEVER, bursts_per_period: 1.0 });
    let never = |_: &Packet| false;
    let decides = if plan.is_oracle() { Decider::Oracle } else { Decider::Policy(&mut *policy) };
    let mut simulation = Simulation::new(profile, decides, &never);
    packets.for_each(|packet| simulation.push(packet));
    Ok(simulation.finish())
}

/// Measures the memory of the command over traces of these numbers of days.
pub fn memory(binary: &Path, days: &[u64]) -> Result<Vec<Memory>, String> {
    let of = |days: &u64| {
        let mut command = Command::new(binary);
        command
            .args(["radio", "simulate", "--app", "mixed-day", "--seed", "1000", "--json"])
            .args(["--duration", &format!("{days}d"), "--tolerant", "email,news"])
            .args(["--profile", "att-hspa", "--policy", "makeidle,context,makeidle+makeactive"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let done = measure(&mut command, Span::from_secs(600), None);
        let done = done.map_err(|error| error.to_string())?;
        let mib = done.usage.memory.as_bytes() as f64 / f64::from(1 << 20);
        let document = super::json(&done.output()?)?;
        let packets = document["traces"][0]["packets"].as_u64().unwrap_or(0);
        Ok(Memory { days: *days, packets, mib })
    };
    days.iter().map(of).collect()
}
