//! L2CAP signalling: opening, configuring and closing channels (vol 3, part A, 4).

use manyways_unit::Time;

use super::channel::Channel;
use super::connection::{Connection, MAX_REQUESTS};
use super::control::{Control, Direction, Layer};
use super::cursor::Cursor;
use super::layouts::{Layout, SIGNALS};
use super::stream::Close;
use super::{Event, Sink};

/// Signalling channels of BR/EDR and LE.
pub(super) const CIDS: [u16; 2] = [1, 5];
/// Maximum number of signals read from one packet. Hosts send one at a time.
pub const MAX_SIGNALS: usize = 32;
/// Maximum number of channels in one request (4.25).
const MAX_REQUESTED_CHANNELS: usize = 5;

/// A request of one side for one or more channels.
#[derive(Clone, Debug)]
pub(super) struct Request {
    direction: Direction,
    id: u8,
    psm: Option<u16>,
    /// Channel IDs at the requester.
    scids: Vec<u16>,
    /// Longest packet that the requester accepts.
    mtu: Option<u16>,
    /// Initial credits that the requester grants.
    credits: Option<u16>,
}

#[derive(Clone, Copy)]
struct Signal<'a> {
    direction: Direction,
    id: u8,
    parameters: Cursor<'a>,
}

pub(super) fn handle(
    connection: &mut Connection,
    direction: Direction,
    at: Time,
    cid: u16,
    mut rest: Cursor<'_>,
    out: &mut Sink<'_>,
) {
    for _ in 0..MAX_SIGNALS {
        let (Some(code), Some(id), Some(length)) = (rest.u8(0), rest.u8(1), rest.u16(2)) else {
            return;
        };
        let Some(next) = rest.skip(4 + usize::from(length)) else {
            out.counts.malformed += 1;
            return;
        };
        let says = rest.skip(4).unwrap_or(next).first(length.into());
        let signal = Signal { direction, id, parameters: says };
        connection.emit_signal(code, cid, at, signal, out);
        match code {
            0x01 => drop(connection.take_request(direction.opposite(), id)),
            0x02 => connection.on_connect_request(signal),
            0x03 => connection.on_connect_response(signal, out),
            0x04 => connection.on_configure(signal),
            0x07 => connection.on_disconnect(signal, out),
            0x14 | 0x17 => connection.on_credit_based_request(code, signal),
            0x15 | 0x18 => connection.on_credit_based_response(code, signal, out),
            0x16 => connection.on_credits(at, signal),
            _ => {}
        }
        rest = next;
    }
}

impl Connection {
    fn emit_signal(&self, code: u8, cid: u16, at: Time, signal: Signal<'_>, out: &mut Sink<'_>) {
        let form = Layout::find(SIGNALS, code.into());
        let mut values = match form {
            Some(form) => form.values(signal.parameters),
            None => vec![("code", code.into())],
        };
        if code == 0x04 {
            let options = Options::read(signal.parameters);
            values.extend(options.mtu.map(|mtu| ("mtu", mtu.into())));
            values.extend(options.mode.map(|mode| ("mode", mode.into())));
        }
        if code == 0x17 || code == 0x18 {
            let name = if code == 0x17 { "scid" } else { "dcid" };
            values.extend(cids(signal.parameters).map(|cid| (name, cid.into())));
        }
        out.events.push_back(Event::Control(Control {
            at,
            layer: Layer::L2cap,
            name: form.map_or("Unknown Signal", |form| form.name),
            adapter: self.streams.adapter,
            handle: Some(self.streams.handle),
            peer: self.streams.peer,
            cid: Some(cid),
            dlci: None,
            direction: Some(signal.direction),
            values,
        }));
    }

    fn on_connect_request(&mut self, signal: Signal<'_>) {
        let Some(scid) = signal.parameters.u16(2) else { return };
        let psm = signal.parameters.u16(0);
        self.add_request(
            signal,
            Request { psm, scids: vec![scid], ..Request::from_signal(signal) },
        );
    }

    fn on_credit_based_request(&mut self, code: u8, signal: Signal<'_>) {
        let says = signal.parameters;
        let (scids, at) = match code {
            0x14 => (says.u16(2).into_iter().collect(), 4),
            _ => (cids(says).collect(), 2),
        };
        let credits = says.u16(if code == 0x14 { 8 } else { 6 });
        let (psm, mtu) = (says.u16(0), says.u16(at));
        self.add_request(
            signal,
            Request { psm, scids, mtu, credits, ..Request::from_signal(signal) },
        );
    }

    fn add_request(&mut self, signal: Signal<'_>, request: Request) {
        drop(self.take_request(signal.direction, signal.id));
        if self.requests.len() >= MAX_REQUESTS {
            self.requests.pop_front();
        }
        self.requests.push_back(request);
    }

    /// Removes and returns the request that an answer with this identifier belongs to.
    fn take_request(&mut self, direction: Direction, id: u8) -> Option<Request> {
        let is_it = |request: &Request| request.direction == direction && request.id == id;
        let offset = self.requests.iter().position(is_it)?;
        self.requests.remove(offset)
    }

    fn on_connect_response(&mut self, signal: Signal<'_>, out: &mut Sink<'_>) {
        let Signal { direction, id, parameters: says } = signal;
        let Some(result) = says.u16(4) else { return };
        // The result is "connection pending".
        if result == 1 {
            return;
        }
        let request = self.take_request(direction.opposite(), id);
        let (Some(dcid), Some(scid)) = (says.u16(0), says.u16(2)) else { return };
        if result != 0 {
            return;
        }
        // Without the request, the PSM of the channel is unknown.
        let psm = request.filter(|it| it.scids == [scid]).and_then(|it| it.psm);
        let channel = Channel {
            destination_cids: by_direction(direction, scid, dcid),
            psm,
            ..Channel::default()
        };
        self.open_channel(channel, [None; 2], [None; 2], out);
    }

    fn on_credit_based_response(&mut self, code: u8, signal: Signal<'_>, out: &mut Sink<'_>) {
        let Signal { direction, id, parameters: says } = signal;
        let Some(request) = self.take_request(direction.opposite(), id) else { return };
        let (dcids, mtu, credits): (Vec<u16>, _, _) = match code {
            0x15 if says.u16(8) == Some(0) => {
                (says.u16(0).into_iter().collect(), says.u16(2), says.u16(6))
            }
            // A refused channel has the ID 0.
            0x18 => (cids(says).collect(), says.u16(0), says.u16(4)),
            _ => return,
        };
        for (scid, dcid) in request.scids.iter().zip(dcids).filter(|(_, dcid)| *dcid != 0) {
            let channel = Channel {
                destination_cids: by_direction(direction, *scid, dcid),
                psm: request.psm,
                is_credit_based: true,
                sdu_remaining: [Some(0), Some(0)],
                ..Channel::default()
            };
            // Each side states the MTU and the credits for packets of its peer.
            let mtu = by_direction(direction, request.mtu, mtu);
            let credits = by_direction(direction, request.credits, credits);
            self.open_channel(channel, mtu, credits.map(|credits| credits.map(u64::from)), out);
        }
    }

    fn on_configure(&mut self, signal: Signal<'_>) {
        let Signal { direction, parameters: says, .. } = signal;
        let Self { channels, streams, .. } = self;
        let channel = channels
            .iter_mut()
            .find(|channel| Some(channel.destination_cids[direction.index()]) == says.u16(0));
        let Some(channel) = channel else { return };
        let options = Options::read(says);
        if let Some(mode) = options.mode {
            channel.modes[direction.index()] = mode;
        }
        let back = direction.opposite();
        let stream = streams.find((back, channel.destination_cids[back.index()], None));
        if let (Some(stream), Some(mtu)) = (stream, options.mtu) {
            stream.set_mtu(mtu);
        }
    }

    fn on_disconnect(&mut self, signal: Signal<'_>, out: &mut Sink<'_>) {
        // The responder's channel ID is first; packets of the peer are addressed to that ID.
        if let (Some(own), Some(others)) = (signal.parameters.u16(0), signal.parameters.u16(2)) {
            self.close_channel(signal.direction.opposite(), own, Close::Closed, out);
            self.close_channel(signal.direction, others, Close::Closed, out);
        }
    }

    fn on_credits(&mut self, at: Time, signal: Signal<'_>) {
        let (Some(cid), Some(count)) = (signal.parameters.u16(0), signal.parameters.u16(2)) else {
            return;
        };
        let key = (signal.direction.opposite(), cid, None);
        if let Some(stream) = self.streams.find(key) {
            stream.grant(at, count.into());
        }
    }
}

impl Request {
    fn from_signal(signal: Signal<'_>) -> Self {
        let Signal { direction, id, .. } = signal;
        Self { direction, id, psm: None, scids: Vec::new(), mtu: None, credits: None }
    }
}

/// Orders the values of a request and its answer by direction of packets: each side states the
/// values for packets of its peer.
fn by_direction<T>(answer: Direction, of_request: T, of_answer: T) -> [T; 2] {
    match answer {
        Direction::Sent => [of_request, of_answer],
        Direction::Received => [of_answer, of_request],
    }
}

/// The channel IDs of a message about several channels.
fn cids(says: Cursor<'_>) -> impl Iterator<Item = u16> {
    (0..MAX_REQUESTED_CHANNELS).map_while(move |index| says.u16(8 + 2 * index))
}

/// Options of a configuration request (5).
#[derive(Clone, Copy, Debug, Default)]
struct Options {
    mtu: Option<u16>,
    mode: Option<u8>,
}

impl Options {
    fn read(says: Cursor<'_>) -> Self {
        let mut options = Self::default();
        let mut rest = says.skip(4);
        while let Some((option, length)) = rest.and_then(|rest| Some((rest.u8(0)?, rest.u8(1)?))) {
            let value = rest.and_then(|rest| rest.skip(2));
            match option & 0x7f {
                1 => options.mtu = value.and_then(|value| value.u16(0)).or(options.mtu),
                4 => options.mode = value.and_then(|value| value.u8(0)).or(options.mode),
                _ => {}
            }
            rest = value.and_then(|value| value.skip(length.into()));
        }
        options
    }
}
