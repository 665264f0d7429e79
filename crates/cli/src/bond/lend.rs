//! `manyways bond lend`: lets paired devices use a network of this one.

use std::cell::RefCell;
use std::io::{IsTerminal, stderr};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueHint;
use manyways_net::bond::{
    EgressFilter, KeyError, LendError, LendEvent, LendLimit, LendOptions, Lending, PairFile,
    PairedDevice, PairedRole, PrivateKey, UsageFile,
};
use manyways_net::path::PathSpec;
use manyways_net::state::state_folder;
use manyways_proto::bond::pairing::is_device_name;
use manyways_record::document;
use manyways_sys::terminal::Keys;
use manyways_sys::{interface, privilege};
use manyways_unit::human::{self, count_with_noun, quoted};
use manyways_unit::{Prefix, Size, Span};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};

use super::{keygen, listen};
use crate::failure::Failure;
use crate::output;

/// File of this device's key in the state folder, if none is named.
const KEY_FILE: &str = "lend.key";
/// File of the lent bytes.
const USAGE_FILE: &str = "lent.json";
/// Interval of the screen.
const SCREEN_INTERVAL: Duration = Duration::from_millis(500);

/// Lend a network of this device to paired devices, for their bonds.
///
/// Another device reaches its own gateway through this one, over a connection that this device cannot
/// read. It dials nothing but that gateway. No privileges are needed. q stops it after it has passed on
/// what it has, and at once if it is pressed again; p shows a code for another device.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways bond lend --listen 192.168.43.1:4434 --via wwan0      (shows a code at the first start)
  manyways bond lend --listen 192.168.43.1:4434 --via wwan0 --limit 2GB/month
  manyways bond lend --listen 192.168.43.1:4434 --pair           (another device)
  manyways bond lend --list
  manyways bond pair 192.168.43.1:4434 --gateway gw.example:4433 --gateway-key KEY --key laptop.key
                                                                 (on the other device)

docs/lend.md explains the setup step by step.")]
pub struct Args {
    /// Address and port at which other devices find this one, on a network that is not lent. It
    /// accepts no connection over another one. May be given more than once.
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_listen, required_unless_present = "list")]
    listen: Vec<SocketAddr>,
    /// Lend this network, by its name in `manyways paths`. By default the kernel chooses it.
    #[arg(long, value_name = "NAME")]
    via: Option<String>,
    /// Lend at most these bytes, of both directions: in each calendar month (2GB/month), or until
    /// the end (500MB). Bytes on their way are still passed on.
    #[arg(long, value_name = "SIZE[/month]", value_parser = parse_limit)]
    limit: Option<LendLimit>,
    /// Show a code with which a device pairs. It is shown at the first start, too.
    #[arg(long)]
    pair: bool,
    /// List the paired devices, and exit.
    #[arg(long, conflicts_with_all = ["listen", "via", "limit", "pair"])]
    list: bool,
    /// With --list: print a JSON document.
    #[arg(long, requires = "list")]
    json: bool,
    /// Name of this device in the bonds of others [default: the name of this host]
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    name: Option<String>,
    /// This device's private key [default: one that is made at the first start]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    key: Option<PathBuf>,
    /// Dial gateways in this private network too. May be given more than once.
    #[arg(long, value_name = "PREFIX")]
    permit: Vec<Prefix>,
    /// For measurements: bytes that may wait here.
    #[arg(long, value_name = "SIZE", hide = true, value_parser = human::bytes)]
    buffer: Option<Size>,
    /// For tests: time after which an end that takes nothing counts as away.
    #[arg(long, value_name = "DURATION", hide = true)]
    peer_timeout: Option<Span>,
    /// Print only errors and warnings, and codes.
    #[arg(short, long)]
    quiet: bool,
}

#[derive(Serialize)]
struct List {
    /// Devices that borrow the network of this one.
    borrowers: Vec<Value>,
    /// Devices that lend theirs to this one.
    lenders: Vec<Value>,
}

document!(List, "manyways.bond-pairs/1");

fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "write an address and a port, like 192.168.43.1:4434".to_owned())
}

pub fn parse_name(text: &str) -> Result<String, String> {
    match is_device_name(text) {
        true => Ok(text.to_owned()),
        false => Err("a name has up to 32 letters, digits, - and _".to_owned()),
    }
}

fn parse_limit(text: &str) -> Result<LendLimit, String> {
    let (size, monthly) = match text.split_once('/') {
        Some((size, "month")) => (size, true),
        None => (text, false),
        Some(_) => return Err("write a size like 500MB, or 2GB/month".to_owned()),
    };
    let size = human::bytes(size).map_err(|error| error.to_string())?;
    Ok(LendLimit { size, monthly })
}

/// Returns the folder of the paired devices.
pub fn folder() -> Result<PathBuf> {
    Ok(state_folder().ok_or_else(|| {
        Failure::new(
            "there is no folder for the paired devices: neither HOME nor XDG_STATE_HOME is set",
        )
    })?)
}

/// Returns the name of this host, as far as it can name a device.
pub fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name: String = name
        .split('.')
        .next()
        .unwrap_or_default()
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || *c == '-' || *c == '_')
        .take(32)
        .collect();
    if name.is_empty() { "device".to_owned() } else { name }
}

pub fn run(args: Args) -> Result<ExitCode> {
    let folder = folder()?;
    if args.list {
        return list(&folder, args.json);
    }
    let key = match &args.key {
        Some(path) => keygen::read(path)?,
        None => own_key(&folder)?,
    };
    let pairs = PairFile::borrowers(&folder);
    let usage = UsageFile::named(Some(&folder), USAGE_FILE);
    let name = args.name.clone().unwrap_or_else(host_name);
    let mut options = LendOptions::new((args.listen.clone(), name), key, pairs, usage);
    options.via = args.via.as_deref().map(network).transpose()?;
    options.limit = args.limit;
    options.egress = EgressFilter::new(args.permit.clone());
    options.buffer = args.buffer.unwrap_or(options.buffer);
    options.peer_timeout = args.peer_timeout.unwrap_or(options.peer_timeout);
    let _ = privilege::raise_file_limit();
    super::run_local(serve(args, options))
}

/// Reads this device's key, or makes it.
fn own_key(folder: &Path) -> Result<PrivateKey> {
    let path = folder.join(KEY_FILE);
    match PrivateKey::read(&path) {
        Err(KeyError::File(_, error)) if error.kind() == std::io::ErrorKind::NotFound => {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("cannot make the folder {}", folder.display()))?;
            let key = PrivateKey::generate().context("no key can be made")?;
            key.write(&path).context("the key cannot be stored")?;
            Ok(key)
        }
        _ => keygen::read(&path),
    }
}

/// Returns the network of this name.
fn network(name: &str) -> Result<PathSpec> {
    let all = interface::list().context("cannot list the networks")?;
    let found = all.iter().find(|one| one.name == name);
    let found = found.ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
        Failure::new(format!("there is no network `{}`", quoted(name)))
            .hint(format!("this host has {}", names.join(", ")))
    })?;
    Ok(PathSpec::from_interface(found))
}

async fn serve(args: Args, options: LendOptions) -> Result<ExitCode> {
    let stop = super::stop_signal()?;
    let limit = options.limit;
    let (lending, events) = Lending::bind(options).map_err(failure)?;
    let devices = lending.devices();
    if !args.quiet {
        let at: Vec<String> = lending.addresses().iter().map(ToString::to_string).collect();
        let network = args.via.as_deref().unwrap_or("the network that the kernel chooses");
        eprintln!("manyways: lends {network}; other devices find this one at {}", at.join(", "));
        match devices.as_slice() {
            [] => {}
            names => eprintln!("manyways: paired with {}", names.join(", ")),
        }
        if let Some(LendLimit { size, monthly }) = limit {
            let period = if monthly { " a month" } else { "" };
            eprintln!("manyways: lends at most {size}{period}, {} so far", lending.used());
        }
    }
    let is_screen = stderr().is_terminal() && !args.quiet;
    let line = StatusLine::default();
    if args.pair || devices.is_empty() {
        show_code(&lending, &line)?;
    }
    let (pressed, mut keys) = mpsc::unbounded_channel();
    let reader = Keys::read(move |key| {
        let _ = pressed.send(key);
    });
    let printer = tokio::task::spawn_local(print_events(events, line.clone(), args.quiet));
    let screen =
        is_screen.then(|| tokio::task::spawn_local(run_screen(lending.clone(), line.clone())));
    let (stopped, hurried) = (Notify::new(), Notify::new());
    let watch_keys = async {
        stop_request(stop, &mut keys, &lending, &line).await;
        stopped.notify_one();
        // The first signal must not count twice.
        if let Ok(again) = super::stop_signal() {
            stop_request(again, &mut keys, &lending, &line).await;
            hurried.notify_one();
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = lending.run(stopped.notified(), hurried.notified()) => {}
        () = watch_keys => {}
    }
    drop(reader);
    if let Some(screen) = screen {
        screen.abort();
        line.hide();
    }
    tokio::task::yield_now().await;
    printer.abort();
    Ok(ExitCode::SUCCESS)
}

/// Waits for the signal, or for the key that stops, and shows codes meanwhile.
async fn stop_request(
    signal: impl Future<Output = ()>,
    keys: &mut mpsc::UnboundedReceiver<char>,
    lending: &Lending,
    line: &StatusLine,
) {
    let mut signal = pin!(signal);
    loop {
        tokio::select! {
            () = &mut signal => return,
            Some(key) = keys.recv() => match key {
                'q' | 'Q' => return,
                'p' | 'P' => if let Err(error) = show_code(lending, line) {
                    eprintln!("manyways: {error}");
                },
                _ => {}
            },
        }
    }
}

fn show_code(lending: &Lending, line: &StatusLine) -> Result<()> {
    let code = lending.show_code().map_err(failure)?;
    let at = lending.addresses().first().map(ToString::to_string).unwrap_or_default();
    line.hide();
    eprintln!("manyways: the code is {code}, for one device, for two minutes");
    eprintln!(
        "hint: on the other device: manyways bond pair {at} --code {code} --gateway … --gateway-key … --key …"
    );
    Ok(())
}

fn failure(error: LendError) -> Failure {
    let failure = Failure::new(error.to_string());
    match error {
        LendError::Listen(at, why) => {
            failure.hint(listen::hint(at, &why, "another program uses this port"))
        }
        LendError::ListenOnLent(_) => failure.hint(
            "name the address of this device in the network that it shares with the others, such as \
             its Wi-Fi hotspot",
        ),
        _ => failure,
    }
}

async fn print_events(
    mut events: mpsc::UnboundedReceiver<LendEvent>,
    line: StatusLine,
    quiet: bool,
) {
    while let Some(event) = events.recv().await {
        if quiet {
            continue;
        }
        line.hide();
        match event {
            LendEvent::Joined(device) => eprintln!("manyways: {device} uses the network"),
            LendEvent::Ended { device, reason, bytes } => {
                eprintln!("manyways: {device} no longer uses it, after {bytes}: {reason}");
            }
            LendEvent::Refused { device, reason } => {
                eprintln!("manyways: {device} is not served: {reason}");
            }
            LendEvent::Paired(device) => eprintln!("manyways: paired with {device}"),
            LendEvent::NotPaired { from, reason } => {
                eprintln!("manyways: {} has not paired: {reason}", from.ip());
            }
            LendEvent::LimitReached(used) => {
                eprintln!("manyways: the limit is reached, {used} were lent: nothing more is lent");
            }
            LendEvent::LendsAgain => {
                eprintln!("manyways: a new month has begun: the network is lent again");
            }
            _ => {}
        }
    }
}

/// Shows who uses how much, in one line.
async fn run_screen(lending: Lending, line: StatusLine) {
    let mut interval = tokio::time::interval(SCREEN_INTERVAL);
    let mut before: Option<(u64, manyways_unit::Time)> = None;
    loop {
        interval.tick().await;
        let (status, now) = (lending.status(), lending.now());
        let bytes = status.iter().map(|loan| loan.bytes.as_bytes()).sum::<u64>();
        let rate = before.map_or(0.0, |(earlier, at)| {
            let seconds = now.since(at).as_secs_f64().max(0.001);
            bytes.saturating_sub(earlier) as f64 * 8e-6 / seconds
        });
        before = Some((bytes, now));
        let who: Vec<String> =
            status.iter().map(|loan| format!("{} {}", loan.device, loan.bytes)).collect();
        let text = match who.is_empty() {
            true => "nobody uses the network".to_owned(),
            false => format!("{}: {rate:.1} Mbit/s", who.join(", ")),
        };
        line.show(format!("{text}; q stops, p pairs"));
    }
}

/// The last line of the terminal. Other lines take its place until it is shown again.
#[derive(Clone, Default)]
struct StatusLine(Rc<RefCell<String>>);

impl StatusLine {
    fn show(&self, text: String) {
        if *self.0.borrow() != text {
            output::status_line(&text);
            *self.0.borrow_mut() = text;
        }
    }

    fn hide(&self) {
        if !self.0.take().is_empty() {
            output::status_line("");
        }
    }
}

fn list(folder: &Path, json: bool) -> Result<ExitCode> {
    let read = |file: PairFile| {
        file.read().map_err(|error| {
            Failure::new(error.to_string()).hint("move the file away, and pair the devices again")
        })
    };
    let (borrowers, lenders) =
        (read(PairFile::borrowers(folder))?, read(PairFile::lenders(folder))?);
    if json {
        let values = |devices: &[PairedDevice]| devices.iter().map(value).collect();
        let list = List { borrowers: values(&borrowers), lenders: values(&lenders) };
        print!("{}", document::to_json(&list)?);
        return Ok(ExitCode::SUCCESS);
    }
    if borrowers.is_empty() && lenders.is_empty() {
        eprintln!("manyways: this device is not paired with another one");
        eprintln!(
            "hint: `manyways bond lend` here and `manyways bond pair` there pair two devices"
        );
        return Ok(ExitCode::SUCCESS);
    }
    for device in &borrowers {
        if let PairedRole::Borrower { gateway, .. } = &device.role {
            let at: Vec<String> = gateway.iter().map(ToString::to_string).collect();
            println!("{:12} borrows from this device, to reach {}", device.name, at.join(", "));
        }
    }
    for device in &lenders {
        if let PairedRole::Lender { address, .. } = &device.role {
            println!("{:12} lends to this device, at {address}", device.name);
        }
    }
    let count = borrowers.len() + lenders.len();
    eprintln!("{}", count_with_noun(count, "paired device"));
    Ok(ExitCode::SUCCESS)
}

fn value(device: &PairedDevice) -> Value {
    let key = device.key.to_string();
    match &device.role {
        PairedRole::Lender { address, .. } => {
            json!({ "name": device.name, "public_key": key, "address": address })
        }
        PairedRole::Borrower { gateway, gateway_key } => json!({
            "name": device.name, "public_key": key, "gateway": gateway,
            "gateway_key": gateway_key.to_string(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_for_a_month_or_until_the_end() {
        let limit = |size, monthly| Ok(LendLimit { size, monthly });
        assert_eq!(parse_limit("2GB/month"), limit(Size::from_bytes(2_000_000_000), true));
        assert_eq!(parse_limit("500MB"), limit(Size::from_bytes(500_000_000), false));
        assert!(parse_limit("2GB/day").unwrap_err().contains("2GB/month"));
        assert!(parse_limit("much").is_err());
    }

    #[test]
    fn a_host_has_a_name_for_others() {
        assert!(is_device_name(&host_name()));
        assert!(parse_name("my phone").unwrap_err().contains("32"));
    }
}
