//! Result of an alignment as text.

use std::fmt::Write;

use manyways_capture::Alignment;
use manyways_flows::align::{
    Carries, Clock, Difference, How, Name, Pair, Part, Place, Point, Trust, Way,
};
use manyways_unit::Span;
use manyways_unit::human::printable;

use super::document::{bytes, name};

/// Maximum number of streams per pair, longest first.
const STREAMS: usize = 8;

pub fn text(alignment: &Alignment) -> String {
    let Alignment { captures, points, report } = alignment;
    let mut text = String::new();
    let label = |number: usize| {
        let place = points.get(number).map_or(Place::Other, |point| point.place);
        match place {
            Place::Other => format!("point {}", number + 1),
            place => self::place(place).to_owned(),
        }
    };
    for (number, (capture, point)) in captures.iter().zip(points).enumerate() {
        let _ = writeln!(
            text,
            "{:<12} {}: {} packets, {}",
            label(number),
            printable(&capture.name),
            capture.packets,
            match streams(point) {
                1 => "1 stream".to_owned(),
                count => format!("{count} streams"),
            }
        );
        if capture.left_out > 0 {
            let _ = writeln!(text, "{:<12} {} more were left out", "", capture.left_out);
        }
    }
    for pair in &report.pairs {
        let [one, other] = pair.points.map(label);
        let _ = writeln!(text, "\n{one} to {other}");
        matched(&mut text, pair, points);
        if let Some(clock) = &pair.clock {
            clocks(&mut text, clock, &one, &other);
        }
    }
    if report.parts.is_empty() {
        return text;
    }
    let _ = writeln!(
        text,
        "\n{:<34} {:>8} {:>10} {:>10} {:>10} {:>10}",
        "Delay", "Count", "Min", "Median", "p95", "Max"
    );
    for part in &report.parts {
        let _ = writeln!(text, "{}", line(part, &part.points.map(label)));
    }
    text.push('\n');
    for part in &report.parts {
        let _ = writeln!(text, "{}: {}", heading(part, &part.points.map(label)), believed(part));
    }
    text
}

/// The name of a place in arguments.
pub fn place(place: Place) -> &'static str {
    match place {
        Place::Server => "server",
        Place::PhoneIn => "phone-in",
        Place::PhoneOut => "phone-out",
        Place::Wearable => "wearable",
        Place::Other => "other",
    }
}

/// Number of streams with bytes at a point.
pub fn streams(point: &Point) -> usize {
    let has_bytes = |origin: &manyways_flows::align::Origin| origin.carries == Carries::Bytes;
    point.tracks.iter().filter(|track| track.origin().is_none_or(has_bytes)).count()
}

fn matched(text: &mut String, pair: &Pair, points: &[Point]) {
    let [one, other] = pair.points;
    let mut found: Vec<_> =
        pair.streams.iter().filter(|stream| stream.carries == Carries::Bytes).collect();
    found.sort_by_key(|stream| std::cmp::Reverse(bytes(stream)));
    if found.is_empty() {
        text.push_str("  no stream was recognised\n");
    }
    for stream in found.iter().take(STREAMS) {
        let names =
            [name(points, one, stream.found.first), name(points, other, stream.found.second)];
        let names = match &names {
            [one, other] if one == other => one.clone(),
            [one, other] => format!("{one} is {other}"),
        };
        let how = match stream.found.how {
            How::Ends => "same ends and first numbers",
            How::Numbers => "same first numbers",
            How::EndsOnly => "same ends, and numbers that overlap",
            How::NumberOnly => "same first number one way",
            How::Content => "same bytes",
        };
        let _ = writeln!(text, "  {names}: {} bytes ({how})", bytes(stream));
    }
    if let Some(more @ 1..) = found.len().checked_sub(STREAMS) {
        let _ = writeln!(text, "  and {more} more");
    }
    for track in &pair.ambiguous {
        let name = name(points, other, *track);
        let _ = writeln!(
            text,
            "  {name}: its bytes are in several streams or too few, so it is left out"
        );
    }
}

fn clocks(text: &mut String, clock: &Clock, one: &str, other: &str) {
    let mut said = match clock.offset {
        Some(offset) => format!(
            "the clock of {other} is {} {} that of {one}",
            span(offset.size()),
            if offset < Difference::default() { "behind" } else { "ahead of" }
        ),
        None => "bytes went one way only, so the clocks' offset is not known".to_owned(),
    };
    if let Some(bound) = clock.bound {
        let _ = write!(said, ", within {}", span(bound));
    }
    if let Some(drift) = clock.drift {
        let _ = write!(said, "; drift {drift}");
    }
    if let Some(residual) = clock.residual {
        let _ = write!(said, "; residual {}", span(residual));
    }
    if !clock.is_steady {
        said.push_str("; a clock was set in between, or is not steady");
    }
    let _ = writeln!(text, "  {said}");
}

fn heading(part: &Part, [one, other]: &[String; 2]) -> String {
    let (from, to) = match part.way {
        Way::Along => (one, other),
        Way::Against => (other, one),
    };
    match part.name {
        Name::Other => format!("{from} to {to}"),
        name => format!("{} {from} to {to}", name.name()),
    }
}

fn line(part: &Part, labels: &[String; 2]) -> String {
    let all = &part.all;
    let [least, median, p95, most] = [all.least, all.median, all.p95, all.most].map(millis);
    format!(
        "{:<34} {:>8} {least:>10} {median:>10} {p95:>10} {most:>10}",
        heading(part, labels),
        all.count
    )
}

/// Explanation of the accuracy.
fn believed(part: &Part) -> String {
    match part.trust {
        Trust::OneClock => "both times are of one clock: exact".to_owned(),
        Trust::Within(bound) => format!(
            "of two clocks: all of these may be too long or too short by the same time, up to {}; \
             differences among them are right",
            span(bound)
        ),
        Trust::AboveLeast => {
            "of two clocks and one direction only: each is relative to the shortest".to_owned()
        }
        Trust::Unsteady => "a clock is not steady: do not rely on these".to_owned(),
    }
}

fn millis(difference: Difference) -> String {
    format!("{:.3} ms", difference.as_secs_f64() * 1e3)
}

fn span(span: Span) -> String {
    match span.as_secs_f64() {
        secs if secs >= 1.0 => format!("{secs:.6} s"),
        secs => format!("{:.3} ms", secs * 1e3),
    }
}
