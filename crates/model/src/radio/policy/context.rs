//! Ours: the wait that has been best after packets like this one.

use std::collections::HashMap;

use super::{NEVER, Policy};
use crate::radio::{Choice, Direction, Packet};

/// Waits for as long as has taken the least energy after packets like the last one.
///
/// MakeIdle looks at the last hundred gaps, whatever they came after: within a transfer it has seen
/// nothing but short ones. But what a packet is says much of what follows: behind a question comes an
/// answer, behind the answer to a heartbeat nothing for long. So gaps are kept by what came before
/// them, in four ever narrower kinds: everything; the application; with direction and size; with the
/// gap before that as well. Each kind has a histogram of gaps that forgets old ones. The distribution
/// for a packet is that of its narrowest kind, filled up with four gaps of the next wider one,
/// and so on (the same shrinkage as in back-off language models). The wait minimises MakeIdle's C(w)
/// over it, at the edges of the histogram.
#[derive(Clone, Debug)]
pub struct Context {
    choice: Choice,
    switch: f64,
    /// Upper edges of the bins but the last, in seconds; the last of them is the end of the tail.
    edges: Vec<f64>,
    /// What it takes to wait until each of them.
    waits: Vec<f64>,
    kinds: HashMap<Kind, Curve>,
    /// Of the last packet, the widest first.
    last: Option<[Kind; LEVELS]>,
    /// What was decided with, kept so that it need not be made each time.
    counts: Vec<f64>,
    stays: Vec<f64>,
}

const LEVELS: usize = 4;
/// Bins of a histogram, from a shortest edge on; the last of them takes what is longer than the tail.
const BINS: usize = 40;
const SHORTEST: f64 = 2e-3;
/// A wider kind counts for so many gaps of a narrower one.
const PRIOR: f64 = 4.0;
/// An older gap counts for so much less than its successor of the same kind.
const MEMORY: f64 = 0.998;
/// Until so many gaps were seen it is left to the network.
const ENOUGH: f64 = 20.0;
/// More kinds are not kept: then all begin anew, but for the widest.
const KINDS: usize = 8_192;

/// What a packet is: its level, application, and the rest in a few bits.
type Kind = (u8, u16, u16);

#[derive(Clone, Debug)]
struct Curve {
    /// The weight of the next gap, which grows, as it is simpler than to let all others shrink.
    next: f64,
    total: f64,
    counts: [f32; BINS],
    stays: [f32; BINS],
}

impl Context {
    /// It has seen nothing.
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

    /// What it has come to, after the last packet.
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

    /// The best wait after a packet of these kinds.
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
            // So many gaps of its own, and the prior of what there was.
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
    // Without data; small; large; full.
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

    /// How many gaps it has, each by what it still counts for.
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
    fn until_it_has_seen_enough_it_leaves_it_to_the_network() {
        let mut policy = policy();
        assert_eq!(policy.observe(&packet(Direction::Up, 0), None), NEVER);
        for _ in 0..ENOUGH as usize {
            assert_eq!(policy.observe(&packet(Direction::Up, 0), Some(60.0)), NEVER);
        }
        assert_eq!(policy.observe(&packet(Direction::Up, 0), Some(60.0)), 0.0);
    }

    /// Behind a question it waits for the answer, and behind the answer for nothing: MakeIdle, which
    /// sees as many short gaps as long ones, does the same after both.
    #[test]
    fn it_waits_where_something_comes_and_not_where_nothing_does() {
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
    fn the_gap_before_says_what_follows() {
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
            // The first sends every second, the second every minute.
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

    /// A thousand times as many gaps weigh no more than memory lets them.
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
