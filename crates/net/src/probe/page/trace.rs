//! Work of the page's main thread, and its marks, from the events of a trace.

use std::collections::{HashMap, HashSet};

use manyways_model::qoe::page::{EventKind, Marks, Task, TaskKind, flatten};
use manyways_unit::{Span, Time};
use serde_json::Value;

use super::protocol::TraceEvent;

/// Categories of the trace.
pub const CATEGORIES: [&str; 4] =
    ["devtools.timeline", "disabled-by-default-devtools.timeline", "v8", "blink.user_timing"];
/// Events that are kept; a trace of more is cut.
const MAX_EVENTS: usize = 1_000_000;

/// The events of a trace that matter.
#[derive(Debug, Default)]
pub struct Trace {
    tasks: Vec<RawTask>,
    marks: Vec<RawMark>,
    /// Main threads of renderers, as process and thread.
    main_threads: HashSet<(i64, i64)>,
    /// When the browser raised the priority of a request, by its number of DevTools.
    boosts: HashMap<String, Time>,
    is_cut: bool,
}

#[derive(Debug)]
struct RawTask {
    thread: (i64, i64),
    kind: TaskKind,
    start: Time,
    end: Time,
    url: Option<String>,
    lines: Option<(u32, u32)>,
}

#[derive(Debug)]
struct RawMark {
    process: i64,
    name: Mark,
    time: Time,
    frame: String,
    /// Of [`Mark::Navigation`]: whether it leads to a document.
    has_document: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mark {
    Navigation,
    Interactive,
    ContentLoadedStart,
    ContentLoadedEnd,
    Complete,
    LoadStart,
    LoadEnd,
    FirstPaint,
    FirstContentfulPaint,
}

impl Mark {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "navigationStart" => Self::Navigation,
            "domInteractive" => Self::Interactive,
            "domContentLoadedEventStart" => Self::ContentLoadedStart,
            "domContentLoadedEventEnd" => Self::ContentLoadedEnd,
            "domComplete" => Self::Complete,
            "loadEventStart" => Self::LoadStart,
            "loadEventEnd" => Self::LoadEnd,
            "firstPaint" => Self::FirstPaint,
            "firstContentfulPaint" => Self::FirstContentfulPaint,
            _ => return None,
        })
    }
}

fn task_kind(name: &str, args: &Value) -> Option<TaskKind> {
    Some(match name {
        "ParseHTML" => TaskKind::ParseHtml,
        "EvaluateScript" | "v8.evaluateModule" => TaskKind::EvaluateScript,
        "v8.compile" | "v8.compileModule" => TaskKind::Compile,
        "ParseAuthorStyleSheet" => TaskKind::ParseStyle,
        "UpdateLayoutTree" => TaskKind::Style,
        "Layout" => TaskKind::Layout,
        "PrePaint" | "Paint" | "Layerize" | "Commit" => TaskKind::Paint,
        "TimerFire" => TaskKind::Timer,
        "EventDispatch" => TaskKind::Event(match args["data"]["type"].as_str() {
            Some("DOMContentLoaded") => EventKind::DomContentLoaded,
            Some("load") => EventKind::Load,
            _ => EventKind::Other,
        }),
        "FunctionCall" | "RunMicrotasks" | "XHRReadyStateChange" | "XHRLoad" => TaskKind::Function,
        "RunTask" | "MinorGC" | "MajorGC" => TaskKind::Other,
        _ => return None,
    })
}

/// The URL of the object that a task works on, and lines of it.
fn work(kind: TaskKind, args: &Value) -> (Option<String>, Option<(u32, u32)>) {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let line = |value: &Value| value.as_i64().map(|line| u32::try_from(line).unwrap_or(u32::MAX));
    match kind {
        TaskKind::ParseHtml => {
            let (begin, end) = (&args["beginData"], &args["endData"]);
            let lines = line(&begin["startLine"]).zip(line(&end["endLine"]));
            (text(&begin["url"]), lines)
        }
        TaskKind::EvaluateScript | TaskKind::Compile | TaskKind::Function => {
            let data = &args["data"];
            let lines = line(&data["lineNumber"]).map(|line| line.saturating_sub(1));
            let url = text(&data["url"]).or_else(|| text(&args["fileName"]));
            (url, lines.map(|line| (line, line)))
        }
        TaskKind::ParseStyle => (text(&args["data"]["styleSheetUrl"]), None),
        _ => (None, None),
    }
}

fn micros(value: f64) -> Time {
    Time::from_nanos((value * 1e3).round() as u64)
}

impl Trace {
    pub fn add(&mut self, event: TraceEvent) {
        let thread = (event.pid, event.tid);
        if event.name == "thread_name" && event.args["name"] == "CrRendererMain" {
            self.main_threads.insert(thread);
            return;
        }
        if self.tasks.len() + self.marks.len() + self.boosts.len() >= MAX_EVENTS {
            self.is_cut = true;
            return;
        }
        if event.name == "ResourceChangePriority" {
            let data = &event.args["data"];
            if let (Some(id), Some("Medium" | "High" | "VeryHigh")) =
                (data["requestId"].as_str(), data["priority"].as_str())
            {
                self.boosts.entry(id.to_owned()).or_insert(micros(event.ts));
            }
        } else if event.ph == "X" {
            let Some(kind) = task_kind(&event.name, &event.args) else { return };
            let (url, lines) = work(kind, &event.args);
            self.tasks.push(RawTask {
                thread,
                kind,
                start: micros(event.ts),
                end: micros(event.ts + event.dur.max(0.0)),
                url,
                lines,
            });
        } else if let Some(name) = Mark::of(&event.name) {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let args = &event.args;
            self.marks.push(RawMark {
                process: event.pid,
                name,
                time: micros(event.ts),
                frame: args["frame"]
                    .as_str()
                    .map_or_else(|| text(&args["data"]["frame"]), str::to_owned),
                has_document: !text(&args["data"]["documentLoaderURL"]).is_empty(),
            });
        }
    }

    /// When the browser raised the priority of a request first, on the monotonic clock.
    pub fn boost(&self, request: &str) -> Option<Time> {
        self.boosts.get(request).copied()
    }

    /// Whether events are missing, because there were too many.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// The load of the document that was requested at `requested`. `None` if the trace lacks it.
    pub fn timeline(&self, requested: Time) -> Option<Timeline<'_>> {
        let starts = self.marks.iter().filter(|mark| mark.name == Mark::Navigation);
        // A frame has an empty document before, whose start may be later.
        let navigation = starts
            .filter(|mark| mark.time <= requested)
            .max_by_key(|mark| (mark.has_document, mark.time))?;
        Some(Timeline { trace: self, navigation })
    }
}

/// The part of a trace that is of one load.
pub struct Timeline<'a> {
    trace: &'a Trace,
    navigation: &'a RawMark,
}

impl Timeline<'_> {
    /// The start of the navigation, on the monotonic clock.
    pub fn start(&self) -> Time {
        self.navigation.time
    }

    /// The marks of the load.
    pub fn marks(&self) -> Marks {
        let navigation = self.navigation;
        // The last ones: those of the empty document come before.
        let time = |name: Mark| {
            let found = self.trace.marks.iter().filter(|mark| {
                mark.name == name
                    && mark.process == navigation.process
                    && mark.frame == navigation.frame
                    && mark.time >= navigation.time
            });
            found.map(|mark| since(navigation.time, mark.time)).max()
        };
        Marks {
            dom_interactive: time(Mark::Interactive),
            dom_content_loaded_start: time(Mark::ContentLoadedStart),
            dom_content_loaded_end: time(Mark::ContentLoadedEnd),
            dom_complete: time(Mark::Complete),
            load_event_start: time(Mark::LoadStart),
            load_event_end: time(Mark::LoadEnd),
            first_paint: time(Mark::FirstPaint),
            first_contentful_paint: time(Mark::FirstContentfulPaint),
            ..Marks::default()
        }
    }

    /// The tasks of the main thread. `find` returns the index of the request of a URL at a time.
    pub fn tasks(&self, find: impl Fn(&str, Time) -> Option<usize>) -> Vec<Task> {
        const SHORTEST_REST: Span = Span::from_millis(1);
        let start = self.navigation.time;
        let threads = &self.trace.main_threads;
        let is_main = |task: &&RawTask| {
            task.thread.0 == self.navigation.process
                && (threads.contains(&task.thread) || threads.is_empty())
                && task.end > start
        };
        let tasks = self.trace.tasks.iter().filter(is_main).map(|raw| {
            let request = raw.url.as_deref().and_then(|url| find(url, raw.start));
            Task {
                kind: raw.kind,
                start: since(start, raw.start),
                end: since(start, raw.end),
                request,
                lines: raw.lines.filter(|_| request.is_some()),
            }
        });
        let mut flat = flatten(tasks.collect());
        flat.retain(|task| {
            task.kind != TaskKind::Other || task.end.since(task.start) > SHORTEST_REST
        });
        let marks = self.marks();
        let window = marks.load_event_start.zip(marks.load_event_end);
        for task in &mut flat {
            let is_in = |(from, to)| task.start <= to && task.end >= from;
            if task.kind == TaskKind::Event(EventKind::Load) && !window.is_some_and(is_in) {
                task.kind = TaskKind::Event(EventKind::Other);
            }
        }
        flat
    }
}

/// A time since the start of the load; zero before it.
pub fn since(start: Time, time: Time) -> Time {
    Time::ZERO + time.since(start)
}
