//! The proxies of a client: addresses, password and listening sockets.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::Result;
use manyways_net::bond::{Listeners, ProxyOptions, ProxyPassword, ProxyPasswordError};

use super::options::Args;
use crate::bond::listen;
use crate::failure::Failure;

/// Returns the options of the proxies. A proxy that other hosts can reach needs a password, or an
/// explicit permission.
pub fn options(args: &Args) -> Result<ProxyOptions, Failure> {
    let is_local = |at: &SocketAddr| at.ip().to_canonical().is_loopback();
    let proxies = [("--socks", args.socks), ("--http-proxy", args.http_proxy)];
    let exposed =
        proxies.into_iter().find_map(|(option, at)| Some((option, at.filter(|at| !is_local(at))?)));
    if let Some((option, at)) = exposed
        && args.proxy_password_file.is_none()
        && !args.open_proxy
    {
        return Failure::refuse(
            format!("{option} {at}: other hosts could use this proxy without a password"),
            "set one with --proxy-password-file FILE, or allow all hosts with --open-proxy; at \
             127.0.0.1 the proxy is for this host only",
        );
    }
    let mut options = ProxyOptions::default();
    options.wait_for_server = args.wait_for_server;
    options.password = args.proxy_password_file.as_deref().map(read_password).transpose()?;
    Ok(options)
}

fn read_password(path: &Path) -> Result<ProxyPassword, Failure> {
    ProxyPassword::read(path).map_err(|error| {
        let hint = match &error {
            ProxyPasswordError::InsecurePermissions(path) => {
                Some(format!("chmod 600 {}", path.display()))
            }
            ProxyPasswordError::Malformed(_) => {
                Some("write a user name and a password into it, as in ann:secret".to_owned())
            }
            _ => None,
        };
        Failure::new(error.to_string()).maybe_hint(hint)
    })
}

/// Starts the proxies, and prints their addresses.
pub async fn listen(args: &Args, listeners: &Listeners) -> Result<()> {
    if let Some(at) = args.socks {
        let bound = listeners.socks(at).await;
        report(args, "SOCKS5", bound.map_err(|error| failure("SOCKS5", at, &error))?);
    }
    if let Some(at) = args.http_proxy {
        let bound = listeners.http_proxy(at).await;
        report(args, "HTTP", bound.map_err(|error| failure("HTTP", at, &error))?);
    }
    Ok(())
}

fn failure(what: &str, at: SocketAddr, error: &std::io::Error) -> Failure {
    let hint = listen::hint(at, error, "another program uses this port: choose another port");
    Failure::new(format!("cannot listen on {at} for {what}: {error}")).hint(hint)
}

fn report(args: &Args, what: &str, bound: SocketAddr) {
    if !args.quiet {
        eprintln!("manyways: {what} proxy listens on {bound}");
    }
}
