//! Compares the energy of an LTE radio under its network's timers, two policies and the oracle, for
//! a generated trace: `cargo run --release -p manyways-model --example radio_policy`.

use manyways_model::radio::{
    Decider, MakeIdle, Outcome, Policy, Profile, Simulation, SleepTradeoff, StatusQuo, Timer,
    profiles, workload,
};
use manyways_unit::Span;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let profile = profiles::named("lte").ok_or("there is no such profile")??;
    let status_quo = simulate(&profile, Decider::Policy(&mut StatusQuo)).account.total();
    let policies: [(&str, Box<dyn Policy>); 2] = [
        ("idle after 4.5 s", Box::new(Timer { wait: Span::from_millis(4_500) })),
        ("MakeIdle", Box::new(MakeIdle::new(SleepTradeoff::of(&profile), 100))),
    ];
    println!("{:<18} {status_quo:>8.0} J", "status quo");
    for (name, mut policy) in policies {
        print(name, status_quo, &simulate(&profile, Decider::Policy(policy.as_mut())));
    }
    print("oracle", status_quo, &simulate(&profile, Decider::Oracle));
    Ok(())
}

/// Passes one day of a user's packets to a simulation.
fn simulate(profile: &Profile, decides: Decider<'_>) -> Outcome {
    let mut simulation = Simulation::new(profile, decides, &|_| false);
    for packet in workload::mixed(1, Span::from_secs(86_400)) {
        simulation.push(packet);
    }
    simulation.finish()
}

fn print(name: &str, status_quo: f64, outcome: &Outcome) {
    let joules = outcome.account.total();
    let saved = 100.0 * (1.0 - joules / status_quo);
    println!("{name:<18} {joules:>8.0} J, saves {saved:.0} %");
}
