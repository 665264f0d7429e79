//! One direction of a channel, or of one of RFCOMM's streams.

use manyways_unit::{Span, Time};

use super::control::{Address, Direction};
use super::credits::Credits;
use super::rest::Rest;
use crate::stream::Piece;
use manyways_unit::Samples;

/// Which stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    /// Its number: no two streams of a host have the same, while all others are used again.
    pub number: u64,
    /// Which of the host's adapters it passes.
    pub adapter: u16,
    /// The connection that carries it.
    pub handle: u16,
    /// The L2CAP channel, by the number that packets of this direction are addressed to.
    pub cid: u16,
    /// The stream of RFCOMM, where it is one. The channel of the service is half of it.
    pub dlci: Option<u8>,
    /// Which way it goes.
    pub direction: Direction,
}

/// The next bytes of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data<'a> {
    /// Which stream.
    pub stream: StreamId,
    /// What its channel is for, where its opening was captured.
    pub psm: Option<u16>,
    /// The bytes. Where a packet came in parts, they have the time of the last one.
    pub piece: Piece<'a>,
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ending {
    /// Its ends closed it.
    Closed,
    /// The connection ended, or the controller was reset.
    Disconnected,
    /// It had not when the capture did.
    Finished,
    /// It may go on, but others were in the way.
    Evicted,
}

/// What a stream added up to.
#[derive(Clone, Debug)]
pub struct StreamSummary {
    /// Which stream.
    pub id: StreamId,
    /// The other end, where it is known.
    pub peer: Option<Address>,
    /// What its channel is for, where its opening was captured and it has a PSM.
    pub psm: Option<u16>,
    /// When it was opened, where that was captured.
    pub opened: Option<Time>,
    /// When its first packet with data passed.
    pub first: Option<Time>,
    /// When its last one did.
    pub last: Option<Time>,
    /// When it was over, and how.
    pub ended: (Time, Ending),
    /// Its packets with data. Of a channel that carries RFCOMM all frames are counted.
    pub packets: u64,
    /// The bytes in them, captured or not.
    pub bytes: u64,
    /// How many of these were not captured.
    pub uncaptured: u64,
    /// Packets whose last parts never came.
    pub incomplete: u64,
    /// Packets of the connection, of whatever stream, that the capture lost meanwhile.
    pub missed: u64,
    /// The longest packet that its receiver takes, where it said so.
    pub mtu: Option<u16>,
    /// What became of its credits; none where it has none, or where not all of that was captured.
    pub credits: Option<Credits>,
    /// How long its packets were with the controller; of what the host sends only.
    pub completion: Samples,
}

#[derive(Clone, Debug)]
pub(super) struct Stream {
    summary: StreamSummary,
    /// What the connection had missed when it began.
    missed_before: u64,
}

impl Stream {
    pub(super) fn new(
        now: Time,
        id: StreamId,
        peer: Option<Address>,
        psm: Option<u16>,
        missed_before: u64,
    ) -> Self {
        let summary = StreamSummary {
            id,
            peer,
            psm,
            opened: None,
            first: None,
            last: None,
            ended: (now, Ending::Finished),
            packets: 0,
            bytes: 0,
            uncaptured: 0,
            incomplete: 0,
            missed: 0,
            mtu: None,
            credits: None,
            completion: Samples::default(),
        };
        Self { summary, missed_before }
    }

    pub(super) fn open(&mut self, now: Time, mtu: Option<u16>, credits: Option<u64>) {
        let summary = &mut self.summary;
        (summary.opened, summary.mtu) = (Some(now), mtu);
        summary.credits = credits.map(|granted| Credits::new(now, granted));
    }

    pub(super) fn set_mtu(&mut self, mtu: u16) {
        self.summary.mtu = Some(mtu);
    }

    /// When something happened to it last.
    pub(super) fn last(&self) -> Option<Time> {
        self.summary.last.or(self.summary.opened)
    }

    /// A packet with data passes.
    pub(super) fn add(&mut self, at: Time, payload: Rest<'_>, is_incomplete: bool) {
        let summary = &mut self.summary;
        summary.first = summary.first.or(Some(at));
        summary.last = Some(at);
        summary.packets += 1;
        summary.bytes += payload.length as u64;
        summary.uncaptured += payload.length.saturating_sub(payload.bytes.len()) as u64;
        summary.incomplete += u64::from(is_incomplete);
    }

    /// As what it goes on to whoever reads it.
    pub(super) fn data<'a>(&self, at: Time, payload: Rest<'a>) -> Data<'a> {
        let piece = Piece { at, bytes: payload.bytes, length: payload.length as u64 };
        Data { stream: self.summary.id, psm: self.summary.psm, piece }
    }

    pub(super) fn grant(&mut self, now: Time, count: u64) {
        if let Some(credits) = &mut self.summary.credits {
            credits.grant(now, count);
        }
    }

    pub(super) fn spend(&mut self, now: Time) {
        if self.summary.credits.as_mut().is_some_and(|credits| !credits.spend(now)) {
            self.forget_credits();
        }
    }

    /// Nobody knows any more how many it has.
    pub(super) fn forget_credits(&mut self) {
        self.summary.credits = None;
    }

    pub(super) fn completed(&mut self, span: Span) {
        self.summary.completion.push(span);
    }

    pub(super) fn end(self, now: Time, ending: Ending, missed: u64) -> StreamSummary {
        let mut summary = self.summary;
        summary.ended = (now, ending);
        summary.missed = missed.saturating_sub(self.missed_before);
        if let Some(credits) = &mut summary.credits {
            credits.end(now);
        }
        summary
    }
}

impl StreamId {
    /// RFCOMM's server channel.
    pub fn server_channel(&self) -> Option<u8> {
        self.dlci.map(|dlci| dlci >> 1)
    }
}
