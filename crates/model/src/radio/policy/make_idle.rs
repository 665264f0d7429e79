//! MakeIdle: the wait that was best for the last gaps.

use std::collections::VecDeque;

use manyways_unit::Span;

use super::{NEVER, Policy};
use crate::radio::{Packet, SleepTradeoff};

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
/// not depend on the wait as they should; see [`PrintedMakeIdle`](super::PrintedMakeIdle) for the
/// consequence. If a state of the tail has a promotion energy, a gap that ends in that state costs
/// this energy too.
#[derive(Clone, Debug)]
pub struct MakeIdle {
    tradeoff: SleepTradeoff,
    idle_after: Span,
    switch_cost: Units,
    /// Units per joule.
    scale: f64,
    /// The last gaps, oldest first, at most n.
    recent: VecDeque<Span>,
    n: usize,
    /// The same gaps, ascending.
    sorted_gaps: Vec<Span>,
    /// Cost of each gap without fast dormancy.
    stay_costs: Vec<Units>,
    /// Cost of a wait as long as each gap, followed by a switch.
    wait_costs: Vec<Units>,
    /// Number of gaps of zero, and of gaps shorter than the network's release.
    zero_gaps: usize,
    short_gaps: usize,
    /// Sums of each [`BLOCK`] of gaps; a packet changes only the blocks between two places.
    blocks: Vec<Block>,
}

/// Gaps per block.
const BLOCK: usize = 16;
/// Exceeds every cost, and a cost can be added to it without overflow.
const MAX_COST: Units = 1 << 62;

#[derive(Clone, Copy, Debug)]
struct Block {
    /// Cost of all gaps of the block without fast dormancy.
    stay_cost: Units,
    /// Smallest C(w) of the block's gaps, without the blocks before it.
    min_cost: Units,
    /// Index of that gap.
    best: usize,
}

/// Energy in units so small that the sum of n gaps just fits. Integer sums do not depend on the
/// order, and are faster.
type Units = i64;

const MAX_GAPS: usize = 65_536;

impl MakeIdle {
    /// `n` is clamped to 1 to 65 536.
    pub fn new(tradeoff: SleepTradeoff, n: usize) -> Self {
        let n = n.clamp(1, MAX_GAPS);
        let released = tradeoff.stay.idle_after();
        let switch = tradeoff.switch_energy().as_joules();
        // A power of two keeps equal values in joules equal.
        let max = (tradeoff.max_joules() + switch).max(f64::MIN_POSITIVE) * (n + 1) as f64;
        let scale = (61.0 - max.log2().ceil()).min(60.0).exp2();
        Self {
            idle_after: released,
            switch_cost: (switch * scale).round() as Units,
            scale,
            tradeoff,
            recent: VecDeque::with_capacity(n),
            n,
            sorted_gaps: Vec::with_capacity(n),
            stay_costs: Vec::with_capacity(n),
            wait_costs: Vec::with_capacity(n),
            zero_gaps: 0,
            short_gaps: 0,
            blocks: Vec::with_capacity(n.div_ceil(BLOCK)),
        }
    }

    /// Cost of a gap without fast dormancy, and cost of a wait of the same length with a switch
    /// after it. The energy after a release is the same for both and is left out.
    fn costs(&self, duration: Span) -> (Units, Units) {
        let awake = self.tradeoff.stay.energy(duration.min(self.idle_after));
        let stays = match duration > self.idle_after {
            true => self.units(awake) + self.switch_cost,
            false => self.units(awake + self.tradeoff.stay.promotion(duration)),
        };
        (stays, self.units(awake) + self.switch_cost)
    }

    fn units(&self, joules: f64) -> Units {
        // Values are not negative: adding 0.5 and truncation round them.
        (joules * self.scale + 0.5) as Units
    }

    fn insertion_index(&self, duration: Span) -> usize {
        self.sorted_gaps.partition_point(|gap| *gap < duration)
    }

    fn push_gap(&mut self, duration: Span) {
        let (stays, waits) = self.costs(duration);
        let to = self.insertion_index(duration);
        let oldest = if self.recent.len() == self.n { self.recent.pop_front() } else { None };
        self.recent.push_back(duration);
        self.zero_gaps += usize::from(duration.is_zero());
        self.short_gaps += usize::from(duration < self.idle_after);
        let Some(oldest) = oldest else {
            self.sorted_gaps.insert(to, duration);
            self.stay_costs.insert(to, stays);
            self.wait_costs.insert(to, waits);
            if self.recent.len() == self.n {
                self.update_blocks(0, self.n - 1);
            }
            return;
        };
        self.zero_gaps -= usize::from(oldest.is_zero());
        self.short_gaps -= usize::from(oldest < self.idle_after);
        let from = self.insertion_index(oldest);
        replace(&mut self.sorted_gaps, from, to, duration);
        replace(&mut self.stay_costs, from, to, stays);
        replace(&mut self.wait_costs, from, to, waits);
        self.update_blocks(from.min(to), from.max(to).min(self.n - 1));
    }

    /// Recomputes the blocks from one place to another, once there are n gaps.
    fn update_blocks(&mut self, from: usize, to: usize) {
        let empty = Block { stay_cost: 0, min_cost: MAX_COST, best: usize::MAX };
        self.blocks.resize(self.n.div_ceil(BLOCK), empty);
        for number in from / BLOCK..=to / BLOCK {
            let begin = number * BLOCK;
            let end = (begin + BLOCK).min(self.n);
            let waited = self.short_gaps.clamp(begin, end);
            let mut block = empty;
            let mut left = (self.n - begin) as Units;
            let costs = self.stay_costs[begin..waited].iter().zip(&self.wait_costs[begin..waited]);
            for ((stays, waits), index) in costs.zip(begin..) {
                block.stay_cost += stays;
                left -= 1;
                // Of equal gaps only the last one has the right cost; the others have a higher one.
                let cost = block.stay_cost + left * waits;
                // Without a branch, because its prediction would often fail.
                let is_less = cost < block.min_cost;
                block.min_cost = if is_less { cost } else { block.min_cost };
                block.best = if is_less { index } else { block.best };
            }
            block.stay_cost += self.stay_costs[waited..end].iter().sum::<Units>();
            self.blocks[number] = block;
        }
    }

    /// The best wait for the stored gaps.
    fn best_wait(&self) -> Span {
        let mut min = (self.n - self.zero_gaps) as Units * self.switch_cost;
        let mut best = usize::MAX;
        let mut spent = 0;
        for block in &self.blocks {
            let cost = spent + block.min_cost;
            if cost < min {
                (min, best) = (cost, block.best);
            }
            spent += block.stay_cost;
        }
        // [`NEVER`] leaves all gaps to the network's timers.
        match spent < min {
            true => NEVER,
            false => self.sorted_gaps.get(best).copied().unwrap_or(Span::ZERO),
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
    fn observe(&mut self, _: &Packet, gap: Option<Span>) -> Span {
        if let Some(gap) = gap {
            self.push_gap(gap);
        }
        if self.recent.len() < self.n { NEVER } else { self.best_wait() }
    }
}

#[cfg(test)]
mod tests;
