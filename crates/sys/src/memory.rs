//! How the kernel backs the memory of this process, and how much it may use.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use manyways_unit::Size;

/// Returns the memory that this process may use: that of the host, or less by a limit of its control
/// group; `None` if the kernel does not report it.
pub fn limit() -> Option<Size> {
    let host = fs::read_to_string("/proc/meminfo").ok().and_then(|text| of_host(&text));
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let groups = limit_files(&own).into_iter().filter_map(|file| {
        let text = fs::read_to_string(file).ok()?;
        // Without a limit, the text is "max".
        Some(Size::from_bytes(text.trim().parse().ok()?))
    });
    host.into_iter().chain(groups).min()
}

fn of_host(text: &str) -> Option<Size> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(Size::from_bytes(kib.checked_mul(1024)?))
}

/// The files with the limits of a process: of its control group and of all above it. `own` is the
/// content of `/proc/self/cgroup`.
fn limit_files(own: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in own.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else { continue };
        let (root, name) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|one| one == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let group = Path::new(group.trim_start_matches('/'));
        files.extend(group.ancestors().map(|group| Path::new(root).join(group).join(name)));
    }
    files
}

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
    fn the_limit_of_a_process_is_that_of_the_host_or_of_a_group_above_it() {
        assert_eq!(
            of_host("MemTotal:       1024 kB\nMemFree: 1 kB"),
            Some(Size::from_bytes(1 << 20))
        );
        assert_eq!(of_host("MemFree: 1 kB"), None);
        let files = |own| {
            let all = limit_files(own);
            all.iter().map(|file| file.display().to_string()).collect::<Vec<_>>()
        };
        let unified = [
            "/sys/fs/cgroup/a.slice/b.service/memory.max",
            "/sys/fs/cgroup/a.slice/memory.max",
            "/sys/fs/cgroup/memory.max",
        ];
        assert_eq!(files("0::/a.slice/b.service\n"), unified);
        let old = [
            "/sys/fs/cgroup/memory/a/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        ];
        assert_eq!(files("5:cpu:/x\n4:memory:/a\n"), old);
        assert_eq!(files("nonsense"), Vec::<String>::new());
        assert!(limit().is_some_and(|all| all > Size::from_bytes(1 << 20)));
    }

    #[test]
    fn the_kernel_reports_small_pages() {
        disable_huge_pages().unwrap();
        let status = fs::read_to_string("/proc/self/status").unwrap();
        match status.lines().find_map(|line| line.strip_prefix("THP_enabled:")) {
            Some(said) => assert_eq!(said.trim(), "0"),
            None => println!("skipped: this kernel does not report whether pages are huge"),
        }
    }
}
