//! What a caller of a fetch may set.

use manyways_unit::{Size, Span};

use super::{Object, Ranges};

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
    /// The bytes are taken in order, as `Input::Taken` tells, and none is asked for that is
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
    /// How often a shell reports progress.
    pub progress_interval: Span,
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
            progress_interval: Span::from_millis(100),
            resume: None,
        }
    }
}
