//! A bond that holds back what can wait.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use manyways_model::radio::control::Gate;
use manyways_unit::{Span, Time};

use crate::bond::control::{self, BondRole, ControlRequest, ControlResponse, ControlSocketError};
use crate::bond::delay_gate::{DelayRequest, GateCommand, GateEvent};

/// Its first answer is waited for so long.
const PATIENCE: Duration = Duration::from_secs(5);
/// From one attempt to reach it to the next.
const AGAIN: Span = Span::from_secs(5);
/// The longest line that it says.
const LINE: usize = 64 * 1024;

/// A running client of a bond, whose new connections under some rules can wait.
#[derive(Debug)]
pub struct Bond {
    name: String,
    hold: DelayRequest,
    link: Option<Link>,
    /// When to try to reach it.
    again: Time,
    /// How often what waits was let go when it was told so last.
    opened: u64,
    /// Why it was not back, when that was said last.
    why: String,
}

#[derive(Debug)]
struct Link {
    stream: UnixStream,
    /// What has come of a line.
    said: Vec<u8>,
    has_answered: bool,
    is_shut: bool,
}

/// Why it does not hold anything back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BondError {
    /// It cannot be asked.
    #[error(transparent)]
    Control(#[from] ControlSocketError),
    /// It has answered something else.
    #[error("the client of the bond does not hold anything back")]
    Answer(ControlResponse),
    /// It does not answer.
    #[error("the client of the bond does not answer: {0}")]
    Io(#[source] io::Error),
}

impl Bond {
    /// Asks the client of that name.
    ///
    /// # Errors
    /// Where there is none, it has no such rules, or somebody else holds its connections back.
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

    /// What is readable when it says something.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.link.as_ref().map(|link| link.stream.as_fd())
    }

    /// When to try again to reach it.
    pub(super) fn again(&self) -> Option<Time> {
        self.link.is_none().then_some(self.again)
    }

    /// Tries to reach it, where it has gone. Says whether there is something new to wait for.
    pub(super) fn seek(&mut self, now: Time) -> bool {
        if self.link.is_some() || now < self.again {
            return false;
        }
        self.again = now + AGAIN;
        let reached = Link::open(&self.name, &self.hold).ok();
        self.link = reached.filter(|link| link.stream.set_nonblocking(true).is_ok());
        self.link.is_some()
    }

    /// What it says. Where it was there and has gone, after the last of it, an error: what waited there has passed.
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
        // That one who has gone is not back is no news, but for the reason.
        let why = end.as_ref().filter(|_| !was_there).map(ToString::to_string);
        if let Some(why) = why.filter(|why| *why != self.why) {
            tracing::warn!("the bond does not hold anything back: {why}");
            self.why = why;
        }
        (said, end.filter(|_| was_there))
    }

    fn lose(&mut self, now: Time) {
        self.link = None;
        self.again = now + AGAIN;
    }

    /// Sees that what can wait does as it should. An error where it has gone.
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

/// What a bond says.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Said {
    /// It does what is wished, having been gone.
    Back,
    /// What becomes of a connection.
    Told(GateEvent),
}

impl Link {
    fn open(name: &str, hold: &DelayRequest) -> Result<Self, ControlSocketError> {
        let stream =
            control::request(BondRole::Client, name, &ControlRequest::Delay(hold.clone()))?;
        Ok(Self { stream, said: Vec::new(), has_answered: false, is_shut: false })
    }

    /// The first line, whenever it comes.
    fn answer(&mut self) -> io::Result<ControlResponse> {
        loop {
            if let Some(line) = self.line()? {
                return Ok(serde_json::from_slice(&line)?);
            }
            self.more()?;
        }
    }

    /// A whole line of what has come.
    fn line(&mut self) -> io::Result<Option<Vec<u8>>> {
        let Some(end) = self.said.iter().position(|byte| *byte == b'\n') else {
            return match self.said.len() < LINE {
                true => Ok(None),
                false => Err(io::Error::new(io::ErrorKind::InvalidData, "it says too much")),
            };
        };
        let rest = self.said.split_off(end + 1);
        Ok(Some(std::mem::replace(&mut self.said, rest)))
    }

    fn more(&mut self) -> io::Result<()> {
        let mut piece = [0; 4096];
        match self.stream.read(&mut piece)? {
            0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it has ended")),
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
        // So few bytes go at once, or not at all.
        self.stream.write_all(&line)?;
        self.is_shut = wish == GateCommand::Close;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::*;

    /// One that is there, and the client's end of the line.
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
    fn it_is_told_what_has_changed() {
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
    fn one_that_is_back_is_told_again_once_it_has_answered() {
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
    fn who_talks_nonsense_is_left() {
        for text in ["nonsense\n", "{\"released\":{}}\n", "\"delay-granted\"\n", &"x".repeat(LINE)]
        {
            let (mut bond, mut theirs) = pair(true);
            theirs.write_all(text.as_bytes()).unwrap();
            let (said, end) = bond.take(Time::ZERO);
            assert!(said.is_empty() && end.is_some() && bond.fd().is_none(), "{text:.20}");
            // It is nowhere to be found.
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
