//! The requests of a download with their bytes, from the event log of `manyways get`.

use std::collections::BTreeMap;

use manyways_net::fetch::{RequestOutcome, TransferEvent};
use manyways_record::event;
use manyways_unit::Span;
use serde::{Serialize, Serializer};

/// Longest duration of a piece: the log merges the bytes within this time (see docs/event-log.md).
pub const PIECE: Span = Span::from_millis(5);
/// Longest duration of a piece in the JSON, because a log has thousands of pieces.
const MERGE_INTERVAL: Span = Span::from_millis(100);

/// The first transfer of a log.
#[derive(Clone, Debug, PartialEq)]
pub struct Transfer {
    /// Start of the transfer, in seconds since 1970.
    pub began: f64,
    /// In the order of sending.
    pub requests: Vec<Request>,
}

/// One request. Times are relative to the start of the download, bytes are offsets in the file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Request {
    /// Name of the path, which equals the name of its link.
    pub link: String,
    #[serde(rename = "sent_seconds", serialize_with = "seconds")]
    pub sent: Span,
    /// When the response head arrived.
    #[serde(rename = "response_seconds", serialize_with = "seconds_if_any")]
    pub response: Option<Span>,
    /// Estimated response delay in seconds, made when the request was sent.
    #[serde(skip)]
    pub expected: Option<f64>,
    /// When the request ended.
    #[serde(rename = "end_seconds", serialize_with = "seconds_if_any")]
    pub over: Option<Span>,
    /// `finished`, `cut`, `cancelled` or `failed`.
    pub outcome: Option<RequestOutcome>,
    /// First requested byte.
    pub from: u64,
    /// One past the last requested byte; `None` for a plain GET.
    pub to: Option<u64>,
    /// Changes of the end, in the order of time.
    pub changes: Vec<Change>,
    /// Received bytes, in the order of time.
    #[serde(serialize_with = "coarse")]
    pub pieces: Vec<Piece>,
}

/// A new end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Change {
    #[serde(rename = "seconds", serialize_with = "seconds")]
    pub at: Span,
    pub to: u64,
}

/// Bytes that arrived together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Piece {
    /// When the last byte arrived.
    #[serde(rename = "seconds", serialize_with = "seconds")]
    pub at: Span,
    pub from: u64,
    pub to: u64,
}

impl Request {
    /// Number of received bytes.
    pub fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.to - piece.from).sum()
    }

    /// From the first piece to the last one; `None` without a piece.
    pub fn receive_interval(&self) -> Option<(Span, Span)> {
        Some((self.pieces.first()?.at, self.pieces.last()?.at))
    }
}

impl Transfer {
    /// Evaluates a log.
    ///
    /// # Errors
    /// One sentence, if the bytes are not the log of a transfer.
    pub fn read(log: &[u8]) -> Result<Self, String> {
        let log = event::parse(log).map_err(|error| error.to_string())?;
        let mut start = None;
        let mut requests: BTreeMap<u64, Request> = BTreeMap::new();
        for record in log.records {
            let start = match (&record.event, start) {
                (TransferEvent::TransferStart { transfer: 0, .. }, _) => *start.insert(record.time),
                (_, Some(start)) => start,
                (_, None) => continue,
            };
            let at = record.time.since(start);
            match record.event {
                TransferEvent::Request { transfer: 0, path: link, request, from, to } => {
                    let sent = at;
                    let (response, expected, over, outcome) = (None, None, None, None);
                    let (changes, pieces) = (Vec::new(), Vec::new());
                    let fresh = Request {
                        link,
                        sent,
                        response,
                        expected,
                        over,
                        outcome,
                        from,
                        to,
                        changes,
                        pieces,
                    };
                    requests.insert(request, fresh);
                }
                TransferEvent::Response { transfer: 0, request, expected_seconds, .. } => {
                    change(&mut requests, request, |known| {
                        (known.response, known.expected) = (Some(at), expected_seconds);
                    });
                }
                TransferEvent::Received { transfer: 0, request, from, to, .. } if from < to => {
                    let piece = Piece { at, from, to };
                    change(&mut requests, request, |known| known.pieces.push(piece));
                }
                TransferEvent::Cut { transfer: 0, request, to, .. } => {
                    change(&mut requests, request, |known| known.changes.push(Change { at, to }));
                }
                TransferEvent::RequestEnd { transfer: 0, request, outcome, .. } => {
                    change(&mut requests, request, |known| {
                        (known.over, known.outcome) = (Some(at), Some(outcome));
                    });
                }
                _ => {}
            }
        }
        let start = start.ok_or("no transfer began in it")?;
        let mut requests: Vec<Request> = requests.into_values().collect();
        requests.sort_by_key(|request| request.sent);
        for request in &mut requests {
            // Pieces are logged when they are complete, possibly after later ones.
            request.pieces.sort_by_key(|piece| (piece.at, piece.from));
        }
        Ok(Self { began: log.header.epoch + start.as_secs_f64(), requests })
    }

    /// The requests of each link.
    fn by_link(&self) -> BTreeMap<&str, Vec<&Request>> {
        let mut links: BTreeMap<&str, Vec<&Request>> = BTreeMap::new();
        for request in &self.requests {
            links.entry(&request.link).or_default().push(request);
        }
        links
    }

    /// Received bytes of each link over time.
    pub fn curves(&self) -> BTreeMap<String, Curve> {
        let curve = |requests: Vec<&Request>| {
            let mut pieces: Vec<&Piece> = requests.iter().flat_map(|r| &r.pieces).collect();
            pieces.sort_by_key(|piece| piece.at);
            let mut curve = Curve::default();
            pieces
                .iter()
                .for_each(|piece| curve.add(piece.at.as_secs_f64(), piece.to - piece.from));
            curve
        };
        let links = self.by_link().into_iter();
        let curves = links.map(|(link, requests)| (link.to_owned(), curve(requests)));
        curves.filter(|(_, curve)| *curve != Curve::default()).collect()
    }

    /// Link name, and seconds between the last byte of a request and the first byte of the next one
    /// on that link.
    pub fn gaps(&self) -> Vec<(String, f64)> {
        let links = self.by_link().into_iter();
        let gaps = links.map(|(link, requests)| (link, gaps(requests.into_iter())));
        gaps.flat_map(|(link, gaps)| {
            gaps.into_iter().map(|gap| (link.to_owned(), gap.as_secs_f64()))
        })
        .collect()
    }

    /// Expected and measured response delay of each request that has both, in seconds.
    pub fn waits(&self) -> Vec<(f64, f64)> {
        let wait = |r: &Request| Some((r.expected?, (r.response? - r.sent).as_secs_f64()));
        self.requests.iter().filter_map(wait).collect()
    }
}

/// Gaps between consecutive responses; zero if a response started before the end of an earlier one.
fn gaps<'r>(requests: impl Iterator<Item = &'r Request>) -> Vec<Span> {
    let mut busy: Vec<(Span, Span)> = requests.filter_map(Request::receive_interval).collect();
    busy.sort();
    let Some((_, mut until)) = busy.first().copied() else { return Vec::new() };
    let mut gap = |(first, last): &(Span, Span)| {
        let gap = first.saturating_sub(until);
        until = until.max(*last);
        gap
    };
    busy[1..].iter().map(&mut gap).collect()
}

/// Time without an active response on a link, from its first byte to the `end` of the download.
pub fn idle<'r>(requests: impl Iterator<Item = &'r Request> + Clone, end: Span) -> Span {
    let Some(last) =
        requests.clone().filter_map(Request::receive_interval).map(|(_, last)| last).max()
    else {
        return Span::ZERO;
    };
    gaps(requests).into_iter().fold(Span::ZERO, |sum, gap| sum + gap) + end.saturating_sub(last)
}

/// Received bytes of a path over time: corners of a non-decreasing, piecewise linear function.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curve {
    /// Seconds since the start of the transfer, and total bytes.
    corners: Vec<(f64, f64)>,
}

impl Curve {
    /// Adds bytes that were complete at `seconds`. Their arrivals count as evenly distributed since
    /// the previous piece, but over at most [`PIECE`].
    fn add(&mut self, seconds: f64, bytes: u64) {
        let (last, so_far) = self.corners.last().copied().unwrap_or_default();
        let from = (seconds - PIECE.as_secs_f64()).max(last).max(0.0);
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
pub fn time_of_sum(curves: &[Curve], bytes: u64) -> Option<f64> {
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

/// Skips requests that the log does not contain: the start of the log may be missing.
fn change(requests: &mut BTreeMap<u64, Request>, number: u64, change: impl FnOnce(&mut Request)) {
    if let Some(known) = requests.get_mut(&number) {
        change(known);
    }
}

/// Merges pieces to the interval at which the links are sampled, for the JSON.
fn coarse<S: Serializer>(pieces: &[Piece], serializer: S) -> Result<S::Ok, S::Error> {
    let mut coarse: Vec<Piece> = Vec::new();
    let mut first = Span::ZERO;
    for piece in pieces {
        match coarse.last_mut() {
            Some(last) if last.to == piece.from && piece.at <= first + MERGE_INTERVAL => {
                (last.at, last.to) = (piece.at, piece.to);
            }
            _ => {
                first = piece.at;
                coarse.push(*piece);
            }
        }
    }
    coarse.serialize(serializer)
}

fn seconds<S: Serializer>(span: &Span, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(span.as_secs_f64())
}

fn seconds_if_any<S: Serializer>(span: &Option<Span>, serializer: S) -> Result<S::Ok, S::Error> {
    span.map(Span::as_secs_f64).serialize(serializer)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A download of 300 bytes: a plain GET over Wi-Fi that is cut at 200, the rest over LTE.
    const LOG: &str = r#"{"schema":"manyways.events/2","tool":"get","version":"0.1.0","epoch":1}
{"time":0.5,"event":"transfer-start","transfer":0,"url":"https://origin.lab/x"}
{"time":0.6,"event":"request","transfer":0,"path":"wifi","request":0,"from":0}
{"time":0.7,"event":"response","transfer":0,"path":"wifi","request":0,"status":200}
{"time":0.7,"event":"received","transfer":0,"path":"wifi","request":0,"from":0,"to":50}
{"time":0.7,"event":"request","transfer":0,"path":"lte","request":1,"from":200,"to":300}
{"time":0.7,"event":"cut","transfer":0,"path":"wifi","request":0,"to":200}
{"time":0.9,"event":"received","transfer":0,"path":"lte","request":1,"from":200,"to":300}
{"time":1.0,"event":"request-end","transfer":0,"path":"lte","request":1,"outcome":"finished"}
{"time":1.2,"event":"received","transfer":0,"path":"wifi","request":0,"from":150,"to":200}
{"time":1.1,"event":"received","transfer":0,"path":"wifi","request":0,"from":50,"to":150}
{"time":1.2,"event":"request-end","transfer":0,"path":"wifi","request":0,"outcome":"cut"}
{"time":1.2,"event":"received","transfer":0,"path":"lte","request":9,"from":0,"to":1}
{"time":1.3,"event":"received","transfer":1,"path":"lte","request":1,"from":0,"to":300}
{"time":1.3,"event":"something-new"}
"#;

    fn ms(millis: u64) -> Span {
        Span::from_millis(millis)
    }

    #[test]
    fn a_log_tells_what_was_asked_for_and_what_came() {
        let requests = Transfer::read(LOG.as_bytes()).unwrap().requests;
        let piece = |at, from, to| Piece { at: ms(at), from, to };
        let wifi = Request {
            link: "wifi".to_owned(),
            sent: ms(100),
            response: Some(ms(200)),
            expected: None,
            over: Some(ms(700)),
            outcome: Some(RequestOutcome::Cut),
            from: 0,
            to: None,
            changes: vec![Change { at: ms(200), to: 200 }],
            pieces: vec![piece(200, 0, 50), piece(600, 50, 150), piece(700, 150, 200)],
        };
        assert_eq!(requests.len(), 2);
        assert_eq!(requests[0], wifi);
        assert_eq!(
            (requests[0].bytes(), requests[0].receive_interval()),
            (200, Some((ms(200), ms(700))))
        );
        assert_eq!((requests[1].link.as_str(), requests[1].to), ("lte", Some(300)));
        assert_eq!(requests[1].pieces, [piece(400, 200, 300)]);
    }

    #[test]
    fn machines_get_pieces_of_a_tenth_of_a_second() {
        let mut request = Transfer::read(LOG.as_bytes()).unwrap().requests.remove(0);
        // A piece every 30 ms, and then one that does not follow.
        let piece = |n: u64| Piece { at: ms(30 * n), from: n, to: n + 1 };
        request.pieces =
            (0..8).map(piece).chain([Piece { at: ms(211), from: 9, to: 10 }]).collect();
        let json = serde_json::to_value(&request).unwrap();
        let bounds = |piece: &serde_json::Value| (piece["from"].as_u64(), piece["to"].as_u64());
        let pieces: Vec<_> = json["pieces"].as_array().unwrap().iter().map(bounds).collect();
        let expected = [(0, 4), (4, 8), (9, 10)].map(|(from, to)| (Some(from), Some(to)));
        assert_eq!(pieces, expected);
        assert_eq!(json["sent_seconds"], 0.1);
        assert_eq!(json["pieces"][0]["seconds"], 0.09);
        assert!(json["to"].is_null(), "{json}");
    }

    #[test]
    fn what_is_no_log_of_a_transfer_is_refused_with_a_reason() {
        let header = LOG.lines().next().unwrap();
        assert_eq!(Transfer::read(b"").unwrap_err(), "the event log is empty");
        assert_eq!(Transfer::read(header.as_bytes()).unwrap_err(), "no transfer began in it");
        let headless: Vec<&str> = LOG.lines().filter(|line| !line.contains("-start")).collect();
        assert_eq!(
            Transfer::read(headless.join("\n").as_bytes()).unwrap_err(),
            "no transfer began in it"
        );
        let torn = &LOG[..LOG.len() - 20];
        assert_eq!(Transfer::read(torn.as_bytes()).unwrap().requests.len(), 2);
    }

    #[test]
    fn a_link_is_idle_between_answers_and_after_the_last() {
        let request = |from, to| Request {
            pieces: vec![
                Piece { at: ms(from), from: 0, to: 1 },
                Piece { at: ms(to), from: 1, to: 2 },
            ],
            ..Transfer::read(LOG.as_bytes()).unwrap().requests.remove(0)
        };
        // The second request begins before the first one ends, the third one 50 ms after the
        // second.
        let requests = [request(100, 300), request(250, 400), request(450, 600)];
        assert_eq!(idle(requests.iter(), ms(1000)), ms(50 + 400));
        assert_eq!(idle(requests.iter().take(1), ms(300)), Span::ZERO);
        assert_eq!(idle([].iter(), ms(300)), Span::ZERO);
    }

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
        assert!(near(time_of_sum(&both, 1000), 0.010));
        assert!(near(time_of_sum(&both, 1500), 0.015));
        // A piece that was logged at 20 ms arrived in the preceding 5 ms.
        assert!(near(time_of_sum(&both, 2000), 0.0175));
        assert!(near(time_of_sum(&both, 4000), 0.030));
        assert_eq!(time_of_sum(&both, 4001), None);
        assert_eq!(time_of_sum(&[], 1), None);
    }

    #[test]
    fn a_path_that_ended_early_keeps_what_it_brought() {
        let ended = curve(&[(0.010, 700)]);
        let other = curve(&[(1.000, 100), (2.000, 200)]);
        assert!(near(time_of_sum(&[ended.clone(), other], 1000), 2.0));
        assert_eq!(ended.at(0.5), 700.0);
        assert!(near(curve(&[(1.005, 500), (2.0, 500)]).rate(), 1000.0));
    }

    #[test]
    fn a_log_tells_gaps_and_waits_of_each_link() {
        let event = |millis: u64, event: &str, path: &str, request: u64, more: &str| {
            let time = millis as f64 / 1000.0;
            format!(
                "{{\"time\":{time},\"event\":\"{event}\",\"transfer\":0,\"path\":\"{path}\",\
                 \"request\":{request},{more}}}\n"
            )
        };
        let request = |at, path, number| event(at, "request", path, number, "\"from\":0");
        let received = |at, path, number, from: u64, to: u64| {
            event(at, "received", path, number, &format!("\"from\":{from},\"to\":{to}"))
        };
        let head = "{\"schema\":\"manyways.events/2\",\"tool\":\"get\",\"version\":\"0\",\
                    \"epoch\":100}\n{\"time\":0.01,\"event\":\"transfer-start\",\"transfer\":0,\
                    \"url\":\"\"}\n";
        let log = [
            head.to_owned(),
            request(10, "wifi", 0),
            request(12, "lte", 1),
            event(50, "response", "wifi", 0, "\"status\":206"),
            received(60, "wifi", 0, 0, 100),
            received(80, "lte", 1, 500, 600),
            request(90, "wifi", 2),
            received(110, "wifi", 0, 100, 200),
            event(118, "response", "wifi", 2, "\"status\":206,\"expected_seconds\":0.03"),
            received(118, "wifi", 2, 200, 300),
            request(118, "wifi", 3),
            received(140, "wifi", 3, 300, 301),
            received(150, "wifi", 2, 301, 400),
        ];
        let transfer = Transfer::read(log.concat().as_bytes()).unwrap();
        assert!((transfer.began - 100.010).abs() < 1e-9);
        let curves = transfer.curves();
        assert_eq!((curves["wifi"].at(1.0), curves["lte"].at(1.0)), (400.0, 100.0));
        // 8 ms from the first request of Wi-Fi to its second; the third began before the end of the
        // second.
        let gaps = transfer.gaps();
        assert_eq!(gaps.len(), 2);
        assert!((gaps[0].1 - 0.008).abs() < 1e-9, "{gaps:?}");
        assert_eq!(gaps[1], ("wifi".to_owned(), 0.0));
        let waits = transfer.waits();
        assert_eq!(waits.len(), 1);
        assert!((waits[0].1 - 0.028).abs() < 1e-9, "{waits:?}");
    }
}
