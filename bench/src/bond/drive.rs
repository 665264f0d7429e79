//! The run of a cell: one lab, and every entry once in each round, in a changing order.

use std::collections::BTreeMap;
use std::ops::Add;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;

use manyways_lab::Node;
use manyways_net::bond::{GatewayStatus, Status, Totals};
use manyways_rig::cell::Run;
use manyways_rig::launch::{DriveError, Launcher, first_line, output, system};
use manyways_sys::clock::Clock;
use manyways_trace::scenario::{Change, LinkState};
use manyways_unit::{Size, Span, Time};
use serde::de::DeserializeOwned;

use super::Bond;
use super::contender::Contender;
use super::plan::{self, Cell, Entry};
use super::record::{Figures, Record, Sockets};
use super::task::{INTERRUPTION_TIME, Task};
use super::testbed::{CALL_PORT, SERVER_PORT, Testbed, WEB_PORT};
use crate::traffic::Measurement;

/// The sockets are read at this time of a transfer of [`SOCKET_SAMPLE_SIZE`].
const SOCKET_SAMPLE_TIME: Span = Span::from_millis(700);
const SOCKET_SAMPLE_SIZE: Size = Size::from_bytes(3_000_000);
/// Size of a messenger's message.
const MESSAGE_SIZE: Size = Size::from_bytes(200);
/// After this idle time the carriers restart with a small congestion window, as for a returning
/// user. Without it, the result would depend on the order of the runs.
const COOL_DOWN: Span = Span::from_secs(2);
/// The carrying link of a stream is the one that delivered most bytes in this time.
const BUSY_INTERVAL: Span = Span::from_secs(1);

pub fn measure(
    bond: &Bond,
    cell: &Cell,
    record: &mut Record,
    progress: &mut dyn FnMut(u32),
) -> Result<(), DriveError> {
    if plan::needs_browser(cell) && bond.programs.browser.is_none() {
        let words = "chromium is not installed: run scripts/setup bench";
        return Err(DriveError::Server(words.to_owned()));
    }
    let mut launcher = Launcher::start(cell, "bench-bond", bond.seed, &bond.termination)?;
    let mut contenders: Vec<Contender> = cell.contenders.iter().map(|e| e.contender).collect();
    contenders.sort_unstable();
    contenders.dedup();
    let testbed = Testbed::start(&mut launcher.lab, &bond.programs, cell, &contenders)?;
    let (last, clock) = (BTreeMap::new(), Clock::start());
    let mut stage =
        CellRunner { bond, cell, launcher, testbed, last_ends: last, last_totals: None, clock };
    let mut able = Vec::new();
    for contender in contenders {
        let seen = stage.sample_sockets(contender)?;
        if contender.is_mptcp() && seen.subflows.len() < cell.links.len() {
            let made = seen.subflows.len();
            let name = contender.name(&cell.links);
            record.skipped.push(format!("{name}: the kernel made {made} MPTCP subflows"));
        } else {
            able.push(contender);
        }
        record.extra.sockets.push(seen);
    }
    let able = |entry: &&Entry| able.contains(&entry.contender);
    let able: Vec<Entry> = cell.contenders.iter().filter(able).copied().collect();
    cell.run_rounds(&able, bond.seed, record, progress, |round, entry| stage.run(round, entry))?;
    record.drain_failures = stage.launcher.drain_failures.get();
    Ok(())
}

struct CellRunner<'a> {
    bond: &'a Bond,
    cell: &'a Cell,
    launcher: Launcher<'a>,
    testbed: Testbed,
    /// End of each contender's last run.
    last_ends: BTreeMap<Contender, Time>,
    /// Counters of the bond's endpoints at that time; `None` if no task used them.
    last_totals: Option<[Totals; 2]>,
    clock: Clock,
}

impl CellRunner<'_> {
    fn load(&self, entry: &Entry) -> Command {
        let port = if matches!(entry.task, Task::Page(_)) { WEB_PORT } else { SERVER_PORT };
        let mut command = self.load_by(&self.bond.programs.own, entry, port);
        if let (Task::Page(_), Some(browser)) = (entry.task, &self.bond.programs.browser) {
            command.arg("--browser").arg(browser).arg("--folder").arg(self.testbed.folder());
        }
        command
    }

    /// The load of `entry` by this program, to this port of the server.
    fn load_by(&self, program: &Path, entry: &Entry, port: u16) -> Command {
        let mut command = Command::new(program);
        command.arg("load").args(self.testbed.load_args(
            entry.contender,
            port,
            self.cell.hosts.len(),
        ));
        // The server next to a gateway has its distance as think time; the other contenders have it
        // as link delay.
        if !self.cell.setting.think_time.is_zero() && entry.contender.is_bond() {
            command
                .arg(format!("--think={}ms", self.cell.setting.think_time.as_nanos() / 1_000_000));
        }
        command.args(entry.task.arguments(plan::rate(self.cell, entry.contender)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Reads every socket in the middle of a transfer, on both sides.
    fn sample_sockets(&self, contender: Contender) -> Result<Sockets, DriveError> {
        let entry = Entry { contender, task: Task::file(SOCKET_SAMPLE_SIZE.as_bytes()) };
        let (found, _) = self.launcher.sockets_during(
            self.load(&entry),
            (self.cell.hosts.len(), &self.bond.programs.ss),
            Span::ZERO,
            |_, elapsed| elapsed >= SOCKET_SAMPLE_TIME,
        )?;
        let mut seen =
            Sockets { contender: contender.name(&self.cell.links), ..Sockets::default() };
        for (node, socket) in found {
            match socket.mptcp {
                // Both endpoints of a subflow are found; one of them is on the device.
                true if node == Node::Device(0) => seen.subflows.push(socket.congestion_control),
                true => {}
                false => seen.plain.push(socket.congestion_control),
            }
        }
        Ok(seen)
    }

    fn run(&mut self, round: u32, entry: &Entry) -> Result<Run<Figures>, DriveError> {
        if let Some(at) = self.last_ends.get(&entry.contender)
            && entry.contender.is_bond()
        {
            let idle = self.clock.now().since(*at);
            sleep(COOL_DOWN.saturating_sub(idle).into());
        }
        let mut figures = Figures::of(&entry.task);
        let offset = self.cell.offset(round, plan::RECORDING_STEP);
        let (outcome, link_bytes) = match entry.task {
            Task::Stall(state) => self.run_stall(entry, state)?,
            Task::Apps { length, store } => self.run_apps(entry, length, store)?,
            Task::CountedBulk(_) => self.run_counted(entry, offset)?,
            _ => self.run_alone(entry, offset)?,
        };
        self.last_ends.insert(entry.contender, self.clock.now());
        figures.link_bytes = link_bytes;
        let failed = match outcome {
            Ok(measurement) => {
                let rate = plan::rate(self.cell, entry.contender);
                figures.value = Some(entry.task.figure(measurement.value, rate));
                figures.extra = measurement.extra;
                if matches!(entry.task, Task::Requests { .. }) {
                    let shown = |one: &f64| entry.task.shown(*one);
                    figures.samples = measurement.samples.iter().map(shown).collect();
                }
                None
            }
            Err(reason) => Some(reason),
        };
        Ok(Run::of(figures, failed))
    }

    fn run_alone(&self, entry: &Entry, offset: Span) -> Result<Outcome, DriveError> {
        let patience = plan::seconds(self.cell, entry) * 4.0 + 20.0;
        let ended = self.launcher.run(self.load(entry), patience, (offset, &[]), None)?;
        let outcome = parse_result(ended.success, &ended.stdout, &ended.stderr);
        Ok((outcome, ended.link_bytes))
    }

    /// Runs a stream and interrupts the link that carries it.
    fn run_stall(&mut self, entry: &Entry, state: LinkState) -> Result<Outcome, DriveError> {
        self.testbed.restart_client(&self.launcher.lab, entry.contender)?;
        self.launcher.drain()?;
        let start = self.launcher.delivered()?;
        let mut child = self.launcher.lab.spawn(Node::Device(0), self.load(entry))?;
        sleep((INTERRUPTION_TIME - BUSY_INTERVAL).into());
        let before = self.launcher.delivered()?;
        sleep(BUSY_INTERVAL.into());
        let recent = self.launcher.delivered_since(&before)?;
        let busy = (0..recent.len()).max_by_key(|link| recent[*link]).unwrap_or_default();
        let link = &self.cell.links[busy].name;
        self.launcher.lab.change(link, vec![Change::State(state)])?;
        let outcome = self.wait_result(&mut child, Span::from_secs(60))?;
        self.launcher.lab.change(link, vec![Change::State(LinkState::Up)])?;
        self.launcher.drain()?;
        Ok((outcome, self.launcher.delivered_since(&start)?))
    }

    /// Runs the applications of the policy together. The figure is the number of bytes that the
    /// last link carried for them, in both directions, until all links were quiet.
    fn run_apps(&self, entry: &Entry, length: Span, store: bool) -> Result<Outcome, DriveError> {
        let contender = entry.contender;
        // Kernel MPTCP has no datagrams: the datagrams of the call use its first link directly.
        let called = match contender {
            Contender::Mptcp(link) => Contender::Direct(link),
            other => other,
        };
        let call = Entry { contender: called, task: Task::Call(length) };
        let messenger = Entry { contender, task: messenger_task(length) };
        let own = self.bond.programs.own.clone();
        let mut apps = vec![
            ("call, ms", own, call, CALL_PORT),
            (
                "messenger p95, ms",
                self.testbed.copy_program_as("messenger")?,
                messenger,
                SERVER_PORT,
            ),
        ];
        if store {
            let download = Entry { contender, task: Task::Bulk(length) };
            apps.push((
                "app store, Mbit/s",
                self.testbed.copy_program_as("snapd")?,
                download,
                SERVER_PORT,
            ));
        }
        self.launcher.drain()?;
        let (start, before) = (self.launcher.delivered()?, self.launcher.carried()?);
        let mut running = Vec::new();
        for (what, program, entry, port) in &apps {
            let command = self.load_by(program, entry, *port);
            running.push((what, entry.task, self.launcher.lab.spawn(Node::Device(0), command)?));
        }
        let mut all = Ok(Measurement::default());
        for (what, task, child) in &mut running {
            let one = self.wait_result(child, length * 4)?;
            all = all.and_then(|mut all| {
                let one = one?;
                let value = task.figure(one.value, plan::rate(self.cell, contender));
                all.extra.insert(what.to_string(), value);
                all.extra.extend(one.extra.get_key_value("lost").map(|(k, v)| (k.clone(), *v)));
                Ok(all)
            });
        }
        self.launcher.drain()?;
        let after = self.launcher.carried()?;
        let carried: Vec<(u64, u64)> =
            after.iter().zip(&before).map(|(a, b)| (a.0 - b.0, a.1 - b.1)).collect();
        let (bytes, packets) = carried.last().copied().unwrap_or_default();
        let sum = carried.iter().map(|link| link.0).sum::<u64>();
        let outcome = all.map(|mut all| {
            all.value = bytes as f64;
            all.extra.insert("packets".to_owned(), packets as f64);
            all.extra.insert("share".to_owned(), bytes as f64 / sum.max(1) as f64);
            all
        });
        Ok((outcome, self.launcher.delivered_since(&start)?))
    }

    /// A transfer, and the difference of the counters of both endpoints since the previous one. It
    /// includes bytes that a stalled link delivered late.
    fn run_counted(&mut self, entry: &Entry, offset: Span) -> Result<Outcome, DriveError> {
        let before = self.last_totals.take().map_or_else(|| self.totals(), Ok)?;
        let (outcome, bytes) = self.run_alone(entry, offset)?;
        sleep(COOL_DOWN.into());
        let after = self.totals()?;
        self.last_totals = Some(after);
        let outcome = outcome.and_then(|measurement| {
            let since = |count: fn(&Totals) -> u64| -> Result<f64, String> {
                let of = |end: &[Totals; 2]| end.iter().map(count).sum::<u64>();
                let counted = of(&after).checked_sub(of(&before));
                counted.map(|bytes| bytes as f64).ok_or_else(|| "a session ended".to_owned())
            };
            let spurious = since(|end| end.spurious_bytes)?;
            let repeated = since(|end| end.duplicate_bytes)?;
            let came = since(|end| end.received_bytes)? - repeated;
            let more = [
                ("spurious", spurious),
                ("reinjected", since(|end| end.reinjected_bytes)?),
                ("duplicate", repeated),
                ("received", came),
                ("Mbit/s", came * 8.0 / 1e6 / measurement.value),
            ];
            let more = more.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            Ok(Measurement {
                value: 100.0 * spurious / came,
                extra: more,
                ..Measurement::default()
            })
        });
        Ok((outcome, bytes))
    }

    /// The counters of the client, and of the gateway over all sessions.
    fn totals(&self) -> Result<[Totals; 2], DriveError> {
        let client: Status = self.query_status(Node::Device(0), &[])?;
        let gateway: GatewayStatus = self.query_status(Node::Host(0), &["--gateway"])?;
        let sessions = gateway.sessions.into_iter().map(|session| session.totals);
        Ok([client.totals, sessions.reduce(Add::add).unwrap_or_default()])
    }

    fn query_status<T: DeserializeOwned>(&self, node: Node, end: &[&str]) -> Result<T, DriveError> {
        let mut command = Command::new(&self.bond.programs.manyways);
        command.args(["bond", "status", "--json"]).args(end);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = self.launcher.lab.spawn(node, command)?.wait_with_output();
        let output = output.map_err(system("ask for the status"))?;
        serde_json::from_slice(&output.stdout).map_err(|error| {
            let said = first_line(&String::from_utf8_lossy(&output.stderr));
            DriveError::Server(format!("no status of the bond: {error}; {said}"))
        })
    }

    /// The result of a load generator after its end.
    fn wait_result(
        &self,
        child: &mut Child,
        timeout: Span,
    ) -> Result<Result<Measurement, String>, DriveError> {
        let ended = self.launcher.has_ended(child, timeout)?;
        let (success, stdout, stderr) = output(child, ended)?;
        Ok(parse_result(success, &stdout, &stderr))
    }
}

/// Result of the load generator, and delivered IP bytes of each link towards the device.
type Outcome = (Result<Measurement, String>, Vec<u64>);

/// Small requests and responses over one connection.
fn messenger_task(length: Span) -> Task {
    Task::Requests {
        size: MESSAGE_SIZE,
        every: Span::from_secs(1),
        count: length.as_secs_f64() as u32,
        keep: true,
        bulk: false,
    }
}

/// The result of a load generator, or the reason why there is none.
pub fn parse_result(
    success: Option<bool>,
    said: &str,
    complained: &str,
) -> Result<Measurement, String> {
    match success {
        None => Err("it took too long".to_owned()),
        Some(false) => Err(first_line(complained)),
        Some(true) => serde_json::from_str(said.trim())
            .map_err(|error| format!("its report cannot be read: {error}")),
    }
}
