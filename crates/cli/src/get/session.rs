//! One run of the command: its client, and one transfer after the other.

use std::env;
use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::Result;
use manyways_net::fetch::{
    Cause, Client, ClientBuilder, Event, ExistingFile, ExistingFileError, FetchError, Job,
    Location, MeteredUse, PathSelection, PathSpec, Trust,
};
use manyways_record::document;
use manyways_unit::{Rate, Size};

use super::download::Download;
use super::events::EventLog;
use super::networks::{paths_to, selection};
use super::options::Args;
use super::progress::Display;
use super::proxy;
use super::report::{self, Transfer};
use super::stdout;
use super::stop::{Stop, stopped};
use crate::failure::Failure;

/// State that all transfers of a run share.
pub struct Session<'a> {
    args: &'a Args,
    stop: Stop,
    networks: PathSelection,
    client: Option<Client>,
    events: Option<EventLog>,
    transfers: Vec<Transfer>,
}

/// A failed transfer.
struct TransferFailure {
    failure: Failure,
    /// The transfer in the JSON document.
    transfer: Transfer,
    /// Whether the whole command must end.
    stopped: bool,
}

impl<'a> Session<'a> {
    /// Creates the session. From now on a signal ends a transfer and keeps its resume state.
    pub fn new(args: &'a Args, downloads: &[Download]) -> Result<Self> {
        let stop = Stop::new()?;
        warn(args, downloads.iter().map(|one| one.job.location()));
        let subject = downloads.first().map_or("", |first| &first.url);
        let events =
            args.events.as_ref().map(|file| EventLog::create(file, subject)).transpose()?;
        let networks = selection(args);
        Ok(Self { args, stop, networks, client: None, events, transfers: Vec::new() })
    }

    /// Fetches all files; a failure does not stop the later ones.
    pub async fn run(mut self, downloads: &[Download]) -> Result<ExitCode> {
        let mut failed = false;
        for (number, one) in (0..).zip(downloads) {
            match self.fetch(number, one).await? {
                Ok(transfer) => self.transfers.push(transfer),
                Err(TransferFailure { failure, transfer, stopped }) => {
                    failed = true;
                    let failure =
                        if downloads.len() > 1 { failure.with_subject(&one.url) } else { failure };
                    failure.report();
                    self.transfers.push(transfer);
                    if stopped {
                        break;
                    }
                }
            }
        }
        if self.args.json {
            print!("{}", document::to_json(&report::Document { transfers: &self.transfers })?);
        }
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    /// Runs one transfer. The outer error is a usage error of the command line.
    async fn fetch(
        &mut self,
        number: u32,
        wanted: &Download,
    ) -> Result<Result<Transfer, TransferFailure>, Failure> {
        let Download { url, job, to_stdout } = wanted;
        if self.args.resume
            && let Some(file) = ExistingFile::find(job)
        {
            return Ok(self.check_existing(url, file).await);
        }
        // Servers in other networks may need other paths; unchanged paths keep their connections.
        let paths = tokio::select! {
            paths = paths_to(&mut self.networks, self.args, job.location()) => paths,
            () = self.stop.wait() => Err(stopped()),
        };
        let (fresh, client) = match (&mut self.client, paths) {
            (_, Err(failure)) if failure.is_usage() => return Err(failure),
            (_, Err(failure)) => {
                return Ok(Err(TransferFailure::before_start(url, failure, self.stop.is_received)));
            }
            (Some(client), Ok(None)) => (false, client),
            (client, Ok(paths)) => {
                let left = remaining_allowance(self.args.metered, &self.transfers);
                let networks = &self.networks;
                let made = build_client(self.args, paths.unwrap_or_default(), networks, left)?;
                (true, client.insert(made))
            }
        };
        if fresh
            && let Some(with) = &self.args.warm_up
            && let Err(failure) = warm_up(client, with, &mut self.stop).await?
        {
            return Ok(Err(TransferFailure::before_start(url, failure, self.stop.is_received)));
        }
        let plain = *to_stdout && std::io::stdout().is_terminal();
        let mut display = Display::new(self.args.quiet, plain);
        let events = &mut self.events;
        if let Some(log) = events {
            log.begin(number, url);
        }
        let mut rates: Vec<(String, Rate)> = Vec::new();
        let mut on_event = |event: Event<'_>| {
            if let Event::Progress(progress) = &event {
                let known = progress.paths.iter().filter_map(|p| Some((p.name.clone(), p.rate?)));
                rates = known.collect();
            }
            if let Some(log) = events.as_mut() {
                log.on_event(number, &event);
            }
            display.show(event);
        };
        let mut writing = None;
        let outcome = if *to_stdout {
            let (body, transfer) = client.stream(job, &mut on_event, self.stop.wait());
            writing = Some(stdout::write(body));
            transfer.await
        } else {
            client.fetch(job, &mut on_event, self.stop.wait()).await
        };
        let written = match writing {
            None => Ok(()),
            Some(writing) => tokio::select! {
                written = writing => match written {
                    Ok(Err(error)) => Err(stdout::failure(&error)),
                    _ => Ok(()),
                },
                () = self.stop.wait() => Err(stopped()),
            },
        };
        let failure = outcome.as_ref().err().map(ToString::to_string);
        display.finish(failure.as_deref());
        let report = match &outcome {
            Ok(report) => report,
            Err(error) => &error.report,
        };
        if let Some(log) = events {
            log.end(number, outcome.is_ok(), report.bytes);
        }
        self.networks.store_estimates(report, &rates);
        self.networks.update_selected(client.path_names());
        let file = events.as_ref().map(EventLog::path);
        // If standard output is closed, the next URL is not fetched either.
        if let Err(failure) = written
            && !matches!(&outcome, Err(error) if matches!(error.cause, Cause::Stopped))
        {
            return Ok(Err(TransferFailure::before_start(url, failure, true)));
        }
        #[cfg(feature = "steer")]
        if let Ok(report) = &outcome {
            super::advice::note_ended(self.args, job.location(), report).await;
        }
        Ok(match outcome {
            Ok(report) => {
                if !self.args.quiet {
                    let output = if *to_stdout { "standard output".as_ref() } else { job.output() };
                    report::print(&report, output);
                }
                Ok(Transfer::done(url, &report).with_events(file))
            }
            Err(error) => Err(TransferFailure {
                stopped: matches!(error.cause, Cause::Stopped),
                transfer: Transfer::failed(url, &error).with_events(file),
                failure: fetch_failure(&error),
            }),
        })
    }
}

impl Session<'_> {
    /// Reports a file that an earlier run completed, and checks its hash.
    async fn check_existing(
        &mut self,
        url: &str,
        file: ExistingFile,
    ) -> Result<Transfer, TransferFailure> {
        if !self.args.quiet {
            let (path, length) = (file.path().display(), file.length());
            eprintln!(
                "manyways: {path} already exists and appears complete ({length}), \
                 so nothing is fetched; run without -c to fetch it again"
            );
        }
        let checksum = self.args.checksum();
        let checking = tokio::task::spawn_blocking(move || file.check(checksum));
        let checked = tokio::select! {
            checked = checking => match checked {
                Ok(checked) => checked.map_err(|error| mismatch_failure(&error)),
                Err(_) => Err(stopped()),
            },
            () = self.stop.wait() => Err(stopped()),
        };
        let sha256 = checked.map_err(|failure| {
            TransferFailure::before_start(url, failure, self.stop.is_received)
        })?;
        Ok(Transfer::already_there(url, sha256))
    }
}

/// The failure for an existing file that does not match.
fn mismatch_failure(error: &ExistingFileError) -> Failure {
    let failure = Failure::new(error.to_string());
    match error {
        ExistingFileError::Checksum { .. } => {
            failure.hint("run it without -c to fetch the file again")
        }
        _ => failure,
    }
}

impl TransferFailure {
    /// A transfer that failed before it started.
    fn before_start(url: &str, failure: Failure, stopped: bool) -> Self {
        Self { transfer: Transfer::not_started(url, &failure), failure, stopped }
    }
}

fn fetch_failure(error: &FetchError) -> Failure {
    Failure::new(error.to_string()).maybe_hint(error.hint())
}

/// Prints warnings about the options and the environment.
pub fn warn<'l>(args: &Args, locations: impl Iterator<Item = &'l Location>) {
    if args.quiet {
        return;
    }
    if args.insecure {
        eprintln!(
            "manyways: certificates are not checked; any device on the path can change the file"
        );
    }
    let secure = locations.map(|location| location.origin().secure);
    if let Some(variable) = proxy::ignored(secure, env::var_os) {
        eprintln!(
            "manyways: the proxy in {variable} is not used; each network connects to the \
             server directly"
        );
    }
}

fn build_client(
    args: &Args,
    paths: Vec<PathSpec>,
    networks: &PathSelection,
    metered: MeteredUse,
) -> Result<Client, Failure> {
    prepare(args, paths, networks, Client::builder())
        .metered(metered)
        .build()
        .map_err(|error| Failure::usage(error.to_string()))
}

/// Sets the options of the command line, except the limit for metered networks.
pub fn prepare(
    args: &Args,
    paths: Vec<PathSpec>,
    networks: &PathSelection,
    builder: ClientBuilder,
) -> ClientBuilder {
    let trust = match (&args.cacert, args.insecure) {
        (_, true) => Trust::AnyCertificate,
        (Some(file), false) => Trust::File(file.clone()),
        (None, false) => Trust::System,
    };
    let builder = match networks.path_lister() {
        Some(look) => builder.path_lister(look),
        None => builder,
    };
    #[cfg(feature = "steer")]
    let builder = super::advice::advised(args, networks, builder);
    args.header
        .iter()
        .fold(builder, |builder, line| builder.header(line))
        .paths(paths)
        .trust(trust)
        .config(args.config())
        .single_server(args.single_server)
        .records(args.events.is_some())
        .http2_prior_knowledge(args.http2_prior_knowledge)
}

/// Fetches `url` over each path, so that later transfers find warm connections. The outer error is
/// as in [`Session::fetch`].
async fn warm_up(
    client: &mut Client,
    url: &str,
    stop: &mut Stop,
) -> Result<Result<(), Failure>, Failure> {
    let job = Job::new(url, "/dev/null").map_err(|error| Failure::usage(error.to_string()))?;
    let names: Vec<String> = client.path_names().map(str::to_owned).collect();
    for name in names {
        if let Err(error) = client.warm_up(&name, &job, stop.wait()).await {
            return Ok(Err(fetch_failure(&error).with_subject(&format!("warming {name} up"))));
        }
    }
    Ok(Ok(()))
}

/// The rest of the limit for metered networks after earlier transfers.
fn remaining_allowance(metered: MeteredUse, transfers: &[Transfer]) -> MeteredUse {
    let spent = Size::from_bytes(transfers.iter().map(Transfer::metered_bytes).sum());
    match metered {
        MeteredUse::Limit(limit) => MeteredUse::Limit(limit.saturating_sub(spent)),
        other => other,
    }
}
