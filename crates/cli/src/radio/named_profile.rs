//! Profiles by name or file, and rule files.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use manyways_model::radio::profile::{self, MAX_TEXT, ProfileError};
use manyways_model::radio::profiles::{self, Known};
use manyways_model::radio::{DelayTolerance, Profile};
use manyways_unit::human::quoted;
use manyways_unit::nearest::nearest;

use crate::failure::Failure;

/// The built-in profile of this name, or the profile in this file. In every command a built-in name
/// takes precedence over a file.
pub fn find(text: &str) -> Result<Known, Failure> {
    let path = Path::new(text);
    if let Some(read) = profiles::named(text) {
        if path.is_file() {
            eprintln!("manyways: `{text}` is the built-in profile, not the file of that name");
            eprintln!("hint: write ./{text} for the file");
        }
        let profile = read.map_err(|error| profile_failure(text, error))?;
        return Ok(Known { name: text.to_owned(), profile });
    }
    if !text.contains('/') && path.extension().is_none() && !path.exists() {
        let names = || profiles::all().map(|(name, _)| name);
        let failure = Failure::usage(format!("there is no profile `{}`", quoted(text)));
        return Err(match nearest(text, names()) {
            Some(nearest) => failure.hint(format!("did you mean `{nearest}`?")),
            None => {
                let names: Vec<&str> = names().collect();
                failure.hint(format!("name a file, or one of {}", names.join(", ")))
            }
        });
    }
    Ok(Known { name: text.to_owned(), profile: read_profile(path)?.0 })
}

/// The profile in a file, and its text.
pub fn read_profile(path: &Path) -> Result<(Profile, String), Failure> {
    let name = path.display().to_string();
    let text = read_text(path, MAX_TEXT).map_err(|reason| {
        Failure::new(format!("cannot read {name}: {reason}"))
            .hint("manyways radio profiles NAME prints a profile as a template")
    })?;
    let profile = profile::parse(&text).map_err(|error| profile_failure(&name, error))?;
    Ok((profile, text))
}

/// Delay-tolerant traffic by a rule file.
pub fn read_rules(path: &Path) -> Result<DelayTolerance, Failure> {
    let name = path.display().to_string();
    let text = read_text(path, DelayTolerance::MAX_TEXT)
        .map_err(|reason| Failure::new(format!("cannot read {name}: {reason}")))?;
    DelayTolerance::parse(&text).map_err(|error| {
        position_failure(&name, (error.line, error.column), &error.message, error.hint)
    })
}

/// At most `max` bytes of a file, plus one byte if the file is longer.
fn read_text(path: &Path, max: usize) -> Result<String, String> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(max as u64 + 1).read_to_end(&mut bytes))
        .map_err(|error| error.to_string())?;
    String::from_utf8(bytes).map_err(|_| "the file is not UTF-8 text".to_owned())
}

fn profile_failure(name: &str, error: ProfileError) -> Failure {
    position_failure(name, (error.line, error.column), &error.message, error.hint)
}

/// An error in a user's file, with its place.
fn position_failure(
    name: &str,
    (line, column): (usize, usize),
    message: &str,
    hint: Option<String>,
) -> Failure {
    Failure::usage(format!("{name}:{line}:{column}: {message}")).maybe_hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_in_a_file_has_its_line_and_column() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f.toml");
        let good = profiles::all().find(|(name, _)| *name == "wifi").unwrap().1;
        let fault = |text: &str, read: &dyn Fn(&Path) -> Failure| {
            std::fs::write(&path, text).unwrap();
            let failure = read(&path);
            assert!(failure.is_usage(), "{failure}");
            let words = failure.to_string();
            words.strip_prefix(&format!("{}:", path.display())).unwrap().to_owned()
        };
        let profile = |path: &Path| read_profile(path).unwrap_err();
        let words = fault(&good.replace("[[state]]", "[state]"), &profile);
        assert!(words.ends_with(": the table `[state]` is given twice"), "{words}");
        let words = fault(&good.replacen("receive =", "recieve =", 1), &profile);
        assert!(words.ends_with(": the transfer has no `recieve`"), "{words}");
        let words = fault("[[delay]]\n", &|path| read_rules(path).unwrap_err());
        assert_eq!(words, "1:3: the file of rules has no `delay`");
    }
}
