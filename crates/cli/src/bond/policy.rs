//! The policy file of a client: read at the start, and again when it changes.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use manyways_net::bond::PolicyEnforcer;
use manyways_proto::bond::io_limits::IoLimits;
use manyways_proto::policy::{PathFacts, Policy, PolicyError, Warning};
use manyways_proto::sched::{PathId, SchedulerKind};
use manyways_sys::interface;

use crate::failure::Failure;

/// Returns the policy of a client without a policy file: a default with this scheduler.
pub fn default_policy(scheduler: Option<SchedulerKind>) -> Policy {
    let text = format!("[default]\nscheduler = \"{}\"\n", scheduler.unwrap_or_default());
    // The policy file uses the same names of schedulers.
    Policy::parse(&text).unwrap_or_default()
}

pub fn read(path: &Path) -> Result<Policy, Failure> {
    let text = read_text(path)?;
    Policy::parse(&text).map_err(|error| failure(path, &error))
}

/// Reads the text of a policy file.
pub fn read_text(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| {
        Failure::new(format!("the policy {} cannot be read: {error}", path.display()))
            .hint("docs/bond-policy.md has example policies to copy")
    })
}

/// Converts an error of a policy, with its line and column.
pub fn failure(path: &Path, error: &PolicyError) -> Failure {
    let (line, column) = (error.line, error.column);
    let words = format!("{}:{line}:{column}: {}", path.display(), error.message);
    Failure::new(words).maybe_hint(error.hint.clone())
}

/// Returns probable mistakes of a policy on this host.
pub fn warnings(policy: &Policy) -> Vec<Warning> {
    policy.lint(&paths())
}

/// Returns the networks of this host; empty if they cannot be listed.
fn paths() -> Vec<PathFacts> {
    let mut found = interface::list().unwrap_or_default();
    found.retain(|found| found.kind != interface::Kind::Loopback);
    let paths = (0..PathId::LIMIT).zip(found).map(|(id, found)| PathFacts {
        metered: found.metered.is_metered(),
        ..PathFacts::new(PathId(id), found.name, found.kind.name())
    });
    paths.collect()
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

/// Replaces the policy after each change of the file. While the file cannot be parsed, the previous
/// policy stays in force.
pub async fn watch_file(path: PathBuf, enforcer: PolicyEnforcer, quiet: bool) {
    let interval = Duration::from(IoLimits::default().policy_poll_interval);
    let mut known = version(&path);
    loop {
        tokio::time::sleep(interval).await;
        let found = version(&path);
        if found == known {
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
                if let Some(hint) = failure.hint_text() {
                    eprintln!("hint: {hint}");
                }
            }
        }
    }
}
