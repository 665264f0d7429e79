//! What the shell tells a fetch, and what a fetch asks of the shell.

use std::fmt;

use manyways_unit::{Rate, Span};

use super::{Fault, Head, PathId, Range, RequestId, Validator};
use crate::estimate::Conditions;

/// What happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// A path is there, or is back.
    PathUp {
        /// Its number.
        path: PathId,
        /// Its bytes cost money.
        metered: bool,
        /// What it was worth when it was used last, where that is known.
        known: Option<Conditions>,
    },
    /// A path's interface is gone, and with it all its connections; [`Input::PathUp`] brings it back.
    PathDown {
        /// Its number.
        path: PathId,
    },
    /// The answer to [`Output::Connect`]: the path can take a request.
    Connected {
        /// The path.
        path: PathId,
        /// It takes several requests at once, and has flow control for each: HTTP/2.
        multiplexed: bool,
    },
    /// The other answer to [`Output::Connect`].
    ConnectFailed {
        /// The path.
        path: PathId,
        /// Why.
        fault: Fault,
    },
    /// The answer to [`Output::Ping`]: it has come back now.
    Pong {
        /// The path.
        path: PathId,
    },
    /// The other answer to [`Output::Ping`], where there is no PING to send: what the transport
    /// measures.
    TransportRtt {
        /// The path.
        path: PathId,
        /// Its smoothed round trip.
        rtt: Span,
    },
    /// The head of an answer arrived.
    Head {
        /// The request.
        request: RequestId,
        /// What it says.
        head: Head,
    },
    /// The next `length` bytes of a body arrived.
    Bytes {
        /// The request.
        request: RequestId,
        /// How many.
        length: u64,
    },
    /// Bytes came for a request that was cancelled, or were thrown away with its connection. They
    /// help nobody, but they were received.
    Late {
        /// The path over which they came.
        path: PathId,
        /// How many.
        length: u64,
    },
    /// Who takes the bytes in order, see `Config::ahead`, has all before this one.
    Taken {
        /// One past the last byte that was taken.
        upto: u64,
    },
    /// The body ended as it should.
    Finished {
        /// The request.
        request: RequestId,
    },
    /// The request broke off.
    Failed {
        /// The request.
        request: RequestId,
        /// Why.
        fault: Fault,
    },
}

/// What to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Connect this path to the server, unless it still is. Answered by [`Input::Connected`] or
    /// [`Input::ConnectFailed`].
    Connect {
        /// The path.
        path: PathId,
        /// The flow-control window that its streams begin with, where it is multiplexed.
        window: u64,
    },
    /// Break off everything on this path and close its connection; no answer is expected.
    Disconnect {
        /// The path.
        path: PathId,
    },
    /// Streams of this path have this flow-control window from now on, those that are there too.
    Window {
        /// The path.
        path: PathId,
        /// Its size.
        bytes: u64,
    },
    /// The server may send so many more bytes of a request, of which as many have come. A request
    /// begins with the window of its path; without this the server stops when that is used up.
    /// Where the path is not multiplexed, there is no window and nobody to tell: with
    /// `Config::ahead`, no more is read than this grants, and else all.
    Credit {
        /// The request.
        request: RequestId,
        /// How many more.
        bytes: u64,
    },
    /// Measure how long a request would be waited for. Answered by [`Input::Pong`] or
    /// [`Input::TransportRtt`]; a connection that breaks need not answer.
    Ping {
        /// The path.
        path: PathId,
    },
    /// For the record: this request is to bring bytes up to here and no more. The credit that it
    /// gets, and a [`Output::Cancel`] in the end, see to that.
    RangeEnd {
        /// The request.
        request: RequestId,
        /// One past the last byte.
        end: u64,
    },
    /// For the record: a request has brought all that it asked for.
    Ended {
        /// The request.
        request: RequestId,
    },
    /// Ask for the object. Each path has at most two requests at a time, and one where it is not
    /// multiplexed.
    Request {
        /// The number for this request's inputs.
        request: RequestId,
        /// The path.
        path: PathId,
        /// Which bytes; `None` for a plain GET.
        range: Option<Range>,
        /// The value of `If-Range`.
        if_range: Option<Validator>,
    },
    /// Nothing more is wanted of this request; no input about it is expected.
    Cancel {
        /// The request.
        request: RequestId,
    },
    /// Of the bytes that the latest [`Input::Bytes`] announced, write these. A piece of bytes may
    /// lead to no write or to several.
    Write {
        /// Whose bytes.
        request: RequestId,
        /// Where in the object.
        at: u64,
        /// Where in the piece that arrived.
        skip: u64,
        /// How many.
        length: u64,
    },
    /// Forget every byte that was written: the object is fetched anew, from its beginning.
    Restart,
    /// The length of the object is known, or that it cannot be known.
    Sized(Option<u64>),
    /// Something that the user should know.
    Note(Note),
    /// Every byte is written.
    Done,
    /// There is no way left.
    Failed(Reason),
}

/// What a user should know although the download goes on.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Note {
    /// One path only: the server does not answer range requests.
    NoRanges,
    /// One path only: nothing identifies the object's version.
    NoValidator,
    /// One path only: the length is not known.
    NoLength,
    /// One path only: the server compresses the body.
    Encoded,
    /// The download could not be continued and begins anew.
    Restarted,
    /// Nothing comes over any path.
    Quiet {
        /// For so long.
        lasted: Span,
        /// After so much more, the fetch is given up.
        left: Span,
    },
    /// This path is not used any more.
    Dropped {
        /// The path.
        path: PathId,
        /// Why.
        fault: Fault,
    },
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
            Self::Restarted => {
                f.write_str("the download could not be continued and begins from its start")
            }
            Self::Quiet { lasted, left } => write!(
                f,
                "nothing has come over any network for {:.0} s; waiting for {:.0} s more",
                lasted.as_secs_f64(),
                left.as_secs_f64()
            ),
            Self::Dropped { path, fault } => {
                write!(f, "path {} is not used any more: {fault}", path.0)
            }
        }
    }
}

/// Why a fetch failed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Reason {
    /// The server answered the first request with this status, over every path.
    Status(u16),
    /// The first answer contradicts itself; the words say how.
    Nonsense(String),
    /// The object is not the one whose bytes are already there.
    Changed,
    /// No path works any more; each one's last fault.
    NoPathLeft(Vec<(PathId, Fault)>),
    /// Something had come, and then nothing over any path for so long.
    Silence(Span),
    /// Only metered paths are left, and they may not bring more.
    AllowanceSpent,
    /// The transfer broke off, cannot be continued, and was begun anew often enough.
    CannotContinue(Fault),
}

/// What a path did so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PathStats {
    /// Bytes that were written.
    pub useful: u64,
    /// Bytes that came although they were there already, or were not wanted any more.
    pub duplicate: u64,
    /// Requests.
    pub requests: u64,
    /// Of the duplicate bytes, those past the end to which a request had been cut.
    pub tail: u64,
    /// How fast it is now.
    pub rate: Option<Rate>,
    /// Its application round trip.
    pub rtt: Option<Span>,
}
