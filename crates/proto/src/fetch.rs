//! The download of one object over several paths: which bytes to request, where and when.
//!
//! [`Fetch`] is sans-IO. [`Fetch::handle`] takes an event, [`Fetch::poll`] returns an action, and
//! [`Fetch::next_wakeup`] returns the time of the next poll. A fetch identifies paths and requests
//! by number. It knows neither sockets nor TLS nor the HTTP version.
//!
//! # How the bytes are split
//! The path that connects first requests the whole object with a plain GET, without a HEAD before
//! it; a metered path waits for an unmetered one for a moment. The response contains the length and
//! shows whether bytes of several responses may be combined (range requests and a strong validator,
//! see [`Validator::choose`]). Then, as in MP-H2:
//!
//! - A path that is idle, or will be idle in one round trip, takes over the end of the remaining
//!   range of the path that would finish last, so that all paths finish together (equation 1,
//!   solved for any number of paths). A path whose rate is unknown counts with the mean of the
//!   others, or with 5 Mbit/s if that is more; a connection in slow start delivers a window that
//!   doubles in each round trip.
//! - A path sends its next request one application round trip before its last bytes are due, so
//!   that its link never waits (at most two requests per path, HTTP/2 only).
//! - To end a response early, a fetch stops granting flow-control credit at that byte. No byte is
//!   received unnecessarily, and the stream is cancelled at that byte. Credit that the server
//!   already has is not withdrawn, unless that would delay the end.
//! - If the length is known beforehand, every path begins at once.
//!
//! Beyond the paper:
//!
//! - An idle path requests the whole remaining range of an unresponsive path, or of a late request;
//!   see the module `race`. The other path may continue; the first copy of each byte counts, the
//!   other ones are duplicates.
//! - If the answer to a plain first request is late, another path sends the first request too.
//! - A request whose end was moved down goes on until its credit is used up, if the bytes have not
//!   arrived over the other path by then.
//! - A path that answers neither a PING nor a request in time gets no new request until it does, for
//!   four timeouts of an unresponsive path at most.
//! - A path that was lost several times takes no bytes from another one: it races against the end of
//!   its range, piece by piece.
//! - A path that fails releases its bytes to the others. It is retried with exponential backoff, or
//!   when the server's `Retry-After` ends, and is dropped after [`Config::max_attempts`] failures.
//! - A path without its interface releases its bytes at once, and is used again when the interface
//!   returns. New paths may join at any time.
//! - If all paths become silent after the first byte, no path is dropped: they are retried until
//!   [`Config::idle_timeout`] has passed. A server that refuses connections is not silent.
//! - A first response that may be a login page of the network (captive portal) is compared with the
//!   answers of the other paths before the fetch ends; see the module `doubt`.
//! - A fetch ends with a check that the object still has the version whose bytes were written; see
//!   [`VersionProof`]. If it does not, the fetch begins again, once.
//!
//! Other schedulers exist for comparison, see [`Scheduler`].
//!
//! Every byte is written once, whichever path receives it. A response is written only if it proves
//! that it belongs to the same object.
//!
//! # States
//! A fetch has a phase and a state of the object; each path and each request has its own state.
//!
//! ```text
//! phase    Opening ──first useful byte──▶ Receiving
//!             ▲ └─────────Done or Failed──────┴──────▶ Over
//!             └──the complete file is wrong, once──────┘
//!
//! object   Unknown ──first response──▶ Ranged ──ranges are ignored──▶ WholeOnly
//!            │  ▲                        │                              │
//!            │  ├──other version, once───┘                              │
//!            │  ├──the answers of other paths refute it─────────────────┤
//!            │  └──the one response broke off───────────────────────────┘
//!            └──first response, which cannot be combined with others──▶ WholeOnly
//!
//! path     Waiting ──▶ Connecting ──▶ Ready
//!            ▲              └──failure──┴──▶ Waiting, or Dropped
//!            ├──interface is back── Down ◀──interface is gone── Waiting, Connecting, Ready
//!            └──interface is back, or another version is fetched── Dropped
//!
//! doubt    None ──doubtful first response──▶ Open ──each path has answered, or timeout──▶ None
//!
//! request  reply  Awaited ──head──▶ Begun
//!          claim  Owner ◀──▶ Raced
//!                   ▲ └────▶ Leftover
//!                   └───────────┘
//! ```
//!
//! These combinations occur between two polls, and no others (`Fetch::check_states` in the tests):
//!
//! | State | Condition |
//! |---|---|
//! | phase `Finished` | there are no requests |
//! | object `Unknown` | no byte has been received, no reply has begun, no request is conditional, and the object is not doubtful |
//! | object `Ranged` | no path is `Dropped(Refused)` |
//! | object `WholeOnly` | as `Ranged`; at least one request is under way, or the object is complete and doubtful; no request is for a part of the object other than its beginning |
//! | request that is an `Owner` | it has no bytes left, or some of them are missing |
//! | request of the kind `Question` | the object is doubtful, and the reply is `Awaited` |
//! | path `Ready` with a `Sequential` connection | at most one request |
//! | path `Ready` with a `Multiplexed` connection | at most two requests |
//! | path `Ready` with a `Draining` connection | one request |
//! | path in any other state | no requests |
//! | checks of the verification | only while the object is `Ranged`; they do not count as requests |
//! | path `Dropped(OtherVersion)` | the versions `Differ` |

mod advice;
mod budget;
mod checkpoint;
mod coalesce;
mod config;
mod content_range;
mod credit;
mod doubt;
mod event;
mod excerpt;
mod existing;
mod idle;
mod interfaces;
mod memory;
mod msplayer;
mod object;
mod opening;
mod pacer;
mod path;
mod path_error;
mod ping;
mod race;
mod redirect;
mod request;
mod response;
mod restart;
mod retry;
mod retry_after;
mod schedule;
mod selection;
mod share;
mod space;
#[cfg(test)]
mod tests;
mod timeout;
mod transfer;
mod verify;
mod window;

pub use crate::ranges::{Range, Ranges};
pub use advice::{AdviceConfig, AdvisedPaths, PathUse};
pub use checkpoint::{CheckpointConfig, CheckpointOutcome, Checkpoints};
pub use coalesce::{Coalescer, Piece};
pub use config::{Config, CutMethod, MeteredUse, RefusedStart, Scheduler, UnknownScheduler};
pub use content_range::ContentRange;
pub use doubt::Evidence;
pub use event::{FetchFailure, Input, Note, Output, PathStats};
pub use excerpt::Excerpt;
pub use existing::ExistingFileState;
pub use interfaces::{
    InterfaceWatch, ListedInterface, Listing, PathChange, WatchConfig, WatchedPath,
};
pub use object::WholeOnly;
pub use pacer::Pacer;
pub use path_error::{PathError, PathErrorKind};
pub use redirect::{RedirectConfig, RedirectError, RedirectMemory, Redirects, Scheme};
pub use response::{Head, Object, UnusableResponse, Validator, ValidatorKind};
pub use retry_after::{parse_http_date, parse_retry_after};
pub use selection::{
    Candidate, Destination, Selection, SelectionFailure, SelectionRequest, select,
};
pub use space::DiskSpace;
pub use transfer::Fetch;
pub use verify::VersionProof;

/// A path, by the number that the shell assigned. The first GET prefers lower numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PathId(pub usize);

/// A request. A fetch never reuses a number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId(pub u64);
