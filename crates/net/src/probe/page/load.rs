//! The records of a load as a [`Load`].

use std::collections::HashMap;

use manyways_model::qoe::page::{
    Arrival, Blocking, Initiator, Kind, Load, Loading, Priority, Protocol, Request, Times,
};
use manyways_unit::Time;

use super::protocol::{self, CallFrame, Stack};
use super::recorder::{Record, Recorder, bytes, seconds, without_fragment};
use super::trace::{Timeline, since};
use crate::fetch::Location;

impl Recorder {
    /// The load, and the indices of its requests in [`Recorder::records`].
    pub fn load(&self) -> (Load, Vec<usize>) {
        let shown: Vec<usize> =
            (0..self.records.len()).filter(|index| self.records[*index].counts()).collect();
        let numbers: HashMap<usize, usize> =
            shown.iter().enumerate().map(|(number, index)| (*index, number)).collect();
        let first = shown.first().map(|index| seconds(self.records[*index].sent.timestamp));
        let timeline = self.trace.timeline(first.unwrap_or_default());
        let start = self.start();
        let urls = Urls::of(self, &shown);
        let requests = shown.iter().enumerate().map(|(number, index)| {
            let record = &self.records[*index];
            let from = record.redirected_from.and_then(|hop| numbers.get(&hop).copied());
            let initiator = match from {
                Some(request) => Initiator::Redirect { request },
                None if number == 0 => Initiator::Navigation,
                None => urls.initiator(record),
            };
            let boosted = self.trace.boost(&record.sent.request_id);
            let boosted = boosted.map(|time| since(start, time));
            Request { boosted, ..record.request(start, initiator) }
        });
        let requests = requests.collect();
        let find = |url: &str, time| urls.find(url, time).map(|found| found.number);
        let tasks = timeline.as_ref().map(|timeline| timeline.tasks(find)).unwrap_or_default();
        let marks = timeline.as_ref().map(Timeline::marks).unwrap_or_default();
        (Load { requests, tasks, marks }, shown)
    }
}

/// Requests by their URLs.
struct Urls<'a>(HashMap<&'a str, Vec<Found>>);

#[derive(Clone, Copy)]
struct Found {
    number: usize,
    kind: Kind,
    /// Of the monotonic clock.
    sent: Time,
}

impl<'a> Urls<'a> {
    fn of(recorder: &'a Recorder, shown: &[usize]) -> Self {
        let mut urls: HashMap<&str, Vec<Found>> = HashMap::new();
        for (number, index) in shown.iter().enumerate() {
            let record = &recorder.records[*index];
            let (kind, sent) = (kind(&record.sent.kind), seconds(record.sent.timestamp));
            urls.entry(record.url()).or_default().push(Found { number, kind, sent });
        }
        Self(urls)
    }

    /// The last request of a URL before a time.
    fn find(&self, url: &str, before: Time) -> Option<Found> {
        let found = self.0.get(without_fragment(url))?;
        found.iter().rfind(|one| one.sent <= before).copied()
    }

    fn initiator(&self, record: &Record) -> Initiator {
        let initiator = &record.sent.initiator;
        let before = seconds(record.sent.timestamp);
        let number = |value: Option<f64>| value.map(|value| value as u32);
        let found = self.find(&initiator.url, before);
        match (initiator.kind.as_str(), found) {
            ("parser", Some(Found { number: request, kind: Kind::Style, .. })) => {
                Initiator::Style { request }
            }
            ("parser", Some(Found { number: document, kind: Kind::Document, .. })) => {
                Initiator::Parser {
                    document,
                    line: number(initiator.line_number),
                    column: number(initiator.column_number),
                }
            }
            ("preload", Some(found)) => Initiator::Preload { request: found.number },
            ("script", _) => {
                let frame = initiator.stack.as_ref().and_then(innermost);
                let url = frame.as_ref().map_or(initiator.url.as_str(), |frame| &frame.url);
                match self.find(url, before) {
                    Some(Found { number, kind: Kind::Document, .. }) => Initiator::InlineScript {
                        document: number,
                        line: frame.map(|frame| frame.line_number as u32),
                    },
                    Some(found) => Initiator::Script { request: found.number },
                    None => Initiator::Other,
                }
            }
            _ => Initiator::Other,
        }
    }
}

/// The innermost frame with a URL.
fn innermost(stack: &Stack) -> Option<CallFrame> {
    let stacks = std::iter::successors(Some(stack), |stack| stack.parent.as_deref());
    let mut frames = stacks.flat_map(|stack| &stack.call_frames);
    frames.find(|frame| !frame.url.is_empty()).cloned()
}

fn kind(text: &str) -> Kind {
    match text {
        "Document" => Kind::Document,
        "Stylesheet" => Kind::Style,
        "Script" => Kind::Script,
        "Image" => Kind::Image,
        "Font" => Kind::Font,
        "Media" => Kind::Media,
        "Fetch" | "XHR" | "EventSource" => Kind::Fetch,
        _ => Kind::Other,
    }
}

impl Record {
    fn request(&self, start: Time, initiator: Initiator) -> Request {
        let response = self.response.as_ref();
        let headers = response.map_or(0.0, |response| response.encoded_data_length);
        let headers = bytes(headers).min(self.encoded);
        let blocking = match self.sent.render_blocking_behavior.as_str() {
            "Blocking" => Blocking::Render,
            "InBodyParserBlocking" => Blocking::Parser,
            "PotentiallyBlocking" => Blocking::Potential,
            _ => Blocking::None,
        };
        let priority = priority(&self.sent.request.initial_priority);
        let kind = kind(&self.sent.kind);
        let connection = response.map(|response| response.connection_id as u64);
        let status = response.map(|response| response.status);
        // The renderer reports bytes late, if it is busy.
        let latest = self.ended.unwrap_or(Time::MAX);
        let arrivals = self.arrivals.iter();
        let arrivals = arrivals.map(|(time, bytes)| Arrival {
            time: since(start, (*time).min(latest)),
            bytes: *bytes,
        });
        Request {
            url: self.url().to_owned(),
            origin: origin(self.url()),
            kind,
            loading: Some(kind)
                .filter(|kind| *kind == Kind::Script)
                .and_then(|_| loading(&self.sent.initiator, blocking, priority)),
            initiator,
            blocking,
            priority,
            times: self.times(start),
            connection: connection.filter(|number| *number > 0),
            reused: response.is_some_and(|response| response.connection_reused),
            protocol: match response.map(|response| response.protocol.as_str()) {
                Some("h2") => Protocol::Http2,
                Some("h3") => Protocol::Http3,
                _ => Protocol::Http1,
            },
            body: self.encoded - headers,
            headers,
            arrivals: arrivals.collect(),
            from_cache: self.is_cached,
            boosted: None,
            failed: self.has_failed || status.is_some_and(|status| status >= 400.0),
        }
    }

    /// The steps of the request since the start of the load.
    fn times(&self, start: Time) -> Times {
        let mut times = Times {
            issued: Some(since(start, seconds(self.sent.timestamp))),
            ended: self.ended.map(|ended| since(start, ended)),
            ..Times::default()
        };
        let timing = self.response.as_ref().and_then(|response| response.timing);
        let Some(timing) = timing.filter(|timing| timing.request_time > 0.0) else { return times };
        let step = |millis: f64| {
            let time = (millis >= 0.0).then(|| seconds(timing.request_time + millis / 1e3));
            time.map(|time| since(start, time))
        };
        let first = match timing.receive_headers_start {
            start if start > 0.0 => start,
            _ => timing.receive_headers_end,
        };
        times.started = step(0.0);
        times.dns_start = step(timing.dns_start);
        times.dns_end = step(timing.dns_end);
        times.connect_start = step(timing.connect_start);
        times.connect_end = step(timing.connect_end);
        times.tls_start = step(timing.ssl_start);
        times.tls_end = step(timing.ssl_end);
        times.sent = step(timing.send_start);
        times.first_byte = step(first);
        times
    }
}

/// How Chromium 156 loads a script, by what it reports of the request.
fn loading(
    initiator: &protocol::Initiator,
    blocking: Blocking,
    priority: Priority,
) -> Option<Loading> {
    match (initiator.kind.as_str(), blocking) {
        ("script", _) if initiator.stack.is_some() => Some(Loading::Injected),
        ("script", _) => Some(Loading::Module),
        ("parser", Blocking::Render | Blocking::Parser) => Some(Loading::Blocking),
        ("parser", Blocking::Potential) => Some(Loading::Async),
        ("parser", Blocking::None) if priority >= Priority::High => Some(Loading::Module),
        ("parser", Blocking::None) => Some(Loading::Deferred),
        _ => None,
    }
}

fn priority(text: &str) -> Priority {
    match text {
        "VeryLow" => Priority::VeryLow,
        "Low" => Priority::Low,
        "High" => Priority::High,
        "VeryHigh" => Priority::VeryHigh,
        _ => Priority::Medium,
    }
}

/// Scheme, host and port of a URL.
fn origin(url: &str) -> String {
    let Ok(location) = Location::parse(url) else { return String::new() };
    let origin = location.origin();
    let host = match origin.host.contains(':') {
        true => format!("[{}]", origin.host),
        false => origin.host.clone(),
    };
    format!("{}://{host}:{}", origin.scheme(), origin.port)
}
