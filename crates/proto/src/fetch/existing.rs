//! Whether a download is complete already.

use manyways_unit::Size;

/// What lies where a download would go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExistingFileState {
    /// The length of a regular file of that name; `None` if there is none.
    pub length: Option<Size>,
    /// Whether an unfinished download of that name is there too.
    pub has_unfinished: bool,
}

impl ExistingFileState {
    /// The length of the file if it is complete, as far as can be known without the server: a
    /// file gets its name when it is complete. Its version is unknown, so the server could not
    /// tell more. An empty file, or one of another length than `expected`, does not count.
    pub fn complete_length(&self, expected: Option<Size>) -> Option<Size> {
        let length = self.length.filter(|length| !length.is_zero() && !self.has_unfinished)?;
        expected.is_none_or(|expected| expected == length).then_some(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_finished_file_of_the_expected_length_is_complete() {
        let bytes = Size::from_bytes;
        let state = |length, has_unfinished| ExistingFileState { length, has_unfinished };
        let three = state(Some(bytes(3)), false);
        assert_eq!(three.complete_length(None), Some(bytes(3)));
        assert_eq!(three.complete_length(Some(bytes(3))), Some(bytes(3)));
        assert_eq!(three.complete_length(Some(bytes(4))), None);
        assert_eq!(state(Some(bytes(3)), true).complete_length(None), None);
        assert_eq!(state(Some(Size::ZERO), false).complete_length(None), None);
        assert_eq!(state(None, false).complete_length(None), None);
    }
}
