//! Events of a transfer, and its report.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use http::HeaderMap;
use manyways_proto::fetch::{
    Evidence, FetchFailure, PathError, PathErrorKind, PathId, ValidatorKind, VersionProof,
};
use manyways_unit::{Rate, Size, Span};

use super::dial::Protocol;
use super::location::{Location, LocationError};
use super::sink::SinkError;
use crate::path::TrustError;

/// An event of a transfer.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// Information for the user; one sentence without a full stop.
    Note(&'a str),
    /// A redirect was followed to this URL.
    Redirected(&'a str),
    /// The head of a response arrived while the object was unknown. The last one that describes it
    /// before the first byte counts: a transfer may begin again.
    Response(&'a ResponseHead),
    /// A path has connected to its server.
    Connected { path: &'a str, server: IpAddr, protocol: Protocol },
    /// Progress, several times per second.
    Progress(&'a Progress),
    /// A record for the event log; only if [`ClientBuilder::records`] is set.
    ///
    /// [`ClientBuilder::records`]: super::ClientBuilder::records
    Record(&'a manyways_record::event::Record<super::event::TransferEvent>),
}

/// The head of a response before the first byte of its object.
#[derive(Clone, PartialEq, Debug)]
pub struct ResponseHead {
    pub status: u16,
    pub headers: HeaderMap,
    /// The URL that answered: the last one of a chain of redirects.
    pub location: Arc<Location>,
    /// Length of the whole object, also if the transfer is of a part of it; `None` if the response
    /// does not contain it.
    pub total: Option<u64>,
    /// Whether the response describes the object, and does not refuse it.
    pub is_description: bool,
}

/// State of a running transfer.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Progress {
    /// Time since the start.
    pub elapsed: Span,
    /// Length of the object; `None` if it is unknown.
    pub length: Option<Size>,
    /// Received bytes, including those of an earlier run.
    pub done: Size,
    /// In the order of the client's paths.
    pub paths: Vec<PathProgress>,
}

/// One path's share of a running transfer.
#[derive(Clone, PartialEq, Debug)]
pub struct PathProgress {
    pub name: String,
    /// Useful bytes of the path.
    pub bytes: Size,
    /// Current rate; `None` before the first measurement.
    pub rate: Option<Rate>,
    /// Application RTT; `None` before the first measurement.
    pub rtt: Option<Span>,
}

/// Result of a transfer.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Report {
    /// The requested URL.
    pub url: String,
    /// Useful bytes of this run, without those of an earlier run.
    pub bytes: Size,
    /// Length of the object; `None` if it is unknown.
    pub length: Option<Size>,
    /// From the start, including DNS, to the last byte.
    pub elapsed: Span,
    /// From the start to the first body byte, or to the response head of an empty object.
    pub first_byte: Option<Span>,
    /// Hash of the whole object; `None` if it was not requested.
    pub sha256: Option<[u8; 32]>,
    /// Validator of the object; `None` if it is unknown or unusable.
    pub validator: Option<String>,
    /// How soon a change shows in the validator; `None` without one.
    pub validator_kind: Option<ValidatorKind>,
    /// Whether the object changed on the server, so that the transfer began again or failed.
    pub changed: bool,
    /// Proof of the version of the bytes; `None` if the transfer did not succeed.
    pub version: Option<VersionProof>,
    /// Response bytes over metered paths, including duplicates.
    pub metered: Size,
    /// Bytes that arrived twice, or for a cancelled request.
    pub duplicate: Size,
    /// Attempts after a failure, over all paths.
    pub retries: u64,
    /// Whether a server answered a range request with the whole object.
    pub ignores_ranges: bool,
    /// In the order of the client's paths.
    pub paths: Vec<PathReport>,
}

/// Result of one path.
#[derive(Clone, PartialEq, Debug)]
pub struct PathReport {
    pub name: String,
    pub metered: bool,
    /// Whether the limit for metered paths permitted the path no more requests.
    pub limit_reached: bool,
    /// Server of the last connection; `None` if no connection was established.
    pub server: Option<IpAddr>,
    /// The HTTP version of the last connection.
    pub protocol: Option<Protocol>,
    /// Useful bytes of the path.
    pub bytes: Size,
    pub requests: u64,
    /// Bytes divided by the time from the first request to the last byte.
    pub rate: Rate,
    /// Estimated application RTT at the end.
    pub rtt: Option<Span>,
    /// Overshoot: bytes past the end to which a request was cut.
    pub overshoot: Size,
    /// Bytes that had already arrived or were not needed, including the overshoot.
    pub duplicate: Size,
}

/// Part file of a failed transfer, which a later run can continue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartFile {
    pub path: PathBuf,
    /// Received bytes in the file.
    pub received: Size,
    /// Length of the complete file.
    pub length: Size,
}

/// A failed transfer.
#[derive(Debug)]
pub struct FetchError {
    pub cause: Cause,
    /// `None` if a later run cannot continue the transfer.
    pub part_file: Option<PartFile>,
    /// Result up to the failure.
    pub report: Box<Report>,
}

/// Why a transfer failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// No path was given.
    #[error("no network can be used for this download")]
    NoPath,
    /// The server does not deliver the object.
    #[error("{}", failure_text(.0, .1))]
    Refused(FetchFailure, Vec<String>),
    /// The files cannot be written or read.
    #[error(transparent)]
    Sink(#[from] SinkError),
    /// The object differs from the expected one.
    #[error("the checksum is wrong: the object's SHA-256 is {found}, not {wanted}")]
    Checksum {
        /// The caller's value, in hexadecimal.
        wanted: String,
        /// The computed value, in hexadecimal.
        found: String,
    },
    /// The object differs from the one that the server announced.
    #[error("the object's SHA-256 is {found}, and the server announced {announced} (Repr-Digest)")]
    Digest {
        /// The server's value, in hexadecimal.
        announced: String,
        /// The computed value, in hexadecimal.
        found: String,
    },
    /// The caller stopped the transfer.
    #[error("stopped before the end")]
    Stopped,
}

/// Why a client cannot be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The trust cannot be loaded.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The name or value of a header contains invalid characters.
    #[error("{0:?} is not a header like 'Name: value'")]
    Header(String),
    /// A header that the fetch sets itself.
    #[error("the header {0} is set by the fetch itself")]
    Reserved(String),
    /// Not a URL of an object.
    #[error(transparent)]
    Location(#[from] LocationError),
}

/// Returns the message for a reason; `names` are the paths' names by number.
fn failure_text(reason: &FetchFailure, names: &[String]) -> String {
    match reason {
        FetchFailure::Status(511) => {
            "the network requires a login (511 Network Authentication Required)".into()
        }
        FetchFailure::Disagreement(answers) => {
            let answers = answers.iter().map(|(path, answer)| {
                let name = names.get(path.0).map_or("a network", String::as_str);
                format!("{name}: {}", answer_text(answer))
            });
            let answers = answers.collect::<Vec<_>>().join("; ");
            format!("the networks disagree about the object ({answers})")
        }
        FetchFailure::Status(status) => status_text(*status),
        FetchFailure::RetryTooLate { status, wait, .. } => {
            format!(
                "{} and asks to wait for {wait}, longer than retries may take",
                status_text(*status)
            )
        }
        FetchFailure::InvalidResponse(words) => {
            format!("the server's response is inconsistent: {words}")
        }
        FetchFailure::RangesIgnored => {
            "the server does not answer range requests, and only a part of the object is wanted"
                .into()
        }
        FetchFailure::Changed => {
            "the object has changed on the server since its first bytes were fetched".into()
        }
        FetchFailure::MeteredLimitReached => {
            "only metered networks are left, and their limit is used up".into()
        }
        FetchFailure::CannotContinue(fault) => format!(
            "the transfer broke off ({fault}), and this server does not support continuing downloads"
        ),
        FetchFailure::NoPathLeft(faults) => path_errors_text(faults, names),
        FetchFailure::IdleTimeout(lasted) => {
            let lasted = lasted.as_secs_f64();
            match names {
                [name] => format!("no data arrived over {name} for {lasted:.0} s"),
                _ => format!("no data arrived over any network for {lasted:.0} s"),
            }
        }
        _ => "the object could not be fetched".into(),
    }
}

fn status_text(status: u16) -> String {
    let known = http::StatusCode::from_u16(status).ok();
    let answer = match known.and_then(|status| status.canonical_reason()) {
        Some(words) => format!("the server answered {status} {words}"),
        None => format!("the server answered with status {status}"),
    };
    match status {
        202 => answer + ": the object does not exist yet",
        204 | 205 => answer + ": there is no object at this URL",
        200..=299 => answer + ", which does not deliver the object",
        _ => answer,
    }
}

/// Formats the answer of one network, for a comparison with others.
fn answer_text(answer: &Evidence) -> String {
    let host = answer.other_host.as_ref().map_or(String::new(), |host| format!(" from {host}"));
    match answer.length {
        _ if !answer.is_description() => format!("status {}{host}", answer.status),
        Some(length) => format!("{length} bytes{host}"),
        None => format!("an unknown number of bytes{host}"),
    }
}

/// Formats the faults of all paths; networks with the same fault share one text.
fn path_errors_text(faults: &[(PathId, PathError)], names: &[String]) -> String {
    let mut groups: Vec<(Vec<&str>, String)> = Vec::new();
    for (path, error) in faults {
        let words = error.to_string();
        let name = names.get(path.0).map_or("a network", String::as_str);
        match groups
            .iter_mut()
            .find(|(_, other)| without_name_server(other) == without_name_server(&words))
        {
            Some((names, shared)) => {
                names.push(name);
                *shared = without_name_server(shared).to_owned();
            }
            None => groups.push((vec![name], words)),
        }
    }
    match groups.as_slice() {
        [(names, words)] if names.len() == 1 => {
            format!("the only network failed ({}: {words})", names[0])
        }
        [(_, words)] => format!("every network failed ({words})"),
        groups => {
            let groups: Vec<String> = groups
                .iter()
                .map(|(names, words)| format!("{}: {words}", names.join(", ")))
                .collect();
            format!("every network failed ({})", groups.join("; "))
        }
    }
}

/// Removes the name server from a DNS fault, so that the same result of several servers is one
/// text.
fn without_name_server(words: &str) -> &str {
    words.split(", according to ").next().unwrap_or(words)
}

impl FetchError {
    /// Returns a step that may solve the error, as a clause.
    pub fn hint(&self) -> Option<String> {
        if let Some(PartFile { received: done, length, .. }) = &self.part_file {
            let before = match &self.cause {
                Cause::Sink(SinkError::Full(_) | SinkError::TooSmall { .. }) => {
                    "free some space, then "
                }
                Cause::Refused(FetchFailure::MeteredLimitReached, _) => {
                    "increase --metered or wait for another network, then "
                }
                _ => "",
            };
            let there = received_text(*done, *length);
            return Some(format!("{before}run the same command with -c to continue; {there}"));
        }
        let text = match &self.cause {
            Cause::Refused(FetchFailure::Changed, _) => {
                "run it without -c to fetch the new version"
            }
            Cause::Refused(FetchFailure::MeteredLimitReached, _) => {
                "--metered yes uses metered networks without a limit"
            }
            Cause::Refused(FetchFailure::NoPathLeft(faults), _) => hint_for(faults),
            Cause::NoPath | Cause::Refused(FetchFailure::IdleTimeout(_), _) => PATHS_HINT,
            Cause::Refused(FetchFailure::Disagreement(_), _) => {
                "--via NAME selects the network to believe; --size or --checksum decides by the file"
            }
            Cause::Refused(FetchFailure::Status(511), _) => LOGIN_HINT,
            Cause::Refused(FetchFailure::Status(404 | 410), _) => "check the URL",
            Cause::Refused(FetchFailure::Status(401 | 403), _) => {
                "-u USER:PASSWORD, --netrc or -H 'Authorization: …' authenticates you"
            }
            Cause::Refused(
                FetchFailure::Status(202 | 408 | 429 | 500 | 502 | 503 | 504 | 507 | 509),
                _,
            ) => "try again later",
            Cause::Refused(FetchFailure::RetryTooLate { total, .. }, _) => {
                let seconds = total.as_secs_f64().ceil();
                return Some(format!("try again later, or wait with --retry-max-time {seconds}"));
            }
            Cause::Refused(FetchFailure::Status(_) | FetchFailure::InvalidResponse(_), _) => {
                "check the URL; MANYWAYS_LOG=debug shows each step"
            }
            Cause::Refused(FetchFailure::CannotContinue(_), _) => {
                "run the same command again to start over"
            }
            Cause::Sink(SinkError::Full(_) | SinkError::TooSmall { .. }) => {
                "free some space, or name a file on another disk with -o"
            }
            Cause::Sink(SinkError::OtherUrl { .. }) => {
                "run it without -c to start over, or write to another file with -o"
            }
            Cause::Sink(SinkError::Resume { .. } | SinkError::PartFileTooShort(_)) => {
                "run it without -c to start over"
            }
            Cause::Sink(SinkError::Busy(_)) => "wait for it, or name another file with -o",
            Cause::Sink(SinkError::NotAFile(_)) => "name a file with -o",
            Cause::Sink(SinkError::NotSeekable(_)) => "-o - writes to standard output, in order",
            Cause::Sink(SinkError::NameTooLong { .. }) => "give it a shorter name with -o",
            Cause::Sink(SinkError::Write { .. } | SinkError::Unusable { .. }) => {
                "name another file with -o"
            }
            Cause::Checksum { .. } => {
                "do not use the received data; check the value of --checksum at its source"
            }
            Cause::Digest { .. } => {
                "do not use the received data; --checksum with the correct hash overrides the server"
            }
            Cause::Sink(SinkError::AlreadyDelivered) => "run it again, or write to a file with -o",
            _ => return None,
        };
        Some(text.to_owned())
    }
}

/// A rounded size must not suggest that an incomplete file is complete.
fn received_text(done: Size, length: Size) -> String {
    if done < length && done.to_string() == length.to_string() {
        return format!("all but {} of {length} are received", length.saturating_sub(done));
    }
    format!("{done} of {length} are received")
}

const LOGIN_HINT: &str = "log in to the network with a browser";
const PATHS_HINT: &str = "`manyways paths` shows which networks can be used";

/// Returns the hint for a transfer whose paths all failed.
fn hint_for(faults: &[(PathId, PathError)]) -> &'static str {
    use PathErrorKind::{
        CaptivePortal, Certificate, Dns, Downgrade, NoSuchName, NotTls, Protocol, Refused,
        Truncated, Unavailable, UnusableResponse,
    };
    let all = |classes: &[PathErrorKind]| {
        !faults.is_empty() && faults.iter().all(|(_, fault)| classes.contains(&fault.kind))
    };
    let any = |class: PathErrorKind| faults.iter().any(|(_, fault)| fault.kind == class);
    if any(CaptivePortal) {
        LOGIN_HINT
    } else if all(&[Refused]) {
        "check the port in the URL, and whether the server runs; --retry N waits for it"
    } else if all(&[NoSuchName]) {
        "check the spelling of the host; --dns NAME=ADDRESS asks another name server"
    } else if all(&[Dns, NoSuchName]) {
        "`manyways paths` shows the name servers of each network, --dns NAME=ADDRESS replaces them"
    } else if all(&[Unavailable]) {
        "try again later"
    } else if all(&[Protocol, Truncated]) {
        "check the scheme and the port in the URL"
    } else if all(&[NotTls]) {
        "check the port in the URL; a server without TLS has an http:// URL"
    } else if all(&[Certificate]) {
        "check this host's clock and the name in the URL; --cacert FILE trusts another authority"
    } else if any(Downgrade) {
        "if you trust the network, fetch the http:// URL directly"
    } else if any(UnusableResponse) {
        "check the URL; MANYWAYS_LOG=debug shows each step"
    } else {
        PATHS_HINT
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

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(faults: &[(PathErrorKind, &str)]) -> (String, String) {
        let faults = faults.iter().enumerate();
        let faults: Vec<(PathId, PathError)> = faults
            .map(|(id, (class, words))| (PathId(id), PathError::transient(*class, *words)))
            .collect();
        let names = ["wifi", "lte", "usb"].map(str::to_owned).to_vec();
        (path_errors_text(&faults, &names), hint_for(&faults).to_owned())
    }

    #[test]
    fn networks_that_fail_the_same_way_share_the_words() {
        let refused = (PathErrorKind::Refused, "no connection to a: connection refused");
        let (words, hint) = failed(&[refused, refused]);
        assert_eq!(words, "every network failed (no connection to a: connection refused)");
        assert!(hint.contains("check the port"), "{hint}");
        let (words, hint) =
            failed(&[refused, (PathErrorKind::LinkDown, "its link is down"), refused]);
        assert_eq!(
            words,
            "every network failed (wifi, usb: no connection to a: connection refused; \
             lte: its link is down)"
        );
        assert_eq!(hint, PATHS_HINT);
        assert_eq!(
            failed(&[refused]).0,
            "the only network failed (wifi: no connection to a: connection refused)"
        );
    }

    #[test]
    fn what_is_there_is_never_all_before_it_is() {
        let there = |done, length| received_text(Size::from_bytes(done), Size::from_bytes(length));
        assert_eq!(there(1_200_000, 2_000_001), "1.2 MB of 2 MB are received");
        assert_eq!(there(1_999_990, 2_000_001), "all but 11 B of 2 MB are received");
        assert_eq!(there(2_000_001, 2_000_001), "2 MB of 2 MB are received");
    }

    #[test]
    fn each_kind_of_failure_has_its_hint() {
        let one = "the name a does not exist, according to 10.0.0.1";
        let other = "the name a does not exist, according to 10.0.0.2";
        let (words, hint) =
            failed(&[(PathErrorKind::NoSuchName, one), (PathErrorKind::NoSuchName, other)]);
        assert_eq!(words, "every network failed (the name a does not exist)");
        assert!(hint.contains("spelling"), "{hint}");
        for (class, words, part) in [
            (PathErrorKind::Dns, "no name server of wifi answers for a", "--dns"),
            (PathErrorKind::NotTls, "the server does not speak TLS", "http://"),
            (PathErrorKind::Truncated, "the server closed the connection", "scheme and the port"),
            (PathErrorKind::Protocol, "the server does not answer in HTTP/1.1", "the scheme"),
            (PathErrorKind::Certificate, "the certificate of a is not accepted: x", "--cacert"),
            (
                PathErrorKind::Downgrade,
                "the server redirects from https to http://a/, which",
                "trust",
            ),
            (
                PathErrorKind::UnusableResponse,
                "the server redirects more than 10 times",
                "check the URL",
            ),
            (PathErrorKind::Stalled, "no connection within 15 s", "manyways paths"),
            (PathErrorKind::CaptivePortal, "its answer looks like a login page", "log in"),
        ] {
            let hint = failed(&[(class, words)]).1;
            assert!(hint.contains(part), "{words}: {hint}");
        }
        let mixed = failed(&[
            (PathErrorKind::Certificate, "the certificate x"),
            (PathErrorKind::LinkDown, "y"),
        ])
        .1;
        assert_eq!(mixed, PATHS_HINT);
    }
}
