//! Times of a load, as the page itself measures them, and their medians over several loads.

use manyways_model::qoe::page::{Initiator, Load, Marks, Times};
use manyways_unit::{Size, Span, Time, quantile};
use serde::Deserialize;
use serde_json::Value;

/// A script whose value is an [`Answer`]. The observer of paints gets those before it soon after it
/// begins.
pub const SCRIPT: &str = "new Promise(done => {
  const [navigation] = performance.getEntriesByType('navigation');
  const [paint] = performance.getEntriesByName('first-contentful-paint');
  let largest;
  try {
    new PerformanceObserver(list => { largest = list.getEntries().at(-1) })
      .observe({type: 'largest-contentful-paint', buffered: true});
  } catch {}
  setTimeout(() => done({
    navigation: navigation && navigation.toJSON(), url: location.href, title: document.title,
    firstPaint: paint && paint.startTime, largestPaint: largest && largest.startTime,
  }), 100);
})";

/// Times of a load. One that the load did not reach has no value.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PageTimings {
    /// Look-up of the name of the page; this and the next two with those of its redirects.
    pub dns: Option<Span>,
    /// Handshake of TCP.
    pub connect: Option<Span>,
    /// Handshake of TLS.
    pub tls: Option<Span>,
    /// From the request of the page to the first byte.
    pub first_byte: Option<Span>,
    /// From there to the last byte of the page.
    pub response: Option<Span>,
    /// The following are since the start of the navigation: the parser has ended.
    pub dom_interactive: Option<Span>,
    /// End of the event `DOMContentLoaded`.
    pub dom_content_loaded: Option<Span>,
    /// Page-interactive time (PIT): the document is constructed and rendered for the first time, thus
    /// the later one of `dom_interactive` and `first_contentful_paint`.
    pub interactive: Option<Span>,
    /// Page load time (PLT): the end of the load event.
    pub load: Option<Span>,
    pub first_contentful_paint: Option<Span>,
    pub largest_contentful_paint: Option<Span>,
    /// Requests of HTTP until shortly after the load.
    pub objects: u64,
    /// Of those, the ones without a response, or with a status from 400.
    pub failed: u64,
    /// Bytes of all responses with their headers.
    pub bytes: Size,
}

/// The final address of a page, and its name.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PageName {
    pub url: String,
    pub title: String,
}

/// The value of [`SCRIPT`]. Times are milliseconds since the start of the navigation; 0 or less of a
/// step that was not taken.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Answer {
    navigation: Option<Navigation>,
    url: String,
    title: String,
    first_paint: Option<f64>,
    largest_paint: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Navigation {
    domain_lookup_start: f64,
    domain_lookup_end: f64,
    connect_start: f64,
    secure_connection_start: f64,
    connect_end: f64,
    request_start: f64,
    response_start: f64,
    response_end: f64,
    dom_interactive: f64,
    dom_content_loaded_event_end: f64,
    dom_complete: f64,
    load_event_start: f64,
    load_event_end: f64,
}

impl Answer {
    /// The answer of the page; an empty one if it has another form.
    pub fn of(value: &Value) -> Self {
        Self::deserialize(value).unwrap_or_default()
    }

    pub fn name(&self) -> PageName {
        const MAX_LENGTH: usize = 500;
        let short = |text: &str| text.chars().take(MAX_LENGTH).collect();
        PageName { url: short(&self.url), title: short(&self.title) }
    }

    /// Completes the marks of a load by those that the trace lacks.
    pub fn complete(&self, marks: &mut Marks) {
        let complete = |mark: &mut Option<Time>, millis: Option<f64>| {
            *mark = mark.or_else(|| at(millis?).map(|span| Time::ZERO + span));
        };
        if let Some(navigation) = &self.navigation {
            complete(&mut marks.dom_interactive, Some(navigation.dom_interactive));
            let loaded = navigation.dom_content_loaded_event_end;
            complete(&mut marks.dom_content_loaded_end, Some(loaded));
            complete(&mut marks.dom_complete, Some(navigation.dom_complete));
            complete(&mut marks.load_event_start, Some(navigation.load_event_start));
            complete(&mut marks.load_event_end, Some(navigation.load_event_end));
        }
        complete(&mut marks.first_contentful_paint, self.first_paint);
        complete(&mut marks.largest_contentful_paint, self.largest_paint);
    }
}

/// Milliseconds after the start; `None` of a step that was not taken.
fn at(millis: f64) -> Option<Span> {
    (millis > 0.0).then(|| Span::from_nanos((millis * 1e6) as u64))
}

impl PageTimings {
    /// The times of a load whose marks are complete.
    pub fn of(load: &Load) -> Self {
        let marks = &load.marks;
        let span = |time: Option<Time>| time.map(|time| time.since(Time::ZERO));
        let between = |from: Option<Time>, to: Option<Time>| {
            from.zip(to).filter(|(from, to)| from <= to).map(|(from, to)| to.since(from))
        };
        let hops = hops(load);
        let times = |index: &usize| load.requests[*index].times;
        let page = hops.last().map(times).unwrap_or_default();
        // The connection may be that of a redirect.
        let sum = |phase: fn(&Times) -> (Option<Time>, Option<Time>)| {
            let phases = hops.iter().map(|hop| phase(&times(hop)));
            let spans = phases.filter_map(|(from, to)| between(from, to));
            spans.reduce(|all, one| all + one).filter(|all| !all.is_zero())
        };
        let interactive = span(marks.dom_interactive);
        let paint = span(marks.first_contentful_paint);
        Self {
            dns: sum(|times| (times.dns_start, times.dns_end)),
            connect: sum(|times| (times.connect_start, times.tls_start.or(times.connect_end))),
            tls: sum(|times| (times.tls_start, times.tls_end)),
            first_byte: between(page.sent, page.first_byte),
            response: between(page.first_byte, page.ended),
            dom_interactive: interactive,
            dom_content_loaded: span(marks.dom_content_loaded_end),
            interactive: interactive.map(|time| time.max(paint.unwrap_or_default())),
            load: span(marks.load_event_end),
            first_contentful_paint: paint,
            largest_contentful_paint: span(marks.largest_contentful_paint),
            objects: load.requests.len() as u64,
            failed: load.requests.iter().filter(|request| request.failed).count() as u64,
            bytes: load.requests.iter().map(|request| request.headers + request.body).sum(),
        }
    }

    /// The median of each time over several loads.
    pub fn medians(all: &[Self]) -> Self {
        let count = |value: fn(&Self) -> u64| median(all.iter().map(value)).unwrap_or_default();
        let span = |value: fn(&Self) -> Option<Span>| median(all.iter().filter_map(value));
        Self {
            dns: span(|one| one.dns),
            connect: span(|one| one.connect),
            tls: span(|one| one.tls),
            first_byte: span(|one| one.first_byte),
            response: span(|one| one.response),
            dom_interactive: span(|one| one.dom_interactive),
            dom_content_loaded: span(|one| one.dom_content_loaded),
            interactive: span(|one| one.interactive),
            load: span(|one| one.load),
            first_contentful_paint: span(|one| one.first_contentful_paint),
            largest_contentful_paint: span(|one| one.largest_contentful_paint),
            objects: count(|one| one.objects),
            failed: count(|one| one.failed),
            bytes: Size::from_bytes(count(|one| one.bytes.as_bytes())),
        }
    }
}

/// The requests of the page itself: its redirects, and at last the one with the page.
pub fn hops(load: &Load) -> Vec<usize> {
    let mut hops: Vec<usize> = load.requests.first().map(|_| 0).into_iter().collect();
    for (index, request) in load.requests.iter().enumerate().skip(1) {
        if let Initiator::Redirect { request } = request.initiator
            && hops.last() == Some(&request)
        {
            hops.push(index);
        }
    }
    hops
}

/// The median; of an even number of values, the lower one of the two in the middle.
fn median<T: Ord + Copy>(values: impl Iterator<Item = T>) -> Option<T> {
    let mut sorted: Vec<T> = values.collect();
    sorted.sort_unstable();
    quantile::of_sorted(&sorted, 0.5)
}
