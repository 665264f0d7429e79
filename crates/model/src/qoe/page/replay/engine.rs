//! The events of a replay, one after the other.

use std::collections::BTreeSet;

use manyways_unit::{Span, Time};

use super::super::graph::{Graph, Mark, Node};
use super::super::load::{Kind, Priority};
use super::super::wait::Point;
use super::delays::Delays;
use super::events::{Event, Events};
use super::link::Link;
use super::pool::{Pool, Step};
use super::trail::{RequestTrail, TaskTrail, Trail};
use super::{Change, Replay, RequestTimes};

/// Time in which the browser starts a request that it had delayed.
const RELEASE_LAG: f64 = 0.001;
/// Greatest factor of a change, and the inverse of the least one.
const MAX_FACTOR: f64 = 1e6;

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
    events: Events,
    link: Link,
    pools: Vec<Pool>,
    pending_requests: Vec<Pending>,
    pending_tasks: Vec<Pending>,
    /// Tasks that could run, by the time since when; of times from 0, the bits have the same order.
    ready: BTreeSet<(u64, usize)>,
    running: Option<usize>,
    last_task: Option<usize>,
    /// Frames among the tasks that could run.
    ready_frames: BTreeSet<usize>,
    /// The current frame is not drawn.
    skips: bool,
    /// Since when the last task could run.
    last_ready: f64,
    /// The part of each response that arrives next; part 0 ends with the first byte.
    parts: Vec<usize>,
    delays: Delays,
    /// Requests that have started and not ended.
    in_flight: Vec<bool>,
    priorities: Vec<Priority>,
    added: Vec<f64>,
    trail: Trail,
}

pub(super) fn run(graph: &Graph, change: &Change) -> Replay {
    let sane = |factor: f64, least: f64| {
        let valid = factor.is_finite() && factor >= least;
        if valid { factor.min(MAX_FACTOR) } else { 1.0 }
    };
    let change = Change {
        rtt_factor: sane(change.rtt_factor, 0.0),
        rate_factor: sane(change.rate_factor, 1.0 / MAX_FACTOR),
        cpu_factor: sane(change.cpu_factor, 0.0),
        ..change.clone()
    };
    let mut engine = Engine::new(graph, &change);
    engine.start();
    engine.drain();
    // Activities of broken loads that wait for themselves begin when they were recorded.
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
        Self {
            graph,
            change,
            now: 0.0,
            events: Events::default(),
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
            ready_frames: BTreeSet::new(),
            skips: false,
            last_ready: 0.0,
            parts: vec![0; requests],
            delays: Delays::new(graph.waits.body.is_some()),
            in_flight: vec![false; requests],
            priorities: graph.requests.iter().map(|request| request.priority).collect(),
            added,
            trail: Trail {
                requests: vec![RequestTrail::default(); requests],
                tasks: vec![TaskTrail::default(); graph.waits.tasks.len()],
            },
        }
    }

    fn at(&mut self, time: f64, event: Event) {
        self.events.add(time.max(self.now), event);
    }

    fn start(&mut self) {
        let nodes = self.graph.dependents.start.clone();
        for node in nodes {
            self.came(node, Point::Start);
        }
    }

    fn drain(&mut self) {
        loop {
            match (self.events.next(), self.link.next()) {
                (Some(event), link) if link.is_none_or(|link| event <= link) => {
                    let Some((time, event)) = self.events.pop() else { return };
                    self.now = self.now.max(time);
                    self.handle(event);
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
                // Tasks that belong to the last one follow it.
                let joined = self.graph.waits.joined[task] && self.last_task == task.checked_sub(1);
                let since = if joined { self.last_ready } else { self.now };
                self.ready.insert((since.to_bits(), task));
                if self.graph.waits.frames[task] {
                    self.ready_frames.insert(task);
                }
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
        let Some((since, task)) = self.ready.pop_first() else { return };
        self.last_ready = f64::from_bits(since);
        let work = &self.graph.work[task];
        let pending = self.pending_tasks[task];
        if !self.graph.waits.joined[task] {
            // A frame shows everything until then: of frames that could be drawn now, only the last
            // one is, and the ones that make the browser fetch something.
            self.ready_frames.remove(&task);
            let later = self.ready_frames.range(task..).next().is_some();
            let is_frame = self.graph.waits.frames[task];
            self.skips = is_frame && later && self.graph.dependents.within[task].is_empty();
        }
        let factor = if self.skips { 0.0 } else { self.change.cpu_factor };
        // The time between tasks that follow each other is the browser's own work.
        let gap = self.graph.waits.gaps[task] * factor;
        let follows = self.last_task.map(|last| (last, self.trail.tasks[last].end));
        let could = pending.last + self.graph.waits.tasks[task].lag;
        let thread = follows.filter(|(_, end)| *end > could).map(|(last, _)| last);
        let start = self.now + gap;
        let end = start + (work.end - work.start) * factor;
        self.trail.tasks[task] = TaskTrail { start, end, cause: pending.cause, thread };
        self.running = Some(task);
        for (request, within) in &self.graph.dependents.within[task] {
            let pending = &mut self.pending_requests[*request];
            if !pending.begun {
                pending.cause = Point::Within(task, *within);
                pending.begun = true;
                self.at(start + within * factor, Event::Ready(Node::Request(*request)));
            }
        }
        for (request, within) in &self.graph.dependents.boosts[task] {
            self.at(start + within * factor, Event::Boost(*request));
        }
        self.at(end, Event::TaskEnd(task));
        if self.graph.waits.body == Some(task) {
            self.delays.leave_head();
            self.release(None);
        }
    }

    fn issue(&mut self, request: usize) {
        let trail = &mut self.trail.requests[request];
        trail.issued = self.now;
        trail.cause = self.pending_requests[request].cause;
        let priority = self.priorities[request];
        if self.graph.delayable[request] && !self.delays.may_start(priority) {
            self.delays.delay(priority, request);
        } else {
            self.dispatch(request, self.graph.dispatch_lag[request]);
        }
    }

    fn boost(&mut self, request: usize) {
        let before = std::mem::replace(&mut self.priorities[request], Priority::High);
        if self.delays.remove(before, request) {
            self.dispatch(request, RELEASE_LAG);
        } else if self.in_flight[request] {
            self.delays.end(before);
            self.delays.start(Priority::High);
            self.release(None);
        }
    }

    /// Starts requests that were delayed, now that a request has ended.
    fn release(&mut self, ended: Option<usize>) {
        while let Some(next) = self.delays.next() {
            self.trail.requests[next].released_by = ended;
            self.dispatch(next, RELEASE_LAG);
        }
    }

    fn dispatch(&mut self, request: usize, lag: f64) {
        let steps = &self.graph.steps[request];
        // Documents do not count among those that run.
        if self.graph.requests[request].kind != Kind::Document {
            self.in_flight[request] = true;
            self.delays.start(self.priorities[request]);
        }
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
        if std::mem::take(&mut self.in_flight[request]) {
            self.delays.end(self.priorities[request]);
        }
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
