//! Our policy: the wait that was best after similar packets.

use std::collections::HashMap;

use super::{NEVER, Policy};
use crate::radio::{Choice, Direction, Packet};

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
pub struct Context {
    choice: Choice,
    switch: f64,
    /// Upper edges of all bins but the last, in seconds; the last edge is the end of the tail.
    edges: Vec<f64>,
    /// Joules of a wait until each edge.
    waits: Vec<f64>,
    kinds: HashMap<Kind, Curve>,
    /// Groups of the last packet, the widest first.
    last: Option<[Kind; LEVELS]>,
    /// Reused buffers of a decision.
    counts: Vec<f64>,
    stays: Vec<f64>,
}

const LEVELS: usize = 4;
/// Bins from [`SHORTEST`] on; the last bin contains gaps longer than the tail.
const BINS: usize = 40;
const SHORTEST: f64 = 2e-3;
/// Weight of the wider group, in gaps of the narrower one.
const PRIOR: f64 = 4.0;
/// Weight of a gap relative to its successor in the same group.
const MEMORY: f64 = 0.998;
/// Minimum weight of all gaps; with less, the release is left to the network.
const ENOUGH: f64 = 20.0;
/// Maximum number of groups; then all but the widest are cleared.
const KINDS: usize = 8_192;

/// Level, application, and the other properties as bits.
type Kind = (u8, u16, u16);

#[derive(Clone, Debug)]
struct Curve {
    /// Weight of the next gap. It grows instead of decreasing all others.
    next: f64,
    total: f64,
    counts: [f32; BINS],
    stays: [f32; BINS],
}

impl Context {
    pub fn new(choice: Choice) -> Self {
        let end = choice.stay.released().max(2.0 * SHORTEST);
        let steps = (BINS - 2) as f64;
        let edge = |step: usize| SHORTEST * (end / SHORTEST).powf(step as f64 / steps);
        let mut edges: Vec<f64> = (0..BINS - 1).map(edge).collect();
        edges[BINS - 2] = end;
        Self {
            switch: choice.switch().as_joules(),
            waits: edges.iter().map(|edge| choice.stay.energy(*edge)).collect(),
            edges,
            choice,
            kinds: HashMap::new(),
            last: None,
            counts: vec![0.0; BINS],
            stays: vec![0.0; BINS],
        }
    }

    fn bin(&self, gap: f64) -> usize {
        self.edges.partition_point(|edge| *edge < gap)
    }

    /// Adds the gap after the last packet to its groups.
    fn learn(&mut self, gap: f64) {
        let Some(kinds) = self.last else { return };
        let bin = self.bin(gap);
        let end = self.choice.stay.released();
        let stays = match gap > end {
            true => self.choice.stay.energy(end) + self.switch,
            false => self.choice.stay.cost(gap),
        };
        for kind in kinds {
            let curve = self.kinds.entry(kind).or_insert_with(Curve::new);
            curve.push(bin, stays);
        }
        if self.kinds.len() > KINDS {
            self.kinds.retain(|(level, ..), _| *level == 0);
        }
    }

    /// The best wait after a packet of these groups.
    fn best(&mut self, kinds: &[Kind; LEVELS]) -> f64 {
        let seen = self.kinds.get(&kinds[0]).map_or(0.0, Curve::size);
        if seen < ENOUGH {
            return NEVER;
        }
        self.counts.fill(0.0);
        self.stays.fill(0.0);
        let mut prior = 0.0;
        for kind in kinds {
            let Some(curve) = self.kinds.get(kind) else { break };
            // Weighted by the number of own gaps and by the prior.
            let all = curve.size() + prior;
            let (own, before) = (1.0 / curve.next / all, prior / all);
            prior = PRIOR;
            for (mixed, count) in self.counts.iter_mut().zip(&curve.counts) {
                *mixed = *mixed * before + f64::from(*count) * own;
            }
            for (mixed, stays) in self.stays.iter_mut().zip(&curve.stays) {
                *mixed = *mixed * before + f64::from(*stays) * own;
            }
        }
        let mut left: f64 = self.counts.iter().sum();
        let mut spent = 0.0;
        let (mut best, mut least) = (0.0, left * self.switch);
        let edges = self.edges.iter().zip(&self.waits).zip(self.counts.iter().zip(&self.stays));
        for ((edge, waits), (count, stays)) in edges {
            spent += stays;
            left -= count;
            let cost = spent + left * (waits + self.switch);
            if cost < least {
                (best, least) = (*edge, cost);
            }
        }
        if best < self.choice.stay.released() { best } else { NEVER }
    }
}

impl Policy for Context {
    fn observe(&mut self, packet: &Packet, gap: Option<f64>) -> f64 {
        if let Some(gap) = gap {
            self.learn(gap);
        }
        let kinds = kinds(packet, gap.unwrap_or(f64::INFINITY));
        self.last = Some(kinds);
        self.best(&kinds)
    }
}

fn kinds(packet: &Packet, gap: f64) -> [Kind; LEVELS] {
    let way = u16::from(packet.direction == Direction::Down);
    // Without data; small; large; full-sized.
    let size = match packet.bytes {
        ..=66 => 0,
        67..=200 => 1,
        201..=1_200 => 2,
        _ => 3,
    };
    let before = match gap {
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

impl Curve {
    fn new() -> Self {
        Self { next: 1.0, total: 0.0, counts: [0.0; BINS], stays: [0.0; BINS] }
    }

    /// Number of gaps, with older ones weighted less.
    fn size(&self) -> f64 {
        self.total / self.next
    }

    fn push(&mut self, bin: usize, stays: f64) {
        self.next /= MEMORY;
        self.total += self.next;
        self.counts[bin] += self.next as f32;
        self.stays[bin] += (self.next * stays) as f32;
        if self.next > 1e12 {
            let shrink = self.next.recip();
            let smaller = |all: &mut [f32; BINS]| {
                all.iter_mut().for_each(|one| *one *= shrink as f32);
            };
            smaller(&mut self.counts);
            smaller(&mut self.stays);
            self.total *= shrink;
            self.next = 1.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use manyways_unit::Time;

    use super::*;
    use crate::radio::profiles;

    fn packet(direction: Direction, app: u16) -> Packet {
        Packet { at: Time::ZERO, direction, bytes: 100, app, session: 0 }
    }

    fn policy() -> Context {
        Context::new(Choice::of(&profiles::named("att-hspa").unwrap().unwrap()))
    }

    #[test]
    fn the_network_decides_before_enough_gaps() {
        let mut policy = policy();
        assert_eq!(policy.observe(&packet(Direction::Up, 0), None), NEVER);
        for _ in 0..ENOUGH as usize {
            assert_eq!(policy.observe(&packet(Direction::Up, 0), Some(60.0)), NEVER);
        }
        assert_eq!(policy.observe(&packet(Direction::Up, 0), Some(60.0)), 0.0);
    }

    /// The policy waits after a request but not after its answer. MakeIdle has seen as many short
    /// gaps as long ones and decides alike after both.
    #[test]
    fn the_wait_depends_on_the_last_packet() {
        let mut policy = policy();
        let mut waits = (0.0, 0.0);
        for _ in 0..200 {
            waits.0 = policy.observe(&packet(Direction::Up, 0), Some(60.0));
            waits.1 = policy.observe(&packet(Direction::Down, 0), Some(0.3));
        }
        assert!((0.3..0.5).contains(&waits.0), "{waits:?}");
        assert_eq!(waits.1, 0.0);
    }

    #[test]
    fn the_previous_gap_predicts_the_next() {
        let mut policy = policy();
        let mut waits = (0.0, 0.0);
        for _ in 0..300 {
            waits.0 = policy.observe(&packet(Direction::Up, 0), Some(60.0));
            waits.1 = policy.observe(&packet(Direction::Up, 0), Some(0.3));
        }
        assert!((0.3..0.5).contains(&waits.0), "{waits:?}");
        assert_eq!(waits.1, 0.0);
    }

    #[test]
    fn one_application_says_nothing_of_another() {
        let mut policy = policy();
        for _ in 0..200 {
            // The first application sends every second, the second one every minute.
            policy.observe(&packet(Direction::Up, 0), Some(1.0));
            policy.observe(&packet(Direction::Up, 1), Some(1.0));
        }
        let wait = policy.observe(&packet(Direction::Up, 0), Some(1.0));
        assert!((1.0..1.4).contains(&wait), "{wait}");
        for _ in 0..200 {
            policy.observe(&packet(Direction::Up, 1), Some(60.0));
        }
        assert_eq!(policy.observe(&packet(Direction::Up, 1), Some(60.0)), 0.0);
        let wait = policy.observe(&packet(Direction::Up, 0), Some(60.0));
        assert!((1.0..1.4).contains(&wait), "{wait}");
    }

    /// Memory limits the weight of any number of gaps.
    #[test]
    fn weights_stay_numbers() {
        let mut policy = policy();
        for _ in 0..200_000 {
            let wait = policy.observe(&packet(Direction::Up, 0), Some(0.2));
            assert!(!wait.is_nan());
        }
        let curve = &policy.kinds[&(0, 0, 0)];
        assert!((curve.size() - 1.0 / (1.0 - MEMORY)).abs() < 1.0, "{}", curve.size());
        assert!((0.2..0.3).contains(&policy.observe(&packet(Direction::Up, 0), Some(0.2))));
    }

    #[test]
    fn kinds_are_bounded() {
        let mut policy = policy();
        for app in 0..u16::MAX {
            policy.observe(&packet(Direction::Up, app), Some(1.0));
            assert!(policy.kinds.len() <= KINDS + LEVELS, "{}", policy.kinds.len());
        }
    }
}
