//! The text of a manifest, and the errors of its syntax.

use std::ops::Range;

use manyways_unit::human::quoted;
use manyways_unit::toml::line_and_column;

use super::{MAX_ATTRIBUTES, MAX_DEPTH, MAX_LENGTH, PLAYLIST_MARK};

const BOM: &str = "\u{feff}";

/// Reasons why bytes are not a manifest at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SyntaxError {
    #[error("it has {0} bytes, more than {MAX_LENGTH}")]
    TooLong(usize),
    #[error("it is not text in UTF-8: byte {offset} fits no character")]
    NotUtf8 { offset: usize },
    #[error("its XML is broken at line {line}, column {column}: {message}")]
    Xml { message: String, line: usize, column: usize },
    /// Entities that a document type defines can grow without a limit.
    #[error("it has a document type declaration in line {line}, which this program refuses")]
    DocumentType { line: usize },
    /// An entity that XML does not define itself.
    #[error("it uses the unknown entity {name:?} in line {line}")]
    Entity { name: String, line: usize },
    #[error("its elements are nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    #[error("line {line} has an element or a tag with more than {MAX_ATTRIBUTES} attributes")]
    TooManyAttributes { line: usize },
    /// Content of another kind.
    #[error("it is not a playlist: its first line is not {PLAYLIST_MARK}")]
    NoPlaylist,
    /// A name or a value of a tag of a playlist.
    #[error("line {line} of the playlist is broken: {message}")]
    Line { message: String, line: usize },
}

/// The text of a manifest, without a byte order mark.
#[derive(Clone, Copy)]
pub(super) struct Source<'t> {
    pub text: &'t str,
    pub has_bom: bool,
}

impl<'t> Source<'t> {
    pub fn new(bytes: &'t [u8]) -> Result<Self, SyntaxError> {
        if bytes.len() > MAX_LENGTH {
            return Err(SyntaxError::TooLong(bytes.len()));
        }
        let text = str::from_utf8(bytes)
            .map_err(|error| SyntaxError::NotUtf8 { offset: error.valid_up_to() })?;
        let plain = text.strip_prefix(BOM);
        Ok(Self { text: plain.unwrap_or(text), has_bom: plain.is_some() })
    }

    pub fn line(&self, at: usize) -> usize {
        line_and_column(self.text, at).0
    }

    pub fn xml_error(&self, at: usize, message: impl ToString) -> SyntaxError {
        let (line, column) = line_and_column(self.text, at);
        SyntaxError::Xml { message: quoted(&message.to_string()), line, column }
    }
}

/// A copy of a text with replaced ranges, which come in ascending order.
pub(super) struct Edited<'t> {
    text: &'t str,
    /// End of the text that was copied.
    copied: usize,
    output: String,
}

impl<'t> Edited<'t> {
    pub fn new(source: Source<'t>) -> Self {
        let mut output = String::with_capacity(source.text.len() + source.text.len() / 8);
        output.push_str(if source.has_bom { BOM } else { "" });
        Self { text: source.text, copied: 0, output }
    }

    pub fn replace(&mut self, range: Range<usize>, with: &str) {
        self.output.push_str(&self.text[self.copied..range.start]);
        self.output.push_str(with);
        self.copied = range.end;
    }

    pub fn finish(mut self) -> Vec<u8> {
        self.output.push_str(&self.text[self.copied..]);
        self.output.into_bytes()
    }
}
