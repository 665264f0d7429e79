//! The events of a replay, one after the other.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeSet, BinaryHeap};

use manyways_unit::{Span, Time};

use super::super::graph::{Graph, Mark, Node};
use super::super::load::{Kind, Priority};
use super::super::wait::Point;
use super::link::Link;
use super::pool::{Pool, Step};
use super::{Change, Replay, RequestTimes};

/// While the parser is in the head, a request of low priority starts only if fewer than this number
/// run. Source: Chromium's `ResourceLoadScheduler`, observed with Chromium 156.
const MAX_RUNNING_IN_HEAD: usize = 2;
/// The same for requests of medium priority, of which fewer than two others may run.
const MAX_RUNNING_OF_MEDIUM: usize = 3;
/// Running requests of low priority to origins of HTTP/1.1. Source: Chromium's `ResourceScheduler`.
const MAX_DELAYABLE: usize = 10;

/// Time in which the browser starts a request that it had delayed.
const RELEASE_LAG: f64 = 0.001;

/// What each activity of a replay waited for last.
#[derive(Clone, PartialEq, Debug, Default)]
pub(in super::super) struct Trail {
    pub requests: Vec<RequestTrail>,
    pub tasks: Vec<TaskTrail>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(in super::super) struct RequestTrail {
    pub issued: f64,
    pub started: f64,
    pub sent: f64,
    pub first_byte: f64,
    pub ended: f64,
    /// When the connection began to be opened, if the request waited for that.
    pub connecting: Option<f64>,
    pub cause: Point,
    /// The request whose end let this one start, or left it its connection.
    pub released_by: Option<usize>,
    pub connection_of: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(in super::super) struct TaskTrail {
    pub start: f64,
    pub end: f64,
    /// The last thing that the task waited for, before it could run.
    pub cause: Point,
    /// Then the main thread was busy until the end of this task.
    pub thread: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Event {
    Ready(Node),
    /// The priority of a request becomes high.
    Boost(usize),
    TaskEnd(usize),
    /// The main thread takes its next task.
    Next,
    /// The request looks for a connection.
    Started(usize),
    /// A connection to the origin is open, which began at that time.
    Opened {
        origin: usize,
        since: f64,
    },
    /// The response comes to the bottleneck.
    AtLink(usize),
    Ended(usize),
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Timed {
    time: f64,
    order: usize,
    event: Event,
}

impl Eq for Timed {}

impl PartialOrd for Timed {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timed {
    fn cmp(&self, other: &Self) -> Ordering {
        self.time.total_cmp(&other.time).then(self.order.cmp(&other.order))
    }
}

/// A node that has not begun: points to come, and the last one that came.
#[derive(Clone, Copy)]
struct Pending {
    points: usize,
    last: f64,
    cause: Point,
    begun: bool,
}

struct Engine<'a> {
    graph: &'a Graph,
    change: &'a Change,
    now: f64,
    events: BinaryHeap<Reverse<Timed>>,
    order: usize,
    link: Link,
    pools: Vec<Pool>,
    pending_requests: Vec<Pending>,
    pending_tasks: Vec<Pending>,
    /// Tasks that could run.
    ready: BTreeSet<usize>,
    running: Option<usize>,
    last_task: Option<usize>,
    /// The part of each response that arrives next; the first is what comes before the first byte.
    parts: Vec<usize>,
    /// Requests that the browser delays.
    delayed: BTreeSet<(Reverse<Priority>, usize)>,
    /// Requests that run, by their priority.
    in_flight: [usize; Priority::VeryHigh as usize + 1],
    running_requests: Vec<bool>,
    priorities: Vec<Priority>,
    in_head: bool,
    added: Vec<f64>,
    trail: Trail,
}

pub(super) fn run(graph: &Graph, change: &Change) -> Replay {
    let sane = |factor: f64, zero: bool| {
        let valid = factor.is_finite() && (factor > 0.0 || zero && factor == 0.0);
        if valid { factor } else { 1.0 }
    };
    let change = Change {
        rtt_factor: sane(change.rtt_factor, true),
        rate_factor: sane(change.rate_factor, false),
        cpu_factor: sane(change.cpu_factor, true),
        ..change.clone()
    };
    let mut engine = Engine::new(graph, &change);
    engine.start();
    engine.drain();
    // What waits for itself, in broken loads, begins when it was recorded to begin.
    while let Some((node, time)) = engine.stuck() {
        engine.now = engine.now.max(time);
        engine.begin(node, engine.now);
        engine.drain();
    }
    engine.finish()
}

impl<'a> Engine<'a> {
    fn new(graph: &'a Graph, change: &'a Change) -> Self {
        let pending = |points: &Vec<Point>| Pending {
            points: points.len(),
            last: 0.0,
            cause: points.first().copied().unwrap_or(Point::Start),
            begun: false,
        };
        let requests = graph.waits.requests.len();
        let mut added = vec![0.0; requests];
        for (request, delay) in &change.added_delays {
            if let Some(added) = added.get_mut(*request) {
                *added += delay.as_secs_f64();
            }
        }
        // The browser opens more than one connection for the page, if it opens one at all.
        let opens = graph.steps.first().is_some_and(|steps| steps.handshake > 0.0);
        let of_page = graph.network.carriages.first().map(|carriage| carriage.origin);
        let origins = graph.network.origins.iter().enumerate();
        let pools = origins.map(|(index, origin)| {
            let at_once = !opens || of_page != Some(index);
            Pool::new(origin.multiplexed, origin.spare, at_once)
        });
        let pools = pools.collect();
        let request = RequestTrail {
            issued: 0.0,
            started: 0.0,
            sent: 0.0,
            first_byte: 0.0,
            ended: 0.0,
            connecting: None,
            cause: Point::Start,
            released_by: None,
            connection_of: None,
        };
        let task = TaskTrail { start: 0.0, end: 0.0, cause: Point::Start, thread: None };
        Self {
            graph,
            change,
            now: 0.0,
            events: BinaryHeap::new(),
            order: 0,
            link: Link::new(change.rate_factor),
            pools,
            pending_requests: graph
                .waits
                .requests
                .iter()
                .map(|wait| pending(&wait.points))
                .collect(),
            pending_tasks: graph.waits.tasks.iter().map(|wait| pending(&wait.points)).collect(),
            ready: BTreeSet::new(),
            running: None,
            last_task: None,
            parts: vec![0; requests],
            delayed: BTreeSet::new(),
            in_flight: [0; Priority::VeryHigh as usize + 1],
            running_requests: vec![false; requests],
            priorities: graph.requests.iter().map(|request| request.priority).collect(),
            in_head: graph.waits.body.is_some(),
            added,
            trail: Trail {
                requests: vec![request; requests],
                tasks: vec![task; graph.waits.tasks.len()],
            },
        }
    }

    fn at(&mut self, time: f64, event: Event) {
        self.order += 1;
        self.events.push(Reverse(Timed { time: time.max(self.now), order: self.order, event }));
    }

    fn start(&mut self) {
        let nodes = self.graph.dependents.start.clone();
        for node in nodes {
            self.came(node, Point::Start);
        }
    }

    fn drain(&mut self) {
        loop {
            let next = self.events.peek().map(|Reverse(timed)| timed.time);
            match (next, self.link.next()) {
                (Some(event), link) if link.is_none_or(|link| event <= link) => {
                    let Some(Reverse(timed)) = self.events.pop() else { return };
                    self.now = self.now.max(timed.time);
                    self.handle(timed.event);
                }
                (_, Some(link)) => {
                    self.now = self.now.max(link);
                    if let Some(request) = self.link.pop() {
                        self.arrived(request);
                    }
                }
                _ => return,
            }
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Ready(Node::Task(task)) => {
                self.ready.insert(task);
                self.at(self.now, Event::Next);
            }
            Event::Next => self.run_next(),
            Event::Ready(Node::Request(request)) => self.issue(request),
            Event::Boost(request) => self.boost(request),
            Event::TaskEnd(task) => {
                self.running = None;
                self.last_task = Some(task);
                let (nodes, point) = (&self.graph.dependents.done[task], Point::Done(task));
                for node in nodes {
                    self.came(*node, point);
                }
                // After everything that became ready with this task.
                self.at(self.now, Event::Next);
            }
            Event::Started(request) => self.connect(request),
            Event::Opened { origin, since } => {
                for request in self.pools[origin].opened() {
                    self.trail.requests[request].connecting = Some(since);
                    self.send(request);
                }
            }
            Event::AtLink(request) => self.next_part(request),
            Event::Ended(request) => self.end(request),
        }
    }

    /// A point that a node waits for has come.
    fn came(&mut self, node: Node, point: Point) {
        let (pending, lag) = match node {
            Node::Task(task) => (&mut self.pending_tasks[task], self.graph.waits.tasks[task].lag),
            Node::Request(request) => {
                (&mut self.pending_requests[request], self.graph.waits.requests[request].lag)
            }
        };
        pending.points = pending.points.saturating_sub(1);
        pending.last = self.now;
        pending.cause = point;
        if pending.points == 0 && !pending.begun {
            pending.begun = true;
            self.at(self.now + lag, Event::Ready(node));
        }
    }

    fn begin(&mut self, node: Node, time: f64) {
        match node {
            Node::Task(task) => self.pending_tasks[task].begun = true,
            Node::Request(request) => self.pending_requests[request].begun = true,
        }
        self.at(time, Event::Ready(node));
    }

    /// The node that was recorded first among those that have not begun.
    fn stuck(&self) -> Option<(Node, f64)> {
        let tasks = self.pending_tasks.iter().enumerate().filter(|(_, pending)| !pending.begun);
        let task = tasks.map(|(task, _)| (Node::Task(task), self.graph.work[task].start)).next();
        let requests =
            self.pending_requests.iter().enumerate().filter(|(_, pending)| !pending.begun);
        let request = requests
            .map(|(request, _)| (Node::Request(request), self.graph.steps[request].issued))
            .min_by(|a, b| a.1.total_cmp(&b.1));
        match (task, request) {
            (Some(task), Some(request)) => Some(if task.1 <= request.1 { task } else { request }),
            (task, request) => task.or(request),
        }
    }

    fn run_next(&mut self) {
        if self.running.is_some() {
            return;
        }
        let Some(task) = self.ready.pop_first() else { return };
        let work = &self.graph.work[task];
        let pending = self.pending_tasks[task];
        let factor = self.change.cpu_factor;
        // The time between tasks that follow each other is the browser's own work.
        let gap = if self.graph.waits.gaps[task] > 0.0 {
            self.graph.waits.gaps[task] * factor
        } else {
            0.0
        };
        let follows = self.last_task.map(|last| (last, self.trail.tasks[last].end));
        let could = pending.last + self.graph.waits.tasks[task].lag;
        let thread = follows.filter(|(_, end)| *end > could).map(|(last, _)| last);
        let start = self.now + gap;
        let end = start + (work.end - work.start) * factor;
        self.trail.tasks[task] = TaskTrail { start, end, cause: pending.cause, thread };
        self.running = Some(task);
        for (request, within) in &self.graph.dependents.within[task] {
            let pending = &mut self.pending_requests[*request];
            pending.cause = Point::Within(task, *within);
            pending.begun = true;
            self.order += 1;
            let event = Event::Ready(Node::Request(*request));
            let time = start + within * factor;
            self.events.push(Reverse(Timed { time, order: self.order, event }));
        }
        for (request, within) in &self.graph.dependents.boosts[task] {
            self.at(start + within * factor, Event::Boost(*request));
        }
        self.at(end, Event::TaskEnd(task));
        if self.graph.waits.body == Some(task) {
            self.in_head = false;
            self.release(None);
        }
    }

    fn issue(&mut self, request: usize) {
        let trail = &mut self.trail.requests[request];
        trail.issued = self.now;
        trail.cause = self.pending_requests[request].cause;
        let priority = self.priorities[request];
        if self.graph.delayable[request] && !self.may_start(priority) {
            self.delayed.insert((Reverse(priority), request));
        } else {
            self.dispatch(request, self.graph.dispatch_lag[request]);
        }
    }

    /// Whether the browser starts a request of low priority.
    fn may_start(&self, priority: Priority) -> bool {
        let running = |low: Priority| self.in_flight[..=low as usize].iter().sum::<usize>();
        let of_medium = self.in_flight[Priority::Medium as usize];
        let fits = match priority {
            _ if !self.in_head => true,
            Priority::Medium => {
                of_medium < MAX_RUNNING_IN_HEAD && running(Priority::Medium) < MAX_RUNNING_OF_MEDIUM
            }
            _ => running(Priority::VeryHigh) < MAX_RUNNING_IN_HEAD,
        };
        fits && (priority > Priority::Low || running(Priority::Low) < MAX_DELAYABLE)
    }

    fn boost(&mut self, request: usize) {
        let before = std::mem::replace(&mut self.priorities[request], Priority::High);
        if self.delayed.remove(&(Reverse(before), request)) {
            self.dispatch(request, RELEASE_LAG);
        } else if self.running_requests[request] {
            self.in_flight[before as usize] -= self.counts(request);
            self.in_flight[Priority::High as usize] += self.counts(request);
            self.release(None);
        }
    }

    /// Starts requests that were delayed, now that `ended` has, in the order of their priority.
    fn release(&mut self, ended: Option<usize>) {
        for priority in [Priority::Medium, Priority::Low, Priority::VeryLow] {
            while self.may_start(priority) {
                let of_priority = (Reverse(priority), 0)..=(Reverse(priority), usize::MAX);
                let Some(next) = self.delayed.range(of_priority).next().copied() else { break };
                self.delayed.remove(&next);
                self.trail.requests[next.1].released_by = ended;
                self.dispatch(next.1, RELEASE_LAG);
            }
        }
    }

    /// Whether a request, other than a document, counts among those that run.
    fn counts(&self, request: usize) -> usize {
        usize::from(self.graph.requests[request].kind != Kind::Document)
    }

    fn dispatch(&mut self, request: usize, lag: f64) {
        let steps = &self.graph.steps[request];
        self.running_requests[request] = true;
        self.in_flight[self.priorities[request] as usize] += self.counts(request);
        if self.change.cached || !steps.timed {
            let fixed = if self.change.cached {
                0.0
            } else {
                steps.ended - steps.issued + self.added[request]
            };
            let trail = &mut self.trail.requests[request];
            (trail.started, trail.sent, trail.first_byte) = (self.now, self.now, self.now);
            self.at(self.now + fixed, Event::Ended(request));
        } else {
            self.at(self.now + lag, Event::Started(request));
        }
    }

    fn connect(&mut self, request: usize) {
        self.trail.requests[request].started = self.now;
        let origin = self.graph.network.carriages[request].origin;
        match self.pools[origin].request(request, self.priorities[request]) {
            Step::Send(left) => {
                self.trail.requests[request].connection_of = left;
                self.send(request);
            }
            Step::Open => {
                let steps = &self.graph.steps[request];
                let handshake = self.graph.handshake(request) * self.change.rtt_factor;
                let dns = steps.dns * self.change.rtt_factor;
                let event = Event::Opened { origin, since: self.now };
                self.at(self.now + dns + handshake, event);
            }
            Step::Wait => (),
        }
    }

    fn send(&mut self, request: usize) {
        let carriage = &self.graph.network.carriages[request];
        let sent = self.now + self.graph.send_lag(request);
        self.trail.requests[request].sent = sent;
        let wait =
            carriage.round_trip * self.change.rtt_factor + carriage.server + self.added[request];
        self.at(sent + wait, Event::AtLink(request));
    }

    /// The next part of a response comes to the bottleneck.
    fn next_part(&mut self, request: usize) {
        let carriage = &self.graph.network.carriages[request];
        let part = self.parts[request];
        let work = match part.checked_sub(1) {
            None => carriage.queued,
            Some(part) => carriage.parts[part].link,
        };
        if work > 0.0 {
            self.link.enter(self.now, request, work);
        } else {
            self.arrived(request);
        }
    }

    /// A part of a response has passed the bottleneck.
    fn arrived(&mut self, request: usize) {
        let graph = self.graph;
        let carriage = &graph.network.carriages[request];
        let part = self.parts[request];
        if part == 0 {
            self.trail.requests[request].first_byte = self.now;
        }
        if part == carriage.parts.len() {
            self.end(request);
            return;
        }
        if let Some(nodes) = graph.dependents.arrived[request].get(part) {
            for node in nodes {
                self.came(*node, Point::Arrived(request, part));
            }
        }
        self.parts[request] += 1;
        let next = carriage.parts[part];
        let slow_start = carriage.slow_start_factor(
            graph.network.capacity,
            self.change.rtt_factor,
            self.change.rate_factor,
        );
        self.at(self.now + next.slow_start * slow_start + next.fixed, Event::AtLink(request));
    }

    fn end(&mut self, request: usize) {
        let graph = self.graph;
        self.trail.requests[request].ended = self.now;
        if graph.steps[request].timed && !self.change.cached {
            let origin = graph.network.carriages[request].origin;
            if let Some(next) = self.pools[origin].free(Some(request)) {
                self.trail.requests[next].connection_of = Some(request);
                self.send(next);
            }
        }
        self.running_requests[request] = false;
        self.in_flight[self.priorities[request] as usize] -= self.counts(request);
        // All parts, of a response that did not come over the network.
        for node in graph.dependents.arrived[request].iter().skip(self.parts[request]).flatten() {
            self.came(*node, Point::Ended(request));
        }
        for node in &graph.dependents.ended[request] {
            self.came(*node, Point::Ended(request));
        }
        self.release(Some(request));
    }

    fn finish(self) -> Replay {
        let time = |seconds: f64| Time::ZERO + Span::from_secs_f64(seconds);
        let requests = self.trail.requests.iter().map(|trail| RequestTimes {
            issued: time(trail.issued),
            started: time(trail.started),
            sent: time(trail.sent),
            first_byte: time(trail.first_byte),
            ended: time(trail.ended),
        });
        let mark = |mark: &Mark| time(mark.at(|task| self.trail.tasks[task].end));
        let painted = self.graph.first_paint.as_ref().map(mark);
        Replay {
            page_interactive: mark(&self.graph.dom_interactive).max(painted.unwrap_or_default()),
            page_load: mark(&self.graph.loaded),
            first_contentful_paint: painted,
            largest_contentful_paint: self.graph.largest_paint.as_ref().map(mark),
            requests: requests.collect(),
            tasks: self.trail.tasks.iter().map(|task| (time(task.start), time(task.end))).collect(),
            trail: self.trail,
        }
    }
}
