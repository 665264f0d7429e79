//! `manyways probe video`.

mod dash_js;
mod film_file;
mod make;
mod page;
mod simulate;
mod text;

use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::Result;
use clap::{ValueEnum, ValueHint};
use manyways_model::qoe::abr::RuleName;
use manyways_model::qoe::player::{Abandoning, Config};
use manyways_net::fetch::Scheduler;
use manyways_net::probe::{Carriage, FilmPlayer, Report, Video, VideoReport};
use manyways_report::number::{rate, span};
use manyways_unit::human;
use manyways_unit::{Size, Span};

use super::http::{location, trust};
use super::run::{Options, measure_on};
use crate::failure::Failure;
use crate::report_file::{self, check_folder};

/// Play a film without a screen, and measure what its user would see
///
/// Plays MPEG-DASH or HLS with fragmented MP4, at the pace of a user: startup, bitrate, stalls. The
/// pictures are fetched and not decoded; sound is not fetched. The probe ends with the last segment: the
/// rest plays from the buffer, without the network. Every network plays the film alone, unless --transport
/// or --scheduler lets all of them play it together. With --browser, a player in a headless Chromium plays
/// it instead, to its end.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "\
Examples:
  manyways probe video https://example.org/film.mpd
  manyways probe video https://example.org/master.m3u8 --via wlan0 --rule bba --html film.html
  manyways probe video https://example.org/film.mpd --scheduler mp-h2 --json
  manyways probe video https://example.org/film.mpd --buffer 30s --resume-below 15s
  manyways probe video https://example.org/film.mpd --browser dashjs --rule bola
  manyways probe video film.json --simulate trace.json --rule bola,robust-mpc

Exit code: 0 when a film was played on at least one network; 1 when on none; 2 when the arguments are
invalid; 130 when a signal ends the probe."
)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// http:// or https:// URL of an MPD or an M3U8; with --simulate a file with the sizes of its segments
    #[arg(value_name = "URL", required = true)]
    film: Option<String>,
    /// Rule for the bitrate: cba, bba, bola, bola-e, throughput, dynamic, robust-mpc or fixed:RUNG; with
    /// --simulate also several
    #[arg(long, value_name = "RULE", default_value = "dynamic", value_delimiter = ',')]
    rule: Vec<RuleName>,
    /// Play this much of the film
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = Span::from_str)]
    duration: Span,
    /// Maximum level of the buffer
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = Span::from_str)]
    buffer: Span,
    /// Load control: fetch nothing from a full buffer until this level
    #[arg(long, value_name = "TIME", value_parser = Span::from_str)]
    resume_below: Option<Span>,
    /// Start with this much in the buffer [default: one segment]
    #[arg(long, value_name = "TIME", value_parser = Span::from_str)]
    start: Option<Span>,
    /// Continue after a stall with this much in the buffer [default: one segment]
    #[arg(long, value_name = "TIME", value_parser = Span::from_str)]
    restart: Option<Span>,
    /// When a download is too slow, abandon it for a lower bitrate
    #[arg(long, value_enum, default_value_t = Abandon::Binding)]
    abandon: Abandon,
    /// End after this time, also without the end of the film [default: twice the duration and a minute]
    #[arg(short = 'W', long, value_name = "TIME", value_parser = Span::from_str)]
    timeout: Option<Span>,
    /// Receive at most this much
    #[arg(long, value_name = "BYTES", default_value = "1GB", value_parser = human::bytes)]
    max_bytes: Size,
    /// Multipath TCP of the kernel, over all networks that it uses
    #[arg(long, value_enum, default_value_t = Transport::Tcp, conflicts_with = "scheduler")]
    transport: Transport,
    /// Play the film over all networks at once, as `manyways get --scheduler` does
    #[arg(long, value_name = "SCHEDULER")]
    scheduler: Option<Scheduler>,
    /// Play with this player in a headless Chromium instead, for a comparison
    #[arg(long, value_enum, value_name = "PLAYER")]
    browser: Option<WebPlayer>,
    /// With --browser: the script of the player [default: dash.all.min.js of dashjs in node_modules]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "browser")]
    library: Option<PathBuf>,
    /// With --browser: Chromium or Chrome [default: chromium, chromium-browser or google-chrome in PATH]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::ExecutablePath, requires = "browser")]
    chromium: Option<PathBuf>,
    /// Trust the certificates in this file instead of those of the system
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    cacert: Option<PathBuf>,
    /// Play in virtual time over the trace in this file instead of over a network
    #[arg(long, value_name = "TRACE", value_hint = ValueHint::FilePath,
          conflicts_with_all = ["scheduler", "transport"])]
    simulate: Option<PathBuf>,
    /// With --simulate: from a request to its first byte, unless the trace contains it
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = Span::from_str)]
    latency: Span,
    /// Write a page with the course of the film
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    html: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
}

#[derive(clap::Subcommand)]
enum Command {
    Make(make::Args),
}

/// Whether downloads are abandoned.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Abandon {
    /// Never
    Never,
    /// For the lower bitrate that the rule names, or a lower one
    Binding,
    /// For the bitrate that the rule then selects, as in Sabre
    Free,
}

/// A player of a page.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WebPlayer {
    /// dash.js 5
    Dashjs,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Transport {
    Tcp,
    Mptcp,
}

impl Args {
    fn player(&self, rule: RuleName) -> Config {
        Config {
            rule,
            max_buffer: self.buffer,
            resume_level: self.resume_below,
            start_level: self.start.unwrap_or_default(),
            restart_level: self.restart.unwrap_or_default(),
            abandoning: match self.abandon {
                Abandon::Never => Abandoning::Never,
                Abandon::Binding => Abandoning::Binding,
                Abandon::Free => Abandoning::Free,
            },
            ..Config::default()
        }
    }

    fn check(&self) -> Result<(), Failure> {
        if self.buffer.is_zero() {
            let hint = "for example --buffer 30s";
            return Failure::refuse("a film cannot be played without a buffer", hint);
        }
        for (option, level) in [
            ("--resume-below", self.resume_below),
            ("--start", self.start),
            ("--restart", self.restart),
        ] {
            if level.is_some_and(|level| level > self.buffer) {
                let words = format!("{option} is above the maximum level of the buffer");
                return Failure::refuse(words, "increase --buffer");
            }
        }
        Ok(())
    }
}

pub fn run(args: &Args) -> Result<ExitCode> {
    if let Some(Command::Make(args)) = &args.command {
        return make::run(args);
    }
    args.check()?;
    if args.browser.is_some() {
        dash_js::check(args)?;
    }
    let film = args.film.as_deref().unwrap_or_default();
    args.html.as_deref().map(check_folder).transpose()?;
    if let Some(trace) = &args.simulate {
        return simulate::run(args, film, trace);
    }
    let [rule] = args.rule[..] else {
        return Failure::refuse("only one rule can play over a network", "name one --rule");
    };
    let timeout = args.timeout.unwrap_or(args.duration * 2 + Span::from_secs(60));
    let mut probe = Video {
        player: args.player(rule),
        duration: args.duration,
        timeout,
        max_bytes: args.max_bytes,
        trust: trust(args.cacert.as_ref()),
        ..Video::new(location(film)?)
    };
    if args.browser.is_some() {
        probe.played_by = FilmPlayer::DashJs(dash_js::load(args)?);
    }
    let mut networks = match args.options.cost {
        true => Vec::new(),
        false => args.options.networks_to(&probe.location)?,
    };
    match (args.transport, args.scheduler) {
        (Transport::Mptcp, _) => probe.carriage = Carriage::KernelMptcp,
        (_, Some(scheduler)) => {
            probe.carriage = Carriage::Together { scheduler, networks: networks.clone() };
        }
        _ => {}
    }
    if !matches!(probe.carriage, Carriage::Network) {
        // They play the film together, once.
        networks.truncate(1);
    }
    let save = |reports: &[Report]| match &args.html {
        Some(file) => report_file::write(file, &page::of_reports(film, reports)),
        None => Ok(()),
    };
    measure_on(&probe, &args.options, || Ok(networks), save, text::of_reports)
}

/// The state of a film that plays, for terminals.
pub fn progress(video: &VideoReport) -> Option<String> {
    let session = video.session.as_ref()?;
    let (film, bitrate) = (video.film()?, video.bitrate()?);
    Some(format!(
        "{} of {}, {}, {} stalls",
        span(session.played),
        span(film.duration()),
        rate(bitrate),
        session.stalls.len(),
    ))
}
