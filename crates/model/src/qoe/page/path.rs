//! The critical path of a replay, and the slack of objects.

use manyways_unit::{Span, Time};

use super::graph::{Graph, Mark};
use super::load::TaskKind;
use super::replay::{Change, Replay};
use super::wait::Point;

/// Slack is determined to this precision.
const SLACK_PRECISION: Span = Span::from_millis(1);

/// The end of a critical path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Goal {
    PageInteractive,
    PageLoad,
}

/// Chain of activities, each of which waited for the one before it, from the start of the navigation to
/// a goal. They follow each other without gaps.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct CriticalPath {
    pub steps: Vec<PathStep>,
}

/// One activity of a critical path, and its time on the path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathStep {
    pub activity: Activity,
    pub start: Time,
    pub end: Time,
}

/// Kind of a step of a path. Numbers are indices of requests and of [`Graph::tasks`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Activity {
    Task(usize),
    /// Between a cause and its effect: a timer, or the browser itself.
    Lag,
    /// A request waits for the browser or for a connection.
    Waiting(usize),
    /// A connection is opened: DNS, TCP, TLS.
    Connecting(usize),
    /// From the request to the first byte.
    Requesting(usize),
    Receiving(usize),
}

/// Times of a critical path by their cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shares {
    pub network: Span,
    pub computation: Span,
    /// The rest: see [`Activity::Lag`].
    pub lag: Span,
}

impl CriticalPath {
    pub fn shares(&self) -> Shares {
        let mut shares = Shares::default();
        for step in &self.steps {
            let span = step.end.since(step.start);
            let share = match step.activity {
                Activity::Task(_) => &mut shares.computation,
                Activity::Lag => &mut shares.lag,
                _ => &mut shares.network,
            };
            *share += span;
        }
        shares
    }

    /// Whether the path contains a step of a request.
    pub fn has_request(&self, request: usize) -> bool {
        self.steps.iter().any(|step| match step.activity {
            Activity::Waiting(index) | Activity::Connecting(index) => index == request,
            Activity::Requesting(index) | Activity::Receiving(index) => index == request,
            Activity::Task(_) | Activity::Lag => false,
        })
    }
}

/// The steps of a path, from its end to its start.
struct Walk {
    steps: Vec<PathStep>,
    /// Where the path has come to.
    time: f64,
}

impl Walk {
    /// The path was at an activity from `start` until now.
    fn back(&mut self, start: f64, activity: Activity) {
        let at = |seconds: f64| Time::ZERO + Span::from_secs_f64(seconds);
        let start = start.clamp(0.0, self.time);
        let (start, end) = (at(start), at(self.time));
        if start < end {
            self.steps.push(PathStep { activity, start, end });
        }
        self.time = self.time.min(start.as_secs_f64());
    }
}

impl Graph {
    /// The critical path of a replay of this graph.
    pub fn critical_path(&self, replay: &Replay, goal: Goal) -> CriticalPath {
        let end = |mark: &Mark| mark.at(|task| replay.trail.tasks[task].end);
        let (mark, time) = match (goal, &self.first_paint) {
            (Goal::PageLoad, _) => (self.loaded, replay.page_load),
            (Goal::PageInteractive, Some(paint)) if end(paint) > end(&self.dom_interactive) => {
                (*paint, replay.page_interactive)
            }
            (Goal::PageInteractive, _) => (self.dom_interactive, replay.page_interactive),
        };
        let mut walk = Walk { steps: Vec::new(), time: time.as_secs_f64() };
        let mut next = mark.task.map(Point::Done);
        // Every step goes back to something that happened before; broken loads may have steps without a
        // duration in a circle.
        let mut left = 4 * (self.work.len() + self.requests.len()) + 4;
        while let Some(point) = next {
            if walk.time <= 0.0 || left == 0 {
                break;
            }
            left -= 1;
            next = self.back(replay, point, &mut walk);
        }
        walk.back(0.0, Activity::Lag);
        walk.steps.reverse();
        CriticalPath { steps: walk.steps }
    }

    /// Walks over the activity that a point belongs to, and returns what it waited for.
    fn back(&self, replay: &Replay, point: Point, walk: &mut Walk) -> Option<Point> {
        match point {
            Point::Start => None,
            Point::Done(task) | Point::Within(task, _) => {
                let trail = &replay.trail.tasks[task];
                if let Point::Done(_) = point {
                    walk.back(trail.end, Activity::Lag);
                }
                walk.back(trail.start, Activity::Task(task));
                match trail.thread {
                    Some(before) => {
                        // The gap between the tasks.
                        walk.back(replay.trail.tasks[before].end, Activity::Task(task));
                        Some(Point::Done(before))
                    }
                    None => Some(trail.cause),
                }
            }
            Point::Arrived(request, _) | Point::Ended(request) => {
                let trail = &replay.trail.requests[request];
                if let Point::Ended(_) = point {
                    walk.back(trail.ended, Activity::Lag);
                }
                walk.back(trail.first_byte, Activity::Receiving(request));
                walk.back(trail.sent, Activity::Requesting(request));
                let left = |before: &usize| replay.trail.requests[*before].ended;
                if let Some(before) =
                    trail.connection_of.filter(|before| left(before) > trail.started)
                {
                    walk.back(left(&before), Activity::Waiting(request));
                    return Some(Point::Ended(before));
                }
                if let Some(since) = trail.connecting {
                    walk.back(since.max(trail.started), Activity::Connecting(request));
                }
                walk.back(trail.started, Activity::Waiting(request));
                if let Some(before) = trail.released_by {
                    walk.back(left(&before), Activity::Waiting(request));
                    return Some(Point::Ended(before));
                }
                walk.back(trail.issued, Activity::Waiting(request));
                Some(trail.cause)
            }
        }
    }

    /// Time in a replay in which the parser of the page could not go on because it waited for the
    /// network: for the document, a script, or a sheet before a script. Time in which the main thread
    /// had other work does not count.
    pub fn parser_blocked(&self, replay: &Replay) -> Span {
        let Some((_, tasks)) = self.waits.parsers.first() else { return Span::ZERO };
        let trails = &replay.trail.tasks;
        let mut blocked = 0.0;
        for pair in tasks.windows(2) {
            let (before, task) = (pair[0], pair[1]);
            let on_network = match trails[task].cause {
                Point::Arrived(..) | Point::Ended(_) => true,
                Point::Done(cause) => self.work[cause].kind == TaskKind::ParseStyle,
                _ => false,
            };
            let gap = trails[task].start - trails[before].end - self.waits.tasks[task].lag;
            if on_network && gap > 0.0 {
                let between = before + 1..task.max(before + 1);
                let busy = |task: usize| {
                    let start = trails[task].start.max(trails[before].end);
                    (trails[task].end - start).max(0.0)
                };
                blocked += (gap - between.map(busy).sum::<f64>()).max(0.0);
            }
        }
        Span::from_secs_f64(blocked)
    }

    /// How much later the answer of a request may come without a later page load, to a millisecond, at
    /// most `limit`. Needs about a dozen replays. Zero for unknown requests.
    pub fn slack(&self, request: usize, limit: Span) -> Span {
        if request >= self.requests.len() {
            return Span::ZERO;
        }
        let loaded = |delay: Span| {
            let change = Change { added_delays: vec![(request, delay)], ..Change::default() };
            self.replay(&change).page_load
        };
        let allowed = self.replay(&Change::default()).page_load + SLACK_PRECISION;
        if loaded(limit) <= allowed {
            return limit;
        }
        let (mut fits, mut exceeds) = (Span::ZERO, limit);
        while exceeds.saturating_sub(fits) > SLACK_PRECISION {
            let middle = Span::from_nanos(fits.as_nanos().midpoint(exceeds.as_nanos()));
            if loaded(middle) <= allowed {
                fits = middle;
            } else {
                exceeds = middle;
            }
        }
        fits
    }
}
