//! A load with times in seconds that are complete and in order, whatever was reported.

use manyways_unit::Time;

use super::load::{EventKind, Load, Request, Task, TaskKind, flatten};

/// Work of no known kind that is shorter belongs to the tasks around it.
const MIN_OTHER: f64 = 0.001;

/// When a request reached its steps, each not before the one above.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steps {
    pub issued: f64,
    pub started: f64,
    pub sent: f64,
    pub first_byte: f64,
    pub ended: f64,
    /// Durations, of a request that opened a connection.
    pub dns: f64,
    pub handshake: f64,
    /// The part of the handshake that TLS took.
    pub tls: f64,
    /// The request went over the network, and its steps are known.
    pub timed: bool,
}

/// Work of the main thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub kind: TaskKind,
    pub start: f64,
    pub end: f64,
    /// A valid index.
    pub request: Option<usize>,
    pub lines: Option<(u32, u32)>,
    /// The next piece of the task before it, or nested in it: only these pieces touch each other.
    pub continues: bool,
}

pub(super) fn steps(request: &Request) -> Steps {
    let times = &request.times;
    let seconds = |time: Option<Time>| time.map(Time::as_secs_f64);
    let between = |start, end| match (seconds(start), seconds(end)) {
        (Some(start), Some(end)) => f64::max(end - start, 0.0),
        _ => 0.0,
    };
    let known = [times.issued, times.started, times.sent, times.first_byte, times.ended];
    let issued = seconds(known.into_iter().flatten().next()).unwrap_or_default();
    let timed = times.sent.is_some() && times.first_byte.is_some() && !request.from_cache;
    if !timed {
        let ended = seconds(times.ended.or(times.first_byte)).unwrap_or(issued).max(issued);
        let (dns, handshake, tls) = (0.0, 0.0, 0.0);
        let (started, sent, first_byte) = (issued, issued, issued);
        return Steps { issued, started, sent, first_byte, ended, dns, handshake, tls, timed };
    }
    let after = |time: Option<Time>, earlier: f64| seconds(time).unwrap_or(earlier).max(earlier);
    let started = after(times.started, issued);
    let sent = after(times.sent, started);
    let first_byte = after(times.first_byte, sent);
    let ended = after(times.ended, first_byte);
    let handshake = between(times.connect_start, times.connect_end).min(sent - started);
    let dns = between(times.dns_start, times.dns_end).min(sent - started - handshake);
    let tls = between(times.tls_start, times.tls_end).min(handshake);
    Steps { issued, started, sent, first_byte, ended, dns, handshake, tls, timed }
}

/// The tasks, without overlaps, and with one at least for the load event. Returns also the index of the
/// first piece of the load event.
pub(super) fn work(load: &Load, steps: &[Steps]) -> (Vec<Work>, usize) {
    let mut tasks = flatten(load.tasks.clone());
    let load_start = load.marks.load_event_start.or(load.marks.load_event_end);
    let of_load = tasks
        .iter()
        .filter(|task| task.kind == TaskKind::Event(EventKind::Load))
        .min_by_key(|task| task.start.distance(load_start.unwrap_or(task.start)))
        .map(|task| task.start);
    let load_start = of_load.unwrap_or_else(|| {
        let last = tasks.iter().map(|task| task.end).max().unwrap_or_default();
        let ended = steps.iter().map(|steps| steps.ended).fold(last.as_secs_f64(), f64::max);
        let start = load_start.unwrap_or(Time::from_nanos((ended * 1e9).round() as u64));
        let kind = TaskKind::Event(EventKind::Load);
        let place = tasks.partition_point(|task| task.start <= start);
        tasks.insert(place, Task { kind, start, end: start, request: None, lines: None });
        start
    });
    let mut work: Vec<Work> = Vec::with_capacity(tasks.len());
    let mut load_event = None;
    // The end of the last task, also of one that is not kept.
    let mut last = 0.0;
    // Start of work of no known kind that leads to the next task.
    let mut leading = None;
    for (index, task) in tasks.iter().enumerate() {
        let start = task.start.as_secs_f64().max(last);
        let end = task.end.as_secs_f64().max(start);
        let follows = leading.is_none() && start <= last;
        last = end;
        if task.kind == TaskKind::Other {
            if end - start < MIN_OTHER {
                continue;
            }
            let next = tasks.get(index + 1).filter(|next| next.kind != TaskKind::Other);
            if !follows && next.is_some_and(|next| next.start.as_secs_f64() <= end) {
                leading = Some(start);
                continue;
            }
        }
        let start = leading.take().unwrap_or(start);
        let request = task.request.filter(|request| *request < load.requests.len());
        let kind = match work.last() {
            // Compilation is a part of a script's evaluation.
            Some(Work { kind: TaskKind::EvaluateScript, request: of, .. })
                if follows && task.kind == TaskKind::Compile && *of == request =>
            {
                TaskKind::EvaluateScript
            }
            _ => task.kind,
        };
        let is_load = task.start == load_start && task.kind == TaskKind::Event(EventKind::Load);
        match work.last_mut() {
            Some(before)
                if follows && !is_load && (before.kind, before.request) == (kind, request) =>
            {
                before.end = end;
                before.lines = before.lines.or(task.lines);
            }
            before => {
                let continues = before.is_some_and(|before| start <= before.end);
                if is_load {
                    load_event.get_or_insert(work.len());
                }
                work.push(Work {
                    kind: task.kind,
                    start,
                    end,
                    request,
                    lines: task.lines,
                    continues,
                });
            }
        }
    }
    adopt(&mut work);
    (work, load_event.unwrap_or_default())
}

/// A timer's own pieces belong to the script of the function that it calls.
fn adopt(work: &mut [Work]) {
    for index in 1..work.len() {
        let (before, this) = (work[index - 1], work[index]);
        match (before.kind, this.kind) {
            _ if !this.continues => (),
            (TaskKind::Timer, TaskKind::Function) => {
                work[index - 1].request = before.request.or(this.request);
            }
            (TaskKind::Function, TaskKind::Timer) => {
                work[index].request = this.request.or(before.request);
            }
            _ => (),
        }
    }
}

/// The task that runs at `time`.
pub(super) fn at(work: &[Work], time: f64) -> Option<usize> {
    let index = work.partition_point(|task| task.start <= time).checked_sub(1)?;
    (time <= work[index].end).then_some(index)
}
