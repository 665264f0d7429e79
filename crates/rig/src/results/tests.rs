//! A benchmark without a lab: the contenders have fixed seconds, and a cell can be stopped.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::*;
use crate::cell::Run;
use crate::page::{Page, rounded, table};
use crate::sample::{Quartiles, ratio};
use crate::target::{Bound, Figure, every_figure};
use manyways_trace::scenario::LinkSpec;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Runner(&'static str, f64);

impl Contender for Runner {
    fn name(&self, _links: &[LinkSpec]) -> String {
        self.0.to_owned()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Figures {
    seconds: Option<f64>,
}

/// A family with fixed figures that ends with a signal at the cell of this name.
struct TestFamily {
    stopped_at: &'static str,
    order: RefCell<Vec<(String, u32, &'static str)>>,
}

impl TestFamily {
    fn stopped_at(cell: &'static str) -> Self {
        Self { stopped_at: cell, order: RefCell::default() }
    }
}

impl Family for TestFamily {
    const SCHEMA: &'static str = "test/1";
    type Contender = Runner;
    type Setting = ();
    type Figures = Figures;
    type Extra = BTreeMap<String, u32>;

    fn seconds(cell: &CellOf<Self>) -> f64 {
        f64::from(cell.rounds)
    }

    fn measure(
        &self,
        cell: &CellOf<Self>,
        record: &mut RecordOf<Self>,
        progress: &mut dyn FnMut(u32),
    ) -> Result<(), DriveError> {
        if cell.name == self.stopped_at {
            return Err(DriveError::Stopped(15));
        }
        if cell.contenders.is_empty() {
            return Err(DriveError::Server("nobody came".to_owned()));
        }
        cell.run_rounds(&cell.contenders, 7, record, progress, |round, runner| {
            self.order.borrow_mut().push((cell.name.clone(), round, runner.0));
            let seconds = (runner.1 > 0.0).then_some(runner.1 + f64::from(round));
            let failed = seconds.is_none().then(|| "it took too long".to_owned());
            Ok(Run::of(Figures { seconds }, failed))
        })
    }

    fn targets(cells: &[RecordOf<Self>]) -> Vec<Target> {
        let figure = |cell: &RecordOf<Self>| {
            let of = |name| cell.values(|run| run.contender == name, |run| run.seconds);
            let value = ratio(&of("ours"), &of("theirs"))?.medians;
            Some(Figure { case: cell.name.clone(), value })
        };
        let all = |bound| cells.iter().filter_map(figure).filter(|one| one.value > bound).collect();
        vec![
            every_figure("lenient".to_owned(), Bound::AtMost(9.0), all(0.0)),
            every_figure("strict".to_owned(), Bound::AtMost(0.1), all(0.0)),
        ]
    }

    fn page(results: &ResultsOf<Self>) -> String {
        let page = Page {
            title: "a race",
            intro: "In seconds.",
            parts: &[("a", "First"), ("b", "Second")],
            method: "- By numbers.\n",
            sockets: String::new(),
        };
        page.markdown(results, |out, cell| {
            let names = cell.distinct(|run| Some(&run.contender));
            let row = |name: &&str| {
                let values = cell.values(|run| run.contender == **name, |run| run.seconds);
                vec![(*name).to_owned(), rounded(Quartiles::of(values.into_values()))]
            };
            out.push('\n');
            table(out, " | seconds", names.iter().map(row));
        })
    }
}

const RUNNERS: [Runner; 4] =
    [Runner("ours", 1.0), Runner("theirs", 2.0), Runner("slow", 30.0), Runner("broken", 0.0)];

fn cell(name: &str, part: char, runners: &[Runner]) -> CellOf<TestFamily> {
    let (title, contenders) = (format!("cell {name}"), runners.to_vec());
    Cell { name: name.to_owned(), part, title, contenders, rounds: 3, ..Cell::default() }
}

fn results() -> ResultsOf<TestFamily> {
    let machine = Machine {
        cores: 2,
        kernel: "6.1".into(),
        congestion_control: "cubic".into(),
        programs: vec!["nginx 1".into()],
        build: "1".into(),
    };
    Results {
        schema: TestFamily::SCHEMA.to_owned(),
        machine,
        seed: 7,
        mode: "default".to_owned(),
        seconds: 0.0,
        skipped: vec!["(c): no links".to_owned()],
        targets: Vec::new(),
        cells: Vec::new(),
    }
}

#[test]
fn every_contender_runs_once_a_round_in_an_order_of_the_round() {
    let (race, mut results) = (TestFamily::stopped_at(""), results());
    results.measure(&race, &[cell("a-1", 'a', &RUNNERS)], &Outputs::default()).unwrap();
    let order = race.order.take();
    let of = |round: u32| {
        let run = order.iter().filter(move |run| run.1 == round);
        run.map(|run| run.2).collect::<Vec<_>>()
    };
    for round in 0..3 {
        let mut names = of(round);
        names.sort_unstable();
        assert_eq!(names, ["broken", "ours", "slow", "theirs"]);
    }
    assert!(of(0) != of(1) || of(1) != of(2), "{order:?}");
    // The record is in the order of the plan, independent of the order of the runs.
    let names: Vec<&str> = results.cells[0].runs.iter().map(|run| &*run.contender).collect();
    assert_eq!(names[..4], ["ours", "theirs", "slow", "broken"]);
    assert_eq!(results.cells[0].failures(|run| run.contender == "broken"), (3, 3));
}

#[test]
fn a_benchmark_that_was_stopped_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("deep/results.json");
    let outputs = Outputs { json: Some(json.clone()), markdown: None };
    let cells = [cell("b-1", 'b', &RUNNERS), cell("a-1", 'a', &RUNNERS), cell("a-none", 'a', &[])];
    let measured = |stopped_at: &'static str, cells: &[CellOf<TestFamily>]| {
        let (race, mut results) = (TestFamily::stopped_at(stopped_at), results());
        results.resume(&json).unwrap();
        let code = results.measure(&race, cells, &outputs).unwrap();
        let mut names: Vec<String> = race.order.take().into_iter().map(|run| run.0).collect();
        names.dedup();
        (code, names, results)
    };
    let (code, names, _) = measured("a-1", &cells);
    assert_eq!((code, names), (ExitCode::from(128 + 15), vec!["b-1".to_owned()]));
    let (code, names, results) = measured("", &cells);
    assert_eq!((code, names), (ExitCode::SUCCESS, vec!["a-1".to_owned()]));
    // Sorted by part; a failed cell has an error.
    let kept: Vec<(&str, bool)> =
        results.cells.iter().map(|cell| (&*cell.name, cell.error.is_some())).collect();
    assert_eq!(kept, [("a-1", false), ("a-none", true), ("b-1", false)]);
    // A cell with a changed plan is measured again.
    let mut cells = cells;
    cells[0].rounds = 2;
    let (_, names, results) = measured("", &cells);
    assert_eq!(names, ["b-1"]);
    assert_eq!(results.cells[2].runs.len(), 8);
    // Results of another seed are rejected.
    let mut other = self::results();
    other.seed = 8;
    assert!(other.resume(&json).unwrap_err().contains("another binary, machine or seed"));
}

#[test]
fn the_page_has_misses_first_and_quartiles_of_each_contender() {
    let (race, mut results) = (TestFamily::stopped_at(""), results());
    let cells = [cell("a-1", 'a', &RUNNERS), cell("a-none", 'a', &[])];
    results.measure(&race, &cells, &Outputs::default()).unwrap();
    let page = TestFamily::page(&results);
    let wanted = "# a race\n\nIn seconds.\n\n\
        | What | Target | Measured | |\n|---|---|---|---|\n\
        | strict | <= 0.10 | 0.667 (a-1) | **missed** |\n\
        | lenient | <= 9.00 | 0.667 (a-1) | met |\n\n\
        ## (a) First\n\n### a-1\ncell a-1. Rounds: 3.\n\n\
        |  | seconds |\n|---|---|\n\
        | ours | 2.000 (1.500–2.500) |\n\
        | theirs | 3.000 (2.500–3.500) |\n\
        | slow | 31.0 (30.5–31.5) |\n\
        | broken | – |\n\n\
        Failures: broken: it took too long (3).\n\n\
        ### a-none\ncell a-none. Rounds: 3.\n\n\
        Not measured: nobody came.\n\n\
        ## How it was measured\n- By numbers.\n\n\
        2 cores, kernel 6.1; nginx 1. Seed 7; 0 minutes.\n\n\
        Not measured:\n\n- (c): no links\n";
    assert_eq!(page, wanted);
}
