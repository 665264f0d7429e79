//! `manyways paths`: the networks of this host, and whether they can be used.

use std::net::IpAddr;
use std::process::ExitCode;

use anyhow::{Context, Result};
use manyways_sys::interface::{self, DnsSource, Interface, Kind, Metered, Unusable};
use serde::Serialize;

/// The networks that this host has, and which of them can be used.
///
/// A network can be used when a socket that is bound to it reaches the internet and gets answers.
/// Nothing is sent to find that out: the kernel is asked which way it would go. Needs no
/// privilege.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways paths
  manyways paths --all --json
  manyways paths --to 192.168.7.20    which networks lead to this server

The first one is the one that the kernel prefers. Exit code: 0, even when no network can be used;
1 when the networks cannot be listed. The JSON is documented in docs/paths.md.")]
pub struct Args {
    /// Print one JSON document, with every interface, instead of a table.
    #[arg(long)]
    json: bool,
    /// Also show loopback, and virtual interfaces that are not in use.
    #[arg(long)]
    all: bool,
    /// Ask for the way to this address instead of the internet at large.
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    to: Vec<IpAddr>,
}

/// Accepts no names, because a look-up would send packets.
fn address(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| {
        "an IP address was expected, like 192.0.2.7 or 2001:db8::7; `getent ahosts NAME` shows those of \
         a name"
            .to_owned()
    })
}

pub fn run(args: Args) -> Result<ExitCode> {
    let found = interface::list_towards(&args.to)?;
    if args.json {
        let document = serde_json::to_string(&document(&found));
        println!("{}", document.context("cannot make the JSON document")?);
    } else {
        let shown: Vec<&Interface> =
            found.iter().filter(|interface| args.all || of_interest(interface)).collect();
        print!("{}", table(&shown));
    }
    Ok(ExitCode::SUCCESS)
}

fn of_interest(interface: &Interface) -> bool {
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
    schema: &'static str,
    paths: Vec<Path<'a>>,
}

#[derive(Serialize)]
struct Path<'a> {
    name: &'a str,
    index: u32,
    kind: &'static str,
    addresses: &'a [IpAddr],
    stranded: Vec<Stranded>,
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
    why_not: Option<WhyNot>,
}

#[derive(Serialize)]
struct Stranded {
    address: IpAddr,
    #[serde(flatten)]
    why_not: WhyNot,
}

#[derive(Serialize)]
struct WhyNot {
    reason: &'static str,
    why: String,
    hint: String,
}

impl From<&Unusable> for WhyNot {
    fn from(why: &Unusable) -> Self {
        Self { reason: why.word(), why: why.to_string(), hint: why.hint() }
    }
}

fn document(found: &[Interface]) -> Document<'_> {
    let paths = found
        .iter()
        .map(|interface| Path {
            name: &interface.name,
            index: interface.index,
            kind: interface.kind.word(),
            addresses: &interface.addresses,
            stranded: interface
                .stranded
                .iter()
                .map(|(address, why)| Stranded { address: *address, why_not: why.into() })
                .collect(),
            gateways: &interface.gateways,
            dns: &interface.dns,
            dns_announced: interface.dns_announced,
            dns_source: interface.dns_source.map(DnsSource::word),
            metered: interface.metered.is_metered(),
            metered_guess: match interface.metered {
                Metered::Guessed { why, .. } => Some(why),
                _ => None,
            },
            mtu: interface.mtu,
            metric: interface.metric,
            usable: interface.usable.is_ok(),
            why_not: interface.usable.as_ref().err().map(WhyNot::from),
        })
        .collect();
    Document { schema: "manyways.paths/1", paths }
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
            Err(why) => {
                notes.push(format!("{}: {}", interface.name, why.hint()));
                format!("no: {why}")
            }
        };
        for (address, why) in &interface.stranded {
            notes.push(format!("{}: {address} is left out: {why}", interface.name));
        }
        if several && !interface.dns_announced && !interface.dns.is_empty() {
            notes.push(format!(
                "{}: announced no name server that can be found; the host's own is asked over it",
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
                first(interface.kind.word()),
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
