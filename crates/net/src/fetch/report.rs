//! Events of a transfer, and its report.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use manyways_proto::fetch::{Fault, FaultClass, PathId, Reason};
use manyways_unit::{Rate, Size, Span};

use super::dial::Protocol;
use super::location::LocationError;
use super::sink::SinkError;
use super::tls::TrustError;

/// An event of a transfer.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// Information for the user; one sentence without a full stop.
    Note(&'a str),
    /// A redirect was followed to this URL.
    Moved(&'a str),
    /// A path has connected to its server.
    Connected { path: &'a str, server: IpAddr, protocol: Protocol },
    /// Progress, several times per second.
    Progress(&'a Progress),
    /// A record for the event log; only if [`ClientBuilder::records`] is set.
    ///
    /// [`ClientBuilder::records`]: super::ClientBuilder::records
    Record(&'a manyways_record::event::Record<super::event::TransferEvent>),
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
#[derive(Clone, PartialEq, Debug)]
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
    /// Response bytes over metered paths, including duplicates.
    pub metered: Size,
    /// Bytes that arrived twice, or for a cancelled request.
    pub duplicate: Size,
    /// In the order of the client's paths.
    pub paths: Vec<PathReport>,
}

/// Result of one path.
#[derive(Clone, PartialEq, Debug)]
pub struct PathReport {
    pub name: String,
    pub metered: bool,
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
    pub tail: Size,
    /// Bytes that had already arrived or were not needed, including the overshoot.
    pub duplicate: Size,
}

/// Part file of a failed transfer, which a later run can continue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kept {
    pub part: PathBuf,
    /// Received bytes in the file.
    pub done: Size,
    /// Length of the complete file.
    pub length: Size,
}

/// A failed transfer.
#[derive(Debug)]
pub struct FetchError {
    pub cause: Cause,
    /// `None` if a later run cannot continue the transfer.
    pub kept: Option<Kept>,
    /// Result up to the failure.
    pub report: Box<Report>,
}

/// Why a transfer failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// No path was given.
    #[error("there is no network to fetch over")]
    NoPath,
    /// The server does not deliver the object.
    #[error("{}", reason(.0, .1))]
    Refused(Reason, Vec<String>),
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
        Reason::Nonsense(words) => format!("the server's response is inconsistent: {words}"),
        Reason::Changed => {
            "the object has changed on the server since its first bytes were fetched".into()
        }
        Reason::AllowanceSpent => {
            "only metered networks are left, and their limit is used up".into()
        }
        Reason::CannotContinue(fault) => format!(
            "the transfer broke off ({fault}), and this server's objects cannot be continued"
        ),
        Reason::NoPathLeft(faults) => no_path_left(faults, names),
        Reason::Silence(lasted) => {
            let lasted = lasted.as_secs_f64();
            match names {
                [name] => format!("nothing has come over {name} for {lasted:.0} s"),
                _ => format!("nothing has come over any network for {lasted:.0} s"),
            }
        }
        _ => "the object could not be fetched".into(),
    }
}

/// Formats the faults of all paths; networks with the same fault share one text.
fn no_path_left(faults: &[(PathId, Fault)], names: &[String]) -> String {
    let mut groups: Vec<(Vec<&str>, String)> = Vec::new();
    for (path, fault) in faults {
        let words = fault.to_string();
        let name = names.get(path.0).map_or("a network", String::as_str);
        match groups.iter_mut().find(|(_, other)| without_witness(other) == without_witness(&words))
        {
            Some((names, shared)) => {
                names.push(name);
                *shared = without_witness(shared).to_owned();
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
fn without_witness(words: &str) -> &str {
    words.split(", according to ").next().unwrap_or(words)
}

impl FetchError {
    /// Returns a step that may solve the error, as a clause.
    pub fn hint(&self) -> Option<String> {
        if let Some(Kept { done, length, .. }) = &self.kept {
            let before = match &self.cause {
                Cause::Sink(SinkError::Full(_)) => "make room, then ",
                Cause::Refused(Reason::AllowanceSpent, _) => {
                    "raise --metered or wait for another network, then "
                }
                _ => "",
            };
            let there = there(*done, *length);
            return Some(format!("{before}run the same command with -c to go on; {there}"));
        }
        let text = match &self.cause {
            Cause::Refused(Reason::Changed, _) => "run it without -c to fetch the new version",
            Cause::Refused(Reason::AllowanceSpent, _) => {
                "--metered yes uses metered networks without a limit"
            }
            Cause::Refused(Reason::NoPathLeft(faults), _) => hint_for(faults),
            Cause::NoPath | Cause::Refused(Reason::Silence(_), _) => PATHS,
            Cause::Refused(Reason::Status(404 | 410), _) => "check the URL",
            Cause::Refused(Reason::Status(401 | 403), _) => {
                "-u USER:PASSWORD, --netrc or -H 'Authorization: …' authenticates you"
            }
            Cause::Refused(Reason::Status(429 | 500..=599), _) => "try again later",
            Cause::Refused(Reason::Status(_) | Reason::Nonsense(_), _) => {
                "check the URL; MANYWAYS_LOG=debug shows each step"
            }
            Cause::Refused(Reason::CannotContinue(_), _) => {
                "run the same command again to start over"
            }
            Cause::Sink(SinkError::Full(_)) => "make room, or write elsewhere with -o",
            Cause::Sink(SinkError::OtherUrl { .. }) => {
                "run it without -c to start over, or write to another file with -o"
            }
            Cause::Sink(SinkError::Resume { .. } | SinkError::Shorter(_)) => {
                "run it without -c to start over"
            }
            Cause::Sink(SinkError::NotAFile(_)) => "name a file with -o",
            Cause::Sink(SinkError::Write { .. }) => "write elsewhere with -o",
            Cause::Checksum { .. } => {
                "the received data is unusable; compare the checksum's source"
            }
            Cause::Digest { .. } => {
                "the received data is unusable; --checksum with the right hash overrules the server"
            }
            Cause::Sink(SinkError::HandedOn) => "run it again, or write to a file with -o",
            _ => return None,
        };
        Some(text.to_owned())
    }
}

/// A rounded size must not suggest that an incomplete file is complete.
fn there(done: Size, length: Size) -> String {
    if done < length && done.to_string() == length.to_string() {
        return format!("all but {} of {length} are there", length.saturating_sub(done));
    }
    format!("{done} of {length} are there")
}

const PATHS: &str = "`manyways paths` shows which networks can be used";

/// Returns the hint for a transfer whose paths all failed.
fn hint_for(faults: &[(PathId, Fault)]) -> &'static str {
    let all = |class: FaultClass, words: &str| {
        let fits = |fault: &Fault| fault.class == class && fault.words.contains(words);
        !faults.is_empty() && faults.iter().all(|(_, fault)| fits(fault))
    };
    let any = |words: &str| faults.iter().any(|(_, fault)| fault.words.contains(words));
    if all(FaultClass::Connect, "connection refused") {
        "check the port in the URL, and whether the server runs"
    } else if all(FaultClass::Dns, "does not exist") {
        "check the spelling of the host; --dns NAME=ADDRESS asks another name server"
    } else if all(FaultClass::Dns, "") {
        "`manyways paths` shows the name servers of each network, --dns NAME=ADDRESS names others"
    } else if all(FaultClass::Tls, "does not speak TLS") {
        "check the port in the URL; a server without TLS has an http:// URL"
    } else if all(FaultClass::Tls, "certificate") {
        "--cacert FILE trusts another authority; check the clock and the name too"
    } else if any("from https to") {
        "where you trust the network, fetch that http:// URL itself"
    } else if faults.iter().any(|(_, fault)| fault.class == FaultClass::Unfit) {
        "check the URL; MANYWAYS_LOG=debug shows each step"
    } else {
        PATHS
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

    fn failed(faults: &[(FaultClass, &str)]) -> (String, String) {
        let faults = faults.iter().enumerate();
        let faults: Vec<(PathId, Fault)> = faults
            .map(|(id, (class, words))| (PathId(id), Fault::passing(*class, *words)))
            .collect();
        let names = ["wifi", "lte", "usb"].map(str::to_owned).to_vec();
        (no_path_left(&faults, &names), hint_for(&faults).to_owned())
    }

    #[test]
    fn networks_that_fail_the_same_way_share_the_words() {
        let refused = (FaultClass::Connect, "no connection to a: connection refused");
        let (words, hint) = failed(&[refused, refused]);
        assert_eq!(words, "every network failed (no connection to a: connection refused)");
        assert!(hint.contains("check the port"), "{hint}");
        let (words, hint) = failed(&[refused, (FaultClass::Down, "its link is down"), refused]);
        assert_eq!(
            words,
            "every network failed (wifi, usb: no connection to a: connection refused; \
             lte: its link is down)"
        );
        assert_eq!(hint, PATHS);
        assert_eq!(
            failed(&[refused]).0,
            "the only network failed (wifi: no connection to a: connection refused)"
        );
    }

    #[test]
    fn what_is_there_is_never_all_before_it_is() {
        let there = |done, length| there(Size::from_bytes(done), Size::from_bytes(length));
        assert_eq!(there(1_200_000, 2_000_001), "1.2 MB of 2 MB are there");
        assert_eq!(there(1_999_990, 2_000_001), "all but 11 B of 2 MB are there");
        assert_eq!(there(2_000_001, 2_000_001), "2 MB of 2 MB are there");
    }

    #[test]
    fn each_kind_of_failure_has_its_hint() {
        let one = "the name a does not exist, according to 10.0.0.1";
        let other = "the name a does not exist, according to 10.0.0.2";
        let (words, hint) = failed(&[(FaultClass::Dns, one), (FaultClass::Dns, other)]);
        assert_eq!(words, "every network failed (the name a does not exist)");
        assert!(hint.contains("spelling"), "{hint}");
        for (class, words, part) in [
            (FaultClass::Dns, "no name server of wifi answers for a", "--dns"),
            (FaultClass::Tls, "what answers there does not speak TLS", "http://"),
            (FaultClass::Tls, "the certificate of a is not accepted: x", "--cacert"),
            (FaultClass::Unfit, "the server redirects from https to http://a/, which", "trust"),
            (FaultClass::Unfit, "the server redirects more than 10 times", "check the URL"),
            (FaultClass::Stalled, "no connection within 15 s", "manyways paths"),
        ] {
            let hint = failed(&[(class, words)]).1;
            assert!(hint.contains(part), "{words}: {hint}");
        }
        let mixed = failed(&[(FaultClass::Tls, "the certificate x"), (FaultClass::Down, "y")]).1;
        assert_eq!(mixed, PATHS);
    }
}
