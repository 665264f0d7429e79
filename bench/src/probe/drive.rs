//! The run of a cell: one lab with a probe server and the servers of the other programs.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use manyways_lab::address;
use manyways_rig::cell::Run;
use manyways_rig::launch::{DriveError, Launcher, first_line, system};
use manyways_rig::links::{mean_rate, round_trip};
use manyways_rig::programs::quoted;
use manyways_rig::sample::median;
use manyways_rig::{Origin, Service, WebServer};
use manyways_trace::scenario::LinkSpec;
use manyways_unit::{Size, Span};
use serde_json::Value;

use super::plan::{BURST_RATE, Cell, DATAGRAM_BYTES, DATAGRAMS, Experiment, Fault, LOAD, TRANSFER};
use super::programs::{self, cost, quantities};
use super::record::{Figures, Quantities, Record};
use super::route::{self, Route};
use super::{Probe, forecast, packets};
use crate::keys;

/// Port of the probe server, and of the SYN packets.
const PROBE_PORT: u16 = 7464;
/// Port of the first iperf3 server; each link has its own.
const IPERF3_PORT: u16 = 5201;
/// Name and size of the page.
const SITE: &str = "origin.lab";
const PAGE: Size = Size::from_bytes(100_000);
/// Size of a compared download.
const DOWNLOAD: Size = Size::from_bytes(1_000_000);
/// Interval between two looks at the queues.
const SAMPLE_INTERVAL: Span = Span::from_millis(10);
/// Time from the end of a comparison to the download.
const LATER: Span = Span::from_secs(1);

pub fn measure(
    probe: &Probe,
    cell: &Cell,
    record: &mut Record,
    progress: &mut dyn FnMut(u32),
) -> Result<(), DriveError> {
    if matches!(cell.setting.experiment, Experiment::Forecast) {
        return cell.run_rounds(&cell.contenders, probe.seed, record, progress, |_, _| {
            Ok(Run::of(forecasts(probe), None))
        });
    }
    let mut launcher = Launcher::start(cell, "bench-probe", probe.seed, &probe.termination)?;
    let folder = launcher.lab.folder().join("probe");
    fs::create_dir_all(&folder).map_err(system("make a folder"))?;
    let mut stage = CellRunner {
        probe,
        cell,
        server_key: String::new(),
        origin: None,
        folder,
        routes: Vec::new(),
    };
    stage.start_servers(&mut launcher)?;
    cell.run_rounds(&cell.contenders, probe.seed, record, progress, |_, contender| {
        stage.run(&launcher, contender)
    })?;
    record.drain_failures = launcher.drain_failures.get();
    Ok(())
}

struct CellRunner<'a> {
    probe: &'a Probe,
    cell: &'a Cell,
    server_key: String,
    origin: Option<Origin>,
    /// Files of programs and keys; it is removed with the lab.
    folder: PathBuf,
    routes: Vec<Route>,
}

/// IP bytes that a link has carried, as the sender sent them up and as the device got them down.
type Carried = (u64, u64);

impl CellRunner<'_> {
    fn start_servers(&mut self, launcher: &mut Launcher<'_>) -> Result<(), DriveError> {
        let lab = &mut launcher.lab;
        match self.cell.setting.experiment {
            Experiment::Trace(_) => self.routes = Route::all(lab)?,
            Experiment::Http => {
                let origin = Origin::start(lab, 1, SITE, &[PAGE])?;
                // The first record of nginx has 16 KiB and cannot be decrypted before its last byte.
                origin.start_other(lab, WebServer::Caddy)?;
                self.origin = Some(origin);
            }
            Experiment::Dns => {}
            _ => {
                let manyways = &self.probe.manyways;
                let client = keys::generate(manyways, &self.folder, "client")?;
                self.server_key = keys::generate(manyways, &self.folder, "server")?;
                fs::write(self.folder.join("allow"), format!("{client} device\n"))
                    .map_err(system("write the list of clients"))?;
                let folder = quoted(self.folder.as_os_str());
                let listen = format!("{}:{PROBE_PORT}", server());
                lab.serve(
                    0,
                    &format!(
                        "exec {} probe server --listen {listen} --key {folder}/server.key --allow \
                         {folder}/allow 2>{folder}/server.log",
                        quoted(manyways.as_os_str())
                    ),
                )?;
            }
        }
        if matches!(self.cell.setting.experiment, Experiment::Compare(_)) {
            self.origin = Some(Origin::start(lab, 1, SITE, &[DOWNLOAD])?);
        }
        if self.cell.contenders.iter().any(|contender| contender.starts_with("iperf3")) {
            for link in 0..self.cell.links.len() {
                let port = iperf3_port(link);
                lab.serve(0, &format!("exec iperf3 --server --port {port} >/dev/null 2>&1"))?;
            }
        }
        Ok(())
    }

    fn run(&self, launcher: &Launcher<'_>, contender: &str) -> Result<Run<Figures>, DriveError> {
        match self.cell.setting.experiment {
            Experiment::Trace(fault) => self.trace(contender, fault),
            Experiment::Compare(offset) => self.compare(launcher, offset),
            _ => self.run_together(launcher, contender),
        }
    }

    /// Runs the program on all links at the same time.
    fn run_together(
        &self,
        launcher: &Launcher<'_>,
        contender: &str,
    ) -> Result<Run<Figures>, DriveError> {
        let mut script = String::new();
        for (index, link) in self.cell.links.iter().enumerate() {
            let (words, output) = (self.words(contender, index, link), self.output(index));
            script += &format!("({words}) >{} 2>&1 &\n", quoted(output.as_os_str()));
        }
        script += "wait\n";
        let mut command = Command::new("sh");
        command.arg("-c").arg(script).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let before = carried(launcher)?;
        let mut queues = Queues::default();
        let is_load = matches!(self.cell.setting.experiment, Experiment::Load);
        let mut observer = |elapsed: Span, _: &[u64]| queues.sample(launcher, elapsed);
        let observed: Option<(Span, manyways_rig::launch::Observer<'_>)> =
            if is_load { Some((SAMPLE_INTERVAL, &mut observer)) } else { None };
        launcher.run(command, 120.0, (Span::ZERO, &[]), observed)?;
        let after = carried(launcher)?;
        let (mut figures, mut failed) = (Figures::default(), None);
        for (index, link) in self.cell.links.iter().enumerate() {
            let printed = fs::read(self.output(index)).unwrap_or_default();
            let printed = String::from_utf8_lossy(&printed);
            match self.read(contender, index, &printed) {
                Ok(mut found) => {
                    self.add_truth(contender, (index, link), &mut found)?;
                    if is_load {
                        queues.add_truth(contender, index, link, &mut found);
                    }
                    add_counters(&after[index], &before[index], contender, &mut found);
                    figures.networks.insert(link.name.clone(), found);
                }
                Err(error) => failed = Some(format!("{}: {error}", link.name)),
            }
        }
        Ok(Run::of(figures, failed))
    }

    /// Output of the program on a link.
    fn output(&self, link: usize) -> PathBuf {
        self.folder.join(format!("output-{link}"))
    }

    fn capture(&self) -> PathBuf {
        self.folder.join("capture.pcap")
    }

    /// The command line of a probe with a server, after `manyways probe`.
    fn with_server(&self, words: &str, link: &str) -> String {
        let folder = quoted(self.folder.as_os_str());
        let (probe, more) = words.split_once(' ').unwrap_or((words, ""));
        let at = format!("{}:{PROBE_PORT}", server());
        self.own(&format!(
            "{probe} {at} --server-key {} --key {folder}/client.key --via {link} {more}",
            self.server_key
        ))
    }

    fn own(&self, words: &str) -> String {
        format!("{} probe {words} --json", quoted(self.probe.manyways.as_os_str()))
    }

    /// The command line of a contender on a link.
    fn words(&self, contender: &str, index: usize, link: &LinkSpec) -> String {
        let (name, server) = (&link.name, server());
        let (from, port) = (address::device(index)[0], iperf3_port(index));
        let down = contender.ends_with("down");
        let up = if down { "" } else { "--up" };
        let reverse = if down { "--reverse" } else { "" };
        let iperf3 = format!("exec iperf3 -c {server} -p {port} -B {from} {reverse} --json");
        let seconds = TRANSFER.as_secs_f64();
        match (&self.cell.setting.experiment, contender) {
            (Experiment::Ping, "fping") => {
                format!("exec fping -q -C 10 -p 50 -t 2000 -I {name} {server}")
            }
            (Experiment::Ping, "probe tcp") => self.own(&format!(
                "ping {server} --tcp {PROBE_PORT} --count 10 --interval 50ms --via {name}"
            )),
            (Experiment::Ping, _) => {
                self.own(&format!("ping {server} --count 10 --interval 50ms --via {name}"))
            }
            (Experiment::Tcp, _) if contender.starts_with("iperf3") => {
                format!("{iperf3} -t {seconds} --omit 1 --congestion cubic")
            }
            (Experiment::Tcp, _) => {
                let full = if contender.starts_with("full") { "--full" } else { "" };
                self.with_server(&format!("tcp --duration {seconds}s {full} {up}"), name)
            }
            (Experiment::Udp, _) if contender.starts_with("iperf3") => {
                let bytes = DATAGRAMS * DATAGRAM_BYTES;
                let rate = BURST_RATE.as_bps();
                format!("{iperf3} --udp -l {DATAGRAM_BYTES} -b {rate} -n {bytes}")
            }
            (Experiment::Udp, _) => {
                let rate = BURST_RATE.as_mbps_f64();
                let words =
                    format!("udp -n {DATAGRAMS} --size {DATAGRAM_BYTES} --rate {rate}mbit {up}");
                let filter = format!("udp and src port {PROBE_PORT}");
                self.captured(name, &filter, &self.with_server(&words, name))
            }
            (Experiment::Load, _) => {
                let words = format!("load --only {contender} --duration {}s", LOAD.as_secs_f64());
                self.with_server(&words, name)
            }
            (Experiment::Dns, "dig") => {
                let resolver = address::gateway(index)[0];
                format!("exec dig -u +tries=1 -b {from} @{resolver} {SITE} A")
            }
            (Experiment::Dns, _) => self.own(&format!("dns {SITE} --count 1 --via {name}")),
            (Experiment::Http, _) => {
                let authority = self.origin.as_ref().map(Origin::authority).unwrap_or_default();
                let authority = quoted(authority.as_os_str());
                let page = PAGE.as_bytes();
                let secure = |origin: &Origin| origin.url(PAGE, Service::Other(WebServer::Caddy));
                let (url, version) = match contender {
                    "http" => (format!("http://{SITE}/{page}"), "--http1"),
                    "https h1" => (self.origin.as_ref().map(secure).unwrap_or_default(), "--http1"),
                    _ => (self.origin.as_ref().map(secure).unwrap_or_default(), "--http2"),
                };
                let words = format!("http {url} {version} --cacert {authority} --via {name}");
                self.captured(name, "tcp or port 53", &self.own(&words))
            }
            (Experiment::Trace(_) | Experiment::Compare(_) | Experiment::Forecast, _) => {
                String::new()
            }
        }
    }

    /// A command line with tcpdump beside it, from before its start until after its end.
    fn captured(&self, link: &str, filter: &str, words: &str) -> String {
        let (file, log) = (self.capture(), self.folder.join("tcpdump.log"));
        let [file, log] = [&file, &log].map(|path| quoted(path.as_os_str()));
        format!(
            "rm -f {log}; tcpdump -Z root --immediate-mode -i {link} -s 128 -B 32768 -w {file} '{filter}' 2>{log} & \
             until grep -q listening {log} 2>/dev/null; do sleep 0.02; done; {words}; sleep 0.3; \
             kill -INT $!; wait $!"
        )
    }

    /// The quantities in the output of a program.
    fn read(&self, contender: &str, index: usize, printed: &str) -> Result<Quantities, String> {
        let said = |error: String| format!("{error}; {}", first_line(printed));
        let found = match contender {
            "fping" => programs::fping(printed),
            "dig" => programs::dig(printed),
            _ if contender.starts_with("iperf3") => programs::iperf3(printed).map_err(said)?,
            _ => {
                let result = programs::result(printed).map_err(said)?;
                let mut found = quantities(&result);
                found.extend(cost(&result));
                found
            }
        };
        if found.is_empty() {
            return Err(said(format!("nothing was measured on link {index}")));
        }
        Ok(found)
    }

    /// Adds the true values, from settings and captures.
    fn add_truth(
        &self,
        contender: &str,
        (index, link): (usize, &LinkSpec),
        found: &mut Quantities,
    ) -> Result<(), DriveError> {
        let mut add = |name: &str, value: f64| {
            found.insert(format!("true {name}"), value);
        };
        let milliseconds = round_trip(link).as_millis_f64();
        match self.cell.setting.experiment {
            Experiment::Ping => add("median, ms", milliseconds),
            Experiment::Dns => add("answer, ms", milliseconds),
            Experiment::Tcp => {
                add("rate, Mbit/s", mean_rate(link).as_mbps_f64() * 1448.0 / 1500.0);
            }
            Experiment::Udp if contender == "probe down" => {
                debug_assert_eq!(index, 0, "there is one capture");
                let reordered = packets::reordered(&self.capture(), PROBE_PORT);
                add("reordered", reordered.map_err(DriveError::Server)?);
            }
            Experiment::Http => {
                found.extend(packets::phases(&self.capture()).map_err(DriveError::Server)?);
            }
            _ => {}
        }
        Ok(())
    }

    /// Traces all routes at the same time.
    fn trace(&self, contender: &str, fault: Fault) -> Result<Run<Figures>, DriveError> {
        let mut running = Vec::new();
        for route in &self.routes {
            let target = Route::address(route.place);
            let script = match contender {
                "mtr" => {
                    let count = if fault == Fault::Loss { 100 } else { 10 };
                    format!("exec mtr -n --report -c {count} -i 0.05 -G 1 {target}")
                }
                _ => {
                    let rounds = if fault == Fault::Loss { 300 } else { 10 };
                    let words = format!(
                        "trace {target} --via right --rounds {rounds} --interval 2ms --max-hops 10"
                    );
                    self.own(&words)
                }
            };
            let mut command = Command::new("sh");
            running.push((route, route.start(command.arg("-c").arg(script))?));
        }
        let (mut figures, mut failed) = (Figures::default(), None);
        for (route, child) in running {
            let printed = route::output(child)?;
            let found = match contender {
                "mtr" => Ok(programs::mtr(&printed)),
                _ => self.read(contender, route.place, &printed),
            };
            match found {
                Ok(mut found) => {
                    found.insert("true after hop".to_owned(), route.place as f64);
                    figures.networks.insert(format!("route {}", route.place), found);
                }
                Err(error) => failed = Some(format!("route {}: {error}", route.place)),
            }
        }
        Ok(Run::of(figures, failed))
    }

    /// Compares the two networks, and then downloads over each of them from the same position on.
    fn compare(&self, launcher: &Launcher<'_>, offset: Span) -> Result<Run<Figures>, DriveError> {
        let Some(origin) = &self.origin else { return Ok(Run::default()) };
        let folder = quoted(self.folder.as_os_str());
        let words = format!(
            "compare {}:{PROBE_PORT} --server-key {} --key {folder}/client.key",
            server(),
            self.server_key
        );
        let before = carried(launcher)?;
        let (ended, mut failed) = self.one(launcher, &self.own(&words), offset)?;
        let after = carried(launcher)?;
        let document: Value = serde_json::from_str(&ended.stdout).unwrap_or_default();
        let purposes = document["purposes"].as_array().cloned().unwrap_or_default();
        let chosen = purposes.iter().find(|purpose| purpose["purpose"] == "1mb");
        let mut figures = Figures::default();
        for (index, link) in self.cell.links.iter().enumerate() {
            let mut found = Quantities::new();
            if let Some(chosen) = chosen {
                let is_best = chosen["best"] == link.name.as_str();
                found.insert("named".to_owned(), f64::from(u8::from(is_best)));
                let expected = chosen["values"][&link.name].as_f64();
                found.extend(expected.map(|value| ("expected, s".to_owned(), value)));
                found.extend(chosen["certainty"].as_f64().map(|sure| ("sure".to_owned(), sure)));
            }
            let network = document["networks"].as_array().into_iter().flatten();
            let network = network.filter(|network| network["interface"] == link.name.as_str());
            for result in network.flat_map(|network| network["results"].as_array()).flatten() {
                for (name, bytes) in cost(result) {
                    *found.entry(name).or_default() += bytes;
                }
            }
            add_counters(&after[index], &before[index], "", &mut found);
            let from = address::device(index)[0];
            let url = origin.url(DOWNLOAD, Service::Plain);
            let authority = origin.authority();
            let script = format!(
                "exec curl --silent --show-error --max-time 60 --interface {from} --cacert {} \
                 --resolve {SITE}:443:{} --write-out '%{{time_total}}' --output /dev/null {url}",
                quoted(authority.as_os_str()),
                server()
            );
            let at = offset + Span::from_secs_f64(ended.seconds) + LATER;
            let (downloaded, error) = self.one(launcher, &script, at)?;
            failed = failed.or(error);
            let seconds = downloaded.stdout.trim().parse::<f64>().ok();
            found.extend(seconds.map(|seconds| ("true download, s".to_owned(), seconds)));
            figures.networks.insert(link.name.clone(), found);
        }
        Ok(Run::of(figures, failed))
    }

    /// Runs a script from this position in the recordings on.
    fn one(
        &self,
        launcher: &Launcher<'_>,
        script: &str,
        offset: Span,
    ) -> Result<(manyways_rig::launch::RunOutput, Option<String>), DriveError> {
        let mut command = Command::new("sh");
        command.arg("-c").arg(script).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let period = self.cell.offset(1, offset);
        let ended = launcher.run(command, 120.0, (period, &[]), None)?;
        let failed = (ended.success != Some(true)).then(|| first_line(&ended.stderr));
        Ok((ended, failed))
    }
}

/// Shares of right forecasts for downloads that begin soon and late after a comparison.
fn forecasts(probe: &Probe) -> Figures {
    let cases = forecast::official(&probe.pairs);
    let mut figures = Figures::default();
    for found in forecast::figures(&cases).iter().filter(|found| found.lag == found.after) {
        let quantities = [
            ("right", found.right),
            ("unsure", found.unsure),
            ("cases", found.cases as f64),
            ("always wifi", found.always_wifi),
            ("always lte", found.always_lte),
            ("last winner", found.last_winner),
            ("shorter download together", found.winner_together),
            ("best baseline", found.best_baseline()),
        ];
        let named = quantities.map(|(name, value)| (name.to_owned(), value));
        figures.networks.insert(format!("after {:02} s", found.lag), named.into());
    }
    figures
}

/// The server, over every link.
fn server() -> std::net::IpAddr {
    address::host(0)[0]
}

fn iperf3_port(link: usize) -> u16 {
    IPERF3_PORT + link as u16
}

/// Counters of each link, up and down.
struct Counters {
    carried: Carried,
    /// Packets that arrived at the link and that it lost.
    up: (u64, u64),
    down: (u64, u64),
}

fn carried(launcher: &Launcher<'_>) -> Result<Vec<Counters>, DriveError> {
    let snapshot = launcher.lab.relay().snapshot().map_err(system("look at the links"))?;
    let links = snapshot.links.iter().map(|link| Counters {
        carried: (link.up.arrived.size.as_bytes(), link.down.delivered.size.as_bytes()),
        up: (link.up.arrived.packets, link.up.dropped_loss.packets),
        down: (link.down.arrived.packets, link.down.dropped_loss.packets),
    });
    Ok(links.collect())
}

/// Adds what the link counted during a run.
fn add_counters(after: &Counters, before: &Counters, contender: &str, found: &mut Quantities) {
    let share = |(after, before): ((u64, u64), (u64, u64))| {
        (after.1 - before.1) as f64 / (after.0 - before.0).max(1) as f64 * 100.0
    };
    if found.contains_key("loss, %") {
        let way = if contender.ends_with("up") {
            (after.up, before.up)
        } else {
            (after.down, before.down)
        };
        found.insert("true loss, %".to_owned(), share(way));
    }
    let (up, down) = (after.carried.0 - before.carried.0, after.carried.1 - before.carried.1);
    found.insert("carried bytes up".to_owned(), up as f64);
    found.insert("carried bytes down".to_owned(), down as f64);
}

/// The queues of the links over the time of a run.
#[derive(Default)]
struct Queues {
    samples: Vec<(Span, Vec<Lanes>)>,
}

/// Delivered and waiting bytes of a link, up and down.
struct Lanes {
    up: (u64, u64),
    down: (u64, u64),
}

impl Queues {
    fn sample(&mut self, launcher: &Launcher<'_>, elapsed: Span) {
        // The relay answers as long as the lab exists.
        let Ok(snapshot) = launcher.lab.relay().snapshot() else { return };
        let links = snapshot.links.iter().map(|link| {
            let [up, down] = [&link.up, &link.down]
                .map(|lane| (lane.delivered.size.as_bytes(), lane.backlog.size.as_bytes()));
            Lanes { up, down }
        });
        self.samples.push((elapsed, links.collect()));
    }

    /// Adds the base round trip with the limit of the queue, and with what waited in it during the
    /// part of the transfer in which the probe looks.
    fn add_truth(&self, contender: &str, index: usize, link: &LinkSpec, found: &mut Quantities) {
        let rate = mean_rate(link).as_bps() as f64 / 8.0;
        let lane = |lanes: &Lanes| if contender == "up" { lanes.up } else { lanes.down };
        let at = |sample: &(Span, Vec<Lanes>)| {
            let (delivered, waiting) = sample.1.get(index).map(lane).unwrap_or_default();
            (sample.0.as_secs_f64(), delivered as f64, waiting as f64)
        };
        let samples: Vec<(f64, f64, f64)> = self.samples.iter().map(at).collect();
        // The transfer has begun when a tenth of a second is full.
        let begun = samples.iter().position(|(time, delivered, _)| {
            let later = samples.iter().find(|later| later.0 >= time + 0.1);
            later.is_some_and(|later| later.1 - delivered > rate * 0.1 * 0.8)
        });
        let base = round_trip(link).as_millis_f64();
        found.insert("true limit, ms".to_owned(), base + super::plan::QUEUE.as_millis_f64());
        let Some(begun) = begun.and_then(|index| samples.get(index)).map(|sample| sample.0) else {
            return;
        };
        let length = LOAD.as_secs_f64();
        // The probe looks from 0.3 of its duration on, which begins about 0.1 of it earlier, with the
        // handshakes and slow start.
        let during = (begun + 0.2 * length)..(begun + 0.9 * length);
        let waiting = samples.iter().filter(|sample| during.contains(&sample.0));
        let waiting = median(waiting.map(|sample| sample.2 / rate * 1e3));
        found.extend(waiting.map(|waiting| ("true loaded, ms".to_owned(), base + waiting)));
    }
}
