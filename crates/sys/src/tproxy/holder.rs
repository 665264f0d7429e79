//! The process that holds a table of rules: the table contains a chain with its id and start time.

use std::fs;

/// Prefix of the name of the chain that contains the holder of the rules.
const HOLDER_PREFIX: &str = "held_by_";

/// Returns the id and start time of this process, which the table contains as its holder.
pub(crate) fn own_process() -> (i32, u64) {
    let pid = std::process::id() as i32;
    (pid, start_time(pid).unwrap_or(0))
}

/// Returns the name of the chain for a holder.
pub(crate) fn chain_name((pid, start): (i32, u64)) -> String {
    format!("{HOLDER_PREFIX}{pid}_{start}")
}

/// Returns the other living process that holds the table with this text.
pub(crate) fn other(table: Option<&str>) -> Option<i32> {
    let (_, after) = table?.split_once(HOLDER_PREFIX)?;
    let (pid, start) = after.split_once(' ')?.0.split_once('_')?;
    let (pid, start) = (pid.parse::<i32>().ok()?, start.parse::<u64>().ok()?);
    let lives = || start_time(pid).is_some_and(|at| at == start);
    (pid != std::process::id() as i32 && lives()).then_some(pid)
}

/// Returns when a process was started, in ticks since boot. The start time distinguishes processes
/// that had the same id. `None` if the process does not exist.
fn start_time(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, which can contain any characters, ends at the last parenthesis.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}
