//! What a client is doing, as it is shown: the schema of `manyways bond status --json`, which
//! `docs/bond-status.md` describes. Within its version fields are only added.

use std::collections::BTreeMap;
use std::ops::Add;
use std::rc::Rc;

use manyways_proto::mux::Counters;
use manyways_proto::policy::Decision;
use manyways_proto::sched::PathSet;
use manyways_unit::{Rate, Size, Span};
use serde::{Deserialize, Serialize};

use super::rules::{Fate, Rules, Traffic, Way};
use super::surroundings::PathView;
use super::tally::{Counted, Shares};

/// Name and version of the schema.
pub const SCHEMA: &str = "manyways.bond-status/1";
/// So many streams are told of one by one: those that began last.
pub const MOST_STREAMS: usize = 1000;

/// What a client is doing.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// [`SCHEMA`].
    pub schema: String,
    /// What the client is called.
    pub name: String,
    /// Its version.
    pub version: String,
    /// How long it has run.
    pub seconds: f64,
    /// The policy's file, where there is one.
    pub policy: Option<String>,
    /// What becomes of traffic, in words, as no network leads to the gateway; none where one does.
    #[serde(default)]
    pub cut_off: Option<String>,
    /// Its networks, in the order of their numbers.
    pub paths: Vec<PathStatus>,
    /// How many streams there are; [`MOST_STREAMS`] of them are in `streams`.
    pub stream_count: usize,
    /// Connections that it carries and other traffic that is under way, the oldest first.
    pub streams: Vec<StreamStatus>,
    /// Since it began.
    pub totals: Totals,
}

/// A network.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PathStatus {
    /// Its name.
    pub name: String,
    /// Its kind: `wifi`, `cellular`, …
    pub kind: String,
    /// `up`, `suspect` (it has a connection that does not get through), `asleep` (it has none as
    /// there is nothing to say) or `down`.
    pub state: String,
    /// What carries it: `tcp` or `quic`.
    pub carrier: Option<String>,
    /// Whether its bytes cost money, as the system says.
    pub metered: bool,
    /// What comes now.
    pub down_bps: u64,
    /// What goes now.
    pub up_bps: u64,
    /// The throughput that it has to offer, both directions together, once that is known.
    pub offered_bps: Option<u64>,
    /// The share of that which is in use.
    pub load: Option<f64>,
    /// Its round trip.
    pub rtt_seconds: Option<f64>,
    /// The share of packets from here that it loses.
    pub loss: Option<f64>,
    /// What waits here to be sent.
    pub queue_bytes: u64,
    /// What was sent and is not acknowledged.
    pub in_flight_bytes: u64,
    /// What came since the client began.
    pub received_bytes: u64,
    /// What went.
    pub sent_bytes: u64,
    /// What flowed since its data plan began anew, or the month.
    pub month_bytes: u64,
    /// What is left of the data plan, where there is one.
    pub left_bytes: Option<u64>,
}

/// A connection, or datagrams between the same two ends.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct StreamStatus {
    /// The number of a stream; none of what is no stream.
    pub stream: Option<u64>,
    /// `tcp` or `udp`.
    pub protocol: String,
    /// Where it goes: an address or a name, and the port.
    pub to: String,
    /// The name of the server, where it is known.
    pub domain: Option<String>,
    /// The program.
    pub process: Option<String>,
    /// The user who runs it.
    pub user: Option<String>,
    /// The rule that decided; none for the default.
    pub rule: Option<String>,
    /// `bond`, `direct` or `block`.
    pub decision: String,
    /// How it is carried: the scheduler.
    pub scheduler: Option<String>,
    /// None of the paths that it may use is there.
    pub waits: bool,
    /// Somebody holds it back.
    #[serde(default)]
    pub held: bool,
    /// How long it has been there.
    pub seconds: f64,
    /// What the application sent. Not counted of connections past the bond that are under way.
    pub up_bytes: u64,
    /// What came for it.
    pub down_bytes: u64,
    /// What was carried for it, by path, all copies counted. For datagrams: for all that the
    /// application's socket sends.
    pub paths: BTreeMap<String, ShareStatus>,
}

/// What a path carried.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ShareStatus {
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
    /// Of these, sent again because their path stalled…
    pub reinjected_bytes: u64,
    /// …though it brought them after all.
    pub spurious_bytes: u64,
    /// Bytes of streams that came.
    pub received_bytes: u64,
    /// Of these, for the second time.
    pub repeated_bytes: u64,
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
            repeated_bytes: self.repeated_bytes + other.repeated_bytes,
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
            repeated_bytes: counters.repeated,
            header_bytes: counters.headers,
            dropped_datagrams: counters.dropped,
        }
    }
}

impl From<&PathView> for PathStatus {
    fn from(view: &PathView) -> Self {
        let facts = &view.facts;
        Self {
            name: facts.name.clone(),
            kind: facts.kind.clone(),
            state: view.state.name().to_owned(),
            carrier: view.carrier.map(str::to_owned),
            metered: facts.metered,
            down_bps: view.down.as_bps(),
            up_bps: view.up.as_bps(),
            offered_bps: facts.rate.map(Rate::as_bps),
            load: facts.load,
            rtt_seconds: facts.rtt.map(Span::as_secs_f64),
            loss: facts.loss,
            queue_bytes: view.unsent.as_bytes(),
            in_flight_bytes: view.in_flight.as_bytes(),
            received_bytes: view.traffic.received,
            sent_bytes: view.traffic.sent,
            month_bytes: facts.used.map(Size::as_bytes).unwrap_or_default(),
            left_bytes: view.left.map(Size::as_bytes),
        }
    }
}

impl Rules {
    /// What the client is doing. `name` is what it is called, `policy` the file that it follows.
    pub fn status(&self, name: &str, policy: Option<&str>) -> Status {
        let now = self.now();
        let views = self.views();
        let traffic = self.traffic();
        let later = traffic.len().saturating_sub(MOST_STREAMS);
        let names = self.client().paths();
        let streams = traffic.iter().skip(later).map(|one| self.one(one, &names, &views));
        Status {
            schema: SCHEMA.to_owned(),
            name: name.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            seconds: now.as_secs_f64(),
            policy: policy.map(str::to_owned),
            // Known to whoever knows what is taken in.
            cut_off: None,
            paths: views.iter().map(PathStatus::from).collect(),
            stream_count: traffic.len(),
            streams: streams.collect(),
            totals: self.counters().into(),
        }
    }

    fn one(&self, traffic: &Rc<Traffic>, names: &[String], views: &[PathView]) -> StreamStatus {
        let facts = traffic.facts.borrow();
        let (counted, flow_shares) = self.client().handle().with(|session| {
            let stream = match traffic.way.get() {
                Way::Stream(stream, number) => {
                    session.tally.stream(stream).filter(|one| one.number == number).cloned()
                }
                _ => None,
            };
            let flow = match traffic.way.get() {
                Way::Flow(flow) => session.tally.flow(flow).cloned(),
                _ => None,
            };
            (stream, flow)
        });
        let bytes = traffic.bytes.get();
        let Counted { up, down, shares, .. } = counted.unwrap_or(Counted {
            up: bytes.0,
            down: bytes.1,
            shares: flow_shares.unwrap_or_default(),
            ..Counted::default()
        });
        let treatment = match traffic.fate.get() {
            Fate::Bond(label) => self.treatment(label),
            _ => None,
        };
        StreamStatus {
            stream: match traffic.way.get() {
                Way::Stream(_, number) => Some(number),
                _ => None,
            },
            protocol: facts.protocol.to_string(),
            to: facts.to.to_string(),
            domain: facts.domain.as_ref().map(ToString::to_string),
            process: facts.process.clone(),
            user: facts.user.clone().or_else(|| facts.uid.map(|uid| uid.to_string())),
            rule: traffic.rule.borrow().clone(),
            decision: match (traffic.is_held.get(), traffic.fate.get()) {
                // It has no label yet.
                (true, _) => match self.first_verdict(traffic).0 {
                    Decision::Bond(_) => Fate::Bond(0),
                    Decision::Direct => Fate::Direct,
                    Decision::Block => Fate::Block,
                },
                (false, fate) => fate,
            }
            .word()
            .to_owned(),
            scheduler: treatment.map(|treatment| treatment.scheduler.to_string()),
            waits: treatment.is_some_and(|treatment| is_nowhere(treatment.paths, views)),
            held: traffic.is_held.get(),
            seconds: self.now().since(traffic.since).as_secs_f64(),
            up_bytes: up,
            down_bytes: down,
            paths: named(&shares, names),
        }
    }
}

fn is_nowhere(paths: PathSet, views: &[PathView]) -> bool {
    !views.iter().any(|view| view.facts.up && paths.has(view.facts.id))
}

fn named(shares: &Shares, names: &[String]) -> BTreeMap<String, ShareStatus> {
    let share = |(path, share): (&manyways_proto::sched::PathId, &super::tally::Share)| {
        let name = names.get(usize::from(path.0)).cloned().unwrap_or_default();
        (name, ShareStatus { sent_bytes: share.sent, received_bytes: share.received })
    };
    shares.iter().map(share).collect()
}
