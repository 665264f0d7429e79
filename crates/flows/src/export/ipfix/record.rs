//! Records and templates, with information elements of IANA's registry "IPFIX Information
//! Elements".

use std::net::IpAddr;

use manyways_unit::Time;

use super::{Biflow, EndpointCounters, truncate};

/// First template ID.
const FIRST_TEMPLATE_ID: u16 = 256;
/// Enterprise number of the reverse elements (RFC 5103, 6.1).
const REVERSE_ENTERPRISE: u32 = 29_305;
/// Bit in the ID of an enterprise-specific element.
const ENTERPRISE_BIT: u16 = 1 << 15;
/// Length of an element with a length prefix.
const VARIABLE_LEN: u16 = u16::MAX;
/// `biflowDirection`: the client is the initiator.
const INITIATOR: u8 = 1;
/// Seconds from the epoch of NTP to the Unix epoch.
const NTP_EPOCH_OFFSET: u64 = 2_208_988_800;

/// Flows with the same template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TemplateKey {
    /// Whether the addresses are IPv6.
    pub(super) is_v6: bool,
    /// Whether the server sent packets.
    pub(super) is_bidirectional: bool,
}

/// All templates, in the order of their IDs.
pub(super) const TEMPLATES: [TemplateKey; 4] = [
    TemplateKey { is_v6: false, is_bidirectional: true },
    TemplateKey { is_v6: true, is_bidirectional: true },
    TemplateKey { is_v6: false, is_bidirectional: false },
    TemplateKey { is_v6: true, is_bidirectional: false },
];

/// An element of a record: its ID, its length in bytes, and whether it is a reverse one.
struct Element(u16, u16, bool);

const fn forward(number: u16, length: u16) -> Element {
    Element(number, length, false)
}

impl TemplateKey {
    pub(super) fn template(self) -> u16 {
        FIRST_TEMPLATE_ID + u16::from(self.is_v6) + 2 * u16::from(!self.is_bidirectional)
    }

    /// Returns the elements in the order of [`encode`].
    fn elements(self) -> Vec<Element> {
        let (length, source, destination) = if self.is_v6 { (16, 27, 28) } else { (4, 8, 12) };
        let mut elements = vec![
            // sourceIPv4Address or sourceIPv6Address, and of the destination.
            forward(source, length),
            forward(destination, length),
            // sourceTransportPort, destinationTransportPort, protocolIdentifier.
            forward(7, 2),
            forward(11, 2),
            forward(4, 1),
            // biflowDirection.
            forward(239, 1),
            // flowStartMilliseconds, flowEndMilliseconds; flowStartNanoseconds, flowEndNanoseconds.
            forward(152, 8),
            forward(153, 8),
            forward(156, 8),
            forward(157, 8),
            // flowId.
            forward(148, 8),
        ];
        for is_reverse in [false, true].into_iter().take(1 + usize::from(self.is_bidirectional)) {
            // packetDeltaCount, octetDeltaCount, transportOctetDeltaCount.
            elements.extend([2, 1, 401].map(|number| Element(number, 8, is_reverse)));
        }
        // applicationName.
        elements.push(forward(96, VARIABLE_LEN));
        elements
    }
}

/// Appends a template.
pub(super) fn template(family: TemplateKey, out: &mut Vec<u8>) {
    let elements = family.elements();
    out.extend(family.template().to_be_bytes());
    out.extend((elements.len() as u16).to_be_bytes());
    for Element(number, length, is_reverse) in elements {
        out.extend((number | if is_reverse { ENTERPRISE_BIT } else { 0 }).to_be_bytes());
        out.extend(length.to_be_bytes());
        if is_reverse {
            out.extend(REVERSE_ENTERPRISE.to_be_bytes());
        }
    }
}

/// Appends the record of a flow.
pub(super) fn encode(flow: &Biflow, family: TemplateKey, out: &mut Vec<u8>) {
    for (address, _) in [flow.client, flow.server] {
        match address {
            IpAddr::V4(address) => out.extend(address.octets()),
            IpAddr::V6(address) => out.extend(address.octets()),
        }
    }
    out.extend([flow.client.1, flow.server.1].map(u16::to_be_bytes).concat());
    out.extend([flow.protocol, INITIATOR]);
    let times = [flow.started, flow.ended];
    out.extend(times.map(|time| (time.as_nanos() / 1_000_000).to_be_bytes()).concat());
    out.extend(times.map(|time| ntp(time).to_be_bytes()).concat());
    out.extend(flow.id.to_be_bytes());
    for sent in
        [flow.forward, flow.reverse].into_iter().take(1 + usize::from(family.is_bidirectional))
    {
        let EndpointCounters { packets, octets, payload } = sent;
        out.extend([packets, octets, payload].map(u64::to_be_bytes).concat());
    }
    // A length below 255 takes one byte.
    let name = truncate(&flow.application).as_bytes();
    out.push(name.len() as u8);
    out.extend(name);
}

/// Converts to NTP format: seconds since 1900, which wrap in 2036, and fractions of 2^-32 s (RFC
/// 7011, 6.1.10). Rounded up, so that truncation returns the same nanosecond.
fn ntp(time: Time) -> u64 {
    let (seconds, nanos) = (time.as_nanos() / 1_000_000_000, time.as_nanos() % 1_000_000_000);
    ((seconds + NTP_EPOCH_OFFSET) << 32) | (nanos << 32).div_ceil(1_000_000_000)
}
