//! RFCOMM: streams over an L2CAP channel, with the frames of 3GPP TS 07.10 and the credits of
//! RFCOMM 1.2.

use std::collections::BTreeMap;

use manyways_unit::Time;

use super::control::{Control, Direction, Layer};
use super::cursor::Cursor;
use super::stream::Close;
use super::streams::Streams;
use super::{Event, Sink};

/// PSM of RFCOMM channels.
pub(super) const PSM: u16 = 3;

/// The streams of a channel: at most 64, because a DLCI has six bits.
#[derive(Clone, Debug, Default)]
pub(super) struct Session {
    dlcs: BTreeMap<u8, Dlc>,
}

/// An RFCOMM frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame<'a> {
    /// Destination channel ID in each direction.
    pub(super) destination_cids: [u16; 2],
    pub(super) direction: Direction,
    pub(super) at: Time,
    pub(super) payload: Cursor<'a>,
    pub(super) is_incomplete: bool,
}

/// Negotiated parameters of a stream.
#[derive(Clone, Copy, Debug, Default)]
struct Dlc {
    /// Whether the stream has credits; `None` until the proposal is answered.
    has_credits: Option<bool>,
    /// Initial credits of the sender of each direction.
    initial_credits: [Option<u8>; 2],
    frame_size: Option<u16>,
    pending: Option<PendingCommand>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PendingCommand {
    Open,
    Close,
}

/// Frame types (TS 07.10, 5.2.1), without the P/F bit.
const SABM: u8 = 0x2f;
const UA: u8 = 0x63;
const DM: u8 = 0x0f;
const DISC: u8 = 0x43;
const UIH: u8 = 0xef;
const POLL: u8 = 0x10;

/// Messages on the control channel (5.4.6).
const PN: u8 = 0x20;
const MESSAGES: &[(u8, &str)] = &[
    (PN, "PN"),
    (0x04, "NSC"),
    (0x08, "TEST"),
    (0x14, "RLS"),
    (0x18, "FCOFF"),
    (0x24, "RPN"),
    (0x28, "FCON"),
    (0x38, "MSC"),
];

impl Session {
    pub(super) fn handle(&mut self, frame: Frame<'_>, streams: &mut Streams, out: &mut Sink<'_>) {
        let rest = frame.payload;
        let (Some(address), Some(control), Some(short)) = (rest.u8(0), rest.u8(1), rest.u8(2))
        else {
            out.counts.truncated += 1;
            return;
        };
        let dlci = address >> 2;
        let (length, header) = match (short & 1, rest.u8(3)) {
            (1, _) => (usize::from(short >> 1), 3),
            (_, Some(high)) => (usize::from(short >> 1) | usize::from(high) << 7, 4),
            _ => {
                out.counts.truncated += 1;
                return;
            }
        };
        let kind = control & !POLL;
        let has_credits = self.dlcs.get(&dlci).and_then(|link| link.has_credits);
        let is_credit =
            kind == UIH && control & POLL != 0 && dlci != 0 && has_credits != Some(false);
        let begin = header + usize::from(is_credit);
        // The last byte is the checksum.
        if rest.length != begin + length + 1 {
            out.counts.malformed += 1;
            return;
        }
        let Some(info) = rest.skip(begin).map(|rest| rest.first(length)) else { return };
        match (kind, dlci) {
            (UIH, 0) => self.on_message(frame, info, streams, out),
            (UIH, _) => {
                if is_credit {
                    on_credits(frame, dlci, rest.u8(header), length == 0, streams, out);
                }
                if length > 0 {
                    on_data(frame, dlci, info, streams, out);
                }
            }
            (SABM | UA | DM | DISC, _) => self.on_control_frame(kind, frame, dlci, streams, out),
            _ => out.counts.malformed += 1,
        }
    }

    /// Forgets initial credits, because the capture lost packets.
    pub(super) fn on_dropped(&mut self) {
        self.dlcs.values_mut().for_each(|link| link.initial_credits = [None, None]);
    }

    /// Processes a frame that opens or closes a stream.
    fn on_control_frame(
        &mut self,
        kind: u8,
        frame: Frame<'_>,
        dlci: u8,
        streams: &mut Streams,
        out: &mut Sink<'_>,
    ) {
        let name = match kind {
            SABM => "SABM",
            UA => "UA",
            DM => "DM",
            _ => "DISC",
        };
        emit_control(frame, name, dlci, Vec::new(), streams, out);
        let link = self.dlcs.entry(dlci).or_default();
        match kind {
            SABM => link.pending = Some(PendingCommand::Open),
            DISC => link.pending = Some(PendingCommand::Close),
            UA => match link.pending.take() {
                Some(PendingCommand::Open) => link.open(frame, dlci, streams, out),
                Some(PendingCommand::Close) => self.close(frame, dlci, streams, out),
                None => {}
            },
            _ => self.close(frame, dlci, streams, out),
        }
    }

    fn close(&mut self, frame: Frame<'_>, dlci: u8, streams: &mut Streams, out: &mut Sink<'_>) {
        let directions = [Direction::Sent, Direction::Received];
        for (direction, cid) in directions.into_iter().zip(frame.destination_cids) {
            match dlci {
                // Closing the session closes all its streams.
                0 => streams.end_carried(direction, cid, Close::Closed, out),
                _ => streams.end((direction, cid, Some(dlci)), Close::Closed, out),
            }
        }
        match dlci {
            0 => self.dlcs.clear(),
            _ => drop(self.dlcs.remove(&dlci)),
        }
    }

    /// Processes a message on the control channel.
    fn on_message(
        &mut self,
        frame: Frame<'_>,
        info: Cursor<'_>,
        streams: &Streams,
        out: &mut Sink<'_>,
    ) {
        let (Some(first), Some(length)) = (info.u8(0), info.u8(1)) else {
            out.counts.truncated += 1;
            return;
        };
        let (message, is_command) = (first >> 2, first & 2 != 0);
        // None of the messages that are read needs a two-byte length.
        let value = info.skip(2).filter(|_| length & 1 == 1);
        let Some(value) = value.filter(|value| usize::from(length >> 1) <= value.length) else {
            out.counts.malformed += 1;
            return;
        };
        let name = MESSAGES.iter().find(|(of, _)| *of == message).map(|(_, name)| *name);
        let mut values = vec![("command", u64::from(is_command))];
        let about = match message {
            PN => value.u8(0).map(|dlci| dlci & 0x3f),
            0x14 | 0x24 | 0x38 => value.u8(0).map(|dlci| dlci >> 2),
            _ => None,
        };
        match message {
            PN => {
                let offer = value.u8(1).map(|flow| flow >> 4);
                values.extend(offer.map(|offer| ("flow control", offer.into())));
                values.extend(value.u8(2).map(|priority| ("priority", priority.into())));
                values.extend(value.u16(4).map(|size| ("frame size", size.into())));
                values.extend(value.u8(7).map(|count| ("credits", u64::from(count & 7))));
                if let Some(dlci) = about {
                    self.negotiate(frame.direction, is_command, dlci, value);
                }
            }
            0x38 => values.extend(value.u8(1).map(|signals| ("signals", signals.into()))),
            0x14 => values.extend(value.u8(1).map(|status| ("status", status.into()))),
            0x24 => values.extend(value.u8(1).map(|rate| ("baud rate", rate.into()))),
            _ => {}
        }
        if name.is_none() {
            values.push(("type", message.into()));
        }
        emit_control(
            frame,
            name.unwrap_or("Unknown Message"),
            about.unwrap_or(0),
            values,
            streams,
            out,
        );
    }

    /// Reads PN: credit-based flow control and the initial credits (RFCOMM 1.2, 5.5.3).
    fn negotiate(&mut self, direction: Direction, is_command: bool, dlci: u8, value: Cursor<'_>) {
        let link = self.dlcs.entry(dlci).or_default();
        let agrees = value.u8(1).map(|flow| flow >> 4 == if is_command { 0xf } else { 0xe });
        link.initial_credits[direction.opposite().index()] = value.u8(7).map(|count| count & 7);
        link.frame_size = value.u16(4);
        // A new proposal invalidates the previous agreement.
        link.has_credits = if is_command { None } else { agrees };
    }
}

impl Dlc {
    fn open(&mut self, frame: Frame<'_>, dlci: u8, streams: &mut Streams, out: &mut Sink<'_>) {
        if dlci == 0 {
            return;
        }
        for direction in [Direction::Sent, Direction::Received] {
            let index = direction.index();
            let key = (direction, frame.destination_cids[index], Some(dlci));
            // An earlier stream with this key, whose end was not captured.
            streams.end(key, Close::Closed, out);
            let granted = self.initial_credits[index].filter(|_| self.has_credits == Some(true));
            let stream = streams.get_or_insert(key, Some(PSM), out);
            stream.open(frame.at, self.frame_size, granted.map(u64::from));
        }
    }
}

/// Processes a frame with data, which uses a credit.
fn on_data(
    frame: Frame<'_>,
    dlci: u8,
    info: Cursor<'_>,
    streams: &mut Streams,
    out: &mut Sink<'_>,
) {
    let Frame { destination_cids: to, direction, at, is_incomplete, .. } = frame;
    let stream =
        streams.get_or_insert((direction, to[direction.index()], Some(dlci)), Some(PSM), out);
    stream.spend(at);
    stream.add(at, info, is_incomplete);
    (out.data)(stream.data(at, info));
}

/// Processes credits for the peer. A frame without data is reported as a control message.
fn on_credits(
    frame: Frame<'_>,
    dlci: u8,
    count: Option<u8>,
    is_alone: bool,
    streams: &mut Streams,
    out: &mut Sink<'_>,
) {
    let back = frame.direction.opposite();
    if let Some(stream) = streams.find((back, frame.destination_cids[back.index()], Some(dlci))) {
        match count {
            Some(count) => stream.grant(frame.at, count.into()),
            None => stream.forget_credits(),
        }
    }
    if is_alone {
        let values = count.map(|count| ("credits", u64::from(count)));
        emit_control(frame, "Credits", dlci, values.into_iter().collect(), streams, out);
    }
}

fn emit_control(
    frame: Frame<'_>,
    name: &'static str,
    dlci: u8,
    values: Vec<(&'static str, u64)>,
    streams: &Streams,
    out: &mut Sink<'_>,
) {
    out.events.push_back(Event::Control(Control {
        at: frame.at,
        layer: Layer::Rfcomm,
        name,
        adapter: streams.adapter,
        handle: Some(streams.handle),
        peer: streams.peer,
        cid: Some(frame.destination_cids[frame.direction.index()]),
        dlci: Some(dlci),
        direction: Some(frame.direction),
        values,
    }));
}
