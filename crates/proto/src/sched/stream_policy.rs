//! Treatment of a stream by a policy: scheduler, permitted paths and priority.

use std::fmt;
use std::str::FromStr;

/// Number of a path, the same at client and gateway: index of the network in the configuration of
/// the client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PathId(pub u8);

/// A set of paths.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PathSet(u32);

/// The schedulers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum SchedulerKind {
    /// The path with room that has the smallest RTT.
    MinRtt,
    /// All paths in turn.
    RoundRobin,
    /// Copies on every path; the receiver uses the first one.
    Redundant,
    /// One path; another one if that does not exist.
    Single,
    /// Earliest completion first: skips a slow path if waiting for a fast one completes earlier.
    Ecf,
    /// Earliest expected delivery, including bytes in the kernel's send buffer.
    #[default]
    BufferAware,
    /// The path with room and the smallest pipe-aware delay.
    MinPad,
    /// PAMS, as published.
    PublishedPams,
    /// PAMS, with bytes in flight: the same as `BufferAware`.
    Pams,
}

impl SchedulerKind {
    /// Whether it weighs the delays of all paths.
    pub(crate) fn weighs_delays(self) -> bool {
        match self {
            Self::Ecf | Self::BufferAware | Self::MinPad | Self::PublishedPams | Self::Pams => true,
            Self::MinRtt | Self::RoundRobin | Self::Redundant | Self::Single => false,
        }
    }
}

/// Treatment of the bytes of a stream or flow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct StreamPolicy {
    pub scheduler: SchedulerKind,
    /// Permitted paths. While none of them exists, the stream waits.
    pub paths: PathSet,
    /// Preferred path, used by some schedulers.
    pub primary: Option<PathId>,
    /// Higher priorities are served first; the default is 1.
    pub priority: u8,
}

impl PathId {
    /// Paths have numbers below this.
    pub const LIMIT: u8 = 32;
}

impl PathSet {
    pub const ALL: Self = Self(u32::MAX);
    pub const NONE: Self = Self(0);

    /// One bit for each path, the lowest for path 0.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// One bit for each path, the lowest for path 0.
    pub const fn bits(self) -> u32 {
        self.0
    }

    pub const fn contains(self, path: PathId) -> bool {
        path.0 < PathId::LIMIT && self.0 & (1 << path.0) != 0
    }

    /// Returns the set with `path` added; unchanged if `path` is not below [`PathId::LIMIT`].
    #[must_use]
    pub const fn with(self, path: PathId) -> Self {
        if path.0 < PathId::LIMIT { Self(self.0 | (1 << path.0)) } else { self }
    }
}

impl FromIterator<PathId> for PathSet {
    fn from_iter<I: IntoIterator<Item = PathId>>(paths: I) -> Self {
        paths.into_iter().fold(Self::NONE, Self::with)
    }
}

impl fmt::Debug for PathSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::ALL => f.write_str("all paths"),
            _ => f
                .debug_set()
                .entries((0..PathId::LIMIT).filter(|id| self.contains(PathId(*id))))
                .finish(),
        }
    }
}

impl SchedulerKind {
    pub const ALL: [Self; 9] = [
        Self::MinRtt,
        Self::RoundRobin,
        Self::Redundant,
        Self::Single,
        Self::Ecf,
        Self::BufferAware,
        Self::MinPad,
        Self::PublishedPams,
        Self::Pams,
    ];

    /// Returns the name in configuration files and output; stable.
    pub fn name(self) -> &'static str {
        match self {
            Self::MinRtt => "minrtt",
            Self::RoundRobin => "round-robin",
            Self::Redundant => "redundant",
            Self::Single => "single",
            Self::Ecf => "ecf",
            Self::BufferAware => "buffer-aware",
            Self::MinPad => "minpad",
            Self::PublishedPams => "pams-print",
            Self::Pams => "pams",
        }
    }
}

impl fmt::Display for SchedulerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for SchedulerKind {
    type Err = UnknownScheduler;
    fn from_str(word: &str) -> Result<Self, UnknownScheduler> {
        Self::ALL.into_iter().find(|kind| kind.name() == word).ok_or(UnknownScheduler)
    }
}

/// Error for an unknown scheduler name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "there are the schedulers minrtt, round-robin, redundant, single, ecf, buffer-aware, minpad, \
     pams-print and pams, and no other"
)]
pub struct UnknownScheduler;

impl Default for StreamPolicy {
    /// All paths with the default scheduler, priority 1.
    fn default() -> Self {
        Self {
            scheduler: SchedulerKind::default(),
            paths: PathSet::ALL,
            primary: None,
            priority: 1,
        }
    }
}
