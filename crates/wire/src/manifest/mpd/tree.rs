//! The elements of an MPD that describe segments, as a tree.

use std::borrow::Cow;

use manyways_unit::Span;

use super::super::film::{FilmError, whole};
use super::super::source::Source;
use super::super::xml::{Attribute, Token, XmlReader};
use super::duration;

/// Elements in a tree; more are an error.
const MAX_ELEMENTS: usize = 250_000;

/// Elements that are kept; those in others are left out as well.
const KEPT: [&str; 15] = [
    "MPD",
    "Period",
    "AdaptationSet",
    "Representation",
    "BaseURL",
    "SegmentTemplate",
    "SegmentTimeline",
    "S",
    "SegmentList",
    "SegmentURL",
    "SegmentBase",
    "Initialization",
    "RepresentationIndex",
    "EssentialProperty",
    "SupplementalProperty",
];

/// An element with its content.
#[derive(Default)]
pub(super) struct Element<'t> {
    pub name: &'static str,
    /// Names without prefix, and values without escapes.
    attributes: Vec<(&'t str, Cow<'t, str>)>,
    pub text: String,
    children: Vec<Element<'t>>,
}

impl<'t> Element<'t> {
    pub fn children<'e>(&'e self, name: &'e str) -> impl Iterator<Item = &'e Self> {
        self.children.iter().filter(move |child| child.name == name)
    }

    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(other, _)| *other == name).map(|(_, value)| &**value)
    }

    /// Returns a whole number.
    pub fn number(&self, name: &'static str) -> Result<Option<u64>, FilmError> {
        let Some(text) = self.attribute(name) else { return Ok(None) };
        let number = whole(text.trim_ascii()).ok_or_else(|| self.invalid(name, text))?;
        Ok(Some(number))
    }

    pub fn required_number(&self, name: &'static str) -> Result<u64, FilmError> {
        let missing = FilmError::Missing { element: self.name, attribute: name };
        self.number(name)?.ok_or(missing)
    }

    /// Returns a duration, which is not zero.
    pub fn duration(&self, name: &'static str) -> Result<Option<Span>, FilmError> {
        let Some(text) = self.attribute(name) else { return Ok(None) };
        let span = duration::parse(text.trim_ascii()).filter(|span| !span.is_zero());
        Ok(Some(span.ok_or_else(|| self.invalid(name, text))?))
    }

    pub fn invalid(&self, attribute: &'static str, value: &str) -> FilmError {
        FilmError::Invalid { element: self.name, attribute, value: value.to_owned() }
    }
}

/// Returns the root element. If it is not one that is kept, it has the name that stands for others.
pub(super) fn read(source: Source<'_>) -> Result<Element<'_>, FilmError> {
    let mut reader = XmlReader::new(source);
    let mut open: Vec<Element<'_>> = Vec::new();
    let mut root = None;
    // Depth in an element that is left out.
    let mut left_out = 0usize;
    let mut count = 0;
    while let Some(token) = reader.next()? {
        match token {
            Token::Open(_) if left_out > 0 => left_out += 1,
            Token::Open(tag) => {
                let Some(name) = KEPT.iter().find(|name| **name == tag.name) else {
                    if open.is_empty() {
                        return Err(FilmError::Root(tag.name.to_owned()));
                    }
                    left_out = 1;
                    continue;
                };
                count += 1;
                if count > MAX_ELEMENTS {
                    return Err(FilmError::TooManyElements);
                }
                let mut attributes = Vec::with_capacity(tag.attributes.len());
                for one in tag.attributes {
                    let value = Attribute::unescape(source, one.raw, one.offset)?;
                    attributes.push((one.name, value));
                }
                open.push(Element { name, attributes, ..Element::default() });
            }
            Token::Text(text) if left_out == 0 => {
                if let Some(element) = open.last_mut().filter(|element| element.name == "BaseURL") {
                    element.text.push_str(&text);
                }
            }
            Token::Text(_) => {}
            Token::Close if left_out > 0 => left_out -= 1,
            Token::Close => {
                let closed = open.pop();
                match open.last_mut() {
                    Some(parent) => parent.children.extend(closed),
                    None => root = closed,
                }
            }
        }
    }
    Ok(root.unwrap_or_default())
}
