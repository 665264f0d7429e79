//! Films, played over emulated networks and in virtual time.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;

use manyways_tests::testbed::accept;
use manyways_tests::{Finished, Lab, Need, finish, folder, manyways, needs};
use serde_json::{Value, json};

use crate::results;

const LINKS: [&str; 4] =
    ["--link", "wifi:delay=5ms,down=8mbit", "--link", "lte:delay=15ms,down=8mbit"];
const SERVER: &str = "198.18.0.1";
/// Bytes of the segments of half a second at 400 and 1,600 kbit/s.
const SIZES: [usize; 2] = [25_000, 100_000];
const SEGMENTS: usize = 5;

type Files = BTreeMap<String, Vec<u8>>;

/// A film of 2.5 seconds.
fn film() -> Files {
    let mpd = "<MPD xmlns='urn:mpeg:dash:schema:mpd:2011' type='static' \
               mediaPresentationDuration='PT2.5S'><Period><AdaptationSet mimeType='video/mp4'>\
               <SegmentTemplate media='$RepresentationID$-$Number$' \
               initialization='$RepresentationID$-0' duration='500' timescale='1000'/>\
               <Representation id='low' bandwidth='400000'/>\
               <Representation id='high' bandwidth='1600000'/>\
               </AdaptationSet></Period></MPD>";
    let mut files = Files::from([("/film.mpd".to_owned(), mpd.into())]);
    for (name, size) in ["low", "high"].into_iter().zip(SIZES) {
        files.insert(format!("/{name}-0"), vec![b'i'; 500]);
        for number in 1..=SEGMENTS {
            files.insert(format!("/{name}-{number}"), vec![b's'; size]);
        }
    }
    files
}

/// Serves files over HTTP/1.1, until the lab ends.
fn serve(lab: &Lab, port: u16, files: Files) {
    let address: SocketAddr = format!("{SERVER}:{port}").parse().expect("an address");
    let listener = lab.namespace(Some("origin")).listen(address);
    let files = Arc::new(files);
    thread::spawn(move || {
        loop {
            let (stream, _) = accept(&listener);
            let files = Arc::clone(&files);
            thread::spawn(move || answer(stream, &files));
        }
    });
}

/// Answers the requests of a connection.
fn answer(mut stream: TcpStream, files: &Files) {
    let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
    loop {
        let (mut head, mut range) = (String::new(), None);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            let lower = line.to_ascii_lowercase();
            if let Some(bytes) = lower.strip_prefix("range: bytes=") {
                range = bytes.trim().split_once('-').map(|(from, to)| {
                    (from.parse::<usize>().unwrap_or(0), to.parse::<usize>().ok())
                });
            }
            if line.trim().is_empty() {
                break;
            }
            head.push_str(&line);
        }
        let path = head.split(' ').nth(1).unwrap_or_default();
        let response = match (files.get(path), range) {
            (None, _) => b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec(),
            (Some(bytes), None) => {
                let length = bytes.len();
                let head = format!(
                    "HTTP/1.1 200 OK\r\nAccept-Ranges: bytes\r\nETag: \"{length}\"\r\n\
                     Content-Length: {length}\r\n\r\n"
                );
                [head.as_bytes(), bytes].concat()
            }
            (Some(bytes), Some((from, to))) => {
                let length = bytes.len();
                let end = to.map_or(length, |last| (last + 1).min(length));
                let part = &bytes[from.min(end)..end];
                let head = format!(
                    "HTTP/1.1 206 Partial Content\r\nETag: \"{length}\"\r\n\
                     Content-Range: bytes {from}-{}/{length}\r\nContent-Length: {}\r\n\r\n",
                    end.saturating_sub(1),
                    part.len(),
                );
                [head.as_bytes(), part].concat()
            }
        };
        if stream.write_all(&response).is_err() {
            return;
        }
    }
}

fn play(lab: &Lab, path: &str, options: &str) -> Finished {
    lab.device(&format!("manyways probe video http://{SERVER}:81{path} --json {options}"))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is a number"))
}

#[test]
fn a_film_is_played_alone_by_each_network_or_by_all_together() {
    needs!(Need::Root, Need::Command("ip"));
    let lab = Lab::start(&LINKS);
    serve(&lab, 81, film());
    let alone = results(&play(&lab, "/film.mpd", "--rule fixed:1").expect_success());
    assert_eq!(alone.len(), 2);
    for result in &alone {
        assert_eq!(result["ending"], "complete", "{result:#}");
        let video = &result["video"];
        assert_eq!(video["complete"], true, "{video:#}");
        assert_eq!(video["played"], 2.5);
        assert_eq!(video["segments"].as_array().map(Vec::len), Some(SEGMENTS));
        // The first segment is of the lowest bitrate: nothing is known before it.
        assert_eq!(video["bitrate"], 1_360_000, "{video:#}");
        let bytes = SIZES[0] + 4 * SIZES[1] + 2 * 500;
        let all: u64 = video["segments"]
            .as_array()
            .expect("segments")
            .iter()
            .map(|segment| segment["bytes"].as_u64().expect("a number"))
            .sum();
        assert_eq!(all, bytes as u64);
        assert!(number(&video["startup"]) >= 0.01, "{video:#}");
        for direction in ["up", "down"] {
            let used = |cost: &str| result[cost][direction].as_u64();
            assert!(used("used") <= used("predicted"), "{result:#}");
        }
    }
    let scheduler = "--rule fixed:1 --scheduler fixed-chunk=16KiB";
    let together = results(&play(&lab, "/film.mpd", scheduler).expect_success());
    assert_eq!(together.len(), 1);
    let paths = &together[0]["video"]["paths"];
    for network in ["wifi", "lte"] {
        assert!(paths[network]["bytes"].as_u64() > Some(30_000), "{paths:#}");
    }
}

#[test]
fn films_of_one_file_are_played_by_ranges() {
    needs!(Need::Root, Need::Command("ip"));
    let folder = folder();
    let film = folder.path().join("film");
    let mut make = manyways();
    make.args(["probe", "video", "make"]).arg(&film);
    make.args(["--rungs", "400k,1600k", "--duration", "2s", "--segment", "1s", "--single-file"]);
    finish(&mut make).expect_success();
    let mut files = Files::new();
    for name in [
        "base.mpd",
        "bytes.m3u8",
        "400k/bytes.m3u8",
        "1600k/bytes.m3u8",
        "400k/video.mp4",
        "1600k/video.mp4",
    ] {
        files.insert(format!("/{name}"), fs::read(film.join(name)).expect("a file of the film"));
    }
    let lab = Lab::start(&LINKS[..2]);
    serve(&lab, 81, files);
    for (manifest, format) in [("/base.mpd", "dash"), ("/bytes.m3u8", "hls")] {
        let result = results(&play(&lab, manifest, "--rule fixed:1").expect_success()).remove(0);
        let video = &result["video"];
        assert_eq!((&video["format"], &video["complete"]), (&format.into(), &true.into()));
        assert_eq!(video["played"], 2.0, "{video:#}");
        let bytes = video["segments"][1]["bytes"].as_u64();
        assert!((150_000..300_000).contains(&bytes.unwrap_or_default()), "{video:#}");
    }
}

#[test]
fn a_segment_that_vanishes_ends_the_film_and_keeps_the_rest() {
    needs!(Need::Root, Need::Command("ip"));
    let lab = Lab::start(&LINKS[..2]);
    let mut files = film();
    files.retain(|name, _| !name.ends_with("-4"));
    serve(&lab, 81, files);
    let result = results(&play(&lab, "/film.mpd", "").expect_success()).remove(0);
    assert_eq!(result["ending"], "failed", "{result:#}");
    let message = result["message"].as_str().expect("a sentence");
    assert!(message.contains("segment 4") && message.contains("404"), "{message}");
    let video = &result["video"];
    assert_eq!((&video["played"], &video["complete"]), (&1.5.into(), &false.into()), "{video:#}");
    assert_eq!(video["failures"], 4, "{video:#}");
}

#[test]
fn a_manifest_that_cannot_be_played_is_one_sentence() {
    needs!(Need::Root, Need::Command("ip"));
    let lab = Lab::start(&LINKS[..2]);
    let mpd = String::from_utf8(film()["/film.mpd"].clone()).expect("it is text");
    let bomb = format!("<!DOCTYPE MPD [<!ENTITY a 'aaaaaaaaaa'>]>{mpd}");
    let playlist = "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:2,\n1.ts\n#EXT-X-ENDLIST\n";
    let cases: [(&str, Vec<u8>, &str); 6] = [
        ("/text", b"hello".to_vec(), "neither an MPD"),
        ("/broken", mpd[..200].into(), "cannot be played"),
        ("/live", mpd.replace("static", "dynamic").into(), "live"),
        ("/bomb", bomb.into(), "cannot be played"),
        ("/large", vec![b' '; 9 << 20], "larger than"),
        ("/ts", playlist.into(), "MPEG-2 transport streams"),
    ];
    let files = cases.iter().map(|(name, bytes, _)| ((*name).to_owned(), bytes.clone()));
    serve(&lab, 81, files.collect());
    for (name, _, words) in cases {
        let result = results(&play(&lab, name, "")).remove(0);
        let message = result["message"].as_str().expect("a sentence");
        assert!(message.contains(words), "{name}: {message}");
        assert_eq!(result["ending"], "failed", "{name}");
    }
    let missing = results(&play(&lab, "/missing", "")).remove(0);
    assert!(missing["message"].as_str().is_some_and(|text| text.contains("404")), "{missing:#}");
}

#[test]
fn a_film_is_simulated_with_several_rules() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    let sizes: Vec<[u64; 3]> = vec![[600_000, 1_500_000, 6_000_000]; 40];
    let film = json!({
        "segment_duration_ms": 2_000, "bitrates_kbps": [300, 750, 3_000],
        "segment_sizes_bits": sizes,
    });
    let trace = json!([
        {"duration_ms": 20_000, "bandwidth_kbps": 4_000, "latency_ms": 40},
        {"duration_ms": 20_000, "bandwidth_kbps": 500, "latency_ms": 90},
    ]);
    fs::write(path("film.json"), film.to_string()).expect("room for a file");
    fs::write(path("trace.json"), trace.to_string()).expect("room for a file");
    fs::write(path("still.json"), r#"[{"duration_ms": 1, "bandwidth_kbps": 0, "latency_ms": 1}]"#)
        .expect("room for a file");
    let simulate = |film: &str, trace: &str, options: &[&str]| {
        let mut command = manyways();
        command.args(["probe", "video"]).arg(path(film)).arg("--simulate").arg(path(trace));
        finish(command.args(options))
    };
    let html = path("film.html").display().to_string();
    let rules =
        ["--rule", "bba,robust-mpc,fixed:2", "--duration", "60s", "--json", "--html", &html];
    let done = simulate("film.json", "trace.json", &rules).expect_success();
    let document: Value = serde_json::from_str(&done.stdout).expect("it is JSON");
    assert_eq!(document["schema"], "manyways.probe-video-simulation/1");
    let results = document["results"].as_array().expect("a list");
    assert_eq!(results.len(), 3);
    for result in results {
        assert_eq!((&result["complete"], &result["played"]), (&true.into(), &60.0.into()));
        assert_eq!(result["segments"].as_array().map(Vec::len), Some(30));
    }
    assert!(number(&results[2]["stalled"]) > 15.0, "the highest bitrate stalls");
    assert!(number(&results[0]["stalled"]) < 2.0, "BBA abandons segments that are too slow");
    assert!(fs::read_to_string(&html).is_ok_and(|page| page.contains("robust-mpc")));

    for (film, trace, words) in [
        ("missing.json", "trace.json", "is not a film"),
        ("trace.json", "trace.json", "is not a film"),
        ("film.json", "film.json", "is not a trace"),
        ("film.json", "still.json", "never carries a byte"),
    ] {
        let failed = simulate(film, trace, &[]);
        assert_eq!(failed.status.code(), Some(2), "{film} {trace}");
        assert!(
            failed.stderr.contains(words) && failed.stderr.contains("hint"),
            "{}",
            failed.stderr
        );
    }
    let refused = simulate("film.json", "trace.json", &["--rule", "fastest"]);
    assert!(refused.stderr.contains("the rules are cba"), "{}", refused.stderr);
    let refused = simulate("film.json", "trace.json", &["--start", "2m"]);
    assert!(refused.stderr.contains("--start is above"), "{}", refused.stderr);
}
