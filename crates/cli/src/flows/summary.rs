//! Summary of a run as text.

use std::cmp::Reverse;
use std::fmt::Write;
use std::path::Path;

use manyways_capture::{RunReport, undecrypted_versions};
use manyways_flows::analysis::{Counters, Histogram, Summary, Tally};
use manyways_flows::flow::SenderLimit;
use manyways_report::number::{self, count, plural, span};
use manyways_unit::Span;
use manyways_unit::human::printable;
use manyways_wire::frame::SkipReason;

/// Maximum number of servers by name.
const MAX_SERVERS: usize = 5;

/// The summary as text.
pub fn text(outcome: &RunReport, rows: &[(&str, u64)], folder: Option<&Path>) -> String {
    let (counters, summary) = (&outcome.counters, &outcome.summary);
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        // Names of servers and files may contain control characters.
        let _ = writeln!(text, "{name:<12} {}", printable(&value));
    };
    line(
        "Packets",
        format!(
            "{} in {}, {}, {}",
            count(counters.packets),
            plural(outcome.captures.len() as u64, "capture"),
            size(counters.bytes),
            duration_text(outcome)
        ),
    );
    line("", format!("{}{}", classes(counters), small_classes(counters)));
    if counters.undecoded.total() > 0 {
        line("Not IP", reasons(&counters.undecoded));
    }
    for (index, words) in unread(counters).into_iter().enumerate() {
        line(if index == 0 { "Not read" } else { "" }, words);
    }
    if let Some(steps) = clock_steps(counters.clock_steps_back) {
        line("Time order", steps);
    }
    let dropped = outcome.lost();
    if dropped + summary.uncaptured > 0 {
        line(
            "Not captured",
            format!(
                "{} by the capture's own count; {} that were acknowledged but not captured",
                plural(dropped, "packet"),
                size(summary.uncaptured)
            ),
        );
    }
    line(
        "TCP flows",
        format!(
            "{}, {} with a complete handshake and no reset; {} down, {} up",
            count(summary.flows),
            percent(summary.valid, summary.flows),
            size(summary.bytes[1]),
            size(summary.bytes[0])
        ),
    );
    if counters.evicted > 0 {
        line("", format!("{} evicted before their end", plural(counters.evicted, "flow")));
    }
    if summary.rtt.count() + summary.local_rtt.count() > 0 {
        let all = [&summary.rtt, &summary.local_rtt, &summary.remote_rtt];
        let of = |samples: &Histogram<Span>| match samples.median() {
            Some(median) => format!(
                "{} ({})",
                quantile(millis(median), samples.count()),
                plural(samples.count(), "flow")
            ),
            None => "unknown".to_owned(),
        };
        line(
            "Round trip",
            format!(
                "{}; local {}, remote {}: median over flows of each flow's median",
                of(all[0]),
                of(all[1]),
                of(all[2])
            ),
        );
        if all.iter().any(|samples| is_few(samples.count())) {
            line("", FEW_NOTE.to_owned());
        }
    }
    line(
        "Loss",
        format!(
            "local {}, remote {} of {} data segments; {} retransmitted, {} of these spuriously",
            percent(summary.lost[0], summary.data_segments),
            percent(summary.lost[1], summary.data_segments),
            count(summary.data_segments),
            count(summary.retransmitted),
            count(summary.spurious)
        ),
    );
    let [syns, fins] = summary.controls_again;
    if syns + fins > 0 {
        line("", format!("{} and {} sent again", plural(syns, "SYN"), plural(fins, "FIN")));
    }
    let [refused, acks] = summary.refused;
    if refused + acks > 0 {
        line(
            "Not counted",
            format!(
                "{} and {} whose numbers do not fit their connection",
                plural(refused, "segment"),
                plural(acks, "acknowledgment")
            ),
        );
    }
    if let Some(quic) = undecrypted(summary) {
        line("QUIC", quic);
    }
    let mut limits: Vec<(f64, String)> = SenderLimit::ALL
        .into_iter()
        .map(|limit| (summary.limited_by.share(limit), limit_name(limit)))
        .filter(|(share, _)| *share >= 0.000_5)
        .collect();
    limits.sort_by(|one, other| other.0.total_cmp(&one.0));
    if !limits.is_empty() {
        let parts: Vec<String> = limits
            .iter()
            .map(|(share, name)| format!("{name} {}", number::percent(*share)))
            .collect();
        line("Limited by", parts.join(", "));
    }
    let (servers, others) = summary.servers(MAX_SERVERS);
    for (index, (name, server)) in servers.iter().enumerate() {
        let heading = if index == 0 { "Servers" } else { "" };
        line(
            heading,
            format!("{name}: {} in {}", size(server.bytes), plural(server.flows, "flow")),
        );
    }
    if others.flows > 0 {
        line("", format!("all others: {} in {}", size(others.bytes), plural(others.flows, "flow")));
    }
    if let Some(folder) = folder {
        let tables: Vec<String> =
            rows.iter().map(|(name, rows)| format!("{name} ({})", plural(*rows, "row"))).collect();
        line("Tables", format!("{} in {}", tables.join(", "), folder.display()));
    }
    text
}

/// The name of a limit in the tables, with spaces.
pub fn limit_name(limit: SenderLimit) -> String {
    limit.name().replace('_', " ")
}

/// Explanation of a limit of a server.
pub fn limit_description(limit: SenderLimit) -> &'static str {
    match limit {
        SenderLimit::Application => "the server has no data to send, and no request is pending",
        SenderLimit::Think => "the server has received a request and has not answered yet",
        SenderLimit::ReceiverWindow => "the client's receive window is full",
        SenderLimit::Congestion => {
            "data wait in a queue on the path, so faster sending would not help"
        }
        SenderLimit::Loss => "packets are lost although no queue builds up",
        SenderLimit::SlowStart => {
            "a request or its response is on its way, or the congestion window still grows; both \
             take round trips, so they last longer over long distances"
        }
    }
}

/// The classes of packets that every summary has.
pub fn classes(counters: &Counters) -> String {
    format!(
        "TCP {}, UDP {}, other IP {}, not IP {}",
        count(counters.tcp),
        count(counters.udp),
        count(counters.other_protocols),
        count(counters.undecoded.total()),
    )
}

/// The other classes that have packets.
fn small_classes(counters: &Counters) -> String {
    let classes = [
        ("Bluetooth", counters.bluetooth),
        ("TCP truncated or malformed", counters.tcp_malformed),
        ("UDP truncated or malformed", counters.udp_malformed),
        ("fragments before the last of a packet", counters.other_fragments),
    ];
    let here = classes.into_iter().filter(|(_, packets)| *packets > 0);
    here.map(|(name, packets)| format!(", {name} {}", count(packets))).collect()
}

/// Reasons why packets are not IP, most frequent first.
pub fn reasons(opaque: &Tally<SkipReason>) -> String {
    const SHOWN: usize = 6;
    let (shown, others) = most_frequent(opaque, SHOWN);
    let mut parts: Vec<String> =
        shown.into_iter().map(|(opaque, packets)| format!("{opaque} {}", count(packets))).collect();
    if others > 0 {
        parts.push(format!("others {}", count(others)));
    }
    parts.join(", ")
}

/// IP protocols and tunnels that are not read, most frequent first, each with a hint if it helps.
pub fn unread(counters: &Counters) -> Vec<String> {
    const SHOWN: usize = 6;
    let (shown, others) = most_frequent(&counters.unread, SHOWN);
    let mut lines: Vec<String> = shown
        .into_iter()
        .map(|(content, packets)| {
            let hint = content.hint().map_or_else(String::new, |hint| format!(" ({hint})"));
            format!("{} in {content}{hint}", plural(packets, "packet"))
        })
        .collect();
    if others > 0 {
        lines.push(format!("{} in others", plural(others, "packet")));
    }
    if counters.unread_subframes > 0 {
        let packets = plural(counters.unread_subframes, "packet");
        lines.push(format!("{packets} in later subframes of IEEE 802.11 to other addresses"));
    }
    lines
}

/// The most frequent kinds, and the packets of all others.
fn most_frequent<K: Copy + Ord>(tally: &Tally<K>, shown: usize) -> (Vec<(K, u64)>, u64) {
    let mut all: Vec<(K, u64)> = tally.iter().collect();
    all.sort_by_key(|(_, packets)| Reverse(*packets));
    let rest = all.get(shown..).unwrap_or_default();
    let others = tally.others() + rest.iter().map(|(_, packets)| packets).sum::<u64>();
    all.truncate(shown);
    (all, others)
}

/// Whether percentiles of this number of values are marked: at least 20 are needed before the 95 %
/// percentile is not simply the largest value.
pub fn is_few(values: u64) -> bool {
    (1..20).contains(&values)
}

/// A percentile, the median included, of this number of values: with a mark if these are few, which
/// [`FEW_NOTE`] explains.
pub fn quantile(text: String, values: u64) -> String {
    if is_few(values) { text + "*" } else { text }
}

/// The meaning of the mark of [`quantile`].
pub const FEW_NOTE: &str = "* of fewer than 20 values: another capture may well show others";

/// The versions of QUIC whose flows have no name, because they cannot be decrypted; `None` without
/// such flows.
pub fn undecrypted(summary: &Summary) -> Option<String> {
    let mut versions: Vec<(String, u64)> = undecrypted_versions(summary).collect();
    versions.sort_by_key(|(_, flows)| Reverse(*flows));
    let flows = versions.iter().map(|(_, flows)| flows).sum();
    let parts: Vec<String> =
        versions.iter().map(|(version, flows)| format!("{version} {}", count(*flows))).collect();
    (flows > 0).then(|| {
        format!(
            "{} not decrypted, because the keys of the version are not known: {}",
            plural(flows, "flow"),
            parts.join(", ")
        )
    })
}

/// The number of packets that are not in the order of time, and how to sort them; `None` without
/// such packets.
pub fn clock_steps(packets: u64) -> Option<String> {
    let are = if packets == 1 { "is" } else { "are" };
    (packets > 0).then(|| {
        format!(
            "{} {are} earlier than the packet before: times between them are wrong; reordercap \
             sorts a capture, mergecap several ones",
            plural(packets, "packet")
        )
    })
}

/// Recorded time, and the total time if that is longer.
pub fn duration_text(outcome: &RunReport) -> String {
    let (recorded, lasted) = (outcome.recorded(), outcome.lasted());
    // The gap between two files of one capture is negligible.
    match recorded.as_secs_f64() < 0.99 * lasted.as_secs_f64() {
        true => format!("{} recorded within {}", span(recorded), span(lasted)),
        false => span(lasted),
    }
}

pub fn millis(span: Span) -> String {
    format!("{:.1} ms", span.as_millis_f64())
}

pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "none".to_owned();
    }
    format!("{:.2} %", part as f64 * 100.0 / whole as f64)
}

pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1_000.0;
        unit += 1;
    }
    match unit {
        0 => format!("{bytes} B"),
        _ if value < 9.95 => format!("{value:.1} {}", UNITS[unit]),
        _ => format!("{value:.0} {}", UNITS[unit]),
    }
}

#[cfg(test)]
mod tests {
    use manyways_capture::{CaptureStats, Document};
    use manyways_unit::Time;
    use manyways_wire::frame::{Obstacle, Unread};

    use super::*;

    fn at(seconds: u64) -> Time {
        Time::from_millis(seconds * 1_000)
    }

    #[test]
    fn a_day_of_short_captures_says_how_little_of_it_was_recorded() {
        let capture = |start, end| CaptureStats {
            times: Some((at(start), at(end))),
            ..CaptureStats::default()
        };
        let mut outcome = RunReport {
            // Two captures overlap, one is empty, and they are not sorted.
            captures: vec![
                capture(80_000, 80_010),
                capture(100, 110),
                CaptureStats::default(),
                capture(105, 120),
            ],
            ..RunReport::default()
        };
        (outcome.counters.first, outcome.counters.last) = (Some(at(100)), Some(at(80_010)));
        assert_eq!(outcome.recorded(), Span::from_secs(30));
        assert_eq!(duration_text(&outcome), "30 s recorded within 22.2 h");
        // With --from and --to, only the time between them counts.
        (outcome.counters.first, outcome.counters.last) = (Some(at(106)), Some(at(118)));
        assert_eq!(
            (outcome.recorded(), duration_text(&outcome)),
            (Span::from_secs(12), "12 s".into())
        );
        assert_eq!(duration_text(&RunReport::default()), "0 s");
    }

    #[test]
    fn packets_that_are_not_in_the_order_of_time_are_counted_with_a_hint() {
        let mut outcome = RunReport::default();
        assert!(!text(&outcome, &[], None).contains("Time order"));
        outcome.counters.clock_steps_back = 1;
        let line = "Time order   1 packet is earlier than the packet before: ";
        assert!(text(&outcome, &[], None).contains(line));
        outcome.counters.clock_steps_back = 2_345;
        let text = text(&outcome, &[], None);
        assert!(text.contains("Time order   2,345 packets are earlier"), "{text}");
        assert!(text.contains("reordercap sorts a capture, mergecap several"), "{text}");
    }

    #[test]
    fn flows_of_quic_that_cannot_be_decrypted_are_told_by_their_version() {
        let mut outcome = RunReport::default();
        assert!(!text(&outcome, &[], None).contains("QUIC"));
        let numbers = [*b"Q046", *b"\xff\0\0\x1d", [0; 4]].map(u32::from_be_bytes);
        outcome.summary.undecrypted = numbers.into_iter().zip([2, 1_400, 1]).collect();
        let line = "QUIC         1,403 flows not decrypted, because the keys of the version are not known: \
                    draft-29 1,400, Q046 2, others 1";
        let text = text(&outcome, &[], None);
        assert!(text.contains(line), "{text}");
        let document =
            manyways_record::document::to_json(&Document::new(&outcome, &[], false)).unwrap();
        assert!(document.contains(r#"{"version":"draft-29","flows":1400}"#), "{document}");
    }

    #[test]
    fn frames_without_ip_are_told_by_their_reason_the_most_frequent_first() {
        let mut outcome = RunReport::default();
        outcome.counters.undecoded = [
            (SkipReason::Protocol(0x0806), 7),
            (SkipReason::Protocol(0x00f9), 4_120),
            (SkipReason::Broken, 6),
        ]
        .into_iter()
        .collect();
        let text = text(&outcome, &[], None);
        let words = "Not IP       Qualcomm MAP (0x00f9) 4,120, ARP (0x0806) 7, truncated or broken before IP 6";
        assert!(text.contains(words), "{text}");
        let document =
            manyways_record::document::to_json(&Document::new(&outcome, &[], false)).unwrap();
        let words = r#"{"reason":"ethertype","number":249,"name":"Qualcomm MAP","packets":4120,"hint":null}"#;
        assert!(document.contains(words), "{document}");
        outcome.counters.undecoded =
            (1..=9).map(|number| (SkipReason::Protocol(number), 1)).collect();
        assert!(reasons(&outcome.counters.undecoded).ends_with("ethertype 0x0006 1, others 3"));
    }

    #[test]
    fn every_packet_that_is_not_read_is_named_with_its_number_and_a_hint() {
        let mut outcome = RunReport::default();
        outcome.counters.unread = [
            (Unread::Gre(0x883e, Obstacle::Unsupported), 2_407),
            (Unread::Udp(4789, Obstacle::NotIp), 3),
            (Unread::Protocol(1), 12),
            (Unread::Protocol(50), 1),
        ]
        .into_iter()
        .collect();
        (outcome.counters.udp_malformed, outcome.counters.other_fragments) = (5, 6);
        let text = text(&outcome, &[], None);
        for words in [
            "not IP 0, UDP truncated or malformed 5, fragments before the last of a packet 6\n",
            "Not read     2,407 packets in GRE protocol 0x883e (WCCP): not read (capture before or after the tunnel)\n",
            "             12 packets in IP protocol 1 (ICMP)\n",
            "             3 packets in UDP port 4789 (VXLAN): no IP packet inside\n",
            "             1 packet in IP protocol 50 (ESP): encrypted or compressed (capture where",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        let document =
            manyways_record::document::to_json(&Document::new(&outcome, &[], false)).unwrap();
        let words = r#"{"carrier":"gre-protocol","number":34878,"name":"WCCP","reason":"unsupported","packets":2407,"hint":"capture before or after the tunnel"}"#;
        assert!(document.contains(words), "{document}");
        assert!(document.contains(r#""udp_broken":5"#), "{document}");
    }
}
