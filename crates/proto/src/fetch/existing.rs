//! Decides whether a download is already complete.

use manyways_unit::Size;

/// State of the output file before a download.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExistingFileState {
    /// Length of a regular file with the output name; `None` if there is none.
    pub length: Option<Size>,
    /// Whether a part file for that name exists.
    pub has_unfinished: bool,
}

impl ExistingFileState {
    /// Length of the file if it is complete, as far as that can be known without the server. A file
    /// gets its name when it is complete. Its version is unknown, so the server could add nothing.
    /// An empty file, or one whose length differs from `expected`, does not count.
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
