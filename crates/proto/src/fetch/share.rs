//! The share of the object that each path takes, so that all paths finish together.
//!
//! MP-H2 solves equation 1 for two paths. This module computes the common finish time of any number
//! of paths, each with a rate and a time at which its bytes begin to flow. For two paths the result
//! is that of equation 1.

use manyways_unit::{Span, Time};

use super::path::Path;
use super::request::Request;
use super::{Config, Fetch, PathId, Range, RequestId, Scheduler};

/// Initial congestion window in bytes (RFC 6928).
pub(super) const INITIAL_CONGESTION_WINDOW: f64 = 14_480.0;
/// Assumed rate of a path without a measurement, in bytes per second, unless others are faster.
const PRIOR_RATE: f64 = 625e3;
/// Minimum duration of an incomplete first sample of a rate.
const MIN_FIRST_SAMPLE: Span = Span::from_millis(20);
/// Minimum length of a request, unless fewer bytes remain.
pub(super) const MIN_PIECE: u64 = 4 * 1024;
/// Minimum length that is taken from a request that cannot be cut freely.
const MIN_UNCUTTABLE_PIECE: u64 = 256 * 1024;

/// Rate and remaining work of a path, in seconds and bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathLoad {
    path: PathId,
    /// Bytes per second; `None` if unknown, zero for an unresponsive path.
    rate: Option<f64>,
    /// Seconds until the bytes of its current request flow.
    starts_in: f64,
    /// Bytes that its requests have not received.
    remaining_bytes: u64,
    /// State of a connection that has not left slow start.
    slow_start: Option<SlowStart>,
}

/// A connection in slow start.
#[derive(Clone, Copy, Debug)]
struct SlowStart {
    /// Round trip in seconds.
    rtt: f64,
    /// Bytes of the next round trip.
    window: f64,
}

impl Path {
    /// The state of the connection if it is in slow start; `None` if it is not, or if that is
    /// unknown.
    fn slow_start(&self) -> Option<SlowStart> {
        let measured = self.round_trip.min_rtt().or(self.transport_rtt);
        let rtt = seconds(measured.or(self.previous.map(|previous| previous.rtt))?);
        let window = match self.received() {
            0 => INITIAL_CONGESTION_WINDOW,
            _ => self.window.slow_start_window()? as f64,
        };
        (rtt > 0.0).then_some(SlowStart { rtt, window })
    }
}

impl PathLoad {
    /// Seconds until all remaining bytes have arrived; `None` if that is unknown.
    pub(super) fn finishes_in(&self) -> Option<f64> {
        let rate = self.rate?;
        let bytes = self.remaining_bytes as f64;
        Some(match self.slow_start {
            _ if self.remaining_bytes == 0 => self.starts_in,
            Some(_) => time_until(bytes, |at| self.delivered(at)),
            None => self.starts_in + bytes / rate,
        })
    }

    /// Bytes that have arrived after this number of seconds.
    fn delivered(&self, at: f64) -> f64 {
        let (elapsed, rate) = (at - self.starts_in, self.rate.unwrap_or(0.0));
        match self.slow_start {
            _ if elapsed <= 0.0 => 0.0,
            Some(SlowStart { rtt, window }) => slow_start(rate, rtt, window, elapsed),
            None => rate * elapsed,
        }
    }
}

/// Bytes that a path should take.
struct Quota {
    bytes: u64,
    /// Seconds until all paths finish.
    finish_in: f64,
    loads: Vec<PathLoad>,
}

impl Fetch {
    /// The load of a path; `None` if the path has no request and cannot take one.
    pub(super) fn load(&self, now: Time, id: PathId) -> Option<PathLoad> {
        let path = self.paths.get(&id)?;
        let (mut remaining_bytes, mut starts_in) = (0, 0.0);
        for (i, (_, request)) in
            self.requests_of(id).filter(|(_, request)| request.is_owner()).enumerate()
        {
            remaining_bytes += request.remaining();
            if i == 0 && !request.is_answered() {
                let delay = request.expected_delay.unwrap_or_default();
                starts_in = seconds((request.sent + delay).since(now));
            }
        }
        let is_unresponsive = remaining_bytes > 0 && self.is_unresponsive(now, id);
        let rate = if is_unresponsive { Some(0.0) } else { self.rate(now, id) };
        let leftover = self.requests_of(id).filter(|(_, request)| request.is_leftover());
        let leftover: u64 = leftover.map(|(_, request)| request.remaining()).sum();
        if leftover > 0 {
            let rate = self.rate(now, id).unwrap_or(PRIOR_RATE);
            starts_in = starts_in.max(leftover as f64 / rate);
        }
        let is_asked = self.requests_of(id).any(|(_, request)| request.is_question());
        let is_free =
            path.state.is_ready() && self.is_allowed(path) && !is_asked && !self.is_silent(now, id);
        let is_working = remaining_bytes > 0 || is_free;
        let slow_start = path.slow_start();
        // While the bytes per round trip double, the measured rate is that of the past.
        let rate = match slow_start {
            Some(SlowStart { rtt, window }) if path.received() > 0 && rate != Some(0.0) => {
                Some(rate.unwrap_or(0.0).max(window / rtt))
            }
            _ => rate,
        };
        is_working.then_some(PathLoad { path: id, rate, starts_in, remaining_bytes, slow_start })
    }

    /// Seconds until an idle path has fetched this number of bytes; `None` if it cannot.
    pub(super) fn fetch_time(&self, now: Time, id: PathId, bytes: u64) -> Option<f64> {
        let mut load = self.load(now, id)?;
        load.rate = Some(load.rate.or_else(|| self.mean_rate(now)).unwrap_or(PRIOR_RATE));
        load.starts_in = seconds(self.response_delay(id)?);
        load.remaining_bytes = bytes;
        load.finishes_in()
    }

    /// Mean of the known rates of all paths.
    fn mean_rate(&self, now: Time) -> Option<f64> {
        let known: Vec<f64> = self.paths.keys().filter_map(|id| self.rate(now, *id)).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    }

    /// Bytes per second of a path; `None` if unknown.
    pub(super) fn rate(&self, now: Time, id: PathId) -> Option<f64> {
        let path = self.paths.get(&id)?;
        let previous = path.previous.map(|previous| previous.rate);
        let rtt = self.round_trip(id).or(path.transport_rtt).unwrap_or_default();
        let min = rtt.max(MIN_FIRST_SAMPLE);
        let measured = path.throughput.rate(now).or(path.throughput.first_rate(now, min));
        let rate = measured.or(previous)?;
        (!rate.is_zero()).then(|| rate.as_bps() as f64 / 8.0)
    }

    /// From a request to the head of its response: the round trip, and the time that the server
    /// takes.
    pub(super) fn response_delay(&self, id: PathId) -> Option<Span> {
        let path = self.paths.get(&id)?;
        let with_server = |rtt: Span| rtt + self.server_time.unwrap_or_default();
        let measured = self.round_trip(id).map(with_server).or(path.response_delay);
        let previous = path.previous.map(|previous| previous.rtt);
        measured.or(previous).or(path.transport_rtt.map(with_server))
    }

    /// The measured round trip of a path. An idle path has no queueing delay, so its smallest RTT
    /// counts.
    pub(super) fn round_trip(&self, id: PathId) -> Option<Span> {
        let path = self.paths.get(&id)?;
        let is_idle = self.load_of(id) == 0;
        let min = path.round_trip.min_rtt().filter(|_| is_idle);
        min.or(path.round_trip.mean())
    }

    /// Notes how long a server took, at most: the time to the head of a response beyond the
    /// smallest RTT. The smallest value of the fetch counts, because a head may wait in a queue.
    pub(super) fn observe_server_time(&mut self, id: PathId, delay: Span) {
        let Some(path) = self.paths.get(&id) else { return };
        let Some(rtt) = path.round_trip.min_rtt().or(path.transport_rtt) else { return };
        let time = delay.saturating_sub(rtt);
        self.server_time = Some(self.server_time.map_or(time, |known| known.min(time)));
    }

    /// Bytes that `path` should take if its own are received after `ready` seconds: its share until
    /// all paths finish. `free` bytes are not requested by any path.
    fn quota(&self, now: Time, path: PathId, free: u64, ready: f64) -> Quota {
        let mut loads: Vec<PathLoad> =
            self.paths.keys().filter_map(|id| self.load(now, *id)).collect();
        let known: Vec<f64> =
            loads.iter().filter_map(|load| load.rate).filter(|rate| *rate > 0.0).collect();
        // A path without a known rate counts with the mean of the others, or with more.
        let mean = known.iter().sum::<f64>() / known.len().max(1) as f64;
        let mut bytes = free as f64;
        for load in &mut loads {
            let rate = load.rate.unwrap_or(mean.max(PRIOR_RATE));
            load.rate = Some(rate);
            if load.path == path {
                load.starts_in = ready;
                continue;
            }
            bytes += load.remaining_bytes as f64;
            if load.remaining_bytes == 0 {
                let delay = seconds(self.response_delay(load.path).unwrap_or_default());
                load.starts_in = load.starts_in.max(delay);
            }
        }
        let finish_in = equal_finish_time(&loads, bytes);
        let own = loads.iter().find(|load| load.path == path);
        // Rounded up: otherwise two paths would each leave half of the last byte to the other.
        let bytes = own.map_or(0.0, |own| own.delivered(finish_in)).ceil() as u64;
        Quota { bytes, finish_in, loads }
    }

    /// By how many of the `free` bytes after its end a request is extended.
    pub(super) fn extension(&self, now: Time, path: PathId, free: u64) -> u64 {
        let budget = self.budget(path);
        match self.config.scheduler {
            _ if free == 0 || budget == 0 => 0,
            Scheduler::MpH2 => {
                let quota = self.quota(now, path, free, 0.0).bytes.max(MIN_PIECE);
                absorb_remainder(quota, free).min(budget)
            }
            Scheduler::EqualSplit | Scheduler::Single => free.min(budget),
            Scheduler::FixedChunk(_) | Scheduler::MsPlayer => 0,
        }
    }

    /// Assigns unrequested bytes. Returns whether there were any to assign.
    pub(super) fn assign_unrequested(
        &mut self,
        now: Time,
        path: PathId,
        goal: u64,
        ready: f64,
        budget: u64,
    ) -> bool {
        let gaps: Vec<Range> = self.unrequested_gaps(Range::new(0, goal)).collect();
        let free: u64 = gaps.iter().map(|gap| gap.len()).sum();
        if free == 0 {
            return false;
        }
        let own = gaps.iter().find_map(|gap| {
            let (id, before) = self.request_before(*gap).filter(|(_, r)| r.path == path)?;
            Some((id, before.requested.end, *gap))
        });
        if let Some((id, requested_end, gap)) = own {
            // The path's own request is extended.
            let quota = self.quota(now, path, free, ready).bytes.max(MIN_PIECE);
            let more = absorb_remainder(quota, gap.len()).min(budget);
            if let Some(request) = self.requests.get_mut(&id) {
                request.end = (gap.start + more).min(requested_end);
            }
            self.extend(now, id);
            return true;
        }
        // A gap that no request can be extended into has precedence; then the largest gap.
        let best = gaps
            .iter()
            .map(|gap| (self.request_before(*gap).is_none(), *gap))
            .max_by_key(|&(is_alone, gap)| (is_alone, gap.len(), std::cmp::Reverse(gap.start)));
        let Some((is_alone, gap)) = best else { return false };
        let delay = seconds(self.response_delay(path).unwrap_or_default());
        let quota = self.quota(now, path, free, ready.max(delay)).bytes;
        if quota == 0 {
            return false;
        }
        let leaves_beginning =
            !is_alone || self.requests.is_empty() && self.is_cheaper_path_connecting(path);
        let share = if leaves_beginning && is_alone { quota / 2 } else { quota };
        let take = absorb_remainder(share.max(MIN_PIECE), gap.len()).min(budget);
        if leaves_beginning {
            // The previous request or path continues up to here.
            let piece = Range::new(gap.end - take, gap.end);
            self.send(now, path, piece, piece.end);
        } else {
            // A request that can be cut freely asks for all following bytes, so that it can be
            // extended. With a limit for metered paths, the server must not send more than it
            // should.
            let past = self.final_goal().filter(|_| gap.end == goal).unwrap_or(gap.end);
            let is_extensible = self.can_cut_freely(path) && budget == u64::MAX;
            let reach = if is_extensible { past - gap.start } else { take };
            let requested = Range::new(gap.start, gap.start + reach.max(take));
            self.send(now, path, requested, gap.start + take);
        }
        true
    }

    /// The request that ends where the gap begins, if it can be extended into the gap.
    fn request_before(&self, gap: Range) -> Option<(RequestId, &Request)> {
        self.owners()
            .find(|(_, r)| r.end == gap.start && r.requested.end > r.end && !r.is_question())
    }

    /// Takes over the end of the remaining range of the path that finishes last. Returns whether a
    /// request was sent.
    pub(super) fn take_over(&mut self, now: Time, path: PathId, ready: f64, budget: u64) -> bool {
        let delay = seconds(self.response_delay(path).unwrap_or_default());
        let quota = self.quota(now, path, 0, ready.max(delay));
        let is_blind = quota.loads.iter().all(|load| self.rate(now, load.path).is_none());
        let last = quota
            .loads
            .iter()
            // An unresponsive path keeps its range until an idle path races against it. A path
            // without a range would be assigned new bytes.
            .filter(|load| load.path != path && load.remaining_bytes > 0 && load.rate != Some(0.0))
            .max_by(|a, b| {
                a.finishes_in().unwrap_or(0.0).total_cmp(&b.finishes_in().unwrap_or(0.0))
            });
        let Some(last) = last else { return false };
        let (Some(end), Some(rate)) = (last.finishes_in(), last.rate) else { return false };
        let min_gain = self.min_gain(last.path);
        if !is_blind && end - ready <= min_gain {
            return false;
        }
        let keeps = last.delivered(quota.finish_in) as u64;
        let surplus = last.remaining_bytes.saturating_sub(keeps);
        let owners = self.requests_of(last.path).filter(|(_, request)| request.is_owner());
        let Some((victim, request)) = owners.max_by_key(|(id, _)| *id) else { return false };
        let remaining = request.remaining();
        let mut take = quota.bytes.min(surplus).min(budget).min(remaining);
        if !self.paths.get(&last.path).is_some_and(|path| path.is_multiplexed()) {
            // A cut costs the path its connection, so the path should not run out of work. Small
            // parts are taken until the right amount is known.
            let is_known = self.rate(now, path).is_some();
            let max = (take / 2).max(MIN_UNCUTTABLE_PIECE);
            take = take.min(if is_known { max } else { 2 * MIN_UNCUTTABLE_PIECE });
        }
        let is_worthwhile = |take: u64| take > 0 && take >= MIN_PIECE.min(remaining);
        if !is_worthwhile(take) {
            return false;
        }
        let take = self.spare_credit(request, take, rate).min(budget);
        if !is_worthwhile(take) {
            return false;
        }
        if let Some(max) = self.max_unsteady_piece(now, path) {
            let end = self.unraced_end(request);
            let take = take.min(max).min(end.saturating_sub(request.next_offset));
            if !is_worthwhile(take) {
                return false;
            }
            self.race_from_end(now, path, Range::new(end - take, end));
            return true;
        }
        let end = request.end;
        let piece = Range::new(end - take, end);
        self.shorten(now, victim, piece.start);
        self.send(now, path, piece, piece.end);
        true
    }

    /// Minimum number of seconds that taking over bytes from this path must save.
    fn min_gain(&self, path: PathId) -> f64 {
        let is_multiplexed = self.paths.get(&path).is_some_and(|path| path.is_multiplexed());
        let Config { min_gain, min_sequential_gain, .. } = self.config;
        seconds(if is_multiplexed { min_gain } else { min_sequential_gain })
    }

    /// The offset from which on another path may take over the bytes of a request. The server sends
    /// the bytes for which it has credit in any case, and the limit for metered paths counts them.
    pub(super) fn first_movable(&self, request: &Request) -> u64 {
        let is_limited = self.budget(request.path) < u64::MAX;
        let granted =
            if is_limited && self.can_cut_freely(request.path) { request.granted } else { 0 };
        request.next_offset.max(granted)
    }

    /// How many of `take` bytes should be taken from the end of a request. The server sends the
    /// bytes for which it has credit in any case. To fetch these a second time is worthwhile only
    /// if the fetch would otherwise end later by more than the minimum gain. `rate` is that of the
    /// request's path, in bytes per second.
    fn spare_credit(&self, request: &Request, take: u64, rate: f64) -> u64 {
        let movable = request.end.saturating_sub(self.first_movable(request));
        let open = request.end.saturating_sub(request.granted.max(request.next_offset));
        let take = take.min(movable);
        if take > open {
            let later = (take - open) as f64 / rate;
            return if later <= self.min_gain(request.path) { open } else { take };
        }
        // A small remainder of credit would be granted only after nearly all bytes before it have
        // arrived.
        let sliver = open - take;
        let min_credit = self.min_credit(request.path);
        if sliver < min_credit && sliver * 2 < min_credit { take + sliver } else { take }
    }
}

/// Returns `part`, or `all` if less than one minimum piece would remain.
fn absorb_remainder(part: u64, all: u64) -> u64 {
    if part.saturating_add(MIN_PIECE) >= all { all } else { part }
}

pub(super) fn seconds(span: Span) -> f64 {
    span.as_secs_f64()
}

/// Seconds until `bytes` have arrived if each path delivers as its load describes.
fn equal_finish_time(loads: &[PathLoad], bytes: f64) -> f64 {
    if loads.iter().any(|load| load.slow_start.is_some()) {
        return time_until(bytes, |at| loads.iter().map(|load| load.delivered(at)).sum());
    }
    let rates = loads.iter().map(|load| (load.rate.unwrap_or(0.0), load.starts_in));
    linear_finish_time(rates, bytes)
}

/// As [`equal_finish_time`] if each path delivers its rate (bytes per second) from its start on:
/// equation 1 of MP-H2 for any number of paths.
fn linear_finish_time(paths: impl Iterator<Item = (f64, f64)>, bytes: f64) -> f64 {
    let mut paths: Vec<(f64, f64)> = paths.filter(|(rate, _)| *rate > 0.0).collect();
    paths.sort_by(|a, b| a.1.total_cmp(&b.1));
    let (mut sum, mut owed) = (0.0, bytes);
    let mut at = f64::INFINITY;
    for (i, (rate, from)) in paths.iter().enumerate() {
        if i > 0 && at <= *from {
            break;
        }
        // Solves sum × t − Σ(rate × start) = bytes for t: all paths that started earlier deliver
        // `sum` per second.
        owed += rate * from;
        sum += rate;
        at = owed / sum;
    }
    at
}

/// Bytes that arrive within `elapsed` seconds over a connection that starts with this window
/// and doubles it in each round trip, until the window fills the path.
pub(super) fn slow_start(rate: f64, rtt: f64, mut window: f64, elapsed: f64) -> f64 {
    let (mut bytes, mut from) = (0.0, 0.0);
    // A window of zero would never fill the path.
    window = window.max(1.0);
    while window < rate * rtt && from + rtt <= elapsed {
        bytes += window;
        from += rtt;
        window *= 2.0;
    }
    let rest = rate * (elapsed - from);
    bytes + if window < rate * rtt { rest.min(window) } else { rest }
}

/// The smallest number of seconds after which `delivered` is at least `bytes`; infinite if there is
/// none.
fn time_until(bytes: f64, delivered: impl Fn(f64) -> f64) -> f64 {
    const MAX_SECONDS: f64 = 1e9;
    const STEPS: u32 = 50;
    let mut high = 1e-3;
    while delivered(high) < bytes {
        high *= 2.0;
        if high > MAX_SECONDS {
            return f64::INFINITY;
        }
    }
    let mut low = 0.0;
    for _ in 0..STEPS {
        let middle = f64::midpoint(low, high);
        if delivered(middle) < bytes { low = middle } else { high = middle }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_end_together() {
        // 3 MB at 1 MB/s, helped at 2 MB/s after 0.3 s: 1 × T + 2 × (T − 0.3) = 3.
        let two = linear_finish_time([(1e6, 0.0), (2e6, 0.3)].into_iter(), 3e6);
        assert!((two - 1.2).abs() < 1e-9, "{two}");
        // A third path that could only begin after that does not matter; one before does.
        let late = linear_finish_time([(1e6, 0.0), (9e6, 1.2), (2e6, 0.3)].into_iter(), 3e6);
        assert!((late - 1.2).abs() < 1e-9, "{late}");
        let three = linear_finish_time([(1e6, 0.0), (1e6, 1.0), (2e6, 0.3)].into_iter(), 3e6);
        assert!((three - 1.15).abs() < 1e-9, "{three}");
    }

    #[test]
    fn slow_start_doubles_until_the_path_is_full() {
        // 4 MB/s and 50 ms hold 200 KB: windows of 14.48, 28.96, 57.92 and 115.84 KB come before.
        let bytes = |elapsed| slow_start(4e6, 0.05, INITIAL_CONGESTION_WINDOW, elapsed);
        assert!((bytes(0.05) - 14_480.0).abs() < 1e-6);
        assert!((bytes(0.1) - 43_440.0).abs() < 1e-6);
        assert!((bytes(0.2) - 217_200.0).abs() < 1e-6);
        assert!((bytes(0.3) - 617_200.0).abs() < 1e-6);
        // Within a round, the window comes at the rate of the path.
        assert!((bytes(0.052) - 14_480.0 - 8_000.0).abs() < 1e-6);
        assert!((time_until(217_200.0, bytes) - 0.179).abs() < 1e-3);
        assert!(time_until(1.0, |_| 0.0).is_infinite());
        // Without an end, this would take as many steps as there are round trips.
        assert!(slow_start(4e6, 1e-6, 0.0, 1e9) > 0.0);
    }

    #[test]
    fn an_unresponsive_path_is_not_waited_for() {
        let one = linear_finish_time([(0.0, 0.0), (2e6, 0.5)].into_iter(), 1e6);
        assert!((one - 1.0).abs() < 1e-9);
        assert!(linear_finish_time([(0.0, 0.0)].into_iter(), 1e6).is_infinite());
    }
}
