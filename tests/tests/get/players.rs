//! `--serve`: dash.js and hls.js in a browser play a film over both networks.

use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;
use std::thread;

use manyways_net::browser::{Browser, Home, Options};
use manyways_rig::film_page::{FilmPlayer, PAGE};
use manyways_tests::testbed::{PATIENCE, eventually};
use manyways_tests::{Lab, finish, manyways};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::needs_far;
use crate::testbed::{SLOW_LINKS, Testbed};

/// Becomes true when the film has ended or failed, or false before the browser counts as hung.
const ENDED: &str = "new Promise(done => {
  const look = () => {
    const film = window.manyways;
    film?.ended || film?.errors.length ? done(true) : setTimeout(look, 50);
  };
  look();
  setTimeout(() => done(false), 10000);
})";
/// The folder of the film on the server.
const FOLDER: &str = "http://198.18.0.1/films/x/";
/// Segments of the film, of 2 s each.
const SEGMENTS: usize = 3;

/// Plays the film of a page in a browser in the namespace of this thread, and returns what the page
/// recorded.
fn play(page: &str) -> Value {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let mut options = Options::default();
        options.home = Home::Empty;
        options.flags = vec!["--autoplay-policy=no-user-gesture-required".to_owned()];
        let mut browser = Browser::launch(&options).await.expect("a browser");
        let film = async {
            browser.send("Page.navigate", json!({"url": page})).await?;
            while browser.evaluate(ENDED).await? != true {}
            browser.evaluate("window.manyways").await
        };
        let film = timeout(PATIENCE, film).await.expect("the film never ends");
        browser.close().await;
        film.expect("a page")
    })
}

/// Asserts that the film was played to its end, and that each of its segments was loaded with all of
/// its bytes.
fn assert_played(film: &Value, folder: &Path) {
    assert_eq!((&film["ended"], &film["errors"]), (&true.into(), &json!([])), "{film:#}");
    assert!(film["startup"].as_f64().is_some_and(|at| at > 0.0), "{film:#}");
    let segments = film["segments"].as_array().expect("a list");
    let field = |segment: &Value, name: &str| {
        segment[name].as_f64().unwrap_or_else(|| panic!("{name} in {film:#}"))
    };
    for segment in segments {
        // Rungs are named by their rates.
        let rung = format!("{}k", (field(segment, "rate") / 1000.0).round());
        let number = (field(segment, "start") / 2.0).round() as usize + 1;
        let file = folder.join(rung).join(format!("{number}.m4s"));
        let length = fs::metadata(&file).unwrap_or_else(|error| panic!("{error}: {film:#}")).len();
        assert_eq!(segment["bytes"].as_u64(), Some(length), "{film:#}");
        assert_eq!(field(segment, "duration").round(), 2.0, "{film:#}");
    }
    let starts = (0..SEGMENTS).map(|number| 2.0 * number as f64);
    for start in starts {
        let is_there = segments.iter().any(|one| (field(one, "start") - start).abs() < 0.1);
        assert!(is_there, "{start} in {film:#}");
    }
}

#[test]
fn players_in_a_browser_play_a_film_over_both_networks() {
    needs_far!("chromium");
    let players =
        [(FilmPlayer::DashJs, "dash.js", "film.mpd"), (FilmPlayer::HlsJs, "hls.js", "master.m3u8")];
    let testbed = Testbed::new().with_config("    types { text/html html; }");
    fs::create_dir(testbed.path("root/films")).expect("room for a folder");
    let folder = testbed.path("root/films/x");
    let mut make = manyways();
    make.args(["probe", "video", "make"]).arg(&folder);
    finish(make.args(["--duration", "6s", "--segment", "2s", "--rungs", "200k,800k"]))
        .expect_success();
    fs::write(folder.join("page.html"), PAGE).expect("room for a page");
    for (player, name, _) in players {
        match player.script() {
            Ok(script) => fs::copy(script, folder.join(name)).expect("room for a script"),
            Err(reason) => return eprintln!("skipped: {reason}"),
        };
    }
    let lab = Lab::start(&[&SLOW_LINKS[..], &["--far", &testbed.nginx()]].concat());
    for (first, second) in [("wifi", "lte"), ("lte", "wifi")] {
        // Neither delivers everything, however slow the machine is.
        let when = [format!("{first}.down_bytes >= 200KB"), format!("{second}.down_bytes >= 20KB")];
        lab.set(&["--when", &when[0], "--until", &when[1], first, "state=paused"]).expect_success();
    }
    let device = lab.namespace(None);
    let [out, said] = ["out/out", "out/said"].map(|name| testbed.path(name));
    let file = |path| Stdio::from(File::create(path).expect("room for a file"));
    let mut serve = manyways();
    serve.args(["get", "--serve", "127.0.0.1:0", "--json", "--quiet"]);
    serve.args(["--origin", FOLDER, "--allow-origin", FOLDER]);
    let mut gateway = device.start(serve.stdout(file(&out)).stderr(file(&said)));
    let line = |number: usize| {
        let text = fs::read_to_string(&out).ok()?;
        serde_json::from_str::<Value>(text.lines().nth(number)?).ok()
    };
    let listening = eventually("the gateway listens", || line(0));
    let url = listening["url"].as_str().expect("a URL");
    let films = thread::scope(|scope| {
        let own = players.map(|(player, name, manifest)| {
            format!("{url}page.html{}", player.query(name, manifest))
        });
        // A page of another origin than the film.
        let (player, name, manifest) = players[1];
        let other = format!("{FOLDER}page.html{}", player.query(name, &format!("{url}{manifest}")));
        let pages = own.into_iter().chain([other]);
        let playing: Vec<_> =
            pages.map(|page| scope.spawn(|| device.run(move || play(&page)))).collect();
        let played = playing.into_iter().map(|one| one.join().expect("a film that is played"));
        played.collect::<Vec<_>>()
    });
    for film in &films {
        assert_played(film, &folder);
    }
    gateway.signal(Signal::SIGINT);
    let status = gateway.wait(PATIENCE).expect("it ends");
    assert!(status.success(), "{}", testbed.read("said"));
    let summary = line(1).expect("a summary");
    let failed = (&summary["refused_requests"], &summary["failed_transfers"]);
    assert_eq!(failed, (&0.into(), &0.into()), "{summary:#}");
    for path in summary["paths"].as_array().expect("a list") {
        assert!(path["bytes"].as_u64() > Some(10_000), "{summary:#}");
    }
    assert_eq!(summary["paths"].as_array().map(Vec::len), Some(2), "{summary:#}");
}
