//! Trains a model of completion times with scikit-learn, in a Python process.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;

use manyways_model::select::model::{self, MAX_TEXT, Model, ModelError, TRAINER};
use manyways_unit::human::printable;
use thiserror::Error;

/// Bytes of messages of the process that are kept, at most.
const MAX_MESSAGES: u64 = 64 << 10;

/// Kind of a model.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Learner {
    /// Boosted trees, monotone in the size.
    #[default]
    Boosted,
    /// Delphi's regression tree.
    Tree,
    /// Delphi's support vectors.
    Svr,
}

/// Options of a training.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Training {
    /// Python 3 with scikit-learn.
    pub python: PathBuf,
    pub learner: Learner,
    /// One line each, for the user: the model, and its data.
    pub title: String,
    pub data: String,
    /// The text of a model of boosted trees: the trained one is the mean with it.
    pub base: Option<String>,
    /// Trains on each transfer again with fewer indicators, for devices that do not know all.
    pub has_blanks: bool,
    /// Tries only the first hyper-parameters.
    pub is_fast: bool,
}

/// A trained model.
#[derive(Clone, Debug)]
pub struct Trained {
    /// The document, in one line.
    pub text: String,
    pub model: Model,
    /// A line about each choice.
    pub notes: Vec<String>,
}

/// Reason why no model was trained.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TrainError {
    #[error("{} cannot be started: {error}", python.display())]
    Start { python: PathBuf, error: io::Error },
    #[error("{} has no scikit-learn", python.display())]
    NoScikitLearn { python: PathBuf },
    /// The trainer's own words.
    #[error("{0}")]
    Refused(String),
    #[error("the training ended with {0}")]
    Ended(ExitStatus),
    /// The named program may not be a Python.
    #[error("{} printed no model", python.display())]
    NoModel { python: PathBuf },
    #[error("the trained model is not valid: {0}")]
    Model(#[from] ModelError),
    #[error("the training was interrupted: {0}")]
    Io(#[from] io::Error),
}

impl Learner {
    fn name(self) -> &'static str {
        match self {
            Self::Boosted => "boosted",
            Self::Tree => "tree",
            Self::Svr => "svr",
        }
    }
}

impl Training {
    pub fn new(python: impl Into<PathBuf>, learner: Learner) -> Self {
        Self {
            python: python.into(),
            learner,
            title: "trained model".to_owned(),
            data: "own transfers".to_owned(),
            base: None,
            has_blanks: false,
            is_fast: false,
        }
    }

    /// Trains on a table of [`manyways_model::select::transfers::training_table`]. Blocks for
    /// seconds to minutes.
    ///
    /// # Errors
    /// A [`TrainError`] with one sentence for the user.
    pub fn train(&self, table: &str) -> Result<Trained, TrainError> {
        let mut child = KillOnDrop(self.start()?);
        let stdin = child.0.stdin.take();
        let (stdout, stderr) = (child.0.stdout.take(), child.0.stderr.take());
        let (text, messages) = thread::scope(|scope| {
            scope.spawn(|| {
                // A trainer that refuses the table reads no further, and prints the reason.
                let _ = stdin.map(|mut stdin| self.write(&mut stdin, table));
            });
            let messages = scope.spawn(|| read(stderr, MAX_MESSAGES));
            let text = read(stdout, MAX_TEXT as u64 + 2);
            (text, messages.join())
        });
        let status = child.0.wait()?;
        let messages = messages.unwrap_or_else(|_| Ok(String::new()))?;
        if !status.success() {
            return Err(self.refusal(&messages, status));
        }
        let text = text?.trim_end().to_owned();
        if text.is_empty() {
            return Err(TrainError::NoModel { python: self.python.clone() });
        }
        let notes = messages.lines().map(|line| printable(line).to_string()).collect();
        Ok(Trained { model: model::parse(&text)?, text, notes })
    }

    fn start(&self) -> Result<Child, TrainError> {
        let mut command = Command::new(&self.python);
        command.args(["-c", TRAINER, "-", "--kind", self.learner.name()]);
        command.args(["--title", &self.title, "--data", &self.data]);
        if self.base.is_some() {
            command.args(["--base", "-"]);
        }
        if self.has_blanks {
            command.arg("--blanks");
        }
        if self.is_fast {
            command.arg("--fast");
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().map_err(|error| TrainError::Start { python: self.python.clone(), error })
    }

    fn write(&self, stdin: &mut impl Write, table: &str) -> io::Result<()> {
        if let Some(base) = &self.base {
            writeln!(stdin, "{}", base.trim_end())?;
        }
        stdin.write_all(table.as_bytes())
    }

    fn refusal(&self, messages: &str, status: ExitStatus) -> TrainError {
        let own = messages.lines().rev().find_map(|line| line.strip_prefix("train: "));
        match own {
            Some(words) if words.contains("pip install") => {
                TrainError::NoScikitLearn { python: self.python.clone() }
            }
            Some(words) => TrainError::Refused(printable(words).to_string()),
            None => TrainError::Ended(status),
        }
    }
}

/// A Python in which scikit-learn can be imported: the one that is named, else `MANYWAYS_PYTHON` in
/// the environment, else `python3`.
pub fn python(named: Option<&Path>) -> PathBuf {
    let of_environment = || std::env::var_os("MANYWAYS_PYTHON").map(PathBuf::from);
    named.map(Path::to_owned).or_else(of_environment).unwrap_or_else(|| "python3".into())
}

/// A process that ends with its owner.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // It has usually ended, and was waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn read(from: Option<impl Read>, limit: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        from.take(limit).read_to_end(&mut bytes)?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A program in the place of Python.
    fn with(script: &str) -> TrainError {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("python");
        fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        // Larger than a pipe, so that a program that does not read it would block a writer.
        let table = "x".repeat(1 << 20);
        Training::new(file, Learner::Tree).train(&table).unwrap_err()
    }

    #[test]
    fn a_failed_training_has_one_sentence() {
        let words = with("echo 'train: -: it has no rows' >&2; exit 2").to_string();
        assert_eq!(words, "-: it has no rows");
        let missing = "echo 'train: sklearn is missing (install with: pip install x)' >&2; exit 2";
        assert!(with(missing).to_string().ends_with("python has no scikit-learn"));
        assert_eq!(with("exit 3").to_string(), "the training ended with exit status: 3");
        assert!(matches!(with("echo '{}'"), TrainError::Model(_)));
        assert!(with("exit 0").to_string().ends_with("python printed no model"));
        let absent = Training::new("/nonexistent/python", Learner::Svr).train("").unwrap_err();
        assert!(absent.to_string().starts_with("/nonexistent/python cannot be started"));
    }
}
