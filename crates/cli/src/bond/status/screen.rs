//! A status as text for people.

use std::fmt::Write;

use manyways_net::bond::gateway::GatewayStatus;
use manyways_net::bond::status::{PathStatus, ShareStatus, Status, StreamStatus, Totals};
use manyways_trace::human::{counted, quoted};
use manyways_trace::{Rate, Size, Span};

/// So many streams are shown: those with the most bytes.
const STREAMS: usize = 20;
/// What is longer is cut.
const WIDEST: usize = 32;

/// What a client is doing.
pub fn client(status: &Status) -> String {
    let mut text = String::new();
    let policy = status.policy.as_deref().map_or("no policy".to_owned(), quoted);
    let _ = writeln!(
        text,
        "manyways bond `{}`, up {}, {policy}\n",
        status.name,
        duration(status.seconds)
    );
    let head =
        ["PATH", "KIND", "STATE", "DOWN", "UP", "OFFERS", "RTT", "LOSS", "QUEUE", "MONTH", "LEFT"];
    text += &table(head.map(str::to_owned), status.paths.iter().map(path).collect());
    let mut streams: Vec<&StreamStatus> = status.streams.iter().collect();
    streams.sort_by_key(|stream| std::cmp::Reverse(stream.up_bytes + stream.down_bytes));
    let more = status.stream_count.saturating_sub(streams.len().min(STREAMS));
    streams.truncate(STREAMS);
    if !streams.is_empty() {
        text.push('\n');
        let head = ["TO", "APPLICATION", "RULE", "HOW", "DOWN", "UP", "AGE", "SHARES"];
        text += &table(head.map(str::to_owned), streams.into_iter().map(stream).collect());
        if more > 0 {
            let _ = writeln!(text, "and {more} more");
        }
    }
    let _ = writeln!(text, "\n{}", totals(&status.totals));
    text
}

/// What a gateway is doing.
pub fn gateway(status: &GatewayStatus) -> String {
    let sessions = counted(status.sessions.len(), "session");
    let mut text = format!("manyways bond gateway, {sessions}\n\n");
    let head = ["CLIENT", "STREAMS", "PATH", "STATE", "FROM IT", "TO IT", "RTT"];
    let lines = status.sessions.iter().flat_map(|session| {
        session.paths.iter().map(|path| {
            [
                quoted(&session.client),
                session.stream_count.to_string(),
                path.path.to_string(),
                path.state.clone(),
                bytes(path.received_bytes),
                bytes(path.sent_bytes),
                path.rtt_seconds.map_or_else(unknown, millis),
            ]
        })
    });
    text += &table(head.map(str::to_owned), lines.collect());
    text
}

fn path(path: &PathStatus) -> [String; 11] {
    let rate = |bps: u64| round(bps);
    [
        path.name.clone(),
        if path.metered { format!("{}, metered", path.kind) } else { path.kind.clone() },
        path.state.clone(),
        rate(path.down_bps),
        rate(path.up_bps),
        path.offered_bps.map_or_else(unknown, rate),
        path.rtt_seconds.map_or_else(unknown, millis),
        path.loss.map_or_else(unknown, |loss| format!("{:.1} %", loss * 100.0)),
        bytes(path.queue_bytes + path.in_flight_bytes),
        bytes(path.month_bytes),
        path.left_bytes.map_or_else(unknown, bytes),
    ]
}

fn stream(stream: &StreamStatus) -> [String; 8] {
    let to = match &stream.domain {
        // The port stands behind the last colon.
        Some(domain) => match stream.to.rsplit_once(':') {
            Some((_, port)) => format!("{domain}:{port}"),
            None => domain.clone(),
        },
        None => stream.to.clone(),
    };
    let how = match (&stream.scheduler, stream.waits) {
        (_, true) => "waits for a path".to_owned(),
        (Some(scheduler), _) => scheduler.clone(),
        (None, _) => stream.decision.clone(),
    };
    [
        cut(format!("{to}{}", if stream.protocol == "udp" { " udp" } else { "" })),
        stream.process.as_deref().map_or_else(unknown, |name| cut(quoted(name))),
        stream.rule.as_deref().map_or("(default)".to_owned(), |rule| cut(quoted(rule))),
        how,
        bytes(stream.down_bytes),
        bytes(stream.up_bytes),
        duration(stream.seconds),
        shares(stream),
    ]
}

/// Which path carried how much of it: `wifi 90 %, lte 10 %`.
fn shares(stream: &StreamStatus) -> String {
    let sum = |share: &ShareStatus| share.sent_bytes + share.received_bytes;
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
    format!(
        "sent {}, of it {} again ({} in vain); came {}, of it {} twice; headers {}; {} dropped",
        bytes(totals.sent_bytes),
        bytes(totals.reinjected_bytes),
        bytes(totals.spurious_bytes),
        bytes(totals.received_bytes),
        bytes(totals.repeated_bytes),
        bytes(totals.header_bytes),
        counted(totals.dropped_datagrams as usize, "datagram"),
    )
}

fn unknown() -> String {
    "-".to_owned()
}

fn bytes(bytes: u64) -> String {
    // Three digits say enough.
    Size::from_bytes(leading(bytes)).to_string()
}

fn round(bps: u64) -> String {
    Rate::from_bps(leading(bps)).to_string()
}

/// The number with all but its first three digits zero.
fn leading(number: u64) -> u64 {
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

fn cut(text: String) -> String {
    match text.chars().count() > WIDEST {
        true => text.chars().take(WIDEST - 1).chain(['…']).collect(),
        false => text,
    }
}

/// Cells in columns.
fn table<const N: usize>(head: [String; N], lines: Vec<[String; N]>) -> String {
    let all: Vec<[String; N]> = [head].into_iter().chain(lines).collect();
    let mut widths = [0; N];
    for line in &all {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for line in &all {
        let cells: Vec<String> =
            line.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text += cells.join("  ").trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one() -> StreamStatus {
        StreamStatus {
            stream: Some(3),
            protocol: "tcp".into(),
            to: "[2001:db8::1]:443".into(),
            domain: Some("www.example.com".into()),
            process: Some("fire\x1bfox".into()),
            user: None,
            rule: None,
            decision: "bond".into(),
            scheduler: Some("buffer-aware".into()),
            waits: false,
            seconds: 130.0,
            up_bytes: 1_234,
            down_bytes: 9_876_543,
            paths: [("wifi", 900), ("lte", 100)]
                .map(|(name, received_bytes)| {
                    (name.to_owned(), ShareStatus { sent_bytes: 0, received_bytes })
                })
                .into(),
        }
    }

    #[test]
    fn a_stream_is_one_line_and_no_escape_of_a_strange_name_gets_out() {
        let cells = stream(&one());
        assert_eq!(cells[0], "www.example.com:443");
        assert!(!cells[1].contains('\x1b'), "{:?}", cells[1]);
        assert_eq!(cells[2..5], ["(default)", "buffer-aware", "9.87 MB"]);
        assert_eq!(cells[5..], ["1.23 KB", "2 min", "lte 10 %, wifi 90 %"]);
    }

    #[test]
    fn one_that_waits_says_so() {
        assert_eq!(stream(&StreamStatus { waits: true, ..one() })[3], "waits for a path");
    }

    #[test]
    fn three_digits_are_left() {
        assert_eq!([0, 7, 999, 1_234, 9_876_543].map(leading), [0, 7, 999, 1_230, 9_870_000]);
    }
}
