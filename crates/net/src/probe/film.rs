//! Writes films for measurements ([`manyways_wire::film`]) into a folder, hollow or encoded.
//!
//! The manifests are written last: without them, the rest of an interrupted run cannot be played by
//! mistake. A run that is stopped or fails removes what it wrote.

mod encode;
#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use manyways_sys::filesystem::free_bytes;
use manyways_unit::{Size, Span};
use manyways_wire::film::{Film, FilmError, Layout, Options, Rung, index, manifests};
use manyways_wire::mp4::Track;

/// Size of a block of a file system, to estimate the space of a file with a hole.
const BLOCK: u64 = 4_096;

/// The progress of [`Maker::make`], which other threads may read, and its end, which they may request.
#[derive(Debug, Default)]
pub struct FilmProgress {
    /// Written segments of all rungs.
    pub segments: AtomicU64,
    pub stop: AtomicBool,
}

impl FilmProgress {
    fn check(&self) -> Result<(), MakeError> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err(MakeError::Stopped),
            false => Ok(()),
        }
    }
}

/// How the pictures of a film are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Black pictures, padded to exact lengths with holes, which take no space on most file systems.
    Hollow,
    /// Noise, encoded by ffmpeg with a constant rate.
    Real,
}

/// A film that was not made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MakeError {
    #[error(transparent)]
    Film(#[from] FilmError),
    /// The folder contains something.
    #[error("{} is not empty", .0.display())]
    NotEmpty(PathBuf),
    /// The path is not that of a folder.
    #[error("{} is not a folder", .0.display())]
    NotFolder(PathBuf),
    /// The file system is too small.
    #[error("the film needs {needed} in {}, and {free} is free", folder.display())]
    Space { folder: PathBuf, needed: Size, free: Size },
    /// A file cannot be written or read.
    #[error("cannot write {}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    /// There is no ffmpeg.
    #[error("there is no command ffmpeg")]
    NoEncoder,
    /// The ffmpeg of this host lacks the encoder.
    #[error("the ffmpeg of this host has no encoder libx264")]
    NoCodec,
    /// ffmpeg failed.
    #[error("ffmpeg failed at the rung {rung}: {message}")]
    Encoder { rung: String, message: String },
    /// The duration of a segment is not a whole number of pictures.
    #[error("a segment of {0} is not a whole number of pictures of {interval}", interval = encode::FRAME_INTERVAL)]
    Pictures(Span),
    /// [`FilmProgress::stop`] was set.
    #[error("stopped before the film was complete; nothing of it remains")]
    Stopped,
}

impl MakeError {
    /// An action that may help.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::NotEmpty(_) | Self::NotFolder(_) => "name a folder that does not exist",
            Self::Space { .. } => "make it shorter with --duration, or with fewer or lower --rungs",
            Self::File { error, .. } if error.kind() == io::ErrorKind::StorageFull => {
                "free some space, or make the film shorter with --duration"
            }
            Self::Encoder { .. } => {
                "see that the disk has space; other --rungs or a longer --segment may help"
            }
            Self::NoEncoder | Self::NoCodec => {
                "install Debian's ffmpeg (apt install ffmpeg), or make a hollow film, without --real"
            }
            Self::Film(FilmError::Length { .. }) => {
                "choose another --segment, higher --rungs, or a lower --vbr"
            }
            _ => return None,
        })
    }
}

/// Makes one film.
#[derive(Debug)]
pub struct Maker<'a> {
    pub folder: &'a Path,
    pub layout: Layout,
    pub content: Content,
    pub progress: &'a FilmProgress,
}

impl Maker<'_> {
    /// Writes the film and its manifests into the folder, which is created or is empty, and returns
    /// it with the lengths of its segments. Blocks the thread.
    ///
    /// # Errors
    /// See [`MakeError`]. The folder is then as it was, unless its files cannot be removed.
    pub fn make(&self, options: &Options) -> Result<Film, MakeError> {
        let mut film = match self.content {
            Content::Hollow => options.plan()?,
            Content::Real => encode::outline(options)?,
        };
        let is_new = prepare(self.folder)?;
        let made = self.check_space(&film).and_then(|()| self.write(&mut film));
        if let Err(error) = made {
            self.remove(&film, is_new);
            return Err(error);
        }
        Ok(film)
    }

    fn check_space(&self, film: &Film) -> Result<(), MakeError> {
        let needed = match self.content {
            Content::Hollow => hollow_space(film, self.layout),
            Content::Real => encode::space(film),
        };
        let folder = File::open(self.folder).map_err(of(self.folder))?;
        let free = free_bytes(&folder).map_err(of(self.folder))?.map(Size::from_bytes);
        match free.filter(|free| *free < needed) {
            Some(free) => Err(MakeError::Space { folder: self.folder.to_owned(), needed, free }),
            None => Ok(()),
        }
    }

    fn write(&self, film: &mut Film) -> Result<(), MakeError> {
        for at in 0..film.rungs.len() {
            let folder = self.folder.join(&film.rungs[at].name);
            fs::create_dir(&folder).map_err(of(&folder))?;
            match self.content {
                Content::Hollow => self.write_hollow(film, &film.rungs[at], &folder)?,
                Content::Real => {
                    let rung = encode::rung(film, &film.rungs[at], &folder, self.progress)?;
                    film.rungs[at] = rung;
                    if self.layout == Layout::SingleFile {
                        join(film, &film.rungs[at], &folder)?;
                    }
                }
            }
        }
        for (name, text) in manifests(film, self.layout) {
            self.progress.check()?;
            let path = self.folder.join(name);
            let partial = path.with_extension("part");
            fs::write(&partial, text).map_err(of(&partial))?;
            fs::rename(&partial, &path).map_err(of(&path))?;
        }
        Ok(())
    }

    fn write_hollow(&self, film: &Film, rung: &Rung, folder: &Path) -> Result<(), MakeError> {
        let track = Track::new(rung.width, rung.height, film.duration);
        let mut single = match self.layout {
            Layout::Segments => {
                create(&folder.join(INIT))?.write(&[&track.init()])?;
                None
            }
            Layout::SingleFile => {
                let mut file = create(&folder.join(SINGLE))?;
                file.write(&[&track.init(), &index(film, rung)])?;
                Some(file)
            }
        };
        let mut start = Span::ZERO;
        for (number, (length, span)) in (1..).zip(rung.segments.iter().zip(film.spans())) {
            self.progress.check()?;
            let segment = track.segment(number, start, span, *length).map_err(|error| {
                let (rung, number) = (rung.name.clone(), number as usize);
                FilmError::Length { rung, number, length: *length, error }
            })?;
            let mut separate = None;
            let file = match &mut single {
                Some(file) => file,
                None => separate.insert(create(&folder.join(segment_name(number)))?),
            };
            file.write(&[&segment.head])?;
            file.skip(segment.padding)?;
            file.write(&[&segment.tail])?;
            self.progress.segments.fetch_add(1, Ordering::Relaxed);
            start += span;
        }
        Ok(())
    }

    /// Removes the files that were written.
    fn remove(&self, film: &Film, is_new: bool) {
        for rung in &film.rungs {
            let _ = fs::remove_dir_all(self.folder.join(&rung.name));
        }
        for (name, _) in manifests(film, self.layout) {
            let path = self.folder.join(name);
            let _ = fs::remove_file(path.with_extension("part"));
            let _ = fs::remove_file(path);
        }
        if is_new {
            let _ = fs::remove_dir(self.folder);
        }
    }
}

const INIT: &str = "init.mp4";
const SINGLE: &str = "video.mp4";

fn segment_name(number: u32) -> String {
    format!("{number}.m4s")
}

/// Creates the folder, or checks that it is empty. Returns whether it is new.
fn prepare(folder: &Path) -> Result<bool, MakeError> {
    match fs::read_dir(folder) {
        Ok(mut entries) => match entries.next() {
            Some(_) => Err(MakeError::NotEmpty(folder.to_owned())),
            None => Ok(false),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir(folder).map_err(of(folder))?;
            Ok(true)
        }
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            Err(MakeError::NotFolder(folder.to_owned()))
        }
        Err(error) => Err(of(folder)(error)),
    }
}

/// The space of a hollow film: the blocks around the hole of each segment.
fn hollow_space(film: &Film, layout: Layout) -> Size {
    let blocks = |rung: &Rung| {
        let track = Track::new(rung.width, rung.height, film.duration);
        let fixed = track.min_segment(film.segment).as_bytes();
        let each = 2 + fixed.div_ceil(BLOCK);
        // The index of a single file has twelve bytes for a segment.
        let others = match layout {
            Layout::Segments => 2,
            Layout::SingleFile => 2 + rung.segments.len() as u64 * 12 / BLOCK,
        };
        rung.segments.len() as u64 * each + others
    };
    Size::from_bytes(film.rungs.iter().map(blocks).sum::<u64>() * BLOCK)
}

/// Joins the files of an encoded rung into one.
fn join(film: &Film, rung: &Rung, folder: &Path) -> Result<(), MakeError> {
    let mut single = create(&folder.join(SINGLE))?;
    append(&mut single, folder, INIT)?;
    single.write(&[&index(film, rung)])?;
    let numbers = 1..=rung.segments.len() as u32;
    numbers.into_iter().try_for_each(|number| append(&mut single, folder, &segment_name(number)))
}

/// Moves the content of a file to the end of another one.
fn append(output: &mut Output, folder: &Path, name: &str) -> Result<(), MakeError> {
    let path = folder.join(name);
    let mut part = File::open(&path).map_err(of(&path))?;
    io::copy(&mut part, &mut output.file).map_err(of(&output.path))?;
    fs::remove_file(&path).map_err(of(&path))
}

/// A file with its path, for errors.
struct Output {
    file: File,
    path: PathBuf,
}

fn create(path: &Path) -> Result<Output, MakeError> {
    let file = File::create_new(path).map_err(of(path))?;
    Ok(Output { file, path: path.to_owned() })
}

impl Output {
    fn write(&mut self, parts: &[&[u8]]) -> Result<(), MakeError> {
        self.file.write_all(&parts.concat()).map_err(of(&self.path))
    }

    /// Leaves a hole of this length, which is read as zeros.
    fn skip(&mut self, length: Size) -> Result<(), MakeError> {
        let distance = SeekFrom::Current(length.as_bytes() as i64);
        self.file.seek(distance).map(drop).map_err(of(&self.path))
    }
}

fn of(path: &Path) -> impl Fn(io::Error) -> MakeError {
    move |error| MakeError::File { path: path.to_owned(), error }
}
