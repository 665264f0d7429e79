//! A load that Chromium 156 reported: a page with an imported sheet, scripts of every loading mode,
//! images and scripts that they insert, and a font, from one server with HTTP/1.1 on the same machine,
//! which answered some objects late.

use manyways_unit::{Span, Time};

use super::super::{Change, Edge, EdgeKind, Goal, Graph, Load};
use super::{check_order, check_paths, delayed, millis};

fn load() -> Load {
    serde_json::from_str(include_str!("load.json")).unwrap()
}

fn index(load: &Load, path: &str) -> usize {
    let found = load.requests.iter().position(|request| request.url.ends_with(path));
    found.unwrap_or_else(|| panic!("no {path}"))
}

#[test]
fn a_replay_without_a_change_is_the_load() {
    let load = load();
    let graph = Graph::of(&load);
    let replay = graph.replay(&Change::default());
    for (request, times) in load.requests.iter().zip(&replay.requests) {
        let ended = request.times.ended.unwrap();
        assert!(ended.distance(times.ended) < Span::from_millis(10), "{} {times:?}", request.url);
    }
    let loaded = load.marks.load_event_end.unwrap();
    assert!(loaded.distance(replay.page_load) < Span::from_millis(10), "{:?}", replay.page_load);
    let painted = load.marks.first_contentful_paint.unwrap();
    let interactive = painted.max(load.marks.dom_interactive.unwrap());
    assert!(interactive.distance(replay.page_interactive) < Span::from_millis(2));
    check_order(&graph, &load, &replay);
    check_paths(&graph, &replay);
}

#[test]
fn edges_are_those_of_the_page() {
    let load = load();
    let graph = Graph::of(&load);
    let edge = |kind, from, to| Edge { kind, from: index(&load, from), to: index(&load, to) };
    let expected = [
        edge(EdgeKind::Found, ":8100/", "/a.css"),
        edge(EdgeKind::Found, "/a.css", "/imp.css"),
        edge(EdgeKind::Found, "/a.css", "/f.woff2"),
        edge(EdgeKind::Found, "/a.css", "/bg.gif"),
        // DevTools reports the parser as the initiator of these.
        edge(EdgeKind::Found, "/b.js", "/inj.gif"),
        edge(EdgeKind::Found, "/d.js", "/dinj.gif"),
        edge(EdgeKind::Found, "/last.js", "/dw.gif"),
        edge(EdgeKind::Found, "/inj.js", "/inj2.gif"),
        // And no initiator of this.
        edge(EdgeKind::Found, "/as.js", "/timer.gif"),
        edge(EdgeKind::Found, "/m.js", "/m2.js"),
        edge(EdgeKind::BlocksParser, "/b.js", ":8100/"),
        edge(EdgeKind::BlocksParser, "/mid.js", ":8100/"),
        edge(EdgeKind::StyleBeforeScript, "/a.css", "/b.js"),
        edge(EdgeKind::StyleBeforeScript, "/imp.css", "/b.js"),
        edge(EdgeKind::AfterParsing, ":8100/", "/d.js"),
        edge(EdgeKind::AfterParsing, ":8100/", "/m.js"),
    ];
    for expected in expected {
        assert!(graph.edges().contains(&expected), "{expected:?}");
    }
    let of_kind = |kind| graph.edges().iter().filter(|edge| edge.kind == kind).count();
    assert_eq!(of_kind(EdgeKind::Found), load.requests.len() - 1);
    assert_eq!(of_kind(EdgeKind::BlocksParser), 3);
    assert_eq!(of_kind(EdgeKind::StyleBeforeScript), 2);
}

#[test]
fn a_delay_matters_on_the_critical_path_and_beyond_the_slack() {
    let load = load();
    let graph = Graph::of(&load);
    let before = graph.replay(&Change::default());
    let path = graph.critical_path(&before, Goal::PageLoad);
    let delay = Span::from_millis(300);
    let later = |path: &str| {
        let after = delayed(&graph, index(&load, path), delay);
        check_paths(&graph, &after);
        millis(after.page_load) - millis(before.page_load)
    };
    // The parser waits for the sheet, with the first script.
    assert!(path.has_request(index(&load, "/a.css")));
    assert!((later("/a.css") - 300.0).abs() < 30.0, "{}", later("/a.css"));
    // An image, and an object that the load event does not wait for.
    let image = index(&load, "/1.gif");
    assert!(!path.has_request(image));
    let slack = graph.slack(image, Span::from_secs(1));
    // Until then, the last script has come before the parser needs it: it waits for the image's end.
    assert!((70.0..110.0).contains(&slack.as_millis_f64()), "{slack:?}");
    let beyond = later("/1.gif");
    assert!(beyond > 20.0 && beyond <= 300.0 - slack.as_millis_f64() + 1.0, "{beyond}");
    let within = delayed(&graph, image, slack).page_load;
    assert!(within <= before.page_load + Span::from_millis(1), "{within:?}");
    assert_eq!(graph.slack(index(&load, "/f2.json"), Span::from_secs(1)), Span::from_secs(1));
}

#[test]
fn a_faster_network_saves_what_the_network_took() {
    let load = load();
    let graph = Graph::of(&load);
    let before = graph.replay(&Change::default());
    let shares = graph.critical_path(&before, Goal::PageLoad).shares();
    assert!(shares.network > shares.computation && shares.computation > Span::from_millis(20));
    let blocked = graph.parser_blocked(&before);
    // The parser waited for the sheets from 18 to 148 ms, and hardly later.
    assert!((110.0..150.0).contains(&blocked.as_millis_f64()), "{blocked:?}");

    let cached = graph.replay(&Change { cached: true, ..Change::default() });
    let path = graph.critical_path(&cached, Goal::PageLoad);
    assert_eq!(path.shares().network, Span::ZERO);
    assert!(cached.page_load < before.page_load);
    assert!(graph.parser_blocked(&cached) < Span::from_millis(15));

    let slow = graph.replay(&Change { rtt_factor: 40.0, ..Change::default() });
    let slower_link = graph.replay(&Change { rate_factor: 0.1, ..Change::default() });
    let slower = graph.replay(&Change { cpu_factor: 3.0, ..Change::default() });
    for replay in [&slow, &slower_link, &slower, &cached] {
        assert!(std::ptr::eq(replay, &cached) || replay.page_load > before.page_load);
        check_order(&graph, &load, replay);
        check_paths(&graph, replay);
    }
    let computed = shares.computation.as_millis_f64();
    let more = millis(slower.page_load) - millis(before.page_load);
    assert!(more > computed && more < 4.0 * computed, "{more} {computed}");
    assert_eq!(graph.replay(&Change { rtt_factor: f64::NAN, ..Change::default() }), before);
    assert!(before.page_load > Time::ZERO);
}
