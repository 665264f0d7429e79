//! Campaigns of random scenarios: a client (dialer and mux) and a gateway (sessions and mux) over
//! emulated paths that fail in all ways that the generator knows.
//!
//! A seed is a scenario. At a failure, the test prints the seed, the invariant, the events that
//! remain after the removal of those without influence, and the command that repeats it:
//!
//! ```sh
//! MANYWAYS_SEEDS=4711 cargo test -p manyways-proto campaign::soak -- --ignored --nocapture
//! ```

mod application;
mod client;
mod endpoint;
mod gateway;
mod network;
mod scenario;
mod world;

use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use scenario::Scenario;
use world::{Summary, World};

/// Runs a scenario, and returns the violated invariant or the text of a panic.
fn run(scenario: &Scenario, prints: bool) -> Result<Summary, String> {
    catch_unwind(AssertUnwindSafe(|| World::run(scenario, prints))).map_err(text)
}

fn text(panic: Box<dyn Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => {
            panic.downcast::<&str>().map_or("a panic".to_owned(), |text| text.to_string())
        }
    }
}

/// Removes events while the scenario still fails.
fn shrink(mut scenario: Scenario) -> Scenario {
    let mut size = scenario.events.len().div_ceil(2);
    loop {
        let mut at = 0;
        while at < scenario.events.len() {
            let mut smaller = scenario.clone();
            smaller.events.drain(at..(at + size).min(scenario.events.len()));
            match run(&smaller, false) {
                Err(_) => scenario = smaller,
                Ok(_) => at += size,
            }
        }
        if size <= 1 {
            return scenario;
        }
        size = size.div_ceil(2);
    }
}

/// Runs the scenarios of some seeds. Panics with a description of the first failure.
fn run_seeds(seeds: Range<u64>) -> Summary {
    let mut total = Summary::default();
    for seed in seeds {
        let scenario = Scenario::of_seed(seed);
        match run(&scenario, false) {
            Ok(summary) => total.add(summary),
            Err(invariant) => fail(&scenario, &invariant),
        }
    }
    total
}

fn fail(scenario: &Scenario, invariant: &str) -> ! {
    let smaller = shrink(scenario.clone());
    println!("With these events only:");
    let cause = run(&smaller, true).err().unwrap_or_default();
    panic!(
        "seed {seed}: {invariant}\n\nFewer events suffice:\n{smaller}\n{cause}\n\nTo repeat: \
         MANYWAYS_SEEDS={seed} cargo test -p manyways-proto campaign::soak -- --ignored --nocapture",
        seed = scenario.seed,
    );
}

impl Summary {
    fn add(&mut self, other: Self) {
        self.steps += other.steps;
        self.streams += other.streams;
        self.complete += other.complete;
        self.bytes += other.bytes;
        self.renewals += other.renewals;
        self.carriers += other.carriers;
        self.reinjected += other.reinjected;
        self.datagrams += other.datagrams;
        self.slowest = self.slowest.max(other.slowest);
    }
}

/// Several tests, because the test runner runs them on several processors.
macro_rules! quarters {
    ($($name:ident: $seeds:expr;)+) => {
        $(
            #[test]
            fn $name() {
                println!("{:?}", run_seeds($seeds));
            }
        )+
    };
}

quarters! {
    random_scenarios_keep_the_invariants_1: 0..500;
    random_scenarios_keep_the_invariants_2: 500..1_000;
    random_scenarios_keep_the_invariants_3: 1_000..1_500;
    random_scenarios_keep_the_invariants_4: 1_500..2_000;
}

/// Runs the seeds in the variable `MANYWAYS_SEEDS`: one (`4711`) or a range (`2000..3000`).
#[test]
#[ignore = "scripts/soak runs it"]
fn soak() {
    let seeds =
        std::env::var("MANYWAYS_SEEDS").expect("MANYWAYS_SEEDS=4711 or MANYWAYS_SEEDS=2000..3000");
    let (first, last) = seeds.split_once("..").unwrap_or((&seeds, ""));
    let first: u64 = first.parse().expect("a seed");
    let end = if last.is_empty() { first + 1 } else { last.parse().expect("a seed") };
    println!("{:?}", run_seeds(first..end));
}
