//! Result of an alignment as text.

use std::fmt::Write;

use manyways_capture::Alignment;
use manyways_flows::align::{
    Accuracy, ChainDirection, ClockAlignment, Difference, MatchEvidence, Pair, Part, PartName,
    Point, PointLocation, TrackContent,
};
use manyways_unit::Span;
use manyways_unit::human::printable;

use super::document::{matched_bytes, stream_name};

/// Maximum number of streams per pair, longest first.
const MAX_STREAMS: usize = 8;

pub fn text(alignment: &Alignment) -> String {
    let Alignment { captures, points, report } = alignment;
    let mut text = String::new();
    let label = |number: usize| {
        let location = points.get(number).map_or(PointLocation::Other, |point| point.location);
        match location {
            PointLocation::Other => format!("point {}", number + 1),
            location => role_name(location).to_owned(),
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
        if capture.skipped > 0 {
            let _ = writeln!(text, "{:<12} {} more were skipped", "", capture.skipped);
        }
    }
    for pair in &report.pairs {
        let [one, other] = pair.points.map(label);
        let _ = writeln!(text, "\n{one} to {other}");
        matched_streams(&mut text, pair, points);
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
        let _ =
            writeln!(text, "{}: {}", heading(part, &part.points.map(label)), accuracy_text(part));
    }
    text
}

/// The name of a location in arguments.
pub fn role_name(location: PointLocation) -> &'static str {
    match location {
        PointLocation::Server => "server",
        PointLocation::PhoneIn => "phone-in",
        PointLocation::PhoneOut => "phone-out",
        PointLocation::Wearable => "wearable",
        PointLocation::Other => "other",
    }
}

/// Number of streams with bytes at a point.
pub fn streams(point: &Point) -> usize {
    let has_bytes =
        |origin: &manyways_flows::align::SequenceSource| origin.content == TrackContent::Bytes;
    point.tracks.iter().filter(|track| track.source().is_none_or(has_bytes)).count()
}

fn matched_streams(text: &mut String, pair: &Pair, points: &[Point]) {
    let [one, other] = pair.points;
    let mut found: Vec<_> =
        pair.streams.iter().filter(|stream| stream.content == TrackContent::Bytes).collect();
    found.sort_by_key(|stream| std::cmp::Reverse(matched_bytes(stream)));
    if found.is_empty() {
        text.push_str("  no stream was matched\n");
    }
    for stream in found.iter().take(MAX_STREAMS) {
        let names = [
            stream_name(points, one, stream.matched.first),
            stream_name(points, other, stream.matched.second),
        ];
        let names = match &names {
            [one, other] if one == other => one.clone(),
            [one, other] => format!("{one} is {other}"),
        };
        let how = match stream.matched.evidence {
            MatchEvidence::TupleAndIsns => "same addresses, ports and initial sequence numbers",
            MatchEvidence::BothIsns => "same initial sequence numbers",
            MatchEvidence::Tuple => "same addresses and ports, overlapping sequence numbers",
            MatchEvidence::OneIsn => "same initial sequence number in one direction",
            MatchEvidence::Content => "same bytes",
        };
        let _ = writeln!(text, "  {names}: {} bytes ({how})", matched_bytes(stream));
    }
    if let Some(more @ 1..) = found.len().checked_sub(MAX_STREAMS) {
        let _ = writeln!(text, "  and {more} more");
    }
    for track in &pair.ambiguous {
        let name = stream_name(points, other, *track);
        let _ = writeln!(
            text,
            "  {name}: skipped, because its bytes are too few or occur in several streams"
        );
    }
}

fn clocks(text: &mut String, clock: &ClockAlignment, one: &str, other: &str) {
    let mut said = match clock.offset {
        Some(offset) => format!(
            "the clock of {other} is {} {} that of {one}",
            span(offset.abs()),
            if offset < Difference::default() { "behind" } else { "ahead of" }
        ),
        None => "bytes went in one direction only, so the clock offset is unknown".to_owned(),
    };
    if let Some(bound) = clock.max_error {
        let _ = write!(said, ", within {}", span(bound));
    }
    if let Some(drift) = clock.drift {
        let _ = write!(said, "; drift {drift}");
    }
    if let Some(residual) = clock.residual {
        let _ = write!(said, "; residual {}", span(residual));
    }
    if !clock.is_steady {
        said.push_str("; a clock was set during the capture, or is not steady");
    }
    let _ = writeln!(text, "  {said}");
}

fn heading(part: &Part, [one, other]: &[String; 2]) -> String {
    let (from, to) = match part.direction {
        ChainDirection::Forward => (one, other),
        ChainDirection::Reverse => (other, one),
    };
    match part.name {
        PartName::Other => format!("{from} to {to}"),
        name => format!("{} {from} to {to}", name.name()),
    }
}

fn line(part: &Part, labels: &[String; 2]) -> String {
    let all = &part.all;
    let [least, median, p95, most] = [all.min, all.median, all.p95, all.max].map(millis);
    format!(
        "{:<34} {:>8} {least:>10} {median:>10} {p95:>10} {most:>10}",
        heading(part, labels),
        all.count
    )
}

/// Explanation of the accuracy.
fn accuracy_text(part: &Part) -> String {
    match part.accuracy {
        Accuracy::OneClock => "exact: both times are from one clock".to_owned(),
        Accuracy::ErrorBound(bound) => format!(
            "from two clocks: all values may be wrong by one common offset of up to {}; \
             differences between values are exact",
            span(bound)
        ),
        Accuracy::RelativeToMin => {
            "from two clocks and one direction: each value is relative to the minimum".to_owned()
        }
        Accuracy::Unsteady => "a clock is not steady: do not use these values".to_owned(),
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
