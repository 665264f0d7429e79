//! Policies by name.

use manyways_model::radio::{
    self, POLICIES, Packet, Policy, PolicySpecError, Profile, TraceProfile,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::value_error;

/// Returns the names of the policies, their parameters with the defaults, and their descriptions.
#[pyfunction]
pub fn policies(py: Python<'_>) -> PyResult<Vec<(&'static str, Bound<'_, PyDict>, &'static str)>> {
    let tell = |known: &radio::PolicyInfo| {
        let all = PyDict::new(py);
        for number in known.parameters {
            all.set_item(number.name, number.default)?;
        }
        Ok((known.name, all, known.about))
    };
    POLICIES.iter().map(tell).collect()
}

/// A named policy, or a combination of two: `makeidle+makeactive` goes idle like the first and
/// delays sessions like the second.
#[pyclass(frozen)]
#[derive(Clone)]
pub struct PolicySpec(pub(super) radio::PolicySpec);

#[pymethods]
impl PolicySpec {
    /// Raises ValueError if the policy or a parameter does not exist.
    #[new]
    fn new(name: &str, numbers: &Bound<'_, PyDict>) -> PyResult<Self> {
        let told = |error: PolicySpecError| value_error(&error.message, &error.hint);
        let mut given = Vec::new();
        for (key, value) in numbers.iter().filter(|(_, value)| !value.is_none()) {
            let key: String = key.extract()?;
            let number =
                POLICIES.iter().flat_map(|known| known.parameters).find(|one| one.name == key);
            let text = || value.str().map_or_else(|_| String::new(), |text| text.to_string());
            let read = value.extract::<f64>().ok();
            // For a value that is not a number, the parameter, if it exists, provides the error.
            let value = match (read, number) {
                (None, Some(number)) => return Err(told(number.value_error(&text()))),
                // Python's spelling of the value.
                (Some(value), Some(number)) if value.is_nan() || value.is_infinite() => {
                    return Err(told(number.value_error(&text())));
                }
                (read, _) => read.unwrap_or(f64::NAN),
            };
            given.push((key, value));
        }
        radio::PolicySpec::new(name, &given).map(Self).map_err(told)
    }

    /// Whether the policy delays sessions.
    fn delays_sessions(&self) -> bool {
        self.0.delays_sessions()
    }
}

impl PolicySpec {
    /// Creates the policy for a trace. The Oracle is not created here: the caller evaluates it.
    pub(super) fn policy(&self, profile: &Profile, packets: &[Packet]) -> Box<dyn Policy> {
        let mut survey = TraceProfile::new([profile]);
        if self.0.quantile().is_some() || self.0.delays_sessions() {
            packets.iter().for_each(|packet| survey.push(packet));
        }
        self.0.policy(profile, self.0.learned(&survey, 0))
    }
}
