//! How the kernel backs the memory of this process.

use std::io;

/// Disables huge pages for memory that this process allocates from now on, even if the process or
/// its allocator requests them.
///
/// The kernel clears and counts a whole huge page when its first byte is used. Huge pages suit
/// programs that fill their memory. A program that uses a few bytes in many places would pay for
/// unused memory.
pub fn disable_huge_pages() -> io::Result<()> {
    Ok(nix::sys::prctl::set_thp_disable(true)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_reports_small_pages() {
        disable_huge_pages().unwrap();
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        match status.lines().find_map(|line| line.strip_prefix("THP_enabled:")) {
            Some(said) => assert_eq!(said.trim(), "0"),
            None => println!("skipped: this kernel does not report whether pages are huge"),
        }
    }
}
