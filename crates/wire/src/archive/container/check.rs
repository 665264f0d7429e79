//! Compares a file with the recording that its HAR describes.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read, Seek};

use thiserror::Error;

use super::super::{Archive, Body};
use super::{ContainerError, Digest, Reader};

/// A difference between a file and its HAR. Exchanges are counted from 1.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    #[error("exchange {exchange}: the body of the {side} is missing ({digest})")]
    MissingBody { exchange: usize, side: Side, digest: Digest },
    #[error(
        "exchange {exchange}: the body of the {side} has the wrong hash: {found}, not {digest}"
    )]
    WrongHash { exchange: usize, side: Side, digest: Digest, found: Digest },
    #[error("exchange {exchange}: the body of the {side} has {found} bytes, not {expected}")]
    WrongLength { exchange: usize, side: Side, expected: u64, found: u64 },
    #[error("exchange {exchange}: the body of the {side} cannot be read: {reason}")]
    Unreadable { exchange: usize, side: Side, reason: String },
    #[error("no exchange has the body {digest}")]
    UnusedBody { digest: Digest },
}

/// Part of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Request,
    Response,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Request => "request",
            Self::Response => "response",
        })
    }
}

/// Compares the bodies of a file with those of the recording: in the order of the exchanges, then
/// bodies that no exchange has. Reads every body once.
pub fn check<R: Read + Seek>(reader: &mut Reader<R>, archive: &Archive) -> Vec<Problem> {
    let mut check = Check { reader, states: BTreeMap::new(), problems: Vec::new() };
    for (exchange, number) in archive.exchanges.iter().zip(1..) {
        let response = exchange.response.as_ref().and_then(|response| response.body.as_ref());
        check.compare(number, Side::Request, exchange.request.body.as_ref());
        check.compare(number, Side::Response, response);
    }
    let Check { reader, states, mut problems } = check;
    let unused = reader.digests().filter(|digest| !states.contains_key(digest));
    problems.extend(unused.map(|digest| Problem::UnusedBody { digest: *digest }));
    problems
}

struct Check<'r, R> {
    reader: &'r mut Reader<R>,
    states: BTreeMap<Digest, State>,
    problems: Vec<Problem>,
}

/// State of a member.
#[derive(Clone)]
enum State {
    Whole { length: u64 },
    Missing,
    WrongHash { found: Digest },
    Unreadable { reason: String },
}

impl<R: Read + Seek> Check<'_, R> {
    fn compare(&mut self, exchange: usize, side: Side, body: Option<&Body>) {
        let Some(Body { length: expected, digest: Some(digest), .. }) = body.copied() else {
            return;
        };
        let reader = &mut *self.reader;
        let state = self.states.entry(digest).or_insert_with(|| state(reader, &digest)).clone();
        self.problems.extend(match state {
            State::Whole { length } if length == expected => None,
            State::Whole { length: found } => {
                Some(Problem::WrongLength { exchange, side, expected, found })
            }
            State::Missing => Some(Problem::MissingBody { exchange, side, digest }),
            State::WrongHash { found } => {
                Some(Problem::WrongHash { exchange, side, digest, found })
            }
            State::Unreadable { reason } => Some(Problem::Unreadable { exchange, side, reason }),
        });
    }
}

fn state<R: Read + Seek>(reader: &mut Reader<R>, digest: &Digest) -> State {
    let copied =
        reader.open_body(digest).and_then(|mut body| Ok(io::copy(&mut body, &mut io::sink())?));
    match copied {
        Ok(length) => State::Whole { length },
        Err(ContainerError::MissingBody { .. }) => State::Missing,
        Err(ContainerError::WrongHash { found, .. }) => State::WrongHash { found },
        Err(error) => State::Unreadable { reason: error.to_string() },
    }
}
