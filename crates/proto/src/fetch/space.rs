//! Decides whether a download fits on its disk.

use manyways_unit::Size;

/// Space for a download, before its first byte is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskSpace {
    /// Free space; `None` if it is unknown or has no limit.
    pub free: Option<Size>,
    /// Space that the part file occupies. It is less than the length of a file with holes.
    pub allocated: Size,
}

impl DiskSpace {
    /// Returns the space that an object still needs, if it is more than is free. `done` bytes are
    /// in the part file. They need no more space even if the file system stores them in less.
    pub fn shortage(&self, length: Size, done: Size) -> Option<Size> {
        let needed = length.saturating_sub(self.allocated.max(done));
        self.free.is_some_and(|free| free < needed).then_some(needed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bytes_without_space_count() {
        let mib = Size::from_mib;
        let space = |free, allocated| DiskSpace { free, allocated: mib(allocated) };
        let none = Size::ZERO;
        assert_eq!(space(Some(mib(4)), 0).shortage(mib(8), none), Some(mib(8)));
        assert_eq!(space(Some(mib(8)), 0).shortage(mib(8), none), None);
        assert_eq!(space(Some(mib(4)), 3).shortage(mib(8), mib(2)), Some(mib(5)));
        assert_eq!(space(Some(mib(4)), 4).shortage(mib(8), mib(2)), None);
        // The disk stores the bytes in less space.
        assert_eq!(space(Some(mib(4)), 1).shortage(mib(8), mib(4)), None);
        // The file system reserves space past the end of a file.
        assert_eq!(space(Some(none), 16).shortage(mib(8), mib(2)), None);
        assert_eq!(space(None, 0).shortage(mib(8), none), None);
    }
}
