//! Our policy: the wait that was best after similar packets.

use std::collections::HashMap;

use manyways_unit::Span;

use super::{NEVER, Policy};
use crate::radio::{Direction, Packet, SleepTradeoff};

/// Chooses the wait with the least energy after packets similar to the last one.
///
/// MakeIdle uses the last 100 gaps after any packet; within a transfer these are all short. But a
/// packet predicts the next gap: an answer follows a request soon, and a long gap follows the
/// answer to a heartbeat. So gaps are grouped by the packet before them, in four levels: all
/// packets; the application; also direction and size; also the previous gap. Each group has a
/// histogram with exponential forgetting. The distribution after a packet is that of its narrowest
/// group plus four gaps of the next wider one, recursively (the shrinkage of back-off language
/// models). The wait minimises MakeIdle's C(w) over this distribution, at the edges of the
/// histogram.
#[derive(Clone, Debug)]
pub struct ContextPolicy {
    tradeoff: SleepTradeoff,
    switch_energy: f64,
    /// Upper edges of all bins but the last, in seconds; the last edge is the end of the tail.
    edges: Vec<f64>,
    /// Joules of a wait until each edge.
    wait_costs: Vec<f64>,
    groups: HashMap<Group, GroupHistogram>,
    /// Groups of the last packet, the widest first.
    last_groups: Option<[Group; LEVELS]>,
    /// Reused buffers of a decision.
    counts: Vec<f64>,
    stay_costs: Vec<f64>,
}

const LEVELS: usize = 4;
/// Bins from [`MIN_GAP`] on; the last bin contains gaps longer than the tail.
const BINS: usize = 40;
const MIN_GAP: f64 = 2e-3;
/// Weight of the wider group, in gaps of the narrower one.
const PRIOR_WEIGHT: f64 = 4.0;
/// Weight of a gap relative to its successor in the same group.
const WEIGHT_DECAY: f64 = 0.998;
/// Minimum weight of all gaps; with less, the release is left to the network.
const MIN_WEIGHT: f64 = 20.0;
/// Maximum number of groups; then all but the widest are cleared.
const MAX_GROUPS: usize = 8_192;

/// Level, application, and the other properties as bits.
type Group = (u8, u16, u16);

#[derive(Clone, Debug)]
struct GroupHistogram {
    /// Weight of the next gap. It grows instead of decreasing all others.
    next_weight: f64,
    total: f64,
    counts: [f32; BINS],
    stay_costs: [f32; BINS],
}

impl ContextPolicy {
    pub fn new(tradeoff: SleepTradeoff) -> Self {
        let end = tradeoff.stay.idle_after().as_secs_f64().max(2.0 * MIN_GAP);
        let steps = (BINS - 2) as f64;
        let edge = |step: usize| MIN_GAP * (end / MIN_GAP).powf(step as f64 / steps);
        let mut edges: Vec<f64> = (0..BINS - 1).map(edge).collect();
        edges[BINS - 2] = end;
        let stay = &tradeoff.stay;
        Self {
            switch_energy: tradeoff.switch_energy().as_joules(),
            wait_costs: edges.iter().map(|edge| stay.energy(Span::from_secs_f64(*edge))).collect(),
            edges,
            tradeoff,
            groups: HashMap::new(),
            last_groups: None,
            counts: vec![0.0; BINS],
            stay_costs: vec![0.0; BINS],
        }
    }

    fn bin(&self, gap: Span) -> usize {
        let gap = gap.as_secs_f64();
        self.edges.partition_point(|edge| *edge < gap)
    }

    /// Adds the gap after the last packet to its groups.
    fn learn(&mut self, gap: Span) {
        let Some(kinds) = self.last_groups else { return };
        let bin = self.bin(gap);
        let end = self.tradeoff.stay.idle_after();
        let stays = match gap > end {
            true => self.tradeoff.stay.energy(end) + self.switch_energy,
            false => self.tradeoff.stay.cost(gap),
        };
        for kind in kinds {
            let curve = self.groups.entry(kind).or_insert_with(GroupHistogram::new);
            curve.push(bin, stays);
        }
        if self.groups.len() > MAX_GROUPS {
            self.groups.retain(|(level, ..), _| *level == 0);
        }
    }

    /// The best wait after a packet of these groups.
    fn best_wait(&mut self, kinds: &[Group; LEVELS]) -> Span {
        let seen = self.groups.get(&kinds[0]).map_or(0.0, GroupHistogram::effective_count);
        if seen < MIN_WEIGHT {
            return NEVER;
        }
        self.counts.fill(0.0);
        self.stay_costs.fill(0.0);
        let mut prior = 0.0;
        for kind in kinds {
            let Some(curve) = self.groups.get(kind) else { break };
            // Weighted by the number of own gaps and by the prior.
            let all = curve.effective_count() + prior;
            let (own, before) = (1.0 / curve.next_weight / all, prior / all);
            prior = PRIOR_WEIGHT;
            for (mixed, count) in self.counts.iter_mut().zip(&curve.counts) {
                *mixed = *mixed * before + f64::from(*count) * own;
            }
            for (mixed, stays) in self.stay_costs.iter_mut().zip(&curve.stay_costs) {
                *mixed = *mixed * before + f64::from(*stays) * own;
            }
        }
        let mut remaining: f64 = self.counts.iter().sum();
        let mut spent = 0.0;
        let (mut best, mut min) = (0.0, remaining * self.switch_energy);
        let edges =
            self.edges.iter().zip(&self.wait_costs).zip(self.counts.iter().zip(&self.stay_costs));
        for ((edge, waits), (count, stays)) in edges {
            spent += stays;
            remaining -= count;
            let cost = spent + remaining * (waits + self.switch_energy);
            if cost < min {
                (best, min) = (*edge, cost);
            }
        }
        let best = Span::from_secs_f64(best);
        if best < self.tradeoff.stay.idle_after() { best } else { NEVER }
    }
}

impl Policy for ContextPolicy {
    fn observe(&mut self, packet: &Packet, gap: Option<Span>) -> Span {
        if let Some(gap) = gap {
            self.learn(gap);
        }
        let kinds = groups_of(packet, gap.unwrap_or(Span::MAX));
        self.last_groups = Some(kinds);
        self.best_wait(&kinds)
    }
}

fn groups_of(packet: &Packet, gap: Span) -> [Group; LEVELS] {
    let way = u16::from(packet.direction == Direction::Down);
    // Without data; small; large; full-sized.
    let size = match packet.bytes {
        ..=66 => 0,
        67..=200 => 1,
        201..=1_200 => 2,
        _ => 3,
    };
    let before = match gap.as_secs_f64() {
        ..0.01 => 0,
        0.01..0.05 => 1,
        0.05..0.2 => 2,
        0.2..0.6 => 3,
        0.6..2.0 => 4,
        2.0..8.0 => 5,
        _ => 6,
    };
    let shape = way * 4 + size;
    [(0, 0, 0), (1, packet.app, 0), (2, packet.app, shape), (3, packet.app, shape * 8 + before)]
}

impl GroupHistogram {
    fn new() -> Self {
        Self { next_weight: 1.0, total: 0.0, counts: [0.0; BINS], stay_costs: [0.0; BINS] }
    }

    /// Number of gaps, with older ones weighted less.
    fn effective_count(&self) -> f64 {
        self.total / self.next_weight
    }

    fn push(&mut self, bin: usize, stays: f64) {
        self.next_weight /= WEIGHT_DECAY;
        self.total += self.next_weight;
        self.counts[bin] += self.next_weight as f32;
        self.stay_costs[bin] += (self.next_weight * stays) as f32;
        if self.next_weight > 1e12 {
            let shrink = self.next_weight.recip();
            let smaller = |all: &mut [f32; BINS]| {
                all.iter_mut().for_each(|one| *one *= shrink as f32);
            };
            smaller(&mut self.counts);
            smaller(&mut self.stay_costs);
            self.total *= shrink;
            self.next_weight = 1.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::radio::span;
    use manyways_unit::Time;

    use super::*;
    use crate::radio::profiles;

    fn packet(direction: Direction, app: u16) -> Packet {
        Packet { at: Time::ZERO, direction, bytes: 100, app, session: 0 }
    }

    fn policy() -> ContextPolicy {
        ContextPolicy::new(SleepTradeoff::of(&profiles::named("att-hspa").unwrap().unwrap()))
    }

    #[test]
    fn the_network_decides_before_enough_gaps() {
        let mut policy = policy();
        assert_eq!(policy.observe(&packet(Direction::Up, 0), None), NEVER);
        for _ in 0..MIN_WEIGHT as usize {
            assert_eq!(policy.observe(&packet(Direction::Up, 0), Some(span(60.0))), NEVER);
        }
        assert_eq!(policy.observe(&packet(Direction::Up, 0), Some(span(60.0))), span(0.0));
    }

    /// The policy waits after a request but not after its answer. MakeIdle has seen as many short
    /// gaps as long ones and decides alike after both.
    #[test]
    fn the_wait_depends_on_the_last_packet() {
        let mut policy = policy();
        let mut waits = (NEVER, NEVER);
        for _ in 0..200 {
            waits.0 = policy.observe(&packet(Direction::Up, 0), Some(span(60.0)));
            waits.1 = policy.observe(&packet(Direction::Down, 0), Some(span(0.3)));
        }
        assert!((span(0.3)..span(0.5)).contains(&waits.0), "{waits:?}");
        assert_eq!(waits.1, Span::ZERO);
    }

    #[test]
    fn the_previous_gap_predicts_the_next() {
        let mut policy = policy();
        let mut waits = (NEVER, NEVER);
        for _ in 0..300 {
            waits.0 = policy.observe(&packet(Direction::Up, 0), Some(span(60.0)));
            waits.1 = policy.observe(&packet(Direction::Up, 0), Some(span(0.3)));
        }
        assert!((span(0.3)..span(0.5)).contains(&waits.0), "{waits:?}");
        assert_eq!(waits.1, Span::ZERO);
    }

    #[test]
    fn one_application_says_nothing_of_another() {
        let mut policy = policy();
        for _ in 0..200 {
            // The first application sends every second, the second one every minute.
            policy.observe(&packet(Direction::Up, 0), Some(span(1.0)));
            policy.observe(&packet(Direction::Up, 1), Some(span(1.0)));
        }
        let wait = policy.observe(&packet(Direction::Up, 0), Some(span(1.0)));
        assert!((span(1.0)..span(1.4)).contains(&wait), "{wait}");
        for _ in 0..200 {
            policy.observe(&packet(Direction::Up, 1), Some(span(60.0)));
        }
        assert_eq!(policy.observe(&packet(Direction::Up, 1), Some(span(60.0))), span(0.0));
        let wait = policy.observe(&packet(Direction::Up, 0), Some(span(60.0)));
        assert!((span(1.0)..span(1.4)).contains(&wait), "{wait}");
    }

    /// Memory limits the weight of any number of gaps.
    #[test]
    fn weights_stay_numbers() {
        let mut policy = policy();
        for _ in 0..200_000 {
            policy.observe(&packet(Direction::Up, 0), Some(span(0.2)));
        }
        let curve = &policy.groups[&(0, 0, 0)];
        assert!(
            (curve.effective_count() - 1.0 / (1.0 - WEIGHT_DECAY)).abs() < 1.0,
            "{}",
            curve.effective_count()
        );
        let wait = policy.observe(&packet(Direction::Up, 0), Some(span(0.2)));
        assert!((span(0.2)..span(0.3)).contains(&wait), "{wait}");
    }

    #[test]
    fn kinds_are_bounded() {
        let mut policy = policy();
        for app in 0..u16::MAX {
            policy.observe(&packet(Direction::Up, app), Some(span(1.0)));
            assert!(policy.groups.len() <= MAX_GROUPS + LEVELS, "{}", policy.groups.len());
        }
    }
}
