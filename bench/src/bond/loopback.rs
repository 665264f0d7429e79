//! Client, gateway, server and load on the loopback of one machine. No link is emulated, so the
//! results depend only on processor time.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use manyways_lab::Node;
use manyways_rig::cell::Run;
use manyways_rig::launch::{DriveError, Killed, Launcher, first_line, output, system};
use manyways_unit::Span;

use super::Bond;
use super::plan::{self, Cell, Entry};
use super::record::{Figures, Record};
use super::task::Task;
use super::testbed::{self, keys, wait_until};
use crate::traffic::Measurement;

/// All processes run in one namespace with a separate loopback.
const LOOPBACK_NODE: Node = Node::Host(0);
const SERVER_PORT: u16 = 7100;
const GATEWAY_PORT: u16 = 4433;
const SOCKS_PORT: u16 = 1081;

/// Measures the cell without links.
pub fn measure(
    bond: &Bond,
    cell: &Cell,
    record: &mut Record,
    progress: &mut dyn FnMut(u32),
) -> Result<(), DriveError> {
    let launcher = Launcher::start(cell, "bench-bond", bond.seed, &bond.termination)?;
    let folder = launcher.lab.folder().join("bond");
    fs::create_dir_all(&folder).map_err(system("make a folder"))?;
    let gateway_key = keys(&bond.programs.manyways, &folder)?;
    let stage = CellRunner { bond, cell, launcher, folder: &folder, gateway_key };
    cell.run_rounds(&cell.contenders, bond.seed, record, progress, |_, entry| stage.run(entry))
}

struct CellRunner<'a> {
    bond: &'a Bond,
    cell: &'a Cell,
    launcher: Launcher<'a>,
    folder: &'a Path,
    gateway_key: String,
}

impl CellRunner<'_> {
    fn run(&self, entry: &Entry) -> Result<Run<Figures>, DriveError> {
        let [client, gateway, _server] = self.start(entry)?;
        let mut figures = Figures::of(&entry.task);
        let mut child = self.launcher.lab.spawn(LOOPBACK_NODE, self.load(entry))?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            // The load generator has its own time limit, and then ends without output.
            let _ = BufReader::new(out).read_line(&mut line);
        }
        let memory = [&client, &gateway].map(|end| resident_memory(end.0.id()));
        drop(child.stdin.take());
        let ended = self.launcher.has_ended(&mut child, Span::from_secs(60))?;
        let (_, _, stderr) = output(&mut child, ended)?;
        let Ok(measurement) = serde_json::from_str::<Measurement>(line.trim()) else {
            return Ok(Run::of(figures, Some(first_line(&stderr))));
        };
        figures.value = Some(match entry.task {
            Task::Crowd(_) => memory.iter().flatten().sum(),
            task => task.figure(measurement.value, plan::rate(self.cell, entry.contender)),
        });
        let named = ["client, MiB", "gateway, MiB"].into_iter().zip(memory);
        let named = named.filter_map(|(name, value)| Some((name.to_owned(), value?)));
        figures.extra = named.collect();
        Ok(Run::of(figures, None))
    }

    /// Starts the client, the gateway and the server. They end after each run, so that no run
    /// depends on the memory of an earlier one.
    fn start(&self, entry: &Entry) -> Result<[Killed; 3], DriveError> {
        let programs = &self.bond.programs;
        let spawn = |mut command: Command| {
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            self.launcher.lab.spawn(LOOPBACK_NODE, command).map(Killed)
        };
        let mut server = Command::new(&programs.own);
        server.args(["serve", "--listen", &format!("127.0.0.1:{SERVER_PORT}")]);
        let at = format!("127.0.0.1:{GATEWAY_PORT}");
        let mut gateway =
            testbed::gateway(programs.of(entry.contender), self.folder, &at, "127.0.0.0/8");
        gateway.arg("--quiet");
        let mut client = testbed::client(
            programs.of(entry.contender),
            self.folder,
            (&at, &self.gateway_key),
            SOCKS_PORT,
        );
        client.arg("--quiet");
        let (server, gateway) = (spawn(server)?, spawn(gateway)?);
        self.wait_listening(SERVER_PORT)?;
        self.wait_listening(GATEWAY_PORT)?;
        let client = spawn(client)?;
        self.wait_listening(SOCKS_PORT)?;
        Ok([client, gateway, server])
    }

    fn load(&self, entry: &Entry) -> Command {
        let mut command = Command::new(&self.bond.programs.own);
        command.arg("load").arg(format!("--server=127.0.0.1:{SERVER_PORT}"));
        if entry.contender.is_bond() {
            command.arg(format!("--socks=127.0.0.1:{SOCKS_PORT}"));
        }
        command.args(entry.task.arguments(plan::rate(self.cell, entry.contender)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn wait_listening(&self, port: u16) -> Result<(), DriveError> {
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        wait_until("an end of the bond", || {
            self.launcher.lab.namespace(LOOPBACK_NODE).run(|| Ok(TcpStream::connect(at).is_ok()))
        })
    }
}

/// Resident memory of a process, in MiB.
fn resident_memory(pid: u32) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib / 1024.0)
}
