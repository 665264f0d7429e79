//! The command line of `manyways bond client`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::ValueHint;
use manyways_net::bond::PublicKey;
use manyways_net::bond::{CarrierTransport, TransportChoice};
use manyways_proto::mux::{Feedback, HopEstimate, Rebalance};
use manyways_proto::sched::SchedulerKind;
use manyways_sys::tproxy::{FailMode, Selection};
use manyways_sys::{egress, privilege};
use manyways_unit::human::quoted;
use manyways_unit::{PrefixError, Span};

use crate::bond::listen;

/// Run the bond's client on this device.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways bond client --gateway gw.example:4433 --gateway-key KEY --key phone.key
  manyways bond client … --via wlan0,wwan0 --intercept user:alice
  manyways bond client … --intercept none --socks 127.0.0.1:1080
  manyways bond client … --policy policy.toml")]
pub struct Args {
    /// Address of the gateway.
    #[arg(long, value_name = "HOST:PORT")]
    pub gateway: String,
    /// The gateway's public key, which it prints when it starts.
    #[arg(long, value_name = "KEY")]
    pub gateway_key: PublicKey,
    /// This client's private key, as `manyways bond keygen` makes it.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub key: PathBuf,
    /// Use only these networks, by their names in `manyways paths`; the first is preferred.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = network_name)]
    pub via: Vec<String>,
    /// Which traffic to intercept: all, none, user:NAME, cgroup:PATH, from:INTERFACE (forwarded
    /// traffic), to:PREFIX. May be given more than once. Default: all for root, none for others.
    #[arg(long, value_name = "WHAT", value_parser = parse_intercept)]
    pub intercept: Vec<InterceptArg>,
    /// Also serve a SOCKS5 proxy at this address.
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen::parse_local)]
    pub socks: Option<SocketAddr>,
    /// Also serve an HTTP proxy at this address: CONNECT, and requests for http:// URIs.
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen::parse_local)]
    pub http_proxy: Option<SocketAddr>,
    /// Require this user name and password of applications that use a proxy. FILE is one line
    /// user:password, readable only by its owner.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub proxy_password_file: Option<PathBuf>,
    /// Serve proxies at an address that other hosts can reach, without a password.
    #[arg(long, conflicts_with = "proxy_password_file")]
    pub open_proxy: bool,
    /// Answer a SOCKS5 or CONNECT request only after the gateway has connected to the server, with the
    /// reason of a failure. Costs one more round trip to the gateway for each connection.
    #[arg(long)]
    pub wait_for_server: bool,
    /// File that assigns traffic to networks: docs/bond-policy.md. The file is read again when it
    /// changes; `manyways bond check` checks it.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub policy: Option<PathBuf>,
    /// Scheduler that assigns traffic to networks, without --policy [default: buffer-aware]
    #[arg(long, value_name = "NAME", conflicts_with = "policy")]
    pub scheduler: Option<SchedulerKind>,
    /// Write events to this file (JSON lines), and replace an existing file: docs/event-log.md.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub events: Option<PathBuf>,
    /// Do not use the networks of paired devices (`manyways bond pair`).
    #[arg(long)]
    pub no_lenders: bool,
    /// For measurements: which messages are recalled from a lender.
    #[arg(long, value_name = "off|print|on", default_value = "on", hide = true, value_parser = parse_rebalance)]
    pub reinject: Rebalance,
    /// For measurements: how the wait at a lender is estimated.
    #[arg(long, value_name = "backlog|delay", default_value = "backlog", hide = true, value_parser = parse_estimate)]
    pub estimate: HopEstimate,
    /// For measurements: the way of ACKs of messages that came over a lender.
    #[arg(long, value_name = "always|on-demand|flexible", default_value = "flexible", hide = true, value_parser = parse_feedback)]
    pub feedback: Feedback,
    /// Name of the client for `manyways bond status` and `why`, if several run on this host.
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub name: String,
    /// Serve metrics for Prometheus here, at /metrics: counts, without destinations.
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen::parse_local)]
    pub metrics: Option<SocketAddr>,
    /// Connections to the gateway (carriers): tcp (with TLS), quic, or auto: TCP, or QUIC if TCP
    /// fails.
    #[arg(long, value_name = "tcp|quic|auto", default_value = "auto", value_parser = parse_transport)]
    pub carrier: TransportChoice,
    /// Interval of keepalive packets on idle TCP carriers, in seconds, so that NATs keep state;
    /// 0 disables keepalive.
    #[arg(long, value_name = "SECONDS", default_value_t = 240)]
    pub keepalive: u64,
    /// Treatment of intercepted traffic after a crash of this client: open (send directly) or closed
    /// (refuse).
    #[arg(long, value_name = "open|closed", default_value = "open", value_parser = parse_fail_mode)]
    pub fail_mode: FailMode,
    /// Intercept traffic to private networks too.
    #[arg(long)]
    pub include_private: bool,
    /// For tests: start a new session after this time without connections to the gateway.
    #[arg(long, value_name = "DURATION", hide = true)]
    pub session_lifetime: Option<Span>,
    /// Print only errors and warnings.
    #[arg(short, long)]
    pub quiet: bool,
}

/// A value of `--intercept`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterceptArg {
    None,
    Selection(Selection),
}

impl Args {
    /// Whether the client is a proxy that applications can use.
    pub fn has_proxy(&self) -> bool {
        self.socks.is_some() || self.http_proxy.is_some()
    }

    /// The traffic to intercept.
    pub fn intercepted(&self) -> Vec<Selection> {
        if self.intercept.is_empty() {
            return if privilege::is_root() { vec![Selection::All] } else { Vec::new() };
        }
        self.intercept
            .iter()
            .filter_map(|what| match what {
                InterceptArg::None => None,
                InterceptArg::Selection(selection) => Some(selection.clone()),
            })
            .collect()
    }
}

fn network_name(name: &str) -> Result<String, String> {
    match name.trim() {
        "" => Err("a name is missing: write names of networks, like wlan0,wwan0".to_owned()),
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
        Some(("cgroup", path)) => Selection::Cgroup(cgroup(path)?),
        Some(("from", interface)) => Selection::From(vec![interface_name(interface)?]),
        Some(("to", range)) => {
            Selection::To(vec![range.parse().map_err(|error: PrefixError| error.to_string())?])
        }
        _ => {
            return Err(
                "use all, none, user:NAME, cgroup:PATH, from:INTERFACE or to:PREFIX".to_owned()
            );
        }
    };
    Ok(InterceptArg::Selection(selection))
}

/// The name of a cgroup below its root.
fn cgroup(path: &str) -> Result<String, String> {
    let path = path.trim_end_matches('/');
    match path.strip_prefix("/sys/fs/cgroup") {
        Some("") => Err("the root of all cgroups is the whole host: write all".to_owned()),
        Some(name) if name.starts_with('/') => {
            Err(format!("write cgroup:{name}, without the folder /sys/fs/cgroup"))
        }
        _ => Ok(path.to_owned()),
    }
}

fn interface_name(name: &str) -> Result<String, String> {
    // The kernel allows almost every character, and a pattern would match nothing.
    if name.contains(['*', '?', '+', '[']) {
        return Err(format!(
            "`{}` is a pattern: name one interface, as in from:lan0, and repeat \
                            --intercept for others",
            quoted(name)
        ));
    }
    if !egress::is_valid_name(name) {
        return Err(format!("`{}` cannot name an interface", quoted(name)));
    }
    Ok(name.to_owned())
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
        _ => Err("use tcp, quic or auto".to_owned()),
    }
}

pub fn parse_rebalance(text: &str) -> Result<Rebalance, String> {
    match text {
        "off" => Ok(Rebalance::Off),
        "print" => Ok(Rebalance::Published),
        "on" => Ok(Rebalance::On),
        _ => Err("use off, print or on".to_owned()),
    }
}

pub fn parse_estimate(text: &str) -> Result<HopEstimate, String> {
    match text {
        "backlog" => Ok(HopEstimate::Backlog),
        "delay" => Ok(HopEstimate::Delay),
        _ => Err("use backlog or delay".to_owned()),
    }
}

fn parse_feedback(text: &str) -> Result<Feedback, String> {
    match text {
        "always" => Ok(Feedback::Lender),
        "on-demand" => Ok(Feedback::OnDemand),
        "flexible" => Ok(Feedback::Flexible),
        _ => Err("use always, on-demand or flexible".to_owned()),
    }
}

fn parse_fail_mode(text: &str) -> Result<FailMode, String> {
    match text {
        "open" => Ok(FailMode::Direct),
        "closed" => Ok(FailMode::Blocked),
        _ => Err("use open or closed".to_owned()),
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
                "cgroup:/sys/fs/cgroup/a.slice/",
                "write cgroup:/a.slice, without the folder /sys/fs/cgroup",
            ),
            ("cgroup:/sys/fs/cgroup", "the root of all cgroups is the whole host: write all"),
            (
                "from:lan*",
                "`lan*` is a pattern: name one interface, as in from:lan0, and repeat --intercept for \
                 others",
            ),
            ("from:la n", "`la n` cannot name an interface"),
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
