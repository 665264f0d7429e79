//! The bond client that delays delay-tolerant connections.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use manyways_model::radio::control::Gate;
use manyways_unit::{Span, Time};

use crate::bond::control::{self, BondRole, ControlRequest, ControlResponse, ControlSocketError};
use crate::bond::delay_gate::{DelayRequest, GateCommand, GateEvent};

/// Timeout of the client's first answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Interval between connection attempts.
const AGAIN: Span = Span::from_secs(5);
/// Bytes of a line from the client.
const LINE: usize = 64 * 1024;

/// A running bond client with rules for delay-tolerant connections.
#[derive(Debug)]
pub struct Bond {
    name: String,
    hold: DelayRequest,
    link: Option<Link>,
    /// Time of the next connection attempt.
    again: Time,
    /// [`Gate::opened`] at the last report to the client.
    opened: u64,
    /// The last logged reason for a failed reconnection.
    why: String,
}

#[derive(Debug)]
struct Link {
    stream: UnixStream,
    /// Received bytes of an incomplete line.
    said: Vec<u8>,
    has_answered: bool,
    is_shut: bool,
}

/// Reason why a bond client cannot delay connections.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BondError {
    #[error(transparent)]
    Control(#[from] ControlSocketError),
    /// An unexpected answer.
    #[error("the bond client does not delay connections")]
    Answer(ControlResponse),
    #[error("the bond client does not answer: {0}")]
    Io(#[source] io::Error),
}

impl Bond {
    /// Connects to the client of this name.
    ///
    /// # Errors
    /// Fails if no client has this name, if the client has no matching rules, or if another process
    /// controls its delays.
    pub fn open(name: &str, hold: DelayRequest) -> Result<Self, BondError> {
        let mut link = Link::open(name, &hold)?;
        let answer = link.stream.set_read_timeout(Some(PATIENCE)).and_then(|()| link.answer());
        match answer.map_err(BondError::Io)? {
            ControlResponse::DelayGranted => {}
            other => return Err(BondError::Answer(other)),
        }
        link.has_answered = true;
        link.stream.set_nonblocking(true).map_err(BondError::Io)?;
        let name = name.to_owned();
        Ok(Self { name, hold, link: Some(link), again: Time::ZERO, opened: 0, why: String::new() })
    }

    /// Readable when the client has sent an event; `None` while disconnected.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.link.as_ref().map(|link| link.stream.as_fd())
    }

    /// Time of the next connection attempt; `None` while connected.
    pub(super) fn again(&self) -> Option<Time> {
        self.link.is_none().then_some(self.again)
    }

    /// Reconnects if due. Returns whether there is a new connection to poll.
    pub(super) fn seek(&mut self, now: Time) -> bool {
        if self.link.is_some() || now < self.again {
            return false;
        }
        self.again = now + AGAIN;
        let reached = Link::open(&self.name, &self.hold).ok();
        self.link = reached.filter(|link| link.stream.set_nonblocking(true).is_ok());
        self.link.is_some()
    }

    /// Returns the events of the client, and the error if the connection was lost; delayed
    /// connections have passed then.
    pub(super) fn take(&mut self, now: Time) -> (Vec<Said>, Option<io::Error>) {
        let mut said = Vec::new();
        let Some(link) = &mut self.link else { return (said, None) };
        let end = link.take(&mut said).err();
        let was_there = link.has_answered;
        if said.contains(&Said::Back) {
            self.why.clear();
        }
        if end.is_some() {
            self.lose(now);
        }
        // A repeated failure to reconnect is logged only if its reason changed.
        let why = end.as_ref().filter(|_| !was_there).map(ToString::to_string);
        if let Some(why) = why.filter(|why| *why != self.why) {
            tracing::warn!("bond: connections are not delayed: {why}");
            self.why = why;
        }
        (said, end.filter(|_| was_there))
    }

    fn lose(&mut self, now: Time) {
        self.link = None;
        self.again = now + AGAIN;
    }

    /// Sends the state of the gate to the client. Fails if the connection was lost.
    pub(super) fn keep(&mut self, now: Time, gate: Gate) -> io::Result<()> {
        let lets_go = std::mem::replace(&mut self.opened, gate.opened) != gate.opened;
        let Some(link) = self.link.as_mut().filter(|link| link.has_answered) else {
            return Ok(());
        };
        let mut wished = Ok(());
        if lets_go || link.is_shut && !gate.is_shut {
            wished = link.wish(GateCommand::Open);
        }
        if wished.is_ok() && gate.is_shut && !link.is_shut {
            wished = link.wish(GateCommand::Close);
        }
        if wished.is_err() {
            self.lose(now);
        }
        wished
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Said {
    /// The client accepted the rules again after a reconnection.
    Back,
    /// The state of a delayed connection.
    Told(GateEvent),
}

impl Link {
    fn open(name: &str, hold: &DelayRequest) -> Result<Self, ControlSocketError> {
        let stream =
            control::request(BondRole::Client, name, &ControlRequest::Delay(hold.clone()))?;
        Ok(Self { stream, said: Vec::new(), has_answered: false, is_shut: false })
    }

    /// Blocks until the first line.
    fn answer(&mut self) -> io::Result<ControlResponse> {
        loop {
            if let Some(line) = self.line()? {
                return Ok(serde_json::from_slice(&line)?);
            }
            self.more()?;
        }
    }

    /// A complete received line, if any.
    fn line(&mut self) -> io::Result<Option<Vec<u8>>> {
        let Some(end) = self.said.iter().position(|byte| *byte == b'\n') else {
            return match self.said.len() < LINE {
                true => Ok(None),
                false => Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the bond client sent a line that is too long",
                )),
            };
        };
        let rest = self.said.split_off(end + 1);
        Ok(Some(std::mem::replace(&mut self.said, rest)))
    }

    fn more(&mut self) -> io::Result<()> {
        let mut piece = [0; 4096];
        match self.stream.read(&mut piece)? {
            0 => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the bond client has closed the connection",
            )),
            count => {
                self.said.extend(&piece[..count]);
                Ok(())
            }
        }
    }

    fn take(&mut self, said: &mut Vec<Said>) -> io::Result<()> {
        loop {
            while let Some(line) = self.line()? {
                if self.has_answered {
                    said.push(Said::Told(serde_json::from_slice(&line)?));
                    continue;
                }
                match serde_json::from_slice(&line)? {
                    ControlResponse::DelayGranted => self.has_answered = true,
                    ControlResponse::Refused { message, .. } => {
                        return Err(io::Error::other(message));
                    }
                    _ => return Err(io::ErrorKind::InvalidData.into()),
                }
                said.push(Said::Back);
            }
            match self.more() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                more => more?,
            }
        }
    }

    fn wish(&mut self, wish: GateCommand) -> io::Result<()> {
        let mut line = serde_json::to_vec(&wish)?;
        line.push(b'\n');
        // A write of so few bytes is complete or fails.
        self.stream.write_all(&line)?;
        self.is_shut = wish == GateCommand::Close;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::*;

    /// A connected bond, and the client's end of the connection.
    fn pair(has_answered: bool) -> (Bond, UnixStream) {
        let (stream, theirs) = UnixStream::pair().unwrap();
        stream.set_nonblocking(true).unwrap();
        let link = Link { stream, said: Vec::new(), has_answered, is_shut: false };
        let hold = DelayRequest { rules: vec!["bulk".to_owned()], max_delay_seconds: 1.0 };
        let name = "no such name is there".to_owned();
        (
            Bond { name, hold, link: Some(link), again: Time::ZERO, opened: 0, why: String::new() },
            theirs,
        )
    }

    fn heard(theirs: &mut UnixStream) -> Vec<String> {
        theirs.set_nonblocking(true).unwrap();
        BufReader::new(theirs).lines().map_while(Result::ok).collect()
    }

    #[test]
    fn changes_of_the_gate_are_sent() {
        let (mut bond, mut theirs) = pair(true);
        let mut keep = |is_shut, opened| {
            bond.keep(Time::ZERO, Gate { is_shut, opened }).unwrap();
            heard(&mut theirs)
        };
        assert!(keep(false, 0).is_empty());
        assert_eq!(keep(true, 0), ["\"close\""]);
        assert!(keep(true, 0).is_empty());
        assert_eq!(keep(true, 1), ["\"open\"", "\"close\""], "open for those that waited");
        assert_eq!(keep(false, 2), ["\"open\""]);
        assert!(keep(false, 2).is_empty());
        assert_eq!(keep(true, 2), ["\"close\""]);
        assert_eq!(keep(false, 2), ["\"open\""]);
    }

    #[test]
    fn lines_come_in_pieces() {
        let (mut bond, mut theirs) = pair(true);
        theirs
            .write_all(b"{\"started\":{\"is_delayed\":true}}\n{\"released\":{\"waited_sec")
            .unwrap();
        let (said, end) = bond.take(Time::ZERO);
        assert_eq!(
            (said, end.is_some()),
            (vec![Said::Told(GateEvent::Started { is_delayed: true })], false)
        );
        theirs.write_all(b"onds\":1.5}}\n\"abandoned\"\n").unwrap();
        drop(theirs);
        let (said, end) = bond.take(Time::from_millis(7_000));
        let told =
            [GateEvent::Released { waited_seconds: 1.5 }, GateEvent::Abandoned].map(Said::Told);
        assert_eq!((said.as_slice(), end.is_some()), (&told[..], true));
        assert_eq!(bond.again(), Some(Time::from_millis(12_000)));
    }

    #[test]
    fn a_reconnected_client_receives_the_gate_after_its_answer() {
        let (mut bond, mut theirs) = pair(false);
        let shut = Gate { is_shut: true, opened: 3 };
        bond.keep(Time::ZERO, shut).unwrap();
        assert!(heard(&mut theirs).is_empty());
        theirs.write_all(b"\"delay-granted\"\n").unwrap();
        assert_eq!(bond.take(Time::ZERO).0, [Said::Back]);
        bond.keep(Time::ZERO, shut).unwrap();
        assert_eq!(heard(&mut theirs), ["\"close\""]);
    }

    #[test]
    fn a_client_with_malformed_lines_is_disconnected() {
        for text in ["nonsense\n", "{\"released\":{}}\n", "\"delay-granted\"\n", &"x".repeat(LINE)]
        {
            let (mut bond, mut theirs) = pair(true);
            theirs.write_all(text.as_bytes()).unwrap();
            let (said, end) = bond.take(Time::ZERO);
            assert!(said.is_empty() && end.is_some() && bond.fd().is_none(), "{text:.20}");
            // There is no client to connect to.
            assert!(!bond.seek(Time::from_millis(4_999)) && !bond.seek(Time::from_millis(5_000)));
            assert_eq!(bond.again(), Some(Time::from_millis(10_000)));
        }
        let (mut bond, mut theirs) = pair(false);
        theirs.write_all(b"{\"refused\":{\"message\":\"No.\",\"hint\":null}}\n").unwrap();
        let (said, end) = bond.take(Time::ZERO);
        assert!(said.is_empty() && end.is_none() && bond.again().is_some());
        assert_eq!(bond.why, "No.");
    }
}
