//! A long download while both networks are square waves: a change that follows them is always late.

use manyways_trace::scenario::CapacitySpec;
use manyways_trace::{LinkTrace, Steps};
use manyways_unit::{Random, Rate, Span};
use serde::Serialize;

use super::data::Place;
use super::download::{Download, download};

/// Rates of a wave.
const RATES: [Rate; 2] = [Rate::from_mbps(20), Rate::from_mbps(2)];
/// Seconds of the download, and those of the traces before it.
const SECONDS: u64 = 60;
const BEFORE: u64 = 10;
/// Downloads of each kind: the waves begin at a drawn time.
const DRAWS: u64 = 10;
/// Seed of these times and of the round trips.
const SEED: u64 = 0x7374_6565_7204;
/// Periods of the waves in milliseconds: 1 Hz, and a change in each second.
const PERIODS: [u64; 2] = [1_000, 2_000];

/// The worst figures of all downloads over waves of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct Square {
    pub period_seconds: f64,
    /// Whether both networks are fast at the same time.
    pub is_in_phase: bool,
    pub switches: u32,
    /// Bytes / those of the better network alone.
    pub of_fixed: f64,
}

/// Downloads over all kinds of waves.
///
/// # Errors
/// One sentence, if the default model is not valid.
pub fn squares() -> Result<Vec<Square>, String> {
    let kinds = PERIODS.into_iter().flat_map(|period| [false, true].map(|phase| (period, phase)));
    kinds.map(|(period, is_in_phase)| square(period, is_in_phase)).collect()
}

fn square(period: u64, is_in_phase: bool) -> Result<Square, String> {
    let one = |draw| {
        let place = place(period, is_in_phase, draw)?;
        download(&place)
    };
    let all: Vec<Download> = (0..DRAWS).map(one).collect::<Result<_, String>>()?;
    let share = |one: &Download| one.of_oracle / one.wifi_alone.max(one.lte_alone);
    Ok(Square {
        period_seconds: period as f64 / 1e3,
        is_in_phase,
        switches: all.iter().map(|one| one.switches).max().unwrap_or_default(),
        of_fixed: all.iter().map(share).fold(f64::INFINITY, f64::min),
    })
}

fn place(period: u64, is_in_phase: bool, draw: u64) -> Result<Place, String> {
    let mut random = Random::for_purpose(SEED, draw);
    let half = period / 2;
    // From 1 to the half of a period.
    let begin = 1 + (random.uniform() * (half - 1) as f64) as u64;
    let wave = |is_late: bool| -> Result<CapacitySpec, String> {
        let [first, second] = if is_late { [RATES[1], RATES[0]] } else { RATES };
        let at = Span::from_millis;
        let steps = vec![(Span::ZERO, first), (at(begin), second), (at(begin + half), first)];
        let steps = Steps::new(steps, at(period)).map_err(|why| why.to_string())?;
        Ok(CapacitySpec::Trace {
            source: "a square wave".to_owned(),
            trace: LinkTrace::Rates(steps),
        })
    };
    let down = [wave(false)?, wave(!is_in_phase)?];
    let name = format!("waves {draw}");
    Ok(Place::new(name, String::new(), BEFORE + SECONDS, down, &mut random))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waves_have_halves_of_equal_length_and_their_phase() {
        let place = place(1_000, false, 3).unwrap();
        let rates = |index: usize| -> Vec<f64> {
            let CapacitySpec::Trace { trace: LinkTrace::Rates(steps), .. } =
                &place.links[index].down.capacity
            else {
                return Vec::new();
            };
            (0..1_000).map(|at| steps.at(Span::from_millis(at)).as_mbps_f64()).collect()
        };
        let (wifi, lte) = (rates(0), rates(1));
        assert_eq!(wifi.iter().filter(|rate| **rate == 20.0).count(), 500);
        assert!(wifi.iter().zip(&lte).all(|(wifi, lte)| wifi + lte == 22.0));
    }
}
