//! Loads that cannot have been.

use manyways_unit::{Size, Span, Time};
use proptest::prelude::*;

use super::super::{
    Arrival, Blocking, Change, EventKind, Graph, Initiator, Kind, Load, Loading, Marks, Priority,
    Protocol, Request, Task, TaskKind, Times,
};
use super::{check_order, check_paths};

fn time() -> impl Strategy<Value = Time> {
    prop_oneof![
        8 => (0..2_000_000_000_u64).prop_map(Time::from_nanos),
        1 => Just(Time::ZERO),
        1 => Just(Time::MAX),
    ]
}

fn some_time() -> impl Strategy<Value = Option<Time>> {
    prop::option::weighted(0.8, time())
}

fn initiator() -> impl Strategy<Value = Initiator> {
    let index = || 0..14_usize;
    prop_oneof![
        Just(Initiator::Navigation),
        Just(Initiator::Other),
        (index(), prop::option::of(0..20_u32)).prop_map(|(document, line)| Initiator::Parser {
            document,
            line,
            column: None
        }),
        index().prop_map(|request| Initiator::Script { request }),
        index().prop_map(|document| Initiator::InlineScript { document, line: None }),
        index().prop_map(|request| Initiator::Style { request }),
        index().prop_map(|request| Initiator::Redirect { request }),
        index().prop_map(|request| Initiator::Preload { request }),
    ]
}

fn request() -> impl Strategy<Value = Request> {
    use prop::sample::select;
    let kinds = [Kind::Document, Kind::Style, Kind::Script, Kind::Image, Kind::Fetch, Kind::Other];
    let modes = [
        None,
        Some(Loading::Blocking),
        Some(Loading::Deferred),
        Some(Loading::Async),
        Some(Loading::Module),
    ];
    let times = prop::array::uniform12(some_time()).prop_map(|times| Times {
        issued: times[0],
        started: times[1],
        dns_start: times[2],
        dns_end: times[3],
        connect_start: times[4],
        connect_end: times[5],
        tls_start: times[6],
        tls_end: times[7],
        sent: times[8],
        first_byte: times[9],
        ended: times[10],
    });
    let arrivals = prop::collection::vec((time(), any::<u64>()), 0..4).prop_map(|arrivals| {
        let arrival = |(time, bytes)| Arrival { time, bytes: Size::from_bytes(bytes) };
        arrivals.into_iter().map(arrival).collect::<Vec<_>>()
    });
    let blocking = [Blocking::Render, Blocking::Parser, Blocking::None];
    let priorities = [Priority::VeryLow, Priority::Low, Priority::Medium, Priority::VeryHigh];
    let protocols = [Protocol::Http1, Protocol::Http2];
    let first = (
        select(kinds.to_vec()),
        select(modes.to_vec()),
        select(blocking.to_vec()),
        initiator(),
        times,
    );
    let second = (
        select(priorities.to_vec()),
        select(protocols.to_vec()),
        arrivals,
        some_time(),
        prop::option::of(0..3_u64),
        any::<(bool, bool, u64)>(),
    );
    let text = |values: &'static str| Just(values.to_owned());
    (first, second, prop_oneof![text("http://a:80"), text("http://b:80")])
        .prop_map(|((kind, loading, blocking, initiator, times), second, origin)| {
            let (priority, protocol, arrivals, boosted, connection, rest) = second;
            Request {
                url: String::new(),
                origin,
                kind,
                loading,
                initiator,
                blocking,
                priority,
                boosted,
                times,
                connection,
                reused: rest.0,
                protocol,
                body: Size::from_bytes(rest.2),
                headers: Size::from_bytes(rest.2 / 3),
                arrivals,
                from_cache: rest.1,
                failed: rest.0,
            }
        })
        .boxed()
}

fn task() -> impl Strategy<Value = Task> {
    let kinds = [
        TaskKind::ParseHtml,
        TaskKind::EvaluateScript,
        TaskKind::Compile,
        TaskKind::ParseStyle,
        TaskKind::Layout,
        TaskKind::Paint,
        TaskKind::Timer,
        TaskKind::Function,
        TaskKind::Event(EventKind::Load),
        TaskKind::Event(EventKind::DomContentLoaded),
        TaskKind::Other,
    ];
    let lines = prop::option::of((0..20_u32, 0..20_u32));
    (prop::sample::select(kinds.to_vec()), time(), time(), prop::option::of(0..14_usize), lines)
        .prop_map(|(kind, start, end, request, lines)| Task { kind, start, end, request, lines })
}

proptest! {
    #[test]
    fn every_load_is_replayed(
        requests in prop::collection::vec(request(), 0..12),
        tasks in prop::collection::vec(task(), 0..25),
        marks in prop::array::uniform4(some_time()),
        cached in any::<bool>(),
        rtt_factor in any::<f64>(),
        rate_factor in any::<f64>(),
        delayed in 0..14_usize,
    ) {
        let marks = Marks {
            dom_interactive: marks[0],
            load_event_start: marks[1],
            load_event_end: marks[2],
            first_contentful_paint: marks[3],
            ..Marks::default()
        };
        let load = Load { requests, tasks, marks };
        let graph = Graph::of(&load);
        let changes = [
            Change::default(),
            Change { cached, rtt_factor, rate_factor, ..Change::default() },
            Change { added_delays: vec![(delayed, Span::from_millis(300))], ..Change::default() },
        ];
        for change in changes {
            let replay = graph.replay(&change);
            prop_assert_eq!(&replay, &graph.replay(&change));
            check_order(&graph, &load, &replay);
            for goal in [super::super::Goal::PageLoad, super::super::Goal::PageInteractive] {
                graph.critical_path(&replay, goal);
            }
            graph.parser_blocked(&replay);
        }
    }
}

#[test]
fn an_empty_load_takes_no_time() {
    let graph = Graph::of(&Load::default());
    let replay = graph.replay(&Change::default());
    assert_eq!(replay.page_load, Time::ZERO);
    check_paths(&graph, &replay);
    assert_eq!(graph.slack(3, Span::from_secs(1)), Span::ZERO);
    assert_eq!(graph.round_trip(3), None);
}
