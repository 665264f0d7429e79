//! What a client does, as `manyways bond status --json` prints it; `docs/bond-status.md` describes
//! the schema. Within a version, fields are only added.

use std::collections::BTreeMap;
use std::ops::Add;

use manyways_proto::bond::path::{PathBytes, PathSnapshot};
use manyways_proto::bond::routing::{AppFlow, AppFlowId, Carriage, Routing};
use manyways_proto::mux::Counters;
use manyways_proto::sched::{PathId, PathSet};
use manyways_unit::{Rate, Size, Span};
use serde::{Deserialize, Serialize};

use super::enforcer::PolicyEnforcer;
use super::flow_counters::{BytesByPath, StreamTotals};

/// Name and version of the schema.
pub const SCHEMA: &str = "manyways.bond-status/2";
/// At most this many streams are listed: those that began last.
pub const MAX_STREAMS: usize = 1000;

/// What a client does.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// [`SCHEMA`].
    pub schema: String,
    /// The name of the client.
    pub name: String,
    /// The version of manyways.
    pub version: String,
    /// How long the client has run.
    pub uptime_seconds: f64,
    /// The policy's file; `None` without a policy.
    pub policy: Option<String>,
    /// What becomes of traffic while no network leads to the gateway, in words; `None` while one
    /// does.
    #[serde(default)]
    pub no_path_action: Option<String>,
    /// The networks, in the order of their numbers.
    pub paths: Vec<PathStatus>,
    /// How many streams and flows are under way, also those that are not listed.
    pub stream_count: usize,
    /// Streams and flows under way, the oldest first, at most [`MAX_STREAMS`].
    pub streams: Vec<StreamStatus>,
    /// Since the client began.
    pub totals: Totals,
}

/// A network.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PathStatus {
    /// The name of its interface.
    pub name: String,
    /// `wifi`, `cellular`, …
    pub kind: String,
    /// `up`, `suspect` (its carrier does not get through), `asleep` (it has no carrier as nothing is
    /// to be sent) or `down`.
    pub state: String,
    /// `tcp` or `quic`; `None` without a carrier.
    pub carrier: Option<String>,
    /// Whether the system says that its bytes cost money.
    pub metered: bool,
    /// What flows to the device now.
    pub down_bps: u64,
    /// What flows from the device now.
    pub up_bps: u64,
    /// The throughput that it has to offer, both directions together; `None` before that is known.
    pub capacity_bps: Option<u64>,
    /// The share of the capacity that is in use, from 0 to 1.
    pub load: Option<f64>,
    /// The smoothed round-trip time to the gateway.
    pub rtt_seconds: Option<f64>,
    /// The share of packets from here that it loses, from 0 to 1.
    pub loss: Option<f64>,
    /// Waits here to be sent.
    pub queue_bytes: u64,
    /// Was sent and is not acknowledged.
    pub in_flight_bytes: u64,
    /// Came since the client began.
    pub received_bytes: u64,
    /// Was sent since the client began.
    pub sent_bytes: u64,
    /// Flowed since the data plan was last reset, or the month began.
    pub plan_used_bytes: u64,
    /// What is left of the data plan; `None` without one.
    pub plan_remaining_bytes: Option<u64>,
}

/// A connection, or datagrams between the same two ends.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct StreamStatus {
    /// The number of the stream; `None` for datagrams and for what goes past the bond.
    pub stream: Option<u64>,
    /// `tcp` or `udp`.
    pub protocol: String,
    /// An address or a name, and the port.
    pub destination: String,
    /// The name of the server, where it is known.
    pub domain: Option<String>,
    /// The program.
    pub process: Option<String>,
    /// The user who runs it.
    pub user: Option<String>,
    /// The rule that decided; `None` for the default.
    pub rule: Option<String>,
    /// `bond`, `direct` or `block`.
    pub decision: String,
    /// How the bond carries it.
    pub scheduler: Option<String>,
    /// None of the paths that it may use is up.
    pub waiting_for_path: bool,
    /// The delay gate holds it.
    #[serde(default)]
    pub delayed: bool,
    /// How long ago it began.
    pub age_seconds: f64,
    /// What the application sent. A connection past the bond is counted when it ends.
    pub up_bytes: u64,
    /// What came for the application.
    pub down_bytes: u64,
    /// What was carried for it, by path, all copies counted. For datagrams: for all that the
    /// application's socket sends.
    pub paths: BTreeMap<String, PathBytesStatus>,
}

/// What a path carried.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PathBytesStatus {
    /// From the device.
    pub sent_bytes: u64,
    /// To the device.
    pub received_bytes: u64,
}

/// What a session has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Bytes of streams that were sent, all copies counted.
    pub sent_bytes: u64,
    /// Of these, sent again because their path stalled.
    pub reinjected_bytes: u64,
    /// Of these, sent again for nothing: their first path delivered them after all.
    pub spurious_bytes: u64,
    /// Bytes of streams that came.
    pub received_bytes: u64,
    /// Of these, for the second time.
    pub duplicate_bytes: u64,
    /// Bytes of messages that are not the application's.
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
            received_bytes: counters.received,
            duplicate_bytes: counters.repeated,
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
            state: path.state.to_string(),
            carrier: path.transport.map(|transport| transport.to_string()),
            metered: facts.metered,
            down_bps: path.down.as_bps(),
            up_bps: path.up.as_bps(),
            capacity_bps: facts.rate.map(Rate::as_bps),
            load: facts.load,
            rtt_seconds: facts.rtt.map(Span::as_secs_f64),
            loss: facts.loss,
            queue_bytes: path.unsent.as_bytes(),
            in_flight_bytes: path.in_flight.as_bytes(),
            received_bytes: path.bytes.received,
            sent_bytes: path.bytes.sent,
            plan_used_bytes: facts.used.map(Size::as_bytes).unwrap_or_default(),
            plan_remaining_bytes: path.plan_remaining.map(Size::as_bytes),
        }
    }
}

impl PolicyEnforcer {
    /// What the client does. `name` is that of the client, `policy` the file of its policy.
    pub fn status(&self, name: &str, policy: Option<&str>) -> Status {
        let paths = self.paths();
        let table = self.table();
        let stream_count = table.flows().count();
        let skipped = stream_count.saturating_sub(MAX_STREAMS);
        let names = self.client().paths();
        let streams = table.flows().skip(skipped);
        let streams = streams.map(|(id, flow)| self.stream_status(id, flow, &names, &paths));
        Status {
            schema: SCHEMA.to_owned(),
            name: name.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_seconds: self.now().as_secs_f64(),
            policy: policy.map(str::to_owned),
            // The caller knows what is intercepted.
            no_path_action: None,
            paths: paths.iter().map(PathStatus::from).collect(),
            stream_count,
            streams: streams.collect(),
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
        let treatment = match flow.routing {
            Routing::Bond(label) => self.treatment(label),
            Routing::Direct | Routing::Block => None,
        };
        let routing = match flow.is_delayed {
            // It has no label yet.
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
            scheduler: treatment.map(|treatment| treatment.scheduler.to_string()),
            waiting_for_path: treatment.is_some_and(|one| has_no_path(one.paths, paths)),
            delayed: flow.is_delayed,
            age_seconds: self.now().since(flow.since).as_secs_f64(),
            up_bytes,
            down_bytes,
            paths: by_path_name(&by_path, names),
        }
    }
}

fn has_no_path(allowed: PathSet, paths: &[PathSnapshot]) -> bool {
    !paths.iter().any(|path| path.facts.up && allowed.has(path.facts.id))
}

fn by_path_name(bytes: &BytesByPath, names: &[String]) -> BTreeMap<String, PathBytesStatus> {
    let status = |(path, bytes): (&PathId, &PathBytes)| {
        let name = names.get(usize::from(path.0)).cloned().unwrap_or_default();
        (name, PathBytesStatus { sent_bytes: bytes.sent, received_bytes: bytes.received })
    };
    bytes.iter().map(status).collect()
}
