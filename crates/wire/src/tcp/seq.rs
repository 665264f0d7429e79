//! Sequence numbers, which wrap around.

use std::ops::Add;

/// A sequence number, modulo 2^32 (RFC 9293, 3.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seq(pub u32);

impl Seq {
    /// Distance from `other` to this number, negative if this number comes before `other`. Correct
    /// for distances below 2^31.
    pub const fn distance_from(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0) as i32
    }

    /// The 64-bit offset closest to `near` whose lower 32 bits are this number.
    pub const fn to_offset(self, near: u64) -> u64 {
        near.wrapping_add_signed(self.distance_from(Self(near as u32)) as i64)
    }
}

impl Add<u32> for Seq {
    type Output = Self;

    fn add(self, count: u32) -> Self {
        Self(self.0.wrapping_add(count))
    }
}
