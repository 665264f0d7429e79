//! Client, gateway, server and load on the loopback of one machine. No link is emulated, so the
//! results depend only on processor time.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use manyways_lab::{Lab, Place};
use manyways_rig::cell::Run;
use manyways_rig::launch::{DriveError, Launcher, all_of, first_line, system};
use manyways_sys::wait::{Outcome, wait};
use manyways_unit::Span;

use super::Bond;
use super::plan::{self, Cell, Entry};
use super::record::{Figures, Record};
use super::site::{keygen, waits};
use super::task::Task;
use crate::traffic::Told;

/// All processes run in one namespace with a separate loopback.
const HERE: Place = Place::Host(0);
const SERVER: u16 = 7100;
const GATEWAY: u16 = 4433;
const SOCKS: u16 = 1081;

/// Measures the cell without links.
pub fn measure(
    bond: &Bond,
    cell: &Cell,
    record: &mut Record,
    progress: &mut dyn FnMut(u32),
) -> Result<(), DriveError> {
    let lab = Launcher::start(cell, "bench-bond", bond.seed, &bond.termination)?.lab;
    let folder = lab.folder().join("bond");
    fs::create_dir_all(&folder).map_err(system("make a folder"))?;
    let gateway_key = keygen(&bond.programs.manyways, &folder, "gateway")?;
    let client_key = keygen(&bond.programs.manyways, &folder, "client")?;
    fs::write(folder.join("allow"), format!("{client_key} device sessions=1000\n"))
        .map_err(system("write the list of clients"))?;
    let stage = Stage { bond, cell, lab, folder: &folder, gateway_key };
    cell.run_rounds(&cell.contenders, bond.seed, record, progress, |_, entry| stage.run(entry))
}

struct Stage<'a> {
    bond: &'a Bond,
    cell: &'a Cell,
    lab: Lab,
    folder: &'a Path,
    gateway_key: String,
}

/// Processes that end after each run, so that no run depends on the memory of an earlier one.
struct Ends {
    server: Child,
    gateway: Child,
    client: Child,
}

impl Drop for Ends {
    fn drop(&mut self) {
        for child in [&mut self.client, &mut self.gateway, &mut self.server] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Stage<'_> {
    fn run(&self, entry: &Entry) -> Result<Run<Figures>, DriveError> {
        let ends = self.start()?;
        let unit = entry.task.unit();
        let mut figures =
            Figures { task: entry.task.name(), unit: unit.name().to_owned(), ..Figures::default() };
        let mut child = self.lab.spawn(HERE, self.load(entry))?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            // The load generator has its own time limit, and then ends without output.
            let _ = BufReader::new(out).read_line(&mut line);
        }
        let memory = [&ends.client, &ends.gateway].map(|end| resident(end.id()));
        drop(child.stdin.take());
        let complained = all_of(child.stderr.take());
        let patience = Some(Span::from_secs(60));
        let ended = wait(&mut child, patience, Some(&self.bond.termination));
        let ended = ended.map_err(system("watch the load"))?;
        if !matches!(ended, Outcome::Exited(_)) {
            let _ = child.kill();
            let _ = child.wait();
        }
        if let Outcome::Signal(ended) = ended {
            return Err(DriveError::Stopped(ended.signal));
        }
        let Ok(told) = serde_json::from_str::<Told>(line.trim()) else {
            return Ok(Run::of(figures, Some(first_line(&complained))));
        };
        figures.value = Some(match entry.task {
            Task::Crowd(_) => memory.iter().flatten().sum(),
            task => task.figure(told.value, plan::rate(self.cell, entry.contender)),
        });
        let named = ["client, MiB", "gateway, MiB"].into_iter().zip(memory);
        let named = named.filter_map(|(name, value)| Some((name.to_owned(), value?)));
        figures.more = named.collect();
        Ok(Run::of(figures, None))
    }

    fn start(&self) -> Result<Ends, DriveError> {
        let programs = &self.bond.programs;
        let spawn = |mut command: Command| {
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            self.lab.spawn(HERE, command)
        };
        let here = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port)).to_string();
        let mut server = Command::new(&programs.own);
        server.args(["serve", "--listen", &here(SERVER)]);
        let mut gateway = Command::new(&programs.manyways);
        gateway
            .args(["bond", "gateway", "--quiet", "--permit", "127.0.0.0/8"])
            .args(["--listen", &here(GATEWAY), "--key"])
            .arg(self.folder.join("gateway.key"))
            .arg("--allow")
            .arg(self.folder.join("allow"));
        let mut client = Command::new(&programs.manyways);
        client
            .args(["bond", "client", "--quiet", "--intercept", "none"])
            .args(["--gateway", &here(GATEWAY), "--gateway-key", &self.gateway_key])
            .args(["--socks", &here(SOCKS), "--key"])
            .arg(self.folder.join("client.key"));
        let server = spawn(server)?;
        let gateway = spawn(gateway)?;
        self.listens(SERVER)?;
        self.listens(GATEWAY)?;
        let client = spawn(client)?;
        self.listens(SOCKS)?;
        Ok(Ends { server, gateway, client })
    }

    fn load(&self, entry: &Entry) -> Command {
        let mut command = Command::new(&self.bond.programs.own);
        command.arg("load").arg(format!("--server=127.0.0.1:{SERVER}"));
        if entry.contender.is_bond() {
            command.arg(format!("--socks=127.0.0.1:{SOCKS}"));
        }
        command.args(entry.task.arguments(plan::rate(self.cell, entry.contender)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn listens(&self, port: u16) -> Result<(), DriveError> {
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        waits("an end of the bond", || {
            self.lab.namespace(HERE).run(|| Ok(TcpStream::connect(at).is_ok()))
        })
    }
}

/// Resident memory of a process, in MiB.
fn resident(pid: u32) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib / 1024.0)
}
