use proptest::prelude::*;

use super::*;
use crate::manifest::{MAX_ATTRIBUTES, MAX_DEPTH, MAX_LENGTH};

const MPD: &str = r##"<?xml version="1.0" encoding="UTF-8"?>
<!-- BaseURL <BaseURL>x</BaseURL> -->
<MPD xmlns="urn:mpeg:dash:schema:mpd:2011" xmlns:xlink='http://www.w3.org/1999/xlink' type="static">
  <ProgramInformation moreInformationURL="http://people.example/"/>
  <BaseURL serviceLocation="a"> https://cdn.example/a/?x=1&amp;y=2
  </BaseURL>
  <BaseURL><![CDATA[//b.example/?<&]]></BaseURL><BaseURL/>
  <Location>http://a.example/live.mpd</Location>
  <PatchLocation ttl="60">/patch?a=b</PatchLocation>
  <Period xlink:href="urn:mpeg:dash:resolve-to-zero:2013" bitstreamSwitching="true">
    <AdaptationSet bitstreamSwitching="true" media="x">
      <ContentProtection schemeIdUri="urn:uuid:1"><Laurl>https://licence.example/</Laurl></ContentProtection>
      <SegmentTemplate media = 'v/$RepresentationID$/$Number%05d$.m4s?t=$Time$&#38;k' initialization="v/$RepresentationID$/init.mp4"
        index="i$Number$" bitstreamSwitching="b.mp4" duration="2"/>
      <Representation id="1"><SegmentList><Initialization sourceURL="i.mp4" range="0-1"/>
        <SegmentURL media="1.m4s" index="1.sidx" mediaRange="0-9"/><SegmentURL mediaRange="0-9"/></SegmentList></Representation>
      <Representation id="2"><SegmentBase><RepresentationIndex sourceURL=""/></SegmentBase></Representation>
    </AdaptationSet>
  </Period>
  <UTCTiming schemeIdUri="urn:mpeg:dash:utc:http-iso:2014" value="http://t.example/?a&amp;b  http://u.example/"/>
  <UTCTiming schemeIdUri="urn:mpeg:dash:utc:direct:2014" value="2026-01-01T00:00:00Z"/>
</MPD>
"##;

const PLAYLIST: &str = concat!(
    "#EXTM3U\r\n",
    "#EXT-X-VERSION:10\r\n\r\n",
    "# http://comment.example/ URI=\"x\"\r\n",
    "#EXT-X-DEFINE:NAME=\"base\",VALUE=\"http://v.example\"\r\n",
    "#EXT-X-CONTENT-STEERING:SERVER-URI=\"/steer\",PATHWAY-ID=\"A\"\r\n",
    "#EXT-X-SESSION-DATA:DATA-ID=\"a\",URI=\"data.json\"\r\n",
    "#EXT-X-MEDIA:TYPE=AUDIO,NAME=\"URI=no, not this\",URI=\"audio,1.m3u8\"\r\n",
    "#EXT-X-I-FRAME-STREAM-INF:BANDWIDTH=1,URI=\"https://a.example/i.m3u8\"\r\n",
    "#EXT-X-STREAM-INF:BANDWIDTH=1\r\n",
    "  //a.example/v.m3u8?x=1&y \r\n",
    "#EXT-X-KEY:METHOD=AES-128,URI=\"key\",IV=0x1\n",
    "#EXT-X-MAP:URI=\"init.mp4\",BYTERANGE=\"1@0\"\n",
    "#EXTINF:4,title URI=\"x\n",
    "{$base}/1.m4s\n",
    "#EXT-X-PART:DURATION=1,URI=\"p.m4s\"\n",
    "#EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"q.m4s\"\n",
    "#EXT-X-RENDITION-REPORT:URI=\"../r.m3u8\"\n",
    "#EXT-X-DATERANGE:ID=\"a\",X-ASSET-URI=\"ad.m3u8\"\n",
    "last.m4s"
);

fn urls(format: Format, manifest: &str) -> Vec<String> {
    let mut urls = Vec::new();
    let output = rewrite(format, manifest.as_bytes(), |url| {
        urls.push(url.to_owned());
        None
    });
    assert_eq!(str::from_utf8(&output.unwrap()), Ok(manifest));
    urls
}

fn replaced(format: Format, manifest: &str, new: &str) -> String {
    let output = rewrite(format, manifest.as_bytes(), |_| Some(new.to_owned()));
    String::from_utf8(output.unwrap()).unwrap()
}

fn error(format: Format, manifest: &[u8]) -> String {
    rewrite(format, manifest, |_| None).unwrap_err().to_string()
}

#[test]
fn every_url_of_an_mpd_is_seen() {
    assert_eq!(
        urls(Format::Dash, MPD),
        [
            "https://cdn.example/a/?x=1&y=2",
            "//b.example/?<&",
            "http://a.example/live.mpd",
            "/patch?a=b",
            "urn:mpeg:dash:resolve-to-zero:2013",
            "v/$RepresentationID$/$Number%05d$.m4s?t=$Time$&k",
            "v/$RepresentationID$/init.mp4",
            "i$Number$",
            "b.mp4",
            "i.mp4",
            "1.m4s",
            "1.sidx",
            "http://t.example/?a&b",
            "http://u.example/",
        ]
    );
}

#[test]
fn every_url_of_a_playlist_is_seen() {
    assert_eq!(
        urls(Format::Hls, PLAYLIST),
        [
            "/steer",
            "data.json",
            "audio,1.m3u8",
            "https://a.example/i.m3u8",
            "//a.example/v.m3u8?x=1&y",
            "key",
            "init.mp4",
            "{$base}/1.m4s",
            "p.m4s",
            "q.m4s",
            "../r.m3u8",
            "ad.m3u8",
            "last.m4s",
        ]
    );
}

#[test]
fn only_urls_change() {
    let mpd = concat!(
        "\u{feff}<m:MPD a='1'><m:BaseURL b = \"c\">\r\n http://a/?x&amp;y </m:BaseURL>",
        "<BaseURL>a<!-- b -->c</BaseURL><SegmentTemplate media='$Number$' startNumber='1'/></m:MPD>\n"
    );
    assert_eq!(
        replaced(Format::Dash, mpd, "http://[::1]/'\"<a>?&amp;$Time$"),
        concat!(
            "\u{feff}<m:MPD a='1'><m:BaseURL b = \"c\">\r\n ",
            "http://[::1]/&apos;&quot;&lt;a&gt;?&amp;amp;$Time$ </m:BaseURL><BaseURL>",
            "http://[::1]/&apos;&quot;&lt;a&gt;?&amp;amp;$Time$</BaseURL><SegmentTemplate media='",
            "http://[::1]/&apos;&quot;&lt;a&gt;?&amp;amp;$Time$' startNumber='1'/></m:MPD>\n"
        )
    );
    let playlist =
        "\u{feff}#EXTM3U\r\n#EXT-X-KEY:URI=\"k\",IV=0x1\r\n\r\n 1.m4s\r\n#EXT-X-ENDLIST\r\n";
    assert_eq!(
        replaced(Format::Hls, playlist, "/a\"b\r\n&ä"),
        "\u{feff}#EXTM3U\r\n#EXT-X-KEY:URI=\"/a%22b%0D%0A&ä\",IV=0x1\r\n\r\n /a%22b%0D%0A&ä\r\n#EXT-X-ENDLIST\r\n"
    );
}

#[test]
fn replaced_urls_read_back() {
    for (format, manifest) in [(Format::Dash, MPD), (Format::Hls, PLAYLIST)] {
        let mut expected = Vec::new();
        let output = rewrite(format, manifest.as_bytes(), |url| {
            let new = format!("http://127.0.0.1:80/token?u={url}&'<>");
            expected.push(new.clone());
            Some(new)
        });
        let output = String::from_utf8(output.unwrap()).unwrap();
        assert_eq!(urls(format, &output), expected);
    }
}

#[test]
fn broken_manifests_are_refused() {
    for (manifest, sentence) in [
        ("", "its XML is broken at line 1, column 1: it has no element"),
        ("<MPD>\n<a></MPD>", "its XML is broken at line 2, column 4: "),
        ("<MPD>", "its XML is broken at line 1, column 6: it ends within an element"),
        ("<MPD/>\n<MPD/>", "its XML is broken at line 2, column 1: a second root element"),
        ("<MPD/>x", "its XML is broken at line 1, column 7: text outside of the root element"),
        ("<MPD a='1' a='2'/>", "its XML is broken at line 1, column 1: "),
        (
            "<MPD><BaseURL>a?b&c</BaseURL></MPD>",
            "its XML is broken at line 1, column 18: an ampersand must be written as &amp;",
        ),
        (
            "<MPD><Initialization sourceURL='a?b&c'/></MPD>",
            "its XML is broken at line 1, column 33: an ampersand must be written as &amp;",
        ),
        (
            "\n<!DOCTYPE MPD [<!ENTITY a \"aaaa\"><!ENTITY b \"&a;&a;\">]><MPD>&b;</MPD>",
            "it has a document type declaration in line 2, which this program refuses",
        ),
        ("<MPD><BaseURL>&b;</BaseURL></MPD>", "it uses the unknown entity \"b\" in line 1"),
        ("<MPD><a href='&b;'/></MPD>", "it uses the unknown entity \"b\" in line 1"),
    ] {
        let said = error(Format::Dash, manifest.as_bytes());
        assert!(said.starts_with(sentence), "{manifest}: {said}");
    }
    assert_eq!(
        error(Format::Hls, b"<html>"),
        "it is not a playlist: its first line is not #EXTM3U"
    );
    assert_eq!(
        error(Format::Hls, b"#EXTM3U\n#EXT-X-MAP:URI=\"a"),
        "line 2 of the playlist is broken: a quoted text has no end"
    );
}

#[test]
fn sizes_have_limits() {
    let deep = |depth: usize| "<a>".repeat(depth) + &"</a>".repeat(depth);
    assert!(rewrite(Format::Dash, deep(MAX_DEPTH).as_bytes(), |_| None).is_ok());
    assert_eq!(
        error(Format::Dash, deep(MAX_DEPTH + 1).as_bytes()),
        "its elements are nested deeper than 64 levels"
    );
    let wide: String = (0..=MAX_ATTRIBUTES).map(|number| format!(" a{number}=''")).collect();
    assert_eq!(
        error(Format::Dash, format!("<a{wide}/>").as_bytes()),
        "line 1 has an element or a tag with more than 128 attributes"
    );
    let long = vec![b' '; MAX_LENGTH + 1];
    for format in [Format::Dash, Format::Hls] {
        assert_eq!(error(format, &long), "it has 8388609 bytes, more than 8388608");
        assert_eq!(
            error(format, b"#EXTM3U\n\xff\xfe"),
            "it is not text in UTF-8: byte 8 fits no character"
        );
    }
}

/// Pieces of manifests, in any order.
fn soup(words: &'static [&'static str]) -> impl Strategy<Value = String> {
    let word = prop_oneof![
        4 => prop::sample::select(words).prop_map(str::to_owned),
        1 => "\\PC{0,6}",
    ];
    prop::collection::vec(word, 0..40).prop_map(|words| words.concat())
}

const XML_WORDS: &[&str] = &[
    "<BaseURL>",
    "</BaseURL>",
    "<BaseURL/>",
    "<MPD>",
    "</MPD>",
    "a/b?c",
    "&amp;",
    "&#x41;",
    "&",
    "]]>",
    "<![CDATA[",
    "<!--",
    "-->",
    "<SegmentTemplate media='",
    "' ",
    "\"",
    "/>",
    "$Number$",
    "\r\n",
    " ",
    "<UTCTiming schemeIdUri=':utc:http-' value=' a  b'/>",
];
const LINE_WORDS: &[&str] = &[
    "#EXTM3U\n",
    "\n",
    "\r\n",
    "#EXT-X-MAP:",
    "URI=\"",
    "\"",
    ",",
    "A=B",
    "#EXTINF:1,",
    "a.m4s",
    " ",
    "#",
];

proptest! {
    #[test]
    fn the_identity_changes_nothing(
        xml in soup(XML_WORDS),
        is_wrapped in any::<bool>(),
        playlist in soup(LINE_WORDS),
    ) {
        let xml = if is_wrapped { format!("<MPD>{xml}</MPD>") } else { xml };
        let playlist = format!("#EXTM3U\n{playlist}");
        for (format, manifest) in [(Format::Dash, xml), (Format::Hls, playlist)] {
            if let Ok(output) = rewrite(format, manifest.as_bytes(), |url| Some(url.to_owned())) {
                prop_assert_eq!(str::from_utf8(&output), Ok(manifest.as_str()));
            }
        }
    }
}
