//! Policies by name.

use manyways_unit::human::quoted;
use manyways_unit::nearest::nearest;

use super::policy::{Context, Holding, Learn, MakeIdle, Policy, Printed, StatusQuo, Timer};
use super::{Choice, Profile};

/// A parameter of a policy, with its default and range.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Number {
    pub name: &'static str,
    /// `None` if the default depends on the trace.
    pub default: Option<f64>,
    pub least: f64,
    pub most: f64,
    pub is_whole: bool,
}

/// A built-in policy and its parameters.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Known {
    pub name: &'static str,
    pub numbers: &'static [Number],
    /// One line for the user.
    pub about: &'static str,
    /// Whether the policy delays sessions, instead of deciding when to go idle.
    pub holds: bool,
}

/// One day, in seconds.
const LONGEST: f64 = 86_400.0;

const fn number(name: &'static str, default: Option<f64>, least: f64, most: f64) -> Number {
    Number { name, default, least, most, is_whole: false }
}

const fn whole(name: &'static str, default: f64, most: f64) -> Number {
    Number { name, default: Some(default), least: 1.0, most, is_whole: true }
}

const fn sleeps(name: &'static str, numbers: &'static [Number], about: &'static str) -> Known {
    Known { name, numbers, about, holds: false }
}

const fn holds(name: &'static str, numbers: &'static [Number], about: &'static str) -> Known {
    Known { name, numbers, about, holds: true }
}

pub const ALL: [Known; 10] = [
    sleeps("status-quo", &[], "leaves the release to the network's timers"),
    sleeps(
        "fixed",
        &[number("seconds", Some(4.5), 0.0, LONGEST)],
        "goes idle after a constant time (Falaki et al., IMC 2010)",
    ),
    sleeps(
        "iat",
        &[number("p", Some(0.95), 0.0, 1.0)],
        "goes idle after the p-quantile of the trace's gaps",
    ),
    sleeps("threshold", &[], "goes idle after the gap above which immediate dormancy saves energy"),
    sleeps("oracle", &[], "knows the next gap: the lower bound without delays"),
    sleeps(
        "makeidle",
        &[whole("n", 100.0, 65_536.0)],
        "goes idle after the wait that was best for the last n gaps (Deng's thesis, 4.4.2)",
    ),
    sleeps("printed", &[], "makeidle by its equations as printed: goes idle at once"),
    sleeps("context", &[], "goes idle after the wait that was best after similar packets (ours)"),
    holds(
        "makeactive-fixed",
        &[number("hold", None, 0.0, LONGEST)],
        "delays sessions by a constant time (Deng's thesis, 4.5.1)",
    ),
    holds(
        "makeactive",
        &[whole("experts", 10.0, 3_600.0), number("gamma", Some(0.008), 0.0, 1e6)],
        "delays sessions by a learned time (Deng's thesis, 4.5.2)",
    ),
];

/// A named policy, or two: `makeidle+makeactive` goes idle by the first and delays sessions by the
/// second.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Plan {
    sleeps: Sleeps,
    holds: Option<Holds>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
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

#[derive(Clone, Copy, PartialEq, Debug)]
enum Holds {
    /// Seconds; `None` is the fixed bound of the trace.
    Fixed(Option<f64>),
    Learn {
        experts: usize,
        gamma: f64,
    },
}

/// Properties of a whole trace, for policies that need them in advance.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Learned {
    /// The [`Plan::quantile`] of the trace's gaps, in seconds; [`NEVER`](super::policy::NEVER) if
    /// the trace has no gap.
    pub gap: f64,
    /// k: mean number of bursts from one release by the network to the next.
    pub bursts: f64,
}

/// An invalid policy specification.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{sentence}")]
pub struct PlanError {
    pub sentence: String,
    pub hint: String,
}

fn wrong(sentence: String, hint: impl Into<String>) -> PlanError {
    PlanError { sentence, hint: hint.into() }
}

const ORDER: &str =
    "write the policy for idle first and the one for delays second, as in makeidle+makeactive";

impl Plan {
    /// The policy of this name, with the given parameters instead of the defaults.
    ///
    /// # Errors
    /// Fails if the policy or one of its parameters is unknown, or a value is out of range.
    pub fn new(name: &str, given: &[(String, f64)]) -> Result<Self, PlanError> {
        let (sleeps, holds) = split(name)?;
        let known: Vec<&Number> =
            sleeps.numbers.iter().chain(holds.map_or(&[][..], |holds| holds.numbers)).collect();
        for (key, value) in given {
            let Some(number) = known.iter().find(|number| number.name == key) else {
                let names: Vec<&str> = known.iter().map(|number| number.name).collect();
                let hint = match names.is_empty() {
                    true => "the policy has no parameters".to_owned(),
                    false => format!("its parameters are: {}", names.join(", ")),
                };
                return Err(wrong(format!("`{name}` has no parameter `{}`", quoted(key)), hint));
            };
            if !number.fits(*value) {
                return Err(number.refuses(&value.to_string()));
            }
        }
        let value = |wanted: &str| {
            let given = given.iter().rev().find(|(key, _)| key == wanted);
            let number = known.iter().find(|number| number.name == wanted);
            given.map(|(_, value)| *value).or(number.and_then(|number| number.default))
        };
        let some = |wanted: &str| value(wanted).unwrap_or_default();
        let sleeps = match sleeps.name {
            "fixed" => Sleeps::Fixed { seconds: some("seconds") },
            "iat" => Sleeps::Gaps { p: some("p") },
            "threshold" => Sleeps::Threshold,
            "oracle" => Sleeps::Oracle,
            "makeidle" => Sleeps::MakeIdle { n: some("n") as usize },
            "printed" => Sleeps::Printed,
            "context" => Sleeps::Context,
            _ => Sleeps::StatusQuo,
        };
        let holds = match holds.map(|holds| holds.name) {
            None => None,
            Some("makeactive") => {
                Some(Holds::Learn { experts: some("experts") as usize, gamma: some("gamma") })
            }
            Some(_) => Some(Holds::Fixed(value("hold"))),
        };
        Ok(Self { sleeps, holds })
    }

    /// Parses `makeidle`, `makeidle:n=50`, `fixed:4.5`,
    /// `makeidle:50+makeactive:experts=20:gamma=0.01`. A value without a name is for the policy's
    /// first parameter.
    ///
    /// # Errors
    /// Fails as [`Plan::new`] does.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        let mut names: Vec<&str> = Vec::new();
        let mut given = Vec::new();
        for part in text.split('+') {
            let mut words = part.split(':').map(str::trim);
            let name = words.next().unwrap_or_default();
            let known = ALL.iter().find(|known| known.name == name);
            for word in words {
                let first = known.and_then(|known| known.numbers.first());
                let (key, value) = match (word.split_once('='), first) {
                    (Some((key, value)), _) => (key.trim(), value.trim()),
                    (None, Some(first)) => (first.name, word),
                    (None, None) => {
                        let sentence = format!("`{}` has no parameters", quoted(name));
                        return Err(wrong(sentence, "write the name without a value"));
                    }
                };
                let number = known.and_then(|known| known.numbers.iter().find(|n| n.name == key));
                let read = value.strip_suffix('s').unwrap_or(value).trim().parse::<f64>();
                let value = match (read, number) {
                    (Ok(value), _) => value,
                    (Err(_), Some(number)) => return Err(number.refuses(value)),
                    (Err(_), None) => f64::NAN,
                };
                given.push((key.to_owned(), value));
            }
            names.push(name);
        }
        Self::new(&names.join("+"), &given)
    }

    /// Whether the policy delays sessions.
    pub fn holds(&self) -> bool {
        self.holds.is_some()
    }

    /// Maximum delay of a session in seconds; `None` if unknown in advance, or if the policy does
    /// not delay sessions.
    pub fn longest_hold(&self) -> Option<f64> {
        match self.holds? {
            Holds::Fixed(seconds) => seconds,
            Holds::Learn { experts, .. } => Some(experts as f64),
        }
    }

    /// Whether this is the oracle, which does not implement [`Policy`].
    pub fn is_oracle(&self) -> bool {
        self.sleeps == Sleeps::Oracle
    }

    /// Approximate computing time in nanoseconds per packet.
    pub fn weight(&self) -> u32 {
        let sleeps = match self.sleeps {
            Sleeps::MakeIdle { n } => 50 + 2 * n as u32,
            Sleeps::Context => 500,
            _ => 15,
        };
        sleeps + if self.holds() { 100 } else { 0 }
    }

    /// The quantile of a trace's gaps that the policy needs in [`Learned::gap`].
    pub fn quantile(&self) -> Option<f64> {
        if let Sleeps::Gaps { p } = self.sleeps { Some(p) } else { None }
    }

    /// Creates the policy. For the oracle this is `StatusQuo`, because the caller evaluates the
    /// oracle itself.
    pub fn policy(&self, profile: &Profile, learned: Learned) -> Box<dyn Policy + Send> {
        let choice = Choice::of(profile);
        let released = choice.stay.released();
        let sleeps: Box<dyn Policy + Send> = match self.sleeps {
            Sleeps::StatusQuo | Sleeps::Oracle => Box::new(StatusQuo),
            Sleeps::Fixed { seconds } => Box::new(Timer { wait: seconds }),
            Sleeps::Gaps { .. } => Box::new(Timer { wait: learned.gap }),
            Sleeps::Threshold => Box::new(Timer { wait: choice.threshold() }),
            Sleeps::MakeIdle { n } => Box::new(MakeIdle::new(choice, n)),
            Sleeps::Printed => Box::new(Printed),
            Sleeps::Context => Box::new(Context::new(choice)),
        };
        match self.holds {
            None => sleeps,
            Some(Holds::Fixed(hold)) => {
                let holds = hold.unwrap_or((learned.bursts * released).min(LONGEST));
                Box::new(Holding { sleeps, holds })
            }
            Some(Holds::Learn { experts, gamma }) => {
                Box::new(Holding { sleeps, holds: Learn::new(experts, gamma) })
            }
        }
    }
}

impl Number {
    pub fn fits(&self, value: f64) -> bool {
        (self.least..=self.most).contains(&value) && !(self.is_whole && value.fract() != 0.0)
    }

    /// The error for a rejected value.
    pub fn refuses(&self, text: &str) -> PlanError {
        let kind = if self.is_whole { "a whole number" } else { "a number" };
        let sentence = format!("`{}` cannot be {}", self.name, quoted(text));
        wrong(sentence, format!("give {kind} from {} to {}", self.least, self.most))
    }
}

/// The policy that decides when to go idle, and the one that delays sessions.
fn split(name: &str) -> Result<(&'static Known, Option<&'static Known>), PlanError> {
    let find = |name: &str| {
        let names = || ALL.iter().map(|known| known.name);
        ALL.iter().find(|known| known.name == name).ok_or_else(|| {
            let meant = nearest(name, names());
            let meant = meant.map(|meant| format!("did you mean `{meant}`? ")).unwrap_or_default();
            let all: Vec<&str> = names().collect();
            let sentence = format!("there is no policy `{}`", quoted(name));
            wrong(sentence, format!("{meant}the policies are: {}", all.join(", ")))
        })
    };
    let Some((one, other)) = name.split_once('+') else {
        let known = find(name)?;
        return Ok(if known.holds { (&ALL[0], Some(known)) } else { (known, None) });
    };
    let (sleeps, holds) = (find(one)?, find(other)?);
    if sleeps.holds {
        return Err(wrong(format!("`{one}` does not decide when to go idle"), ORDER));
    }
    if !holds.holds {
        return Err(wrong(format!("`{other}` does not delay sessions"), ORDER));
    }
    if sleeps.name == "oracle" {
        let hint = "the oracle knows the next gap only if sessions are not delayed";
        return Err(wrong("`oracle` cannot be combined with another policy".to_owned(), hint));
    }
    Ok((sleeps, Some(holds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> String {
        let error = Plan::parse(text).unwrap_err();
        format!("{error}; {}", error.hint)
    }

    #[test]
    fn names_and_numbers_read() {
        let sleeps = |text: &str| Plan::parse(text).unwrap().sleeps;
        assert_eq!(sleeps("status-quo"), Sleeps::StatusQuo);
        assert_eq!(sleeps("fixed"), Sleeps::Fixed { seconds: 4.5 });
        assert_eq!(sleeps("fixed:2"), Sleeps::Fixed { seconds: 2.0 });
        assert_eq!(sleeps("fixed:2s"), Sleeps::Fixed { seconds: 2.0 });
        assert_eq!(sleeps("makeidle: n = 50"), Sleeps::MakeIdle { n: 50 });
        assert_eq!(Plan::parse("iat:p=0.9").unwrap().quantile(), Some(0.9));
        assert!(Plan::parse("oracle").unwrap().is_oracle());
        let both = Plan::parse("makeidle:20+makeactive:experts=5:gamma=0.1").unwrap();
        assert_eq!(both.sleeps, Sleeps::MakeIdle { n: 20 });
        assert_eq!(both.holds, Some(Holds::Learn { experts: 5, gamma: 0.1 }));
        assert_eq!(both.longest_hold(), Some(5.0));
        let alone = Plan::parse("makeactive-fixed").unwrap();
        assert_eq!((alone.sleeps, alone.holds), (Sleeps::StatusQuo, Some(Holds::Fixed(None))));
        assert_eq!(alone.longest_hold(), None);
        assert_eq!(Plan::parse("makeactive-fixed:7").unwrap().longest_hold(), Some(7.0));
    }

    #[test]
    fn errors_name_the_fault_and_the_choices() {
        assert!(
            fault("makeidel")
                .contains("did you mean `makeidle`? the policies are: status-quo, fixed")
        );
        assert!(
            fault("makeidle:m=3")
                .starts_with("`makeidle` has no parameter `m`; its parameters are: n")
        );
        assert!(fault("oracle:3").starts_with("`oracle` has no parameters"));
        assert!(fault("makeidle:n=x").starts_with("`n` cannot be x; give a whole number from 1"));
        assert!(fault("makeidle:n=1.5").starts_with("`n` cannot be 1.5"));
        assert!(fault("fixed:-1").starts_with("`seconds` cannot be -1"));
        assert!(fault("fixed:NaN").starts_with("`seconds` cannot be NaN"));
        assert!(fault("makeactive+makeidle").starts_with("`makeactive` does not decide"));
        assert!(fault("makeidle+fixed").starts_with("`fixed` does not delay sessions"));
        assert!(fault("oracle+makeactive").starts_with("`oracle` cannot be combined"));
        assert!(fault("").starts_with("there is no policy ``"));
        assert!(fault("makeidle+makeactive+makeactive").starts_with("there is no policy"));
    }
}
