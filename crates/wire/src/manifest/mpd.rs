//! Films from MPDs (ISO/IEC 23009-1).

mod addressing;
mod duration;
mod template;
mod timeline;
mod tree;

use manyways_unit::{Rate, Span};

use self::addressing::Addressing;
use self::tree::Element;
use super::Format;
use super::film::{
    Container, Film, FilmError, Listing, MAX_FILM_SEGMENTS, MAX_RENDITIONS, MAX_URL_BYTES,
    Rendition, resolved,
};
use super::source::Source;

/// Reads an MPD that was fetched from the absolute URL `url`.
pub(super) fn read(mpd: &[u8], url: &str) -> Result<Film, FilmError> {
    let root = tree::read(Source::new(mpd)?)?;
    if root.name != "MPD" {
        return Err(FilmError::Root(root.name.to_owned()));
    }
    let is_live = match root.attribute("type") {
        None | Some("static") => false,
        Some("dynamic") => true,
        Some(value) => return Err(root.invalid("type", value)),
    };
    let periods: Vec<&Element<'_>> = root.children("Period").collect();
    let [period] = periods[..] else {
        return Err(match periods.len() {
            0 => FilmError::NoVideo,
            several => FilmError::Periods(several),
        });
    };
    if period.attribute("href").is_some() {
        return Err(FilmError::Unsupported("a period in another file (XLink)"));
    }
    let stated = match root.duration("mediaPresentationDuration")? {
        None => period.duration("duration")?,
        stated => stated,
    };
    let mut reader = PeriodReader {
        period,
        base: base_url(period, &base_url(&root, url)?)?,
        duration: stated,
        is_live,
        segments: 0,
        url_bytes: 0,
        renditions: 0,
    };
    let mut video = None;
    let mut audio = Vec::new();
    for set in period.children("AdaptationSet") {
        match set_kind(set) {
            Kind::Video if video.is_none() && !is_for_fast_forward(set) => {
                video = Some(reader.renditions(set)?).filter(|video| !video.is_empty());
            }
            Kind::Audio => audio.extend(reader.renditions(set)?),
            Kind::Video | Kind::Other => {}
        }
    }
    let video = video.unwrap_or_default();
    let listed = video.iter().map(Rendition::duration).max().filter(|end| !end.is_zero());
    let duration = stated.or(listed).filter(|_| !is_live);
    Ok(Film { format: Format::Dash, duration, video, audio })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Video,
    Audio,
    Other,
}

/// Returns the kind of an adaptation set, from it or its first representation.
fn set_kind(set: &Element<'_>) -> Kind {
    let first = set.children("Representation").next();
    let elements = || [Some(set), first].into_iter().flatten();
    let find = |name| elements().find_map(|element| element.attribute(name));
    let kind = |text: &str| match text.split('/').next() {
        Some("video") => Some(Kind::Video),
        Some("audio") => Some(Kind::Audio),
        Some("text" | "image") => Some(Kind::Other),
        _ => None,
    };
    let stated = find("contentType").and_then(kind).or_else(|| find("mimeType").and_then(kind));
    let has_size = elements().any(|element| element.attribute("width").is_some());
    stated.unwrap_or(if has_size { Kind::Video } else { Kind::Other })
}

/// Whether a set has few pictures of another set, for fast forward ("trick mode").
fn is_for_fast_forward(set: &Element<'_>) -> bool {
    let properties = set.children("EssentialProperty").chain(set.children("SupplementalProperty"));
    properties.filter_map(|property| property.attribute("schemeIdUri")).any(|scheme| {
        scheme.ends_with(":trickmode") || scheme.contains("dashif.org/guidelines/trickmode")
    })
}

/// Resolves the first `BaseURL` of an element against the base of the element around it.
fn base_url(element: &Element<'_>, base: &str) -> Result<String, FilmError> {
    let text = element.children("BaseURL").next().map_or("", |child| child.text.trim_ascii());
    resolved(base, text)
}

struct PeriodReader<'e, 't> {
    period: &'e Element<'t>,
    base: String,
    /// `None` if the MPD does not state it.
    duration: Option<Span>,
    is_live: bool,
    /// Counters of everything that was read.
    segments: usize,
    url_bytes: usize,
    renditions: usize,
}

impl<'t> PeriodReader<'_, 't> {
    fn renditions(&mut self, set: &Element<'t>) -> Result<Vec<Rendition>, FilmError> {
        let base = base_url(set, &self.base)?;
        let mut renditions = Vec::new();
        for representation in set.children("Representation") {
            self.renditions += 1;
            if self.renditions > MAX_RENDITIONS {
                return Err(FilmError::TooManyRenditions);
            }
            renditions.push(self.rendition(set, representation, &base)?);
        }
        Ok(renditions)
    }

    fn rendition(
        &mut self,
        set: &Element<'t>,
        representation: &Element<'t>,
        base: &str,
    ) -> Result<Rendition, FilmError> {
        let common = |name| representation.attribute(name).or_else(|| set.attribute(name));
        let number = |name| match representation.number(name) {
            Ok(None) => set.number(name),
            found => found,
        };
        let bandwidth = representation.required_number("bandwidth")?;
        if bandwidth == 0 {
            return Err(representation.invalid("bandwidth", "0"));
        }
        let small = |name| -> Result<Option<u32>, FilmError> {
            let value = number(name)?;
            let fits = |value: u64| {
                u32::try_from(value).map_err(|_| representation.invalid(name, &value.to_string()))
            };
            value.map(fits).transpose()
        };
        let id = representation.attribute("id").unwrap_or_default().trim_ascii();
        let addressing = Addressing {
            levels: [representation, set, self.period],
            base: base_url(representation, base)?,
            id,
            bandwidth,
            duration: self.duration,
            is_live: self.is_live,
        };
        let (initialization, listing) = addressing.read()?;
        if let Listing::Segments(segments) = &listing {
            self.segments += segments.len();
            self.url_bytes += segments.iter().map(|one| one.resource.url.len()).sum::<usize>();
        }
        if self.segments > MAX_FILM_SEGMENTS {
            return Err(FilmError::TooManyFilmSegments);
        }
        if self.url_bytes > MAX_URL_BYTES {
            return Err(FilmError::LongUrls);
        }
        Ok(Rendition {
            id: id.to_owned(),
            bandwidth: Rate::from_bps(bandwidth),
            resolution: small("width")?.zip(small("height")?),
            codecs: common("codecs").map(str::to_owned),
            container: match common("mimeType") {
                Some("video/mp4" | "audio/mp4" | "application/mp4") => Container::Mp4,
                Some("video/mp2t" | "video/MP2T") => Container::TransportStream,
                _ => Container::Other,
            },
            is_live: self.is_live,
            initialization,
            listing,
        })
    }
}
