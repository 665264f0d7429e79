//! `lab enter`, `set`, `status`, `list` and `gc`: commands for existing labs.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use manyways_lab::control::{
    FarHostStatus, LinkStatus, RadioStatus, Request, Response, SignalStatus, WaitingStatus, ask,
};
use manyways_lab::registry::Record;
use manyways_lab::warning::event_warnings;
use manyways_record::document;
use manyways_sys::signal::Termination;
use manyways_trace::link_text;
use manyways_trace::scenario::Event;
use manyways_unit::Span;
use manyways_unit::human::count_with_noun;
use serde::Serialize;
use serde_json::{Value, json};

use super::{find, registry, run_foreground};
use crate::failure::Failure;

/// Open a second shell in a running lab.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  manyways lab enter demo\n  manyways lab enter demo --host origin -- ss -tni\n  \
                  manyways lab enter demo --device phone -- ip -br address"
)]
pub struct EnterArgs {
    /// Name of the lab; optional if only one lab runs.
    name: Option<String>,
    /// Run the command on this far host, not on the device.
    #[arg(long, value_name = "NAME", conflicts_with = "device")]
    host: Option<String>,
    /// Run the command on this device [default: the first one]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// The command [default: your shell]
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Change a link of a running lab.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  manyways lab set wifi down=2mbit delay=40ms\n  manyways lab set --lab demo lte state=silent\n  manyways lab set --when 'wifi.down_bytes >= 300KB' wifi state=paused"
)]
pub struct SetArgs {
    /// Name of the lab; optional if only one lab runs.
    #[arg(long, value_name = "NAME")]
    lab: Option<String>,
    /// Make the change when a counter of a link has increased by this value from now on, like
    /// `wifi.down_bytes >= 300KB`. The counters are down_bytes, up_bytes, down_dropped, up_dropped
    /// and promotions.
    #[arg(long, value_name = "CONDITION")]
    when: Option<String>,
    /// Make the change this time later, or this time after the condition holds, like 2s.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    after: Option<String>,
    /// Undo the change when a counter has increased by this value from now on; if that comes first,
    /// the change is not made. The link then has the settings that it would have without the
    /// change.
    #[arg(long, value_name = "CONDITION")]
    until: Option<String>,
    /// First remove the changes of this link that have not happened. A change that has happened is
    /// still undone by its --until.
    #[arg(long)]
    cancel: bool,
    /// The link.
    link: String,
    /// Changed settings, with the keys of `lab shell --link`. A running lab cannot change mtu,
    /// metered, middlebox and the radio of a link; rrc=dormant triggers fast dormancy of that
    /// radio, and middlebox=restart removes the mappings of a NAT.
    #[arg(required_unless_present = "cancel", value_name = "KEY=VALUE")]
    settings: Vec<String>,
}

/// List the running labs.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  manyways lab list --json")]
pub struct ListArgs {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Show the traffic of the links of a running lab.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  manyways lab status\n  watch -n 1 manyways lab status demo")]
pub struct StatusArgs {
    /// Name of the lab; optional if only one lab runs.
    name: Option<String>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Remove the remains of killed labs.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  manyways lab gc")]
pub struct GcArgs {}

#[derive(Serialize)]
struct LabList {
    labs: Vec<Value>,
}

document!(LabList, "manyways.labs/1");

#[derive(Serialize)]
struct LabStatus {
    lab: String,
    seconds: f64,
    links: Vec<LinkStatus>,
    far_hosts: Vec<FarHostStatus>,
    waiting: Vec<WaitingStatus>,
}

document!(LabStatus, "manyways.lab-status/1");

pub fn enter(args: EnterArgs) -> Result<ExitCode> {
    let registry = registry()?;
    let record = find(&registry, args.name.as_deref())?;
    let named = |kind: &str, all: &[(String, i32)], name: &str| {
        let found = all.iter().find(|(known, _)| known == name).map(|(_, fd)| *fd);
        found.ok_or_else(|| {
            let names: Vec<_> = all.iter().map(|(name, _)| name.as_str()).collect();
            Failure::new(format!("lab `{}` has no {kind} `{name}`", record.name))
                .hint(format!("its {kind}s are {}", names.join(", ")))
        })
    };
    let (device, fd) = match (&args.host, &args.device) {
        (Some(host), _) => (None, named("host", &record.hosts, host)?),
        (None, Some(device)) => (Some(device.as_str()), named("device", &record.devices, device)?),
        (None, None) => {
            let (first, fd) = record.devices.first().context("the lab has no device")?;
            (Some(first.as_str()), *fd)
        }
    };
    if std::env::var_os("LAB_NAME").is_some() {
        return Err(Failure::new("a lab cannot be entered from inside a lab")
            .hint("enter it from another terminal")
            .into());
    }
    let folder = registry.folder(&record.name);
    let command = super::shell::command(&args.command);
    let termination = Termination::take().context("cannot watch for signals")?;
    let start = || {
        manyways_lab::enter(&record, &folder, device, fd, command)
            .with_context(|| format!("cannot enter lab `{}`", record.name))
    };
    run_foreground(start, &termination)
}

pub fn set(args: SetArgs) -> Result<ExitCode> {
    let registry = registry()?;
    let record = find(&registry, args.lab.as_deref())?;
    let link = args.link;
    let settings: Vec<String> = args.settings.iter().map(|word| absolute(word)).collect();
    let (when, until) = (args.when.clone(), args.until.clone());
    let request = Request::Set {
        link: link.clone(),
        settings: settings.clone(),
        when,
        after: args.after,
        until,
        cancel: args.cancel,
    };
    let answer = ask(&registry.folder(&record.name), &request)
        .with_context(|| format!("lab `{}` does not answer", record.name))?;
    match answer {
        Response::Refused { message, hint } => {
            let failure = Failure::usage(message);
            Err(hint.into_iter().fold(failure, Failure::hint).into())
        }
        answer => {
            // The result of a change is seen on the link.
            if let Response::Done { cancelled: Some(count) } = answer
                && settings.is_empty()
            {
                println!("{link}: {} removed", count_with_noun(count, "waiting change"));
            }
            // Files that the lab could read can also be read here.
            let words = settings.iter().map(String::as_str);
            let changes = link_text::changes(words, &mut super::reader(Path::new("")));
            let condition = |text: Option<String>| link_text::condition(&text?).ok();
            let event = Event {
                when: condition(args.when),
                at: Span::ZERO,
                until: condition(args.until),
                link,
                change: changes.unwrap_or_default(),
            };
            super::warn_doubts(&event.link, &event_warnings(&event));
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Makes the file of a trace or profile absolute, because the lab runs in another folder.
fn absolute(word: &str) -> String {
    if let Some(file) = word.strip_prefix("rrc=").filter(|value| value.contains(['/', '.'])) {
        return match std::path::absolute(file) {
            Ok(path) => format!("rrc={}", path.display()),
            Err(_) => word.to_owned(),
        };
    }
    let Some((key, file)) = word.split_once("=trace:") else { return word.to_owned() };
    let (format, file) = match file.rsplit_once(':') {
        // A signal has no choice of formats.
        Some((format, file)) if key.trim() != "signal" => (format!("{format}:"), file),
        _ => (String::new(), file),
    };
    match std::path::absolute(file) {
        Ok(path) => format!("{key}=trace:{format}{}", path.display()),
        Err(_) => word.to_owned(),
    }
}

pub fn list(args: ListArgs) -> Result<ExitCode> {
    let records = registry()?.records().context("cannot read the folder of the running labs")?;
    let alive: Vec<_> = records.into_iter().filter(Record::is_alive).collect();
    if args.json {
        let lab = |record: &Record| {
            let hosts: Vec<_> = record.hosts.iter().map(|(name, _)| name).collect();
            let devices: Vec<_> = record.devices.iter().map(|(name, _)| name).collect();
            json!({
                "name": record.name, "pid": record.process(), "links": record.links, "hosts": hosts,
                "devices": devices,
            })
        };
        print!("{}", document::to_json(&LabList { labs: alive.iter().map(lab).collect() })?);
    } else if alive.is_empty() {
        println!("no lab is running");
    } else {
        for record in &alive {
            // A lab outside or parallel to the caller's lab has no process id here.
            let process = record.process().map_or("-".to_owned(), |pid| pid.to_string());
            println!("{:24} process {process:<8} links {}", record.name, record.links.join(", "));
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub fn status(args: StatusArgs) -> Result<ExitCode> {
    let registry = registry()?;
    let record = find(&registry, args.name.as_deref())?;
    let answer = ask(&registry.folder(&record.name), &Request::Status)
        .with_context(|| format!("lab `{}` does not answer", record.name))?;
    let Response::Status { seconds, links, far_hosts, waiting } = answer else {
        return Err(Failure::new(format!("lab `{}` has no counters", record.name)).into());
    };
    if args.json {
        let status = LabStatus { lab: record.name, seconds, links, far_hosts, waiting };
        print!("{}", document::to_json(&status)?);
        return Ok(ExitCode::SUCCESS);
    }
    println!("lab `{}`, up for {seconds:.0} s", record.name);
    println!(
        "{:10} {:4} {:>12} {:>10} {:>8} {:>10}",
        "LINK", "", "MB", "PACKETS", "DROPPED", "WAITING"
    );
    for link in &links {
        for (direction, lane) in [("down", link.down), ("up", link.up)] {
            println!(
                "{:10} {direction:4} {:>12.3} {:>10} {:>8} {:>10}",
                link.name,
                lane.delivered_bytes as f64 / 1e6,
                lane.delivered_packets,
                lane.dropped_packets,
                manyways_unit::Size::from_bytes(lane.queue_bytes).to_string(),
            );
        }
        let late = link.max_lateness_seconds * 1e3;
        println!("{:10} {}, at most {late:.3} ms late", link.name, link.state);
        if let Some(radio) = &link.radio {
            println!("{:10} {}", link.name, radio_text(radio));
        }
        if let Some(signal) = &link.signal {
            println!("{:10} {}", link.name, signal_text(signal));
        }
    }
    for change in &waiting {
        println!("waiting: {}", super::waiting_text(change));
    }
    Ok(ExitCode::SUCCESS)
}

/// Formats the state of a radio.
fn radio_text(radio: &RadioStatus) -> String {
    let state = match radio.waking {
        true => format!("promotion from {}", radio.state),
        false => radio.state.clone(),
    };
    let from: Vec<String> = radio
        .promotions_from
        .iter()
        .map(|one| format!("{} from {}", one.count, one.state))
        .collect();
    let promotions = count_with_noun(radio.promotions as usize, "promotion");
    format!("radio {}: {state}; {promotions} ({})", radio.profile, from.join(", "))
}

/// Formats the current values of a signal.
fn signal_text(signal: &SignalStatus) -> String {
    let values = [
        ("rssi", signal.rssi, " dBm"),
        ("rsrp", signal.rsrp, " dBm"),
        ("rsrq", signal.rsrq, " dB"),
        ("snr", signal.snr, " dB"),
        ("cqi", signal.cqi, ""),
    ];
    let known = values
        .into_iter()
        .filter_map(|(name, value, unit)| value.map(|value| format!("{name} {value}{unit}")));
    let known: Vec<String> = known.collect();
    let values = if known.is_empty() { "unknown".to_owned() } else { known.join(", ") };
    format!("signal {}: {values}", signal.source)
}

pub fn gc(_args: GcArgs) -> Result<ExitCode> {
    let removed = registry()?.collect().context("cannot remove what a killed lab left")?;
    if removed.is_empty() {
        println!("nothing to remove");
    }
    for name in removed {
        println!("removed {name}");
    }
    Ok(ExitCode::SUCCESS)
}
