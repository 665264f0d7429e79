//! `manyways paths`: the networks of this host, and whether they can be used.

use std::net::IpAddr;
use std::process::ExitCode;

use anyhow::Result;
use manyways_record::document;
use manyways_sys::interface::{self, DnsSource, Interface, Kind, Metered, Unusable};
use serde::Serialize;

/// List the networks of this host, and show which ones can be used.
///
/// A network can be used if a socket bound to it has a route to the internet and receives replies.
/// The check sends no packets: it asks the kernel for the route. It needs no
/// privileges.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways paths
  manyways paths --all --json
  manyways paths --to 192.168.7.20    which networks lead to this server

The kernel prefers the first network. Exit code: 0, even when no network can be used;
1 when the networks cannot be listed. The JSON is documented in docs/paths.md.")]
pub struct Args {
    /// Print one JSON document, with every interface, instead of a table.
    #[arg(long)]
    json: bool,
    /// Also show loopback, and virtual interfaces that are not in use.
    #[arg(long)]
    all: bool,
    /// Check the route to this address instead of the route to the internet.
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    to: Vec<IpAddr>,
}

/// Accepts no names, because a look-up would send packets.
fn address(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| {
        "write an IP address, like 192.0.2.7 or 2001:db8::7; `getent ahosts NAME` shows the addresses of \
         a name"
            .to_owned()
    })
}

pub fn run(args: Args) -> Result<ExitCode> {
    let found = interface::list_towards(&args.to)?;
    if args.json {
        print!("{}", document::to_json(&document(&found))?);
    } else {
        let shown: Vec<&Interface> =
            found.iter().filter(|interface| args.all || is_shown_by_default(interface)).collect();
        print!("{}", table(&shown));
    }
    Ok(ExitCode::SUCCESS)
}

fn is_shown_by_default(interface: &Interface) -> bool {
    interface.usable.is_ok()
        || match interface.kind {
            Kind::Loopback => false,
            // Bridges of containers and placeholders are shown only with a default route.
            Kind::Virtual | Kind::Tunnel => interface.metric.is_some(),
            _ => true,
        }
}

#[derive(Serialize)]
struct Document<'a> {
    paths: Vec<Path<'a>>,
}

document!(Document<'_>, "manyways.paths/2");

#[derive(Serialize)]
struct Path<'a> {
    name: &'a str,
    index: u32,
    kind: &'static str,
    addresses: &'a [IpAddr],
    unusable_addresses: Vec<UnusableAddress>,
    gateways: &'a [IpAddr],
    dns: &'a [IpAddr],
    dns_announced: bool,
    dns_source: Option<&'static str>,
    metered: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    metered_guess: Option<&'static str>,
    mtu: u32,
    metric: Option<u32>,
    usable: bool,
    #[serde(flatten)]
    unusable: Option<UnusableReason>,
}

#[derive(Serialize)]
struct UnusableAddress {
    address: IpAddr,
    #[serde(flatten)]
    unusable: UnusableReason,
}

#[derive(Serialize)]
struct UnusableReason {
    reason: &'static str,
    message: String,
    hint: String,
}

impl From<&Unusable> for UnusableReason {
    fn from(reason: &Unusable) -> Self {
        Self { reason: reason.code(), message: reason.to_string(), hint: reason.hint() }
    }
}

fn document(found: &[Interface]) -> Document<'_> {
    let paths = found
        .iter()
        .map(|interface| Path {
            name: &interface.name,
            index: interface.index,
            kind: interface.kind.name(),
            addresses: &interface.addresses,
            unusable_addresses: interface
                .unusable_addresses
                .iter()
                .map(|(address, reason)| UnusableAddress {
                    address: *address,
                    unusable: reason.into(),
                })
                .collect(),
            gateways: &interface.gateways,
            dns: &interface.dns,
            dns_announced: interface.dns_announced,
            dns_source: interface.dns_source.map(DnsSource::name),
            metered: interface.metered.is_metered(),
            metered_guess: match interface.metered {
                Metered::Guessed { reason: why, .. } => Some(why),
                _ => None,
            },
            mtu: interface.mtu,
            metric: interface.metric,
            usable: interface.usable.is_ok(),
            unusable: interface.usable.as_ref().err().map(UnusableReason::from),
        })
        .collect();
    Document { paths }
}

const TITLES: [&str; 7] = ["NAME", "KIND", "ADDRESS", "GATEWAY", "DNS", "METERED", "USABLE"];

/// Formats the table, with one address per line in each cell, and the hints for unusable networks
/// below it.
fn table(shown: &[&Interface]) -> String {
    if shown.is_empty() {
        return "no network (--all shows loopback and unused virtual interfaces)\n".into();
    }
    let mut lines: Vec<[String; 7]> = vec![TITLES.map(str::to_owned)];
    let mut notes = Vec::new();
    let several = shown.iter().filter(|interface| interface.usable.is_ok()).count() > 1;
    for interface in shown {
        let metered = match interface.metered {
            Metered::Guessed { metered: true, .. } => "yes (guess)",
            Metered::Guessed { metered: false, .. } => "no (guess)",
            metered if metered.is_metered() => "yes",
            _ => "no",
        };
        let usable = match &interface.usable {
            Ok(()) => "yes".to_owned(),
            Err(reason) => {
                notes.push(format!("{}: {}", interface.name, reason.hint()));
                format!("no: {reason}")
            }
        };
        for (address, reason) in &interface.unusable_addresses {
            notes.push(format!("{}: {address} is not used: {reason}", interface.name));
        }
        if several && !interface.dns_announced && !interface.dns.is_empty() {
            notes.push(format!(
                "{}: found no name server that this network announces; the host's name servers are used over it",
                interface.name
            ));
        }
        let lists = [&interface.addresses, &interface.gateways, &interface.dns];
        let height = lists.iter().map(|list| list.len()).max().unwrap_or(0).max(1);
        for row in 0..height {
            let first = |text: &str| if row == 0 { text.to_owned() } else { String::new() };
            let item = |list: &[IpAddr]| match list.get(row) {
                Some(ip) => ip.to_string(),
                None => first("-"),
            };
            lines.push([
                first(&interface.name),
                first(interface.kind.name()),
                item(&interface.addresses),
                item(&interface.gateways),
                item(&interface.dns),
                first(metered),
                first(&usable),
            ]);
        }
    }
    let mut widths = [0; 7];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for line in lines {
        let cells: Vec<String> =
            line.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    if !notes.is_empty() {
        text.push('\n');
    }
    for note in notes {
        text.push_str(&note);
        text.push('\n');
    }
    text
}
