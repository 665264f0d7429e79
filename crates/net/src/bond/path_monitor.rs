//! Samples of paths, battery and date for a
//! [`PathMonitor`](manyways_proto::bond::path::PathMonitor).

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use manyways_proto::bond::path::{Battery, PathSample};
use manyways_proto::bond::usage::Day;
use manyways_proto::sched::PathId;
use manyways_sys::power;

use super::host_networks::UsedNetwork;
use super::session::Session;

/// Samples the paths of a client. `is_asleep` returns whether a path has no carrier because nothing
/// is to be sent.
pub(super) fn sample_paths(
    known: &[UsedNetwork],
    session: &mut Session,
    is_asleep: impl Fn(PathId) -> bool,
) -> Vec<PathSample> {
    let bytes = session.bytes_by_path();
    let carriers = session.carrier_samples();
    let sample = |UsedNetwork { id, name, kind, is_metered, lender }: &UsedNetwork| PathSample {
        id: *id,
        name: name.clone(),
        kind,
        is_metered: *is_metered,
        lender: *lender,
        is_asleep: is_asleep(*id),
        bytes: bytes.get(id).copied().unwrap_or_default(),
        carriers: carriers.iter().filter(|(path, _)| path == id).map(|(_, one)| *one).collect(),
    };
    known.iter().map(sample).collect()
}

pub(super) fn read_battery() -> Battery {
    let power = power::read(Path::new(power::FOLDER));
    Battery { level: power.battery, is_charging: power.charging }
}

/// Returns the current day in UTC.
#[expect(clippy::disallowed_methods, reason = "data plans are reset by the calendar")]
pub(super) fn today() -> Day {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Day(i64::try_from(since.as_secs() / 86_400).unwrap_or_default())
}
