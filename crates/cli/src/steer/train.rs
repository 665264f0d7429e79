//! `manyways steer train`: a model of completion times.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::ValueHint;
use manyways_model::select::model::DEFAULT;
use manyways_model::select::transfers;
use manyways_net::steer::input::read_table;
use manyways_net::steer::train::{Learner, TrainError, Training, python};
use manyways_report::number::count;

use super::{file_name, input_failure};
use crate::failure::Failure;
use crate::report_file::{self, check_distinct, check_folder};

/// Train a model of completion times on transfers that have ended
///
/// The table has a row for each transfer: its size, its seconds, and the indicators of the networks
/// before. Python 3 with scikit-learn does the training (`pip install scikit-learn`); it takes seconds to
/// minutes. A model of boosted trees is the mean with the one that is shipped, because transfers of one
/// place and week say little about others; --alone leaves the shipped one out.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways steer train transfers.csv --output model.json
  manyways steer train transfers.csv --alone --title 'two weeks at home' -o home.json
  manyways steer train transfers.csv --kind svr --python venv/bin/python >svr.json

The environment variable MANYWAYS_PYTHON also names the Python.
Exit code: 0; 1 when the training fails; 2 when the arguments or the table are invalid.")]
pub struct Args {
    /// Table of transfers (CSV)
    #[arg(value_name = "TABLE", value_hint = ValueHint::FilePath)]
    table: PathBuf,
    /// Kind of the model: boosted trees over the closed form, or a regression tree or support vectors
    /// as in the paper
    #[arg(long, value_enum, value_name = "KIND", default_value = "boosted")]
    kind: Kind,
    /// Python 3 with scikit-learn [default: python3]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::ExecutablePath)]
    python: Option<PathBuf>,
    /// One line that names the model
    #[arg(long, value_name = "TEXT", default_value = "trained model")]
    title: String,
    /// The model [default: standard output]
    #[arg(short, long, value_name = "MODEL", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// Replace MODEL if it exists
    #[arg(long, requires = "output")]
    force: bool,
    /// Train on the table alone, without the model that is shipped
    #[arg(long)]
    alone: bool,
}

/// Kinds of models.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    Boosted,
    Tree,
    Svr,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    if args.alone && args.kind != Kind::Boosted {
        let hint = "only boosted trees are joined with the shipped model; leave --alone out";
        return Failure::refuse("--alone has no effect on this kind of model", hint);
    }
    if args.title.chars().any(char::is_control) {
        return Failure::refuse("the title is not one line of text", "leave line feeds out");
    }
    args.output.as_deref().map(check_folder).transpose()?;
    check_distinct(&[&args.table], args.output.as_deref().as_slice())?;
    if let Some(file) = args.output.as_deref().filter(|file| file.is_file() && !args.force) {
        let hint = "name another file with --output, or replace this one with --force";
        return Failure::refuse(format!("{} exists", file.display()), hint);
    }
    let table = read_table(&args.table).map_err(input_failure)?;
    let mut training = Training::new(python(args.python.as_deref()), args.kind.learner());
    training.title.clone_from(&args.title);
    training.data =
        format!("{} transfers of {}", count(table.len() as u64), file_name(&args.table))
            .replace(char::is_control, " ");
    let has_base = args.kind == Kind::Boosted && !args.alone;
    training.base = has_base.then(|| DEFAULT.trim_end().to_owned());
    let text = transfers::training_table(&table);
    let trained = training.train(&text).map_err(|error| failure(error, args))?;
    for note in &trained.notes {
        eprintln!("{note}");
    }
    let text = format!("{}\n", trained.text);
    match &args.output {
        Some(file) => {
            report_file::write(file, &text)?;
            eprintln!("The model is in {}.", file.display());
        }
        None => crate::output::bytes(text.as_bytes()),
    }
    Ok(ExitCode::SUCCESS)
}

impl Kind {
    fn learner(self) -> Learner {
        match self {
            Self::Boosted => Learner::Boosted,
            Self::Tree => Learner::Tree,
            Self::Svr => Learner::Svr,
        }
    }
}

fn failure(error: TrainError, args: &Args) -> Failure {
    let message = error.to_string();
    match error {
        TrainError::NoScikitLearn { .. } => Failure::new(message)
            .hint("pip install scikit-learn, or name another Python with --python"),
        TrainError::Start { .. } => {
            Failure::new(message).hint("install Python 3, or name it with --python")
        }
        TrainError::NoModel { .. } | TrainError::Model(_) => {
            Failure::new(message).hint("name a Python 3 with scikit-learn with --python")
        }
        // The trainer reads its standard input, and calls it `-`.
        TrainError::Refused(words) => {
            let words = words.strip_prefix("-: ").unwrap_or(&words);
            Failure::usage(format!("{}: {words}", args.table.display()))
                .hint("the columns of a table of transfers are in docs/steer.md")
        }
        _ => Failure::new(message),
    }
}
