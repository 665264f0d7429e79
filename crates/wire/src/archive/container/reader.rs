//! Reads a file that has a directory.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom};

use super::format::{
    Directory, END_LENGTH, END64_LENGTH, ENTRY_LENGTH, EndRecord, Entry, EntryHeader,
    LOCATOR_LENGTH, parse_locator,
};
use super::member::{BodyReader, Header, read_at};
use super::{ContainerError, Digest, HAR_NAME, MAX_BODY, MAX_HAR, body_name, named_body};

/// Maximum length of the comment at the end of an archive, in bytes.
const MAX_COMMENT: u64 = u16::MAX as u64;
/// Longest part of a name in an error.
const SHOWN_NAME: usize = 120;

/// A recording's file, whose members are read one by one.
#[derive(Debug)]
pub struct Reader<R> {
    pub(super) file: R,
    har: Entry,
    bodies: BTreeMap<Digest, Entry>,
    ignored: usize,
}

impl<R: Read + Seek> Reader<R> {
    /// Reads the directory, and checks it; the cost is proportional to its length. The content of a
    /// member is checked when it is read.
    ///
    /// # Errors
    /// The file cannot be read, is not a whole zip archive, lacks the HAR, or has a member that is
    /// refused: a name that could leave a folder, a second one of a name, an encrypted one, a HAR or
    /// body that is too long, expands too much, overlaps another or is compressed by another method
    /// than deflate.
    pub fn open(mut file: R) -> Result<Self, ContainerError> {
        let directory = find_directory(&mut file)?;
        file.seek(SeekFrom::Start(directory.start))?;
        let mut members = Members::new(directory);
        members.read(&mut BufReader::new((&mut file).take(directory.length)))?;
        members.check_overlaps()?;
        let Members { har, bodies, ignored, .. } = members;
        Ok(Self { file, har: har.ok_or(ContainerError::NoHar)?, bodies, ignored })
    }

    /// Number of members that are neither the HAR nor bodies.
    pub fn ignored(&self) -> usize {
        self.ignored
    }

    /// The bodies, in the order of their digests.
    pub fn digests(&self) -> impl Iterator<Item = &Digest> {
        self.bodies.keys()
    }

    /// Length of a body in bytes, as the directory states it. `None` if the file does not have it.
    pub fn length(&self, digest: &Digest) -> Option<u64> {
        Some(self.bodies.get(digest)?.size)
    }

    /// Reads the HAR.
    ///
    /// # Errors
    /// The file cannot be read, or the HAR is damaged or not UTF-8.
    pub fn har(&mut self) -> Result<String, ContainerError> {
        let har = self.har;
        let bytes = self.member(HAR_NAME.into(), &har, None)?.read_all()?;
        String::from_utf8(bytes)
            .map_err(|error| ContainerError::Text { at: error.utf8_error().valid_up_to() })
    }

    /// Reads a body, up to [`MAX_BODY`] bytes.
    ///
    /// # Errors
    /// The file cannot be read or does not have the body, or the bytes are not those of the digest.
    pub fn body(&mut self, digest: &Digest) -> Result<Vec<u8>, ContainerError> {
        self.open_body(digest)?.read_all()
    }

    /// Begins to read a body in parts.
    ///
    /// # Errors
    /// The file cannot be read, or does not have the body.
    pub fn open_body(&mut self, digest: &Digest) -> Result<BodyReader<'_, R>, ContainerError> {
        let missing = ContainerError::MissingBody { digest: *digest };
        let entry = *self.bodies.get(digest).ok_or(missing)?;
        self.member(body_name(digest), &entry, Some(*digest))
    }

    fn member(
        &mut self,
        name: String,
        entry: &Entry,
        digest: Option<Digest>,
    ) -> Result<BodyReader<'_, R>, ContainerError> {
        let header = Header::read(&mut self.file, entry.offset)?;
        // Lengths and CRC may follow the content, if the header's flag 3 is set.
        let is_same = |header: &Header| {
            let method = header.entry.method;
            header.name == name.as_bytes() && method == entry.method && !header.entry.is_encrypted()
        };
        match header.filter(is_same) {
            Some(header) => {
                Ok(BodyReader::new(&mut self.file, name, entry, header.content, digest)?)
            }
            None => Err(ContainerError::Header { name }),
        }
    }
}

/// Finds the directory by the record at the end of the file. It has to end where that begins: a zip
/// archive among the bodies of a file that was cut is not taken for the file's own end.
fn find_directory<R: Read + Seek>(file: &mut R) -> Result<Directory, ContainerError> {
    let length = file.seek(SeekFrom::End(0))?;
    let tail_length = length.min(END_LENGTH as u64 + MAX_COMMENT);
    let mut tail = vec![0; tail_length as usize];
    if !read_at(file, length - tail_length, &mut tail)? {
        return Err(ContainerError::NoDirectory);
    }
    let (at, mut record) = EndRecord::find(&tail).ok_or(ContainerError::NoDirectory)?;
    let mut end = length - tail_length + at as u64;
    if record.needs_zip64()
        && let Some((position, wide)) = find_end64(file, end)?
    {
        (end, record) = (position, wide);
    }
    let directory = record.directory;
    match directory.start.checked_add(directory.length) {
        _ if record.is_split => Err(ContainerError::Split),
        Some(found) if found == end => Ok(directory),
        _ => Err(ContainerError::NoDirectory),
    }
}

/// Reads the end record of zip64, which a locator before the end record points at.
fn find_end64<R: Read + Seek>(
    file: &mut R,
    end: u64,
) -> Result<Option<(u64, EndRecord)>, ContainerError> {
    let Some(at) = end.checked_sub(LOCATOR_LENGTH as u64) else { return Ok(None) };
    let mut locator = [0; LOCATOR_LENGTH];
    read_at(file, at, &mut locator)?;
    let Some(position) = parse_locator(&locator).filter(|position| *position < at) else {
        return Ok(None);
    };
    let mut record = [0; END64_LENGTH];
    if !read_at(file, position, &mut record)? {
        return Ok(None);
    }
    Ok(EndRecord::parse64(&record).map(|record| (position, record)))
}

/// The members of a directory.
struct Members {
    directory: Directory,
    names: HashSet<Vec<u8>>,
    har: Option<Entry>,
    bodies: BTreeMap<Digest, Entry>,
    ignored: usize,
}

impl Members {
    fn new(directory: Directory) -> Self {
        let (names, bodies) = (HashSet::new(), BTreeMap::new());
        Self { directory, names, har: None, bodies, ignored: 0 }
    }

    fn read(&mut self, from: &mut impl Read) -> Result<(), ContainerError> {
        let (mut at, mut count) = (0, 0);
        while at < self.directory.length {
            let broken = || ContainerError::Directory { at: self.directory.start + at };
            let unread = |error: io::Error| match error.kind() {
                ErrorKind::UnexpectedEof => broken(),
                _ => error.into(),
            };
            let mut fixed = [0; ENTRY_LENGTH];
            from.read_exact(&mut fixed).map_err(unread)?;
            let header = EntryHeader::parse(&fixed).ok_or_else(broken)?;
            let lengths = [header.name_length, header.extra_length, header.comment_length];
            let mut parts = lengths.map(|length| vec![0; length.into()]);
            for part in &mut parts {
                from.read_exact(part).map_err(unread)?;
            }
            let [name, extra, _comment] = parts;
            let entry = header.entry(&extra).ok_or_else(broken)?;
            self.add(name, entry)?;
            at += ENTRY_LENGTH as u64 + lengths.map(u64::from).iter().sum::<u64>();
            count += 1;
        }
        if (at, count) != (self.directory.length, self.directory.count) {
            return Err(ContainerError::Directory { at: self.directory.start + at });
        }
        Ok(())
    }

    fn add(&mut self, name: Vec<u8>, entry: Entry) -> Result<(), ContainerError> {
        let shown = shown(&name);
        if is_unsafe(&name) {
            return Err(ContainerError::UnsafeName { name: shown });
        }
        if entry.is_encrypted() {
            return Err(ContainerError::Encrypted { name: shown });
        }
        if name == HAR_NAME.as_bytes() {
            entry.check(&shown, MAX_HAR)?;
            self.har.get_or_insert(entry);
        } else if let Some(digest) = named_body(&name) {
            entry.check(&shown, MAX_BODY)?;
            self.bodies.entry(digest).or_insert(entry);
        } else {
            self.ignored += 1;
        }
        if !self.names.insert(name) {
            return Err(ContainerError::Duplicate { name: shown });
        }
        Ok(())
    }

    /// Checks that no byte of the file belongs to two members: overlapping members expand to far
    /// more than their file has.
    fn check_overlaps(&self) -> Result<(), ContainerError> {
        let har = self.har.iter().map(|entry| (entry, HAR_NAME.to_string()));
        let bodies = self.bodies.iter().map(|(digest, entry)| (entry, body_name(digest)));
        let mut members: Vec<_> = har.chain(bodies).collect();
        members.sort_by_key(|(entry, _)| entry.offset);
        let next = members.iter().skip(1).map(|(entry, _)| entry.offset);
        let ends: Vec<u64> = next.chain([self.directory.start]).collect();
        for ((entry, name), end) in members.into_iter().zip(ends) {
            let length = entry.least_length(&name);
            if entry.offset.checked_add(length).is_none_or(|own_end| own_end > end) {
                return Err(ContainerError::Overlap { name });
            }
        }
        Ok(())
    }
}

/// Returns whether a program that unpacks the archive could write outside of its folder: the name is
/// absolute, goes up or has backslashes, which separate folders on Windows.
fn is_unsafe(name: &[u8]) -> bool {
    let has_drive = matches!(name, [letter, b':', ..] if letter.is_ascii_alphabetic());
    name.starts_with(b"/")
        || has_drive
        || name.contains(&b'\\')
        || name.split(|byte| *byte == b'/').any(|part| part == b"..")
}

fn shown(name: &[u8]) -> String {
    name.get(..SHOWN_NAME).unwrap_or(name).escape_ascii().to_string()
}
