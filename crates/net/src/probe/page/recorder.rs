//! Collects what a browser reports of a load.

use std::collections::HashMap;

use manyways_unit::{Size, Time};
use serde::Deserialize;
use serde_json::Value;

use super::protocol::{DataReceived, Ended, Response, ResponseReceived, TraceEvent, WillBeSent};
use super::trace::Trace;
use crate::browser::{BrowserError, Event, Messages};

/// Requests of a page; with more, its load is given up.
pub const MAX_REQUESTS: usize = 20_000;
/// Documents that follow each other before one has loaded.
pub const MAX_DOCUMENTS: u32 = 20;

/// Requests and trace of the last document of a page.
#[derive(Debug, Default)]
pub struct Recorder {
    /// The frame of the page itself.
    frame: String,
    pub records: Vec<Record>,
    /// The last request with a number of DevTools, which all hops of a redirect have in common.
    latest: HashMap<String, usize>,
    pub trace: Trace,
    open: usize,
    documents: u32,
    is_loaded: bool,
    has_left: bool,
    is_overfull: bool,
}

/// A request, with times of the monotonic clock.
#[derive(Debug)]
pub struct Record {
    pub sent: WillBeSent,
    pub response: Option<Response>,
    /// Times, and bytes of the body so far.
    pub arrivals: Vec<(Time, Size)>,
    pub ended: Option<Time>,
    /// Bytes of the response with its header.
    pub encoded: Size,
    pub is_cached: bool,
    pub has_failed: bool,
    /// The hop of a redirect before.
    pub redirected_from: Option<usize>,
}

impl Record {
    pub fn url(&self) -> &str {
        without_fragment(&self.sent.request.url)
    }

    /// Whether it is a request of the page by HTTP: not one of `data:` and the like, and not the one of
    /// the browser for an icon of the page.
    pub fn counts(&self) -> bool {
        self.is_http() && !(self.sent.kind == "Other" && self.sent.initiator.kind == "other")
    }

    fn is_http(&self) -> bool {
        ["http:", "https:"].iter().any(|scheme| {
            self.sent
                .request
                .url
                .get(..scheme.len())
                .is_some_and(|url| url.eq_ignore_ascii_case(scheme))
        })
    }
}

/// A URL without its fragment.
pub fn without_fragment(url: &str) -> &str {
    url.split('#').next().unwrap_or_default()
}

/// Seconds of the monotonic clock. Invalid ones are zero.
pub fn seconds(value: f64) -> Time {
    Time::from_nanos((value * 1e9).round() as u64)
}

/// Bytes in a number of DevTools. Invalid ones are zero.
pub fn bytes(value: f64) -> Size {
    Size::from_bytes(value as u64)
}

impl Recorder {
    /// Parts of a body whose times are kept; the last one has the rest.
    const MAX_ARRIVALS: usize = 4_096;

    /// A recorder of the page in the frame with this number of DevTools.
    pub fn new(frame: String) -> Self {
        Self { frame, ..Self::default() }
    }

    /// A recorder with all events of a recording, of the page in the frame of the first request.
    pub fn read(recording: &[u8]) -> Result<Self, BrowserError> {
        let mut messages = Messages::default();
        messages.extend(recording);
        let mut recorder = Self::default();
        while let Some(message) = messages.next()? {
            let Some(method) = message.method else { continue };
            let event = Event { method, params: message.params };
            if recorder.frame.is_empty() && event.method == "Network.requestWillBeSent" {
                let frame = event.params["frameId"].as_str().unwrap_or_default();
                frame.clone_into(&mut recorder.frame);
            }
            recorder.handle(&event);
        }
        Ok(recorder)
    }

    /// Takes an event. One of an unknown form is ignored.
    pub fn handle(&mut self, event: &Event) {
        let Event { method, params } = event;
        match method.as_str() {
            "Network.requestWillBeSent" => self.take(params, Self::sent),
            "Network.responseReceived" => self.take(params, Self::answered),
            "Network.dataReceived" => self.take(params, Self::received),
            "Network.loadingFinished" => self.take(params, |this, ended| this.ended(&ended, false)),
            "Network.loadingFailed" => self.take(params, |this, ended| this.ended(&ended, true)),
            "Network.requestServedFromCache" => self.take(params, |this, cached: Ended| {
                if let Some(record) = this.find(&cached.request_id) {
                    record.is_cached = true;
                }
            }),
            "Page.loadEventFired" => self.is_loaded = true,
            "Tracing.dataCollected" => {
                for event in params["value"].as_array().into_iter().flatten() {
                    if let Ok(event) = TraceEvent::deserialize(event) {
                        self.trace.add(event);
                    }
                }
            }
            _ => {}
        }
    }

    /// The start of the load, on the monotonic clock.
    pub fn start(&self) -> Time {
        let mut requests = self.records.iter().filter(|record| record.counts());
        let first = requests.next().map(|record| seconds(record.sent.timestamp));
        let timeline = self.trace.timeline(first.unwrap_or_default());
        timeline.map(|timeline| timeline.start()).or(first).unwrap_or_default()
    }

    /// Whether the load event of the last document has happened.
    pub fn is_loaded(&self) -> bool {
        self.is_loaded
    }

    /// Whether no response is missing.
    pub fn is_idle(&self) -> bool {
        self.open == 0
    }

    /// Number of documents that the page became one after the other, without redirects of HTTP.
    pub fn documents(&self) -> u32 {
        self.documents
    }

    /// Whether the page went on to another document after its load event, which is another load.
    pub fn has_left(&self) -> bool {
        self.has_left
    }

    /// Whether there were more than [`MAX_REQUESTS`].
    pub fn is_overfull(&self) -> bool {
        self.is_overfull
    }

    fn take<'a, T: Deserialize<'a>>(&mut self, params: &'a Value, take: impl FnOnce(&mut Self, T)) {
        if let Ok(event) = T::deserialize(params) {
            take(self, event);
        }
    }

    fn find(&mut self, id: &str) -> Option<&mut Record> {
        self.records.get_mut(*self.latest.get(id)?)
    }

    fn sent(&mut self, mut sent: WillBeSent) {
        let earlier = self.latest.get(&sent.request_id).copied();
        let redirected_from = match sent.redirect_response.take() {
            Some(response) => earlier.inspect(|hop| {
                let record = &mut self.records[*hop];
                record.ended = Some(seconds(sent.timestamp));
                record.encoded = bytes(response.encoded_data_length);
                record.response = Some(response);
                self.open = self.open.saturating_sub(1);
            }),
            None => None,
        };
        let is_page = sent.request_id == sent.loader_id && sent.frame_id == self.frame;
        if is_page && redirected_from.is_none() {
            if self.is_loaded {
                self.has_left = true;
                return;
            }
            self.documents = self.documents.saturating_add(1);
            (self.records, self.latest, self.open) = Default::default();
        }
        if self.records.len() == MAX_REQUESTS {
            self.is_overfull = true;
            return;
        }
        let id = sent.request_id.clone();
        let record = Record {
            sent,
            response: None,
            arrivals: Vec::new(),
            ended: None,
            encoded: Size::ZERO,
            is_cached: false,
            has_failed: false,
            redirected_from,
        };
        self.open += usize::from(record.counts());
        self.latest.insert(id, self.records.len());
        self.records.push(record);
    }

    fn answered(&mut self, received: ResponseReceived) {
        let Some(record) = self.find(&received.request_id) else { return };
        record.encoded = bytes(received.response.encoded_data_length);
        record.is_cached |=
            received.response.from_disk_cache || received.response.from_prefetch_cache;
        record.response = Some(received.response);
    }

    fn received(&mut self, data: DataReceived) {
        let Some(record) = self.find(&data.request_id) else { return };
        let so_far = record.arrivals.last().map_or(Size::ZERO, |last| last.1);
        let length = bytes(data.data_length);
        let arrival = (
            seconds(data.timestamp),
            Size::from_bytes(so_far.as_bytes().saturating_add(length.as_bytes())),
        );
        if record.arrivals.len() == Self::MAX_ARRIVALS {
            record.arrivals.pop();
        }
        record.arrivals.push(arrival);
    }

    fn ended(&mut self, ended: &Ended, has_failed: bool) {
        let Some(record) = self.find(&ended.request_id) else { return };
        if record.ended.is_some() {
            return;
        }
        record.ended = Some(seconds(ended.timestamp));
        record.has_failed = has_failed;
        if !has_failed {
            record.encoded = record.encoded.max(bytes(ended.encoded_data_length));
        }
        let counts = record.counts();
        self.open = self.open.saturating_sub(usize::from(counts));
    }
}
