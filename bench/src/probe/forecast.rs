//! Whether `manyways probe compare` names the network on which a download will be faster: its
//! cores in virtual time, over recorded pairs of networks.
//!
//! A case is a pair and an offset into its recordings, which repeat. The comparison measures both
//! networks as the command would, Wi-Fi first. A new download of 1 MB (TCP, TLS 1.3, request, bytes)
//! then begins a second after the end of the measurement, or 30 s after it, on each network as if
//! the other one had none. A case counts if its two durations differ by more than 10 %.
//!
//! The recordings have rates down only. The round trips are 28 ms (Wi-Fi) and 65 ms (LTE), the rate
//! up is 10 Mbit/s, the queues are drop-tail with 150 ms at the mean rate, and TCP is CUBIC.

mod measurement;

use std::path::PathBuf;

use manyways_model::probe::compare::{NetworkMeasurement, Purpose, Transfer, compare};
use manyways_rig::links::{Pair, find_pairs, link, period};
use manyways_trace::scenario::LinkSpec;
use manyways_unit::{Random, Rate, Size, Span};
use serde::Serialize;

use self::measurement::{BYTES, Measured, measure};
use crate::virtual_tcp::{Growth, Order, Way, transfer};

/// Seed of the official cases, and how many there are of each pair. No constant of the comparison
/// was chosen by them.
pub const OFFICIAL: (u64, usize) = (0x6d77_2026, 4);
/// Seeds of cases for development, and how many there are of each pair.
pub const DEVELOPMENT: ([u64; 4], usize) = ([11, 12, 13, 14], 8);
/// From the end of the measurement to the start of the download.
pub const LAGS: [Span; 2] = [Span::from_secs(1), Span::from_secs(30)];
/// Handshakes of TCP and TLS 1.3; the request is part of the transfer.
const EXCHANGES: usize = 2;
/// Rate up; the recordings have none.
const UP: Rate = Rate::from_mbps(10);
/// Durations that differ by no larger share are equal.
const EQUAL: f64 = 0.1;
/// Lower ends of the ranges of certainty whose share of right answers is shown.
const RANGES: [f64; 5] = [0.5, 0.6, 0.7, 0.8, 0.9];

/// Forecasts over recorded pairs, in virtual time (a few seconds).
#[derive(clap::Args)]
pub struct ForecastArgs {
    /// The cases for development instead of the official ones.
    #[arg(long)]
    development: bool,
    /// Print each case too: its offset, the forecast, and the seconds on both networks after each
    /// lag.
    #[arg(long)]
    cases: bool,
    /// The folder with recorded pairs.
    #[arg(long, value_name = "DIR")]
    pairs: Option<PathBuf>,
}

/// A measurement and the downloads after it, each with Wi-Fi first.
#[derive(Clone, Debug)]
pub struct Case {
    pair: String,
    offset: Span,
    measured: Vec<Measured>,
    /// Seconds of the download after each of [`LAGS`]; infinite if it failed.
    durations: [[f64; 2]; LAGS.len()],
}

/// How often a forecast was right.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Seconds from the end of the measurement to the download.
    pub lag: f64,
    /// The time for which the comparison was asked.
    pub after: f64,
    /// Cases with different durations.
    pub cases: usize,
    /// Share of the cases in which the comparison names the faster network.
    pub right: f64,
    /// Share in which it names none.
    pub unsure: f64,
    pub always_wifi: f64,
    pub always_lte: f64,
    /// The network whose own download took less time in the measurement.
    pub last_winner: f64,
    /// The network whose download beside the other took less time.
    pub winner_together: f64,
    /// The network with the higher rate down, without slow start.
    pub higher_rate: f64,
    /// Mean duration with the named network, else with Wi-Fi, beyond that of the faster network,
    /// as a share of it.
    pub regret: f64,
    /// For each range of certainty from 0.5 on: its mean, cases, and the share in which the more
    /// probable network was faster.
    pub calibration: Vec<(f64, usize, f64)>,
}

impl Figures {
    /// The best share of always the same network and of the last winner.
    pub fn best_baseline(&self) -> f64 {
        self.always_wifi.max(self.always_lte).max(self.last_winner)
    }
}

/// Simulates `count` cases of each pair, at offsets from a generator with this seed.
pub fn simulate(pairs: &[Pair], seed: u64, count: usize) -> Vec<Case> {
    let mut random = Random::new(seed);
    let mut cases = Vec::new();
    for pair in pairs {
        let links = links(pair);
        let length = links.iter().filter_map(period).max().unwrap_or_default();
        for _ in 0..count {
            let offset = Span::from_nanos((length.as_nanos() as f64 * random.uniform()) as u64);
            cases.push(Case::new(&pair.name, &links, offset));
        }
    }
    cases
}

/// The pair's links with the same rate up.
fn links(pair: &Pair) -> Vec<LinkSpec> {
    let rtt = manyways_rig::links::round_trip;
    let links = pair.links();
    links.iter().map(|old| link(&old.name, old.down.capacity.clone(), UP, rtt(old))).collect()
}

impl Case {
    fn new(pair: &str, links: &[LinkSpec], offset: Span) -> Self {
        let (measured, end) = measure(links, offset);
        let order =
            Order { way: Way::Down, bytes: BYTES, exchanges: EXCHANGES, growth: Growth::None };
        let duration = |link: &LinkSpec, lag: Span| {
            let begun = end + lag;
            let done = transfer(link, offset, begun, order);
            match done.arrivals.last() {
                Some((at, _)) if done.is_complete => at.since(begun).as_secs_f64(),
                _ => f64::INFINITY,
            }
        };
        let durations = LAGS.map(|lag| [duration(&links[0], lag), duration(&links[1], lag)]);
        Self { pair: pair.to_owned(), offset, measured, durations }
    }

    /// The faster network after a lag; `None` if the durations are about equal.
    fn faster(&self, lag: usize) -> Option<usize> {
        let [wifi, lte] = self.durations[lag];
        let is_different =
            wifi.min(lte).is_finite() && wifi.max(lte) > wifi.min(lte) * (1.0 + EQUAL);
        is_different.then(|| usize::from(lte < wifi))
    }

    /// The network with the least value; Wi-Fi if both have the same.
    fn least(&self, value: impl Fn(&Measured) -> f64) -> usize {
        usize::from(value(&self.measured[1]) < value(&self.measured[0]))
    }

    /// Index of the network that the comparison for a download after this time finds more probable,
    /// whether it names it, and how certain it is.
    fn forecast(&self, after: Span) -> (usize, bool, f64) {
        let networks = self.measured.iter().enumerate();
        let networks = networks.filter_map(|(index, one)| Some((index, one.network()?)));
        let (indices, networks): (Vec<usize>, Vec<NetworkMeasurement>) = networks.unzip();
        let found = compare(&networks, Purpose::Download(Size::from_bytes(BYTES as u64)), after);
        let is_second = found.values.get(1).is_some_and(|second| *second < found.values[0]);
        let best = indices.get(usize::from(is_second)).copied().unwrap_or_default();
        (best, found.winner.is_some(), found.certainty)
    }
}

/// The figures of the forecasts for each of [`LAGS`], and those after the second one if the
/// comparison is for the first one.
pub fn figures(cases: &[Case]) -> Vec<Figures> {
    let [soon, late] = LAGS;
    [(0, soon), (1, late), (1, soon)].map(|(index, after)| figures_of(cases, index, after)).into()
}

/// The figures after a lag, if the comparison is for a download after this time.
fn figures_of(cases: &[Case], index: usize, after: Span) -> Figures {
    let cases: Vec<(&Case, usize)> =
        cases.iter().filter_map(|case| Some((case, case.faster(index)?))).collect();
    let count = cases.len().max(1) as f64;
    let share = |is_right: &dyn Fn(&Case, usize) -> bool| {
        cases.iter().filter(|(case, faster)| is_right(case, *faster)).count() as f64 / count
    };
    let shorter = |part: fn(&Measured) -> Option<Transfer>| {
        let seconds = move |one: &Measured| match part(one) {
            Some(transfer) => transfer.duration.as_secs_f64(),
            None => f64::INFINITY,
        };
        share(&|case, faster| case.least(seconds) == faster)
    };
    let down = |one: &Measured| one.down.map_or(0.0, |down| -(down.rate().as_bps() as f64));
    let regret: f64 = cases
        .iter()
        .map(|(case, faster)| {
            let (best, is_named, _) = case.forecast(after);
            let durations = case.durations[index];
            durations[if is_named { best } else { 0 }].min(120.0) / durations[*faster] - 1.0
        })
        .sum();
    let calibration = RANGES.iter().enumerate().filter_map(|(place, low)| {
        let high = RANGES.get(place + 1).copied().unwrap_or(f64::INFINITY);
        let found: Vec<(bool, f64)> = cases
            .iter()
            .map(|(case, faster)| (case.forecast(after), *faster))
            .filter(|((_, _, certainty), _)| (*low..high).contains(certainty))
            .map(|((best, _, certainty), faster)| (best == faster, certainty))
            .collect();
        let number = found.len();
        let mean = found.iter().map(|(_, certainty)| certainty).sum::<f64>() / number as f64;
        let right = found.iter().filter(|(is_right, _)| *is_right).count() as f64 / number as f64;
        (number > 0).then_some((mean, number, right))
    });
    Figures {
        lag: LAGS[index].as_secs_f64(),
        after: after.as_secs_f64(),
        cases: cases.len(),
        right: share(&|case, faster| {
            let (best, is_named, _) = case.forecast(after);
            is_named && best == faster
        }),
        unsure: share(&|case, _| !case.forecast(after).1),
        always_wifi: share(&|_, faster| faster == 0),
        always_lte: share(&|_, faster| faster == 1),
        last_winner: shorter(|one| one.down),
        winner_together: shorter(|one| one.together),
        higher_rate: share(&|case, faster| case.least(down) == faster),
        regret: regret / count,
        calibration: calibration.collect(),
    }
}

/// Simulates the official cases.
pub fn official(pairs: &[Pair]) -> Vec<Case> {
    simulate(pairs, OFFICIAL.0, OFFICIAL.1)
}

/// Prints the figures of each seed.
///
/// # Errors
/// One sentence, if there are no recorded pairs.
pub fn forecast(args: &ForecastArgs) -> Result<(), String> {
    let pairs = find_pairs(args.pairs.as_deref(), "forecasts", &mut Vec::new())?;
    let sets = match args.development {
        true => {
            let (seeds, count) = DEVELOPMENT;
            seeds.iter().map(|seed| (*seed, simulate(&pairs, *seed, count))).collect()
        }
        false => vec![(OFFICIAL.0, official(&pairs))],
    };
    println!("seed lag after cases right unsure best-baseline wifi lte last together rate regret");
    for (seed, cases) in sets {
        if args.cases {
            cases.iter().for_each(Case::print);
        }
        figures(&cases).iter().for_each(|figures| figures.print(seed));
    }
    Ok(())
}

impl Case {
    fn print(&self) {
        let (best, is_named, certainty) = self.forecast(LAGS[0]);
        let name = if best == 0 { "wifi" } else { "lte" };
        let sure = if is_named { "" } else { "?" };
        let Self { pair, offset, durations, .. } = self;
        println!("{pair} {:.3} {name}{sure} {certainty:.2} {durations:.2?}", offset.as_secs_f64());
    }
}

impl Figures {
    fn print(&self, seed: u64) {
        let Self { lag, after, cases, right, unsure, always_wifi, always_lte, last_winner, .. } =
            self;
        let Self { winner_together, higher_rate, regret, .. } = self;
        let baseline = self.best_baseline();
        println!(
            "{seed} {lag} {after} {cases} {right:.3} {unsure:.3} {baseline:.3} {always_wifi:.3} \
             {always_lte:.3} {last_winner:.3} {winner_together:.3} {higher_rate:.3} {regret:.2}"
        );
        for (certainty, count, right) in &self.calibration {
            println!("    certainty {certainty:.2}: {count} cases, right {right:.2}");
        }
    }
}

#[cfg(test)]
mod tests;
