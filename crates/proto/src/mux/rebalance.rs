//! Recall of messages that wait at a lender, if another path would deliver them sooner.
//!
//! Reinjection of MPBond (§4.3.3.4): when nothing is left to schedule and the delays of the paths
//! differ by more than a fifth, bytes move from the slowest path to the fastest one. As published,
//! they are what the slowest path delivers in the difference; the fastest path then gets slower, too,
//! and the bytes arrive later than planned. Ours are those with which both end at the same time, and
//! only messages that the lender still has when it learns of it. In both cases the lender drops what
//! it has not passed on, so that it is not sent twice.

use manyways_unit::{Rate, Span, Time};

use super::carrier::{Carrier, SentContent};
use super::outgoing::head_length;
use super::{Message, Mux, Output, Payload};
use crate::relay::MAX_QUEUE;
use crate::sched::PathView;

/// Which bytes are recalled from a lender.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Rebalance {
    /// None.
    Off,
    /// As published.
    Published,
    #[default]
    On,
}

/// A fifth of the smallest delay, as published.
const MIN_DIFFERENCE: u64 = 5;

/// A path that gives bytes up, and the one that gets them; indices of carriers.
#[derive(Clone, Copy)]
struct Move {
    from: usize,
    to: usize,
    bytes: u64,
    /// Bytes at the front of the messages of `from` that can no longer be recalled.
    passed_on: u64,
}

impl<P: Payload> Mux<P> {
    /// Recalls messages from lenders, if nothing is left to schedule.
    pub(super) fn rebalance(&mut self, now: Time) {
        let is_lending = self.carriers.iter().any(|carrier| carrier.loan.is_some());
        if !is_lending || self.config.rebalance == Rebalance::Off || !self.ready.is_empty() {
            return;
        }
        if let Some(planned) = self.plan_move(now) {
            self.execute_move(now, planned);
        }
    }

    fn plan_move(&self, now: Time) -> Option<Move> {
        let usable = |carrier: &Carrier| !carrier.is_avoided();
        let views: Vec<(usize, PathView)> = (0..self.carriers.len())
            .filter(|at| usable(&self.carriers[*at]))
            .map(|at| (at, self.carriers[at].path_view(now)))
            .collect();
        let (to, fastest) = *views.iter().min_by_key(|(_, view)| view.delivery_time())?;
        let lent = views.iter().filter(|(at, _)| self.is_recallable(now, *at));
        let (from, slowest) = *lent.max_by_key(|(_, view)| view.delivery_time())?;
        let (least, most) = (fastest.delivery_time(), slowest.delivery_time());
        if from == to
            || (most.saturating_sub(least)).as_nanos() * MIN_DIFFERENCE <= least.as_nanos()
        {
            return None;
        }
        let difference = most.saturating_sub(least);
        let (rate, other) = (slowest.end_rate(), fastest.end_rate());
        let moved = match self.config.rebalance {
            Rebalance::Published => slowest.end_delivery_rate(),
            _ => harmonic(rate, other),
        };
        // The recall reaches the lender behind all that was sent to it. Bytes in the queue of
        // the pipe have left the lender.
        let carrier = &self.carriers[from];
        let until_known = carrier.longest_delivery();
        let lag = carrier
            .loan
            .as_ref()
            .map_or(Span::ZERO, |loan| loan.hop.lag(carrier.shortest_delivery()));
        let passed_on = rate.size_in(until_known + lag + MAX_QUEUE).as_bytes();
        Some(Move { from, to, bytes: moved.size_in(difference).as_bytes(), passed_on })
    }

    /// Whether messages may be recalled from a carrier: not again before the last recall shows.
    fn is_recallable(&self, now: Time, at: usize) -> bool {
        let carrier = &self.carriers[at];
        let pause = carrier.transport_info.rtt;
        carrier.loan.as_ref().is_some_and(|loan| {
            !loan.hop.rate().is_zero()
                && loan.recalled_at.is_none_or(|before| now >= before + pause)
        })
    }

    fn execute_move(&mut self, now: Time, planned: Move) {
        let Move { from, to, bytes, passed_on } = planned;
        let path = self.carriers[to].path;
        let total: u64 = self.carriers[from].unacked_bytes();
        let mut allowed = bytes.min(total.saturating_sub(passed_on));
        let mut numbers: Option<(u64, u64)> = None;
        for at in (0..self.carriers[from].sent.len()).rev() {
            let sent = self.carriers[from].sent[at];
            let SentContent::Data { stream, range, .. } = sent.content else { break };
            let may_move = self.stream_policy(stream).is_none_or(|policy| {
                policy.paths.contains(path) && policy.scheduler.weighs_delays()
            });
            if sent.is_recalled || !may_move || range.len() > allowed {
                break;
            }
            allowed -= range.len();
            let number = self.carriers[from].first_unacked() + at as u64;
            numbers = Some((number, numbers.map_or(number, |(_, last)| last)));
            self.carriers[from].recall(at);
            if !sent.is_reinjected {
                self.counters.recalled += self.retransmit(sent.content);
            }
        }
        let Some((first, last)) = numbers else { return };
        let carrier = &mut self.carriers[from];
        if let Some(loan) = &mut carrier.loan {
            loan.recalled_at = Some(now);
        }
        let (id, message) = (carrier.id, Message::Recalled { first, last });
        carrier.on_submitted(now, head_length(&message, 0));
        self.outputs.push_back(Output::Send { carrier: id, message });
        self.outputs.push_back(Output::Recall { carrier: id, first, last });
    }
}

/// The rate whose bytes in a difference of two delays make the paths end at the same time.
fn harmonic(first: Rate, second: Rate) -> Rate {
    let (first, second) = (u128::from(first.as_bps()), u128::from(second.as_bps()));
    let rate = first * second / (first + second).max(1);
    Rate::from_bps(u64::try_from(rate).unwrap_or(u64::MAX))
}
