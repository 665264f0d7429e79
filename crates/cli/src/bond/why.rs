//! `manyways bond why`: explains the treatment of a destination by a running client.

use std::net::IpAddr;
use std::process::ExitCode;

use anyhow::Result;
use clap::ValueEnum;
use manyways_net::bond::control::{BondRole, ControlRequest, ControlResponse};
use manyways_net::bond::{WhyPath, WhyQuery, WhyReport};
use manyways_record::document;
use manyways_unit::human::{self, printable};
use manyways_unit::{Size, Span};

use super::client::parse_user;
use super::status::{ask, unexpected};
use crate::failure::Failure;

/// Explain which networks a destination uses, and which rule selects them.
///
/// The running client answers, because its policy also depends on the current state of its
/// networks. A rule that depends on a property of the application (--process, --user, --cgroup)
/// does not match unless the option is given.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways bond why www.example.com
  manyways bond why 192.0.2.1:3478 --protocol udp --process zoom
  manyways bond why example.com --bytes 2MB")]
pub struct Args {
    /// Name or address of a host, and a port [default: 443]; or an http:// or https:// URL
    #[arg(value_name = "HOST[:PORT]", value_parser = parse_destination)]
    destination: Destination,
    /// IP address of the host, if the destination is a name.
    #[arg(long, value_name = "ADDR")]
    address: Option<IpAddr>,
    /// Transport protocol.
    #[arg(long, value_enum, default_value_t = Protocol::Tcp)]
    protocol: Protocol,
    /// File name of the program that connects.
    #[arg(long, value_name = "NAME")]
    process: Option<String>,
    /// User who runs the program, by name or number.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Control group of the program.
    #[arg(long, value_name = "PATH")]
    cgroup: Option<String>,
    /// Bytes that the connection has already transferred.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    bytes: Option<u64>,
    /// Name of the client: `bond client --name`.
    #[arg(long, value_name = "NAME", default_value = "default")]
    name: String,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Protocol {
    Tcp,
    Udp,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Destination {
    host: Result<IpAddr, String>,
    port: u16,
}

fn parse_destination(text: &str) -> Result<Destination, String> {
    let text = match text.split_once("://") {
        Some((scheme, rest)) => &parse_url(scheme, rest)?,
        None => text,
    };
    let host = |host: &str| {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        bare.parse::<IpAddr>().map_err(|_| bare.to_owned())
    };
    // An IPv6 address contains colons.
    if let Ok(address) = host(text) {
        return Ok(Destination { host: Ok(address), port: 443 });
    }
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) => {
            (name, port.parse().map_err(|_| format!("{port:?} is not a port (0 to 65535)"))?)
        }
        None => (text, 443),
    };
    if name.is_empty() || name.contains(['/', ' ', ':']) && !name.starts_with('[') {
        return Err("write a host and a port, like www.example.com:443".to_owned());
    }
    Ok(Destination { host: host(name), port })
}

/// Returns the host and the port of a URL. The default port depends on the scheme.
fn parse_url(scheme: &str, rest: &str) -> Result<String, String> {
    let port = match scheme.to_ascii_lowercase().as_str() {
        "http" => 80,
        "https" => 443,
        _ => return Err("write the host and the port, like www.example.com:443".to_owned()),
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    // The user information does not matter.
    let host = authority.rsplit('@').next().unwrap_or_default();
    // The colons of an IPv6 address are in brackets.
    let has_port = host.rsplit(']').next().is_some_and(|end| end.contains(':'));
    Ok(if has_port { host.to_owned() } else { format!("{host}:{port}") })
}

fn parse_size(text: &str) -> Result<u64, String> {
    human::bytes(text).map(|size| size.as_bytes()).map_err(|error| error.to_string())
}

pub fn run(args: Args) -> Result<ExitCode> {
    let uid = args.user.as_deref().map(parse_user).transpose();
    let uid = uid.map_err(|words| {
        Failure::usage(words).hint("--user takes a name or a number of this host")
    })?;
    let is_number = args.user.as_deref().is_some_and(|user| user.parse::<u32>().is_ok());
    let query = WhyQuery {
        domain: args.destination.host.clone().err(),
        address: args.destination.host.ok().or(args.address),
        port: args.destination.port,
        is_udp: args.protocol == Protocol::Udp,
        process: args.process,
        user: args.user.filter(|_| !is_number),
        uid,
        cgroup: args.cgroup,
        bytes: args.bytes.unwrap_or_default(),
    };
    let request = ControlRequest::Why(query);
    let response = ask(BondRole::Client, &args.name, &request)?;
    let ControlResponse::Why(why) = response else { return Err(unexpected(response).into()) };
    if args.json {
        print!("{}", document::to_json(&*why)?);
    } else {
        print!("{}", report_text(&why));
    }
    Ok(ExitCode::SUCCESS)
}

fn report_text(report: &WhyReport) -> String {
    let mut text = String::new();
    let mut line = |words: String| {
        // Rules, names and labels may contain control characters.
        text += &printable(&words);
        text.push('\n');
    };
    if let Some(words) = &report.not_intercepted {
        line(format!("not intercepted: {words}"));
        if !report.has_proxy {
            return text;
        }
        line("if the application uses the client's proxy (--socks, --http-proxy):".to_owned());
    }
    if let Some(condition) = &report.intercepted_if {
        line(format!("intercepted if {condition}"));
    }
    let by = match &report.rule {
        Some(rule) => format!("the rule `{rule}`"),
        None => "the default".to_owned(),
    };
    line(format!("{}, by {by}", report.action));
    match report.decision.as_str() {
        "bond" if report.no_path_action.is_some() => {
            line(report.no_path_action.iter().cloned().collect());
        }
        "bond" if report.waiting_for_path => {
            line("the connection waits: no permitted path is up".to_owned());
        }
        "bond" => {
            let what = if report.paths.len() == 1 { "path" } else { "paths" };
            line(format!("{what}: {}", report.paths.join(", ")));
            for path in &report.path_details {
                line(format!("  {}", path_text(path)));
            }
        }
        _ => {}
    }
    if let Some(words) = &report.gateway_refuses {
        line(words.clone());
    }
    if let Some(name) = &report.resolved_from {
        line(format!("the address was resolved from {name}"));
    }
    for step in &report.steps {
        let sign = if step.matched { "matches" } else { "does not match" };
        line(format!("  line {}: `{}` {sign}: {}", step.line, step.rule, step.reason));
    }
    if report.rule.is_none() {
        line("  no rule matches, so the default applies".to_owned());
    }
    text
}

fn path_text(path: &WhyPath) -> String {
    let delivery = match path.delivery_seconds {
        Some(seconds) => {
            let span = Span::from_secs_f64(seconds.max(0.0));
            format!("delivery in {:.0} ms", span.as_millis_f64())
        }
        None => "delivery unknown".to_owned(),
    };
    let backlog = match path.lender_backlog_bytes {
        Some(bytes) => format!(", backlog {}", Size::from_bytes(bytes)),
        None => String::new(),
    };
    format!("{}: {}, {delivery}{backlog}", path.name, path.kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_proxy_only_the_reason_is_printed() {
        let why = |has_proxy| WhyReport {
            decision: "bond".into(),
            rule: None,
            action: "minrtt over all".into(),
            paths: vec!["wifi".into()],
            path_details: Vec::new(),
            waiting_for_path: false,
            resolved_from: None,
            steps: Vec::new(),
            not_intercepted: Some("::1 is loopback (::/127)".into()),
            has_proxy,
            intercepted_if: None,
            gateway_refuses: None,
            no_path_action: None,
        };
        let alone = "not intercepted: ::1 is loopback (::/127)\n";
        assert_eq!(report_text(&why(false)), alone);
        let both = report_text(&why(true));
        assert!(both.starts_with(alone) && both.contains("\nminrtt over all, by the"), "{both}");
        let taken = report_text(&WhyReport { not_intercepted: None, ..why(false) });
        assert!(taken.starts_with("minrtt over all, by the default\npath: wifi\n"), "{taken}");
        let intercepted_if = Some("user ann sends it".into());
        let some = report_text(&WhyReport { not_intercepted: None, intercepted_if, ..why(false) });
        assert!(some.starts_with("intercepted if user ann sends it\nminrtt over all"), "{some}");
        let path = |name: &str, kind: &str, delivery_seconds, lender_backlog_bytes| WhyPath {
            name: name.into(),
            kind: kind.into(),
            delivery_seconds,
            lender_backlog_bytes,
        };
        let path_details = vec![
            path("wlan0", "wifi", Some(0.0184), None),
            path("phone", "lender", Some(0.07), Some(12_300)),
            path("wwan0", "cellular", None, None),
        ];
        let paths = report_text(&WhyReport { not_intercepted: None, path_details, ..why(false) });
        let lines = "  wlan0: wifi, delivery in 18 ms\n  phone: lender, delivery in 70 ms, backlog \
                     12.3 KB\n  wwan0: cellular, delivery unknown\n  no rule matches";
        assert!(paths.contains(lines), "{paths}");
    }

    #[test]
    fn what_becomes_of_it_without_a_network_and_at_the_gateway_is_said() {
        let report = WhyReport {
            decision: "bond".into(),
            rule: None,
            action: "minrtt over all".into(),
            paths: Vec::new(),
            path_details: Vec::new(),
            waiting_for_path: true,
            resolved_from: None,
            steps: Vec::new(),
            not_intercepted: None,
            has_proxy: true,
            intercepted_if: None,
            gateway_refuses: Some("the gateway refuses 10.1.2.3".into()),
            no_path_action: Some("no network leads to the gateway".into()),
        };
        let said = report_text(&report);
        let lines = "the default\nno network leads to the gateway\nthe gateway refuses 10.1.2.3\n";
        assert!(said.contains(lines) && !said.contains("the connection waits"), "{said}");
    }

    #[test]
    fn a_destination_is_a_name_or_an_address_with_or_without_a_port() {
        let of = |text: &str| {
            let Destination { host, port } = parse_destination(text).unwrap();
            (host.map(|address| address.to_string()).unwrap_or_else(|name| name), port)
        };
        assert_eq!(of("example.com"), ("example.com".into(), 443));
        assert_eq!(of("example.com:80"), ("example.com".into(), 80));
        assert_eq!(of("192.0.2.1:53"), ("192.0.2.1".into(), 53));
        assert_eq!(of("2001:db8::1"), ("2001:db8::1".into(), 443));
        assert_eq!(of("[2001:db8::1]:80"), ("2001:db8::1".into(), 80));
        assert_eq!(of("http://example.com/a:b?c@d"), ("example.com".into(), 80));
        assert_eq!(of("HTTPS://me:secret@example.com"), ("example.com".into(), 443));
        assert_eq!(of("https://[2001:db8::1]/"), ("2001:db8::1".into(), 443));
        assert_eq!(of("http://[2001:db8::1]:81/"), ("2001:db8::1".into(), 81));
        for wrong in ["", ":80", "a:b", "example.com:70000", "http://", "http://a:b/", "ftp://a/"] {
            assert!(parse_destination(wrong).is_err(), "{wrong}");
        }
    }
}
