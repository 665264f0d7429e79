//! A lab with a bond whose paths `manyways steer run` chooses: a server, a gateway and a probe server
//! on one host, and a client on the device.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use manyways_lab::{DEFAULT_CC, Node, address};
use manyways_net::control;
use manyways_net::steer::event::SteerEvent;
use manyways_record::event::{self, Log};
use manyways_rig::cell::Cell;
use manyways_rig::launch::{DriveError, Killed, Launcher, first_line, output, system};
use manyways_rig::programs::{program, quoted, shell_words};
use manyways_rig::sockets::sockets;
use manyways_rig::{Need, missing};
use manyways_sys::signal::{Termination, send};
use manyways_trace::scenario::LinkSpec;
use manyways_unit::Span;

use crate::bond::testbed::{Programs, client, gateway, keys, wait_until};
use crate::options::binary;
use crate::traffic::Measurement;

/// Seed of the links.
const SEED: u64 = 0x7374_6565_7206;
/// Ports of the server for TCP and MPTCP, of the gateway and of the client's proxy.
const PORT: u16 = 7100;
const MPTCP_PORT: u16 = 7101;
const GATEWAY_PORT: u16 = 4433;
const SOCKS_PORT: u16 = 1081;
const PROBE_PORT: u16 = 7464;
/// All streams follow the choices for the goal `fast`.
const POLICY: &str = "[default]\npaths = \"auto\"\ngoal = \"fast\"\n";
/// Time in which a `steer run` undoes its changes, and in which a load prints its result.
const END_TIMEOUT: Span = Span::from_secs(10);
/// Time in which a service of the lab answers a request.
const ANSWER_TIMEOUT: Span = Span::from_secs(5);
const SIGINT: i32 = 2;

/// How a load reaches the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Bond,
    /// Kernel MPTCP; the first subflow uses the first link.
    Mptcp,
}

/// A reason why nothing can be measured here; `None` if it can.
pub fn obstacle() -> Option<String> {
    missing(&[Need::Root, Need::Command("ip"), Need::Command("nft"), Need::Command("ss")])
}

/// The programs of these labs.
pub fn programs() -> Result<Programs, String> {
    let own = std::env::current_exe();
    let own = own.map_err(|error| format!("cannot tell where this is: {error}"))?;
    let ss = program("ss").ok_or("ss is not installed")?;
    Ok(Programs { manyways: binary(None)?, before: None, own, ss, browser: None })
}

pub struct BondLab<'a> {
    /// The client ends before the lab.
    _client: Killed,
    pub launcher: Launcher<'a>,
    programs: &'a Programs,
    folder: PathBuf,
    /// Public key of the probe server.
    server_key: String,
}

impl<'a> BondLab<'a> {
    /// Starts all but `steer run`, and waits until the bond has a carrier over each link.
    pub fn start(
        links: &[LinkSpec],
        programs: &'a Programs,
        termination: &'a Termination,
    ) -> Result<Self, DriveError> {
        let cell = Cell::<&'static str, ()>::over('l', "steer", links.to_vec(), Vec::new());
        let mut launcher = Launcher::start(&cell, "bench-steer", SEED, termination)?;
        let lab = &mut launcher.lab;
        let folder = lab.folder().join("steer-bench");
        fs::create_dir_all(&folder).map_err(system("make a folder"))?;
        let server_key = keys(&programs.manyways, &folder)?;
        fs::write(folder.join("policy.toml"), POLICY).map_err(system("write a policy"))?;
        let own = quoted(programs.own.as_os_str());
        let at = format!("--listen 0.0.0.0:{PORT} --mptcp 0.0.0.0:{MPTCP_PORT}");
        lab.serve(0, &format!("exec {own} serve {at}"))?;
        let listen = format!("0.0.0.0:{GATEWAY_PORT}");
        let mut command = gateway(&programs.manyways, &folder, &listen, "198.18.0.0/15");
        command.arg("--quiet");
        lab.serve(0, &with_log(&command, &folder.join("gateway.log")))?;
        let mut command = Command::new(&programs.manyways);
        command.args(["probe", "server", "--listen", &format!("0.0.0.0:{PROBE_PORT}"), "--key"]);
        command.arg(folder.join("gateway.key")).arg("--allow").arg(folder.join("allow"));
        lab.serve(0, &with_log(&command, &folder.join("probe.log")))?;
        let gateway = format!("{}:{GATEWAY_PORT}", address::host(0)[0]);
        let mut command = client(&programs.manyways, &folder, (&gateway, &server_key), SOCKS_PORT);
        command.arg("--policy").arg(folder.join("policy.toml"));
        let log = folder.join("client.log");
        let child = lab.spawn(Node::Device(0), into_log(command, &log)?)?;
        let client = Killed(child);
        for link in links {
            let words = format!("{} is up", link.name);
            wait_until("a client of the bond", || Ok(fs::read_to_string(&log)?.contains(&words)))?;
        }
        Ok(Self { _client: client, launcher, programs, folder, server_key })
    }

    /// A file of these processes.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Starts `steer run` with these options and the event log `events`.
    pub fn steer<S: AsRef<OsStr>>(&self, options: &[S], events: &str) -> Result<Child, DriveError> {
        let server = address::host(0)[0].to_string();
        let mut command = Command::new(&self.programs.manyways);
        command.args(["steer", "run", "--ping", &server, "--dns", "origin.lab"]);
        command.args(["--server", &server, "--server-key", &self.server_key, "--key"]);
        command.arg(self.file("client.key")).arg("--events").arg(self.file(events));
        command.args(options).env("XDG_STATE_HOME", self.file("state"));
        let command = into_log(command, &self.file("steer.log"))?;
        Ok(self.launcher.lab.spawn(Node::Device(0), command)?)
    }

    /// Ends a `steer run`, which undoes its changes.
    pub fn end(&self, steer: &mut Child) -> Result<(), DriveError> {
        send(steer.id().cast_signed(), SIGINT).map_err(system("end a run of steer"))?;
        let has_ended = self.launcher.has_ended(steer, END_TIMEOUT)?;
        match output(steer, has_ended)?.0 {
            Some(true) => Ok(()),
            _ => {
                let said = fs::read_to_string(self.file("steer.log")).unwrap_or_default();
                Err(DriveError::Server(format!("steer run failed: {}", first_line(&said))))
            }
        }
    }

    /// The events of a `steer run` so far.
    pub fn events(&self, name: &str) -> Result<Log<SteerEvent>, DriveError> {
        let text = fs::read(self.file(name)).map_err(system("read an event log"))?;
        event::parse(&text).map_err(|error| DriveError::Server(error.to_string()))
    }

    /// Sends a request to a service of the lab.
    pub fn ask<Q: control::Request>(
        &self,
        service: &control::Service,
        request: &Q,
    ) -> Result<Q::Response, DriveError> {
        control::ask_in(&self.launcher.lab.folder(), service, request, ANSWER_TIMEOUT)
            .map_err(|error| DriveError::Server(error.to_string()))
    }

    /// Starts a download that begins after `wait` and takes `length`.
    pub fn download(&self, way: Way, wait: Span, length: Span) -> Result<Child, DriveError> {
        let server = address::host(0)[0];
        let mut command = Command::new(&self.programs.own);
        command.arg("load");
        match way {
            Way::Bond => command
                .arg(format!("--server={server}:{PORT}"))
                .arg(format!("--socks=127.0.0.1:{SOCKS_PORT}")),
            Way::Mptcp => command
                .arg(format!("--server={server}:{MPTCP_PORT}"))
                .arg(format!("--from={}", address::device(0)[0]))
                .arg("--mptcp"),
        };
        let millis = |span: Span| format!("{}ms", span.as_nanos() / 1_000_000);
        command.args(["download", "--wait", &millis(wait), "--length", &millis(length)]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(self.launcher.lab.spawn(Node::Device(0), command)?)
    }

    /// Waits for the result of a download of this length; the reason why it failed otherwise.
    pub fn result(
        &self,
        mut load: Child,
        length: Span,
    ) -> Result<Result<Measurement, String>, DriveError> {
        let has_ended = self.launcher.has_ended(&mut load, length + END_TIMEOUT)?;
        let (success, stdout, stderr) = output(&mut load, has_ended)?;
        Ok(match success {
            Some(true) => serde_json::from_str(&stdout).map_err(|error| error.to_string()),
            Some(false) => Err(first_line(&stderr)),
            None => Err("it did not end".to_owned()),
        })
    }

    /// Checks the congestion control of all sockets on both sides, and returns the number of
    /// MPTCP subflows on the device.
    pub fn subflows(&self) -> Result<usize, DriveError> {
        let mut subflows = 0;
        for node in [Node::Device(0), Node::Host(0)] {
            let found = sockets(&self.launcher.lab, &self.programs.ss, node)?;
            if let Some(other) = found.iter().find(|one| one.congestion_control != DEFAULT_CC) {
                return Err(DriveError::Control(other.congestion_control.clone()));
            }
            if node == Node::Device(0) {
                subflows = found.iter().filter(|one| one.mptcp).count();
            }
        }
        Ok(subflows)
    }

    /// Makes the second link's address the only endpoint of kernel MPTCP, as a backup.
    pub fn set_backup(&self) -> Result<(), DriveError> {
        let second = &self.launcher.lab.links()[1].name;
        let own = address::device(1)[0].to_string();
        let add = ["mptcp", "endpoint", "add", &own, "dev", second, "subflow", "backup"];
        for arguments in [&["mptcp", "endpoint", "flush"][..], &add] {
            let mut command = Command::new("ip");
            command.args(arguments).stdin(Stdio::null());
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = self.launcher.lab.spawn(Node::Device(0), command)?;
            let has_ended = self.launcher.has_ended(&mut child, END_TIMEOUT)?;
            let (success, _, stderr) = output(&mut child, has_ended)?;
            if success != Some(true) {
                let words = format!("ip mptcp endpoint: {}", first_line(&stderr));
                return Err(DriveError::Server(words));
            }
        }
        Ok(())
    }
}

/// A command whose output goes to a file.
fn into_log(mut command: Command, log: &Path) -> Result<Command, DriveError> {
    let said = File::create(log).map_err(system("write a log"))?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
    Ok(command)
}

/// The words for a shell that runs a server with a log.
fn with_log(command: &Command, log: &Path) -> String {
    format!("exec {} 2>{}", shell_words(command), quoted(log.as_os_str()))
}
