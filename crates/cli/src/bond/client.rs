//! `manyways bond client`: the endpoint on the device.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueHint;
use manyways_net::bond::client::{Client, ClientEvent, ClientOptions};
use manyways_net::bond::control::{
    BondRole, ControlReply, ControlRequest, ControlResponse, ControlServer, ControlSocketError,
};
use manyways_net::bond::enforcer::PolicyEnforcer;
use manyways_net::bond::host_networks::{HostNetworks, find_networks};
use manyways_net::bond::interception::{
    self, InterceptionHandle, InterceptionOptions, SharedScope, describe, excluded_selections,
};
use manyways_net::bond::journal::Journal;
use manyways_net::bond::key::PublicKey;
use manyways_net::bond::listeners::Listeners;
use manyways_net::bond::metrics;
use manyways_net::bond::usage::{UsageFile, state_folder};
use manyways_net::bond::why::EntryPoints;
use manyways_net::bond::{CarrierTransport, TransportChoice};
use manyways_proto::bond::interception::AddressFamilies;
use manyways_proto::bond::networks::NetworkSelection;
use manyways_proto::policy::Policy;
use manyways_proto::sched::Kind;
use manyways_sys::interface;
use manyways_sys::privilege;
use manyways_sys::tproxy::{Names, Selection, WhenDead};
use manyways_unit::PrefixError;
use manyways_unit::nearest::nearest;
use tokio::sync::mpsc;

use super::{event_log, keygen, listening, lookup, policy};
use crate::failure::Failure;

/// Run the end of a bond that is on the device.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways bond client --gateway gw.example:4433 --gateway-key KEY --key phone.key
  manyways bond client … --via wlan0,wwan0 --intercept user:alice
  manyways bond client … --intercept none --socks 127.0.0.1:1080
  manyways bond client … --policy policy.toml")]
pub struct Args {
    /// Where the gateway listens.
    #[arg(long, value_name = "HOST:PORT")]
    gateway: String,
    /// The gateway's public key, which it prints when it starts.
    #[arg(long, value_name = "KEY")]
    gateway_key: PublicKey,
    /// This client's private key, as `manyways bond keygen` makes it.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    key: PathBuf,
    /// Use only these networks, by their names in `manyways paths`; the first is preferred.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = network_name)]
    via: Vec<String>,
    /// Which traffic to intercept: all, none, user:NAME, cgroup:PATH, from:INTERFACE (what the host
    /// forwards), to:PREFIX. May be given more than once. Without it: all for root, none for others.
    #[arg(long, value_name = "WHAT", value_parser = parse_intercept)]
    intercept: Vec<InterceptArg>,
    /// Also listen for SOCKS5 here.
    #[arg(long, value_name = "ADDR:PORT", value_parser = listening::here)]
    socks: Option<SocketAddr>,
    /// Also listen for HTTP CONNECT here.
    #[arg(long, value_name = "ADDR:PORT", value_parser = listening::here)]
    http_proxy: Option<SocketAddr>,
    /// Which traffic goes over which networks: docs/bond-policy.md. The file is read again when it
    /// changes; `manyways bond check` checks it.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    policy: Option<PathBuf>,
    /// The scheduler that chooses among the networks, without a policy [default: buffer-aware]
    #[arg(long, value_name = "NAME", conflicts_with = "policy")]
    scheduler: Option<Kind>,
    /// Write events to this file (JSON lines), which is replaced: docs/event-log.md.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    events: Option<PathBuf>,
    /// The client's name, for `manyways bond status` and `why`, where several run on a host.
    #[arg(long, value_name = "NAME", default_value = "default")]
    name: String,
    /// Serve metrics for Prometheus here, at /metrics: counts, without destinations.
    #[arg(long, value_name = "ADDR:PORT", value_parser = listening::here)]
    metrics: Option<SocketAddr>,
    /// Protocol of the carriers: tcp (with TLS), quic, or auto: TCP, with QUIC as fallback if TCP
    /// fails.
    #[arg(long, value_name = "tcp|quic|auto", default_value = "auto", value_parser = parse_transport)]
    carrier: TransportChoice,
    /// An idle TCP carrier sends a packet this often, in seconds, so that no NAT on the way forgets it;
    /// 0 is never.
    #[arg(long, value_name = "SECONDS", default_value_t = 240)]
    keepalive: u64,
    /// Treatment of intercepted traffic after a crash of this client: open (send directly) or closed
    /// (refuse).
    #[arg(long, value_name = "open|closed", default_value = "open", value_parser = parse_fail_mode)]
    fail_mode: WhenDead,
    /// Intercept traffic to private networks too.
    #[arg(long)]
    include_private: bool,
    /// Print only errors and warnings.
    #[arg(short, long)]
    quiet: bool,
}

/// A value of `--intercept`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum InterceptArg {
    None,
    Some(Selection),
}

fn network_name(name: &str) -> Result<String, String> {
    match name.trim() {
        "" => Err("a name is missing: it is a list of names like wlan0,wwan0".to_owned()),
        name => Ok(name.to_owned()),
    }
}

fn parse_intercept(text: &str) -> Result<InterceptArg, String> {
    let selection = match text.split_once(':') {
        None if text == "none" => return Ok(InterceptArg::None),
        None if text == "all" => Selection::All,
        Some(("user", "")) => return Err("a user is missing, as in user:ann".to_owned()),
        Some(("cgroup", "")) => {
            return Err("a cgroup is missing, as in cgroup:/user.slice".to_owned());
        }
        Some(("from", "")) => return Err("an interface is missing, as in from:lan0".to_owned()),
        Some(("user", name)) => Selection::Users(vec![parse_user(name)?]),
        Some(("cgroup", path)) => Selection::Cgroup(path.to_owned()),
        Some(("from", interface)) => Selection::From(vec![interface.to_owned()]),
        Some(("to", range)) => {
            Selection::To(vec![range.parse().map_err(|error: PrefixError| error.to_string())?])
        }
        _ => {
            return Err(
                "there are all, none, user:NAME, cgroup:PATH, from:INTERFACE and to:PREFIX"
                    .to_owned(),
            );
        }
    };
    Ok(InterceptArg::Some(selection))
}

pub fn parse_user(name: &str) -> Result<u32, String> {
    if let Ok(uid) = name.parse() {
        return Ok(uid);
    }
    let users = std::fs::read_to_string("/etc/passwd").map_err(|error| error.to_string())?;
    let uid = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok())?
    });
    uid.ok_or_else(|| format!("there is no user {name}"))
}

fn parse_transport(text: &str) -> Result<TransportChoice, String> {
    match text {
        "tcp" => Ok(TransportChoice::Only(CarrierTransport::Tcp)),
        "quic" => Ok(TransportChoice::Only(CarrierTransport::Quic)),
        "auto" => Ok(TransportChoice::TcpThenQuic),
        _ => Err("there are tcp, quic and auto".to_owned()),
    }
}

fn parse_fail_mode(text: &str) -> Result<WhenDead, String> {
    match text {
        "open" => Ok(WhenDead::Open),
        "closed" => Ok(WhenDead::Closed),
        _ => Err("there are open and closed".to_owned()),
    }
}

pub fn run(args: Args) -> Result<ExitCode> {
    let key = keygen::read(&args.key)?;
    let policy = match &args.policy {
        Some(path) => policy::read(path)?,
        None => policy::default_policy(args.scheduler),
    };
    if let Some(path) = &args.policy
        && !args.quiet
    {
        policy::print_warnings(path, &policy::warnings(&policy));
    }
    let gateway = lookup::find(&args.gateway)?;
    if let Err(error) = privilege::raise_file_limit() {
        tracing::warn!("cannot raise the limit of open files: {error}");
    }
    super::local(serve(args, policy, key, gateway))
}

async fn serve(
    args: Args,
    policy: Policy,
    key: manyways_net::bond::key::PrivateKey,
    gateway: Vec<SocketAddr>,
) -> Result<ExitCode> {
    let mut stop = std::pin::pin!(super::stopped()?);
    let intercepted = intercepted(&args);
    let mark = (!intercepted.is_empty()).then(|| Names::default().own_mark);
    let mut options = ClientOptions::new(gateway, args.gateway_key, key);
    options.transport = args.carrier;
    options.keepalive = (args.keepalive > 0).then(|| Duration::from_secs(args.keepalive));
    options.socket_mark = mark;
    // An address is not resolved again.
    let is_name = args.gateway.parse::<SocketAddr>().is_err();
    options.gateway_name = is_name.then(|| args.gateway.clone());
    let (client, events) = Client::new(options).context("TLS cannot be set up")?;
    let selection = NetworkSelection { via: args.via.clone() };
    let found = find_networks(&selection, &client.gateway())?;
    if !args.quiet {
        warn_unknown_networks(&args, &selection.via);
    }
    if found.is_empty() && !args.quiet {
        eprintln!(
            "manyways: no network leads to the gateway yet; `manyways paths` shows the reason"
        );
    }
    let networks = HostNetworks::follow(client.clone(), selection, found);
    tokio::task::spawn_local(print_events(events, args.gateway.clone(), args.quiet));
    let journal = match &args.events {
        Some(path) => event_log::start(path, &client)?,
        None => Journal::default(),
    };
    let usage_file = UsageFile::within(state_folder().as_deref());
    let enforcer = PolicyEnforcer::start(client.clone(), networks, policy, usage_file, journal);
    if let Some(path) = &args.policy {
        tokio::task::spawn_local(policy::watch_file(path.clone(), enforcer.clone(), args.quiet));
    }
    let scope = SharedScope::default();
    let _control = control(&args, !intercepted.is_empty(), &enforcer, &scope)?;
    if let Some(at) = args.metrics {
        let (enforcer, name) = (enforcer.clone(), args.name.clone());
        let text = move || {
            let text = metrics::client(&enforcer.status(&name, None));
            async move { text }
        };
        super::serve_metrics(at, args.quiet, text).await?;
    }
    let listeners = Listeners::new(enforcer.clone(), mark);
    let proxies = [(args.socks, "SOCKS5"), (args.http_proxy, "HTTP CONNECT")];
    for (at, what) in proxies {
        let Some(at) = at else { continue };
        let bound = match what {
            "SOCKS5" => listeners.socks(at).await,
            _ => listeners.http_connect(at).await,
        };
        let bound = bound.map_err(|error| {
            Failure::new(format!("cannot listen on {at} for {what}: {error}")).hint(
                listening::hint(at, &error, "another program listens there: name another port"),
            )
        })?;
        if !args.quiet {
            eprintln!("manyways: {what} on {bound}");
        }
    }
    if intercepted.is_empty() && !has_proxy(&args) && !args.quiet {
        eprintln!("manyways: nothing is intercepted, so no application uses this bond");
        eprintln!(
            "hint: --socks 127.0.0.1:1080 and --http-proxy 127.0.0.1:3128 are for applications \
             that can use a proxy; --intercept all, as root, intercepts everything"
        );
    }
    let interception = match intercepted.is_empty() {
        true => None,
        false => tokio::select! {
            started = intercept(&args, intercepted, &listeners, &client, scope) => Some(started?),
            () = &mut stop => return Ok(ExitCode::SUCCESS),
        },
    };
    client.run(stop).await;
    enforcer.finish().await;
    if let Some(Err(error)) = interception.map(InterceptionHandle::stop) {
        eprintln!("manyways: cannot remove the packet filter rules: {error}");
        eprintln!("hint: `nft delete table inet {}` removes them", Names::default().nft);
    }
    Ok(ExitCode::SUCCESS)
}

/// Installs the kernel rules, and prints the traffic that they intercept.
async fn intercept(
    args: &Args,
    selections: Vec<Selection>,
    listeners: &Listeners,
    client: &Client,
    scope: SharedScope,
) -> Result<InterceptionHandle> {
    let host = args.gateway.rsplit_once(':').map_or("", |(host, _)| host);
    let mut options = InterceptionOptions::new(selections, host);
    options.fail_mode = args.fail_mode;
    options.include_private = args.include_private;
    let quiet = args.quiet;
    if !quiet {
        let what: Vec<String> = options.selections.iter().map(describe).collect();
        let what = what.join(", and ");
        eprintln!("manyways: intercepts {what}, TCP and UDP, once the gateway has answered");
        for excluded in excluded_selections(&options, client)? {
            eprintln!("manyways: {excluded}");
            if let Some(hint) = excluded.reason.hint() {
                eprintln!("hint: {hint}");
            }
        }
    }
    let print = move |families| {
        if !quiet {
            print_families(families);
        }
    };
    let started = interception::start(options, listeners, client, scope, print).await;
    Ok(started.map_err(|error| {
        let failure = Failure::new(error.to_string());
        match error.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    })?)
}

fn print_families(families: Option<AddressFamilies>) {
    match families {
        None => eprintln!("manyways: the gateway has not answered yet: all is refused"),
        Some(AddressFamilies { v4: true, v6: true }) => {
            eprintln!("manyways: IPv4 and IPv6 are intercepted");
        }
        Some(AddressFamilies { v4: false, v6: false }) => {
            eprintln!("manyways: all is refused: the gateway reaches nothing");
        }
        Some(AddressFamilies { v4, .. }) => {
            let (has, lacks) = if v4 { ("IPv4", "IPv6") } else { ("IPv6", "IPv4") };
            eprintln!(
                "manyways: {has} is intercepted; {lacks} is refused, since the gateway does not \
                 reach it"
            );
        }
    }
}

/// Warns of names that no network has. The network may appear later, or the name may be a mistake.
fn warn_unknown_networks(args: &Args, via: &[String]) {
    let from = args.intercept.iter().filter_map(|what| match what {
        InterceptArg::Some(Selection::From(names)) => Some(names),
        _ => None,
    });
    let via = via.iter().map(|name| ("--via", name));
    let asked: Vec<_> = via.chain(from.flatten().map(|name| ("--intercept", name))).collect();
    let Ok(known) = interface::list() else { return };
    let known: Vec<&str> = known.iter().map(|known| known.name.as_str()).collect();
    for (option, name) in asked.into_iter().filter(|(_, name)| !known.contains(&name.as_str())) {
        eprintln!("manyways: {option}: no network here is named {name:?} yet");
        match nearest(name, known.iter().copied()) {
            Some(near) => eprintln!("hint: did you mean {near}?"),
            None => eprintln!("hint: there are: {}", known.join(", ")),
        }
    }
}

/// Answers `bond status` and `bond why`. If the control socket fails, the client runs without it.
fn control(
    args: &Args,
    intercepts: bool,
    enforcer: &PolicyEnforcer,
    scope: &SharedScope,
) -> Result<Option<ControlServer>> {
    let (enforcer, name, scope) = (enforcer.clone(), args.name.clone(), Rc::clone(scope));
    let has_proxy = has_proxy(args);
    let policy = args.policy.as_ref().map(|path| path.display().to_string());
    let started = ControlServer::start(BondRole::Client, &args.name, None, move |request| {
        let (enforcer, name, policy) = (enforcer.clone(), name.clone(), policy.clone());
        let scope = Rc::clone(&scope);
        async move {
            if matches!(request, ControlRequest::Status) {
                enforcer.find_owners().await;
            }
            let scope = scope.borrow();
            let entry_points = EntryPoints { interception: scope.as_ref(), intercepts, has_proxy };
            match request {
                ControlRequest::Status => {
                    let mut status = enforcer.status(&name, policy.as_deref());
                    status.no_path_action = enforcer.no_path_action(entry_points);
                    ControlResponse::Status(Box::new(status)).into()
                }
                ControlRequest::Why(query) => {
                    ControlResponse::Why(Box::new(enforcer.why(&query, entry_points))).into()
                }
                ControlRequest::Delay(request) => match enforcer.delay(&request) {
                    Ok(grant) => ControlReply::KeepOpen(grant),
                    Err(error) => {
                        let hint = error.hint();
                        ControlResponse::Refused { message: error.to_string(), hint }.into()
                    }
                },
            }
        }
    });
    match started {
        Ok(control) => Ok(Some(control)),
        Err(error @ ControlSocketError::InvalidName(_)) => {
            Err(Failure::usage(error.to_string()).into())
        }
        Err(error) => {
            eprintln!("manyways: {error}, so `bond status` does not show this client");
            if let ControlSocketError::NameInUse { .. } = error {
                eprintln!("hint: give this client another name with --name");
            }
            Ok(None)
        }
    }
}

/// Whether the client is a proxy that applications can use.
fn has_proxy(args: &Args) -> bool {
    args.socks.is_some() || args.http_proxy.is_some()
}

fn intercepted(args: &Args) -> Vec<Selection> {
    if args.intercept.is_empty() {
        return if privilege::is_root() { vec![Selection::All] } else { Vec::new() };
    }
    args.intercept
        .iter()
        .filter_map(|what| match what {
            InterceptArg::None => None,
            InterceptArg::Some(selection) => Some(selection.clone()),
        })
        .collect()
}

async fn print_events(
    mut events: mpsc::UnboundedReceiver<ClientEvent>,
    gateway: String,
    quiet: bool,
) {
    while let Some(events) = events.recv().await {
        if let ClientEvent::GatewayMoved { addresses: to } = &events {
            lookup::remember(&gateway, to);
        }
        match events {
            ClientEvent::PathFailed { path, reason } => {
                eprintln!("manyways: {path}: {reason}");
                if let Some(hint) = reason.hint() {
                    eprintln!("hint: {hint}");
                }
            }
            _ if quiet => {}
            ClientEvent::GatewayMoved { addresses: to } => {
                let to: Vec<String> = to.iter().map(ToString::to_string).collect();
                eprintln!("manyways: the gateway's name now resolves to {}", to.join(", "));
            }
            ClientEvent::PathUp { path } => eprintln!("manyways: {path} is up"),
            ClientEvent::PathDown { path, reason } => {
                eprintln!("manyways: {path} is down: {reason}")
            }
            ClientEvent::SessionRenewed => {
                eprintln!(
                    "manyways: the gateway does not know the session: its connections have ended"
                );
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_part_is_told_with_an_example() {
        for (text, words) in [
            ("user:", "a user is missing, as in user:ann"),
            ("cgroup:", "a cgroup is missing, as in cgroup:/user.slice"),
            ("from:", "an interface is missing, as in from:lan0"),
            (
                "to:10.0.0.1/8",
                "`10.0.0.1/8` has bits set after its length: the network is 10.0.0.0/8",
            ),
        ] {
            assert_eq!(parse_intercept(text).unwrap_err(), words);
        }
        assert!(network_name(" ").unwrap_err().contains("wlan0,wwan0"));
        assert_eq!(network_name(" wlan0").unwrap(), "wlan0");
    }
}
