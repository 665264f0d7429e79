//! `manyways flows align`: alignment of captures from several points.

mod document;
mod text;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use manyways_capture::{Alignment, Folder, PointCapture, Progress, Sources};
use manyways_flows::align::{Delay, PointLocation};
use manyways_record::document::{to_json, to_json_pretty};
use manyways_record::table::{Batch, Schema};
use manyways_report::number::plural;

use crate::failure::Failure;

/// Number of rows that are written together.
const ROWS: usize = 1 << 16;

/// Measure the delay of bytes from one capture point to the next, and the offset of the clocks.
///
/// Captures are given in the order of the path, beginning at the server. Streams are
/// matched by TCP sequence numbers, or by bytes if a proxy is between two points. TCP and Bluetooth
/// (btsnoop, Linux's monitor) are followed; data that a proxy encrypts again cannot be matched.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways flows align server.pcap client.pcap
  manyways flows align server=a.pcap phone-in=b.pcap phone-out=c.btsnoop wearable=d.pcap
  manyways flows align server=a.pcap phone-in=b.pcap phone-out=c.btsnoop --log proxy.csv --json

With these locations, the parts of the delay from server to wearable have names: d1 to the phone,
d2+d3 in the phone, d4 to the wearable; docs/align.md describes the log that separates d2 from d3.
Exit code: 0; 1 when a capture cannot be read to its end, or no stream was matched; 2 for invalid
arguments.")]
pub struct Args {
    /// A capture, with its capture point if known: server, phone-in, phone-out or wearable.
    #[arg(required = true, value_name = "[LOCATION=]CAPTURE")]
    captures: Vec<String>,
    /// Captures whose timestamps are from one clock. Captures of a phone always share one.
    #[arg(long, value_name = "CAPTURE,CAPTURE", value_delimiter = ',')]
    same_clock: Vec<String>,
    /// Log of the reads and writes of the phone's proxy: `time,stream,offset,point` lines.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Write a table with a row for each delay into this folder.
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Replace the results in the folder.
    #[arg(long, requires = "output")]
    force: bool,
    /// Print one JSON document instead of the summary.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<ExitCode> {
    let captures = capture_points(&args.captures, &args.same_clock)?;
    // A capture may be given as a folder with one capture in it.
    let paths: Vec<PathBuf> =
        args.captures.iter().map(|capture| capture_path(capture).into()).collect();
    let mut folder = super::output_folder(args.output.as_deref(), args.force, &paths)?;
    let progress = Progress::default();
    let alignment =
        manyways_capture::align(&captures, args.log.as_deref(), &progress).map_err(|error| {
            let failure = Failure::new(error.to_string());
            error.hint().into_iter().fold(failure, Failure::hint)
        })?;
    let document = document::document(&alignment);
    if let Some(folder) = &mut folder {
        write(&alignment, folder).map_err(super::report_errors::of_folder)?;
    }
    if let Some(folder) = folder {
        let manifest = to_json_pretty(&document)?;
        folder.finish(&manifest).map_err(super::report_errors::of_folder)?;
    }
    let text = match args.json {
        true => to_json(&document)?,
        false => text::text(&alignment),
    };
    crate::output::text(&text);
    let mut code = ExitCode::SUCCESS;
    for capture in &alignment.captures {
        for (reason, packets) in &capture.unread_links {
            let packets = plural(*packets, "packet");
            eprintln!("manyways: {}: cannot decode {packets}: {reason}", capture.name);
            reason.hint().into_iter().for_each(|hint| eprintln!("hint: {hint}"));
        }
        let Some(fault) = &capture.error else { continue };
        eprintln!("manyways: {}: {fault}", capture.name);
        code = ExitCode::FAILURE;
    }
    if code == ExitCode::FAILURE {
        eprintln!("hint: the results cover the packets before this error");
    }
    Ok(code)
}

fn write(alignment: &Alignment, folder: &mut Folder) -> Result<(), manyways_capture::FolderError> {
    let schema = Schema::of::<Delay>();
    let mut batch = Batch::of::<Delay>();
    for delay in alignment.report.delays(&alignment.points) {
        batch.push(&delay, None);
        if batch.rows() == ROWS {
            folder.write(&schema, &std::mem::replace(&mut batch, Batch::of::<Delay>()))?;
        }
    }
    folder.write(&schema, &batch)
}

/// Returns the points of the arguments, and their clocks.
fn capture_points(
    captures: &[String],
    same_clock: &[String],
) -> Result<Vec<PointCapture>, Failure> {
    const ORDER: &str = "locations are server, phone-in, phone-out and wearable, in this order";
    let mut sites: Vec<PointCapture> = Vec::new();
    let mut last = None;
    for capture in captures {
        let (location, path) = match capture.split_once('=') {
            Some((name, path)) => match parse_location(name) {
                Some(location) => (location, path),
                // The name of a file may contain the separator, too.
                None if PathBuf::from(capture).exists() => (PointLocation::Other, &**capture),
                None => {
                    let sentence = format!("{name} is not a location");
                    return Failure::refuse(sentence, ORDER);
                }
            },
            None => (PointLocation::Other, &**capture),
        };
        if location != PointLocation::Other {
            if last >= Some(location) {
                let sentence = format!("{} is out of order", text::role_name(location));
                return Failure::refuse(sentence, ORDER);
            }
            last = Some(location);
        }
        let found = Sources::find(&[path.into()])
            .map_err(|error| Failure::new(error.to_string()).hint(error.hint()))?;
        let [source] = found.captures.try_into().map_err(|_| {
            Failure::usage(format!("{path} is more than one capture"))
                .hint("give one capture for each point")
        })?;
        let clock = sites.len() as u32;
        sites.push(PointCapture { source, point: location, clock });
    }
    if sites.len() < 2 {
        let error = manyways_capture::AlignError::TooFewCaptures;
        let failure = Failure::usage(error.to_string());
        return Err(error.hint().into_iter().fold(failure, Failure::hint));
    }
    let number = |name: &String| {
        let is_it = |capture: &&String| {
            *capture == name
                || capture.split_once('=').is_some_and(|(location, path)| {
                    parse_location(location).is_some() && (path == name || location == name)
                })
        };
        captures.iter().position(|capture| is_it(&capture)).ok_or_else(|| {
            Failure::usage(format!("--same-clock names {name}, which is not one of the captures"))
                .hint("use the names of captures or locations from the arguments")
        })
    };
    let shared: Vec<usize> = same_clock.iter().map(number).collect::<Result<_, _>>()?;
    if let Some(first) = shared.first() {
        let clock = sites[*first].clock;
        shared.iter().for_each(|number| sites[*number].clock = clock);
    }
    // Both captures on a phone have its clock.
    let phone = |location| sites.iter().position(|site| site.point == location);
    if let (Some(one), Some(other)) =
        (phone(PointLocation::PhoneIn), phone(PointLocation::PhoneOut))
    {
        let [kept, gone] = [sites[one].clock, sites[other].clock];
        sites.iter_mut().filter(|site| site.clock == gone).for_each(|site| site.clock = kept);
    }
    Ok(sites)
}

/// A capture without its location.
fn capture_path(capture: &str) -> &str {
    let named = capture.split_once('=').filter(|(name, _)| parse_location(name).is_some());
    named.map_or(capture, |(_, path)| path)
}

fn parse_location(name: &str) -> Option<PointLocation> {
    const LOCATIONS: [PointLocation; 4] = [
        PointLocation::Server,
        PointLocation::PhoneIn,
        PointLocation::PhoneOut,
        PointLocation::Wearable,
    ];
    LOCATIONS.into_iter().find(|location| text::role_name(*location) == name)
}

#[cfg(test)]
mod tests;
