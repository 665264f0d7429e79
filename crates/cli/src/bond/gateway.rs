//! `manyways bond gateway`: the end on a server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::ValueHint;
use manyways_net::bond::allow::AllowFile;
use manyways_net::bond::control::{Answer, Control, ControlError, End, Request};
use manyways_net::bond::door::Door;
use manyways_net::bond::gateway::{self, GatewayConfig, GatewayError, Onlooker};
use manyways_net::bond::metrics;
use manyways_sys::privilege;
use manyways_unit::Prefix;

use super::{keygen, listening};
use crate::failure::Failure;

/// Run the end of a bond that is on a server.
///
/// It lets in the clients whose keys are in the allow-file, and takes their connections on to the
/// internet: not to private networks nor to this server itself, unless told to.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways bond gateway --listen 0.0.0.0:4433 --key gateway.key --allow allow
  manyways bond gateway --listen '[::]:4433' --key gateway.key --allow allow --user nobody
  manyways bond gateway … --open 10.8.0.0/16     (clients may go to this network too)

The allow-file has a line for each client: its public key, a name, and limits where they shall
differ, as in `KEY phone sessions=2 streams=1000 rate=20mbit`. It is read again when it changes; the
sessions of keys that are gone end.")]
pub struct Args {
    /// Where to listen. May be given more than once.
    #[arg(long, value_name = "ADDR:PORT", required = true, value_parser = listening::anywhere)]
    listen: Vec<SocketAddr>,
    /// The gateway's private key, as `manyways bond keygen` makes it.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    key: PathBuf,
    /// The public keys that are let in.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    allow: PathBuf,
    /// Let clients go to this private network or address too. May be given more than once.
    #[arg(long, value_name = "PREFIX")]
    open: Vec<Prefix>,
    /// What it is called, for `manyways bond status --gateway`, where several run on a host.
    #[arg(long, value_name = "NAME", default_value = "default")]
    name: String,
    /// Serve metrics for Prometheus here, at /metrics.
    #[arg(long, value_name = "ADDR:PORT", value_parser = listening::here)]
    metrics: Option<SocketAddr>,
    /// Become this user once the sockets are open.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Say nothing but errors and warnings.
    #[arg(short, long)]
    pub quiet: bool,
}

/// Answers `bond status --gateway`. A gateway does not fail for want of that.
fn control(name: &str, user: Option<&str>, onlooker: Onlooker) -> Result<Option<Control>> {
    let started = Control::start(End::Gateway, name, user, move |request| {
        let onlooker = onlooker.clone();
        async move {
            let answer = match request {
                Request::Status => Answer::GatewayStatus(onlooker.status()),
                Request::Why(_) | Request::Hold(_) => Answer::Refused {
                    sentence: "a gateway has no policy".to_owned(),
                    hint: Some("ask the client".to_owned()),
                },
            };
            answer.into()
        }
    });
    match started {
        Ok(control) => Ok(Some(control)),
        Err(error @ ControlError::Name(_)) => Err(Failure::usage(error.to_string()).into()),
        Err(error) => {
            tracing::warn!("{error}, so that `bond status --gateway` does not show this one");
            Ok(None)
        }
    }
}

fn not_listening(error: GatewayError) -> Failure {
    let failure = Failure::new(error.to_string());
    match error {
        GatewayError::Listen(at, why) => {
            failure.hint(listening::hint(at, &why, "is another gateway running there already?"))
        }
        _ => failure,
    }
}

pub fn run(args: Args) -> Result<ExitCode> {
    let key = keygen::read(&args.key)?;
    let public = key.public();
    let allow = AllowFile::open(&args.allow)
        .map_err(|error| Failure::new(error.to_string()).hint(error.hint()))?;
    if allow.guests().is_empty() && !args.quiet {
        eprintln!("manyways: {} lets nobody in yet", args.allow.display());
    }
    let door = Door { open: args.open };
    // Each stream is a socket here.
    if let Err(error) = privilege::raise_file_limit() {
        tracing::warn!("the limit of open files stays as it is: {error}");
    }
    super::local(async move {
        let stop = super::stopped()?;
        let config = GatewayConfig { listen: args.listen, key, allow, door };
        let listening = gateway::listen(config).map_err(not_listening)?;
        let control = control(&args.name, args.user.as_deref(), listening.onlooker())?;
        if let Some(at) = args.metrics {
            let onlooker = listening.onlooker();
            let text = move || {
                let text = metrics::gateway(&onlooker.status());
                async move { text }
            };
            super::serve_metrics(at, args.quiet, text).await?;
        }
        if let Some(user) = &args.user {
            privilege::drop_to(user).context("the gateway cannot give up root")?;
        }
        if !args.quiet {
            let at: Vec<String> = listening.addresses().iter().map(ToString::to_string).collect();
            eprintln!("manyways: gateway {public} listens on {}", at.join(", "));
        }
        let _control = control;
        listening.run(stop).await;
        Ok(ExitCode::SUCCESS)
    })
}
