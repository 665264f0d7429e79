//! What a terminal looks like.

use std::os::fd::{AsFd, AsRawFd};

/// How many columns the terminal behind `file` has; none where it is no terminal, or does not say.
pub fn width(file: impl AsFd) -> Option<u16> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the kernel fills in a valid block, and the descriptor is open as long as it is lent.
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
