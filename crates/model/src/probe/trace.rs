//! Where on a route delay and loss begin.
//!
//! Every hop answers for the route up to it and back, so what begins at a hop shows at all later
//! ones too. A router may also answer late or seldom because it is busy or limits its answers
//! (RFC 4443, 2.4f); that shows at this hop alone, and does not count.

use std::collections::BTreeMap;
use std::net::IpAddr;

use manyways_unit::{Span, Time};

/// Fewest additional milliseconds that count as a place where the delay begins.
const MIN_DELAY: Span = Span::from_millis(5);
/// Loss that every route has.
const BACKGROUND_LOSS: f64 = 0.001;
/// Log-likelihood by which a place of loss must be better than background loss alone.
const MIN_EVIDENCE: f64 = 3.0;
/// Log-likelihood by which a hop must differ from the later hops to count as one that limits its
/// answers.
const LIMITED_EVIDENCE: f64 = 5.0;

/// The answers of one hop, from TTL 1 on.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Hop {
    /// Different addresses that answered, in the order of their first answers.
    pub addresses: Vec<IpAddr>,
    /// Probes with the TTL of this hop.
    pub sent: u64,
    /// Round trips of the answers.
    pub round_trips: Vec<Span>,
}

/// The place where delay begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DelayOnset {
    /// TTL of the first hop with the delay.
    pub hop: usize,
    /// TTL of the last hop without it that answers; `None` for the start of the route.
    pub after: Option<usize>,
    /// Additional round trip.
    pub delay: Span,
}

/// The place where loss begins.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LossOnset {
    /// TTL of the first hop with the loss.
    pub hop: usize,
    /// TTL of the last hop without it that answers; `None` for the start of the route.
    pub after: Option<usize>,
    /// Share of the probes and answers that are lost from this hop on.
    pub loss: f64,
    /// Probability that the loss begins at this hop and at no other, if one place causes it.
    pub confidence: f64,
}

impl Hop {
    fn answered(&self) -> u64 {
        self.round_trips.len() as u64
    }

    fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.answered())
    }
}

/// The hops that answer, with their TTLs.
fn answering(hops: &[Hop]) -> Vec<(usize, &Hop)> {
    let numbered = hops.iter().enumerate().map(|(index, hop)| (index + 1, hop));
    numbered.filter(|(_, hop)| !hop.round_trips.is_empty()).collect()
}

/// The hop with the largest additional delay; `None` if none adds 5 ms.
///
/// The delay up to a hop is the least round trip of this hop and all later ones: queues and slow
/// answers only add to it.
pub fn delay_onset(hops: &[Hop]) -> Option<DelayOnset> {
    let answering = answering(hops);
    let mut least = Span::MAX;
    let mut delays: Vec<(usize, Span)> = answering
        .iter()
        .rev()
        .map(|(hop, answers)| {
            let own = answers.round_trips.iter().copied().min().unwrap_or(Span::MAX);
            least = least.min(own);
            (*hop, least)
        })
        .collect();
    delays.reverse();
    let mut before = (None, Span::ZERO);
    let mut best: Option<DelayOnset> = None;
    for (hop, delay) in delays {
        let added = delay.saturating_sub(before.1);
        if added >= best.map_or(MIN_DELAY, |best| best.delay + Span::from_nanos(1)) {
            best = Some(DelayOnset { hop, after: before.0, delay: added });
        }
        before = (Some(hop), delay);
    }
    best
}

/// The hop from which on probes are lost; `None` if the loss up to the last hop that answers is no
/// more than background loss.
///
/// Of all places, the one under which the numbers of lost probes are most likely, if hops before it
/// share one loss and hops from it on share another, greater one.
pub fn loss_onset(hops: &[Hop]) -> Option<LossOnset> {
    let hops = without_limited(answering(hops));
    let background: f64 = hops.iter().map(|(_, hop)| likelihood(hop, BACKGROUND_LOSS)).sum();
    let sent = hops.iter().map(|(_, hop)| hop.sent as f64).sum::<f64>().max(1.0);
    let places = (0..hops.len()).filter_map(|place| {
        let (before, from) = hops.split_at(place);
        let (low, high) = (pooled_loss(before).unwrap_or(BACKGROUND_LOSS), pooled_loss(from)?);
        let low = low.max(BACKGROUND_LOSS);
        let likelihoods = before.iter().map(|(_, hop)| likelihood(hop, low));
        let likelihoods = likelihoods.chain(from.iter().map(|(_, hop)| likelihood(hop, high)));
        // A second loss that is fitted to the probes too makes them more likely in any case: the
        // Bayesian information criterion.
        let fitted = if low > BACKGROUND_LOSS { sent.ln() / 2.0 } else { 0.0 };
        (high > low).then(|| (place, high, likelihoods.sum::<f64>() - fitted))
    });
    let places: Vec<(usize, f64, f64)> = places.collect();
    let (place, loss, most) = places.iter().copied().max_by(|a, b| a.2.total_cmp(&b.2))?;
    if most - background < MIN_EVIDENCE {
        return None;
    }
    let sum: f64 = places.iter().map(|(_, _, other)| (other - most).exp()).sum();
    let after = place.checked_sub(1).map(|before| hops[before].0);
    Some(LossOnset { hop: hops[place].0, after, loss, confidence: 1.0 / sum })
}

/// Leaves out the hops that lose far more than all later hops together: they limit their answers.
fn without_limited(hops: Vec<(usize, &Hop)>) -> Vec<(usize, &Hop)> {
    let is_limited = |place: usize| {
        let (hop, later) = (hops[place].1, &hops[place + 1..]);
        let (Some(own), Some(rest)) = (pooled_loss(&hops[place..=place]), pooled_loss(later))
        else {
            return false;
        };
        let rest = rest.max(BACKGROUND_LOSS);
        own > rest && likelihood(hop, own) - likelihood(hop, rest) > LIMITED_EVIDENCE
    };
    let places = (0..hops.len()).filter(|place| !is_limited(*place));
    places.map(|place| hops[place]).collect()
}

/// Share of lost probes over these hops; `None` without a probe.
fn pooled_loss(hops: &[(usize, &Hop)]) -> Option<f64> {
    let sent: u64 = hops.iter().map(|(_, hop)| hop.sent.max(hop.answered())).sum();
    let lost: u64 = hops.iter().map(|(_, hop)| hop.lost()).sum();
    (sent > 0).then(|| lost as f64 / sent as f64)
}

/// Logarithm of the likelihood of the lost probes of a hop, without the binomial coefficient.
fn likelihood(hop: &Hop, loss: f64) -> f64 {
    let term = |count: u64, share: f64| match count {
        0 => 0.0,
        _ => count as f64 * share.ln(),
    };
    term(hop.lost(), loss) + term(hop.answered(), 1.0 - loss)
}

/// When the probes of a route are sent, and to which hop.
///
/// A round sends one probe to each hop, one after the other. The first round ends at the hop that
/// is the target; without an answer of the target, after [`MAX_SILENT`] hops without any answer.
#[derive(Clone, Debug)]
pub struct TraceSchedule {
    config: TraceConfig,
    hops: Vec<Hop>,
    /// TTL of the target; `None` until it has answered.
    target: Option<usize>,
    /// Probes without an answer so far, by their numbers.
    pending: BTreeMap<u64, Pending>,
    sent: u64,
    rounds: u64,
    /// TTL of the next probe.
    next_ttl: usize,
    next_send: Time,
}

/// Parameters of a [`TraceSchedule`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceConfig {
    pub rounds: u64,
    /// Maximum TTL.
    pub max_hops: usize,
    /// From one probe to the next.
    pub interval: Span,
    /// An answer after this time is a lost one.
    pub timeout: Span,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    ttl: usize,
    sent: Time,
}

/// Consecutive hops without an answer at which the first round ends.
pub const MAX_SILENT: usize = 8;

/// The next action of a [`TraceSchedule`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NextProbe {
    /// Send a probe with this TTL.
    Send { ttl: usize },
    /// Wait for answers until this time.
    Wait(Time),
    /// All probes are sent, and no further answer counts.
    Done,
}

impl TraceSchedule {
    pub fn new(config: TraceConfig) -> Self {
        Self {
            config,
            hops: Vec::new(),
            target: None,
            pending: BTreeMap::new(),
            sent: 0,
            rounds: 0,
            next_ttl: 1,
            next_send: Time::ZERO,
        }
    }

    pub fn next(&mut self, now: Time) -> NextProbe {
        self.pending.retain(|_, probe| probe.sent + self.config.timeout > now);
        if self.next_ttl > self.last_hop() && self.is_round_over() {
            self.rounds += 1;
            self.next_ttl = 1;
        }
        let is_all = self.rounds >= self.config.rounds;
        if !is_all && self.next_ttl <= self.last_hop() {
            return match now >= self.next_send {
                true => NextProbe::Send { ttl: self.next_ttl },
                false => NextProbe::Wait(self.next_send),
            };
        }
        let oldest = self.pending.values().map(|probe| probe.sent + self.config.timeout).min();
        oldest.map_or(NextProbe::Done, NextProbe::Wait)
    }

    /// The last hop of this round.
    fn last_hop(&self) -> usize {
        if let Some(target) = self.target {
            return target;
        }
        let answered = self.hops.iter().rposition(|hop| !hop.round_trips.is_empty());
        let silent_end = answered.map_or(0, |index| index + 1) + MAX_SILENT;
        self.config.max_hops.min(silent_end)
    }

    /// The first round ends when the answers of its last hops can have no more influence on its
    /// length. Later rounds follow each other.
    fn is_round_over(&self) -> bool {
        self.rounds > 0 || self.target.is_some() || self.pending.is_empty()
    }

    /// Notes a probe that is sent, and returns its number.
    pub fn send(&mut self, now: Time) -> u64 {
        let (ttl, number) = (self.next_ttl, self.sent);
        if self.hops.len() < ttl {
            self.hops.resize_with(ttl, Hop::default);
        }
        if let Some(hop) = self.hops.get_mut(ttl - 1) {
            hop.sent += 1;
        }
        self.pending.insert(number, Pending { ttl, sent: now });
        self.sent += 1;
        self.next_ttl += 1;
        let planned = if number == 0 { now } else { self.next_send };
        self.next_send = (planned + self.config.interval).max(now);
        number
    }

    /// Notes the answer to a probe, unless it is too late or not the first one. `is_target`: the
    /// target itself answered.
    pub fn receive(&mut self, now: Time, number: u64, from: IpAddr, is_target: bool) {
        let Some(probe) = self.pending.remove(&number) else { return };
        let Some(hop) = self.hops.get_mut(probe.ttl - 1) else { return };
        hop.round_trips.push(now.since(probe.sent));
        if !hop.addresses.contains(&from) {
            hop.addresses.push(from);
        }
        if is_target && self.target.is_none_or(|known| probe.ttl < known) {
            self.target = Some(probe.ttl);
            // Probes beyond the target reach the target too, and do not count.
            self.hops.truncate(probe.ttl);
            self.pending.retain(|_, pending| pending.ttl <= probe.ttl);
        }
    }

    /// The number of the latest probe with these low 16 bits that waits for an answer.
    pub fn whole_number(&self, low: u16) -> Option<u64> {
        self.pending.keys().rev().copied().find(|number| *number as u16 == low)
    }

    /// The hops from TTL 1 on, up to the target if it has answered.
    pub fn hops(&self) -> &[Hop] {
        &self.hops
    }

    /// Whether the target has answered.
    pub fn is_reached(&self) -> bool {
        self.target.is_some()
    }
}

#[cfg(test)]
mod tests {
    use manyways_unit::Random;
    use proptest::prelude::*;

    use super::*;

    /// Hops with these round trips in milliseconds.
    fn delays(hops: &[&[u64]]) -> Vec<Hop> {
        let hop = |millis: &&[u64]| Hop {
            addresses: Vec::new(),
            sent: millis.len().max(3) as u64,
            round_trips: millis.iter().map(|millis| Span::from_millis(*millis)).collect(),
        };
        hops.iter().map(hop).collect()
    }

    /// Six hops with 100 probes each, of which these are lost.
    fn losses(lost: &[u64]) -> Vec<Hop> {
        let hop = |lost: &u64| Hop {
            addresses: Vec::new(),
            sent: 100,
            round_trips: vec![Span::from_millis(10); (100 - lost) as usize],
        };
        lost.iter().map(hop).collect()
    }

    #[test]
    fn delay_begins_where_it_stays() {
        // The second router answers slowly, but hands on quickly.
        let hops = delays(&[&[1, 2], &[90, 95], &[2, 3], &[43, 80], &[44, 44], &[45, 46]]);
        let onset = delay_onset(&hops).unwrap();
        assert_eq!((onset.hop, onset.after), (4, Some(3)));
        assert_eq!(onset.delay, Span::from_millis(41));
        // A silent router leaves two links where it may begin.
        let hops = delays(&[&[1], &[2], &[], &[42], &[43]]);
        let onset = delay_onset(&hops).unwrap();
        assert_eq!((onset.hop, onset.after), (4, Some(2)));
        // The access link itself.
        let onset = delay_onset(&delays(&[&[60], &[61], &[65]])).unwrap();
        assert_eq!((onset.hop, onset.after), (1, None));
        assert_eq!(delay_onset(&delays(&[&[1], &[2], &[4]])), None);
        assert_eq!(delay_onset(&[]), None);
    }

    #[test]
    fn loss_begins_where_it_stays() {
        let onset = loss_onset(&losses(&[0, 0, 4, 3, 2, 3])).unwrap();
        assert_eq!((onset.hop, onset.after), (3, Some(2)));
        assert!((onset.loss - 0.03).abs() < 1e-9 && onset.confidence > 0.9, "{onset:?}");
        // The second router limits its answers.
        let onset = loss_onset(&losses(&[0, 60, 0, 3, 4, 3])).unwrap();
        assert_eq!((onset.hop, onset.after), (4, Some(3)));
        assert_eq!(loss_onset(&losses(&[0, 60, 0, 0, 0, 0])), None);
        assert_eq!(loss_onset(&losses(&[0, 0, 1, 0, 0, 0])), None);
        // From the first hop on.
        let onset = loss_onset(&losses(&[11, 9, 10, 8, 12, 10])).unwrap();
        assert_eq!((onset.hop, onset.after), (1, None));
        assert_eq!(loss_onset(&[]), None);
    }

    #[test]
    fn three_percent_from_a_random_hop_on_are_placed_right() {
        let mut random = Random::new(3);
        let mut right = 0;
        for _ in 0..500 {
            let place = random.up_to(5) as usize;
            let lost = |hop: usize, random: &mut Random| {
                let loss = if hop >= place { 0.03 } else { 0.0 };
                (0..200).filter(|_| random.chance(loss)).count()
            };
            let hops: Vec<Hop> = (0..6)
                .map(|hop| Hop {
                    addresses: Vec::new(),
                    sent: 200,
                    round_trips: vec![Span::from_millis(9); 200 - lost(hop, &mut random)],
                })
                .collect();
            right += usize::from(loss_onset(&hops).is_some_and(|onset| onset.hop == place + 1));
        }
        assert!(right >= 475, "{right} of 500");
    }

    proptest! {
        #[test]
        fn an_onset_is_a_hop_that_answers(
            hops in proptest::collection::vec(
                (0_u64..50, proptest::collection::vec(0_u64..1_000, 0..20)), 0..20),
        ) {
            let hops: Vec<Hop> = hops
                .into_iter()
                .map(|(sent, millis)| Hop {
                    addresses: Vec::new(),
                    sent,
                    round_trips: millis.into_iter().map(Span::from_millis).collect(),
                })
                .collect();
            let answers = |hop: usize| !hops[hop - 1].round_trips.is_empty();
            if let Some(onset) = delay_onset(&hops) {
                prop_assert!(answers(onset.hop) && onset.after.is_none_or(answers));
                prop_assert!(onset.after < Some(onset.hop));
            }
            if let Some(onset) = loss_onset(&hops) {
                prop_assert!(answers(onset.hop) && onset.after.is_none_or(answers));
                prop_assert!(onset.loss > 0.0 && onset.loss <= 1.0);
                prop_assert!(onset.confidence > 0.0 && onset.confidence <= 1.0);
            }
        }
    }

    const CONFIG: TraceConfig = TraceConfig {
        rounds: 3,
        max_hops: 30,
        interval: Span::from_millis(10),
        timeout: Span::from_secs(1),
    };

    fn router(ttl: usize) -> IpAddr {
        IpAddr::from([10, 0, ttl as u8, 1])
    }

    /// Runs a schedule on a route whose hops answer after `ttl` × 4 ms. `answers` decides whether one
    /// does.
    fn trace(config: TraceConfig, length: usize, answers: impl Fn(usize) -> bool) -> TraceSchedule {
        let mut schedule = TraceSchedule::new(config);
        let mut now = Time::from_millis(1_000);
        let mut due: BTreeMap<(Time, u64), usize> = BTreeMap::new();
        loop {
            let until = match schedule.next(now) {
                NextProbe::Done => return schedule,
                NextProbe::Send { ttl } => {
                    let number = schedule.send(now);
                    let hop = ttl.min(length);
                    if answers(hop) {
                        due.insert((now + Span::from_millis(4) * hop as u64, number), hop);
                    }
                    continue;
                }
                NextProbe::Wait(until) => until,
            };
            match due.first_key_value().map(|(key, hop)| (*key, *hop)) {
                Some(((at, number), hop)) if at <= until => {
                    now = at;
                    due.remove(&(at, number));
                    schedule.receive(now, number, router(hop), hop == length);
                }
                _ => now = until,
            }
        }
    }

    #[test]
    fn every_round_probes_each_hop_up_to_the_target() {
        let schedule = trace(CONFIG, 5, |_| true);
        assert!(schedule.is_reached());
        let hops = schedule.hops();
        assert_eq!(hops.len(), 5);
        for (index, hop) in hops.iter().enumerate() {
            assert_eq!(hop.addresses, [router(index + 1)]);
            let millis: Vec<Span> = vec![Span::from_millis(4 * (index as u64 + 1)); 3];
            assert_eq!((hop.sent, &hop.round_trips), (3, &millis), "{index}");
        }
    }

    #[test]
    fn a_silent_router_does_not_end_the_route() {
        let schedule = trace(CONFIG, 6, |hop| hop != 3);
        let hops = schedule.hops();
        assert_eq!((hops.len(), hops[2].sent, hops[2].round_trips.len()), (6, 3, 0));
    }

    #[test]
    fn a_target_that_never_answers_ends_after_silent_hops() {
        let schedule = trace(CONFIG, 4, |hop| hop < 4);
        assert!(!schedule.is_reached());
        assert_eq!(schedule.hops().len(), 3 + MAX_SILENT);
        let none = trace(TraceConfig { max_hops: 5, ..CONFIG }, 4, |_| false);
        assert_eq!(none.hops().len(), 5);
        assert_eq!(none.hops()[0].sent, 3);
    }

    #[test]
    fn an_answer_after_the_timeout_or_a_second_one_does_not_count() {
        let mut schedule = TraceSchedule::new(CONFIG);
        let start = Time::from_millis(1_000);
        assert_eq!(schedule.next(start), NextProbe::Send { ttl: 1 });
        let number = schedule.send(start);
        assert_eq!(schedule.whole_number(number as u16), Some(number));
        schedule.receive(start + Span::from_millis(5), number, router(1), false);
        schedule.receive(start + Span::from_millis(6), number, router(1), false);
        assert_eq!(schedule.hops()[0].round_trips.len(), 1);
        let number = schedule.send(start);
        let late = start + Span::from_secs(2);
        schedule.next(late);
        schedule.receive(late, number, router(2), false);
        assert!(schedule.hops()[1].round_trips.is_empty());
    }

    proptest! {
        /// Every trace ends within the time that its plan has, with any answers.
        #[test]
        fn every_trace_ends(
            rounds in 1_u64..6, max_hops in 1_usize..20, length in 1_usize..20,
            silent in proptest::collection::vec(any::<bool>(), 20),
        ) {
            let config = TraceConfig { rounds, max_hops, ..CONFIG };
            let schedule = trace(config, length, |hop| !silent[hop - 1]);
            let hops = schedule.hops();
            prop_assert!(hops.len() <= max_hops);
            prop_assert!(hops.iter().all(|hop| hop.sent <= rounds));
            prop_assert!(hops.iter().all(|hop| hop.round_trips.len() as u64 <= hop.sent));
            prop_assert_eq!(schedule.is_reached(), length <= hops.len() && !silent[length - 1]);
        }
    }
}
