//! Reasons why a manifest is not a film that can be played.

use manyways_unit::human::quoted;

use super::super::SyntaxError;
use super::{MAX_FILM_SEGMENTS, MAX_RENDITIONS, MAX_SEGMENTS, MAX_URL_BYTES, MAX_URL_LENGTH};
use crate::mp4::Mp4Error;

/// Reasons why a film cannot be read from its manifest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FilmError {
    #[error(transparent)]
    Syntax(#[from] SyntaxError),
    #[error("its index cannot be read: {0}")]
    Index(#[from] Mp4Error),
    /// The URL of the manifest itself.
    #[error("the URL of the manifest is not absolute: {}", quoted(.0))]
    Url(String),
    #[error("it is not an MPD: its root element is {}", quoted(.0))]
    Root(String),
    /// A valid manifest that uses a part of its format that is not supported.
    #[error("it uses {0}, which this program does not support")]
    Unsupported(&'static str),
    #[error("it has {0} periods, and this program supports one")]
    Periods(usize),
    #[error("it lists no video")]
    NoVideo,
    #[error("it has more than {MAX_RENDITIONS} renditions")]
    TooManyRenditions,
    #[error("rendition {} has more than {MAX_SEGMENTS} segments", quoted(rendition))]
    TooManySegments { rendition: String },
    #[error("its renditions have more than {MAX_FILM_SEGMENTS} segments")]
    TooManyFilmSegments,
    #[error("it has a URL of more than {MAX_URL_LENGTH} bytes")]
    LongUrl,
    #[error("the URLs of its segments have more than {MAX_URL_BYTES} bytes")]
    LongUrls,
    #[error("it has more elements than a film needs")]
    TooManyElements,
    /// An element of an MPD, or a tag of a playlist, without an attribute that it must have.
    #[error("{element} has no {attribute}")]
    Missing { element: &'static str, attribute: &'static str },
    #[error("{attribute} of {element} is {}, which is not valid", quoted(value))]
    Invalid { element: &'static str, attribute: &'static str, value: String },
    /// A template of URLs with an unknown or broken identifier.
    #[error("the template {} is not valid: {message}", quoted(template))]
    Template { template: String, message: &'static str },
    #[error("it states neither its duration nor the number of its segments")]
    NoDuration,
    #[error("segment {number} of rendition {} has no duration", quoted(rendition))]
    NoSegmentDuration { number: usize, rendition: String },
    #[error("segment {number} of rendition {} begins before the one before it", quoted(rendition))]
    Order { number: usize, rendition: String },
    #[error("rendition {} has no segments", quoted(rendition))]
    NoSegments { rendition: String },
    #[error("renditions {} and {} have the same bandwidth", quoted(&ids[0]), quoted(&ids[1]))]
    DuplicateBandwidth { ids: [String; 2] },
    /// A byte range whose beginning is that of the end of another one, which does not exist.
    #[error("the byte range in line {line} states no offset, and the segment before has none")]
    NoOffset { line: usize },
}
