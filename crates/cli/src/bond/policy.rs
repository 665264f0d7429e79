//! The policy file of a client: read at the start, and again when it changes.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use manyways_net::bond::{LENDER_KIND, PairFile, PolicyEnforcer};
use manyways_proto::bond::io_limits::IoLimits;
use manyways_proto::policy::{PathFacts, Policy, PolicyError, Warning};
use manyways_proto::sched::{PathId, SchedulerKind};
use manyways_sys::interface;
use manyways_unit::human::count_with_noun;

use super::lend;
use crate::failure::Failure;

/// Returns the policy of a client without a policy file: a default with this scheduler.
pub fn default_policy(scheduler: Option<SchedulerKind>) -> Policy {
    let text = format!("[default]\nscheduler = \"{}\"\n", scheduler.unwrap_or_default());
    // The policy file uses the same names of schedulers.
    Policy::parse(&text).unwrap_or_default()
}

pub fn read(path: &Path) -> Result<Policy, Failure> {
    let text = read_text(path)?;
    Policy::parse_all(&text).map_err(|errors| failure(path, &errors))
}

/// Reads the text of a policy file.
///
/// # Errors
/// The file cannot be read, or it is empty: a program that saves a file may empty it first, and
/// then no path would be spared.
pub fn read_text(path: &Path) -> Result<String, Failure> {
    let text = fs::read_to_string(path).map_err(|error| {
        let failure = Failure::new(format!("cannot read the policy {}: {error}", path.display()));
        match error.kind() {
            ErrorKind::NotFound => failure.hint("docs/bond-policy.md has example policies to copy"),
            _ => failure,
        }
    })?;
    let is_blank = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
    if text.lines().all(is_blank) {
        return Err(Failure::new(format!("the policy {} is empty", path.display()))
            .hint("write [default] if every connection may use every network"));
    }
    Ok(text)
}

/// Converts the errors of a policy, at least one, with their lines and columns.
pub fn failure(path: &Path, errors: &[PolicyError]) -> Failure {
    let place = |error: &PolicyError| format!("{}:{}:{}", path.display(), error.line, error.column);
    match errors {
        [error] => Failure::new(format!("{}: {}", place(error), error.message))
            .maybe_hint(error.hint.clone()),
        errors => {
            let lines = errors.iter().map(|error| {
                let hint = error.hint.as_ref().map(|hint| format!(" ({hint})"));
                format!("{}: {}{}", place(error), error.message, hint.unwrap_or_default())
            });
            let count = count_with_noun(errors.len(), "error");
            Failure::new(format!("the policy {} has {count}", path.display()))
                .details(lines.collect())
        }
    }
}

/// Returns probable mistakes of a policy on this host.
pub fn warnings(policy: &Policy) -> Vec<Warning> {
    policy.lint(&paths())
}

/// Returns the networks of this host and of its lenders; empty if they cannot be listed.
fn paths() -> Vec<PathFacts> {
    let mut found = interface::list().unwrap_or_default();
    found.retain(|found| found.kind != interface::Kind::Loopback);
    let interfaces = found.into_iter().map(|found| PathFacts {
        metered: found.metered.is_metered(),
        ..PathFacts::new(PathId(0), found.name, found.kind.name())
    });
    let lenders = lend::folder().and_then(|folder| Ok(PairFile::lenders(&folder).read()?));
    let lenders = lenders.unwrap_or_default().into_iter();
    let lenders = lenders.map(|device| PathFacts {
        metered: true,
        ..PathFacts::new(PathId(0), device.name, LENDER_KIND)
    });
    let numbered = (0..PathId::LIMIT).zip(interfaces.chain(lenders));
    numbered.map(|(id, facts)| PathFacts { id: PathId(id), ..facts }).collect()
}

pub fn print_warnings(path: &Path, warnings: &[Warning]) {
    for warning in warnings {
        let (file, message) = (path.display(), &warning.message);
        match warning.line {
            0 => eprintln!("warning: {file}: the default: {message}"),
            line => eprintln!("warning: {file}:{line}: {message}"),
        }
        if let Some(hint) = &warning.hint {
            eprintln!("hint: {hint}");
        }
    }
}

/// Modification time and length of a file, which distinguish its versions. Editors replace files,
/// or write into them.
type FileVersion = Option<(SystemTime, u64)>;

fn version(path: &Path) -> FileVersion {
    let facts = fs::metadata(path).ok()?;
    Some((facts.modified().ok()?, facts.len()))
}

/// Replaces the policy after each change of the file, as soon as two reads in a row are alike: a
/// program may be writing it. While the file cannot be parsed, the previous policy stays in force.
pub async fn watch_file(path: PathBuf, enforcer: PolicyEnforcer, quiet: bool) {
    let interval = Duration::from(IoLimits::default().policy_poll_interval);
    let mut known = version(&path);
    let mut seen = known;
    loop {
        tokio::time::sleep(interval).await;
        let found = version(&path);
        if std::mem::replace(&mut seen, found) != found || found == known {
            continue;
        }
        known = found;
        match read(&path) {
            Ok(policy) => {
                let warnings = warnings(&policy);
                enforcer.replace_policy(policy);
                if !quiet {
                    print_warnings(&path, &warnings);
                    eprintln!("manyways: {} has changed and is in force now", path.display());
                }
            }
            Err(failure) => {
                eprintln!("manyways: {failure}; the previous policy stays in force");
                failure.report_rest();
            }
        }
    }
}
