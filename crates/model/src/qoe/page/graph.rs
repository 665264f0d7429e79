//! The graph of a page load.

use manyways_unit::{Rate, Span, Time};

use super::cause::{Edge, edges, finders};
use super::load::{Kind, Load, Priority, Request, TaskKind};
use super::network::Network;
use super::steps::{Steps, Work, steps, work};
use super::wait::{Point, Waits, waits};

/// Requests that started this much later than usual were delayed by the browser.
const DELAYED: f64 = 0.005;
/// Longest time that the browser needs itself to send on a connection.
const MAX_SEND_LAG: f64 = 0.01;

/// The activities of a page load and what each waits for.
///
/// Activities are tasks of the main thread, and requests with their phases. Flow dependencies: the
/// parser, its preload scanner, a script or a style sheet finds an object; a script or sheet is worked
/// on after it has arrived; the parser needs the bytes that it parses. Blocking dependencies: the
/// parser waits for a script, the script for the sheets before it; deferred scripts follow the parser,
/// in their order; the load event follows everything but `fetch()`. Resources: one main thread,
/// connections to each origin, requests that the browser delays, and one bottleneck.
///
/// Source: Wang et al., "Demystifying Page Load Performance with WProf" (NSDI 2013), which
/// instrumented a browser. Here the causes of a task are inferred from its kind, its object and its
/// time, and the time between the last cause and the task is kept as its *lag*.
pub struct Graph {
    pub(super) requests: Vec<Request>,
    pub(super) steps: Vec<Steps>,
    pub(super) work: Vec<Work>,
    pub(super) waits: Waits,
    pub(super) network: Network,
    pub(super) dependents: Dependents,
    /// Requests that the browser delayed.
    pub(super) delayable: Vec<bool>,
    /// Time in which the browser hands each request on.
    pub(super) dispatch_lag: Vec<f64>,
    pub(super) dom_interactive: Mark,
    pub(super) loaded: Mark,
    pub(super) first_paint: Option<Mark>,
    pub(super) largest_paint: Option<Mark>,
    edges: Vec<Edge>,
}

/// An activity, by its index.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Node {
    Task(usize),
    Request(usize),
}

/// Activities that wait for each point.
#[derive(Default)]
pub(super) struct Dependents {
    pub start: Vec<Node>,
    /// For each task.
    pub done: Vec<Vec<Node>>,
    /// For each task, requests and the time of the task before them.
    pub within: Vec<Vec<(usize, f64)>>,
    /// For each task, requests whose priority it raises, and the time of the task before that.
    pub boosts: Vec<Vec<(usize, f64)>>,
    /// For each request and each number of parts, from 0.
    pub arrived: Vec<Vec<Vec<Node>>>,
    /// For each request.
    pub ended: Vec<Vec<Node>>,
}

/// A milestone: a time after the end of a task, or after the start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    pub task: Option<usize>,
    pub lag: f64,
}

/// Work of the main thread, of the graph's own list: without overlaps, ordered by start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GraphTask {
    pub kind: TaskKind,
    pub start: Time,
    pub end: Time,
    /// The request that the task works on.
    pub request: Option<usize>,
}

impl Graph {
    /// Infers the graph. Never fails: references and times that cannot be are ignored.
    pub fn of(load: &Load) -> Self {
        let steps: Vec<Steps> = load.requests.iter().map(steps).collect();
        let (work, load_event) = work(load, &steps);
        let finders = finders(load, &steps, &work);
        let edges = edges(load, &steps, &finders);
        let waits = waits(load, &steps, &work, &finders, load_event);
        let network = Network::of(load, &steps, &waits.arrivals);
        let (dispatch_lag, delayable) = delays(load, &steps);
        let seconds = |time: Option<Time>| time.map(Time::as_secs_f64);
        let mark = |time: f64, kinds: &[TaskKind]| {
            let before = work.partition_point(|task| task.start < time);
            let of_kind = |task: &usize| {
                work[*task].end <= time + 0.0005
                    && (kinds.is_empty() || kinds.contains(&work[*task].kind))
            };
            let task = (0..before).rev().find(of_kind);
            Mark { task, lag: time - task.map_or(0.0, |task| work[task].end) }
        };
        let paint = |time: f64| mark(time, &[TaskKind::Paint]);
        let parser = waits.parsers.first().map(|(_, tasks)| tasks.as_slice()).unwrap_or_default();
        let parsed = parser.iter().rev().find(|task| work[**task].kind == TaskKind::ParseHtml);
        let interactive = seconds(load.marks.dom_interactive);
        let by_mark = interactive.and_then(|time| {
            let task =
                parser.iter().copied().rev().find(|task| work[*task].end <= time + 0.0005)?;
            Some(Mark { task: Some(task), lag: time - work[task].end })
        });
        let dom_interactive = by_mark.unwrap_or(match parsed {
            Some(task) => Mark { task: Some(*task), lag: 0.0 },
            None => Mark { task: None, lag: interactive.unwrap_or_default() },
        });
        // The last task of the load event.
        let of_load = &work[load_event];
        let end = seconds(load.marks.load_event_end).unwrap_or(of_load.end).max(of_load.end);
        let last = work.partition_point(|task| task.start <= end);
        let last = (load_event..last)
            .rev()
            .find(|task| work[*task].end <= end + 0.0005)
            .unwrap_or(load_event);
        let loaded = Mark { task: Some(last), lag: end - work[last].end };
        Self {
            requests: load.requests.clone(),
            delayable,
            dispatch_lag,
            dom_interactive,
            loaded,
            first_paint: seconds(load.marks.first_contentful_paint).map(paint),
            largest_paint: seconds(load.marks.largest_contentful_paint).map(paint),
            dependents: dependents(load, &work, &waits),
            steps,
            work,
            waits,
            network,
            edges,
        }
    }

    /// Edges between objects, ordered by kind, from and to.
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// Tasks of the main thread, to which [`Replay::tasks`](super::Replay::tasks) refers.
    pub fn tasks(&self) -> impl ExactSizeIterator<Item = GraphTask> {
        let time = |seconds: f64| Time::ZERO + Span::from_secs_f64(seconds);
        self.work.iter().map(move |work| GraphTask {
            kind: work.kind,
            start: time(work.start),
            end: time(work.end),
            request: work.request,
        })
    }

    /// The estimated capacity of the bottleneck: the greatest rate of all responses together. Less than
    /// the true one if the load never filled it.
    pub fn capacity(&self) -> Rate {
        Rate::from_bps((self.network.capacity * 8.0) as u64)
    }

    /// The estimated round trip to the origin of a request.
    pub fn round_trip(&self, request: usize) -> Option<Span> {
        let carriage = self.network.carriages.get(request)?;
        Some(Span::from_secs_f64(self.network.origins[carriage.origin].round_trip))
    }

    /// Time to open a connection for a request.
    pub(super) fn handshake(&self, request: usize) -> f64 {
        let steps = &self.steps[request];
        if steps.handshake > 0.0 && !self.requests[request].reused {
            return steps.handshake;
        }
        self.network.origins[self.network.carriages[request].origin].handshake
    }

    /// Time between having a connection and sending.
    pub(super) fn send_lag(&self, request: usize) -> f64 {
        let steps = &self.steps[request];
        let had = steps.started + steps.dns + steps.handshake;
        let lag = steps.sent - had;
        if lag < MAX_SEND_LAG { lag.max(0.0) } else { 0.0 }
    }
}

impl Mark {
    pub fn at(&self, end: impl Fn(usize) -> f64) -> f64 {
        self.task.map_or(0.0, end) + self.lag
    }
}

/// The time in which the browser handed each request on, and which requests it delayed. Requests of high
/// priority are not delayed: the one that was issued next to another has the usual time.
fn delays(load: &Load, steps: &[Steps]) -> (Vec<f64>, Vec<bool>) {
    let delay = |index: usize| steps[index].started - steps[index].issued;
    let timed = (0..steps.len()).filter(|index| steps[*index].timed);
    let prompt = timed.filter(|index| load.requests[*index].priority > Priority::Medium);
    let mut usual: Vec<(f64, f64)> =
        prompt.map(|index| (steps[index].issued, delay(index))).collect();
    usual.sort_by(|a, b| a.0.total_cmp(&b.0));
    let nearest = |time: f64| {
        let after = usual.partition_point(|(issued, _)| *issued < time);
        let around = after.saturating_sub(1)..(after + 1).min(usual.len());
        let distance = |index: &usize| (usual[*index].0 - time).abs();
        around
            .min_by(|a, b| distance(a).total_cmp(&distance(b)))
            .map_or(0.0, |index| usual[index].1)
    };
    let of = |index: usize| {
        let request = &load.requests[index];
        let usual = nearest(steps[index].issued);
        let low = request.kind != Kind::Document && request.priority <= Priority::Medium;
        let delayed = steps[index].timed && low && delay(index) > usual + DELAYED;
        (if delayed { usual } else { delay(index) }, delayed)
    };
    (0..steps.len()).map(of).unzip()
}

fn dependents(load: &Load, work: &[Work], waits: &Waits) -> Dependents {
    let parts =
        waits.arrivals.iter().map(|arrivals| vec![Vec::new(); arrivals.len() + 1]).collect();
    let mut dependents = Dependents {
        start: Vec::new(),
        done: vec![Vec::new(); waits.tasks.len()],
        within: vec![Vec::new(); waits.tasks.len()],
        boosts: vec![Vec::new(); waits.tasks.len()],
        arrived: parts,
        ended: vec![Vec::new(); waits.requests.len()],
    };
    for (index, request) in load.requests.iter().enumerate() {
        let Some(time) = request.boosted.map(Time::as_secs_f64) else { continue };
        if let Some(task) = work.partition_point(|task| task.start <= time).checked_sub(1) {
            dependents.boosts[task].push((index, time.min(work[task].end) - work[task].start));
        }
    }
    let tasks = waits.tasks.iter().enumerate().map(|(task, wait)| (Node::Task(task), wait));
    let requests =
        waits.requests.iter().enumerate().map(|(index, wait)| (Node::Request(index), wait));
    for (node, wait) in tasks.chain(requests) {
        for point in &wait.points {
            match (*point, node) {
                (Point::Start, _) => dependents.start.push(node),
                (Point::Done(task), _) => dependents.done[task].push(node),
                (Point::Arrived(request, parts), _) => {
                    dependents.arrived[request][parts].push(node)
                }
                (Point::Ended(request), _) => dependents.ended[request].push(node),
                (Point::Within(task, time), Node::Request(request)) => {
                    dependents.within[task].push((request, time));
                }
                (Point::Within(task, _), Node::Task(_)) => dependents.done[task].push(node),
            }
        }
    }
    dependents
}
