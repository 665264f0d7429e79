//! Policies by name.

use manyways_model::radio::plan::{self, ALL, Learned, PlanError};
use manyways_model::radio::policy::{NEVER, Policy};
use manyways_model::radio::{Choice, Packet, Profile};
use manyways_unit::quantile::nearest_rank;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::wrong;

/// Returns the names of the policies, their parameters with the defaults, and their descriptions.
#[pyfunction]
pub fn plans(py: Python<'_>) -> PyResult<Vec<(&'static str, Bound<'_, PyDict>, &'static str)>> {
    let tell = |known: &plan::Known| {
        let all = PyDict::new(py);
        for number in known.numbers {
            all.set_item(number.name, number.default)?;
        }
        Ok((known.name, all, known.about))
    };
    ALL.iter().map(tell).collect()
}

/// A named policy, or a combination of two: `makeidle+makeactive` goes idle like the first and
/// delays sessions like the second.
#[pyclass(frozen)]
#[derive(Clone)]
pub struct Plan(pub(super) plan::Plan);

#[pymethods]
impl Plan {
    /// Raises ValueError if the policy or a parameter does not exist.
    #[new]
    fn new(name: &str, numbers: &Bound<'_, PyDict>) -> PyResult<Self> {
        let told = |error: PlanError| wrong(&error.sentence, &error.hint);
        let mut given = Vec::new();
        for (key, value) in numbers.iter().filter(|(_, value)| !value.is_none()) {
            let key: String = key.extract()?;
            let number = ALL.iter().flat_map(|known| known.numbers).find(|one| one.name == key);
            let text = || value.str().map_or_else(|_| String::new(), |text| text.to_string());
            let read = value.extract::<f64>().ok();
            // For a value that is not a number, the parameter, if it exists, provides the error.
            let value = match (read, number) {
                (None, Some(number)) => return Err(told(number.refuses(&text()))),
                // Python's spelling of the value.
                (Some(value), Some(number)) if value.is_nan() || value.is_infinite() => {
                    return Err(told(number.refuses(&text())));
                }
                (read, _) => read.unwrap_or(f64::NAN),
            };
            given.push((key, value));
        }
        plan::Plan::new(name, &given).map(Self).map_err(told)
    }

    /// Whether the policy delays sessions.
    fn holds(&self) -> bool {
        self.0.holds()
    }
}

impl Plan {
    /// Creates the policy for a trace. The Oracle is not created here: the caller evaluates it.
    pub(super) fn policy(
        &self,
        profile: &Profile,
        choice: &Choice,
        packets: &[Packet],
    ) -> Box<dyn Policy> {
        let learned = Learned {
            gap: self.0.quantile().map_or(NEVER, |p| quantile(packets, p)),
            bursts: bursts(profile, choice, packets),
        };
        self.0.policy(profile, learned)
    }
}

fn gaps(packets: &[Packet]) -> impl Iterator<Item = f64> {
    packets.windows(2).map(|pair| pair[1].at.since(pair[0].at).as_secs_f64())
}

/// Returns the shortest gap that at least the fraction p of all gaps does not exceed. A trace
/// without a gap leaves the radio to the network's timers.
fn quantile(packets: &[Packet], p: f64) -> f64 {
    let mut gaps: Vec<f64> = gaps(packets).collect();
    if gaps.is_empty() {
        return NEVER;
    }
    let rank = nearest_rank(gaps.len() as u64, p) as usize;
    *gaps.select_nth_unstable_by(rank - 1, f64::total_cmp).1
}

/// Returns the mean number of bursts from one release to the next with the network's timers. A
/// burst consists of packets with gaps of at most the profile's burst gap.
fn bursts(profile: &Profile, choice: &Choice, packets: &[Packet]) -> f64 {
    let burst_gap = profile.transfer.burst_gap.as_secs_f64();
    let bursts = 1 + gaps(packets).filter(|gap| *gap > burst_gap).count();
    let is_switch = |gap: &f64| *gap > burst_gap && choice.stay.is_released(*gap);
    let periods = 1 + gaps(packets).filter(is_switch).count();
    bursts as f64 / periods as f64
}
