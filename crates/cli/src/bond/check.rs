//! `manyways bond check`: reports errors and probable mistakes in a policy.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::ValueHint;
use manyways_proto::policy::{Policy, PolicyError, Warning};
use manyways_record::document;
use manyways_unit::human::count_with_noun;
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

Exit code: 0; 1 when the policy has an error, or a warning with --strict; 2 for invalid arguments.

docs/bond-policy.md describes policies.")]
pub struct Args {
    /// The policy.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Fail if there are warnings.
    #[arg(long)]
    strict: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// The output of `--json`.
#[derive(Serialize)]
struct Report {
    valid: bool,
    rules: Vec<String>,
    /// Errors, at most 20.
    errors: Vec<Diagnostic>,
    warnings: Vec<Diagnostic>,
}

document!(Report, "manyways.bond-check/3");

#[derive(Serialize)]
struct Diagnostic {
    /// From 1; 0 for the default policy.
    line: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<usize>,
    message: String,
    hint: Option<String>,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let text = policy::read_text(&args.file)?;
    let read = Policy::parse_all(&text);
    let warnings = match &read {
        Ok(policy) => policy::warnings(policy),
        Err(_) => Vec::new(),
    };
    let passes = read.is_ok() && (warnings.is_empty() || !args.strict);
    if args.json {
        print!("{}", document::to_json(&report(&read, &warnings))?);
    } else {
        let policy = read.map_err(|errors| policy::failure(&args.file, &errors))?;
        policy::print_warnings(&args.file, &warnings);
        let rules = count_with_noun(policy.rules().count(), "rule");
        let warnings = count_with_noun(warnings.len(), "warning");
        println!("{}: {rules}, {warnings}", args.file.display());
    }
    Ok(if passes { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn error(error: &PolicyError) -> Diagnostic {
    Diagnostic {
        line: error.line,
        column: Some(error.column),
        message: error.message.clone(),
        hint: error.hint.clone(),
    }
}

fn report(read: &Result<Policy, Vec<PolicyError>>, warnings: &[Warning]) -> Report {
    let warnings = warnings.iter().map(|warning| Diagnostic {
        line: warning.line,
        column: None,
        message: warning.message.clone(),
        hint: warning.hint.clone(),
    });
    Report {
        valid: read.is_ok(),
        rules: read.iter().flat_map(Policy::rules).map(str::to_owned).collect(),
        errors: read.as_ref().err().into_iter().flatten().map(error).collect(),
        warnings: warnings.collect(),
    }
}
