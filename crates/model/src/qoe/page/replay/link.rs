//! The bottleneck: all transfers share it equally.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Transfers with work in seconds that the bottleneck alone would need. Time advances with
/// [`Link::advance`] only.
pub(super) struct Link {
    rate_factor: f64,
    now: f64,
    /// Work that each transfer would have got so far, had it been there from the start.
    served: f64,
    /// By the value of `served` at which they end.
    transfers: BinaryHeap<Reverse<Transfer>>,
    entered: usize,
}

#[derive(Clone, Copy, PartialEq)]
struct Transfer {
    end: f64,
    order: usize,
    request: usize,
}

impl Eq for Transfer {}

impl PartialOrd for Transfer {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Transfer {
    fn cmp(&self, other: &Self) -> Ordering {
        self.end.total_cmp(&other.end).then(self.order.cmp(&other.order))
    }
}

impl Link {
    pub fn new(rate_factor: f64) -> Self {
        Self { rate_factor, now: 0.0, served: 0.0, transfers: BinaryHeap::new(), entered: 0 }
    }

    pub fn enter(&mut self, now: f64, request: usize, work: f64) {
        self.advance(now);
        self.entered += 1;
        let end = self.served + work;
        self.transfers.push(Reverse(Transfer { end, order: self.entered, request }));
    }

    /// When the next transfer ends.
    pub fn next(&self) -> Option<f64> {
        let Reverse(first) = self.transfers.peek()?;
        let left = (first.end - self.served).max(0.0);
        Some(self.now + left * self.transfers.len() as f64 / self.rate_factor)
    }

    /// Ends the next transfer, at the time of [`Link::next`].
    pub fn pop(&mut self) -> Option<usize> {
        self.now = self.next()?;
        let Reverse(first) = self.transfers.pop()?;
        self.served = self.served.max(first.end);
        Some(first.request)
    }

    fn advance(&mut self, now: f64) {
        if !self.transfers.is_empty() && now > self.now {
            self.served += (now - self.now) * self.rate_factor / self.transfers.len() as f64;
        }
        self.now = self.now.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_share_the_bottleneck() {
        let mut link = Link::new(2.0);
        link.enter(1.0, 0, 3.0);
        assert_eq!(link.next(), Some(2.5));
        // One second of work is left when the second one comes.
        link.enter(2.0, 1, 3.0);
        assert_eq!(link.next(), Some(3.0));
        assert_eq!((link.pop(), link.next()), (Some(0), Some(4.0)));
        assert_eq!((link.pop(), link.next()), (Some(1), None));
    }
}
