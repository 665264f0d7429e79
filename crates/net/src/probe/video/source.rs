//! A manifest becomes a film, and the requests for its segments.

use manyways_model::qoe::film::{Film, Segment};
use manyways_unit::{Rate, Span};
use manyways_wire::manifest::{self, Container, Format, Listing, Rendition, Resource};

use super::super::contract::{ProbeError, Run};
use super::playback::{Downloads, fetch_all};
use super::report::VideoReport;

/// Maximum size of an index of segments.
const MAX_INDEX: usize = 4 << 20;
/// Maximum difference of the start of a segment between renditions.
const MAX_SHIFT: Span = Span::from_millis(500);

/// Facts of a manifest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FilmFacts {
    /// `dash` or `hls`.
    pub format: &'static str,
    pub rungs: Vec<RungFacts>,
    /// The part that is played; `None` before the manifest was read.
    pub film: Option<Film>,
}

impl FilmFacts {
    /// Joins renditions, whose segments are known, to a film of at most `duration`.
    ///
    /// # Errors
    /// One sentence, if they are not those of one film.
    pub fn new(
        format: &'static str,
        renditions: &mut [Rendition],
        duration: Span,
    ) -> Result<Self, String> {
        let count =
            renditions.iter().map(|rendition| rendition.segments().len()).min().unwrap_or(0);
        let most = renditions.iter().map(|rendition| rendition.segments().len()).max().unwrap_or(0);
        // Encoders may cut the last segment of one rendition in two.
        if most > count + 1 {
            return Err(format!(
                "its renditions do not have the same segments: one has {count}, another one {most}"
            ));
        }
        // A media playlist alone states no bandwidth.
        if let [only] = renditions
            && only.bandwidth.is_zero()
        {
            let bytes: Option<u64> =
                only.segments().iter().map(|segment| Some(segment.size()?.as_bytes())).sum();
            let seconds = only.duration().as_secs_f64().max(1e-3);
            let rate = bytes.map_or(1, |bytes| (bytes as f64 * 8.0 / seconds) as u64);
            only.bandwidth = Rate::from_bps(rate.max(1));
        }
        let (mut segments, mut sum) = (Vec::new(), Span::ZERO);
        for index in 0..count {
            if sum >= duration {
                break;
            }
            let of_each: Vec<_> =
                renditions.iter().filter_map(|one| one.segments().get(index)).collect();
            let Some(first) = of_each.first() else { break };
            let shift = |start: Span| {
                start.saturating_sub(first.start).max(first.start.saturating_sub(start))
            };
            if of_each.iter().any(|segment| shift(segment.start) > MAX_SHIFT) {
                return Err(format!(
                    "segment {} does not begin at the same time in all renditions",
                    index + 1
                ));
            }
            let sizes = of_each.iter().map(|segment| segment.size()).collect();
            segments.push(Segment { duration: first.duration, sizes });
            sum += first.duration;
        }
        let rungs = renditions.iter().map(|rendition| rendition.bandwidth).collect();
        let film = Film::new(rungs, segments).map_err(|error| error.to_string())?;
        let fact = |rendition: &Rendition| RungFacts {
            bitrate: rendition.bandwidth,
            resolution: rendition.resolution,
            codecs: rendition.codecs.clone(),
        };
        let rungs = renditions.iter().map(fact).collect();
        Ok(Self { format, rungs, film: Some(film) })
    }
}

/// A bitrate of a film.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RungFacts {
    pub bitrate: Rate,
    /// Width and height in pixels.
    pub resolution: Option<(u32, u32)>,
    pub codecs: Option<String>,
}

/// A film with the requests for its segments.
pub(super) struct Source {
    pub(super) facts: FilmFacts,
    pub(super) film: Film,
    /// In the order of the rungs.
    pub(super) renditions: Vec<Rendition>,
}

/// Fetches the manifest, and everything that it needs to name the segments.
pub(super) async fn read(
    run: &mut Run,
    downloads: &mut Downloads,
    url: &str,
    duration: Span,
    report: &mut VideoReport,
) -> Result<Source, ProbeError> {
    let whole = Resource { url: url.to_owned(), range: None };
    let bytes = fetch_all(run, downloads, &whole, manifest::MAX_LENGTH, report).await?;
    let url = report.redirected_to.clone().unwrap_or_else(|| url.to_owned());
    let format = Format::of_content(&bytes).ok_or_else(|| {
        refused("it is neither an MPD of MPEG-DASH nor a playlist of HLS".to_owned())
    })?;
    let parsed = manifest::Film::parse(format, &bytes, &url);
    let mut parsed = parsed.map_err(|error| refused(error.to_string()))?;
    for rendition in &mut parsed.video {
        complete(run, downloads, rendition, report).await?;
    }
    if parsed.is_live() {
        return Err(refused("it is a live film, and only whole films can be played".to_owned()));
    }
    let format = match format {
        Format::Dash => "dash",
        Format::Hls => "hls",
    };
    source(format, parsed.video, duration)
}

/// Fetches the index or the playlist of a rendition, if it has one.
async fn complete(
    run: &mut Run,
    downloads: &mut Downloads,
    rendition: &mut Rendition,
    report: &mut VideoReport,
) -> Result<(), ProbeError> {
    match rendition.listing.clone() {
        Listing::Segments(_) => Ok(()),
        Listing::Index(resource) => {
            let bytes = fetch_all(run, downloads, &resource, MAX_INDEX, report).await?;
            let end = resource.range.as_ref().map_or(0, |range| range.end);
            rendition.add_index(&bytes, end).map_err(|error| refused(error.to_string()))
        }
        Listing::Playlist(url) => {
            let whole = Resource { url: url.clone(), range: None };
            report.redirected_to = None;
            let bytes = fetch_all(run, downloads, &whole, manifest::MAX_LENGTH, report).await?;
            let url = report.redirected_to.take().unwrap_or(url);
            rendition.add_playlist(&bytes, &url).map_err(|error| refused(error.to_string()))
        }
    }
}

/// Joins the renditions to a film of at most `duration`.
fn source(
    format: &'static str,
    mut renditions: Vec<Rendition>,
    duration: Span,
) -> Result<Source, ProbeError> {
    if renditions.iter().any(|rendition| rendition.container == Container::TransportStream) {
        return Err(refused(
            "its segments are MPEG-2 transport streams, and only fragmented MP4 can be played"
                .to_owned(),
        ));
    }
    let facts = FilmFacts::new(format, &mut renditions, duration).map_err(refused)?;
    let film = facts.film.clone().ok_or_else(|| refused("it has no segments".to_owned()))?;
    Ok(Source { facts, film, renditions })
}

/// A manifest that cannot be played.
fn refused(reason: String) -> ProbeError {
    ProbeError::Video(format!("the film cannot be played: {reason}"))
}
