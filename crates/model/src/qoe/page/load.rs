//! One load of a page, as a browser reports it.
//!
//! All times are since the start of the navigation, the event `navigationStart` of the trace, which
//! is [`Time::ZERO`]. `Network.*` and `Page.*` are events of the Chrome DevTools Protocol; their
//! timestamps (seconds) and those of trace events (microseconds) are of one clock. Trace events are
//! of the categories `devtools.timeline`, `disabled-by-default-devtools.timeline` (`RunTask`), `v8`
//! (`v8.compile`), `blink.user_timing` and `loading` (marks), from the thread `CrRendererMain` of the
//! process that has the last `navigationStart` with a `documentLoaderURL`.
//!
//! In JSON, times are milliseconds; a time or a list that is missing is absent or null.

use manyways_unit::{Size, Time};
use serde::{Deserialize, Serialize};

use super::millis;

/// One load of a page.
///
/// Indices that point to no request, times in a wrong order and cycles are permitted: the graph
/// ignores them.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Load {
    /// In any order; other fields name requests by their index here. Each hop of a redirect is a
    /// request of its own. Requests of `data:` and `blob:` URLs are left out.
    pub requests: Vec<Request>,
    /// Tasks of the main thread, which do not overlap, by start ([`flatten`] makes them from nested
    /// ones).
    pub tasks: Vec<Task>,
    pub marks: Marks,
}

/// A request, and what its response did.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Request {
    /// `Network.requestWillBeSent`: `request.url`, without its fragment.
    pub url: String,
    /// Scheme, host and port of the URL, such as `https://a.example:443`.
    pub origin: String,
    /// `Network.requestWillBeSent`: `type`.
    pub kind: Kind,
    /// Of a script only; `None` if it is not known. See [`Loading`].
    #[serde(default)]
    pub loading: Option<Loading>,
    /// `Network.requestWillBeSent`: `initiator`. See [`Initiator`].
    pub initiator: Initiator,
    /// `Network.requestWillBeSent`: `renderBlockingBehavior`.
    #[serde(default)]
    pub blocking: Blocking,
    /// `Network.requestWillBeSent`: `request.initialPriority`.
    #[serde(default)]
    pub priority: Priority,
    /// When the browser raised a low priority, for example because an image became visible: the first
    /// trace event `ResourceChangePriority` with `args.data.priority` `Medium` or higher.
    #[serde(default, with = "millis::option")]
    pub boosted: Option<Time>,
    pub times: Times,
    /// Responses with equal numbers used the same connection. `Network.responseReceived`:
    /// `response.connectionId`; `None` if that is 0.
    #[serde(default)]
    pub connection: Option<u64>,
    /// The connection existed before: `response.connectionReused`.
    #[serde(default)]
    pub reused: bool,
    /// `response.protocol`.
    #[serde(default)]
    pub protocol: Protocol,
    /// Bytes of the body as transferred: `Network.loadingFinished`'s `encodedDataLength` without
    /// [`headers`](Self::headers).
    #[serde(default, with = "millis::size")]
    pub body: Size,
    /// Bytes of the response's header: `response.encodedDataLength` of `Network.responseReceived`.
    #[serde(default, with = "millis::size")]
    pub headers: Size,
    /// Bytes of the body that had arrived at some times, both ascending: the sums of
    /// `Network.dataReceived`'s `dataLength`. May be empty.
    #[serde(default)]
    pub arrivals: Vec<Arrival>,
    /// The response took no network time: `response.fromDiskCache` or `fromPrefetchCache`, or
    /// `Network.requestServedFromCache`.
    #[serde(default)]
    pub from_cache: bool,
    /// `Network.loadingFailed`, or a status from 400.
    #[serde(default)]
    pub failed: bool,
}

/// Bytes that had arrived at a time.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Arrival {
    #[serde(with = "millis::time")]
    pub time: Time,
    /// Of the whole body, so far.
    #[serde(with = "millis::size")]
    pub bytes: Size,
}

/// Kind of an object, from the `type` of DevTools.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The page, or the document of a frame.
    Document,
    /// `Stylesheet`.
    Style,
    Script,
    Image,
    Font,
    Media,
    /// `Fetch`, `XHR` or `EventSource`.
    Fetch,
    #[default]
    Other,
}

/// Loading mode of a script. DevTools does not report it; Chromium 156 has, for scripts that the
/// parser found (`initiator.type` is `parser`): `renderBlockingBehavior` `Blocking` or
/// `InBodyParserBlocking` for [`Loading::Blocking`], `PotentiallyBlocking` for [`Loading::Async`], and
/// `NonBlocking` for [`Loading::Deferred`] (priority `Low`) and [`Loading::Module`] (`High`). With
/// `initiator.type` `script`, a script is [`Loading::Injected`] if the initiator has a `stack`, else
/// an import of a module, thus [`Loading::Module`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loading {
    /// The parser waits for its execution.
    Blocking,
    /// Executed in order after parsing, before DOMContentLoaded.
    Deferred,
    /// Executed as soon as it is there.
    Async,
    /// `type=module` without `async`: as [`Loading::Deferred`], with all that it imports.
    Module,
    /// Inserted by a script; executed as soon as it is there.
    Injected,
}

/// Effect of an object on painting and on the parser, in the words of DevTools.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Blocking {
    /// `Blocking`: nothing is painted before, an object of the head.
    Render,
    /// `InBodyParserBlocking`: nothing behind it is parsed before.
    Parser,
    /// `PotentiallyBlocking`: an `async` script.
    Potential,
    /// `NonBlocking`, or nothing.
    #[default]
    None,
}

/// The cause of a request as DevTools has it, which is not always the true one: an image that a script
/// inserts has the parser as its initiator. The graph corrects this from the task in which the
/// request was issued. Numbers are indices of [`Load::requests`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Initiator {
    /// The user: the first request.
    Navigation,
    /// The parser of a document, or its preload scanner: `initiator.type` is `parser`, and
    /// `initiator.url` a document. Line and column from 0, as DevTools has them.
    Parser { document: usize, line: Option<u32>, column: Option<u32> },
    /// A script with a URL of its own: `initiator.type` is `script`; the URL of the innermost frame
    /// of `initiator.stack` (or of its `parent`s, if the stack is empty) is the one of that request. For
    /// imports of modules, `initiator.url`.
    Script { request: usize },
    /// An inline script, or a handler in an attribute, of a document: the innermost frame has the
    /// document's URL. Its line, from 0.
    InlineScript { document: usize, line: Option<u32> },
    /// A style sheet (imports, fonts, images): `initiator.type` is `parser`, and `initiator.url` a style
    /// sheet's.
    Style { request: usize },
    /// The response of that request redirected: `redirectResponse` is present.
    Redirect { request: usize },
    /// `<link rel=preload>` or a `Link` header of that request: `initiator.type` is `preload`.
    Preload { request: usize },
    #[default]
    Other,
}

/// `VeryHigh`, `High`, and so on of DevTools.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    VeryLow,
    Low,
    #[default]
    Medium,
    High,
    VeryHigh,
}

/// `http/1.1` (and below), `h2` and `h3` of DevTools.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub enum Protocol {
    #[default]
    #[serde(rename = "http/1.1")]
    Http1,
    #[serde(rename = "h2")]
    Http2,
    #[serde(rename = "h3")]
    Http3,
}

/// When a request reached its steps. A step that did not happen has no time: a request on a reused
/// connection has no `connect_start`. `timing` is `response.timing` of `Network.responseReceived`,
/// whose fields are milliseconds after `timing.requestTime` (seconds), -1 if they did not happen.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Times {
    /// The renderer wants the object: `Network.requestWillBeSent`'s `timestamp` (trace:
    /// `ResourceSendRequest`, the same time).
    #[serde(default, with = "millis::option")]
    pub issued: Option<Time>,
    /// The network service begins to look for a connection: `timing.requestTime`. Until then, the
    /// browser delayed a request of low priority.
    #[serde(default, with = "millis::option")]
    pub started: Option<Time>,
    /// `timing.dnsStart`.
    #[serde(default, with = "millis::option")]
    pub dns_start: Option<Time>,
    /// `timing.dnsEnd`.
    #[serde(default, with = "millis::option")]
    pub dns_end: Option<Time>,
    /// `timing.connectStart`, after DNS. Until `connect_end`, TCP's handshake and that of TLS.
    #[serde(default, with = "millis::option")]
    pub connect_start: Option<Time>,
    /// `timing.connectEnd`.
    #[serde(default, with = "millis::option")]
    pub connect_end: Option<Time>,
    /// `timing.sslStart`.
    #[serde(default, with = "millis::option")]
    pub tls_start: Option<Time>,
    /// `timing.sslEnd`.
    #[serde(default, with = "millis::option")]
    pub tls_end: Option<Time>,
    /// The request leaves: `timing.sendStart`.
    #[serde(default, with = "millis::option")]
    pub sent: Option<Time>,
    /// The response begins: `timing.receiveHeadersStart`, or `receiveHeadersEnd` if it is -1.
    #[serde(default, with = "millis::option")]
    pub first_byte: Option<Time>,
    /// The last byte is there: `Network.loadingFinished`'s or `loadingFailed`'s `timestamp`; of a
    /// redirect, the `timestamp` of the next hop's `Network.requestWillBeSent`.
    #[serde(default, with = "millis::option")]
    pub ended: Option<Time>,
}

/// Work of the main thread.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Task {
    pub kind: TaskKind,
    #[serde(with = "millis::time")]
    pub start: Time,
    #[serde(with = "millis::time")]
    pub end: Time,
    /// The request that the task works on: the document of [`TaskKind::ParseHtml`]
    /// (`args.beginData.url`), the script of [`TaskKind::EvaluateScript`], [`TaskKind::Compile`] and
    /// [`TaskKind::Function`] (`args.data.url`; of an inline script the document), the sheet of
    /// [`TaskKind::ParseStyle`] (`args.data.styleSheetUrl`).
    #[serde(default)]
    pub request: Option<usize>,
    /// Lines of the document, from 0: of [`TaskKind::ParseHtml`] the first and the last one
    /// (`args.beginData.startLine`, `args.endData.endLine`), of an inline script its own
    /// (`args.data.lineNumber` - 1) twice.
    #[serde(default)]
    pub lines: Option<(u32, u32)>,
}

/// Kind of work of the main thread, by the name of the trace event (phase `X`, or `B` with `E`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskKind {
    /// `ParseHTML`
    ParseHtml,
    /// `EvaluateScript`, also `v8.evaluateModule`. `args.data.url` is the document's for inline scripts.
    EvaluateScript,
    /// `v8.compile`, `v8.compileModule`
    Compile,
    /// `ParseAuthorStyleSheet`
    ParseStyle,
    /// `UpdateLayoutTree`
    Style,
    /// `Layout`
    Layout,
    /// `PrePaint`, `Paint`, `Layerize`, `Commit`
    Paint,
    /// `TimerFire`
    Timer,
    /// `EventDispatch`
    Event(EventKind),
    /// `FunctionCall`, `RunMicrotasks`, `XHRReadyStateChange`, `XHRLoad`
    Function,
    /// Time of `RunTask` that no other event covers, if it is longer than 1 ms; `MinorGC` and
    /// `MajorGC`.
    Other,
}

/// Which event is dispatched: `args.data.type`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// `DOMContentLoaded`
    DomContentLoaded,
    /// `load` between `loadEventStart` and `loadEventEnd`: of the window, not of an element.
    Load,
    /// `readystatechange`, `load` of elements, and all others.
    Other,
}

/// Milestones of the main frame: trace events of `blink.user_timing` and `loading` with the frame of the
/// navigation, or `performance.getEntries()` after the load.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Marks {
    /// The parser has ended: `domInteractive`.
    #[serde(default, with = "millis::option")]
    pub dom_interactive: Option<Time>,
    /// `domContentLoadedEventStart`
    #[serde(default, with = "millis::option")]
    pub dom_content_loaded_start: Option<Time>,
    /// `domContentLoadedEventEnd`
    #[serde(default, with = "millis::option")]
    pub dom_content_loaded_end: Option<Time>,
    /// All objects are there: `domComplete`.
    #[serde(default, with = "millis::option")]
    pub dom_complete: Option<Time>,
    /// `loadEventStart`
    #[serde(default, with = "millis::option")]
    pub load_event_start: Option<Time>,
    /// `loadEventEnd`: the page load time, PLT.
    #[serde(default, with = "millis::option")]
    pub load_event_end: Option<Time>,
    /// `firstPaint`
    #[serde(default, with = "millis::option")]
    pub first_paint: Option<Time>,
    /// `firstContentfulPaint`
    #[serde(default, with = "millis::option")]
    pub first_contentful_paint: Option<Time>,
    /// The last `largestContentfulPaint::Candidate`, before the page gets input.
    #[serde(default, with = "millis::option")]
    pub largest_contentful_paint: Option<Time>,
}

/// Makes tasks that do not overlap from nested ones: the outer task is cut where an inner one is, and
/// its pieces keep its kind, request and lines. Tasks without a duration vanish; a task that overlaps an
/// earlier one without being inside it loses the common part. The result is ordered by start.
pub fn flatten(mut tasks: Vec<Task>) -> Vec<Task> {
    // Of two tasks that start together, the longer one is the outer one.
    tasks.sort_by_key(|task| (task.start, std::cmp::Reverse(task.end)));
    let mut flat = Vec::with_capacity(tasks.len());
    let mut open: Vec<Task> = Vec::new();
    let mut close = |open: &mut Vec<Task>, until: Time| {
        while let Some(task) = open.pop_if(|task| task.end <= until) {
            let end = task.end;
            if task.start < end {
                flat.push(task);
            }
            if let Some(outer) = open.last_mut() {
                outer.start = outer.start.max(end);
            }
        }
    };
    let mut pieces = Vec::new();
    for mut task in tasks {
        close(&mut open, task.start);
        if let Some(outer) = open.last_mut() {
            task.end = task.end.min(outer.end);
            if outer.start < task.start {
                pieces.push(Task { end: task.start, ..outer.clone() });
            }
        }
        open.push(task);
    }
    close(&mut open, Time::MAX);
    flat.extend(pieces);
    flat.sort_by_key(|task| task.start);
    flat
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(kind: TaskKind, start: u64, end: u64) -> Task {
        let at = Time::from_millis;
        Task { kind, start: at(start), end: at(end), request: None, lines: None }
    }

    #[test]
    fn an_outer_task_is_cut_where_an_inner_one_is() {
        use TaskKind::{Compile, EvaluateScript, Layout, ParseHtml};
        let nested = vec![
            task(Compile, 12, 14),
            task(ParseHtml, 0, 30),
            task(EvaluateScript, 10, 20),
            task(EvaluateScript, 25, 30),
            // Reported too long, and without a duration.
            task(Layout, 28, 40),
            task(Layout, 50, 50),
        ];
        let flat: Vec<_> = flatten(nested)
            .iter()
            .map(|task| {
                (task.kind, task.start.as_nanos() / 1_000_000, task.end.as_nanos() / 1_000_000)
            })
            .collect();
        let expected = [
            (ParseHtml, 0, 10),
            (EvaluateScript, 10, 12),
            (Compile, 12, 14),
            (EvaluateScript, 14, 20),
            (ParseHtml, 20, 25),
            (EvaluateScript, 25, 28),
            (Layout, 28, 30),
        ];
        assert_eq!(flat, expected);
    }

    #[test]
    fn a_load_is_json_with_milliseconds() {
        let mut load = Load::default();
        load.requests.push(Request {
            url: "http://a.example/".into(),
            initiator: Initiator::Parser { document: 3, line: Some(4), column: None },
            times: Times { sent: Some(Time::from_nanos(1_234_567)), ..Times::default() },
            ..Request::default()
        });
        load.tasks.push(task(TaskKind::Event(EventKind::Load), 2, 3));
        let text = serde_json::to_string(&load).unwrap();
        assert!(text.contains("\"sent\":1.234567"), "{text}");
        assert_eq!(serde_json::from_str::<Load>(&text).unwrap(), load);
        let least = r#"{"requests":[],"tasks":[],"marks":{"load_event_end":-3}}"#;
        let read = serde_json::from_str::<Load>(least).unwrap();
        assert_eq!(read.marks.load_event_end, Some(Time::ZERO));
    }
}
