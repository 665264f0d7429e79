//! Runs a policy over a trace.

use std::cell::{Cell, RefCell};

use manyways_model::radio::policy::{NEVER, Policy};
use manyways_model::radio::simulate::{Decides, Outcome, Simulation};
use manyways_model::radio::{Direction, Packet, Profile};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use super::trace::{PIECE, Trace};
use super::{Plan, Radio, same, wrong};

/// A policy as passed by Python.
#[derive(FromPyObject)]
pub enum Given<'py> {
    /// A named policy.
    Plan(Py<Plan>),
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
    given: Given<'py>,
    tolerant: &[String],
) -> PyResult<Bound<'py, PyDict>> {
    let tolerant: Vec<bool> = trace.names.iter().map(|name| tolerant.contains(name)).collect();
    let tolerates = |packet: &Packet| tolerant.get(usize::from(packet.app)) == Some(&true);
    let Radio { profile, choice, .. } = radio;
    let packets = &trace.packets;
    let outcome = match given {
        Given::Plan(plan) => {
            let plan = plan.get();
            py.detach(|| match plan.0.is_oracle() {
                true => pump(profile, Decides::Oracle, &tolerates, packets, &interrupted),
                false => {
                    let mut policy = plan.policy(profile, choice, packets);
                    let decides = Decides::Policy(&mut *policy);
                    pump(profile, decides, &tolerates, packets, &interrupted)
                }
            })?
        }
        Given::Waits(waits) => {
            let waits = waits.to_vec(py)?;
            same(waits.len(), "waits", packets.len(), "packets")?;
            check_waits(&waits)?;
            py.detach(|| {
                let mut policy = Waits { waits: waits.iter() };
                let decides = Decides::Policy(&mut policy);
                pump(profile, decides, &tolerates, packets, &interrupted)
            })?
        }
        Given::Object(object) => {
            let failed = RefCell::new(None);
            let stop = || match failed.take() {
                Some(error) => Err(error),
                None => Ok(()),
            };
            let mut policy = Called::new(&object, trace, &failed)?;
            // Nothing runs after an error.
            pump(profile, Decides::Policy(&mut policy), &tolerates, packets, &stop)
                .and_then(|outcome| stop().map(|()| outcome))?
        }
    };
    told(py, profile, &outcome)
}

/// Whether the number is not a valid wait.
fn is_none(wait: f64) -> bool {
    wait.is_nan() || wait < 0.0
}

/// Raises ValueError if a wait is invalid.
pub fn check_waits(waits: &[f64]) -> PyResult<()> {
    match waits.iter().enumerate().find(|(_, wait)| is_none(**wait)) {
        Some((row, wait)) => Err(no_wait(&wait.to_string(), row)),
        None => Ok(()),
    }
}

fn interrupted() -> PyResult<()> {
    Python::attach(|py| py.check_signals())
}

/// Feeds the packets, and checks after each [`PIECE`] whether to stop.
fn pump(
    profile: &Profile,
    decides: Decides<'_>,
    tolerates: &dyn Fn(&Packet) -> bool,
    packets: &[Packet],
    stop: &dyn Fn() -> PyResult<()>,
) -> PyResult<Outcome> {
    let mut simulation = Simulation::new(profile, decides, tolerates);
    for piece in packets.chunks(PIECE) {
        piece.iter().for_each(|packet| simulation.push(*packet));
        stop()?;
    }
    Ok(simulation.finish())
}

/// Waits that are known in advance.
struct Waits<'w> {
    waits: std::slice::Iter<'w, f64>,
}

impl Policy for Waits<'_> {
    fn observe(&mut self, _: &Packet, _: Option<f64>) -> f64 {
        self.waits.next().copied().unwrap_or(NEVER)
    }
}

/// Calls the methods of a Python object.
struct Called<'py, 'e> {
    py: Python<'py>,
    observe: Bound<'py, PyAny>,
    begins: Option<Bound<'py, PyAny>>,
    hold: Option<Bound<'py, PyAny>>,
    names: Vec<Bound<'py, PyString>>,
    directions: [Bound<'py, PyString>; 2],
    /// Number of packets passed to `observe`.
    count: Cell<usize>,
    failed: &'e RefCell<Option<PyErr>>,
}

impl<'py, 'e> Called<'py, 'e> {
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
            return Err(wrong("the object is not a policy", hint));
        };
        Ok(Self {
            py,
            observe,
            begins: method("begins")?,
            hold: method("hold")?,
            names: trace.names.iter().map(|name| PyString::new(py, name)).collect(),
            directions: [PyString::intern(py, "up"), PyString::intern(py, "down")],
            count: Cell::new(0),
            failed,
        })
    }

    /// Returns the answer of the object; `otherwise` if this or an earlier call failed.
    fn ask(&self, ask: impl FnOnce() -> PyResult<f64>, otherwise: f64) -> f64 {
        if self.failed.borrow().is_some() {
            return otherwise;
        }
        ask().unwrap_or_else(|error| {
            self.failed.replace(Some(error));
            otherwise
        })
    }
}

impl Policy for Called<'_, '_> {
    fn observe(&mut self, packet: &Packet, gap: Option<f64>) -> f64 {
        let ask = || {
            let way = usize::from(packet.direction == Direction::Down);
            let name = self.names.get(usize::from(packet.app));
            let wait = self.observe.call1((
                packet.at.as_secs_f64(),
                &self.directions[way],
                packet.bytes,
                name,
                gap,
            ))?;
            let row = self.count.replace(self.count.get() + 1);
            if self.count.get().is_multiple_of(PIECE >> 10) {
                self.py.check_signals()?;
            }
            if wait.is_none() {
                return Ok(NEVER);
            }
            let secs: Option<f64> = wait.extract().ok();
            secs.filter(|secs| !is_none(*secs)).ok_or_else(|| no_wait(&text(&wait), row))
        };
        self.ask(ask, NEVER)
    }

    fn holds(&self) -> bool {
        self.hold.is_some()
    }

    fn begins(&mut self, now: f64) {
        let Some(begins) = &self.begins else { return };
        self.ask(|| begins.call1((now,)).map(|_| 0.0), 0.0);
    }

    fn hold(&mut self, now: f64) -> f64 {
        let Some(hold) = &self.hold else { return 0.0 };
        let ask = || {
            let said = hold.call1((now,))?;
            let secs: Option<f64> = said.extract().ok();
            secs.filter(|secs| (0.0..=86_400.0).contains(secs)).ok_or_else(|| {
                let sentence = format!("a delay of {} s is invalid", text(&said));
                wrong(&sentence, "return a number from 0 to 86400")
            })
        };
        self.ask(ask, 0.0)
    }
}

fn text(of: &Bound<'_, PyAny>) -> String {
    of.repr().map_or_else(|_| String::new(), |text| manyways_unit::human::quoted(&text.to_string()))
}

fn no_wait(wait: &str, row: usize) -> PyErr {
    let sentence = format!("the wait after packet {row} is {wait}");
    wrong(&sentence, "give numbers of seconds, 0 or more; infinity leaves the radio to the network")
}

fn told<'py>(
    py: Python<'py>,
    profile: &Profile,
    outcome: &Outcome,
) -> PyResult<Bound<'py, PyDict>> {
    let Outcome { account, switches, delays, lasts } = outcome;
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
    all.set_item("tail_energy", account.tail())?;
    all.set_item("transfer_energy_up", account.transfer[0])?;
    all.set_item("transfer_energy_down", account.transfer[1])?;
    all.set_item("demotion_energy", account.demotions)?;
    all.set_item("promotion_energy", account.promotions)?;
    all.set_item("transfer_seconds", account.transfer_secs.iter().sum::<f64>())?;
    all.set_item("state_energies", of_states(&account.states)?)?;
    all.set_item("state_seconds", of_states(&account.state_secs)?)?;
    all.set_item("switches", account.switches)?;
    all.set_item("sleeps", account.sleeps)?;
    let mean = (account.sleeps > 0).then(|| account.waits / account.sleeps as f64);
    all.set_item("mean_wait", mean)?;
    all.set_item("released_rightly", switches.right)?;
    all.set_item("released_wrongly", switches.wrong)?;
    all.set_item("stayed_rightly", switches.stayed)?;
    all.set_item("stayed_wrongly", switches.missed)?;
    all.set_item("false_switch_rate", switches.false_rate())?;
    all.set_item("missed_switch_rate", switches.missed_rate())?;
    all.set_item("tolerant_sessions", delays.count)?;
    all.set_item("held_sessions", delays.held)?;
    all.set_item("delay_mean", delays.mean())?;
    all.set_item("delay_median", delays.quantile(0.5))?;
    all.set_item("delay_p95", delays.quantile(0.95))?;
    Ok(all)
}
