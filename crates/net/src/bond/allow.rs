//! The allow file of a gateway: one line for each authorized client, `KEY NAME [LIMIT=VALUE …]`.

use std::collections::HashMap;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use manyways_proto::bond::session::ClientLimits;
use manyways_unit::Rate;
use manyways_unit::human::{InvalidValue, count_with_noun};

use super::key::{KeyError, PublicKey};

/// A client that is allowed to use the gateway.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuthorizedClient {
    /// Name in the allow file, also in logs and status.
    pub name: String,
    pub limits: ClientLimits,
}

/// An invalid line of an allow file.
#[derive(Debug, thiserror::Error)]
#[error("{path}:{line}: {reason}")]
pub struct AllowError {
    path: String,
    line: usize,
    reason: AllowReason,
}

/// Why a line of an allow file is invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AllowReason {
    #[error(transparent)]
    Key(KeyError),
    #[error("a name for the key is missing: KEY NAME [LIMIT=VALUE …]")]
    NoName,
    #[error("a name for the key is needed before {0:?}")]
    LimitBeforeName(String),
    #[error(
        "{0:?} is not a limit: the limits are sessions=N, streams=N, flows=N and rate=N, as in \
         rate=20mbit"
    )]
    UnknownLimit(String),
    /// The same limit or the same key twice.
    #[error("{0} occurs twice")]
    Twice(String),
    #[error("{0} would block all traffic: use a limit above 0, or remove it")]
    Zero(String),
    #[error("{0:?} is not a number")]
    Number(String),
    #[error(transparent)]
    Rate(InvalidValue),
    #[error("the name {name} is already used in line {line}")]
    NameTaken { line: usize, name: String },
}

/// The authorized clients of a gateway, by key.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AuthorizedClients(HashMap<PublicKey, AuthorizedClient>);

impl AuthorizedClients {
    /// Parses a list. Errors name `path`.
    ///
    /// # Errors
    /// If a line is invalid, or if a key or a name occurs twice.
    pub fn parse(text: &str, path: &str) -> Result<Self, AllowError> {
        let mut clients = HashMap::new();
        let mut names = HashMap::new();
        // Some editors begin every file with a byte order mark.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let wrong = |reason| AllowError { path: path.to_owned(), line: number, reason };
            let (key, client) = entry(line).map_err(wrong)?;
            if clients.contains_key(&key) {
                return Err(wrong(AllowReason::Twice(format!("the key {key}"))));
            }
            if let Some(before) = names.insert(client.name.clone(), number) {
                return Err(wrong(AllowReason::NameTaken { line: before, name: client.name }));
            }
            clients.insert(key, client);
        }
        Ok(Self(clients))
    }

    /// Returns the client with this key; `None` if the key is not authorized.
    pub fn find(&self, key: &PublicKey) -> Option<&AuthorizedClient> {
        self.0.get(key)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn entry(line: &str) -> Result<(PublicKey, AuthorizedClient), AllowReason> {
    let mut words = line.split_whitespace();
    let key: PublicKey = words.next().unwrap_or_default().parse().map_err(AllowReason::Key)?;
    let name = words.next().ok_or(AllowReason::NoName)?;
    if name.contains('=') {
        return Err(AllowReason::LimitBeforeName(name.to_owned()));
    }
    let mut limits = ClientLimits::default();
    let mut given = Vec::new();
    for word in words {
        let unknown = || AllowReason::UnknownLimit(word.to_owned());
        let zero = || AllowReason::Zero(word.to_owned());
        let (what, value) = word.split_once('=').ok_or_else(unknown)?;
        if given.contains(&what) {
            return Err(AllowReason::Twice(what.to_owned()));
        }
        given.push(what);
        let number = || match value.parse() {
            Ok(0) => Err(zero()),
            Ok(number) => Ok(number),
            Err(_) => Err(AllowReason::Number(value.to_owned())),
        };
        match what {
            "sessions" => limits.sessions = number()?,
            "streams" => limits.streams = number()?,
            "flows" => limits.flows = number()?,
            "rate" => {
                let rate: Rate = value.parse().map_err(AllowReason::Rate)?;
                if rate.is_zero() {
                    return Err(zero());
                }
                limits.rate = Some(rate);
            }
            _ => return Err(unknown()),
        }
    }
    Ok((key, AuthorizedClient { name: name.to_owned(), limits }))
}

/// A list in a file, which is read again after a change. While the file cannot be read or parsed,
/// the previous list stays in force.
#[derive(Clone, Debug)]
pub struct AllowFile(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    clients: Arc<AuthorizedClients>,
    /// Of the file from which `clients` was parsed.
    stamp: FileStamp,
    /// The logged error of the latest read; `None` if that read succeeded.
    last_error: Option<String>,
}

/// Modification time, inode and size of a file. The inode detects a replacement within the
/// resolution of the modification time.
type FileStamp = (Option<SystemTime>, u64, u64);

/// An allow file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AllowFileError {
    /// The file cannot be read.
    #[error("{path}: {why}", path = .0.display(), why = .1)]
    Read(PathBuf, #[source] std::io::Error),
    /// A line is invalid.
    #[error(transparent)]
    Line(#[from] AllowError),
}

impl AllowFileError {
    pub fn hint(&self) -> String {
        match self {
            Self::Read(path, why) if why.kind() == ErrorKind::PermissionDenied => format!(
                "the user of the gateway (--user) must have permission to read {} and to enter \
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
    /// If the file cannot be read, or a line is invalid.
    pub fn open(path: &Path) -> Result<Self, AllowFileError> {
        let (clients, stamp) = read_unless(path, None)?.unwrap_or_default();
        let state = Mutex::new(State { clients: Arc::new(clients), stamp, last_error: None });
        Ok(Self(Arc::new(Inner { path: path.to_owned(), state })))
    }

    /// Returns the authorized clients. Reads the file again if it has changed.
    pub fn clients(&self) -> Arc<AuthorizedClients> {
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        match read_unless(&self.0.path, Some(state.stamp)) {
            Ok(None) => state.last_error = None,
            Ok(Some((clients, stamp))) => {
                let keys = count_with_noun(clients.len(), "key");
                tracing::info!("{}: {keys}", self.0.path.display());
                *state = State { clients: Arc::new(clients), stamp, last_error: None };
            }
            Err(error) => {
                // This function is called often; an error is logged once.
                let words = error.to_string();
                if state.last_error.as_ref() != Some(&words) {
                    let hint = error.hint();
                    tracing::warn!(
                        "the allow file can no longer be parsed, the previous list stays in \
                         force: {words}; {hint}"
                    );
                    state.last_error = Some(words);
                }
            }
        }
        Arc::clone(&state.clients)
    }
}

/// Reads the file unless its stamp is `before`. The file is opened in any case, so that a missing
/// permission is noticed before the next change.
fn read_unless(
    path: &Path,
    before: Option<FileStamp>,
) -> Result<Option<(AuthorizedClients, FileStamp)>, AllowFileError> {
    let failed = |error| AllowFileError::Read(path.to_owned(), error);
    let mut file = File::open(path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    let stamp = (found.modified().ok(), found.ino(), found.len());
    if before == Some(stamp) {
        return Ok(None);
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(failed)?;
    Ok(Some((AuthorizedClients::parse(&text, &path.display().to_string())?, stamp)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    const OTHER: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";

    #[test]
    fn a_line_is_a_key_a_name_and_limits() {
        let text = format!("\u{feff}{KEY} phone streams=10 rate=20mbit # mine\n\n# clients\n");
        let clients = AuthorizedClients::parse(&text, "allow").unwrap();
        let client = clients.find(&KEY.parse().unwrap()).unwrap();
        assert_eq!((client.name.as_str(), client.limits.streams), ("phone", 10));
        assert_eq!(client.limits.rate, Some(Rate::from_mbps(20)));
        assert_eq!(client.limits.sessions, ClientLimits::default().sessions);
        assert_eq!(clients.find(&PublicKey([1; 32])), None);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        for (text, words) in [
            ("key phone".to_owned(), "allow:1: \"key\" is not a public key"),
            (KEY.to_owned(), "allow:1: a name"),
            (format!("{KEY} streams=1"), "allow:1: a name"),
            (format!("\n{KEY} a b"), "allow:2: \"b\" is not a limit"),
            (format!("{KEY} a streams=0"), "allow:1: streams=0 would block all traffic"),
            (format!("{KEY} a streams=x"), "allow:1: \"x\" is not a number"),
            (format!("{KEY} a rate=fast"), "allow:1: `fast` is not a rate"),
            (format!("{KEY} a rate=0mbit"), "allow:1: rate=0mbit would block all traffic"),
            (format!("{KEY} a\n{KEY} b"), "allow:2: the key"),
            (format!("{KEY} a\n{OTHER} a"), "allow:2: the name a is already used in line 1"),
            (format!("{KEY} a flows=1 streams=2 flows=1"), "allow:1: flows occurs twice"),
        ] {
            let error = AuthorizedClients::parse(&text, "allow").unwrap_err().to_string();
            assert!(error.starts_with(words), "{error}");
        }
    }
}
