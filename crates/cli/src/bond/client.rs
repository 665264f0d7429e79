//! `manyways bond client`: the end on the device.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueHint;
use manyways_net::bond::client::{Client, ClientEvent, ClientOptions};
use manyways_net::bond::control::{Answer, Control, ControlError, End, Reply, Request};
use manyways_net::bond::intercept::Doors;
use manyways_net::bond::journal::Journal;
use manyways_net::bond::key::PublicKey;
use manyways_net::bond::metrics;
use manyways_net::bond::networks::{Networks, Wanted};
use manyways_net::bond::rules::Rules;
use manyways_net::bond::usage::{Usage, state_folder};
use manyways_net::bond::why::Entrances;
use manyways_net::bond::{CarrierTransport, TransportChoice};
use manyways_proto::policy::Policy;
use manyways_proto::sched::Kind;
use manyways_sys::interface;
use manyways_sys::privilege;
use manyways_sys::tproxy::{Names, Selection, WhenDead};
use manyways_unit::PrefixError;
use manyways_unit::nearest::nearest;
use tokio::sync::mpsc;

use super::interception::{Interception, Told};
use super::{event_log, keygen, listening, lookup, policy};
use crate::failure::Failure;

/// Whoever asks for the status waits so long for the owners of connections.
const OWNERS: Duration = Duration::from_millis(300);

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
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = network)]
    via: Vec<String>,
    /// Which traffic is taken in without its knowing: all, none, user:NAME, cgroup:PATH,
    /// from:INTERFACE (what the host forwards), to:PREFIX. May be given more than once. Without it:
    /// all for root, none for others.
    #[arg(long, value_name = "WHAT", value_parser = intercept)]
    intercept: Vec<Intercept>,
    /// Also listen for SOCKS5 here.
    #[arg(long, value_name = "ADDR:PORT", value_parser = listening::here)]
    socks: Option<SocketAddr>,
    /// Also listen for HTTP CONNECT here.
    #[arg(long, value_name = "ADDR:PORT", value_parser = listening::here)]
    http_proxy: Option<SocketAddr>,
    /// Which traffic goes over which networks: docs/bond-policy.md. It is read again when it
    /// changes; `manyways bond check` says whether it reads.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    policy: Option<PathBuf>,
    /// Who chooses among the networks, where no policy says it [default: buffer-aware]
    #[arg(long, value_name = "NAME", conflicts_with = "policy")]
    scheduler: Option<Kind>,
    /// Write what happens to this file (JSON lines), which it replaces: docs/event-log.md.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    events: Option<PathBuf>,
    /// What it is called, for `manyways bond status` and `why`, where several run on a host.
    #[arg(long, value_name = "NAME", default_value = "default")]
    name: String,
    /// Serve metrics for Prometheus here, at /metrics: counts, and nothing of where anybody goes.
    #[arg(long, value_name = "ADDR:PORT", value_parser = listening::here)]
    metrics: Option<SocketAddr>,
    /// What carries the traffic: tcp (with TLS), quic, or auto: TCP, and QUIC where TCP does not get
    /// through.
    #[arg(long, value_name = "tcp|quic|auto", default_value = "auto", value_parser = carrier)]
    carrier: TransportChoice,
    /// An idle TCP carrier sends a packet so often, in seconds, so that no NAT on the way forgets it;
    /// 0 is never.
    #[arg(long, value_name = "SECONDS", default_value_t = 240)]
    keepalive: u64,
    /// What happens to traffic while this client does not run, after a crash: open (it goes
    /// directly) or closed (it is refused).
    #[arg(long, value_name = "open|closed", default_value = "open", value_parser = when_dead)]
    when_dead: WhenDead,
    /// Take traffic to private networks in too.
    #[arg(long)]
    private: bool,
    /// Say nothing but errors and warnings.
    #[arg(short, long)]
    quiet: bool,
}

/// Traffic that is taken in.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Intercept {
    None,
    Some(Selection),
}

fn network(name: &str) -> Result<String, String> {
    match name.trim() {
        "" => Err("a name is missing: it is a list of names like wlan0,wwan0".to_owned()),
        name => Ok(name.to_owned()),
    }
}

fn intercept(text: &str) -> Result<Intercept, String> {
    let selection = match text.split_once(':') {
        None if text == "none" => return Ok(Intercept::None),
        None if text == "all" => Selection::All,
        Some(("user", "")) => return Err("a user is missing, as in user:ann".to_owned()),
        Some(("cgroup", "")) => {
            return Err("a cgroup is missing, as in cgroup:/user.slice".to_owned());
        }
        Some(("from", "")) => return Err("an interface is missing, as in from:lan0".to_owned()),
        Some(("user", name)) => Selection::Users(vec![user(name)?]),
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
    Ok(Intercept::Some(selection))
}

pub fn user(name: &str) -> Result<u32, String> {
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

fn carrier(text: &str) -> Result<TransportChoice, String> {
    match text {
        "tcp" => Ok(TransportChoice::Only(CarrierTransport::Tcp)),
        "quic" => Ok(TransportChoice::Only(CarrierTransport::Quic)),
        "auto" => Ok(TransportChoice::TcpThenQuic),
        _ => Err("there are tcp, quic and auto".to_owned()),
    }
}

fn when_dead(text: &str) -> Result<WhenDead, String> {
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
        None => policy::plain(args.scheduler),
    };
    if let Some(path) = &args.policy
        && !args.quiet
    {
        policy::say(path, &policy::warnings(&policy));
    }
    let gateway = lookup::find(&args.gateway)?;
    if let Err(error) = privilege::raise_file_limit() {
        tracing::warn!("the limit of open files stays as it is: {error}");
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
    let taken = taken(&args);
    let mark = (!taken.is_empty()).then(|| Names::default().own_mark);
    let mut options = ClientOptions::new(gateway, args.gateway_key, key);
    options.transport = args.carrier;
    options.keepalive = (args.keepalive > 0).then(|| Duration::from_secs(args.keepalive));
    options.socket_mark = mark;
    // An address does not move.
    let is_name = args.gateway.parse::<SocketAddr>().is_err();
    options.gateway_name = is_name.then(|| args.gateway.clone());
    let (client, events) = Client::new(options).context("TLS cannot be set up")?;
    let wanted = Wanted { via: args.via.clone() };
    let found = wanted.find(&client.gateway())?;
    if !args.quiet {
        say_strangers(&args, &wanted.via);
    }
    if found.is_empty() && !args.quiet {
        eprintln!("manyways: no network leads to the gateway yet; `manyways paths` says why");
    }
    let networks = Networks::follow(client.clone(), wanted, found);
    tokio::task::spawn_local(report(events, args.gateway.clone(), args.quiet));
    let journal = match &args.events {
        Some(path) => event_log::keep(path, &client)?,
        None => Journal::default(),
    };
    let usage = Usage::open(state_folder().as_deref());
    let rules = Rules::follow(client.clone(), networks, policy, usage, journal);
    if let Some(path) = &args.policy {
        tokio::task::spawn_local(policy::follow(path.clone(), rules.clone(), args.quiet));
    }
    let intake = Told::default();
    let _control = control(&args, !taken.is_empty(), &rules, &intake)?;
    if let Some(at) = args.metrics {
        let (rules, name) = (rules.clone(), args.name.clone());
        let text = move || {
            let text = metrics::client(&rules.status(&name, None));
            async move { text }
        };
        super::serve_metrics(at, args.quiet, text).await?;
    }
    let doors = Doors::new(rules.clone(), mark);
    let proxies = [(args.socks, "SOCKS5"), (args.http_proxy, "HTTP CONNECT")];
    for (at, what) in proxies {
        let Some(at) = at else { continue };
        let bound = match what {
            "SOCKS5" => doors.socks(at).await,
            _ => doors.connect(at).await,
        };
        let bound = bound.map_err(|error| {
            Failure::new(format!("cannot listen on {at} for {what}: {error}"))
                .hint(listening::hint(at, &error, "another program is there: name another port"))
        })?;
        if !args.quiet {
            eprintln!("manyways: {what} on {bound}");
        }
    }
    if taken.is_empty() && !has_proxy(&args) && !args.quiet {
        eprintln!("manyways: nothing is taken in, so no application uses this bond");
        eprintln!(
            "hint: --socks 127.0.0.1:1080 and --http-proxy 127.0.0.1:3128 are for applications \
             that are told to; --intercept all, as root, takes in everything"
        );
    }
    let wants = Interception {
        what: taken,
        when_dead: args.when_dead,
        private: args.private,
        quiet: args.quiet,
        gateway: args.gateway.rsplit_once(':').map_or("", |(host, _)| host).to_owned(),
        told: intake,
    };
    let kept = match wants.what.is_empty() {
        true => None,
        false => tokio::select! {
            kept = wants.begin(&doors, &client) => Some(kept?),
            () = &mut stop => return Ok(ExitCode::SUCCESS),
        },
    };
    client.run(stop).await;
    rules.finish().await;
    drop(kept);
    Ok(ExitCode::SUCCESS)
}

/// Says which names no network has: it may come later, or be a mistake.
fn say_strangers(args: &Args, via: &[String]) {
    let from = args.intercept.iter().filter_map(|what| match what {
        Intercept::Some(Selection::From(names)) => Some(names),
        _ => None,
    });
    let via = via.iter().map(|name| ("--via", name));
    let asked: Vec<_> = via.chain(from.flatten().map(|name| ("--intercept", name))).collect();
    // What cannot be listed is not known to be missing.
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

/// Answers `bond status` and `bond why`. A bond does not fail for want of that.
fn control(args: &Args, takes_in: bool, rules: &Rules, intake: &Told) -> Result<Option<Control>> {
    let (rules, name, intake) = (rules.clone(), args.name.clone(), Rc::clone(intake));
    let has_proxy = has_proxy(args);
    let policy = args.policy.as_ref().map(|path| path.display().to_string());
    let started = Control::start(End::Client, &args.name, None, move |request| {
        let (rules, name, policy) = (rules.clone(), name.clone(), policy.clone());
        let intake = Rc::clone(&intake);
        async move {
            if matches!(request, Request::Status) {
                rules.find_owners(OWNERS).await;
            }
            let intake = intake.borrow();
            let entrances = Entrances { intake: intake.as_ref(), takes_in, has_proxy };
            match request {
                Request::Status => {
                    let mut status = rules.status(&name, policy.as_deref());
                    status.cut_off = rules.cut_off(entrances);
                    Answer::Status(Box::new(status)).into()
                }
                Request::Why(question) => {
                    Answer::Why(Box::new(rules.why(&question, entrances))).into()
                }
                Request::Hold(hold) => match rules.hold(&hold) {
                    Ok(holding) => Reply::Holds(holding),
                    Err(error) => {
                        let hint = error.hint();
                        Answer::Refused { sentence: error.to_string(), hint }.into()
                    }
                },
            }
        }
    });
    match started {
        Ok(control) => Ok(Some(control)),
        Err(error @ ControlError::Name(_)) => Err(Failure::usage(error.to_string()).into()),
        Err(error) => {
            eprintln!("manyways: {error}, so that `bond status` does not show this one");
            if let ControlError::Taken { .. } = error {
                eprintln!("hint: give this one another name with --name");
            }
            Ok(None)
        }
    }
}

/// Applications may ask it as a proxy.
fn has_proxy(args: &Args) -> bool {
    args.socks.is_some() || args.http_proxy.is_some()
}

fn taken(args: &Args) -> Vec<Selection> {
    if args.intercept.is_empty() {
        return if privilege::is_root() { vec![Selection::All] } else { Vec::new() };
    }
    args.intercept
        .iter()
        .filter_map(|what| match what {
            Intercept::None => None,
            Intercept::Some(selection) => Some(selection.clone()),
        })
        .collect()
}

async fn report(mut events: mpsc::UnboundedReceiver<ClientEvent>, gateway: String, quiet: bool) {
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
                eprintln!("manyways: the gateway's name stands for {} now", to.join(", "));
            }
            ClientEvent::PathUp { path } => eprintln!("manyways: {path} is up"),
            ClientEvent::PathDown { path, reason } => {
                eprintln!("manyways: {path} is down: {reason}")
            }
            ClientEvent::SessionRenewed => {
                eprintln!("manyways: the gateway has forgotten the session; connections ended");
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_said_with_an_example() {
        for (text, words) in [
            ("user:", "a user is missing, as in user:ann"),
            ("cgroup:", "a cgroup is missing, as in cgroup:/user.slice"),
            ("from:", "an interface is missing, as in from:lan0"),
            (
                "to:10.0.0.1/8",
                "`10.0.0.1/8` has bits set after its length: the network is 10.0.0.0/8",
            ),
        ] {
            assert_eq!(intercept(text).unwrap_err(), words);
        }
        assert!(network(" ").unwrap_err().contains("wlan0,wwan0"));
        assert_eq!(network(" wlan0").unwrap(), "wlan0");
    }
}
