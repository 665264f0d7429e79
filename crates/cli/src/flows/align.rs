//! `manyways flows align`: alignment of captures from several points.

mod document;
mod text;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use manyways_capture::{Alignment, Folder, Progress, Site, Sources};
use manyways_flows::align::{Delay, Place};
use manyways_record::table::{Batch, Schema};

use crate::failure::Failure;

/// Number of rows that are written together.
const ROWS: usize = 1 << 16;

/// How long bytes took from one capture point to the next, and how far the clocks there are apart.
///
/// Captures are given in the order of the path, beginning at the server. The same streams are found
/// by the numbers of TCP, or by their bytes where a proxy is between two points. TCP and Bluetooth
/// (btsnoop, Linux's monitor) are followed; data that a proxy encrypts again cannot be matched.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways flows align server.pcap client.pcap
  manyways flows align server=a.pcap phone-in=b.pcap phone-out=c.btsnoop wearable=d.pcap
  manyways flows align server=a.pcap phone-in=b.pcap phone-out=c.btsnoop --log proxy.csv --json

With these places delays are named as parts of that from a server to a wearable: d1 to the phone,
d2+d3 in it, d4 to the wearable; docs/align.md describes the log that separates d2 from d3.
Exit code: 0; 1 when a capture cannot be read to its end, or nothing was recognised; 2 for invalid
arguments.")]
pub struct Args {
    /// A capture, and where it was taken: server, phone-in, phone-out, wearable or nothing.
    #[arg(required = true, value_name = "[PLACE=]CAPTURE")]
    captures: Vec<String>,
    /// These captures were stamped by one clock. Those of a phone always are.
    #[arg(long, value_name = "CAPTURE,CAPTURE", value_delimiter = ',')]
    same_clock: Vec<String>,
    /// When the phone's proxy read and wrote: `time,stream,offset,point` lines.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Write each delay as a row of a table into this folder.
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
    let sites = sites(&args.captures, &args.same_clock)?;
    // A capture may be given as a folder with one capture in it.
    let paths: Vec<PathBuf> = args.captures.iter().map(|capture| path_of(capture).into()).collect();
    let mut folder = super::folder(args.output.as_deref(), args.force, &paths)?;
    let progress = Progress::default();
    let alignment =
        manyways_capture::align(&sites, args.log.as_deref(), &progress).map_err(|error| {
            let failure = Failure::new(error.to_string());
            error.hint().into_iter().fold(failure, Failure::hint)
        })?;
    let document = document::document(&alignment);
    if let Some(folder) = &mut folder {
        write(&alignment, folder).map_err(super::folder_failure)?;
    }
    if let Some(folder) = folder {
        let manifest = serde_json::to_string_pretty(&document)? + "\n";
        folder.finish(&manifest).map_err(super::folder_failure)?;
    }
    let text = match args.json {
        true => serde_json::to_string(&document)? + "\n",
        false => text::text(&alignment),
    };
    crate::output::text(&text);
    let mut code = ExitCode::SUCCESS;
    for capture in &alignment.captures {
        let Some(fault) = &capture.fault else { continue };
        eprintln!("manyways: {}: {fault}", capture.name);
        code = ExitCode::FAILURE;
    }
    if code == ExitCode::FAILURE {
        eprintln!("hint: the results are of the packets before that");
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
fn sites(captures: &[String], same_clock: &[String]) -> Result<Vec<Site>, Failure> {
    const ORDER: &str = "places are server, phone-in, phone-out and wearable, in this order";
    let mut sites: Vec<Site> = Vec::new();
    let mut last = None;
    for capture in captures {
        let (place, path) = match capture.split_once('=') {
            Some((name, path)) => match place_of(name) {
                Some(place) => (place, path),
                // The name of a file may contain the separator, too.
                None if PathBuf::from(capture).exists() => (Place::Other, &**capture),
                None => {
                    let sentence = format!("{name} is not a place");
                    return Err(Failure::usage(sentence).hint(ORDER));
                }
            },
            None => (Place::Other, &**capture),
        };
        if place != Place::Other {
            if last >= Some(place) {
                let sentence = format!("{} is out of order", text::place(place));
                return Err(Failure::usage(sentence).hint(ORDER));
            }
            last = Some(place);
        }
        let found = Sources::find(&[path.into()])
            .map_err(|error| Failure::new(error.to_string()).hint(error.hint()))?;
        let [source] = found.captures.try_into().map_err(|_| {
            Failure::usage(format!("{path} is more than one capture"))
                .hint("give one capture for each point")
        })?;
        let clock = sites.len() as u32;
        sites.push(Site { source, place, clock });
    }
    if sites.len() < 2 {
        let error = manyways_capture::AlignError::Alone;
        let failure = Failure::usage(error.to_string());
        return Err(error.hint().into_iter().fold(failure, Failure::hint));
    }
    let number = |name: &String| {
        let is_it = |capture: &&String| {
            *capture == name
                || capture.split_once('=').is_some_and(|(place, path)| {
                    place_of(place).is_some() && (path == name || place == name)
                })
        };
        captures.iter().position(|capture| is_it(&capture)).ok_or_else(|| {
            Failure::usage(format!("--same-clock names {name}, which is not one of the captures"))
                .hint("use the names of captures or places from the arguments")
        })
    };
    let shared: Vec<usize> = same_clock.iter().map(number).collect::<Result<_, _>>()?;
    if let Some(first) = shared.first() {
        let clock = sites[*first].clock;
        shared.iter().for_each(|number| sites[*number].clock = clock);
    }
    // Both captures on a phone have its clock.
    let phone = |place| sites.iter().position(|site| site.place == place);
    if let (Some(one), Some(other)) = (phone(Place::PhoneIn), phone(Place::PhoneOut)) {
        let [kept, gone] = [sites[one].clock, sites[other].clock];
        sites.iter_mut().filter(|site| site.clock == gone).for_each(|site| site.clock = kept);
    }
    Ok(sites)
}

/// A capture without its place.
fn path_of(capture: &str) -> &str {
    let named = capture.split_once('=').filter(|(name, _)| place_of(name).is_some());
    named.map_or(capture, |(_, path)| path)
}

fn place_of(name: &str) -> Option<Place> {
    const PLACES: [Place; 4] = [Place::Server, Place::PhoneIn, Place::PhoneOut, Place::Wearable];
    PLACES.into_iter().find(|place| text::place(*place) == name)
}

#[cfg(test)]
mod tests;
