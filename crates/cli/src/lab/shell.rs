//! `lab shell`: one command on a device with emulated links.

use std::io::{ErrorKind, IsTerminal};
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use manyways_lab::control::Control;
use manyways_lab::timeline::Timeline;
use manyways_lab::warning::link_warnings;
use manyways_lab::{Lab, LabError, LabSpec, Node};
use manyways_sys::signal::Termination;
use manyways_trace::link_text::one_way;
use manyways_trace::scenario::{HostSpec, LinkSpec};
use manyways_unit::Span;

use super::{
    FarHosts, current_folder, export, lab_failure, link_failure, prepare, reader, run_foreground,
    serve, warn_doubts,
};
use crate::failure::Failure;

/// Run a command on a device that has emulated links.
///
/// The command sees one network interface per link, each with its own IPv4 and IPv6 address,
/// gateway, routing table and resolver. The far side is `origin.lab`.
#[derive(clap::Args)]
#[command(after_help = "\
Links:
  NAME:key=value,… with the keys down, up (10mbit, unlimited, trace:FILE), delay (one way),
  jitter, reorder, loss (0.1%, ge:TO_BAD:TO_GOOD), queue (150ms, 64KB, 100p), aqm (drop-tail,
  drop-head, codel), mtu, metered, middlebox (nat:idle=30s, strip-mptcp), rrc (a radio's profile:
  lte, or a file), signal (trace:FILE, the radio signal that programs see), state (up, paused,
  silent, no-carrier), device (NAME), between (NAME:NAME, two devices), shares (AIR, in which
  Bluetooth and Wi-Fi disturb each other). down-KEY and up-KEY set one direction.
  A comma in the name of a file is written \\,

Examples:
  manyways lab shell --link wifi:down=10mbit,up=5mbit,delay=14ms,queue=150ms \\
                     --link lte:down=trace:lte.down,up=trace:lte.up,delay=32ms,loss=0.1% \\
                     --far 'python3 -m http.server 80' -- curl -so /dev/null http://origin.lab/
  manyways lab shell --scenario scenarios/wifi-lte.toml -- bash
  manyways lab shell --link lte:delay=25ms,rrc=lte -- bash
  manyways lab shell --link wifi:delay=10ms --host far:wifi=40ms --far '@far iperf3 -s' -- bash
  manyways lab shell --link lte:delay=25ms --far-host 93.184.216.34,name=example.com,extra-rtt=40ms \\
                     --far 'python3 -m http.server 80' -- curl -so /dev/null http://example.com/
  manyways lab shell --link wifi:delay=9ms,device=laptop --link lte:delay=30ms,device=phone \\
                     --link lan:delay=3ms,between=laptop:phone -- bash")]
pub struct Args {
    /// An emulated link; may be repeated.
    #[arg(long = "link", value_name = "NAME:KEY=VALUE,…")]
    links: Vec<String>,
    /// Take links, hosts and far commands from a scenario file.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["links", "hosts"])]
    scenario: Option<PathBuf>,
    /// A far host, with its extra one-way delay on each link; may be repeated [default: origin]
    #[arg(long = "host", value_name = "NAME[:LINK=DELAY,…]")]
    hosts: Vec<String>,
    #[command(flatten)]
    far_hosts: FarHosts,
    /// Command that runs a server on the far side, by /bin/sh; `@NAME CMD` runs it on that host or
    /// device.
    #[arg(long = "far", value_name = "CMD")]
    far: Vec<String>,
    /// Give the far side this machine's own network (root only): IPv4, and IPv6 where the machine
    /// has it.
    #[arg(long)]
    internet: bool,
    /// Name of the lab, for `lab enter` and `lab set`.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// TCP congestion control of both sides [default: cubic]
    #[arg(long, value_name = "NAME")]
    cc: Option<String>,
    /// Seed of loss and jitter.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Offset at which links start to read their traces.
    #[arg(long, value_name = "TIME")]
    trace_offset: Option<Span>,
    /// Write one pcapng file per link into this folder.
    #[arg(long, value_name = "DIR")]
    pcap: Option<PathBuf>,
    /// Write rates, queues and drops over time to this file (JSON lines).
    #[arg(long, value_name = "FILE")]
    timeline: Option<PathBuf>,
    /// The command [default: your shell]
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub fn shell(args: Args) -> Result<ExitCode> {
    let spec = spec(&args)?;
    // Every user is root in a new user namespace, but cannot share the host's network from there.
    if spec.internet && !manyways_sys::sandbox::is_root() {
        return Err(lab_failure(LabError::InternetNeedsRoot).into());
    }
    let registry = prepare()?;
    let termination = Termination::take().context("cannot watch for signals")?;
    if let Some(folder) = &spec.pcap {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    }
    spec.links.iter().for_each(|link| warn_doubts(&link.name, &link_warnings(link)));
    let cc = spec.cc.clone();
    let mut lab = Lab::start(&registry, spec).map_err(lab_failure)?;
    let name = lab.name().to_owned();
    if lab.internet_v6() == Some(false) {
        eprintln!(
            "manyways: this machine has no IPv6 route to the internet, so the lab reaches it over IPv4 only"
        );
    }
    export(&mut lab, args.scenario.as_deref())?;
    let timeline = args
        .timeline
        .as_ref()
        .map(|file| {
            Timeline::start(&lab, file, Some(&name))
                .with_context(|| format!("cannot write {}", file.display()))
        })
        .transpose()?;
    let marks = timeline.as_ref().map(Timeline::event_sender);
    let _control = Control::start(&lab, marks).context("cannot open the lab's control socket")?;
    for (node, command) in lab.specified_servers() {
        serve(&mut lab, node, &command)?;
    }
    for far in &args.far {
        let (node, command) = server_command(&lab, far)?;
        serve(&mut lab, node, command)?;
    }
    announce(&lab, &name, &cc);
    let start = || {
        let child = lab.spawn(Node::Device(0), command(&args.command));
        Ok(child.map_err(|error| start_failure(error, args.command.first()))?)
    };
    let code = run_foreground(start, &termination)?;
    if let Some(timeline) = timeline {
        timeline.finish().context("cannot write the timeline")?;
    }
    Ok(code)
}

/// Exit codes as in a shell: 127 if the command does not exist, 126 if it cannot be executed.
pub fn start_failure(error: LabError, program: Option<&String>) -> Failure {
    match (&error, program) {
        (LabError::System { error: inner, .. }, Some(program)) => {
            let code = if inner.kind() == ErrorKind::NotFound { 127 } else { 126 };
            Failure::new(format!("cannot run `{program}` in the lab: {inner}")).code(code)
        }
        _ => lab_failure(error),
    }
}

fn spec(args: &Args) -> Result<LabSpec> {
    let name = args.name.clone().unwrap_or_else(|| format!("lab-{}", std::process::id()));
    check_name(&name)?;
    let mut spec = match &args.scenario {
        Some(file) => {
            let scenario = super::run::read_scenario(file)?;
            manyways_lab::run::lab_spec(&scenario, name)
        }
        None => {
            if args.links.is_empty() {
                let hint = "for example --link wifi:down=10mbit,up=5mbit,delay=14ms";
                return Failure::refuse("a lab needs at least one link", hint);
            }
            let links = args
                .links
                .iter()
                .map(|text| {
                    LinkSpec::parse(text, &mut reader(&current_folder())).map_err(link_failure)
                })
                .collect::<std::result::Result<Vec<_>, _>>()?;
            let hosts = args.hosts.iter().map(|text| host(text, &links));
            let hosts = hosts.collect::<std::result::Result<_, _>>()?;
            let mut spec = LabSpec::new(name, links);
            spec.hosts = hosts;
            spec
        }
    };
    if let Some(cc) = &args.cc {
        spec.cc.clone_from(cc);
    }
    spec.far_hosts = args.far_hosts.parse()?;
    spec.seed = args.seed.unwrap_or(spec.seed);
    spec.trace_offset = args.trace_offset.unwrap_or(spec.trace_offset);
    spec.numbered = args.name.is_none();
    spec.internet = args.internet;
    spec.pcap.clone_from(&args.pcap);
    Ok(spec)
}

fn check_name(name: &str) -> Result<(), Failure> {
    let fits = (1..=40).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        && name != "lock";
    if fits {
        return Ok(());
    }
    Err(Failure::usage(format!("`{name}` cannot name a lab"))
        .hint("use at most 40 letters, digits, hyphens and underscores"))
}

/// Parses `MAX_NAME_LENGTH` or `NAME:LINK=DELAY,…`.
fn host(text: &str, links: &[LinkSpec]) -> Result<HostSpec, Failure> {
    let (name, rest) = text.split_once(':').unwrap_or((text, ""));
    let wrong = |sentence: String| {
        Failure::usage(sentence).hint("write a host like far or far:wifi=20ms,lte=5ms")
    };
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Err(wrong(format!("`{name}` cannot name a host")));
    }
    let extra_delay = rest
        .split(',')
        .filter(|part| !part.is_empty())
        .map(|part| {
            let (link, delay) =
                part.split_once('=').ok_or_else(|| wrong(format!("`{part}` is not LINK=DELAY")))?;
            if !links.iter().any(|known| known.name == link) {
                return Err(wrong(format!(
                    "host `{name}` names the link `{link}`, which does not exist"
                )));
            }
            let delay = one_way(delay).map_err(|error| wrong(format!("{error}")))?;
            Ok((link.to_owned(), delay))
        })
        .collect::<Result<_, Failure>>()?;
    Ok(HostSpec { name: name.to_owned(), extra_delay, names: Vec::new(), serve: Vec::new() })
}

fn server_command<'t>(lab: &Lab, text: &'t str) -> Result<(Node, &'t str), Failure> {
    let Some((name, command)) = text.strip_prefix('@').and_then(|rest| rest.split_once(' ')) else {
        return Ok((Node::Host(0), text));
    };
    match lab.node(name) {
        Some(node) => Ok((node, command)),
        None => Err(Failure::usage(format!("there is no far host `{name}`"))
            .hint("name it with --host, or in the scenario")),
    }
}

pub fn command(words: &[String]) -> Command {
    match words.split_first() {
        Some((program, arguments)) => {
            let mut command = Command::new(program);
            command.args(arguments);
            command
        }
        None => Command::new(std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into())),
    }
}

/// Describes the lab on a terminal. Without a terminal only the congestion control is printed,
/// because it affects every measurement.
fn announce(lab: &Lab, name: &str, cc: &str) {
    eprintln!("lab `{name}`: congestion control {cc}");
    if !std::io::stderr().is_terminal() {
        return;
    }
    let devices = lab.device_names();
    for (index, link) in lab.links().iter().enumerate() {
        let [v4, v6] = manyways_lab::address::device(index);
        let owner = match (devices.len(), &link.device, &link.peer) {
            (1, ..) => String::new(),
            (_, device, None) => format!(" on {}", device.as_deref().unwrap_or(devices[0])),
            (_, device, Some(peer)) => {
                format!(" on {}, to {peer}", device.as_deref().unwrap_or(devices[0]))
            }
        };
        eprintln!("  {:10} {v4}, {v6}{owner}", link.name);
    }
    eprintln!("  the far side is origin.lab; leave with exit");
}
