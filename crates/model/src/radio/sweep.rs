//! Plans the runs of a simulation: policies on radios, with swept parameters.

use std::str::FromStr;

use manyways_unit::Span;
use manyways_unit::human::quoted;

use super::Profile;
use super::policy_spec::{POLICIES, PolicySpec, PolicySpecError, spec_error};
use super::profiles::Known;

/// A swept parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Sweep {
    pub key: String,
    pub values: Vec<f64>,
}

/// Parameters of a profile that can be swept: name, minimum, maximum.
const PROFILE_PARAMETERS: [(&str, f64, f64); 3] =
    [("e-switch", 0.0, 1e3), ("turn-off", 0.0, 1.0), ("burst-gap", 0.0, 86_400.0)];
/// Maximum number of runs.
const MOST: usize = 20_000;

/// A policy on a radio.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// Index of the profile.
    pub profile: usize,
    pub plan: PolicySpec,
}

/// All combinations of radios, policies and swept values.
#[derive(Clone, Debug)]
pub struct Variants {
    pub profiles: Vec<Profile>,
    /// For each profile, its name and its swept values.
    pub names: Vec<(String, String)>,
    pub jobs: Vec<Job>,
    /// Policy name of each run.
    pub policies: Vec<String>,
    /// For each profile, the runs of the network's timers and of the oracle.
    pub baselines: Vec<[usize; 2]>,
    /// Whether a run was added only for comparison.
    pub hidden: Vec<bool>,
    pub sweeps: Vec<Sweep>,
}

impl FromStr for Sweep {
    type Err = String;

    /// Parses `n=10,50,100`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (key, values) = text.split_once('=').ok_or("write KEY=A,B,C")?;
        let key = key.trim().to_owned();
        let of_policies =
            || POLICIES.iter().flat_map(|known| known.parameters).map(|number| number.name);
        let mut keys: Vec<&str> = PROFILE_PARAMETERS.iter().map(|(name, ..)| *name).collect();
        for name in of_policies() {
            if !keys.contains(&name) {
                keys.push(name);
            }
        }
        if !keys.contains(&key.as_str()) {
            return Err(format!("use one of {}", keys.join(", ")));
        }
        let read = |value: &str| {
            let value = value.trim();
            let (number, factor) = match value.strip_suffix('%') {
                Some(number) => (number, 0.01),
                None => (value.strip_suffix('s').unwrap_or(value), 1.0),
            };
            let number = number
                .trim()
                .parse::<f64>()
                .map_err(|_| format!("`{}` is not a number", quoted(value)))?;
            let range = PROFILE_PARAMETERS.iter().find(|(name, ..)| *name == key);
            match range {
                Some((_, least, most)) if !(*least..=*most).contains(&(number * factor)) => {
                    Err(format!("`{}` is not from {least} to {most}", quoted(value)))
                }
                _ => Ok(number * factor),
            }
        };
        let values = values.split(',').map(read).collect::<Result<Vec<f64>, String>>()?;
        Ok(Self { key, values })
    }
}

impl Variants {
    /// All policies on all radios, with all combinations of the swept values; values of a policy's
    /// parameter apply to the policies that have it. The network's timers and the oracle run in any
    /// case.
    ///
    /// # Errors
    /// Fails if a policy or parameter is unknown, or if there are too many runs.
    pub fn new(
        known: &[Known],
        policies: &[String],
        sweeps: &[Sweep],
    ) -> Result<Self, PolicySpecError> {
        for (place, sweep) in sweeps.iter().enumerate() {
            if sweeps[..place].iter().any(|other| other.key == sweep.key) {
                let hint = format!("give all values at once: {}=A,B,C", sweep.key);
                return Err(spec_error(format!("`{}` is given twice", sweep.key), hint));
            }
        }
        let all = sweeps.iter().map(|sweep| sweep.values.len()).try_fold(1, usize::checked_mul);
        if all.is_none_or(|all| all > MOST) {
            let sentence = "the sweep has too many combinations".to_owned();
            return Err(spec_error(sentence, format!("try at most {MOST} combinations")));
        }
        let of_profiles: Vec<&Sweep> =
            sweeps.iter().filter(|sweep| is_profile_parameter(&sweep.key)).collect();
        let mut variants = Self {
            profiles: Vec::new(),
            names: Vec::new(),
            jobs: Vec::new(),
            policies: Vec::new(),
            baselines: Vec::new(),
            hidden: Vec::new(),
            sweeps: sweeps.to_vec(),
        };
        for one in known {
            for values in product(&of_profiles) {
                let mut profile = one.profile.clone();
                for (key, value) in &values {
                    profile = match *key {
                        "e-switch" => profile.with_switch_factor(*value),
                        "turn-off" => profile.with_release_share(*value),
                        _ => {
                            profile.transfer.burst_gap = Span::from_secs_f64(*value);
                            profile
                        }
                    };
                }
                variants.profiles.push(profile);
                variants.names.push((one.name.clone(), words(&values)));
            }
        }
        let mut plans: Vec<(String, PolicySpec)> = Vec::new();
        for text in policies {
            // Other policies do not have this parameter.
            let names: Vec<&str> =
                text.split('+').map(|part| part.split(':').next().unwrap_or(part).trim()).collect();
            let has = |key: &str| {
                let mine = POLICIES.iter().filter(|known| names.contains(&known.name));
                mine.flat_map(|known| known.parameters).any(|number| number.name == key)
            };
            let mine: Vec<&Sweep> = sweeps.iter().filter(|sweep| has(&sweep.key)).collect();
            for values in product(&mine) {
                let name = named(text.trim(), &values);
                plans.push((name.clone(), PolicySpec::parse(&name)?));
            }
        }
        for sweep in sweeps.iter().filter(|sweep| !is_profile_parameter(&sweep.key)) {
            if !plans.iter().any(|(name, _)| name.contains(&format!(":{}=", sweep.key))) {
                let sentence = format!("no requested policy has a parameter `{}`", sweep.key);
                return Err(spec_error(sentence, "name a policy with this parameter in --policy"));
            }
        }
        if plans.len() * variants.profiles.len() > MOST {
            let sentence = format!("{} runs are too many", plans.len() * variants.profiles.len());
            return Err(spec_error(sentence, "try fewer values"));
        }
        for profile in 0..variants.profiles.len() {
            let first = variants.jobs.len();
            for name in ["status-quo", "oracle"] {
                let plan = PolicySpec::parse(name)?;
                let is_asked = plans.iter().any(|(other, _)| other == name);
                variants.jobs.push(Job { profile, plan });
                variants.policies.push(name.to_owned());
                variants.hidden.push(!is_asked);
            }
            variants.baselines.push([first, first + 1]);
            for (name, plan) in plans.iter().filter(|(name, _)| !is_baseline(name)) {
                variants.jobs.push(Job { profile, plan: *plan });
                variants.policies.push(name.clone());
                variants.hidden.push(false);
            }
        }
        Ok(variants)
    }

    /// The requested runs on a radio; the oracle is the last one.
    pub fn runs(&self, profile: usize) -> Vec<usize> {
        let asked = |run: &usize| self.jobs[*run].profile == profile && !self.hidden[*run];
        let mut runs: Vec<usize> = (0..self.jobs.len()).filter(asked).collect();
        runs.sort_by_key(|run| self.jobs[*run].plan.is_oracle());
        runs
    }

    /// A radio's name with its swept values.
    pub fn name(&self, profile: usize) -> String {
        let (name, values) = &self.names[profile];
        if values.is_empty() { name.clone() } else { format!("{name} {values}") }
    }
}

fn is_profile_parameter(key: &str) -> bool {
    PROFILE_PARAMETERS.iter().any(|(name, ..)| *name == key)
}

fn is_baseline(name: &str) -> bool {
    ["status-quo", "oracle"].contains(&name)
}

/// All combinations.
fn product<'s>(sweeps: &[&'s Sweep]) -> Vec<Vec<(&'s str, f64)>> {
    let mut all = vec![Vec::new()];
    for sweep in sweeps {
        all = all
            .into_iter()
            .flat_map(|before| {
                sweep.values.iter().map(move |value| {
                    let mut with = before.clone();
                    with.push((sweep.key.as_str(), *value));
                    with
                })
            })
            .collect();
    }
    all
}

fn words(values: &[(&str, f64)]) -> String {
    let words: Vec<String> = values.iter().map(|(key, value)| format!("{key}={value}")).collect();
    words.join(" ")
}

/// The policy's text with these values, each after the part that has the parameter.
fn named(text: &str, values: &[(&str, f64)]) -> String {
    let parts: Vec<String> = text
        .split('+')
        .map(|part| {
            let name = part.split(':').next().unwrap_or(part).trim();
            let known = POLICIES.iter().find(|known| known.name == name);
            let mut part = part.trim().to_owned();
            for (key, value) in values {
                if known.is_some_and(|known| known.parameters.iter().any(|one| one.name == *key)) {
                    part.push_str(&format!(":{key}={value}"));
                }
            }
            part
        })
        .collect();
    parts.join("+")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::radio::{SleepTradeoff, profiles};

    fn variants(policies: &[&str], sweeps: &[&str]) -> Result<Variants, PolicySpecError> {
        let known =
            [Known { name: "lte".to_owned(), profile: profiles::named("lte").unwrap().unwrap() }];
        let policies: Vec<String> = policies.iter().map(|name| (*name).to_owned()).collect();
        let sweeps: Vec<Sweep> = sweeps.iter().map(|text| text.parse().unwrap()).collect();
        Variants::new(&known, &policies, &sweeps)
    }

    #[test]
    fn every_combination_is_run_once() {
        let all = variants(&["makeidle", "fixed", "oracle"], &["n=10,20", "e-switch=1,2"]).unwrap();
        assert_eq!(
            all.names.iter().map(|name| &*name.1).collect::<Vec<_>>(),
            ["e-switch=1", "e-switch=2"]
        );
        let of_first: Vec<&str> = all.runs(0).into_iter().map(|run| &*all.policies[run]).collect();
        assert_eq!(of_first, ["makeidle:n=10", "makeidle:n=20", "fixed", "oracle"]);
        // The network's timers run as well, for comparison.
        assert_eq!(all.jobs.len(), 2 * 5);
        assert_eq!(all.baselines, [[0, 1], [5, 6]]);
        let switch = |place: usize| SleepTradeoff::of(&all.profiles[place]).switch_energy();
        assert!((switch(1).as_joules() / switch(0).as_joules() - 2.0).abs() < 1e-12);
    }

    #[test]
    fn a_number_stands_behind_the_policy_that_has_it() {
        let values = [("n", 5.0), ("experts", 7.0)];
        assert_eq!(named("makeidle+makeactive", &values), "makeidle:n=5+makeactive:experts=7");
        assert_eq!(named("fixed", &values), "fixed");
    }

    #[test]
    fn invalid_arguments_are_reported() {
        assert!(Sweep::from_str("x=1").unwrap_err().contains("use one of e-switch"));
        assert!(Sweep::from_str("n=a").unwrap_err().contains("`a` is not a number"));
        assert_eq!(Sweep::from_str("turn-off=2").unwrap_err(), "`2` is not from 0 to 1");
        assert_eq!(Sweep::from_str("e-switch=1e308").unwrap_err(), "`1e308` is not from 0 to 1000");
        assert_eq!(Sweep::from_str("turn-off=10%,50%").unwrap().values, [0.1, 0.5]);
        assert!(variants(&["fixed"], &["n=1,2"]).is_err());
        assert!(variants(&["fixd"], &[]).is_err());
        assert!(variants(&["makeidle"], &["n=0"]).is_err());
    }
}
