//! L2CAP signalling: opening, configuring and closing channels (vol 3, part A, 4).

use manyways_unit::Time;

use super::channel::Channel;
use super::connection::{Connection, REQUESTS};
use super::control::{Control, Direction, Layer};
use super::forms::{Form, SIGNALS};
use super::rest::Rest;
use super::stream::Ending;
use super::{Event, Out};

/// Signalling channels of BR/EDR and LE.
pub(super) const CIDS: [u16; 2] = [1, 5];
/// Maximum number of signals read from one packet. Hosts send one at a time.
pub const COMMANDS: usize = 32;
/// Maximum number of channels in one request (4.25).
const AT_ONCE: usize = 5;

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
    says: Rest<'a>,
}

pub(super) fn handle(
    connection: &mut Connection,
    direction: Direction,
    at: Time,
    cid: u16,
    mut rest: Rest<'_>,
    out: &mut Out<'_>,
) {
    for _ in 0..COMMANDS {
        let (Some(code), Some(id), Some(length)) = (rest.u8(0), rest.u8(1), rest.u16(2)) else {
            return;
        };
        let Some(next) = rest.after(4 + usize::from(length)) else {
            out.counts.broken += 1;
            return;
        };
        let says = rest.after(4).unwrap_or(next).first(length.into());
        let signal = Signal { direction, id, says };
        connection.says(code, cid, at, signal, out);
        match code {
            0x01 => drop(connection.request(direction.back(), id)),
            0x02 => connection.asks(signal),
            0x03 => connection.answers(signal, out),
            0x04 => connection.configures(signal),
            0x07 => connection.disconnects(signal, out),
            0x14 | 0x17 => connection.asks_with_credits(code, signal),
            0x15 | 0x18 => connection.answers_with_credits(code, signal, out),
            0x16 => connection.gets_credits(at, signal),
            _ => {}
        }
        rest = next;
    }
}

impl Connection {
    fn says(&self, code: u8, cid: u16, at: Time, signal: Signal<'_>, out: &mut Out<'_>) {
        let form = Form::of(SIGNALS, code.into());
        let mut values = match form {
            Some(form) => form.values(signal.says),
            None => vec![("code", code.into())],
        };
        if code == 0x04 {
            let options = Options::read(signal.says);
            values.extend(options.mtu.map(|mtu| ("mtu", mtu.into())));
            values.extend(options.mode.map(|mode| ("mode", mode.into())));
        }
        if code == 0x17 || code == 0x18 {
            let name = if code == 0x17 { "scid" } else { "dcid" };
            values.extend(cids(signal.says).map(|cid| (name, cid.into())));
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

    fn asks(&mut self, signal: Signal<'_>) {
        let Some(scid) = signal.says.u16(2) else { return };
        let psm = signal.says.u16(0);
        self.awaits(signal, Request { psm, scids: vec![scid], ..Request::of(signal) });
    }

    fn asks_with_credits(&mut self, code: u8, signal: Signal<'_>) {
        let says = signal.says;
        let (scids, at) = match code {
            0x14 => (says.u16(2).into_iter().collect(), 4),
            _ => (cids(says).collect(), 2),
        };
        let credits = says.u16(if code == 0x14 { 8 } else { 6 });
        let (psm, mtu) = (says.u16(0), says.u16(at));
        self.awaits(signal, Request { psm, scids, mtu, credits, ..Request::of(signal) });
    }

    fn awaits(&mut self, signal: Signal<'_>, request: Request) {
        drop(self.request(signal.direction, signal.id));
        if self.requests.len() >= REQUESTS {
            self.requests.pop_front();
        }
        self.requests.push_back(request);
    }

    /// Removes and returns the request that an answer with this identifier belongs to.
    fn request(&mut self, direction: Direction, id: u8) -> Option<Request> {
        let is_it = |request: &Request| request.direction == direction && request.id == id;
        let place = self.requests.iter().position(is_it)?;
        self.requests.remove(place)
    }

    fn answers(&mut self, signal: Signal<'_>, out: &mut Out<'_>) {
        let Signal { direction, id, says } = signal;
        let Some(result) = says.u16(4) else { return };
        // The result is "connection pending".
        if result == 1 {
            return;
        }
        let request = self.request(direction.back(), id);
        let (Some(dcid), Some(scid)) = (says.u16(0), says.u16(2)) else { return };
        if result != 0 {
            return;
        }
        // Without the request, the PSM of the channel is unknown.
        let psm = request.filter(|it| it.scids == [scid]).and_then(|it| it.psm);
        let channel = Channel { to: ends(direction, scid, dcid), psm, ..Channel::default() };
        self.opens(channel, [None; 2], [None; 2], out);
    }

    fn answers_with_credits(&mut self, code: u8, signal: Signal<'_>, out: &mut Out<'_>) {
        let Signal { direction, id, says } = signal;
        let Some(request) = self.request(direction.back(), id) else { return };
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
                to: ends(direction, *scid, dcid),
                psm: request.psm,
                is_credit_based: true,
                left: [Some(0), Some(0)],
                ..Channel::default()
            };
            // Each side states the MTU and the credits for packets of its peer.
            let mtu = ends(direction, request.mtu, mtu);
            let credits = ends(direction, request.credits, credits);
            self.opens(channel, mtu, credits.map(|credits| credits.map(u64::from)), out);
        }
    }

    fn configures(&mut self, signal: Signal<'_>) {
        let Signal { direction, says, .. } = signal;
        let Self { channels, streams, .. } = self;
        let channel =
            channels.iter_mut().find(|channel| Some(channel.to[direction.index()]) == says.u16(0));
        let Some(channel) = channel else { return };
        let options = Options::read(says);
        if let Some(mode) = options.mode {
            channel.modes[direction.index()] = mode;
        }
        let back = direction.back();
        let stream = streams.find((back, channel.to[back.index()], None));
        if let (Some(stream), Some(mtu)) = (stream, options.mtu) {
            stream.set_mtu(mtu);
        }
    }

    fn disconnects(&mut self, signal: Signal<'_>, out: &mut Out<'_>) {
        // The responder's channel ID is first; packets of the peer are addressed to that ID.
        if let (Some(own), Some(others)) = (signal.says.u16(0), signal.says.u16(2)) {
            self.closes(signal.direction.back(), own, Ending::Closed, out);
            self.closes(signal.direction, others, Ending::Closed, out);
        }
    }

    fn gets_credits(&mut self, at: Time, signal: Signal<'_>) {
        let (Some(cid), Some(count)) = (signal.says.u16(0), signal.says.u16(2)) else { return };
        let key = (signal.direction.back(), cid, None);
        if let Some(stream) = self.streams.find(key) {
            stream.grant(at, count.into());
        }
    }
}

impl Request {
    fn of(signal: Signal<'_>) -> Self {
        let Signal { direction, id, .. } = signal;
        Self { direction, id, psm: None, scids: Vec::new(), mtu: None, credits: None }
    }
}

/// Orders the values of a request and its answer by direction of packets: each side states the
/// values for packets of its peer.
fn ends<T>(answer: Direction, of_request: T, of_answer: T) -> [T; 2] {
    match answer {
        Direction::Sent => [of_request, of_answer],
        Direction::Received => [of_answer, of_request],
    }
}

/// The channel IDs of a message about several channels.
fn cids(says: Rest<'_>) -> impl Iterator<Item = u16> {
    (0..AT_ONCE).map_while(move |index| says.u16(8 + 2 * index))
}

/// Options of a configuration request (5).
#[derive(Clone, Copy, Debug, Default)]
struct Options {
    mtu: Option<u16>,
    mode: Option<u8>,
}

impl Options {
    fn read(says: Rest<'_>) -> Self {
        let mut options = Self::default();
        let mut rest = says.after(4);
        while let Some((option, length)) = rest.and_then(|rest| Some((rest.u8(0)?, rest.u8(1)?))) {
            let value = rest.and_then(|rest| rest.after(2));
            match option & 0x7f {
                1 => options.mtu = value.and_then(|value| value.u16(0)).or(options.mtu),
                4 => options.mode = value.and_then(|value| value.u8(0)).or(options.mode),
                _ => {}
            }
            rest = value.and_then(|value| value.after(length.into()));
        }
        options
    }
}
