//! Requests over generic netlink: `linux/genetlink.h`.

use std::io;
use std::os::fd::AsFd;

use manyways_unit::{Span, Time};
use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_GENERIC};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::clock::Clock;
use crate::interface::kernel::{HEADER_SIZE, messages};

/// The family that lists the others, `GENL_ID_CTRL`.
const CONTROLLER: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// Bytes of `struct genlmsghdr`.
const GENERIC_HEADER: usize = 4;
/// Bits of an attribute's type that are not flags, `NLA_TYPE_MASK`.
const TYPE_MASK: u16 = 0x3fff;
/// Larger than any datagram of the kernel; one of a dump has up to 32 KiB.
const MAX_DATAGRAM: usize = 1 << 16;
/// Datagrams of one answer, at most.
const MAX_DATAGRAMS: usize = 256;

/// A question for a family.
pub(super) struct Question<'a> {
    pub(super) family: u16,
    pub(super) command: u8,
    pub(super) is_dump: bool,
    /// Type and value of one attribute.
    pub(super) attribute: (u16, &'a [u8]),
}

/// A socket whose answers are all read before a deadline.
pub(super) struct Generic {
    socket: Socket,
    sequence: u32,
    clock: Clock,
    deadline: Time,
}

impl Generic {
    pub(super) fn open(timeout: Span) -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_GENERIC)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        socket.set_non_blocking(true)?;
        let clock = Clock::start();
        Ok(Self { socket, sequence: 0, clock, deadline: Time::ZERO + timeout })
    }

    /// Number of a family; `None` if the kernel has none of this name.
    pub(super) fn family(&mut self, name: &str) -> io::Result<Option<u16>> {
        let text = [name.as_bytes(), &[0]].concat();
        let question = Question {
            family: CONTROLLER,
            command: GET_FAMILY,
            is_dump: false,
            attribute: (FAMILY_NAME, &text),
        };
        let mut family = None;
        let asked = self.ask(&question, |_, payload| {
            let id = attributes(payload).find(|(kind, _)| *kind == FAMILY_ID);
            family = id.and_then(|(_, value)| Some(u16::from_ne_bytes(*value.first_chunk()?)));
        });
        match asked {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            other => other.map(|()| family),
        }
    }

    /// Passes command and attributes of each message of the answer to `take`.
    ///
    /// # Errors
    /// That of the kernel, or `TimedOut`.
    pub(super) fn ask(
        &mut self,
        question: &Question<'_>,
        mut take: impl FnMut(u8, &[u8]),
    ) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        self.socket.send(&question.bytes(self.sequence), 0)?;
        let mut datagram = Vec::with_capacity(MAX_DATAGRAM);
        for _ in 0..MAX_DATAGRAMS {
            self.wait()?;
            datagram.clear();
            match self.socket.recv_from(&mut datagram, 0) {
                // Any process can write to a netlink socket; only the kernel has port 0.
                Ok((_, sender)) if sender.port_number() != 0 => continue,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error),
            }
            if read(&datagram, self.sequence, question.is_dump, &mut take)? {
                return Ok(());
            }
        }
        Err(io::Error::other("the answer is too long"))
    }

    fn wait(&self) -> io::Result<()> {
        loop {
            let left = self.deadline.since(self.clock.now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            // Rounded up, or the last millisecond would be spent in a busy loop.
            let millis = left.as_nanos().div_ceil(1_000_000);
            let timeout = PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX);
            let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, timeout) {
                Ok(1..) => return Ok(()),
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Question<'_> {
    fn bytes(&self, sequence: u32) -> Vec<u8> {
        let (kind, value) = self.attribute;
        let flags = NLM_F_REQUEST | if self.is_dump { NLM_F_DUMP } else { 0 };
        let mut text = Vec::with_capacity(HEADER_SIZE + GENERIC_HEADER + 4 + value.len());
        // The header; its length is set last.
        text.extend([0; 4]);
        text.extend(self.family.to_ne_bytes());
        text.extend(flags.to_ne_bytes());
        text.extend(sequence.to_ne_bytes());
        text.extend([0; 4]);
        text.extend([self.command, 1, 0, 0]);
        text.extend((value.len() as u16 + 4).to_ne_bytes());
        text.extend(kind.to_ne_bytes());
        text.extend(value);
        text.resize(text.len().next_multiple_of(4), 0);
        let length = (text.len() as u32).to_ne_bytes();
        text[..4].copy_from_slice(&length);
        text
    }
}

/// Reads one datagram of an answer; returns whether it was the last one. Messages that are too short
/// for a command, or belong to another question, are skipped.
pub(super) fn read(
    datagram: &[u8],
    sequence: u32,
    is_dump: bool,
    mut take: impl FnMut(u8, &[u8]),
) -> io::Result<bool> {
    for (kind, number, message) in messages(datagram) {
        if number != sequence {
            continue;
        }
        let payload = message.get(HEADER_SIZE..).unwrap_or_default();
        match i32::from(kind) {
            libc::NLMSG_DONE => return Ok(true),
            libc::NLMSG_ERROR => {
                return match payload.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code)) {
                    0 => Ok(true),
                    code => Err(io::Error::from_raw_os_error(code.saturating_neg())),
                };
            }
            _ => {}
        }
        if let Some(([command, ..], attributes)) = payload.split_first_chunk::<GENERIC_HEADER>() {
            take(*command, attributes);
        }
        if !is_dump {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Types and values of attributes, until the first one that is cut off.
pub(super) fn attributes(payload: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = payload;
    std::iter::from_fn(move || {
        let (length, kind) = (rest.first_chunk::<2>()?, rest.get(2..4)?.first_chunk::<2>()?);
        let length = usize::from(u16::from_ne_bytes(*length));
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes(*kind) & TYPE_MASK, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_knows_its_own_family_and_no_invented_one() {
        let mut generic = Generic::open(Span::from_secs(60)).unwrap();
        assert_eq!(generic.family("nlctrl").unwrap(), Some(CONTROLLER));
        assert_eq!(generic.family("no such family").unwrap(), None);
        assert_eq!(generic.family("nlctrl").unwrap(), Some(CONTROLLER));
    }

    #[test]
    fn an_answer_that_does_not_come_ends_the_wait() {
        let mut generic = Generic::open(Span::ZERO).unwrap();
        let error = generic.family("nlctrl").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn answers_of_other_questions_are_skipped() {
        let question = |sequence| {
            let attribute = (7, &[1, 2, 3][..]);
            Question { family: 30, command: 9, is_dump: false, attribute }.bytes(sequence)
        };
        let datagram = [question(4), question(5)].concat();
        let mut taken = Vec::new();
        let read = |sequence, is_dump, taken: &mut Vec<(u8, Vec<u8>)>| {
            read(&datagram, sequence, is_dump, |command, rest| taken.push((command, rest.into())))
        };
        assert!(!read(6, false, &mut taken).unwrap());
        assert!(taken.is_empty());
        assert!(read(5, false, &mut taken).unwrap());
        assert!(!read(4, true, &mut taken).unwrap());
        assert_eq!(taken.len(), 2);
        let (command, rest) = &taken[0];
        assert_eq!(*command, 9);
        assert_eq!(attributes(rest).collect::<Vec<_>>(), [(7, &[1, 2, 3][..])]);
    }

    #[test]
    fn attributes_end_where_one_is_cut_off() {
        let header = |length: u16, kind: u16| [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        let flagged = [
            header(5, 0x8003),
            vec![1, 0, 0, 0],
            header(4, 2),
            // Nine bytes are announced.
            header(9, 1),
        ]
        .concat();
        assert_eq!(attributes(&flagged).collect::<Vec<_>>(), [(3, &[1][..]), (2, &[][..])]);
        // A length below that of the header.
        assert_eq!(attributes(&header(3, 1)).count(), 0);
    }
}
