//! Loads in which everything happens for a reason, with random times.

use manyways_unit::{Size, Span, Time};
use proptest::prelude::*;

use super::super::wait::Point;
use super::super::{
    Blocking, Change, EventKind, Graph, Initiator, Kind, Load, Loading, Marks, Priority, Replay,
    Request, Task, TaskKind, Times,
};
use super::{check_order, check_paths, delayed};

/// An object: its kind, who finds it, and times in milliseconds.
type Object = (u8, usize, [u64; 4]);

fn objects() -> impl Strategy<Value = Vec<Object>> {
    prop::collection::vec(
        (0..5_u8, any::<prop::sample::Index>(), prop::array::uniform4(1..40_u64)),
        1..40,
    )
    .prop_map(|objects| {
        let found = |(place, (kind, by, times)): (usize, (u8, prop::sample::Index, [u64; 4]))| {
            (kind, by.index(place + 1), times)
        };
        objects.into_iter().enumerate().map(found).collect()
    })
}

fn at(millis: u64) -> Time {
    Time::from_millis(millis)
}

/// A load of a document and objects, each of which is found by the document or by a script, when that
/// has been worked on.
fn load(objects: &[Object]) -> Load {
    let document = Request {
        url: "http://a.example/".into(),
        origin: "http://a.example:80".into(),
        kind: Kind::Document,
        initiator: Initiator::Navigation,
        priority: Priority::VeryHigh,
        times: times(0, [5, 20, 30, 4]),
        connection: Some(1),
        body: Size::from_bytes(30_000),
        ..Request::default()
    };
    let mut load = Load { requests: vec![document], ..Load::default() };
    let parse = |kind, start, end, request| Task { kind, start, end, request, lines: None };
    load.tasks.push(parse(TaskKind::ParseHtml, at(60), at(65), Some(0)));
    // When each object has been worked on.
    let mut worked = vec![65];
    let mut thread = 65;
    for (index, (kind, by, durations)) in objects.iter().enumerate() {
        let (kind, loading) = match kind {
            0 => (Kind::Style, None),
            1 => (Kind::Script, Some(Loading::Async)),
            2 => (Kind::Script, Some(Loading::Injected)),
            _ => (Kind::Image, None),
        };
        let by = if load.requests[*by].kind == Kind::Script { *by } else { 0 };
        let issued = worked[by] + durations[3] % 3;
        let initiator = match by {
            0 => Initiator::Parser { document: 0, line: Some(index as u32), column: None },
            request => Initiator::Script { request },
        };
        let mut times = times(issued, *durations);
        let mut ended = issued + durations.iter().sum::<u64>() - durations[3];
        if matches!(kind, Kind::Script | Kind::Style) {
            // Objects are worked on in the order of their arrival.
            ended = ended.max(thread + 1);
            times.ended = Some(at(ended));
        }
        load.requests.push(Request {
            url: format!("http://a.example/{index}"),
            // Its own one: another connection could not be used again.
            origin: format!("http://{index}.example:80"),
            kind,
            loading,
            initiator,
            blocking: if kind == Kind::Style { Blocking::Render } else { Blocking::None },
            priority: if kind == Kind::Image { Priority::Low } else { Priority::High },
            times,
            connection: Some(index as u64 + 2),
            body: Size::from_bytes(durations[1] * 1_000),
            ..Request::default()
        });
        let task = match kind {
            Kind::Script => Some(TaskKind::EvaluateScript),
            Kind::Style => Some(TaskKind::ParseStyle),
            _ => None,
        };
        let mut end = ended;
        if let Some(task) = task {
            let start = thread.max(ended) + 1;
            end = start + durations[3] % 7 + 1;
            load.tasks.push(parse(task, at(start), at(end), Some(index + 1)));
            thread = end;
        }
        worked.push(end);
    }
    let ended = load.requests.iter().filter_map(|request| request.times.ended).max();
    let last = ended.unwrap_or_default().max(at(thread)) + Span::from_millis(2);
    let end = last + Span::from_millis(3);
    load.tasks.push(parse(TaskKind::Event(EventKind::Load), last, end, None));
    load.marks =
        Marks { load_event_end: Some(end), dom_interactive: Some(at(65)), ..Marks::default() };
    load
}

fn times(issued: u64, [wait, server, receive, _]: [u64; 4]) -> Times {
    let sent = issued + wait;
    Times {
        issued: Some(at(issued)),
        started: Some(at(issued)),
        connect_start: Some(at(issued)),
        connect_end: Some(at(sent)),
        sent: Some(at(sent)),
        first_byte: Some(at(sent + server)),
        ended: Some(at(sent + server + receive)),
        ..Times::default()
    }
}

/// No activity begins before what it waits for.
fn check_waits(graph: &Graph, replay: &Replay) {
    let trail = &replay.trail;
    let time = |point: &Point| match *point {
        Point::Start => 0.0,
        Point::Arrived(request, _) => trail.requests[request].first_byte,
        Point::Ended(request) => trail.requests[request].ended,
        Point::Done(task) => trail.tasks[task].end,
        Point::Within(task, _) => trail.tasks[task].start,
    };
    for (wait, trail) in graph.waits.tasks.iter().zip(&trail.tasks) {
        let last = wait.points.iter().map(time).fold(0.0, f64::max);
        assert!(trail.start >= last - 1e-9, "{wait:?} {trail:?}");
    }
    for (wait, trail) in graph.waits.requests.iter().zip(&trail.requests) {
        let last = wait.points.iter().map(time).fold(0.0, f64::max);
        assert!(trail.issued >= last - 1e-9, "{wait:?} {trail:?}");
    }
}

proptest! {
    #[test]
    fn no_activity_begins_before_its_causes(
        objects in objects(), which in any::<prop::sample::Index>(), delay in 0..500_u64,
        factors in prop::array::uniform3(0.2_f64..4.0), cached in any::<bool>(),
    ) {
        let load = load(&objects);
        let graph = Graph::of(&load);
        let [rtt_factor, rate_factor, cpu_factor] = factors;
        let added_delays = vec![(which.index(load.requests.len()), Span::from_millis(delay))];
        let change = Change { rtt_factor, rate_factor, cpu_factor, cached, added_delays };
        let replay = graph.replay(&change);
        check_order(&graph, &load, &replay);
        check_waits(&graph, &replay);
        check_paths(&graph, &replay);
        prop_assert!(replay == graph.replay(&change), "a replay is always the same");
    }

    #[test]
    fn a_replay_without_a_change_ends_with_the_load(objects in objects()) {
        let load = load(&objects);
        let graph = Graph::of(&load);
        let replay = graph.replay(&Change::default());
        let loaded = load.marks.load_event_end.unwrap();
        let difference = loaded.distance(replay.page_load);
        prop_assert!(difference < Span::from_millis(1), "{loaded:?} {:?}", replay.page_load);
    }

    #[test]
    fn a_delay_within_the_slack_has_no_effect(
        objects in objects(), which in any::<prop::sample::Index>(),
    ) {
        let load = load(&objects);
        let graph = Graph::of(&load);
        let request = which.index(load.requests.len());
        let slack = graph.slack(request, Span::from_secs(2));
        let before = graph.replay(&Change::default()).page_load;
        let within = delayed(&graph, request, slack).page_load;
        prop_assert!(within <= before + Span::from_millis(1), "{slack:?} {before:?} {within:?}");
    }
}

#[test]
fn thousands_of_objects_are_replayed() {
    let objects: Vec<Object> = (0..5_000)
        .map(|index| {
            ((index % 5) as u8, index / 3, [2, 3 + index as u64 % 20, 1 + index as u64 % 9, 4])
        })
        .collect();
    let load = load(&objects);
    let graph = Graph::of(&load);
    let replay = graph.replay(&Change { rtt_factor: 0.5, ..Change::default() });
    check_order(&graph, &load, &replay);
    check_paths(&graph, &replay);
}
