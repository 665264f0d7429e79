//! What is inside a message of RFC 1035, as far as it is there: captures cut packets.

use std::net::IpAddr;

use manyways_unit::Span;

use super::{Code, Kind, Question};
use crate::escape::escape;

/// The most records that are read of one message.
pub(super) const RECORD_LIMIT: u16 = 512;
/// A name has at most so many bytes in a message (RFC 1035, 3.1).
const WIRE_LIMIT: usize = 255;
/// A name has at most so many labels, each of which may be elsewhere.
const JUMP_LIMIT: usize = 128;
const HEADER: usize = 12;
const IN: u16 = 1;

/// A message, or its beginning.
#[derive(Debug)]
pub(super) struct Message {
    pub id: u16,
    flags: u16,
    /// How many questions, answers, authorities and additional records its header claims.
    pub counts: Option<[u16; 4]>,
    /// The first question, when it is there in full.
    pub question: Option<Question>,
    /// As many answers as are there in full.
    pub answers: Vec<Record>,
    /// All that the header claims was there and could be read.
    pub is_whole: bool,
    /// The upper bits of its code, when there is an OPT record (RFC 6891, 6.1.3).
    extended: u8,
}

#[derive(Debug)]
pub(super) struct Record {
    /// Whose it is, as text in lower case.
    pub owner: String,
    pub class: u16,
    pub lifetime: Span,
    pub data: Data,
}

#[derive(Debug)]
pub(super) enum Data {
    Address(IpAddr),
    /// The owner is another name for this one.
    Alias(String),
    /// An address has this name.
    Pointer(String),
    /// The OPT record with the upper bits of the message's code.
    Options(u8),
    Other,
}

impl Message {
    /// Reads what is there; none when not even the flags are.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let counts = || {
            let [q, a, n, r] = [4, 6, 8, 10].map(|at| number(bytes, at));
            Some([q?, a?, n?, r?])
        };
        let mut message = Self {
            id: number(bytes, 0)?,
            flags: number(bytes, 2)?,
            counts: counts(),
            question: None,
            answers: Vec::new(),
            is_whole: false,
            extended: 0,
        };
        message.is_whole = message.read_sections(bytes).is_some();
        Some(message)
    }

    pub(super) fn is_response(&self) -> bool {
        self.flags & 0x8000 != 0
    }

    /// What it is about: 0 for an ordinary question.
    pub(super) fn operation(&self) -> u16 {
        self.flags >> 11 & 0xf
    }

    pub(super) fn is_truncated(&self) -> bool {
        self.flags & 0x0200 != 0
    }

    pub(super) fn code(&self) -> Code {
        Code(u16::from(self.extended) << 4 | self.flags & 0xf)
    }

    /// The answers of the class of the Internet.
    pub(super) fn internet(&self) -> impl Iterator<Item = &Record> + Clone {
        self.answers.iter().filter(|record| record.class == IN)
    }

    /// None at the first thing that is not there.
    fn read_sections(&mut self, bytes: &[u8]) -> Option<()> {
        let [questions, answers, authorities, additional] = self.counts?;
        let mut at = HEADER;
        for _ in 0..questions.min(RECORD_LIMIT) {
            let (name, end) = name(bytes, at)?;
            let (kind, class) = (Kind(number(bytes, end)?), number(bytes, end + 2)?);
            self.question.get_or_insert(Question { name: name.into(), kind, class });
            at = end + 4;
        }
        let sections = [(answers, true), (authorities, false), (additional, false)];
        for (count, is_answer) in sections {
            for _ in 0..count.min(RECORD_LIMIT) {
                let (record, end) = record(bytes, at)?;
                at = end;
                match record.data {
                    Data::Options(upper) => self.extended = upper,
                    _ if is_answer => self.answers.push(record),
                    _ => {}
                }
            }
        }
        self.counts?.iter().all(|count| *count <= RECORD_LIMIT).then_some(())
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The record at this place and where it ends.
fn record(bytes: &[u8], at: usize) -> Option<(Record, usize)> {
    let (owner, at) = name(bytes, at)?;
    let [kind, class] = [number(bytes, at)?, number(bytes, at + 2)?];
    let ttl = u32::from_be_bytes(*bytes.get(at + 4..)?.first_chunk()?);
    let begin = at + 10;
    let end = begin + usize::from(number(bytes, at + 8)?);
    let data = bytes.get(begin..end)?;
    // A name may point to what is before it, but has to end where the record does.
    let named = || name(bytes, begin).filter(|(_, here)| *here == end).map(|(name, _)| name);
    let data = match Kind(kind) {
        Kind::A => Data::Address(<[u8; 4]>::try_from(data).ok()?.into()),
        Kind::AAAA => Data::Address(<[u8; 16]>::try_from(data).ok()?.into()),
        Kind::CNAME => Data::Alias(named()?),
        Kind::PTR => Data::Pointer(named()?),
        Kind::OPT => Data::Options(ttl.to_be_bytes()[0]),
        _ => Data::Other,
    };
    Some((Record { owner, class, lifetime: lifetime(ttl), data }, end))
}

/// A lifetime with its first bit set is none at all (RFC 2181, 8).
fn lifetime(seconds: u32) -> Span {
    i32::try_from(seconds).map_or(Span::ZERO, |_| Span::from_secs(seconds.into()))
}

/// The name at this place, as text in lower case, and where what follows it begins. A pointer leads
/// to what is before the labels that lead to it (RFC 1035, 4.1.4), so that this ends.
fn name(bytes: &[u8], at: usize) -> Option<(String, usize)> {
    let (mut text, mut wire) = (String::new(), 1);
    let (mut here, mut begin, mut end, mut jumps) = (at, at, None, 0);
    loop {
        let first = *bytes.get(here)?;
        match first >> 6 {
            0 if first == 0 => break,
            0 => {
                let label = bytes.get(here + 1..)?.get(..usize::from(first))?;
                here += 1 + label.len();
                wire += 1 + label.len();
                if wire > WIRE_LIMIT {
                    return None;
                }
                if !text.is_empty() {
                    text.push('.');
                }
                escape(&mut text, label, b".");
            }
            3 => {
                let target = usize::from(number(bytes, here)? & 0x3fff);
                jumps += 1;
                if target < HEADER || target >= begin || jumps > JUMP_LIMIT {
                    return None;
                }
                end.get_or_insert(here + 2);
                (here, begin) = (target, target);
            }
            _ => return None,
        }
    }
    if text.is_empty() {
        text.push('.');
    }
    text.make_ascii_lowercase();
    Some((text, end.unwrap_or(here + 1)))
}
