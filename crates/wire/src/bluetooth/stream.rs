//! One direction of an L2CAP channel or of an RFCOMM stream.

use manyways_unit::{Span, Time};

use super::control::{Address, Direction};
use super::credits::Credits;
use super::cursor::Cursor;
use crate::stream::Piece;
use manyways_unit::Samples;

/// Identifies one direction of an L2CAP channel or RFCOMM stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    /// Unique in a [`super::Host`]; all other identifiers are reused.
    pub number: u64,
    /// Index of the host's adapter.
    pub adapter: u16,
    /// Handle of the connection.
    pub handle: u16,
    /// Destination L2CAP channel ID of packets in this direction.
    pub cid: u16,
    /// The RFCOMM stream; `None` for an L2CAP channel. The server channel is half of this number.
    pub dlci: Option<u8>,
    pub direction: Direction,
}

/// The next bytes of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data<'a> {
    pub stream: StreamId,
    /// `None` if the opening of the channel was not captured.
    pub psm: Option<u16>,
    /// The bytes, with the time of the last fragment of their packet.
    pub piece: Piece<'a>,
}

/// Reason why a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Close {
    /// Closed by one of the endpoints.
    Closed,
    /// The connection ended, or the controller was reset.
    Disconnected,
    /// Still open at the end of the capture.
    CaptureEnd,
    /// Removed because of a limit; the stream itself may continue.
    Evicted,
}

/// Statistics of a stream.
#[derive(Clone, Debug)]
pub struct StreamSummary {
    pub id: StreamId,
    /// `None` if unknown.
    pub peer: Option<Address>,
    /// `None` if the opening of the channel was not captured, or if the channel has no PSM.
    pub psm: Option<u16>,
    /// `None` if the opening was not captured.
    pub opened: Option<Time>,
    /// Time of the first packet with data.
    pub first: Option<Time>,
    /// Time of the last packet with data.
    pub last: Option<Time>,
    pub ended: (Time, Close),
    /// Number of packets with data. For a channel with RFCOMM, all frames count.
    pub packets: u64,
    /// Bytes in these packets, captured or not.
    pub bytes: u64,
    /// Bytes that were not captured.
    pub uncaptured: u64,
    /// Packets whose last fragments are missing.
    pub incomplete: u64,
    /// Packets that the capture lost during the stream, of any connection.
    pub dropped: u64,
    /// Longest packet that the receiver accepts; `None` if not stated.
    pub mtu: Option<u16>,
    /// `None` if the stream has no credits, or if some of its packets or grants are missing.
    pub credits: Option<Credits>,
    /// Completion times of packets in the controller; only for sent packets.
    pub completion: Samples,
}

#[derive(Clone, Debug)]
pub(super) struct Stream {
    summary: StreamSummary,
    /// Packets that the capture had lost when the stream began.
    dropped_before: u64,
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
            ended: (now, Close::CaptureEnd),
            packets: 0,
            bytes: 0,
            uncaptured: 0,
            incomplete: 0,
            dropped: 0,
            mtu: None,
            credits: None,
            completion: Samples::default(),
        };
        Self { summary, dropped_before: missed_before }
    }

    pub(super) fn open(&mut self, now: Time, mtu: Option<u16>, credits: Option<u64>) {
        let summary = &mut self.summary;
        (summary.opened, summary.mtu) = (Some(now), mtu);
        summary.credits = credits.map(|granted| Credits::new(now, granted));
    }

    pub(super) fn set_mtu(&mut self, mtu: u16) {
        self.summary.mtu = Some(mtu);
    }

    /// When the stream had its last packet, or was opened.
    pub(super) fn last(&self) -> Option<Time> {
        self.summary.last.or(self.summary.opened)
    }

    /// Counts a packet with data.
    pub(super) fn add(&mut self, at: Time, payload: Cursor<'_>, is_incomplete: bool) {
        let summary = &mut self.summary;
        summary.first = summary.first.or(Some(at));
        summary.last = Some(at);
        summary.packets += 1;
        summary.bytes += payload.length as u64;
        summary.uncaptured += payload.length.saturating_sub(payload.bytes.len()) as u64;
        summary.incomplete += u64::from(is_incomplete);
    }

    /// The bytes as passed to the caller.
    pub(super) fn data<'a>(&self, at: Time, payload: Cursor<'a>) -> Data<'a> {
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

    /// Marks the number of credits as unknown.
    pub(super) fn forget_credits(&mut self) {
        self.summary.credits = None;
    }

    pub(super) fn add_completion(&mut self, span: Span) {
        self.summary.completion.push(span);
    }

    pub(super) fn end(self, now: Time, ending: Close, dropped: u64) -> StreamSummary {
        let mut summary = self.summary;
        summary.ended = (now, ending);
        summary.dropped = dropped.saturating_sub(self.dropped_before);
        if let Some(credits) = &mut summary.credits {
            credits.end(now);
        }
        summary
    }
}

impl StreamId {
    /// Server channel of RFCOMM; `None` for an L2CAP channel.
    pub fn server_channel(&self) -> Option<u8> {
        self.dlci.map(|dlci| dlci >> 1)
    }
}
