//! XML with limits, on the tokenizer of quick-xml: elements and texts with their places.

use std::borrow::Cow;
use std::ops::Range;

use quick_xml::Reader;
use quick_xml::errors::IllFormedError;
use quick_xml::escape::{EscapeError, resolve_predefined_entity, unescape};
use quick_xml::events::{BytesRef, BytesStart, Event};

use super::source::{Source, SyntaxError};
use super::{MAX_ATTRIBUTES, MAX_DEPTH};

/// A part of a document. Comments and processing instructions are left out.
pub(super) enum Token<'t> {
    /// `<a>`, or `<a/>`, after which a [`Close`](Self::Close) follows.
    Open(Tag<'t>),
    /// Text, a reference or a section of character data, unescaped.
    Text(Cow<'t, str>),
    Close,
}

/// The beginning of an element.
pub(super) struct Tag<'t> {
    /// Without a prefix.
    pub name: &'t str,
    pub attributes: Vec<Attribute<'t>>,
}

/// One attribute of an element.
pub(super) struct Attribute<'t> {
    /// Without a prefix; declarations of namespaces are left out.
    pub name: &'t str,
    pub has_prefix: bool,
    /// Between the quotes, with escapes.
    pub raw: &'t str,
    /// Offset of `raw`.
    pub offset: usize,
}

/// Reads a document that has one root element and no document type.
pub(super) struct XmlReader<'t> {
    source: Source<'t>,
    reader: Reader<&'t [u8]>,
    /// Bytes of the last token.
    range: Range<usize>,
    depth: usize,
    has_root: bool,
    /// The last token was an element without content, and its `Close` is due.
    is_closing: bool,
}

impl<'t> XmlReader<'t> {
    pub fn new(source: Source<'t>) -> Self {
        let mut reader = Reader::from_str(source.text);
        reader.config_mut().enable_all_checks(true);
        Self { source, reader, range: 0..0, depth: 0, has_root: false, is_closing: false }
    }

    /// Bytes of the last token; of the `Close` of an element without content, none.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// Returns the next token; `None` after the end of the document.
    pub fn next(&mut self) -> Result<Option<Token<'t>>, SyntaxError> {
        if std::mem::take(&mut self.is_closing) {
            self.range.start = self.range.end;
            self.depth -= 1;
            return Ok(Some(Token::Close));
        }
        loop {
            let event = self.reader.read_event();
            let event = event.map_err(|error| self.broken(&error))?;
            self.range = self.range.end..self.position(self.reader.buffer_position());
            match event {
                Event::Start(start) => return self.open(&start).map(Some),
                Event::Empty(start) => {
                    self.is_closing = true;
                    return self.open(&start).map(Some);
                }
                Event::End(_) => {
                    self.depth = self.depth.saturating_sub(1);
                    return Ok(Some(Token::Close));
                }
                Event::Text(text) if self.depth > 0 => {
                    return Ok(Some(Token::Text(text.into_inner())));
                }
                Event::Text(text) if text.trim_ascii().is_empty() => {}
                Event::CData(data) if self.depth > 0 => {
                    return Ok(Some(Token::Text(data.into_inner())));
                }
                Event::GeneralRef(reference) if self.depth > 0 => {
                    return self.resolve(&reference).map(|text| Some(Token::Text(text)));
                }
                Event::Text(_) | Event::CData(_) | Event::GeneralRef(_) => {
                    return Err(self.error("text outside of the root element"));
                }
                Event::DocType(_) => {
                    let line = self.source.line(self.range.start);
                    return Err(SyntaxError::DocumentType { line });
                }
                Event::Eof if self.depth > 0 => {
                    return Err(self.error("it ends within an element"));
                }
                Event::Eof if !self.has_root => return Err(self.error("it has no element")),
                Event::Eof => return Ok(None),
                Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
            }
        }
    }

    fn open(&mut self, start: &BytesStart<'t>) -> Result<Token<'t>, SyntaxError> {
        if self.depth == 0 && self.has_root {
            return Err(self.error("a second root element"));
        }
        self.has_root = true;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(SyntaxError::TooDeep);
        }
        let (name, _) = self.part(start.local_name().into_inner());
        let mut attributes = Vec::new();
        // Each attribute is compared with all before it, so their number must have a limit.
        for (number, attribute) in start.attributes().enumerate() {
            if number >= MAX_ATTRIBUTES {
                let line = self.source.line(self.range.start);
                return Err(SyntaxError::TooManyAttributes { line });
            }
            let attribute = attribute.map_err(|error| self.error(error))?;
            let (key, _) = self.part(attribute.key.into_inner());
            let (raw, offset) = self.part(&attribute.value);
            let (prefix, name) = key.split_once(':').unwrap_or(("", key));
            if key != "xmlns" && prefix != "xmlns" {
                attributes.push(Attribute { name, has_prefix: !prefix.is_empty(), raw, offset });
            }
        }
        Ok(Token::Open(Tag { name, attributes }))
    }

    /// Returns a part of the document, which borrows from a token, with its offset. The tokenizer
    /// has no offsets of attributes.
    fn part(&self, borrowed: &str) -> (&'t str, usize) {
        let text = self.source.text;
        let offset = (borrowed.as_ptr().addr()).wrapping_sub(text.as_ptr().addr());
        let part = text.get(offset..offset.saturating_add(borrowed.len()));
        (part.unwrap_or_default(), offset)
    }

    fn resolve(&self, reference: &BytesRef<'_>) -> Result<Cow<'t, str>, SyntaxError> {
        if let Some(letter) = reference.resolve_char_ref().map_err(|error| self.error(error))? {
            return Ok(Cow::Owned(letter.to_string()));
        }
        let known = resolve_predefined_entity(reference);
        known.map(Cow::Borrowed).ok_or_else(|| SyntaxError::Entity {
            name: manyways_unit::human::quoted(reference),
            line: self.source.line(self.range.start),
        })
    }

    fn error(&self, message: impl ToString) -> SyntaxError {
        self.source.xml_error(self.range.start, message)
    }

    fn broken(&self, error: &quick_xml::Error) -> SyntaxError {
        let message = match error {
            quick_xml::Error::IllFormed(IllFormedError::UnclosedReference) => {
                "an ampersand must be written as &amp;".to_owned()
            }
            other => other.to_string(),
        };
        self.source.xml_error(self.position(self.reader.error_position()), message)
    }

    fn position(&self, position: u64) -> usize {
        usize::try_from(position)
            .map_or(self.source.text.len(), |at| at.min(self.source.text.len()))
    }
}

impl<'t> Attribute<'t> {
    /// Returns a part of the raw value without escapes.
    pub fn unescape(
        source: Source<'_>,
        raw: &'t str,
        offset: usize,
    ) -> Result<Cow<'t, str>, SyntaxError> {
        unescape(raw).map_err(|error| match error {
            EscapeError::UnrecognizedEntity(_, name) => SyntaxError::Entity {
                name: manyways_unit::human::quoted(&name),
                line: source.line(offset),
            },
            EscapeError::UnterminatedEntity(_) => {
                source.xml_error(offset, "an ampersand must be written as &amp;")
            }
            other => source.xml_error(offset, other),
        })
    }
}

/// Returns the name of the root element, without a prefix, if `beginning` contains it completely.
pub(super) fn root_name(beginning: &[u8]) -> Option<&[u8]> {
    let mut rest = beginning.trim_ascii_start();
    loop {
        let end: &[u8] = if rest.starts_with(b"<?") {
            b"?>"
        } else if rest.starts_with(b"<!--") {
            b"-->"
        } else {
            break;
        };
        let at = rest.windows(end.len()).position(|window| window == end)?;
        rest = rest[at + end.len()..].trim_ascii_start();
    }
    let tag = rest.strip_prefix(b"<")?;
    let end =
        tag.iter().position(|byte| byte.is_ascii_whitespace() || matches!(byte, b'>' | b'/'))?;
    tag[..end].rsplit(|byte| *byte == b':').next()
}
