//! Radio energy for `manyways.radio`: Python interfaces of the Rust types.
//!
//! Long computations release the GIL and can be interrupted.

mod policy_spec;
mod run;
mod trace;

use manyways_model::radio::{NEVER, Profile, SleepTradeoff, profiles};
use manyways_model::radio::{ProfileError, profile};
use manyways_unit::Span;
use manyways_unit::human::quoted;
use manyways_unit::nearest::nearest;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

pub use self::policy_spec::{PolicySpec, policies};
pub use self::trace::{Trace, workloads};

/// The power profile of a radio.
#[pyclass(frozen)]
pub struct Radio {
    profile: Profile,
    choice: SleepTradeoff,
    threshold: Span,
}

#[pymethods]
impl Radio {
    /// Returns the profile with this name. Raises ValueError if there is none.
    #[staticmethod]
    fn named(name: &str) -> PyResult<Self> {
        match profiles::named(name) {
            Some(Ok(profile)) => Ok(Self::of(profile)),
            Some(Err(error)) => Err(profile_error(&error)),
            None => Err(unknown_name_error("profile", name, profiles::all().map(|(name, _)| name))),
        }
    }

    /// Parses a profile from TOML. Raises ValueError if it is invalid.
    #[staticmethod]
    fn parse(text: &str) -> PyResult<Self> {
        profile::parse(text).map(Self::of).map_err(|error| profile_error(&error))
    }

    /// Returns all values of the profile, in seconds, watts and joules.
    fn numbers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let Profile { title, technology, transfer, states, dormant } = &self.profile;
        let to = PyDict::new(py);
        to.set_item("send", transfer.send.as_watts())?;
        to.set_item("receive", transfer.receive.as_watts())?;
        to.set_item("send_per_mbit", transfer.send_per_mbit.as_joules())?;
        to.set_item("receive_per_mbit", transfer.receive_per_mbit.as_joules())?;
        to.set_item("burst_gap", transfer.burst_gap.as_secs_f64())?;
        to.set_item("source", &transfer.source)?;
        let all = PyDict::new(py);
        all.set_item("title", title)?;
        all.set_item("technology", technology.name())?;
        all.set_item("transfer", to)?;
        let list = PyList::empty(py);
        for (index, state) in states.iter().enumerate() {
            let to = PyDict::new(py);
            to.set_item("name", &state.name)?;
            to.set_item("power", state.power.as_watts())?;
            let listens = state.drx.as_ref();
            to.set_item("listen_every", listens.map(|listens| listens.cycle.as_secs_f64()))?;
            to.set_item("listen_for", listens.map(|listens| listens.on_duration.as_secs_f64()))?;
            to.set_item("listen_power", listens.map(|listens| listens.power.as_watts()))?;
            to.set_item("timer", state.timer.map(|timer| timer.as_secs_f64()))?;
            to.set_item("demotion", state.demotion.as_joules())?;
            to.set_item("promotion", state.promotion.as_joules())?;
            to.set_item("promotion_delay", state.promotion_delay.as_secs_f64())?;
            to.set_item("released", state.is_idle)?;
            to.set_item("dormant", index == *dormant)?;
            to.set_item("source", &state.source)?;
            list.append(to)?;
        }
        all.set_item("states", list)?;
        Ok(all)
    }

    /// Returns the gap in seconds from which going idle at once saves energy; infinite if it never
    /// does.
    fn threshold(&self) -> f64 {
        seconds(self.threshold)
    }

    /// Returns the switch energy in joules: one demotion and the promotion that follows.
    fn switch_energy(&self) -> f64 {
        self.choice.switch_energy().as_joules()
    }

    /// Returns the seconds after the last packet until the network releases the connection.
    fn released(&self) -> f64 {
        seconds(self.choice.stay.idle_after())
    }

    /// Returns the joules of gaps in seconds that end with a packet, as 64-bit numbers. `waits` has
    /// one wait for each gap, after which the device goes idle. Raises ValueError if a number is
    /// negative or NaN.
    #[pyo3(signature = (gaps, waits=None))]
    fn cost<'py>(
        &self,
        py: Python<'py>,
        gaps: PyBuffer<f64>,
        waits: Option<PyBuffer<f64>>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let gaps = gaps.to_vec(py)?;
        let waits = match waits {
            Some(waits) => waits.to_vec(py)?,
            None => vec![f64::INFINITY; gaps.len()],
        };
        check_same_length(waits.len(), "waits", gaps.len(), "gaps")?;
        let is_gap = |secs: &f64| secs.is_finite() && *secs >= 0.0;
        if let Some((row, secs)) = gaps.iter().enumerate().find(|(_, secs)| !is_gap(secs)) {
            let message = format!("the gap in row {row} is invalid: {secs} s");
            return Err(value_error(&message, "give finite numbers of seconds, 0 or more"));
        }
        run::check_waits(&waits)?;
        let bytes: Vec<u8> = py.detach(|| {
            let costs = gaps.iter().zip(&waits);
            costs
                .flat_map(|(gap, wait)| {
                    let [gap, wait] = [gap, wait].map(|secs| Span::from_secs_f64(*secs));
                    self.choice.cost(gap, wait).to_le_bytes()
                })
                .collect()
        });
        Ok(PyBytes::new(py, &bytes))
    }
}

impl Radio {
    fn of(profile: Profile) -> Self {
        let tradeoff = SleepTradeoff::of(&profile);
        Self { threshold: tradeoff.threshold(), choice: tradeoff, profile }
    }
}

/// Infinity stands for "never" in Python.
fn seconds(span: Span) -> f64 {
    if span == NEVER { f64::INFINITY } else { span.as_secs_f64() }
}

/// Returns the names of the built-in profiles.
#[pyfunction]
pub fn radios() -> Vec<&'static str> {
    profiles::all().map(|(name, _)| name).collect()
}

fn profile_error(error: &ProfileError) -> PyErr {
    error_with_hint(error, error.hint.as_deref())
}

/// Creates a ValueError from an error message and its hint.
fn error_with_hint(message: &impl std::fmt::Display, hint: Option<&str>) -> PyErr {
    match hint {
        Some(hint) => value_error(&message.to_string(), hint),
        None => PyValueError::new_err(message.to_string()),
    }
}

fn value_error(message: &str, hint: &str) -> PyErr {
    PyValueError::new_err(format!("{message}; {hint}"))
}

fn unknown_name_error<'a>(what: &str, name: &str, all: impl Iterator<Item = &'a str>) -> PyErr {
    let all: Vec<&str> = all.collect();
    let meant = nearest(name, all.iter().copied());
    let meant = meant.map(|meant| format!("did you mean `{meant}`? ")).unwrap_or_default();
    let hint = format!("{meant}they are: {}", all.join(", "));
    value_error(&format!("there is no {what} `{}`", quoted(name)), &hint)
}

/// Checks that two columns have the same length.
fn check_same_length(one: usize, what: &str, other: usize, others: &str) -> PyResult<()> {
    if one == other {
        return Ok(());
    }
    let hint = "give one for each";
    Err(value_error(&format!("there are {one} {what} for {other} {others}"), hint))
}
