//! Inputs of a lab: DNS queries from inside, and requests on its control socket.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use manyways_lab::control::Request;
use manyways_lab::resolver::{Transport, Zone, answer};
use manyways_trace::link_text;

pub(super) const REQUEST_WORDS: &[&str] = &[
    "{\"set\":{\"link\":\"",
    "\"settings\":[\"",
    "\"status\"",
    "\"when\":\"a.down_bytes >= 1\",",
    "\"until\":\"",
    "\",\"",
    "rate=",
    "delay=",
    "loss=ge:",
    "\\u0000",
    "]}}",
];
pub(super) const QUESTION_WORDS: &[&str] = &[
    "\u{6}origin\u{3}lab\0",
    "\u{4}many\u{3}lab\0",
    "\0\u{1}\0\u{1}",
    "\0\u{1c}\0\u{1}",
    "\0\0\u{29}\u{4}\0\0\0\0\0\0\0",
];

/// Maximum length of a response over UDP.
const UDP_LIMIT: usize = 1232;

/// A query to the resolver of a gateway.
pub(super) fn dns_question(bytes: &[u8]) {
    let mut zone = Zone::default();
    let v4 = |n: u16| IpAddr::V4(Ipv4Addr::from(0xc000_0200 + u32::from(n)));
    zone.insert("origin.lab", vec![v4(1), IpAddr::V6(Ipv6Addr::LOCALHOST)]);
    zone.insert("many.lab", (0..300).map(v4).collect());
    let [udp, tcp] =
        [Transport::Udp, Transport::Tcp].map(|transport| answer(&zone, bytes, transport));
    assert_eq!(udp.is_some(), tcp.is_some());
    for (answer, limit) in [(udp, UDP_LIMIT), (tcp, usize::from(u16::MAX))] {
        let Some(answer) = answer else { continue };
        assert!((12..=limit).contains(&answer.len()), "{} bytes", answer.len());
        assert_eq!(answer[..2], bytes[..2], "the question's number");
        assert_ne!(answer[2] & 0x80, 0, "marked as an answer");
        // Another server would not answer the response.
        assert_eq!(manyways_lab::resolver::answer(&zone, &answer, Transport::Udp), None);
    }
}

/// A request on a lab's control socket.
pub(super) fn lab_request(bytes: &[u8]) {
    let Ok(request) = serde_json::from_slice::<Request>(bytes) else { return };
    let text = serde_json::to_string(&request).expect("what was read can be written");
    let again: Request = serde_json::from_str(&text).expect("what was written can be read");
    assert_eq!(format!("{again:?}"), format!("{request:?}"));
    if let Request::Set { settings, when, until, .. } = request {
        for text in [when, until].into_iter().flatten() {
            let Ok(condition) = link_text::condition(&text) else { continue };
            assert_eq!(link_text::condition(&condition.to_string()), Ok(condition));
        }
        let mut no_file = |_: &str| Err("no such file".to_owned());
        let _ = link_text::changes(settings.iter().map(String::as_str), &mut no_file);
    }
}
