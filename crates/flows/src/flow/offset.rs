//! Offsets in a stream.

use std::num::NonZeroU64;

/// An offset plus one, so that an optional offset takes no extra space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Offset(NonZeroU64);

impl Offset {
    /// The two largest offsets are stored as one.
    pub(super) fn new(offset: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(offset))
    }

    pub(super) fn get(self) -> u64 {
        self.0.get() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_optional_place_takes_no_more_room() {
        assert_eq!(size_of::<Option<Offset>>(), size_of::<u64>());
        for offset in [0, 1, 1 << 32, u64::MAX - 1] {
            assert_eq!(Offset::new(offset).get(), offset);
        }
        assert_eq!(Offset::new(u64::MAX).get(), u64::MAX - 1);
    }
}
