//! Parameters of the events of DevTools that describe a load. A missing field has its default; an event
//! in which a field has another type is not counted.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// Parameters of `Network.requestWillBeSent`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WillBeSent {
    pub request_id: String,
    pub loader_id: String,
    pub frame_id: String,
    pub request: Request,
    /// Seconds of the monotonic clock, as all that are not named otherwise.
    pub timestamp: f64,
    /// Seconds since the Unix epoch.
    pub wall_time: f64,
    pub initiator: Initiator,
    pub redirect_response: Option<Response>,
    #[serde(rename = "type")]
    pub kind: String,
    pub render_blocking_behavior: String,
}

/// The request that is sent.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Request {
    pub url: String,
    pub method: String,
    pub headers: BTreeMap<String, Value>,
    pub initial_priority: String,
}

/// The cause of a request.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Initiator {
    #[serde(rename = "type")]
    pub kind: String,
    pub url: String,
    pub line_number: Option<f64>,
    pub column_number: Option<f64>,
    pub stack: Option<Stack>,
}

/// Stack of a script, and of the one that scheduled it.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Stack {
    pub call_frames: Vec<CallFrame>,
    pub parent: Option<Box<Stack>>,
}

/// A function on a stack.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CallFrame {
    pub url: String,
    pub line_number: f64,
}

/// Head of a response, and its connection.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Response {
    pub status: f64,
    pub status_text: String,
    pub headers: BTreeMap<String, Value>,
    pub protocol: String,
    pub connection_id: f64,
    pub connection_reused: bool,
    #[serde(rename = "remoteIPAddress")]
    pub remote_ip_address: String,
    pub remote_port: f64,
    pub from_disk_cache: bool,
    pub from_prefetch_cache: bool,
    pub encoded_data_length: f64,
    pub timing: Option<Timing>,
}

/// Milliseconds after `request_time`; -1 of a step that was not taken.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Timing {
    /// Seconds.
    pub request_time: f64,
    pub dns_start: f64,
    pub dns_end: f64,
    pub connect_start: f64,
    pub connect_end: f64,
    pub ssl_start: f64,
    pub ssl_end: f64,
    pub send_start: f64,
    pub send_end: f64,
    pub receive_headers_start: f64,
    pub receive_headers_end: f64,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            request_time: -1.0,
            dns_start: -1.0,
            dns_end: -1.0,
            connect_start: -1.0,
            connect_end: -1.0,
            ssl_start: -1.0,
            ssl_end: -1.0,
            send_start: -1.0,
            send_end: -1.0,
            receive_headers_start: -1.0,
            receive_headers_end: -1.0,
        }
    }
}

/// Parameters of `Network.responseReceived`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ResponseReceived {
    pub request_id: String,
    pub response: Response,
}

/// Parameters of `Network.dataReceived`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DataReceived {
    pub request_id: String,
    pub timestamp: f64,
    pub data_length: f64,
}

/// Of `Network.loadingFinished` and `loadingFailed`, and of `requestServedFromCache`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Ended {
    pub request_id: String,
    pub timestamp: f64,
    pub encoded_data_length: f64,
}

/// An event of `Tracing.dataCollected`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct TraceEvent {
    pub name: String,
    /// Phase: `X` is complete, `R` a mark, `M` has metadata.
    pub ph: String,
    pub pid: i64,
    pub tid: i64,
    /// Microseconds of the monotonic clock.
    pub ts: f64,
    pub dur: f64,
    pub args: Value,
}
