//! Films in files: a manifest that states the sizes of its segments, or the JSON of Sabre.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use manyways_model::qoe::film::{Film, Segment};
use manyways_net::probe::FilmFacts;
use manyways_unit::{Rate, Size, Span};
use manyways_wire::manifest::{self, Format, Listing, Rendition, Resource};
use serde::Deserialize;

use crate::failure::Failure;

/// URL of the folder of a manifest. No reference leads out of it.
const FOLDER: &str = "file:///";
/// Maximum length of an index of segments.
const MAX_INDEX: u64 = 4 << 20;

/// A film as Sabre describes it.
#[derive(Deserialize)]
struct SabreFilm {
    segment_duration_ms: f64,
    bitrates_kbps: Vec<f64>,
    segment_sizes_bits: Vec<Vec<u64>>,
}

/// Reads a film whose sizes are known.
pub(super) fn film(file: &Path) -> Result<Film, Failure> {
    let unusable = |why: String| {
        Failure::usage(format!("{} is not a film: {why}", file.display())).hint(
            "name an MPD or M3U8 with the sizes of its segments, or a JSON file with \
             segment_duration_ms, bitrates_kbps and segment_sizes_bits",
        )
    };
    let bytes = fs::read(file).map_err(|error| unusable(error.to_string()))?;
    let Some(format) = Format::of_content(&bytes) else {
        return sabre_film(&bytes).map_err(unusable);
    };
    let folder = file.parent().unwrap_or_else(|| Path::new(""));
    let film = manifest_film(format, &bytes, folder).map_err(unusable)?;
    let is_known = |segment: &Segment| segment.sizes.iter().all(Option::is_some);
    match film.segments().iter().all(is_known) {
        true => Ok(film),
        false => Err(Failure::usage(format!(
            "{} does not state the size of each segment",
            file.display()
        ))
        .hint("byte ranges state them, and so does the list.mpd of `manyways probe video make`")),
    }
}

fn sabre_film(bytes: &[u8]) -> Result<Film, String> {
    let read: SabreFilm = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let rungs = read.bitrates_kbps.iter().map(|kbps| Rate::from_bps((kbps * 1e3) as u64));
    let duration = Span::from_secs_f64(read.segment_duration_ms / 1e3);
    let segments = read.segment_sizes_bits.iter().map(|sizes| Segment {
        duration,
        sizes: sizes.iter().map(|bits| Some(Size::from_bytes(bits / 8))).collect(),
    });
    Film::new(rungs.collect(), segments.collect()).map_err(|error| error.to_string())
}

fn manifest_film(format: Format, bytes: &[u8], folder: &Path) -> Result<Film, String> {
    let url = format!("{FOLDER}manifest");
    let read = manifest::Film::parse(format, bytes, &url).map_err(|error| error.to_string())?;
    let mut renditions = read.video;
    for rendition in &mut renditions {
        complete(rendition, folder)?;
    }
    let name = match format {
        Format::Dash => "dash",
        Format::Hls => "hls",
    };
    let facts = FilmFacts::new(name, &mut renditions, Span::MAX)?;
    facts.film.ok_or_else(|| "it has no segments".to_owned())
}

/// Reads the index or the playlist of a rendition, if it has one, beside the manifest.
fn complete(rendition: &mut Rendition, folder: &Path) -> Result<(), String> {
    match rendition.listing.clone() {
        Listing::Segments(_) => Ok(()),
        Listing::Index(resource) => {
            let bytes = part(&resource, folder)?;
            let end = resource.range.map_or(0, |range| range.end);
            rendition.add_index(&bytes, end).map_err(|error| error.to_string())
        }
        Listing::Playlist(url) => {
            let bytes = part(&Resource { url: url.clone(), range: None }, folder)?;
            rendition.add_playlist(&bytes, &url).map_err(|error| error.to_string())
        }
    }
}

fn part(resource: &Resource, folder: &Path) -> Result<Vec<u8>, String> {
    let path = path_of(&resource.url, folder)?;
    let unreadable = |error: io::Error| format!("{}: {error}", path.display());
    let mut file = File::open(&path).map_err(unreadable)?;
    let (start, length) = match &resource.range {
        Some(range) => (range.start, range.end.saturating_sub(range.start).min(MAX_INDEX)),
        None => (0, manifest::MAX_LENGTH as u64),
    };
    file.seek(SeekFrom::Start(start)).map_err(unreadable)?;
    let mut bytes = Vec::new();
    file.take(length).read_to_end(&mut bytes).map_err(unreadable)?;
    Ok(bytes)
}

fn path_of(url: &str, folder: &Path) -> Result<PathBuf, String> {
    let name = url.strip_prefix(FOLDER).and_then(|rest| rest.split('?').next());
    match name.filter(|name| !name.starts_with('/')) {
        Some(name) => Ok(folder.join(name)),
        None => Err(format!("it needs {url}, which is not in its folder")),
    }
}
