//! Recordings of events.

use manyways_model::qoe::page::{
    Blocking, EventKind, Initiator, Kind, Load, Loading, Marks, Priority, TaskKind,
};
use manyways_unit::{Size, Span, Time};
use manyways_wire::har::{self, Content};
use serde_json::{Value, json};

use super::explain::Explanation;
use super::recorder::{MAX_DOCUMENTS, MAX_REQUESTS, Recorder};
use super::through_proxy;
use super::timings::{Answer, PageName, PageTimings};
use crate::browser::{Event, ProxiedConnection};

/// Events of Chromium 156 for a page with a style sheet, blocking, asynchronous and inserted scripts,
/// pictures, and a redirect. Fields that have no meaning here were removed.
const RECORDING: &str = include_str!("recordings/page.jsonl");

fn recording() -> Recorder {
    Recorder::read(RECORDING.replace('\n', "\0").as_bytes()).unwrap()
}

fn events() -> Vec<Event> {
    let event = |line: &str| {
        let event: Value = serde_json::from_str(line).unwrap();
        Event {
            method: event["method"].as_str().unwrap().to_owned(),
            params: event["params"].clone(),
        }
    };
    RECORDING.lines().map(event).collect()
}

fn recorded(events: &[Event]) -> Recorder {
    let sent = events.iter().find(|event| event.method == "Network.requestWillBeSent");
    let frame = sent.map(|event| event.params["frameId"].as_str().unwrap().to_owned());
    let mut recorder = Recorder::new(frame.unwrap_or_default());
    events.iter().for_each(|event| recorder.handle(event));
    recorder
}

fn find(load: &Load, end: &str) -> usize {
    load.requests.iter().position(|request| request.url.ends_with(end)).unwrap()
}

#[test]
fn requests_have_their_causes_and_kinds() {
    let recorder = recording();
    assert!(recorder.is_loaded() && recorder.is_idle() && recorder.documents() == 1);
    let (load, _) = recorder.load();
    let names: Vec<&str> =
        load.requests.iter().map(|request| request.url.rsplit('/').next().unwrap()).collect();
    // The browser's own request for an icon is not one of the page.
    let expected = [
        "",
        "index.html",
        "style.css",
        "first.js",
        "later.js",
        "picture.svg",
        "missing.png",
        "inserted.svg",
        "injected.js",
        "data.json",
        "background.svg",
    ];
    assert_eq!(names, expected);
    let one = |end: &str| &load.requests[find(&load, end)];
    assert_eq!(load.requests[0].initiator, Initiator::Navigation);
    assert_eq!(load.requests[1].initiator, Initiator::Redirect { request: 0 });
    assert_eq!(one("style.css").kind, Kind::Style);
    assert_eq!(one("style.css").blocking, Blocking::Render);
    let parser = Initiator::Parser { document: 1, line: Some(3), column: Some(21) };
    assert_eq!(one("first.js").initiator, parser);
    assert_eq!(one("first.js").loading, Some(Loading::Blocking));
    assert_eq!(one("later.js").loading, Some(Loading::Async));
    let later = find(&load, "later.js");
    assert_eq!(one("injected.js").loading, Some(Loading::Injected));
    assert_eq!(one("injected.js").initiator, Initiator::Script { request: later });
    assert_eq!(one("data.json").kind, Kind::Fetch);
    let style = find(&load, "style.css");
    assert_eq!(one("background.svg").initiator, Initiator::Style { request: style });
    assert_eq!(one("style.css").priority, Priority::VeryHigh);
    assert!(one("missing.png").failed && !one("picture.svg").failed);
    assert_eq!(one("picture.svg").body, Size::from_bytes(103));
    assert_eq!(one("style.css").origin, "http://page.test:80");
    assert_eq!(load.requests[0].connection, load.requests[1].connection);
    assert!(load.requests[1].reused && !load.requests[0].reused);
}

#[test]
fn steps_of_requests_are_in_their_order_after_the_start() {
    let (load, _) = recording().load();
    for request in &load.requests {
        let times = &request.times;
        let steps = [times.issued, times.sent, times.first_byte, times.ended].map(Option::unwrap);
        assert!(steps.is_sorted(), "{request:?}");
        assert!(request.arrivals.iter().all(|one| one.time <= steps[3]), "{request:?}");
    }
    let first = load.requests[0].times;
    assert!(first.connect_start.unwrap() <= first.connect_end.unwrap());
    assert_eq!(load.requests[1].times.connect_start, None);
    // The server delays the style sheet.
    let style = load.requests[find(&load, "style.css")].times;
    assert!(style.first_byte.unwrap().since(style.sent.unwrap()) >= Span::from_millis(50));
    assert!(load.requests[0].times.issued.unwrap() < Time::from_millis(20));
}

#[test]
fn tasks_are_those_of_the_page_and_its_marks_are_not_those_of_the_empty_page_before() {
    let (load, _) = recording().load();
    let first = find(&load, "first.js");
    let ran: Vec<_> = load
        .tasks
        .iter()
        .filter(|task| task.kind == TaskKind::EvaluateScript && task.request == Some(first))
        .collect();
    let time: Span = ran.iter().map(|task| task.end.since(task.start)).sum();
    assert!(time >= Span::from_millis(20), "{ran:?}");
    assert!(load.tasks.is_sorted_by(|one, next| one.end <= next.start));
    let parsed = load.tasks.iter().find(|task| task.request == Some(1)).unwrap();
    assert_eq!((parsed.kind, parsed.lines), (TaskKind::ParseHtml, Some((0, 3))));
    let inline = load.tasks.iter().any(|task| {
        task.kind == TaskKind::EvaluateScript
            && task.request == Some(1)
            && task.lines == Some((7, 7))
    });
    assert!(inline);
    let marks = &load.marks;
    // The script has run.
    assert!(marks.dom_interactive.unwrap() >= ran[0].end);
    let order = [
        marks.dom_interactive,
        marks.dom_content_loaded_end,
        marks.dom_complete,
        marks.load_event_end,
    ];
    assert!(order.map(Option::unwrap).is_sorted(), "{marks:?}");
    let loads = load.tasks.iter().filter(|task| task.kind == TaskKind::Event(EventKind::Load));
    assert!(loads.count() <= 1);
}

#[test]
fn timings_are_those_of_the_page_behind_the_redirect() {
    let (mut load, _) = recording().load();
    load.marks.load_event_end = None;
    let answer = json!({
        "url": "http://page.test/index.html", "title": "t".repeat(1_000),
        "navigation": {"loadEventEnd": 700.5, "domInteractive": 1.0, "domComplete": 0},
        "largestPaint": 650.0, "firstPaint": null,
    });
    let answer = Answer::of(&answer);
    assert_eq!(answer.name().title.len(), 500);
    answer.complete(&mut load.marks);
    let timings = PageTimings::of(&load);
    assert_eq!(timings.load, Some(Span::from_micros(700_500)));
    assert_eq!(timings.largest_contentful_paint, Some(Span::from_millis(650)));
    // The trace knows it better.
    assert!(timings.dom_interactive.unwrap() > Span::from_millis(100));
    assert_eq!(timings.interactive, timings.dom_interactive.max(timings.first_contentful_paint));
    assert_eq!((timings.objects, timings.failed), (11, 1));
    assert!(timings.connect.is_some(), "the connection is that of the redirect");
    assert!(timings.first_byte.is_some() && timings.response.is_some());
    assert!(timings.bytes > Size::from_bytes(1_500), "{:?}", timings.bytes);
    let slow = PageTimings { load: Some(Span::from_secs(2)), ..timings };
    let failed = PageTimings { load: None, objects: 5, ..timings };
    let median = PageTimings::medians(&[slow, timings, failed]);
    assert_eq!((median.load, median.objects), (timings.load, 11));
    assert_eq!(PageTimings::medians(&[]), PageTimings::default());
}

#[test]
fn a_load_is_explained_and_predicted() {
    let (load, _) = recording().load();
    let what_ifs = ["cached", "rtt=1"].map(|text| text.parse().unwrap());
    let explained = Explanation::of(&load, &what_ifs).unwrap();
    let steps = &explained.load.steps;
    assert!(steps.is_sorted_by(|one, next| one.end == next.start), "{steps:?}");
    assert_eq!(
        (steps[0].start, steps.last().unwrap().end.since(Time::ZERO)),
        (Time::ZERO, explained.replayed.load)
    );
    let shares = explained.load.shares;
    assert_eq!(shares.network + shares.computation + shares.lag, explained.replayed.load);
    // The script runs for 20 ms after the style sheet, for which the server needs 50 ms.
    assert!(shares.computation >= Span::from_millis(20) && shares.network >= Span::from_millis(50));
    assert!(explained.slack.is_sorted_by_key(|(_, slack)| *slack) && explained.slack.len() == 11);
    let [cached, same] = &explained.predictions[..] else { panic!("{explained:?}") };
    assert_eq!((cached.what_if.as_str(), same.load), ("cached", explained.replayed.load));
    assert!(cached.load < same.load);
    let background = find(&load, "background.svg");
    assert!(load.requests[background].boosted.is_some());
    let unfinished = Load { marks: Marks::default(), ..load };
    assert!(Explanation::of(&unfinished, &[]).is_none());
}

#[test]
fn a_page_of_5000_objects_is_explained() {
    let events = events();
    let picture = |event: &&Event| {
        event.params["request"]["url"].as_str().is_some_and(|url| url.ends_with("picture.svg"))
    };
    let id = &events.iter().find(picture).unwrap().params["requestId"];
    let copies = |event: &Event| -> Vec<Event> {
        let number = if event.params["requestId"] == *id { 4_990 } else { 1 };
        let copy = |number: usize| {
            let mut copy = event.clone();
            if number > 0 {
                copy.params["requestId"] = json!(format!("copy {number}"));
            }
            copy
        };
        (0..number).map(copy).collect()
    };
    let events: Vec<Event> = events.iter().flat_map(copies).collect();
    let (load, shown) = recorded(&events).load();
    assert_eq!(load.requests.len(), 5_000);
    let explained = Explanation::of(&load, &["cached".parse().unwrap()]).unwrap();
    assert!(explained.predictions[0].load < explained.replayed.load);
    // More replays would take too long.
    assert_eq!(explained.slack.len(), 10);
    assert_eq!(PageTimings::of(&load).objects, 5_000);
    let archive = recorded(&events).archive(&load, &shown, &PageName::default(), false);
    assert_eq!(archive.exchanges.len(), 5_000);
}

#[test]
fn a_har_file_has_all_requests_and_reads_back() {
    let recorder = recording();
    let (load, shown) = recorder.load();
    let name = PageName { url: "http://page.test/index.html".to_owned(), title: "Page".to_owned() };
    let archive = recorder.archive(&load, &shown, &name, false);
    let mut file = Vec::new();
    har::write(&archive, |_, _| Content::Omitted, &mut file).unwrap();
    let read = har::read(&file).unwrap();
    assert_eq!(read.archive, archive);
    assert_eq!(archive.exchanges.len(), 11);
    let statuses: Vec<u16> =
        archive.exchanges.iter().filter_map(|one| Some(one.response.as_ref()?.status)).collect();
    assert_eq!(statuses, [302, 200, 200, 200, 200, 200, 404, 200, 200, 200, 200]);
    assert_eq!(archive.pages[0].title, "Page");
    assert!(archive.pages[0].loaded.is_some());
    let second = &archive.exchanges[1].timings;
    assert!(second.wait.is_some() && second.receive.is_some() && second.connect.is_none());
    assert!(archive.connections[0].server.is_some());
    let proxied = recorder.archive(&load, &shown, &name, true);
    assert!(proxied.connections.iter().all(|connection| connection.server.is_none()));
}

#[test]
fn a_request_that_opened_a_connection_of_the_proxy_has_its_times() {
    let recorder = recording();
    let (mut load, _) = recorder.load();
    let (start, times) = (recorder.start(), load.requests[0].times);
    let at = |millis: u64| start + Span::from_millis(millis);
    let one = |host: &str, requested: u64| ProxiedConnection {
        host: host.to_owned(),
        port: 80,
        requested: at(requested),
        resolved: Some(at(requested + 1)),
        connected: Some(at(requested + 3)),
        failure: None,
    };
    let before = load.requests[1..].to_vec();
    let known = [one("other.test", 0), one("page.test", 1), one("page.test", 100_000)];
    through_proxy::correct(&mut load, start, &known);
    let corrected = load.requests[0].times;
    assert_eq!(corrected.dns_start, Some(Time::from_millis(1)));
    assert_eq!(corrected.dns_end, Some(Time::from_millis(2)));
    assert_eq!(corrected.connect_start, Some(Time::from_millis(2)));
    assert_eq!(corrected.connect_end, Some(Time::from_millis(4)));
    assert_eq!((corrected.sent, corrected.ended), (times.sent, times.ended));
    // There is no connection for the others.
    assert_eq!(load.requests[1..], before);
}

fn sent(id: &str, url: &str, is_page: bool) -> Event {
    let (loader, kind) = if is_page { (id, "Document") } else { ("page", "Image") };
    let params = json!({
        "requestId": id, "loaderId": loader, "frameId": "frame", "type": kind, "timestamp": 1.0,
        "request": {"url": url, "method": "GET"}, "initiator": {"type": "parser"},
    });
    Event { method: "Network.requestWillBeSent".to_owned(), params }
}

fn loaded() -> Event {
    Event { method: "Page.loadEventFired".to_owned(), params: json!({"timestamp": 2.0}) }
}

#[test]
fn a_page_that_goes_on_before_it_is_loaded_is_the_last_one() {
    let mut recorder = Recorder::new("frame".to_owned());
    for number in 0..=MAX_DOCUMENTS {
        recorder.handle(&sent(&number.to_string(), &format!("http://a/{number}"), true));
        recorder.handle(&sent("image", "http://a/image", false));
    }
    assert!(recorder.documents() > MAX_DOCUMENTS);
    let (load, _) = recorder.load();
    assert_eq!(load.requests.len(), 2);
    assert!(load.requests[0].url.ends_with("/20"));
    // After the load, it is another load.
    recorder.handle(&loaded());
    recorder.handle(&sent("next", "http://a/next", true));
    assert!(recorder.has_left());
    assert_eq!(recorder.load().0.requests.len(), 2);
}

#[test]
fn a_page_with_too_many_requests_is_noticed() {
    let mut recorder = Recorder::new("frame".to_owned());
    recorder.handle(&sent("page", "http://a/", true));
    for number in 1..MAX_REQUESTS {
        recorder.handle(&sent(&number.to_string(), "http://a/image", false));
    }
    assert!(!recorder.is_overfull());
    recorder.handle(&sent("more", "http://a/more", false));
    assert!(recorder.is_overfull());
    assert_eq!(recorder.load().0.requests.len(), MAX_REQUESTS);
}

#[test]
fn events_without_sense_do_no_harm() {
    let values = [json!(null), json!(-1e300), json!(1e300), json!("x"), json!([]), json!({})];
    let mut events = events();
    for event in &mut events {
        let Some(fields) = event.params.as_object_mut() else { continue };
        let names: Vec<String> = fields.keys().cloned().collect();
        for (number, name) in names.iter().enumerate() {
            if number % 3 == 0 {
                fields[name] = values[(number + name.len()) % values.len()].clone();
            }
        }
    }
    for start in 0..events.len() {
        let recorder = recorded(&events[start..]);
        let (load, shown) = recorder.load();
        recorder.archive(&load, &shown, &PageName::default(), false);
        PageTimings::of(&load);
    }
}
