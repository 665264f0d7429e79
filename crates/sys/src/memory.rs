//! How the kernel backs the memory of this process.

use std::io;

/// From here on the process gets its fresh memory in pages of the ordinary size, also where it or
/// its allocator asks for huge ones.
///
/// A huge page is cleared and counted as a whole when its first byte is touched. That suits what
/// fills memory from end to end; what takes a little in many places pays for memory that it
/// never uses.
pub fn in_small_pages() -> io::Result<()> {
    Ok(nix::sys::prctl::set_thp_disable(true)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_that_pages_are_small() {
        in_small_pages().unwrap();
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        match status.lines().find_map(|line| line.strip_prefix("THP_enabled:")) {
            Some(said) => assert_eq!(said.trim(), "0"),
            None => println!("skipped: this kernel does not say whether pages are huge"),
        }
    }
}
