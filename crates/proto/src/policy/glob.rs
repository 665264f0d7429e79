//! Patterns with `*`.

use std::fmt;

use manyways_unit::human::InvalidValue;

/// Maximum length of a pattern in bytes.
const MAX_PATTERN: usize = 255;

/// A pattern in which `*` matches any characters, including none.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Glob {
    text: String,
    ignores_case: bool,
}

impl Glob {
    /// Creates a case-sensitive pattern.
    pub(super) fn exact(text: &str) -> Result<Self, InvalidValue> {
        let special = ['?', '[', ']', '{', '}', '\\'];
        let clear = !text.contains(special) && !text.chars().any(char::is_control);
        if text.is_empty() || text.len() > MAX_PATTERN || !clear {
            return Err(InvalidValue::new(
                text,
                "a pattern",
                "a name of up to 255 bytes, where only `*` is special, like firefox or teams*",
            ));
        }
        Ok(Self { text: text.to_owned(), ignores_case: false })
    }

    /// Creates a pattern that ignores the case of ASCII letters.
    pub(super) fn ignoring_case(text: &str) -> Result<Self, InvalidValue> {
        Ok(Self { ignores_case: true, ..Self::exact(text)? })
    }

    /// Returns whether the pattern contains no `*`.
    pub(super) fn is_plain(&self) -> bool {
        !self.text.contains('*')
    }

    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    pub(super) fn matches(&self, text: &str) -> bool {
        let same = |a: &[u8], b: &[u8]| match self.ignores_case {
            true => a.eq_ignore_ascii_case(b),
            false => a == b,
        };
        let mut pieces = self.text.as_bytes().split(|byte| *byte == b'*');
        let first = pieces.next().unwrap_or_default();
        let Some((head, mut rest)) = text.as_bytes().split_at_checked(first.len()) else {
            return false;
        };
        if !same(head, first) {
            return false;
        }
        let Some(last) = pieces.next_back() else { return rest.is_empty() };
        // The leftmost match of each piece leaves the longest rest for the next one.
        for piece in pieces.filter(|piece| !piece.is_empty()) {
            match rest.windows(piece.len()).position(|window| same(window, piece)) {
                Some(at) => rest = &rest[at + piece.len()..],
                None => return false,
            }
        }
        rest.len() >= last.len() && same(&rest[rest.len() - last.len()..], last)
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_star_is_any_characters_and_the_rest_is_itself() {
        let fits = |pattern: &str, text: &str| Glob::ignoring_case(pattern).unwrap().matches(text);
        assert!(fits("zoom", "Zoom") && !fits("zoom", "zoom2") && !fits("zoom", "zoo"));
        assert!(fits("teams*", "teams") && fits("teams*", "teams-for-linux"));
        assert!(fits("*", "") && fits("**", "x") && fits("a*a", "aa") && !fits("a*a", "a"));
        assert!(fits("a*b*c", "a1b2b3c") && !fits("a*b*c", "a1c2b"));
        assert!(!fits("*bc*c", "bc") && fits("*bc*c", "abcc"));
        assert!(!Glob::exact("zoom").unwrap().matches("Zoom"));
    }

    #[test]
    fn what_looks_special_and_is_not_is_refused() {
        for text in ["", "a?", "[ab]", "{a,b}", "a\\*", "a\nb", &"x".repeat(256)] {
            assert!(Glob::exact(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn fits_as_its_definition_says(pattern in "[ab*]{1,8}", text in "[ab]{0,8}") {
            fn defined(pattern: &[u8], text: &[u8]) -> bool {
                match pattern.split_first() {
                    None => text.is_empty(),
                    Some((b'*', rest)) => {
                        (0..=text.len()).any(|skipped| defined(rest, &text[skipped..]))
                    }
                    Some((byte, rest)) => {
                        text.split_first().is_some_and(|(first, text)| {
                            first == byte && defined(rest, text)
                        })
                    }
                }
            }
            let glob = Glob::exact(&pattern).unwrap();
            prop_assert_eq!(glob.matches(&text), defined(pattern.as_bytes(), text.as_bytes()));
        }
    }
}
