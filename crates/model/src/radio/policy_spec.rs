//! Policies by name.

use manyways_unit::Span;
use manyways_unit::human::quoted;
use manyways_unit::nearest::nearest;

use super::policy::{
    CombinedPolicy, ContextPolicy, LearnedDelay, MakeIdle, NEVER, Policy, PrintedMakeIdle,
    StatusQuo, Timer,
};
use super::{Profile, SleepTradeoff, TraceProfile};

/// A parameter of a policy, with its default and range.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Parameter {
    pub name: &'static str,
    /// `None` if the default depends on the trace.
    pub default: Option<f64>,
    pub min: f64,
    pub max: f64,
    pub is_integer: bool,
}

/// A built-in policy and its parameters.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PolicyInfo {
    pub name: &'static str,
    pub parameters: &'static [Parameter],
    /// One line for the user.
    pub about: &'static str,
    /// Whether the policy delays sessions, instead of deciding when to go idle.
    pub delays_sessions: bool,
}

/// One day, in seconds.
const MAX_SECS: f64 = 86_400.0;

const fn parameter(name: &'static str, default: Option<f64>, least: f64, most: f64) -> Parameter {
    Parameter { name, default, min: least, max: most, is_integer: false }
}

const fn integer(name: &'static str, default: f64, most: f64) -> Parameter {
    Parameter { name, default: Some(default), min: 1.0, max: most, is_integer: true }
}

const fn idle_policy(
    name: &'static str,
    numbers: &'static [Parameter],
    about: &'static str,
) -> PolicyInfo {
    PolicyInfo { name, parameters: numbers, about, delays_sessions: false }
}

const fn delay_policy(
    name: &'static str,
    numbers: &'static [Parameter],
    about: &'static str,
) -> PolicyInfo {
    PolicyInfo { name, parameters: numbers, about, delays_sessions: true }
}

pub const POLICIES: [PolicyInfo; 10] = [
    idle_policy("status-quo", &[], "leaves the release to the network's timers"),
    idle_policy(
        "fixed",
        &[parameter("seconds", Some(4.5), 0.0, MAX_SECS)],
        "goes idle after a constant time (Falaki et al., IMC 2010)",
    ),
    idle_policy(
        "iat",
        &[parameter("p", Some(0.95), 0.0, 1.0)],
        "goes idle after the p-quantile of the trace's gaps",
    ),
    idle_policy(
        "threshold",
        &[],
        "goes idle after the gap above which immediate dormancy saves energy",
    ),
    idle_policy("oracle", &[], "knows the next gap: the lower bound without delays"),
    idle_policy(
        "makeidle",
        &[integer("n", 100.0, 65_536.0)],
        "goes idle after the wait that was best for the last n gaps (Deng's thesis, 4.4.2)",
    ),
    idle_policy("printed", &[], "makeidle by its equations as printed: goes idle at once"),
    idle_policy(
        "context",
        &[],
        "goes idle after the wait that was best after similar packets (ours)",
    ),
    delay_policy(
        "makeactive-fixed",
        &[parameter("delay", None, 0.0, MAX_SECS)],
        "delays sessions by a constant time (Deng's thesis, 4.5.1)",
    ),
    delay_policy(
        "makeactive",
        &[integer("experts", 10.0, 3_600.0), parameter("gamma", Some(0.008), 0.0, 1e6)],
        "delays sessions by a learned time (Deng's thesis, 4.5.2)",
    ),
];

/// A named policy, or two: `makeidle+makeactive` goes idle by the first and delays sessions by the
/// second.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PolicySpec {
    idle: IdleSpec,
    delay: Option<DelaySpec>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum IdleSpec {
    StatusQuo,
    Fixed { wait: Span },
    GapQuantile { p: f64 },
    Threshold,
    Oracle,
    MakeIdle { n: usize },
    Printed,
    Context,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum DelaySpec {
    /// `None` is the fixed bound of the trace.
    Fixed(Option<Span>),
    Learned {
        experts: usize,
        gamma: f64,
    },
}

/// Properties of a whole trace, for policies that need them in advance.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Priors {
    /// The [`PolicySpec::quantile`] of the trace's gaps; [`NEVER`] if the trace has no gap.
    pub gap_quantile: Span,
    /// k: mean number of bursts from one release by the network to the next.
    pub bursts_per_period: f64,
}

impl Priors {
    /// For policies that need nothing in advance.
    pub const NOTHING: Self = Self { gap_quantile: NEVER, bursts_per_period: 0.0 };
}

/// An invalid policy specification.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PolicySpecError {
    pub message: String,
    pub hint: String,
}

pub(super) fn spec_error(sentence: String, hint: impl Into<String>) -> PolicySpecError {
    PolicySpecError { message: sentence, hint: hint.into() }
}

const ORDER_HINT: &str =
    "write the policy for idle first and the one for delays second, as in makeidle+makeactive";

impl PolicySpec {
    /// The policy of this name, with the given parameters instead of the defaults.
    ///
    /// # Errors
    /// Fails if the policy or one of its parameters is unknown, or a value is out of range.
    pub fn new(name: &str, given: &[(String, f64)]) -> Result<Self, PolicySpecError> {
        let (sleeps, holds) = find_policies(name)?;
        let known: Vec<&Parameter> = sleeps
            .parameters
            .iter()
            .chain(holds.map_or(&[][..], |holds| holds.parameters))
            .collect();
        for (key, value) in given {
            let Some(number) = known.iter().find(|number| number.name == key) else {
                let names: Vec<&str> = known.iter().map(|number| number.name).collect();
                let hint = match names.is_empty() {
                    true => "the policy has no parameters".to_owned(),
                    false => format!("its parameters are: {}", names.join(", ")),
                };
                return Err(spec_error(
                    format!("`{name}` has no parameter `{}`", quoted(key)),
                    hint,
                ));
            };
            if !number.accepts(*value) {
                return Err(number.value_error(&value.to_string()));
            }
        }
        let value = |wanted: &str| {
            let given = given.iter().rev().find(|(key, _)| key == wanted);
            let number = known.iter().find(|number| number.name == wanted);
            given.map(|(_, value)| *value).or(number.and_then(|number| number.default))
        };
        let some = |wanted: &str| value(wanted).unwrap_or_default();
        let sleeps = match sleeps.name {
            "fixed" => IdleSpec::Fixed { wait: Span::from_secs_f64(some("seconds")) },
            "iat" => IdleSpec::GapQuantile { p: some("p") },
            "threshold" => IdleSpec::Threshold,
            "oracle" => IdleSpec::Oracle,
            "makeidle" => IdleSpec::MakeIdle { n: some("n") as usize },
            "printed" => IdleSpec::Printed,
            "context" => IdleSpec::Context,
            _ => IdleSpec::StatusQuo,
        };
        let holds = match holds.map(|holds| holds.name) {
            None => None,
            Some("makeactive") => {
                Some(DelaySpec::Learned { experts: some("experts") as usize, gamma: some("gamma") })
            }
            Some(_) => Some(DelaySpec::Fixed(value("delay").map(Span::from_secs_f64))),
        };
        Ok(Self { idle: sleeps, delay: holds })
    }

    /// Parses `makeidle`, `makeidle:n=50`, `fixed:4.5`,
    /// `makeidle:50+makeactive:experts=20:gamma=0.01`. A value without a name is for the policy's
    /// first parameter.
    ///
    /// # Errors
    /// Fails as [`Self::new`] does.
    pub fn parse(text: &str) -> Result<Self, PolicySpecError> {
        let mut names: Vec<&str> = Vec::new();
        let mut given = Vec::new();
        for part in text.split('+') {
            let mut words = part.split(':').map(str::trim);
            let name = words.next().unwrap_or_default();
            let known = POLICIES.iter().find(|known| known.name == name);
            for word in words {
                let first = known.and_then(|known| known.parameters.first());
                let (key, value) = match (word.split_once('='), first) {
                    (Some((key, value)), _) => (key.trim(), value.trim()),
                    (None, Some(first)) => (first.name, word),
                    (None, None) => {
                        let message = format!("`{}` has no parameters", quoted(name));
                        return Err(spec_error(message, "write the name without a value"));
                    }
                };
                let number =
                    known.and_then(|known| known.parameters.iter().find(|n| n.name == key));
                let read = value.strip_suffix('s').unwrap_or(value).trim().parse::<f64>();
                let value = match (read, number) {
                    (Ok(value), _) => value,
                    (Err(_), Some(number)) => return Err(number.value_error(value)),
                    (Err(_), None) => f64::NAN,
                };
                given.push((key.to_owned(), value));
            }
            names.push(name);
        }
        Self::new(&names.join("+"), &given)
    }

    /// Parses a policy for live traffic; [`Priors::NOTHING`] creates it.
    ///
    /// # Errors
    /// Fails as [`PolicySpec::parse`] does, and if the policy needs the whole trace in advance.
    pub fn parse_live(text: &str) -> Result<Self, PolicySpecError> {
        let plan = Self::parse(text)?;
        let hint = match () {
            () if plan.is_oracle() || plan.quantile().is_some() => {
                "use makeidle, context, threshold or fixed:SECONDS"
            }
            () if plan.delays_sessions() && plan.max_session_delay().is_none() => {
                "give the delay: makeactive-fixed:SECONDS"
            }
            () => return Ok(plan),
        };
        Err(spec_error(format!("{text} needs the whole trace in advance"), hint))
    }

    /// Whether the policy delays sessions.
    pub fn delays_sessions(&self) -> bool {
        self.delay.is_some()
    }

    /// Maximum delay of a session; `None` if unknown in advance, or if the policy does not delay
    /// sessions.
    pub fn max_session_delay(&self) -> Option<Span> {
        match self.delay? {
            DelaySpec::Fixed(delay) => delay,
            DelaySpec::Learned { experts, .. } => Some(Span::from_secs(experts as u64)),
        }
    }

    /// Whether the policy never sends the radio to idle.
    pub fn is_status_quo(&self) -> bool {
        self.idle == IdleSpec::StatusQuo
    }

    /// Whether this is the oracle, which does not implement [`Policy`].
    pub fn is_oracle(&self) -> bool {
        self.idle == IdleSpec::Oracle
    }

    /// Approximate computing time in nanoseconds per packet.
    pub fn cost_per_packet(&self) -> u32 {
        let sleeps = match self.idle {
            IdleSpec::MakeIdle { n } => 50 + 2 * n as u32,
            IdleSpec::Context => 500,
            _ => 15,
        };
        sleeps + if self.delays_sessions() { 100 } else { 0 }
    }

    /// The quantile of a trace's gaps that the policy needs in [`Priors::gap_quantile`].
    pub fn quantile(&self) -> Option<f64> {
        if let IdleSpec::GapQuantile { p } = self.idle { Some(p) } else { None }
    }

    /// The properties of a trace that the policy needs, from a survey of it for the radio at this
    /// index.
    pub fn learned(&self, survey: &TraceProfile, radio: usize) -> Priors {
        let gap = self.quantile().and_then(|p| survey.gaps().quantile(p)).unwrap_or(NEVER);
        Priors { gap_quantile: gap, bursts_per_period: survey.bursts_per_period(radio) }
    }

    /// Creates the policy. For the oracle this is `StatusQuo`, because the caller evaluates the
    /// oracle itself.
    pub fn policy(&self, profile: &Profile, priors: Priors) -> Box<dyn Policy + Send> {
        let tradeoff = SleepTradeoff::of(profile);
        let released = tradeoff.stay.idle_after();
        let sleeps: Box<dyn Policy + Send> = match self.idle {
            IdleSpec::StatusQuo | IdleSpec::Oracle => Box::new(StatusQuo),
            IdleSpec::Fixed { wait } => Box::new(Timer { wait }),
            IdleSpec::GapQuantile { .. } => Box::new(Timer { wait: priors.gap_quantile }),
            IdleSpec::Threshold => Box::new(Timer { wait: tradeoff.threshold() }),
            IdleSpec::MakeIdle { n } => Box::new(MakeIdle::new(tradeoff, n)),
            IdleSpec::Printed => Box::new(PrintedMakeIdle),
            IdleSpec::Context => Box::new(ContextPolicy::new(tradeoff)),
        };
        match self.delay {
            None => sleeps,
            Some(DelaySpec::Fixed(hold)) => {
                let bound = priors.bursts_per_period * released.as_secs_f64();
                let holds = hold.unwrap_or(Span::from_secs_f64(bound.min(MAX_SECS)));
                Box::new(CombinedPolicy { idle: sleeps, delay: holds })
            }
            Some(DelaySpec::Learned { experts, gamma }) => {
                Box::new(CombinedPolicy { idle: sleeps, delay: LearnedDelay::new(experts, gamma) })
            }
        }
    }
}

impl Parameter {
    pub fn accepts(&self, value: f64) -> bool {
        (self.min..=self.max).contains(&value) && !(self.is_integer && value.fract() != 0.0)
    }

    /// The error for a rejected value.
    pub fn value_error(&self, text: &str) -> PolicySpecError {
        let kind = if self.is_integer { "a whole number" } else { "a number" };
        let message = format!("`{}` cannot be {}", self.name, quoted(text));
        spec_error(message, format!("give {kind} from {} to {}", self.min, self.max))
    }
}

/// The policy that decides when to go idle, and the one that delays sessions.
fn find_policies(
    name: &str,
) -> Result<(&'static PolicyInfo, Option<&'static PolicyInfo>), PolicySpecError> {
    let find = |name: &str| {
        let names = || POLICIES.iter().map(|known| known.name);
        POLICIES.iter().find(|known| known.name == name).ok_or_else(|| {
            let meant = nearest(name, names());
            let meant = meant.map(|meant| format!("did you mean `{meant}`? ")).unwrap_or_default();
            let all: Vec<&str> = names().collect();
            let message = format!("there is no policy `{}`", quoted(name));
            spec_error(message, format!("{meant}the policies are: {}", all.join(", ")))
        })
    };
    let Some((one, other)) = name.split_once('+') else {
        let known = find(name)?;
        return Ok(if known.delays_sessions { (&POLICIES[0], Some(known)) } else { (known, None) });
    };
    let (sleeps, holds) = (find(one)?, find(other)?);
    if sleeps.delays_sessions {
        return Err(spec_error(format!("`{one}` does not decide when to go idle"), ORDER_HINT));
    }
    if !holds.delays_sessions {
        return Err(spec_error(format!("`{other}` does not delay sessions"), ORDER_HINT));
    }
    if sleeps.name == "oracle" {
        let hint = "the oracle knows the next gap only if sessions are not delayed";
        return Err(spec_error("`oracle` cannot be combined with another policy".to_owned(), hint));
    }
    Ok((sleeps, Some(holds)))
}

#[cfg(test)]
mod tests {
    use crate::radio::span;
    use manyways_unit::Span;

    use super::*;

    fn error(text: &str) -> String {
        let error = PolicySpec::parse(text).unwrap_err();
        format!("{error}; {}", error.hint)
    }

    #[test]
    fn names_and_numbers_read() {
        let sleeps = |text: &str| PolicySpec::parse(text).unwrap().idle;
        assert_eq!(sleeps("status-quo"), IdleSpec::StatusQuo);
        assert_eq!(sleeps("fixed"), IdleSpec::Fixed { wait: span(4.5) });
        assert_eq!(sleeps("fixed:2"), IdleSpec::Fixed { wait: span(2.0) });
        assert_eq!(sleeps("fixed:2s"), IdleSpec::Fixed { wait: span(2.0) });
        assert_eq!(sleeps("makeidle: n = 50"), IdleSpec::MakeIdle { n: 50 });
        assert_eq!(PolicySpec::parse("iat:p=0.9").unwrap().quantile(), Some(0.9));
        assert!(PolicySpec::parse("oracle").unwrap().is_oracle());
        let both = PolicySpec::parse("makeidle:20+makeactive:experts=5:gamma=0.1").unwrap();
        assert_eq!(both.idle, IdleSpec::MakeIdle { n: 20 });
        assert_eq!(both.delay, Some(DelaySpec::Learned { experts: 5, gamma: 0.1 }));
        assert_eq!(both.max_session_delay(), Some(span(5.0)));
        let alone = PolicySpec::parse("makeactive-fixed").unwrap();
        assert_eq!((alone.idle, alone.delay), (IdleSpec::StatusQuo, Some(DelaySpec::Fixed(None))));
        assert_eq!(alone.max_session_delay(), None);
        assert_eq!(
            PolicySpec::parse("makeactive-fixed:7").unwrap().max_session_delay(),
            Some(span(7.0))
        );
    }

    #[test]
    fn policies_without_advance_knowledge_can_run_live() {
        let profile = crate::radio::profiles::named("att-hspa").unwrap().unwrap();
        let packet = crate::radio::workload::heartbeats(Span::from_secs(1), 60, Span::ZERO);
        let packet = packet.into_iter().next().unwrap();
        let wait = |text: &str| {
            let policy =
                PolicySpec::parse_live(text).map(|plan| plan.policy(&profile, Priors::NOTHING));
            policy.map(|mut policy| policy.observe(&packet, None))
        };
        for text in ["status-quo", "makeidle", "makeidle:50", "context", "makeactive"] {
            assert_eq!(wait(text).unwrap(), NEVER, "{text}");
        }
        let threshold = SleepTradeoff::of(&profile).threshold();
        let waits = ["fixed", "fixed:0.5", "threshold"].map(wait);
        assert_eq!(waits.map(Result::unwrap), [span(4.5), span(0.5), threshold]);
        for text in ["oracle", "iat", "makeactive-fixed", "iat+makeactive", "nothing"] {
            assert!(!wait(text).unwrap_err().hint.is_empty(), "{text}");
        }
        let longest = |text: &str| PolicySpec::parse_live(text).unwrap().max_session_delay();
        assert_eq!(longest("makeidle+makeactive:20"), Some(span(20.0)));
        assert_eq!(longest("makeactive-fixed:7"), Some(span(7.0)));
        assert_eq!(longest("makeidle"), None);
    }

    #[test]
    fn errors_name_the_fault_and_the_choices() {
        assert!(
            error("makeidel")
                .contains("did you mean `makeidle`? the policies are: status-quo, fixed")
        );
        assert!(
            error("makeidle:m=3")
                .starts_with("`makeidle` has no parameter `m`; its parameters are: n")
        );
        assert!(error("oracle:3").starts_with("`oracle` has no parameters"));
        assert!(error("makeidle:n=x").starts_with("`n` cannot be x; give a whole number from 1"));
        assert!(error("makeidle:n=1.5").starts_with("`n` cannot be 1.5"));
        assert!(error("fixed:-1").starts_with("`seconds` cannot be -1"));
        assert!(error("fixed:NaN").starts_with("`seconds` cannot be NaN"));
        assert!(error("makeactive+makeidle").starts_with("`makeactive` does not decide"));
        assert!(error("makeidle+fixed").starts_with("`fixed` does not delay sessions"));
        assert!(error("oracle+makeactive").starts_with("`oracle` cannot be combined"));
        assert!(error("").starts_with("there is no policy ``"));
        assert!(error("makeidle+makeactive+makeactive").starts_with("there is no policy"));
    }
}
