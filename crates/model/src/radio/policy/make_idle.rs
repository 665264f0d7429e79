//! MakeIdle: the wait that was best for the last gaps.

use std::collections::VecDeque;

use super::{NEVER, Policy};
use crate::radio::{Choice, Packet};

/// Chooses the wait with the least energy over the last `n` gaps (S. Deng and H. Balakrishnan,
/// CoNEXT 2012; Deng's thesis, §4.4.2, with n = 100 by §4.6.3).
///
/// With S(w) the share of the last n gaps that are longer than w, P(t) the power of the tail and T
/// its end, a wait w < T costs
///
/// C(w) = ∫₀ʷ S(t)·P(t) dt + E_switch·S(w),
///
/// and the wait T, which leaves the release to the network, costs the same with E_switch·S(T). The
/// result is the smallest minimiser among 0, the gaps below T, and T, because C only grows between
/// them. Before n gaps the release is left to the network. Equations 4.1 and 4.2 of the thesis do
/// not depend on the wait as they should; see [`Printed`](super::Printed) for the consequence. If a
/// state of the tail has a promotion energy, a gap that ends in that state costs this energy too.
#[derive(Clone, Debug)]
pub struct MakeIdle {
    choice: Choice,
    released: f64,
    switch: Units,
    /// Units per joule.
    scale: f64,
    /// The last gaps, oldest first, at most n.
    last: VecDeque<f64>,
    n: usize,
    /// The same gaps in seconds, ascending.
    gaps: Vec<f64>,
    /// Cost of each gap without fast dormancy.
    stays: Vec<Units>,
    /// Cost of a wait as long as each gap, followed by a switch.
    waits: Vec<Units>,
    /// Number of gaps of zero, and of gaps shorter than the network's release.
    none: usize,
    below: usize,
    /// Sums of each [`BLOCK`] of gaps; a packet changes only the blocks between two places.
    blocks: Vec<Block>,
}

/// Gaps per block.
const BLOCK: usize = 16;
/// Exceeds every cost, and a cost can be added to it without overflow.
const NO_COST: Units = 1 << 62;

#[derive(Clone, Copy, Debug)]
struct Block {
    /// Cost of all gaps of the block without fast dormancy.
    spent: Units,
    /// Smallest C(w) of the block's gaps, without the blocks before it.
    least: Units,
    /// Index of that gap.
    best: usize,
}

/// Energy in units so small that the sum of n gaps just fits. Integer sums do not depend on the
/// order, and are faster.
type Units = i64;

const MOST: usize = 65_536;

impl MakeIdle {
    /// `n` is clamped to 1 to 65 536.
    pub fn new(choice: Choice, n: usize) -> Self {
        let n = n.clamp(1, MOST);
        let released = choice.stay.released();
        let switch = choice.switch().as_joules();
        // A power of two keeps equal values in joules equal.
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

    /// Cost of a gap without fast dormancy, and cost of a wait of the same length with a switch
    /// after it. The energy after a release is the same for both and is left out.
    fn costs(&self, lasts: f64) -> (Units, Units) {
        let awake = self.choice.stay.energy(lasts.min(self.released));
        let stays = match lasts > self.released {
            true => self.units(awake) + self.switch,
            false => self.units(awake + self.choice.stay.promotion(lasts)),
        };
        (stays, self.units(awake) + self.switch)
    }

    fn units(&self, joules: f64) -> Units {
        // Values are not negative: adding 0.5 and truncation round them.
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

    /// Recomputes the blocks from one place to another, once there are n gaps.
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
                // Of equal gaps only the last one has the right cost; the others have a higher one.
                let cost = block.spent + left * waits;
                // Without a branch, because its prediction would often fail.
                let is_less = cost < block.least;
                block.least = if is_less { cost } else { block.least };
                block.best = if is_less { place } else { block.best };
            }
            block.spent += self.stays[waited..end].iter().sum::<Units>();
            self.blocks[number] = block;
        }
    }

    /// The best wait for the stored gaps.
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
        // [`NEVER`] leaves all gaps to the network's timers.
        match spent < least {
            true => NEVER,
            false => self.gaps.get(best).copied().unwrap_or(0.0),
        }
    }
}

/// Removes the value at `from` from a sorted slice and inserts another one at `to`; moves only the
/// values between.
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
