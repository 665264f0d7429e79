//! The status of a gateway, as `manyways bond status --gateway --json` prints it.

use std::collections::BTreeMap;

use manyways_proto::bond::path::{CarrierSample, LenderSnapshot, PathState};
use manyways_unit::Span;
use serde::{Deserialize, Serialize};

use super::session::Session;
use super::status::{LenderStatus, PathStateName, Totals};

/// The status of a gateway.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct GatewayStatus {
    /// Version of manyways.
    pub version: String,
    /// Sorted by the names of the clients.
    pub sessions: Vec<SessionStatus>,
    /// Totals of the sessions that have ended since the start, by client.
    #[serde(default)]
    pub ended: BTreeMap<String, Totals>,
    /// Descriptors for connections of clients, and how many of them are in use.
    #[serde(default)]
    pub descriptors: u64,
    #[serde(default)]
    pub used_descriptors: u64,
    /// Refused connections since the start, by cause.
    #[serde(default)]
    pub refused: BTreeMap<String, u64>,
}

manyways_record::document!(GatewayStatus, "manyways.bond-gateway-status/2");

/// The status of one session.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SessionStatus {
    /// The client's name in the allow file.
    pub client: String,
    /// Number of open streams.
    pub stream_count: usize,
    pub paths: Vec<SessionPath>,
    /// Since the start of the session.
    pub totals: Totals,
}

/// One path of a session.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SessionPath {
    /// Number that the client gave to the path.
    pub path: u8,
    /// `up`, `suspect` or `down`.
    #[serde(with = "PathStateName")]
    pub state: PathState,
    /// Smoothed round-trip time; `None` if unknown.
    pub rtt_seconds: Option<f64>,
    /// Predicted time until a byte that is sent now arrives at the client; `None` if unknown.
    #[serde(default)]
    pub delivery_seconds: Option<f64>,
    /// The device that lends the network; `None` for a network of the client.
    #[serde(default)]
    pub lender: Option<LenderStatus>,
    /// Encrypted bytes since the start of the session.
    pub received_bytes: u64,
    /// Encrypted bytes since the start of the session.
    pub sent_bytes: u64,
}

impl SessionStatus {
    pub(super) fn of(client: &str, session: &mut Session) -> Self {
        let carriers = session.carrier_samples();
        let paths = session.bytes_by_path().into_iter().map(|(path, bytes)| {
            let own = carriers.iter().filter(|(of, _)| *of == path);
            let newest = own.map(|(_, carrier)| carrier).next_back();
            let state = match newest {
                None => PathState::Down,
                Some(carrier) if carrier.is_suspect => PathState::Suspect,
                Some(_) => PathState::Up,
            };
            let first_rtt = newest.and_then(|carrier| carrier.transport_info).map(|info| info.rtt);
            let rtt = newest.and_then(|carrier| Some(carrier.rtt_with(first_rtt?)));
            let lender = newest.and_then(|carrier| {
                let address = session.peer_address(carrier.id);
                Some(LenderSnapshot { address, ..carrier.lender(first_rtt)? })
            });
            SessionPath {
                path: path.0,
                state,
                rtt_seconds: rtt.map(Span::as_secs_f64),
                delivery_seconds: newest.and_then(CarrierSample::delivery).map(Span::as_secs_f64),
                lender: lender.as_ref().map(LenderStatus::from),
                received_bytes: bytes.received,
                sent_bytes: bytes.sent,
            }
        });
        Self {
            client: client.to_owned(),
            stream_count: session.mux.stream_count(),
            paths: paths.collect(),
            totals: session.counters_of_streams().into(),
        }
    }
}
