//! App response times of six configurations, and of oracles that choose among them.
//!
//! An oracle knows which of two configurations has the shorter app response time in each network
//! condition (Deng's thesis, §2.4.1). Its time is divided by that of single-path TCP over Wi-Fi in the
//! same condition; figures 2-23 and 2-25 show the mean over conditions.

use manyways_unit::Span;

/// A way to use Wi-Fi and LTE (Deng's thesis, §2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Configuration {
    /// Single-path TCP over Wi-Fi, to which all times are compared.
    WifiTcp,
    /// Single-path TCP over LTE.
    LteTcp,
    /// MPTCP with coupled congestion control and the primary subflow on Wi-Fi.
    CoupledWifi,
    /// The same with the primary subflow on LTE.
    CoupledLte,
    /// MPTCP with decoupled congestion control and the primary subflow on Wi-Fi.
    DecoupledWifi,
    /// The same with the primary subflow on LTE.
    DecoupledLte,
}

impl Configuration {
    /// In the order of the thesis.
    pub const ALL: [Self; 6] = [
        Self::WifiTcp,
        Self::LteTcp,
        Self::CoupledWifi,
        Self::CoupledLte,
        Self::DecoupledWifi,
        Self::DecoupledLte,
    ];

    /// Its name in the thesis.
    pub fn name(self) -> &'static str {
        match self {
            Self::WifiTcp => "Wi-Fi-TCP",
            Self::LteTcp => "LTE-TCP",
            Self::CoupledWifi => "MPTCP-Coupled-Wi-Fi",
            Self::CoupledLte => "MPTCP-Coupled-LTE",
            Self::DecoupledWifi => "MPTCP-Decoupled-Wi-Fi",
            Self::DecoupledLte => "MPTCP-Decoupled-LTE",
        }
    }
}

/// An oracle of Deng's thesis (§2.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Oracle {
    /// Selects the network for single-path TCP.
    SinglePathTcp,
    /// Selects the network of the primary subflow, with decoupled congestion control.
    DecoupledMptcp,
    /// The same with coupled congestion control.
    CoupledMptcp,
    /// Selects the congestion control, with the primary subflow on Wi-Fi.
    WifiPrimary,
    /// The same with the primary subflow on LTE.
    LtePrimary,
}

impl Oracle {
    /// In the order of the thesis.
    pub const ALL: [Self; 5] = [
        Self::SinglePathTcp,
        Self::DecoupledMptcp,
        Self::CoupledMptcp,
        Self::WifiPrimary,
        Self::LtePrimary,
    ];

    /// Its name in the thesis.
    pub fn name(self) -> &'static str {
        match self {
            Self::SinglePathTcp => "Single-Path-TCP Oracle",
            Self::DecoupledMptcp => "Decoupled-MPTCP Oracle",
            Self::CoupledMptcp => "Coupled-MPTCP Oracle",
            Self::WifiPrimary => "MPTCP-Wi-Fi-Primary Oracle",
            Self::LtePrimary => "MPTCP-LTE-Primary Oracle",
        }
    }

    /// The two configurations among which it chooses.
    pub fn choices(self) -> [Configuration; 2] {
        use Configuration::{
            CoupledLte, CoupledWifi, DecoupledLte, DecoupledWifi, LteTcp, WifiTcp,
        };
        match self {
            Self::SinglePathTcp => [WifiTcp, LteTcp],
            Self::DecoupledMptcp => [DecoupledWifi, DecoupledLte],
            Self::CoupledMptcp => [CoupledWifi, CoupledLte],
            Self::WifiPrimary => [CoupledWifi, DecoupledWifi],
            Self::LtePrimary => [CoupledLte, DecoupledLte],
        }
    }
}

/// App response times in one network condition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    times: [Option<Span>; Configuration::ALL.len()],
}

impl Condition {
    /// Notes the time of a configuration, such as the median of several runs. One that is zero
    /// counts as not run.
    pub fn set(&mut self, configuration: Configuration, time: Span) {
        self.times[configuration as usize] = Some(time).filter(|time| !time.is_zero());
    }

    /// Returns the time of a configuration; `None` if it was not run.
    pub fn time(&self, configuration: Configuration) -> Option<Span> {
        self.times[configuration as usize]
    }

    /// Returns the fastest configuration that was run, the first one of equally fast ones.
    pub fn fastest(&self) -> Option<(Configuration, Span)> {
        let run = |configuration| Some((configuration, self.time(configuration)?));
        Configuration::ALL.into_iter().filter_map(run).min_by_key(|(_, time)| *time)
    }

    /// Returns the configuration that an oracle chooses, if both of its choices were run.
    pub fn chosen(&self, oracle: Oracle) -> Option<(Configuration, Span)> {
        let [a, b] = oracle.choices();
        let (a_time, b_time) = (self.time(a)?, self.time(b)?);
        Some(if a_time <= b_time { (a, a_time) } else { (b, b_time) })
    }
}

/// Result of an oracle.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    pub oracle: Oracle,
    /// `None` if no condition has all of the configurations that it needs.
    pub mean: Option<Mean>,
    /// Configurations that it needs, and that were not run in some condition. Such conditions do not
    /// count.
    pub missing: Vec<Configuration>,
}

/// Means over conditions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    /// Mean of the time divided by that of TCP over Wi-Fi: 0.5 saves half of the time.
    pub normalised: f64,
    /// Mean time divided by the mean time of TCP over Wi-Fi. Conditions with long times weigh more.
    /// The thesis does not state which of both it shows.
    pub ratio_of_means: f64,
    /// Number of conditions.
    pub conditions: usize,
}

/// Evaluates all oracles, in the order of the thesis.
pub fn evaluate(conditions: &[Condition]) -> [Evaluation; Oracle::ALL.len()] {
    Oracle::ALL.map(|oracle| {
        let needed = |configuration: &Configuration| {
            *configuration == Configuration::WifiTcp || oracle.choices().contains(configuration)
        };
        let is_missing = |configuration: &Configuration| {
            conditions.iter().any(|condition| condition.time(*configuration).is_none())
        };
        let missing = Configuration::ALL.into_iter().filter(needed).filter(is_missing).collect();
        let pairs = conditions.iter().filter_map(|condition| {
            let (_, time) = condition.chosen(oracle)?;
            Some((time, condition.time(Configuration::WifiTcp)?))
        });
        let pairs: Vec<(Span, Span)> = pairs.collect();
        Evaluation { oracle, mean: Mean::of(&pairs), missing }
    })
}

impl Mean {
    /// Takes times of an oracle and of TCP over Wi-Fi.
    fn of(pairs: &[(Span, Span)]) -> Option<Self> {
        if pairs.is_empty() {
            return None;
        }
        let pairs = || pairs.iter().map(|(time, wifi)| (time.as_secs_f64(), wifi.as_secs_f64()));
        let conditions = pairs().count();
        let normalised = pairs().map(|(time, wifi)| time / wifi).sum::<f64>() / conditions as f64;
        let (time, wifi) =
            pairs().fold((0.0, 0.0), |sums, pair| (sums.0 + pair.0, sums.1 + pair.1));
        Some(Self { normalised, ratio_of_means: time / wifi, conditions })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A condition with times in seconds, in the order of [`Configuration::ALL`]; 0: not run.
    fn condition(seconds: [u64; 6]) -> Condition {
        let mut condition = Condition::default();
        for (configuration, seconds) in Configuration::ALL.into_iter().zip(seconds) {
            condition.set(configuration, Span::from_secs(seconds));
        }
        condition
    }

    #[test]
    fn oracles_choose_in_each_condition() {
        let conditions = [condition([10, 4, 6, 5, 7, 3]), condition([20, 40, 12, 10, 14, 18])];
        let found = evaluate(&conditions).map(|evaluation| {
            let mean = evaluation.mean.unwrap();
            assert!(evaluation.missing.is_empty() && mean.conditions == 2);
            (
                evaluation.oracle.name(),
                (mean.normalised * 1e3).round(),
                (mean.ratio_of_means * 1e3).round(),
            )
        });
        let expected = [
            // Means of 0.4 and 1; 0.3 and 0.7; 0.5 and 0.5; 0.6 and 0.6; 0.3 and 0.5.
            ("Single-Path-TCP Oracle", 700.0, 800.0),
            ("Decoupled-MPTCP Oracle", 500.0, 567.0),
            ("Coupled-MPTCP Oracle", 500.0, 500.0),
            ("MPTCP-Wi-Fi-Primary Oracle", 600.0, 600.0),
            ("MPTCP-LTE-Primary Oracle", 400.0, 433.0),
        ];
        assert_eq!(found, expected);
        let fastest = conditions.map(|condition| condition.fastest().unwrap().0.name());
        assert_eq!(fastest, ["MPTCP-Decoupled-LTE", "MPTCP-Coupled-LTE"]);
        let chosen = conditions.map(|condition| condition.chosen(Oracle::WifiPrimary).unwrap().0);
        assert_eq!(chosen, [Configuration::CoupledWifi; 2]);
    }

    #[test]
    fn oracles_name_the_configurations_that_they_lack() {
        use Configuration::{CoupledLte, CoupledWifi, WifiTcp};
        // No coupled congestion control, and once no Wi-Fi.
        let conditions = [condition([10, 5, 0, 0, 8, 9]), condition([0, 5, 0, 0, 8, 9])];
        let found = evaluate(&conditions)
            .map(|evaluation| (evaluation.mean.map(|mean| mean.normalised), evaluation.missing));
        let expected = [
            (Some(0.5), vec![WifiTcp]),
            (Some(0.8), vec![WifiTcp]),
            (None, vec![WifiTcp, CoupledWifi, CoupledLte]),
            (None, vec![WifiTcp, CoupledWifi]),
            (None, vec![WifiTcp, CoupledLte]),
        ];
        assert_eq!(found, expected);
        assert!(evaluate(&[]).iter().all(|evaluation| evaluation.mean.is_none()));
        assert_eq!(Condition::default().fastest(), None);
    }
}
