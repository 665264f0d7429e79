//! The list of those whom a gateway lets in: a line each, `KEY NAME [LIMIT=VALUE …]`.

use std::collections::HashMap;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use manyways_unit::Rate;
use manyways_unit::human::counted;

use super::key::PublicKey;

/// What a client may use at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Sessions, each with its carriers.
    pub sessions: u32,
    /// Streams of a session.
    pub streams: u32,
    /// Datagram flows of a session.
    pub flows: u32,
    /// What the applications of all sessions send together, and what they receive.
    pub rate: Option<Rate>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { sessions: 4, streams: 32_768, flows: 4_096, rate: None }
    }
}

/// Somebody who is let in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Guest {
    /// What the log calls them.
    pub name: String,
    /// What they may use.
    pub limits: Limits,
}

/// Why a list does not read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{path}:{line}: {why}")]
pub struct AllowError {
    path: String,
    line: usize,
    why: String,
}

/// Everybody on a list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Guests(HashMap<PublicKey, Guest>);

impl Guests {
    /// Reads the text of a list. `path` is for the words of errors.
    ///
    /// # Errors
    /// With the line that is wrong.
    pub fn parse(text: &str, path: &str) -> Result<Self, AllowError> {
        let mut guests = HashMap::new();
        let mut names = HashMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let wrong = |why: String| AllowError { path: path.to_owned(), line: number, why };
            let (key, guest) = entry(line).map_err(wrong)?;
            if guests.contains_key(&key) {
                return Err(wrong(format!("the key {key} is there twice")));
            }
            if let Some(before) = names.insert(guest.name.clone(), number) {
                let name = &guest.name;
                return Err(wrong(format!("the name {name} is that of line {before} already")));
            }
            guests.insert(key, guest);
        }
        Ok(Self(guests))
    }

    /// Who has this key.
    pub fn find(&self, key: &PublicKey) -> Option<&Guest> {
        self.0.get(key)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nobody is let in.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn entry(line: &str) -> Result<(PublicKey, Guest), String> {
    let mut words = line.split_whitespace();
    let key: PublicKey =
        words.next().unwrap_or_default().parse().map_err(|error| format!("{error}"))?;
    let name = words.next().ok_or("a name for the key is missing: KEY NAME [LIMIT=VALUE …]")?;
    if name.contains('=') {
        return Err(format!("a name for the key is needed before {name:?}"));
    }
    let mut limits = Limits::default();
    let mut given = Vec::new();
    for word in words {
        let wrong = || {
            format!(
                "{word:?} is no limit: there are sessions=N, streams=N, flows=N and rate=N as in \
                 rate=20mbit"
            )
        };
        let (what, value) = word.split_once('=').ok_or_else(wrong)?;
        if given.contains(&what) {
            return Err(format!("{what} is there twice"));
        }
        given.push(what);
        let number = || match value.parse() {
            Ok(0) => Err(format!("{word} lets nothing pass: leave it out")),
            Ok(number) => Ok(number),
            Err(_) => Err(format!("{value:?} is no number")),
        };
        match what {
            "sessions" => limits.sessions = number()?,
            "streams" => limits.streams = number()?,
            "flows" => limits.flows = number()?,
            "rate" => {
                let rate: Rate = value.parse().map_err(|error| format!("{error}"))?;
                if rate.is_zero() {
                    return Err(format!("{word} lets nothing pass: leave it out"));
                }
                limits.rate = Some(rate);
            }
            _ => return Err(wrong()),
        }
    }
    Ok((key, Guest { name: name.to_owned(), limits }))
}

/// A list in a file, which is read again when it has changed. One that does not read any more
/// leaves the old one in force.
#[derive(Clone, Debug)]
pub struct AllowFile(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    guests: Arc<Guests>,
    /// Of the file that they stand in.
    stamp: Stamp,
    /// Why they are of before, as it was said.
    complaint: Option<String>,
}

/// What tells a file from the one that was there before: one may take its place within the grain
/// of the clock.
type Stamp = (Option<SystemTime>, u64, u64);

/// Why a file is no list.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// It cannot be read.
    #[error("{path}: {why}", path = .0.display(), why = .1)]
    Read(PathBuf, #[source] std::io::Error),
    /// A line is wrong.
    #[error(transparent)]
    Line(#[from] AllowError),
}

impl FileError {
    /// What the user can do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Read(path, why) if why.kind() == ErrorKind::PermissionDenied => format!(
                "the gateway's user, which is that of --user, must be able to read {} and to enter \
                 its folder",
                path.display()
            ),
            _ => "each line is a public key and a name: KEY phone (docs/bond.md)".to_owned(),
        }
    }
}

impl AllowFile {
    /// Reads the file.
    ///
    /// # Errors
    /// Where it cannot be read, or a line is wrong.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        let (guests, stamp) = read_unless(path, None)?.unwrap_or_default();
        let state = Mutex::new(State { guests: Arc::new(guests), stamp, complaint: None });
        Ok(Self(Arc::new(Inner { path: path.to_owned(), state })))
    }

    /// Those who are let in now.
    pub fn guests(&self) -> Arc<Guests> {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        match read_unless(&self.0.path, Some(state.stamp)) {
            Ok(None) => state.complaint = None,
            Ok(Some((guests, stamp))) => {
                let keys = counted(guests.len(), "key");
                tracing::info!("{}: {keys}", self.0.path.display());
                *state = State { guests: Arc::new(guests), stamp, complaint: None };
            }
            Err(error) => {
                // It is looked at often, and said once.
                let words = error.to_string();
                if state.complaint.as_ref() != Some(&words) {
                    let hint = error.hint();
                    tracing::warn!("the allow-file of before stays in force: {words}; {hint}");
                    state.complaint = Some(words);
                }
            }
        }
        Arc::clone(&state.guests)
    }
}

/// Reads the file, unless it is still the one of that stamp. It is opened in any case: that it
/// cannot be read any more is to be known before it changes.
fn read_unless(path: &Path, before: Option<Stamp>) -> Result<Option<(Guests, Stamp)>, FileError> {
    let failed = |error| FileError::Read(path.to_owned(), error);
    let mut file = File::open(path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    let stamp = (found.modified().ok(), found.ino(), found.len());
    if before == Some(stamp) {
        return Ok(None);
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(failed)?;
    Ok(Some((Guests::parse(&text, &path.display().to_string())?, stamp)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    const OTHER: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";

    #[test]
    fn a_line_is_a_key_a_name_and_limits() {
        let text = format!("# those who may\n\n{KEY} phone streams=10 rate=20mbit # mine\n");
        let guests = Guests::parse(&text, "allow").unwrap();
        let guest = guests.find(&KEY.parse().unwrap()).unwrap();
        assert_eq!((guest.name.as_str(), guest.limits.streams), ("phone", 10));
        assert_eq!(guest.limits.rate, Some(Rate::from_mbps(20)));
        assert_eq!(guest.limits.sessions, Limits::default().sessions);
        assert_eq!(guests.find(&PublicKey([1; 32])), None);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, words) in [
            ("key phone".to_owned(), "allow:1: \"key\" is no public key"),
            (KEY.to_owned(), "allow:1: a name"),
            (format!("{KEY} streams=1"), "allow:1: a name"),
            (format!("\n{KEY} a b"), "allow:2: \"b\" is no limit"),
            (format!("{KEY} a streams=0"), "allow:1: streams=0 lets nothing pass"),
            (format!("{KEY} a streams=x"), "allow:1: \"x\" is no number"),
            (format!("{KEY} a rate=fast"), "allow:1: `fast` is not a rate"),
            (format!("{KEY} a rate=0mbit"), "allow:1: rate=0mbit lets nothing pass"),
            (format!("{KEY} a\n{KEY} b"), "allow:2: the key"),
            (format!("{KEY} a\n{OTHER} a"), "allow:2: the name a is that of line 1 already"),
            (format!("{KEY} a flows=1 streams=2 flows=1"), "allow:1: flows is there twice"),
        ] {
            let error = Guests::parse(&text, "allow").unwrap_err().to_string();
            assert!(error.starts_with(words), "{error}");
        }
    }
}
