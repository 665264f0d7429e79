//! `manyways steer simulate`: compares rules on transfers that have ended.

mod charts;
mod page;
mod text;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::ValueHint;
use manyways_model::select::model::{self, DEFAULT, Model};
use manyways_model::select::simulate::Rule;
use manyways_model::select::{Baseline, Goal};
use manyways_net::steer::input::{read_model, read_table};
use manyways_net::steer::simulate::{NamedGoal, NamedRule, SimulateError, Simulation};
use manyways_record::document;
use manyways_unit::human::quoted;
use manyways_unit::nearest::nearest;

use super::{GOALS, file_name, goal, input_failure};
use crate::failure::Failure;
use crate::report_file::{self, check_distinct, check_folder};

/// Rules that are not baselines.
const OWN_RULES: [&str; 4] = ["closed-form", "paper", "model", "oracle"];

/// Compare rules that choose networks, on transfers whose times are known for every choice
///
/// For each goal and rule: the share of the loss of the best fixed network that the rule avoids, the
/// share of right choices, and the loss that remains. The network is chosen once, at the start, among
/// Wi-Fi and LTE; with --both also both at once.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  manyways steer simulate transfers.csv
  manyways steer simulate transfers.csv --goal fast --policy wifi,model,oracle --json
  manyways steer simulate later.csv --model model.json --report rules.html
  manyways steer simulate transfers.csv --paper-model tree.json --goal my-goal.toml --both

Policies:
  wifi, lte, both   always the same
  android           Wi-Fi, unless no probe was answered there
  mwan3             Wi-Fi, unless three pings in a row failed
  recent-best       each one once, then the one with the fastest last transfer
  last-rate         the one with the greatest rate that was measured last
  closed-form       the best one for round trip, rate and size, without a model
  paper             the best one by the model of --paper-model
  model             the best one by the model
  oracle            knows the times

A goal is fast (speed), balanced (speed and energy), thrifty (speed, energy and money), or a file like
`speed = 1`, `energy = 0.5`, `money = 0` or `at-least = \"5mbit\"`.
Exit code: 0; 1 when a file cannot be read; 2 when the arguments or a file are invalid.")]
pub struct Args {
    /// Table of transfers (CSV)
    #[arg(value_name = "TABLE", value_hint = ValueHint::FilePath)]
    table: PathBuf,
    /// Goal: a name or a file; may be repeated [default: fast, balanced and thrifty]
    #[arg(long, value_name = "GOAL")]
    goal: Vec<String>,
    /// Policies to compare [default: all for which there are models and transfers]
    #[arg(long, value_name = "POLICIES", value_delimiter = ',')]
    policy: Vec<String>,
    /// Model of the policy `model` [default: the one that is shipped]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    model: Option<PathBuf>,
    /// Model of the policy `paper`, of the kind tree or svr
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    paper_model: Option<PathBuf>,
    /// Both networks at once can be chosen too
    #[arg(long)]
    both: bool,
    /// Write an HTML report, without external resources
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    report: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    args.report.as_deref().map(check_folder).transpose()?;
    let models = [&args.model, &args.paper_model].into_iter().filter_map(|file| file.as_deref());
    let goals = args.goal.iter().map(Path::new).filter(|file| file.is_file());
    let inputs: Vec<&Path> =
        [args.table.as_path()].into_iter().chain(models).chain(goals).collect();
    check_distinct(&inputs, args.report.as_deref().as_slice())?;
    let goals = goals_of(&args.goal)?;
    let names = args.policies()?;
    let model = match &args.model {
        Some(file) => read_model(file).map_err(input_failure)?,
        None => model::parse(DEFAULT.trim_end())?,
    };
    let paper = args.paper_model.as_deref().map(paper_model).transpose()?;
    let table = read_table(&args.table).map_err(input_failure)?;
    let rules = names.iter().map(|name| rule(name, &model, paper.as_ref()));
    let mut simulation =
        Simulation::new(&file_name(&args.table), goals, rules.collect::<Result<_, _>>()?);
    simulation.with_both = args.both;
    let found = simulation.run(&table).map_err(failure)?;
    if let Some(file) = &args.report {
        report_file::write(file, &page::html(&found))?;
        eprintln!("The report is in {}.", file.display());
    }
    let text = match args.json {
        true => document::to_json_pretty(&found)?,
        false => text::text(&found),
    };
    crate::output::text(&text);
    Ok(ExitCode::SUCCESS)
}

impl Args {
    /// The names of the policies, each one once.
    fn policies(&self) -> Result<Vec<String>, Failure> {
        let all = || Baseline::all().map(|one| one.to_string());
        let mut names: Vec<String> =
            self.policy.iter().map(|name| name.trim().to_owned()).collect();
        if names.is_empty() {
            names = all().chain(OWN_RULES.map(str::to_owned)).collect();
            names.retain(|name| match name.as_str() {
                "both" => self.both,
                "paper" => self.paper_model.is_some(),
                _ => true,
            });
        }
        let mut seen = Vec::new();
        for name in names {
            if !seen.contains(&name) {
                seen.push(name);
            }
        }
        for (file, policy, option) in
            [(&self.model, "model", "--model"), (&self.paper_model, "paper", "--paper-model")]
        {
            if file.is_some() && !seen.iter().any(|name| name == policy) {
                let hint = format!("add {policy} to --policy, or leave {option} out");
                return Failure::refuse(format!("no policy uses {option}"), hint);
            }
        }
        Ok(seen)
    }
}

fn goals_of(names: &[String]) -> Result<Vec<NamedGoal>, Failure> {
    if names.is_empty() {
        let named = |(name, goal): (&str, Goal)| NamedGoal { name: name.to_owned(), goal };
        return Ok(GOALS.map(named).to_vec());
    }
    names.iter().map(|name| Ok(NamedGoal { name: name.clone(), goal: goal(name)? })).collect()
}

fn paper_model(file: &Path) -> Result<Model, Failure> {
    let model = read_model(file).map_err(input_failure)?;
    if !model.is_of_the_thesis() {
        let hint = "`manyways steer train TABLE --kind tree` makes a model of the paper";
        return Failure::refuse(format!("{} has boosted trees", file.display()), hint);
    }
    Ok(model)
}

fn rule<'a>(
    name: &str,
    model: &'a Model,
    paper: Option<&'a Model>,
) -> Result<NamedRule<'a>, Failure> {
    let rule = match name {
        "closed-form" => Rule::ClosedForm,
        "model" => Rule::Model(model),
        "oracle" => Rule::Oracle,
        "paper" => Rule::Model(paper.ok_or_else(|| {
            let hint = "name a model of the kind tree or svr with --paper-model FILE";
            Failure::usage("the policy paper has no model").hint(hint)
        })?),
        _ => Rule::Baseline(name.parse().map_err(|_| unknown_policy(name))?),
    };
    Ok(NamedRule { name: name.to_owned(), rule })
}

fn unknown_policy(name: &str) -> Failure {
    let names: Vec<String> =
        Baseline::all().map(|one| one.to_string()).chain(OWN_RULES.map(str::to_owned)).collect();
    let hint = match nearest(name, names.iter().map(String::as_str)) {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => format!("the policies are {}", names.join(", ")),
    };
    Failure::usage(format!("there is no policy `{}`", quoted(name))).hint(hint)
}

fn failure(error: SimulateError) -> Failure {
    let hint = match &error {
        SimulateError::NoCases { .. } => {
            "a decision is the rows of one place, group, second and size, one for each choice"
        }
        SimulateError::NoBoth => "leave --both out",
        SimulateError::NotAmong { .. } => "add --both, and rows of that choice to the table",
        SimulateError::NotPredicted { .. } => {
            "train it on a table with that choice, or leave --both out"
        }
        _ => return Failure::usage(error.to_string()),
    };
    Failure::usage(error.to_string()).hint(hint)
}
