//! HTTP of curl and wget from nginx, and the devices of their user agents.

use std::fs;

use manyways_tests::{Need, folder, needs};

use crate::testbed::{NEEDS, Testbed};

const PHONE: &str = "Mozilla/5.0 (iPhone; CPU iPhone OS 17_4 like Mac OS X) AppleWebKit/605.1.15 \
                     (KHTML, like Gecko) Version/17.4 Mobile/15E148 Safari/604.1";
const DESKTOP: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:125.0) Gecko/20100101 Firefox/125.0";

/// Output of `curl -w` for each request, in order.
fn curl_output(stdout: &str) -> Vec<(i64, i64, i64)> {
    let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("{stdout}"));
    let lines = stdout.lines().filter_map(|line| line.strip_prefix("curl "));
    let words = lines.map(|line| line.split_whitespace().map(number).collect::<Vec<i64>>());
    words.map(|all| (all[0], all[1], all[2])).collect()
}

#[test]
fn curl_and_wget_from_nginx() {
    needs!(NEEDS, Need::Command("nginx"), Need::Command("curl"), Need::Command("wget"));
    let folder = folder();
    let at = folder.path().display().to_string();
    fs::create_dir(folder.path().join("root")).expect("room for a folder");
    let text: String = (0..4_000).map(|number| format!("line {number}\n")).collect();
    for (name, content) in
        [("page.html", &text[..9_000]), ("film.mp4", &text), ("notes.txt", &text)]
    {
        fs::write(folder.path().join("root").join(name), content).expect("room for a file");
    }
    let config = format!(
        "daemon off; user root; worker_processes 1; pid {at}/pid; error_log /dev/null; events {{}}\n\
         http {{ access_log off; types {{ text/html html; video/mp4 mp4; text/plain txt; }}\n\
         client_body_temp_path {at}/body; proxy_temp_path {at}/proxy; fastcgi_temp_path {at}/fast;\n\
         uwsgi_temp_path {at}/uwsgi; scgi_temp_path {at}/scgi; gzip on; gzip_types text/plain;\n\
         server {{ listen 8081; root {at}/root; }} }}\n"
    );
    fs::write(folder.path().join("nginx.conf"), config).expect("room for a configuration");
    let before = format!("nginx -c {at}/nginx.conf 2>/dev/null & true");
    // One connection each: a page, a part of a film, a HEAD request, a chunked text, and a missing
    // file.
    let site = "http://198.18.0.1:8081";
    let told = "-w 'curl %{http_code} %{size_download} %{size_header}\\n' -o /dev/null";
    let curl = format!("curl -sS --http1.1 --interface 10.64.1.2 -A '{PHONE}' {told}");
    let script = format!(
        "eventually test -s {at}/pid\n\
         {curl} {site}/page.html --next {curl_rest} -r 1000-20999 {site}/film.mp4 \
         --next {curl_rest} -I {site}/film.mp4 --next {curl_rest} --compressed {site}/notes.txt \
         --next {curl_rest} {site}/nothing.html\n\
         wget -q --bind-address=10.64.2.2 -U '{DESKTOP}' -O /dev/null {site}/page.html {site}/film.mp4\n\
         curl -sS --interface 10.64.3.2 -o /dev/null {site}/page.html\n",
        curl_rest = &curl["curl ".len()..],
    );
    let links = ["phone", "desk", "robot"].map(|name| format!("{name}:delay=10ms")).to_vec();
    let testbed = Testbed {
        links,
        server_setup: &before,
        tcpdump: "--snapshot-length 0",
        ..Testbed::default()
    };
    let captured = testbed.run(&script);

    let tables = captured.tables("phone");
    let said = curl_output(&captured.stdout);
    let [flow] = tables.table("tcp") else { panic!("one connection: {:?}", tables.table("tcp")) };
    assert_eq!((flow.text("protocol"), flow.count("requests")), (Some("http"), 5));
    let http = tables.table("http");
    // As curl counts.
    let ours: Vec<_> = http
        .iter()
        .map(|row| {
            (
                row.count("status"),
                row.count("captured"),
                row.count("response_bytes") - row.count("captured"),
            )
        })
        .collect();
    let texts =
        |name: &str| http.iter().map(|row| row.text(name).unwrap_or("-")).collect::<Vec<_>>();
    assert_eq!(texts("method"), ["GET", "GET", "HEAD", "GET", "GET"]);
    assert_eq!(
        texts("content_type"),
        ["text/html", "video/mp4", "video/mp4", "text/plain", "text/html"]
    );
    assert_eq!(texts("framing"), ["length", "length", "none", "chunked", "length"]);
    assert_eq!(texts("coding"), ["-", "-", "-", "gzip", "-"]);
    assert_eq!(texts("ending"), ["whole"; 5]);
    let part = ["range_first", "range_last", "part_first", "part_last", "size"];
    let whole = text.len() as i64;
    assert_eq!(part.map(|name| http[1].count(name)), [1_000, 20_999, 1_000, 20_999, whole]);
    assert_eq!(http[2].count("declared"), whole);
    assert_eq!(http[1].text("resource"), http[2].text("resource"));
    assert_ne!(http[0].text("resource"), http[2].text("resource"));
    for row in http {
        assert!(row.millis("response_time") >= 20.0 - 0.1, "{row:?}");
    }
    assert_eq!(ours.len(), said.len());
    for (row, ((status, seen, head), (code, size, header))) in
        http.iter().zip(ours.iter().zip(&said))
    {
        assert_eq!((status, seen), (code, size));
        // A chunk with a length of four digits has six bytes before it and two after it; the last
        // chunk has five in all.
        let chunks = head - header;
        let is_right =
            if row.text("framing") == Some("chunked") { chunks >= 13 } else { chunks == 0 };
        assert!(is_right && chunks < 60, "{head} besides the content, curl says {header}");
    }

    for (link, system, is_handheld) in [
        ("phone", Some("ios"), Some(true)),
        ("desk", Some("linux"), Some(false)),
        ("robot", None, None),
    ] {
        let tables = captured.tables(link);
        let [device] = tables.table("devices") else {
            panic!("{link}: {:?}", tables.table("devices"))
        };
        let handheld = device.text("handheld_evidence").map(|_| device.flag("is_handheld"));
        assert_eq!((device.text("system"), handheld), (system, is_handheld), "{link}: {device:?}");
        let evidence = system.map(|_| "user-agent");
        assert_eq!(device.text("system_evidence"), evidence, "{link}: {device:?}");
    }
}
