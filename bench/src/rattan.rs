//! [Rattan](https://crates.io/crates/rattan), an emulator that reads packets from AF_PACKET
//! sockets. The benchmark runs its command line, as its users do, and measures from outside.
//!
//! Rattan creates named namespaces, devices and files, and leaves some of them behind when it is
//! killed. Therefore it runs in a [`Sandbox`] with separate, empty folders `/run` and `/tmp`: its
//! objects are removed when its last process ends, for any reason.

pub mod compare;
pub mod install;
pub mod table;

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use manyways_lab::bench::traffic::ping;
use manyways_lab::bench::{DELAY, QUEUE, prepare};
use manyways_sys::netns::NetNs;
use manyways_sys::receive_buffers::enlarge_receive_buffers;
use manyways_sys::sandbox::{Sandbox, View};
use manyways_unit::{Rate, Size, Span};

/// Rattan's addresses are fixed.
const LEFT: Ipv4Addr = Ipv4Addr::new(10, 1, 1, 1);
const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 2, 1, 1);

/// Rattan rebuilds its network up to three times after a failure.
const START_TIMEOUT: Duration = Duration::from_secs(15);

/// `$1` is the binary, `$2` the configuration. Rattan would log every start to /dev/kmsg, the
/// host's kernel log.
const ENTER_SCRIPT: &str = "
    mount -t tmpfs rattan /run && mkdir /run/netns &&
    : >/run/rattan && mount --bind \"$1\" /run/rattan &&
    mount -t tmpfs rattan /tmp && mount --bind /dev/null /dev/kmsg &&
    printf '%s' \"$2\" >/run/rattan.toml || exit
    exec /run/rattan run --config /run/rattan.toml --left sleep infinity --right sleep infinity
";

/// Reason why Rattan cannot be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RattanError {
    /// Neither XDG_CACHE_HOME nor HOME is set.
    #[error("there is no home folder to build it in")]
    NoHome,
    /// `cargo install` failed.
    #[error("not built: {0}")]
    NotBuilt(String),
    #[error("cannot {doing}: {error}")]
    System {
        /// The failed operation.
        doing: &'static str,
        error: io::Error,
    },
    /// Rattan ended by itself.
    #[error("it ended ({status}): {stderr}")]
    Exited {
        status: ExitStatus,
        /// Last line of its standard error.
        stderr: String,
    },
    /// No packet passed within 15 s.
    #[error("nothing passed through it within {} s: {stderr}", START_TIMEOUT.as_secs())]
    NoPacket {
        /// Last line of its standard error.
        stderr: String,
    },
}

fn system(doing: &'static str) -> impl Fn(io::Error) -> RattanError {
    move |error| RattanError::System { doing, error }
}

/// A running Rattan with one link between two namespaces.
pub struct Rattan {
    // Dropped before the sandbox, whose end waits for its processes.
    process: Process,
    left: NetNs,
    right: NetNs,
    _sandbox: Sandbox,
}

struct Process {
    child: Child,
    stderr: File,
}

impl Rattan {
    /// Starts Rattan with `rate`, [`QUEUE`] and [`DELAY`] in both directions, and waits until
    /// packets pass. Must be called while the process has a single thread.
    pub fn start(binary: &Path, rate: Rate, workers: u32) -> Result<Self, RattanError> {
        let sandbox = Sandbox::start().map_err(system("make it a process namespace"))?;
        let outer = NetNs::create().map_err(system("make it a network namespace"))?;
        let binary = binary.canonicalize().map_err(system("find its binary"))?;
        let complaints = tempfile::tempfile().map_err(system("make it a file"))?;
        let stderr = complaints.try_clone().map_err(system("make it a file"))?;
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", ENTER_SCRIPT, "sh"])
            .arg(binary)
            .arg(configuration(rate, workers))
            .env("RUST_LOG", "error")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr);
        let child = sandbox.spawn(command, &outer, View::default()).map_err(system("start it"))?;
        let mut process = Process { child, stderr: complaints };
        let begun = Instant::now();
        loop {
            if let Some((left, right)) = process.namespaces() {
                return Ok(Self { process, left, right, _sandbox: sandbox });
            }
            if let Ok(Some(status)) = process.child.try_wait() {
                return Err(RattanError::Exited { status, stderr: process.last_error_line() });
            }
            if begun.elapsed() > START_TIMEOUT {
                return Err(RattanError::NoPacket { stderr: process.last_error_line() });
            }
            // Rattan does not report when it is ready.
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Enlarges the receive buffers of its AF_PACKET sockets. By default they have the host's
    /// socket buffer (208 KiB on most hosts) and lose the packets that do not fit; Rattan has no
    /// option for it.
    pub fn enlarge_buffers(&self, buffer: Size) -> io::Result<()> {
        // Rattan has at least one socket on each side.
        match enlarge_receive_buffers(self.process.child.id() as i32, buffer)? {
            0 | 1 => Err(io::Error::other("it has no sockets")),
            _ => Ok(()),
        }
    }

    /// The receiving side.
    pub fn left(&self) -> (&NetNs, SocketAddr) {
        (&self.left, (LEFT, 0).into())
    }

    /// The sending side.
    pub fn right(&self) -> &NetNs {
        &self.right
    }

    /// Processor time of all its threads so far.
    pub fn cpu(&self) -> io::Result<Span> {
        let mut total = 0;
        for thread in std::fs::read_dir(format!("/proc/{}/task", self.process.child.id()))? {
            let text = std::fs::read_to_string(thread?.path().join("schedstat"))?;
            let first = text.split_whitespace().next().and_then(|nanos| nanos.parse::<u64>().ok());
            total += first.ok_or(io::ErrorKind::InvalidData)?;
        }
        Ok(Span::from_nanos(total))
    }
}

impl Process {
    /// Both namespaces, once a packet has passed between them.
    fn namespaces(&self) -> Option<(NetNs, NetNs)> {
        let root = PathBuf::from(format!("/proc/{}/root/run", self.child.id()));
        // Before this file exists, the folders are those of the host.
        if !root.join("rattan.toml").exists() {
            return None;
        }
        for file in std::fs::read_dir(root.join("netns")).ok()?.flatten() {
            let name = file.file_name();
            let Some(id) = name.to_str().and_then(|name| name.strip_prefix("ns-left-")) else {
                continue;
            };
            let open = |side: &str| NetNs::open(&root.join(format!("netns/ns-{side}-{id}")));
            let (Ok(left), Ok(right)) = (open("left"), open("right")) else { continue };
            // An abandoned attempt leaves its namespaces next to those of the next attempt, so
            // errors are normal.
            let ready = prepare(&left)
                .and_then(|()| prepare(&right))
                .and_then(|()| ping(&left, &right, (RIGHT, 0).into(), 1));
            if ready.is_ok() {
                return Some((left, right));
            }
        }
        None
    }

    /// The last line of its standard error.
    fn last_error_line(&mut self) -> String {
        let mut text = String::new();
        // A read error counts as empty output.
        let _ = self.stderr.rewind().and_then(|()| self.stderr.read_to_string(&mut text));
        text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("nothing").trim().to_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One link: in each direction a rate with a drop-tail queue, followed by a delay.
fn configuration(rate: Rate, workers: u32) -> String {
    let (bps, bytes, delay) = (rate.as_bps(), rate.size_in(QUEUE).as_bytes(), DELAY.as_nanos());
    // Rattan starts one thread for each entry of this list.
    let threads: Vec<_> = (0..workers).collect();
    let mut text = format!("env.mode = \"Isolated\"\nresource.cpu = {threads:?}\n");
    for (from, direction, to) in [("right", "down", "left"), ("left", "up", "right")] {
        let _ = write!(
            text,
            "cells.{direction}_rate.type = \"Bw\"\n\
             cells.{direction}_rate.bw_type = \"NetworkLayer\"\n\
             cells.{direction}_rate.bandwidth = \"{bps}bps\"\n\
             cells.{direction}_rate.queue = \"DropTail\"\n\
             cells.{direction}_rate.queue_config.byte_limit = {bytes}\n\
             cells.{direction}_delay.type = \"Delay\"\n\
             cells.{direction}_delay.delay = \"{delay}ns\"\n\
             links.{from} = \"{direction}_rate\"\n\
             links.{direction}_rate = \"{direction}_delay\"\n\
             links.{direction}_delay = \"{to}\"\n",
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_holds_as_long_at_every_rate() {
        for (mbps, bytes) in [(10, 125_000), (2_500, 31_250_000)] {
            let text = configuration(Rate::from_mbps(mbps), 2);
            assert!(text.contains(&format!("bandwidth = \"{mbps}000000bps\"")), "{text}");
            assert_eq!(text.matches(&format!("byte_limit = {bytes}\n")).count(), 2, "{text}");
            assert!(text.contains("cpu = [0, 1]"), "{text}");
        }
    }

    #[test]
    fn a_program_that_ends_is_said_with_its_complaint() {
        if !manyways_sys::sandbox::is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("rattan");
        std::fs::write(&program, "#!/bin/sh\necho first >&2; echo out of luck >&2; exit 7\n")
            .unwrap();
        let runnable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&program, runnable).unwrap();
        let Err(error) = Rattan::start(&program, Rate::from_mbps(10), 1) else { panic!("it runs") };
        assert!(
            matches!(&error, RattanError::Exited { stderr, .. } if stderr == "out of luck"),
            "{error}"
        );
    }
}
