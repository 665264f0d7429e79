//! Radio energy for `manyways.radio`: Python interfaces of the Rust types.
//!
//! Long computations release the GIL and can be interrupted.

mod plan;
mod run;
mod trace;

use manyways_model::radio::profile::{self, ProfileError};
use manyways_model::radio::{Choice, Profile, profiles};
use manyways_unit::human::quoted;
use manyways_unit::nearest::nearest;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

pub use self::plan::{Plan, plans};
pub use self::trace::{Trace, workloads};

/// The power profile of a radio.
#[pyclass(frozen)]
pub struct Radio {
    profile: Profile,
    choice: Choice,
    threshold: f64,
}

#[pymethods]
impl Radio {
    /// Returns the profile with this name. Raises ValueError if there is none.
    #[staticmethod]
    fn named(name: &str) -> PyResult<Self> {
        match profiles::named(name) {
            Some(Ok(profile)) => Ok(Self::of(profile)),
            Some(Err(error)) => Err(refused(&error)),
            None => Err(unknown("profile", name, profiles::all().map(|(name, _)| name))),
        }
    }

    /// Parses a profile from TOML. Raises ValueError if it is invalid.
    #[staticmethod]
    fn parse(text: &str) -> PyResult<Self> {
        profile::parse(text).map(Self::of).map_err(|error| refused(&error))
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
        for (place, state) in states.iter().enumerate() {
            let to = PyDict::new(py);
            to.set_item("name", &state.name)?;
            to.set_item("power", state.power.as_watts())?;
            let listens = state.listens.as_ref();
            to.set_item("listen_every", listens.map(|listens| listens.cycle.as_secs_f64()))?;
            to.set_item("listen_for", listens.map(|listens| listens.lasts.as_secs_f64()))?;
            to.set_item("listen_power", listens.map(|listens| listens.power.as_watts()))?;
            to.set_item("timer", state.timer.map(|timer| timer.as_secs_f64()))?;
            to.set_item("demotion", state.demotion.as_joules())?;
            to.set_item("promotion", state.promotion.as_joules())?;
            to.set_item("promotion_delay", state.promotion_delay.as_secs_f64())?;
            to.set_item("released", state.is_released)?;
            to.set_item("dormant", place == *dormant)?;
            to.set_item("source", &state.source)?;
            list.append(to)?;
        }
        all.set_item("states", list)?;
        Ok(all)
    }

    /// Returns the gap in seconds from which going idle at once saves energy; infinite if it never
    /// does.
    fn threshold(&self) -> f64 {
        self.threshold
    }

    /// Returns the switch energy in joules: one demotion and the promotion that follows.
    fn switch_energy(&self) -> f64 {
        self.choice.switch().as_joules()
    }

    /// Returns the seconds after the last packet until the network releases the connection.
    fn released(&self) -> f64 {
        self.choice.stay.released()
    }

    /// Returns the joules of gaps in seconds that end with a packet, as 64-bit numbers. `waits` has
    /// one wait for each gap, after which the device goes idle. Raises ValueError if a number is
    /// negative or NaN.
    #[pyo3(signature = (silences, waits=None))]
    fn cost<'py>(
        &self,
        py: Python<'py>,
        silences: PyBuffer<f64>,
        waits: Option<PyBuffer<f64>>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let silences = silences.to_vec(py)?;
        let waits = match waits {
            Some(waits) => waits.to_vec(py)?,
            None => vec![f64::INFINITY; silences.len()],
        };
        same(waits.len(), "waits", silences.len(), "silences")?;
        let is_silence = |secs: &f64| secs.is_finite() && *secs >= 0.0;
        if let Some((row, secs)) = silences.iter().enumerate().find(|(_, secs)| !is_silence(secs)) {
            let sentence = format!("the silence in row {row} is invalid: {secs} s");
            return Err(wrong(&sentence, "give finite numbers of seconds, 0 or more"));
        }
        run::check_waits(&waits)?;
        let bytes: Vec<u8> = py.detach(|| {
            let costs = silences.iter().zip(&waits);
            costs.flat_map(|(secs, wait)| self.choice.cost(*secs, *wait).to_le_bytes()).collect()
        });
        Ok(PyBytes::new(py, &bytes))
    }
}

impl Radio {
    fn of(profile: Profile) -> Self {
        let choice = Choice::of(&profile);
        Self { threshold: choice.threshold(), choice, profile }
    }
}

/// Returns the names of the built-in profiles.
#[pyfunction]
pub fn radios() -> Vec<&'static str> {
    profiles::all().map(|(name, _)| name).collect()
}

fn refused(error: &ProfileError) -> PyErr {
    told(error, error.hint.as_deref())
}

/// Creates a ValueError from an error message and its hint.
fn told(sentence: &impl std::fmt::Display, hint: Option<&str>) -> PyErr {
    match hint {
        Some(hint) => wrong(&sentence.to_string(), hint),
        None => PyValueError::new_err(sentence.to_string()),
    }
}

fn wrong(sentence: &str, hint: &str) -> PyErr {
    PyValueError::new_err(format!("{sentence}; {hint}"))
}

fn unknown<'a>(what: &str, name: &str, all: impl Iterator<Item = &'a str>) -> PyErr {
    let all: Vec<&str> = all.collect();
    let meant = nearest(name, all.iter().copied());
    let meant = meant.map(|meant| format!("did you mean `{meant}`? ")).unwrap_or_default();
    let hint = format!("{meant}they are: {}", all.join(", "));
    wrong(&format!("there is no {what} `{}`", quoted(name)), &hint)
}

/// Checks that two columns have the same length.
fn same(one: usize, what: &str, other: usize, others: &str) -> PyResult<()> {
    if one == other {
        return Ok(());
    }
    let hint = "give one for each";
    Err(wrong(&format!("there are {one} {what} for {other} {others}"), hint))
}
