//! Films for measurements of players.

use std::path::Path;
use std::process::Command;

use manyways_tests::{Folder, Need, finish, folder, manyways, manyways_path, needs};
use serde_json::{Value, json};

/// Makes a film of 6 s in `folder/film` with these more options.
fn make(folder: &Folder, more: &str) -> std::path::PathBuf {
    let film = folder.path().join("film");
    let mut command = manyways();
    command.args(["probe", "video", "make"]).arg(&film).args(["--duration", "6s"]);
    finish(command.args(more.split_whitespace())).expect_success();
    film
}

#[test]
fn a_film_is_described_as_json() {
    let files = folder();
    let film = files.path().join("film");
    let mut command = manyways();
    command.args(["probe", "video", "make"]).arg(&film);
    command.args(["--duration", "5s", "--segment", "2s", "--rungs", "300k,1.2M", "--json"]);
    let done = finish(&mut command).expect_success();
    let document: Value = serde_json::from_str(&done.stdout).expect("it is JSON");
    assert_eq!(document["schema"], "manyways.probe-video-film/1");
    assert_eq!(document["manifests"], json!(["film.mpd", "list.mpd", "master.m3u8"]));
    let times = ["duration", "segment_duration", "segments"].map(|name| document[name].as_f64());
    assert_eq!(times, [Some(5.0), Some(2.0), Some(3.0)]);
    let mut sum = 0;
    for (rung, (name, bitrate)) in document["rungs"]
        .as_array()
        .expect("a list")
        .iter()
        .zip([("300k", 300_000), ("1200k", 1_200_000)])
    {
        assert_eq!((&rung["name"], &rung["bitrate"]), (&name.into(), &bitrate.into()));
        let length = |file: &str| {
            std::fs::metadata(film.join(name).join(file)).expect("a file of the film").len()
        };
        assert_eq!(rung["initialization_bytes"], length("init.mp4"));
        let lengths = [1, 2, 3].map(|number| length(&format!("{number}.m4s")));
        assert_eq!(rung["segment_bytes"], json!(lengths));
        sum += lengths.iter().sum::<u64>();
        assert_eq!(rung["bytes"], lengths.iter().sum::<u64>());
    }
    assert_eq!(document["bytes"], sum);
}

#[test]
fn a_film_with_known_sizes_is_simulated() {
    let files = folder();
    let trace = files.path().join("trace.json");
    let period = r#"[{"duration_ms": 1000, "bandwidth_kbps": 4000, "latency_ms": 40}]"#;
    std::fs::write(&trace, period).expect("room for a file");
    let simulate = |file: &Path| {
        let mut command = manyways();
        command.args(["probe", "video"]).arg(file).arg("--simulate").arg(&trace);
        finish(command.args(["--rule", "fixed:0", "--duration", "6s", "--json"]))
    };
    let bytes = |document: &Value| {
        let segments = document["results"][0]["segments"].as_array().cloned().unwrap_or_default();
        segments.iter().map(|segment| segment["bytes"].clone()).collect::<Vec<_>>()
    };
    let film = make(&files, "--rungs 300k,1.2M --segment 2s");
    let lengths = [1, 2, 3].map(|number| {
        let file = film.join(format!("300k/{number}.m4s"));
        Value::from(std::fs::metadata(file).expect("a segment").len())
    });
    let single = folder();
    let single = make(&single, "--rungs 300k,1.2M --segment 2s --single-file");
    for file in [film.join("list.mpd"), single.join("base.mpd"), single.join("bytes.m3u8")] {
        let done = simulate(&file).expect_success();
        let document: Value = serde_json::from_str(&done.stdout).expect("it is JSON");
        assert_eq!(bytes(&document), lengths, "{}", file.display());
    }
    for file in ["film.mpd", "master.m3u8"] {
        let done = simulate(&film.join(file));
        assert_eq!(done.code(), 2, "{}", done.stderr);
        let sentence = format!("{file} does not state the size of each segment\nhint: ");
        assert!(done.stderr.contains(&sentence), "{}", done.stderr);
    }
    let playlist = film.join("broken.m3u8");
    for (reference, words) in [
        ("https://origin.lab/x.m3u8", "it needs https://origin.lab/x.m3u8, which is not in its"),
        ("missing.m3u8", "missing.m3u8: No such file"),
        ("//etc/passwd", "which is not in its folder"),
    ] {
        let text = format!("#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=9\n{reference}\n");
        std::fs::write(&playlist, text).expect("room for a file");
        let done = simulate(&playlist);
        assert_eq!(done.code(), 2, "{reference}: {}", done.stderr);
        assert!(done.stderr.contains(words), "{reference}: {}", done.stderr);
    }
}

/// Plays the video of a manifest or a file as fast as possible; returns the number of its pictures
/// and the brightness of the darkest and the brightest one.
fn play(file: &Path) -> (usize, f64, f64) {
    let mut command = Command::new("ffmpeg");
    command.args(["-v", "error", "-i"]).arg(file).args(["-map", "0:v:0", "-vf"]);
    command.args(["signalstats,metadata=print:key=lavfi.signalstats.YAVG:file=-"]);
    let done = finish(command.args(["-f", "null", "/dev/null"])).expect_success();
    let lines = done.stdout.lines().filter_map(|line| line.split_once("YAVG="));
    let values: Vec<f64> = lines.map(|(_, value)| value.parse().expect("a number")).collect();
    let limits = |one: fn(f64, f64) -> f64| values.iter().copied().reduce(one).unwrap_or(f64::NAN);
    (values.len(), limits(f64::min), limits(f64::max))
}

#[test]
fn a_hollow_film_is_black_for_a_decoder_in_every_layout() {
    needs!(Need::Command("ffmpeg"));
    let files = folder();
    // Pictures of a multiple of 16, and cropped ones; 25 a second.
    let film = make(&files, "--rungs 300k,1.2M --segment 4s");
    for manifest in ["film.mpd", "master.m3u8", "1200k/video.m3u8"] {
        assert_eq!(play(&film.join(manifest)), (150, 16.0, 16.0), "{manifest}");
    }
    let files = folder();
    let film = make(&files, "--rungs 16k,8M --segment 2s --single-file");
    for file in ["base.mpd", "bytes.m3u8", "16k/video.mp4", "8000k/video.mp4"] {
        assert_eq!(play(&film.join(file)), (150, 16.0, 16.0), "{file}");
    }
}

#[test]
fn a_real_film_reaches_its_rates() {
    needs!(Need::Command("ffmpeg"));
    let files = folder();
    let film = make(&files, "--rungs 200k,600k --segment 4s --real --single-file");
    let (pictures, darkest, brightest) = play(&film.join("base.mpd"));
    assert_eq!(pictures, 150, "25 a second");
    assert!(darkest > 50.0 && brightest < 200.0, "{darkest} {brightest}");
}

#[test]
fn a_film_without_its_encoder_names_the_package() {
    let files = folder();
    let film = files.path().join("film");
    let mut command = manyways();
    command.args(["probe", "video", "make"]).arg(&film).arg("--real").env("PATH", "");
    let done = finish(&mut command);
    assert_eq!(done.code(), 1);
    assert!(done.stderr.contains("there is no command ffmpeg\nhint: install"), "{}", done.stderr);
    assert!(!film.exists());
}

#[test]
fn invalid_films_are_refused_with_a_hint() {
    let files = folder();
    let there = files.path().join("there");
    std::fs::write(&there, "text").expect("room for a file");
    for (words, message) in [
        ("new --rungs 300k,300k", "two rungs have the rate 300 kbit/s"),
        ("new --rungs 300x", "write it in bits a second, like 300k, 2.5M or 10mbit"),
        ("new --rungs 300k --ladder apple", "cannot be used with"),
        ("new --ladder none", "mp-h2, mobilyzer, apple, dash-if"),
        ("new --duration 0s", "a film lasts from 1 s to"),
        ("new --duration 10s --segment 20s", "longer than the film"),
        ("new --vbr 2", "the variation is from 0 to 1"),
        ("new --vbr 0 --real", "cannot be used with"),
        ("new --rungs 12k --segment 500ms", "\nhint: choose another --segment"),
        (". --rungs 300k", "is not empty\nhint: name a folder that does not exist"),
    ] {
        let mut command = manyways();
        command.current_dir(files.path()).args(["probe", "video", "make"]);
        let done = finish(command.args(words.split(' ')));
        assert_eq!(done.code(), 2, "{words}\n{}", done.stderr);
        assert!(done.stderr.contains(message), "{words}\n{}", done.stderr);
        assert!(!files.path().join("new").exists(), "{words}");
    }
}

#[test]
fn a_disk_that_is_too_small_is_reported_before_the_first_file() {
    needs!(Need::Root);
    let files = folder();
    let script = "mount -t tmpfs -o size=64k none . && cd . && \
                  \"$0\" probe video make \"$PWD/film\" --rungs 300k --duration 1min; \
                  code=$?; ls -A \"$PWD\"; exit $code";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).arg(manyways_path()).current_dir(files.path());
    let done = finish(&mut command);
    assert_eq!(done.code(), 1, "{}", done.stderr);
    assert!(done.stderr.contains("is free\nhint: make it shorter"), "{}", done.stderr);
    assert_eq!(done.stdout, "");
}
