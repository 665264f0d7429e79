//! Where captures come from: files, folders, patterns and standard input, compressed or not.

use std::collections::HashSet;
use std::fs;
use std::io::{self, Chain, Cursor, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use flate2::read::MultiGzDecoder;
use manyways_sys::input::Input;
use thiserror::Error;

use super::work::Progress;

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const XZ: [u8; 4] = [0xfd, b'7', b'z', b'X'];
const BZIP2: [u8; 3] = *b"BZh";
/// What captures begin with: pcap in both orders and its variants, pcapng, btsnoop.
pub const CAPTURES: [[u8; 4]; 8] = [
    [0xa1, 0xb2, 0xc3, 0xd4],
    [0xd4, 0xc3, 0xb2, 0xa1],
    [0xa1, 0xb2, 0x3c, 0x4d],
    [0x4d, 0x3c, 0xb2, 0xa1],
    [0xa1, 0xb2, 0xcd, 0x34],
    [0x34, 0xcd, 0xb2, 0xa1],
    [0x0a, 0x0d, 0x0d, 0x0a],
    *b"btsn",
];

/// A capture that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Standard input.
    Stdin,
    /// A file.
    File {
        /// Where it is.
        path: PathBuf,
        /// How many bytes it has.
        length: u64,
    },
}

/// All that was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// In the order of their names.
    pub captures: Vec<Source>,
    /// Files in folders that are no captures.
    pub skipped: Vec<PathBuf>,
}

/// Why a capture cannot be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SourceError {
    /// It is not there, or may not be read.
    #[error("cannot read {path}: {error}", path = .path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// What the system says.
        #[source]
        error: io::Error,
    },
    /// A pattern matches nothing, or is none.
    #[error("no file matches {0}")]
    Pattern(String),
    /// A folder has no captures.
    #[error("{path} has no captures in it", path = .0.display())]
    Empty(PathBuf),
    /// It is compressed in a way that is not read here.
    #[error("{path} is compressed with {format}", path = .path.display())]
    Compressed {
        /// Which.
        path: PathBuf,
        /// How.
        format: &'static str,
    },
}

impl SourceError {
    /// What the user can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Read { .. } => {
                "give the path of a capture, of a folder with captures, or - for standard input"
            }
            Self::Pattern(_) => {
                "quote a pattern so that the shell leaves it alone, or give a folder"
            }
            Self::Empty(_) => {
                "captures are pcap, pcapng or btsnoop files, also compressed with gzip or zstd"
            }
            Self::Compressed { .. } => "decompress it first; gzip and zstd are read as they are",
        }
    }
}

impl Sources {
    /// Finds what these arguments name: files, folders with all that is in them, patterns with
    /// `*`, `?` and `[…]`, or `-`.
    pub fn find(arguments: &[PathBuf]) -> Result<Self, SourceError> {
        let mut sources = Self::default();
        for argument in arguments {
            if argument.as_os_str() == "-" {
                sources.captures.push(Source::Stdin);
                continue;
            }
            let text = argument.to_string_lossy();
            if !argument.exists() && text.contains(['*', '?', '[']) {
                sources.matching(&text)?;
            } else {
                sources.add(argument)?;
            }
        }
        Ok(sources)
    }

    fn matching(&mut self, pattern: &str) -> Result<(), SourceError> {
        let none = || SourceError::Pattern(pattern.to_owned());
        let paths: Vec<PathBuf> =
            glob::glob(pattern).map_err(|_| none())?.filter_map(Result::ok).collect();
        if paths.is_empty() {
            return Err(none());
        }
        paths.iter().try_for_each(|path| self.add(path))
    }

    /// A file or a folder that an argument names.
    fn add(&mut self, path: &Path) -> Result<(), SourceError> {
        self.add_below(path, true, &mut HashSet::new())
    }

    /// `entered` has device and inode of each folder so far: links between folders make loops.
    fn add_below(
        &mut self,
        path: &Path,
        is_named: bool,
        entered: &mut HashSet<(u64, u64)>,
    ) -> Result<(), SourceError> {
        let wrong = |error| SourceError::Read { path: path.to_owned(), error };
        let metadata = match fs::metadata(path) {
            // A link in a folder that leads nowhere or to itself, or a file that is gone by now.
            Err(error)
                if !is_named && (path.is_symlink() || error.kind() == io::ErrorKind::NotFound) =>
            {
                self.skipped.push(path.to_owned());
                return Ok(());
            }
            found => found.map_err(wrong)?,
        };
        if !metadata.is_dir() {
            // Files of no length in a folder are not opened: those of /proc keep their reader waiting.
            let is_file = metadata.is_file() && metadata.len() > 0;
            if is_named || is_file && is_capture(path) {
                let length = metadata.len();
                self.captures.push(Source::File { path: path.to_owned(), length });
            } else {
                self.skipped.push(path.to_owned());
            }
            return Ok(());
        }
        if !entered.insert((metadata.dev(), metadata.ino())) {
            return Ok(());
        }
        let before = self.captures.len();
        let entries = fs::read_dir(path).map_err(wrong)?;
        let mut entries: Vec<PathBuf> = entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>()
            .map_err(wrong)?;
        entries.sort();
        entries.iter().try_for_each(|entry| match self.add_below(entry, false, entered) {
            // A folder of folders: one without captures says nothing of the others.
            Err(SourceError::Empty(_)) => Ok(()),
            other => other,
        })?;
        if self.captures.len() == before {
            Err(SourceError::Empty(path.to_owned()))
        } else {
            Ok(())
        }
    }
}

/// Whether a file begins like a capture, also behind its compression.
fn is_capture(path: &Path) -> bool {
    let source = Source::File { path: path.to_owned(), length: 0 };
    let mut magic = [0; 4];
    source.reader(&Arc::default()).is_ok_and(|mut bytes| bytes.read_exact(&mut magic).is_ok())
        && CAPTURES.contains(&magic)
}

impl Source {
    /// Its name.
    pub fn name(&self) -> String {
        match self {
            Self::Stdin => "standard input".to_owned(),
            Self::File { path, .. } => path.display().to_string(),
        }
    }

    /// Where it is; none for standard input.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Stdin => None,
            Self::File { path, .. } => Some(path),
        }
    }

    /// How many bytes it has, compressed as they are; none where nobody knows.
    pub fn length(&self) -> Option<u64> {
        match self {
            Self::Stdin => None,
            Self::File { length, .. } => Some(*length),
        }
    }

    /// The file at that path, or standard input where it is `-`.
    ///
    /// # Errors
    /// Where there is none.
    pub fn at(path: &Path) -> Result<Self, SourceError> {
        if path.as_os_str() == "-" {
            return Ok(Self::Stdin);
        }
        let metadata = fs::metadata(path);
        let metadata = metadata.map_err(|error| SourceError::Read { path: path.into(), error })?;
        Ok(Self::File { path: path.to_owned(), length: metadata.len() })
    }

    /// The decompressed bytes, which end when `stop` is set.
    ///
    /// # Errors
    /// Where the file cannot be read, or the compression is not known.
    pub fn reader(&self, stop: &Arc<AtomicBool>) -> Result<Box<dyn Read + Send>, SourceError> {
        self.open(&Progress { stop: stop.clone(), ..Progress::default() })
    }

    /// Opens the capture, decompresses it and counts the bytes that are read of it in `progress`. It
    /// ends when `progress.stop` is set.
    pub fn open(&self, progress: &Progress) -> Result<Box<dyn Read + Send>, SourceError> {
        let wrong = |error| SourceError::Read { path: self.name().into(), error };
        let raw = match self {
            Self::Stdin => Input::stdin(&progress.stop),
            Self::File { path, .. } => Input::open(path, &progress.stop),
        };
        let mut raw = Counted { raw: raw.map_err(wrong)?, read: progress.read.clone() };
        let mut magic = Vec::with_capacity(4);
        raw.by_ref().take(4).read_to_end(&mut magic).map_err(wrong)?;
        let other = |format| SourceError::Compressed { path: self.name().into(), format };
        let whole: Chain<Cursor<Vec<u8>>, Counted> = Cursor::new(magic.clone()).chain(raw);
        match magic {
            magic if magic.starts_with(&GZIP) => Ok(Box::new(MultiGzDecoder::new(whole))),
            magic if magic.starts_with(&ZSTD) => {
                Ok(Box::new(zstd::stream::read::Decoder::new(whole).map_err(wrong)?))
            }
            magic if magic.starts_with(&XZ) => Err(other("xz")),
            magic if magic.starts_with(&BZIP2) => Err(other("bzip2")),
            _ => Ok(Box::new(whole)),
        }
    }
}

/// Counts what is read.
struct Counted {
    raw: Input,
    read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.raw.read(buffer)?;
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}
