//! Why a load took as long as it did.

use manyways_model::qoe::page::{
    Activity, Change, CriticalPath, Goal, Graph, GraphTask, Load, Replay, Shares, TaskKind,
};
use manyways_unit::{Span, Time};

use super::what_if::WhatIf;

/// Requests whose slack is determined.
const MAX_SLACKS: usize = 150;
/// The same in a large page, whose replays take longer: this number by that of its requests.
const MAX_REPLAYED: usize = 20_000;
const MIN_SLACKS: usize = 10;

/// The critical paths of a load, the slack of its objects, and predictions.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// Path to the page load time.
    pub load: ExplainedPath,
    /// Path to the page-interactive time.
    pub interactive: ExplainedPath,
    /// Time in which the parser waited for the network.
    pub parser_blocked: Span,
    /// Indices of requests, and how much later each answer may come without a later page load, the least
    /// first.
    pub slack: Vec<(usize, Span)>,
    /// A replay without a change. Its difference to the measured load is an error of the model.
    pub replayed: Predicted,
    /// One for each question, in their order.
    pub predictions: Vec<Predicted>,
}

/// A critical path: activities without gaps, each of which waited for the one before.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ExplainedPath {
    pub steps: Vec<ExplainedStep>,
    pub shares: Shares,
}

/// A step of a critical path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExplainedStep {
    /// Words for it, such as `run script`.
    pub name: &'static str,
    pub cause: Cause,
    /// Index of the request that it is about.
    pub request: Option<usize>,
    pub start: Time,
    pub end: Time,
}

/// The use of the time of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    Network,
    Computation,
    /// A timer, or the browser itself.
    Lag,
}

impl Cause {
    pub fn name(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Computation => "computation",
            Self::Lag => "lag",
        }
    }
}

/// Times of a load under other conditions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Predicted {
    /// The changed conditions, as the user wrote them; empty without a change.
    pub what_if: String,
    pub interactive: Span,
    pub load: Span,
}

impl Predicted {
    fn of(what_if: &str, replay: &Replay) -> Self {
        Self {
            what_if: what_if.to_owned(),
            interactive: replay.page_interactive.since(Time::ZERO),
            load: replay.page_load.since(Time::ZERO),
        }
    }
}

impl Explanation {
    /// Explains a load; `None` for one that did not reach its load event.
    pub fn of(load: &Load, what_ifs: &[WhatIf]) -> Option<Self> {
        load.marks.load_event_end?;
        let graph = Graph::of(load);
        let replay = graph.replay(&Change::default());
        let tasks: Vec<GraphTask> = graph.tasks().collect();
        let path = |goal| ExplainedPath::of(&graph.critical_path(&replay, goal), &tasks);
        let to_load = path(Goal::PageLoad);
        let mut ended: Vec<usize> = (0..load.requests.len()).collect();
        ended.sort_by_cached_key(|index| {
            let ended = load.requests[*index].times.ended.unwrap_or(Time::MAX);
            (!to_load.has_request(*index), ended)
        });
        let share = MAX_REPLAYED / load.requests.len().max(1);
        ended.truncate(share.clamp(MIN_SLACKS, MAX_SLACKS));
        // More than that is as good as any time.
        let limit = replay.page_load.since(Time::ZERO);
        let mut slack: Vec<(usize, Span)> =
            ended.into_iter().map(|index| (index, graph.slack(index, limit))).collect();
        slack.sort_by_key(|(index, slack)| (*slack, *index));
        let predict =
            |what_if: &WhatIf| Predicted::of(&what_if.text, &graph.replay(&what_if.change));
        Some(Self {
            load: to_load,
            interactive: path(Goal::PageInteractive),
            parser_blocked: graph.parser_blocked(&replay),
            slack,
            replayed: Predicted::of("", &replay),
            predictions: what_ifs.iter().map(predict).collect(),
        })
    }
}

impl ExplainedPath {
    fn of(path: &CriticalPath, tasks: &[GraphTask]) -> Self {
        let mut steps: Vec<ExplainedStep> = Vec::new();
        for step in &path.steps {
            let (name, cause, request) = words(step.activity, tasks);
            match steps.last_mut() {
                Some(last) if last.name == name && last.request == request => last.end = step.end,
                _ => steps.push(ExplainedStep {
                    name,
                    cause,
                    request,
                    start: step.start,
                    end: step.end,
                }),
            }
        }
        Self { steps, shares: path.shares() }
    }

    /// Whether a step is about a request.
    pub fn has_request(&self, request: usize) -> bool {
        self.steps.iter().any(|step| step.request == Some(request))
    }
}

fn words(activity: Activity, tasks: &[GraphTask]) -> (&'static str, Cause, Option<usize>) {
    let network = |name, request| (name, Cause::Network, Some(request));
    match activity {
        Activity::Waiting(request) => network("wait for a connection", request),
        Activity::Connecting(request) => network("connect", request),
        Activity::Requesting(request) => network("wait for the response", request),
        Activity::Receiving(request) => network("receive", request),
        Activity::Lag => ("timer, or the browser", Cause::Lag, None),
        Activity::Task(index) => {
            let task = tasks.get(index);
            let name = task.map_or("work", |task| task_words(task.kind));
            (name, Cause::Computation, task.and_then(|task| task.request))
        }
    }
}

fn task_words(kind: TaskKind) -> &'static str {
    match kind {
        TaskKind::ParseHtml => "parse HTML",
        TaskKind::EvaluateScript => "run script",
        TaskKind::Compile => "compile script",
        TaskKind::ParseStyle => "parse style sheet",
        TaskKind::Style => "compute styles",
        TaskKind::Layout => "lay out",
        TaskKind::Paint => "paint",
        TaskKind::Timer => "run timer",
        TaskKind::Event(_) => "handle event",
        TaskKind::Function => "run function",
        TaskKind::Other => "other work",
    }
}
