//! A profile with the numbers that were found by measuring, and the rest of its own.

use manyways_unit::Span;

use super::powers::{Fitted, Powers};
use super::profile::{LONGEST, State};
use super::{Energy, Power, Profile};

/// There are more timers than states that have one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{found} timers were found, but the profile's radio has {known}")]
pub struct TooManyTimers {
    /// How many were found.
    pub found: usize,
    /// States that have one.
    pub known: usize,
}

impl Profile {
    /// The same radio with timers by when they end: seconds of silence, in order. Each takes the place of
    /// that which ends nearest to it, and no two of the same one; the others last as long as they did.
    /// `source` is theirs then.
    ///
    /// # Errors
    /// Where there are more than it has.
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
            // Those that follow need one each.
            let last = known - (ends.len() - number);
            let far = |place: &usize| (own[*place] - end).abs();
            let nearest = (next..=last).min_by(|one, other| far(one).total_cmp(&far(other)));
            let place = nearest.unwrap_or(last);
            let before: f64 = self.states[..place].iter().map(seconds).sum();
            set_timer(&mut self.states[place], end - before, source);
            next = place + 1;
        }
        Ok(self)
    }

    /// The same radio with powers that were fitted, as far as they were. What the monitor saw in the last
    /// state above what the profile says of it is taken for the rest of the device, and out of all of them:
    /// so much is given beside, in watts; none where that state was not seen, so that it is in all of them.
    /// What was found to be less than nothing is nothing.
    pub fn with_powers(mut self, powers: &Powers, source: &str) -> (Self, Option<f64>) {
        let last = self.states.last().zip(powers.states.last().copied().flatten());
        let known =
            last.map(|(state, fitted)| (fitted.value - state.mean_power().as_watts()).max(0.0));
        let rest = known.unwrap_or_default();
        let without = |fitted: Fitted| fine((fitted.value - rest).max(0.0));
        let mut found: Vec<String> = Vec::new();
        let mut note = |name: &str, fitted: Option<Fitted>, unit: &str| {
            let fitted = fitted?;
            found.push(format!("{name} ± {:.3} {unit}", fitted.error));
            Some(fitted)
        };
        let transfer = &mut self.transfer;
        let [send, receive] = powers.transfer;
        if let Some(fitted) = note("send", send, "W") {
            transfer.send = Power::watts(without(fitted));
        }
        if let Some(fitted) = note("receive", receive, "W") {
            transfer.receive = Power::watts(without(fitted));
        }
        let [send, receive] = powers.per_mbit;
        if let Some(fitted) = note("send-per-mbit", send, "J") {
            transfer.send_per_mbit = Energy::joules(fine(fitted.value.max(0.0)));
        }
        if let Some(fitted) = note("receive-per-mbit", receive, "J") {
            transfer.receive_per_mbit = Energy::joules(fine(fitted.value.max(0.0)));
        }
        transfer.source = sourced(&found, source, &transfer.source);
        let released = self.states.iter().position(|state| state.is_released);
        let first = released.map(|place| self.states[place].promotion.as_joules());
        let last = self.states.len().saturating_sub(1);
        for (place, state) in self.states.iter_mut().enumerate() {
            let mut found = Vec::new();
            if let Some(fitted) = powers.states.get(place).copied().flatten()
                && !(place == last && rest > 0.0)
            {
                state.set_mean_power(without(fitted));
                found.push(format!("power ± {:.3} W", fitted.error));
            }
            if let (Some(fitted), true) = (powers.promotion, state.is_released) {
                // Between several released states as they were to each other.
                let share = match first {
                    Some(first) if first > 0.0 => state.promotion.as_joules() / first,
                    _ => 1.0,
                };
                state.promotion = Energy::joules(fine(fitted.value.max(0.0) * share));
                found.push(format!("promotion ± {:.3} J", fitted.error));
            }
            if let (Some(fitted), true) = (powers.demotion, released == Some(place)) {
                state.demotion = Energy::joules(fine(fitted.value.max(0.0)));
                found.push(format!("demotion ± {:.3} J", fitted.error));
            }
            state.source = sourced(&found, source, &state.source);
        }
        (self, known)
    }
}

impl State {
    /// With what listening takes, over a cycle.
    pub fn mean_power(&self) -> Power {
        let watts = self.power.as_watts();
        let more = self.listens.map_or(0.0, |listens| {
            let share = listens.lasts.as_secs_f64() / listens.cycle.as_secs_f64();
            (listens.power.as_watts() - watts) * share
        });
        Power::watts(watts + more)
    }

    /// Listening and the rest stay to each other as they were.
    fn set_mean_power(&mut self, watts: f64) {
        let before = self.mean_power().as_watts();
        let scaled = |power: Power| match before > 0.0 {
            true => Power::watts(fine(power.as_watts() * watts / before)),
            false => Power::watts(watts),
        };
        self.power = scaled(self.power);
        if let Some(listens) = &mut self.listens {
            listens.power = scaled(listens.power);
        }
    }
}

/// To a millionth: what is finer was not measured.
fn fine(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

fn set_timer(state: &mut State, seconds: f64, source: &str) {
    state.timer = Some(Span::from_secs_f64(seconds.max(0.0)).min(LONGEST));
    state.source = sourced(&["timer".to_owned()], source, &state.source);
}

/// Where numbers are from of which some were found anew.
fn sourced(found: &[String], source: &str, before: &str) -> String {
    match found {
        [] => before.to_owned(),
        _ => format!("{}: {source}; before that: {before}", found.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::radio::{Choice, profiles};

    fn profile(name: &str) -> Profile {
        profiles::named(name).unwrap().unwrap()
    }

    fn timers(profile: &Profile) -> Vec<f64> {
        profile.states.iter().filter_map(|state| state.timer).map(Span::as_secs_f64).collect()
    }

    #[test]
    fn a_timer_takes_the_place_of_that_which_ends_nearest() {
        let lte = profile("lte").with_timers(&[11.576], "probes").unwrap();
        assert_eq!(timers(&lte), [0.1, 0.02, 11.456]);
        assert!((Choice::of(&lte).stay.released() - 11.576).abs() < 1e-9);
        assert!(lte.states[2].source.starts_with("timer: probes; before that: lte.conf"));
        assert!(!lte.states[0].source.contains("probes"));
        // Connected for 10 s, and inactive for as long as before.
        let nr = profile("5g-sa").with_timers(&[10.0], "probes").unwrap();
        assert_eq!(timers(&nr), [10.0, 4.8]);
        let hspa = |end| timers(&profile("att-hspa").with_timers(&[end], "probes").unwrap());
        assert_eq!((hspa(3.0), hspa(12.2)), (vec![3.0, 10.4], vec![6.2, 6.0]));
        // Both near the same one.
        let close = profile("lte").with_timers(&[9.0, 9.5], "probes").unwrap();
        assert_eq!(timers(&close), [0.1, 8.9, 0.5]);
        assert_eq!(profile("lte").with_timers(&[], "nothing").unwrap(), profile("lte"));
    }

    #[test]
    fn as_many_timers_as_there_are_states_are_theirs() {
        let hspa = profile("att-hspa").with_timers(&[5.0, 17.5], "probes").unwrap();
        assert_eq!(timers(&hspa), [5.0, 12.5]);
        let fault = profile("att-hspa").with_timers(&[1.0, 2.0, 3.0], "probes").unwrap_err();
        assert_eq!(fault, TooManyTimers { found: 3, known: 2 });
    }

    fn fitted(value: f64) -> Option<Fitted> {
        Some(Fitted { value, error: 0.01 })
    }

    fn powers(states: Vec<Option<Fitted>>) -> Powers {
        Powers {
            transfer: [fitted(2.5), None],
            per_mbit: [None, fitted(-0.1)],
            states,
            promotion: fitted(0.7),
            demotion: fitted(0.3),
            windows: 100,
            explained: 0.9,
        }
    }

    #[test]
    fn what_the_rest_of_the_device_takes_is_taken_out() {
        let before = profile("att-hspa");
        let states = vec![fitted(1.9), None, fitted(0.8)];
        let (after, rest) = before.clone().with_powers(&powers(states), "a monitor");
        assert_eq!(rest, Some(0.8));
        assert!((after.transfer.send.as_watts() - 1.7).abs() < 1e-12);
        assert_eq!(after.transfer.receive, before.transfer.receive);
        assert_eq!(after.transfer.receive_per_mbit, Energy::ZERO);
        assert!((after.states[0].power.as_watts() - 1.1).abs() < 1e-12);
        assert_eq!(after.states[1], before.states[1], "nothing was found of it");
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
    fn a_state_that_listens_goes_on_to() {
        let before = profile("lte");
        let mean = before.states[2].mean_power().as_watts();
        assert!((mean - (1.06 * 38.0 + 1.68 * 2.0) / 40.0).abs() < 1e-12);
        let states = vec![None, None, fitted(2.0 * mean), fitted(0.0)];
        let (after, rest) = before.clone().with_powers(&powers(states), "a monitor");
        assert_eq!(rest, Some(0.0));
        assert!((after.states[2].power.as_watts() - 2.12).abs() < 1e-9);
        assert!((after.states[2].listens.unwrap().power.as_watts() - 3.36).abs() < 1e-9);
        assert_eq!(after.states[3].mean_power(), Power::watts(0.0));
        let never_asleep = powers(vec![None, None, fitted(2.0), None]);
        assert_eq!(before.with_powers(&never_asleep, "a monitor").1, None);
    }
}
