//! Policies by name, as people choose them.

use manyways_model::radio::policy::{
    Context, Holding, Learn, MakeIdle, NEVER, Policy, Printed, StatusQuo, Timer,
};
use manyways_model::radio::{Choice, Packet, Profile};
use manyways_trace::human::quoted;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::{unknown, wrong};

/// What has a number to choose: its name, what it is unless something else is said, and the range.
struct Number {
    name: &'static str,
    default: Option<f64>,
    least: f64,
    most: f64,
    is_whole: bool,
}

/// A policy: its name, its numbers, and what it does.
type Known = (&'static str, &'static [Number], &'static str);

/// The longest time that anything waits for: a day.
const LONGEST: f64 = 86_400.0;

const SLEEPS: [Known; 8] = [
    ("status-quo", &[], "leaves it to the network's timers"),
    (
        "fixed",
        &[number("seconds", Some(4.5), 0.0, LONGEST)],
        "sleeps after the same time each time (Falaki et al., IMC 2010)",
    ),
    (
        "iat",
        &[number("p", Some(0.95), 0.0, 1.0)],
        "sleeps after the p-quantile of the trace's own gaps",
    ),
    ("threshold", &[], "sleeps after the time from which on sleeping at once is worth it"),
    ("oracle", &[], "knows what comes: the least that takes that delays nothing"),
    (
        "makeidle",
        &[whole("n", 100.0, 65_536.0)],
        "sleeps after what would have been best for the last n gaps (Deng's thesis, 4.4.2)",
    ),
    ("printed", &[], "makeidle by its equations as they are printed: sleeps at once"),
    ("context", &[], "sleeps after what has been best after packets like the last one (ours)"),
];

const HOLDS: [Known; 2] = [
    (
        "makeactive-fixed",
        &[number("hold", None, 0.0, LONGEST)],
        "holds back what can wait, for the same time each time (Deng's thesis, 4.5.1)",
    ),
    (
        "makeactive",
        &[whole("experts", 10.0, 3_600.0), number("gamma", Some(0.008), 0.0, 1e6)],
        "holds back what can wait, for as long as it has learnt (Deng's thesis, 4.5.2)",
    ),
];

const fn number(name: &'static str, default: Option<f64>, least: f64, most: f64) -> Number {
    Number { name, default, least, most, is_whole: false }
}

const fn whole(name: &'static str, default: f64, most: f64) -> Number {
    Number { name, default: Some(default), least: 1.0, most, is_whole: true }
}

/// Names of policies, their numbers with what these are unless something else is said, and what each
/// does.
#[pyfunction]
pub fn plans(py: Python<'_>) -> PyResult<Vec<(&'static str, Bound<'_, PyDict>, &'static str)>> {
    let tell = |(name, numbers, about): &Known| {
        let all = PyDict::new(py);
        for number in *numbers {
            all.set_item(number.name, number.default)?;
        }
        Ok((*name, all, *about))
    };
    SLEEPS.iter().chain(&HOLDS).map(tell).collect()
}

/// A policy that is known by its name, or two: `makeidle+makeactive` sleeps like one and holds back
/// like the other.
#[pyclass(frozen)]
#[derive(Clone)]
pub struct Plan {
    sleeps: Sleeps,
    holds: Option<Holds>,
}

#[derive(Clone, Copy, PartialEq)]
enum Sleeps {
    StatusQuo,
    Fixed { seconds: f64 },
    Gaps { p: f64 },
    Threshold,
    Oracle,
    MakeIdle { n: usize },
    Printed,
    Context,
}

#[derive(Clone, Copy)]
enum Holds {
    /// As long as it says, or by the fixed bound.
    Fixed(Option<f64>),
    Learn {
        experts: usize,
        gamma: f64,
    },
}

#[pymethods]
impl Plan {
    /// Raises ValueError where there is no such policy, or it has no such number.
    #[new]
    fn new(name: &str, numbers: &Bound<'_, PyDict>) -> PyResult<Self> {
        let (sleeps, holds) = split(name)?;
        let known: Vec<&Number> = sleeps.1.iter().chain(holds.map_or(&[][..], |h| h.1)).collect();
        for key in numbers.keys() {
            let key: String = key.extract()?;
            if !known.iter().any(|number| number.name == key) {
                let sentence = format!("`{name}` has no `{}`", quoted(&key));
                let names: Vec<&str> = known.iter().map(|number| number.name).collect();
                let hint = match names.is_empty() {
                    true => "there is nothing to choose".to_owned(),
                    false => format!("it has: {}", names.join(", ")),
                };
                return Err(wrong(&sentence, &hint));
            }
        }
        let value = |wanted: &str| -> PyResult<Option<f64>> {
            let Some(number) = known.iter().find(|number| number.name == wanted) else {
                return Ok(None);
            };
            match numbers.get_item(wanted)? {
                Some(given) if !given.is_none() => number.read(&given).map(Some),
                _ => Ok(number.default),
            }
        };
        let some = |wanted: &str| -> PyResult<f64> { Ok(value(wanted)?.unwrap_or_default()) };
        let sleeps = match sleeps.0 {
            "fixed" => Sleeps::Fixed { seconds: some("seconds")? },
            "iat" => Sleeps::Gaps { p: some("p")? },
            "threshold" => Sleeps::Threshold,
            "oracle" => Sleeps::Oracle,
            "makeidle" => Sleeps::MakeIdle { n: some("n")? as usize },
            "printed" => Sleeps::Printed,
            "context" => Sleeps::Context,
            _ => Sleeps::StatusQuo,
        };
        let holds = match holds.map(|holds| holds.0) {
            None => None,
            Some("makeactive") => {
                Some(Holds::Learn { experts: some("experts")? as usize, gamma: some("gamma")? })
            }
            Some(_) => Some(Holds::Fixed(value("hold")?)),
        };
        Ok(Self { sleeps, holds })
    }

    /// Whether it holds anything back.
    fn holds(&self) -> bool {
        self.holds.is_some()
    }
}

impl Number {
    fn read(&self, given: &Bound<'_, PyAny>) -> PyResult<f64> {
        let Self { name, least, most, is_whole, .. } = self;
        let value: Option<f64> = given.extract().ok();
        let fits =
            |value: &f64| (*least..=*most).contains(value) && !(*is_whole && value.fract() != 0.0);
        value.filter(fits).ok_or_else(|| {
            let kind = if *is_whole { "a whole number" } else { "a number" };
            let text = given.str().map_or_else(|_| String::new(), |text| text.to_string());
            let sentence = format!("`{name}` cannot be {}", quoted(&text));
            wrong(&sentence, &format!("it is {kind} from {least} to {most}"))
        })
    }
}

/// Who says when to sleep, and who holds back.
fn split(name: &str) -> PyResult<(&'static Known, Option<&'static Known>)> {
    let find = |all: &'static [Known], name: &str| all.iter().find(|known| known.0 == name);
    let both = |one: &str| {
        let all = SLEEPS.iter().chain(&HOLDS).map(|known| known.0);
        unknown("policy", one, all)
    };
    match name.split_once('+') {
        None => match (find(&SLEEPS, name), find(&HOLDS, name)) {
            (Some(sleeps), _) => Ok((sleeps, None)),
            (None, Some(holds)) => Ok((&SLEEPS[0], Some(holds))),
            (None, None) => Err(both(name)),
        },
        Some((one, other)) => {
            let sleeps = find(&SLEEPS, one);
            let sleeps = sleeps.ok_or_else(|| match find(&HOLDS, one) {
                Some(_) => wrong(&format!("`{one}` says nothing of when to sleep"), ORDER),
                None => both(one),
            })?;
            let holds = find(&HOLDS, other);
            let holds = holds.ok_or_else(|| match find(&SLEEPS, other) {
                Some(_) => wrong(&format!("`{other}` holds nothing back"), ORDER),
                None => both(other),
            })?;
            match sleeps.0 {
                "oracle" => {
                    let hint = "it knows what comes only where nothing is held back";
                    Err(wrong("`oracle` goes with no other policy", hint))
                }
                _ => Ok((sleeps, Some(holds))),
            }
        }
    }
}

const ORDER: &str = "write first who sleeps and then who holds back, as in makeidle+makeactive";

impl Plan {
    /// Whether it knows what comes.
    pub(super) fn is_oracle(&self) -> bool {
        self.sleeps == Sleeps::Oracle
    }

    /// Ready to run over a trace. The oracle is none: it is asked by who runs it.
    pub(super) fn policy(
        &self,
        profile: &Profile,
        choice: &Choice,
        packets: &[Packet],
    ) -> Box<dyn Policy> {
        let sleeps: Box<dyn Policy> = match self.sleeps {
            Sleeps::StatusQuo | Sleeps::Oracle => Box::new(StatusQuo),
            Sleeps::Fixed { seconds } => Box::new(Timer { wait: seconds }),
            Sleeps::Gaps { p } => Box::new(Timer { wait: quantile(packets, p) }),
            Sleeps::Threshold => Box::new(Timer { wait: choice.threshold() }),
            Sleeps::MakeIdle { n } => Box::new(MakeIdle::new(choice.clone(), n)),
            Sleeps::Printed => Box::new(Printed),
            Sleeps::Context => Box::new(Context::new(choice.clone())),
        };
        match self.holds {
            None => sleeps,
            Some(Holds::Fixed(hold)) => {
                let holds = hold.unwrap_or_else(|| bound(profile, choice, packets));
                Box::new(Holding { sleeps, holds })
            }
            Some(Holds::Learn { experts, gamma }) => {
                Box::new(Holding { sleeps, holds: Learn::new(experts, gamma) })
            }
        }
    }
}

fn gaps(packets: &[Packet]) -> impl Iterator<Item = f64> {
    packets.windows(2).map(|pair| pair[1].at.since(pair[0].at).as_secs_f64())
}

/// The shortest gap that at least the share p of all gaps does not exceed. A trace without a gap
/// leaves it to the network.
fn quantile(packets: &[Packet], p: f64) -> f64 {
    let mut gaps: Vec<f64> = gaps(packets).collect();
    let Some(last) = gaps.len().checked_sub(1) else { return NEVER };
    let place = ((p * gaps.len() as f64).ceil() as usize).saturating_sub(1).min(last);
    *gaps.select_nth_unstable_by(place, f64::total_cmp).1
}

/// Deng's thesis, §4.5.1: k·(t1 + t2), with k the mean number of bursts from one release to the next
/// where it is left to the network. A burst is what a transfer is: packets with gaps of at most the
/// profile's own.
fn bound(profile: &Profile, choice: &Choice, packets: &[Packet]) -> f64 {
    let burst_gap = profile.transfer.burst_gap.as_secs_f64();
    let bursts = 1 + gaps(packets).filter(|gap| *gap > burst_gap).count();
    let is_switch = |gap: &f64| *gap > burst_gap && choice.stay.is_released(*gap);
    let periods = 1 + gaps(packets).filter(is_switch).count();
    bursts as f64 / periods as f64 * choice.stay.released()
}
