//! Requests on control sockets.

use std::fmt::Debug;
use std::mem::discriminant;

use manyways_net::bond::control::ControlRequest;
use manyways_net::control::{Request, parse_request};
use manyways_net::steer::protocol::SteerRequest;

pub(super) const BOND_WORDS: &[&str] = &[
    "\"status\"",
    "{\"why\":{\"port\":",
    ",\"domain\":\"",
    ",\"address\":\"192.0.2.1\"",
    ",\"is_udp\":true",
    "{\"delay\":{\"rules\":[\"",
    "],\"max_delay_seconds\":",
    "{\"choose\":{\"goal\":\"thrifty\"",
    ",\"paths\":[\"wifi\"",
    "],\"lease_seconds\":",
    "null",
    "1e308",
    "}}\n",
];

pub(super) const STEER_WORDS: &[&str] = &[
    "\"status\"",
    "{\"why\":{\"host\":\"",
    "{\"advise\":{\"goal\":\"thrifty\"",
    ",\"app\":\"zoom\"",
    ",\"size\":18446744073709551615",
    ",\"up\":true",
    ",\"both\":true",
    "{\"ended\":{\"size\":",
    "{\"prefer\":{\"network\":\"lte\",\"seconds\":",
    "null",
    "1e308",
    "}}\n",
];

/// A request to the client or gateway of a bond.
pub(super) fn bond_request(bytes: &[u8]) {
    request::<ControlRequest>(bytes);
}

/// A request to a process that chooses networks.
pub(super) fn steer_request(bytes: &[u8]) {
    request::<SteerRequest>(bytes);
    if let Ok(request) = parse_request::<SteerRequest>(bytes) {
        let _ = request.check();
    }
}

fn request<Q: Request + Debug>(bytes: &[u8]) {
    let Ok(request) = parse_request::<Q>(bytes) else { return };
    let text = serde_json::to_vec(&request).expect("what was read can be written");
    // Defaults and escapes can make it longer than a request may be.
    let Ok(again) = serde_json::from_slice::<Q>(&text) else { panic!("{request:?} does not read") };
    // Numbers with many digits are read inexactly.
    assert_eq!(discriminant(&again), discriminant(&request));
}
