use super::*;

/// Returns a request for offsets `from` to `to`, received evenly in `pieces` pieces.
fn request(colour: usize, sent: f64, over: f64, from: f64, to: f64, pieces: usize) -> Request {
    let part = |index: usize| index as f64 / pieces as f64;
    let first = sent + 0.05;
    let piece = |index: usize| Piece {
        start: first + part(index) * (over - first),
        end: first + part(index + 1) * (over - first),
        from: from + part(index) * (to - from),
        to: from + part(index + 1) * (to - from),
    };
    let pieces = (0..pieces).map(piece).collect();
    Request { colour, sent, end: over, from, to, changes: Vec::new(), pieces }
}

fn chart(requests: Vec<Request>) -> Ranges {
    let note = Note { colour: 0, text: "Wi-Fi 5 MB".into(), details: vec!["1 request".into()] };
    let panel = Panel {
        label: "one".into(),
        about: "two".into(),
        requests,
        notes: vec![note],
        end: Some((5.0, "5.00 s".into())),
        strong: true,
    };
    Ranges {
        title: "title".into(),
        description: "description".into(),
        time_label: "seconds".into(),
        offset_label: "MB".into(),
        size: 8.0,
        legend: vec!["Wi-Fi".into(), "LTE".into()],
        panels: vec![panel],
    }
}

#[test]
fn every_request_is_drawn_and_marked_if_marks_are_distinguishable() {
    for count in [1, 40, 2000] {
        let part = |index: usize| 8.0 * index as f64 / count as f64;
        let requests = (0..count).map(|index| {
            let sent = 5.0 * index as f64 / count as f64;
            request(index % 2, sent, sent + 0.1, part(index), part(index + 1), 2)
        });
        let picture = chart(requests.collect()).draw().standalone();
        assert_eq!(picture.matches("class=\"line came stroke-").count(), count, "{count}");
        // One shape per link, for any number of requests.
        assert_eq!(picture.matches("class=\"open fill-").count(), count.min(2), "{count}");
        // One further mark is in the legend.
        let marks = if count <= MAX_MARKED_REQUESTS { count + 1 } else { 0 };
        assert_eq!(picture.matches("<circle").count(), marks, "{count}");
        for label in [">one<", ">two<", ">Wi-Fi 5 MB<", ">1 request<", ">5.00 s<", ">seconds<"] {
            assert_eq!(picture.matches(label).count(), 1, "{label}");
        }
    }
}

#[test]
fn many_pieces_draw_only_visible_points() {
    let few = chart(vec![request(0, 0.0, 5.0, 0.0, 8.0, 500)]).draw().standalone().len();
    let many = chart(vec![request(0, 0.0, 5.0, 0.0, 8.0, 100_000)]).draw().standalone().len();
    assert!(many < 3 * few, "{few} {many}");
}

#[test]
fn the_column_has_the_colours_of_the_first_deliveries() {
    let panel = |requests| chart(requests).panels.remove(0);
    let wifi = request(0, 0.0, 3.0, 0.0, 4.0, 10);
    // Later than the other request, and for a part of the same range.
    let lte = request(1, 3.0, 4.0, 2.0, 8.0, 10);
    assert_eq!(panel(vec![wifi.clone(), lte]).delivered_parts(8.0), [(0, 0.0, 0.5), (1, 0.5, 1.0)]);
    // A part that no link delivered stays empty.
    let late = request(1, 0.0, 3.0, 6.0, 8.0, 1);
    assert_eq!(panel(vec![wifi, late]).delivered_parts(8.0), [(0, 0.0, 0.5), (1, 0.75, 1.0)]);
    assert_eq!(panel(Vec::new()).delivered_parts(8.0), []);
}

#[test]
fn a_line_breaks_where_bytes_are_missing() {
    let mut asked = request(0, 0.0, 4.0, 0.0, 8.0, 4);
    assert_eq!(asked.received_lines(|time| 100.0 * time, |place| 100.0 * place).len(), 1);
    asked.pieces.remove(1);
    assert_eq!(asked.received_lines(|time| 100.0 * time, |place| 100.0 * place).len(), 2);
}

#[test]
fn the_open_area_ends_at_the_changed_end() {
    let mut asked = request(0, 0.0, 2.0, 0.0, 4.0, 1);
    // The whole file was requested, then the end was moved to the middle.
    (asked.to, asked.changes) = (8.0, vec![(1.0, 4.0)]);
    let area = asked.pending_area(8.0, |time| 100.0 * time, |place| 100.0 * place);
    let lower = [(0.0, 0.0), (5.0, 0.0), (200.0, 400.0), (200.0, 400.0)];
    let upper = [(200.0, 400.0), (100.0, 400.0), (100.0, 800.0), (0.0, 800.0)];
    assert_eq!(area, [lower, upper].concat());
}

#[test]
fn nothing_at_all_still_draws() {
    let mut empty = chart(Vec::new());
    empty.panels[0].end = None;
    let picture = empty.draw().standalone();
    assert!(!picture.contains("NaN") && !picture.contains("inf"), "{picture}");
    empty.panels.clear();
    empty.size = 0.0;
    let picture = empty.draw().standalone();
    assert!(!picture.contains("NaN") && !picture.contains("inf"), "{picture}");
}
