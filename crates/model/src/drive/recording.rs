//! Recorded traffic, as far as a replay has to know it.

use manyways_unit::{Size, Time};

/// How many exchanges a connection can have at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// One: HTTP/1.0 and HTTP/1.1.
    Http1,
    /// Many, each on a stream: HTTP/2 and HTTP/3.
    Http2,
}

/// A recorded connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    pub protocol: Protocol,
    /// When the client began to open it, with the look-up of its name if that is known. `None` if the
    /// source does not have it.
    pub opened: Option<Time>,
    /// When it could carry requests, after all handshakes.
    pub ready: Option<Time>,
    pub closed: Option<Time>,
}

/// How the exchange ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// The response is complete.
    Complete,
    /// The client closed the connection or reset the stream before.
    AbortedByClient,
    /// The server did, or returned no response at all.
    AbortedByServer,
    /// The recording ended before.
    Unfinished,
}

/// A recorded exchange. Its number is its index in [`Recording::exchanges`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange<'a> {
    /// Index in [`Recording::connections`]. `None`, or out of range, if it is unknown.
    pub connection: Option<usize>,
    /// Names the server if the connection is unknown: scheme, host and port in any form.
    pub origin: &'a str,
    /// Counts if the connection is unknown.
    pub protocol: Protocol,
    /// When the client wanted the exchange, or, if that is unknown, sent the request.
    pub started: Time,
    /// When the first byte of the request was sent, as observed on its connection. `None` if that is
    /// unknown, or computed from phases of a HAR file: then `started` counts, and overlapping
    /// exchanges on a connection of HTTP/1 are not pipelined, but wait for each other. (Browsers do
    /// not pipeline; their files assign exchanges to wrong connections.)
    pub sent: Option<Time>,
    /// Last byte of the response, or the abort. `None` if it is unknown.
    pub ended: Option<Time>,
    /// Bytes of the request.
    pub uploaded: Size,
    /// Bytes of the response, in the unit that [`Input::Received`](super::Input::Received) counts in
    /// the replay. If the exchange was aborted, those that arrived.
    pub downloaded: Size,
    pub completion: Completion,
}

/// A recording. Nothing has to be consistent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recording<'a> {
    pub connections: &'a [Connection],
    pub exchanges: &'a [Exchange<'a>],
}

impl Exchange<'_> {
    /// Start of the request. Clocks of a source can contradict each other: a request that was wanted
    /// after it was sent counts as sent when it was wanted.
    pub(super) fn sent(&self) -> Time {
        self.sent.map_or(self.started, |sent| sent.max(self.started))
    }

    /// End of the exchange, not before the start. `None` if there was none, or it is unknown.
    pub(super) fn ended(&self) -> Option<Time> {
        let ended = self.ended.filter(|_| self.completion != Completion::Unfinished)?;
        Some(ended.max(self.sent()))
    }

    /// Whether the client, or the end of the recording, ended it, and not the server.
    pub(super) fn is_cut(&self) -> bool {
        matches!(self.completion, Completion::AbortedByClient | Completion::Unfinished)
    }
}
