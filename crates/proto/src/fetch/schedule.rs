//! Who fetches what next: the choices of [`Fetch`].

use manyways_trace::{Rate, Size, Span, Time};

use super::transfer::{Request, State};
use super::{Fetch, Output, PathId, Range, RequestId};

/// Taking over less than this is not worth a request.
const LEAST_PIECE: u64 = 16 * 1024;
/// A request is silent after so many response delays of its path…
const SILENT_DELAYS: u64 = 4;
/// …and not before.
const SILENT_LEAST: Span = Span::from_millis(400);
/// The same for a request whose path never answered one.
const SILENT_UNKNOWN: Span = Span::from_secs(1);

/// Bytes that a path takes over from a request.
struct Takeover {
    victim: RequestId,
    range: Range,
    gain: Span,
    /// The victim is silent: it keeps its bytes, and whoever is first brings them.
    race: bool,
}

impl Fetch {
    /// Gives every path that can work something to do.
    pub(super) fn schedule(&mut self, now: Time) {
        let due: Vec<PathId> = self
            .paths
            .iter()
            .filter(|(_, p)| matches!(p.state, State::Waiting(at) if at <= now) && self.wants(p))
            .map(|(id, _)| *id)
            .collect();
        for id in due {
            if let Some(path) = self.paths.get_mut(&id) {
                path.state = State::Connecting(now);
                self.outputs.push_back(Output::Connect { path: id });
            }
        }
        if self.object.is_none() {
            if self.requests.is_empty() {
                self.open_somewhere(now);
            }
        } else if self.spread {
            for path in self.idle() {
                self.assign(now, path);
            }
        }
    }

    /// When a choice may come out differently although nothing happened.
    pub(super) fn schedule_wakeup(&self) -> Option<Time> {
        let idle = self.paths.values().filter_map(|path| match path.state {
            State::Idle(since) if self.allowed(path) => Some(since),
            _ => None,
        });
        if self.object.is_none() {
            // The first GET waits for a preferred path.
            let first = idle.min()?;
            return self.requests.is_empty().then_some(first + self.config.head_start);
        }
        if !self.spread || idle.count() == 0 {
            return None;
        }
        // An idle path waits for a request to go silent.
        let busy = self.requests.values().filter(|request| !request.racing);
        busy.map(|request| request.last + self.patience(request)).min()
    }

    /// Idle paths, those without a price first.
    fn idle(&self) -> Vec<PathId> {
        let idle = self
            .paths
            .iter()
            .filter(|(_, path)| matches!(path.state, State::Idle(_)) && self.allowed(path));
        let mut idle: Vec<(bool, PathId)> = idle.map(|(id, path)| (path.metered, *id)).collect();
        idle.sort_unstable();
        idle.into_iter().map(|(_, id)| id).collect()
    }

    /// Sends the first request, unless a better path is about to be ready.
    fn open_somewhere(&mut self, now: Time) {
        let idle = self.idle();
        let Some(&path) = idle.first() else { return };
        // From the first connection on, whichever it was: every further one would wait anew.
        let since = idle.iter().filter_map(|id| match self.paths.get(id)?.state {
            State::Idle(since) => Some(since),
            _ => None,
        });
        let since = since.min().unwrap_or(now);
        let metered = |id: PathId| self.paths.get(&id).is_some_and(|path| path.metered);
        let better = self.paths.iter().any(|(id, other)| {
            matches!(other.state, State::Connecting(_))
                && self.allowed(other)
                && (other.metered, *id) < (metered(path), path)
        });
        if better && now < since + self.config.head_start {
            return;
        }
        // Under an allowance the first request is bounded by all that is left of it.
        let wire = match self.budget(path) {
            0 => return,
            u64::MAX => Range::new(0, u64::MAX),
            budget => Range::new(0, budget),
        };
        self.send(now, path, wire, wire.end, true);
    }

    /// Finds work for an idle path.
    fn assign(&mut self, now: Time, path: PathId) {
        let budget = self.budget(path);
        let Some(length) = self.object.as_ref().and_then(|object| object.length) else { return };
        if budget == 0 {
            return;
        }
        let chunk = self.config.chunk.as_bytes().min(budget);
        let lead = |gap: &Range| {
            self.requests.values().find(|r| !r.racing && r.end == gap.start && r.wire.end > r.end)
        };
        // A gap without a lead before one with, the largest first.
        let gaps = self.free(Range::new(0, length));
        let best = gaps
            .map(|gap| (lead(&gap).is_none(), gap))
            .max_by_key(|&(free, gap)| (free, gap.len(), std::cmp::Reverse(gap.start)));
        match best {
            Some((true, gap)) => {
                let end = gap.end.min(gap.start.saturating_add(chunk));
                let wire = Range::new(gap.start, gap.end.min(gap.start.saturating_add(budget)));
                self.send(now, path, wire, end, false);
            }
            Some((false, gap)) => {
                let fair = lead(&gap).and_then(|lead| self.fair(now, path, lead, gap));
                let take = chunk.min(gap.len()).min(fair.unwrap_or(u64::MAX));
                if take >= LEAST_PIECE.min(chunk) {
                    let piece = Range::new(gap.end - take, gap.end);
                    self.send(now, path, piece, piece.end, false);
                } else {
                    // What is left is so little that the lead is there first, unless it is silent.
                    self.take_over(now, path, budget);
                }
            }
            None => self.take_over(now, path, budget),
        }
    }

    /// How much of a gap's upper end is fetched over `path` by the time its lead gets there; `None`
    /// while the lead's rate is not known, or when it has gone silent.
    fn fair(&self, now: Time, path: PathId, lead: &Request, gap: Range) -> Option<u64> {
        if now >= lead.last + self.patience(lead) {
            return None;
        }
        let (leading, own) = (self.paths.get(&lead.path)?, self.paths.get(&path)?);
        let theirs = leading.throughput.rate(now)?;
        let ours = own.throughput.rate(now).unwrap_or(theirs);
        let delay = own.delay.or(leading.delay)?;
        let rest = Size::from_bytes(gap.end.saturating_sub(lead.pos));
        Some(share(rest, theirs, ours, delay))
    }

    /// No bytes are free: helps the request that would hold the end up the longest.
    fn take_over(&mut self, now: Time, path: PathId, budget: u64) {
        let best = self
            .requests
            .iter()
            .filter(|(_, request)| !request.racing && request.path != path)
            .filter_map(|(id, request)| self.takeover(now, path, *id, request))
            .max_by_key(|takeover| takeover.gain);
        let Some(Takeover { victim, mut range, race, .. }) = best else { return };
        let Some(request) = self.requests.get_mut(&victim) else { return };
        if race {
            range.end = range.end.min(range.start.saturating_add(budget));
            request.racing = range.end == request.end;
            if !request.racing {
                return;
            }
        } else {
            range.start = range.start.max(range.end.saturating_sub(budget));
            request.end = range.start;
        }
        self.send(now, path, range, range.end, false);
    }

    /// What `path` would take over from a request, if that makes the end come sooner.
    fn takeover(
        &self,
        now: Time,
        path: PathId,
        victim: RequestId,
        request: &Request,
    ) -> Option<Takeover> {
        let owed = Range::new(request.pos, request.end);
        if owed.is_empty() {
            return None;
        }
        if now >= request.last + self.patience(request) {
            return Some(Takeover { victim, range: owed, gain: Span::MAX, race: true });
        }
        let thief = self.paths.get(&path)?;
        let theirs = self.paths.get(&request.path)?.throughput.rate(now)?;
        // A path that has not shown what it can is taken to be like the other.
        let ours = thief.throughput.rate(now).unwrap_or(theirs);
        let delay = thief.delay.or(self.paths.get(&request.path)?.delay)?;
        let take = share(Size::from_bytes(owed.len()), theirs, ours, delay);
        let gain = theirs.time_for(Size::from_bytes(take));
        if take < LEAST_PIECE.min(owed.len()) || take == 0 || gain < self.config.gain {
            return None;
        }
        let range = Range::new(owed.end - take, owed.end);
        Some(Takeover { victim, range, gain, race: false })
    }

    /// How long a request may bring nothing before it counts as silent.
    fn patience(&self, request: &Request) -> Span {
        match self.paths.get(&request.path).and_then(|path| path.delay) {
            Some(delay) => SILENT_LEAST.max(delay * SILENT_DELAYS),
            None => SILENT_UNKNOWN,
        }
    }
}

/// Equation 1 of MP-H2 for bytes that path `theirs` is already receiving: how many of the `owed`
/// another path at rate `ours` takes, so that both end together although its bytes begin to come
/// only after `delay`.
fn share(owed: Size, theirs: Rate, ours: Rate, delay: Span) -> u64 {
    let alone = theirs.time_for(owed);
    if alone <= delay || ours.is_zero() {
        return 0;
    }
    if theirs.is_zero() {
        return owed.as_bytes();
    }
    // ours × (T − delay) + theirs × T = owed, and the share is ours × (T − delay).
    let head_start = theirs.size_in(delay);
    let rest = u128::from(owed.saturating_sub(head_start).as_bytes());
    let sum = u128::from(ours.as_bps()) + u128::from(theirs.as_bps());
    u64::try_from(rest * u128::from(ours.as_bps()) / sum).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_end_together() {
        // 3 MB at 8 Mbit/s, helped at 16 Mbit/s after 0.3 s: at T, 1 MB/s × T + 2 MB/s × (T − 0.3)
        // is 3 MB; T is 1.2 s, of which the helper brings 1.8 MB.
        let take = share(
            Size::from_bytes(3_000_000),
            Rate::from_mbps(8),
            Rate::from_mbps(16),
            Span::from_millis(300),
        );
        assert_eq!(take, 1_800_000);
    }

    #[test]
    fn nothing_is_taken_that_would_come_later() {
        let owed = Size::from_bytes(1_000);
        let rate = Rate::from_mbps(8);
        assert_eq!(share(owed, rate, rate, Span::from_millis(1)), 0);
        assert_eq!(share(owed, rate, Rate::ZERO, Span::ZERO), 0);
        assert_eq!(share(owed, Rate::ZERO, rate, Span::from_millis(1)), 1_000);
    }
}
