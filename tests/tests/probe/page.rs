//! Pages in a real browser, over emulated links.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use manyways_rig::Authority;
use manyways_tests::testbed::{Logged, PATIENCE, accept, eventually, eventually_gone};
use manyways_tests::{Lab, Need, finish, folder, manyways, needs};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::results;

const NEEDS: Need<'static> =
    Need::All(&[Need::Root, Need::Command("ip"), Need::Command("chromium")]);
/// The server of a lab, on the networks of all its links.
const SERVER: &str = "198.18.0.1:81";

const PAGE: &str = "<!doctype html><title>A page</title><link rel=icon href=data:,>
<link rel=stylesheet href=style.css><script src=script.js></script>
<p>text</p><img src=picture.svg>";
const PICTURE: &str = "<svg xmlns='http://www.w3.org/2000/svg' width='300' height='200'/>";

/// The response of the site to a request of a path; `None` if it keeps silent.
fn answer(path: &str) -> Option<String> {
    let ok = |kind: &str, body: &str| {
        let length = body.len();
        format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}")
    };
    let page = |body: &str| Some(ok("text/html", body));
    match path {
        "/page" => page(PAGE),
        "/style.css" => Some(ok("text/css", "p { color: red }")),
        "/script.js" => Some(ok("text/javascript", "document.title += '!'")),
        "/picture.svg" => Some(ok("image/svg+xml", PICTURE)),
        "/endless" => {
            Some("HTTP/1.1 302 Found\r\nLocation: /endless\r\nContent-Length: 0\r\n\r\n".to_owned())
        }
        "/file" => Some(ok("application/octet-stream", "0123456789")),
        "/wanders" => page("<script>location.replace('/wanders?' + Math.random())</script>"),
        "/waits" => page("<p>text</p><img src=/never>"),
        "/large" => page("<p>text</p><img src=/heavy.png>"),
        "/heavy.png" => Some(ok("image/png", &"x".repeat(3_000_000))),
        "/dialogs" => page("<script>alert(1); confirm(2); onbeforeunload = () => 1</script>"),
        _ => None,
    }
}

/// Serves the site on the server host, and sends the path of each request.
fn serve(lab: &Lab) -> Receiver<String> {
    let address: SocketAddr = SERVER.parse().expect("an address");
    let listener = lab.namespace(Some("origin")).listen(address);
    let (sender, requested) = channel();
    thread::spawn(move || {
        loop {
            let (stream, _) = accept(&listener);
            let sender = sender.clone();
            // The browser may give up the connection at any time.
            thread::spawn(move || drop(converse(&stream, &sender)));
        }
    });
    requested
}

fn converse(mut stream: &TcpStream, requested: &Sender<String>) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    while let Some(line) = lines.next().transpose()? {
        let Some(target) = line.strip_prefix("GET ").and_then(|rest| rest.split(' ').next()) else {
            continue;
        };
        let path = target.split('?').next().unwrap_or_default();
        // The test may have ended.
        let _ = requested.send(path.to_owned());
        if let Some(text) = answer(path) {
            stream.write_all(text.as_bytes())?;
        }
    }
    Ok(())
}

fn probe(lab: &Lab, path: &str, options: &str) -> Vec<Value> {
    results(&lab.device(&format!("manyways probe page http://{SERVER}{path} --json {options}")))
}

fn only(lab: &Lab, path: &str, options: &str) -> Value {
    let mut results = probe(lab, path, options);
    assert_eq!(results.len(), 1, "{results:#?}");
    results.remove(0)
}

#[test]
fn a_page_has_its_times_and_a_har_file() {
    needs!(NEEDS);
    let lab = Lab::start(&["--link", "wifi:delay=20ms"]);
    let _requested = serve(&lab);
    let folder = folder();
    let har = folder.path().join("page.har");
    let html = folder.path().join("page.html");
    let options = format!(
        "--whatif cached --whatif rtt=0.5 --har {} --html {}",
        har.display(),
        html.display()
    );
    let result = only(&lab, "/page", &options);
    assert_eq!(result["ending"], "complete", "{result:#}");
    let page = &result["page"];
    let run = &page["runs"][0];
    assert_eq!((&run["title"], &run["status"]), (&"A page!".into(), &200.into()), "{page:#}");
    assert_eq!((&run["objects"], &run["failed"]), (&4.into(), &0.into()), "{page:#}");
    assert_eq!(run["proxied"], false, "{page:#}");
    let time = |name: &str| run[name].as_f64().unwrap_or_else(|| panic!("{name} in {page:#}"));
    for name in ["connect", "first_byte"] {
        assert!(time(name) >= 0.040, "{name} in {page:#}");
    }
    // The script, which the page waits for, comes two round trips after the page.
    assert!(time("dom_interactive") >= 0.120, "{page:#}");
    assert!(time("dom_interactive") <= time("page_load"), "{page:#}");
    let paint = time("first_contentful_paint");
    assert_eq!(time("page_interactive"), paint.max(time("dom_interactive")), "{page:#}");
    assert!(time("largest_contentful_paint") >= paint, "{page:#}");
    let explanation = &page["explanation"];
    let network = explanation["page_load"]["network"].as_f64();
    assert!(network >= Some(0.120), "{explanation:#}");
    let steps = explanation["page_load"]["steps"].as_array().expect("steps");
    assert!(steps.iter().any(|step| step["activity"] == "connect"), "{explanation:#}");
    let predicted = |index: usize| explanation["predictions"][index]["page_load"].as_f64();
    let replayed = explanation["replayed"]["page_load"].as_f64();
    assert!(predicted(0) < predicted(1) && predicted(1) < replayed, "{explanation:#}");
    let html = fs::read_to_string(&html).expect("a page");
    assert!(html.contains("/script.js") && html.contains("Critical path"), "{html}");
    let used = result["used"]["down"].as_u64();
    assert!(used > run["bytes"].as_u64() && used <= result["predicted"]["down"].as_u64());
    let shown = finish(manyways().args(["record", "show", "--json"]).arg(&har)).expect_success();
    let shown: Value = serde_json::from_str(&shown.stdout).expect("JSON");
    assert_eq!((&shown["exchanges"], &shown["body_bytes"]), (&4.into(), &267.into()), "{shown:#}");
}

#[test]
fn each_of_several_networks_has_its_own_load_through_a_proxy() {
    needs!(NEEDS);
    let lab = Lab::start(&["--link", "wifi:delay=10ms", "--link", "lte:delay=60ms"]);
    let _requested = serve(&lab);
    let results = probe(&lab, "/page", "");
    for (network, round_trip) in [("wifi", 0.020), ("lte", 0.120)] {
        let found = results.iter().find(|result| result["interface"] == network);
        let page = &found.unwrap_or_else(|| panic!("{network} in {results:#?}"))["page"];
        let run = &page["runs"][0];
        assert_eq!((&run["proxied"], &run["objects"]), (&true.into(), &4.into()), "{page:#}");
        assert!(run["connect"].as_f64() >= Some(round_trip), "{page:#}");
        assert!(run["page_load"].as_f64() >= Some(3.0 * round_trip), "{page:#}");
    }
}

#[test]
fn a_page_that_is_not_loaded_has_a_sentence_and_a_hint() {
    needs!(NEEDS);
    let lab = Lab::start(&["--link", "wifi:delay=1ms"]);
    let _requested = serve(&lab);
    for (path, sentence) in [
        ("/endless", "the page cannot be loaded: it redirects for ever"),
        ("/file", "the address is of a file to download, not of a page"),
        ("/wanders", "the page went on to another one more than 20 times"),
    ] {
        let result = only(&lab, path, "");
        let ending = (&result["ending"], &result["message"]);
        assert_eq!(ending, (&"failed".into(), &sentence.into()), "{result:#}");
        assert!(result["hint"].is_string(), "{result:#}");
    }
    // The values that were measured until then remain.
    let result = only(&lab, "/waits", "--timeout 1s");
    assert_eq!(result["message"], "the page has not loaded after 1 s", "{result:#}");
    let run = &result["page"]["runs"][0];
    assert_eq!((&run["objects"], &run["page_load"]), (&2.into(), &Value::Null), "{run:#}");
    assert!(run["dom_interactive"].is_number(), "{run:#}");
    let result = only(&lab, "/large", "--max-bytes 100KB");
    assert_eq!(result["ending"], "prediction", "{result:#}");
    assert_eq!(result["page"]["runs"][0]["status"], 200, "{result:#}");
    let result = only(&lab, "/dialogs", "");
    assert_eq!(
        (&result["ending"], &result["page"]["runs"][0]["dialogs"]),
        (&"complete".into(), &2.into())
    );
}

#[test]
fn an_untrusted_certificate_is_a_sentence() {
    needs!(Need::All(&[NEEDS, Need::Command("openssl")]));
    let lab = Lab::start(&["--link", "wifi:delay=1ms"]);
    let folder = folder();
    Authority::new(folder.path(), &["198.18.0.1"]).expect("a certificate");
    let mut server = Command::new("openssl");
    server.args(["s_server", "-www", "-accept", "198.18.0.1:443"]).current_dir(folder.path());
    server.args(["-cert", "server.pem", "-key", "server.key"]);
    let log = folder.path().join("server.log");
    let server = lab.namespace(Some("origin")).run(|| Logged::start(log, &mut server));
    server.says("ACCEPT");
    let words = "manyways probe page https://198.18.0.1/ --json";
    let result = results(&lab.device(words)).remove(0);
    let sentence = "the page cannot be loaded: the browser does not trust the server's certificate";
    assert_eq!(result["message"], sentence, "{result:#}");
    let hint = result["hint"].as_str().unwrap_or_default();
    assert!(hint.starts_with("let the user trust the certificate's authority"), "{result:#}");
}

#[test]
fn a_missing_or_a_killed_browser_is_a_sentence_and_nothing_remains() {
    needs!(NEEDS);
    let lab = Lab::start(&["--link", "wifi:delay=1ms"]);
    let requested = serve(&lab);
    let words = format!("manyways probe page http://{SERVER}/page --browser /nowhere/chromium");
    let missing = lab.device(&words);
    assert_eq!(missing.code(), 1);
    assert!(missing.stderr.contains("there is no browser /nowhere/chromium"), "{}", missing.stderr);
    assert!(missing.stderr.contains("hint: "), "{}", missing.stderr);

    let (device, folder) = (lab.namespace(None), folder());
    let log = folder.path().join("log");
    let start = || {
        let url = format!("http://{SERVER}/never");
        let running = device.start(
            manyways()
                .args(["probe", "page", &url, "--json"])
                .env("TMPDIR", folder.path())
                .stdout(File::create(&log).expect("room for a log")),
        );
        eventually("the request", || requested.try_iter().find(|path| path == "/never"));
        running
    };
    let browser = || {
        let found = Command::new("pgrep").args(["-o", "-f"]).arg(folder.path()).output();
        String::from_utf8_lossy(&found.expect("pgrep starts").stdout).trim().to_owned()
    };
    let mut running = start();
    finish(Command::new("kill").args(["-KILL", &browser()])).expect_success();
    assert!(running.wait(PATIENCE).is_some());
    let document: Value =
        serde_json::from_str(&fs::read_to_string(&log).expect("a log")).expect("JSON");
    let message = document["results"][0]["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("the browser has ended"), "{document:#}");
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "the profile is gone");

    let mut running = start();
    running.signal(Signal::SIGKILL);
    running.wait(PATIENCE);
    eventually_gone("processes of the browser", || browser().is_empty());
}
