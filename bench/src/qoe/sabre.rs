//! Films in virtual time beside Sabre, the simulator of the authors of BOLA: each segment of each film
//! over each trace.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use manyways_rig::launch::{DriveError, system};
use manyways_rig::programs::quoted;
use manyways_unit::Span;
use serde::Deserialize;

use super::Qoe;
use super::cells;
use super::plan::Cell;
use super::play::value;
use crate::figures::{Figures, Record};
use crate::shell::{Shell, side_by_side};

pub const OURS: &str = "manyways";
pub const SABRE: &str = "Sabre";
pub const SEGMENTS: &str = "segments";
pub const SAME: &str = "segments of the same rung, %";
/// Of the runs in which all segments have the same rung.
pub const DIFFERENCE: &str = "largest difference of stalls, ms";
/// How the names of a rule in the figures begin.
pub const OF_RULE: &str = "same rung, %: ";

/// Time limit of a run.
const TIMEOUT: Span = Span::from_secs(120);
/// Runs at a time: one for each processor.
const JOBS: usize = 2;
const FILMS: [&str; 2] = ["bbb.json", "bbb4k.json"];
/// Sabre's default.
const BUFFER: &str = "25s";

/// A film over a trace.
struct Input<'a> {
    trace: PathBuf,
    film: &'static str,
    rule: &'a str,
}

/// A played film: the rung of each segment, and the sum of the stalls in seconds.
#[derive(Clone, Debug, Default, PartialEq)]
struct Course {
    rungs: BTreeMap<usize, usize>,
    stalled: f64,
}

pub fn measure(
    qoe: &Qoe,
    cell: &Cell,
    sabre: &cells::Sabre,
    record: &mut Record,
    progress: &mut dyn FnMut(u32),
) -> Result<(), DriveError> {
    let program = qoe.sabre.join("sabre.py");
    let traces = traces(&qoe.traces);
    if !program.is_file() || traces.is_empty() {
        let (program, traces) = (program.display(), qoe.traces.display());
        record.error = Some(format!("there is no {program}, or no trace below {traces}"));
        return Ok(());
    }
    let program = std::path::absolute(&program).map_err(system("find Sabre"))?;
    let shell = Shell::new(&qoe.tools)?;
    let inputs = traces.iter().flat_map(|trace| FILMS.map(|film| (trace, film)));
    let inputs = inputs.flat_map(|(trace, film)| {
        sabre.rules.iter().map(move |rule| Input { trace: trace.clone(), film, rule })
    });
    let inputs: Vec<Input<'_>> = inputs.collect();
    let both = side_by_side(&inputs, JOBS, |input| {
        let film = program.with_file_name(input.film);
        let theirs = theirs(&shell, &program, input, &film)?;
        Ok((ours(&shell, input, &film)?, theirs))
    })?;
    let (mut ours, mut failed) = (Counts::default(), None);
    for (input, outcomes) in inputs.iter().zip(both) {
        match outcomes {
            (Ok(own), Ok(other)) => ours.add(input.rule, &own, &other),
            (Err(reason), _) | (_, Err(reason)) => {
                let trace = input.trace.display();
                failed = Some(format!("{} of {} over {trace}: {reason}", input.rule, input.film));
            }
        }
    }
    let outcome = failed.map_or_else(|| Ok(ours.figures()), Err);
    cell.run_rounds(&cell.contenders, qoe.tools.seed, record, progress, |_, contender| {
        Ok(match *contender {
            OURS => Figures::run(outcome.clone()),
            _ => Figures::run(Ok(Figures::of([(SEGMENTS, ours.all().1)]))),
        })
    })
}

/// Segments, and those of the same rung, by rule.
#[derive(Default)]
struct Counts {
    rules: BTreeMap<String, (f64, f64)>,
    difference: f64,
}

impl Counts {
    fn add(&mut self, rule: &str, own: &Course, other: &Course) {
        let same = |(index, rung): &(&usize, &usize)| own.rungs.get(index) == Some(rung);
        let same = other.rungs.iter().filter(same).count();
        let count = own.rungs.len().max(other.rungs.len());
        let (all_same, all) = self.rules.entry(rule.to_owned()).or_default();
        *all_same += same as f64;
        *all += count as f64;
        if same == count {
            self.difference = self.difference.max((own.stalled - other.stalled).abs() * 1e3);
        }
    }

    fn all(&self) -> (f64, f64) {
        self.rules.values().fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    fn figures(&self) -> Figures {
        let (same, all) = self.all();
        let rules = self.rules.iter();
        let rules =
            rules.map(|(rule, (same, all))| (format!("{OF_RULE}{rule}"), same / all * 100.0));
        let sums = [(SEGMENTS, all), (SAME, same / all * 100.0), (DIFFERENCE, self.difference)];
        Figures::of(sums.map(|(name, value)| (name.to_owned(), value)).into_iter().chain(rules))
    }
}

/// The traces in the folders below this one, sorted.
fn traces(folder: &Path) -> Vec<PathBuf> {
    let entries = |folder: &Path| -> Vec<PathBuf> {
        let read = std::fs::read_dir(folder).into_iter().flatten();
        read.flatten().map(|entry| entry.path()).collect()
    };
    let mut all: Vec<PathBuf> = entries(folder).iter().flat_map(|one| entries(one)).collect();
    all.retain(|file| file.extension().is_some_and(|name| name == "json"));
    all.iter_mut().for_each(|file| *file = std::path::absolute(&*file).unwrap_or_default());
    all.sort();
    all
}

/// The duration of a film of Sabre.
fn duration(film: &Path) -> Result<Span, String> {
    #[derive(Deserialize)]
    struct Film {
        segment_duration_ms: f64,
        segment_sizes_bits: Vec<Vec<u64>>,
    }
    let bytes = std::fs::read(film).map_err(|error| format!("{}: {error}", film.display()))?;
    let film: Film = serde_json::from_slice(&bytes).map_err(|error| format!("no film: {error}"))?;
    let count = film.segment_sizes_bits.len() as f64;
    Ok(Span::from_secs_f64(film.segment_duration_ms * count / 1e3))
}

fn ours(
    shell: &Shell<'_>,
    input: &Input<'_>,
    film: &Path,
) -> Result<Result<Course, String>, DriveError> {
    #[derive(Deserialize)]
    struct Document {
        results: Vec<Session>,
    }
    #[derive(Deserialize)]
    struct Session {
        stalled: f64,
        segments: Vec<Segment>,
    }
    #[derive(Deserialize)]
    struct Segment {
        rung: usize,
    }
    let duration = match duration(film) {
        Ok(duration) => value(duration),
        Err(reason) => return Ok(Err(reason)),
    };
    let [film, trace] = [film, &input.trace].map(|file| quoted(file.as_os_str()));
    let script = format!(
        "\"$MANYWAYS\" probe video {film} --simulate {trace} --rule {} --buffer {BUFFER} \
         --abandon free --duration {duration} --json",
        input.rule
    );
    let read = |json: String| {
        let document: Document =
            serde_json::from_str(&json).map_err(|error| format!("no result: {error}"))?;
        let session = document.results.into_iter().next().ok_or("no result")?;
        let rungs = session.segments.iter().map(|segment| segment.rung).enumerate().collect();
        Ok(Course { rungs, stalled: session.stalled })
    };
    Ok(shell.run(&script, TIMEOUT)?.and_then(read))
}

fn theirs(
    shell: &Shell<'_>,
    program: &Path,
    input: &Input<'_>,
    film: &Path,
) -> Result<Result<Course, String>, DriveError> {
    let [program, film, trace] = [program, film, &input.trace].map(|file| quoted(file.as_os_str()));
    let rule = input.rule.replace('-', "");
    // Its module of rules is beside it.
    let script =
        format!("PYTHONDONTWRITEBYTECODE=1 python3 {program} -n {trace} -m {film} -a {rule} -v");
    Ok(shell.run(&script, TIMEOUT)?.and_then(|out| course(&out)))
}

/// Reads what Sabre prints: a line for each download, `[0-73]  0: q=0 s=…`, and the sum of the stalls.
fn course(out: &str) -> Result<Course, String> {
    let mut course = Course::default();
    let mut is_whole = false;
    for line in out.lines() {
        if let Some(seconds) = line.strip_prefix("total rebuffer: ") {
            course.stalled = seconds.trim().parse().map_err(|_| "its stalls are no number")?;
            is_whole = true;
        }
        let Some((_, rest)) = line.strip_prefix('[').and_then(|line| line.split_once("]  ")) else {
            continue;
        };
        let Some((index, rest)) = rest.split_once(": q=") else { continue };
        let rung = rest.split(' ').next().unwrap_or_default();
        if let (Ok(index), Ok(rung), false) =
            (index.parse(), rung.parse(), rest.contains("ABANDON"))
        {
            course.rungs.insert(index, rung);
        }
    }
    match is_whole {
        true => Ok(course),
        false => Err("Sabre printed no sum of its stalls".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rung_of_a_segment_is_that_of_its_last_download() {
        let out = "[0] Network: 16823,20  (q=9: bitrate=6000)\n\
                   [0-73]  0: q=0 s=886360/886360 t=72=20+52 bl=0->0->3000\n\
                   [73-500]  1: q=9 s=600/16600640 t=946=20+926  ABANDONED to 1 - 6/7 bits in 3\n\
                   [500-900]  1: q=1 s=600/600 t=946=20+926 bl=3000->2053->5053\n\
                   total rebuffer: 1.250000\n";
        let course = course(out).unwrap();
        assert_eq!(course.rungs, BTreeMap::from([(0, 0), (1, 1)]));
        assert_eq!(course.stalled, 1.25);
    }

    #[test]
    fn a_missing_segment_is_not_the_same() {
        let whole = Course { rungs: BTreeMap::from([(0, 0), (1, 1)]), stalled: 1.0 };
        let short = Course { rungs: BTreeMap::from([(0, 0)]), stalled: 3.0 };
        let mut counts = Counts::default();
        counts.add("bola", &short, &whole);
        counts.add("bola", &whole, &short);
        assert_eq!((counts.all(), counts.difference), ((2.0, 4.0), 0.0));
        counts.add("bola", &whole, &Course { stalled: 1.002, ..whole.clone() });
        assert!((counts.difference - 2.0).abs() < 1e-9);
    }
}
