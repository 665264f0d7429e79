//! Flows as an IPFIX file: messages of IPFIX (RFC 7011) one behind the other (RFC 5655), each flow
//! with both its directions in one record (RFC 5103).
//!
//! What the client sent has IANA's information elements, and what the server sent the same ones in
//! their reverse. A flow of which the server sent nothing is a record without these. Figures for
//! which IANA has no element are left out: nobody gave this program a number for its own.

mod record;

use std::net::IpAddr;

use manyways_unit::Time;

use super::columns_of_table;
use manyways_record::table::Value;
use record::{Family, TEMPLATES, encode, template};

/// The version in a message's header.
const VERSION: u16 = 10;
/// The bytes of a message's header.
const HEADER: usize = 16;
/// The bytes of a set's header.
const SET_HEADER: usize = 4;
/// The number of a set of templates.
const TEMPLATE_SET: u16 = 2;
/// Which observation domain flows are of: numbers of flows are unique in it.
const DOMAIN: u32 = 1;
/// A message ends before it has more bytes than this. It could have twice as many.
const LIMIT: usize = 32_000;
/// The longest name of an application that is written, in bytes.
const NAME: usize = 64;

/// A flow of both directions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Biflow {
    /// Its number.
    pub id: u64,
    /// TCP's number or UDP's.
    pub protocol: u8,
    /// Address and port of the client.
    pub client: (IpAddr, u16),
    /// Address and port of the server, in the same version of IP.
    pub server: (IpAddr, u16),
    /// When its first packet passed.
    pub started: Time,
    /// When its last packet passed.
    pub ended: Time,
    /// What the client sent.
    pub forward: Sent,
    /// What the server sent.
    pub reverse: Sent,
    /// What it speaks, or nothing; of a longer name its first 64 bytes are written.
    pub application: String,
}

/// What an end sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Packets.
    pub packets: u64,
    /// Bytes of the IP packets, their headers included.
    pub octets: u64,
    /// Bytes of what TCP or UDP carried.
    pub payload: u64,
}

/// Writes flows.
#[derive(Debug, Default)]
pub struct Writer {
    /// The sets of the next message.
    sets: Vec<u8>,
    /// Where the open set begins, and its number.
    open: Option<(usize, u16)>,
    /// Data records in earlier messages, and in the next one.
    records: [u32; 2],
    /// The latest end of a flow so far.
    latest: Time,
    has_begun: bool,
}

columns_of_table! {
    /// A flow of TCP or UDP.
    FlowRow:
    flow client client_port server server_port started ended up_packets down_packets up_ip_bytes
    down_ip_bytes up_bytes down_bytes protocol
}

impl Biflow {
    /// The columns of the tables of flows that [`Biflow::of`] takes, in their order.
    pub const COLUMNS: &'static [&'static str] = FlowRow::COLUMNS;

    /// A row of the table `tcp` or `udp`. None where an address, a port or a time is missing, or the
    /// two addresses are not of the same version.
    pub fn of(protocol: u8, row: Vec<Value<'_>>) -> Option<Self> {
        let row = FlowRow::of(row)?;
        let (client, server) = (address(&row.client)?, address(&row.server)?);
        let sent = |packets, octets, payload| Sent {
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
                // It means that nobody knows.
                Value::Text(name) if name != "other" => name.clone().into_owned(),
                _ => String::new(),
            },
        };
        (client.is_ipv4() == server.is_ipv4()).then_some(flow)
    }

    fn family(&self) -> Family {
        Family { is_v6: self.client.0.is_ipv6(), is_both: self.reverse != Sent::default() }
    }
}

impl Writer {
    /// A file without a flow yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a flow. A message that is full is appended to `out`.
    pub fn push(&mut self, flow: &Biflow, out: &mut Vec<u8>) {
        self.begin();
        let family = flow.family();
        let mut record = Vec::with_capacity(128);
        encode(flow, family, &mut record);
        if HEADER + self.sets.len() + SET_HEADER + record.len() > LIMIT {
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

    /// Appends what is left. A file without a flow says at least what flows would look like.
    pub fn finish(mut self, out: &mut Vec<u8>) {
        self.begin();
        if !self.sets.is_empty() {
            self.message(out);
        }
    }

    /// Templates come before all that needs them.
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
        // The length comes when it is known.
        self.sets.extend([0; 2]);
    }

    fn close(&mut self) {
        let Some((begin, _)) = self.open.take() else { return };
        let length = (self.sets.len() - begin) as u16;
        if let Some(place) = self.sets.get_mut(begin + 2..begin + SET_HEADER) {
            place.copy_from_slice(&length.to_be_bytes());
        }
    }

    fn message(&mut self, out: &mut Vec<u8>) {
        self.close();
        out.extend(VERSION.to_be_bytes());
        out.extend(((HEADER + self.sets.len()) as u16).to_be_bytes());
        // A flow can be told of when it is over, so that the same flows give the same file.
        let seconds = self.latest.as_nanos().div_ceil(1_000_000_000);
        out.extend((seconds as u32).to_be_bytes());
        let [before, count] = self.records;
        out.extend(before.to_be_bytes());
        out.extend(DOMAIN.to_be_bytes());
        out.append(&mut self.sets);
        // It counts around.
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

/// As much of a name as is written.
fn cut(name: &str) -> &str {
    let end = (0..=NAME).rev().find(|end| name.is_char_boundary(*end)).unwrap_or(0);
    name.get(..end).unwrap_or(name)
}

#[cfg(test)]
mod tests;
