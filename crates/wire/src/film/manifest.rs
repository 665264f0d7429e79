//! The manifests of a film: MPD of ISO/IEC 23009-1, and playlists of RFC 8216.

use std::fmt::Write as _;

use manyways_unit::Span;

use super::{Film, Rung};
use crate::manifest::SIZE_NAMESPACE;
use crate::mp4::{self, TIMESCALE};

/// How a film is divided into files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// `RUNG/init.mp4` and `RUNG/1.m4s`, `RUNG/2.m4s` and so on.
    Segments,
    /// `RUNG/video.mp4`: the initialization segment, the box `sidx`, the segments.
    SingleFile,
}

/// Returns the manifests of a film as paths within its folder and texts. The ones that a player
/// opens are the last ones: `film.mpd` (SegmentTemplate), `list.mpd` (SegmentList, with the length of
/// each segment) and `master.m3u8`; of single files `base.mpd` (SegmentBase) and `bytes.m3u8`.
pub fn manifests(film: &Film, layout: Layout) -> Vec<(String, String)> {
    let playlist = match layout {
        Layout::Segments => "video.m3u8",
        Layout::SingleFile => "bytes.m3u8",
    };
    let mut all: Vec<(String, String)> = film
        .rungs
        .iter()
        .map(|rung| (format!("{}/{playlist}", rung.name), media_playlist(film, rung, layout)))
        .collect();
    let mut add = |name: &str, text: String| all.push((name.to_owned(), text));
    match layout {
        Layout::Segments => {
            add("film.mpd", mpd(film, "isoff-live", &template(film), |_| String::new()));
            add("list.mpd", mpd(film, "isoff-main", "", |rung| list(film, rung)));
            add("master.m3u8", main_playlist(film, playlist));
        }
        Layout::SingleFile => {
            add("base.mpd", mpd(film, "isoff-on-demand", "", |rung| base(film, rung)));
            add("bytes.m3u8", main_playlist(film, playlist));
        }
    }
    all
}

/// An MPD. `common` is for all rungs, and `addresses` for each.
fn mpd(film: &Film, profile: &str, common: &str, addresses: impl Fn(&Rung) -> String) -> String {
    let mut text = format!(
        r#"<?xml version="1.0" encoding="UTF-8"?>
<MPD xmlns="urn:mpeg:dash:schema:mpd:2011" xmlns:manyways="{SIZE_NAMESPACE}" type="static"
    profiles="urn:mpeg:dash:profile:{profile}:2011"
    mediaPresentationDuration="PT{}S" minBufferTime="PT{}S">
  <BaseURL>./</BaseURL>
  <Period id="0" start="PT0S">
    <AdaptationSet contentType="video" mimeType="video/mp4" segmentAlignment="true"
        subsegmentAlignment="true" startWithSAP="1" subsegmentStartsWithSAP="1">
{common}"#,
        film.duration.as_secs_f64(),
        film.segment.as_secs_f64(),
    );
    for rung in &film.rungs {
        let Rung { name, width, height, codec, .. } = rung;
        let head = format!(
            r#"<Representation id="{name}" bandwidth="{}" width="{width}" height="{height}" codecs="{codec}""#,
            rung.rate.as_bps()
        );
        let inner = addresses(rung);
        let end = match inner.is_empty() {
            true => "/>".to_owned(),
            false => format!(">\n{inner}      </Representation>"),
        };
        text += &format!("      {head}{end}\n");
    }
    text + "    </AdaptationSet>\n  </Period>\n</MPD>\n"
}

fn template(film: &Film) -> String {
    format!(
        r#"      <SegmentTemplate timescale="{TIMESCALE}" duration="{}" startNumber="1"
          initialization="$RepresentationID$/init.mp4" media="$RepresentationID$/$Number$.m4s"/>
"#,
        millis(film.segment)
    )
}

fn list(film: &Film, rung: &Rung) -> String {
    let name = &rung.name;
    let mut text = format!(
        r#"        <SegmentList timescale="{TIMESCALE}" duration="{}">
          <Initialization sourceURL="{name}/init.mp4"/>
"#,
        millis(film.segment)
    );
    for (at, length) in rung.segments.iter().enumerate() {
        let (number, bytes) = (at + 1, length.as_bytes());
        text += &format!(
            r#"          <SegmentURL media="{name}/{number}.m4s" manyways:size="{bytes}"/>"#
        );
        text.push('\n');
    }
    text + "        </SegmentList>\n"
}

fn base(film: &Film, rung: &Rung) -> String {
    let init = rung.init.as_bytes();
    let end = init + index(film, rung).len() as u64 - 1;
    format!(
        r#"        <BaseURL>{}/video.mp4</BaseURL>
        <SegmentBase timescale="{TIMESCALE}" indexRange="{init}-{end}">
          <Initialization range="0-{}"/>
        </SegmentBase>
"#,
        rung.name,
        init.saturating_sub(1),
    )
}

/// The box `sidx` of a single file.
pub fn index(film: &Film, rung: &Rung) -> Vec<u8> {
    let segments = rung.segments.iter().copied().zip(film.spans());
    mp4::index(&segments.collect::<Vec<_>>())
}

fn main_playlist(film: &Film, playlist: &str) -> String {
    let mut text = "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-INDEPENDENT-SEGMENTS\n".to_owned();
    for rung in &film.rungs {
        let Rung { name, width, height, codec, .. } = rung;
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            r#"#EXT-X-STREAM-INF:BANDWIDTH={},AVERAGE-BANDWIDTH={},CODECS="{codec}",RESOLUTION={width}x{height}
{name}/{playlist}"#,
            rung.peak(film).max(rung.rate).as_bps(),
            rung.mean(film).as_bps(),
        );
    }
    text
}

fn media_playlist(film: &Film, rung: &Rung, layout: Layout) -> String {
    let target = film.segment.as_secs_f64().round().max(1.0);
    let map = match layout {
        Layout::Segments => r#"URI="init.mp4""#.to_owned(),
        Layout::SingleFile => {
            format!(r#"URI="video.mp4",BYTERANGE="{}@0""#, rung.init.as_bytes())
        }
    };
    let mut text = format!(
        "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-TARGETDURATION:{target}\n#EXT-X-MEDIA-SEQUENCE:1\n\
         #EXT-X-PLAYLIST-TYPE:VOD\n#EXT-X-MAP:{map}\n"
    );
    let mut offset = rung.init.as_bytes() + index(film, rung).len() as u64;
    for (at, (length, span)) in rung.segments.iter().zip(film.spans()).enumerate() {
        let _ = writeln!(text, "#EXTINF:{:.3},", span.as_secs_f64());
        let _ = match layout {
            Layout::Segments => writeln!(text, "{}.m4s", at + 1),
            Layout::SingleFile => {
                writeln!(text, "#EXT-X-BYTERANGE:{}@{offset}\nvideo.mp4", length.as_bytes())
            }
        };
        offset += length.as_bytes();
    }
    text + "#EXT-X-ENDLIST\n"
}

fn millis(span: Span) -> u64 {
    span.as_nanos() / 1_000_000
}
