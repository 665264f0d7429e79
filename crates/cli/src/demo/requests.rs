//! The requests of a download with their bytes, from its event log.

use std::collections::BTreeMap;

use manyways_net::fetch::event::TransferEvent;
use manyways_record::event;
use manyways_unit::Span;
use serde::{Serialize, Serializer};

/// Longest duration of a piece: the journal of a download merges the bytes within this time.
pub const PIECE: Span = Span::from_millis(5);
/// Longest duration of a piece in the JSON, because a log has thousands of pieces.
const COARSE: Span = Span::from_millis(100);

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
    /// When the request ended.
    #[serde(rename = "end_seconds", serialize_with = "seconds_if_any")]
    pub over: Option<Span>,
    /// `finished`, `cut`, `cancelled` or `failed`.
    pub how: Option<String>,
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
    pub fn busy(&self) -> Option<(Span, Span)> {
        Some((self.pieces.first()?.at, self.pieces.last()?.at))
    }
}

/// Returns the requests of a log's first transfer, in the order of sending.
///
/// # Errors
/// One sentence, if the bytes are not the log of a transfer.
pub fn read(log: &[u8]) -> Result<Vec<Request>, String> {
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
                let (response, over, how) = (None, None, None);
                let (changes, pieces) = (Vec::new(), Vec::new());
                let sent = at;
                let fresh = Request { link, sent, response, over, how, from, to, changes, pieces };
                requests.insert(request, fresh);
            }
            TransferEvent::Response { transfer: 0, request, .. } => {
                change(&mut requests, request, |known| known.response = Some(at));
            }
            TransferEvent::Received { transfer: 0, request, from, to, .. } if from < to => {
                change(&mut requests, request, |known| known.pieces.push(Piece { at, from, to }));
            }
            TransferEvent::RangeEnd { transfer: 0, request, to, .. } => {
                change(&mut requests, request, |known| known.changes.push(Change { at, to }));
            }
            TransferEvent::RequestEnd { transfer: 0, request, how, .. } => {
                change(&mut requests, request, |known| {
                    (known.over, known.how) = (Some(at), Some(how));
                });
            }
            _ => {}
        }
    }
    if start.is_none() {
        return Err("no transfer began in it".to_owned());
    }
    let mut requests: Vec<Request> = requests.into_values().collect();
    requests.sort_by_key(|request| request.sent);
    for request in &mut requests {
        // Pieces are logged when they are complete, possibly after later ones.
        request.pieces.sort_by_key(|piece| (piece.at, piece.from));
    }
    Ok(requests)
}

/// Time without an active response on a link, from its first byte to the `end` of the download.
pub fn idle<'r>(requests: impl Iterator<Item = &'r Request>, end: Span) -> Span {
    let mut busy: Vec<(Span, Span)> = requests.filter_map(Request::busy).collect();
    busy.sort();
    let mut until = match busy.first() {
        Some((first, _)) => *first,
        None => return Span::ZERO,
    };
    let mut idle = Span::ZERO;
    for (first, last) in busy {
        idle += first.saturating_sub(until);
        until = until.max(last);
    }
    idle + end.saturating_sub(until)
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
            Some(last) if last.to == piece.from && piece.at <= first + COARSE => {
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
    const LOG: &str = r#"{"schema":"manyways.events/1","tool":"get","version":"0.1.0","epoch":1}
{"time":0.5,"event":"transfer-start","transfer":0,"url":"https://origin.lab/x"}
{"time":0.6,"event":"request","transfer":0,"path":"wifi","request":0,"from":0}
{"time":0.7,"event":"response","transfer":0,"path":"wifi","request":0,"status":200}
{"time":0.7,"event":"received","transfer":0,"path":"wifi","request":0,"from":0,"to":50}
{"time":0.7,"event":"request","transfer":0,"path":"lte","request":1,"from":200,"to":300}
{"time":0.7,"event":"range-end","transfer":0,"path":"wifi","request":0,"to":200}
{"time":0.9,"event":"received","transfer":0,"path":"lte","request":1,"from":200,"to":300}
{"time":1.0,"event":"request-end","transfer":0,"path":"lte","request":1,"how":"finished"}
{"time":1.2,"event":"received","transfer":0,"path":"wifi","request":0,"from":150,"to":200}
{"time":1.1,"event":"received","transfer":0,"path":"wifi","request":0,"from":50,"to":150}
{"time":1.2,"event":"request-end","transfer":0,"path":"wifi","request":0,"how":"cut"}
{"time":1.2,"event":"received","transfer":0,"path":"lte","request":9,"from":0,"to":1}
{"time":1.3,"event":"received","transfer":1,"path":"lte","request":1,"from":0,"to":300}
{"time":1.3,"event":"something-new"}
"#;

    fn ms(millis: u64) -> Span {
        Span::from_millis(millis)
    }

    #[test]
    fn a_log_tells_what_was_asked_for_and_what_came() {
        let requests = read(LOG.as_bytes()).unwrap();
        let piece = |at, from, to| Piece { at: ms(at), from, to };
        let wifi = Request {
            link: "wifi".to_owned(),
            sent: ms(100),
            response: Some(ms(200)),
            over: Some(ms(700)),
            how: Some("cut".to_owned()),
            from: 0,
            to: None,
            changes: vec![Change { at: ms(200), to: 200 }],
            pieces: vec![piece(200, 0, 50), piece(600, 50, 150), piece(700, 150, 200)],
        };
        assert_eq!(requests.len(), 2);
        assert_eq!(requests[0], wifi);
        assert_eq!((requests[0].bytes(), requests[0].busy()), (200, Some((ms(200), ms(700)))));
        assert_eq!((requests[1].link.as_str(), requests[1].to), ("lte", Some(300)));
        assert_eq!(requests[1].pieces, [piece(400, 200, 300)]);
    }

    #[test]
    fn machines_get_pieces_of_a_tenth_of_a_second() {
        let mut request = read(LOG.as_bytes()).unwrap().remove(0);
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
        assert_eq!(read(b"").unwrap_err(), "the event log is empty");
        assert_eq!(read(header.as_bytes()).unwrap_err(), "no transfer began in it");
        let torn = &LOG[..LOG.len() - 20];
        assert_eq!(read(torn.as_bytes()).unwrap().len(), 2);
    }

    #[test]
    fn a_link_is_idle_between_answers_and_after_the_last() {
        let request = |from, to| Request {
            pieces: vec![
                Piece { at: ms(from), from: 0, to: 1 },
                Piece { at: ms(to), from: 1, to: 2 },
            ],
            ..read(LOG.as_bytes()).unwrap().remove(0)
        };
        // The second request begins before the first one ends, the third one 50 ms after the
        // second.
        let requests = [request(100, 300), request(250, 400), request(450, 600)];
        assert_eq!(idle(requests.iter(), ms(1000)), ms(50 + 400));
        assert_eq!(idle(requests.iter().take(1), ms(300)), Span::ZERO);
        assert_eq!(idle([].iter(), ms(300)), Span::ZERO);
    }
}
