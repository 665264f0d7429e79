//! The share of the object that each path takes, so that all paths finish together.
//!
//! MP-H2 solves equation 1 for two paths. This module computes the common finish time of any number
//! of paths, each with a rate and a time at which its bytes begin to flow. For two paths the result
//! is that of equation 1.

use manyways_unit::{Span, Time};

use super::request::Request;
use super::{Fetch, PathId, Range, RequestId, Scheduler};

/// Minimum length of a request, unless fewer bytes remain.
const MIN_PIECE: u64 = 16 * 1024;
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
}

impl PathLoad {
    /// Seconds until all remaining bytes have arrived; `None` if that is unknown.
    pub(super) fn finishes_in(&self) -> Option<f64> {
        let rate = self.rate?;
        Some(if self.remaining_bytes == 0 {
            self.starts_in
        } else {
            self.starts_in + self.remaining_bytes as f64 / rate
        })
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
        let is_working = remaining_bytes > 0 || path.state.is_ready() && self.is_allowed(path);
        is_working.then_some(PathLoad { path: id, rate, starts_in, remaining_bytes })
    }

    /// Bytes per second of a path; `None` if unknown.
    fn rate(&self, now: Time, id: PathId) -> Option<f64> {
        let path = self.paths.get(&id)?;
        let previous = path.previous.map(|previous| previous.rate);
        let rate = path.throughput.rate(now).or(previous)?;
        (!rate.is_zero()).then(|| rate.as_bps() as f64 / 8.0)
    }

    /// From a request to the head of its response. An idle path has no queueing delay, so its
    /// smallest RTT counts.
    pub(super) fn response_delay(&self, id: PathId) -> Option<Span> {
        let path = self.paths.get(&id)?;
        let is_idle = self.load_of(id) == 0;
        let least = path.round_trip.least().filter(|_| is_idle);
        let measured = least.or(path.round_trip.mean()).or(path.response_delay);
        measured.or(path.previous.map(|previous| previous.rtt))
    }

    /// Bytes that `path` should take if its own are received after `ready` seconds: its share until
    /// all paths finish. `free` bytes are not requested by any path.
    fn quota(&self, now: Time, path: PathId, free: u64, ready: f64) -> Quota {
        let mut loads: Vec<PathLoad> =
            self.paths.keys().filter_map(|id| self.load(now, *id)).collect();
        let known: Vec<f64> =
            loads.iter().filter_map(|load| load.rate).filter(|rate| *rate > 0.0).collect();
        // A path without a known rate counts with the mean of the others.
        let mean = known.iter().sum::<f64>() / known.len() as f64;
        let is_blind = known.is_empty();
        let mut bytes = free as f64;
        for load in &mut loads {
            let rate = load.rate.unwrap_or(if is_blind { 1.0 } else { mean });
            load.rate = Some(rate);
            if load.path == path {
                load.starts_in = ready;
                continue;
            }
            bytes += load.remaining_bytes as f64;
            if is_blind {
                load.starts_in = 0.0;
            } else if load.remaining_bytes == 0 {
                load.starts_in = seconds(self.response_delay(load.path).unwrap_or_default());
            }
        }
        let rates = loads.iter().map(|load| (load.rate.unwrap_or(0.0), load.starts_in));
        let finish_in = equal_finish_time(rates, bytes);
        let own = loads.iter().find(|load| load.path == path);
        let own = own.and_then(|own| own.rate).unwrap_or(0.0);
        // Rounded up: otherwise two paths would each leave half of the last byte to the other.
        let bytes = (own * (finish_in - ready)).max(0.0).ceil() as u64;
        Quota { bytes, finish_in, loads }
    }

    /// By how many of the `free` bytes after its end a request is extended.
    pub(super) fn extension(&self, now: Time, path: PathId, free: u64) -> u64 {
        let budget = self.budget(path);
        match self.config.scheduler {
            _ if free == 0 || budget == 0 => 0,
            Scheduler::MpH2 => {
                let quota = self.quota(now, path, free, 0.0).bytes.max(MIN_PIECE);
                whole_if_small_rest(quota, free).min(budget)
            }
            Scheduler::EqualSplit | Scheduler::Single => free.min(budget),
            Scheduler::FixedChunk(_) => 0,
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
            let more = whole_if_small_rest(quota, gap.len()).min(budget);
            if let Some(request) = self.requests.get_mut(&id) {
                request.end = (gap.start + more).min(requested_end);
            }
            self.extend(id);
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
            !is_alone || self.requests.is_empty() && self.is_preferred_path_connecting(path);
        let share = if leaves_beginning && is_alone { quota / 2 } else { quota };
        let take = whole_if_small_rest(share.max(MIN_PIECE), gap.len()).min(budget);
        if leaves_beginning {
            // The previous request or path continues up to here.
            let piece = Range::new(gap.end - take, gap.end);
            self.send(now, path, piece, piece.end);
        } else {
            // A request that can be cut freely asks for all following bytes, so that it can be
            // extended.
            let past = self.final_goal().filter(|_| gap.end == goal).unwrap_or(gap.end);
            let reach = if self.can_cut_freely(path) { past - gap.start } else { take };
            let requested = Range::new(gap.start, gap.start + reach.min(budget).max(take));
            self.send(now, path, requested, gap.start + take);
        }
        true
    }

    /// The request that ends where the gap begins, if it can be extended into the gap.
    fn request_before(&self, gap: Range) -> Option<(RequestId, &Request)> {
        self.owners().find(|(_, r)| r.end == gap.start && r.requested.end > r.end)
    }

    /// Takes over the end of the remaining range of the path that finishes last.
    pub(super) fn take_over(&mut self, now: Time, path: PathId, ready: f64, budget: u64) {
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
        let Some(last) = last else { return };
        let (Some(end), Some(rate)) = (last.finishes_in(), last.rate) else { return };
        if !is_blind && end - ready <= seconds(self.config.gain) {
            return;
        }
        let keeps = (rate * (quota.finish_in - last.starts_in)).max(0.0) as u64;
        let surplus = last.remaining_bytes.saturating_sub(keeps);
        let owners = self.requests_of(last.path).filter(|(_, request)| request.is_owner());
        let Some((victim, request)) = owners.max_by_key(|(id, _)| *id) else { return };
        let remaining = request.remaining();
        let mut take = quota.bytes.min(surplus).min(budget).min(remaining);
        if !self.paths.get(&last.path).is_some_and(|path| path.is_multiplexed()) {
            // A cut costs the path its connection, so the path should not run out of work. Small
            // parts are taken until the right amount is known.
            let is_known = self.rate(now, path).is_some();
            let most = (take / 2).max(MIN_UNCUTTABLE_PIECE);
            take = take.min(if is_known { most } else { 2 * MIN_UNCUTTABLE_PIECE });
        }
        let is_worthwhile = |take: u64| take > 0 && take >= MIN_PIECE.min(remaining);
        if !is_worthwhile(take) {
            return;
        }
        let take = self.spare_credit(request, take, rate);
        if !is_worthwhile(take) {
            return;
        }
        let piece = Range::new(request.end - take, request.end);
        self.shorten(now, victim, piece.start);
        self.send(now, path, piece, piece.end);
    }

    /// How many of `take` bytes should be taken from the end of a request. The server sends the
    /// bytes for which it has credit in any case. To fetch these a second time is worthwhile only
    /// if the fetch would otherwise end later by more than the minimum gain. `rate` is that of the
    /// request's path, in bytes per second.
    fn spare_credit(&self, request: &Request, take: u64, rate: f64) -> u64 {
        let open = request.end.saturating_sub(request.granted.max(request.next_offset));
        if take > open {
            let later = (take - open) as f64 / rate;
            return if later <= seconds(self.config.gain) { open } else { take };
        }
        // A small remainder of credit would be granted only after nearly all bytes before it have
        // arrived.
        let sliver = open - take;
        let min_credit = self.min_credit(request.path);
        if sliver < min_credit && sliver * 2 < min_credit { take + sliver } else { take }
    }
}

/// Returns `part`, or `all` if less than one minimum piece would remain.
fn whole_if_small_rest(part: u64, all: u64) -> u64 {
    if part.saturating_add(MIN_PIECE) >= all { all } else { part }
}

pub(super) fn seconds(span: Span) -> f64 {
    span.as_secs_f64()
}

/// Seconds until `bytes` have arrived if each path delivers its rate (bytes per second) from its
/// start on: equation 1 of MP-H2 for any number of paths.
fn equal_finish_time(paths: impl Iterator<Item = (f64, f64)>, bytes: f64) -> f64 {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_end_together() {
        // 3 MB at 1 MB/s, helped at 2 MB/s after 0.3 s: 1 × T + 2 × (T − 0.3) = 3.
        let two = equal_finish_time([(1e6, 0.0), (2e6, 0.3)].into_iter(), 3e6);
        assert!((two - 1.2).abs() < 1e-9, "{two}");
        // A third path that could only begin after that does not matter; one before does.
        let late = equal_finish_time([(1e6, 0.0), (9e6, 1.2), (2e6, 0.3)].into_iter(), 3e6);
        assert!((late - 1.2).abs() < 1e-9, "{late}");
        let three = equal_finish_time([(1e6, 0.0), (1e6, 1.0), (2e6, 0.3)].into_iter(), 3e6);
        assert!((three - 1.15).abs() < 1e-9, "{three}");
    }

    #[test]
    fn an_unresponsive_path_is_not_waited_for() {
        let one = equal_finish_time([(0.0, 0.0), (2e6, 0.5)].into_iter(), 1e6);
        assert!((one - 1.0).abs() < 1e-9);
        assert!(equal_finish_time([(0.0, 0.0)].into_iter(), 1e6).is_infinite());
    }
}
