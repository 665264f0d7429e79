//! Properties of a terminal.

use std::os::fd::{AsFd, AsRawFd};

/// Returns the columns of the terminal behind `file`; `None` if it is not a terminal or the width
/// is unknown.
pub fn width(file: impl AsFd) -> Option<u16> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the kernel fills in a valid struct, and the borrowed descriptor is open.
    let asked = unsafe { libc::ioctl(file.as_fd().as_raw_fd(), libc::TIOCGWINSZ, &mut size) };
    (asked == 0 && size.ws_col > 0).then_some(size.ws_col)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_no_terminal() {
        assert_eq!(width(std::fs::File::open("/dev/null").unwrap()), None);
    }
}
