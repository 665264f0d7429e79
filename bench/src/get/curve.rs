//! Evaluates the event log of a transfer: arrival times of bytes by path, and response delays.

use std::collections::BTreeMap;

use manyways_net::fetch::event::TransferEvent;
use manyways_record::event::Log;
use manyways_unit::Time;

/// Seconds within which a log merges received pieces into one event (see docs/event-log.md).
const TOGETHER: f64 = 0.005;

/// Received bytes of a path over time: corners of a non-decreasing, piecewise linear function.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    /// Seconds since the start of the transfer, and total bytes.
    corners: Vec<(f64, f64)>,
}

impl Curve {
    /// Adds bytes that were complete at `seconds`. Their arrivals count as evenly distributed since
    /// the previous piece, but over at most [`TOGETHER`].
    fn add(&mut self, seconds: f64, bytes: u64) {
        let (last, so_far) = self.corners.last().copied().unwrap_or_default();
        let from = (seconds - TOGETHER).max(last).max(0.0);
        if from > last || self.corners.is_empty() {
            self.corners.push((from, so_far));
        }
        self.corners.push((seconds.max(from), so_far + bytes as f64));
    }

    /// Total bytes at this time.
    pub fn at(&self, seconds: f64) -> f64 {
        let after = self.corners.partition_point(|corner| corner.0 <= seconds);
        let Some(before) = after.checked_sub(1).map(|index| self.corners[index]) else {
            return 0.0;
        };
        let Some(next) = self.corners.get(after) else { return before.1 };
        before.1 + (next.1 - before.1) * (seconds - before.0) / (next.0 - before.0)
    }

    /// Bytes per second between the first and the last byte; `None` if there are no two times.
    pub fn rate(&self) -> Option<f64> {
        let (first, last) = (self.corners.first()?, self.corners.last()?);
        (last.0 > first.0).then(|| last.1 / (last.0 - first.0))
    }
}

/// The time in seconds at which the sum of the curves reaches `bytes`. It is T\* if the curves are
/// those of each path alone. `None` if the sum never reaches `bytes`.
pub fn sum_reaches(curves: &[Curve], bytes: u64) -> Option<f64> {
    let wanted = bytes as f64;
    let sum = |seconds: f64| curves.iter().map(|curve| curve.at(seconds)).sum::<f64>();
    let mut corners: Vec<f64> = curves.iter().flat_map(|c| c.corners.iter().map(|c| c.0)).collect();
    corners.sort_by(f64::total_cmp);
    // The sum is linear between two corners of any curve.
    let after = corners.partition_point(|seconds| sum(*seconds) < wanted);
    let end = *corners.get(after)?;
    let Some(begin) = after.checked_sub(1).map(|index| corners[index]) else { return Some(end) };
    let (low, high) = (sum(begin), sum(end));
    Some(if high > low { begin + (end - begin) * (wanted - low) / (high - low) } else { end })
}

/// Content of the log about the first transfer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Story {
    /// Start of the transfer, in seconds since 1970.
    pub began: f64,
    pub curves: BTreeMap<String, Curve>,
    /// Path name, and seconds between the last byte of a request and the first byte of the next one
    /// on that path.
    pub gaps: Vec<(String, f64)>,
    /// Expected and measured response delay of each request, in seconds.
    pub waits: Vec<(f64, f64)>,
}

struct Request {
    path: String,
    sent: f64,
    /// Arrival times of its first and its last byte; `None` before the first.
    bytes: Option<(f64, f64)>,
}

/// Evaluates a log of `manyways get`; `None` if no transfer started.
pub fn read(log: &Log<TransferEvent>) -> Option<Story> {
    let start = log.records.iter().find_map(|record| match record.event {
        TransferEvent::TransferStart { transfer: 0, .. } => Some(record.time),
        _ => None,
    })?;
    let since = |time: Time| time.since(start).as_secs_f64();
    let began = log.header.epoch + start.as_secs_f64();
    let mut story = Story { began, ..Story::default() };
    let mut requests: BTreeMap<u64, Request> = BTreeMap::new();
    for record in &log.records {
        let now = since(record.time);
        match &record.event {
            TransferEvent::Request { transfer: 0, path, request, .. } => {
                let fresh = Request { path: path.clone(), sent: now, bytes: None };
                requests.insert(*request, fresh);
            }
            TransferEvent::Response {
                transfer: 0,
                request,
                expected_seconds: Some(expected),
                ..
            } => {
                if let Some(asked) = requests.get(request) {
                    story.waits.push((*expected, now - asked.sent));
                }
            }
            TransferEvent::Received { transfer: 0, path, request, from, to } => {
                story.curves.entry(path.clone()).or_default().add(now, to.saturating_sub(*from));
                if let Some(asked) = requests.get_mut(request) {
                    asked.bytes = Some((asked.bytes.map_or(now, |bytes| bytes.0), now));
                }
            }
            _ => {}
        }
    }
    story.gaps = gaps(requests.into_values());
    Some(story)
}

/// Gaps between consecutive requests of each path; zero if a request started before the end of the
/// previous one.
fn gaps(requests: impl Iterator<Item = Request>) -> Vec<(String, f64)> {
    let mut by_path: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for request in requests {
        if let Some(bytes) = request.bytes {
            by_path.entry(request.path).or_default().push(bytes);
        }
    }
    let mut gaps = Vec::new();
    for (path, mut answers) in by_path {
        answers.sort_by(|a, b| a.0.total_cmp(&b.0));
        let gap = |pair: &[(f64, f64)]| (path.clone(), (pair[1].0 - pair[0].1).max(0.0));
        gaps.extend(answers.windows(2).map(gap));
    }
    gaps
}

#[cfg(test)]
mod tests {
    use manyways_record::event::{Header, Record};
    use manyways_unit::Span;

    use super::*;

    fn curve(pieces: &[(f64, u64)]) -> Curve {
        let mut curve = Curve::default();
        pieces.iter().for_each(|(seconds, bytes)| curve.add(*seconds, *bytes));
        curve
    }

    fn near(value: Option<f64>, wanted: f64) -> bool {
        value.is_some_and(|value| (value - wanted).abs() < 1e-9)
    }

    #[test]
    fn curves_that_run_side_by_side_sum() {
        let fast = curve(&[(0.010, 1000), (0.020, 1000), (0.030, 1000)]);
        let slow = curve(&[(0.015, 500), (0.030, 500)]);
        let both = [fast, slow];
        assert!(near(sum_reaches(&both, 1000), 0.010));
        assert!(near(sum_reaches(&both, 1500), 0.015));
        // A piece that was logged at 20 ms arrived in the preceding 5 ms.
        assert!(near(sum_reaches(&both, 2000), 0.0175));
        assert!(near(sum_reaches(&both, 4000), 0.030));
        assert_eq!(sum_reaches(&both, 4001), None);
        assert_eq!(sum_reaches(&[], 1), None);
    }

    #[test]
    fn a_path_that_ended_early_keeps_what_it_brought() {
        let ended = curve(&[(0.010, 700)]);
        let other = curve(&[(1.000, 100), (2.000, 200)]);
        assert!(near(sum_reaches(&[ended.clone(), other], 1000), 2.0));
        assert_eq!(ended.at(0.5), 700.0);
        assert!(near(curve(&[(1.005, 500), (2.0, 500)]).rate(), 1000.0));
    }

    fn log(events: Vec<(u64, TransferEvent)>) -> Log<TransferEvent> {
        let record = |(millis, event)| Record { time: Time::from_millis(millis), event };
        Log {
            header: Header::new("get", "0", Span::from_secs(100)),
            records: events.into_iter().map(record).collect(),
            skipped: 0,
        }
    }

    fn start() -> TransferEvent {
        TransferEvent::TransferStart { transfer: 0, url: String::new() }
    }

    fn request(path: &str, request: u64) -> TransferEvent {
        TransferEvent::Request { transfer: 0, path: path.into(), request, from: 0, to: None }
    }

    fn response(path: &str, request: u64, expected: Option<f64>) -> TransferEvent {
        let path = path.into();
        TransferEvent::Response {
            transfer: 0,
            path,
            request,
            status: 206,
            expected_seconds: expected,
        }
    }

    fn received(path: &str, request: u64, from: u64, to: u64) -> TransferEvent {
        TransferEvent::Received { transfer: 0, path: path.into(), request, from, to }
    }

    #[test]
    fn a_log_tells_gaps_and_waits_of_each_path() {
        let log = log(vec![
            (10, start()),
            (10, request("wifi", 0)),
            (12, request("lte", 1)),
            (50, response("wifi", 0, None)),
            (60, received("wifi", 0, 0, 100)),
            (80, received("lte", 1, 500, 600)),
            (90, request("wifi", 2)),
            (110, received("wifi", 0, 100, 200)),
            (118, response("wifi", 2, Some(0.030))),
            (118, received("wifi", 2, 200, 300)),
            (118, request("wifi", 3)),
            (140, received("wifi", 3, 300, 301)),
            (150, received("wifi", 2, 301, 400)),
        ]);
        let story = read(&log).unwrap();
        assert!((story.began - 100.010).abs() < 1e-9);
        assert_eq!(story.curves["wifi"].at(1.0), 400.0);
        assert_eq!(story.curves["lte"].at(1.0), 100.0);
        // 8 ms from the first request of Wi-Fi to its second; the third began before the end of the
        // second.
        assert_eq!(story.gaps.len(), 2);
        assert!((story.gaps[0].1 - 0.008).abs() < 1e-9, "{:?}", story.gaps);
        assert_eq!(story.gaps[1], ("wifi".to_owned(), 0.0));
        assert_eq!(story.waits.len(), 1);
        assert!((story.waits[0].1 - 0.028).abs() < 1e-9, "{:?}", story.waits);
    }

    #[test]
    fn a_log_without_a_transfer_has_no_story() {
        assert_eq!(read(&log(vec![(0, request("wifi", 0))])), None);
    }
}
