//! A page with the course of a film.

use manyways_model::qoe::film::Film;
use manyways_model::qoe::player::{Fetched, Session};
use manyways_net::probe::{Measurement, Report};
use manyways_report::curves::{Axis, Curves, Line};
use manyways_report::number::{bits_per_second, span};
use manyways_report::{Column, Page, TableRow};
use manyways_unit::{Rate, Time};

use super::text::{COLUMNS, cells, name};

/// A session on the page.
pub(super) struct Course<'a> {
    pub(super) name: String,
    pub(super) session: &'a Session,
    pub(super) film: &'a Film,
}

pub(super) fn of_reports(target: &str, reports: &[Report]) -> String {
    let courses = reports.iter().filter_map(|report| match &report.measurement {
        Some(Measurement::Video(video)) => Some(Course {
            name: name(report, video),
            session: video.session.as_ref()?,
            film: video.film()?,
        }),
        _ => None,
    });
    let player = reports.iter().find_map(|report| match &report.measurement {
        Some(Measurement::Video(video)) => video.player.clone(),
        _ => None,
    });
    let lead = match player {
        Some(player) => format!("{target}, played by {player}."),
        None => lead(target),
    };
    page(&lead, "Network", &courses.collect::<Vec<_>>())
}

/// The first sentence, if our own player plays.
pub(super) fn lead(target: &str) -> String {
    format!("{target}, played without a screen by manyways.")
}

/// The page of sessions, whose names stand in a column with this heading.
pub(super) fn page(lead: &str, heading: &str, courses: &[Course<'_>]) -> String {
    let mut page = Page::new("A film", lead);
    page.heading("Result");
    let names = COLUMNS.map(capitalised);
    let mut headings = [heading; COLUMNS.len() + 1];
    for (place, name) in headings.iter_mut().skip(1).zip(&names) {
        *place = name;
    }
    let rows = courses.iter().map(|course| {
        let mut row = vec![course.name.clone()];
        row.extend(cells(course.session, course.film));
        TableRow::plain(row)
    });
    let columns = Column::of(headings, &[0]);
    page.table("The session of each player", &columns, &rows.collect::<Vec<_>>());
    page.heading("Over time");
    let mut draw =
        |title: &str, about: &str, y_axis: Axis, points: &dyn Fn(&Course<'_>) -> Points| {
            let lines = courses.iter().map(|course| Line {
                name: course.name.clone(),
                points: points(course),
                is_filled: false,
            });
            let curves = Curves {
                title: title.to_owned(),
                description: about.to_owned(),
                x_axis: Axis::linear("seconds"),
                y_axis,
                lines: lines.collect(),
            };
            page.figure(&curves.draw(), about);
        };
    let rates = || Axis { format: bits_per_second, ..Axis::linear("rate") };
    draw("Bitrate", "Nominal bitrate of each segment, when it was complete.", rates(), &bitrates);
    draw("Throughput", "Rate of each download, from request to end.", rates(), &throughputs);
    draw("Buffer", "Level of the buffer in seconds, at each request.", Axis::linear("s"), &levels);
    page.heading("Stalls");
    let stalls = courses.iter().flat_map(|course| {
        course.session.stalls.iter().map(|stall| {
            let (duration, position) = (span(stall.duration), span(stall.position));
            format!("{}: {duration} at {position} of the film", course.name)
        })
    });
    let mut notes: Vec<String> = stalls.collect();
    if notes.is_empty() {
        notes.push("There was no stall.".to_owned());
    }
    page.notes(&notes);
    page.html("manyways probe video")
}

type Points = Vec<(f64, f64)>;

fn at(course: &Course<'_>, time: Time) -> f64 {
    time.since(course.session.started).as_secs_f64()
}

/// A step from each segment to the next.
fn bitrates(course: &Course<'_>) -> Points {
    let mut points = Points::new();
    for segment in &course.session.segments {
        let (at, bitrate) = (at(course, segment.complete), course.film.bitrate(segment.rung));
        if let Some(&(_, before)) = points.last() {
            points.push((at, before));
        }
        points.push((at, bitrate));
    }
    points
}

fn throughputs(course: &Course<'_>) -> Points {
    let rate =
        |one: &Fetched| Rate::of(one.size, one.complete.since(one.requested)).as_bps() as f64;
    course.session.segments.iter().map(|one| (at(course, one.complete), rate(one))).collect()
}

fn levels(course: &Course<'_>) -> Points {
    let segments = course.session.segments.iter();
    segments.map(|one| (at(course, one.requested), one.level.as_secs_f64())).collect()
}

fn capitalised(text: &str) -> String {
    let mut letters = text.to_lowercase();
    if let Some(first) = letters.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    letters
}
