//! What a transfer tells while it runs, and at its end.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use manyways_proto::fetch::{FaultClass, Reason};
use manyways_trace::{Rate, Size, Span};

use super::dial::Protocol;
use super::location::LocationError;
use super::sink::SinkError;
use super::tls::TrustError;

/// What happens while a transfer runs.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// Something that the user should know; one sentence without a full stop.
    Note(&'a str),
    /// The object is elsewhere.
    Moved(&'a str),
    /// A path has reached its server.
    Connected {
        /// The path's name.
        path: &'a str,
        /// The server.
        server: IpAddr,
        /// The HTTP version.
        protocol: Protocol,
    },
    /// How far it is, several times a second.
    Progress(&'a Progress),
}

/// How far a transfer is.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Progress {
    /// Since the start.
    pub elapsed: Span,
    /// The object's length, once it is known.
    pub length: Option<Size>,
    /// Bytes that are there, an earlier run's included.
    pub done: Size,
    /// Each path, in the order in which they were given.
    pub paths: Vec<PathProgress>,
}

/// What a path does.
#[derive(Clone, PartialEq, Debug)]
pub struct PathProgress {
    /// Its name.
    pub name: String,
    /// Bytes that it brought and that were needed.
    pub bytes: Size,
    /// How fast it is now, once that is known.
    pub rate: Option<Rate>,
}

/// What a transfer did.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// The URL that was asked for.
    pub url: String,
    /// Bytes that this run brought and that were needed. With a resumed download, the others were
    /// there before.
    pub bytes: Size,
    /// The object's length, where it is known.
    pub length: Option<Size>,
    /// From the start, name look-up included, to the last byte.
    pub elapsed: Span,
    /// From the start to the first byte of the body (of an empty object: to its head).
    pub first_byte: Option<Span>,
    /// The hash of the whole object, where it was asked for.
    pub sha256: Option<[u8; 32]>,
    /// Bytes of answers over metered paths, needed or not.
    pub metered: Size,
    /// Bytes that came a second time, or for a request that had been cancelled.
    pub duplicate: Size,
    /// Each path, in the order in which they were given.
    pub paths: Vec<PathReport>,
}

/// What a path did.
#[derive(Clone, PartialEq, Debug)]
pub struct PathReport {
    /// Its name.
    pub name: String,
    /// Its bytes cost money.
    pub metered: bool,
    /// Who answered last; `None` where no connection came about.
    pub server: Option<IpAddr>,
    /// The HTTP version of the last connection.
    pub protocol: Option<Protocol>,
    /// Bytes that it brought and that were needed.
    pub bytes: Size,
    /// Requests that it sent.
    pub requests: u64,
    /// Its bytes over the time from its first request to its last byte.
    pub rate: Rate,
}

/// What is left of a transfer that failed, for a later run to go on with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kept {
    /// The unfinished file.
    pub part: PathBuf,
    /// Bytes in it.
    pub done: Size,
    /// Bytes that it will have.
    pub length: Size,
}

/// A transfer that failed: why, what it did, and what is left of it.
#[derive(Debug)]
pub struct FetchError {
    /// Why.
    pub cause: Cause,
    /// What a later run can go on with.
    pub kept: Option<Kept>,
    /// What was done before it failed.
    pub report: Box<Report>,
}

/// Why a transfer failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// No path was given.
    #[error("there is no network to fetch over")]
    NoPath,
    /// The object cannot be had from the server.
    #[error("{}", reason(.0, .1))]
    Refused(Reason, Vec<String>),
    /// The files cannot be written or read.
    #[error(transparent)]
    Sink(#[from] SinkError),
    /// The object is not the one that was wanted.
    #[error("the checksum is wrong: the object's SHA-256 is {found}, not {wanted}")]
    Checksum {
        /// As the caller said, in hexadecimal.
        wanted: String,
        /// As it is, in hexadecimal.
        found: String,
    },
    /// The caller stopped it.
    #[error("stopped before the end")]
    Stopped,
}

/// Why no client came about.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// No usable trust.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// A header's name or value has characters that no header has.
    #[error("{0:?} is not a header like 'Name: value'")]
    Header(String),
    /// A header that the fetch sets itself.
    #[error("the header {0} is set by the fetch itself")]
    Reserved(String),
    /// Not a URL of an object.
    #[error(transparent)]
    Location(#[from] LocationError),
}

/// The sentence for why the core gave up; `names` are the paths' names by number.
fn reason(reason: &Reason, names: &[String]) -> String {
    match reason {
        Reason::Status(status) => {
            let known = http::StatusCode::from_u16(*status).ok();
            let known = known.and_then(|status| status.canonical_reason());
            match known {
                Some(words) => format!("the server answered {status} {words}"),
                None => format!("the server answered with status {status}"),
            }
        }
        Reason::Nonsense(words) => format!("the server's answer makes no sense: {words}"),
        Reason::Changed => {
            "the object has changed on the server since its first bytes were fetched".into()
        }
        Reason::AllowanceSpent => {
            "only metered networks are left, and what may be used of them is spent".into()
        }
        Reason::CannotContinue(fault) => format!(
            "the transfer broke off ({fault}), and this server's objects cannot be continued"
        ),
        Reason::NoPathLeft(faults) => {
            let faults: Vec<String> = faults
                .iter()
                .map(|(path, fault)| match names.get(path.0) {
                    Some(name) => format!("{name}: {fault}"),
                    None => fault.to_string(),
                })
                .collect();
            match faults.as_slice() {
                [only] => format!("the only network failed ({only})"),
                _ => format!("every network failed ({})", faults.join("; ")),
            }
        }
        _ => "the object could not be fetched".into(),
    }
}

impl FetchError {
    /// What the user can do, as a clause.
    pub fn hint(&self) -> Option<String> {
        if let Some(Kept { done, length, .. }) = &self.kept {
            let before = match &self.cause {
                Cause::Sink(SinkError::Full(_)) => "make room, then ",
                Cause::Refused(Reason::AllowanceSpent, _) => {
                    "raise --metered or wait for another network, then "
                }
                _ => "",
            };
            return Some(format!(
                "{before}run the same command with -c to go on; {done} of {length} are there"
            ));
        }
        let text = match &self.cause {
            Cause::Refused(Reason::Changed, _) => "run it without -c to fetch the new version",
            Cause::Refused(Reason::AllowanceSpent, _) => {
                "--metered yes uses metered networks without a limit"
            }
            Cause::Refused(Reason::NoPathLeft(faults), _)
                if !faults.is_empty() && faults.iter().all(|(_, f)| f.class == FaultClass::Tls) =>
            {
                "--cacert FILE trusts another authority; check the clock and the name too"
            }
            Cause::Refused(Reason::NoPathLeft(faults), _)
                if faults.iter().any(|(_, f)| f.class == FaultClass::Unfit) =>
            {
                "check the URL; MANYWAYS_LOG=debug shows each step"
            }
            Cause::Refused(Reason::NoPathLeft(_), _) | Cause::NoPath => {
                "`manyways paths` shows which networks can be used"
            }
            Cause::Refused(Reason::Status(401 | 403), _) => {
                "-H 'Authorization: …' sends what the server may ask for"
            }
            Cause::Sink(SinkError::Full(_)) => "make room, or write elsewhere with -o",
            Cause::Sink(SinkError::OtherUrl { .. }) => {
                "run it without -c to begin anew, or write elsewhere with -o"
            }
            Cause::Sink(SinkError::Resume { .. } | SinkError::Shorter(_)) => {
                "run it without -c to begin anew"
            }
            Cause::Sink(SinkError::NotAFile(_)) => "name a file with -o",
            Cause::Sink(SinkError::Write { .. }) => "write elsewhere with -o",
            Cause::Checksum { .. } => "what came was thrown away; compare the checksum's source",
            _ => return None,
        };
        Some(text.to_owned())
    }
}

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause.fmt(f)
    }
}

impl std::error::Error for FetchError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}
