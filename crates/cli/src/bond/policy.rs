//! The policy file of a client: read at the beginning, and again when it changes.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use manyways_net::bond::rules::Rules;
use manyways_proto::policy::{PathFacts, Policy, PolicyError, Warning};
use manyways_proto::sched::{Kind, PathId};
use manyways_sys::interface;

use crate::failure::Failure;

/// The file is looked at so often.
const LOOK: Duration = Duration::from_secs(1);

/// The policy of a client without one.
pub fn plain(scheduler: Option<Kind>) -> Policy {
    let text = format!("[default]\nscheduler = \"{}\"\n", scheduler.unwrap_or_default());
    // The words of schedulers are those of the file; its own default is the same.
    Policy::parse(&text).unwrap_or_default()
}

/// Reads a policy.
pub fn read(path: &Path) -> Result<Policy, Failure> {
    let text = text(path)?;
    Policy::parse(&text).map_err(|error| failure(path, &error))
}

/// The text of a policy file.
pub fn text(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| {
        Failure::new(format!("the policy {} cannot be read: {error}", path.display()))
            .hint("docs/bond-policy.md has some to copy")
    })
}

/// What is wrong with a file, and where.
pub fn failure(path: &Path, error: &PolicyError) -> Failure {
    let (line, column) = (error.line, error.column);
    let words = format!("{}:{line}:{column}: {}", path.display(), error.sentence);
    match &error.hint {
        Some(hint) => Failure::new(words).hint(hint.clone()),
        None => Failure::new(words),
    }
}

/// What of a policy is probably not meant on this host.
pub fn warnings(policy: &Policy) -> Vec<Warning> {
    policy.lint(&paths())
}

/// The networks of this host; none where they cannot be listed.
fn paths() -> Vec<PathFacts> {
    let mut found = interface::list().unwrap_or_default();
    found.retain(|found| found.kind != interface::Kind::Loopback);
    let paths = (0..PathId::LIMIT).zip(found).map(|(id, found)| PathFacts {
        metered: found.metered.is_metered(),
        ..PathFacts::new(PathId(id), found.name, found.kind.word())
    });
    paths.collect()
}

/// Says it.
pub fn say(path: &Path, warnings: &[Warning]) {
    for warning in warnings {
        let (file, sentence) = (path.display(), &warning.sentence);
        match warning.line {
            0 => eprintln!("warning: {file}: the default: {sentence}"),
            line => eprintln!("warning: {file}:{line}: {sentence}"),
        }
        if let Some(hint) = &warning.hint {
            eprintln!("hint: {hint}");
        }
    }
}

/// What tells one version of a file from another: editors replace files, or write into them.
type Version = Option<(SystemTime, u64)>;

fn version(path: &Path) -> Version {
    let facts = fs::metadata(path).ok()?;
    Some((facts.modified().ok()?, facts.len()))
}

/// Gives `rules` the policy in the file whenever it has changed. One that does not read leaves the
/// old one in force.
pub async fn follow(path: PathBuf, rules: Rules, quiet: bool) {
    let mut known = version(&path);
    loop {
        tokio::time::sleep(LOOK).await;
        let found = version(&path);
        if found == known {
            continue;
        }
        known = found;
        match read(&path) {
            Ok(policy) => {
                let warnings = warnings(&policy);
                rules.replace(policy);
                if !quiet {
                    say(&path, &warnings);
                    eprintln!("manyways: {} has changed and is followed now", path.display());
                }
            }
            Err(failure) => {
                eprintln!("manyways: {failure}; the policy of before is still followed");
                if let Some(hint) = failure.hinted() {
                    eprintln!("hint: {hint}");
                }
            }
        }
    }
}
