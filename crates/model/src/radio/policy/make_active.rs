//! MakeActive: delays sessions while the radio is idle, so that several of them share one
//! promotion.

use std::collections::VecDeque;

use manyways_unit::{Span, Time};

use super::Policy;
use crate::radio::Packet;

/// How long sessions are delayed.
pub trait DelayPolicy {
    /// A delay-tolerant session begins.
    fn on_session(&mut self, now: Time);
    /// Returns the delay of this session.
    fn session_delay(&mut self, now: Time) -> Span;
}

/// Goes idle by one policy and delays sessions by another.
#[derive(Clone, Debug)]
pub struct CombinedPolicy<P, H> {
    pub idle: P,
    pub delay: H,
}

impl<P: Policy, H: DelayPolicy> Policy for CombinedPolicy<P, H> {
    fn observe(&mut self, packet: &Packet, gap: Option<Span>) -> Span {
        self.idle.observe(packet, gap)
    }

    fn delays_sessions(&self) -> bool {
        true
    }

    fn on_session(&mut self, now: Time) {
        self.delay.on_session(now);
    }

    fn session_delay(&mut self, now: Time) -> Span {
        self.delay.session_delay(now)
    }
}

/// A constant delay: the fixed bound of Deng's thesis (§4.5.1), which is k·(t1 + t2) with k the
/// mean number of bursts from one release to the next.
impl DelayPolicy for Span {
    fn on_session(&mut self, _: Time) {}

    fn session_delay(&mut self, _: Time) -> Self {
        *self
    }
}

/// Learns the delay of sessions (Deng's thesis, §4.5.2 and appendix A: a bank of experts with
/// Learn-α, after C. Monteleoni and T. Jaakkola, NIPS 2003).
///
/// Each of `n` experts proposes a delay, T_i = 1…n seconds; the prediction is their weighted mean.
/// A round starts with a session at t_1 that finds the radio released. At t_1 + n the result of
/// each expert is known: b_i sessions began from t_1 to t_1 + T_i, Delay_i is the sum of their
/// waits until t_1 + T_i, and the loss is γ·Delay_i + 1/b_i. The loss is applied before the next
/// prediction. The rate at which weight moves between experts is learned as well: each of `m`
/// values of α has its own weights, and a weight by its own predictions. The thesis does not give a
/// grid of α; ours is log-spaced from 0.001 to 0.5.
#[derive(Clone, Debug)]
pub struct LearnedDelay {
    gamma: f64,
    /// The weights of each α and of its experts.
    alphas: Vec<Bank>,
    /// Unfinished rounds: start and sessions since, in seconds.
    rounds: VecDeque<(f64, Vec<f64>)>,
}

#[derive(Clone, Debug)]
struct Bank {
    alpha: f64,
    weight: f64,
    experts: Vec<f64>,
}

/// Number of values of α.
const ALPHAS: usize = 10;
const MIN_ALPHA: f64 = 0.001;
const MAX_ALPHA: f64 = 0.5;
/// Maximum number of stored sessions of a round; more would hardly change the losses.
const MAX_SESSIONS: usize = 10_000;

impl LearnedDelay {
    /// Creates `n` experts, at least one; the thesis uses γ = 0.008.
    pub fn new(n: usize, gamma: f64) -> Self {
        let n = n.max(1);
        let ratio = MAX_ALPHA / MIN_ALPHA;
        let alpha = |place: usize| MIN_ALPHA * ratio.powf(place as f64 / (ALPHAS - 1) as f64);
        let bank = |index| Bank {
            alpha: alpha(index),
            weight: 1.0 / ALPHAS as f64,
            experts: vec![1.0 / n as f64; n],
        };
        Self { gamma, alphas: (0..ALPHAS).map(bank).collect(), rounds: VecDeque::new() }
    }

    fn experts(&self) -> usize {
        self.alphas[0].experts.len()
    }

    /// Equation A.1.
    fn prediction(&self) -> f64 {
        let of = |bank: &Bank| -> f64 {
            let delays = (1..).map(f64::from);
            bank.experts.iter().zip(delays).map(|(weight, delay)| weight * delay).sum()
        };
        self.alphas.iter().map(|bank| bank.weight * of(bank)).sum()
    }

    /// Applies the losses of all rounds that ended before `now`.
    fn apply_losses(&mut self, now: f64) {
        while let Some((begin, _)) = self.rounds.front()
            && begin + (self.experts() as f64) < now
            && let Some((begin, sessions)) = self.rounds.pop_front()
        {
            self.update_weights(begin, &sessions);
        }
    }

    fn update_weights(&mut self, begin: f64, sessions: &[f64]) {
        let gamma = self.gamma;
        let losses: Vec<f64> = (1..=self.experts())
            .map(|delay| {
                let end = begin + delay as f64;
                let held = sessions.iter().filter(|session| **session <= end);
                let (count, waits) =
                    held.fold((0.0, 0.0), |(count, waits), at| (count + 1.0, waits + (end - at)));
                // At least the first session of the round counts.
                gamma * waits + 1.0 / f64::max(count, 1.0)
            })
            .collect();
        // A common offset does not change the weights, and its removal prevents an underflow of the
        // exponential.
        let min = losses.iter().copied().fold(f64::INFINITY, f64::min);
        let likely: Vec<f64> = losses.iter().map(|loss| (min - loss).exp()).collect();
        let mut all = 0.0;
        for bank in &mut self.alphas {
            // The old weights times exp(−loss) (A.3), applied to A.2…
            let posterior =
                bank.experts.iter().zip(&likely).map(|(weight, likely)| weight * likely);
            let posterior: Vec<f64> = posterior.collect();
            let sum: f64 = posterior.iter().sum();
            bank.weight *= sum;
            all += bank.weight;
            // …followed by the share of weight that this α moves.
            let others = (posterior.len() - 1).max(1) as f64;
            let moves = if posterior.len() > 1 { bank.alpha } else { 0.0 };
            for (expert, own) in bank.experts.iter_mut().zip(&posterior) {
                *expert = ((1.0 - moves) * own + moves / others * (sum - own)) / sum;
            }
        }
        for bank in &mut self.alphas {
            bank.weight /= all;
        }
    }
}

impl DelayPolicy for LearnedDelay {
    fn on_session(&mut self, now: Time) {
        let now = now.as_secs_f64();
        self.apply_losses(now);
        let n = self.experts() as f64;
        for (begin, sessions) in &mut self.rounds {
            if now <= *begin + n && sessions.len() < MAX_SESSIONS {
                sessions.push(now);
            }
        }
    }

    fn session_delay(&mut self, now: Time) -> Span {
        let now = now.as_secs_f64();
        self.apply_losses(now);
        // [`DelayPolicy::on_session`] was called for this session before its round existed.
        self.rounds.push_back((now, vec![now]));
        Span::from_secs_f64(self.prediction())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::radio::span;

    fn at(secs: f64) -> Time {
        Time::ZERO + span(secs)
    }

    #[test]
    fn the_first_prediction_is_the_middle() {
        assert!((LearnedDelay::new(10, 0.008).prediction() - 5.5).abs() < 1e-12);
        assert_eq!(LearnedDelay::new(1, 0.008).session_delay(Time::ZERO), span(1.0));
    }

    #[test]
    fn a_round_by_hand() {
        // Two experts, sessions at 0 and 1.5 s: the first expert has one session, the second has
        // both.
        let mut learn = LearnedDelay::new(2, 0.1);
        learn.on_session(at(0.0));
        assert_eq!(learn.session_delay(at(0.0)), span(1.5));
        learn.on_session(at(1.5));
        let loss = [0.1 * 1.0 + 1.0, 0.1 * (2.0 + 0.5) + 0.5];
        let likely = loss.map(|loss: f64| (-loss).exp());
        let sum = (likely[0] + likely[1]) / 2.0;
        learn.on_session(at(2.1));
        // All values of α start with equal weights and keep them; only their experts differ.
        for bank in &learn.alphas {
            assert!((bank.weight - 0.1).abs() < 1e-12);
            let own = likely.map(|likely| likely / 2.0 / sum);
            let first = (1.0 - bank.alpha) * own[0] + bank.alpha * own[1];
            assert!((bank.experts[0] - first).abs() < 1e-12);
            assert!((bank.experts.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        }
        assert!(learn.prediction() > 1.5);
    }

    #[test]
    fn unfinished_rounds_are_not_learned_from() {
        let mut learn = LearnedDelay::new(10, 0.008);
        learn.on_session(at(0.0));
        learn.session_delay(at(0.0));
        learn.on_session(at(9.9));
        assert_eq!(learn.rounds.len(), 1);
        assert!((learn.prediction() - 5.5).abs() < 1e-12);
        learn.on_session(at(10.1));
        assert!(learn.rounds.is_empty());
        assert!((learn.prediction() - 5.5).abs() > 1e-6);
    }

    #[test]
    fn learned_delays_follow_the_sessions() {
        let rounds = |others: &[f64], gamma: f64| {
            let mut learn = LearnedDelay::new(10, gamma);
            for round in 0..300 {
                let begin = f64::from(round) * 100.0;
                learn.on_session(at(begin));
                learn.session_delay(at(begin));
                others.iter().for_each(|later| learn.on_session(at(begin + later)));
            }
            learn.apply_losses(1e9);
            learn.prediction()
        };
        // No other session: each second of delay is a loss.
        assert!(rounds(&[], 0.1) < 2.0, "{}", rounds(&[], 0.1));
        // Four sessions follow within 4 s.
        let with = rounds(&[3.5, 3.6, 3.7, 3.8], 0.008);
        assert!((3.0..6.0).contains(&with), "{with}");
    }

    #[test]
    fn weights_stay_weights() {
        let mut learn = LearnedDelay::new(5, 0.008);
        for step in 0..5_000_u32 {
            let now = f64::from(step) * 0.7;
            learn.on_session(at(now));
            if step.is_multiple_of(3) {
                let held = learn.session_delay(at(now));
                assert!((span(1.0)..=span(5.0)).contains(&held), "{held}");
            }
        }
        let sum: f64 = learn.alphas.iter().map(|bank| bank.weight).sum();
        assert!((sum - 1.0).abs() < 1e-9);
    }
}
