//! `manyways steer run`.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use clap::ValueHint;
use manyways_model::select::model::{self, DEFAULT};
use manyways_net::bond::PublicKey;
use manyways_net::bond::control::BondRole;
use manyways_net::control::ControlSocketError;
use manyways_net::probe::{PingMethod, Portal, ProbeServer};
use manyways_net::radio::probe::host_and_port;
use manyways_net::state::state_folder;
use manyways_net::steer::daemon::{self, NewFlows, Options, SteerError};
use manyways_net::steer::event::SteerEvent;
use manyways_net::steer::input::read_model;
use manyways_net::steer::probing::Targets;
use manyways_record::event::{Header, Record, line};
use manyways_sys::sandbox;
use manyways_unit::human::quoted;
use manyways_unit::{Size, Span, human};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::LocalSet;
use tokio::time::sleep;

use super::{goal, input_failure, text};
use crate::bond::{keygen, policy};
use crate::failure::Failure;
use crate::probe::http::location;
use crate::radio::named_profile;

/// Choose the networks of new connections while this command runs
///
/// Predicts from signals, probes and traffic how long a transfer will take over each network, and lets
/// new connections of all programs use the best one for the goal. Connections that exist stay where they
/// are, except in a bond: with --bond, also running streams of its rules with `paths = "auto"` move.
/// Everything is undone at the end; after a kill, the choice expires within 15 s.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways steer run
  manyways steer run --goal balanced --policy bond.toml --radio-profile verizon-lte
  manyways steer run --server probe.example.org --server-key KEY --key client.key
  manyways steer run --bond default --bond-only
  manyways steer run --dry-run --json

Then, in another terminal: `manyways steer status`, `manyways steer why HOST`, and
`manyways steer prefer wwan0 --for 10m`.

Without --server, only traffic and the radio show the rate of a network. A burst has 60 kB, and is sent
only if pings have changed. No service is asked except those that you name.

Exit code: 0 after --for or a signal; 1 when the run fails; 2 when the arguments are invalid.")]
pub struct Args {
    /// Goal: fast, balanced, thrifty, or a file of docs/steer.md
    #[arg(long, value_name = "GOAL", default_value = "fast")]
    goal: String,
    /// Choose among these networks only; may be repeated [default: all that lead to the internet]
    #[arg(long, value_name = "IFACE")]
    via: Vec<String>,
    /// Model of completion times [default: the one that is shipped]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    model: Option<PathBuf>,
    /// Policy of a bond, for its data plans and metered paths
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    policy: Option<PathBuf>,
    /// Choose the paths of the auto rules of this bond client; may be repeated
    #[arg(long, value_name = "NAME")]
    bond: Vec<String>,
    /// Leave new connections outside bonds alone
    #[arg(long, requires = "bond")]
    bond_only: bool,
    /// Never choose two networks at once for streams of bonds
    #[arg(long, requires = "bond")]
    one_network: bool,
    /// Change nothing, and only report the choices
    #[arg(long, conflicts_with = "bond")]
    dry_run: bool,
    /// Host of the pings; with a port, TCP handshakes take their place [default: the gateway]
    #[arg(long, value_name = "HOST[:PORT]")]
    ping: Option<String>,
    /// Name to query at the name servers of each network
    #[arg(long, value_name = "NAME")]
    dns: Option<String>,
    /// Probe server that sends bursts, with its port if that is not 7464
    #[arg(long, value_name = "SERVER", requires_all = ["server_key", "key"])]
    server: Option<String>,
    /// Public key of the server, as `manyways bond keygen` printed it there
    #[arg(long, value_name = "KEY", requires = "server")]
    server_key: Option<PublicKey>,
    /// Private key of this client, as `manyways bond keygen` makes it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "server")]
    key: Option<PathBuf>,
    /// Page with status 204 and an http:// URL, to find login pages
    #[arg(long, value_name = "URL")]
    check: Option<String>,
    /// Shell command that prints indicators as lines of JSON
    #[arg(long, value_name = "CMD")]
    signals: Option<String>,
    /// Radio of cellular networks, for energy: a name of `manyways radio profiles`, or a file
    #[arg(long, value_name = "PROFILE")]
    radio_profile: Option<String>,
    /// Bytes of probes in a month on each metered network
    #[arg(long, value_name = "BYTES", default_value = "20MB", value_parser = human::bytes)]
    probe_limit: Size,
    /// Write the event log to this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    events: Option<PathBuf>,
    /// Print events as JSON, one object per line
    #[arg(long)]
    json: bool,
    /// Print only faults
    #[arg(short, long)]
    quiet: bool,
    /// Stop after this time: 90s, 15min
    #[arg(long = "for", value_name = "DURATION", value_parser = Span::from_str)]
    duration: Option<Span>,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let new_flows = match (args.bond_only, args.dry_run) {
        (true, _) => NewFlows::LeftAlone,
        (false, true) => NewFlows::Reported,
        (false, false) => NewFlows::Steered,
    };
    if new_flows == NewFlows::Steered && !sandbox::is_root() {
        let hint =
            "run it as root, for example with sudo; or try --dry-run, or --bond NAME --bond-only";
        return Err(Failure::new("the networks of new connections are chosen by root only")
            .hint(hint)
            .into());
    }
    let options = args.options(new_flows)?;
    let mut output = Output::start(args)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the runtime cannot start")?;
    let duration = args.duration;
    let ended = LocalSet::new().block_on(&runtime, async {
        let stop = stop(duration)?;
        let run = daemon::run(options, stop, &mut |record| output.event(&record)).await;
        run.map_err(|error| failure(error).into())
    });
    runtime.shutdown_background();
    ended.map(|()| ExitCode::SUCCESS)
}

impl Args {
    fn options(&self, new_flows: NewFlows) -> Result<Options> {
        let model = match &self.model {
            Some(file) => read_model(file).map_err(input_failure)?,
            None => model::parse(DEFAULT.trim_end())?,
        };
        let profile = self.radio_profile.as_deref().map(named_profile::find).transpose()?;
        let (ping, method) = self.ping_target()?;
        let name = self.dns.clone();
        if name.as_ref().is_some_and(String::is_empty) {
            return Failure::refuse("--dns has an empty name", "write --dns example.org");
        }
        let targets = Targets { ping, method, name, server: self.server()? };
        let shell = |command: &String| ["/bin/sh", "-c", command].map(str::to_owned).to_vec();
        Ok(Options {
            goal: goal(&self.goal)?,
            model: Some(model),
            via: self.via.clone(),
            policy: self.policy.as_deref().map(policy::read).transpose()?,
            bonds: self.bonds()?,
            new_flows,
            one_network: self.one_network,
            targets,
            check: self.check.as_deref().map(check).transpose()?,
            command: self.signals.as_ref().map(shell).unwrap_or_default(),
            profile: profile.map(|known| known.profile),
            monthly: self.probe_limit,
            state: state_folder(),
            version: env!("CARGO_PKG_VERSION"),
        })
    }

    fn bonds(&self) -> Result<Vec<String>, Failure> {
        for name in &self.bond {
            BondRole::Client.service(name).map_err(|error| {
                Failure::usage(error.to_string()).hint("write the name of a `manyways bond client`")
            })?;
        }
        Ok(self.bond.clone())
    }

    fn ping_target(&self) -> Result<(Option<String>, PingMethod), Failure> {
        let Some(target) = &self.ping else { return Ok((None, PingMethod::Icmp)) };
        let (host, port) = with_port(target)?;
        Ok((Some(host), port.map_or(PingMethod::Icmp, PingMethod::Tcp)))
    }

    fn server(&self) -> Result<Option<ProbeServer>, Failure> {
        let (Some(server), Some(key), Some(own)) = (&self.server, self.server_key, &self.key)
        else {
            return Ok(None);
        };
        let (host, port) = with_port(server)?;
        let port = port.unwrap_or(ProbeServer::DEFAULT_PORT);
        Ok(Some(ProbeServer { host, port, key, own_key: Arc::new(keygen::read(own)?) }))
    }
}

fn with_port(text: &str) -> Result<(String, Option<u16>), Failure> {
    let hint = "write it like example.org, 192.0.2.1:443 or [2001:db8::1]:443";
    match host_and_port(text) {
        Ok((host, port)) if !host.is_empty() => Ok((host.to_owned(), port)),
        Ok(_) => Failure::refuse(format!("`{}` names no host", quoted(text)), hint),
        Err(_) => Failure::refuse(format!("`{}` has no port after the colon", quoted(text)), hint),
    }
}

fn check(url: &str) -> Result<Portal, Failure> {
    let page = location(url).map_err(|failure| match failure.hint_text() {
        Some(_) => failure,
        None => failure.hint("write it like http://example.org/"),
    })?;
    Ok(Portal { timeout: Span::from_secs(5), ..Portal::new(page) })
}

/// Ready after SIGINT, SIGTERM, or the time.
fn stop(duration: Option<Span>) -> Result<impl Future<Output = ()>> {
    let catch = |kind| signal(kind).context("signals cannot be caught");
    let mut interrupt = catch(SignalKind::interrupt())?;
    let mut terminate = catch(SignalKind::terminate())?;
    Ok(async move {
        let end = async {
            match duration {
                Some(duration) => sleep(Duration::from(duration)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            () = end => {}
        }
    })
}

fn failure(error: SteerError) -> Failure {
    let failure = Failure::new(error.to_string());
    match error {
        SteerError::Control(ControlSocketError::AlreadyRunning(_)) => {
            failure.hint("`manyways steer status` asks it")
        }
        SteerError::Parameter(_) => failure.code(2),
        _ => failure,
    }
}

/// The receivers of events.
struct Output {
    log: Option<(PathBuf, BufWriter<File>)>,
    is_json: bool,
    is_quiet: bool,
}

impl Output {
    fn start(args: &Args) -> Result<Self, Failure> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let header = Header::new("steer run", env!("CARGO_PKG_VERSION"), Span::from(since)).line();
        let begin = |path: &Path| -> io::Result<BufWriter<File>> {
            let mut open = File::options();
            let file = open.write(true).create(true).truncate(true).mode(0o600).open(path)?;
            let mut out = BufWriter::new(file);
            out.write_all(header.as_bytes())?;
            out.flush()?;
            Ok(out)
        };
        let log = args.events.as_ref().map(|path| Ok((path.clone(), begin(path)?))).transpose();
        let log = log.map_err(|error: io::Error| {
            Failure::new(format!("the event log cannot be written: {error}"))
                .hint("name another file with --events")
        })?;
        if args.json {
            crate::output::text(&header);
        }
        Ok(Self { log, is_json: args.json, is_quiet: args.quiet })
    }

    fn event(&mut self, record: &Record<SteerEvent>) {
        let text = line(record);
        if let Some((path, out)) = &mut self.log
            && let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush())
        {
            // The choices go on without their log.
            tracing::warn!("the event log {} ends here: {error}", path.display());
            self.log = None;
        }
        if self.is_json {
            crate::output::text(&text);
        } else if let (false, Some(line)) = (self.is_quiet, text::event(record)) {
            eprintln!("{line}");
        }
    }
}
