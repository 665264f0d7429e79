//! Profiles by name, and those of a user.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use manyways_model::radio::profile::{self, MAX_TEXT, ProfileError};
use manyways_model::radio::{Profile, Tolerant, profiles, tolerant};
use manyways_unit::nearest::nearest;

use crate::failure::Failure;

/// A profile and what the user calls it.
#[derive(Clone, Debug)]
pub struct Known {
    pub name: String,
    pub profile: Profile,
}

/// The profile of that name, or in that file: one with a slash or an ending is a file.
pub fn profile(text: &str) -> Result<Known, Failure> {
    let path = Path::new(text);
    if let Some(read) = profiles::named(text) {
        let profile = read.map_err(|error| wrong(text, &error))?;
        return Ok(Known { name: text.to_owned(), profile });
    }
    if !text.contains('/') && path.extension().is_none() && !path.exists() {
        let names = || profiles::all().map(|(name, _)| name);
        let failure = Failure::usage(format!("there is no profile `{text}`"));
        return Err(match nearest(text, names()) {
            Some(nearest) => failure.hint(format!("did you mean `{nearest}`?")),
            None => {
                let names: Vec<&str> = names().collect();
                failure.hint(format!("it is one of {}, or a file", names.join(", ")))
            }
        });
    }
    Ok(Known { name: text.to_owned(), profile: file(path)?.0 })
}

/// The profile in a file, and its text.
pub fn file(path: &Path) -> Result<(Profile, String), Failure> {
    let name = path.display().to_string();
    let text = text(path, MAX_TEXT).map_err(|why| {
        Failure::new(format!("cannot read {name}: {why}"))
            .hint("manyways radio profiles NAME prints one to begin with")
    })?;
    let profile = profile::parse(&text).map_err(|error| wrong(&name, &error))?;
    Ok((profile, text))
}

/// What may wait, by a file of rules.
pub fn tolerant(path: &Path) -> Result<Tolerant, Failure> {
    let name = path.display().to_string();
    let text = text(path, tolerant::MAX_TEXT)
        .map_err(|why| Failure::new(format!("cannot read {name}: {why}")))?;
    Tolerant::parse(&text).map_err(|error| {
        let failure = Failure::new(format!("{name}: {error}"));
        match &error.hint {
            Some(hint) => failure.hint(hint.clone()),
            None => failure,
        }
    })
}

/// As much of a file as is read at most, and a byte more where there is one.
fn text(path: &Path, most: usize) -> Result<String, String> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(most as u64 + 1).read_to_end(&mut bytes))
        .map_err(|error| error.to_string())?;
    String::from_utf8(bytes).map_err(|_| "it is not text in UTF-8".to_owned())
}

fn wrong(name: &str, error: &ProfileError) -> Failure {
    let failure = Failure::new(format!("{name}: {error}"));
    match &error.hint {
        Some(hint) => failure.hint(hint.clone()),
        None => failure,
    }
}
