//! Flows as an IPFIX file: a sequence of IPFIX messages (RFC 7011, RFC 5655), with both directions
//! of a flow in one record (RFC 5103).
//!
//! Data of the client has IANA's information elements, data of the server the same elements in
//! reverse. A flow without data of the server has no reverse elements. Columns without an IANA
//! element are omitted, because this program has no enterprise number.

mod record;

use std::net::IpAddr;

use manyways_unit::Time;

use super::columns_of_table;
use manyways_record::table::Value;
use record::{TEMPLATES, TemplateKey, encode, template};

/// Version in the header of a message.
const VERSION: u16 = 10;
/// Length of a message header in bytes.
const HEADER_LEN: usize = 16;
/// Length of a set header in bytes.
const SET_HEADER_LEN: usize = 4;
/// Set ID of template sets.
const TEMPLATE_SET: u16 = 2;
/// Observation domain, in which flow IDs are unique.
const DOMAIN: u32 = 1;
/// Maximum length of a message in bytes; about half of the permitted maximum.
const MAX_MESSAGE_LEN: usize = 32_000;
/// Maximum length of an application name in bytes.
const MAX_NAME_LEN: usize = 64;

/// Both directions of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Biflow {
    pub id: u64,
    /// IP protocol: 6 for TCP, 17 for UDP.
    pub protocol: u8,
    /// Address and port of the client.
    pub client: (IpAddr, u16),
    /// Address and port of the server, in the same IP version.
    pub server: (IpAddr, u16),
    /// Time of the first packet.
    pub started: Time,
    /// Time of the last packet.
    pub ended: Time,
    /// Counters of the client.
    pub forward: EndpointCounters,
    /// Counters of the server.
    pub reverse: EndpointCounters,
    /// Application protocol, or empty. Truncated to 64 bytes in the file.
    pub application: String,
}

/// Counters of one endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointCounters {
    pub packets: u64,
    /// Bytes of the IP packets, including headers.
    pub octets: u64,
    /// Bytes of TCP or UDP payload.
    pub payload: u64,
}

/// Writer of an IPFIX file.
#[derive(Debug, Default)]
pub struct Writer {
    /// Sets of the next message.
    sets: Vec<u8>,
    /// Offset of the open set, and its ID.
    open: Option<(usize, u16)>,
    /// Number of data records in earlier messages, and in the next one.
    records: [u32; 2],
    /// The latest end time of a flow.
    latest: Time,
    has_begun: bool,
}

columns_of_table! {
    /// A row of the table `tcp` or `udp`.
    FlowRow:
    flow client client_port server server_port started ended up_packets down_packets up_ip_bytes
    down_ip_bytes up_bytes down_bytes protocol
}

impl Biflow {
    /// Columns of the flow tables that [`Biflow::of`] takes, in order.
    pub const COLUMNS: &'static [&'static str] = FlowRow::COLUMNS;

    /// Converts a row of the table `tcp` or `udp`. `None` if an address, a port or a time is
    /// missing, or if the IP versions of the two addresses differ.
    pub fn of(protocol: u8, row: Vec<Value<'_>>) -> Option<Self> {
        let row = FlowRow::of(row)?;
        let (client, server) = (address(&row.client)?, address(&row.server)?);
        let sent = |packets, octets, payload| EndpointCounters {
            packets: number(packets),
            octets: number(octets),
            payload: number(payload),
        };
        let flow = Self {
            id: number(&row.flow),
            protocol,
            client: (client, port(&row.client_port)?),
            server: (server, port(&row.server_port)?),
            started: time(&row.started)?,
            ended: time(&row.ended)?,
            forward: sent(&row.up_packets, &row.up_ip_bytes, &row.up_bytes),
            reverse: sent(&row.down_packets, &row.down_ip_bytes, &row.down_bytes),
            application: match &row.protocol {
                // `other` stands for an unknown protocol.
                Value::Text(name) if name != "other" => name.clone().into_owned(),
                _ => String::new(),
            },
        };
        (client.is_ipv4() == server.is_ipv4()).then_some(flow)
    }

    fn template_key(&self) -> TemplateKey {
        TemplateKey {
            is_v6: self.client.0.is_ipv6(),
            is_bidirectional: self.reverse != EndpointCounters::default(),
        }
    }
}

impl Writer {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a flow. Appends the message to `out` when it is full.
    pub fn push(&mut self, flow: &Biflow, out: &mut Vec<u8>) {
        self.begin();
        let family = flow.template_key();
        let mut record = Vec::with_capacity(128);
        encode(flow, family, &mut record);
        if HEADER_LEN + self.sets.len() + SET_HEADER_LEN + record.len() > MAX_MESSAGE_LEN {
            self.message(out);
        }
        let set = family.template();
        if self.open.is_none_or(|(_, number)| number != set) {
            self.close();
            self.open_set(set);
        }
        self.sets.extend(record);
        let [_, count] = &mut self.records;
        *count += 1;
        self.latest = self.latest.max(flow.ended);
    }

    /// Appends the rest. A file without flows contains the templates.
    pub fn finish(mut self, out: &mut Vec<u8>) {
        self.begin();
        if !self.sets.is_empty() {
            self.message(out);
        }
    }

    /// Adds the templates, which must precede all records.
    fn begin(&mut self) {
        if std::mem::replace(&mut self.has_begun, true) {
            return;
        }
        self.open_set(TEMPLATE_SET);
        for family in TEMPLATES {
            template(family, &mut self.sets);
        }
        self.close();
    }

    fn open_set(&mut self, number: u16) {
        self.open = Some((self.sets.len(), number));
        self.sets.extend(number.to_be_bytes());
        // Replaced by the length when the set is complete.
        self.sets.extend([0; 2]);
    }

    fn close(&mut self) {
        let Some((begin, _)) = self.open.take() else { return };
        let length = (self.sets.len() - begin) as u16;
        if let Some(place) = self.sets.get_mut(begin + 2..begin + SET_HEADER_LEN) {
            place.copy_from_slice(&length.to_be_bytes());
        }
    }

    fn message(&mut self, out: &mut Vec<u8>) {
        self.close();
        out.extend(VERSION.to_be_bytes());
        out.extend(((HEADER_LEN + self.sets.len()) as u16).to_be_bytes());
        // The export time is the latest end of a flow, so that the same flows yield the same file.
        let seconds = self.latest.as_nanos().div_ceil(1_000_000_000);
        out.extend((seconds as u32).to_be_bytes());
        let [before, count] = self.records;
        out.extend(before.to_be_bytes());
        out.extend(DOMAIN.to_be_bytes());
        out.append(&mut self.sets);
        // The sequence number wraps.
        self.records = [before.wrapping_add(count), 0];
    }
}

fn address(value: &Value<'_>) -> Option<IpAddr> {
    if let Value::Text(text) = value { text.parse().ok() } else { None }
}

fn port(value: &Value<'_>) -> Option<u16> {
    if let Value::Count(port) = value { (*port).try_into().ok() } else { None }
}

fn time(value: &Value<'_>) -> Option<Time> {
    if let Value::Time(time) = value { Some(*time) } else { None }
}

fn number(value: &Value<'_>) -> u64 {
    if let Value::Count(count) = value { *count } else { 0 }
}

/// Truncates a name to the maximum length.
fn truncate(name: &str) -> &str {
    let end = (0..=MAX_NAME_LEN).rev().find(|end| name.is_char_boundary(*end)).unwrap_or(0);
    name.get(..end).unwrap_or(name)
}

#[cfg(test)]
mod tests;
