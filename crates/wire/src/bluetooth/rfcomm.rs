//! RFCOMM: streams over an L2CAP channel, with the frames of 3GPP TS 07.10 and the credits of
//! RFCOMM 1.2.

use std::collections::BTreeMap;

use manyways_unit::Time;

use super::control::{Control, Direction, Layer};
use super::rest::Rest;
use super::stream::Ending;
use super::streams::Streams;
use super::{Event, Out};

/// PSM of RFCOMM channels.
pub(super) const PSM: u16 = 3;

/// The streams of a channel: at most 64, because a DLCI has six bits.
#[derive(Clone, Debug, Default)]
pub(super) struct Session {
    links: BTreeMap<u8, Link>,
}

/// An RFCOMM frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passed<'a> {
    /// Destination channel ID in each direction.
    pub(super) to: [u16; 2],
    pub(super) direction: Direction,
    pub(super) at: Time,
    pub(super) payload: Rest<'a>,
    pub(super) is_incomplete: bool,
}

/// Negotiated parameters of a stream.
#[derive(Clone, Copy, Debug, Default)]
struct Link {
    /// Whether the stream has credits; `None` until the proposal is answered.
    has_credits: Option<bool>,
    /// Initial credits of the sender of each direction.
    granted: [Option<u8>; 2],
    frame_size: Option<u16>,
    asked: Option<Asked>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
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
    pub(super) fn handle(&mut self, passed: Passed<'_>, streams: &mut Streams, out: &mut Out<'_>) {
        let rest = passed.payload;
        let (Some(address), Some(control), Some(short)) = (rest.u8(0), rest.u8(1), rest.u8(2))
        else {
            out.counts.headless += 1;
            return;
        };
        let dlci = address >> 2;
        let (length, header) = match (short & 1, rest.u8(3)) {
            (1, _) => (usize::from(short >> 1), 3),
            (_, Some(high)) => (usize::from(short >> 1) | usize::from(high) << 7, 4),
            _ => {
                out.counts.headless += 1;
                return;
            }
        };
        let kind = control & !POLL;
        let has_credits = self.links.get(&dlci).and_then(|link| link.has_credits);
        let is_credit =
            kind == UIH && control & POLL != 0 && dlci != 0 && has_credits != Some(false);
        let begin = header + usize::from(is_credit);
        // The last byte is the checksum.
        if rest.length != begin + length + 1 {
            out.counts.broken += 1;
            return;
        }
        let Some(info) = rest.after(begin).map(|rest| rest.first(length)) else { return };
        match (kind, dlci) {
            (UIH, 0) => self.message(passed, info, streams, out),
            (UIH, _) => {
                if is_credit {
                    grants(passed, dlci, rest.u8(header), length == 0, streams, out);
                }
                if length > 0 {
                    carries(passed, dlci, info, streams, out);
                }
            }
            (SABM | UA | DM | DISC, _) => self.turns(kind, passed, dlci, streams, out),
            _ => out.counts.broken += 1,
        }
    }

    /// Forgets initial credits, because the capture lost packets.
    pub(super) fn misses(&mut self) {
        self.links.values_mut().for_each(|link| link.granted = [None, None]);
    }

    /// Processes a frame that opens or closes a stream.
    fn turns(
        &mut self,
        kind: u8,
        passed: Passed<'_>,
        dlci: u8,
        streams: &mut Streams,
        out: &mut Out<'_>,
    ) {
        let name = match kind {
            SABM => "SABM",
            UA => "UA",
            DM => "DM",
            _ => "DISC",
        };
        says(passed, name, dlci, Vec::new(), streams, out);
        let link = self.links.entry(dlci).or_default();
        match kind {
            SABM => link.asked = Some(Asked::Open),
            DISC => link.asked = Some(Asked::Close),
            UA => match link.asked.take() {
                Some(Asked::Open) => link.opens(passed, dlci, streams, out),
                Some(Asked::Close) => self.closes(passed, dlci, streams, out),
                None => {}
            },
            _ => self.closes(passed, dlci, streams, out),
        }
    }

    fn closes(&mut self, passed: Passed<'_>, dlci: u8, streams: &mut Streams, out: &mut Out<'_>) {
        let directions = [Direction::Sent, Direction::Received];
        for (direction, cid) in directions.into_iter().zip(passed.to) {
            match dlci {
                // Closing the session closes all its streams.
                0 => streams.end_carried(direction, cid, Ending::Closed, out),
                _ => streams.end((direction, cid, Some(dlci)), Ending::Closed, out),
            }
        }
        match dlci {
            0 => self.links.clear(),
            _ => drop(self.links.remove(&dlci)),
        }
    }

    /// Processes a message on the control channel.
    fn message(
        &mut self,
        passed: Passed<'_>,
        info: Rest<'_>,
        streams: &Streams,
        out: &mut Out<'_>,
    ) {
        let (Some(first), Some(length)) = (info.u8(0), info.u8(1)) else {
            out.counts.headless += 1;
            return;
        };
        let (message, is_command) = (first >> 2, first & 2 != 0);
        // None of the messages that are read needs a two-byte length.
        let value = info.after(2).filter(|_| length & 1 == 1);
        let Some(value) = value.filter(|value| usize::from(length >> 1) <= value.length) else {
            out.counts.broken += 1;
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
                    self.negotiates(passed.direction, is_command, dlci, value);
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
        says(passed, name.unwrap_or("Unknown Message"), about.unwrap_or(0), values, streams, out);
    }

    /// Reads PN: credit-based flow control and the initial credits (RFCOMM 1.2, 5.5.3).
    fn negotiates(&mut self, direction: Direction, is_command: bool, dlci: u8, value: Rest<'_>) {
        let link = self.links.entry(dlci).or_default();
        let agrees = value.u8(1).map(|flow| flow >> 4 == if is_command { 0xf } else { 0xe });
        link.granted[direction.back().index()] = value.u8(7).map(|count| count & 7);
        link.frame_size = value.u16(4);
        // A new proposal invalidates the previous agreement.
        link.has_credits = if is_command { None } else { agrees };
    }
}

impl Link {
    fn opens(&mut self, passed: Passed<'_>, dlci: u8, streams: &mut Streams, out: &mut Out<'_>) {
        if dlci == 0 {
            return;
        }
        for direction in [Direction::Sent, Direction::Received] {
            let index = direction.index();
            let key = (direction, passed.to[index], Some(dlci));
            // An earlier stream with this key, whose end was not captured.
            streams.end(key, Ending::Closed, out);
            let granted = self.granted[index].filter(|_| self.has_credits == Some(true));
            let stream = streams.begin(key, Some(PSM), out);
            stream.open(passed.at, self.frame_size, granted.map(u64::from));
        }
    }
}

/// Processes a frame with data, which uses a credit.
fn carries(passed: Passed<'_>, dlci: u8, info: Rest<'_>, streams: &mut Streams, out: &mut Out<'_>) {
    let Passed { to, direction, at, is_incomplete, .. } = passed;
    let stream = streams.begin((direction, to[direction.index()], Some(dlci)), Some(PSM), out);
    stream.spend(at);
    stream.add(at, info, is_incomplete);
    (out.data)(stream.data(at, info));
}

/// Processes credits for the peer. A frame without data is reported as a control message.
fn grants(
    passed: Passed<'_>,
    dlci: u8,
    count: Option<u8>,
    is_alone: bool,
    streams: &mut Streams,
    out: &mut Out<'_>,
) {
    let back = passed.direction.back();
    if let Some(stream) = streams.find((back, passed.to[back.index()], Some(dlci))) {
        match count {
            Some(count) => stream.grant(passed.at, count.into()),
            None => stream.forget_credits(),
        }
    }
    if is_alone {
        let values = count.map(|count| ("credits", u64::from(count)));
        says(passed, "Credits", dlci, values.into_iter().collect(), streams, out);
    }
}

fn says(
    passed: Passed<'_>,
    name: &'static str,
    dlci: u8,
    values: Vec<(&'static str, u64)>,
    streams: &Streams,
    out: &mut Out<'_>,
) {
    out.events.push_back(Event::Control(Control {
        at: passed.at,
        layer: Layer::Rfcomm,
        name,
        adapter: streams.adapter,
        handle: Some(streams.handle),
        peer: streams.peer,
        cid: Some(passed.to[passed.direction.index()]),
        dlci: Some(dlci),
        direction: Some(passed.direction),
        values,
    }));
}
