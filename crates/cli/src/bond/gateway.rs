//! `manyways bond gateway`: the endpoint on a server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::ValueHint;
use manyways_net::bond::control::{BondRole, ControlRequest, ControlResponse};
use manyways_net::bond::{AllowFile, Gateway, GatewayError, GatewayOptions, StatusHandle, metrics};
use manyways_net::control::{ControlServer, Response};
use manyways_proto::bond::egress::EgressFilter;
use manyways_proto::mux::{HopEstimate, Rebalance};
use manyways_sys::privilege;
use manyways_unit::human::{self, count_with_noun};
use manyways_unit::{Prefix, Size, Span};

use super::client::{parse_estimate, parse_rebalance};
use super::{keygen, listen};
use crate::failure::Failure;

/// Connections of a client at a time, below which programs are refused connections in everyday use.
const FEW_CONNECTIONS: u64 = 2_048;

/// Memory of a client for its buffers, below which it is slow on long paths.
const LITTLE_MEMORY: u64 = 8 << 20;

/// Run a gateway: the server side of a bond.
///
/// Authenticates clients by the keys in the allow file, and forwards their traffic to the public
/// internet. Private networks and this server itself need --permit.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways bond gateway --listen 0.0.0.0:4433 --key gateway.key --allow allow
  manyways bond gateway --listen '[::]:4433' --key gateway.key --allow allow --user nobody
  manyways bond gateway … --permit 10.8.0.0/16   (clients may connect to this network too)

The allow file has a line for each client: its public key, a name, and limits that differ from the
defaults, as in `KEY phone sessions=2 streams=1000 rate=20mbit`. The file is read again when it changes;
the sessions of removed keys end.")]
pub struct Args {
    /// Address and port to listen on. May be given more than once.
    #[arg(long, value_name = "ADDR:PORT", required = true, value_parser = listen::parse_public)]
    listen: Vec<SocketAddr>,
    /// The gateway's private key, as `manyways bond keygen` makes it.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    key: PathBuf,
    /// The allow file: the public keys of authorized clients.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    allow: PathBuf,
    /// Let clients connect to this private network or address too. May be given more than once.
    #[arg(long, value_name = "PREFIX")]
    permit: Vec<Prefix>,
    /// Let clients use no networks of other devices (`manyways bond lend`).
    #[arg(long)]
    no_lenders: bool,
    /// Name of the gateway for `manyways bond status --gateway`, if several run on this host.
    #[arg(long, value_name = "NAME", default_value = "default")]
    name: String,
    /// Serve metrics for Prometheus here, at /metrics.
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen::parse_local)]
    metrics: Option<SocketAddr>,
    /// Memory for the buffers of all clients together; by default half of what this process may use.
    #[arg(long, value_name = "SIZE", value_parser = human::bytes)]
    memory: Option<Size>,
    /// Become this user once the sockets are open.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// For tests: end QUIC connections without packets after this time.
    #[arg(long, value_name = "DURATION", hide = true)]
    quic_idle_timeout: Option<Span>,
    /// For tests: keep the session of a client without connections for this time.
    #[arg(long, value_name = "DURATION", hide = true)]
    session_linger: Option<Span>,
    /// For measurements: which messages are recalled from a lender.
    #[arg(long, value_name = "off|print|on", default_value = "on", hide = true, value_parser = parse_rebalance)]
    reinject: Rebalance,
    /// For measurements: how the wait at a lender is estimated.
    #[arg(long, value_name = "backlog|delay", default_value = "backlog", hide = true, value_parser = parse_estimate)]
    estimate: HopEstimate,
    /// Print only errors and warnings.
    #[arg(short, long)]
    pub quiet: bool,
}

/// Answers `bond status --gateway`. If the control socket fails, the gateway runs without it.
fn control(name: &str, user: Option<&str>, status: StatusHandle) -> Result<Option<ControlServer>> {
    let service = BondRole::Gateway.service(name);
    let service = service.map_err(|error| Failure::usage(error.to_string()))?;
    let started = ControlServer::start(&service, user, move |request| {
        let status = status.clone();
        async move {
            let response = match request {
                ControlRequest::Status => ControlResponse::GatewayStatus(status.status()),
                ControlRequest::Why(_) | ControlRequest::Delay(_) | ControlRequest::Choose(_) => {
                    let hint = "run the command on the device with the client".to_owned();
                    ControlResponse::refused("a gateway has no policy".to_owned(), Some(hint))
                }
            };
            response.into()
        }
    });
    match started {
        Ok(control) => Ok(Some(control)),
        Err(error) => {
            tracing::warn!("{error}, so `bond status --gateway` does not show this gateway");
            Ok(None)
        }
    }
}

fn listen_failure(error: GatewayError) -> Failure {
    let failure = Failure::new(error.to_string());
    match error {
        GatewayError::Listen(at, why) => {
            failure.hint(listen::hint(at, &why, "is another gateway already running on this port?"))
        }
        _ => failure,
    }
}

pub fn run(args: Args) -> Result<ExitCode> {
    let key = keygen::read(&args.key)?;
    let public = key.public();
    let allow = AllowFile::open(&args.allow)
        .map_err(|error| Failure::new(error.to_string()).hint(error.hint()))?;
    if allow.clients().is_empty() && !args.quiet {
        eprintln!("manyways: {} authorizes no client yet", args.allow.display());
    }
    // Each stream needs a socket.
    let open_files = privilege::raise_file_limit()
        .inspect_err(|error| tracing::warn!("cannot raise the limit of open files: {error}"));
    super::run_local(async move {
        let stop = super::stop_signal()?;
        let mut options = GatewayOptions::new(args.listen, key, allow);
        options.open_files = open_files.unwrap_or(options.open_files);
        options.memory = args.memory.unwrap_or(options.memory);
        let (open_files, memory) = (options.open_files, options.memory);
        let clients = options.allow.clients().len() as u64;
        options.egress = EgressFilter::new(args.permit);
        options.lends = !args.no_lenders;
        options.lending.rebalance = args.reinject;
        options.lending.estimate = args.estimate;
        options.quic_idle_timeout = args.quic_idle_timeout.unwrap_or(options.quic_idle_timeout);
        options.session.linger = args.session_linger.unwrap_or(options.session.linger);
        let gateway = Gateway::bind(options).map_err(listen_failure)?;
        let control = control(&args.name, args.user.as_deref(), gateway.status_handle())?;
        if let Some(at) = args.metrics {
            let status = gateway.status_handle();
            let text = move || {
                let text = metrics::gateway(&status.status());
                async move { text }
            };
            super::serve_metrics(at, args.quiet, text).await?;
        }
        if gateway.max_connections() < clients.max(1) * FEW_CONNECTIONS {
            let most = gateway.max_connections();
            tracing::warn!(
                "this process may open {open_files} files: {} can have at most {most} connections \
                 together; `ulimit -n` or LimitNOFILE= raises the limit",
                count_with_noun(clients as usize, "client")
            );
        }
        if memory.as_bytes() < clients.max(1) * LITTLE_MEMORY {
            tracing::warn!(
                "there is {memory} of memory for the buffers of {} together, so that each may be \
                 slow while others are active; --memory and the limit of this process raise it",
                count_with_noun(clients as usize, "client")
            );
        }
        if let Some(user) = &args.user {
            privilege::drop_to(user).context("the gateway cannot give up root")?;
            // It is read again after each change.
            if let Err(error) = std::fs::File::open(&args.allow) {
                let file = args.allow.display();
                let words = format!("the user {user} cannot read {file}: {error}");
                return Err(Failure::new(words)
                    .hint(format!("let that user read the file and enter its folder: {file}"))
                    .into());
            }
        }
        if !args.quiet {
            let at: Vec<String> = gateway.addresses().iter().map(ToString::to_string).collect();
            eprintln!("manyways: gateway {public} listens on {}", at.join(", "));
        }
        let _control = control;
        gateway.run(stop).await;
        Ok(ExitCode::SUCCESS)
    })
}
