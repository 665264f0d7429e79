//! Inputs and outputs of a fetch.

use std::fmt;

use manyways_unit::{Rate, Size, Span};

use super::doubt::Evidence;
use super::{Head, PathError, PathId, Range, RequestId, Validator};
use crate::estimate::PathEstimate;

/// An event that the shell reports.
#[derive(Clone, Debug)]
pub enum Input {
    /// A path is usable, for the first time or again.
    PathUp {
        path: PathId,
        /// Whether the path is metered.
        metered: bool,
        /// Path estimate of an earlier transfer; `None` if there is none.
        known: Option<PathEstimate>,
    },
    /// The interface of a path is down, and all its connections are closed. [`Input::PathUp`]
    /// reports its return.
    PathDown { path: PathId },
    /// Success of [`Output::Connect`]: the path can take a request.
    Connected {
        path: PathId,
        /// Whether the connection takes concurrent requests, each with flow control: HTTP/2.
        multiplexed: bool,
        /// Round trip of the transport; `None` if it was not measured.
        rtt: Option<Span>,
    },
    /// Failure of [`Output::Connect`].
    ConnectFailed { path: PathId, error: PathError },
    /// Response to [`Output::Ping`]: its PING was acknowledged now.
    Pong { path: PathId },
    /// Response to [`Output::Ping`] if the connection has no PING: the transport's measurement.
    TransportRtt {
        path: PathId,
        /// Smoothed RTT.
        rtt: Span,
    },
    /// Response to [`Output::Ping`] if nothing can be measured now: another exchange uses the
    /// connection, or there is none.
    PingFailed { path: PathId },
    /// The head of a response arrived.
    Head { request: RequestId, head: Head },
    /// The next `length` bytes of a body arrived.
    Bytes { request: RequestId, length: u64 },
    /// Bytes arrived for a cancelled request, or were discarded with its connection. They are of no
    /// use, but count as received.
    Late { path: PathId, length: u64 },
    /// Progress of the reader that takes the bytes in order, see
    /// [`Config::ahead`](super::Config::read_ahead).
    Consumed {
        /// One past the last byte that the reader has taken.
        end: u64,
    },
    /// The body ended as announced.
    Finished { request: RequestId },
    /// The request failed.
    Failed { request: RequestId, error: PathError },
}

/// An action for the shell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Connect this path to the server, unless it is still connected. Answered by
    /// [`Input::Connected`] or [`Input::ConnectFailed`].
    Connect {
        path: PathId,
        /// Initial flow-control window of its streams if the connection is multiplexed.
        window: u64,
        /// Initial flow-control window of such a connection.
        connection_window: u64,
    },
    /// Cancel every request on this path and close its connection; no response is expected.
    Disconnect { path: PathId },
    /// Begin the next requests of this path at the given URL, not at the target of its redirects.
    ForgetRedirect { path: PathId },
    /// Set the flow-control window of all streams of this path, including open ones.
    Window { path: PathId, bytes: u64 },
    /// Set the flow-control window of the path's connection: the bytes that the server may have sent
    /// and that [`Output::Credit`] has not granted again, over all streams.
    ConnectionWindow { path: PathId, bytes: u64 },
    /// Extend the server's credit for a request by `bytes`. A request begins with the window of its
    /// path, and the server stops when its credit is used up. Without multiplexing there is no
    /// window: with [`Config::ahead`](super::Config::read_ahead) the shell then reads only the
    /// granted bytes, and otherwise all.
    Credit { request: RequestId, bytes: u64 },
    /// Measure the round-trip time of a request. Answered by [`Input::Pong`],
    /// [`Input::TransportRtt`] or [`Input::PingFailed`], or not at all if the connection breaks or
    /// the server does not answer.
    Ping { path: PathId },
    /// For the event log: the new end of this request. Its credit, and finally [`Output::Cancel`],
    /// enforce that end.
    Cut {
        request: RequestId,
        /// One past the last byte.
        end: u64,
    },
    /// For the event log: a request has received its whole requested range.
    Ended { request: RequestId },
    /// Request the object. A path has at most two requests at a time, and one if its connection is
    /// not multiplexed.
    Request {
        /// Identifies this request's inputs.
        request: RequestId,
        path: PathId,
        /// `None` for a plain GET.
        range: Option<Range>,
        /// Value of `If-Range`; `None` without the header.
        if_range: Option<Validator>,
    },
    /// Request one byte of the object, to verify its version. It is handled like
    /// [`Output::Request`], and does not count as one of the path's requests.
    Check { request: RequestId, path: PathId, range: Range, if_range: Validator },
    /// Cancel the request; no further input about it is expected.
    Cancel { request: RequestId },
    /// Write these bytes of the latest [`Input::Bytes`], which leads to any number of writes.
    Write {
        /// The request that received the bytes.
        request: RequestId,
        /// Offset in the object.
        offset: u64,
        /// Offset in the piece that arrived.
        skip: u64,
        length: u64,
    },
    /// Discard all written bytes: the object is fetched again from its beginning.
    Restart,
    /// Length of the object; `None` if it is unknown.
    LengthKnown(Option<u64>),
    /// Information for the user.
    Note(Note),
    /// All bytes are written.
    Done,
    /// The fetch has failed.
    Failed(FetchFailure),
}

/// Information for the user about a download that continues.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Note {
    /// Only one path is used: the server ignores range requests.
    NoRanges,
    /// Only one path is used: the object has no usable validator.
    NoValidator,
    /// Only one path is used: the length is unknown.
    NoLength,
    /// Only one path is used: the body has a content coding.
    Encoded,
    /// Only one path is used: a proxy has changed the body (status 203).
    Transformed,
    /// The download could not be continued and restarts from the beginning.
    Restarted,
    /// The object changed on the server, and the download restarts with the new version.
    Changed,
    /// The file has another checksum than expected, and is fetched over the paths that delivered
    /// none of it.
    WrongFile,
    /// All bytes have arrived, but no response showed that the object was still the same version
    /// then.
    Unverified,
    /// No useful byte has arrived over any path.
    Idle {
        /// Time since the last useful byte.
        elapsed: Span,
        /// Time until the fetch fails.
        remaining: Span,
        /// The paths that may still deliver bytes.
        paths: Vec<PathId>,
    },
    /// Every path waits after a failure, and the first one tries again.
    Retrying {
        /// The latest failure of that path.
        error: PathError,
        /// Time until the attempt.
        wait: Span,
        /// Number of the attempt, from 1, and of all that the path has.
        attempt: u32,
        max: u32,
    },
    /// Only metered paths are left, and their limit does not suffice.
    OverLimit {
        /// Bytes that have not arrived.
        missing: Size,
        /// Bytes that the limit still permits.
        remaining: Size,
    },
    /// The path is no longer used.
    Dropped { path: PathId, error: PathError },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRanges => {
                f.write_str("the server does not answer range requests, so only one path is used")
            }
            Self::NoValidator => f.write_str(
                "the server gives neither a strong ETag nor a usable Last-Modified, \
                 so only one path is used",
            ),
            Self::NoLength => {
                f.write_str("the server does not tell the length, so only one path is used")
            }
            Self::Encoded => f.write_str(
                "the server sends the object with a Content-Encoding, \
                 so only one path is used and the bytes are kept as they came",
            ),
            Self::Transformed => f.write_str(
                "a proxy may have changed the object (203 Non-Authoritative Information), \
                 so only one path is used",
            ),
            Self::Restarted => {
                f.write_str("the download could not be continued and begins from its start")
            }
            Self::Changed => f.write_str(
                "the object changed on the server, so the download begins again with the new version",
            ),
            Self::WrongFile => f.write_str(
                "the file has the wrong checksum, \
                 so it is fetched over the networks that delivered none of it",
            ),
            Self::Unverified => f.write_str(
                "the server did not confirm at the end that the object had stayed the same",
            ),
            Self::Idle { elapsed: lasted, remaining: left, .. } => write!(
                f,
                "no data arrived over any network for {:.0} s; waiting for {:.0} s more",
                lasted.as_secs_f64(),
                left.as_secs_f64()
            ),
            Self::Retrying { error, wait, attempt, max } => {
                let wait = wait.as_secs_f64().ceil();
                write!(f, "{error}; retrying in {wait:.0} s ({attempt} of {max})")
            }
            Self::OverLimit { missing, remaining } => write!(
                f,
                "only metered networks can be used, and their limit permits {remaining} of the \
                 {missing} that are missing",
            ),
            Self::Dropped { path, error: fault } => {
                write!(f, "path {} is no longer used: {fault}", path.0)
            }
        }
    }
}

/// Why a fetch failed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FetchFailure {
    /// The server answered the first request with this status on every path.
    Status(u16),
    /// As [`FetchFailure::Status`], and the server asks for a wait that is longer than
    /// [`Config::max_retry_time`](super::Config::max_retry_time) permits; `total` would suffice.
    RetryTooLate { status: u16, wait: Span, total: Span },
    /// The first response contradicts itself; the text names the contradiction.
    InvalidResponse(String),
    /// The server sends the whole object instead of [`Config::excerpt`](super::Config::excerpt).
    RangesIgnored,
    /// The object differs from the one whose bytes are already written.
    Changed,
    /// The responses of these paths cannot be of the same object, and nothing shows which one is.
    Disagreement(Vec<(PathId, Evidence)>),
    /// All paths have failed; the last fault of each.
    NoPathLeft(Vec<(PathId, PathError)>),
    /// Bytes had arrived, and then none over any path for this time.
    IdleTimeout(Span),
    /// Only metered paths remain, and their limit is used up.
    MeteredLimitReached,
    /// The transfer failed, cannot be continued, and has no restarts left.
    CannotContinue(PathError),
}

/// Counters and estimates of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PathStats {
    /// Written bytes.
    pub useful: u64,
    /// Received bytes that were already written or no longer needed.
    pub duplicate: u64,
    /// Sent requests.
    pub requests: u64,
    /// Overshoot: duplicate bytes past the end to which a request was cut.
    pub overshoot: u64,
    /// `None` before the first measurement.
    pub rate: Option<Rate>,
    /// Application RTT; `None` before the first measurement.
    pub rtt: Option<Span>,
}
