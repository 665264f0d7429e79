//! Films, played over emulated networks and in virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

use manyways_rig::film_page::FilmPlayer;
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

/// Addresses of the clients of a server.
type Clients = Arc<Mutex<BTreeSet<IpAddr>>>;

/// Serves files over HTTP/1.1, until the lab ends.
fn serve(lab: &Lab, port: u16, files: Files) -> Clients {
    let address: SocketAddr = format!("{SERVER}:{port}").parse().expect("an address");
    let listener = lab.namespace(Some("origin")).listen(address);
    let (files, clients) = (Arc::new(files), Clients::default());
    let seen = Arc::clone(&clients);
    thread::spawn(move || {
        loop {
            let (stream, from) = accept(&listener);
            seen.lock().expect("no client panics").insert(from.ip());
            let files = Arc::clone(&files);
            thread::spawn(move || answer(stream, &files));
        }
    });
    clients
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
    make.args(["--rungs", "10k,40k", "--duration", "60s", "--segment", "30s", "--single-file"]);
    finish(&mut make).expect_success();
    let mut files = Files::new();
    for name in [
        "base.mpd",
        "bytes.m3u8",
        "10k/bytes.m3u8",
        "40k/bytes.m3u8",
        "10k/video.mp4",
        "40k/video.mp4",
    ] {
        files.insert(format!("/{name}"), fs::read(film.join(name)).expect("a file of the film"));
    }
    let lab = Lab::start(&LINKS[..2]);
    serve(&lab, 81, files);
    for (manifest, format) in [("/base.mpd", "dash"), ("/bytes.m3u8", "hls")] {
        let options = "--rule fixed:1 --buffer 60s";
        let result = results(&play(&lab, manifest, options).expect_success()).remove(0);
        // The probe does not wait until the buffer has played.
        assert!(number(&result["used"]["duration"]) < 30.0, "{result:#}");
        let video = &result["video"];
        assert_eq!((&video["format"], &video["complete"]), (&format.into(), &true.into()));
        assert_eq!(video["played"], 60.0, "{video:#}");
        let bytes = video["segments"][1]["bytes"].as_u64();
        assert!((100_000..200_000).contains(&bytes.unwrap_or_default()), "{video:#}");
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

/// A film with pictures of 8 s, which `probe video make` makes in a folder.
fn real_film(folder: &Path) -> Files {
    let mut make = manyways();
    make.args(["probe", "video", "make"]).arg(folder);
    make.args(["--rungs", "300k,900k", "--duration", "8s", "--segment", "2s"]);
    finish(&mut make).expect_success();
    let read = |name: &str| fs::read(folder.join(name)).expect("a file of the film");
    let mut files = Files::from([("/film.mpd".to_owned(), read("film.mpd"))]);
    for rung in ["300k", "900k"] {
        let segments = (1..=4).map(|number| format!("{rung}/{number}.m4s"));
        for name in segments.chain([format!("{rung}/init.mp4")]) {
            files.insert(format!("/{name}"), read(&name));
        }
    }
    files
}

#[test]
fn dash_js_plays_a_film_through_one_of_two_networks() {
    const NEEDS: [Need<'static>; 2] = [Need::Root, Need::Command("ip")];
    needs!(Need::All(&NEEDS), Need::Command("chromium"), Need::Command("npm"));
    let script = match FilmPlayer::DashJs.script() {
        Ok(script) => script,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    let folder = folder();
    let files = real_film(&folder.path().join("film"));
    let lab = Lab::start(&LINKS);
    let clients = serve(&lab, 81, files.clone());
    let html = folder.path().join("film.html");
    let options = format!(
        "--via lte --browser dashjs --library {} --html {}",
        script.display(),
        html.display()
    );
    let result = results(&play(&lab, "/film.mpd", &options).expect_success()).remove(0);
    assert_eq!(result["ending"], "complete", "{result:#}");
    let video = &result["video"];
    assert!(video["player"].as_str().is_some_and(|name| name.starts_with("dash.js 5.")));
    assert_eq!((&video["complete"], &video["played"]), (&true.into(), &8.0.into()), "{video:#}");
    assert!((300_000..=900_000).contains(&video["bitrate"].as_u64().unwrap_or_default()));
    assert!(number(&video["startup"]) >= 0.03, "a round trip: {video:#}");
    let segments = video["segments"].as_array().expect("segments");
    let length = |name: &str| files[name].len() as u64;
    let mut bytes = video["wasted"].as_u64().unwrap_or_default();
    for (index, segment) in segments.iter().enumerate() {
        let rung = if segment["bitrate"] == 300_000 { "300k" } else { "900k" };
        assert_eq!(segment["bytes"], length(&format!("/{rung}/{}.m4s", index + 1)), "{video:#}");
        bytes += segment["bytes"].as_u64().unwrap_or_default();
    }
    assert_eq!(segments.len(), 4, "{video:#}");
    // We read the manifest, and then dash.js does, which also needs initializations.
    let path = &video["paths"]["lte"];
    let more = path["bytes"].as_u64().unwrap_or_default() - bytes;
    let initializations = more - 2 * length("/film.mpd");
    assert!((500..10_000).contains(&initializations), "{initializations} in {video:#}");
    for direction in ["up", "down"] {
        let used = |cost: &str| result[cost][direction].as_u64();
        assert!(used("used") <= used("predicted"), "{result:#}");
    }
    assert!(result["used"]["down"].as_u64() > path["bytes"].as_u64(), "{result:#}");
    let clients = clients.lock().expect("no client panics");
    assert_eq!(clients.len(), 1, "all connections are of one network: {clients:?}");
    assert!(fs::read_to_string(&html).is_ok_and(|page| page.contains("played by dash.js 5.")));
}

#[test]
fn a_script_that_is_not_dash_js_is_one_sentence() {
    needs!(Need::Root, Need::Command("ip"), Need::Command("chromium"));
    let folder = folder();
    let lab = Lab::start(&LINKS[..2]);
    let playlist = "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:2,\n1.m4s\n#EXT-X-ENDLIST\n";
    let mut files = film();
    files.insert("/hls".to_owned(), playlist.into());
    serve(&lab, 81, files);
    for (path, script, words) in [
        ("/film.mpd", "alert(", "is not dash.js: SyntaxError"),
        ("/film.mpd", "let x = 1", "is not dash.js"),
        ("/film.mpd", "var dashjs = {MediaPlayer() {}, Version: '4.7.4'}", "is not dash.js 5"),
        ("/hls", "", "the film is HLS"),
    ] {
        let file = folder.path().join("player.js");
        fs::write(&file, script).expect("room for a file");
        let options = format!("--browser dashjs --library {}", file.display());
        let result = results(&play(&lab, path, &options)).remove(0);
        let message = result["message"].as_str().expect("a sentence");
        assert!(message.contains(words), "{script}: {message}");
        assert_eq!(result["ending"], "failed", "{script}");
    }
}

#[test]
fn options_without_a_counterpart_in_dash_js_are_refused() {
    let probe = |options: &str| {
        let mut command = manyways();
        command.current_dir("/").args(["probe", "video", "http://192.0.2.1/film.mpd"]);
        finish(command.args(["--browser", "dashjs"]).args(options.split_whitespace()))
    };
    for option in [
        "--resume-below 3s",
        "--start 1s",
        "--restart 1s",
        "--abandon free",
        "--scheduler mp-h2",
        "--transport mptcp",
        "--simulate trace.json",
        "--cacert ca.pem",
    ] {
        let refused = probe(option);
        let words = "has no counterpart in dash.js\nhint: leave out";
        assert_eq!(refused.code(), 2, "{option}");
        assert!(refused.stderr.contains(words), "{option}: {}", refused.stderr);
    }
    for (options, code, words) in [
        ("--rule bba", 2, "the rules throughput, bola, dynamic and fixed:RUNG\nhint: name one"),
        ("--rule robust-mpc", 2, "the rules throughput, bola"),
        ("", 1, "dash.js is not installed in this folder\nhint: run `npm install dashjs@5`, or"),
        ("--library /none.js", 1, "cannot read /none.js: "),
        ("--library /etc/passwd --chromium none", 1, "no browser none\nhint: name the file of a"),
        ("--library /etc/passwd --chromium none", 1, "with --chromium"),
    ] {
        let refused = probe(options);
        assert_eq!(refused.code(), code, "{options}");
        assert!(refused.stderr.contains(words), "{options}: {}", refused.stderr);
    }
    let predicted = probe("--cost --rule bola --abandon never").expect_success();
    assert!(predicted.stdout.contains("On each network at most"), "{}", predicted.stdout);
    let refused = finish(manyways().args(["probe", "video", "http://a.lab/", "--library", "x.js"]));
    assert!(refused.stderr.contains("--browser <PLAYER>"), "{}", refused.stderr);
}
