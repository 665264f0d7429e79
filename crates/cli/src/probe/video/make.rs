//! `manyways probe video make`.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::atomic::Ordering;

use anyhow::Result;
use clap::ValueHint;
use clap::builder::PossibleValuesParser;
use indicatif::ProgressBar;
use manyways_net::probe::film::{Content, FilmProgress, MakeError, Maker};
use manyways_record::document;
use manyways_report::number::{plural, rate, size};
use manyways_report::text::table;
use manyways_unit::human::{InvalidValue, decimal};
use manyways_unit::{Rate, Span};
use manyways_wire::film::{Film, LADDERS, Ladder, Layout, Options, Rung, picture_for};
use serde::Serialize;

use crate::failure::Failure;
use crate::watch::{self, Display};

/// Make a film for measurements of players, with exact rates
///
/// The film has no sound. It is hollow: its black pictures cost a player next to nothing, and
/// padding gives every segment the length that its rate requires. With --real, ffmpeg encodes noise
/// instead. The folder gets film.mpd, list.mpd (with the length of each segment) and master.m3u8;
/// with --single-file base.mpd and bytes.m3u8.
#[derive(clap::Args)]
#[command(after_help = "\
Ladders: mp-h2 has 9 rungs from 253 kbit/s to 10 Mbit/s in segments of 6 s, mobilyzer 5 rungs up to 2193 kbit/s in segments
of 5 s, apple the 9 of Apple's specification up to 7.8 Mbit/s in segments of 6 s, dash-if 10 rungs up to 4K with
14.9 Mbit/s in segments of 4 s.

Examples:
  manyways probe video make film
  manyways probe video make film --ladder mobilyzer --single-file
  manyways probe video make film --rungs 300k,750k,1.5M,4M --duration 90s --segment 2s --vbr 0
  manyways probe video make film --rungs 300k,1.5M --duration 30s --real

Exit code: 0 when the film was made; 1 when it could not be made; 2 when the arguments are invalid; 130 when a signal
ended it. A film that was not made leaves nothing.")]
pub struct Args {
    /// Folder of the film, which is new or empty
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    folder: PathBuf,
    /// Rates, pictures and segments of a published film
    #[arg(long, value_name = "NAME", default_value = "mp-h2", conflicts_with = "rungs",
        value_parser = PossibleValuesParser::new(LADDERS.map(|ladder| ladder.name)))]
    ladder: String,
    /// Other rates, like 300k or 2.5M
    #[arg(long, value_name = "RATE,…", value_delimiter = ',', value_parser = rung_rate)]
    rungs: Vec<Rate>,
    /// Duration of the film
    #[arg(short, long, value_name = "TIME", default_value = "2min", value_parser = Span::from_str)]
    duration: Span,
    /// Duration of a segment [default: that of the ladder, or 4s]
    #[arg(short, long, value_name = "TIME", value_parser = Span::from_str)]
    segment: Option<Span>,
    /// Standard deviation of the lengths of segments, relative to their mean; 0: a constant rate
    #[arg(long, value_name = "CV", default_value_t = 0.2, conflicts_with = "real")]
    vbr: f64,
    /// Seed of these lengths
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "real")]
    seed: u64,
    /// One file for each rung instead of one for each segment
    #[arg(long)]
    single_file: bool,
    /// Encode pictures with ffmpeg (Debian's package ffmpeg)
    #[arg(long)]
    real: bool,
    /// Print one JSON document instead of the table
    #[arg(long)]
    json: bool,
}

/// The output of `probe video make --json`.
#[derive(Serialize)]
struct Document<'a> {
    folder: String,
    /// Names of files in the folder.
    manifests: &'static [&'static str],
    duration: f64,
    /// Of a segment; the last one may be shorter.
    segment_duration: f64,
    segments: usize,
    /// Of the segments.
    bytes: u64,
    rungs: Vec<RungDocument<'a>>,
}

manyways_record::document!(Document<'_>, "manyways.probe-video-film/1");

#[derive(Serialize)]
struct RungDocument<'a> {
    /// Also that of its folder.
    name: &'a str,
    width: u16,
    height: u16,
    codecs: &'a str,
    /// Declared in MPDs.
    bitrate: u64,
    mean_bitrate: u64,
    peak_bitrate: u64,
    bytes: u64,
    /// Bytes of what precedes the first segment.
    initialization_bytes: u64,
    segment_bytes: Vec<u64>,
}

/// Segments of rungs that are not of a ladder.
const SEGMENT: Span = Span::from_secs(4);

pub fn run(args: &Args) -> Result<ExitCode> {
    let options = args.options();
    let outline = options.outline().map_err(|error| failure(error.into()))?;
    let layout = match args.single_file {
        true => Layout::SingleFile,
        false => Layout::Segments,
    };
    let content = if args.real { Content::Real } else { Content::Hollow };
    let progress = FilmProgress::default();
    let total = outline.spans().len() * outline.rungs.len();
    let update = |bar: &ProgressBar| bar.set_position(progress.segments.load(Ordering::Relaxed));
    let display = Display { bar: bar(total as u64), interval: 50, update: &update };
    let maker = Maker { folder: &args.folder, layout, content, progress: &progress };
    let (made, signal) = watch::watched(display, &progress.stop, false, || maker.make(&options))?;
    match made {
        Ok(film) => {
            match args.json {
                true => print!("{}", document::to_json(&args.document(&film))?),
                false => print!("{}", text(&film, args)),
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(error @ MakeError::Stopped) => {
            eprintln!("manyways: {error}");
            Ok(watch::stopped(signal, ExitCode::FAILURE))
        }
        Err(error) => Err(failure(error).into()),
    }
}

impl Args {
    fn options(&self) -> Options {
        let ladder: Option<&Ladder> =
            LADDERS.iter().find(|ladder| self.rungs.is_empty() && ladder.name == self.ladder);
        let (steps, segment) = match ladder {
            Some(ladder) => (ladder.steps.to_vec(), ladder.segment),
            None => (self.rungs.iter().map(|rate| picture_for(*rate)).collect(), SEGMENT),
        };
        let segment = self.segment.unwrap_or(segment.min(self.duration));
        let mut options = Options::new(steps, self.duration, segment);
        (options.variation, options.seed) = (self.vbr, self.seed);
        options
    }

    fn manifests(&self) -> &'static [&'static str] {
        match self.single_file {
            true => &["base.mpd", "bytes.m3u8"],
            false => &["film.mpd", "list.mpd", "master.m3u8"],
        }
    }

    fn document<'a>(&self, film: &'a Film) -> Document<'a> {
        let rung = |rung: &'a Rung| RungDocument {
            name: &rung.name,
            width: rung.width,
            height: rung.height,
            codecs: &rung.codec,
            bitrate: rung.rate.as_bps(),
            mean_bitrate: rung.mean(film).as_bps(),
            peak_bitrate: rung.peak(film).as_bps(),
            bytes: rung.length().as_bytes(),
            initialization_bytes: rung.init.as_bytes(),
            segment_bytes: rung.segments.iter().map(|size| size.as_bytes()).collect(),
        };
        Document {
            folder: self.folder.display().to_string(),
            manifests: self.manifests(),
            duration: film.duration.as_secs_f64(),
            segment_duration: film.segment.as_secs_f64(),
            segments: film.spans().len(),
            bytes: film.length().as_bytes(),
            rungs: film.rungs.iter().map(rung).collect(),
        }
    }
}

/// A rate with its unit, or like `300k` and `2.5M`, as manifests and encoders write it.
fn rung_rate(text: &str) -> std::result::Result<Rate, InvalidValue> {
    let short = match (text.strip_suffix('k'), text.strip_suffix('M')) {
        (Some(number), _) => decimal(number, 1_000),
        (_, Some(number)) => decimal(number, 1_000_000),
        _ => None,
    };
    match short {
        Some(bps) => Ok(Rate::from_bps(bps)),
        None => text.parse().map_err(|_| {
            InvalidValue::new(text, "a rate", "it in bits a second, like 300k, 2.5M or 10mbit")
        }),
    }
}

fn failure(error: MakeError) -> Failure {
    let hint = error.hint();
    let failure = match error {
        MakeError::Film(_) | MakeError::Pictures(_) | MakeError::NotEmpty(_) => {
            Failure::usage(error.to_string())
        }
        _ => Failure::new(error.to_string()),
    };
    failure.maybe_hint(hint)
}

fn bar(total: u64) -> ProgressBar {
    match std::io::stderr().is_terminal() {
        true => ProgressBar::new(total)
            .with_style(watch::style("{bar:30} {pos}/{len} segments {eta} left")),
        false => ProgressBar::hidden(),
    }
}

fn text(film: &Film, args: &Args) -> String {
    let rows = film.rungs.iter().map(|rung| {
        vec![
            rung.name.clone(),
            format!("{}x{}", rung.width, rung.height),
            rate(rung.rate),
            rate(rung.mean(film)),
            rate(rung.peak(film)),
            size(rung.length()),
        ]
    });
    let rungs = table(&["RUNG", "PICTURE", "DECLARED", "MEAN", "PEAK", "LENGTH"], rows);
    let (last, others) = args.manifests().split_last().unwrap_or((&"", &[]));
    format!(
        "{rungs}{} of {} in {}: {} and {last}.\n",
        plural(film.spans().len() as u64, "segment"),
        film.segment,
        args.folder.display(),
        others.join(", "),
    )
}
