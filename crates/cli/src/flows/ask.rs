//! `manyways flows ask`: queries on tables of flows. Finds and runs the Python package, which
//! contains the queries.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use anyhow::Result;

use crate::failure::Failure;
use crate::report_file::check_distinct;

/// Variable with the Python interpreter.
const PYTHON: &str = "MANYWAYS_PYTHON";
/// Excludes the current folder from imports, because it may belong to another user.
const SAFE_PATH_OPTION: &str = "-P";
/// Script whose exit code identifies the first missing module.
const MISSING_MODULE_SCRIPT: &str = "import importlib.util as i, sys; \
    sys.exit(next((n for n, m in enumerate(['manyways', 'duckdb', 'pyarrow'], 3) \
    if i.find_spec(m) is None), 0))";

/// Answer questions about the experience of users, from tables of `manyways flows -o`.
///
/// The questions are from papers, such as one on a campus Wi-Fi network: how fast flows were
/// served and from where, round trips and losses, windows, and where the time goes. Needs the
/// Python package manyways; MANYWAYS_PYTHON is the interpreter with it (default: python3).
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways flows ask --list
  manyways flows ask tables rtt
  manyways flows ask tables servicing-rate --plot rate.svg --where \"organisation = 'Google'\"

Exit code: 0; 1 when it fails; 2 for invalid arguments.")]
pub struct Args {
    /// The folder with the tables.
    #[arg(value_name = "DIR", required_unless_present_any = ["list", "sql"])]
    folder: Option<PathBuf>,
    /// The question's name.
    #[arg(value_name = "QUESTION", required_unless_present_any = ["list", "sql"])]
    question: Option<String>,
    /// List the questions.
    #[arg(long)]
    list: bool,
    /// Use only rows that match this SQL condition.
    #[arg(long = "where", value_name = "SQL", allow_hyphen_values = true)]
    condition: Option<String>,
    /// Draw the answer into a file as well: .png, .svg or .pdf.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Print the query instead of the answer.
    #[arg(long, conflicts_with_all = ["json", "csv"])]
    sql: bool,
    /// Print one JSON document.
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print the rows as CSV.
    #[arg(long)]
    csv: bool,
}

impl Args {
    /// Arguments for Python. Options come first, so that everything after the dashes is passed
    /// unchanged.
    fn python_args(self) -> Vec<OsString> {
        let mut words: Vec<OsString> =
            [SAFE_PATH_OPTION, "-m", "manyways", "ask"].map(OsString::from).into();
        let flags = [
            ("--list", self.list),
            ("--sql", self.sql),
            ("--json", self.json),
            ("--csv", self.csv),
        ];
        words.extend(flags.iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| (*flag).into()));
        let mut value = |option: &str, value: Option<OsString>| {
            if let Some(value) = value {
                let mut word = OsString::from(option);
                word.push("=");
                word.push(value);
                words.push(word);
            }
        };
        value("--where", self.condition.map(OsString::from));
        value("--plot", self.plot.map(PathBuf::into_os_string));
        words.push("--".into());
        words.extend(self.folder.map(PathBuf::into_os_string));
        words.extend(self.question.map(OsString::from));
        words
    }
}

pub fn run(args: Args) -> Result<ExitCode> {
    if let Some((folder, plot)) = args.folder.as_ref().zip(args.plot.as_ref()) {
        check_distinct(&[folder], &[plot])?;
    }
    let python = std::env::var_os(PYTHON).unwrap_or_else(|| "python3".into());
    let shown = python.to_string_lossy().into_owned();
    let start = |error: std::io::Error| {
        Failure::new(format!("cannot run {shown}: {error}"))
            .hint(format!("install Python 3.11 or newer, or name it in {PYTHON}"))
    };
    let look = Command::new(&python)
        .args([SAFE_PATH_OPTION, "-c", MISSING_MODULE_SCRIPT])
        .stdin(Stdio::null())
        .output();
    let missing = match look.map_err(start)?.status.code() {
        Some(0) => None,
        Some(3) => Some("manyways"),
        Some(4) => Some("duckdb"),
        Some(5) => Some("pyarrow"),
        _ => {
            let failure = Failure::new(format!("{shown} is not a usable Python interpreter"));
            return Err(failure.hint(format!("name Python 3.11 or newer in {PYTHON}")).into());
        }
    };
    if let Some(module) = missing {
        let hint = format!(
            "in a checkout: pip install './python[plot]' into a virtual environment, and {PYTHON} is its python"
        );
        let message = format!("the Python package {module} is not installed for {shown}");
        return Err(Failure::new(message).hint(hint).into());
    }
    let status = Command::new(&python).args(args.python_args()).status().map_err(start)?;
    // A process that a signal ended has no exit code; shells report 128 plus the signal.
    let code = status.code().or_else(|| {
        use std::os::unix::process::ExitStatusExt;
        status.signal().map(|signal| 128 + signal)
    });
    Ok(ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn words(line: &[&str]) -> Vec<String> {
        let args = Line::try_parse_from([&["ask"], line].concat()).unwrap().args;
        args.python_args().into_iter().map(|word| word.into_string().unwrap()).collect()
    }

    #[test]
    fn what_is_asked_comes_to_python_as_it_was_written() {
        let said = words(&["--where", "-1 < rtt", "--json", "--plot", "a b.svg", "tables", "rtt"]);
        let plain = ["-P", "-m", "manyways", "ask", "--json", "--where=-1 < rtt", "--plot=a b.svg"];
        assert_eq!(said, [&plain[..], &["--", "tables", "rtt"]].concat());
        assert_eq!(words(&["--list"]), ["-P", "-m", "manyways", "ask", "--list", "--"]);
    }

    #[test]
    fn a_question_needs_a_folder() {
        assert!(Line::try_parse_from(["ask", "tables"]).is_err());
        assert!(Line::try_parse_from(["ask", "--sql", "rtt"]).is_ok());
        assert!(Line::try_parse_from(["ask", "tables", "rtt", "--json", "--csv"]).is_err());
    }
}
