//! The runs of the parts that no other benchmark of `bond` has.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;

use manyways_lab::{Node, address};
use manyways_rig::cell::Run;
use manyways_rig::launch::{DriveError, Killed, Launcher, output, system};
use manyways_rig::programs::{quoted, shell_words};
use manyways_rig::sample::quantile;
use manyways_sys::clock::Clock;
use manyways_unit::{Span, Time};

use super::attack::{Attack, judge_greedy, judge_strangers};
use super::plan::{CALL_LENGTH, Cell, Entry, FLOOD_LENGTH, Load};
use crate::bond::Bond;
use crate::bond::contender::Contender;
use crate::bond::record::{Figures, Record};
use crate::bond::testbed::{client, gateway, wait_until};
use crate::keys;
use crate::traffic::Measurement;

const SERVER_PORT: u16 = 7100;
const GATEWAY_PORT: u16 = 4433;
/// SOCKS5 ports of the two clients.
const SOCKS_PORTS: [u16; 2] = [1081, 1082];
/// Names of their keys.
const NAMES: [&str; 2] = ["client", "greedy"];
/// Strangers in a second.
const RATE: u32 = 3_000;
/// Files that a gateway with a greedy client may open.
const OPEN_FILES: u32 = 1_024;
/// Time for which an application waits for its connection before it tries again.
const PATIENCE: Span = Span::from_secs(1);
/// Time in which a download fills the queues, and a greedy key takes its share.
const LEAD: Span = Span::from_secs(1);
/// Time for which a download goes on after a call, and in which the last datagrams come back.
const TAIL: Span = Span::from_secs(1);
/// Time limit of every run.
const TIMEOUT: Span = Span::from_secs(90);

pub fn measure(
    bond: &Bond,
    cell: &Cell,
    record: &mut Record,
    progress: &mut dyn FnMut(u32),
) -> Result<(), DriveError> {
    let mut launcher = Launcher::start(cell, "bench-gateway", bond.seed, &bond.termination)?;
    let folder = launcher.lab.folder().join("bond");
    fs::create_dir_all(&folder).map_err(system("make a folder"))?;
    let own = |name| keys::generate(&bond.programs.manyways, &folder, name);
    let mut allow = String::new();
    for name in NAMES {
        allow += &format!("{} {name} streams=65536\n", own(name)?);
    }
    fs::write(folder.join("allow"), allow).map_err(system("write the list of clients"))?;
    let gateway_key = own("gateway")?;
    let program = quoted(bond.programs.own.as_os_str());
    launcher.lab.serve(0, &format!("exec {program} serve --listen 0.0.0.0:{SERVER_PORT}"))?;
    let mut route = Command::new("ip");
    route.args(["route", "add", "local", "10.128.0.0/9", "dev", "lo"]);
    let route = launcher.lab.spawn(Node::Host(0), route)?.wait();
    route.map_err(system("add the addresses of the strangers"))?;
    let mut runner = Runner { bond, cell, launcher, folder, gateway_key };
    cell.run_rounds(&cell.contenders, bond.seed, record, progress, |_, entry| runner.run(entry))
}

struct Runner<'a> {
    bond: &'a Bond,
    cell: &'a Cell,
    launcher: Launcher<'a>,
    folder: PathBuf,
    gateway_key: String,
}

/// A measured value with further figures, or the reason of a failure.
type Outcome = Result<(f64, Vec<(&'static str, f64)>), String>;

/// The 95th percentile of the round trip of a call in ms, infinite if too many datagrams were lost,
/// and the rate of the download while the datagrams were sent.
fn call_figures(call: &Measurement, download: &Measurement) -> (f64, Vec<(&'static str, f64)>) {
    let shown = ["lost", "sent", "reordered"].map(|name| (name, call.extra.get(name).copied()));
    let median = call.extra.get("trip_median").map(|trip| trip * 1000.0);
    let rate = rate_between(&download.samples, LEAD, LEAD + CALL_LENGTH);
    let more = shown.into_iter().chain([("median", median), ("Mbit/s", Some(rate))]);
    let more = more.filter_map(|(name, value)| Some((name, value?))).collect();
    let trip = call.extra.get("trip_p95").map_or(f64::INFINITY, |trip| trip * 1000.0);
    (trip, more)
}

/// The rate in Mbit/s between two times, of the bytes in each tenth of a second.
fn rate_between(tenths: &[f64], from: Span, to: Span) -> f64 {
    let tenth = |time: Span| (time.as_secs_f64() * 10.0).round() as usize;
    let bytes: f64 = tenths.iter().take(tenth(to)).skip(tenth(from)).sum();
    bytes * 8.0 / 1e6 / (to - from).as_secs_f64()
}

/// A time as an option of a program.
fn millis(time: Span) -> String {
    format!("{}ms", time.as_nanos() / 1_000_000)
}

/// A bond that does not start is a failed run, so that it counts; it does not end the cell.
fn failure_of_a_run(outcome: Result<Outcome, DriveError>) -> Result<Outcome, DriveError> {
    match outcome {
        Err(DriveError::Server(reason)) => Ok(Err(reason)),
        other => other,
    }
}

impl Runner<'_> {
    fn run(&mut self, entry: &Entry) -> Result<Run<Figures>, DriveError> {
        let by = entry.contender;
        let outcome = match entry.load {
            Load::Usual(_) => Ok(Err("another driver runs this".to_owned())),
            Load::Newcomer { networks, quic } => self.newcomer(by, networks, quic),
            Load::Requests { greedy } => self.requests(by, greedy),
            Load::Return(absence) => self.returning(by, absence),
            Load::BusyCall => self.busy_call(by),
        };
        let outcome = failure_of_a_run(outcome)?;
        self.launcher.drain()?;
        let mut figures = Figures {
            task: entry.load.name(),
            unit: entry.load.unit().to_owned(),
            ..Figures::default()
        };
        let failed = match outcome {
            Ok((value, extra)) => {
                figures.value = Some(value);
                figures.extra = extra.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
                None
            }
            Err(reason) => Some(reason),
        };
        Ok(Run::of(figures, failed))
    }

    /// The time from the start of a client to the first answer through it.
    fn newcomer(&self, by: Contender, networks: u32, quic: bool) -> Result<Outcome, DriveError> {
        let _gateway = self.gateway(by, None)?;
        let strangers = match networks {
            0 => None,
            _ => Some(self.strangers(networks, quic)?),
        };
        let clock = Clock::start();
        let now = || clock.now().since(Time::ZERO);
        let carrier = if quic { "quic" } else { "tcp" };
        let _client = self.client(by, 0, &["--carrier", carrier])?;
        while now() < FLOOD_LENGTH {
            let mut load = self.load(by, 0, "files --size 1000")?;
            if self.wait(&mut load, FLOOD_LENGTH.saturating_sub(now()))?.is_ok() {
                let took = now().as_secs_f64();
                let judge = |strangers: Attack| judge_strangers(&strangers.end()?, RATE);
                let figures = strangers.map_or(Ok(Vec::new()), judge);
                return Ok(figures.map(|figures| (took, figures)));
            }
        }
        // The strangers do not come for longer.
        Ok(Err(format!("no connection within {FLOOD_LENGTH}")))
    }

    fn strangers(&self, networks: u32, quic: bool) -> Result<Attack, DriveError> {
        let mut command = Command::new(&self.bond.programs.own);
        let gateway = format!("{}:{GATEWAY_PORT}", address::host(0)[0]);
        let (networks, rate) = (networks.to_string(), RATE.to_string());
        let length = millis(FLOOD_LENGTH);
        command.args(["strangers", "--to", &gateway, "--networks", &networks, "--rate", &rate]);
        command.args(["--length", &length]).args(quic.then_some("--quic"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let child = self.launcher.lab.spawn(Node::Host(0), command)?;
        let attack = Attack::of("the strangers", child);
        let come = attack.and_then(|mut attack| (!attack.line().is_empty()).then_some(attack));
        come.ok_or_else(|| DriveError::Server("the strangers did not come".to_owned()))
    }

    /// The 99th percentile of the times of one key's requests.
    fn requests(&self, by: Contender, greedy: bool) -> Result<Outcome, DriveError> {
        let _gateway = self.gateway(by, Some(OPEN_FILES))?;
        let _clients = [self.client(by, 0, &[])?, self.client(by, 1, &[])?];
        self.wait_up(0)?;
        self.wait_up(1)?;
        let attack = match greedy {
            true => Attack::of("the greedy key", self.load(by, 1, "greedy --at-once 256")?),
            false => None,
        };
        sleep((LEAD * 2).into());
        let mut load = self.load(by, 0, "requests --size 1000 --every 30ms --count 200")?;
        let outcome = self.wait(&mut load, TIMEOUT)?;
        let judge = |attack: Attack| judge_greedy(&attack.end()?);
        let attack = attack.map_or(Ok(Vec::new()), judge);
        Ok(outcome.and_then(|measurement| {
            let at = |share| quantile(&measurement.samples, share).unwrap_or_default() * 1000.0;
            Ok((at(0.99), [vec![("median", at(0.5))], attack?].concat()))
        }))
    }

    /// The time from the return of a gateway to the first new connection.
    fn returning(&self, by: Contender, absence: Span) -> Result<Outcome, DriveError> {
        let gateway = self.gateway(by, None)?;
        let _client = self.client(by, 0, &[])?;
        self.wait_up(0)?;
        let mut load = self.load(by, 0, "files --size 1000")?;
        if let Err(reason) = self.wait(&mut load, PATIENCE * 5)? {
            return Ok(Err(reason));
        }
        drop(gateway);
        let clock = Clock::start();
        let now = || clock.now().since(Time::ZERO);
        let mut gateway = None;
        while now() < absence + TIMEOUT {
            if gateway.is_none() && now() + PATIENCE > absence {
                // The attempt that spans the return.
                let mut load = self.load(by, 0, "files --size 1000")?;
                sleep(absence.saturating_sub(now()).into());
                gateway = Some(self.gateway(by, None)?);
                if self.wait(&mut load, PATIENCE)?.is_ok() {
                    break;
                }
                continue;
            }
            let mut load = self.load(by, 0, "files --size 1000")?;
            let begun = now();
            if self.wait(&mut load, PATIENCE)?.is_ok() {
                break;
            }
            // A refused attempt ends early.
            sleep((begun + PATIENCE).saturating_sub(now()).into());
        }
        Ok(match now() < absence + TIMEOUT && gateway.is_some() {
            true => Ok((now().saturating_sub(absence).as_secs_f64(), Vec::new())),
            false => Err("no connection after the return of the gateway".to_owned()),
        })
    }

    /// The 95th percentile of the round trip of a call beside a download.
    fn busy_call(&self, by: Contender) -> Result<Outcome, DriveError> {
        let _ends = match by.is_bond() {
            true => {
                let gateway = self.gateway(by, None)?;
                let client = self.client(by, 0, &[])?;
                self.wait_up(0)?;
                Some((gateway, client))
            }
            false => None,
        };
        let (clock, length) = (Clock::start(), LEAD + CALL_LENGTH + TAIL);
        let download = format!("download --length {}", millis(length));
        let mut download = Killed(self.load(by, 0, &download)?);
        sleep(LEAD.into());
        let call = format!("call --length {} --size 1000", millis(CALL_LENGTH));
        let call = self.wait(&mut self.load(by, 0, &call)?, CALL_LENGTH * 4)?;
        // A call waits as long as this for its last datagrams.
        let is_late = clock.now().since(Time::ZERO) > length + TAIL;
        let download = self.wait(&mut download.0, TIMEOUT)?;
        if is_late {
            return Ok(Err("the download did not last as long as the call".to_owned()));
        }
        Ok(call.and_then(|call| Ok(call_figures(&call, &download?))))
    }

    /// Starts a gateway that may open so many files, and waits until it listens.
    fn gateway(&self, by: Contender, files: Option<u32>) -> Result<Killed, DriveError> {
        let program = self.bond.programs.of(by);
        let at = format!("0.0.0.0:{GATEWAY_PORT}");
        let mut command = gateway(program, &self.folder, &at, "198.18.0.0/15");
        command.arg("--quiet");
        if let Some(files) = files {
            let words = shell_words(&command);
            command = Command::new("/bin/sh");
            command.args(["-c", &format!("ulimit -n {files}; exec {words}")]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = Killed(self.launcher.lab.spawn(Node::Host(0), command)?);
        self.wait_listening(Node::Host(0), GATEWAY_PORT)?;
        Ok(child)
    }

    /// Starts one of the clients, and waits until its proxy listens.
    fn client(&self, by: Contender, index: usize, more: &[&str]) -> Result<Killed, DriveError> {
        let gateway = format!("{}:{GATEWAY_PORT}", address::host(0)[0]);
        let own = self.folder.join(NAMES[index]);
        fs::create_dir_all(&own).map_err(system("make a folder"))?;
        let key = format!("{}.key", NAMES[index]);
        fs::copy(self.folder.join(&key), own.join("client.key")).map_err(system("copy a key"))?;
        let peer = (gateway.as_str(), self.gateway_key.as_str());
        let mut command = client(self.bond.programs.of(by), &own, peer, SOCKS_PORTS[index]);
        command.args(["--name", NAMES[index]]).args(more);
        let log = File::create(self.log(index)).map_err(system("write a log"))?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = Killed(self.launcher.lab.spawn(Node::Device(0), command)?);
        self.wait_listening(Node::Device(0), SOCKS_PORTS[index])?;
        Ok(child)
    }

    fn log(&self, index: usize) -> PathBuf {
        self.folder.join(format!("{}.log", NAMES[index]))
    }

    /// Waits until a client has a carrier over every link.
    fn wait_up(&self, index: usize) -> Result<(), DriveError> {
        for link in &self.cell.links {
            let words = format!("{} is up", link.name);
            wait_until("a carrier", || Ok(fs::read_to_string(self.log(index))?.contains(&words)))?;
        }
        Ok(())
    }

    fn wait_listening(&self, node: Node, port: u16) -> Result<(), DriveError> {
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        wait_until("an end of the bond", || {
            self.launcher.lab.namespace(node).run(|| Ok(TcpStream::connect(at).is_ok()))
        })
    }

    /// A load generator on the device.
    fn load(&self, by: Contender, client: usize, words: &str) -> Result<Child, DriveError> {
        let mut command = Command::new(&self.bond.programs.own);
        command.arg("load").arg(format!("--server={}:{SERVER_PORT}", address::host(0)[0]));
        match by.only_link() {
            Some(link) => command.arg(format!("--from={}", address::device(link)[0])),
            None => command.arg(format!("--socks=127.0.0.1:{}", SOCKS_PORTS[client])),
        };
        command.args(words.split_whitespace());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(self.launcher.lab.spawn(Node::Device(0), command)?)
    }

    /// The result of a load generator, or the reason of its failure.
    fn wait(
        &self,
        child: &mut Child,
        timeout: Span,
    ) -> Result<Result<Measurement, String>, DriveError> {
        let ended = self.launcher.has_ended(child, timeout)?;
        let (success, stdout, stderr) = output(child, ended)?;
        Ok(crate::bond::drive::parse_result(success, &stdout, &stderr))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bond_that_does_not_start_is_a_failed_run() {
        let reason = || "a carrier is not there after 10 s".to_owned();
        let outcome = failure_of_a_run(Err(DriveError::Server(reason())));
        assert!(matches!(outcome, Ok(Err(words)) if words == reason()));
        let outcome = failure_of_a_run(Err(DriveError::Stopped(2)));
        assert!(matches!(outcome, Err(DriveError::Stopped(2))));
    }

    #[test]
    fn the_download_is_measured_while_the_call_lasts() {
        let mut tenths = vec![1e9; 10];
        tenths.extend([125_000.0; 80]);
        tenths.extend([1e9; 10]);
        let download = Measurement { samples: tenths, ..Measurement::default() };
        let call = |more: &[(&str, f64)]| Measurement {
            extra: more.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            ..Measurement::default()
        };
        let all = call(&[("trip_p95", 0.05), ("trip_median", 0.04), ("lost", 1.0)]);
        let more = vec![("lost", 1.0), ("median", 40.0), ("Mbit/s", 10.0)];
        assert_eq!(call_figures(&all, &download), (50.0, more));
        let lost = call(&[("trip_median", 0.04)]);
        assert_eq!(call_figures(&lost, &download).0, f64::INFINITY);
        let none = Measurement::default();
        assert_eq!(call_figures(&lost, &none).1, [("median", 40.0), ("Mbit/s", 0.0)]);
    }
}
