//! Sources of captures: files, folders, patterns and standard input, compressed or not.

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
/// First bytes of captures: pcap in both byte orders and its variants, pcapng, btsnoop.
pub const CAPTURE_MAGIC: [[u8; 4]; 8] = [
    [0xa1, 0xb2, 0xc3, 0xd4],
    [0xd4, 0xc3, 0xb2, 0xa1],
    [0xa1, 0xb2, 0x3c, 0x4d],
    [0x4d, 0x3c, 0xb2, 0xa1],
    [0xa1, 0xb2, 0xcd, 0x34],
    [0x34, 0xcd, 0xb2, 0xa1],
    [0x0a, 0x0d, 0x0d, 0x0a],
    *b"btsn",
];

/// A capture to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Stdin,
    File {
        path: PathBuf,
        /// Length of the file in bytes, before decompression.
        length: u64,
    },
}

/// The captures found for a list of arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// Sorted by name within each folder.
    pub captures: Vec<Source>,
    /// Files in folders that are not captures.
    pub skipped: Vec<PathBuf>,
}

/// Reason why a capture cannot be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The file does not exist or cannot be read.
    #[error("cannot read {path}: {error}", path = .path.display())]
    Read {
        path: PathBuf,
        /// Error of the system.
        #[source]
        error: io::Error,
    },
    /// The pattern is invalid or matches no file.
    #[error("no file matches {0}")]
    Pattern(String),
    /// The folder has no captures.
    #[error("{path} contains no captures", path = .0.display())]
    Empty(PathBuf),
    /// The compression format is not supported.
    #[error("{path} is compressed with {format}", path = .path.display())]
    Compressed {
        path: PathBuf,
        /// Name of the compression format.
        format: &'static str,
    },
}

impl SourceError {
    /// Hint for the user.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Read { .. } => {
                "give the path of a capture, of a folder with captures, or - for standard input"
            }
            Self::Pattern(_) => {
                "quote a pattern so that the shell does not expand it, or give a folder"
            }
            Self::Empty(_) => {
                "captures are pcap, pcapng or btsnoop files, also compressed with gzip or zstd"
            }
            Self::Compressed { .. } => "decompress the file; only gzip and zstd are supported",
        }
    }
}

impl Sources {
    /// Finds the captures of these arguments: files, folders with all their content, patterns with
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

    /// Adds a file or folder that an argument names.
    fn add(&mut self, path: &Path) -> Result<(), SourceError> {
        self.add_below(path, true, &mut HashSet::new())
    }

    /// `entered` contains device and inode of each folder so far, because links between folders can
    /// form loops.
    fn add_below(
        &mut self,
        path: &Path,
        is_named: bool,
        entered: &mut HashSet<(u64, u64)>,
    ) -> Result<(), SourceError> {
        let wrong = |error| SourceError::Read { path: path.to_owned(), error };
        let metadata = match fs::metadata(path) {
            // A link in a folder without a valid target, or a file that was removed in the
            // meantime.
            Err(error)
                if !is_named && (path.is_symlink() || error.kind() == io::ErrorKind::NotFound) =>
            {
                self.skipped.push(path.to_owned());
                return Ok(());
            }
            found => found.map_err(wrong)?,
        };
        if !metadata.is_dir() {
            // Files of length 0 in a folder are not opened: a read from some files of /proc blocks.
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
            // In a folder of folders, one without captures is not an error.
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

/// Whether a file, decompressed if necessary, begins like a capture.
fn is_capture(path: &Path) -> bool {
    let source = Source::File { path: path.to_owned(), length: 0 };
    let mut magic = [0; 4];
    source.reader(&Arc::default()).is_ok_and(|mut bytes| bytes.read_exact(&mut magic).is_ok())
        && CAPTURE_MAGIC.contains(&magic)
}

impl Source {
    pub fn name(&self) -> String {
        match self {
            Self::Stdin => "standard input".to_owned(),
            Self::File { path, .. } => path.display().to_string(),
        }
    }

    /// `None` for standard input.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Stdin => None,
            Self::File { path, .. } => Some(path),
        }
    }

    /// Length in bytes before decompression; `None` if unknown.
    pub fn length(&self) -> Option<u64> {
        match self {
            Self::Stdin => None,
            Self::File { length, .. } => Some(*length),
        }
    }

    /// The file at `path`, or standard input for `-`.
    ///
    /// # Errors
    /// If the file does not exist.
    pub fn from_path(path: &Path) -> Result<Self, SourceError> {
        if path.as_os_str() == "-" {
            return Ok(Self::Stdin);
        }
        let metadata = fs::metadata(path);
        let metadata = metadata.map_err(|error| SourceError::Read { path: path.into(), error })?;
        Ok(Self::File { path: path.to_owned(), length: metadata.len() })
    }

    /// Returns the decompressed bytes, which end when `stop` is set.
    ///
    /// # Errors
    /// If the file cannot be read, or the compression is not supported.
    pub fn reader(&self, stop: &Arc<AtomicBool>) -> Result<Box<dyn Read + Send>, SourceError> {
        self.open(&Progress { stop: stop.clone(), ..Progress::default() })
    }

    /// Opens and decompresses the capture. Counts the bytes read in `progress`; reads end when
    /// `progress.stop` is set.
    pub fn open(&self, progress: &Progress) -> Result<Box<dyn Read + Send>, SourceError> {
        let wrong = |error| SourceError::Read { path: self.name().into(), error };
        let raw = match self {
            Self::Stdin => Input::stdin(&progress.stop),
            Self::File { path, .. } => Input::open(path, &progress.stop),
        };
        let mut raw = CountingReader { raw: raw.map_err(wrong)?, read: progress.read.clone() };
        let mut magic = Vec::with_capacity(4);
        raw.by_ref().take(4).read_to_end(&mut magic).map_err(wrong)?;
        let other = |format| SourceError::Compressed { path: self.name().into(), format };
        let whole: Chain<Cursor<Vec<u8>>, CountingReader> = Cursor::new(magic.clone()).chain(raw);
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

/// Counts the bytes read.
struct CountingReader {
    raw: Input,
    read: Arc<AtomicU64>,
}

impl Read for CountingReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.raw.read(buffer)?;
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}
