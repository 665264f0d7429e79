//! Calibration of a profile: replaces its values by measured ones, if they are plausible.

use super::gap_sweep::InferredTimer;
use super::infer::Estimate;
use super::powers::{Finding, Powers, Quantity};
use super::profile::{self, ProfileError, State, Technology};
use super::{Direction, MeasuredProfile, Profile, TooManyTimers};

/// A fit with a smaller explained share does not change a profile.
const MIN_EXPLAINED: f64 = 0.5;
/// End of a calibrated profile's title.
const MEASURED_SUFFIX: &str = ", with the measured timers";

/// Reason why measured values do not make a profile.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CalibrationError {
    #[error("{error}")]
    TooManyTimers {
        /// Ends of the timers in seconds.
        ends: Vec<f64>,
        #[source]
        error: TooManyTimers,
    },
    /// The fit explains too small a share of the variance.
    #[error("the fit explains too little of the variance")]
    Unexplained(f64),
    /// The calibrated profile would not be valid.
    #[error("the results do not make a valid profile: {0}")]
    Invalid(#[source] ProfileError),
}

/// Quantities whose fitted values need a remark.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Doubts {
    /// Not in the trace.
    pub unseen: Vec<Quantity>,
    /// Only together in the trace.
    pub groups: Vec<Vec<Quantity>>,
    /// Too uncertain for a profile.
    pub vague: Vec<Quantity>,
    /// Negative without the bound at 0.
    pub bounded: Vec<Quantity>,
    /// States with a timer shorter than a window.
    pub short: Vec<usize>,
    /// States whose promotion takes longer than a window.
    pub long: Vec<usize>,
}

impl Profile {
    /// Replaces timers by inferred ones ([`Profile::with_timers`]).
    ///
    /// # Errors
    /// Fails if there are more inferred timers than timers of the profile.
    pub fn with_inferred_timers(self, timers: &[InferredTimer]) -> Result<Self, CalibrationError> {
        let ends = self.ends(timers);
        self.with_timers(&ends, "round trips after gaps, by manyways radio infer")
            .map_err(|error| CalibrationError::TooManyTimers { ends, error })
    }

    /// Ends of the timers: the middle between the longest gap before a transition and the shortest
    /// one after it. For a gradual transition, the middle of onset and completion is used, except
    /// for profiles with an inactive state (5G), where both are timers.
    fn ends(&self, timers: &[InferredTimer]) -> Vec<f64> {
        let middle = |estimate: &Estimate| (estimate.previous_gap + estimate.value) / 2.0;
        if let [timer] = timers
            && self.technology == Technology::Nr
            && self.states.len() == 3
            && timer.expiry.onset.value < timer.expiry.completion.value
        {
            return vec![middle(&timer.expiry.onset), middle(&timer.expiry.completion)];
        }
        let both = |timer: &InferredTimer| {
            (middle(&timer.expiry.onset) + middle(&timer.expiry.completion)) / 2.0
        };
        timers.iter().map(both).collect()
    }

    /// Replaces powers by fitted ones ([`Profile::with_powers`]), and returns the profile's text
    /// too.
    ///
    /// # Errors
    /// Fails if the fit explains too little, or if the values are out of the range of a profile.
    pub fn calibrated(
        self,
        powers: Option<&Powers>,
    ) -> Result<(MeasuredProfile, String), CalibrationError> {
        let mut adopted = match powers {
            Some(powers) if powers.explained_variance < MIN_EXPLAINED => {
                return Err(CalibrationError::Unexplained(powers.explained_variance));
            }
            Some(powers) => self.with_powers(powers, "a power monitor, by manyways radio infer"),
            None => {
                MeasuredProfile { profile: self, rest_of_device: Some(0.0), negative: Vec::new() }
            }
        };
        if !adopted.profile.title.ends_with(MEASURED_SUFFIX) {
            adopted.profile.title.push_str(MEASURED_SUFFIX);
        }
        let text = profile::write(&adopted.profile);
        profile::parse(&text).map_err(CalibrationError::Invalid)?;
        Ok((adopted, text))
    }

    /// The first released state, if its promotion delay is below the measured minimum, which is
    /// returned too, in seconds.
    pub fn short_promotion(&self, timers: &[InferredTimer]) -> Option<(&State, f64)> {
        let least = timers.last()?.promotion_delay;
        let released = self.states.iter().find(|state| state.is_idle)?;
        (released.promotion_delay.as_secs_f64() < least).then_some((released, least))
    }

    /// The quantities of a fit that are not determined or not plausible.
    pub fn doubts(&self, powers: &Powers) -> Doubts {
        let mut doubts = Doubts::default();
        for (quantity, finding) in &powers.findings {
            match finding {
                Finding::Unobserved => doubts.unseen.push(*quantity),
                Finding::Indistinguishable(_)
                    if doubts.groups.iter().flatten().any(|one| one == quantity) => {}
                Finding::Indistinguishable(others) => {
                    doubts.groups.push([&[*quantity], others.as_slice()].concat());
                }
                Finding::Determined(fitted) => {
                    if self.is_vague(powers, *quantity) {
                        doubts.vague.push(*quantity);
                    }
                    if fitted.is_bounded() {
                        doubts.bounded.push(*quantity);
                    }
                }
            }
        }
        let window = powers.window;
        let last = self.states.len() - 1;
        let places = |is: &dyn Fn(&State) -> bool| {
            self.states
                .iter()
                .enumerate()
                .filter(|(_, state)| is(state))
                .map(|(place, _)| place)
                .collect()
        };
        doubts.short = places(&|state| state.timer.is_some_and(|timer| timer < window));
        doubts.short.retain(|place| *place < last);
        doubts.long = places(&|state| state.promotion_delay > window);
        doubts
    }

    /// Name of a quantity for people.
    pub fn name_of(&self, quantity: Quantity) -> String {
        let state = |place: usize| self.states.get(place).map_or("", |state| &state.name);
        match quantity {
            Quantity::Transfer(Direction::Up) => "sending".to_owned(),
            Quantity::Transfer(Direction::Down) => "receiving".to_owned(),
            Quantity::PerMbit(Direction::Up) => "sending, per Mbit".to_owned(),
            Quantity::PerMbit(Direction::Down) => "receiving, per Mbit".to_owned(),
            Quantity::State(place) => state(place).to_owned(),
            Quantity::Promotion(place) => format!("promotion from {}", state(place)),
            Quantity::Demotion(place) => format!("demotion to {}", state(place)),
        }
    }
}

#[cfg(test)]
mod tests {
    use manyways_unit::Span;

    use super::*;
    use crate::radio::infer::TimerEstimate;
    use crate::radio::powers::FittedValue;
    use crate::radio::profiles;

    fn profile(name: &str) -> Profile {
        profiles::named(name).unwrap().unwrap()
    }

    /// A timer that ends between these gaps, in seconds, with steps of 0.5 s.
    fn timer(onset: f64, completion: f64, promotion: f64) -> InferredTimer {
        let at =
            |value: f64| Estimate { value, previous_gap: value - 0.5, lower: value, upper: value };
        let ends = TimerEstimate {
            onset: at(onset),
            completion: at(completion),
            slow_threshold: 0.1,
            slow_shares: [0.0, 1.0, 1.0],
            connected_rtt: 0.05,
            promotion_delay: promotion,
        };
        InferredTimer { expiry: ends, round_trip: 0.05 + promotion, promotion_delay: promotion }
    }

    fn powers(numbers: Vec<(Quantity, Finding)>, explained: f64) -> Powers {
        let (window, sampled) = (Span::from_secs(1), Span::from_millis(100));
        Powers {
            findings: numbers,
            windows: 100,
            window,
            sample_interval: sampled,
            explained_variance: explained,
            offset: None,
        }
    }

    #[test]
    fn a_timer_ends_in_the_middle_of_its_transition() {
        assert_eq!(profile("lte").ends(&[timer(12.0, 12.0, 0.3)]), [11.75]);
        assert_eq!(profile("lte").ends(&[timer(10.0, 12.0, 0.3)]), [10.75]);
        // With an inactive state both ends are timers.
        assert_eq!(profile("5g-sa").ends(&[timer(10.0, 15.0, 0.3)]), [9.75, 14.75]);
        let all = [3.0, 6.0, 9.0].map(|end| timer(end, end, 0.1));
        let error = profile("att-hspa").with_inferred_timers(&all).unwrap_err();
        let CalibrationError::TooManyTimers { ends, .. } = error else { panic!("{error}") };
        assert_eq!(ends, [2.75, 5.75, 8.75]);
    }

    #[test]
    fn a_promotion_below_the_measured_minimum_is_noticed() {
        let lte = profile("lte");
        assert_eq!(lte.short_promotion(&[timer(12.0, 12.0, 0.001)]), None);
        let (state, least) = lte.short_promotion(&[timer(12.0, 12.0, 5.0)]).unwrap();
        assert!(state.is_idle && least == 5.0);
        assert_eq!(lte.short_promotion(&[]), None);
    }

    #[test]
    fn implausible_values_do_not_make_a_profile() {
        let few = profile("lte").calibrated(Some(&powers(Vec::new(), 0.4)));
        assert_eq!(few.unwrap_err(), CalibrationError::Unexplained(0.4));
        let told = |value| Finding::Determined(FittedValue::new(value, 0.01));
        let up = Quantity::Transfer(Direction::Up);
        let huge = powers(vec![(up, told(1e12))], 0.9);
        let error = profile("lte").calibrated(Some(&huge)).unwrap_err();
        assert!(matches!(error, CalibrationError::Invalid(_)), "{error}");
        let (adopted, text) = profile("lte").calibrated(None).unwrap();
        assert!(adopted.profile.title.ends_with(MEASURED_SUFFIX));
        let (again, _) = profile::parse(&text).unwrap().calibrated(None).unwrap();
        assert_eq!(again.profile.title, adopted.profile.title);
    }

    #[test]
    fn doubtful_quantities_are_listed_once() {
        let [up, down] = [Direction::Up, Direction::Down].map(Quantity::Transfer);
        let [first, last] = [0, 3].map(Quantity::State);
        let told = |value: f64, error| Finding::Determined(FittedValue::new(value, error));
        let found = powers(
            vec![
                (up, Finding::Indistinguishable(vec![down])),
                (down, Finding::Indistinguishable(vec![up])),
                (first, Finding::Unobserved),
                (Quantity::Promotion(3), told(1.0, 9.0)),
                (last, told(-0.5, 0.001)),
            ],
            0.9,
        );
        let lte = profile("lte");
        let doubts = lte.doubts(&found);
        assert_eq!(doubts.unseen, [first]);
        assert_eq!(doubts.groups, [vec![up, down]]);
        assert_eq!(doubts.vague, [Quantity::Promotion(3)]);
        assert_eq!(doubts.bounded, [last]);
        let (short, long) = (&doubts.short, &doubts.long);
        assert_eq!((short.as_slice(), long.as_slice()), (&[0, 1][..], &[][..]));
        assert_eq!(lte.name_of(Quantity::State(0)), lte.states[0].name);
    }
}
