//! Manifests of adaptive streaming, and indexes of segments.

use manyways_unit::Span;
use manyways_wire::manifest::{self, Film, Format, Listing, Rendition};
use manyways_wire::mp4;

pub(super) const MPD_WORDS: &[&str] = &[
    "<SegmentTemplate media=\"$Number%05d$\" duration=\"2\">",
    "</SegmentTemplate>",
    "<SegmentTimeline><S t=\"0\" d=\"2\" r=\"-1\"/></SegmentTimeline>",
    "<SegmentList duration=\"2\"><SegmentURL media=\"a\"/></SegmentList>",
    "<SegmentBase indexRange=\"0-9\"/>",
    "<Initialization sourceURL=\"i\" range=\"0-9\"/>",
    "<BaseURL>../a?b&amp;c</BaseURL>",
    "<Representation id=\"x\" bandwidth=\"9\"/>",
    " startNumber=\"0\"",
    " timescale=\"90000\"",
    " presentationTimeOffset=\"1\"",
    " type=\"dynamic\"",
    "PT1H2M3.4S",
    "$Time$",
    "&#x41;",
    "<!DOCTYPE a>",
    "<![CDATA[",
    "]]>",
    "<!--",
    "-->",
    "xlink:href=\"a\"",
];
pub(super) const PLAYLIST_WORDS: &[&str] = &[
    "#EXTM3U\n",
    "#EXTINF:2.5,\n",
    "a.m4s\n",
    "#EXT-X-BYTERANGE:9@1\n",
    "#EXT-X-BYTERANGE:9\n",
    "#EXT-X-MAP:URI=\"i\",BYTERANGE=\"9@0\"\n",
    "#EXT-X-STREAM-INF:BANDWIDTH=9,RESOLUTION=1x1,CODECS=\"avc1\"\n",
    "#EXT-X-MEDIA:TYPE=AUDIO,URI=\"a\"\n",
    "#EXT-X-DISCONTINUITY\n",
    "#EXT-X-ENDLIST\n",
    "#EXT-X-KEY:METHOD=NONE\n",
    "{$a}",
    "URI=\"",
    "\r\n",
    ",",
    "=",
];
pub(super) const INDEX_WORDS: &[&str] =
    &["sidx", "moof", "\0\0\0\u{8}", "\0\0\0\u{1}", "\0\0\0\0", "\0\u{1}\0\0"];

const URL: &str = "https://a.example/b/c?d";

/// An MPD, whose bytes are also the index of each rendition that has one.
pub(super) fn mpd(bytes: &[u8]) {
    film(Format::Dash, bytes);
}

/// A playlist, also as that of each of its variants.
pub(super) fn m3u8(bytes: &[u8]) {
    film(Format::Hls, bytes);
}

fn film(format: Format, bytes: &[u8]) {
    let read = Film::parse(format, bytes, URL).map_err(|error| error.to_string());
    let Ok(film) = read else { return };
    assert!(!film.video.is_empty());
    assert!(film.video.is_sorted_by(|one, next| one.bandwidth < next.bandwidth));
    assert!(!(film.is_live() && film.duration.is_some()));
    for mut rendition in film.video.into_iter().chain(film.audio) {
        check(&rendition);
        let added = match rendition.listing {
            Listing::Segments(_) => continue,
            Listing::Index(_) => rendition.add_index(bytes, 7),
            Listing::Playlist(_) => rendition.add_playlist(bytes, URL),
        };
        if added.is_ok() {
            check(&rendition);
            assert!(rendition.is_live || !rendition.segments().is_empty());
        }
    }
}

/// Segments are in order and not empty, and URLs are absolute.
fn check(rendition: &Rendition) {
    let mut start = Span::ZERO;
    for segment in rendition.segments() {
        assert!(segment.start >= start && !segment.duration.is_zero());
        start = segment.start;
        assert!(segment.resource.url.contains(':') && !segment.resource.url.contains('#'));
        assert!(segment.size().is_none_or(|size| !size.is_zero()));
    }
    assert!(rendition.segments().len() <= manifest::MAX_SEGMENTS);
}

/// The boxes of a file, and the first index of segments.
pub(super) fn sidx(bytes: &[u8]) {
    for one in mp4::boxes(bytes).flatten() {
        assert!(one.offset + one.content.len() as u64 <= bytes.len() as u64);
        mp4::boxes(one.content).for_each(drop);
    }
    let Ok(index) = mp4::segment_index(bytes).map_err(|error| error.to_string()) else { return };
    let (mut byte, mut tick) = (index.first_offset, 0);
    for (bytes, ticks) in index.ranges() {
        assert_eq!((bytes.start, ticks.start), (byte, tick));
        (byte, tick) = (bytes.end, ticks.end);
    }
}

/// A manifest of either kind. With the same URLs it remains as it is, and new URLs read back.
pub(super) fn rewrite(bytes: &[u8]) {
    let _ = Format::of_content(bytes);
    for format in [Format::Dash, Format::Hls] {
        let same = manifest::rewrite(format, bytes, |url| Some(url.to_owned()));
        let Ok(same) = same.map_err(|error| error.to_string()) else { continue };
        assert_eq!(same, bytes);
        let mut new = Vec::new();
        let output = manifest::rewrite(format, bytes, |url| {
            let visible: String = url.chars().filter(char::is_ascii_graphic).collect();
            new.push(format!("http://[::1]/{}?a&'{}", new.len(), visible.replace('"', "")));
            new.last().cloned()
        });
        let mut read = Vec::new();
        let again = manifest::rewrite(format, &output.expect("as before"), |url| {
            read.push(url.to_owned());
            None
        });
        // An escape may push a manifest above the maximum length.
        if again.is_ok() {
            assert_eq!(read, new);
        }
    }
}
