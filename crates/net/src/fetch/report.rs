//! What a transfer tells while it runs, and at its end.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use manyways_proto::fetch::{Fault, FaultClass, PathId, Reason};
use manyways_unit::{Rate, Size, Span};

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
    /// What went on, for an event log; only where [`ClientBuilder::records`] asks for it.
    ///
    /// [`ClientBuilder::records`]: super::ClientBuilder::records
    Record(&'a manyways_record::event::Record<super::event::TransferEvent>),
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
    /// Its application round trip, once that is known.
    pub rtt: Option<Span>,
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
    /// Its application round trip, as it was estimated at the end.
    pub rtt: Option<Span>,
    /// Bytes that came past the end to which a request had been cut.
    pub tail: Size,
    /// Bytes that came although they were there already, the tail included.
    pub duplicate: Size,
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
    /// The object is not the one that the server announced.
    #[error("the object's SHA-256 is {found}, and the server announced {announced} (Repr-Digest)")]
    Digest {
        /// As the server said, in hexadecimal.
        announced: String,
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

/// Networks that failed for the same reason share its words.
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

/// Each network has name servers of its own, but what they say is the same.
fn without_witness(words: &str) -> &str {
    words.split(", according to ").next().unwrap_or(words)
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
                "-u USER:PASSWORD, --netrc or -H 'Authorization: …' says who you are"
            }
            Cause::Refused(Reason::Status(429 | 500..=599), _) => "the server may be well later",
            Cause::Refused(Reason::Status(_) | Reason::Nonsense(_), _) => {
                "check the URL; MANYWAYS_LOG=debug shows each step"
            }
            Cause::Refused(Reason::CannotContinue(_), _) => {
                "run the same command again, which begins anew"
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
            Cause::Checksum { .. } => "what came is of no use; compare the checksum's source",
            Cause::Digest { .. } => {
                "what came is of no use; --checksum with the right hash overrules the server"
            }
            Cause::Sink(SinkError::HandedOn) => "run it again, or write to a file with -o",
            _ => return None,
        };
        Some(text.to_owned())
    }
}

/// Rounded sizes must not say that all is there.
fn there(done: Size, length: Size) -> String {
    if done < length && done.to_string() == length.to_string() {
        return format!("all but {} of {length} are there", length.saturating_sub(done));
    }
    format!("{done} of {length} are there")
}

const PATHS: &str = "`manyways paths` shows which networks can be used";

/// What helps where no path is left.
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
