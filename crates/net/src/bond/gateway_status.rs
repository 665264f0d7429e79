//! What a gateway does, as `manyways bond status --gateway --json` prints it.

use manyways_proto::bond::path::PathState;
use serde::{Deserialize, Serialize};

use super::session::Session;
use super::status::Totals;

/// Name and version of the schema of [`GatewayStatus`].
pub const SCHEMA: &str = "manyways.bond-gateway-status/2";

/// What a gateway does.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct GatewayStatus {
    /// [`SCHEMA`].
    pub schema: String,
    /// The version of manyways.
    pub version: String,
    /// The sessions of its clients.
    pub sessions: Vec<SessionStatus>,
}

/// What one session does.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SessionStatus {
    /// The client's name in the allow file.
    pub client: String,
    /// Streams that are open.
    pub stream_count: usize,
    /// The paths of the session.
    pub paths: Vec<SessionPath>,
    /// Since the session began.
    pub totals: Totals,
}

/// One path of a session.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SessionPath {
    /// The client's number for it.
    pub path: u8,
    /// `up`, `suspect` or `down`.
    pub state: String,
    /// The smoothed round-trip time.
    pub rtt_seconds: Option<f64>,
    /// Came since the session began.
    pub received_bytes: u64,
    /// Was sent since the session began.
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
            SessionPath {
                path: path.0,
                state: state.to_string(),
                rtt_seconds: newest
                    .and_then(|carrier| carrier.condition)
                    .map(|condition| condition.rtt.as_secs_f64()),
                received_bytes: bytes.received,
                sent_bytes: bytes.sent,
            }
        });
        Self {
            client: client.to_owned(),
            stream_count: session.mux.stream_count(),
            paths: paths.collect(),
            totals: session.mux.counters().into(),
        }
    }
}
