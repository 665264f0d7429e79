//! Requests on control sockets.

use std::fmt::Debug;
use std::mem::discriminant;

use manyways_net::bond::control::ControlRequest;
use manyways_net::control::{Request, parse_request};

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

/// A request to the client or gateway of a bond.
pub(super) fn bond_request(bytes: &[u8]) {
    request::<ControlRequest>(bytes);
}

fn request<Q: Request + Debug>(bytes: &[u8]) {
    let Ok(request) = parse_request::<Q>(bytes) else { return };
    let text = serde_json::to_vec(&request).expect("what was read can be written");
    // Defaults and escapes can make it longer than a request may be.
    let Ok(again) = serde_json::from_slice::<Q>(&text) else { panic!("{request:?} does not read") };
    // Numbers with many digits are read inexactly.
    assert_eq!(discriminant(&again), discriminant(&request));
}
