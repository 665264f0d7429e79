//! The download of one object over several paths: which bytes to ask for, where and when.
//!
//! [`Fetch`] is sans-IO. It is told what happened with [`Fetch::handle`], says what to do with
//! [`Fetch::poll`], and names the next moment at which it wants to be polled with
//! [`Fetch::next_wakeup`]. It knows paths and requests by number, and nothing of sockets, TLS or
//! an HTTP version.
//!
//! # How the bytes are split
//! The first path asks for the whole object with a plain GET: no HEAD, no request is wasted. Its
//! answer tells the length, and whether bytes from several answers may be mixed at all (ranges
//! and a strong validator, see [`Validator::choose`]). Then, as in MP-H2:
//!
//! - A path that has nothing to do, or will have nothing in one round trip, takes over the end of
//!   what the path that would end last still owes, so that all end together (equation 1, solved
//!   for any number of paths). While nothing is known of either rate, that is an equal part.
//! - It asks one application round trip before its own last bytes come, so that its link never
//!   waits (at most two requests a path, HTTP/2 only).
//! - Where a request is to end before what it asked for, the server gets no flow-control credit
//!   past that place: not a byte comes for nothing, and the stream is cancelled where it stands.
//!   What the server may already send is left to it, unless that would hold the end up.
//! - When the length is known beforehand, every path begins at once.
//!
//! Beyond the paper:
//!
//! - A path that has gone silent is not waited for: an idle path asks for all that it owes. The
//!   silent one may go on; whichever bytes come first count, the others are duplicates.
//! - A path that fails gives its bytes back. It is tried again with growing pauses, and is dropped
//!   after [`Config::attempts`] failures without a useful byte between them.
//! - A path whose interface is gone gives its bytes back at once, and is used again when it returns.
//!   New paths may join at any time.
//! - Where all have fallen silent none is dropped: they are tried again until
//!   [`Config::silence`] has passed.
//!
//! Other ways to split are there to compare with, see [`Scheduler`].
//!
//! Every byte is written once, whoever brings it. Nothing is written from an answer that does not
//! prove that it belongs to the same object.

mod answer;
mod content_range;
mod credit;
mod ping;
mod schedule;
mod silence;
#[cfg(test)]
mod tests;
mod transfer;

use std::fmt;

use manyways_unit::{Rate, Size, Span};

use crate::estimate::Conditions;

pub use crate::ranges::{Range, Ranges};
pub use answer::{Head, Object, Unfit, Validator};
pub use content_range::ContentRange;
pub use transfer::Fetch;

/// A path, by the number that the shell gave it. Lower numbers are preferred for the first GET.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PathId(pub usize);

/// A request. Numbers are never used twice within a fetch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId(pub u64);

/// How much may be received over metered paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allowance {
    /// As much as helps.
    All,
    /// Nothing: metered paths are not even connected.
    Nothing,
    /// At most this. The bytes of answers count, late ones too; what is in flight at a cancel may
    /// come on top.
    Limit(Size),
}

/// Who fetches what.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Scheduler {
    /// Algorithm 1 of MP-H2, for any number of paths.
    #[default]
    MpH2,
    /// mHTTP: each path fetches the next chunk of this size when it has brought the last.
    FixedChunk(Size),
    /// Each path fetches an equal part.
    EqualSplit,
    /// One path only: the first that works.
    Single,
}

/// How a request is ended before the end of what it asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RangeEnd {
    /// The server gets no more flow-control credit than up to there (HTTP/2 only).
    #[default]
    Window,
    /// The stream is reset when the byte before the end is there.
    Reset,
}

/// What a caller may set.
#[derive(Clone, Debug)]
pub struct Config {
    /// Who fetches what.
    pub scheduler: Scheduler,
    /// The next request of a path is sent one application round trip before the last one ends,
    /// where the protocol can do that.
    pub pipelining: bool,
    /// How a request is ended early.
    pub range_end: RangeEnd,
    /// The object's length, where the caller knows it: all paths begin at once. A server that says
    /// otherwise is right.
    pub length: Option<u64>,
    /// Only this much of the object's beginning is wanted, although all of it is asked for: for
    /// measurements of what comes past an adjusted end.
    pub stop_after: Option<u64>,
    /// The bytes are taken in order, as [`Input::Taken`] tells, and none is asked for that is
    /// further than this past what was taken. Some more may come: what a server may send already
    /// when that is found out.
    pub ahead: Option<u64>,
    /// What metered paths may be used for.
    pub metered: Allowance,
    /// A request is given up when nothing came for so long and another path is there.
    pub stall: Span,
    /// The same where this is the only path left.
    pub stall_alone: Span,
    /// The fetch is given up when no path has brought a byte that was needed for so long; a path
    /// that joined in the meantime has its [`Config::connect`] before that.
    pub silence: Span,
    /// A connection attempt, name look-up and TLS included, may take so long.
    pub connect: Span,
    /// How long the first GET waits for a preferred path when another one is connected already.
    pub head_start: Span,
    /// The least time that taking bytes over from another path must save: δ of MP-H2.
    pub gain: Span,
    /// A path is dropped after so many failures in a row, unless all paths have fallen silent.
    pub attempts: u32,
    /// The pause after the first failure; it doubles with each one that follows.
    pub pause: Span,
    /// How often a download that cannot be continued is begun anew.
    pub restarts: u32,
    /// What an earlier run left: the object, and the bytes that are there.
    pub resume: Option<(Object, Ranges)>,
}

impl Default for Config {
    /// MP-H2 over all paths; the times suit Wi-Fi and cellular networks.
    fn default() -> Self {
        Self {
            scheduler: Scheduler::MpH2,
            pipelining: true,
            range_end: RangeEnd::Window,
            length: None,
            stop_after: None,
            ahead: None,
            metered: Allowance::All,
            stall: Span::from_secs(5),
            stall_alone: Span::from_secs(20),
            silence: Span::from_secs(60),
            connect: Span::from_secs(15),
            head_start: Span::from_millis(250),
            gain: Span::from_millis(50),
            attempts: 5,
            pause: Span::from_millis(250),
            restarts: 2,
            resume: None,
        }
    }
}

/// What went wrong on a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FaultClass {
    /// The name was not resolved.
    Dns,
    /// No connection came about.
    Connect,
    /// The TLS handshake failed.
    Tls,
    /// The connection broke.
    Reset,
    /// The body ended before its announced length.
    Truncated,
    /// The server said that it takes no more requests on this connection.
    GoAway,
    /// The server finds that it is asked too much (ENHANCE_YOUR_CALM).
    Calm,
    /// What came is not HTTP.
    Protocol,
    /// Nothing came for too long.
    Stalled,
    /// The path's interface is gone.
    Down,
    /// The answer cannot be used; see [`Unfit`].
    Unfit,
}

/// A fault of a path, with words for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// What kind of fault.
    pub class: FaultClass,
    /// One clause without a full stop: "connection refused by 192.0.2.1".
    pub words: String,
    /// Trying again may help.
    pub again: bool,
}

impl Fault {
    /// A fault after which the path may be tried again.
    pub fn passing(class: FaultClass, words: impl Into<String>) -> Self {
        Self { class, words: words.into(), again: true }
    }

    /// A fault that will not go away.
    pub fn lasting(class: FaultClass, words: impl Into<String>) -> Self {
        Self { class, words: words.into(), again: false }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

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
    /// Who takes the bytes in order, see [`Config::ahead`], has all before this one.
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
    /// [`Config::ahead`], no more is read than this grants, and else all.
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
