//! Properties of a terminal, and its keys.

use std::io::{self, IsTerminal, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};

use crate::input::Input;

/// Returns the columns of the terminal behind `file`; `None` if it is not a terminal or the width
/// is unknown.
pub fn width(file: impl AsFd) -> Option<u16> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the kernel fills in a valid struct, and the borrowed descriptor is open.
    let asked = unsafe { libc::ioctl(file.as_fd().as_raw_fd(), libc::TIOCGWINSZ, &mut size) };
    (asked == 0 && size.ws_col > 0).then_some(size.ws_col)
}

/// Keys of the terminal at standard input, without the Enter key. The terminal is restored when
/// this is dropped.
#[derive(Debug)]
pub struct Keys {
    before: Termios,
    stop: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
}

impl Keys {
    /// Calls `on_key` on another thread for each pressed key. Returns `None` if standard input is not
    /// a terminal, or its owner is another job.
    ///
    /// # Errors
    /// If the terminal cannot be set up.
    pub fn read(on_key: impl Fn(char) + Send + 'static) -> io::Result<Option<Self>> {
        let stdin = io::stdin();
        // SAFETY: both calls only read the state of the process.
        let is_foreground = unsafe { libc::tcgetpgrp(0) == libc::getpgrp() };
        if !stdin.is_terminal() || !is_foreground {
            return Ok(None);
        }
        let before = tcgetattr(&stdin)?;
        let mut raw = before.clone();
        raw.local_flags.remove(LocalFlags::ICANON | LocalFlags::ECHO);
        tcsetattr(&stdin, SetArg::TCSANOW, &raw)?;
        let stop = Arc::new(AtomicBool::new(false));
        let mut keys = Self { before, stop, reader: None };
        let mut input = Input::stdin(&keys.stop)?;
        let reader = std::thread::Builder::new().name("keys".to_owned()).spawn(move || {
            let mut byte = [0];
            while let Ok(1) = input.read(&mut byte) {
                on_key(char::from(byte[0]));
            }
        })?;
        keys.reader = Some(reader);
        Ok(Some(keys))
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
        let _ = tcsetattr(io::stdin(), SetArg::TCSANOW, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_no_terminal() {
        assert_eq!(width(std::fs::File::open("/dev/null").unwrap()), None);
    }
}
