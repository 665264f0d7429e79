//! `manyways bond check`: reports errors and probable mistakes in a policy.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::ValueHint;
use manyways_proto::policy::{Policy, PolicyError, Warning};
use manyways_unit::human::counted;
use serde::Serialize;

use super::policy;

/// Check a policy: report errors with their position, and warn about probable mistakes.
///
/// Warnings name rules that can never match, and networks that this host does not have.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways bond check policy.toml
  manyways bond check --strict --json policy.toml

Exit codes: 0 it reads, 1 it does not (with --strict also: there are warnings), 2 usage.

docs/bond-policy.md describes policies.")]
pub struct Args {
    /// The policy.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Fail where there are warnings.
    #[arg(long)]
    strict: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// The output of `--json`.
#[derive(Serialize)]
struct Report {
    schema: &'static str,
    valid: bool,
    rules: Vec<String>,
    error: Option<Remark>,
    warnings: Vec<Remark>,
}

#[derive(Serialize)]
struct Remark {
    /// From 1; 0 for the default policy.
    line: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<usize>,
    sentence: String,
    hint: Option<String>,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let text = policy::text(&args.file)?;
    let read = Policy::parse(&text);
    let warnings = match &read {
        Ok(policy) => policy::warnings(policy),
        Err(_) => Vec::new(),
    };
    let passes = read.is_ok() && (warnings.is_empty() || !args.strict);
    if args.json {
        println!("{}", serde_json::to_string(&report(&read, &warnings))?);
    } else {
        let policy = read.map_err(|error| policy::failure(&args.file, &error))?;
        policy::print_warnings(&args.file, &warnings);
        let rules = counted(policy.rules().count(), "rule");
        let warnings = counted(warnings.len(), "warning");
        println!("{}: {rules}, {warnings}", args.file.display());
    }
    Ok(if passes { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn report(read: &Result<Policy, PolicyError>, warnings: &[Warning]) -> Report {
    let warnings = warnings.iter().map(|warning| Remark {
        line: warning.line,
        column: None,
        sentence: warning.sentence.clone(),
        hint: warning.hint.clone(),
    });
    Report {
        schema: "manyways.bond-check/1",
        valid: read.is_ok(),
        rules: read.iter().flat_map(Policy::rules).map(str::to_owned).collect(),
        error: read.as_ref().err().map(|error| Remark {
            line: error.line,
            column: Some(error.column),
            sentence: error.sentence.clone(),
            hint: error.hint.clone(),
        }),
        warnings: warnings.collect(),
    }
}
