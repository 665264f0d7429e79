//! Films from playlists of HLS (RFC 8216).

use std::ops::Range;

use manyways_unit::human::decimal;
use manyways_unit::{Rate, Span};

use super::Format;
use super::film::{
    Container, Film, FilmError, Listing, MAX_RENDITIONS, Rendition, Resource, Segments,
};
use super::film::{resolved, whole};
use super::playlist::{self, Attribute, Line};
use super::source::{Source, SyntaxError};

const NANOS: u64 = 1_000_000_000;
/// Beginnings of the names of video codecs (RFC 6381 and its registry).
const VIDEO_CODECS: [&str; 12] =
    ["avc", "hvc", "hev", "dvh", "dva", "dav", "vp8", "vp9", "vp0", "av01", "mp4v", "vvc"];

/// Reads a master playlist, or a media playlist as a film of one rendition.
pub(super) fn read(playlist: &[u8], url: &str) -> Result<Film, FilmError> {
    let source = Source::new(playlist)?;
    let is_master = playlist::lines(source)?
        .any(|(_, line)| matches!(line, Line::Tag { name, .. } if name == "EXT-X-STREAM-INF"));
    if is_master {
        return read_master(source, url);
    }
    let mut rendition = in_playlist(url.to_owned(), Rate::ZERO, url.to_owned());
    read_segments(&mut rendition, playlist, url)?;
    let duration = (!rendition.is_live).then(|| rendition.duration());
    Ok(Film { format: Format::Hls, duration, video: vec![rendition], audio: Vec::new() })
}

fn read_master(source: Source<'_>, url: &str) -> Result<Film, FilmError> {
    let (mut video, mut audio): (Vec<Rendition>, Vec<Rendition>) = Default::default();
    let mut variant = None;
    for (number, line) in playlist::lines(source)? {
        match line {
            Line::Tag { name: "EXT-X-DEFINE", .. } => return Err(variables()),
            Line::Tag { name: "EXT-X-STREAM-INF", value, .. } => {
                variant = Some(playlist::attributes(value, number)?);
            }
            Line::Tag { name: "EXT-X-MEDIA", value, .. } => {
                let attributes = playlist::attributes(value, number)?;
                audio.extend(sound(&attributes, url)?);
            }
            Line::Url { url: written, .. } => {
                let Some(attributes) = variant.take() else { continue };
                let rendition = read_variant(&attributes, written, url)?;
                let is_sound = rendition.resolution.is_none()
                    && rendition.codecs.as_deref().is_some_and(|codecs| !has_video(codecs));
                if is_sound {
                    audio.push(rendition);
                } else if !video.iter().any(|other| is_second_source(other, &rendition)) {
                    video.push(rendition);
                }
            }
            Line::Tag { .. } => {}
        }
        if video.len() + audio.len() > MAX_RENDITIONS {
            return Err(FilmError::TooManyRenditions);
        }
    }
    Ok(Film { format: Format::Hls, duration: None, video, audio })
}

/// Returns the rendition of a tag `EXT-X-MEDIA`, if it is sound in a playlist of its own.
fn sound(attributes: &[Attribute<'_>], url: &str) -> Result<Option<Rendition>, FilmError> {
    if value(attributes, "TYPE") != Some("AUDIO") {
        return Ok(None);
    }
    let Some(written) = value(attributes, "URI") else { return Ok(None) };
    let part = |name| value(attributes, name).unwrap_or_default();
    let id = format!("{}/{}", part("GROUP-ID"), part("NAME"));
    Ok(Some(in_playlist(id, Rate::ZERO, resolved(url, written)?)))
}

fn read_variant(
    attributes: &[Attribute<'_>],
    written: &str,
    url: &str,
) -> Result<Rendition, FilmError> {
    let element = "EXT-X-STREAM-INF";
    let missing = FilmError::Missing { element, attribute: "BANDWIDTH" };
    let bandwidth = value(attributes, "BANDWIDTH").ok_or(missing)?;
    let invalid =
        |attribute, value: &str| FilmError::Invalid { element, attribute, value: value.to_owned() };
    let bps = whole(bandwidth).filter(|bps| *bps > 0);
    let bps = bps.ok_or_else(|| invalid("BANDWIDTH", bandwidth))?;
    let resolution = match value(attributes, "RESOLUTION") {
        None => None,
        Some(text) => {
            let numbers = text
                .split_once(['x', 'X'])
                .and_then(|(width, height)| Some((width.parse().ok()?, height.parse().ok()?)));
            Some(numbers.ok_or_else(|| invalid("RESOLUTION", text))?)
        }
    };
    let mut rendition =
        in_playlist(written.to_owned(), Rate::from_bps(bps), resolved(url, written)?);
    rendition.resolution = resolution;
    rendition.codecs = value(attributes, "CODECS").map(str::to_owned);
    Ok(rendition)
}

fn in_playlist(id: String, bandwidth: Rate, url: String) -> Rendition {
    Rendition {
        id,
        bandwidth,
        resolution: None,
        codecs: None,
        container: Container::Other,
        is_live: false,
        initialization: None,
        listing: Listing::Playlist(url),
    }
}

/// Whether a variant is the same as `first`, from another server (6.2.4) or with other sound.
fn is_second_source(first: &Rendition, other: &Rendition) -> bool {
    first.listing == other.listing
        || first.bandwidth == other.bandwidth
            && first.resolution == other.resolution
            && first.codecs == other.codecs
}

fn has_video(codecs: &str) -> bool {
    codecs
        .split(',')
        .any(|codec| VIDEO_CODECS.iter().any(|name| codec.trim_ascii().starts_with(name)))
}

/// Replaces the listing of `rendition` by the segments of a media playlist.
pub(super) fn read_segments(
    rendition: &mut Rendition,
    playlist: &[u8],
    url: &str,
) -> Result<(), FilmError> {
    let source = Source::new(playlist)?;
    let mut segments = Segments::new(&rendition.id);
    let mut is_live = true;
    let (mut first_initialization, mut current) = (None, None);
    let mut next = Next::default();
    let mut end = Span::ZERO;
    for (number, line) in playlist::lines(source)? {
        let broken =
            |message: &str| SyntaxError::Line { message: message.to_owned(), line: number };
        match line {
            Line::Tag { name: "EXT-X-DEFINE", .. } => return Err(variables()),
            Line::Tag { name: "EXT-X-STREAM-INF", .. } => {
                return Err(broken("it is a master playlist, within another one").into());
            }
            Line::Tag { name: "EXTINF", value, .. } => {
                let seconds = value.split(',').next().unwrap_or_default().trim_ascii();
                let nanos = decimal(seconds, NANOS);
                next.duration =
                    Some(nanos.ok_or_else(|| broken("the duration is not a number of seconds"))?);
            }
            Line::Tag { name: "EXT-X-BYTERANGE", value, .. } => {
                let range = byte_range(value);
                next.range = Some(range.ok_or_else(|| broken("the byte range is not valid"))?);
            }
            Line::Tag { name: "EXT-X-MAP", value, .. } => {
                let attributes = playlist::attributes(value, number)?;
                next.initialization = Some(initialization(&attributes, url, number)?);
            }
            Line::Tag { name: "EXT-X-DISCONTINUITY", .. } => next.is_discontinuous = true,
            Line::Tag { name: "EXT-X-ENDLIST", .. } => is_live = false,
            Line::Tag { name: "EXT-X-PLAYLIST-TYPE", value: "VOD", .. } => is_live = false,
            Line::Tag { .. } => {}
            Line::Url { url: written, .. } => {
                let Next { duration, range, initialization, is_discontinuous } =
                    std::mem::take(&mut next);
                let duration = duration.ok_or_else(|| broken("the segment has no EXTINF"))?;
                let url = resolved(url, written)?;
                let range = match range {
                    None => None,
                    Some((length, offset)) => {
                        let before = segments.last().filter(|last| last.resource.url == url);
                        let before = before.and_then(|last| last.resource.range.as_ref());
                        let start = offset.or_else(|| before.map(|range| range.end));
                        let start = start.ok_or(FilmError::NoOffset { line: number })?;
                        Some(
                            bytes(start, length)
                                .ok_or_else(|| broken("the byte range is not valid"))?,
                        )
                    }
                };
                let nanos = end.as_nanos().saturating_add(duration);
                let time = end..Span::from_nanos(nanos);
                end = time.end;
                let is_first = segments.last().is_none();
                let segment = segments.push(Resource { url, range }, time)?;
                segment.is_discontinuous = is_discontinuous;
                // A playlist may name the same initialization again.
                if let Some(new) = initialization.filter(|new| Some(new) != current.as_ref()) {
                    current = Some(new.clone());
                    if is_first {
                        first_initialization = Some(new);
                    } else {
                        segment.new_initialization = Some(Box::new(new));
                    }
                }
            }
        }
    }
    let last_url = segments.last().map(|last| last.resource.url.as_str());
    let container = match (&first_initialization, last_url) {
        (Some(_), _) => Container::Mp4,
        (None, Some(url)) => container_without_initialization(url),
        (None, None) => Container::Other,
    };
    let listing = Listing::Segments(segments.finish(is_live)?);
    rendition.container = container;
    rendition.is_live = is_live;
    rendition.initialization = first_initialization;
    rendition.listing = listing;
    Ok(())
}

/// Tags before the URL to which they belong.
#[derive(Default)]
struct Next {
    duration: Option<u64>,
    /// Length and offset.
    range: Option<(u64, Option<u64>)>,
    initialization: Option<Resource>,
    is_discontinuous: bool,
}

fn initialization(
    attributes: &[Attribute<'_>],
    url: &str,
    line: usize,
) -> Result<Resource, FilmError> {
    let element = "EXT-X-MAP";
    let missing = FilmError::Missing { element, attribute: "URI" };
    let url = resolved(url, value(attributes, "URI").ok_or(missing)?)?;
    let Some(text) = value(attributes, "BYTERANGE") else {
        return Ok(Resource { url, range: None });
    };
    let range = byte_range(text).and_then(|(length, offset)| bytes(offset.unwrap_or(0), length));
    let broken = || SyntaxError::Line { message: "the byte range is not valid".to_owned(), line };
    Ok(Resource { url, range: Some(range.ok_or_else(broken)?) })
}

/// Fragmented MP4 needs an initialization; without one, a segment is a transport stream or sound
/// without a container (RFC 8216, 3.3 and 3.4). Segments of MP4 that are complete exist as well.
fn container_without_initialization(url: &str) -> Container {
    let path = url.split('?').next().unwrap_or_default().to_ascii_lowercase();
    let name = path.rsplit('/').next().unwrap_or_default();
    match name.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "mp4" | "m4s" | "m4v" | "m4a" | "cmfv" | "cmfa" => Container::Mp4,
        "aac" | "ac3" | "ec3" | "mp3" | "vtt" | "webvtt" => Container::Other,
        _ => Container::TransportStream,
    }
}

/// Reads `LENGTH` or `LENGTH@OFFSET`.
fn byte_range(text: &str) -> Option<(u64, Option<u64>)> {
    match text.trim_ascii().split_once('@') {
        None => Some((whole(text.trim_ascii())?, None)),
        Some((length, offset)) => Some((whole(length)?, Some(whole(offset)?))),
    }
}

fn bytes(offset: u64, length: u64) -> Option<Range<u64>> {
    (length > 0).then_some(offset..offset.checked_add(length)?)
}

fn value<'t>(attributes: &[Attribute<'t>], name: &str) -> Option<&'t str> {
    attributes.iter().find(|attribute| attribute.name == name).map(|attribute| attribute.value)
}

fn variables() -> FilmError {
    FilmError::Unsupported("variables (EXT-X-DEFINE)")
}
