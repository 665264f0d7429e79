//! The user name and password that a client's proxies require.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ring::hmac::{self, HMAC_SHA256};
use ring::rand::SystemRandom;

use crate::base64;

/// Maximum length of a user name and of a password (RFC 1929).
const MAX_LENGTH: usize = 255;

/// A user name and password. Only a keyed hash of them is kept, with a key of this process, so that
/// a comparison takes the same time wherever the first difference is, and whatever the lengths are.
#[derive(Clone)]
pub struct ProxyPassword {
    key: hmac::Key,
    tag: hmac::Tag,
}

/// The failure to read a password file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyPasswordError {
    /// The file cannot be read.
    #[error("{path}: {why}", path = .0.display(), why = .1)]
    File(PathBuf, #[source] io::Error),
    /// The file is not one line `user:password`.
    #[error("{} is not one line user:password, each part with 1 to 255 bytes", .0.display())]
    Malformed(PathBuf),
    /// Other users can read the file.
    #[error("{} can be read by other users than its owner", .0.display())]
    InsecurePermissions(PathBuf),
    /// The system returned no random numbers.
    #[error("the system gives no random numbers")]
    Random,
}

impl ProxyPassword {
    /// Reads a file with one line `user:password` that only its owner can read.
    ///
    /// # Errors
    /// If the file cannot be read, other users can read it, or it has another format.
    pub fn read(path: &Path) -> Result<Self, ProxyPasswordError> {
        let failed = |error| ProxyPasswordError::File(path.to_owned(), error);
        let mode = fs::metadata(path).map_err(failed)?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(ProxyPasswordError::InsecurePermissions(path.to_owned()));
        }
        let text = fs::read(path).map_err(failed)?;
        let pair = parse(&text).ok_or_else(|| ProxyPasswordError::Malformed(path.to_owned()))?;
        Self::new(pair).ok_or(ProxyPasswordError::Random)
    }

    /// Creates the password for `user:password`; `None` if the system returned no random numbers.
    fn new(pair: &[u8]) -> Option<Self> {
        let key = hmac::Key::generate(HMAC_SHA256, &SystemRandom::new()).ok()?;
        let tag = hmac::sign(&key, pair);
        Some(Self { key, tag })
    }

    /// Whether these are the user name and the password.
    pub(super) fn matches(&self, user: &[u8], password: &[u8]) -> bool {
        // Otherwise a part of the password could be in the user name.
        !user.contains(&b':') && self.matches_pair(&[user, b":", password].concat())
    }

    /// Whether the credentials of a `Proxy-Authorization` field (RFC 7617) are correct.
    pub(super) fn matches_basic(&self, field: &[u8]) -> bool {
        let Some((scheme, rest)) = field.split_at_checked(b"Basic ".len()) else { return false };
        scheme.eq_ignore_ascii_case(b"Basic ")
            && base64::decode(rest.trim_ascii()).is_some_and(|pair| self.matches_pair(&pair))
    }

    fn matches_pair(&self, pair: &[u8]) -> bool {
        hmac::verify(&self.key, pair, self.tag.as_ref()).is_ok()
    }
}

impl fmt::Debug for ProxyPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProxyPassword")
    }
}

/// Returns `user:password`, the only line of a file.
fn parse(text: &[u8]) -> Option<&[u8]> {
    let line = text.strip_suffix(b"\n").unwrap_or(text);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let colon = line.iter().position(|byte| *byte == b':')?;
    let fits = |part: &[u8]| (1..=MAX_LENGTH).contains(&part.len());
    let is_valid = fits(&line[..colon])
        && fits(&line[colon + 1..])
        && !line.iter().any(|byte| byte.is_ascii_control());
    is_valid.then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_one_line_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        let read = |text: &str, mode: u32| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            ProxyPassword::read(&path)
        };
        for text in ["me:secret", "me:secret\n", "me:secret\r\n"] {
            assert!(read(text, 0o600).unwrap().matches(b"me", b"secret"));
        }
        assert!(read("me:a:b", 0o400).unwrap().matches(b"me", b"a:b"));
        for mode in [0o640, 0o604, 0o620] {
            let error = read("me:secret", mode).unwrap_err();
            assert!(matches!(error, ProxyPasswordError::InsecurePermissions(_)), "{error}");
        }
        let long = "x".repeat(MAX_LENGTH + 1);
        for text in ["", "me", ":secret", "me:", "me:a\nyou:b\n", "me:\u{1}", &format!("me:{long}")]
        {
            let error = read(text, 0o600).unwrap_err();
            assert!(matches!(error, ProxyPasswordError::Malformed(_)), "{text:?}");
            assert!(!error.to_string().contains("secret"));
        }
    }

    #[test]
    fn only_the_whole_pair_matches() {
        let password = ProxyPassword::new(b"me:se:cret").unwrap();
        assert!(password.matches(b"me", b"se:cret"));
        for (user, wrong) in
            [("me", "se:cre"), ("me", "se:crett"), ("ME", "se:cret"), ("", ""), ("me:se", "cret")]
        {
            assert!(!password.matches(user.as_bytes(), wrong.as_bytes()), "{user} {wrong}");
        }
        for right in ["Basic bWU6c2U6Y3JldA==", "basic  bWU6c2U6Y3JldA== "] {
            assert!(password.matches_basic(right.as_bytes()), "{right}");
        }
        for wrong in ["", "Basic", "Basic ", "Basic bWU6c2U6Y3JldAA=", "Bearer bWU6c2U6Y3JldA=="] {
            assert!(!password.matches_basic(wrong.as_bytes()), "{wrong}");
        }
        assert!(!format!("{password:?}").contains("cret"));
    }
}
