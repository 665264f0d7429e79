//! Offsets in a stream.

use std::num::NonZeroU64;

/// An offset plus one, so that an optional offset takes no extra space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place(NonZeroU64);

impl Place {
    /// The two largest offsets are stored as one.
    pub(super) fn new(place: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(place))
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
        assert_eq!(size_of::<Option<Place>>(), size_of::<u64>());
        for place in [0, 1, 1 << 32, u64::MAX - 1] {
            assert_eq!(Place::new(place).get(), place);
        }
        assert_eq!(Place::new(u64::MAX).get(), u64::MAX - 1);
    }
}
