use super::*;

fn options(duration: Span, segment: Span) -> Options {
    Options::new(LADDERS[0].steps.to_vec(), duration, segment)
}

fn minutes() -> Options {
    options(Span::from_secs(600), Span::from_secs(6))
}

#[test]
fn the_mean_of_each_rung_is_its_rate_and_the_lengths_vary() {
    let film = minutes().plan().unwrap();
    assert_eq!(film.rungs.len(), 9);
    for rung in &film.rungs {
        assert_eq!(rung.segments.len(), 100);
        assert_eq!(rung.mean(&film), rung.rate, "{}", rung.name);
        assert!(rung.peak(&film) > rung.rate);
        let bytes: Vec<f64> = rung.segments.iter().map(|length| length.as_bytes() as f64).collect();
        let mean = bytes.iter().sum::<f64>() / 100.0;
        let variance = bytes.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / 99.0;
        // Of a hundred lengths, the deviation is within four standard errors of 0.2.
        assert!((variance.sqrt() / mean - 0.2).abs() < 0.06, "{}", variance.sqrt() / mean);
    }
}

#[test]
fn a_film_without_variation_has_equal_segments_and_a_shorter_last_one() {
    let mut options = options(Span::from_secs(11), Span::from_secs(4));
    options.variation = 0.0;
    let film = options.plan().unwrap();
    let spans = film.spans();
    assert_eq!(spans, [4, 4, 3].map(Span::from_secs));
    assert_eq!(spans.iter().map(|span| span.as_nanos()).sum::<u64>(), 11_000_000_000);
    assert_eq!(film.rungs[0].segments, [126_500, 126_500, 94_875].map(Size::from_bytes));
}

#[test]
fn a_seed_decides_the_lengths() {
    let with = |seed| {
        let mut options = minutes();
        options.seed = seed;
        options.plan().unwrap()
    };
    assert_eq!(with(1), with(1));
    assert_ne!(with(1).rungs[0].segments, with(2).rungs[0].segments);
    // A scene is hard to encode at every rate.
    let film = with(1);
    let share =
        |rung: &Rung, at: usize| Rate::of(rung.segments[at], rung.rate.time_for(rung.length()));
    let [low, high] = [&film.rungs[0], &film.rungs[8]];
    let ratio = |rung: &Rung| share(rung, 3).as_bps() as f64 / share(rung, 4).as_bps() as f64;
    assert!((ratio(low) / ratio(high) - 1.0).abs() < 1e-3);
}

#[test]
fn rungs_rise_and_have_distinct_names() {
    for ladder in LADDERS {
        let mut steps = ladder.steps.to_vec();
        assert!(steps.windows(2).all(|pair| pair[0].rate < pair[1].rate), "{}", ladder.name);
        steps.reverse();
        let film = Options::new(steps, Span::from_secs(60), ladder.segment).plan().unwrap();
        let rates: Vec<Rate> = film.rungs.iter().map(|rung| rung.rate).collect();
        assert!(rates.is_sorted());
    }
    assert_eq!(name(Rate::from_kbps(253)), "253k");
    assert_eq!(name(Rate::from_bps(253_500)), "253500");
}

fn step(kbps: u64) -> Step {
    picture_for(Rate::from_kbps(kbps))
}

#[test]
fn parameters_outside_their_limits_are_refused() {
    type Change = dyn Fn(&mut Options);
    let refused = |change: &Change| {
        let mut options = options(Span::from_secs(60), Span::from_secs(4));
        change(&mut options);
        options.plan().unwrap_err().to_string()
    };
    let cases: [(&str, &Change); 14] = [
        ("a film lasts", &|one| one.duration = Span::ZERO),
        ("a film lasts", &|one| one.duration = Span::from_secs(100_000)),
        ("a segment lasts", &|one| one.segment = Span::ZERO),
        ("longer than the film", &|one| one.duration = Span::from_secs(3)),
        ("whole number of milliseconds", &|one| one.segment = Span::from_micros(1_000_500)),
        ("the variation", &|one| one.variation = f64::NAN),
        ("the variation", &|one| one.variation = 1.1),
        ("from 1 to 32 rungs", &|one| one.steps.clear()),
        ("from 1 to 32 rungs", &|one| one.steps = (1..=33).map(|at| step(at * 100)).collect()),
        ("the rate of a rung", &|one| one.steps = vec![step(1)]),
        ("the rate of a rung", &|one| one.steps = vec![step(u64::MAX / 1_000)]),
        ("two rungs have the rate 300", &|one| one.steps = vec![step(300), step(300)]),
        ("segments in all rungs", &|one| {
            (one.duration, one.segment) = (MAX_DURATION, MIN_SEGMENT);
        }),
        ("of the rung 10k has", &|one| {
            (one.steps, one.segment) = (vec![step(10)], Span::from_millis(500));
        }),
    ];
    for (sentence, change) in cases {
        let error = refused(change);
        assert!(error.contains(sentence), "{error}");
    }
}

/// The text of the manifest with this name.
fn text(film: &Film, layout: Layout, name: &str) -> String {
    let all = manifests(film, layout);
    let found = all.into_iter().find(|(path, _)| path == name);
    found.unwrap_or_else(|| panic!("there is no {name}")).1
}

/// A film of two rungs, of 8 and 4 s, without variation.
fn small() -> Film {
    let steps = vec![picture_for(Rate::from_kbps(300)), picture_for(Rate::from_kbps(1_200))];
    let mut options = Options::new(steps, Span::from_secs(10), Span::from_secs(4));
    options.variation = 0.0;
    options.plan().unwrap()
}

#[test]
fn manifests_that_a_player_opens_are_last() {
    let names = |layout| manifests(&small(), layout).into_iter().map(|(name, _)| name);
    assert_eq!(
        names(Layout::Segments).collect::<Vec<_>>(),
        ["300k/video.m3u8", "1200k/video.m3u8", "film.mpd", "list.mpd", "master.m3u8"]
    );
    assert_eq!(
        names(Layout::SingleFile).collect::<Vec<_>>(),
        ["300k/bytes.m3u8", "1200k/bytes.m3u8", "base.mpd", "bytes.m3u8"]
    );
}

#[test]
fn an_mpd_has_rates_and_lengths() {
    let film = text(&small(), Layout::Segments, "film.mpd");
    assert!(film.contains(r#"mediaPresentationDuration="PT10S" minBufferTime="PT4S""#), "{film}");
    assert!(film.contains(r#"<SegmentTemplate timescale="1000" duration="4000" startNumber="1""#));
    let rung = r#"id="1200k" bandwidth="1200000" width="854" height="480" codecs="avc1.42c01e"/>"#;
    assert!(film.contains(rung), "{film}");
    let list = text(&small(), Layout::Segments, "list.mpd");
    for (number, size) in [(1, 150_000), (2, 150_000), (3, 75_000)] {
        let line = format!(r#"<SegmentURL media="300k/{number}.m4s" manyways:size="{size}"/>"#);
        assert!(list.contains(&line), "{list}");
    }
    let base = text(&small(), Layout::SingleFile, "base.mpd");
    let init = small().rungs[0].init.as_bytes();
    // 40 bytes, and 12 of each segment.
    let ranges = format!(
        r#"<SegmentBase timescale="1000" indexRange="{init}-{}">
          <Initialization range="0-{}"/>"#,
        init + 75,
        init - 1
    );
    assert!(base.contains(&ranges), "{ranges}\n{base}");
}

#[test]
fn a_playlist_has_peaks_durations_and_ranges() {
    let mut film = small();
    film.rungs[0].segments[1] = Size::from_bytes(200_000);
    let main = text(&film, Layout::Segments, "master.m3u8");
    let line = "BANDWIDTH=400000,AVERAGE-BANDWIDTH=340000,CODECS=\"avc1.42c01e\",RESOLUTION=426x240\n300k/video.m3u8";
    assert!(main.contains(line), "{main}");
    let media = text(&film, Layout::Segments, "300k/video.m3u8");
    assert!(media.contains("#EXT-X-TARGETDURATION:4\n"));
    let end = "#EXTINF:4.000,\n2.m4s\n#EXTINF:2.000,\n3.m4s\n#EXT-X-ENDLIST\n";
    assert!(media.ends_with(end), "{media}");
    let bytes = text(&film, Layout::SingleFile, "300k/bytes.m3u8");
    let init = film.rungs[0].init.as_bytes();
    let second = init + 76 + 150_000;
    for line in [
        format!("#EXT-X-MAP:URI=\"video.mp4\",BYTERANGE=\"{init}@0\""),
        format!("#EXT-X-BYTERANGE:200000@{second}\nvideo.mp4"),
        format!("#EXT-X-BYTERANGE:75000@{}\nvideo.mp4", second + 200_000),
    ] {
        assert!(bytes.contains(&line), "{line}\n{bytes}");
    }
}
