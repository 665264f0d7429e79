//! The download of one object over several paths: which bytes to request, where and when.
//!
//! [`Fetch`] is sans-IO. [`Fetch::handle`] takes what happened, [`Fetch::poll`] returns what to do,
//! and [`Fetch::next_wakeup`] names the next time at which to poll. A fetch knows paths and requests
//! by number, and nothing of sockets, TLS or an HTTP version.
//!
//! # How the bytes are split
//! The first path requests the whole object with a plain GET: no HEAD, and no request is wasted. The
//! response tells the length, and whether bytes of several responses may be combined at all (range
//! requests and a strong validator, see [`Validator::choose`]). Then, as in MP-H2:
//!
//! - A path that is idle, or will be idle in one round trip, takes over the end of what the path
//!   that would finish last still has to bring, so that all paths finish together (equation 1,
//!   solved for any number of paths). While no rate is known, it takes an equal part.
//! - A path sends its next request one application round trip before its last bytes are due, so
//!   that its link never waits (at most two requests a path, HTTP/2 only).
//! - To end a response early, a fetch stops granting flow-control credit at that byte: no byte
//!   comes in vain, and the stream is cancelled where it stands. Credit that the server already has
//!   is left to it, unless that would delay the end.
//! - When the length is known beforehand, every path begins at once.
//!
//! Beyond the paper:
//!
//! - An idle path requests everything that an unresponsive path still has to bring. The
//!   unresponsive one may go on; whichever bytes come first count, the others are duplicates.
//! - A path that fails releases its bytes to the others. It is tried again with exponential
//!   backoff, and is dropped after [`Config::attempts`] failures without a useful byte in between.
//! - A path whose interface is gone releases its bytes at once, and is used again when the interface
//!   returns. New paths may join at any time.
//! - While all paths are idle none is dropped: they are tried again until [`Config::silence`] has
//!   passed.
//!
//! Other ways to split exist for comparison, see [`Scheduler`].
//!
//! Every byte is written once, whichever path brings it. Nothing is written from a response that
//! does not prove that it belongs to the same object.
//!
//! # States
//! A fetch has a phase and a state of the object; each path and each request has its own state.
//!
//! ```text
//! phase    Opening ──first useful byte──▶ Receiving
//!             └───────────Done or Failed──────┴──────▶ Over
//!
//! object   Unknown ──first response──▶ Ranged ──ranges are ignored──▶ WholeOnly
//!            │  ▲                        │                              │
//!            │  └──other version, once───┘                              │
//!            │  └──the one response broke off───────────────────────────┘
//!            └──first response, which cannot be combined with others──▶ WholeOnly
//!
//! path     Waiting ──▶ Connecting ──▶ Ready
//!            ▲              └──failure──┴──▶ Waiting, or Dropped
//!            ├──interface is back── Down ◀──interface is gone── Waiting, Connecting, Ready
//!            └──interface is back, or another version is fetched── Dropped
//!
//! request  reply  Awaited ──head──▶ Begun
//!          claim  Owner ◀──▶ Raced
//! ```
//!
//! These combinations occur between two polls, and no others (`Fetch::check_states` in the tests):
//!
//! | Where | What holds |
//! |---|---|
//! | phase `Over` | there are no requests |
//! | object `Unknown` | no byte is there, no reply has begun, and no request is conditional |
//! | object `Ranged` | no path is `Dropped(Refused)` |
//! | object `WholeOnly` | as `Ranged`; at least one request is under way, and none of them is for a part of the object other than its beginning |
//! | path `Ready` with a `Sequential` connection | at most one request |
//! | path `Ready` with a `Multiplexed` connection | at most two requests |
//! | path `Ready` with a `Draining` connection | one request |
//! | path in any other state | no requests |
//! | path `Dropped(OtherVersion)` | the versions `Differ` |

mod answer;
mod budget;
mod checkpoint;
mod coalesce;
mod config;
mod content_range;
mod credit;
mod event;
mod existing;
mod fault;
mod idle;
mod interfaces;
mod object;
mod opening;
mod pacer;
mod path;
mod ping;
mod race;
mod redirect;
mod request;
mod restart;
mod schedule;
mod selection;
mod share;
#[cfg(test)]
mod tests;
mod timeout;
mod transfer;
mod window;

pub use crate::ranges::{Range, Ranges};
pub use answer::{Head, Object, Unfit, Validator};
pub use checkpoint::{CheckpointConfig, Checkpoints, Written};
pub use coalesce::{Coalescer, Piece};
pub use config::{Allowance, Config, RangeEnd, Scheduler};
pub use content_range::ContentRange;
pub use event::{Input, Note, Output, PathStats, Reason};
pub use existing::ExistingFileState;
pub use fault::{Fault, FaultClass};
pub use interfaces::{
    InterfaceWatch, ListedInterface, Listing, PathChange, WatchConfig, WatchedPath,
};
pub use object::WholeOnly;
pub use pacer::Pacer;
pub use redirect::{RedirectConfig, RedirectError, Redirects, Scheme};
pub use selection::{
    Candidate, Destination, Selection, SelectionProblem, SelectionRequest, select,
};
pub use transfer::Fetch;

/// A path, by the number that the shell gave it. Lower numbers are preferred for the first GET.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PathId(pub usize);

/// A request. Numbers are never used twice within a fetch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId(pub u64);
