//! Runs a probe on the networks of the command line.

use std::io::IsTerminal;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueHint;
use indicatif::{ProgressBar, ProgressStyle};
use manyways_model::probe::cost::Cost;
use manyways_net::fetch::Location;
use manyways_net::probe::{
    self, Document, Ending, Measurement, Network, PauseControl, Probe, Report,
};
use manyways_record::document;
use manyways_report::number::{bytes, joules, seconds};
use manyways_sys::interface::{self, Interface, Kind};
use manyways_sys::signal::{TERMINAL_STOP, stop_self};
use manyways_unit::Size;
use manyways_unit::human;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;
use crate::radio::named_profile;
use crate::report_file::check_folder;

/// Options of all probes.
#[derive(clap::Args)]
pub struct Options {
    /// Measure only this network; can be repeated [default: all that can be used]
    #[arg(long, value_name = "IFACE")]
    via: Vec<String>,
    /// Stop after this number of bytes of both directions on a network
    #[arg(long, value_name = "BYTES", value_parser = human::bytes)]
    cap: Option<Size>,
    /// Repeat a measurement, up to five times, if other programs used the network meanwhile
    #[arg(long)]
    isolated: bool,
    /// Begin also while another probe uses the network, instead of after it
    #[arg(long, conflicts_with = "isolated")]
    parallel: bool,
    /// Profile of the radio, for the predicted energy: a name of `manyways radio profiles`, or a file
    #[arg(long, value_name = "PROFILE")]
    radio_profile: Option<String>,
    /// Print the predicted cost, and measure nothing
    #[arg(long)]
    pub cost: bool,
    /// Write a row for each network into a Parquet table
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub parquet: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

impl Options {
    /// The options of the library.
    pub fn settings(&self) -> Result<probe::Options> {
        let radio = self.radio_profile.as_deref().map(named_profile::find).transpose()?;
        Ok(probe::Options {
            cap: self.cap,
            spent: Size::ZERO,
            isolated: self.isolated,
            parallel: self.parallel,
            radio: radio.map(|known| known.profile),
            pause: None,
        })
    }

    /// The networks of the command line, or all that can be used.
    pub fn networks(&self, name_servers: &[IpAddr]) -> Result<Vec<Network>> {
        networks(&self.via, name_servers)
    }

    /// The networks of the command line, or all that can be used; for an address of this host its
    /// loopback, because nothing else leads there.
    pub fn networks_to(&self, location: &Location) -> Result<Vec<Network>> {
        let host = &location.origin().host;
        let is_loopback = host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
        if self.via.is_empty() && (is_loopback || host == "localhost") {
            let all = interface::list().map_err(|error| Failure::new(error.to_string()))?;
            let loopback = all.into_iter().find(|one| one.kind == Kind::Loopback);
            if let Some(loopback) = loopback {
                return Ok(vec![Network::new(loopback)]);
            }
        }
        self.networks(&[])
    }
}

/// Runs `probe` on each network, and prints the results: as JSON, or what `text` makes of them.
pub fn measure(
    probe: &dyn Probe,
    options: &Options,
    name_servers: &[IpAddr],
    text: impl FnOnce(&[Report]) -> String,
) -> Result<ExitCode> {
    let networks = || options.networks(name_servers);
    measure_on(probe, options, networks, |_| Ok(()), text)
}

/// As [`measure`], on the networks that `networks` returns. `save` gets the results before they are
/// printed.
pub fn measure_on(
    probe: &dyn Probe,
    options: &Options,
    networks: impl FnOnce() -> Result<Vec<Network>>,
    save: impl FnOnce(&[Report]) -> Result<()>,
    text: impl FnOnce(&[Report]) -> String,
) -> Result<ExitCode> {
    let plan = probe.plan().map_err(|error| Failure::usage(error.to_string()))?;
    let settings = options.settings()?;
    if options.cost {
        print!("{}", cost_text(&plan.cost(settings.radio.as_ref())));
        return Ok(ExitCode::SUCCESS);
    }
    options.parquet.as_deref().map(check_folder).transpose()?;
    let (reports, is_stopped) = block_on(run_all(probe, &networks()?, &settings))??;
    if let Some(file) = &options.parquet {
        probe::write_table(file, &reports)
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    save(&reports)?;
    match options.json {
        true => {
            let document = Document::new(probe.name(), probe.target(), &reports);
            print!("{}", document::to_json(&document)?);
        }
        false => {
            print!("{}{}", text(&reports), remarks(&reports));
        }
    }
    if is_stopped {
        return Ok(ExitCode::from(130));
    }
    let is_measured = reports.iter().any(|report| report.measurement.is_some());
    Ok(ExitCode::from(u8::from(!is_measured)))
}

/// Runs a future on a runtime of this thread.
pub fn block_on<F: Future>(future: F) -> Result<F::Output> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the runtime cannot start")?;
    let output = runtime.block_on(future);
    runtime.shutdown_background();
    Ok(output)
}

/// Signals that end a probe.
pub struct EndSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl EndSignals {
    pub fn catch() -> Result<Self> {
        let catch = |kind| signal(kind).context("signals cannot be caught");
        let (interrupt, terminate) =
            (catch(SignalKind::interrupt())?, catch(SignalKind::terminate())?);
        Ok(Self { interrupt, terminate })
    }

    pub async fn recv(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

async fn run_all(
    probe: &dyn Probe,
    networks: &[Network],
    settings: &probe::Options,
) -> Result<(Vec<Report>, bool)> {
    let mut end = EndSignals::catch()?;
    let (control, signal) = PauseControl::new();
    let mut pauses = match probe.can_pause() {
        true => Some(Pauses::new(control)?),
        false => None,
    };
    let settings = probe::Options { pause: Some(signal), ..settings.clone() };
    let mut reports = Vec::new();
    for network in networks {
        let bar = bar(probe, network);
        let stop = async {
            match &mut pauses {
                Some(pauses) => tokio::select! {
                    () = end.recv() => {}
                    () = pauses.run() => {}
                },
                None => end.recv().await,
            }
        };
        let (shown, name) = (bar.clone(), network.interface().name.clone());
        let progress: Arc<dyn Fn(&Measurement) + Send + Sync> = Arc::new(move |measurement| {
            if let Some(text) = progress_text(measurement) {
                shown.set_message(format!("{name}: {text}"));
            }
        });
        let report = probe::measure(probe, network, &settings, stop, progress).await;
        bar.finish_and_clear();
        let report = report.map_err(|error| Failure::usage(error.to_string()))?;
        let is_stopped = matches!(report.ending, Ending::Stopped);
        reports.push(report);
        if is_stopped {
            return Ok((reports, true));
        }
    }
    Ok((reports, false))
}

/// Stops the process for the terminal (Ctrl-Z) only when the probe has paused, so that no answer is
/// late.
struct Pauses {
    stops: Signal,
    control: PauseControl,
}

impl Pauses {
    fn new(control: PauseControl) -> Result<Self> {
        let stops = signal(SignalKind::from_raw(TERMINAL_STOP));
        Ok(Self { stops: stops.context("signals cannot be caught")?, control })
    }

    /// Never returns.
    async fn run(&mut self) {
        loop {
            if self.stops.recv().await.is_none() {
                std::future::pending::<()>().await;
            }
            self.control.pause().await;
            if let Err(error) = stop_self() {
                tracing::debug!("the process cannot be stopped: {error}");
            }
            self.control.resume();
        }
    }
}

/// The state of a long probe, for terminals.
fn progress_text(measurement: &Measurement) -> Option<String> {
    match measurement {
        Measurement::Video(video) => super::video::progress(video),
        _ => None,
    }
}

/// Shows that a long probe runs.
fn bar(probe: &dyn Probe, network: &Network) -> ProgressBar {
    let bar = spinner();
    bar.set_message(format!("{}: {}", network.interface().name, probe.name()));
    bar
}

/// A sign of life with a message, on terminals.
pub fn spinner() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

/// The networks of the command line, or all that can be used.
fn networks(names: &[String], name_servers: &[IpAddr]) -> Result<Vec<Network>> {
    let all = interface::list().map_err(|error| Failure::new(error.to_string()))?;
    let network = |interface: Interface| match name_servers {
        [] => Network::new(interface),
        servers => Network::with_name_servers(interface, servers.to_vec()),
    };
    if names.is_empty() {
        let usable: Vec<Network> =
            all.into_iter().filter(|one| one.usable.is_ok()).map(network).collect();
        if usable.is_empty() {
            return Err(Failure::new("no network of this host can be used")
                .hint("`manyways paths` shows why")
                .into());
        }
        return Ok(usable);
    }
    let mut chosen = Vec::new();
    for name in names {
        let Some(found) = all.iter().find(|one| one.name == *name) else {
            let known: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
            let hint = format!("the interfaces are {}", known.join(", "));
            return Failure::refuse(format!("there is no interface `{name}`"), hint);
        };
        chosen.push(network(found.clone()));
    }
    Ok(chosen)
}

pub fn cost_text(cost: &Cost) -> String {
    let mut text = format!(
        "On each network at most {} sent, {} received, {}",
        bytes(cost.up.as_bytes()),
        bytes(cost.down.as_bytes()),
        seconds(cost.duration.as_secs_f64()),
    );
    if let Some(energy) = cost.energy {
        text.push_str(&format!(", {} of the radio", joules(energy.as_joules())));
    }
    text.push_str(".\n");
    text
}

/// A sentence for each result that is incomplete or disturbed.
pub fn remarks<'a>(reports: impl IntoIterator<Item = &'a Report>) -> String {
    let mut text = String::new();
    for report in reports {
        let name = &report.context.interface;
        match (&report.ending, report.ending.message()) {
            (Ending::Complete, _) => {}
            (_, Some(message)) => text.push_str(&format!("{name}: {message}.\n")),
            (_, None) => text.push_str(&format!("{name}: stopped.\n")),
        }
        if let Some(hint) = report.ending.hint() {
            text.push_str(&format!("hint: {hint}\n"));
        }
        if let Some(foreign) = report.foreign.filter(|foreign| foreign.is_noticeable()) {
            text.push_str(&format!(
                "{name}: other programs sent {} and received {} meanwhile; --isolated repeats the probe.\n",
                bytes(foreign.up.as_bytes()),
                bytes(foreign.down.as_bytes()),
            ));
        }
    }
    text
}

/// A duration in a table; a line if it is unknown.
pub fn cell(span: Option<manyways_unit::Span>) -> String {
    span.map_or_else(|| "–".to_owned(), manyways_report::number::span)
}
