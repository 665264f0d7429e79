//! `manyways lab`: the commands of the emulator.

mod bench;
mod enter;
mod run;
mod shell;

use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode, ExitStatus};

use anyhow::{Context, Result};
use clap::Subcommand;
use manyways_lab::control::{SOCKET, WaitingStatus};
use manyways_lab::far_host::FarHost;
use manyways_lab::registry::{Record, Registry};
use manyways_lab::warning::LinkWarning;
use manyways_lab::{Lab, LabError, Node, SERVER_START_TIMEOUT};
use manyways_sys::signal::{Foreground, Termination, send};
use manyways_sys::wait::{Outcome, wait};
use manyways_trace::link_text::LinkError;
use manyways_unit::{Size, Span};

use crate::failure::Failure;

#[cfg(feature = "record")]
pub use self::shell::{command, start_failure};

/// Emulate several networks on this machine and run commands that use them.
///
/// Both sides use real kernel stacks and real programs; you set the rate, delay, loss and queue
/// of each link. A lab removes everything that it created when it ends.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  \
    manyways lab shell --link wifi:down=10mbit,delay=14ms \\\n    \
                     --link lte:down=5mbit,delay=32ms -- bash")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Shell(shell::Args),
    Run(run::Args),
    Check(run::CheckArgs),
    Enter(enter::EnterArgs),
    Set(enter::SetArgs),
    Status(enter::StatusArgs),
    List(enter::ListArgs),
    Gc(enter::GcArgs),
    Bench(bench::Args),
}

pub fn run(args: Args) -> Result<ExitCode> {
    match args.command {
        Command::Shell(args) => shell::shell(args),
        Command::Run(args) => run::run(args),
        Command::Check(args) => run::check(args),
        Command::Enter(args) => enter::enter(args),
        Command::Set(args) => enter::set(args),
        Command::Status(args) => enter::status(args),
        Command::List(args) => enter::list(args),
        Command::Gc(args) => enter::gc(args),
        Command::Bench(args) => bench::bench(args),
    }
}

/// Opens the registry and obtains the right to create namespaces. Must be called before the process
/// starts a thread.
pub fn prepare() -> Result<Registry> {
    let registry = registry()?;
    if !manyways_sys::sandbox::is_root() {
        manyways_sys::sandbox::become_root_of_user_namespace()
            .map_err(|error| lab_failure(LabError::NotPermitted(error)))?;
    }
    Ok(registry)
}

/// Warns about probably unintended settings of a link.
fn warn_doubts(link: &str, doubts: &[LinkWarning]) {
    for doubt in doubts {
        eprintln!("manyways: link `{link}`: {doubt}");
        eprintln!("hint: {}", doubt.hint());
    }
}

/// Formats a change that waits.
fn waiting_text(change: &WaitingStatus) -> String {
    let until = if change.made { "is undone" } else { "is made" };
    let rest = match (&change.counter, change.remaining, change.in_seconds) {
        (Some(counter), Some(more), _) if counter.ends_with("_bytes") => {
            format!("after {} more of {counter}", Size::from_bytes(more))
        }
        (Some(counter), Some(more), _) => format!("after {more} more of {counter}"),
        (_, _, Some(seconds)) => format!("in {seconds:.1} s"),
        _ => String::new(),
    };
    format!("{}: {} {until} {rest}", change.link, change.set.join(" "))
}

/// Starts a command on a far host, and warns if it does not listen on a port.
pub fn serve(lab: &mut Lab, node: Node, command: &str) -> Result<()> {
    if !lab.serve_on(node, command).map_err(lab_failure)? {
        eprintln!(
            "manyways: the far command `{command}` listens on no port after {SERVER_START_TIMEOUT}; the lab \
             continues without waiting for it"
        );
        eprintln!(
            "hint: --far and `serve` start servers; start other commands with `lab enter --host`"
        );
    }
    Ok(())
}

fn registry() -> Result<Registry> {
    Registry::of_user().context("cannot open the folder of the running labs")
}

/// Time for a command to end after a signal.
const KILL_TIMEOUT: Span = Span::from_secs(1);

/// Runs a command in the foreground of the terminal and returns its exit code. A signal to this
/// process ends the command.
pub fn run_foreground(
    start: impl FnOnce() -> Result<Child>,
    termination: &Termination,
) -> Result<ExitCode> {
    let _foreground = Foreground::save();
    let mut child = start()?;
    let ended = loop {
        match wait(&mut child, None, Some(termination)).context("cannot watch the command")? {
            Outcome::Exited(status) => return Ok(exit_code(status)),
            // The command also receives the terminal's signals, and handles them itself.
            Outcome::Signal(ended) if ended.from_terminal => {}
            Outcome::Signal(ended) => break ended.signal,
            Outcome::TimedOut => {}
        }
    };
    let _ = send(child.id() as i32, ended);
    if !matches!(wait(&mut child, Some(KILL_TIMEOUT), None), Ok(Outcome::Exited(_))) {
        let _ = child.kill();
        let _ = child.wait();
    }
    Ok(ExitCode::from(128 + ended as u8))
}

/// Exports the scenario's folder to the commands of a lab. Also puts this `manyways` first in their
/// PATH unless it is already the one found there.
pub fn export(lab: &mut Lab, scenario: Option<&Path>) -> Result<()> {
    if let Some(file) = scenario {
        let file = std::path::absolute(file).context("cannot tell where the scenario lies")?;
        let folder = file.parent().unwrap_or(Path::new("/"));
        lab.export("SCENARIO_DIR", &folder.to_string_lossy()).map_err(lab_failure)?;
    }
    let Ok(this) = std::env::current_exe() else { return Ok(()) };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<_> = std::env::split_paths(&path).collect();
    let named = folders.iter().map(|folder| folder.join("manyways")).find(|file| file.exists());
    if named.and_then(|file| file.canonicalize().ok()) != this.canonicalize().ok() {
        folders.splice(0..0, this.parent().map(Path::to_owned));
        if let Ok(path) = std::env::join_paths(folders) {
            lab.export("PATH", &path.to_string_lossy()).map_err(lab_failure)?;
        }
    }
    Ok(())
}

pub fn lab_failure(error: LabError) -> Failure {
    let hint = error.hint();
    let failure = match error {
        LabError::Spec(_)
        | LabError::FarHost(_)
        | LabError::Radio(_)
        | LabError::InternetNeedsRoot => Failure::usage(error.to_string()),
        _ => Failure::new(error.to_string()),
    };
    hint.into_iter().fold(failure, Failure::hint)
}

/// The option for far hosts of `lab shell` and `lab run`.
#[derive(clap::Args)]
pub struct FarHosts {
    /// An address on the far side, IPv4 or IPv6, with its names, and its round-trip time in addition
    /// to that of the link; may be repeated. The first far host serves at all of them.
    #[arg(long = "far-host", value_name = "ADDRESS[,name=NAME…][,extra-rtt=TIME]")]
    far_hosts: Vec<String>,
}

impl FarHosts {
    pub fn parse(&self) -> Result<Vec<FarHost>, Failure> {
        let hosts = self.far_hosts.iter().map(|text| text.parse());
        hosts.map(|host| host.map_err(|error| lab_failure(LabError::FarHost(error)))).collect()
    }
}

pub fn link_failure(error: LinkError) -> Failure {
    let hint = error.hint();
    let failure = Failure::usage(error.to_string());
    hint.into_iter().fold(failure, Failure::hint)
}

/// Returns a reader for the files that links name, relative to a folder.
pub fn reader(folder: &Path) -> impl FnMut(&str) -> std::result::Result<Vec<u8>, String> + use<> {
    let folder = folder.to_owned();
    move |file| std::fs::read(folder.join(file)).map_err(|error| error.to_string())
}

/// Start of relative file names on the command line.
pub fn current_folder() -> PathBuf {
    PathBuf::new()
}

/// Returns the running lab with that name, or the only one.
fn find(registry: &Registry, name: Option<&str>) -> Result<Record> {
    let mut alive: Vec<_> = registry
        .records()
        .context("cannot read the folder of the running labs")?
        .into_iter()
        .filter(Record::is_alive)
        // A lab without a control socket is still starting or belongs to a benchmark.
        .filter(|record| registry.folder(&record.name).join(SOCKET).exists())
        .collect();
    // Within a lab the default is that lab.
    let around = std::env::var("LAB_NAME").ok();
    let name = name.or(around.as_deref());
    let names = alive.iter().map(|record| record.name.as_str()).collect::<Vec<_>>().join(", ");
    let found = match name {
        Some(name) => alive.iter().position(|record| record.name == name),
        None if alive.len() == 1 => Some(0),
        None => None,
    };
    match found {
        Some(index) => Ok(alive.swap_remove(index)),
        None => {
            let message = match name {
                Some(name) => format!("no lab called `{name}` is running"),
                None if alive.is_empty() => "no lab is running".to_owned(),
                None => "several labs are running".to_owned(),
            };
            let hint = if alive.is_empty() {
                "start one with `manyways lab shell`".to_owned()
            } else {
                format!("name one of them: {names} (for `lab set`, with --lab)")
            };
            Err(Failure::new(message).hint(hint).into())
        }
    }
}

/// Returns the exit code for a command's status, as a shell does.
fn exit_code(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    ExitCode::from(code.clamp(0, 255) as u8)
}
