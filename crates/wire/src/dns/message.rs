//! DNS messages (RFC 1035), complete or truncated by the capture.

use std::net::IpAddr;

use manyways_unit::Span;

use super::{Kind, Question, Rcode};
use crate::escape::escape;

/// Maximum number of records read in each section of a message.
pub(super) const MAX_RECORDS: u16 = 512;
/// Maximum length of a name on the wire (RFC 1035, 3.1).
const MAX_NAME_BYTES: usize = 255;
/// Maximum number of compression pointers in a name; a name has at most 127 labels.
const MAX_POINTERS: usize = 128;
const HEADER: usize = 12;
const IN: u16 = 1;

#[derive(Debug)]
pub(super) struct Message {
    pub id: u16,
    flags: u16,
    /// Numbers of questions, answers, authorities and additional records in the header; `None` if
    /// truncated.
    pub counts: Option<[u16; 4]>,
    /// The first question, if complete.
    pub question: Option<Question>,
    /// The complete records of the answer section.
    pub answers: Vec<Record>,
    /// Whether all records of the header's counts were present and readable.
    pub is_complete: bool,
    /// Upper bits of the rcode, from the OPT record (RFC 6891, 6.1.3).
    extended_rcode: u8,
}

#[derive(Debug)]
pub(super) struct Record {
    /// Owner name as text in lower case.
    pub owner: String,
    pub class: u16,
    pub ttl: Span,
    pub data: Data,
}

#[derive(Debug)]
pub(super) enum Data {
    Address(IpAddr),
    /// CNAME: the canonical name of the owner.
    Alias(String),
    /// PTR: the name of an address.
    Pointer(String),
    /// OPT: the upper bits of the rcode.
    Options(u8),
    Other,
}

impl Message {
    /// Reads a message; `None` if ID or flags are incomplete.
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
            is_complete: false,
            extended_rcode: 0,
        };
        message.is_complete = message.read_sections(bytes).is_some();
        Some(message)
    }

    pub(super) fn is_response(&self) -> bool {
        self.flags & 0x8000 != 0
    }

    /// The opcode; 0 is a standard query.
    pub(super) fn opcode(&self) -> u16 {
        self.flags >> 11 & 0xf
    }

    pub(super) fn is_truncated(&self) -> bool {
        self.flags & 0x0200 != 0
    }

    pub(super) fn rcode(&self) -> Rcode {
        Rcode(u16::from(self.extended_rcode) << 4 | self.flags & 0xf)
    }

    /// Answers of class IN.
    pub(super) fn internet_answers(&self) -> impl Iterator<Item = &Record> + Clone {
        self.answers.iter().filter(|record| record.class == IN)
    }

    /// Stops with `None` at the first missing or invalid part.
    fn read_sections(&mut self, bytes: &[u8]) -> Option<()> {
        let [questions, answers, authorities, additional] = self.counts?;
        let mut at = HEADER;
        for _ in 0..questions.min(MAX_RECORDS) {
            let (name, end) = name(bytes, at)?;
            let (kind, class) = (Kind(number(bytes, end)?), number(bytes, end + 2)?);
            self.question.get_or_insert(Question { name: name.into(), kind, class });
            at = end + 4;
        }
        let sections = [(answers, true), (authorities, false), (additional, false)];
        for (count, is_answer) in sections {
            for _ in 0..count.min(MAX_RECORDS) {
                let (record, end) = record(bytes, at)?;
                at = end;
                match record.data {
                    Data::Options(upper) => self.extended_rcode = upper,
                    _ if is_answer => self.answers.push(record),
                    _ => {}
                }
            }
        }
        self.counts?.iter().all(|count| *count <= MAX_RECORDS).then_some(())
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Reads the record at `at` and returns its end.
fn record(bytes: &[u8], at: usize) -> Option<(Record, usize)> {
    let (owner, at) = name(bytes, at)?;
    let [kind, class] = [number(bytes, at)?, number(bytes, at + 2)?];
    let field = u32::from_be_bytes(*bytes.get(at + 4..)?.first_chunk()?);
    let begin = at + 10;
    let end = begin + usize::from(number(bytes, at + 8)?);
    let data = bytes.get(begin..end)?;
    // A name may contain a pointer to earlier bytes, but must end with the record.
    let named = || name(bytes, begin).filter(|(_, here)| *here == end).map(|(name, _)| name);
    let data = match Kind(kind) {
        Kind::A => Data::Address(<[u8; 4]>::try_from(data).ok()?.into()),
        Kind::AAAA => Data::Address(<[u8; 16]>::try_from(data).ok()?.into()),
        Kind::CNAME => Data::Alias(named()?),
        Kind::PTR => Data::Pointer(named()?),
        Kind::OPT => Data::Options(field.to_be_bytes()[0]),
        _ => Data::Other,
    };
    Some((Record { owner, class, ttl: ttl(field), data }, end))
}

/// A TTL with the most significant bit set counts as 0 (RFC 2181, 8).
fn ttl(seconds: u32) -> Span {
    i32::try_from(seconds).map_or(Span::ZERO, |_| Span::from_secs(seconds.into()))
}

/// Reads the name at `at`, as text in lower case, and returns the offset after the name. Each
/// pointer must lead to before the labels that contain it (RFC 1035, 4.1.4), which rules out loops.
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
                if wire > MAX_NAME_BYTES {
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
                if target < HEADER || target >= begin || jumps > MAX_POINTERS {
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
