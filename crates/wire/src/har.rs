//! HAR 1.2 (HTTP Archive), the format in which browsers and proxies store recorded requests.
//!
//! [`read`] accepts the files of browsers, WebPagetest, Playwright and others. [`write()`] makes
//! files that viewers open, and that read back as an equal [`Archive`].
//!
//! # How a file of another program becomes an archive
//! - **Left out**: entries without an `http:` or `https:` URL (`data:`, `blob:`, `about:`, `wss:`),
//!   entries that left HTTP (status 101), and entries that are damaged. Each has a warning.
//! - **No response**: a status outside of 200 to 599 (browsers write 0, -1 or -2).
//! - **Order**: by start. An entry without a start gets that of the entry before it.
//! - **Protocol**: `_protocol`, else `httpVersion` of the response, else of the request. If all are
//!   unknown: HTTP/2 if there is a stream number or a pseudo field, else HTTP/1.1. SPDY counts as
//!   HTTP/2, QUIC as HTTP/3.
//! - **Head**: fields without a valid name are left out, pseudo fields too. A value with line feeds,
//!   with which Chromium joins fields of one name, becomes several fields.
//! - **Body with a text**: HAR stores decoded content, an archive encoded bytes. So the decoded bytes
//!   become the body, the field `Content-Encoding` is removed, and `Content-Length` has the new length.
//!   Text is stored as UTF-8.
//! - **Body without a text**: hollow. If the response has no content coding, by its head and by
//!   `content.compression`, its length is
//!   `content.size`, else `Content-Length`, else `bodySize`. If it has one: `_objectSize`, else
//!   `content.size` without `content.compression`, else `bodySize`, `Content-Length`, `_transferSize`
//!   without the head, `content.size`.
//! - **Connections**: by `_socket` or `connection`, with server address, port and protocol, and in
//!   HTTP/1 also the host. The number of the URL's port in `connection` (Firefox) identifies none. An
//!   entry without such an identifier has a connection by host, scheme, port and protocol: the same
//!   for all in HTTP/2 and HTTP/3; in HTTP/1 a new one if the entry has a time to connect or all
//!   others are busy. It has none if other entries of the file have identifiers and neither `bodySize`
//!   nor `_transferSize` is positive: the browser's cache answered.
//! - **Round-trip time** of a connection: the minimum of `_server_rtt` and of `connect` without `ssl`.
//! - **Think time**: `wait` without that round-trip time; unknown without one.
//! - **Arrivals** of parts: `_chunks` of WebPagetest, if they add up to the encoded length.
//!
//! # Fields beyond HAR
//! Files of [`write()`] have an object `_manyways` in the log, in each page and in each entry; see
//! the types of the module `extra` in the source. Its `schema` in the log is [`SCHEMA`]. Times are whole
//! nanoseconds, those of `started`, `opened` and `closed` since the origin of [`manyways_unit::Time`].
//! - log: `creator`, `connections`, `tunnelled`;
//! - page: `started`, `content_loaded`, `loaded`;
//! - entry: `connection` (index), `stream`, `started`, `timings`, `think`, `abort`; `request` and
//!   `response` with `protocol`, `trailers` and `body` (`length`, `decoded_length`, `digest`,
//!   `announced`, `encoded`); the `response` also with `interim` and `arrivals` (pairs of time and
//!   bytes). Without `response`, none came.
//!
//! A field with a value that is not UTF-8 has its bytes in `_base64`. `_file` beside `mimeType` is the
//! name of a file with a body, as in the zip files of Playwright.

mod base64;
mod body;
mod connections;
mod date;
mod entry;
mod extra;
mod head;
mod own;
mod raw;
mod read;
mod sizes;
#[cfg(test)]
mod tests;
mod url;
mod write;

use std::fmt;

use crate::archive::{Archive, Digest};

pub use read::{read, read_with_files};
pub use url::request_url;
pub use write::{Content, write};

/// Name and version of the fields beyond HAR.
pub const SCHEMA: &str = "manyways.archive/1";
/// Entries in a file; more are an error.
pub const MAX_ENTRIES: usize = 200_000;
/// Pages in a file; further ones are ignored.
pub const MAX_PAGES: usize = 10_000;
/// Fields in a head; an entry with more is left out.
pub const MAX_FIELDS: usize = 1_000;
/// Bytes of names and values in a head; an entry with more is left out.
pub const MAX_HEAD_LENGTH: usize = 1 << 20;
/// Length of a body of which the file has only the length; longer ones are left out.
pub const MAX_HOLLOW_LENGTH: u64 = 1 << 40;

/// A file that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Import {
    pub archive: Archive,
    /// Bodies that the file contained, each once. Those in files beside it, too, if
    /// [`read_with_files`] got them.
    pub bodies: Vec<(Digest, Vec<u8>)>,
    /// Entries that are not in the archive; each has a warning.
    pub left_out: usize,
    pub warnings: Vec<Warning>,
}

/// A problem that does not make the file useless.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Number of the entry, from 1. `None`: the file.
    pub entry: Option<usize>,
    pub message: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.entry {
            Some(number) => write!(f, "entry {number}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// Reasons why a file cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HarError {
    #[error("it is not JSON: {message} at line {line}, column {column}")]
    NotJson { message: String, line: usize, column: usize },
    /// The JSON ends too early.
    #[error("it is cut off: it ends at line {line}, column {column}")]
    CutOff { line: usize, column: usize },
    #[error("it is not a HAR file: {0}")]
    NotHar(String),
    #[error("it has {0} entries, more than {MAX_ENTRIES}")]
    TooManyEntries(usize),
    /// The fields beyond HAR have another version.
    #[error("it has the format {0}, and this version reads {SCHEMA}")]
    Schema(String),
    /// The fields beyond HAR of the log are damaged.
    #[error("its field _manyways is damaged: {0}")]
    Damaged(String),
    /// The fields beyond HAR of an entry are damaged.
    #[error("entry {number}: {message}")]
    Entry { number: usize, message: String },
}
