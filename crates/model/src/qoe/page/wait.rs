//! Causes of each activity, as far as a load shows them.

use super::cause::{Elements, blocks_scripts, imports};
use super::load::{EventKind, Initiator, Kind, Load, Loading, TaskKind};
use super::steps::{Steps, Work, at};

/// Between tasks that follow each other, the main thread rests for less than this time.
const MAX_GAP: f64 = 0.001;
/// A task that starts this long after the end of a request may be due to it.
const MAX_REACTION: f64 = 0.02;
/// Reported times of causes and effects may be interchanged by this time.
const TOLERANCE: f64 = 0.001;

/// A point in time of an activity. Numbers are indices of requests and tasks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Point {
    /// Of the navigation.
    Start,
    /// So many parts of a response have arrived; the numbers are counted in [`Waits::arrivals`].
    Arrived(usize, usize),
    Ended(usize),
    Done(usize),
    /// A task has run for this time.
    Within(usize, f64),
}

/// The start of an activity: the last of the points, and a time after it.
#[derive(Clone, Debug, Default)]
pub(super) struct Wait {
    pub points: Vec<Point>,
    pub lag: f64,
}

pub(super) struct Waits {
    pub requests: Vec<Wait>,
    pub tasks: Vec<Wait>,
    /// For each task the time between it and the one before it, which follow each other.
    pub gaps: Vec<f64>,
    /// Tasks that nothing can come before once the task before them has run: later pieces of a task, and
    /// layout and painting of a frame.
    pub joined: Vec<bool>,
    /// Tasks that begin a frame.
    pub frames: Vec<bool>,
    /// Times at which parts of each request's body had arrived that something waits for, in order.
    pub arrivals: Vec<Vec<f64>>,
    /// Tasks that the parser of a document consists of, with scripts that it waits for, in order.
    pub parsers: Vec<(usize, Vec<usize>)>,
    /// The task in which the parser leaves the head of the page.
    pub body: Option<usize>,
}

/// The parser of a document.
struct Parser {
    document: usize,
    elements: Elements,
    /// Elements that the parser has passed.
    passed: usize,
    last: Option<usize>,
    tasks: Vec<usize>,
}

struct Builder<'a> {
    load: &'a Load,
    steps: &'a [Steps],
    work: &'a [Work],
    finders: &'a [Option<usize>],
    imports: Vec<Vec<usize>>,
    parsers: Vec<Parser>,
    /// Index into `parsers`, for each request.
    parser_of: Vec<Option<usize>>,
    arrivals: Vec<Vec<f64>>,
    /// The last task that parsed each sheet.
    parsed: Vec<Option<usize>>,
    /// The last task of each script.
    executed: Vec<Option<usize>>,
    /// Requests by their end.
    by_end: Vec<usize>,
}

pub(super) fn waits(
    load: &Load,
    steps: &[Steps],
    work: &[Work],
    finders: &[Option<usize>],
    load_event: usize,
) -> Waits {
    let count = load.requests.len();
    let mut parsers = Vec::new();
    let mut parser_of = vec![None; count];
    for document in (0..count).filter(|index| load.requests[*index].kind == Kind::Document) {
        parser_of[document] = Some(parsers.len());
        let elements = Elements::of(load, finders, document);
        parsers.push(Parser { document, elements, passed: 0, last: None, tasks: Vec::new() });
    }
    let mut by_end: Vec<usize> = (0..count).collect();
    by_end.sort_by(|a, b| steps[*a].ended.total_cmp(&steps[*b].ended));
    let mut builder = Builder {
        load,
        steps,
        work,
        finders,
        imports: imports(load, finders),
        parsers,
        parser_of,
        arrivals: arrivals(load, steps),
        parsed: vec![None; count],
        executed: vec![None; count],
        by_end,
    };
    let (tasks, gaps) = builder.tasks(load_event);
    let joined: Vec<bool> = (0..work.len()).map(|index| joined(work, &gaps, index)).collect();
    let frames =
        (0..work.len()).map(|index| rank(work[index].kind) > 0 && !joined[index]).collect();
    let requests = (0..count).map(|index| builder.request(index)).collect();
    let body = builder.body();
    let parsers =
        builder.parsers.into_iter().map(|parser| (parser.document, parser.tasks)).collect();
    Waits { requests, tasks, gaps, joined, frames, arrivals: builder.arrivals, parsers, body }
}

/// Place of a kind of task in a frame; 0 if it is none of a frame.
fn rank(kind: TaskKind) -> u8 {
    match kind {
        TaskKind::Style => 1,
        TaskKind::Layout => 2,
        TaskKind::Paint => 3,
        _ => 0,
    }
}

fn joined(work: &[Work], gaps: &[f64], index: usize) -> bool {
    let Some(before) = index.checked_sub(1) else { return false };
    let (last, this) = (rank(work[before].kind), rank(work[index].kind));
    let frame = last > 0 && last <= this && gaps[index] > 0.0;
    work[index].continues || frame
}

/// Arrivals of documents, strictly within their reception.
fn arrivals(load: &Load, steps: &[Steps]) -> Vec<Vec<f64>> {
    let of = |(request, steps): (&super::load::Request, &Steps)| {
        let mut times: Vec<f64> = Vec::new();
        if request.kind == Kind::Document && steps.timed {
            times.extend(request.arrivals.iter().map(|arrival| arrival.time.as_secs_f64()));
            times.retain(|time| steps.first_byte < *time && *time < steps.ended);
            times.sort_by(f64::total_cmp);
            times.dedup();
        }
        times
    };
    load.requests.iter().zip(steps).map(of).collect()
}

impl Builder<'_> {
    fn time(&self, point: Point) -> f64 {
        match point {
            Point::Start => 0.0,
            Point::Arrived(request, parts) => parts
                .checked_sub(1)
                .map_or(self.steps[request].first_byte, |part| self.arrivals[request][part]),
            Point::Ended(request) => self.steps[request].ended,
            Point::Done(task) => self.work[task].end,
            Point::Within(task, time) => self.work[task].start + time,
        }
    }

    /// As much of a document as had arrived at `time`.
    fn arrived(&self, document: usize, time: f64) -> Point {
        let steps = &self.steps[document];
        if time >= steps.ended || !steps.timed {
            return Point::Ended(document);
        }
        Point::Arrived(
            document,
            self.arrivals[document].partition_point(|arrival| *arrival <= time),
        )
    }

    fn tasks(&mut self, load_event: usize) -> (Vec<Wait>, Vec<f64>) {
        let mut waits = Vec::with_capacity(self.work.len());
        let mut gaps = Vec::with_capacity(self.work.len());
        // The start of the tasks that follow each other without a rest.
        let (mut busy_since, mut last) = (0.0, f64::NEG_INFINITY);
        for (index, task) in self.work.iter().enumerate() {
            let gap = task.start - last;
            let rested = gap >= MAX_GAP;
            if rested {
                busy_since = task.start;
            }
            let mut points = self.points(index, busy_since);
            if index == load_event {
                points.extend(self.before_load_event(task.start));
            }
            points.retain(|point| self.time(*point) <= task.start + TOLERANCE);
            if points.is_empty() {
                points.push(index.checked_sub(1).map_or(Point::Start, Point::Done));
            }
            let known = points.iter().map(|point| self.time(*point)).fold(0.0, f64::max);
            waits.push(Wait { points, lag: (busy_since - known).max(0.0) });
            gaps.push(if rested { 0.0 } else { gap });
            last = task.end;
        }
        (waits, gaps)
    }

    fn points(&mut self, index: usize, busy_since: f64) -> Vec<Point> {
        let task = self.work[index];
        let kind = task.request.map(|request| self.load.requests[request].kind);
        let mut points = Vec::new();
        if task.continues && index > 0 {
            points.push(Point::Done(index - 1));
        }
        let parser = task.request.and_then(|request| self.parser_of[request]);
        match (task.kind, task.request) {
            (TaskKind::ParseHtml, Some(document)) if parser.is_some() => {
                points.push(self.arrived(document, task.start));
                let is_first = parser.is_some_and(|parser| self.parsers[parser].last.is_none());
                // The browser begins to show a document before it parses that.
                let before = index
                    .checked_sub(1)
                    .filter(|before| is_first && self.work[*before].end >= busy_since);
                points.extend(before.map(Point::Done));
                self.follow(parser, index, &mut points);
            }
            // A later piece of a script.
            (TaskKind::EvaluateScript, Some(request))
                if task.continues && self.executed[request].is_some() =>
            {
                self.executed[request] = Some(index);
                self.stay(index);
            }
            (TaskKind::EvaluateScript, Some(document)) if parser.is_some() => {
                let line = task.lines.map(|lines| lines.0);
                self.sheets_before(
                    parser,
                    |place| line.is_some_and(|line| place <= line),
                    index,
                    &mut points,
                );
                self.follow(parser, index, &mut points);
                self.executed[document] = Some(index);
            }
            (TaskKind::EvaluateScript, Some(script)) => {
                points.push(Point::Ended(script));
                self.script(script, index, &mut points);
                self.executed[script] = Some(index);
            }
            (TaskKind::ParseStyle, Some(sheet)) => {
                points.push(Point::Ended(sheet));
                self.parsed[sheet] = Some(index);
            }
            (TaskKind::Event(EventKind::DomContentLoaded), _) if self.is_of_page(&task) => {
                self.follow(Some(0), index, &mut points)
            }
            (TaskKind::Style | TaskKind::Layout | TaskKind::Paint, _) if !task.continues => {
                self.painted(busy_since, &mut points);
            }
            (TaskKind::Timer, Some(script)) => {
                points.extend(self.executed[script].map(Point::Done))
            }
            _ => (),
        }
        if task.kind == TaskKind::Function && kind == Some(Kind::Script) {
            self.executed[task.request.unwrap_or_default()] = Some(index);
        }
        if points.is_empty() {
            points.push(self.reaction(index, busy_since));
        }
        points
    }

    /// Whether an event `DOMContentLoaded` is that of the page. An image in SVG has one of its own.
    fn is_of_page(&self, task: &Work) -> bool {
        let marks = &self.load.marks;
        let (start, end) = (marks.dom_content_loaded_start, marks.dom_content_loaded_end);
        let Some((start, end)) = start.or(end).zip(end.or(start)) else { return true };
        task.start <= end.as_secs_f64() + TOLERANCE && task.end >= start.as_secs_f64() - TOLERANCE
    }

    /// The first frames wait for the parser and for the sheets; later ones have other causes.
    fn painted(&self, busy_since: f64, points: &mut Vec<Point>) {
        points.extend(self.parsers.first().and_then(|parser| parser.last).map(Point::Done));
        for (request, one) in self.load.requests.iter().enumerate() {
            if one.kind == Kind::Style && blocks_scripts(one.blocking) {
                points.extend(self.parsed[request].map(Point::Done));
            }
        }
        let last = points.iter().map(|point| self.time(*point)).fold(0.0, f64::max);
        if busy_since - last > MAX_REACTION {
            points.clear();
        }
    }

    /// The parser of a document goes on with a task.
    fn follow(&mut self, parser: Option<usize>, index: usize, points: &mut Vec<Point>) {
        let Some(parser) = parser.and_then(|parser| self.parsers.get_mut(parser)) else { return };
        points.extend(parser.last.map(Point::Done));
        parser.last = Some(index);
        parser.tasks.push(index);
    }

    /// A piece continues the task before it: if that was the parser's, this is too.
    fn stay(&mut self, index: usize) {
        for parser in &mut self.parsers {
            let pieces = (0..index).rev().take_while(|before| self.work[before + 1].continues);
            if parser
                .last
                .is_some_and(|last| last + 1 == index || pieces.clone().any(|piece| piece == last))
            {
                parser.last = Some(index);
                parser.tasks.push(index);
            }
        }
    }

    fn script(&mut self, script: usize, index: usize, points: &mut Vec<Point>) {
        let parser = self.finders[script].and_then(|finder| self.parser_of[finder]);
        match self.load.requests[script].loading {
            Some(Loading::Blocking) => {
                let Some(elements) = parser.map(|parser| &self.parsers[parser].elements.blocking)
                else {
                    return;
                };
                let place = elements.iter().position(|(_, element)| *element == script);
                let end = place.map_or((0, 0, 0), |place| elements[place].0);
                self.elements_before(parser, |place| place <= end, points);
                self.follow(parser, index, points);
            }
            Some(Loading::Deferred | Loading::Module) => {
                self.elements_before(parser, |_| true, points);
                self.follow(parser, index, points);
            }
            _ => (),
        }
    }

    fn sheets_before(
        &mut self,
        parser: Option<usize>,
        before: impl Fn(u32) -> bool,
        index: usize,
        points: &mut Vec<Point>,
    ) {
        let start = self.work[index].start;
        // Without its line, an inline script waits for the sheets that had ended before it.
        let ended: Vec<bool> = self.steps.iter().map(|steps| steps.ended <= start).collect();
        let known = self.work[index].lines.is_some();
        self.elements_before(
            parser,
            |place| if known { before(place.0) } else { ended[place.2] },
            points,
        );
    }

    /// Passes the elements of a document that are before a place, and waits for the sheets among them.
    fn elements_before(
        &mut self,
        parser: Option<usize>,
        before: impl Fn((u32, u32, usize)) -> bool,
        points: &mut Vec<Point>,
    ) {
        let Some(parser) = parser else { return };
        while let Some((place, element)) =
            self.parsers[parser].elements.blocking.get(self.parsers[parser].passed).copied()
        {
            if !before(place) {
                break;
            }
            self.parsers[parser].passed += 1;
            let mut sheets = vec![element];
            while let Some(sheet) = sheets.pop() {
                if self.load.requests[sheet].kind == Kind::Style {
                    points.push(self.parsed[sheet].map_or(Point::Ended(sheet), Point::Done));
                    sheets.extend(&self.imports[sheet]);
                }
            }
        }
    }

    /// The cause of a task about which nothing else is known: the last request that ended before it, or
    /// the last part of the page that arrived, if that is near; else the task before it.
    fn reaction(&self, index: usize, busy_since: f64) -> Point {
        let start = self.work[index].start;
        let before = self.by_end.partition_point(|request| self.steps[*request].ended <= start);
        let since = busy_since - MAX_REACTION;
        let ended = self.by_end[..before].iter().rev().copied();
        let near = ended.take_while(|request| self.steps[*request].ended >= since);
        let function = self.work[index].kind == TaskKind::Function;
        let fetched = near.clone().find(|request| self.load.requests[*request].kind == Kind::Fetch);
        if let (true, Some(request)) = (function, fetched) {
            return Point::Ended(request);
        }
        let last_task = index.checked_sub(1).map(|task| (self.work[task].end, Point::Done(task)));
        let arrived = self.parsers.first().map(|parser| self.arrived(parser.document, start));
        let arrived =
            arrived.map(|point| (self.time(point), point)).filter(|(time, _)| *time <= start);
        let ended =
            near.clone().next().map(|request| (self.steps[request].ended, Point::Ended(request)));
        let causes = [last_task, arrived, ended].into_iter().flatten();
        causes.max_by(|a, b| a.0.total_cmp(&b.0)).map_or(Point::Start, |(_, point)| point)
    }

    /// The load event waits for all objects except those of `fetch()`, and for parsing.
    fn before_load_event(&self, start: f64) -> Vec<Point> {
        let mut points = Vec::new();
        for (index, request) in self.load.requests.iter().enumerate() {
            let steps = &self.steps[index];
            if request.kind != Kind::Fetch
                && steps.issued < start
                && steps.ended <= start + TOLERANCE
            {
                points.push(Point::Ended(index));
            }
        }
        points.extend(self.parsers.iter().filter_map(|parser| parser.last).map(Point::Done));
        points.extend(self.executed.iter().flatten().copied().map(Point::Done));
        points
    }

    fn request(&self, index: usize) -> Wait {
        let issued = self.steps[index].issued;
        let finder = self.finders[index];
        let request = &self.load.requests[index];
        let redirected = matches!(request.initiator, Initiator::Redirect { .. });
        let running = at(self.work, issued).filter(|_| !redirected && finder.is_some());
        let point = match (running, finder) {
            (Some(task), _) => Point::Within(task, issued - self.work[task].start),
            (None, None) => Point::Start,
            (None, Some(finder)) if redirected => Point::Ended(finder),
            (None, Some(finder)) if self.load.requests[finder].kind == Kind::Document => {
                match request.initiator {
                    Initiator::InlineScript { .. } => self.last_before(finder, issued),
                    _ => self.arrived(finder, issued),
                }
            }
            (None, Some(finder)) => self.last_before(finder, issued),
        };
        let point = if self.time(point) <= issued + TOLERANCE { point } else { Point::Start };
        let lag = (issued - self.time(point)).max(0.0);
        Wait { points: vec![point], lag }
    }

    /// The last task that worked on an object, or its end.
    fn last_before(&self, request: usize, time: f64) -> Point {
        let end = self.work.partition_point(|task| task.end <= time);
        let last = (0..end).rev().take(64).find(|index| self.work[*index].request == Some(request));
        last.map_or(Point::Ended(request), Point::Done)
    }

    /// The first task of the parser behind everything in the head that blocks it.
    fn body(&self) -> Option<usize> {
        let parser = self.parsers.first()?;
        let in_head = |(place, index): &((u32, u32, usize), usize)| {
            let head = self.load.requests[*index].blocking == super::load::Blocking::Render;
            (head && place.0 != u32::MAX).then_some(place.0)
        };
        let line = parser.elements.blocking.iter().filter_map(in_head).max();
        let behind = |task: &usize| {
            let work = &self.work[*task];
            let reached = match (line, work.lines) {
                (Some(line), Some((_, end))) => end > line,
                _ => true,
            };
            work.kind == TaskKind::ParseHtml && reached
        };
        let first = parser.tasks.iter().copied().find(behind)?;
        // An inline script may interrupt the same run of the parser.
        let same = |task: &usize| self.work[*task].lines == self.work[first].lines;
        parser.tasks.iter().copied().rev().find(|task| behind(task) && same(task))
    }
}
