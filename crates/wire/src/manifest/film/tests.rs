use proptest::prelude::*;

use super::*;

const URL: &str = "http://a.example/films/one/film.mpd?token=1#x";

fn dash(mpd: &str) -> Result<Film, FilmError> {
    Film::parse(Format::Dash, mpd.as_bytes(), URL)
}

fn hls(playlist: &str) -> Result<Film, FilmError> {
    Film::parse(Format::Hls, format!("#EXTM3U\n{playlist}").as_bytes(), URL)
}

/// An MPD of 10 s with one representation.
fn one(addresses: &str) -> String {
    format!(
        r#"<MPD mediaPresentationDuration="PT10S"><Period><AdaptationSet mimeType="video/mp4">
        <Representation id="v" bandwidth="1000" width="640" height="360" codecs="avc1.64001f">{addresses}</Representation>
        </AdaptationSet></Period></MPD>"#
    )
}

/// URL without the common beginning, range, start and duration in milliseconds.
fn listed(rendition: &Rendition) -> Vec<(String, Option<Range<u64>>, u64, u64)> {
    let millis = |span: Span| span.as_nanos() / 1_000_000;
    let short = |url: &str| url.replace("http://a.example/films/one/", "");
    let one = |segment: &Segment| {
        let Resource { url, range } = &segment.resource;
        (short(url), range.clone(), millis(segment.start), millis(segment.duration))
    };
    rendition.segments().iter().map(one).collect()
}

fn plain(list: &[(&str, u64, u64)]) -> Vec<(String, Option<Range<u64>>, u64, u64)> {
    list.iter().map(|(url, start, length)| ((*url).to_owned(), None, *start, *length)).collect()
}

fn first(film: Result<Film, FilmError>) -> Rendition {
    film.unwrap().video.swap_remove(0)
}

fn sentence<T: std::fmt::Debug>(result: Result<T, FilmError>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn a_template_with_a_duration_ends_with_the_period() {
    let mpd = one(
        r#"<SegmentTemplate media="$RepresentationID$/$Number%03d$.m4s?t=$Time$" initialization="$Bandwidth$.mp4"
           timescale="1000" duration="4000" startNumber="0"/>"#,
    );
    let film = dash(&mpd).unwrap();
    assert_eq!(film.duration, Some(Span::from_secs(10)));
    assert!(!film.is_live());
    let video = &film.video[0];
    assert_eq!(
        listed(video),
        plain(&[
            ("v/000.m4s?t=0", 0, 4000),
            ("v/001.m4s?t=4000", 4000, 4000),
            ("v/002.m4s?t=8000", 8000, 2000)
        ])
    );
    let url = "http://a.example/films/one/1000.mp4".to_owned();
    assert_eq!(video.initialization, Some(Resource { url, range: None }));
    assert_eq!((&*video.id, video.bandwidth), ("v", Rate::from_bps(1000)));
    assert_eq!(
        (video.resolution, video.codecs.as_deref()),
        (Some((640, 360)), Some("avc1.64001f"))
    );
    assert_eq!((video.container, video.duration()), (Container::Mp4, Span::from_secs(10)));
}

#[test]
fn a_timeline_has_repetitions_and_gaps() {
    let mpd = one(
        r#"<SegmentTemplate media="$Time$-$Number$" timescale="10" presentationTimeOffset="100"><SegmentTimeline>
           <S t="90" d="10"/><S d="20" r="1"/><S t="150" d="15"/><S d="10" r="-1"/></SegmentTimeline></SegmentTemplate>"#,
    );
    assert_eq!(
        listed(&first(dash(&mpd))),
        plain(&[
            ("100-2", 0, 2000),
            ("120-3", 2000, 2000),
            ("150-4", 5000, 1500),
            ("165-5", 6500, 1000),
            ("175-6", 7500, 1000),
            ("185-7", 8500, 1000),
            ("195-8", 9500, 1000)
        ])
    );
}

#[test]
fn a_list_has_byte_ranges() {
    let mpd = one(r#"<BaseURL>../two/</BaseURL><BaseURL>http://second.example/</BaseURL>
        <SegmentList duration="5"><Initialization range="0-99"/><SegmentURL mediaRange="100-199"/>
        <SegmentURL media="b.mp4" mediaRange="0-0"/></SegmentList>"#);
    let video = first(dash(&mpd));
    let url = |name: &str| format!("http://a.example/films/two/{name}");
    assert_eq!(
        listed(&video),
        [(url(""), Some(100..200), 0, 5000), (url("b.mp4"), Some(0..1), 5000, 5000)]
    );
    assert_eq!(video.segments()[0].size(), Some(Size::from_bytes(100)));
    assert_eq!(video.initialization.unwrap().range, Some(0..100));
}

#[test]
fn a_list_may_state_the_sizes_of_files() {
    let mpd = one(
        r#"<SegmentList duration="2" xmlns:m="urn:manyways:film:1"><SegmentURL media="a" m:size="400000"/>
        <SegmentURL media="b"/><SegmentURL media="c" m:size="4 kB"/>
        <SegmentURL media="d" mediaRange="0-9" m:size="70"/></SegmentList>"#,
    );
    let video = first(dash(&mpd));
    let sizes = video.segments().iter().map(|one| one.size().map(Size::as_bytes));
    assert_eq!(sizes.collect::<Vec<_>>(), [Some(400_000), None, None, Some(10)]);
}

#[test]
fn an_index_is_added_later() {
    let mpd = one(
        r#"<BaseURL>v.mp4</BaseURL><SegmentBase indexRange="800-851"><Initialization range="0-799"/></SegmentBase>"#,
    );
    let mut video = first(dash(&mpd));
    let url = "http://a.example/films/one/v.mp4".to_owned();
    assert_eq!(video.listing, Listing::Index(Resource { url: url.clone(), range: Some(800..852) }));
    assert_eq!(video.initialization, Some(Resource { url: url.clone(), range: Some(0..800) }));
    assert!(video.segments().is_empty());
    let numbers: [u32; 13] =
        [56, u32::from_be_bytes(*b"sidx"), 0, 1, 1000, 0, 5, 2, 700, 2000, 0, 300, 1500];
    let mut index: Vec<u8> = numbers.iter().flat_map(|number| number.to_be_bytes()).collect();
    index.extend([0; 4]);
    let cut_off = video.clone().add_index(&index[..40], 800);
    assert_eq!(
        sentence(cut_off),
        "its index cannot be read: the index of segments (sidx) is cut off after 32 bytes"
    );
    video.add_index(&index, 800).unwrap();
    assert_eq!(
        listed(&video),
        [
            ("v.mp4".to_owned(), Some(861..1561), 0, 2000),
            ("v.mp4".to_owned(), Some(1561..1861), 2000, 1500)
        ]
    );
    let mut far = first(dash(&mpd));
    assert_eq!(
        sentence(far.add_index(&index, u64::MAX)),
        "its index cannot be read: the index of segments refers to bytes beyond any file"
    );

    // Without an element for the initialization, it is all before the index.
    let implied = first(dash(&one(r#"<SegmentBase indexRange="800-851"/>"#)));
    assert_eq!(implied.initialization.unwrap().range, Some(0..800));
    let whole = first(dash(&one("<BaseURL>v.mp4</BaseURL>")));
    assert_eq!(listed(&whole), plain(&[("v.mp4", 0, 10_000)]));
}

#[test]
fn attributes_are_inherited_and_renditions_sorted() {
    let mpd = r#"<MPD type="static"><BaseURL>http://cdn.example/a/</BaseURL><Period duration="PT4S">
      <SegmentTemplate timescale="10" startNumber="5"/><BaseURL>b/</BaseURL>
      <AdaptationSet contentType="text"><Representation id="t" bandwidth="1"/></AdaptationSet>
      <AdaptationSet contentType="video"><EssentialProperty schemeIdUri="http://dashif.org/guidelines/trickmode"/>
        <Representation id="fast" bandwidth="1"/></AdaptationSet>
      <AdaptationSet width="640" height="360" mimeType="video/mp4" codecs="avc1"><SegmentTemplate media="$RepresentationID$$Number$" duration="20"/>
        <Representation id="high" bandwidth="3000" codecs="hvc1"/>
        <Representation id="low" bandwidth="1000"><SegmentTemplate duration="40"/><BaseURL>c/</BaseURL></Representation>
        <Representation id="middle" bandwidth="2000" width="1280"/></AdaptationSet>
      <AdaptationSet mimeType="video/webm"><Representation id="other" bandwidth="1000"/></AdaptationSet>
      <AdaptationSet mimeType="audio/mp4"><SegmentTemplate media="a$Number$" duration="40"/><Representation id="sound" bandwidth="9"/></AdaptationSet>
      </Period></MPD>"#;
    let film = dash(mpd).unwrap();
    let ids: Vec<_> = film.video.iter().map(|one| &*one.id).collect();
    assert_eq!(ids, ["low", "middle", "high"]);
    assert_eq!(listed(&film.video[0]), plain(&[("http://cdn.example/a/b/c/low5", 0, 4000)]));
    assert_eq!(
        listed(&film.video[2]),
        plain(&[
            ("http://cdn.example/a/b/high5", 0, 2000),
            ("http://cdn.example/a/b/high6", 2000, 2000)
        ])
    );
    assert_eq!(film.video[1].resolution, Some((1280, 360)));
    assert_eq!(film.video[1].codecs.as_deref(), Some("avc1"));
    assert_eq!(film.video[2].codecs.as_deref(), Some("hvc1"));
    assert_eq!(film.audio.len(), 1);
    assert_eq!(listed(&film.audio[0]), plain(&[("http://cdn.example/a/b/a5", 0, 4000)]));
    assert_eq!(film.duration, Some(Span::from_secs(4)));
}

#[test]
fn a_live_mpd_is_reported_as_live() {
    let live = |addresses: &str| {
        let mpd = one(addresses)
            .replace("<MPD mediaPresentationDuration=\"PT10S\"", "<MPD type=\"dynamic\"");
        let film = dash(&mpd).unwrap();
        assert!(film.is_live() && film.video[0].is_live);
        assert_eq!(film.duration, None);
        film.video[0].segments().len()
    };
    assert_eq!(live(r#"<SegmentTemplate media="$Number$" duration="2"/>"#), 0);
    assert_eq!(
        live(
            r#"<SegmentTemplate media="$Time$"><SegmentTimeline><S t="7" d="2" r="3"/><S d="2" r="-1"/></SegmentTimeline></SegmentTemplate>"#
        ),
        5
    );
}

#[test]
fn impossible_mpds_are_refused() {
    for (addresses, expected) in [
        ("<SegmentTemplate duration='2'/>", "SegmentTemplate has no media"),
        ("<SegmentTemplate media='a'/>", "SegmentTemplate has no duration"),
        (
            "<SegmentTemplate media='a' duration='0'/>",
            "duration of SegmentTemplate is 0, which is not valid",
        ),
        (
            "<SegmentTemplate media='a' duration='-2'/>",
            "duration of SegmentTemplate is -2, which is not valid",
        ),
        (
            "<SegmentTemplate media='a' duration='2' timescale='0'/>",
            "timescale of SegmentTemplate is 0, which is not valid",
        ),
        (
            "<SegmentTemplate media='a' duration='1' timescale='100000'/>",
            "rendition v has more than 100000 segments",
        ),
        (
            "<SegmentTemplate media='a' duration='1' timescale='18446744073709551615'/>",
            "rendition v has more than 100000 segments",
        ),
        (
            "<SegmentTemplate media='a'><SegmentTimeline/></SegmentTemplate>",
            "rendition v has no segments",
        ),
        (
            "<SegmentTemplate media='a'><SegmentTimeline><S t='1'/></SegmentTimeline></SegmentTemplate>",
            "S has no d",
        ),
        (
            "<SegmentTemplate media='a'><SegmentTimeline><S d='0'/></SegmentTimeline></SegmentTemplate>",
            "segment 1 of rendition v has no duration",
        ),
        (
            "<SegmentTemplate media='a' timescale='9999999999'><SegmentTimeline><S t='1' d='1'/></SegmentTimeline></SegmentTemplate>",
            "segment 1 of rendition v has no duration",
        ),
        (
            "<SegmentTemplate media='a'><SegmentTimeline><S t='9' d='1'/><S t='3' d='1'/></SegmentTimeline></SegmentTemplate>",
            "segment 2 of rendition v begins before the one before it",
        ),
        (
            "<SegmentTemplate media='a'><SegmentTimeline><S d='1' r='18446744073709551615'/></SegmentTimeline></SegmentTemplate>",
            "rendition v has more than 100000 segments",
        ),
        (
            "<SegmentTemplate media='a'><SegmentTimeline><S d='18446744073709551615' r='1'/></SegmentTimeline></SegmentTemplate>",
            "d of S is 18446744073709551615, which is not valid",
        ),
        (
            "<SegmentTemplate media='$a$' duration='2'/>",
            "the template $a$ is not valid: it has an unknown identifier",
        ),
        ("<SegmentList duration='2'/>", "rendition v has no segments"),
        (
            "<SegmentList><SegmentURL/><SegmentURL/></SegmentList>",
            "it states neither its duration nor the number of its segments",
        ),
        (
            "<SegmentList duration='2'><SegmentURL mediaRange='5-3'/></SegmentList>",
            "mediaRange of SegmentURL is 5-3, which is not valid",
        ),
        (
            "<SegmentBase indexRange='0-18446744073709551615'/>",
            "indexRange of SegmentBase is 0-18446744073709551615, which is not valid",
        ),
    ] {
        assert_eq!(sentence(dash(&one(addresses))), expected, "{addresses}");
    }
    let good = one("<SegmentTemplate media='a' duration='2'/>");
    for (from, to, expected) in [
        (
            " mediaPresentationDuration=\"PT10S\"",
            "",
            "it states neither its duration nor the number of its segments",
        ),
        ("PT10S", "PT0S", "mediaPresentationDuration of MPD is PT0S, which is not valid"),
        ("PT10S", "-PT10S", "mediaPresentationDuration of MPD is -PT10S, which is not valid"),
        ("<Period>", "<Period/><Period>", "it has 2 periods, and this program supports one"),
        (
            "<Period>",
            "<Period xmlns:x='x' x:href='y'>",
            "it uses a period in another file (XLink), which this program does not support",
        ),
        ("video/mp4", "text/vtt", "it lists no video"),
        ("bandwidth=\"1000\"", "", "Representation has no bandwidth"),
        (
            "bandwidth=\"1000\"",
            "bandwidth=\"-1\"",
            "bandwidth of Representation is -1, which is not valid",
        ),
        (
            "bandwidth=\"1000\"",
            "bandwidth=\"0\"",
            "bandwidth of Representation is 0, which is not valid",
        ),
        (
            "<Representation",
            "<Representation id=\"w\" bandwidth=\"1000\"/><Representation",
            "renditions w and v have the same bandwidth",
        ),
        ("<MPD ", "<MPD type='x' ", "type of MPD is x, which is not valid"),
    ] {
        // The root element comes first, so that its name may change as well.
        assert_eq!(sentence(dash(&good.replacen(from, to, 1))), expected, "{to}");
    }
    assert_eq!(sentence(dash("<html/>")), "it is not an MPD: its root element is html");
    assert_eq!(sentence(dash("<Period/>")), "it is not an MPD: its root element is Period");
    assert_eq!(sentence(dash("<MPD/>")), "it lists no video");
    assert_eq!(
        sentence(Film::parse(Format::Dash, good.as_bytes(), "film.mpd")),
        "the URL of the manifest is not absolute: film.mpd"
    );
}

#[test]
fn films_have_limits() {
    let representation = |count: usize, addresses: &str| {
        let all: String = (1..=count)
            .map(|number| {
                format!("<Representation bandwidth=\"{number}\">{addresses}</Representation>")
            })
            .collect();
        format!(
            "<MPD mediaPresentationDuration=\"PT10S\"><Period><AdaptationSet contentType=\"video\">{all}</AdaptationSet></Period></MPD>"
        )
    };
    assert_eq!(dash(&representation(MAX_RENDITIONS, "")).unwrap().video.len(), MAX_RENDITIONS);
    assert_eq!(
        sentence(dash(&representation(MAX_RENDITIONS + 1, ""))),
        "it has more than 200 renditions"
    );
    let many = "<SegmentTemplate media='a'><SegmentTimeline><S d='1' r='99999'/></SegmentTimeline></SegmentTemplate>";
    assert_eq!(
        sentence(dash(&representation(6, many))),
        "its renditions have more than 500000 segments"
    );
    let long = many.replace("'a'", &format!("'{}'", "a".repeat(1000)));
    assert_eq!(
        sentence(dash(&representation(1, &long))),
        "the URLs of its segments have more than 67108864 bytes"
    );
    let id = "i".repeat(5_000);
    let template = "$RepresentationID$".repeat(100_000);
    let repeated = one(&format!("<SegmentTemplate media='{template}' duration='2'/>"))
        .replace("id=\"v\"", &format!("id=\"{id}\""));
    assert_eq!(sentence(dash(&repeated)), "it has a URL of more than 65536 bytes");
    let base = "b/".repeat(MAX_URL_LENGTH / 2);
    assert_eq!(
        sentence(dash(&one(&format!("<BaseURL>{base}</BaseURL>")))),
        "it has a URL of more than 65536 bytes"
    );
    let elements = "<BaseURL/>".repeat(250_000);
    assert_eq!(
        sentence(dash(&format!("<MPD>{elements}</MPD>"))),
        "it has more elements than a film needs"
    );
}

#[test]
fn a_master_playlist_lists_variants() {
    let film = hls(concat!(
        "#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"g\",NAME=\"en\",URI=\"sound.m3u8\"\n",
        "#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"g\",NAME=\"inside\"\n",
        "#EXT-X-MEDIA:TYPE=SUBTITLES,GROUP-ID=\"s\",NAME=\"en\",URI=\"text.m3u8\"\n",
        "#EXT-X-STREAM-INF:BANDWIDTH=3000,RESOLUTION=1280x720,CODECS=\"avc1.64001f,mp4a.40.2\"\nhigh/v.m3u8\n",
        "#EXT-X-STREAM-INF:BANDWIDTH=1000,RESOLUTION=640x360\n//b.example/low.m3u8\n",
        "#EXT-X-STREAM-INF:BANDWIDTH=1000,RESOLUTION=640x360\nhttp://second.example/low.m3u8\n",
        "#EXT-X-STREAM-INF:BANDWIDTH=64,CODECS=\"mp4a.40.2\"\nonly-sound.m3u8\n",
    ))
    .unwrap();
    assert_eq!((film.duration, film.is_live()), (None, false));
    let list = |renditions: &[Rendition]| {
        let show = |one: &Rendition| match &one.listing {
            Listing::Playlist(url) => format!("{} {} {url}", one.id, one.bandwidth.as_bps()),
            other => panic!("{other:?}"),
        };
        renditions.iter().map(show).collect::<Vec<_>>()
    };
    assert_eq!(
        list(&film.video),
        [
            "//b.example/low.m3u8 1000 http://b.example/low.m3u8",
            "high/v.m3u8 3000 http://a.example/films/one/high/v.m3u8"
        ]
    );
    assert_eq!(
        list(&film.audio),
        [
            "g/en 0 http://a.example/films/one/sound.m3u8",
            "only-sound.m3u8 64 http://a.example/films/one/only-sound.m3u8"
        ]
    );
    assert_eq!(film.video[1].resolution, Some((1280, 720)));
}

#[test]
fn a_media_playlist_lists_segments() {
    let playlist = concat!(
        "#EXTM3U\r\n#EXT-X-TARGETDURATION:4\r\n#EXT-X-MAP:URI=\"i.mp4\",BYTERANGE=\"50@0\"\r\n",
        "#EXTINF:4.0,a title\r\n#EXT-X-BYTERANGE:100@50\r\nv.mp4\r\n",
        "#EXT-X-MAP:URI=\"i.mp4\",BYTERANGE=\"50@0\"\r\n",
        "#EXTINF:3.5\r\n#EXT-X-BYTERANGE:70\r\nv.mp4\r\n",
        "#EXT-X-DISCONTINUITY\r\n#EXT-X-MAP:URI=\"j.mp4\"\r\n#EXTINF:2,\r\nw.m4s\r\n",
        "#EXT-X-ENDLIST\r\n"
    );
    let mut rendition = first(hls("#EXT-X-STREAM-INF:BANDWIDTH=1000\nv/v.m3u8\n"));
    rendition.add_playlist(playlist.as_bytes(), "http://a.example/films/one/v/v.m3u8").unwrap();
    assert_eq!(
        listed(&rendition),
        [
            ("v/v.mp4".to_owned(), Some(50..150), 0, 4000),
            ("v/v.mp4".to_owned(), Some(150..220), 4000, 3500),
            ("v/w.m4s".to_owned(), None, 7500, 2000)
        ]
    );
    assert!(!rendition.is_live);
    assert_eq!((rendition.container, rendition.bandwidth), (Container::Mp4, Rate::from_bps(1000)));
    assert_eq!(rendition.initialization.as_ref().unwrap().range, Some(0..50));
    let changes: Vec<_> = rendition
        .segments()
        .iter()
        .map(|one| (one.new_initialization.as_ref().map(|it| &*it.url), one.is_discontinuous))
        .collect();
    assert_eq!(
        changes,
        [(None, false), (None, false), (Some("http://a.example/films/one/v/j.mp4"), true)]
    );

    let alone = hls("#EXTINF:2,\n1.ts?x\n#EXT-X-PLAYLIST-TYPE:VOD\n").unwrap();
    assert_eq!(alone.video[0].container, Container::TransportStream);
    assert_eq!(alone.duration, Some(Span::from_secs(2)));
    let live = hls("#EXTINF:2,\n1.ts\n").unwrap();
    assert_eq!((live.is_live(), live.duration), (true, None));
    assert!(hls("#EXT-X-TARGETDURATION:2\n").unwrap().is_live());
}

#[test]
fn impossible_playlists_are_refused() {
    for (playlist, expected) in [
        ("#EXT-X-ENDLIST", "rendition http://a.example/films/one/film.mpd?token=1 has no segments"),
        (
            "#EXTINF:0,\na\n",
            "segment 1 of rendition http://a.example/films/one/film.mpd?token=1 has no duration",
        ),
        (
            "#EXTINF:-1,\na\n",
            "line 2 of the playlist is broken: the duration is not a number of seconds",
        ),
        (
            "#EXTINF:inf,\na\n",
            "line 2 of the playlist is broken: the duration is not a number of seconds",
        ),
        ("a\n", "line 2 of the playlist is broken: the segment has no EXTINF"),
        (
            "#EXTINF:1,\n#EXT-X-BYTERANGE:5\na\n",
            "the byte range in line 4 states no offset, and the segment before has none",
        ),
        (
            "#EXTINF:1,\n#EXT-X-BYTERANGE:5@0\na\n#EXTINF:1,\n#EXT-X-BYTERANGE:5\nb\n",
            "the byte range in line 7 states no offset, and the segment before has none",
        ),
        (
            "#EXTINF:1,\n#EXT-X-BYTERANGE:5@x\na\n",
            "line 3 of the playlist is broken: the byte range is not valid",
        ),
        (
            "#EXTINF:1,\n#EXT-X-BYTERANGE:0@1\na\n",
            "line 4 of the playlist is broken: the byte range is not valid",
        ),
        (
            "#EXTINF:1,\n#EXT-X-BYTERANGE:9@18446744073709551615\na\n",
            "line 4 of the playlist is broken: the byte range is not valid",
        ),
        ("#EXT-X-MAP:BYTERANGE=\"1\"\n", "EXT-X-MAP has no URI"),
        ("#EXT-X-STREAM-INF:RESOLUTION=1x1\na\n", "EXT-X-STREAM-INF has no BANDWIDTH"),
        (
            "#EXT-X-STREAM-INF:BANDWIDTH=0\na\n",
            "BANDWIDTH of EXT-X-STREAM-INF is 0, which is not valid",
        ),
        (
            "#EXT-X-STREAM-INF:BANDWIDTH=1,RESOLUTION=1\na\n",
            "RESOLUTION of EXT-X-STREAM-INF is 1, which is not valid",
        ),
        (
            "#EXT-X-STREAM-INF:BANDWIDTH=1,RESOLUTION=1x1\na\n#EXT-X-STREAM-INF:BANDWIDTH=1,RESOLUTION=1x2\nb\n",
            "renditions a and b have the same bandwidth",
        ),
        ("#EXT-X-STREAM-INF:BANDWIDTH=1\n", "it lists no video"),
        (
            "#EXT-X-DEFINE:NAME=\"a\",VALUE=\"b\"\n#EXTINF:1,\n{$a}\n",
            "it uses variables (EXT-X-DEFINE), which this program does not support",
        ),
    ] {
        assert_eq!(sentence(hls(playlist)), expected, "{playlist}");
    }
    let many = "#EXTINF:1,\na\n".repeat(MAX_SEGMENTS + 1);
    assert_eq!(
        sentence(hls(&many)),
        "rendition http://a.example/films/one/film.mpd?token=1 has more than 100000 segments"
    );
    let variants: String = (1..=MAX_RENDITIONS + 1)
        .map(|number| format!("#EXT-X-STREAM-INF:BANDWIDTH={number}\n{number}\n"))
        .collect();
    assert_eq!(sentence(hls(&variants)), "it has more than 200 renditions");
    let mut rendition = first(hls("#EXT-X-STREAM-INF:BANDWIDTH=1000\nv.m3u8\n"));
    assert_eq!(
        sentence(rendition.add_playlist(b"#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\na\n", URL)),
        "line 2 of the playlist is broken: it is a master playlist, within another one"
    );
}

/// Each segment begins where the one before it ends, and the last one ends with the film.
fn check_times(film: &Film) {
    for rendition in film.video.iter().chain(&film.audio) {
        let mut end = Span::ZERO;
        for segment in rendition.segments() {
            assert_eq!(segment.start, end);
            end = segment.end();
        }
        assert_eq!(Some(end), film.duration);
    }
}

proptest! {
    #[test]
    fn segments_of_a_template_add_up(
        millis in 1u64..10_000_000, duration in 1u64..1_000_000, timescale in 1u64..100_000,
    ) {
        let mpd = one(&format!("<SegmentTemplate media='$Number$' timescale='{timescale}' duration='{duration}'/>"));
        let period = format!("PT{}.{:03}S", millis / 1000, millis % 1000);
        match dash(&mpd.replace("PT10S", &period)) {
            Ok(film) => {
                prop_assert_eq!(film.duration, Some(Span::from_millis(millis)));
                check_times(&film);
            }
            Err(error) => prop_assert!(matches!(error, FilmError::TooManySegments { .. }), "{error}"),
        }
    }

    #[test]
    fn segments_of_a_timeline_add_up(
        runs in prop::collection::vec((1u64..1_000_000, 0u64..9), 1..9), timescale in 1u64..1_000_000,
        start in 0u64..1_000_000,
    ) {
        let mut entries = format!("<S t='{start}' d='1'/>");
        entries.extend(runs.iter().map(|(duration, repeated)| format!("<S d='{duration}' r='{repeated}'/>")));
        let mpd = one(&format!("<SegmentTemplate media='$Time$' timescale='{timescale}' presentationTimeOffset='{start}'>\
            <SegmentTimeline>{entries}</SegmentTimeline></SegmentTemplate>"));
        let film = dash(&mpd.replace(" mediaPresentationDuration=\"PT10S\"", "")).unwrap();
        check_times(&film);
        let ticks: u64 = 1 + runs.iter().map(|(duration, repeated)| duration * (repeated + 1)).sum::<u64>();
        prop_assert_eq!(film.duration, Some(span(ticks, timescale)));
    }

    #[test]
    fn segments_of_a_playlist_add_up(millis in prop::collection::vec(1u64..20_000, 1..50)) {
        let lines = millis.iter().map(|one| format!("#EXTINF:{}.{:03},\n{one}.m4s\n", one / 1000, one % 1000));
        let film = hls(&format!("{}#EXT-X-ENDLIST\n", lines.collect::<String>())).unwrap();
        check_times(&film);
        prop_assert_eq!(film.duration, Some(Span::from_millis(millis.iter().sum())));
    }
}
