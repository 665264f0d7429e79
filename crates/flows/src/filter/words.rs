//! Splits the text of a filter into words.

use std::ops::Range;

/// A word or a sign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word<'a> {
    pub(super) text: &'a str,
    pub(super) at: Range<usize>,
}

pub(super) const SIGNS: [&str; 6] = ["&&", "||", ">=", "<=", "==", "!="];

/// Splits a text into words. A character that cannot be part of a word is a sign, as is each
/// element of [`SIGNS`].
pub(super) fn words(text: &str) -> Vec<Word<'_>> {
    let mut words = Vec::new();
    let mut at = 0;
    while let Some(rest) = text.get(at..)
        && let Some(first) = rest.chars().next()
    {
        let is_sign = SIGNS.iter().any(|sign| rest.starts_with(sign));
        let length = match first {
            _ if is_sign => 2,
            first if is_part(first) => rest.find(|c| !is_part(c)).unwrap_or(rest.len()),
            first => first.len_utf8(),
        };
        let end = at + length;
        if !first.is_whitespace() {
            words.extend(text.get(at..end).map(|text| Word { text, at: at..end }));
        }
        at = end;
    }
    words
}

/// Whether `character` may be part of a word. A backslash precedes names that are also keywords:
/// `proto \tcp`.
pub(super) fn is_part(character: char) -> bool {
    character.is_alphanumeric() || "._:/-\\".contains(character)
}
