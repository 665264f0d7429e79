//! Energy of a trace if an application sent at other times.

use manyways_unit::{Span, Time};

use super::change::{Change, ChangeEffect, TraceEditor};
use super::meter::Meter;
use super::policy::{CombinedPolicy, NEVER, StatusQuo};
use super::simulate::{Decider, Simulation};
use super::{BURST_GAP, Packet, Profile, TailEnergy};

/// Another traffic pattern of an application.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Alternative {
    Change(Change),
    /// Delays sessions by at most this time, until other traffic causes a promotion.
    Shift(Span),
}

/// Result of an alternative.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Effect {
    pub joules: f64,
    pub switches: u64,
    pub moved: ChangeEffect,
}

/// Energy of a trace under the network's timers.
#[derive(Clone, Debug)]
pub struct Sum {
    meter: Meter,
    /// Times of the first and the last packet.
    times: Option<(Time, Time)>,
}

impl Alternative {
    /// The time by which sessions move at most, if it is limited.
    pub fn span(&self) -> Option<Span> {
        match self {
            Self::Change(Change::Batch(span) | Change::Prefetch(span)) | Self::Shift(span) => {
                Some(*span)
            }
            Self::Change(Change::Drop) => None,
        }
    }

    /// Direction of the shifts: `later`, `sooner`, or empty for removed sessions.
    pub fn direction(&self) -> &'static str {
        match self {
            Self::Change(Change::Prefetch(_)) => "sooner",
            Self::Change(Change::Drop) => "",
            _ => "later",
        }
    }

    /// Computes the effect. `chosen` selects the packets of the application, and `read` passes all
    /// packets of the trace to its argument. The energy is that from `first` to `until`, the first
    /// packet and the [`end`](Sum::end) of the unchanged trace.
    ///
    /// # Errors
    /// Returns the error of `read`.
    pub fn effect<E>(
        &self,
        profile: &Profile,
        chosen: &dyn Fn(&Packet) -> bool,
        (first, until): (Time, Time),
        read: impl FnOnce(&mut dyn FnMut(&Packet)) -> Result<(), E>,
    ) -> Result<Effect, E> {
        let change = match self {
            Self::Change(change) => *change,
            Self::Shift(hold) => return simulate_delay(profile, *hold, chosen, read),
        };
        let mut sum = Sum::new(profile);
        let mut changed = TraceEditor::new(change);
        read(&mut |packet| changed.push(*packet, chosen(packet), |packet| sum.push(&packet)))?;
        changed.finish(|packet| sum.push(&packet));
        let released = TailEnergy::from_state(profile, profile.states.len() - 1);
        let idle = |until: Time| released.energy(until.since(first));
        let switches = sum.switches();
        let joules = match sum.times {
            // The remaining packets may start later; before them the radio is released.
            Some((begins, _)) => idle(begins) + sum.joules(until),
            None => idle(until),
        };
        Ok(Effect { joules, switches, moved: changed.effect() })
    }
}

/// As MakeActive does with a constant delay.
fn simulate_delay<E>(
    profile: &Profile,
    hold: Span,
    chosen: &dyn Fn(&Packet) -> bool,
    read: impl FnOnce(&mut dyn FnMut(&Packet)) -> Result<(), E>,
) -> Result<Effect, E> {
    let mut policy = CombinedPolicy { idle: StatusQuo, delay: hold };
    let run = Simulation::new(profile, Decider::Policy(&mut policy), chosen);
    let mut run = run.with_session_timeout(BURST_GAP);
    read(&mut |packet| run.push(*packet))?;
    let outcome = run.finish();
    let delays = &outcome.delays;
    let moved = ChangeEffect {
        sessions: delays.count,
        changed: delays.delayed,
        shift: delays.sum,
        max_shift: delays.quantile(1.0).unwrap_or_default(),
    };
    Ok(Effect { joules: outcome.account.total(), switches: outcome.account.promotion_count, moved })
}

impl Sum {
    pub fn new(profile: &Profile) -> Self {
        Self { meter: Meter::new(profile), times: None }
    }

    pub fn push(&mut self, packet: &Packet) {
        match self.times {
            None => self.meter.push_first(packet),
            Some((_, last)) => {
                self.meter.push(packet, packet.at.since(last), NEVER);
            }
        }
        let (first, last) = self.times.unwrap_or((packet.at, packet.at));
        self.times = Some((first, last.max(packet.at)));
    }

    /// Promotions from idle.
    pub fn switches(&self) -> u64 {
        self.meter.account().promotion_count
    }

    /// Time of the release after the last packet; the last packet if the network never releases.
    pub fn end(&self) -> Time {
        let released = self.meter.tradeoff().stay.idle_after();
        let tail = if released < NEVER { released } else { Span::ZERO };
        self.times.map_or(Time::ZERO, |(_, last)| last) + tail
    }

    /// Ends the trace: joules until the release of the radio, and at least until `until`.
    pub fn joules(mut self, until: Time) -> f64 {
        let Some((_, last)) = self.times else { return 0.0 };
        let stay = &self.meter.tradeoff().stay;
        // If the last packet is earlier, the radio is released for longer.
        let gap = until.since(last);
        let idle = match gap > stay.idle_after() {
            true => (stay.energy(gap) - stay.energy_until_idle()).max(0.0),
            false => 0.0,
        };
        self.meter.finish(NEVER);
        self.meter.account().total() + idle
    }
}

#[cfg(test)]
mod tests {
    use crate::radio::span;
    use std::convert::Infallible;

    use super::*;
    use crate::radio::{profiles, workload};

    /// Heartbeats every 30 s for an hour, their energy, and that of an alternative.
    fn effects(alternative: Alternative) -> (f64, Effect) {
        let profile = profiles::named("lte").unwrap().unwrap();
        let beats = workload::heartbeats(Span::from_secs(30), 100, Span::from_secs(3_600));
        let packets: Vec<Packet> = beats.collect();
        let mut sum = Sum::new(&profile);
        packets.iter().for_each(|packet| sum.push(packet));
        let until = sum.end();
        let read = |each: &mut dyn FnMut(&Packet)| {
            packets.iter().for_each(each);
            Ok::<(), Infallible>(())
        };
        let effect = alternative.effect(&profile, &|_| true, (packets[0].at, until), read).unwrap();
        (sum.joules(until), effect)
    }

    #[test]
    fn batches_save_promotions_and_tails() {
        let (before, effect) = effects(Alternative::Change(Change::Batch(Span::from_secs(300))));
        assert!(effect.joules < 0.25 * before, "{before} {effect:?}");
        assert!((12..=14).contains(&effect.switches), "{effect:?}");
        assert!(effect.moved.max_shift <= span(300.0));
    }

    #[test]
    fn without_traffic_the_radio_is_released_throughout() {
        let (before, effect) = effects(Alternative::Change(Change::Drop));
        let profile = profiles::named("lte").unwrap().unwrap();
        let released = profile.states.last().unwrap().mean_power().as_watts();
        assert_eq!(effect.switches, 0);
        assert!(effect.joules < before && effect.joules > 3_500.0 * released, "{effect:?}");
    }

    #[test]
    fn a_lone_application_is_delayed_by_the_whole_time() {
        let alternative = Alternative::Shift(Span::from_secs(5));
        let (before, effect) = effects(alternative);
        assert_eq!(effect.moved.changed, effect.moved.sessions);
        assert_eq!(effect.moved.max_shift, span(5.0), "{effect:?}");
        assert!((effect.joules / before - 1.0).abs() < 0.01, "{before} {effect:?}");
        assert_eq!(
            (alternative.direction(), alternative.span()),
            ("later", Some(Span::from_secs(5)))
        );
    }
}
