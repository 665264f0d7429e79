//! Profiles with values replaced by measured ones.

use manyways_unit::Span;

use super::powers::{Finding, FittedValue, Powers, Quantity};
use super::profile::{MAX_DURATION, State};
use super::{Direction, Energy, Power, Profile};

/// More timers were measured than the profile has states with a timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the measurement has {found} timers, but the profile has {known}")]
pub struct TooManyTimers {
    pub found: usize,
    /// States of the profile with a timer.
    pub known: usize,
}

/// A profile with measured powers.
#[derive(Clone, PartialEq, Debug)]
pub struct MeasuredProfile {
    pub profile: Profile,
    /// Power of the rest of the device, in watts, subtracted from all measured powers. `None` if
    /// the power of the last state was not determined; the measured powers then include the rest.
    pub rest_of_device: Option<f64>,
    /// Quantities that were negative after the subtraction and are zero in the profile.
    pub negative: Vec<Quantity>,
}

impl Profile {
    /// Replaces timers by measured ones. `ends` are the times from the last packet to the end of
    /// each timer, in seconds, ascending. Each value replaces the timer with the nearest end; no
    /// timer is replaced twice. The other timers keep their durations. `source` is recorded for the
    /// replaced timers.
    ///
    /// # Errors
    /// Fails if there are more values than timers.
    pub fn with_timers(mut self, ends: &[f64], source: &str) -> Result<Self, TooManyTimers> {
        let known = self.states.len().saturating_sub(1);
        if ends.len() > known {
            return Err(TooManyTimers { found: ends.len(), known });
        }
        let seconds = |state: &State| state.timer.map_or(0.0, Span::as_secs_f64);
        let own: Vec<f64> = self.states[..known]
            .iter()
            .scan(0.0, |end, state| {
                *end += seconds(state);
                Some(*end)
            })
            .collect();
        let mut next = 0;
        for (number, end) in ends.iter().enumerate() {
            // Each later value needs a timer too.
            let last = known - (ends.len() - number);
            let far = |place: &usize| (own[*place] - end).abs();
            let nearest = (next..=last).min_by(|one, other| far(one).total_cmp(&far(other)));
            let index = nearest.unwrap_or(last);
            let before: f64 = self.states[..index].iter().map(seconds).sum();
            set_timer(&mut self.states[index], end - before, source);
            next = index + 1;
        }
        Ok(self)
    }

    /// Replaces powers and energies by the determined values of `powers`, except vague ones
    /// ([`Profile::is_vague`]), after subtraction of [`Profile::rest_of_device`]. `source` is
    /// recorded for the replaced values.
    pub fn with_powers(mut self, powers: &Powers, source: &str) -> MeasuredProfile {
        let last = self.states.len().saturating_sub(1);
        let rest = self.rest_of_device(powers);
        let told = |finding: &Finding| match finding {
            Finding::Determined(fitted) => Some(*fitted),
            _ => None,
        };
        let taken: Vec<(Quantity, FittedValue)> = powers
            .findings
            .iter()
            .filter_map(|(quantity, finding)| Some((*quantity, told(finding)?)))
            .filter(|(quantity, _)| !self.is_vague(powers, *quantity))
            // The excess over the profile's value in the last state is the power of the rest of the
            // device.
            .filter(|(quantity, _)| *quantity != Quantity::State(last) || rest <= Some(0.0))
            .collect();
        let mut negative = Vec::new();
        let mut without = |quantity: Quantity, fitted: FittedValue| {
            let rest = if quantity.is_power() { rest.unwrap_or_default() } else { 0.0 };
            if fitted.unbounded - fitted.cycle_excess < rest - RESOLUTION {
                negative.push(quantity);
            }
            round_to_resolution((fitted.whole_cycles() - rest).max(0.0))
        };
        let mut transfers = Vec::new();
        let mut states = vec![Vec::new(); self.states.len()];
        for (quantity, fitted) in taken {
            let error = fitted.whole_cycles_error;
            let value = without(quantity, fitted);
            let (power, energy) = (Power::watts(value), Energy::joules(value));
            let transfer = &mut self.transfer;
            match quantity {
                Quantity::Transfer(Direction::Up) => {
                    transfer.send = power;
                    transfers.push(format!("send ± {error:.3} W"));
                }
                Quantity::Transfer(Direction::Down) => {
                    transfer.receive = power;
                    transfers.push(format!("receive ± {error:.3} W"));
                }
                Quantity::PerMbit(Direction::Up) => {
                    transfer.send_per_mbit = energy;
                    transfers.push(format!("send-per-mbit ± {error:.3} J"));
                }
                Quantity::PerMbit(Direction::Down) => {
                    transfer.receive_per_mbit = energy;
                    transfers.push(format!("receive-per-mbit ± {error:.3} J"));
                }
                Quantity::State(place) => {
                    self.states[place].set_mean_power(value);
                    states[place].push(format!("power ± {error:.3} W"));
                }
                Quantity::Promotion(place) => {
                    self.states[place].promotion = energy;
                    states[place].push(format!("promotion ± {error:.3} J"));
                }
                Quantity::Demotion(place) => {
                    self.states[place].demotion = energy;
                    states[place].push(format!("demotion ± {error:.3} J"));
                }
            }
        }
        self.transfer.source = source_text(&transfers, source, &self.transfer.source);
        for (state, found) in self.states.iter_mut().zip(&states) {
            state.source = source_text(found, source, &state.source);
        }
        MeasuredProfile { profile: self, rest_of_device: rest, negative }
    }

    /// Power of the device without its radio, in watts: the measured power of the last state minus
    /// the profile's value, at least 0. `None` if the power of the last state was not determined.
    pub fn rest_of_device(&self, powers: &Powers) -> Option<f64> {
        let last = Quantity::State(self.states.len().checked_sub(1)?);
        let fitted = powers.determined(last)?;
        Some((fitted.whole_cycles() - self.quantity_value(last)).max(0.0))
    }

    /// Whether the standard error of a determined value exceeds one third of the larger of the
    /// value and the profile's value. The profile keeps its own value then. Powers are compared
    /// without the rest of the device.
    pub fn is_vague(&self, powers: &Powers, quantity: Quantity) -> bool {
        let Some(fitted) = powers.determined(quantity) else { return false };
        let rest = if quantity.is_power() { self.rest_of_device(powers) } else { None };
        let value = fitted.whole_cycles() - rest.unwrap_or_default();
        fitted.whole_cycles_error > (value.max(self.quantity_value(quantity)) / 3.0).max(RESOLUTION)
    }

    /// The profile's value of a quantity, comparable with the fitted one: of a state, the mean power
    /// over the stays of the trace instead of whole DRX cycles.
    pub fn value_in_trace(&self, powers: &Powers, quantity: Quantity) -> f64 {
        let excess = powers.determined(quantity).map_or(0.0, |fitted| fitted.cycle_excess);
        self.quantity_value(quantity) + excess
    }

    /// The profile's value of a quantity, in the unit of that quantity.
    pub fn quantity_value(&self, quantity: Quantity) -> f64 {
        let transfer = &self.transfer;
        match quantity {
            Quantity::Transfer(Direction::Up) => transfer.send.as_watts(),
            Quantity::Transfer(Direction::Down) => transfer.receive.as_watts(),
            Quantity::PerMbit(Direction::Up) => transfer.send_per_mbit.as_joules(),
            Quantity::PerMbit(Direction::Down) => transfer.receive_per_mbit.as_joules(),
            Quantity::State(place) => self.states[place].mean_power().as_watts(),
            Quantity::Promotion(place) => self.states[place].promotion.as_joules(),
            Quantity::Demotion(place) => self.states[place].demotion.as_joules(),
        }
    }
}

impl State {
    /// Mean power over a DRX cycle, including the on duration.
    pub fn mean_power(&self) -> Power {
        let watts = self.power.as_watts();
        let more = self.drx.map_or(0.0, |listens| {
            let share = listens.on_duration.as_secs_f64() / listens.cycle.as_secs_f64();
            (listens.power.as_watts() - watts) * share
        });
        Power::watts(watts + more)
    }

    /// Scales the power in the on duration by the same factor.
    fn set_mean_power(&mut self, watts: f64) {
        let before = self.mean_power().as_watts();
        let scaled = |power: Power| match before > 0.0 {
            true => Power::watts(round_to_resolution(power.as_watts() * watts / before)),
            false => Power::watts(watts),
        };
        self.power = scaled(self.power);
        if let Some(listens) = &mut self.drx {
            listens.power = scaled(listens.power);
        }
    }
}

/// In watts or joules; finer differences are below the resolution of a measurement.
const RESOLUTION: f64 = 1e-6;

fn round_to_resolution(value: f64) -> f64 {
    // The detour through a whole number keeps 0.1 exactly 0.1.
    (value * 1e6).round() / 1e6
}

fn set_timer(state: &mut State, seconds: f64, source: &str) {
    state.timer = Some(Span::from_secs_f64(seconds.max(0.0)).min(MAX_DURATION));
    state.source = source_text(&["timer".to_owned()], source, &state.source);
}

/// The source text of a state or transfer; `found` lists the replaced values.
fn source_text(found: &[String], source: &str, before: &str) -> String {
    match found {
        [] => before.to_owned(),
        _ => format!("{}: {source}; previously: {before}", found.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::radio::span;
    use crate::radio::{SleepTradeoff, profiles};

    fn profile(name: &str) -> Profile {
        profiles::named(name).unwrap().unwrap()
    }

    fn timers(profile: &Profile) -> Vec<f64> {
        profile.states.iter().filter_map(|state| state.timer).map(Span::as_secs_f64).collect()
    }

    #[test]
    fn a_timer_replaces_the_one_with_the_nearest_end() {
        let lte = profile("lte").with_timers(&[11.576], "probes").unwrap();
        assert_eq!(timers(&lte), [0.1, 0.02, 11.456]);
        assert_eq!(SleepTradeoff::of(&lte).stay.idle_after(), span(11.576));
        assert!(lte.states[2].source.starts_with("timer: probes; previously: lte.conf"));
        assert!(!lte.states[0].source.contains("probes"));
        // Only the first timer changes; the inactive state keeps its duration.
        let nr = profile("5g-sa").with_timers(&[10.0], "probes").unwrap();
        assert_eq!(timers(&nr), [10.0, 4.8]);
        let hspa = |end| timers(&profile("att-hspa").with_timers(&[end], "probes").unwrap());
        assert_eq!((hspa(3.0), hspa(12.2)), (vec![3.0, 10.4], vec![6.2, 6.0]));
        // Both values are nearest to the same timer.
        let close = profile("lte").with_timers(&[9.0, 9.5], "probes").unwrap();
        assert_eq!(timers(&close), [0.1, 8.9, 0.5]);
        assert_eq!(profile("lte").with_timers(&[], "nothing").unwrap(), profile("lte"));
    }

    #[test]
    fn as_many_timers_as_states_replace_all() {
        let hspa = profile("att-hspa").with_timers(&[5.0, 17.5], "probes").unwrap();
        assert_eq!(timers(&hspa), [5.0, 12.5]);
        let fault = profile("att-hspa").with_timers(&[1.0, 2.0, 3.0], "probes").unwrap_err();
        assert_eq!(fault, TooManyTimers { found: 3, known: 2 });
    }

    /// Powers with these determined values, each with a standard error of 0.01.
    fn powers(told: &[(Quantity, f64)]) -> Powers {
        let fitted = |value| Finding::Determined(FittedValue::new(value, 0.01));
        Powers {
            findings: told.iter().map(|(quantity, value)| (*quantity, fitted(*value))).collect(),
            windows: 100,
            window: Span::from_secs(1),
            sample_interval: Span::from_millis(100),
            explained_variance: 0.9,
            offset: None,
        }
    }

    #[test]
    fn the_power_of_the_rest_of_the_device_is_subtracted() {
        let before = profile("att-hspa");
        let told = powers(&[
            (Quantity::Transfer(Direction::Up), 2.5),
            (Quantity::State(0), 1.9),
            (Quantity::State(2), 0.8),
            (Quantity::Promotion(2), 0.7),
            (Quantity::Demotion(2), 0.3),
        ]);
        let MeasuredProfile { profile: after, rest_of_device: rest, negative } =
            before.clone().with_powers(&told, "a monitor");
        assert_eq!(negative, []);
        assert_eq!(rest, Some(0.8));
        assert!((after.transfer.send.as_watts() - 1.7).abs() < 1e-12);
        assert_eq!(after.transfer.receive, before.transfer.receive);
        assert!((after.states[0].power.as_watts() - 1.1).abs() < 1e-12);
        assert_eq!(after.states[1], before.states[1], "the state was not measured");
        assert_eq!(after.states[2].power, before.states[2].power);
        assert_eq!(after.states[2].promotion, Energy::joules(0.7));
        assert_eq!(after.states[2].demotion, Energy::joules(0.3));
        let source = &after.states[2].source;
        assert!(
            source.starts_with("promotion ± 0.010 J, demotion ± 0.010 J: a monitor;"),
            "{source}"
        );
    }

    #[test]
    fn vague_values_are_not_adopted() {
        let before = profile("lte");
        let mut seen = powers(&[
            (Quantity::PerMbit(Direction::Up), 0.1),
            (Quantity::PerMbit(Direction::Down), 0.1),
            (Quantity::Demotion(3), 0.0),
        ]);
        for ((_, finding), error) in seen.findings.iter_mut().zip([0.16, 0.02, 0.02]) {
            let Finding::Determined(fitted) = finding else { unreachable!() };
            *fitted = FittedValue::new(fitted.unbounded, error);
        }
        seen.findings
            .push((Quantity::State(0), Finding::Indistinguishable(vec![Quantity::State(1)])));
        seen.findings.push((Quantity::State(1), Finding::Unobserved));
        let MeasuredProfile { profile: after, rest_of_device: rest, .. } =
            before.clone().with_powers(&seen, "a monitor");
        assert_eq!((rest, &after.states), (None, &before.states));
        assert_eq!(after.transfer.send_per_mbit, before.transfer.send_per_mbit);
        assert_eq!(after.transfer.receive_per_mbit, Energy::joules(0.1));
    }

    #[test]
    fn drx_keeps_its_ratio_of_powers() {
        let before = profile("lte");
        let mean = before.states[2].mean_power().as_watts();
        assert!((mean - (1.06 * 38.0 + 1.68 * 2.0) / 40.0).abs() < 1e-12);
        let told = [(Quantity::State(2), 2.0 * mean), (Quantity::State(3), 0.0)];
        let mut seen = powers(&told);
        seen.findings.iter_mut().for_each(|(_, finding)| {
            let Finding::Determined(fitted) = finding else { unreachable!() };
            *fitted = FittedValue::new(fitted.unbounded, 0.001);
        });
        let MeasuredProfile { profile: after, rest_of_device: rest, .. } =
            before.clone().with_powers(&seen, "a monitor");
        assert_eq!(rest, Some(0.0));
        assert!((after.states[2].power.as_watts() - 2.12).abs() < 1e-9);
        assert!((after.states[2].drx.unwrap().power.as_watts() - 3.36).abs() < 1e-9);
        assert_eq!(after.states[3].mean_power(), Power::watts(0.0));
        let never_asleep = powers(&[(Quantity::State(2), 2.0)]);
        assert_eq!(before.with_powers(&never_asleep, "a monitor").rest_of_device, None);
    }

    /// The profile's own power in this trace is that of whole cycles in the profile.
    #[test]
    fn what_incomplete_cycles_add_is_not_adopted() {
        let before = profile("lte");
        let idle = Quantity::State(3);
        let mut seen = powers(&[(idle, before.quantity_value(idle) + 0.0006)]);
        let Finding::Determined(fitted) = &mut seen.findings[0].1 else { unreachable!() };
        (fitted.cycle_excess, fitted.whole_cycles_error) = (0.0006, 0.0001);
        assert!((before.value_in_trace(&seen, idle) - fitted_value(&seen)).abs() < 1e-12);
        let MeasuredProfile { profile: after, rest_of_device: rest, .. } =
            before.clone().with_powers(&seen, "a monitor");
        assert!(rest.unwrap() < 1e-9, "{rest:?}");
        let mean = after.states[3].mean_power().as_watts();
        assert!((mean - before.states[3].mean_power().as_watts()).abs() < 1e-6, "{mean}");
    }

    fn fitted_value(powers: &Powers) -> f64 {
        powers.determined(powers.findings[0].0).unwrap().value
    }

    #[test]
    fn a_negative_number_is_zero_and_named() {
        let told = [
            (Quantity::PerMbit(Direction::Up), -0.2),
            (Quantity::Transfer(Direction::Up), 0.5),
            (Quantity::Transfer(Direction::Down), 2.0),
            (Quantity::State(3), 0.8),
        ];
        let after = profile("lte").with_powers(&powers(&told), "a monitor");
        let negative = [Quantity::PerMbit(Direction::Up), Quantity::Transfer(Direction::Up)];
        assert_eq!(after.negative, negative, "less than the rest of the device");
        assert_eq!(after.profile.transfer.send_per_mbit, Energy::ZERO);
        assert_eq!(after.profile.transfer.send, Power::watts(0.0));
    }
}
