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
    switch: f64,
    /// The last gaps, oldest first, at most n of them.
    last: VecDeque<f64>,
    n: usize,
    /// The same, sorted…
    gaps: Vec<f64>,
    /// …what each takes if one stays awake for it…
    stays: Vec<f64>,
    /// …and what it takes to stay awake for so long while nothing comes.
    waits: Vec<f64>,
}

impl MakeIdle {
    /// Over the last `n` gaps, at least one.
    pub fn new(choice: Choice, n: usize) -> Self {
        let n = n.max(1);
        Self {
            released: choice.stay.released(),
            switch: choice.switch().as_joules(),
            choice,
            last: VecDeque::with_capacity(n),
            n,
            gaps: Vec::with_capacity(n),
            stays: Vec::with_capacity(n),
            waits: Vec::with_capacity(n),
        }
    }

    fn remember(&mut self, gap: f64) {
        if self.last.len() == self.n
            && let Some(oldest) = self.last.pop_front()
        {
            let place = self.gaps.partition_point(|other| *other < oldest);
            self.gaps.remove(place);
            self.stays.remove(place);
            self.waits.remove(place);
        }
        self.last.push_back(gap);
        let place = self.gaps.partition_point(|other| *other < gap);
        self.gaps.insert(place, gap);
        // What follows once it is released is the same whoever has released it.
        let awake = gap.min(self.released);
        let is_released = gap > self.released;
        let stays = match is_released {
            true => self.choice.stay.energy(awake) + self.switch,
            false => self.choice.stay.cost(gap),
        };
        self.stays.insert(place, stays);
        self.waits.insert(place, self.choice.stay.energy(awake));
    }

    /// The best wait for the gaps that are remembered.
    fn best(&self) -> f64 {
        let count = self.gaps.len();
        let longer = count - self.gaps.partition_point(|gap| *gap <= 0.0);
        let (mut best, mut least) = (0.0, longer as f64 * self.switch);
        let mut spent = 0.0;
        let mut left = count as f64;
        for ((gap, stays), waits) in self.gaps.iter().zip(&self.stays).zip(&self.waits) {
            spent += stays;
            left -= 1.0;
            // Of several that are equal, the last one counts, and the others look worse than it.
            if *gap < self.released {
                let cost = spent + left * (waits + self.switch);
                if cost < least {
                    (best, least) = (*gap, cost);
                }
            }
        }
        // By then all were waited for.
        if spent < least { NEVER } else { best }
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
