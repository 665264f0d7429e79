use manyways_model::qoe::film::Segment;
use serde_json::{Value, json};

use super::*;

/// Six segments of 2 s, at 300 and 900 kbit/s.
fn film() -> Film {
    let rungs = vec![Rate::from_kbps(300), Rate::from_kbps(900)];
    let segment = Segment { duration: Span::from_secs(2), sizes: vec![None; 2] };
    Film::new(rungs, vec![segment; 6]).unwrap()
}

/// A download of the segment that starts at `start`, from `requested` until half a second later.
fn load(start: f64, kbps: u64, requested: f64, bytes: u64) -> Value {
    json!({
        "is_media": true, "start": start, "duration": 2.0, "rate": kbps * 1_000,
        "requested": requested, "first_byte": requested + 0.1, "complete": requested + 0.5,
        "buffer": 1.5, "position": 0, "bytes": bytes, "outcome": "complete",
    })
}

fn with(mut load: Value, field: &str, value: impl Into<Value>) -> Value {
    load[field] = value.into();
    load
}

fn course(report: &Value) -> Course {
    let mut course = Course::default();
    course.extend(serde_json::from_value(report.clone()).unwrap()).unwrap();
    course
}

fn of_loads(loads: Vec<Value>) -> Session {
    course(&json!({"now": 9.0, "startup": 0.6, "position": 3.0, "loads": loads})).session(&film())
}

fn secs(seconds: f64) -> Span {
    Span::from_secs_f64(seconds)
}

#[test]
fn downloads_become_segments_in_the_order_of_the_film() {
    // Starts of players differ from those of the manifest by rounding.
    let session = of_loads(vec![
        load(0.0, 300, 0.0, 70_000),
        load(3.9999, 900, 0.6, 220_000),
        load(2.0001, 900, 1.2, 210_000),
    ]);
    let rungs: Vec<usize> = session.segments.iter().map(|segment| segment.rung).collect();
    let sizes: Vec<u64> = session.segments.iter().map(|segment| segment.size.as_bytes()).collect();
    assert_eq!((rungs, sizes), (vec![0, 1, 1], vec![70_000, 210_000, 220_000]));
    assert_eq!((session.switches(), session.wasted()), (1, Size::ZERO));
    assert_eq!(session.mean_bitrate(&film()), Rate::from_kbps(700));
    assert_eq!((session.startup, session.played), (Some(secs(0.6)), secs(3.0)));
    assert_eq!(session.duration(), secs(9.0));
    let last = session.segments[2];
    assert_eq!(last.requested, time(Some(0.6)));
    assert_eq!((last.first_byte, last.complete), (time(Some(0.7)), time(Some(1.1))));
    assert_eq!((last.level, last.duration, last.attempts), (secs(1.5), secs(2.0), 1));
}

#[test]
fn a_segment_that_is_loaded_again_replaces_the_one_that_was_not_played() {
    let better = |position: f64| {
        of_loads(vec![
            load(0.0, 300, 0.0, 70_000),
            load(2.0, 300, 0.6, 75_000),
            with(load(2.0, 900, 1.2, 220_000), "position", position),
        ])
    };
    let session = better(1.9);
    let sizes: Vec<u64> = session.segments.iter().map(|segment| segment.size.as_bytes()).collect();
    assert_eq!(sizes, [70_000, 220_000]);
    assert_eq!((session.segments[1].rung, session.wasted().as_bytes()), (1, 75_000));
    // It came when its beginning had been played.
    let session = better(2.1);
    assert_eq!((session.segments[1].rung, session.wasted().as_bytes()), (0, 220_000));
    assert_eq!(session.segments.len(), 2);
}

#[test]
fn downloads_that_failed_or_were_abandoned_are_wasted() {
    let session = of_loads(vec![
        load(0.0, 300, 0.0, 70_000),
        with(load(2.0, 900, 0.6, 20), "outcome", "failed"),
        with(load(2.0, 900, 2.0, 50_000), "outcome", "abandoned"),
        load(2.0, 300, 2.6, 75_000),
    ]);
    assert_eq!(session.segments.len(), 2);
    assert_eq!((session.segments[0].attempts, session.segments[1].attempts), (1, 2));
    assert_eq!((session.failures, session.wasted().as_bytes()), (1, 50_020));
    let received = Size::from_bytes(50_000);
    let abandoned = Abandoned { segment: 1, rung: 1, at: time(Some(2.5)), received };
    assert_eq!(session.abandoned, [abandoned]);
}

#[test]
fn pauses_are_times_without_a_download_after_a_complete_one() {
    let other = |requested| with(load(0.0, 300, requested, 800), "is_media", false);
    let session = of_loads(vec![
        // Before the first segment, the player reads the manifest.
        other(0.0),
        load(0.0, 300, 3.0, 70_000),
        // 50 ms are its own.
        load(2.0, 300, 3.55, 75_000),
        // An initialization is a download, too.
        other(4.15),
        with(load(4.0, 900, 4.65, 10), "outcome", "failed"),
        // The wait after a failure is not a pause.
        load(4.0, 900, 7.0, 220_000),
        load(6.0, 900, 9.0, 220_000),
    ]);
    let pause = |at, duration| Pause { at: time(Some(at)), duration: secs(duration) };
    assert_eq!(session.pauses, [pause(4.05, 0.1), pause(7.5, 1.5)]);
}

#[test]
fn short_stalls_are_artefacts_and_the_last_one_counts_while_it_lasts() {
    let stall = |at: f64, duration: f64| json!({"at": at, "position": 2.0, "duration": duration});
    let report = |more: Value| {
        let mut report = json!({
            "now": 9.0, "startup": 0.5, "position": 6.0,
            "stalls": [stall(2.0, 0.049), stall(3.0, 0.05)], "stall": stall(8.0, 1.0),
        });
        for (field, value) in more.as_object().unwrap() {
            report[field] = value.clone();
        }
        course(&report)
    };
    let session = report(json!({})).session(&film());
    assert_eq!(session.stalled(), secs(1.05));
    let first = Stall { at: time(Some(3.0)), position: secs(2.0), duration: secs(0.05) };
    assert_eq!(session.stalls[0], first);
    // The player has given up.
    let failed = report(json!({"errors": ["4.m4s is not available", "another"]}));
    assert_eq!(failed.error(), Some("4.m4s is not available"));
    assert_eq!(failed.session(&film()).stalled(), secs(0.05));
    // The picture stops some milliseconds before the end of the film.
    let ended = report(json!({"ended": 8.0, "position": 11.96}));
    let session = ended.session(&film());
    assert!(ended.has_ended());
    assert_eq!((session.played, session.duration()), (secs(12.0), secs(8.0)));
    assert_eq!(session.stalled(), secs(0.05));
}

#[test]
fn reports_are_joined() {
    let mut course = Course::default();
    for start in [0.0, 2.0] {
        let loads = [load(start, 300, start, 70_000)];
        let taken = json!({"now": start, "position": start, "loads": loads});
        course.extend(serde_json::from_value(taken).unwrap()).unwrap();
    }
    assert_eq!(course.session(&film()).segments.len(), 2);
    assert_eq!(course.carried(), Carried { bytes: Size::from_bytes(140_000), requests: 2 });
    assert_eq!(course.position(), Some(2.0));
}

#[test]
fn numbers_that_no_player_has_are_bounded() {
    let wild = [json!(null), json!(-1e300), json!(1e300), json!(-0.0)];
    for value in &wild {
        let fields = ["start", "duration", "rate", "requested", "first_byte", "complete", "buffer"];
        let mut loads: Vec<Value> =
            fields.iter().map(|field| with(load(0.0, 300, 1.0, 1), field, value.clone())).collect();
        loads.push(with(load(0.0, 300, 1.0, 1), "bytes", value.clone()));
        let mut report = json!({"loads": loads, "stall": {"at": value, "duration": value}});
        for field in ["now", "startup", "position"] {
            report[field] = value.clone();
        }
        let course = course(&report);
        let session = course.session(&film());
        assert!(session.segments.len() <= 1 && session.played <= film().duration(), "{session:?}");
        assert!(session.stalled() <= secs(MAX_SECONDS), "{session:?}");
        let _ = (session.wasted(), session.throughput(), session.mean_bitrate(&film()));
    }
    // Rungs and parts of other films are left out.
    let session = of_loads(vec![load(0.0, 400, 0.0, 1), load(12.0, 300, 1.0, 1)]);
    assert_eq!(session.segments, []);
    for text in ["", "null", r#"{"now": "soon"}"#, r#"{"loads": [{"outcome": "lost"}]}"#] {
        assert!(serde_json::from_str::<Taken>(text).is_err(), "{text}");
    }
}

#[test]
fn a_page_that_reports_without_end_is_stopped() {
    let mut course = Course::default();
    let many = || Taken { stalls: vec![Waiting::default(); MAX_EVENTS], ..Taken::default() };
    assert_eq!(course.extend(many()), Ok(()));
    assert!(course.extend(many()).unwrap_err().contains("100000 events"));
}
