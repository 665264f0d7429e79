//! Process ids across PID namespaces: a process has a different id in each of them.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

/// Returns a number of the calling process's PID namespace that no other existing namespace has.
pub fn namespace() -> io::Result<u64> {
    Ok(fs::metadata("/proc/self/ns/pid")?.ino())
}

/// Returns the local id of the process with the id `pid` in another namespace, which may be the
/// caller's. `None` if the process has ended or is not visible in the caller's namespace.
pub fn local_pid(namespace: u64, pid: i32) -> Option<i32> {
    if self::namespace().is_ok_and(|own| own == namespace) {
        return Some(pid);
    }
    processes().find(|process| {
        namespace_pids(*process).last() == Some(&pid)
            && fs::metadata(format!("/proc/{process}/ns/pid"))
                .is_ok_and(|found| found.ino() == namespace)
    })
}

/// Returns the local id of a child of `parent` (a local id) that has the id `pid` in the parent's
/// namespace.
pub fn local_child_pid(parent: i32, pid: i32) -> Option<i32> {
    let depth = namespace_pids(parent).len();
    processes().find(|process| {
        // Further ids belong to namespaces below the parent's.
        status_field(*process, "PPid:").first() == Some(&parent)
            && depth > 0
            && namespace_pids(*process).get(depth - 1) == Some(&pid)
    })
}

fn processes() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Returns a process's ids from the caller's namespace down to its own; empty if it has ended.
fn namespace_pids(process: i32) -> Vec<i32> {
    status_field(process, "NSpid:")
}

fn status_field(process: i32, name: &str) -> Vec<i32> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.into_iter()
        .flat_map(str::split_ascii_whitespace)
        .filter_map(|word| word.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn an_id_of_the_own_namespace_is_unchanged() {
        let own = std::process::id() as i32;
        assert_eq!(local_pid(namespace().unwrap(), own), Some(own));
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = child.id() as i32;
        assert_eq!(local_child_pid(own, pid), Some(pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(local_child_pid(own, pid), None);
    }

    #[test]
    fn a_process_of_a_namespace_below_is_found_by_its_id_there() {
        let mut command = Command::new("unshare");
        let script = "sleep 1000 & echo $! $(stat -Lc %i /proc/self/ns/pid); wait";
        command.args(["--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", script]);
        let mut outer = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(outer.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let Some((pid, inode)) = line.trim().split_once(' ') else {
            let _ = outer.kill();
            outer.wait().unwrap();
            eprintln!("skipped: no process namespace can be made");
            return;
        };
        let (pid, inode) = (pid.parse().unwrap(), inode.parse().unwrap());
        assert_ne!(inode, namespace().unwrap());
        let shell = local_pid(inode, 1).expect("the shell is the namespace's first process");
        let sleep = local_pid(inode, pid).expect("its child is there");
        assert_eq!(local_child_pid(shell, pid), Some(sleep));
        assert_eq!(local_child_pid(outer.id() as i32, shell), Some(shell));
        assert_eq!(local_pid(inode, 999_999), None);
        outer.kill().unwrap();
        outer.wait().unwrap();
    }
}
