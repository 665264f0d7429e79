//! MakeIdle: the wait that would have been best for the last gaps.

use std::collections::VecDeque;

use super::{NEVER, Policy};
use crate::radio::{Choice, Packet};

/// Waits for as long as would have taken the least energy over the last `n` gaps (S. Deng and H.
/// Balakrishnan, CoNEXT 2012; Deng's thesis, §4.4.2, with n = 100 by §4.6.3).
///
/// With S(w) the share of the last n gaps that are longer than w, P(t) the power of the tail and T its
/// end, a wait w < T takes
///
/// C(w) = ∫₀ʷ S(t)·P(t) dt + E_switch·S(w),
///
/// and T, which leaves it to the network, the same with its own E_switch·S(T). The wait is the smallest
/// minimiser among 0, the gaps below T, and T: between them C only grows. Until n gaps were seen it is
/// left to the network. The equations of the thesis (4.1 and 4.2) do not depend on the wait where they
/// should; see [`Printed`](super::Printed) for what they do. Where a state of the tail has a promotion
/// of its own, a gap that ends in it takes that too.
#[derive(Clone, Debug)]
pub struct MakeIdle {
    choice: Choice,
    released: f64,
    switch: Units,
    /// Units in a joule.
    scale: f64,
    /// The last gaps, oldest first, at most n of them.
    last: VecDeque<f64>,
    n: usize,
    /// The same, the shortest first, in seconds.
    gaps: Vec<f64>,
    /// What each takes if one stays awake for it.
    stays: Vec<Units>,
    /// What it takes to stay awake for so long while nothing comes, and then to switch.
    waits: Vec<Units>,
    /// How many of them are no gap at all, and how many end before the network lets go.
    none: usize,
    below: usize,
    /// What each [`BLOCK`] of them comes to: a packet changes only those between two places.
    blocks: Vec<Block>,
}

/// Gaps that are added up together.
const BLOCK: usize = 16;
/// More than any cost, so far below the largest number that a cost may be added.
const NO_COST: Units = 1 << 62;

#[derive(Clone, Copy, Debug)]
struct Block {
    /// What all its gaps take if one stays awake for them.
    spent: Units,
    /// The least C(w) of its gaps, without what is spent in the blocks before it.
    least: Units,
    /// Which gap has it.
    best: usize,
}

/// Energy in parts of a joule that are so small that n gaps just fit. Whole numbers add up to the same
/// in any order, and faster than others.
type Units = i64;

/// The most gaps that MakeIdle looks at.
const MOST: usize = 65_536;

impl MakeIdle {
    /// Over the last `n` gaps: 1 to 65,536.
    pub fn new(choice: Choice, n: usize) -> Self {
        let n = n.clamp(1, MOST);
        let released = choice.stay.released();
        let switch = choice.switch().as_joules();
        // A power of two, so that what is equal in joules stays equal.
        let most = (choice.most() + switch).max(f64::MIN_POSITIVE) * (n + 1) as f64;
        let scale = (61.0 - most.log2().ceil()).min(60.0).exp2();
        Self {
            released,
            switch: (switch * scale).round() as Units,
            scale,
            choice,
            last: VecDeque::with_capacity(n),
            n,
            gaps: Vec::with_capacity(n),
            stays: Vec::with_capacity(n),
            waits: Vec::with_capacity(n),
            none: 0,
            below: 0,
            blocks: Vec::with_capacity(n.div_ceil(BLOCK)),
        }
    }

    /// What a gap takes if one stays awake for it, and what it takes to wait for so long in vain. What
    /// follows once the network has let go of it is the same whoever has: it counts for nothing.
    fn costs(&self, lasts: f64) -> (Units, Units) {
        let awake = self.choice.stay.energy(lasts.min(self.released));
        let stays = match lasts > self.released {
            true => self.units(awake) + self.switch,
            false => self.units(awake + self.choice.stay.promotion(lasts)),
        };
        (stays, self.units(awake) + self.switch)
    }

    fn units(&self, joules: f64) -> Units {
        // Never negative: half of one more, and what is behind the point is cut off.
        (joules * self.scale + 0.5) as Units
    }

    fn place(&self, lasts: f64) -> usize {
        self.gaps.partition_point(|gap| *gap < lasts)
    }

    fn remember(&mut self, lasts: f64) {
        let (stays, waits) = self.costs(lasts);
        let to = self.place(lasts);
        let oldest = if self.last.len() == self.n { self.last.pop_front() } else { None };
        self.last.push_back(lasts);
        self.none += usize::from(lasts <= 0.0);
        self.below += usize::from(lasts < self.released);
        let Some(oldest) = oldest else {
            self.gaps.insert(to, lasts);
            self.stays.insert(to, stays);
            self.waits.insert(to, waits);
            if self.last.len() == self.n {
                self.add_up(0, self.n - 1);
            }
            return;
        };
        self.none -= usize::from(oldest <= 0.0);
        self.below -= usize::from(oldest < self.released);
        let from = self.place(oldest);
        replace(&mut self.gaps, from, to, lasts);
        replace(&mut self.stays, from, to, stays);
        replace(&mut self.waits, from, to, waits);
        self.add_up(from.min(to), from.max(to).min(self.n - 1));
    }

    /// What the blocks from one place to another come to, once there are n gaps.
    fn add_up(&mut self, from: usize, to: usize) {
        let empty = Block { spent: 0, least: NO_COST, best: usize::MAX };
        self.blocks.resize(self.n.div_ceil(BLOCK), empty);
        for number in from / BLOCK..=to / BLOCK {
            let begin = number * BLOCK;
            let end = (begin + BLOCK).min(self.n);
            let waited = self.below.clamp(begin, end);
            let mut block = empty;
            let mut left = (self.n - begin) as Units;
            let costs = self.stays[begin..waited].iter().zip(&self.waits[begin..waited]);
            for ((stays, waits), place) in costs.zip(begin..) {
                block.spent += stays;
                left -= 1;
                // Of several that are equal the last one counts, and the others look worse than it.
                let cost = block.spent + left * waits;
                // Without a branch, which nobody could foresee.
                let is_less = cost < block.least;
                block.least = if is_less { cost } else { block.least };
                block.best = if is_less { place } else { block.best };
            }
            block.spent += self.stays[waited..end].iter().sum::<Units>();
            self.blocks[number] = block;
        }
    }

    /// The best wait for the gaps that are remembered.
    fn best(&self) -> f64 {
        let mut least = (self.n - self.none) as Units * self.switch;
        let mut best = usize::MAX;
        let mut spent = 0;
        for block in &self.blocks {
            let cost = spent + block.least;
            if cost < least {
                (least, best) = (cost, block.best);
            }
            spent += block.spent;
        }
        // The network's timers wait for all of them.
        match spent < least {
            true => NEVER,
            false => self.gaps.get(best).copied().unwrap_or(0.0),
        }
    }
}

/// Takes the value at one place out of those that are sorted, and puts another one where it belongs
/// among them: only what is between the two moves.
fn replace<T: Copy>(all: &mut [T], from: usize, to: usize, value: T) {
    match from < to {
        true => {
            all.copy_within(from + 1..to, from);
            all[to - 1] = value;
        }
        false => {
            all.copy_within(to..from, to + 1);
            all[to] = value;
        }
    }
}

impl Policy for MakeIdle {
    fn observe(&mut self, _: &Packet, gap: Option<f64>) -> f64 {
        if let Some(gap) = gap {
            self.remember(gap);
        }
        if self.last.len() < self.n { NEVER } else { self.best() }
    }
}

#[cfg(test)]
mod tests;
