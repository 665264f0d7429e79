//! Driven replays of an archive in several network conditions, over each way to use Wi-Fi and LTE.

mod archive;
mod coupled;
mod results;

use std::collections::BTreeMap;
use std::path::Path;

use manyways_rig::cell::Run;
use manyways_rig::launch::DriveError;
use manyways_unit::Span;
use serde::Deserialize;

pub use self::archive::Class;
pub use self::results::{figures, targets};
use super::Replay;
use super::cells::{Condition, Drive};
use super::plan::Cell;
use crate::figures::{Figures, Record};
use crate::shell::{Shell, side_by_side};

/// Ways to use the links, as `manyways replay --drive` names them. The first six are those of Deng's
/// thesis, in its order.
pub const WAYS: [&str; 8] = [
    "TCP over wifi",
    "TCP over lte",
    "MPTCP, coupled, first over wifi",
    "MPTCP, coupled, first over lte",
    "MPTCP, decoupled, first over wifi",
    "MPTCP, decoupled, first over lte",
    "get",
    "bond",
];
/// The recording itself, in place of a way.
pub const RECORDING: &str = "recording";
/// Time limit of a drive over all ways.
const MAX_DRIVE: Span = Span::from_secs(600);

/// The part of the document of `replay --drive` that is read.
#[derive(Debug, Deserialize)]
struct Document {
    ways: Vec<Way>,
}

#[derive(Debug, Deserialize)]
struct Way {
    name: String,
    not_run: Option<String>,
    /// `None` if exchanges failed.
    app_response_seconds: Option<f64>,
}

/// Drives by round and number of the condition.
type Drives = BTreeMap<(u32, usize), Result<Document, String>>;

/// Quantity of the app response time in a condition, which counts from 1.
fn quantity(condition: usize) -> String {
    format!("condition {condition}, s")
}

pub fn measure(
    replay: &Replay,
    cell: &Cell,
    class: Class,
    drive: &Drive,
    record: &mut Record,
    progress: &mut dyn FnMut(u32),
) -> Result<(), DriveError> {
    let shell = Shell::new(&replay.tools)?;
    let recording = match class.archive(replay, &shell, drive)? {
        Ok(recording) => recording,
        Err(reason) => {
            record.error = Some(reason);
            return Ok(());
        }
    };
    let coupled = coupled::Coupled::start(&shell)?;
    if let Err(reason) = &coupled {
        record.skipped.push(format!("coupled MPTCP: {reason}"));
    }
    let drives = all(replay, &shell, drive, cell.rounds)?;
    drop(coupled);
    for way in cell.contenders.iter().filter(|name| **name != RECORDING) {
        let mut rows = drives.values().flatten().flat_map(|document| &document.ways);
        if let Some(reason) = rows.find_map(|row| row.not_run.as_ref().filter(|_| row.name == *way))
        {
            record.skipped.push(format!("{way}: {reason}"));
        }
    }
    let is_left_out = |name: &str| {
        let start = format!("{name}: ");
        record.skipped.iter().any(|words| words.starts_with(&start))
    };
    let able: Vec<&str> =
        cell.contenders.iter().copied().filter(|name| !is_left_out(name)).collect();
    cell.run_rounds(&able, replay.tools.seed, record, progress, |round, contender| {
        Ok(match *contender {
            RECORDING => Figures::run(Ok(recording.clone())),
            way => of_way(&drives, round, way),
        })
    })
}

/// Drives in all conditions and rounds, some at a time.
fn all(
    replay: &Replay,
    shell: &Shell<'_>,
    drive: &Drive,
    rounds: u32,
) -> Result<Drives, DriveError> {
    let numbers = 0..drive.conditions.len();
    let tasks = (0..rounds).flat_map(|round| numbers.clone().map(move |number| (round, number)));
    let tasks: Vec<(u32, usize)> = tasks.collect();
    let drives = side_by_side(&tasks, drive.jobs, |(round, number)| {
        let condition = &drive.conditions[*number];
        one(replay, shell, condition, &format!("drive-{round}-{number}.json"))
    })?;
    Ok(tasks.into_iter().zip(drives).collect())
}

fn one(
    replay: &Replay,
    shell: &Shell<'_>,
    condition: &Condition,
    json: &str,
) -> Result<Result<Document, String>, DriveError> {
    let mut command = shell.command(&replay.tools.manyways);
    command.args(["replay", archive::FILE, "--drive", "--rounds", "1", "--json", json]);
    command.args(["--link", &condition.wifi.option("wifi")]);
    command.args(["--link", &condition.lte.option("lte")]);
    if let Err(reason) = shell.finish(&mut command, MAX_DRIVE)? {
        return Ok(Err(reason));
    }
    Ok(read(&shell.path(json)))
}

fn read(json: &Path) -> Result<Document, String> {
    let text = std::fs::read(json).map_err(|error| format!("no results: {error}"))?;
    serde_json::from_slice(&text).map_err(|error| format!("results that cannot be read: {error}"))
}

/// The run of a way in a round, which is failed if the drive in one of its conditions is.
fn of_way(drives: &Drives, round: u32, way: &str) -> Run<Figures> {
    let (mut figures, mut failed) = (Figures::default(), None);
    for (&(_, number), drive) in drives.range((round, 0)..(round + 1, 0)) {
        let found = drive.as_ref().map(|drive| drive.ways.iter().find(|row| row.name == way));
        match found.map(|row| row.and_then(|row| row.app_response_seconds)) {
            Ok(Some(seconds)) => {
                figures.quantities.insert(quantity(number + 1), seconds);
            }
            Ok(None) => failed = Some(format!("exchanges failed in condition {}", number + 1)),
            Err(reason) => failed = Some(format!("condition {}: {reason}", number + 1)),
        }
    }
    Run::of(figures, failed)
}
