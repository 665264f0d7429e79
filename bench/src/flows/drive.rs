//! The run of a cell.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use manyways_rig::cell::Run;
use manyways_rig::launch::{DriveError, system};
use manyways_sys::clock::Clock;
use manyways_sys::signal::Termination;
use manyways_sys::wait::{Outcome, Usage, account};
use manyways_unit::Span;

use super::capture::{self, Shape, Written};
use super::contender::Programs;
use super::plan::{Cell, Setting};
use super::record::{Figures, Record};

/// Time limit of a contender for one capture.
const PATIENCE: Span = Span::from_secs(1_800);
/// A process without activity for this time has read all available packets.
const QUIET: Span = Span::from_millis(300);

/// State that all cells share.
pub struct Driver {
    pub programs: Programs,
    /// Signals that end the whole benchmark.
    pub termination: Termination,
    /// Seed that determines the order of the contenders.
    pub seed: u64,
}

impl Driver {
    /// Measures a cell. Calls `progress` after each round with the number of finished rounds.
    ///
    /// # Errors
    /// The reason why the cell could not be measured.
    pub fn measure(
        &self,
        cell: &Cell,
        record: &mut Record,
        progress: &mut dyn FnMut(u32),
    ) -> Result<(), DriveError> {
        record.more.load = load();
        let folder = tempfile::tempdir().map_err(system("make a folder"))?;
        let (file, tables) = (folder.path().join("capture.pcap"), folder.path().join("tables"));
        let Setting { shape, is_stream } = &cell.setting;
        let mut capture = Written::default();
        if !is_stream {
            capture = self.make(shape, &file)?;
            self.check(&file, capture)?;
        }
        let mut contenders = cell.contenders.clone();
        contenders.retain(|who| match self.programs.command(*who, &file, &tables) {
            Ok(_) => true,
            Err(why) => {
                record.left_out.push(why);
                false
            }
        });
        let command =
            |who, file: &Path| self.programs.command(who, file, &tables).map_err(DriveError::Site);
        cell.run_rounds(&contenders, self.seed, record, progress, |_, who| {
            if *is_stream {
                let (run, written) = self.stream(command(*who, Path::new("-"))?, shape)?;
                capture = written;
                return Ok(run);
            }
            self.programs.file(*who).map_or(Ok(()), hold)?;
            hold(&file)?;
            self.run(command(*who, &file)?)
        })?;
        record.more.capture = capture;
        Ok(())
    }

    /// Creates a capture in a separate process, because a child's peak memory starts with that of
    /// its parent.
    fn make(&self, shape: &Shape, file: &Path) -> Result<Written, DriveError> {
        let out = File::create(file).map_err(system("make a capture"))?;
        let mut child = generate(shape)?.stdout(out).spawn().map_err(system("make a capture"))?;
        let written = written(&mut child)?;
        drop(child.stdin.take());
        self.end_of(&mut child)?;
        Ok(written)
    }

    /// Checks before the measurement that `manyways flows` finds all packets.
    fn check(&self, file: &Path, written: Written) -> Result<(), DriveError> {
        let output = Command::new(&self.programs.manyways)
            .args(["flows", "--json"])
            .arg(file)
            .stdin(Stdio::null())
            .output()
            .map_err(system("start manyways"))?;
        let said: serde_json::Value = serde_json::from_slice(&output.stdout)
            .map_err(|_| DriveError::Site("manyways flows says no JSON".to_owned()))?;
        let found = &said["captures"][0]["packets"];
        if found.as_u64() == Some(written.packets) {
            return Ok(());
        }
        Err(DriveError::Site(format!("{found} packets were found of {}", written.packets)))
    }

    fn run(&self, mut command: Command) -> Result<Run<Figures>, DriveError> {
        let clock = Clock::start();
        let mut child = command.spawn().map_err(system("start a contender"))?;
        let (usage, failed) = self.end_of(&mut child)?;
        Ok(finished(clock.now().as_secs_f64(), usage, failed))
    }

    /// Runs a contender on a capture that is created concurrently on another core. Only the
    /// processor time is comparable.
    fn stream(
        &self,
        mut command: Command,
        shape: &Shape,
    ) -> Result<(Run<Figures>, Written), DriveError> {
        let clock = Clock::start();
        let mut source =
            generate(shape)?.stdout(Stdio::piped()).spawn().map_err(system("make a capture"))?;
        let pipe = source.stdout.take().map_or_else(Stdio::null, Stdio::from);
        let started = command.stdin(pipe).spawn();
        let mut child = started.map_err(system("start a contender"))?;
        // The command keeps the other end of the pipe open until it is dropped.
        drop(command);
        let written = written(&mut source);
        let live = written.as_ref().ok().and_then(|_| live(child.id()));
        drop(source.stdin.take());
        self.end_of(&mut source)?;
        let (usage, failed) = self.end_of(&mut child)?;
        let seconds = clock.now().as_secs_f64();
        let mut run = finished(seconds, usage, failed);
        run.figures.live = live;
        Ok((run, written?))
    }

    /// Waits for the end of a child; the second value is the reason if it failed.
    fn end_of(&self, child: &mut Child) -> Result<(Usage, Option<String>), DriveError> {
        let (outcome, usage) = account(child, Some(PATIENCE), Some(&self.termination))
            .map_err(system("watch a contender"))?;
        let failed = match outcome {
            Outcome::Exited(status) if status.success() => None,
            Outcome::Exited(status) => Some(status.to_string()),
            Outcome::TimedOut => Some("it took too long".to_owned()),
            Outcome::Signal(ended) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(DriveError::Stopped(ended.signal));
            }
        };
        if matches!(outcome, Outcome::TimedOut) {
            let _ = child.kill();
            let _ = child.wait();
        }
        Ok((usage, failed))
    }
}

fn finished(seconds: f64, usage: Usage, failed: Option<String>) -> Run<Figures> {
    let (cpu, memory) = (usage.cpu.as_secs_f64(), usage.memory.as_bytes());
    Run::of(Figures { seconds, cpu, memory, live: None }, failed)
}

/// Reads a file once, so that it is in the page cache: some systems evict files that were not used
/// for a minute, and other contenders run for longer.
fn hold(file: &Path) -> Result<(), DriveError> {
    let mut bytes = vec![0; 1 << 20];
    let mut reader = File::open(file).map_err(system("read a file"))?;
    while reader.read(&mut bytes).map_err(system("read a file"))? > 0 {}
    Ok(())
}

/// A process that writes a capture to standard output and its size to standard error, and ends when
/// its standard input is closed.
fn generate(shape: &Shape) -> Result<Command, DriveError> {
    let this = std::env::current_exe().map_err(system("tell where this is"))?;
    let mut command = Command::new("taskset");
    command.args(["-c", "0"]).arg(this).arg("capture");
    for (option, value) in [
        ("--flows", u64::from(shape.flows)),
        ("--packets", shape.packets),
        ("--snap", shape.snap as u64),
        ("--lasts", shape.lasts),
    ] {
        command.args([option, &value.to_string()]);
    }
    command.args(shape.open.then_some("--open"));
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    Ok(command)
}

/// Waits until a capture is complete.
fn written(child: &mut Child) -> Result<Written, DriveError> {
    let mut said = String::new();
    if let Some(stderr) = child.stderr.take() {
        BufReader::new(stderr).read_line(&mut said).map_err(system("make a capture"))?;
    }
    serde_json::from_str(&said)
        .map_err(|_| DriveError::Site(format!("no capture was made: {}", said.trim())))
}

/// Writes a capture to standard output, in the process that [`Driver`] starts.
pub fn make(shape: &Shape) -> Result<(), String> {
    let mut out = BufWriter::with_capacity(1 << 20, std::io::stdout().lock());
    let written = capture::write(shape, &mut out)
        .and_then(|written| out.into_inner().map(|_| written).map_err(|error| error.into_error()))
        .map_err(|error| format!("cannot write a capture: {error}"))?;
    eprintln!("{}", serde_json::to_string(&written).map_err(|error| error.to_string())?);
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    Ok(())
}

/// Peak resident memory of a process in bytes, once the process is idle.
fn live(pid: u32) -> Option<u64> {
    let busy = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let mut fields = stat.rsplit(')').next()?.split_whitespace();
        Some((fields.next()? == "R", fields.nth(10)?.to_owned(), fields.next()?.to_owned()))
    };
    let clock = Clock::start();
    let mut before = busy()?;
    while clock.now().as_secs_f64() < PATIENCE.as_secs_f64() {
        std::thread::sleep(QUIET.into());
        let now = busy()?;
        if now == before && !now.0 {
            break;
        }
        before = now;
    }
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1_024)
}

/// Load average of the last minute.
fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or_default()
}
