//! What a policy says of a stream: who chooses, among which paths, and how urgent it is.

use std::fmt;
use std::str::FromStr;

/// A path between the two ends, as both ends number it: the client's networks in the order in
/// which it names them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PathId(pub u8);

/// A set of paths.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PathSet(u32);

/// The schedulers, as they are named on the wire and by users.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Kind {
    /// The path with the smallest round trip that has room.
    MinRtt,
    /// In turns.
    RoundRobin,
    /// Every path; the first copy wins.
    Redundant,
    /// One path, the next one where that is gone.
    Single,
    /// Earliest completion first: a slow path is passed over where waiting for a fast one is
    /// quicker.
    Ecf,
    /// The earliest expected delivery, with what waits in the kernel counted.
    #[default]
    BufferAware,
}

/// How the bytes of a stream or a flow are to be carried.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Treatment {
    /// Who chooses among its paths.
    pub scheduler: Kind,
    /// The paths that it may use. Where none of them is there, it waits.
    pub paths: PathSet,
    /// The path that comes first where the scheduler has one.
    pub primary: Option<PathId>,
    /// Those of a higher one go first; 1 is ordinary.
    pub priority: u8,
}

impl PathId {
    /// Paths are numbered below this.
    pub const LIMIT: u8 = 32;
}

impl PathSet {
    /// Every path.
    pub const ALL: Self = Self(u32::MAX);
    /// None.
    pub const NONE: Self = Self(0);

    /// From one bit a path.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// One bit a path.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether it has `path`.
    pub const fn has(self, path: PathId) -> bool {
        path.0 < PathId::LIMIT && self.0 & (1 << path.0) != 0
    }

    /// The same, with `path`.
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
                .entries((0..PathId::LIMIT).filter(|id| self.has(PathId(*id))))
                .finish(),
        }
    }
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::MinRtt,
        Self::RoundRobin,
        Self::Redundant,
        Self::Single,
        Self::Ecf,
        Self::BufferAware,
    ];

    /// The word for it, stable.
    pub fn word(self) -> &'static str {
        match self {
            Self::MinRtt => "minrtt",
            Self::RoundRobin => "round-robin",
            Self::Redundant => "redundant",
            Self::Single => "single",
            Self::Ecf => "ecf",
            Self::BufferAware => "buffer-aware",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for Kind {
    type Err = UnknownScheduler;
    fn from_str(word: &str) -> Result<Self, UnknownScheduler> {
        Self::ALL.into_iter().find(|kind| kind.word() == word).ok_or(UnknownScheduler)
    }
}

/// There is no scheduler of that name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "there are the schedulers minrtt, round-robin, redundant, single, ecf and buffer-aware, and \
     no other"
)]
pub struct UnknownScheduler;

impl Default for Treatment {
    /// Every path, by the default scheduler.
    fn default() -> Self {
        Self { scheduler: Kind::default(), paths: PathSet::ALL, primary: None, priority: 1 }
    }
}
