//! Metrics of a client or gateway, in the text format 0.0.4 of Prometheus.
//!
//! The metrics contain no destinations, because any host that reaches the port can read them.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::ops::Add;

use manyways_proto::bond::path::PathState;

pub use super::metrics_server::serve;

use super::gateway_status::{GatewayStatus, SessionPath, SessionStatus};
use super::status::{PathStatus, Status, Totals};

const DELIVERY_HELP: &str = "Predicted time until a byte that is sent now arrives.";
const BACKLOG_HELP: &str = "Bytes that wait at the lender.";
const SECOND_HOP_HELP: &str = "Rate at which the lender passes bytes on.";

/// The text of metric families.
#[derive(Default)]
struct MetricsText(String);

#[derive(Clone, Copy)]
enum MetricKind {
    Counter,
    Gauge,
}

impl MetricsText {
    /// Appends one family with its samples: formatted labels, and values.
    fn family<V: Display>(
        &mut self,
        name: &str,
        kind: MetricKind,
        help: &str,
        samples: impl IntoIterator<Item = (String, V)>,
    ) {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return;
        }
        let kind = match kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
        };
        let text = &mut self.0;
        let _ = writeln!(text, "# HELP manyways_bond_{name} {help}");
        let _ = writeln!(text, "# TYPE manyways_bond_{name} {kind}");
        for (labels, value) in samples {
            let _ = writeln!(text, "manyways_bond_{name}{labels} {value}");
        }
    }

    fn totals(&mut self, prefix: &str, totals: &[(String, Totals)]) {
        type Of = fn(&Totals) -> u64;
        let families: [(&str, &str, Of); 8] = [
            ("sent_bytes_total", "Bytes of streams sent, all copies counted.", |t| t.sent_bytes),
            (
                "reinjected_bytes_total",
                "Bytes of streams that were reinjected because their path stalled.",
                |t| t.reinjected_bytes,
            ),
            (
                "spurious_bytes_total",
                "Reinjected bytes that their first path also delivered.",
                |t| t.spurious_bytes,
            ),
            (
                "recalled_bytes_total",
                "Bytes of streams that were recalled from a lender and given to another path.",
                |t| t.recalled_bytes,
            ),
            ("received_bytes_total", "Bytes of streams received.", |t| t.received_bytes),
            ("duplicate_bytes_total", "Bytes of streams received twice.", |t| t.duplicate_bytes),
            ("header_bytes_total", "Bytes of messages that are not payload.", |t| t.header_bytes),
            ("dropped_datagrams_total", "Datagrams dropped before they were sent.", |t| {
                t.dropped_datagrams
            }),
        ];
        for (name, help, of) in families {
            let samples = totals.iter().map(|(labels, totals)| (labels.clone(), of(totals)));
            self.family(&format!("{prefix}{name}"), MetricKind::Counter, help, samples);
        }
    }
}

/// Formats labels in braces and escapes their values.
fn labels(pairs: &[(&str, &str)]) -> String {
    let escape =
        |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let pairs: Vec<String> =
        pairs.iter().map(|(name, value)| format!("{name}=\"{}\"", escape(value))).collect();
    format!("{{{}}}", pairs.join(","))
}

/// Returns the metrics of a client.
pub fn client(status: &Status) -> String {
    let mut text = MetricsText::default();
    let info = labels(&[("version", &status.version), ("name", &status.name)]);
    text.family("info", MetricKind::Gauge, "The version and the name of the client.", [(info, 1)]);
    let none = String::new;
    let uptime = [(none(), status.uptime_seconds)];
    text.family("uptime_seconds", MetricKind::Gauge, "How long the client has run.", uptime);
    let streams = [(none(), status.stream_count)];
    text.family("streams", MetricKind::Gauge, "Active connections and flows.", streams);
    let up = status.paths.iter().map(|path| {
        let labels = labels(&[("path", &path.name), ("kind", &path.kind)]);
        (labels, u8::from(matches!(path.state, PathState::Up | PathState::Asleep)))
    });
    text.family("path_up", MetricKind::Gauge, "Whether the path reaches the gateway.", up);
    type Of = fn(&PathStatus) -> Option<f64>;
    let whole = |name, kind, help, of: fn(&PathStatus) -> u64| (name, kind, help, of);
    for (name, kind, help, of) in [
        whole(
            "path_received_bytes_total",
            MetricKind::Counter,
            "Bytes received over the path.",
            |p| p.received_bytes,
        ),
        whole("path_sent_bytes_total", MetricKind::Counter, "Bytes sent over the path.", |p| {
            p.sent_bytes
        }),
        whole("path_queue_bytes", MetricKind::Gauge, "Bytes that wait to be sent.", |p| {
            p.queue_bytes
        }),
        whole("path_in_flight_bytes", MetricKind::Gauge, "Bytes sent and not acknowledged.", |p| {
            p.in_flight_bytes
        }),
        whole(
            "path_plan_used_bytes",
            MetricKind::Gauge,
            "Bytes since the data plan was last reset.",
            |p| p.plan_used_bytes,
        ),
    ] {
        let samples = status.paths.iter().map(|path| (labels(&[("path", &path.name)]), of(path)));
        text.family(name, kind, help, samples);
    }
    let known: [(&str, &str, Of); 8] = [
        ("path_rtt_seconds", "The path's round trip.", |p| p.rtt_seconds),
        ("path_loss_ratio", "Share of packets that are lost on the path.", |p| p.loss),
        ("path_load_ratio", "The share of its throughput that is in use.", |p| p.load),
        ("path_capacity_bits_per_second", "Estimated capacity of the path.", |p| {
            p.capacity_bps.map(|bps| bps as f64)
        }),
        ("path_plan_remaining_bytes", "Remaining bytes of the data plan.", |p| {
            p.plan_remaining_bytes.map(|bytes| bytes as f64)
        }),
        ("path_delivery_seconds", DELIVERY_HELP, |p| p.delivery_seconds),
        ("lender_backlog_bytes", BACKLOG_HELP, |p| {
            p.lender.as_ref()?.backlog_bytes.map(|bytes| bytes as f64)
        }),
        ("lender_second_hop_bits_per_second", SECOND_HOP_HELP, |p| {
            p.lender.as_ref()?.second_hop_bps.map(|bps| bps as f64)
        }),
    ];
    for (name, help, of) in known {
        let samples = status
            .paths
            .iter()
            .filter_map(|path| Some((labels(&[("path", &path.name)]), of(path)?)));
        text.family(name, MetricKind::Gauge, help, samples);
    }
    text.totals("", &[(none(), status.totals)]);
    text.0
}

/// Returns the metrics of a gateway. The sessions of a client are summed.
pub fn gateway(status: &GatewayStatus) -> String {
    let mut text = MetricsText::default();
    let info = labels(&[("version", &status.version)]);
    text.family("gateway_info", MetricKind::Gauge, "Version of the gateway.", [(info, 1)]);
    let mut clients: BTreeMap<&str, Vec<&SessionStatus>> = BTreeMap::new();
    for session in &status.sessions {
        clients.entry(&session.client).or_default().push(session);
    }
    let of_client = |of: fn(&[&SessionStatus]) -> u64| {
        let samples = clients
            .iter()
            .map(move |(client, sessions)| (labels(&[("client", client)]), of(sessions)));
        samples.collect::<Vec<_>>()
    };
    let sessions = of_client(|sessions| sessions.len() as u64);
    text.family("gateway_sessions", MetricKind::Gauge, "Sessions of a client.", sessions);
    let streams = of_client(|sessions| sessions.iter().map(|one| one.stream_count as u64).sum());
    text.family("gateway_streams", MetricKind::Gauge, "Streams of a client.", streams);
    let paths = of_client(|sessions| {
        let paths = sessions.iter().flat_map(|one| &one.paths);
        paths.filter(|path| path.state == PathState::Up).count() as u64
    });
    text.family("gateway_paths_up", MetricKind::Gauge, "Paths of a client that are up.", paths);
    type Of = fn(&SessionPath) -> Option<f64>;
    type Merge = fn(f64, f64) -> f64;
    let known: [(&str, &str, Of, Merge); 3] = [
        ("gateway_path_delivery_seconds", DELIVERY_HELP, |p| p.delivery_seconds, f64::max),
        (
            "gateway_lender_backlog_bytes",
            BACKLOG_HELP,
            |p| p.lender.as_ref()?.backlog_bytes.map(|bytes| bytes as f64),
            f64::add,
        ),
        (
            "gateway_lender_second_hop_bits_per_second",
            SECOND_HOP_HELP,
            |p| p.lender.as_ref()?.second_hop_bps.map(|bps| bps as f64),
            f64::add,
        ),
    ];
    for (name, help, of, merge) in known {
        // Paths with the same number in several sessions of a client are one series.
        let mut values: BTreeMap<(&str, u8), f64> = BTreeMap::new();
        for session in &status.sessions {
            for path in &session.paths {
                let Some(value) = of(path) else { continue };
                let key = (session.client.as_str(), path.path);
                values.entry(key).and_modify(|sum| *sum = merge(*sum, value)).or_insert(value);
            }
        }
        let samples = values.into_iter().map(|((client, path), value)| {
            (labels(&[("client", client), ("path", &path.to_string())]), value)
        });
        text.family(name, MetricKind::Gauge, help, samples);
    }
    // The sessions that have ended count, too, so that no counter falls.
    let mut sums: BTreeMap<&str, Totals> =
        status.ended.iter().map(|(client, totals)| (client.as_str(), *totals)).collect();
    for session in &status.sessions {
        let sum = sums.entry(&session.client).or_default();
        *sum = *sum + session.totals;
    }
    let totals: Vec<(String, Totals)> =
        sums.into_iter().map(|(client, totals)| (labels(&[("client", client)]), totals)).collect();
    text.totals("gateway_", &totals);
    for (name, help, value) in [
        ("gateway_descriptors", "Descriptors for connections of clients.", status.descriptors),
        ("gateway_descriptors_used", "Those that are in use.", status.used_descriptors),
    ] {
        text.family(name, MetricKind::Gauge, help, [(String::new(), value)]);
    }
    let refused = status.refused.iter().map(|(cause, count)| (labels(&[("cause", cause)]), *count));
    text.family(
        "gateway_refused_connections_total",
        MetricKind::Counter,
        "Connections that were refused before they had a session.",
        refused,
    );
    text.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bond::status::LenderStatus;

    fn path(name: &str, rtt_seconds: Option<f64>) -> PathStatus {
        PathStatus {
            name: name.into(),
            kind: "wifi".into(),
            state: PathState::Up,
            carrier: None,
            metered: false,
            down_bps: 0,
            up_bps: 0,
            capacity_bps: None,
            load: None,
            rtt_seconds,
            delivery_seconds: None,
            lender: None,
            loss: None,
            queue_bytes: 0,
            in_flight_bytes: 0,
            received_bytes: 12,
            sent_bytes: 34,
            plan_used_bytes: 46,
            plan_remaining_bytes: None,
        }
    }

    fn lender(second_hop_bps: Option<u64>) -> LenderStatus {
        LenderStatus {
            address: None,
            first_hop_rtt_seconds: None,
            second_hop_rtt_seconds: None,
            second_hop_bps,
            backlog_bytes: Some(300),
        }
    }

    #[test]
    fn each_family_is_named_once_and_unknown_values_are_left_out() {
        let lender = Some(lender(Some(4_000_000)));
        let lent = PathStatus { delivery_seconds: Some(0.5), lender, ..path("phone", None) };
        let status = Status {
            name: "a\"b\\c".into(),
            version: "1".into(),
            uptime_seconds: 2.5,
            policy: None,
            no_path_action: None,
            auto_goals: Vec::new(),
            ended: Vec::new(),
            paths: vec![path("wlan0", Some(0.025)), path("wlan1", None), lent],
            stream_count: 3,
            streams: Vec::new(),
            totals: Totals { reinjected_bytes: 7, recalled_bytes: 6, ..Totals::default() },
        };
        let text = client(&status);
        for line in [
            "manyways_bond_info{version=\"1\",name=\"a\\\"b\\\\c\"} 1",
            "manyways_bond_uptime_seconds 2.5",
            "manyways_bond_streams 3",
            "manyways_bond_path_up{path=\"wlan0\",kind=\"wifi\"} 1",
            "manyways_bond_path_received_bytes_total{path=\"wlan1\"} 12",
            "manyways_bond_path_rtt_seconds{path=\"wlan0\"} 0.025",
            "manyways_bond_path_delivery_seconds{path=\"phone\"} 0.5",
            "manyways_bond_lender_backlog_bytes{path=\"phone\"} 300",
            "manyways_bond_lender_second_hop_bits_per_second{path=\"phone\"} 4000000",
            "manyways_bond_reinjected_bytes_total 7",
            "manyways_bond_recalled_bytes_total 6",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
        assert!(!text.contains("rtt_seconds{path=\"wlan1\"}"), "{text}");
        assert!(!text.contains("loss"), "{text}");
        assert!(!text.contains("delivery_seconds{path=\"wlan"), "{text}");
        let mut types: Vec<&str> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
        let all = types.len();
        types.dedup();
        assert_eq!(types.len(), all);
    }

    #[test]
    fn all_sessions_of_a_client_are_one_series() {
        let session = |delivery, second_hop_bps| SessionStatus {
            client: "phone".into(),
            stream_count: 2,
            paths: vec![SessionPath {
                path: 1,
                state: PathState::Up,
                rtt_seconds: None,
                delivery_seconds: Some(delivery),
                lender: Some(lender(second_hop_bps)),
                received_bytes: 0,
                sent_bytes: 0,
            }],
            totals: Totals { sent_bytes: 5, ..Totals::default() },
        };
        let ended = Totals { sent_bytes: 7, ..Totals::default() };
        let status = GatewayStatus {
            version: "1".into(),
            sessions: vec![session(0.5, None), session(0.25, None)],
            ended: [("phone".to_owned(), ended), ("laptop".to_owned(), ended)].into(),
            descriptors: 900,
            used_descriptors: 4,
            refused: [("too-many".to_owned(), 3)].into(),
        };
        let text = gateway(&status);
        assert!(text.contains("\nmanyways_bond_gateway_sessions{client=\"phone\"} 2\n"), "{text}");
        assert!(text.contains("\nmanyways_bond_gateway_streams{client=\"phone\"} 4\n"), "{text}");
        let sent = "\nmanyways_bond_gateway_sent_bytes_total{client=\"phone\"} 17\n";
        assert_eq!(text.matches(sent).count(), 1, "{text}");
        let of_gone = "\nmanyways_bond_gateway_sent_bytes_total{client=\"laptop\"} 7\n";
        assert!(text.contains(of_gone), "{text}");
        let labels = "{client=\"phone\",path=\"1\"}";
        for (name, value) in [("path_delivery_seconds", "0.5"), ("lender_backlog_bytes", "600")] {
            let line = format!("\nmanyways_bond_gateway_{name}{labels} {value}\n");
            assert_eq!(text.matches(&line).count(), 1, "{line} in\n{text}");
        }
        assert!(!text.contains("gateway_lender_second_hop"), "{text}");
        let refused = "\nmanyways_bond_gateway_refused_connections_total{cause=\"too-many\"} 3\n";
        assert!(text.contains(refused), "{text}");
    }
}
