//! MSPlayer: the size of the next chunk of each path, for [`Scheduler::MsPlayer`].
//!
//! MSPlayer (Chen, Towsley and Khalili, CoNEXT 2014) fetches a video over two paths, one chunk at a
//! time over each:
//!
//! - The estimated rate of a path is the harmonic mean of the measured rates of its chunks. A rate
//!   is the length of a chunk divided by the time from its request to its last byte, so that it
//!   includes the pause of a round trip between two chunks.
//! - The chunk of the slow path doubles if the last one was faster than the estimate before it by
//!   more than δ, and halves, down to a minimum, if it was slower by more than δ.
//! - The chunk of the fast path is that of the slow path, multiplied by the ratio of the estimates,
//!   so that both end together.
//!
//! MP-H2 (§5.4) describes the last two for its comparison, without numbers. The numbers here are the
//! choice of this module, and so is the following:
//!
//! - With more than two paths, only the chunk of the slowest one doubles and halves, and all others
//!   follow it. A single path is the slowest.
//! - The mean is that of the last 20 chunks, as in FESTIVE (Jiang, Sekar and Zhang, CoNEXT 2012).
//!   With a mean of all, one change of the rate would double or halve the size for many times as
//!   many chunks as came before it.
//! - Before the first chunk of a path, the estimate of an earlier transfer counts for the ratio. The
//!   size of the slowest path begins again with each object. A path without any estimate begins
//!   with the same size.
//! - The end of the object, a limit or a reader can make a chunk shorter than its size. Such a chunk
//!   does not double the size, and one below the minimum is not measured.

use std::collections::VecDeque;

use super::request::Request;
use super::share::seconds;
use super::{Fetch, PathId, Scheduler};

/// Size of the first chunk of the slowest path, in bytes.
const BASE_CHUNK: u64 = 256 << 10;
/// Minimum size of a chunk, in bytes.
const MIN_CHUNK: u64 = 16 << 10;
/// Relative deviation from the estimate that changes the size: δ.
const MIN_DEVIATION: f64 = 0.05;
/// Number of chunks in the estimate.
const AVERAGED_CHUNKS: usize = 20;

/// The chunks of one path.
#[derive(Debug)]
pub(super) struct Chunks {
    /// Size of the next chunk while no other path is slower, in bytes.
    size: u64,
    /// Measured rates, in bytes per second.
    rates: VecDeque<f64>,
}

impl Default for Chunks {
    fn default() -> Self {
        Self { size: BASE_CHUNK, rates: VecDeque::new() }
    }
}

impl Chunks {
    /// Harmonic mean of the measured rates, in bytes per second; `None` before the first one.
    fn estimate(&self) -> Option<f64> {
        let sum: f64 = self.rates.iter().map(|rate| rate.recip()).sum();
        (!self.rates.is_empty()).then(|| self.rates.len() as f64 / sum)
    }

    fn observe(&mut self, rate: f64) {
        self.rates.push_back(rate);
        if self.rates.len() > AVERAGED_CHUNKS {
            self.rates.pop_front();
        }
    }

    /// The size after a chunk of this length and rate that is not yet in the estimate.
    fn next_size(&self, bytes: u64, rate: f64) -> u64 {
        let Some(estimate) = self.estimate() else { return self.size };
        if rate > (1.0 + MIN_DEVIATION) * estimate && bytes >= self.size {
            self.size.saturating_mul(2)
        } else if rate < (1.0 - MIN_DEVIATION) * estimate {
            (self.size / 2).max(MIN_CHUNK)
        } else {
            self.size
        }
    }
}

impl Fetch {
    /// Determines the size of the next chunk of a path, in bytes.
    pub(super) fn next_chunk(&mut self, id: PathId) -> u64 {
        let following = self.following_size(id);
        let Some(path) = self.paths.get_mut(&id) else { return BASE_CHUNK };
        path.chunks.size = following.unwrap_or(path.chunks.size);
        path.chunks.size
    }

    /// The chunk size of the slowest path, multiplied by the ratio of the rates; `None` for the
    /// slowest path itself, and while a rate is unknown.
    fn following_size(&self, id: PathId) -> Option<u64> {
        let (slowest, lowest) = self.slowest_path().filter(|(slowest, _)| *slowest != id)?;
        let ratio = self.chunk_rate(id)? / lowest;
        Some((self.paths.get(&slowest)?.chunks.size as f64 * ratio) as u64)
    }

    /// Measures a request that is complete, and adapts the chunk size if its path is the slowest.
    pub(super) fn on_chunk_complete(&mut self, request: &Request) {
        let bytes = request.next_offset - request.requested.start;
        let elapsed = seconds(request.received_at.since(request.sent));
        if self.config.scheduler != Scheduler::MsPlayer || bytes < MIN_CHUNK || elapsed <= 0.0 {
            return;
        }
        let Some(path) = self.paths.get_mut(&request.path) else { return };
        let rate = bytes as f64 / elapsed;
        let size = path.chunks.next_size(bytes, rate);
        path.chunks.observe(rate);
        if self.slowest_path().is_some_and(|(slowest, _)| slowest == request.path)
            && let Some(path) = self.paths.get_mut(&request.path)
        {
            path.chunks.size = size;
        }
    }

    /// The usable path with the lowest rate, and this rate in bytes per second.
    fn slowest_path(&self) -> Option<(PathId, f64)> {
        let usable = self.paths.iter();
        let usable = usable.filter(|(_, path)| path.state.is_alive() && self.is_allowed(path));
        let rates = usable.filter_map(|(id, _)| Some((*id, self.chunk_rate(*id)?)));
        rates.min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Estimated rate of a path in bytes per second; `None` if unknown.
    fn chunk_rate(&self, id: PathId) -> Option<f64> {
        let path = self.paths.get(&id)?;
        let previous = path.previous.map(|previous| previous.rate.as_bps() as f64 / 8.0);
        path.chunks.estimate().or(previous).filter(|rate| *rate > 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(rates: &[f64]) -> Chunks {
        let mut chunks = Chunks::default();
        rates.iter().for_each(|rate| chunks.observe(*rate));
        chunks
    }

    #[test]
    fn the_estimate_is_the_harmonic_mean_of_the_last_chunks() {
        assert_eq!(after(&[]).estimate(), None);
        let mean = after(&[1e6, 4e6, 4e6]).estimate().unwrap();
        assert!((mean - 2e6).abs() < 1e-3, "{mean}");
        let mut chunks = after(&[1.0]);
        (0..AVERAGED_CHUNKS).for_each(|_| chunks.observe(3e6));
        let mean = chunks.estimate().unwrap();
        assert!((mean - 3e6).abs() < 1e-3, "{mean}");
    }

    #[test]
    fn the_size_changes_if_the_rate_deviates_by_more_than_five_percent() {
        let size = |rate| after(&[1e6]).next_size(BASE_CHUNK, rate);
        assert_eq!(size(1.06e6), 2 * BASE_CHUNK);
        assert_eq!(size(1.04e6), BASE_CHUNK);
        assert_eq!(size(0.96e6), BASE_CHUNK);
        assert_eq!(size(0.94e6), BASE_CHUNK / 2);
        assert_eq!(after(&[]).next_size(BASE_CHUNK, 1e9), BASE_CHUNK, "nothing to compare with");
    }

    #[test]
    fn a_size_has_a_minimum_and_a_short_chunk_does_not_enlarge_it() {
        let chunks = Chunks { size: MIN_CHUNK + 1, ..after(&[1e6]) };
        assert_eq!(chunks.next_size(MIN_CHUNK + 1, 1e5), MIN_CHUNK);
        assert_eq!(chunks.next_size(MIN_CHUNK, 1e7), MIN_CHUNK + 1);
        let endless = Chunks { size: u64::MAX - 1, ..after(&[1e6]) };
        assert_eq!(endless.next_size(u64::MAX - 1, 1e7), u64::MAX);
    }
}
