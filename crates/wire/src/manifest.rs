//! Manifests of adaptive streaming: MPEG-DASH (ISO/IEC 23009-1) and HLS (RFC 8216).
//!
//! [`rewrite()`] replaces the URLs of a manifest and leaves everything else as it is. [`Film::parse`]
//! reads renditions and their segments; the index of a file and the playlist of a variant, which the
//! caller fetches, are added to a [`Rendition`]. No URL is fetched here.
//!
//! # Why not the libraries for these formats
//! dash-mpd fetches, decrypts and muxes; without its features it still needs two hundred crates. It
//! and m3u8-rs read a manifest into their types and write it again from them, which loses unknown
//! elements, comments and the order of attributes, and they have no limits for hostile input. So
//! this module has a reader of lines, and of quick-xml only its tokenizer, which knows no document
//! types and so expands no entities except those of XML itself.

mod film;
mod hls;
mod mpd;
mod playlist;
mod rewrite;
mod source;
mod xml;

pub use film::{
    Container, Film, FilmError, Listing, MAX_FILM_SEGMENTS, MAX_RENDITIONS, MAX_SEGMENTS,
    MAX_URL_BYTES, MAX_URL_LENGTH, Rendition, Resource, SIZE_NAMESPACE, Segment,
};
pub use rewrite::rewrite;
pub use source::SyntaxError;

/// Length of a manifest in bytes; a longer one is an error.
pub const MAX_LENGTH: usize = 8 << 20;
/// Depth of nested elements in an MPD; a deeper one is an error.
pub const MAX_DEPTH: usize = 64;
/// Attributes of an element of an MPD, or of a tag of a playlist; more are an error.
pub const MAX_ATTRIBUTES: usize = 128;
/// The first line of every playlist of HLS.
const PLAYLIST_MARK: &str = "#EXTM3U";

/// The two kinds of manifests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// An MPD of MPEG-DASH, or a patch of one.
    Dash,
    /// A playlist of HLS: a master playlist or a media playlist.
    Hls,
}

impl Format {
    /// Returns the format that a `Content-Type` names; parameters are ignored. `None` for other types:
    /// servers often send manifests as `application/octet-stream` or `text/plain`.
    pub fn of_media_type(content_type: &str) -> Option<Self> {
        let media_type = content_type.split(';').next().unwrap_or_default().trim_ascii();
        match media_type.to_ascii_lowercase().as_str() {
            "application/dash+xml" | "application/dash-patch+xml" | "video/vnd.mpeg.dash.mpd" => {
                Some(Self::Dash)
            }
            "application/vnd.apple.mpegurl"
            | "application/x-mpegurl"
            | "application/mpegurl"
            | "audio/mpegurl"
            | "audio/x-mpegurl"
            | "vnd.apple.mpegurl" => Some(Self::Hls),
            _ => None,
        }
    }

    /// Returns the format of content, by its first line or its root element. The beginning of it
    /// suffices: for an MPD, up to the name of the root element.
    pub fn of_content(beginning: &[u8]) -> Option<Self> {
        let text = manyways_unit::human::without_bom(beginning);
        if text.starts_with(PLAYLIST_MARK.as_bytes()) {
            return Some(Self::Hls);
        }
        let name = xml::root_name(text)?;
        matches!(name, b"MPD" | b"Patch").then_some(Self::Dash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_types_name_the_format() {
        for (content_type, format) in [
            ("application/dash+xml", Some(Format::Dash)),
            ("Application/DASH+XML; charset=utf-8", Some(Format::Dash)),
            ("application/vnd.apple.mpegurl", Some(Format::Hls)),
            ("application/x-mpegURL ;a=b", Some(Format::Hls)),
            ("audio/mpegurl", Some(Format::Hls)),
            ("application/octet-stream", None),
            ("text/xml", None),
            ("", None),
        ] {
            assert_eq!(Format::of_media_type(content_type), format, "{content_type}");
        }
    }

    #[test]
    fn the_beginning_of_content_shows_the_format() {
        for (content, format) in [
            ("#EXTM3U\n", Some(Format::Hls)),
            ("\u{feff}#EXTM3U", Some(Format::Hls)),
            ("<MPD ", Some(Format::Dash)),
            ("\u{feff}\r\n <?xml version='1.0'?><!-- <html> --><mpd:MPD>", Some(Format::Dash)),
            ("<Patch mpdId='a'>", Some(Format::Dash)),
            ("<MPD", None),
            ("<MPDs>", None),
            ("<html>", None),
            ("<!-- <MPD >", None),
            ("#EXTINF:2,\n", None),
            ("\0\0\0\x18ftyp", None),
            ("", None),
        ] {
            assert_eq!(Format::of_content(content.as_bytes()), format, "{content}");
        }
    }
}
