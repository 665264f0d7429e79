//! The only wait of tests: for an event, however long a busy machine takes.

use std::thread;
use std::time::{Duration, Instant};

/// Time limit of each wait, far above the expected times on the slowest machine: a test that exceeds
/// it hangs. Nothing may be concluded from an event that happens earlier or later within it.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Interval between two looks.
const INTERVAL: Duration = Duration::from_millis(10);

/// Polls until `look` returns a value.
///
/// # Panics
/// If it returns none within [`PATIENCE`].
#[track_caller]
pub fn eventually<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    poll(look).unwrap_or_else(|| panic!("never happened: {what}"))
}

/// Waits until `is_gone` holds for what must not remain, for example processes.
///
/// # Panics
/// As a [`fault!`](crate::fault!), if it does not hold within [`PATIENCE`].
#[track_caller]
pub fn eventually_gone(what: &str, mut is_gone: impl FnMut() -> bool) {
    let gone = poll(|| is_gone().then_some(()));
    crate::fault!(gone.is_some(), "{what} remain");
}

fn poll<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = look();
        if found.is_some() || Instant::now() >= deadline {
            return found;
        }
        thread::sleep(INTERVAL);
    }
}

/// Functions for shell scripts of tests:
///
/// - `eventually COMMAND...` repeats a command until it succeeds; the script ends with code 99 after
///   [`PATIENCE`].
/// - `same FILE RIGHT` compares files; other bytes are a fault.
/// - `change WORDS...` changes the links of the lab with `manyways lab set`.
/// - `fault WORDS...` fails with the word that [`fault!`](crate::fault!) prints. The script itself
///   does not contain this word, since it may be part of a message.
pub const SHELL: &str = r#"
eventually() {
  local last
  last=$(($(date +%s) + 300))
  until "$@"; do
    [ $(date +%s) -le $last ] || { echo "never happened: $*" >&2; exit 99; }
    sleep 0.01
  done
}
fault() { echo "manyways-""fault: $*" >&2; return 1; }
same() { test -e "$1" || return 1; cmp "$1" "$2" || fault "$1 has wrong bytes"; }
change() { manyways lab set --lab $LAB_NAME "$@" || exit 98; }
"#;

/// The word before the message of a failure that no busy machine can cause: wrong, lost or doubled
/// bytes, or a process, namespace, route or rule that remained. `scripts/test` never repeats a test
/// that prints it.
pub const FAULT: &str = "manyways-fault: ";

/// Panics unless a condition holds, with a message that begins with [`FAULT`].
///
/// ```should_panic
/// # use manyways_rig::fault;
/// let (sent, received) = (b"abc", b"abd");
/// fault!(sent == received, "the received bytes differ");
/// ```
#[macro_export]
macro_rules! fault {
    ($holds:expr, $($message:tt)+) => {
        if !$holds {
            panic!("{}{}", $crate::FAULT, format_args!($($message)+));
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn an_event_is_awaited_and_its_value_returned() {
        let mut looks = 0;
        let found = eventually("the third look", || {
            looks += 1;
            (looks == 3).then_some("it")
        });
        assert_eq!((found, looks), ("it", 3));
    }

    #[test]
    fn a_script_waits_and_reports_faults() {
        let script = format!(
            "{SHELL} seen() {{ count=$((count + 1)); [ $count -ge 3 ]; }}; count=0; \
             eventually seen && echo $count; fault wrong bytes || echo $?"
        );
        let done = crate::finish(Command::new("sh").args(["-ec", &script]));
        assert_eq!((&*done.stdout, &*done.stderr), ("3\n1\n", "manyways-fault: wrong bytes\n"));
        assert_eq!(done.stderr, format!("{FAULT}wrong bytes\n"));
    }
}
