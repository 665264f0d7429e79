//! Tables of round trips, losses, responses, flows and hosts.

use std::cmp::Reverse;
use std::net::IpAddr;

use manyways_capture::RunReport;
use manyways_flows::analysis::{EndpointStats, Histogram, LOSS_BOUNDS, Overview, SlowTransfer};
use manyways_flows::flow::{LimitedBy, SenderLimit};
use manyways_unit::Span;

use super::charts;
use crate::flows::summary::{self, percent, size};
use manyways_report::number::{count, rate, share, shorten, span, time_of_day};
use manyways_report::svg::number;
use manyways_report::{Column, Page, TableRow};

/// Maximum length of names and other long texts, in characters.
const NAME: usize = 30;
const SHORT: usize = 16;

/// A histogram as cells of a row: count and quantiles.
fn quantiles<Q: manyways_flows::analysis::Quantity>(
    name: &str,
    found: &Histogram<Q>,
    words: impl Fn(Q) -> String,
) -> Option<TableRow> {
    let marked = |value| summary::quantile(words(value), found.count());
    let of = |part: f64| found.quantile(part).map_or_else(String::new, marked);
    let mut cells = vec![name.to_owned(), count(found.count())];
    cells.extend([0.1, 0.25, 0.5, 0.75, 0.9, 0.99].map(of));
    (found.count() > 0).then_some(TableRow::plain(cells))
}

/// The caption of a table, with the meaning of the mark at percentiles if the table has one.
fn with_note(caption: &str, lines: &[TableRow]) -> String {
    let mut cells = lines.iter().flat_map(|line| line.cells.iter().skip(1));
    match cells.any(|cell| cell.ends_with('*')) {
        true => format!("{}. {}.", caption.trim_end_matches('.'), summary::FEW_NOTE),
        false => caption.to_owned(),
    }
}

const QUANTILES: [&str; 8] = ["", "Count", "10 %", "25 %", "Median", "75 %", "90 %", "99 %"];

pub fn round_trips(page: &mut Page, outcome: &RunReport) {
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
    let caption = with_note("Flows' medians: number of flows, and quantiles", &lines);
    page.table(&caption, &Column::of(QUANTILES, &[0]), &lines);
}

pub fn losses(page: &mut Page, outcome: &RunReport, overview: &Overview) {
    let summary = &outcome.summary;
    if summary.data_segments == 0 {
        return;
    }
    page.heading("Loss");
    let [first, second, third] = LOSS_BOUNDS.map(|end| format!("to {} %", number(end * 100.0)));
    let over = format!("over {} %", number(LOSS_BOUNDS[2] * 100.0));
    let columns =
        Column::of(["Side", "Lost", "Rate", "Flows without", &first, &second, &third, &over], &[0]);
    let sides = ["local", "remote"].iter().zip(summary.lost).zip(&overview.losses);
    let lines = sides.map(|((side, lost), classes)| {
        let mut cells = vec![(*side).to_owned(), count(lost), percent(lost, summary.data_segments)];
        cells.extend(classes.iter().map(|flows| count(*flows)));
        TableRow::plain(cells)
    });
    let caption = format!(
        "Of {} data segments; {} retransmitted, {} of these spuriously. Right columns: number of flows by the share of \
         their data segments that was lost.",
        count(summary.data_segments),
        count(summary.retransmitted),
        count(summary.spurious)
    );
    page.table(&caption, &columns, &lines.collect::<Vec<_>>());
}

pub fn responses(page: &mut Page, overview: &Overview) {
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
        let lines: Vec<TableRow> =
            all.iter().filter_map(|(name, found)| quantiles(name, found, span)).collect();
        let caption = with_note("Time from a request to its response", &lines);
        page.table(&caption, &Column::of(QUANTILES, &[0]), &lines);
    }
    let found = &overview.servicing_rate;
    if let Some(line) = quantiles("Servicing rate", found, rate) {
        page.heading("How fast requests are answered");
        if let Some(drawing) = charts::rates(found) {
            let caption = "Share of the HTTP/1 flows with a servicing rate of at most this value.";
            page.figure(&drawing, caption);
        }
        let lines = [line];
        let caption = with_note("Flows with HTTP/1", &lines);
        page.table(&caption, &Column::of(QUANTILES, &[0]), &lines);
    }
}

pub fn slow(page: &mut Page, overview: &Overview) {
    if overview.slow_transfers().is_empty() {
        return;
    }
    page.heading("The slowest flows");
    let columns = Column::of(
        ["Server", "Client", "Began", "Rate", "Down", "Limited by", "Local", "Remote", "Loss"],
        &[0, 1, 5],
    );
    let lines: Vec<TableRow> = overview.slow_transfers().iter().map(slow_line).collect();
    page.table(
        "Flows in which the server sent at least 50 data segments: the rate while the server had \
         data to send, and the limit of the rate for most of that time. Local and remote: medians \
         of the halves of the round trip.",
        &columns,
        &lines,
    );
}

fn slow_line(slow: &SlowTransfer) -> TableRow {
    let [_, local, remote] = slow.rtt;
    let of = |trip: Option<Span>| trip.map_or_else(|| "–".to_owned(), span);
    let lost: f64 = slow.loss.iter().flatten().sum();
    let cells = vec![
        shorten(&slow.server, NAME - 8),
        shorten(&slow.client, SHORT),
        time_of_day(slow.started),
        rate(slow.rate),
        size(slow.bytes),
        reason(&slow.limited_by, slow.busy),
        of(local),
        of(remote),
        format!("{:.2} %", lost * 100.0),
    ];
    TableRow::plain(cells)
}

/// The limit of a server for the longest part of the time in which it had data to send.
pub fn reason(limited_by: &LimitedBy, busy: Span) -> String {
    let limits = [
        SenderLimit::Congestion,
        SenderLimit::Loss,
        SenderLimit::ReceiverWindow,
        SenderLimit::SlowStart,
    ];
    let Some(most) = limits.into_iter().max_by_key(|limit| limited_by.span(*limit)) else {
        return String::new();
    };
    format!("{} {}", summary::limit_name(most), share(limited_by.span(most), busy))
}

pub fn endpoint_table(
    page: &mut Page,
    heading: &str,
    by: &str,
    about: &str,
    parties: &[(&str, EndpointStats)],
    others: &EndpointStats,
) {
    if parties.is_empty() {
        return;
    }
    page.heading(heading);
    let columns = Column::of(
        [heading, about, "Flows", "Bytes", "Round trip", "Local", "Remote", "Response", "Loss"],
        &[0, 1],
    );
    let line = |name: &str, party: &EndpointStats, faint: bool| {
        let of = |found: &Histogram<Span>| match found.median() {
            Some(median) => summary::quantile(span(median), found.count()),
            None => "–".to_owned(),
        };
        let lost = party.lost.iter().sum();
        let about = if faint { None } else { party.description.as_deref() };
        let cells = vec![
            // A part of an address is not useful.
            if name.parse::<IpAddr>().is_ok() { name.to_owned() } else { shorten(name, NAME) },
            about.map_or_else(|| "–".to_owned(), |about| shorten(about, SHORT)),
            count(party.traffic.flows),
            size(party.traffic.total_bytes()),
            of(&party.rtt),
            of(&party.local_rtt),
            of(&party.remote_rtt),
            of(&party.response_time),
            match party.data_segments {
                0 => "–".to_owned(),
                all => percent(lost, all),
            },
        ];
        TableRow { cells, strong: false, faint }
    };
    let mut lines: Vec<TableRow> =
        parties.iter().map(|(name, party)| line(name, party, false)).collect();
    if others.traffic.flows > 0 {
        lines.push(line("all others", others, true));
    }
    let caption = format!(
        "Most bytes first, {by}: TCP and UDP flows and their payload; medians, over TCP \
         flows, of the median of each flow; for responses also QUIC flows."
    );
    page.table(&with_note(&caption, &lines), &columns, &lines);
}

pub fn carried(page: &mut Page, overview: &Overview) {
    if overview.protocols.is_empty() {
        return;
    }
    page.heading("What flows carry");
    let columns = Column::of(["Protocol", "Flows", "Down", "Up"], &[0]);
    let mut protocols: Vec<_> = overview.protocols.iter().collect();
    protocols.sort_by_key(|(_, carried)| Reverse(carried.total_bytes()));
    let lines = protocols.into_iter().map(|((below, name), carried)| {
        TableRow::plain(vec![
            format!("{name} over {}", below.to_uppercase()),
            count(carried.flows),
            size(carried.bytes[1]),
            size(carried.bytes[0]),
        ])
    });
    page.table("Flows and their payload", &columns, &lines.collect::<Vec<_>>());
}
