//! The wall clock, for plans, preferences and the history. Everything else follows a clock that no user sets.

use std::time::{SystemTime, UNIX_EPOCH};

use manyways_proto::bond::usage::Day;
use manyways_unit::{Span, Time};

/// The time since 1970 (UTC).
#[expect(
    clippy::disallowed_methods,
    reason = "plans, preferences and the history outlive a reboot"
)]
pub(super) fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time::ZERO + Span::from(since)
}

pub(super) fn seconds() -> u64 {
    now().as_nanos() / 1_000_000_000
}

pub(super) fn today() -> Day {
    Day(i64::try_from(seconds() / 86_400).unwrap_or_default())
}
