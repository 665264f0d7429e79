//! Runs a policy over a trace.

use std::cell::{Cell, RefCell};

use manyways_model::radio::{
    Decider, Direction, NEVER, Outcome, Packet, Policy, Profile, Simulation,
};
use manyways_unit::{Span, Time};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use super::trace::{PACKETS_PER_CHECK, Trace};
use super::{PolicySpec, Radio, check_same_length, value_error};

/// A policy as passed by Python.
#[derive(FromPyObject)]
pub enum PolicyArg<'py> {
    /// A named policy.
    Spec(Py<PolicySpec>),
    /// One wait for each packet.
    Waits(PyBuffer<f64>),
    /// A Python object with an `observe` method.
    Object(Bound<'py, PyAny>),
}

/// Returns the outcome.
pub fn run<'py>(
    py: Python<'py>,
    trace: &Trace,
    radio: &Radio,
    given: PolicyArg<'py>,
    tolerant: &[String],
) -> PyResult<Bound<'py, PyDict>> {
    let tolerant: Vec<bool> = trace.names.iter().map(|name| tolerant.contains(name)).collect();
    let tolerates = |packet: &Packet| tolerant.get(usize::from(packet.app)) == Some(&true);
    let profile = &radio.profile;
    let packets = &trace.packets;
    let outcome = match given {
        PolicyArg::Spec(plan) => {
            let plan = plan.get();
            py.detach(|| match plan.0.is_oracle() {
                true => {
                    feed_packets(profile, Decider::Oracle, &tolerates, packets, &check_interrupt)
                }
                false => {
                    let mut policy = plan.policy(profile, packets);
                    let decides = Decider::Policy(&mut *policy);
                    feed_packets(profile, decides, &tolerates, packets, &check_interrupt)
                }
            })?
        }
        PolicyArg::Waits(waits) => {
            let waits = waits.to_vec(py)?;
            check_same_length(waits.len(), "waits", packets.len(), "packets")?;
            check_waits(&waits)?;
            py.detach(|| {
                let mut policy = KnownWaits { waits: waits.iter() };
                let decides = Decider::Policy(&mut policy);
                feed_packets(profile, decides, &tolerates, packets, &check_interrupt)
            })?
        }
        PolicyArg::Object(object) => {
            let failed = RefCell::new(None);
            let stop = || match failed.take() {
                Some(error) => Err(error),
                None => Ok(()),
            };
            let mut policy = PythonPolicy::new(&object, trace, &failed)?;
            // Nothing runs after an error.
            feed_packets(profile, Decider::Policy(&mut policy), &tolerates, packets, &stop)
                .and_then(|outcome| stop().map(|()| outcome))?
        }
    };
    outcome_dict(py, profile, &outcome)
}

/// Whether the number is not a valid wait.
fn is_invalid_wait(wait: f64) -> bool {
    wait.is_nan() || wait < 0.0
}

/// Raises ValueError if a wait is invalid.
pub fn check_waits(waits: &[f64]) -> PyResult<()> {
    match waits.iter().enumerate().find(|(_, wait)| is_invalid_wait(**wait)) {
        Some((row, wait)) => Err(wait_error(&wait.to_string(), row)),
        None => Ok(()),
    }
}

fn check_interrupt() -> PyResult<()> {
    Python::attach(|py| py.check_signals())
}

/// Feeds the packets, and checks after each [`PACKETS_PER_CHECK`] whether to stop.
fn feed_packets(
    profile: &Profile,
    decides: Decider<'_>,
    tolerates: &dyn Fn(&Packet) -> bool,
    packets: &[Packet],
    stop: &dyn Fn() -> PyResult<()>,
) -> PyResult<Outcome> {
    let mut simulation = Simulation::new(profile, decides, tolerates);
    for piece in packets.chunks(PACKETS_PER_CHECK) {
        piece.iter().for_each(|packet| simulation.push(*packet));
        stop()?;
    }
    Ok(simulation.finish())
}

/// Waits that are known in advance.
struct KnownWaits<'w> {
    waits: std::slice::Iter<'w, f64>,
}

impl Policy for KnownWaits<'_> {
    fn observe(&mut self, _: &Packet, _: Option<Span>) -> Span {
        self.waits.next().map_or(NEVER, |secs| Span::from_secs_f64(*secs))
    }
}

/// Calls the methods of a Python object.
struct PythonPolicy<'py, 'e> {
    py: Python<'py>,
    observe: Bound<'py, PyAny>,
    on_session: Option<Bound<'py, PyAny>>,
    session_delay: Option<Bound<'py, PyAny>>,
    names: Vec<Bound<'py, PyString>>,
    directions: [Bound<'py, PyString>; 2],
    /// Number of packets passed to `observe`.
    count: Cell<usize>,
    error: &'e RefCell<Option<PyErr>>,
}

impl<'py, 'e> PythonPolicy<'py, 'e> {
    fn new(
        object: &Bound<'py, PyAny>,
        trace: &Trace,
        failed: &'e RefCell<Option<PyErr>>,
    ) -> PyResult<Self> {
        let py = object.py();
        let method = |name: &str| object.getattr_opt(name);
        let Some(observe) = method("observe")? else {
            let hint =
                "give a name, waits, or an object with observe(time, direction, bytes, app, gap)";
            return Err(value_error("the object is not a policy", hint));
        };
        Ok(Self {
            py,
            observe,
            on_session: method("on_session")?,
            session_delay: method("session_delay")?,
            names: trace.names.iter().map(|name| PyString::new(py, name)).collect(),
            directions: [PyString::intern(py, "up"), PyString::intern(py, "down")],
            count: Cell::new(0),
            error: failed,
        })
    }

    /// Returns the answer of the object; `otherwise` if this or an earlier call failed.
    fn call(&self, ask: impl FnOnce() -> PyResult<Span>, otherwise: Span) -> Span {
        if self.error.borrow().is_some() {
            return otherwise;
        }
        ask().unwrap_or_else(|error| {
            self.error.replace(Some(error));
            otherwise
        })
    }
}

impl Policy for PythonPolicy<'_, '_> {
    fn observe(&mut self, packet: &Packet, gap: Option<Span>) -> Span {
        let ask = || {
            let direction = usize::from(packet.direction == Direction::Down);
            let name = self.names.get(usize::from(packet.app));
            let wait = self.observe.call1((
                packet.at.as_secs_f64(),
                &self.directions[direction],
                packet.bytes,
                name,
                gap.map(Span::as_secs_f64),
            ))?;
            let row = self.count.replace(self.count.get() + 1);
            if self.count.get().is_multiple_of(PACKETS_PER_CHECK >> 10) {
                self.py.check_signals()?;
            }
            if wait.is_none() {
                return Ok(NEVER);
            }
            let secs: Option<f64> = wait.extract().ok();
            secs.filter(|secs| !is_invalid_wait(*secs))
                .map(Span::from_secs_f64)
                .ok_or_else(|| wait_error(&repr(&wait), row))
        };
        self.call(ask, NEVER)
    }

    fn delays_sessions(&self) -> bool {
        self.session_delay.is_some()
    }

    fn on_session(&mut self, now: Time) {
        let Some(begins) = &self.on_session else { return };
        let now = now.as_secs_f64();
        self.call(|| begins.call1((now,)).map(|_| Span::ZERO), Span::ZERO);
    }

    fn session_delay(&mut self, now: Time) -> Span {
        let Some(hold) = &self.session_delay else { return Span::ZERO };
        let ask = || {
            let said = hold.call1((now.as_secs_f64(),))?;
            let secs: Option<f64> = said.extract().ok();
            let secs = secs.filter(|secs| (0.0..=86_400.0).contains(secs));
            secs.map(Span::from_secs_f64).ok_or_else(|| {
                let message = format!("a delay of {} s is invalid", repr(&said));
                value_error(&message, "return a number from 0 to 86400")
            })
        };
        self.call(ask, Span::ZERO)
    }
}

fn repr(of: &Bound<'_, PyAny>) -> String {
    of.repr().map_or_else(|_| String::new(), |text| manyways_unit::human::quoted(&text.to_string()))
}

fn wait_error(wait: &str, row: usize) -> PyErr {
    let message = format!("the wait after packet {row} is {wait}");
    value_error(
        &message,
        "give numbers of seconds, 0 or more; infinity leaves the radio to the network",
    )
}

fn outcome_dict<'py>(
    py: Python<'py>,
    profile: &Profile,
    outcome: &Outcome,
) -> PyResult<Bound<'py, PyDict>> {
    let Outcome { account, switches, delays, duration: lasts } = outcome;
    let of_states = |values: &[f64]| -> PyResult<Bound<'py, PyDict>> {
        let all = PyDict::new(py);
        for (state, value) in profile.states.iter().zip(values) {
            all.set_item(&state.name, value)?;
        }
        Ok(all)
    };
    let all = PyDict::new(py);
    all.set_item("duration", lasts.as_secs_f64())?;
    all.set_item("packets", account.packets)?;
    all.set_item("bytes_up", account.bytes[0])?;
    all.set_item("bytes_down", account.bytes[1])?;
    all.set_item("energy", account.total())?;
    all.set_item("tail_energy", account.tail_energy())?;
    all.set_item("transfer_energy_up", account.transfer_energy[0])?;
    all.set_item("transfer_energy_down", account.transfer_energy[1])?;
    all.set_item("demotion_energy", account.demotion_energy)?;
    all.set_item("promotion_energy", account.promotion_energy)?;
    all.set_item(
        "transfer_seconds",
        (account.transfer_time[0] + account.transfer_time[1]).as_secs_f64(),
    )?;
    all.set_item("state_energies", of_states(&account.state_energy)?)?;
    let state_secs: Vec<f64> = account.state_time.iter().map(|time| time.as_secs_f64()).collect();
    all.set_item("state_seconds", of_states(&state_secs)?)?;
    all.set_item("switches", account.promotion_count)?;
    all.set_item("sleeps", account.dormancies)?;
    let mean = (account.dormancies > 0)
        .then(|| account.wait_time.as_secs_f64() / account.dormancies as f64);
    all.set_item("mean_wait", mean)?;
    all.set_item("true_switches", switches.true_switches)?;
    all.set_item("false_switches", switches.false_switches)?;
    all.set_item("true_stays", switches.true_stays)?;
    all.set_item("missed_switches", switches.missed_switches)?;
    all.set_item("false_switch_rate", switches.false_rate())?;
    all.set_item("missed_switch_rate", switches.missed_rate())?;
    all.set_item("tolerant_sessions", delays.count)?;
    all.set_item("delayed_sessions", delays.delayed)?;
    all.set_item("delay_mean", delays.mean().map(Span::as_secs_f64))?;
    all.set_item("delay_median", delays.quantile(0.5).map(Span::as_secs_f64))?;
    all.set_item("delay_p95", delays.quantile(0.95).map(Span::as_secs_f64))?;
    Ok(all)
}
