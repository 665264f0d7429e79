//! Finds the bodies of a file without a directory.

use std::collections::HashSet;
use std::io::{self, Read, Seek, SeekFrom};

use super::format::Entry;
use super::member::{BodyReader, Header};
use super::{ContainerError, Digest, MAX_BODY, body_name, named_body};

/// The whole bodies of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    pub(super) members: Vec<(Digest, Entry)>,
    pub(super) length: u64,
    pub(super) damaged: usize,
}

impl Recovered {
    /// The bodies, in the order of the file.
    pub fn digests(&self) -> impl Iterator<Item = &Digest> {
        self.members.iter().map(|(digest, _)| digest)
    }

    /// Position behind the last whole body, at which a [`Writer`](super::Writer) may continue.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Number of bodies with a header whose bytes are not all there or are wrong.
    pub fn damaged(&self) -> usize {
        self.damaged
    }
}

/// Finds the bodies of a recording that was not completed, by the headers before them. Reads all of
/// them once. A damaged body is passed over; the search ends at the HAR, at the directory, and at
/// everything else that is not a body.
///
/// # Errors
/// The file cannot be read.
pub fn recover<R: Read + Seek>(file: &mut R) -> io::Result<Recovered> {
    let length = file.seek(SeekFrom::End(0))?;
    let mut recovered = Recovered::default();
    let mut known = HashSet::new();
    let mut at = 0;
    while let Some(header) = Header::read(file, at)? {
        let Some(digest) = named_body(&header.name) else { break };
        let entry = Entry { offset: at, ..header.entry };
        at = header.content.saturating_add(entry.packed);
        if at > length {
            recovered.damaged += 1;
            break;
        }
        if !is_whole(file, &digest, &entry, header.content)? {
            recovered.damaged += 1;
        } else if known.insert(digest) {
            recovered.members.push((digest, entry));
            recovered.length = at;
        }
    }
    Ok(recovered)
}

fn is_whole<R: Read + Seek>(
    file: &mut R,
    digest: &Digest,
    entry: &Entry,
    content: u64,
) -> io::Result<bool> {
    let name = body_name(digest);
    // With other flags, lengths may follow the content, or it is encrypted.
    if entry.flags != 0 || entry.check(&name, MAX_BODY).is_err() {
        return Ok(false);
    }
    let mut body = BodyReader::new(file, name, entry, content, Some(*digest))?;
    match io::copy(&mut body, &mut io::sink()).map_err(ContainerError::from) {
        Ok(_) => Ok(true),
        Err(ContainerError::Io(error)) => Err(error),
        Err(_) => Ok(false),
    }
}
