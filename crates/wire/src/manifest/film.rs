//! A film as a player needs it: renditions, and where their segments are.

mod error;
#[cfg(test)]
mod tests;

use std::ops::Range;

use manyways_unit::{Rate, Size, Span, reference};

pub use self::error::FilmError;
use super::{Format, hls, mpd};
use crate::mp4;

/// Renditions in a manifest; more are an error.
pub const MAX_RENDITIONS: usize = 200;
/// Segments in a rendition; more are an error.
pub const MAX_SEGMENTS: usize = 100_000;
/// Segments that all renditions of an MPD may have together; more are an error. A short manifest can
/// describe many.
pub const MAX_FILM_SEGMENTS: usize = 500_000;
/// Bytes in a URL; more are an error.
pub const MAX_URL_LENGTH: usize = 1 << 16;
/// Bytes in the URLs of all segments of a manifest; more are an error.
pub const MAX_URL_BYTES: usize = 64 << 20;

/// Namespace of the attribute `size` of `SegmentURL` in an MPD, the bytes of the file: MP-H2 needs them
/// before the request (§3.6, file size), and MPEG-DASH has no attribute for them. It is read with any
/// prefix; `manyways:size` is usual.
pub const SIZE_NAMESPACE: &str = "urn:manyways:film:1";

/// The content of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Film {
    pub format: Format,
    /// `None` if the film is live, or if the manifest is a master playlist, which does not state it.
    pub duration: Option<Span>,
    /// Alternatives for the same pictures, by ascending bandwidth; each bandwidth once.
    pub video: Vec<Rendition>,
    /// In the order of the manifest.
    pub audio: Vec<Rendition>,
}

/// One encoding of a film's pictures or sound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendition {
    /// `id` of a representation; of a variant, its URL as written; of sound in HLS, its group and name;
    /// of a media playlist alone, its absolute URL.
    pub id: String,
    /// Rate that suffices for playing without stalls, as the manifest states it. Zero for sound in HLS
    /// and for a media playlist alone, because they state none.
    pub bandwidth: Rate,
    /// Width and height in pixels.
    pub resolution: Option<(u32, u32)>,
    /// As in RFC 6381, for example `avc1.64001f,mp4a.40.2`.
    pub codecs: Option<String>,
    pub container: Container,
    /// Whether segments will be added while the film plays. In a variant, false until its playlist is
    /// read.
    pub is_live: bool,
    /// Data that a decoder needs before the first segment.
    pub initialization: Option<Resource>,
    pub listing: Listing,
}

/// File format of segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Container {
    /// ISO base media format, fragmented.
    Mp4,
    /// MPEG-2 transport stream, without an initialization.
    TransportStream,
    /// WebM, sound without a container, or unknown; in a variant, not known before its playlist is read.
    Other,
}

/// Where the segments of a rendition are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listing {
    /// At least one, in order; none only if the film is live and the manifest does not list them.
    Segments(Vec<Segment>),
    /// In an index (`sidx`), for [`Rendition::add_index`].
    Index(Resource),
    /// In a media playlist with this URL, for [`Rendition::add_playlist`].
    Playlist(String),
}

/// A file, or some of its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// Absolute, without a fragment.
    pub url: String,
    /// `None` for the whole file. Never empty.
    pub range: Option<Range<u64>>,
}

/// A part of a rendition that is fetched and played as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    pub resource: Resource,
    /// Time at which it begins, from the beginning of the film; in a live playlist, from its first
    /// segment.
    pub start: Span,
    /// Never zero.
    pub duration: Span,
    /// A new initialization before this segment; that of the rendition is valid for the first one.
    pub new_initialization: Option<Box<Resource>>,
    /// Whether its time stamps or its encoding do not continue those of the segment before it.
    pub is_discontinuous: bool,
    /// Bytes of the whole file, if the manifest states them in [`SIZE_NAMESPACE`].
    pub file_size: Option<Size>,
}

impl Film {
    /// Reads a manifest that was fetched from the absolute URL `url`.
    ///
    /// - MPD: one period; films of several are refused, because their renditions need not correspond.
    ///   Of several adaptation sets with video, the first counts that is not for fast forward: the
    ///   others are other codecs or views. The first `BaseURL` of each level counts. A representation
    ///   without addresses of segments is one segment.
    /// - Live MPD: only those segments that the manifest lists are returned.
    /// - Master playlist: its variants, without those that are a second source of the same variant.
    /// - Media playlist: one rendition.
    pub fn parse(format: Format, manifest: &[u8], url: &str) -> Result<Self, FilmError> {
        let url = resolved(url, "")?;
        let mut film = match format {
            Format::Dash => mpd::read(manifest, &url)?,
            Format::Hls => hls::read(manifest, &url)?,
        };
        if film.video.is_empty() {
            return Err(FilmError::NoVideo);
        }
        film.video.sort_by_key(|rendition| rendition.bandwidth);
        for pair in film.video.windows(2) {
            if pair[0].bandwidth == pair[1].bandwidth {
                let ids = [pair[0].id.clone(), pair[1].id.clone()];
                return Err(FilmError::DuplicateBandwidth { ids });
            }
        }
        Ok(film)
    }

    /// Whether segments will be added while the film plays.
    pub fn is_live(&self) -> bool {
        self.video.iter().chain(&self.audio).any(|rendition| rendition.is_live)
    }
}

impl Rendition {
    /// The known segments; none before the index or the playlist was added.
    pub fn segments(&self) -> &[Segment] {
        match &self.listing {
            Listing::Segments(segments) => segments,
            Listing::Index(_) | Listing::Playlist(_) => &[],
        }
    }

    /// End of the last known segment.
    pub fn duration(&self) -> Span {
        self.segments().last().map_or(Span::ZERO, Segment::end)
    }

    /// Adds the segments of the index in `bytes`, which [`Listing::Index`] names; `offset` is the place
    /// of the first of them in the file. Without an index to add, nothing changes.
    pub fn add_index(&mut self, bytes: &[u8], offset: u64) -> Result<(), FilmError> {
        let Listing::Index(resource) = &self.listing else { return Ok(()) };
        let mut segments = Segments::new(&self.id);
        let index = mp4::segment_index(bytes)?;
        let ticks = u64::from(index.timescale);
        for (range, time) in index.ranges() {
            let at = |byte: u64| byte.checked_add(offset).ok_or(mp4::Mp4Error::Overflow);
            let range = at(range.start)?..at(range.end)?;
            if range.is_empty() {
                return Err(mp4::Mp4Error::Overflow.into());
            }
            let resource = Resource { url: resource.url.clone(), range: Some(range) };
            segments.push(resource, span(time.start, ticks)..span(time.end, ticks))?;
        }
        self.listing = Listing::Segments(segments.finish(false)?);
        Ok(())
    }

    /// Adds the segments of a media playlist that was fetched from `url`, and sets whether it is live,
    /// the container and the initialization.
    pub fn add_playlist(&mut self, playlist: &[u8], url: &str) -> Result<(), FilmError> {
        let url = resolved(url, "")?;
        hls::read_segments(self, playlist, &url)
    }
}

impl Segment {
    /// Time at which it ends, from the beginning of the film.
    pub fn end(&self) -> Span {
        self.start + self.duration
    }

    /// Bytes, if the manifest or an index states them.
    pub fn size(&self) -> Option<Size> {
        match &self.resource.range {
            Some(range) => Some(Size::from_bytes(range.end - range.start)),
            None => self.file_size,
        }
    }
}

/// Resolves a URL as written in a manifest.
pub(super) fn resolved(base: &str, written: &str) -> Result<String, FilmError> {
    if base.len() + written.len() > MAX_URL_LENGTH {
        return Err(FilmError::LongUrl);
    }
    reference::resolve(base, written).ok_or_else(|| FilmError::Url(base.to_owned()))
}

/// Reads a whole number; Rust's own parser also accepts a sign.
pub(super) fn whole(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Returns the duration of ticks, rounded down; the greatest one if it does not fit.
pub(super) fn span(ticks: u64, timescale: u64) -> Span {
    let nanos = u128::from(ticks) * 1_000_000_000 / u128::from(timescale.max(1));
    Span::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// The segments of one rendition while they are read.
pub(super) struct Segments<'r> {
    rendition: &'r str,
    segments: Vec<Segment>,
    url_bytes: usize,
}

impl<'r> Segments<'r> {
    pub fn new(rendition: &'r str) -> Self {
        Self { rendition, segments: Vec::new(), url_bytes: 0 }
    }

    pub fn last(&self) -> Option<&Segment> {
        self.segments.last()
    }

    /// Returns the new segment, after checks of its time and of the limits.
    pub fn push(
        &mut self,
        resource: Resource,
        time: Range<Span>,
    ) -> Result<&mut Segment, FilmError> {
        let number = self.segments.len() + 1;
        let rendition = || self.rendition.to_owned();
        if self.segments.len() >= MAX_SEGMENTS {
            return Err(FilmError::TooManySegments { rendition: rendition() });
        }
        self.url_bytes = self.url_bytes.saturating_add(resource.url.len());
        if self.url_bytes > MAX_URL_BYTES {
            return Err(FilmError::LongUrls);
        }
        if time.end <= time.start {
            return Err(FilmError::NoSegmentDuration { number, rendition: rendition() });
        }
        if self.segments.last().is_some_and(|last| time.start < last.start) {
            return Err(FilmError::Order { number, rendition: rendition() });
        }
        let duration = time.end.saturating_sub(time.start);
        self.segments.push(Segment {
            resource,
            start: time.start,
            duration,
            new_initialization: None,
            is_discontinuous: false,
            file_size: None,
        });
        let index = self.segments.len() - 1;
        Ok(&mut self.segments[index])
    }

    pub fn finish(self, is_live: bool) -> Result<Vec<Segment>, FilmError> {
        if self.segments.is_empty() && !is_live {
            return Err(FilmError::NoSegments { rendition: self.rendition.to_owned() });
        }
        Ok(self.segments)
    }
}
