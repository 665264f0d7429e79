//! The result: a few lines of text, and one line of JSON.

use std::path::{Path, PathBuf};

use manyways_net::fetch::{FetchError, PathReport, Report, ValidatorKind, VersionProof};
use manyways_unit::{Rate, Size, Span};
use serde::Serialize;

use super::progress::share;
use crate::failure::Failure;

/// The output of `--json`, described in docs/get.md.
#[derive(Serialize)]
pub struct Document<'a> {
    pub transfers: &'a [Transfer],
}

manyways_record::document!(Document<'_>, "manyways.get/2");

#[derive(Default, Serialize)]
pub struct Transfer {
    url: String,
    bytes: u64,
    seconds: f64,
    ttfb_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    already_there: bool,
    validator: Option<String>,
    validator_kind: Option<&'static str>,
    changed: bool,
    version: Option<&'static str>,
    metered_bytes: u64,
    duplicate_bytes: u64,
    retries: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    events_file: Option<PathBuf>,
    paths: Vec<PathLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorLine>,
}

#[derive(Serialize)]
struct PathLine {
    name: String,
    server: Option<String>,
    protocol: Option<&'static str>,
    bytes: u64,
    requests: u64,
    rate_bps: u64,
    rtt_seconds: Option<f64>,
    overshoot_bytes: u64,
    duplicate_bytes: u64,
}

#[derive(Serialize)]
struct ErrorLine {
    message: String,
    hint: Option<String>,
    resumable: bool,
}

impl Transfer {
    pub fn done(url: &str, report: &Report) -> Self {
        Self {
            url: url.to_owned(),
            bytes: report.bytes.as_bytes(),
            seconds: report.elapsed.as_secs_f64(),
            ttfb_seconds: report.first_byte.map(Span::as_secs_f64),
            sha256: report.sha256.map(hex),
            already_there: false,
            validator: report.validator.clone(),
            validator_kind: report.validator_kind.map(ValidatorKind::name),
            changed: report.changed,
            version: report.version.map(VersionProof::name),
            metered_bytes: report.metered.as_bytes(),
            duplicate_bytes: report.duplicate.as_bytes(),
            retries: report.retries,
            events_file: None,
            paths: report.paths.iter().map(PathLine::from).collect(),
            error: None,
        }
    }

    pub fn failed(url: &str, error: &FetchError) -> Self {
        let line = ErrorLine {
            message: error.to_string(),
            hint: error.hint(),
            resumable: error.part_file.is_some(),
        };
        Self { error: Some(line), ..Self::done(url, &error.report) }
    }

    /// A transfer that failed before any request was sent.
    pub fn not_started(url: &str, failure: &Failure) -> Self {
        let line = ErrorLine {
            message: failure.to_string(),
            hint: failure.hint_text().map(str::to_owned),
            resumable: false,
        };
        Self { url: url.to_owned(), error: Some(line), ..Self::default() }
    }

    /// A transfer that was not needed because the file exists.
    pub fn already_there(url: &str, sha256: Option<[u8; 32]>) -> Self {
        let sha256 = sha256.map(hex);
        Self { url: url.to_owned(), sha256, already_there: true, ..Self::default() }
    }

    /// Adds the name of the event log.
    pub fn with_events(self, file: Option<&Path>) -> Self {
        Self { events_file: file.map(Path::to_owned), ..self }
    }

    pub fn metered_bytes(&self) -> u64 {
        self.metered_bytes
    }
}

impl From<&PathReport> for PathLine {
    fn from(path: &PathReport) -> Self {
        Self {
            name: path.name.clone(),
            server: path.server.map(|server| server.to_string()),
            protocol: path.protocol.map(|protocol| protocol.name()),
            bytes: path.bytes.as_bytes(),
            requests: path.requests,
            rate_bps: path.rate.as_bps(),
            rtt_seconds: path.rtt.map(Span::as_secs_f64),
            overshoot_bytes: path.overshoot.as_bytes(),
            duplicate_bytes: path.duplicate.as_bytes(),
        }
    }
}

/// Prints a few lines on stderr, because standard output is reserved for JSON.
pub fn print(report: &Report, output: &Path) {
    let rate = Rate::of(report.bytes, report.elapsed);
    let before = report.length.unwrap_or(report.bytes).saturating_sub(report.bytes);
    let before = match before {
        Size::ZERO => String::new(),
        before => format!(" ({before} were already there)"),
    };
    eprintln!(
        "{}: {}{before} in {:.2} s, {rate}",
        output.display(),
        report.bytes,
        report.elapsed.as_secs_f64()
    );
    let width = report.paths.iter().map(|path| path.name.len()).max().unwrap_or(0);
    for path in &report.paths {
        eprintln!("  {:width$}  {}", path.name, path_text(path, report.bytes));
    }
    if !report.metered.is_zero() {
        eprintln!("  over metered networks: {}", report.metered);
    }
    if !report.duplicate.is_zero() {
        eprintln!("  not needed: {}", report.duplicate);
    }
    if let Some(hash) = report.sha256 {
        eprintln!("  sha256:{}", hex(hash));
    }
}

/// The line of a network after its name; `all` are the bytes of all networks.
fn path_text(path: &PathReport, all: Size) -> String {
    let metered = match (path.metered, path.limit_reached) {
        (true, true) => ", metered, limit reached",
        (true, false) => ", metered",
        (false, _) => "",
    };
    let Some(server) = path.server else { return format!("not used{metered}") };
    let (share, bytes) = (share(path.bytes, all), path.bytes.to_string());
    format!("{share:>5}  {bytes:>10}  {}  from {server}{metered}", path.rate)
}

fn hex(hash: [u8; 32]) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
