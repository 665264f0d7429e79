//! The summary of a run as JSON.

use manyways_flows::analysis::{Histogram, Server, Summary, Tally};
use manyways_flows::flow::SenderLimit;
use manyways_unit::{Span, Time};
use manyways_wire::frame::{Obstacle, SkipReason, Unread};
use manyways_wire::quic::version;
use serde::Serialize;

use crate::work::RunReport;

/// Maximum number of servers by name.
const SERVERS: usize = 5;

/// The summary of a run as JSON, which is also the file `flows.json` of a folder.
#[derive(Debug, Serialize)]
pub struct Document {
    /// Whether a signal stopped the run before the end.
    is_stopped: bool,
    /// The filter of the run.
    pub filter: Option<String>,
    captures: Vec<CaptureDocument>,
    packets: u64,
    bytes: u64,
    /// From the first packet to the last one, including the time between captures.
    seconds: f64,
    /// Time that captures cover.
    recorded_seconds: f64,
    tcp_packets: u64,
    tcp_broken: u64,
    udp_packets: u64,
    udp_broken: u64,
    other_ip_packets: u64,
    /// Protocols of these packets, and tunnels over UDP whose content is not read.
    unread: Vec<NotRead>,
    bluetooth_packets: u64,
    not_ip_packets: u64,
    /// Reasons why these frames have no IP packet.
    not_ip: Vec<NotIp>,
    fragments: u64,
    /// Those that complete no packet: the only packets in none of the classes above.
    other_fragments: u64,
    /// Packets in the second and later subframes of IEEE 802.11 frames, and those not analysed.
    subframes: u64,
    unread_subframes: u64,
    capture_lost: u64,
    clock_steps_back: u64,
    flows: u64,
    valid_flows: u64,
    evicted_flows: u64,
    client_bytes: u64,
    server_bytes: u64,
    data_segments: u64,
    retransmitted: u64,
    spurious: u64,
    lost_local: u64,
    lost_remote: u64,
    syns_again: u64,
    fins_again: u64,
    refused_segments: u64,
    refused_acks: u64,
    unseen_bytes: u64,
    rtt: Option<f64>,
    local_rtt: Option<f64>,
    remote_rtt: Option<f64>,
    /// Number of flows with a round-trip time, and with each of its parts.
    rtt_flows: u64,
    local_rtt_flows: u64,
    remote_rtt_flows: u64,
    limited_by: Vec<LimitShare>,
    /// Flows of QUIC without a readable ClientHello, by version.
    quic_undecrypted: Vec<QuicVersion>,
    servers: Vec<TopServer>,
    tables: Vec<Table>,
}

manyways_record::document!(Document, manyways_flows::SCHEMA);

#[derive(Debug, Serialize)]
struct CaptureDocument {
    name: String,
    packets: u64,
    lost: u64,
    fault: Option<String>,
}

#[derive(Debug, Serialize)]
struct NotIp {
    /// A [`SkipReason::kind`], or `others` for all reasons beyond a limit.
    reason: &'static str,
    /// The link type or the number of the protocol.
    number: Option<u16>,
    name: Option<&'static str>,
    packets: u64,
    hint: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct NotRead {
    /// `ip-protocol`, `gre-protocol` or `udp-port`; `others` for all beyond a limit.
    carrier: &'static str,
    number: Option<u16>,
    name: Option<&'static str>,
    /// `unsupported`, `not-ip`, `encrypted` or `broken`; `None` if it is not a tunnel.
    reason: Option<&'static str>,
    packets: u64,
    hint: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct LimitShare {
    by: &'static str,
    share: f64,
}

#[derive(Debug, Serialize)]
struct QuicVersion {
    /// The name of the version; `others` for those beyond the first 64.
    version: String,
    flows: u64,
}

#[derive(Debug, Serialize)]
struct TopServer {
    server: String,
    flows: u64,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct Table {
    name: String,
    rows: u64,
}

impl Document {
    /// `rows` are the numbers of rows of the written tables. If `is_stopped`, a signal stopped the
    /// run.
    pub fn new(outcome: &RunReport, rows: &[(&str, u64)], is_stopped: bool) -> Self {
        let (counters, summary) = (&outcome.counters, &outcome.summary);
        let captures = outcome.captures.iter().map(|capture| CaptureDocument {
            name: capture.name.clone(),
            packets: capture.packets,
            lost: capture.dropped,
            fault: capture.error.clone(),
        });
        let limited_by = SenderLimit::ALL
            .into_iter()
            .map(|limit| LimitShare { by: limit.name(), share: summary.limited_by.share(limit) });
        let (servers, _) = summary.servers(SERVERS);
        let servers = servers.into_iter().map(|(name, Server { flows, bytes })| TopServer {
            server: name.to_owned(),
            flows,
            bytes,
        });
        let tables =
            rows.iter().map(|(name, rows)| Table { name: (*name).to_owned(), rows: *rows });
        Self {
            is_stopped,
            filter: None,
            captures: captures.collect(),
            packets: counters.packets,
            bytes: counters.bytes,
            seconds: outcome.lasted().as_secs_f64(),
            recorded_seconds: outcome.recorded().as_secs_f64(),
            tcp_packets: counters.tcp,
            tcp_broken: counters.tcp_malformed,
            udp_packets: counters.udp,
            udp_broken: counters.udp_malformed,
            other_ip_packets: counters.other_protocols,
            unread: unread(&counters.unread),
            bluetooth_packets: counters.bluetooth,
            not_ip_packets: counters.undecoded.total(),
            not_ip: not_ip(&counters.undecoded),
            fragments: counters.fragments,
            other_fragments: counters.other_fragments,
            subframes: counters.subframes,
            unread_subframes: counters.unread_subframes,
            capture_lost: outcome.lost(),
            clock_steps_back: counters.clock_steps_back,
            flows: summary.flows,
            valid_flows: summary.valid,
            evicted_flows: counters.evicted,
            client_bytes: summary.bytes[0],
            server_bytes: summary.bytes[1],
            data_segments: summary.data_segments,
            retransmitted: summary.retransmitted,
            spurious: summary.spurious,
            lost_local: summary.lost[0],
            lost_remote: summary.lost[1],
            syns_again: summary.controls_again[0],
            fins_again: summary.controls_again[1],
            refused_segments: summary.refused[0],
            refused_acks: summary.refused[1],
            unseen_bytes: summary.uncaptured,
            rtt: secs(&summary.rtt),
            local_rtt: secs(&summary.local_rtt),
            remote_rtt: secs(&summary.remote_rtt),
            rtt_flows: summary.rtt.count(),
            local_rtt_flows: summary.local_rtt.count(),
            remote_rtt_flows: summary.remote_rtt.count(),
            limited_by: limited_by.collect(),
            quic_undecrypted: undecrypted_versions(summary)
                .map(|(version, flows)| QuicVersion { version, flows })
                .collect(),
            servers: servers.collect(),
            tables: tables.collect(),
        }
    }

    /// Removes values that may contain anonymized names: paths of captures, and the filter.
    pub fn anonymize(&mut self) {
        self.filter = None;
        for (number, capture) in (1..).zip(&mut self.captures) {
            capture.name = format!("capture {number}");
            // The filter may contain the names of hosts.
            let fault = capture.fault.as_ref();
            capture.fault = fault.map(|_| "it could not be read to its end".to_owned());
        }
    }
}

impl RunReport {
    /// Lost packets, by the counters of the capture and by its gaps.
    pub fn lost(&self) -> u64 {
        let said: u64 = self.captures.iter().map(|capture| capture.dropped).sum();
        said.max(self.counters.dropped)
    }

    /// From the first counted packet to the last one.
    pub fn lasted(&self) -> Span {
        let (first, last) = (self.counters.first, self.counters.last);
        first.zip(last).map_or(Span::ZERO, |(first, last)| last.since(first))
    }

    /// Time that captures cover, within the time of counted packets: excludes the time between
    /// captures, and counts overlaps once.
    pub fn recorded(&self) -> Span {
        let Some((first, last)) = self.counters.first.zip(self.counters.last) else {
            return Span::ZERO;
        };
        let mut times: Vec<(Time, Time)> =
            self.captures.iter().filter_map(|capture| capture.times).collect();
        times.sort_unstable();
        let (mut sum, mut until) = (Span::ZERO, first);
        for (begins, ends) in times {
            let (begins, ends) = (begins.max(until), ends.min(last));
            if begins < ends {
                sum += ends.since(begins);
                until = ends;
            }
        }
        sum
    }
}

fn not_ip(reasons: &Tally<SkipReason>) -> Vec<NotIp> {
    let others = Some(reasons.others()).filter(|packets| *packets > 0).map(|packets| NotIp {
        reason: "others",
        number: None,
        name: None,
        packets,
        hint: None,
    });
    let all = reasons.iter().map(|(reason, packets)| NotIp {
        reason: reason.kind(),
        number: reason.number(),
        name: reason.name(),
        packets,
        hint: reason.hint(),
    });
    all.chain(others).collect()
}

fn unread(contents: &Tally<Unread>) -> Vec<NotRead> {
    let others = Some(contents.others()).filter(|packets| *packets > 0).map(|packets| NotRead {
        carrier: "others",
        number: None,
        name: None,
        reason: None,
        packets,
        hint: None,
    });
    let all = contents.iter().map(|(content, packets)| NotRead {
        carrier: content.carrier(),
        number: Some(content.number()),
        name: content.name(),
        reason: content.obstacle().map(Obstacle::kind),
        packets,
        hint: content.hint(),
    });
    all.chain(others).collect()
}

/// Names of the versions of QUIC whose ClientHellos could not be decrypted, with their flows.
pub fn undecrypted_versions(summary: &Summary) -> impl Iterator<Item = (String, u64)> {
    summary.undecrypted.iter().map(|(number, flows)| match number {
        0 => ("others".to_owned(), *flows),
        _ => (version::name(*number), *flows),
    })
}

fn secs(samples: &Histogram<Span>) -> Option<f64> {
    samples.median().map(Span::as_secs_f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::CaptureStats;

    #[test]
    fn what_is_hidden_names_neither_files_nor_whom_was_looked_for() {
        let captures = ["/home/me/a.pcap", "/home/me/b.pcap"].map(|name| CaptureStats {
            name: name.to_owned(),
            error: Some(format!("no {name}")),
            ..CaptureStats::default()
        });
        let outcome = RunReport { captures: captures.into(), ..RunReport::default() };
        let mut found = Document::new(&outcome, &[], false);
        found.filter = Some("host 192.0.2.1".to_owned());
        found.anonymize();
        let text = manyways_record::document::to_json(&found).unwrap();
        assert!(!text.contains("/home") && !text.contains("192.0.2.1"), "{text}");
        assert!(text.contains("\"capture 2\""), "{text}");
    }
}
