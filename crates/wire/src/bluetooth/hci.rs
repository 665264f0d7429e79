//! The host controller interface (vol 4, part E): packet types, commands and events.

use std::collections::BTreeMap;

use super::connection::Connection;
use super::control::{Address, Control, Direction, Layer};
use super::cursor::Cursor;
use super::layouts::{COMMANDS, EVENTS, LE_EVENTS, Layout};
use super::stream::Close;
use super::{Event, Sink};
use crate::capture::{Interface, LinkType, Packet};

/// A packet between host and controller.
#[derive(Clone, Copy, Debug)]
pub(super) struct HciPacket<'a> {
    pub(super) adapter: u16,
    pub(super) kind: Kind,
    pub(super) direction: Option<Direction>,
    pub(super) payload: Cursor<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Command,
    Acl,
    /// Synchronous or isochronous data.
    Synchronous,
    Event,
}

type Connections = BTreeMap<(u16, u16), Connection>;

impl<'a> HciPacket<'a> {
    pub(super) fn read(interface: &Interface, packet: &Packet<'a>) -> Option<Self> {
        let mut rest = Cursor::new(packet.bytes, packet.length);
        let mut adapter = trailing_number(&interface.name);
        let mut direction = packet.is_sent.map(direction_of);
        let kind = match interface.link {
            LinkType::HCI_H4 => read_packet_type(&mut rest)?,
            LinkType::HCI_H4_DIRECTED => {
                direction = Some(direction_of(*rest.bytes.get(3)? & 1 == 0));
                rest = rest.skip(4)?;
                read_packet_type(&mut rest)?
            }
            LinkType::BLUETOOTH_MONITOR => {
                let [high, low, _, opcode] = *rest.bytes.first_chunk()?;
                adapter = u16::from_be_bytes([high, low]);
                rest = rest.skip(4)?;
                direction = Some(direction_of(matches!(opcode, 2 | 4 | 6 | 18)));
                match opcode {
                    2 => Kind::Command,
                    3 => Kind::Event,
                    4 | 5 => Kind::Acl,
                    6 | 7 | 18 | 19 => Kind::Synchronous,
                    _ => return None,
                }
            }
            LinkType::HCI_DATA => Kind::Acl,
            LinkType::HCI_SYNCHRONOUS => Kind::Synchronous,
            LinkType::HCI_CONTROL => match direction? {
                Direction::Sent => Kind::Command,
                Direction::Received => Kind::Event,
            },
            _ => return None,
        };
        Some(Self { adapter, kind, direction, payload: rest })
    }
}

fn direction_of(is_sent: bool) -> Direction {
    if is_sent { Direction::Sent } else { Direction::Received }
}

/// The number at the end of an interface name; 0 if there is none.
fn trailing_number(name: &str) -> u16 {
    let prefix = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
    name.get(prefix.len()..).and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// Reads the packet type before a packet (vol 4, part A, 2).
fn read_packet_type(rest: &mut Cursor<'_>) -> Option<Kind> {
    let kind = match rest.u8(0)? {
        1 => Kind::Command,
        2 => Kind::Acl,
        3 | 5 => Kind::Synchronous,
        4 => Kind::Event,
        _ => return None,
    };
    *rest = rest.skip(1)?;
    Some(kind)
}

pub(super) fn command(
    adapter: u16,
    rest: Cursor<'_>,
    connections: &mut Connections,
    out: &mut Sink<'_>,
) {
    let (Some(code), Some(parameters)) = (rest.u16(0), rest.skip(3)) else {
        out.counts.truncated += 1;
        return;
    };
    if let Some(form) = Layout::find(COMMANDS, code) {
        emit_control(form, adapter, Direction::Sent, parameters, connections, out);
    }
}

pub(super) fn event(
    adapter: u16,
    rest: Cursor<'_>,
    connections: &mut Connections,
    out: &mut Sink<'_>,
) {
    let (Some(code), Some(parameters)) = (rest.u8(0), rest.skip(2)) else {
        out.counts.truncated += 1;
        return;
    };
    let parameters = match rest.u8(1) {
        Some(length) if usize::from(length) <= parameters.length => parameters.first(length.into()),
        _ => parameters,
    };
    let is_le = code == 0x3e;
    let (forms, code) = match code {
        0x0e => return command_complete(adapter, parameters, connections, out),
        0x13 => return on_completed_packets(adapter, parameters, connections, out),
        0x3e => (LE_EVENTS, parameters.u8(0).unwrap_or(0)),
        code => (EVENTS, code),
    };
    let Some(form) = Layout::find(forms, code.into()) else { return };
    // The message needs a connection that it ends, and comes before one that it creates.
    emit_control(form, adapter, Direction::Received, parameters, connections, out);
    let number = |at| parameters.u8(at);
    let (is_new, handle_at) = match (is_le, code) {
        (false, 0x03) => (number(0) == Some(0) && number(9) == Some(1), 1),
        (true, 0x01 | 0x0a | 0x29) => (number(1) == Some(0), 2),
        (false, 0x05) => {
            let handle = parameters.u16(1).filter(|_| number(0) == Some(0));
            let ended = handle.and_then(|handle| connections.remove(&(adapter, handle & 0x0fff)));
            if let Some(connection) = ended {
                connection.end(Close::Disconnected, out);
            }
            return;
        }
        _ => return,
    };
    let Some(handle) = parameters.u16(handle_at).filter(|_| is_new) else { return };
    let handle = handle & 0x0fff;
    let peer = form.address_offset.and_then(|at| parameters.address(at));
    let connection = Connection::new(adapter, handle, peer, true, out.now);
    super::insert_connection(connections, (adapter, handle), connection, out);
}

/// After a reset, the controller has no connections (vol 4, part E, 7.3.2).
fn command_complete(
    adapter: u16,
    parameters: Cursor<'_>,
    connections: &mut Connections,
    out: &mut Sink<'_>,
) {
    if parameters.u16(1) != Some(0x0c03) || parameters.u8(3) != Some(0) {
        return;
    }
    let all: Vec<_> =
        connections.range((adapter, 0)..=(adapter, u16::MAX)).map(|it| *it.0).collect();
    for connection in all.into_iter().filter_map(|key| connections.remove(&key)) {
        connection.end(Close::Disconnected, out);
    }
}

/// Processes the event Number Of Completed Packets (7.7.19).
fn on_completed_packets(
    adapter: u16,
    parameters: Cursor<'_>,
    connections: &mut Connections,
    out: &mut Sink<'_>,
) {
    for index in 0..usize::from(parameters.u8(0).unwrap_or(0)) {
        let at = 1 + 4 * index;
        let (Some(handle), Some(count)) = (parameters.u16(at), parameters.u16(at + 2)) else {
            return;
        };
        if let Some(connection) = connections.get_mut(&(adapter, handle & 0x0fff)) {
            connection.on_completed(out.now, count);
        }
    }
}

fn emit_control(
    form: &Layout,
    adapter: u16,
    direction: Direction,
    parameters: Cursor<'_>,
    connections: &Connections,
    out: &mut Sink<'_>,
) {
    let handle = form.handle_offset.and_then(|at| parameters.u16(at)).map(|handle| handle & 0x0fff);
    let address = form.address_offset.and_then(|at| parameters.address(at));
    let known = |handle: u16| connections.get(&(adapter, handle)).and_then(Connection::peer);
    let peer: Option<Address> = address.or_else(|| handle.and_then(known));
    let values = form.values(parameters);
    out.events.push_back(Event::Control(Control {
        at: out.now,
        layer: Layer::Hci,
        name: form.name,
        adapter,
        handle,
        peer,
        cid: None,
        dlci: None,
        direction: Some(direction),
        values,
    }));
}
