//! A filter: any text, and a packet of the same bytes.

use manyways_flows::filter::{Candidate, Filter, FilterError, FilterErrorKind};
use manyways_wire::capture::LinkType;
use manyways_wire::frame;

pub(super) const FILTER_WORDS: &[&str] = &[
    "host ",
    "net ",
    "port ",
    "portrange ",
    "proto ",
    "src ",
    "dst ",
    "src or dst ",
    "tcp ",
    "udp ",
    "ip6 ",
    "arp ",
    "rarp ",
    "vlan ",
    "len >= ",
    "less ",
    "greater ",
    " and ",
    " or ",
    "not ",
    "(",
    ")",
    "!",
    "&&",
    "||",
    "10.0.0.0/8",
    "2001:db8::1",
    "80",
    "1-1023",
    "http",
    "mask 255.0.0.0",
    "[",
];

/// A parsed filter is equal after printing and parsing. Its negation matches exactly the other
/// packets. An error position is within the text.
pub(super) fn filter(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let filter: Filter = match text.parse() {
        Ok(filter) => filter,
        Err(FilterError { at, kind: problem }) => {
            assert!(text.get(at).is_some() && !problem.hint().is_empty(), "{problem}");
            return;
        }
    };
    let said = filter.to_string();
    match said.parse::<Filter>() {
        Ok(read) => assert_eq!(read, filter, "{said}"),
        // The printed text is explicit, so the filter may exceed the size limit.
        Err(error) => assert_eq!(error.kind, FilterErrorKind::TooLarge, "{said}"),
    }
    let found = frame::ip_packet(LinkType::RAW, bytes, bytes.len());
    let candidate = Candidate {
        link: LinkType::ETHERNET,
        frame: bytes,
        length: bytes.len(),
        datagram: found.as_ref().map_err(|opaque| *opaque),
    };
    if let Ok(opposite) = format!("not ({said})").parse::<Filter>() {
        assert_ne!(opposite.matches(&candidate), filter.matches(&candidate), "{said}");
    }
}
