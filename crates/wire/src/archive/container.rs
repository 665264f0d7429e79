//! The file of a recording: a zip archive with `har.har` (HAR 1.2, UTF-8) and one member per body,
//! `bodies/` and the SHA-256 of its bytes.
//!
//! [`Writer`] adds bodies while the recording runs, and the HAR and the directory at its end. Each
//! member has its lengths in the header before it, so that [`recover`] finds the bodies of a file
//! that lacks a directory. [`Reader`] trusts nothing: it checks names, lengths and overlaps when it
//! opens a file, and each body against its name. [`check`] compares a file with its [`Archive`].
//!
//! The layout is that of PKWARE's APPNOTE 6.3.10, with zip64 where a number needs it. The code is not
//! that of a library, because libraries neither continue behind a file without a directory nor return
//! the file if the directory does not fit, and they merge members of equal names.
//!
//! [`Archive`]: super::Archive

mod check;
mod format;
mod member;
mod reader;
mod recover;
#[cfg(test)]
mod tests;
mod writer;

use std::io;

use thiserror::Error;

use super::Digest;

pub use check::{Problem, Side, check};
pub use member::BodyReader;
pub use reader::Reader;
pub use recover::{Recovered, recover};
pub use writer::{BodyError, BodyWriter, Cut, FinishError, Writer};

/// Name of the member with the HAR.
pub const HAR_NAME: &str = "har.har";
/// Maximum length of the HAR, in bytes.
pub const MAX_HAR: u64 = 256 << 20;
/// Maximum length of a body, in bytes.
pub const MAX_BODY: u64 = 1 << 30;
/// Maximum ratio of the length of a member to its compressed length. Members up to 1 MiB may exceed
/// it.
pub const MAX_RATIO: u64 = 250;

/// Up to this length, a member may have any ratio, and the writer keeps it in memory.
const SMALL: u64 = 1 << 20;

/// Why a file is not a recording, or cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ContainerError {
    #[error("the archive cannot be read: {0}")]
    Io(io::Error),
    #[error("the file is not a whole zip archive: it lacks the directory at its end")]
    NoDirectory,
    #[error("the archive continues in another file")]
    Split,
    #[error("the directory of the zip archive is broken at byte {at}")]
    Directory { at: u64 },
    #[error("the archive has no member {HAR_NAME}")]
    NoHar,
    #[error("member {name} has an unsafe name: it could leave the folder of the archive")]
    UnsafeName { name: String },
    #[error("member {name} is in the archive twice")]
    Duplicate { name: String },
    #[error("member {name} is encrypted")]
    Encrypted { name: String },
    #[error("member {name} is compressed by method {method}, not by deflate")]
    Method { name: String, method: u16 },
    #[error("member {name} has {size} bytes, more than {limit}")]
    TooLong { name: String, size: u64, limit: u64 },
    #[error("member {name} expands to more than {MAX_RATIO} times its length")]
    Ratio { name: String },
    #[error("member {name} overlaps the member behind it or the directory")]
    Overlap { name: String },
    #[error("member {name} differs from its entry in the directory, or is not there")]
    Header { name: String },
    #[error("member {name} does not have the length that the directory states")]
    Length { name: String },
    #[error("member {name} is damaged")]
    Damaged { name: String },
    #[error("member {name} has the wrong hash: the SHA-256 of its bytes is {found}")]
    WrongHash { name: String, found: Digest },
    #[error("the archive has no body {digest}")]
    MissingBody { digest: Digest },
    #[error("{HAR_NAME} is not UTF-8 at byte {at}")]
    Text { at: usize },
}

impl From<io::Error> for ContainerError {
    /// Returns the error that a [`BodyReader`] wrapped, if it did.
    fn from(error: io::Error) -> Self {
        error.downcast().unwrap_or_else(Self::Io)
    }
}

impl From<ContainerError> for io::Error {
    fn from(error: ContainerError) -> Self {
        match error {
            ContainerError::Io(error) => error,
            error => Self::new(io::ErrorKind::InvalidData, error),
        }
    }
}

/// Returns the name of the member with a body.
fn body_name(digest: &Digest) -> String {
    format!("bodies/{digest}")
}

/// Returns the digest of the body with this name. `None` if the member is not a body.
fn named_body(name: &[u8]) -> Option<Digest> {
    let digest = Digest::parse(str::from_utf8(name.strip_prefix(b"bodies/")?).ok()?)?;
    // Digits are lower case: another spelling would name a body twice.
    (body_name(&digest).as_bytes() == name).then_some(digest)
}
