//! Trust in the estimates of earlier transfers.
//!
//! An interface and a gateway do not identify a place: a phone that shares its connection has the
//! same address everywhere. The first measurement that contradicts an estimate shows that the
//! networks, or their load, are other ones than before; then all estimates are dropped.

use manyways_unit::Time;

use super::share::{INITIAL_CONGESTION_WINDOW, seconds, slow_start};
use super::{Fetch, PathId};

/// Factor between a measurement and an estimate that contradicts the estimate.
const CONTRADICTION: f64 = 2.0;
/// Minimum number of missing bytes.
const MIN_BYTES: f64 = 30_000.0;

impl Fetch {
    /// Drops the estimates of earlier transfers if this path contradicts its own.
    pub(super) fn check_estimate(&mut self, now: Time, id: PathId) {
        let Some(path) = self.paths.get(&id) else { return };
        let (Some(previous), Some(since)) = (path.previous, path.first_response_at) else { return };
        let (bytes, elapsed) = (path.received(), seconds(now.since(since)));
        let rate = previous.rate.as_bps() as f64 / 8.0;
        let measured = path.throughput.rate(now).map(|rate| rate.as_bps() as f64 / 8.0);
        let is_faster = measured.is_some_and(|measured| measured > rate * CONTRADICTION);
        let window = INITIAL_CONGESTION_WINDOW;
        let least = slow_start(rate, seconds(previous.rtt), window, elapsed) / CONTRADICTION;
        let is_slower = path.throughput.is_running() && least > MIN_BYTES && (bytes as f64) < least;
        let is_contradicted = is_faster || is_slower;
        if is_contradicted {
            self.paths.values_mut().for_each(|path| path.previous = None);
        }
    }
}
