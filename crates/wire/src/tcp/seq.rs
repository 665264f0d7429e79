//! Numbers of bytes, which wrap.

use std::ops::Add;

/// The number of a byte in a stream, modulo 2^32 (RFC 9293, 3.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seq(pub u32);

impl Seq {
    /// How far this is behind `other`; negative where it is before it. Numbers more than 2^31 apart
    /// are taken for near ones.
    pub const fn after(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0) as i32
    }

    /// The number that this stands for where `near` is one of those around it: the whole numbers
    /// from which 2^32 are left out.
    pub const fn unwrap(self, near: u64) -> u64 {
        near.wrapping_add_signed(self.after(Self(near as u32)) as i64)
    }
}

impl Add<u32> for Seq {
    type Output = Self;

    fn add(self, count: u32) -> Self {
        Self(self.0.wrapping_add(count))
    }
}
