//! Lines and attribute lists of HLS playlists (RFC 8216, 4.1 and 4.2).

use super::source::{Source, SyntaxError};
use super::{MAX_ATTRIBUTES, PLAYLIST_MARK};

/// A line of a playlist. Empty lines and comments are left out.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'t> {
    /// `#EXT…`: its name without `#`, and the text after the colon with its offset.
    Tag { name: &'t str, value: &'t str, offset: usize },
    /// A URL, with its offset.
    Url { url: &'t str, offset: usize },
}

/// Returns the lines of a playlist, each with its number from 1.
pub(super) fn lines<'t>(
    source: Source<'t>,
) -> Result<impl Iterator<Item = (usize, Line<'t>)>, SyntaxError> {
    let first = source.text.lines().next().unwrap_or_default();
    if first.trim_ascii_end() != PLAYLIST_MARK {
        return Err(SyntaxError::NoPlaylist);
    }
    let mut offset = 0;
    let lines = source.text.split('\n').enumerate().filter_map(move |(index, whole)| {
        let start = offset + (whole.len() - whole.trim_ascii_start().len());
        offset += whole.len() + 1;
        let line = whole.trim_ascii();
        let line = match line.strip_prefix('#') {
            None if line.is_empty() => return None,
            None => Line::Url { url: line, offset: start },
            Some(tag) if tag.starts_with("EXT") => match tag.split_once(':') {
                Some((name, value)) => {
                    Line::Tag { name, value, offset: start + name.len() + "#:".len() }
                }
                None => Line::Tag { name: tag, value: "", offset: start + line.len() },
            },
            Some(_) => return None,
        };
        Some((index + 1, line))
    });
    Ok(lines)
}

/// An attribute of a tag.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Attribute<'t> {
    pub name: &'t str,
    /// Without quotes.
    pub value: &'t str,
    pub is_quoted: bool,
    /// Offset of `value` in the attribute list.
    pub offset: usize,
}

/// Reads an attribute list: `NAME=value,NAME="text"`. Spaces around names and values, which RFC 8216
/// does not permit, are ignored.
pub(super) fn attributes(list: &str, line: usize) -> Result<Vec<Attribute<'_>>, SyntaxError> {
    let broken = |message: &str| SyntaxError::Line { message: message.to_owned(), line };
    let mut attributes = Vec::new();
    let mut at = 0;
    while !list[at..].trim_ascii().is_empty() {
        if attributes.len() >= MAX_ATTRIBUTES {
            return Err(SyntaxError::TooManyAttributes { line });
        }
        let rest = &list[at..];
        let equals = rest.find('=').ok_or_else(|| broken("an attribute has no value"))?;
        let name = rest[..equals].trim_ascii();
        let value = &rest[equals + 1..];
        let spaces = value.len() - value.trim_ascii_start().len();
        let (value, start) = (&value[spaces..], at + equals + 1 + spaces);
        if let Some(quoted) = value.strip_prefix('"') {
            let end = quoted.find('"').ok_or_else(|| broken("a quoted text has no end"))?;
            let after = &quoted[end + 1..];
            let comma = after.find(',').map_or(after.len(), |comma| comma + 1);
            if !after[..comma].trim_end_matches(',').trim_ascii().is_empty() {
                return Err(broken("a quoted text is not followed by a comma"));
            }
            let value = &quoted[..end];
            attributes.push(Attribute { name, value, is_quoted: true, offset: start + 1 });
            at = start + 1 + end + 1 + comma;
        } else {
            let end = value.find(',').unwrap_or(value.len());
            let plain = value[..end].trim_ascii_end();
            attributes.push(Attribute { name, value: plain, is_quoted: false, offset: start });
            at = start + end + usize::from(end < value.len());
        }
    }
    Ok(attributes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attribute_lists_have_quoted_and_plain_values() {
        let list = r#"METHOD=AES-128,URI="a,b=c" , IV=0x1,NAME="",X"#;
        let broken = attributes(list, 3).unwrap_err();
        assert_eq!(
            broken.to_string(),
            "line 3 of the playlist is broken: an attribute has no value"
        );
        let read = attributes(list.strip_suffix(",X").unwrap(), 3).unwrap();
        let values: Vec<_> = read.iter().map(|one| (one.name, one.value, one.is_quoted)).collect();
        assert_eq!(
            values,
            [
                ("METHOD", "AES-128", false),
                ("URI", "a,b=c", true),
                ("IV", "0x1", false),
                ("NAME", "", true)
            ]
        );
        for one in &read {
            assert_eq!(&list[one.offset..one.offset + one.value.len()], one.value);
        }
        assert!(attributes(r#"URI="a"#, 1).is_err());
        assert!(attributes(r#"URI="a"b,"#, 1).is_err());
        assert_eq!(attributes(" ", 1), Ok(vec![]));
        let many = "A=1,".repeat(MAX_ATTRIBUTES + 1);
        assert_eq!(attributes(&many, 2), Err(SyntaxError::TooManyAttributes { line: 2 }));
    }
}
