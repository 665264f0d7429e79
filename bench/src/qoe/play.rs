//! Plays of a film in labs, several at a time, each in a process of its own.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::Path;

use manyways_rig::launch::{DriveError, system};
use manyways_rig::links::round_trip;
use manyways_rig::programs::{program, quoted};
use manyways_rig::{Authority, ServerConfig, WebServer};
use manyways_trace::LinkTrace;
use manyways_trace::scenario::{CapacitySpec, LinkSpec};
use manyways_unit::{Rate, Span};
use serde::Deserialize;

use super::cells;
use crate::figures::Figures;
use crate::shell::{Shell, side_by_side};

/// Name of the far side.
const HOST: &str = "origin.lab";
/// Port of the server with Multipath TCP, so that the sockets of the other one are plain TCP.
const MPTCP_PORT: u16 = 8443;
/// A play takes the duration of the film, its stalls and the start of everything.
const PATIENCE: Span = Span::from_secs(60);
/// Folder of the film below the shell's and the server's.
const FILM: &str = "film";

/// Mean nominal bitrate of the segments.
pub const BITRATE: &str = "bitrate, Mbit/s";
pub const STALLED: &str = "stalled, s";
pub const STALL_RATIO: &str = "stall ratio, %";
pub const PAUSED: &str = "paused, s";
/// Mean rate of the downloads, without the pauses between them.
pub const THROUGHPUT: &str = "throughput of downloads, Mbit/s";
/// Bytes of the segments by the time of the session.
pub const RECEIVED: &str = "received, Mbit/s";

/// A film, and the options of its player.
#[derive(Clone, Debug)]
pub struct Film {
    pub ladder: String,
    pub duration: Span,
    pub segment: Span,
    pub buffer: Span,
    pub rule: String,
    pub jobs: usize,
}

impl Film {
    pub fn new(cells: &cells::Film, ladder: &str) -> Self {
        Self {
            ladder: ladder.to_owned(),
            duration: cells.duration,
            segment: cells.segment,
            buffer: cells.buffer,
            rule: cells.rule.clone(),
            jobs: cells.jobs,
        }
    }

    /// Options of `probe video` without the rule.
    pub fn options(&self) -> String {
        format!("--duration {} --buffer {} --json", value(self.duration), value(self.buffer))
    }

    /// Makes the film, a certificate and the configurations of the servers in the folder.
    ///
    /// # Errors
    /// The inner one is the reason why the film could not be made.
    pub fn prepare(&self, shell: &Shell<'_>) -> Result<Result<(), String>, DriveError> {
        let Self { ladder, duration, segment, .. } = self;
        let authority = Authority::new(shell.folder(), &[HOST])?;
        let plain = [([0; 4], 80).into()];
        for (name, port, plain) in [(PLAIN, 443, &plain[..]), (MPTCP, MPTCP_PORT, &[])] {
            let folder = shell.path(name);
            std::fs::create_dir_all(&folder).map_err(system("make a folder"))?;
            let config = ServerConfig {
                root: shell.folder(),
                plain,
                secure: &[([0; 4], port).into()],
                authority: Some(&authority),
                extra_config: "    access_log off;",
            };
            let server = WebServer::Nginx.configure(&folder, &config)?;
            let server = match program("mptcpize") {
                Some(mptcpize) if name == MPTCP => server.launched_by(&mptcpize, &["run"]),
                _ => server,
            };
            let words = server.command().iter().map(|word| quoted(OsStr::new(word)));
            let line = words.collect::<Vec<_>>().join(" ");
            shell.write(&format!("{name}.sh"), format!("exec {line} 2>>{name}/stderr\n"))?;
        }
        let script = format!(
            "\"$MANYWAYS\" probe video make {FILM} --ladder {ladder} --duration {} --segment {}",
            value(*duration),
            value(*segment)
        );
        Ok(shell.run(&script, PATIENCE)?.map(drop))
    }
}

/// A time as the value of an option.
pub fn value(span: Span) -> String {
    format!("{}s", span.as_secs_f64())
}

/// The servers.
const PLAIN: &str = "plain";
const MPTCP: &str = "mptcp";

/// The URL of the manifest at a server with TLS and HTTP/2.
pub fn url(is_mptcp: bool) -> String {
    match is_mptcp {
        true => format!("https://{HOST}:{MPTCP_PORT}/{FILM}/film.mpd"),
        false => format!("https://{HOST}/{FILM}/film.mpd"),
    }
}

/// The same without TLS, and over HTTP/1.1.
pub fn http_url() -> String {
    format!("http://{HOST}/{FILM}/film.mpd")
}

/// The manifest with the lengths of the segments, as a file in the folder.
pub fn listing() -> String {
    format!("{FILM}/list.mpd")
}

/// A lab, and the plays that begin in it at the same time.
pub struct Plays {
    /// Values of `--link`.
    pub links: Vec<String>,
    /// Where the traces begin.
    pub offset: Span,
    /// Whether the server has Multipath TCP.
    pub is_mptcp: bool,
    /// Scripts; each prints the document of a play.
    pub scripts: Vec<String>,
}

/// The figures of a play, or the reason why it failed.
pub type Outcome = Result<Figures, String>;

/// Runs labs, some at a time, and returns the outcome of each play.
///
/// # Errors
/// If a lab cannot be started, or a signal ends the whole benchmark.
pub fn run(
    shell: &Shell<'_>,
    film: &Film,
    labs: &[Plays],
) -> Result<Vec<Vec<Outcome>>, DriveError> {
    let numbered: Vec<(usize, &Plays)> = labs.iter().enumerate().collect();
    let timeout = film.duration * 3 + PATIENCE;
    side_by_side(&numbered, film.jobs, |(number, lab)| one(shell, *number, lab, timeout))
}

fn one(
    shell: &Shell<'_>,
    number: usize,
    lab: &Plays,
    timeout: Span,
) -> Result<Vec<Outcome>, DriveError> {
    let mut all = String::new();
    for (index, script) in lab.scripts.iter().enumerate() {
        let name = format!("lab{number}-{index}");
        shell.write(&format!("{name}.sh"), script)?;
        let _ = writeln!(all, "sh -eu {name}.sh >{name}.json 2>{name}.log &");
    }
    let main = format!("lab{number}.sh");
    shell.write(&main, all + "wait\n")?;
    let server = if lab.is_mptcp { MPTCP } else { PLAIN };
    let mut command = shell.command(shell.manyways());
    command.args(["lab", "shell", "--trace-offset", &value(lab.offset)]);
    for link in &lab.links {
        command.args(["--link", link]);
    }
    command.args(["--far", &format!("sh {server}.sh"), "--", "sh", "-eu", &main]);
    let ran = shell.finish(&mut command, timeout)?;
    let figures = |index| {
        let name = format!("lab{number}-{index}");
        let text = std::fs::read(shell.path(&format!("{name}.json"))).unwrap_or_default();
        figures(&text).map_err(|wrong| {
            match (&ran, last_line(&shell.path(&format!("{name}.log")))) {
                (Err(reason), _) => reason.clone(),
                (_, Some(line)) => line,
                _ => wrong,
            }
        })
    };
    Ok((0..lab.scripts.len()).map(figures).collect())
}

fn last_line(log: &Path) -> Option<String> {
    let text = std::fs::read_to_string(log).ok()?;
    text.lines().rfind(|line| !line.trim().is_empty()).map(str::to_owned)
}

/// The output of `probe video --json`, also with `--simulate`.
#[derive(Debug, Deserialize)]
struct Document {
    results: Vec<Played>,
}

#[derive(Debug, Deserialize)]
struct Played {
    video: Option<Session>,
    /// In virtual time.
    #[serde(flatten)]
    simulated: Option<Session>,
}

#[derive(Debug, Deserialize)]
struct Session {
    complete: bool,
    startup: Option<f64>,
    played: f64,
    bitrate: Option<f64>,
    throughput: Option<f64>,
    switches: f64,
    stalled: f64,
    stall_ratio: f64,
    paused: f64,
    segments: Vec<Segment>,
}

#[derive(Debug, Deserialize)]
struct Segment {
    bytes: f64,
    complete: f64,
}

/// The figures of a play.
///
/// # Errors
/// The document cannot be read, or the film was not played to its end.
pub fn figures(json: &[u8]) -> Result<Figures, String> {
    let document: Document =
        serde_json::from_slice(json).map_err(|error| format!("no result: {error}"))?;
    let outcome = document.results.into_iter().next();
    let session =
        outcome.and_then(|one| one.video.or(one.simulated)).ok_or("no film was played")?;
    let (Some(startup), Some(bitrate), true) = (session.startup, session.bitrate, session.complete)
    else {
        return Err(format!("the film ended after {:.1} s", session.played));
    };
    let bytes: f64 = session.segments.iter().map(|segment| segment.bytes).sum();
    let last = session.segments.iter().map(|segment| segment.complete).fold(0.0, f64::max);
    Ok(Figures::of([
        (BITRATE, bitrate / 1e6),
        (STALLED, session.stalled),
        (STALL_RATIO, session.stall_ratio * 100.0),
        ("startup, s", startup),
        ("switches", session.switches),
        (PAUSED, session.paused),
        (THROUGHPUT, session.throughput.unwrap_or_default() / 1e6),
        (RECEIVED, bytes * 8.0 / last.max(1e-3) / 1e6),
    ]))
}

/// A value of `--link`. The trace of a link is written into the folder.
pub fn link_option(shell: &Shell<'_>, link: &LinkSpec) -> Result<String, DriveError> {
    let delay = Span::from_nanos(round_trip(link).as_nanos() / 2);
    let way = |capacity: &CapacitySpec, way: &str| -> Result<String, DriveError> {
        match capacity {
            CapacitySpec::Unlimited => Ok("unlimited".to_owned()),
            CapacitySpec::Constant(rate) => Ok(format!("{}bit", rate.as_bps())),
            CapacitySpec::Trace { trace, .. } => {
                let file = format!("{}-{way}.json", link.name);
                write_trace(shell, &file, trace, Span::ZERO)?;
                Ok(format!("trace:{file}"))
            }
        }
    };
    let (down, up) = (way(&link.down.capacity, "down")?, way(&link.up.capacity, "up")?);
    Ok(format!("{}:down={down},up={up},delay={}", link.name, value(delay)))
}

/// Writes a trace as JSON, with a round trip.
pub fn write_trace(
    shell: &Shell<'_>,
    file: &str,
    trace: &LinkTrace,
    round_trip: Span,
) -> Result<(), DriveError> {
    let LinkTrace::Rates(steps) = trace else { return Ok(()) };
    let latency = round_trip.as_millis_f64();
    let rows = steps.with_durations().map(|(duration, rate): (Span, &Rate)| {
        let (milliseconds, kbps) = (duration.as_millis_f64(), rate.as_bps() as f64 / 1e3);
        format!(
            "{{\"duration_ms\":{milliseconds},\"bandwidth_kbps\":{kbps},\"latency_ms\":{latency}}}"
        )
    });
    shell.write(file, format!("[{}]\n", rows.collect::<Vec<_>>().join(",\n")))
}
