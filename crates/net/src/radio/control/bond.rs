//! The bond client that delays delay-tolerant connections.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use manyways_model::radio::control::GateState;
use manyways_unit::{Span, Time};

use crate::bond::control::{BondRole, ControlRequest, ControlResponse};
use crate::bond::{DelayRequest, GateCommand, GateEvent};
use crate::control::{self, ControlSocketError};

/// Timeout of the client's first answer.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval between connection attempts.
const RECONNECT_INTERVAL: Span = Span::from_secs(5);
/// Time after the maximum delay at which the client itself releases a connection that was not
/// released.
const SLACK: Span = Span::from_secs(5);
/// Bytes of a line from the client.
const MAX_LINE: usize = 64 * 1024;

/// A running bond client with rules for delay-tolerant connections.
#[derive(Debug)]
pub struct Bond {
    name: String,
    request: DelayRequest,
    direct_rules: Vec<String>,
    connection: Option<Connection>,
    /// Time of the next connection attempt.
    next_attempt: Time,
    /// [`GateState::releases`] at the last report to the client.
    opened: u64,
    /// The last logged reason for a failed reconnection.
    last_error: String,
}

#[derive(Debug)]
struct Connection {
    stream: UnixStream,
    /// Received bytes of an incomplete line.
    received: Vec<u8>,
    is_granted: bool,
    is_gate_closed: bool,
}

/// Reason why a bond client cannot delay connections.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BondError {
    #[error(transparent)]
    Control(#[from] ControlSocketError),
    /// An unexpected answer.
    #[error("the bond client does not delay connections")]
    UnexpectedResponse(ControlResponse),
    #[error("the bond client does not answer: {0}")]
    Io(#[source] io::Error),
}

impl Bond {
    /// Connects to the client of this name, to delay connections of these rules. No delay of the
    /// policy exceeds `longest`.
    ///
    /// # Errors
    /// Fails if no client has this name, if the client has no matching rules, or if another process
    /// controls its delays.
    pub fn open(name: &str, rules: Vec<String>, longest: Span) -> Result<Self, BondError> {
        let request = DelayRequest { rules, max_delay_seconds: (longest + SLACK).as_secs_f64() };
        let mut link = Connection::open(name, &request)?;
        let answer = link
            .stream
            .set_read_timeout(Some(RESPONSE_TIMEOUT))
            .and_then(|()| link.read_response());
        let direct_rules = match answer.map_err(BondError::Io)? {
            ControlResponse::DelayGranted { direct_rules } => direct_rules,
            other => return Err(BondError::UnexpectedResponse(other)),
        };
        link.is_granted = true;
        link.stream.set_nonblocking(true).map_err(BondError::Io)?;
        let name = name.to_owned();
        Ok(Self {
            name,
            request,
            direct_rules,
            connection: Some(link),
            next_attempt: Time::ZERO,
            opened: 0,
            last_error: String::new(),
        })
    }

    /// Those of the rules whose connections bypass the bond, at the time of [`Bond::open`].
    pub fn direct_rules(&self) -> &[String] {
        &self.direct_rules
    }

    /// Readable when the client has sent an event; `None` while disconnected.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.connection.as_ref().map(|link| link.stream.as_fd())
    }

    /// Time of the next connection attempt; `None` while connected.
    pub(super) fn next_attempt(&self) -> Option<Time> {
        self.connection.is_none().then_some(self.next_attempt)
    }

    /// Reconnects if due. Returns whether there is a new connection to poll.
    pub(super) fn reconnect(&mut self, now: Time) -> bool {
        if self.connection.is_some() || now < self.next_attempt {
            return false;
        }
        self.next_attempt = now + RECONNECT_INTERVAL;
        let reached = Connection::open(&self.name, &self.request).ok();
        self.connection = reached.filter(|link| link.stream.set_nonblocking(true).is_ok());
        self.connection.is_some()
    }

    /// Returns the events of the client, and the error if the connection was lost; delayed
    /// connections have passed then.
    pub(super) fn read_events(&mut self, now: Time) -> (Vec<BondUpdate>, Option<io::Error>) {
        let mut updates = Vec::new();
        let Some(link) = &mut self.connection else { return (updates, None) };
        let end = link.read_updates(&mut updates).err();
        let was_there = link.is_granted;
        if updates.contains(&BondUpdate::Reconnected) {
            self.last_error.clear();
        }
        if end.is_some() {
            self.disconnect(now);
        }
        // A repeated failure to reconnect is logged only if its reason changed.
        let why = end.as_ref().filter(|_| !was_there).map(ToString::to_string);
        if let Some(reason) = why.filter(|reason| *reason != self.last_error) {
            tracing::warn!("bond: connections are not delayed: {reason}");
            self.last_error = reason;
        }
        (updates, end.filter(|_| was_there))
    }

    fn disconnect(&mut self, now: Time) {
        self.connection = None;
        self.next_attempt = now + RECONNECT_INTERVAL;
    }

    /// Sends the state of the gate to the client. Fails if the connection was lost.
    pub(super) fn sync_gate(&mut self, now: Time, gate: GateState) -> io::Result<()> {
        let lets_go = std::mem::replace(&mut self.opened, gate.releases) != gate.releases;
        let Some(link) = self.connection.as_mut().filter(|link| link.is_granted) else {
            return Ok(());
        };
        let mut wished = Ok(());
        if lets_go || link.is_gate_closed && !gate.is_closed {
            wished = link.send_command(GateCommand::Open);
        }
        if wished.is_ok() && gate.is_closed && !link.is_gate_closed {
            wished = link.send_command(GateCommand::Close);
        }
        if wished.is_err() {
            self.disconnect(now);
        }
        wished
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum BondUpdate {
    /// The client accepted the rules again after a reconnection.
    Reconnected,
    /// The state of a delayed connection.
    Gate(GateEvent),
}

impl Connection {
    fn open(name: &str, request: &DelayRequest) -> Result<Self, ControlSocketError> {
        let service = BondRole::Client.service(name)?;
        let stream = control::request(&service, &ControlRequest::Delay(request.clone()))?;
        Ok(Self { stream, received: Vec::new(), is_granted: false, is_gate_closed: false })
    }

    /// Blocks until the first line.
    fn read_response(&mut self) -> io::Result<ControlResponse> {
        loop {
            if let Some(line) = self.take_line()? {
                return Ok(serde_json::from_slice(&line)?);
            }
            self.read_more()?;
        }
    }

    /// A complete received line, if any.
    fn take_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        let Some(end) = self.received.iter().position(|byte| *byte == b'\n') else {
            return match self.received.len() < MAX_LINE {
                true => Ok(None),
                false => Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the bond client sent a line that is too long",
                )),
            };
        };
        let rest = self.received.split_off(end + 1);
        Ok(Some(std::mem::replace(&mut self.received, rest)))
    }

    fn read_more(&mut self) -> io::Result<()> {
        let mut piece = [0; 4096];
        match self.stream.read(&mut piece)? {
            0 => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the bond client has closed the connection",
            )),
            count => {
                self.received.extend(&piece[..count]);
                Ok(())
            }
        }
    }

    fn read_updates(&mut self, updates: &mut Vec<BondUpdate>) -> io::Result<()> {
        loop {
            while let Some(line) = self.take_line()? {
                if self.is_granted {
                    updates.push(BondUpdate::Gate(serde_json::from_slice(&line)?));
                    continue;
                }
                match serde_json::from_slice(&line)? {
                    ControlResponse::DelayGranted { .. } => self.is_granted = true,
                    ControlResponse::Refused { message, .. } => {
                        return Err(io::Error::other(message));
                    }
                    _ => return Err(io::ErrorKind::InvalidData.into()),
                }
                updates.push(BondUpdate::Reconnected);
            }
            match self.read_more() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                more => more?,
            }
        }
    }

    fn send_command(&mut self, command: GateCommand) -> io::Result<()> {
        let mut line = serde_json::to_vec(&command)?;
        line.push(b'\n');
        // A write of so few bytes is complete or fails.
        self.stream.write_all(&line)?;
        self.is_gate_closed = command == GateCommand::Close;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::*;

    const GRANTED: &str = "{\"delay-granted\":{\"direct_rules\":[]}}\n";

    /// A connected bond, and the client's end of the connection.
    fn pair(has_answered: bool) -> (Bond, UnixStream) {
        let (stream, theirs) = UnixStream::pair().unwrap();
        stream.set_nonblocking(true).unwrap();
        let link = Connection {
            stream,
            received: Vec::new(),
            is_granted: has_answered,
            is_gate_closed: false,
        };
        let request = DelayRequest { rules: vec!["bulk".to_owned()], max_delay_seconds: 1.0 };
        let name = "no such name is there".to_owned();
        (
            Bond {
                name,
                request,
                direct_rules: Vec::new(),
                connection: Some(link),
                next_attempt: Time::ZERO,
                opened: 0,
                last_error: String::new(),
            },
            theirs,
        )
    }

    fn received_lines(theirs: &mut UnixStream) -> Vec<String> {
        theirs.set_nonblocking(true).unwrap();
        BufReader::new(theirs).lines().map_while(Result::ok).collect()
    }

    #[test]
    fn changes_of_the_gate_are_sent() {
        let (mut bond, mut theirs) = pair(true);
        let mut keep = |is_shut, opened| {
            bond.sync_gate(Time::ZERO, GateState { is_closed: is_shut, releases: opened }).unwrap();
            received_lines(&mut theirs)
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
        let (updates, end) = bond.read_events(Time::ZERO);
        assert_eq!(
            (updates, end.is_some()),
            (vec![BondUpdate::Gate(GateEvent::Started { is_delayed: true })], false)
        );
        theirs.write_all(b"onds\":1.5}}\n\"abandoned\"\n").unwrap();
        drop(theirs);
        let (updates, end) = bond.read_events(Time::from_millis(7_000));
        let told = [GateEvent::Released { waited_seconds: 1.5 }, GateEvent::Abandoned]
            .map(BondUpdate::Gate);
        assert_eq!((updates.as_slice(), end.is_some()), (&told[..], true));
        assert_eq!(bond.next_attempt(), Some(Time::from_millis(12_000)));
    }

    #[test]
    fn a_reconnected_client_receives_the_gate_after_its_answer() {
        let (mut bond, mut theirs) = pair(false);
        let shut = GateState { is_closed: true, releases: 3 };
        bond.sync_gate(Time::ZERO, shut).unwrap();
        assert!(received_lines(&mut theirs).is_empty());
        theirs.write_all(GRANTED.as_bytes()).unwrap();
        assert_eq!(bond.read_events(Time::ZERO).0, [BondUpdate::Reconnected]);
        bond.sync_gate(Time::ZERO, shut).unwrap();
        assert_eq!(received_lines(&mut theirs), ["\"close\""]);
    }

    #[test]
    fn a_client_with_malformed_lines_is_disconnected() {
        for text in ["nonsense\n", "{\"released\":{}}\n", GRANTED, &"x".repeat(MAX_LINE)] {
            let (mut bond, mut theirs) = pair(true);
            theirs.write_all(text.as_bytes()).unwrap();
            let (updates, end) = bond.read_events(Time::ZERO);
            assert!(updates.is_empty() && end.is_some() && bond.fd().is_none(), "{text:.20}");
            // There is no client to connect to.
            assert!(
                !bond.reconnect(Time::from_millis(4_999))
                    && !bond.reconnect(Time::from_millis(5_000))
            );
            assert_eq!(bond.next_attempt(), Some(Time::from_millis(10_000)));
        }
        let (mut bond, mut theirs) = pair(false);
        theirs.write_all(b"{\"refused\":{\"message\":\"No.\",\"hint\":null}}\n").unwrap();
        let (updates, end) = bond.read_events(Time::ZERO);
        assert!(updates.is_empty() && end.is_none() && bond.next_attempt().is_some());
        assert_eq!(bond.last_error, "No.");
    }
}
