//! Who fetches what next: the choices of [`Fetch`].
//!
//! [`Scheduler::MpH2`] is Algorithm 1 of MP-H2 (Nikravesh et al., MobiCom 2019, §3.5) for any
//! number of paths: where the paper solves equation 1 for two of them, a *level* is computed here:
//! the moment at which all paths end together when each brings its rate from the moment on at
//! which its bytes can flow. For two paths that is equation 1.

use manyways_unit::{Span, Time};

use super::transfer::{Request, State};
use super::{Fetch, PathId, Range, RangeEnd, RequestId, Scheduler};

/// A request is not worth less than this.
const LEAST_PIECE: u64 = 16 * 1024;
/// What is taken at once from a request that cannot be cut without loss is not less than this.
const UNCUT_PIECE: u64 = 256 * 1024;
/// A path is silent after so many response delays…
const SILENT_DELAYS: u64 = 4;
/// …and not before.
const SILENT_LEAST: Span = Span::from_millis(400);
/// The same for a path that never answered.
const SILENT_UNKNOWN: Span = Span::from_secs(1);
/// The next request goes out so much before an answer is due: estimates are a little late when a
/// queue builds up, and a request that is early costs nothing.
const EARLY: Span = Span::from_millis(10);

/// What a path can do and has to do, in seconds and bytes.
#[derive(Clone, Copy, Debug)]
struct Load {
    path: PathId,
    /// Bytes a second; nothing while it is not known, zero when it is silent.
    rate: Option<f64>,
    /// Until the bytes of its current request flow.
    wait: f64,
    /// What its requests still have to bring.
    owed: u64,
}

impl Load {
    /// When it will be done, or nothing where that cannot be told.
    fn end(&self) -> Option<f64> {
        let rate = self.rate?;
        Some(if self.owed == 0 { self.wait } else { self.wait + self.owed as f64 / rate })
    }
}

impl Fetch {
    /// Gives every path that can work something to do.
    pub(super) fn schedule(&mut self, now: Time) {
        let due: Vec<PathId> = self
            .paths
            .iter()
            .filter(|(id, p)| {
                matches!(p.state, State::Waiting(at) if at <= now) && self.wants(**id, p)
            })
            .map(|(id, _)| *id)
            .collect();
        for id in due {
            self.connect(now, id);
        }
        match self.goal() {
            Some(goal) => {
                for path in self.free_paths() {
                    self.feed(now, path, goal);
                }
            }
            None if self.object.is_none() && self.requests.is_empty() => self.open_somewhere(now),
            None => {}
        }
    }

    /// When a choice may come out differently although nothing happened.
    pub(super) fn schedule_wakeup(&self) -> Option<Time> {
        let idle = self.paths.iter().filter_map(|(id, path)| match path.state {
            State::Ready(since) if self.allowed(path) && self.load_of(*id) == 0 => Some(since),
            _ => None,
        });
        if self.goal().is_none() {
            // The first GET waits for a preferred path.
            let first = idle.min()?;
            let opening = self.object.is_none() && self.requests.is_empty();
            return opening.then_some(first + self.config.head_start);
        }
        if idle.count() == 0 {
            return None;
        }
        // An idle path waits for another to go silent.
        let busy = self.requests.values().filter(|request| !request.racing);
        busy.filter_map(|request| {
            let path = self.paths.get(&request.path)?;
            Some(path.heard + self.patience(request.path))
        })
        .min()
    }

    /// How many requests a path has.
    pub(super) fn load_of(&self, path: PathId) -> usize {
        self.requests.values().filter(|request| request.path == path).count()
    }

    /// The requests of a path, in the order in which they were sent.
    pub(super) fn requests_of(&self, path: PathId) -> impl Iterator<Item = (RequestId, &Request)> {
        self.requests.iter().filter(move |(_, r)| r.path == path).map(|(id, r)| (*id, r))
    }

    /// Paths that could take a request, those without a price first.
    fn free_paths(&self) -> Vec<PathId> {
        let free = self.paths.iter().filter(|(id, path)| {
            matches!(path.state, State::Ready(_))
                && self.allowed(path)
                && !path.draining
                && self.load_of(**id) < self.most_requests(**id)
        });
        let mut free: Vec<(bool, PathId)> = free.map(|(id, path)| (path.metered, *id)).collect();
        free.sort_unstable();
        free.into_iter().map(|(_, id)| id).collect()
    }

    /// How many requests a path may have at once.
    fn most_requests(&self, path: PathId) -> usize {
        let multiplexed = self.paths.get(&path).is_some_and(|path| path.multiplexed);
        let pipelined = self.config.pipelining
            && self.config.scheduler == Scheduler::MpH2
            && self.object.is_some();
        if multiplexed && pipelined { 2 } else { 1 }
    }

    /// Sends the first request, unless a better path is about to be ready.
    fn open_somewhere(&mut self, now: Time) {
        let idle = self.free_paths();
        let Some(&path) = idle.first() else { return };
        // From the first connection on, whichever it was: every further one would wait anew.
        let since = idle.iter().filter_map(|id| match self.paths.get(id)?.state {
            State::Ready(since) => Some(since),
            _ => None,
        });
        let since = since.min().unwrap_or(now);
        if self.is_better_path_coming(path) && now < since + self.config.head_start {
            return;
        }
        // Under an allowance the first request is bounded by all that is left of it.
        let most = match self.config.scheduler {
            Scheduler::FixedChunk(chunk) if !self.all_at_once => chunk.as_bytes(),
            _ => u64::MAX,
        };
        let wire = Range::new(0, self.budget(path).min(most));
        if !wire.is_empty() {
            self.send(now, path, wire, wire.end);
        }
    }

    /// Whether a path that comes before this one is being connected.
    fn is_better_path_coming(&self, path: PathId) -> bool {
        let metered = |id: PathId| self.paths.get(&id).is_some_and(|path| path.metered);
        self.paths.iter().any(|(id, other)| {
            matches!(other.state, State::Connecting(_))
                && self.allowed(other)
                && (other.metered, *id) < (metered(path), path)
        })
    }

    /// Finds work for a path that could take a request.
    fn feed(&mut self, now: Time, path: PathId, goal: u64) {
        let budget = self.budget(path);
        if budget == 0 {
            return;
        }
        match self.config.scheduler {
            Scheduler::MpH2 => {}
            Scheduler::FixedChunk(chunk) => {
                let chunk = chunk.as_bytes().max(1).min(budget);
                let gap = self.free(Range::new(0, goal)).next();
                if let Some(gap) = gap {
                    let end = gap.end.min(gap.start.saturating_add(chunk));
                    self.send(now, path, Range::new(gap.start, end), end);
                } else {
                    self.race(now, path, budget);
                }
                return;
            }
            Scheduler::EqualSplit => return self.feed_equally(now, path, goal, budget),
            // No other path is connected.
            Scheduler::Single => {}
        }
        // One round trip before its last bytes are due, not sooner (line 4 of the algorithm).
        let ready = match self.requests_of(path).next() {
            Some((_, current)) => {
                let Some(load) = self.load(now, path) else { return };
                let due = load.end().filter(|_| current.answered && !current.racing);
                let Some(due) = due else { return };
                if due > seconds(self.response_delay(path).unwrap_or_default() + EARLY) {
                    return;
                }
                due
            }
            None => 0.0,
        };
        if self.take_free(now, path, goal, ready, budget) {
            return;
        }
        self.take_over(now, path, ready, budget);
    }

    /// An equal part of what is left of the object, once.
    fn feed_equally(&mut self, now: Time, path: PathId, goal: u64, budget: u64) {
        let gaps: Vec<Range> = self.free(Range::new(0, goal)).collect();
        let longest = self.requests.iter().filter(|(_, r)| !r.racing && r.path != path);
        let longest = longest.max_by_key(|(_, r)| r.end.saturating_sub(r.pos.max(r.wire.start)));
        let fresh = self.paths.get(&path).is_some_and(|path| path.stats.requests == 0);
        match (gaps.first(), longest.map(|(id, request)| (*id, request.wire.start, request.end))) {
            (Some(gap), _) => {
                let end = gap.end.min(gap.start.saturating_add(budget));
                self.send(now, path, Range::new(gap.start, end), end);
            }
            (None, Some((victim, start, end))) if fresh => {
                let all = self.paths.values().filter(|path| path.state.is_alive()).count();
                let others = self.paths.values().filter(|path| path.stats.requests > 0).count();
                // The first takes all; each that comes later leaves it what is fair.
                let rest = (all.saturating_sub(others)).max(1) as u64;
                let share = (end - start) / (rest + 1);
                let from = end.saturating_sub(share.min(budget));
                let pos = self.requests.get(&victim).map_or(0, |request| request.pos);
                if from > pos && from < end {
                    self.shorten(now, victim, from);
                    self.send(now, path, Range::new(from, end), end);
                }
            }
            _ => {
                self.race(now, path, budget);
            }
        }
    }

    /// What a path has to do; nothing for one that does not work and could not.
    fn load(&self, now: Time, id: PathId) -> Option<Load> {
        let path = self.paths.get(&id)?;
        let (mut owed, mut wait) = (0, 0.0);
        let mut first = true;
        for (_, request) in self.requests_of(id).filter(|(_, request)| !request.racing) {
            owed += request.end.saturating_sub(request.pos);
            if first && !request.answered {
                let delay = request.expected.unwrap_or_default();
                wait = seconds((request.sent + delay).since(now));
            }
            first = false;
        }
        let silent = owed > 0 && self.is_silent(now, id);
        let rate = if silent { Some(0.0) } else { self.rate(now, id) };
        let working = owed > 0 || matches!(path.state, State::Ready(_)) && self.allowed(path);
        working.then_some(Load { path: id, rate, wait, owed })
    }

    /// Bytes a second that a path brings, as far as that is known.
    fn rate(&self, now: Time, id: PathId) -> Option<f64> {
        let path = self.paths.get(&id)?;
        let known = path.known.map(|known| known.rate);
        let rate = path.throughput.rate(now).or(known)?;
        (!rate.is_zero()).then(|| rate.as_bps() as f64 / 8.0)
    }

    /// From a request to the head of its answer. Where nothing is under way nothing waits in a
    /// queue either, whatever it was before.
    pub(super) fn response_delay(&self, id: PathId) -> Option<Span> {
        let path = self.paths.get(&id)?;
        let idle = self.load_of(id) == 0;
        let least = path.round_trip.least().filter(|_| idle);
        least.or(path.round_trip.mean()).or(path.delay).or(path.known.map(|known| known.rtt))
    }

    /// How many bytes `path` should take on, where its own are done after `ready`: what it brings
    /// until the moment at which every path is done.
    fn quota(&self, now: Time, path: PathId, free: u64, ready: f64) -> Quota {
        let mut loads: Vec<Load> = self.paths.keys().filter_map(|id| self.load(now, *id)).collect();
        let known: Vec<f64> =
            loads.iter().filter_map(|load| load.rate).filter(|rate| *rate > 0.0).collect();
        // A path that has not shown what it can is taken to be like the others.
        let likely = known.iter().sum::<f64>() / known.len() as f64;
        let blind = known.is_empty();
        let mut bytes = free as f64;
        for load in &mut loads {
            let rate = load.rate.unwrap_or(if blind { 1.0 } else { likely });
            load.rate = Some(rate);
            if load.path == path {
                load.wait = ready;
                continue;
            }
            bytes += load.owed as f64;
            if blind {
                load.wait = 0.0;
            } else if load.owed == 0 {
                load.wait = seconds(self.response_delay(load.path).unwrap_or_default());
            }
        }
        let level = level(loads.iter().map(|load| (load.rate.unwrap_or(0.0), load.wait)), bytes);
        let own = loads.iter().find(|load| load.path == path);
        let own = own.and_then(|own| own.rate).unwrap_or(0.0);
        // Rounded up: of one byte, two paths would leave a half to each other.
        Quota { bytes: (own * (level - ready)).max(0.0).ceil() as u64, level, loads }
    }

    /// How many of the `free` bytes right behind its end a request goes on to.
    pub(super) fn stretch(&self, now: Time, path: PathId, free: u64) -> u64 {
        let budget = self.budget(path);
        match self.config.scheduler {
            _ if free == 0 || budget == 0 => 0,
            Scheduler::MpH2 => {
                let quota = self.quota(now, path, free, 0.0).bytes.max(LEAST_PIECE);
                all_or(quota, free).min(budget)
            }
            Scheduler::EqualSplit | Scheduler::Single => free.min(budget),
            Scheduler::FixedChunk(_) => 0,
        }
    }

    /// Takes bytes that nobody fetches; whether there were any that it should take.
    fn take_free(&mut self, now: Time, path: PathId, goal: u64, ready: f64, budget: u64) -> bool {
        let gaps: Vec<Range> = self.free(Range::new(0, goal)).collect();
        let free: u64 = gaps.iter().map(|gap| gap.len()).sum();
        if free == 0 {
            return false;
        }
        let before = |gap: &Range| {
            let mut owners = self.requests.iter().filter(|(_, r)| !r.racing);
            owners.find(|(_, r)| r.end == gap.start && r.wire.end > r.end)
        };
        // Its own request goes on, if it can.
        let own = gaps.iter().find_map(|gap| {
            before(gap).filter(|(_, r)| r.path == path).map(|(id, r)| (*id, r.wire.end, *gap))
        });
        if let Some((id, wire_end, gap)) = own {
            let quota = self.quota(now, path, free, ready).bytes.max(LEAST_PIECE);
            let more = all_or(quota, gap.len()).min(budget);
            if let Some(request) = self.requests.get_mut(&id) {
                request.end = (gap.start + more).min(wire_end);
            }
            self.prolonged(id);
            return true;
        }
        // A gap into which nobody can go on before one with, the largest first.
        let best = gaps
            .iter()
            .map(|gap| (before(gap).is_none(), *gap))
            .max_by_key(|&(alone, gap)| (alone, gap.len(), std::cmp::Reverse(gap.start)));
        let Some((alone, gap)) = best else { return false };
        let delay = seconds(self.response_delay(path).unwrap_or_default());
        let quota = self.quota(now, path, free, ready.max(delay));
        let coming = !alone || self.requests.is_empty() && self.is_better_path_coming(path);
        if quota.bytes == 0 {
            return false;
        }
        let share = if coming && alone { quota.bytes / 2 } else { quota.bytes };
        let take = all_or(share.max(LEAST_PIECE), gap.len()).min(budget);
        if coming {
            // Whoever is below goes on up to here.
            let piece = Range::new(gap.end - take, gap.end);
            self.send(now, path, piece, piece.end);
        } else {
            // Where a request can be cut without a loss, it asks for all and may go on.
            let past = self.aim().filter(|_| gap.end == goal).unwrap_or(gap.end);
            let reach = if self.can_cut(path) { past - gap.start } else { take };
            let wire = Range::new(gap.start, gap.start + reach.min(budget).max(take));
            self.send(now, path, wire, gap.start + take);
        }
        true
    }

    /// Whether a request of the path can be ended early at no cost.
    pub(super) fn can_cut(&self, path: PathId) -> bool {
        self.config.range_end == RangeEnd::Window
            && self.paths.get(&path).is_some_and(|path| path.multiplexed)
    }

    /// No bytes are free: takes over the end of what the path that ends last has to bring.
    fn take_over(&mut self, now: Time, path: PathId, ready: f64, budget: u64) {
        if self.race(now, path, budget) {
            return;
        }
        let delay = seconds(self.response_delay(path).unwrap_or_default());
        let start = ready.max(delay);
        let quota = self.quota(now, path, 0, start);
        let blind = quota.loads.iter().all(|load| self.rate(now, load.path).is_none());
        let last = quota
            .loads
            .iter()
            // A silent path keeps what it has until an idle one races against it: with nothing to
            // do it would be given something.
            .filter(|load| load.path != path && load.owed > 0 && load.rate != Some(0.0))
            .max_by(|a, b| a.end().unwrap_or(0.0).total_cmp(&b.end().unwrap_or(0.0)));
        let Some(last) = last else { return };
        let (Some(end), Some(rate)) = (last.end(), last.rate) else { return };
        let gain = seconds(self.config.gain);
        if !blind && end - ready <= gain {
            return;
        }
        let keeps = (rate * (quota.level - last.wait)).max(0.0) as u64;
        let surplus = last.owed.saturating_sub(keeps);
        let take = quota.bytes.min(surplus).min(budget);
        let victims = self.requests_of(last.path).filter(|(_, request)| !request.racing);
        let Some((victim, request)) = victims.max_by_key(|(id, _)| *id) else { return };
        let owed = request.end.saturating_sub(request.pos);
        let mut take = take.min(owed);
        if !self.paths.get(&last.path).is_some_and(|path| path.multiplexed) {
            // To cut it costs its connection, so it had better not run out of work: a little at a
            // time, until it is known how much is right.
            let known = self.rate(now, path).is_some();
            take = take.min(if known { (take / 2).max(UNCUT_PIECE) } else { 2 * UNCUT_PIECE });
        }
        if take < LEAST_PIECE.min(owed) || take == 0 {
            return;
        }
        // What the server may send already comes anyway. To fetch it once more is worth it only
        // where the end would otherwise be clearly later.
        let open = request.end.saturating_sub(request.granted.max(request.pos));
        if take > open {
            let later = (take - open) as f64 / rate;
            if later <= gain {
                take = open;
            }
        } else if open - take < self.least_credit(request.path) {
            // A sliver of credit would wait until nearly all before it has come.
            let sliver = open - take;
            take += if sliver * 2 < self.least_credit(request.path) { sliver } else { 0 };
        }
        if take < LEAST_PIECE.min(owed) || take == 0 {
            return;
        }
        let piece = Range::new(request.end - take, request.end);
        self.shorten(now, victim, piece.start);
        self.send(now, path, piece, piece.end);
    }

    /// Asks once more for what a silent path owes: whoever is first brings it.
    fn race(&mut self, now: Time, path: PathId, budget: u64) -> bool {
        if self.load_of(path) > 0 {
            return false;
        }
        let silent = self
            .requests
            .iter()
            .filter(|(_, r)| !r.racing && r.path != path && r.pos < r.end)
            .filter(|(_, r)| self.is_silent(now, r.path))
            .max_by_key(|(_, r)| r.end - r.pos);
        let Some((&victim, request)) = silent else { return false };
        let range = Range::new(request.pos, request.end);
        if range.len() > budget {
            return false;
        }
        if let Some(request) = self.requests.get_mut(&victim) {
            request.racing = true;
        }
        self.send(now, path, range, range.end);
        true
    }

    fn is_silent(&self, now: Time, id: PathId) -> bool {
        self.paths.get(&id).is_some_and(|path| now >= path.heard + self.patience(id))
    }

    /// How long a path with requests may bring nothing before it counts as silent.
    fn patience(&self, id: PathId) -> Span {
        match self.response_delay(id) {
            Some(delay) => SILENT_LEAST.max(delay * SILENT_DELAYS),
            None => SILENT_UNKNOWN,
        }
    }
}

/// What a path should take on.
struct Quota {
    bytes: u64,
    /// When all are done, in seconds from now.
    level: f64,
    loads: Vec<Load>,
}

/// `part`, or all where hardly anything would be left.
fn all_or(part: u64, all: u64) -> u64 {
    if part.saturating_add(LEAST_PIECE) >= all { all } else { part }
}

fn seconds(span: Span) -> f64 {
    span.as_secs_f64()
}

/// The moment at which `bytes` are there when each path brings its rate (bytes a second) from its
/// moment on: equation 1 of MP-H2 for any number of paths.
fn level(paths: impl Iterator<Item = (f64, f64)>, bytes: f64) -> f64 {
    let mut paths: Vec<(f64, f64)> = paths.filter(|(rate, _)| *rate > 0.0).collect();
    paths.sort_by(|a, b| a.1.total_cmp(&b.1));
    let (mut sum, mut owed) = (0.0, bytes);
    let mut at = f64::INFINITY;
    for (i, (rate, from)) in paths.iter().enumerate() {
        if i > 0 && at <= *from {
            break;
        }
        // sum × (t − at so far) + …: all that started before bring `sum` a second.
        owed += rate * from;
        sum += rate;
        at = owed / sum;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_end_together() {
        // 3 MB at 1 MB/s, helped at 2 MB/s after 0.3 s: 1 × T + 2 × (T − 0.3) = 3.
        let two = level([(1e6, 0.0), (2e6, 0.3)].into_iter(), 3e6);
        assert!((two - 1.2).abs() < 1e-9, "{two}");
        // A third path that could only begin after that does not matter; one before does.
        let late = level([(1e6, 0.0), (9e6, 1.2), (2e6, 0.3)].into_iter(), 3e6);
        assert!((late - 1.2).abs() < 1e-9, "{late}");
        let three = level([(1e6, 0.0), (1e6, 1.0), (2e6, 0.3)].into_iter(), 3e6);
        assert!((three - 1.15).abs() < 1e-9, "{three}");
    }

    #[test]
    fn a_silent_path_is_nobody_to_wait_for() {
        assert!((level([(0.0, 0.0), (2e6, 0.5)].into_iter(), 1e6) - 1.0).abs() < 1e-9);
        assert!(level([(0.0, 0.0)].into_iter(), 1e6).is_infinite());
    }
}
