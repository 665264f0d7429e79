//! Reads from a file that may block its reader: a FIFO, a pipe, a terminal.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Interval in milliseconds at which a waiting reader checks its flag.
const CHECK_INTERVAL: u16 = 50;

/// A file or standard input with a reader that another thread can stop.
///
/// Signals that [`Termination`](crate::signal::Termination) takes interrupt neither `open` nor
/// `read`, so both would wait forever for a writer. A waiting reader of this type checks `stop` 20
/// times per second; if it is set, the file ends.
#[derive(Debug)]
pub struct Input {
    file: File,
    stop: Arc<AtomicBool>,
    /// Regular files are always ready.
    can_block: bool,
}

impl Input {
    /// Opens a file. A FIFO without a writer opens at once; reads then wait.
    pub fn open(path: &Path, stop: &Arc<AtomicBool>) -> io::Result<Self> {
        let is_fifo = std::fs::metadata(path)?.file_type().is_fifo();
        let flags = if is_fifo { libc::O_NONBLOCK } else { 0 };
        let file = File::options().read(true).custom_flags(flags).open(path)?;
        Self::of(file, stop)
    }

    /// Opens standard input without a buffer: bytes in std's buffer are not read.
    pub fn stdin(stop: &Arc<AtomicBool>) -> io::Result<Self> {
        Self::of(File::from(io::stdin().as_fd().try_clone_to_owned()?), stop)
    }

    fn of(file: File, stop: &Arc<AtomicBool>) -> io::Result<Self> {
        let may_wait = !file.metadata()?.is_file();
        Ok(Self { file, stop: stop.clone(), can_block: may_wait })
    }

    /// Waits until data or the end of the file is available; returns false if `stop` is set.
    fn wait(&self) -> io::Result<bool> {
        while !self.stop.load(Ordering::Relaxed) {
            let mut fds = [PollFd::new(self.file.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, PollTimeout::from(CHECK_INTERVAL)) {
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => return Ok(true),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(false)
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.can_block && !self.wait()? {
                return Ok(0);
            }
            match self.file.read(buffer) {
                // Another process that reads the same FIFO was faster.
                Err(error) if self.can_block && error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::mpsc;
    use std::thread;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    #[test]
    fn a_reader_of_a_fifo_without_a_writer_ends_when_it_is_stopped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fifo");
        mkfifo(&path, Mode::S_IRWXU).unwrap();
        let stop = Arc::default();
        let mut input = Input::open(&path, &stop).unwrap();
        let (done, ended) = mpsc::channel();
        thread::spawn(move || done.send(input.read(&mut [0; 16]).unwrap()));
        stop.store(true, Ordering::Relaxed);
        assert_eq!(ended.recv(), Ok(0));
    }

    #[test]
    fn a_fifo_is_read_until_its_last_writer_leaves() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fifo");
        mkfifo(&path, Mode::S_IRWXU).unwrap();
        let stop = Arc::default();
        // The reader opens first: without a writer a FIFO is not at its end.
        let mut input = Input::open(&path, &stop).unwrap();
        let writer = thread::spawn(move || {
            let mut file = File::options().write(true).open(path).unwrap();
            file.write_all(b"one").unwrap();
            file.write_all(b" two").unwrap();
        });
        let mut text = String::new();
        input.read_to_string(&mut text).unwrap();
        writer.join().unwrap();
        assert_eq!(text, "one two");
    }

    #[test]
    fn a_regular_file_is_read_to_its_end_despite_the_flag() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "text").unwrap();
        let mut text = String::new();
        Input::open(&path, &Arc::new(true.into())).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "text");
        assert!(Input::open(&folder.path().join("none"), &Arc::default()).is_err());
    }
}
