//! Configuration of a fetch.

use std::str::FromStr;

use manyways_unit::{Size, Span, human};

use super::{Excerpt, Object, Ranges};

/// Chunks of `fixed-chunk`, unless it has a size: the default, and the least one.
const DEFAULT_CHUNK: Size = Size::from_mib(1);
const MIN_CHUNK: Size = Size::from_kib(16);

/// Permitted use of metered paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MeteredUse {
    /// Without a limit.
    Unlimited,
    /// Metered paths are not even connected.
    Forbidden,
    /// At most this many bytes of responses, including late ones. Bytes in flight at a cancel may
    /// exceed it.
    Limit(Size),
}

/// How bytes are assigned to paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Scheduler {
    /// Algorithm 1 of MP-H2, for any number of paths.
    #[default]
    MpH2,
    /// mHTTP: each path requests the next chunk of this size after the previous one.
    FixedChunk(Size),
    /// MSPlayer (Chen, Towsley and Khalili, CoNEXT 2014) for any number of paths: chunks as with
    /// [`Scheduler::FixedChunk`], but that of the slowest path begins with 256 KiB, and doubles or
    /// halves when its rate rises or falls; those of the others are longer by the ratio of the
    /// rates.
    MsPlayer,
    /// Each path fetches an equal part.
    EqualSplit,
    /// Only one path: the first that connects.
    Single,
}

/// Names no scheduler, as a sentence.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct UnknownScheduler(String);

/// Parses `mp-h2`, `fixed-chunk`, `fixed-chunk=512KiB`, `msplayer`, `equal-split` and `single`.
impl FromStr for Scheduler {
    type Err = UnknownScheduler;

    fn from_str(text: &str) -> Result<Self, UnknownScheduler> {
        let unknown = |reason: String| Err(UnknownScheduler(reason));
        match text.split_once('=') {
            None => match text {
                "mp-h2" => Ok(Self::MpH2),
                "fixed-chunk" => Ok(Self::FixedChunk(DEFAULT_CHUNK)),
                "msplayer" => Ok(Self::MsPlayer),
                "equal-split" => Ok(Self::EqualSplit),
                "single" => Ok(Self::Single),
                _ => unknown(
                    "use mp-h2, fixed-chunk, fixed-chunk=SIZE, msplayer, equal-split or single"
                        .to_owned(),
                ),
            },
            Some(("fixed-chunk", size)) => match human::bytes(size) {
                Ok(size) if size >= MIN_CHUNK => Ok(Self::FixedChunk(size)),
                Ok(_) => unknown("a chunk is at least 16KiB".to_owned()),
                Err(error) => unknown(error.to_string()),
            },
            Some((name, _)) => unknown(format!("{name} takes no size; only fixed-chunk does")),
        }
    }
}

impl Scheduler {
    /// Whether a path requests one chunk after the other, so that no request is cut.
    pub(super) fn is_by_chunks(self) -> bool {
        matches!(self, Self::FixedChunk(_) | Self::MsPlayer)
    }
}

/// How a request is ended before the end of its requested range.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CutMethod {
    /// The server receives flow-control credit only up to the end (HTTP/2 only).
    #[default]
    Window,
    /// The stream is reset after the byte before the end.
    Reset,
}

/// Treatment of a server that refuses the first connection of every path, or has no name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RefusedStart {
    /// The fetch fails at once.
    #[default]
    Fail,
    /// As when bytes have arrived before: the paths try again.
    Retry,
}

/// Options of a transfer.
#[derive(Clone, Debug)]
pub struct Config {
    pub scheduler: Scheduler,
    /// Whether a path sends its next request one application round trip before the current one
    /// ends. Only multiplexed connections can.
    pub pipelining: bool,
    pub cut_method: CutMethod,
    /// Length of the object if the caller knows it: all paths begin at once. A path whose server
    /// has another length is dropped if that of another path has this one. Otherwise the length of
    /// the server takes precedence.
    pub length: Option<u64>,
    /// The part to fetch as if it were the whole object: all offsets and lengths of the fetch are
    /// those of this part, [`Config::length`] included. Only [`Output::Request`](super::Output) and
    /// [`Input::Head`](super::Input) have those of the object. `None` for the whole object.
    pub excerpt: Option<Excerpt>,
    /// Bytes from the start of the object after which the fetch is done, although the whole object
    /// is requested: for measurements of overshoot.
    pub stop_after: Option<u64>,
    /// Bytes past [`Input::Consumed`](super::Input::Consumed) up to which the object is requested,
    /// for a reader that takes the bytes in order. Credit that the server already has may exceed
    /// it. `None` for no limit.
    pub read_ahead: Option<u64>,
    /// The same at the beginning, for a reader that judges the rate by the bytes it has got: while
    /// one path brings bytes that lie behind those of another, it sees the rate of one. The limit
    /// grows with half of the consumed bytes, up to [`Self::read_ahead`]. `None` for that limit from
    /// the beginning on, which also holds if a path cannot end responses early.
    pub first_read_ahead: Option<u64>,
    pub metered: MeteredUse,
    /// Idle timeout of a request if another path is usable. Also the time that a doubtful first
    /// response waits for other paths.
    pub stall_timeout: Span,
    /// Idle timeout of a request on the only usable path.
    pub last_path_stall_timeout: Span,
    /// Idle timeout of the fetch: without a useful byte over any path. A path that joined in the
    /// meantime first gets [`Config::connect_timeout`].
    pub idle_timeout: Span,
    /// Timeout of a connection attempt, including DNS and TLS.
    pub connect_timeout: Span,
    /// Wait of the first GET for an unmetered path after a metered one has connected.
    pub head_start: Span,
    /// Minimum time that taking over bytes from another path must save: δ of MP-H2.
    pub min_gain: Span,
    /// The same if the cut costs the other path its connection (HTTP/1.1).
    pub min_sequential_gain: Span,
    /// Consecutive failures of a path, without a useful byte, after which it is dropped. If all paths
    /// become silent after the first byte, [`Config::idle_timeout`] applies instead.
    pub max_attempts: u32,
    /// Backoff after the first failure; doubles with each further one. It is four times as long for
    /// a server that refuses connections or requests.
    pub first_backoff: Span,
    /// Longest time from the first of consecutive failures to the last attempt.
    pub max_retry_time: Span,
    pub refused_start: RefusedStart,
    /// Maximum number of restarts of a download that cannot be continued.
    pub max_restarts: u32,
    /// How often the shell reports progress.
    pub progress_interval: Span,
    /// Whether the servers prove their identity (TLS), so that a network cannot answer in their
    /// place.
    pub is_authenticated: bool,
    /// Whether the caller compares the checksum of the complete file, and calls
    /// [`Fetch::fetch_elsewhere`](super::Fetch::fetch_elsewhere) if it is wrong. Then a
    /// disagreement of the networks does not end the fetch.
    pub checks_file: bool,
    /// Result of an earlier run: the object, and the existing bytes.
    pub resume: Option<(Object, Ranges)>,
}

impl Config {
    /// Bytes past these consumed ones up to which the object is requested; `None` for no limit.
    pub(super) fn ahead_of(&self, consumed: u64) -> Option<u64> {
        let most = self.read_ahead?;
        let first = self.first_read_ahead.unwrap_or(most);
        Some(first.max(consumed / 2).min(most))
    }
}

impl Default for Config {
    /// MP-H2 over all paths; the times suit Wi-Fi and cellular networks.
    fn default() -> Self {
        Self {
            scheduler: Scheduler::MpH2,
            pipelining: true,
            cut_method: CutMethod::Window,
            length: None,
            excerpt: None,
            stop_after: None,
            read_ahead: None,
            first_read_ahead: None,
            metered: MeteredUse::Unlimited,
            stall_timeout: Span::from_secs(5),
            last_path_stall_timeout: Span::from_secs(20),
            idle_timeout: Span::from_secs(60),
            connect_timeout: Span::from_secs(15),
            head_start: Span::from_millis(250),
            min_gain: Span::from_millis(5),
            min_sequential_gain: Span::from_millis(50),
            max_attempts: 6,
            first_backoff: Span::from_millis(250),
            max_retry_time: Span::from_secs(300),
            refused_start: RefusedStart::Fail,
            max_restarts: 2,
            progress_interval: Span::from_millis(100),
            is_authenticated: false,
            checks_file: false,
            resume: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_has_a_size_and_the_others_have_none() {
        let scheduler = |text: &str| text.parse::<Scheduler>();
        assert_eq!(scheduler("mp-h2"), Ok(Scheduler::MpH2));
        assert_eq!(scheduler("msplayer"), Ok(Scheduler::MsPlayer));
        assert_eq!(scheduler("fixed-chunk"), Ok(Scheduler::FixedChunk(Size::from_mib(1))));
        let half = Scheduler::FixedChunk(Size::from_kib(512));
        assert_eq!(scheduler("fixed-chunk=512KiB"), Ok(half));
        assert_eq!(scheduler("fixed-chunk=524288"), Ok(half));
        let wrong = ["fixed-chunk=1KB", "fixed-chunk=", "msplayer=1MB", "single=1MB", "mptcp", ""];
        for wrong in wrong {
            assert!(scheduler(wrong).is_err(), "{wrong}");
        }
    }
}
