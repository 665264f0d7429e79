//! Properties of the captures.

use manyways_capture::{CaptureStats, RunReport};

use super::{RunInfo, file_name};
use crate::flows::summary::{classes, clock_steps, percent, reasons, size, undecrypted, unread};
use manyways_report::number::{count, plural, span, utc_time};
use manyways_report::{Column, Page, TableRow};

/// Maximum number of captures with a row.
const CAPTURES: usize = 50;

/// Properties of the capture, and warnings about it.
pub fn notes(outcome: &RunReport, about: &RunInfo<'_>) -> Vec<String> {
    let (counters, summary) = (&outcome.counters, &outcome.summary);
    let mut notes = Vec::new();
    if about.is_stopped {
        notes.push(
            "The run was stopped before the end: the results cover the packets read until then."
                .to_owned(),
        );
    }
    match about.filter {
        Some(_) if about.is_anonymous => {
            notes.push("Only packets that match a filter count.".to_owned());
        }
        Some(filter) => notes.push(format!("Only packets that match this filter count: {filter}")),
        None => {}
    }
    notes.push(format!(
        "{}, Bluetooth {}; {}.",
        classes(counters),
        count(counters.bluetooth),
        plural(counters.fragments, "fragment")
    ));
    if counters.undecoded.total() > 0 {
        notes.push(format!("Not IP: {}.", reasons(&counters.undecoded)));
    }
    notes.extend(unread(counters).into_iter().map(|words| format!("Not read: {words}.")));
    notes.push(format!(
        "{}, {} with a complete handshake and no reset; {} of payload down and {} up.",
        plural(summary.flows, "TCP flow"),
        percent(summary.valid, summary.flows),
        size(summary.bytes[1]),
        size(summary.bytes[0])
    ));
    notes.push(match (outcome.lost(), summary.uncaptured) {
        (0, 0) => "The capture reports no lost packets, and every acknowledged byte was \
                   captured."
            .to_owned(),
        (lost, unseen) => format!(
            "Not captured: {} by the capture's own count; {} that were acknowledged but not captured.",
            plural(lost, "packet"),
            size(unseen)
        ),
    });
    notes.extend(undecrypted(summary).map(|quic| format!("QUIC: {quic}.")));
    notes.extend(clock_steps(counters.clock_steps_back).map(|steps| format!("{steps}.")));
    let mut count_of = |number: u64, what: &str, why: &str| {
        if number > 0 {
            notes.push(format!("{} {why}.", plural(number, what)));
        }
    };
    count_of(counters.tcp_malformed, "TCP segment", "had a truncated or invalid header");
    count_of(counters.udp_malformed, "UDP datagram", "had a truncated or invalid header");
    count_of(counters.other_fragments, "fragment", "did not complete a packet");
    count_of(
        counters.evicted,
        "flow",
        "had to be evicted before the end, because the table was full",
    );
    for (index, capture) in outcome.captures.iter().enumerate() {
        let name = capture_name(index, capture, about);
        match &capture.error {
            // The filter may contain the names of hosts.
            Some(_) if about.is_anonymous => {
                notes.push(format!("{name}: could not be read to its end."));
            }
            Some(fault) => notes.push(format!("{name}: {fault}.")),
            None => {}
        }
    }
    notes
}

fn capture_name(index: usize, capture: &CaptureStats, about: &RunInfo<'_>) -> String {
    match about.is_anonymous {
        true => format!("capture {}", index + 1),
        false => file_name(&capture.name),
    }
}

/// List of captures, if there are several.
pub fn captures(page: &mut Page, outcome: &RunReport, about: &RunInfo<'_>) {
    let all = &outcome.captures;
    if all.len() < 2 {
        return;
    }
    page.heading("The captures");
    let columns = Column::of(["Capture", "Begins", "Lasts", "Packets", "Lost"], &[0]);
    let shown = all.iter().enumerate().take(CAPTURES).map(|(index, capture)| {
        let times = capture.times;
        TableRow::plain(vec![
            capture_name(index, capture, about),
            times.map_or_else(|| "–".to_owned(), |(first, _)| utc_time(first)),
            times.map_or_else(|| "–".to_owned(), |(first, last)| span(last.since(first))),
            count(capture.packets),
            count(capture.dropped),
        ])
    });
    let mut lines: Vec<TableRow> = shown.collect();
    let rest = all.get(CAPTURES..).unwrap_or_default();
    if !rest.is_empty() {
        let sum = |of: fn(&CaptureStats) -> u64| count(rest.iter().map(of).sum());
        let name = format!("{} more", count(rest.len() as u64));
        let dash = || "–".to_owned();
        let packets = sum(|capture| capture.packets);
        let cells = vec![name, dash(), dash(), packets, sum(|capture| capture.dropped)];
        lines.push(TableRow { cells, strong: false, faint: true });
    }
    page.table(
        "Captures in reading order; lost: packets lost by the capture's own count",
        &columns,
        &lines,
    );
}
