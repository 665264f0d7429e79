//! `manyways bond client`: the endpoint on the device.

mod control;
mod lenders;
mod messages;
mod options;
mod proxies;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use manyways_net::bond::interception::{
    self, InterceptionHandle, InterceptionOptions, SharedScope, describe, excluded_selections,
};
use manyways_net::bond::{
    Client, ClientOptions, HostNetworks, Journal, Listeners, PolicyEnforcer, ProxyOptions,
    UsageFile, find_networks, metrics,
};
use manyways_net::state::state_folder;
use manyways_proto::bond::networks::NetworkSelection;
use manyways_proto::policy::Policy;
use manyways_sys::privilege;
use manyways_sys::tproxy::{Names, Selection};

use self::messages::{print_events, print_families, warn_unknown_networks};
pub use self::options::{Args, parse_estimate, parse_rebalance, parse_user};
use super::{event_log, keygen, lookup, policy};
use crate::failure::Failure;

pub fn run(args: Args) -> Result<ExitCode> {
    let proxy_options = proxies::options(&args)?;
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
    let gateway = lookup::resolve(&args.gateway)?;
    if let Err(error) = privilege::raise_file_limit() {
        tracing::warn!("cannot raise the limit of open files: {error}");
    }
    super::run_local(serve(args, policy, key, gateway, proxy_options))
}

async fn serve(
    args: Args,
    policy: Policy,
    key: manyways_net::bond::PrivateKey,
    gateway: Vec<SocketAddr>,
    proxy_options: ProxyOptions,
) -> Result<ExitCode> {
    let mut stop = std::pin::pin!(super::stop_signal()?);
    let intercepted = args.intercepted();
    let mark = (!intercepted.is_empty()).then(|| Names::default().own_mark);
    let mut options = ClientOptions::new(gateway, args.gateway_key, key);
    options.transport = args.carrier;
    options.keepalive = (args.keepalive > 0).then(|| Duration::from_secs(args.keepalive));
    options.socket_mark = mark;
    options.session_lifetime = args.session_lifetime.unwrap_or(options.session_lifetime);
    // An address is not resolved again.
    let is_name = args.gateway.parse::<SocketAddr>().is_err();
    options.gateway_name = is_name.then(|| args.gateway.clone());
    options.lending.rebalance = args.reinject;
    options.lending.estimate = args.estimate;
    options.lending.feedback = args.feedback;
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
    if !args.no_lenders {
        tokio::task::spawn_local(lenders::follow(networks.clone(), args.quiet));
    }
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
    let _control = control::start(&args, !intercepted.is_empty(), &enforcer, &scope)?;
    if let Some(at) = args.metrics {
        let (enforcer, name) = (enforcer.clone(), args.name.clone());
        let text = move || {
            let text = metrics::client(&enforcer.status(&name, None));
            async move { text }
        };
        super::serve_metrics(at, args.quiet, text).await?;
    }
    let listeners = Listeners::new(enforcer.clone(), mark, proxy_options);
    proxies::listen(&args, &listeners).await?;
    if intercepted.is_empty() && !args.has_proxy() && !args.quiet {
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
    Ok(started.map_err(|error| Failure::new(error.to_string()).maybe_hint(error.hint()))?)
}
