//! The JSON list of periods that adaptive-bitrate studies use.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::{MAX_DELAY, MAX_ENTRIES, MAX_PERIOD, MAX_RATE, TraceError};
use crate::Steps;
use manyways_unit::{Rate, Span};

#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "duration_ms", deserialize_with = "amount")]
    duration: f64,
    #[serde(rename = "bandwidth_kbps", deserialize_with = "amount")]
    bandwidth: f64,
    #[serde(rename = "latency_ms", deserialize_with = "amount")]
    latency: f64,
}

/// A number from 0 to 1e12, so that it fits into every unit here.
fn amount<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let number = f64::deserialize(deserializer)?;
    if (0.0..=1e12).contains(&number) {
        Ok(number)
    } else {
        Err(D::Error::custom("a number from 0 to 1e12 was expected"))
    }
}

pub(super) fn rates(bytes: &[u8]) -> Result<Steps<Rate>, TraceError> {
    steps(bytes, |entry| Rate::from_bps((entry.bandwidth * 1e3).round() as u64).min(MAX_RATE))
}

pub(super) fn delays(bytes: &[u8]) -> Result<Steps<Span>, TraceError> {
    let found = steps(bytes, |entry| Span::from_secs_f64(entry.latency / 2e3))?;
    match found.steps().iter().all(|(_, delay)| *delay <= MAX_DELAY) {
        true => Ok(found),
        false => Err(TraceError::line(1, format!("a delay is at most {MAX_DELAY} each way"))),
    }
}

/// Entries with a duration of zero are omitted.
fn steps<T>(bytes: &[u8], value: impl Fn(&Entry) -> T) -> Result<Steps<T>, TraceError> {
    let entries: Vec<Entry> = serde_json::from_slice(bytes).map_err(|error| {
        let place = format!(" at line {} column {}", error.line(), error.column());
        let reason = error.to_string();
        TraceError::line(error.line().max(1), reason.strip_suffix(&place).unwrap_or(&reason))
    })?;
    if entries.is_empty() {
        return Err(TraceError::Empty);
    }
    let whole = |reason: String| TraceError::line(1, reason);
    if entries.len() > MAX_ENTRIES {
        return Err(whole(format!("a trace has at most {MAX_ENTRIES} entries")));
    }
    let mut steps = Vec::with_capacity(entries.len());
    let mut end = Span::ZERO;
    for entry in &entries {
        let duration = Span::from_secs_f64(entry.duration / 1e3);
        if duration.is_zero() {
            continue;
        }
        steps.push((end, value(entry)));
        end += duration;
        if end > MAX_PERIOD {
            return Err(whole(format!("a trace lasts at most {MAX_PERIOD}")));
        }
    }
    Ok(Steps::new(steps, end)?)
}
