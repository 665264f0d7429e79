//! Headers of a zip archive (APPNOTE 6.3.10, 4.3), those that a recording has. All numbers are
//! little-endian.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::DeflateEncoder;

use super::{ContainerError, MAX_RATIO, SMALL};

/// Length of a header before a member, without its name.
pub(super) const LOCAL_LENGTH: usize = 30;
/// Length of an entry in the directory, without its name.
pub(super) const ENTRY_LENGTH: usize = 46;
/// Length of the record at the end of the file, without its comment.
pub(super) const END_LENGTH: usize = 22;
/// Length of the end record of zip64.
pub(super) const END64_LENGTH: usize = 56;
/// Length of the record that locates the end record of zip64.
pub(super) const LOCATOR_LENGTH: usize = 20;

const LOCAL: u32 = 0x0403_4b50;
const ENTRY: u32 = 0x0201_4b50;
const END: u32 = 0x0605_4b50;
const END64: u32 = 0x0606_4b50;
const LOCATOR: u32 = 0x0706_4b50;

pub(super) const STORED: u16 = 0;
pub(super) const DEFLATED: u16 = 8;

/// Version of zip that has deflate.
const VERSION: u16 = 20;
/// Version of zip that has zip64.
const VERSION64: u16 = 45;
/// 1 January 1980: the times of a recording are in its HAR.
const DATE: u16 = 1 << 5 | 1;
/// Extra field with numbers that need more than 32 bits.
const ZIP64_FIELD: u16 = 1;
/// Permissions of a member when it is unpacked, as Unix has them: `-rw-------`.
const MODE: u32 = 0o100_600 << 16;
/// Made on Unix, in the upper byte of a version.
const UNIX: u16 = 3 << 8;

/// A member, as its headers describe it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Position of the header before it.
    pub(super) offset: u64,
    pub(super) flags: u16,
    pub(super) method: u16,
    pub(super) crc: u32,
    /// Length in the file.
    pub(super) packed: u64,
    /// Length of the content.
    pub(super) size: u64,
}

impl Entry {
    /// Checks that it can be read at a limited cost.
    pub(super) fn check(&self, name: &str, limit: u64) -> Result<(), ContainerError> {
        let (name, size) = (name.to_string(), self.size);
        match self.method {
            _ if self.is_encrypted() => Err(ContainerError::Encrypted { name }),
            STORED if self.packed != size => Err(ContainerError::Length { name }),
            STORED | DEFLATED if size > limit => Err(ContainerError::TooLong { name, size, limit }),
            DEFLATED if !is_ratio_allowed(self.packed, size) => Err(ContainerError::Ratio { name }),
            STORED | DEFLATED => Ok(()),
            method => Err(ContainerError::Method { name, method }),
        }
    }

    /// Length in the file with its header, if that has no extra fields.
    pub(super) fn least_length(&self, name: &str) -> u64 {
        (LOCAL_LENGTH as u64 + name.len() as u64).saturating_add(self.packed)
    }

    /// Bits 0, 6 and 13: the content, or the headers, too.
    pub(super) fn is_encrypted(&self) -> bool {
        self.flags & (1 | 1 << 6 | 1 << 13) != 0
    }

    /// Returns the header before the member. Lengths fit in 32 bits: those of a member are limited.
    pub(super) fn local_header(&self, name: &str) -> Vec<u8> {
        let mut header = LOCAL.to_le_bytes().to_vec();
        self.put_common(&mut header, VERSION);
        put16(&mut header, name.len() as u16);
        put16(&mut header, 0);
        header.extend(name.as_bytes());
        header
    }

    /// Appends its entry to the directory.
    pub(super) fn put_entry(&self, name: &str, directory: &mut Vec<u8>) {
        let narrow = u32::try_from(self.offset).ok().filter(|offset| *offset != u32::MAX);
        let version = if narrow.is_some() { VERSION } else { VERSION64 };
        put32(directory, ENTRY);
        put16(directory, UNIX | version);
        self.put_common(directory, version);
        put16(directory, name.len() as u16);
        put16(directory, if narrow.is_some() { 0 } else { 12 });
        // Comment, number of the file, internal attributes.
        directory.extend([0; 6]);
        put32(directory, MODE);
        put32(directory, narrow.unwrap_or(u32::MAX));
        directory.extend(name.as_bytes());
        if narrow.is_none() {
            put16(directory, ZIP64_FIELD);
            put16(directory, 8);
            directory.extend(self.offset.to_le_bytes());
        }
    }

    fn put_common(&self, header: &mut Vec<u8>, version: u16) {
        for value in [version, self.flags, self.method, 0, DATE] {
            put16(header, value);
        }
        for value in [self.crc, self.packed as u32, self.size as u32] {
            put32(header, value);
        }
    }
}

/// Returns whether a deflated member of `size` bytes may have this length in the file.
pub(super) fn is_ratio_allowed(packed: u64, size: u64) -> bool {
    size <= SMALL || size / MAX_RATIO <= packed
}

/// Where the directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Directory {
    pub(super) start: u64,
    pub(super) length: u64,
    pub(super) count: u64,
}

impl Directory {
    /// Appends the records at the end of the file.
    pub(super) fn put_end(&self, file: &mut Vec<u8>) {
        let count = u16::try_from(self.count).unwrap_or(u16::MAX);
        let length = u32::try_from(self.length).unwrap_or(u32::MAX);
        let start = u32::try_from(self.start).unwrap_or(u32::MAX);
        if count == u16::MAX || length == u32::MAX || start == u32::MAX {
            self.put_end64(file);
        }
        put32(file, END);
        for value in [0, 0, count, count] {
            put16(file, value);
        }
        put32(file, length);
        put32(file, start);
        put16(file, 0);
    }

    fn put_end64(&self, file: &mut Vec<u8>) {
        put32(file, END64);
        // The length does not include itself and the signature.
        file.extend((END64_LENGTH as u64 - 12).to_le_bytes());
        put16(file, UNIX | VERSION64);
        put16(file, VERSION64);
        file.extend([0; 8]);
        for value in [self.count, self.count, self.length, self.start] {
            file.extend(value.to_le_bytes());
        }
        put32(file, LOCATOR);
        put32(file, 0);
        file.extend((self.start + self.length).to_le_bytes());
        put32(file, 1);
    }
}

fn put16(to: &mut Vec<u8>, value: u16) {
    to.extend(value.to_le_bytes());
}

fn put32(to: &mut Vec<u8>, value: u32) {
    to.extend(value.to_le_bytes());
}

/// Returns the content compressed by deflate. Writing to memory does not fail.
pub(super) fn deflate(content: &[u8], level: Compression) -> Option<Vec<u8>> {
    let mut encoder = DeflateEncoder::new(Vec::new(), level);
    encoder.write_all(content).ok()?;
    encoder.finish().ok()
}

/// The numbers of a header, from its beginning.
struct Numbers<'b>(&'b [u8]);

impl Numbers<'_> {
    fn next16(&mut self) -> Option<u16> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u16::from_le_bytes(*number))
    }

    fn next32(&mut self) -> Option<u32> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*number))
    }

    fn next64(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    /// Returns the fields that a header before a member has in common with an entry.
    fn next_entry(&mut self) -> Option<Entry> {
        let _version = self.next16()?;
        let (flags, method) = (self.next16()?, self.next16()?);
        let _time = self.next32()?;
        let (crc, packed, size) = (self.next32()?, self.next32()?, self.next32()?);
        Some(Entry { offset: 0, flags, method, crc, packed: packed.into(), size: size.into() })
    }
}

/// A header before a member, and the lengths of the parts that follow it.
pub(super) struct LocalHeader {
    /// Without the position.
    pub(super) entry: Entry,
    pub(super) name_length: u16,
    pub(super) extra_length: u16,
}

impl LocalHeader {
    pub(super) fn parse(bytes: &[u8; LOCAL_LENGTH]) -> Option<Self> {
        let mut numbers = Numbers(bytes);
        if numbers.next32()? != LOCAL {
            return None;
        }
        let entry = numbers.next_entry()?;
        Some(Self { entry, name_length: numbers.next16()?, extra_length: numbers.next16()? })
    }

    /// Length of the header with its name and extra fields.
    pub(super) fn length(&self) -> u64 {
        LOCAL_LENGTH as u64 + u64::from(self.name_length) + u64::from(self.extra_length)
    }
}

/// An entry of the directory, and the lengths of the parts that follow it.
pub(super) struct EntryHeader {
    entry: Entry,
    pub(super) name_length: u16,
    pub(super) extra_length: u16,
    pub(super) comment_length: u16,
}

impl EntryHeader {
    pub(super) fn parse(bytes: &[u8; ENTRY_LENGTH]) -> Option<Self> {
        let mut numbers = Numbers(bytes);
        if numbers.next32()? != ENTRY {
            return None;
        }
        let _made_by = numbers.next16()?;
        let mut entry = numbers.next_entry()?;
        let (name_length, extra_length) = (numbers.next16()?, numbers.next16()?);
        let comment_length = numbers.next16()?;
        let _file_and_attributes = numbers.next64()?;
        entry.offset = numbers.next32()?.into();
        Some(Self { entry, name_length, extra_length, comment_length })
    }

    /// Returns the entry, with the numbers that are in its extra fields. `None` if they are not
    /// there.
    pub(super) fn entry(&self, extra: &[u8]) -> Option<Entry> {
        let mut entry = self.entry;
        let wide = [&mut entry.size, &mut entry.packed, &mut entry.offset];
        let mut numbers = None;
        for value in wide.into_iter().filter(|value| **value == u64::from(u32::MAX)) {
            let field = || zip64_field(extra).map(Numbers);
            let numbers = numbers.get_or_insert_with(field).as_mut()?;
            *value = numbers.next64()?;
        }
        Some(entry)
    }
}

/// Returns the content of the extra field of zip64.
fn zip64_field(extra: &[u8]) -> Option<&[u8]> {
    let mut numbers = Numbers(extra);
    loop {
        let (kind, length) = (numbers.next16()?, numbers.next16()?);
        let (content, rest) = numbers.0.split_at_checked(length.into())?;
        if kind == ZIP64_FIELD {
            return Some(content);
        }
        numbers.0 = rest;
    }
}

/// The record at the end of a file.
pub(super) struct EndRecord {
    pub(super) directory: Directory,
    /// Of an archive in several files.
    pub(super) is_split: bool,
}

impl EndRecord {
    /// Searches for the record whose comment ends with the bytes. Returns its position in them, too.
    pub(super) fn find(tail: &[u8]) -> Option<(usize, Self)> {
        let last = tail.len().checked_sub(END_LENGTH)?;
        (0..=last).rev().find_map(|at| {
            let (record, comment) = tail.get(at..)?.split_at_checked(END_LENGTH)?;
            let (record, comment_length) = Self::parse(record)?;
            (comment.len() == usize::from(comment_length)).then_some((at, record))
        })
    }

    fn parse(bytes: &[u8]) -> Option<(Self, u16)> {
        let mut numbers = Numbers(bytes);
        if numbers.next32()? != END {
            return None;
        }
        let files = [numbers.next16()?, numbers.next16()?];
        let (here, count) = (numbers.next16()?, numbers.next16()?);
        let (length, start) = (numbers.next32()?.into(), numbers.next32()?.into());
        let directory = Directory { start, length, count: count.into() };
        // 65535 files: see the record of zip64.
        let is_split = files != [0, 0] && files != [u16::MAX; 2] || here != count;
        Some((Self { directory, is_split }, numbers.next16()?))
    }

    /// Whether a number is in the end record of zip64.
    pub(super) fn needs_zip64(&self) -> bool {
        let Directory { start, length, count } = self.directory;
        count == u64::from(u16::MAX) || [start, length].contains(&u64::from(u32::MAX))
    }

    /// Reads the end record of zip64.
    pub(super) fn parse64(bytes: &[u8; END64_LENGTH]) -> Option<Self> {
        let mut numbers = Numbers(bytes);
        if numbers.next32()? != END64 {
            return None;
        }
        let _length_and_versions = (numbers.next64()?, numbers.next32()?);
        let files = numbers.next64()?;
        let (here, count) = (numbers.next64()?, numbers.next64()?);
        let (length, start) = (numbers.next64()?, numbers.next64()?);
        let is_split = files != 0 || here != count;
        Some(Self { directory: Directory { start, length, count }, is_split })
    }
}

/// Returns the position of the end record of zip64.
pub(super) fn parse_locator(bytes: &[u8; LOCATOR_LENGTH]) -> Option<u64> {
    let mut numbers = Numbers(bytes);
    if numbers.next32()? != LOCATOR {
        return None;
    }
    let _file = numbers.next32()?;
    numbers.next64()
}
