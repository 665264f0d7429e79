//! The report of a run: one HTML page.

mod charts;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::net::IpAddr;

use manyways_capture::{Capture, Outcome};
use manyways_flows::analysis::{Distribution, LOSSES, Overview, Party, Slow};
use manyways_flows::flow::{Limit, LimitedBy};
use manyways_unit::Span;

use super::summary;
use super::summary::{count, duration, lost, meaning, percent, plural, reasons, size};
use manyways_report::number::{cut, moment, rate, share, span, time_of_day};
use manyways_report::svg::number;
use manyways_report::{Column, Line, Page};

/// Maximum number of servers, and of clients, with a row.
const PARTIES: usize = 15;
/// Maximum number of captures with a row.
const CAPTURES: usize = 50;
/// Maximum length of names and other long texts, in characters.
const NAME: usize = 30;
const SHORT: usize = 16;

/// Arguments of the run.
pub struct About<'a> {
    pub filter: Option<&'a str>,
    /// Whether addresses and names are anonymized.
    pub is_anonymous: bool,
    /// Whether a signal stopped the run.
    pub is_stopped: bool,
}

/// Returns the whole report.
pub fn html(outcome: &Outcome, about: &About<'_>) -> String {
    let empty = Overview::default();
    let overview = outcome.summary.overview.as_deref().unwrap_or(&empty);
    let mut page = Page::new(&title(outcome, about), &lead(outcome));
    page.highlights(&highlights(outcome));
    if let Some(drawing) = charts::timeline(outcome) {
        page.heading("How much passed when");
        let caption = format!(
            "Frames in steps of {}. Down: TCP and UDP from servers; up: from clients; the rest is \
             everything else, where there is some.",
            span(outcome.counters.timeline.width())
        );
        page.figure(&drawing, &caption);
    }
    if let Some(drawing) = charts::limits(outcome, overview) {
        page.heading("What limits servers");
        page.figure(
            &drawing,
            "Shares of the time between the data segments of servers, in TCP flows; behind a bar \
             how long that is in all flows together. A long flow counts more.",
        );
        let means = |limit| format!("{}: {}.", summary::words(limit), meaning(limit));
        page.notes(&charts::LIMITS.map(means));
    }
    round_trips(&mut page, outcome);
    losses(&mut page, outcome, overview);
    responses(&mut page, overview);
    if let Some(drawing) = charts::windows(overview) {
        page.heading("First congestion windows of servers");
        let bounds = match overview.bounded_windows {
            0 => String::new(),
            flows => format!(
                " Of {} only a lower bound is known: they are left out.",
                plural(flows, "flow")
            ),
        };
        let caption = "Data that servers send before the first acknowledgment can reach them.";
        page.figure(&drawing, &format!("{caption}{bounds}"));
    }
    slow(&mut page, overview);
    let (servers, others) = overview.servers(PARTIES);
    parties(&mut page, "Servers", "by registered domain", "Organisation", &servers, &others);
    let (clients, others) = overview.clients(PARTIES);
    parties(&mut page, "Clients", "by address", "System", &clients, &others);
    carried(&mut page, overview);
    page.heading("The capture");
    page.notes(&capture(outcome, about));
    captures(&mut page, outcome, about);
    page.heading("How to read this");
    page.notes(&HOW_TO_READ.map(str::to_owned));
    page.html(&format!("manyways {} flows", env!("CARGO_PKG_VERSION")))
}

const HOW_TO_READ: [&str; 5] = [
    "A round trip has two halves: local, between the capture point and the local end, and remote, \
     behind it. A local half that is long means this side's access network, mostly Wi-Fi; a remote \
     one means distance.",
    "Loss is local or remote alike: on which side of the capture point a segment went missing. What \
     the capture itself missed does not count.",
    "The servicing rate is how fast requests of HTTP/1 are answered: their bytes by the time from \
     each request to the last byte of its response.",
    "Inferred response times are from changes of direction in encrypted data, which \
     approximate requests and responses.",
    "The tables of -o have a row for each flow, with all of this and more; manyways flows ask \
     answers questions about them.",
];

fn title(outcome: &Outcome, about: &About<'_>) -> String {
    match &outcome.captures[..] {
        [capture] if !about.is_anonymous => format!("Traffic in {}", file_name(&capture.name)),
        captures => format!("Traffic in {}", plural(captures.len() as u64, "capture")),
    }
}

fn file_name(path: &str) -> String {
    let name = std::path::Path::new(path).file_name();
    cut(&name.map_or(path.into(), |name| name.to_string_lossy()), 60)
}

fn lead(outcome: &Outcome) -> String {
    let counters = &outcome.counters;
    let Some((first, last)) = counters.first.zip(counters.last) else {
        return "There is no packet in it.".to_owned();
    };
    format!(
        "{} and {} in {}, from {} to {}",
        plural(counters.packets, "packet"),
        size(counters.bytes),
        duration(outcome),
        moment(first),
        moment(last)
    )
}

fn highlights(outcome: &Outcome) -> Vec<(String, String)> {
    let summary = &outcome.summary;
    let mut highlights = vec![("TCP flows".to_owned(), count(summary.flows))];
    let mut add = |what: &str, much: String| highlights.push((what.to_owned(), much));
    if let Some(median) = summary.rtt.median() {
        let flows = count(summary.rtt.count());
        add(&format!("Median round trip of {flows} of these flows"), span(median));
    }
    if summary.data_segments > 0 {
        let lost = summary.lost.iter().sum();
        add("Data packets lost", percent(lost, summary.data_segments));
    }
    // The first value alone would hide its share of the time.
    let mut limits = Limit::ALL;
    limits.sort_by_key(|limit| Reverse(summary.limited_by.span(*limit)));
    let limits = limits.into_iter().filter(|limit| !summary.limited_by.span(*limit).is_zero());
    let (names, shares): (Vec<String>, Vec<String>) = limits
        .take(2)
        .map(|limit| {
            let much = summary.limited_by.span(limit);
            (summary::words(limit), share(much, summary.limited_by.all()))
        })
        .unzip();
    if !names.is_empty() {
        add(&format!("Servers limited by {}", names.join(", then ")), shares.join(", "));
    }
    highlights
}

/// Properties of the capture, and warnings about it.
fn capture(outcome: &Outcome, about: &About<'_>) -> Vec<String> {
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
    let opaque: u64 = counters.opaque.values().sum();
    notes.push(format!(
        "TCP {}, UDP {}, other IP {}, not IP {}, Bluetooth {}; {}.",
        count(counters.tcp),
        count(counters.udp),
        count(counters.others),
        count(opaque),
        count(counters.bluetooth),
        plural(counters.fragments, "fragment")
    ));
    if opaque > 0 {
        notes.push(format!("Not IP: {}.", reasons(&counters.opaque)));
    }
    notes.push(format!(
        "{}, {} with a whole handshake and no reset; {} of payload down and {} up.",
        plural(summary.flows, "TCP flow"),
        percent(summary.valid, summary.flows),
        size(summary.bytes[1]),
        size(summary.bytes[0])
    ));
    notes.push(match (lost(outcome), summary.unseen) {
        (0, 0) => "The capture counts no packet that it lost, and nothing was acknowledged that it \
                   did not see."
            .to_owned(),
        (lost, unseen) => format!(
            "Not captured: {} by the capture's own count; {} that were acknowledged and never seen.",
            plural(lost, "packet"),
            size(unseen)
        ),
    });
    let mut count_of = |number: u64, what: &str, why: &str| {
        if number > 0 {
            notes.push(format!("{} {why}.", plural(number, what)));
        }
    };
    count_of(counters.tcp_broken, "TCP segment", "had a truncated or invalid header");
    count_of(counters.steps_back, "time", "the clock of the capture stepped back");
    count_of(
        counters.evicted,
        "flow",
        "had to be evicted before the end, because the table was full",
    );
    for (index, capture) in outcome.captures.iter().enumerate() {
        let name = capture_name(index, capture, about);
        match &capture.fault {
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

fn capture_name(index: usize, capture: &Capture, about: &About<'_>) -> String {
    match about.is_anonymous {
        true => format!("capture {}", index + 1),
        false => file_name(&capture.name),
    }
}

/// List of captures, if there are several.
fn captures(page: &mut Page, outcome: &Outcome, about: &About<'_>) {
    let all = &outcome.captures;
    if all.len() < 2 {
        return;
    }
    page.heading("The captures");
    let columns = [
        ("Capture", Column::Words),
        ("Begins", Column::Figures),
        ("Lasts", Column::Figures),
        ("Packets", Column::Figures),
        ("Lost", Column::Figures),
    ];
    let shown = all.iter().enumerate().take(CAPTURES).map(|(index, capture)| {
        let times = capture.times;
        Line {
            cells: vec![
                capture_name(index, capture, about),
                times.map_or_else(|| "–".to_owned(), |(first, _)| moment(first)),
                times.map_or_else(|| "–".to_owned(), |(first, last)| span(last.since(first))),
                count(capture.packets),
                count(capture.missed),
            ],
            strong: false,
            faint: false,
        }
    });
    let mut lines: Vec<Line> = shown.collect();
    let rest = all.get(CAPTURES..).unwrap_or_default();
    if !rest.is_empty() {
        let sum = |of: fn(&Capture) -> u64| count(rest.iter().map(of).sum());
        let name = format!("{} more", count(rest.len() as u64));
        let dash = || "–".to_owned();
        let packets = sum(|capture| capture.packets);
        let cells = vec![name, dash(), dash(), packets, sum(|capture| capture.missed)];
        lines.push(Line { cells, strong: false, faint: true });
    }
    page.table("In the order in which they were read; lost by their own count", &columns, &lines);
}

/// A histogram as cells of a row: count and quantiles.
fn quantiles<Q: manyways_flows::analysis::Quantity>(
    name: &str,
    found: &Distribution<Q>,
    words: impl Fn(Q) -> String,
) -> Option<Line> {
    let of = |part: f64| found.quantile(part).map_or_else(String::new, &words);
    let mut cells = vec![name.to_owned(), count(found.count())];
    cells.extend([0.1, 0.25, 0.5, 0.75, 0.9, 0.99].map(of));
    (found.count() > 0).then_some(Line { cells, strong: false, faint: false })
}

const QUANTILES: [(&str, Column); 8] = [
    ("", Column::Words),
    ("Count", Column::Figures),
    ("10 %", Column::Figures),
    ("25 %", Column::Figures),
    ("Median", Column::Figures),
    ("75 %", Column::Figures),
    ("90 %", Column::Figures),
    ("99 %", Column::Figures),
];

fn round_trips(page: &mut Page, outcome: &Outcome) {
    let summary = &outcome.summary;
    if summary.rtt.count() + summary.local_rtt.count() + summary.remote_rtt.count() == 0 {
        return;
    }
    let all =
        [("whole", &summary.rtt), ("local", &summary.local_rtt), ("remote", &summary.remote_rtt)];
    page.heading("Round trips");
    if let Some(drawing) = charts::spans("Round trips of TCP flows", &all, "of flows") {
        let caption = "Share of the TCP flows with a median round-trip time of at most this value.";
        page.figure(&drawing, caption);
    }
    let lines =
        all.iter().filter_map(|(name, found)| quantiles(name, found, span)).collect::<Vec<_>>();
    page.table("Flows' medians: number of flows, and quantiles", &QUANTILES, &lines);
}

fn losses(page: &mut Page, outcome: &Outcome, overview: &Overview) {
    let summary = &outcome.summary;
    if summary.data_segments == 0 {
        return;
    }
    page.heading("Loss");
    let [first, second, third] = LOSSES.map(|end| format!("to {} %", number(end * 100.0)));
    let over = format!("over {} %", number(LOSSES[2] * 100.0));
    let columns = [
        ("Side", Column::Words),
        ("Lost", Column::Figures),
        ("Rate", Column::Figures),
        ("Flows without", Column::Figures),
        (&first, Column::Figures),
        (&second, Column::Figures),
        (&third, Column::Figures),
        (&over, Column::Figures),
    ];
    let sides = ["local", "remote"].iter().zip(summary.lost).zip(&overview.losses);
    let lines = sides.map(|((side, lost), classes)| {
        let mut cells = vec![(*side).to_owned(), count(lost), percent(lost, summary.data_segments)];
        cells.extend(classes.iter().map(|flows| count(*flows)));
        Line { cells, strong: false, faint: false }
    });
    let caption = format!(
        "Of {} data packets; {} retransmitted, {} of these spuriously. Right: flows by how much of \
         their data was lost.",
        count(summary.data_segments),
        count(summary.again),
        count(summary.spurious)
    );
    page.table(&caption, &columns, &lines.collect::<Vec<_>>());
}

fn responses(page: &mut Page, overview: &Overview) {
    let all = [
        ("HTTP/1", &overview.responses),
        ("inferred", &overview.inferred_responses),
        ("DNS", &overview.lookups),
    ];
    if all.iter().any(|(_, found)| found.count() > 0) {
        page.heading("How soon responses begin");
        if let Some(drawing) = charts::spans("Response times", &all, "of responses") {
            let caption = "Share of the responses that begin within this time after their request.";
            page.figure(&drawing, caption);
        }
        let lines: Vec<Line> =
            all.iter().filter_map(|(name, found)| quantiles(name, found, span)).collect();
        page.table("Time from a request to its response", &QUANTILES, &lines);
    }
    let found = &overview.servicing_rate;
    if let Some(line) = quantiles("Servicing rate", found, rate) {
        page.heading("How fast requests are answered");
        if let Some(drawing) = charts::rates(found) {
            let caption =
                "Which part of the flows with HTTP/1 has a servicing rate of at most so much.";
            page.figure(&drawing, caption);
        }
        page.table("Flows with HTTP/1", &QUANTILES, &[line]);
    }
}

fn slow(page: &mut Page, overview: &Overview) {
    if overview.slow().is_empty() {
        return;
    }
    page.heading("The slowest flows");
    let columns = [
        ("Server", Column::Words),
        ("Client", Column::Words),
        ("Began", Column::Figures),
        ("Rate", Column::Figures),
        ("Down", Column::Figures),
        ("Limited by", Column::Words),
        ("Local", Column::Figures),
        ("Remote", Column::Figures),
        ("Loss", Column::Figures),
    ];
    let lines: Vec<Line> = overview.slow().iter().map(slow_line).collect();
    page.table(
        "Of flows in which the server sent at least 50 data packets: the rate while it had \
         something to send, and what limited it for most of that time. Local and remote: medians \
         of the halves of the round trip.",
        &columns,
        &lines,
    );
}

fn slow_line(slow: &Slow) -> Line {
    let [_, local, remote] = slow.rtt;
    let of = |trip: Option<Span>| trip.map_or_else(|| "–".to_owned(), span);
    let lost: f64 = slow.loss.iter().flatten().sum();
    let cells = vec![
        cut(&slow.server, NAME - 8),
        cut(&slow.client, SHORT),
        time_of_day(slow.started),
        rate(slow.rate),
        size(slow.bytes),
        reason(&slow.limited_by, slow.busy),
        of(local),
        of(remote),
        format!("{:.2} %", lost * 100.0),
    ];
    Line { cells, strong: false, faint: false }
}

/// The limit of a server for the longest part of the time in which it had data to send.
fn reason(limited_by: &LimitedBy, busy: Span) -> String {
    let limits = [Limit::Congestion, Limit::Loss, Limit::ReceiverWindow, Limit::StartUp];
    let Some(most) = limits.into_iter().max_by_key(|limit| limited_by.span(*limit)) else {
        return String::new();
    };
    format!("{} {}", summary::words(most), share(limited_by.span(most), busy))
}

fn parties(
    page: &mut Page,
    heading: &str,
    by: &str,
    about: &str,
    parties: &[(&str, Party)],
    others: &Party,
) {
    if parties.is_empty() {
        return;
    }
    page.heading(heading);
    let columns = [
        (heading, Column::Words),
        (about, Column::Words),
        ("Flows", Column::Figures),
        ("Bytes", Column::Figures),
        ("Round trip", Column::Figures),
        ("Local", Column::Figures),
        ("Remote", Column::Figures),
        ("Response", Column::Figures),
        ("Loss", Column::Figures),
    ];
    let line = |name: &str, party: &Party, faint: bool| {
        let of = |found: &Distribution<Span>| found.median().map_or_else(|| "–".to_owned(), span);
        let lost = party.lost.iter().sum();
        let about = if faint { None } else { party.about.as_deref() };
        let cells = vec![
            // A part of an address is not useful.
            if name.parse::<IpAddr>().is_ok() { name.to_owned() } else { cut(name, NAME) },
            about.map_or_else(|| "–".to_owned(), |about| cut(about, SHORT)),
            count(party.carried.flows),
            size(party.carried.all()),
            of(&party.rtt),
            of(&party.local_rtt),
            of(&party.remote_rtt),
            of(&party.response_time),
            match party.data_segments {
                0 => "–".to_owned(),
                all => percent(lost, all),
            },
        ];
        Line { cells, strong: false, faint }
    };
    let mut lines: Vec<Line> =
        parties.iter().map(|(name, party)| line(name, party, false)).collect();
    if others.carried.flows > 0 {
        lines.push(line("all others", others, true));
    }
    let caption = format!(
        "Those with the most bytes, {by}: TCP and UDP flows and their payload; medians over TCP \
         flows of their medians, for the response also of QUIC."
    );
    page.table(&caption, &columns, &lines);
}

fn carried(page: &mut Page, overview: &Overview) {
    if overview.protocols.is_empty() {
        return;
    }
    page.heading("What flows carry");
    let columns = [
        ("Protocol", Column::Words),
        ("Flows", Column::Figures),
        ("Down", Column::Figures),
        ("Up", Column::Figures),
    ];
    let mut protocols: Vec<_> = overview.protocols.iter().collect();
    protocols.sort_by_key(|(_, carried)| Reverse(carried.all()));
    let lines = protocols.into_iter().map(|((below, name), carried)| Line {
        cells: vec![
            format!("{name} over {}", below.to_uppercase()),
            count(carried.flows),
            size(carried.bytes[1]),
            size(carried.bytes[0]),
        ],
        strong: false,
        faint: false,
    });
    page.table("Flows and their payload", &columns, &lines.collect::<Vec<_>>());
}
