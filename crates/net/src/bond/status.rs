//! The status of a client, as `manyways bond status --json` prints it. `docs/bond-status.md`
//! describes the schema. Within a version of the schema, fields are only added.

use std::collections::BTreeMap;
use std::ops::Add;

use manyways_proto::bond::path::{LenderSnapshot, PathBytes, PathSnapshot, PathState};
use manyways_proto::bond::routing::{AppFlow, AppFlowId, Carriage, Routing};
use manyways_proto::mux::Counters;
use manyways_proto::sched::{PathId, PathSet};
use manyways_unit::{Rate, Size, Span};
use serde::{Deserialize, Serialize};

use super::enforcer::PolicyEnforcer;
use super::flow_counters::{BytesByPath, StreamTotals};

/// Maximum listed streams. If there are more, the newest ones are listed.
const MAX_STREAMS: usize = 1000;
/// Maximum listed streams that have ended.
pub(super) const MAX_ENDED: usize = 256;

/// The status of a client.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Status {
    pub name: String,
    /// Version of manyways.
    pub version: String,
    /// Time since the start of the client.
    pub uptime_seconds: f64,
    /// Path of the policy file; `None` without a policy.
    pub policy: Option<String>,
    /// Treatment of traffic while no network leads to the gateway, as text; `None` while a network
    /// does.
    #[serde(default)]
    pub no_path_action: Option<String>,
    /// Goals of the policy's auto rules: `fast`, `balanced`, `thrifty`.
    #[serde(default)]
    pub auto_goals: Vec<String>,
    /// In the order of their numbers.
    pub paths: Vec<PathStatus>,
    /// Number of streams and flows under way, including unlisted ones.
    pub stream_count: usize,
    /// Streams and flows under way, the oldest first, at most 1000.
    pub streams: Vec<StreamStatus>,
    /// Streams that have ended, the oldest first: the last 256.
    #[serde(default)]
    pub ended: Vec<EndedStream>,
    /// Since the start of the session.
    pub totals: Totals,
}

manyways_record::document!(Status, "manyways.bond-status/2");

/// The names of path states in JSON.
#[derive(Serialize, Deserialize)]
#[serde(remote = "PathState", rename_all = "lowercase")]
pub(super) enum PathStateName {
    Up,
    Suspect,
    Asleep,
    Down,
}

/// The status of a network.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PathStatus {
    /// Name of the interface.
    pub name: String,
    /// `wifi`, `cellular`, …
    pub kind: String,
    /// `up`, `suspect` (its carrier does not get through), `asleep` (no carrier, because nothing is
    /// to be sent) or `down`.
    #[serde(with = "PathStateName")]
    pub state: PathState,
    /// `tcp` or `quic`; `None` without a carrier.
    pub carrier: Option<String>,
    /// Whether the system reports that bytes on the network cost money.
    pub metered: bool,
    /// Current rate to the device.
    pub down_bps: u64,
    /// Current rate from the device.
    pub up_bps: u64,
    /// Capacity, both directions together; `None` if unknown.
    pub capacity_bps: Option<u64>,
    /// Share of the capacity that is in use, from 0 to 1; `None` if unknown.
    pub load: Option<f64>,
    /// Smoothed round-trip time to the gateway; `None` if unknown.
    pub rtt_seconds: Option<f64>,
    /// Predicted time until a byte that is sent now arrives at the gateway; `None` if unknown.
    #[serde(default)]
    pub delivery_seconds: Option<f64>,
    /// The device that lends the network; `None` for a network of this device.
    #[serde(default)]
    pub lender: Option<LenderStatus>,
    /// Share of packets from the device that are lost, from 0 to 1; `None` if unknown.
    pub loss: Option<f64>,
    /// Bytes that wait at the device.
    pub queue_bytes: u64,
    /// Bytes sent and not acknowledged.
    pub in_flight_bytes: u64,
    /// Encrypted bytes since the start of the client.
    pub received_bytes: u64,
    /// Encrypted bytes since the start of the client.
    pub sent_bytes: u64,
    /// Bytes since the data plan was last reset, or since the start of the month.
    pub plan_used_bytes: u64,
    /// Remaining bytes of the data plan; `None` without a data plan.
    pub plan_remaining_bytes: Option<u64>,
}

/// A lender, for one direction of its path.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LenderStatus {
    /// Address at which the client reaches it, or of its connection to the gateway.
    pub address: Option<String>,
    /// Smoothed round-trip time between this endpoint and the lender; `None` if unknown.
    pub first_hop_rtt_seconds: Option<f64>,
    /// Round-trip time between the lender and the other endpoint; `None` if unknown.
    pub second_hop_rtt_seconds: Option<f64>,
    /// Rate at which the lender passes bytes on; `None` if unknown.
    pub second_hop_bps: Option<u64>,
    /// Bytes that wait at the lender or in the queue of its network; `None` if unknown.
    pub backlog_bytes: Option<u64>,
}

impl From<&LenderSnapshot> for LenderStatus {
    fn from(lender: &LenderSnapshot) -> Self {
        Self {
            address: lender.address.map(|address| address.to_string()),
            first_hop_rtt_seconds: lender.first_hop_rtt.map(Span::as_secs_f64),
            second_hop_rtt_seconds: lender.second_hop_rtt.map(Span::as_secs_f64),
            second_hop_bps: lender.second_hop_rate.map(Rate::as_bps),
            backlog_bytes: lender.backlog.map(Size::as_bytes),
        }
    }
}

/// A connection through the bond that has ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EndedStream {
    /// Number of the stream; those of a client increase.
    pub stream: u64,
    /// Address or name, and port.
    pub destination: String,
    /// Name of the server; `None` if unknown.
    pub domain: Option<String>,
    /// Program; `None` if unknown.
    pub process: Option<String>,
    /// Bytes that the application sent, each once.
    pub up_bytes: u64,
    /// Bytes that the application received, each once.
    pub down_bytes: u64,
}

/// A connection, or the datagrams between a socket of an application and one destination.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct StreamStatus {
    /// Number of the stream; `None` for datagrams and for traffic outside the bond.
    pub stream: Option<u64>,
    /// `tcp` or `udp`.
    pub protocol: String,
    /// Address or name, and port.
    pub destination: String,
    /// Name of the server; `None` if unknown.
    pub domain: Option<String>,
    /// Program; `None` if unknown.
    pub process: Option<String>,
    /// User that runs the program: name, or number if the name is unknown.
    pub user: Option<String>,
    /// Rule that decided; `None` for the default.
    pub rule: Option<String>,
    /// `bond`, `direct` or `block`.
    pub decision: String,
    /// Scheduler of the bond; `None` outside the bond.
    pub scheduler: Option<String>,
    /// Whether none of the allowed paths is up.
    pub waiting_for_path: bool,
    /// Whether the delay gate delays the connection.
    #[serde(default)]
    pub delayed: bool,
    /// Time since the start of the connection.
    pub age_seconds: f64,
    /// Bytes that the application sent. A direct connection is counted when it ends.
    pub up_bytes: u64,
    /// Bytes that were received for the application.
    pub down_bytes: u64,
    /// Payload bytes by path, with all copies. For datagrams: of all destinations of the
    /// application's socket.
    pub paths: BTreeMap<String, PathBytesStatus>,
}

/// Bytes that a path carried.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PathBytesStatus {
    /// From the device.
    pub sent_bytes: u64,
    /// To the device.
    pub received_bytes: u64,
}

/// Counters of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Bytes of streams that were sent, with all copies.
    pub sent_bytes: u64,
    /// Of these, bytes that were reinjected because their path stalled.
    pub reinjected_bytes: u64,
    /// Of these, bytes that their first path delivered after all.
    pub spurious_bytes: u64,
    /// Of the sent bytes, those that were recalled from a lender and given to another path.
    #[serde(default)]
    pub recalled_bytes: u64,
    /// Bytes of streams that were received.
    pub received_bytes: u64,
    /// Of these, duplicate bytes.
    pub duplicate_bytes: u64,
    /// Bytes of messages that are not payload.
    pub header_bytes: u64,
    /// Datagrams that were dropped before they were sent.
    pub dropped_datagrams: u64,
}

impl Add for Totals {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            sent_bytes: self.sent_bytes + other.sent_bytes,
            reinjected_bytes: self.reinjected_bytes + other.reinjected_bytes,
            spurious_bytes: self.spurious_bytes + other.spurious_bytes,
            recalled_bytes: self.recalled_bytes + other.recalled_bytes,
            received_bytes: self.received_bytes + other.received_bytes,
            duplicate_bytes: self.duplicate_bytes + other.duplicate_bytes,
            header_bytes: self.header_bytes + other.header_bytes,
            dropped_datagrams: self.dropped_datagrams + other.dropped_datagrams,
        }
    }
}

impl From<Counters> for Totals {
    fn from(counters: Counters) -> Self {
        Self {
            sent_bytes: counters.sent,
            reinjected_bytes: counters.reinjected,
            spurious_bytes: counters.spurious,
            recalled_bytes: counters.recalled,
            received_bytes: counters.received,
            duplicate_bytes: counters.duplicate,
            header_bytes: counters.headers,
            dropped_datagrams: counters.dropped,
        }
    }
}

impl From<&PathSnapshot> for PathStatus {
    fn from(path: &PathSnapshot) -> Self {
        let facts = &path.facts;
        Self {
            name: facts.name.clone(),
            kind: facts.kind.clone(),
            state: path.state,
            carrier: path.transport.map(|transport| transport.to_string()),
            metered: facts.metered,
            down_bps: path.down.as_bps(),
            up_bps: path.up.as_bps(),
            capacity_bps: facts.rate.map(Rate::as_bps),
            load: facts.load,
            rtt_seconds: facts.rtt.map(Span::as_secs_f64),
            delivery_seconds: path.delivery.map(Span::as_secs_f64),
            lender: path.lender.as_ref().map(LenderStatus::from),
            loss: facts.loss,
            queue_bytes: path.unsent.as_bytes(),
            in_flight_bytes: path.in_flight.as_bytes(),
            received_bytes: path.bytes.received,
            sent_bytes: path.bytes.sent,
            plan_used_bytes: facts.plan_used.map(Size::as_bytes).unwrap_or_default(),
            plan_remaining_bytes: path.plan_remaining.map(Size::as_bytes),
        }
    }
}

impl PolicyEnforcer {
    /// Returns the status of the client. `name` is the name of the client, `policy` the policy
    /// file.
    pub fn status(&self, name: &str, policy: Option<&str>) -> Status {
        let paths = self.paths();
        let table = self.table();
        let stream_count = table.flows().count();
        let skipped = stream_count.saturating_sub(MAX_STREAMS);
        let names = self.client().paths();
        let streams = table.flows().skip(skipped);
        let streams = streams.map(|(id, flow)| self.stream_status(id, flow, &names, &paths));
        Status {
            name: name.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_seconds: self.now().as_secs_f64(),
            policy: policy.map(str::to_owned),
            // Set by the caller, which knows the interception scope.
            no_path_action: None,
            auto_goals: self.goals().iter().map(ToString::to_string).collect(),
            paths: paths.iter().map(PathStatus::from).collect(),
            stream_count,
            streams: streams.collect(),
            ended: self.ended(),
            totals: self.counters().into(),
        }
    }

    fn stream_status(
        &self,
        id: AppFlowId,
        flow: &AppFlow,
        names: &[String],
        paths: &[PathSnapshot],
    ) -> StreamStatus {
        let facts = &flow.facts;
        let (up_bytes, down_bytes, by_path) =
            self.client().handle().with(|session| match flow.carriage {
                Carriage::Stream(stream, number) => {
                    let totals = session.counters.stream(stream);
                    let totals = totals.filter(|one| one.number == number).cloned();
                    let StreamTotals { up, down, paths, .. } = totals.unwrap_or_default();
                    (up, down, paths)
                }
                Carriage::Datagrams(of) => {
                    let by_path = session.counters.flow(of).cloned().unwrap_or_default();
                    (flow.up_bytes, flow.down_bytes, by_path)
                }
                Carriage::None => (flow.up_bytes, flow.down_bytes, BytesByPath::default()),
            });
        let policy = match flow.routing {
            Routing::Bond(label) => self.stream_policy(label),
            Routing::Direct | Routing::Block => None,
        };
        let routing = match flow.is_delayed {
            // A delayed flow has no label yet.
            true => Routing::from(self.table().preview(id).0),
            false => flow.routing,
        };
        StreamStatus {
            stream: match flow.carriage {
                Carriage::Stream(_, number) => Some(number),
                _ => None,
            },
            protocol: facts.protocol.to_string(),
            destination: facts.destination.to_string(),
            domain: facts.domain.clone(),
            process: facts.process.clone(),
            user: facts.user.clone().or_else(|| facts.uid.map(|uid| uid.to_string())),
            rule: flow.rule.clone(),
            decision: routing.name().to_owned(),
            scheduler: policy.map(|policy| policy.scheduler.to_string()),
            waiting_for_path: policy.is_some_and(|one| has_no_path(one.paths, paths)),
            delayed: flow.is_delayed,
            age_seconds: self.now().since(flow.since).as_secs_f64(),
            up_bytes,
            down_bytes,
            paths: by_path_name(&by_path, names),
        }
    }
}

fn has_no_path(allowed: PathSet, paths: &[PathSnapshot]) -> bool {
    !paths.iter().any(|path| path.facts.up && allowed.contains(path.facts.id))
}

fn by_path_name(bytes: &BytesByPath, names: &[String]) -> BTreeMap<String, PathBytesStatus> {
    let status = |(path, bytes): (&PathId, &PathBytes)| {
        let name = names.get(usize::from(path.0)).cloned().unwrap_or_default();
        (name, PathBytesStatus { sent_bytes: bytes.sent, received_bytes: bytes.received })
    };
    bytes.iter().map(status).collect()
}
