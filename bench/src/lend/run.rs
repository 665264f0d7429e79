//! The run of a cell: one lab, and every entry once in each round, in a changing order.

use std::process::{Child, Command};
use std::thread::sleep;

use manyways_lab::Node;
use manyways_rig::cell::Run;
use manyways_rig::launch::{DriveError, Launcher, output};
use manyways_sys::clock::Clock;
use manyways_unit::{Size, Span, Time};

use super::devices::{Devices, Ends};
use super::plan::{
    ARRIVAL_SIZE, CHUNK, Cell, Contender, EVENT_TIME, Entry, HOP, LOOPBACK_SIZE, Load,
    RECORDING_STEP, STREAM, WARM_SIZE,
};
use crate::bond::Bond;
use crate::bond::drive::parse_result;
use crate::bond::record::{Figures, Record};
use crate::traffic::Measurement;

/// Time limit of a run.
const TIMEOUT: Span = Span::from_secs(60);
/// Interval of the looks at the links.
const INTERVAL: Span = Span::from_millis(10);
/// A path that carried less in an interval has no data, but ACKs.
const DATA: u64 = 2_000;
/// Time after the data for which packets of the lender are counted.
const SILENCE: Span = Span::from_secs(2);
/// Time in which the client counts all bytes.
const COUNT_TIMEOUT: Span = Span::from_secs(2);
/// A lender is in use when the pipe has carried so many bytes.
const IN_USE: u64 = 20_000;

pub fn measure(
    bond: &Bond,
    cell: &Cell,
    record: &mut Record,
    progress: &mut dyn FnMut(u32),
) -> Result<(), DriveError> {
    let mut launcher = Launcher::start(cell, "bench-lend", bond.seed, &bond.termination)?;
    let is_loopback = cell.links.len() == 1;
    let devices = match is_loopback {
        true => Devices::on_loopback(&mut launcher.lab, &bond.programs)?,
        false => Devices::start(&mut launcher.lab, &bond.programs)?,
    };
    let runner = Runner { cell, launcher, devices };
    let run = |round, entry: &Entry| runner.run(round, entry);
    cell.run_rounds(&cell.contenders, bond.seed, record, progress, run)?;
    record.drain_failures = runner.launcher.drain_failures.get();
    Ok(())
}

struct Runner<'a> {
    cell: &'a Cell,
    launcher: Launcher<'a>,
    devices: Devices<'a>,
}

/// The result of a run.
#[derive(Default)]
struct Measured {
    value: f64,
    /// Further figures.
    extra: Vec<(&'static str, f64)>,
    /// Delivered IP bytes of each link, towards the laptop.
    link_bytes: Vec<u64>,
}

impl Measured {
    fn of(value: f64) -> Self {
        Self { value, ..Self::default() }
    }
}

/// A result, or the reason of a failure.
type Outcome = Result<Measured, String>;

impl Runner<'_> {
    fn run(&self, round: u32, entry: &Entry) -> Result<Run<Figures>, DriveError> {
        let outcome = match self.devices.bond(&self.launcher.lab, entry.contender) {
            // A bond that does not start is a failed run, so that it counts.
            Err(DriveError::Server(reason)) => Ok(Err(reason)),
            Err(error) => Err(error),
            Ok(mut ends) => match entry.load {
                Load::Download { .. } | Load::Upload(_) => self.file(round, entry, ends.as_ref()),
                Load::Killed => self.killed(entry.contender, ends.as_mut()),
                Load::Arrived => self.arrived(entry.contender, ends.as_mut()),
                Load::Loopback => self.loopback(entry.contender),
            },
        }?;
        self.launcher.drain()?;
        let (task, unit) = (entry.load.name(), entry.load.unit().to_owned());
        let mut figures = Figures { task, unit, ..Figures::default() };
        let failed = match outcome {
            Ok(Measured { value, extra, link_bytes }) => {
                figures.value = Some(value);
                figures.extra = extra.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
                figures.link_bytes = link_bytes;
                None
            }
            Err(reason) => Some(reason),
        };
        Ok(Run::of(figures, failed))
    }

    fn load(&self, entry: &Entry) -> Command {
        let mut command = self.devices.load(entry.contender);
        let bytes = |size: Size| size.as_bytes().to_string();
        // The server beside a gateway has its distance as think time.
        if entry.contender != Contender::Combine {
            command.arg(format!("--think={}ms", 2 * HOP.as_nanos() / 1_000_000));
        }
        match entry.load {
            Load::Download { size, warm } => {
                let is_combine = entry.contender == Contender::Combine;
                command.arg(if is_combine { "combine" } else { "files" });
                command.args(["--size", &bytes(size)]);
                if warm {
                    command.args(["--warm", &bytes(WARM_SIZE)]);
                }
                if is_combine {
                    command.args(["--chunk", &bytes(CHUNK), "--proxy", &Devices::proxy()]);
                }
            }
            Load::Upload(size) => {
                command.args(["upload", "--size", &bytes(size)]);
            }
            Load::Killed => {
                let (rate, length) = STREAM;
                command.args(["stream", "--rate", &format!("{}kbit", rate.as_bps() / 1000)]);
                command.args(["--length", &format!("{}ms", length.as_nanos() / 1_000_000)]);
            }
            Load::Arrived => {
                command.args(["files", "--size", &bytes(ARRIVAL_SIZE)]);
            }
            Load::Loopback => {
                command.args(["files", "--size", &bytes(LOOPBACK_SIZE)]);
            }
        }
        command
    }

    /// A file, and of a bond also: the time between the last bytes of both paths as a share of the
    /// whole, the bytes that came twice, and the packets over the lender's network after the data.
    fn file(&self, round: u32, entry: &Entry, ends: Option<&Ends>) -> Result<Outcome, DriveError> {
        let offset = self.cell.offset(round, RECORDING_STEP);
        let mut before = Vec::new();
        let mut last_data = vec![Span::ZERO; self.cell.links.len()];
        let mut observer = |elapsed: Span, delivered: &[u64]| {
            let grown = |link: usize| delivered[link] >= before.get(link).unwrap_or(&0) + DATA;
            (0..delivered.len())
                .filter(|link| grown(*link))
                .for_each(|link| last_data[link] = elapsed);
            before = delivered.to_vec();
        };
        let timeline = (offset, self.cell.events.as_slice());
        let observed = Some((INTERVAL, &mut observer as &mut dyn FnMut(Span, &[u64])));
        let ended =
            self.launcher.run(self.load(entry), TIMEOUT.as_secs_f64(), timeline, observed)?;
        let outcome = parse_result(ended.success, &ended.stdout, &ended.stderr);
        let measurement = match outcome {
            Ok(measurement) => measurement,
            Err(reason) => return Ok(Err(reason)),
        };
        let mut extra = Vec::new();
        if ends.is_some() && matches!(entry.load, Load::Download { .. }) {
            let ends_of = [0, 2].map(|link| last_data[link].as_secs_f64());
            extra.push(("end gap", (ends_of[0] - ends_of[1]).abs() / measurement.value));
            let status = self.devices.status(&self.launcher.lab)?;
            let twice = status["totals"]["duplicate_bytes"].as_f64().unwrap_or(f64::NAN);
            extra.push(("duplicate", twice));
        }
        if entry.contender.phones() > 0 && self.cell.part == 'f' {
            let packets = || Ok::<_, DriveError>(self.launcher.carried()?[1].1);
            let before = packets()?;
            sleep(SILENCE.into());
            extra.push(("packets after the data", (packets()? - before) as f64));
        }
        Ok(Ok(Measured { value: measurement.value, extra, link_bytes: ended.link_bytes }))
    }

    /// The longest time without a byte, in ms, of a stream during which the lender is killed.
    fn killed(&self, by: Contender, ends: Option<&mut Ends>) -> Result<Outcome, DriveError> {
        let entry = Entry { contender: by, load: Load::Killed };
        let before = self.launcher.delivered()?;
        let mut load = self.launcher.lab.spawn(Node::Device(0), self.load(&entry))?;
        sleep(EVENT_TIME.into());
        let carried = self.launcher.delivered_since(&before)?[2];
        if let Some(ends) = ends {
            // Its end is a SIGKILL.
            ends.lenders.clear();
        }
        let outcome = self.wait(&mut load)?;
        Ok(outcome.and_then(|all| match carried > IN_USE {
            true => Ok(Measured::of(all.value * 1000.0)),
            false => Err("the lender was not in use".to_owned()),
        }))
    }

    /// The time from the start of a lender until the pipe carries data of a running download.
    fn arrived(&self, by: Contender, ends: Option<&mut Ends>) -> Result<Outcome, DriveError> {
        let entry = Entry { contender: by, load: Load::Arrived };
        let Some(ends) = ends else { return Ok(Err("it has no lender".to_owned())) };
        ends.lenders.clear();
        let mut load = self.launcher.lab.spawn(Node::Device(0), self.load(&entry))?;
        sleep(EVENT_TIME.into());
        ends.lenders.push(self.devices.lender(&self.launcher.lab, 0)?);
        let clock = Clock::start();
        let before = self.launcher.delivered()?;
        let now = || clock.now().since(Time::ZERO);
        while self.launcher.delivered_since(&before)?[2] < IN_USE && now() < TIMEOUT {
            sleep(INTERVAL.into());
        }
        let took = now().as_secs_f64();
        let outcome = self.wait(&mut load)?;
        Ok(outcome.map(|_| Measured::of(took)))
    }

    fn loopback(&self, by: Contender) -> Result<Outcome, DriveError> {
        let entry = Entry { contender: by, load: Load::Loopback };
        let mut load = self.launcher.lab.spawn(Node::Host(0), self.load(&entry))?;
        let outcome = self.wait(&mut load)?;
        let lent = self.lent_bytes()?;
        Ok(outcome.and_then(|all| match lent >= LOOPBACK_SIZE.as_bytes() {
            true => Ok(Measured::of(LOOPBACK_SIZE.as_bytes() as f64 * 8.0 / 1e9 / all.value)),
            false => Err(format!("the lender carried {lent} bytes only")),
        }))
    }

    /// Bytes over the lender. The client counts them twice a second.
    fn lent_bytes(&self) -> Result<u64, DriveError> {
        let clock = Clock::start();
        loop {
            let status = self.devices.status(&self.launcher.lab)?;
            let paths = status["paths"].as_array().cloned().unwrap_or_default();
            let lent = paths.iter().find(|path| path["kind"] == "lender");
            let lent = lent.and_then(|path| path["received_bytes"].as_u64()).unwrap_or_default();
            let is_late = clock.now().since(Time::ZERO) > COUNT_TIMEOUT;
            if lent >= LOOPBACK_SIZE.as_bytes() || is_late {
                return Ok(lent);
            }
            sleep(INTERVAL.into());
        }
    }

    fn wait(&self, child: &mut Child) -> Result<Result<Measurement, String>, DriveError> {
        let ended = self.launcher.has_ended(child, TIMEOUT)?;
        let (success, stdout, stderr) = output(child, ended)?;
        Ok(parse_result(success, &stdout, &stderr))
    }
}
