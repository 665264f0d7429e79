//! Whether replayed exchanges are those that were recorded: status, head and encoded body, as a client
//! gets them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use manyways_rig::cell::Run;
use manyways_rig::launch::{DriveError, system};
use manyways_unit::{Random, Span};

use super::Replay;
use super::internet::{Internet, NAME};
use super::plan::Cell;
use crate::figures::{Figures, Record};
use crate::shell::Shell;

/// The contenders: curl's option for the protocol.
pub const PROTOCOLS: [&str; 2] = ["http1.1", "http2"];
/// Exchanges of each protocol.
pub const EXCHANGES: usize = 560;
/// Exchanges that differ.
pub const DIFFERENT: &str = "different";
pub const COMPARED: &str = "exchanges";

const TIMEOUT: Span = Span::from_secs(120);
/// Size of the largest body in bytes.
const MAX_BODY: f64 = 96_000.0;
/// Values that move with the time of the replay; in `Set-Cookie` only its expiry.
const MOVED: [&str; 3] = ["date", "expires", "last-modified"];
/// Left out of replays.
const REMOVED: &str = "alt-svc";

/// The kind of [`request`] without a body.
const HEAD: usize = 11;

/// Answers of nginx to the kinds of [`request`].
const NGINX: &str = r#"
    gzip on;
    gzip_types text/plain;
    if_modified_since before;
    keepalive_requests 100000;
    types { text/plain txt; text/html html; image/png png; }
    location /moved/ { return 301 /f/1.txt; }
    location /empty/ { return 204; }
    location /never/ { return 403; }
    location /text/ { return 200 "as short as it can be\n"; }
    location /fields/ {
        alias ROOT/f/;
        add_header Set-Cookie "first=1; Path=/; Expires=Wed, 01 Jan 2031 00:00:00 GMT";
        add_header Set-Cookie "second=2; HttpOnly; SameSite=Lax";
        add_header Alt-Svc 'h3=":443"; ma=86400';
        add_header X-Mixed-Case "a, b;  c=\"d\"";
        add_header Link "</a.css>; rel=preload";
        add_header Link "</b.js>; rel=preload";
        expires 1h;
    }
"#;

pub fn measure(
    replay: &Replay,
    cell: &Cell,
    record: &mut Record,
    progress: &mut dyn FnMut(u32),
) -> Result<(), DriveError> {
    cell.run_rounds(&cell.contenders, replay.tools.seed, record, progress, |_, protocol| {
        compare(replay, protocol)
    })
}

fn compare(replay: &Replay, protocol: &str) -> Result<Run<Figures>, DriveError> {
    let shell = Shell::new(&replay.tools)?;
    let root = shell.path("root");
    for folder in ["root/f", "live", "replayed"] {
        fs::create_dir_all(shell.path(folder)).map_err(system("make a folder"))?;
    }
    let mut random = Random::new(replay.tools.seed);
    let mut config = String::new();
    for index in 0..EXCHANGES {
        let (extension, content) = content(index, &mut random);
        shell.write(&format!("root/f/{index}.{extension}"), content)?;
        config += &request(index, extension, protocol);
    }
    shell.write("requests", config)?;
    let nginx = NGINX.replace("ROOT", &root.display().to_string());
    let internet = Internet::new(&shell, "wan:delay=2ms", &[Span::ZERO])?.with_nginx(&nginx, 1)?;
    let live =
        internet.run("$RECORD -o a.zip -- sh -c 'cd live; curl -sSK ../requests'", TIMEOUT)?;
    if let Err(reason) = live {
        return Ok(Figures::run(Err(reason)));
    }
    let script =
        "$MANYWAYS replay a.zip --json report -- sh -c 'cd replayed; curl -sSK ../requests'";
    if let Err(reason) = shell.run(script, TIMEOUT)? {
        return Ok(Figures::run(Err(reason)));
    }
    let mut different = 0;
    for index in 0..EXCHANGES {
        let [live, replayed] = ["live", "replayed"].map(|run| response(&shell.path(run), index));
        let (live, replayed) = (live?, replayed?);
        if live.head.is_empty() || live != replayed {
            let (live, replayed) = (live.head.join("; "), replayed.head.join("; "));
            eprintln!("exchange {index} of {protocol} differs: {live}, replayed: {replayed}");
            different += 1;
        }
    }
    Ok(Figures::run(Ok(Figures::of([
        (COMPARED, EXCHANGES as f64),
        (DIFFERENT, f64::from(different)),
    ]))))
}

/// Extension and content of a file.
fn content(index: usize, random: &mut Random) -> (&'static str, Vec<u8>) {
    let length = (random.uniform().powi(3) * MAX_BODY) as usize;
    match index % 3 {
        0 => ("txt", (0..length / 8).flat_map(|line| format!("{line:7}\n").into_bytes()).collect()),
        1 => ("png", (0..length).map(|_| (random.uniform() * 256.0) as u8).collect()),
        _ => ("html", format!("<p>{}</p>", "x".repeat(length)).into_bytes()),
    }
}

/// A request in the syntax of curl's configuration files.
fn request(index: usize, extension: &str, protocol: &str) -> String {
    let file = format!("{index}.{extension}");
    // The output of curl for HEAD is the head, with its dates.
    let output = if index % 14 == HEAD { "/dev/null" } else { &format!("{index}.body") };
    let (path, more) = match index % 14 {
        0..3 => (format!("f/{file}"), "header = \"Accept-Encoding: gzip\"\n"),
        3 | 4 => (format!("f/{file}"), ""),
        5 => (format!("missing/{file}"), ""),
        6 => (format!("moved/{file}"), ""),
        7 => (format!("empty/{file}"), ""),
        8 => (format!("never/{file}"), ""),
        9 => (format!("text/{file}"), ""),
        10 => (format!("f/{file}"), "range = 0-9\n"),
        HEAD => (format!("f/{file}"), "head\n"),
        12 => {
            (format!("f/{file}"), "header = \"If-Modified-Since: Wed, 01 Jan 2031 00:00:00 GMT\"\n")
        }
        _ => (format!("fields/{file}?q={index}"), "header = \"X-Asked: yes\"\n"),
    };
    let mut config = if index == 0 { String::new() } else { "next\n".to_owned() };
    let _ = write!(
        config,
        "silent\nshow-error\n{protocol}\nurl = \"https://{NAME}/{path}\"\n{more}output = \
         \"{output}\"\ndump-header = \"{index}.head\"\n"
    );
    config
}

/// A response as a client got it.
#[derive(Debug, PartialEq, Eq)]
struct Received {
    /// Lines of the head, without what may differ.
    head: Vec<String>,
    body: Vec<u8>,
}

fn response(folder: &Path, index: usize) -> Result<Received, DriveError> {
    let read = |extension: &str| {
        let file = folder.join(format!("{index}.{extension}"));
        match fs::read(file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            bytes => bytes.map_err(system("read a response")),
        }
    };
    let head = read("head")?;
    Ok(Received { head: comparable(&String::from_utf8_lossy(&head)), body: read("body")? })
}

/// The lines of a head, without the values that move; fields of one name behind each other.
fn comparable(head: &str) -> Vec<String> {
    let mut places = BTreeMap::new();
    let mut lines: Vec<(usize, String)> = Vec::new();
    for line in head.lines() {
        let name = line.split(':').next().unwrap_or_default().to_ascii_lowercase();
        let line = match name.as_str() {
            REMOVED => continue,
            moved if MOVED.contains(&moved) => format!("{name}: …"),
            "set-cookie" => {
                let parts = line.split("; ");
                let is_kept = |part: &&str| !part.to_ascii_lowercase().starts_with("expires=");
                parts.filter(is_kept).collect::<Vec<_>>().join("; ")
            }
            _ => line.to_owned(),
        };
        let count = places.len();
        lines.push((*places.entry(name).or_insert(count), line));
    }
    lines.sort_by_key(|(place, _)| *place);
    lines.into_iter().map(|(_, line)| line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_move_is_left_out() {
        let head = |date: &str, cookie: &str, more: &str| {
            comparable(&format!(
                "HTTP/1.1 200 OK\r\nDate: {date}\r\nSet-Cookie: {cookie}\r\nX-A: 1\r\n{more}\r\n"
            ))
        };
        let first = head("Mon", "a=1; Expires=Tue; Path=/", "");
        assert_eq!(first, head("Wed", "a=1; Expires=Thu; Path=/", "Alt-Svc: h3\r\n"));
        assert_ne!(first, head("Mon", "a=2; Expires=Tue; Path=/", ""));
        assert_ne!(first, head("Mon", "a=1; Expires=Tue", ""));
        assert_ne!(first, head("Mon", "a=1; Expires=Tue; Path=/", "X-B: 1\r\n"));
        let two = "X-B: 1\r\nX-A: 2\r\n";
        let grouped = "X-A: 2\r\nX-B: 1\r\n";
        assert_eq!(head("", "", two), head("", "", grouped));
    }
}
