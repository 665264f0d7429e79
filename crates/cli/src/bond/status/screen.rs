//! Formats a status as text.

use std::fmt::Write;

use manyways_net::bond::{
    GatewayStatus, LenderStatus, PathBytesStatus, PathStatus, Status, StreamStatus, Totals,
};
use manyways_unit::human::{count_with_noun, printable, quoted};
use manyways_unit::{Size, Span};

/// Maximum shown streams, in the order of their bytes.
const MAX_STREAMS: usize = 10;
/// Maximum characters of a cell. Longer cells are truncated, so that most lines fit 80 columns.
const MAX_CELL_WIDTH: usize = 32;
const MAX_APPLICATION_WIDTH: usize = 19;

/// Formats the status of a client.
pub fn client(status: &Status) -> String {
    let mut text = String::new();
    let policy = status.policy.as_deref().map_or("no policy".to_owned(), quoted);
    let _ = writeln!(
        text,
        "manyways bond `{}`, up {}, {policy}",
        printable(&status.name),
        duration(status.uptime_seconds)
    );
    if let Some(words) = &status.no_path_action {
        let _ = writeln!(text, "{}", printable(words));
    }
    text.push('\n');
    let has_lender = status.paths.iter().any(|path| path.lender.is_some());
    let [delivery, backlog] = lender_heads(has_lender);
    let head = [
        "PATH", "KIND", "STATE", "CARRIER", "DOWN", "UP", "CAPACITY", "RTT", "LOSS", "QUEUE",
        delivery, backlog,
    ];
    let lines = status.paths.iter().map(|one| {
        let [name, kind, state, carrier, down, up, capacity, rtt, loss, queue] = path(one);
        let [delivery, backlog] =
            lender_cells(has_lender, one.delivery_seconds, one.lender.as_ref());
        [name, kind, state, carrier, down, up, capacity, rtt, loss, queue, delivery, backlog]
    });
    let paths = align_columns(head, lines);
    let _ = writeln!(text, "{}", paths.join("\n"));
    if !status.paths.is_empty() {
        let months: Vec<String> = status.paths.iter().map(usage).collect();
        let months = months.join(", ");
        let uploads = if has_lender { "DELIVERY and BACKLOG of uploads; " } else { "" };
        let _ = writeln!(text, "rates in Mbit/s; {uploads}this month: {}", printable(&months));
    }
    let mut streams: Vec<&StreamStatus> = status.streams.iter().collect();
    streams.sort_by_key(|stream| std::cmp::Reverse(stream.up_bytes + stream.down_bytes));
    let more = status.stream_count.saturating_sub(streams.len().min(MAX_STREAMS));
    streams.truncate(MAX_STREAMS);
    if !streams.is_empty() {
        text.push('\n');
        // Two lines for each stream, because one line would be too long.
        let head = ["DESTINATION", "APPLICATION", "DOWN", "UP", "AGE"];
        let first = align_columns(head, streams.iter().map(|one| stream(one)));
        let second =
            align_columns(["RULE", "SCHEDULER", "SHARES"], streams.iter().map(|one| decision(one)));
        for (first, second) in first.iter().zip(second) {
            let _ = writeln!(text, "{first}\n  {second}");
        }
        if more > 0 {
            let _ = writeln!(text, "and {more} more");
        }
    }
    let _ = writeln!(text, "\n{}", totals(&status.totals));
    text
}

/// Formats the status of a gateway.
pub fn gateway(status: &GatewayStatus) -> String {
    let sessions = count_with_noun(status.sessions.len(), "session");
    let mut text = format!("manyways bond gateway, {sessions}\n\n");
    let mut paths = status.sessions.iter().flat_map(|session| &session.paths);
    let has_lender = paths.any(|path| path.lender.is_some());
    let [delivery, backlog] = lender_heads(has_lender);
    let head = ["CLIENT", "STREAMS", "PATH", "STATE", "FROM IT", "TO IT", "RTT", delivery, backlog];
    let lines = status.sessions.iter().flat_map(|session| {
        session.paths.iter().map(|path| {
            let [delivery, backlog] =
                lender_cells(has_lender, path.delivery_seconds, path.lender.as_ref());
            [
                quoted(&session.client),
                session.stream_count.to_string(),
                path.path.to_string(),
                path.state.to_string(),
                bytes(path.received_bytes),
                bytes(path.sent_bytes),
                path.rtt_seconds.map_or_else(unknown, millis),
                delivery,
                backlog,
            ]
        })
    });
    let _ = writeln!(text, "{}", align_columns(head, lines).join("\n"));
    text
}

fn path(path: &PathStatus) -> [String; 10] {
    [
        path.name.clone(),
        path.kind.clone(),
        path.state.to_string(),
        path.carrier.clone().unwrap_or_else(unknown),
        megabits(path.down_bps),
        megabits(path.up_bps),
        path.capacity_bps.map_or_else(unknown, megabits),
        path.rtt_seconds.map_or_else(unknown, millis),
        path.loss.map_or_else(unknown, |loss| format!("{:.1} %", loss * 100.0)),
        bytes(path.queue_bytes + path.in_flight_bytes),
    ]
}

/// The heads of the columns that a table has only with a lender. Empty columns are invisible.
fn lender_heads(has_lender: bool) -> [&'static str; 2] {
    if has_lender { ["DELIVERY", "BACKLOG"] } else { [""; 2] }
}

fn lender_cells(
    has_lender: bool,
    delivery: Option<f64>,
    lender: Option<&LenderStatus>,
) -> [String; 2] {
    if !has_lender {
        return Default::default();
    }
    let backlog = lender.and_then(|lender| lender.backlog_bytes);
    [delivery.map_or_else(unknown, millis), backlog.map_or_else(unknown, bytes)]
}

/// Formats the bytes and the cost of a network: `lte 888 KB (metered, 999 MB left)`.
fn usage(path: &PathStatus) -> String {
    let metered = path.metered.then(|| "metered".to_owned());
    let left = path.plan_remaining_bytes.map(|remaining| format!("{} left", bytes(remaining)));
    let cost: Vec<String> = metered.into_iter().chain(left).collect();
    let carried = format!("{} {}", path.name, bytes(path.plan_used_bytes));
    if cost.is_empty() { carried } else { format!("{carried} ({})", cost.join(", ")) }
}

/// Formats the first line of a stream: destination, application, bytes and age.
fn stream(stream: &StreamStatus) -> [String; 5] {
    let to = match &stream.domain {
        // The port follows the last colon.
        Some(domain) => match stream.destination.rsplit_once(':') {
            Some((_, port)) => format!("{domain}:{port}"),
            None => domain.clone(),
        },
        None => stream.destination.clone(),
    };
    let application = |name: &str| truncate(quoted(name), MAX_APPLICATION_WIDTH);
    [
        truncate(
            format!("{to}{}", if stream.protocol == "udp" { " udp" } else { "" }),
            MAX_CELL_WIDTH,
        ),
        stream.process.as_deref().map_or_else(unknown, application),
        bytes(stream.down_bytes),
        bytes(stream.up_bytes),
        duration(stream.age_seconds),
    ]
}

/// Formats the second line of a stream: rule, policy and the shares of its paths.
fn decision(stream: &StreamStatus) -> [String; 3] {
    let how = match (&stream.scheduler, stream.waiting_for_path) {
        _ if stream.delayed => "delayed".to_owned(),
        (_, true) => "waits for a path".to_owned(),
        (Some(scheduler), _) => scheduler.clone(),
        (None, _) => stream.decision.clone(),
    };
    let rule = |rule: &str| truncate(quoted(rule), MAX_CELL_WIDTH);
    [stream.rule.as_deref().map_or("(default)".to_owned(), rule), how, shares(stream)]
}

/// Formats the share of each path: `wifi 90 %, lte 10 %`.
fn shares(stream: &StreamStatus) -> String {
    let sum = |share: &PathBytesStatus| share.sent_bytes + share.received_bytes;
    let all: u64 = stream.paths.values().map(sum).sum();
    if all == 0 {
        return String::new();
    }
    let words = stream
        .paths
        .iter()
        .map(|(name, share)| format!("{name} {:.0} %", sum(share) as f64 * 100.0 / all as f64));
    words.collect::<Vec<_>>().join(", ")
}

fn totals(totals: &Totals) -> String {
    let recalled = match totals.recalled_bytes {
        0 => String::new(),
        recalled => format!(", recalled {}", bytes(recalled)),
    };
    format!(
        "sent {}, reinjected {} (spurious {}){recalled}\nreceived {}, duplicate {}; headers {}; {} dropped",
        bytes(totals.sent_bytes),
        bytes(totals.reinjected_bytes),
        bytes(totals.spurious_bytes),
        bytes(totals.received_bytes),
        bytes(totals.duplicate_bytes),
        bytes(totals.header_bytes),
        count_with_noun(totals.dropped_datagrams as usize, "datagram"),
    )
}

fn unknown() -> String {
    "-".to_owned()
}

fn bytes(bytes: u64) -> String {
    // Three digits suffice.
    Size::from_bytes(round_down(bytes)).to_string()
}

/// Formats a rate in Mbit/s with three digits, at most three of them after the point.
fn megabits(bps: u64) -> String {
    match bps as f64 / 1e6 {
        0.0 => "0".to_owned(),
        rate if rate < 1.0 => format!("{rate:.3}"),
        rate if rate < 10.0 => format!("{rate:.2}"),
        rate if rate < 100.0 => format!("{rate:.1}"),
        rate => format!("{rate:.0}"),
    }
}

/// Replaces all digits except the first three by zeros.
fn round_down(number: u64) -> u64 {
    let unit = 10u64.pow(number.checked_ilog10().unwrap_or_default().saturating_sub(2));
    number / unit * unit
}

fn millis(seconds: f64) -> String {
    format!("{:.0} ms", Span::from_secs_f64(seconds.max(0.0)).as_millis_f64())
}

fn duration(seconds: f64) -> String {
    match seconds as u64 {
        s @ 0..120 => format!("{s} s"),
        s @ 120..7_200 => format!("{} min", s / 60),
        s @ 7_200..172_800 => format!("{} h", s / 3_600),
        s => format!("{} d", s / 86_400),
    }
}

fn truncate(text: String, widest: usize) -> String {
    match text.chars().count() > widest {
        true => text.chars().take(widest - 1).chain(['…']).collect(),
        false => text,
    }
}

/// Aligns cells in columns. The first line contains the heads.
fn align_columns<const N: usize>(
    heads: [&str; N],
    lines: impl Iterator<Item = [String; N]>,
) -> Vec<String> {
    let lines = lines.map(|line| line.map(|cell| printable(&cell).into_owned()));
    let all: Vec<[String; N]> = [heads.map(str::to_owned)].into_iter().chain(lines).collect();
    let mut widths = [0; N];
    for line in &all {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |line: &[String; N]| {
        let cells = line.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    all.iter().map(line).collect()
}

#[cfg(test)]
mod tests;
