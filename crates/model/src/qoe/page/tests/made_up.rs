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
fn pieces_of_a_task_are_joined_and_other_tasks_are_not() {
    let mut load = load(&[]);
    let task = |kind, start: u64, end: u64, request| Task {
        kind,
        start: Time::from_nanos(start * 1_000),
        end: Time::from_nanos(end * 1_000),
        request,
        lines: None,
    };
    let event = TaskKind::Event(EventKind::Other);
    load.tasks = vec![
        task(event, 200, 300, None),
        // The event at the end of this one is another.
        task(TaskKind::Other, 40_000, 40_500, None),
        task(event, 40_400, 40_500, None),
        // A script with its compilation and a collection of garbage.
        task(TaskKind::EvaluateScript, 50_000, 58_000, Some(0)),
        task(TaskKind::Compile, 50_100, 50_300, Some(0)),
        task(TaskKind::Other, 53_000, 53_500, None),
    ];
    let graph = Graph::of(&load);
    let tasks: Vec<_> = graph.tasks().map(|task| (task.kind, task.start, task.end)).collect();
    let at = |micros: u64| Time::from_nanos(micros * 1_000);
    assert_eq!(tasks[0], (event, at(200), at(300)));
    assert_eq!(tasks[1], (event, at(40_400), at(40_500)));
    assert_eq!(tasks[2], (TaskKind::EvaluateScript, at(50_000), at(58_000)));
    assert_eq!(tasks.len(), 4);
}

#[test]
fn round_trips_and_bytes_scale() {
    // A handshake of 10 ms, 20 ms of the server, and 400 kB, alone on a link that they fill for 400 ms.
    let mut load = load(&[]);
    load.requests[0].times = times(0, [10, 30, 400, 0]);
    load.requests[0].body = Size::from_bytes(400_000);
    load.tasks.clear();
    load.marks = Marks { load_event_end: Some(at(441)), ..Marks::default() };
    let graph = Graph::of(&load);
    let capacity = graph.capacity().as_mbps_f64();
    assert!((capacity - 8.0).abs() < 0.1, "{capacity}");
    assert_eq!(graph.round_trip(0), Some(Span::from_millis(10)));
    let times = |rtt_factor, rate_factor| {
        let replay = graph.replay(&Change { rtt_factor, rate_factor, ..Change::default() });
        let request = &replay.requests[0];
        [request.sent, request.first_byte, request.ended, replay.page_load].map(super::millis)
    };
    let close = |times: [f64; 4], expected: [f64; 4]| {
        let distance = |(a, b): (f64, f64)| (a - b).abs();
        assert!(
            times.into_iter().zip(expected).map(distance).fold(0.0, f64::max) < 0.5,
            "{times:?}"
        );
    };
    close(times(1.0, 1.0), [10.0, 40.0, 440.0, 441.0]);
    close(times(0.5, 1.0), [5.0, 30.0, 430.0, 431.0]);
    close(times(1.0, 2.0), [10.0, 40.0, 240.0, 241.0]);
}

#[test]
fn the_end_of_an_image_in_svg_is_not_that_of_the_page() {
    let mut load = load(&[]);
    let object = |kind, loading, ended: u64| Request {
        origin: format!("http://{ended}.example:80"),
        kind,
        loading,
        initiator: Initiator::Parser { document: 0, line: Some(1), column: None },
        times: times(65, [10, 10, ended - 85, 0]),
        body: Size::from_bytes(5_000),
        ..Request::default()
    };
    load.requests.push(object(Kind::Image, None, 160));
    load.requests.push(object(Kind::Script, Some(Loading::Deferred), 180));
    let task = |kind, start: u64, request| Task {
        kind,
        start: at(start),
        end: at(start + 1),
        request,
        lines: None,
    };
    let content_loaded = TaskKind::Event(EventKind::DomContentLoaded);
    load.tasks.truncate(1);
    load.tasks.extend([
        task(content_loaded, 162, None),
        task(TaskKind::EvaluateScript, 182, Some(2)),
        task(content_loaded, 184, None),
        task(TaskKind::Event(EventKind::Load), 190, None),
    ]);
    load.marks = Marks {
        dom_content_loaded_start: Some(at(184)),
        dom_content_loaded_end: Some(at(185)),
        load_event_end: Some(at(191)),
        ..load.marks
    };
    let graph = Graph::of(&load);
    let replay = graph.replay(&Change { cached: true, ..Change::default() });
    let script = graph.tasks().position(|task| task.kind == TaskKind::EvaluateScript);
    let (start, _) = replay.tasks[script.unwrap()];
    // The parser ends 5 ms after its document is there.
    assert!(start < at(20), "{start:?}");
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
