//! Captures that cannot be read, and folders that cannot be written.

use std::process::ExitCode;

use manyways_capture::{CaptureStats, FolderError, RunReport};
use manyways_report::number::{plural, span, utc_time};
use manyways_unit::{Span, Time};
use manyways_wire::frame::SkipReason;

use crate::failure::Failure;

/// The error if no capture is readable: a summary of zeros would look like a result.
pub fn unreadable_failure(outcome: &RunReport) -> Option<Failure> {
    const HINT: &str =
        "captures are pcap, pcapng or btsnoop files, also compressed with gzip or zstd";
    let why = |capture: &CaptureStats| {
        let fault = capture.error.as_ref().filter(|_| capture.packets == 0)?;
        Some(format!("{}: {fault}", capture.name))
    };
    let all: Option<Vec<String>> = outcome.captures.iter().map(why).collect();
    match &all?[..] {
        [] => None,
        [only] => Some(Failure::new(only).hint(HINT)),
        all => {
            all.iter().for_each(|why| eprintln!("manyways: {why}"));
            Some(Failure::new(format!("none of {} captures can be read", all.len())).hint(HINT))
        }
    }
}

/// Reports the captures that could not be read to their end.
pub fn report(outcome: &RunReport) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for capture in &outcome.captures {
        let Some(fault) = &capture.error else { continue };
        eprintln!("manyways: {}: {fault}", capture.name);
        code = ExitCode::FAILURE;
    }
    if code == ExitCode::FAILURE {
        eprintln!("hint: the results cover the packets before this error");
    }
    for capture in &outcome.captures {
        let Some((first, latest)) = years_apart(capture) else { continue };
        let lasts = span(latest.since(first));
        let [first, latest] = [first, latest].map(utc_time);
        eprintln!("manyways: {}: {lasts} from {first} to {latest}", capture.name);
        eprintln!("hint: if the clock of some packets was wrong, exclude them with --from or --to");
    }
    for (opaque, packets) in outcome.counters.undecoded.iter() {
        let packets_are = plural(packets, "packet");
        match opaque {
            SkipReason::Link(_) => {
                eprintln!("manyways: cannot decode {packets_are}: {opaque}");
                code = ExitCode::FAILURE;
            }
            // Truncated, malformed and encrypted frames are in nearly every capture.
            _ if packets > outcome.counters.packets / 2 && opaque.hint().is_some() => {
                eprintln!("manyways: {packets_are}, more than half, are {opaque}");
            }
            _ => continue,
        }
        if let Some(hint) = opaque.hint() {
            eprintln!("hint: {hint}");
        }
    }
    code
}

/// Times of a capture that lasts longer than a recording probably does.
fn years_apart(capture: &CaptureStats) -> Option<(Time, Time)> {
    const LONGEST: Span = Span::from_secs(365 * 86_400);
    capture.times.filter(|(first, latest)| latest.since(*first) > LONGEST)
}

/// The failure of a folder for tables, with its hint.
pub fn of_folder(error: FolderError) -> Failure {
    let failure = Failure::new(error.to_string());
    match error {
        FolderError::HasResults(_) => {
            failure.hint("name another folder, or replace them with --force")
        }
        FolderError::Busy(_) => failure.hint("name another folder, or stop the other capture"),
        FolderError::Sets(_) => {
            failure.hint("name another folder: queries of this one would miss its sets")
        }
        FolderError::Input(_) => failure.code(2).hint("name another folder for the results"),
        _ => failure,
    }
}
