//! Output that cannot be written: a closed pipe, a full disk, no standard error.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use manyways_tests::testbed::PATIENCE;
use manyways_tests::{Running, finish, folder, manyways};

const TRACE: &str = "time,bytes,direction,app\n0,100,up,mail\n900,1000,down,news\n";
const POLICY: &str =
    "[[rule]]\nname = \"mail\"\nmatch = { port = 25 }\nuse = { priority = \"low\" }\n";
const WARNED: &str =
    "[[rule]]\nname = \"mail\"\nmatch = { port = 25 }\nuse = { paths = \"nowhere\" }\n";

/// Commands that end by themselves and print to standard output, with their exit codes. None needs
/// a privilege.
fn stdout_commands() -> Vec<(Vec<&'static str>, i32)> {
    let words = |line: &'static str| line.split(' ').collect::<Vec<_>>();
    vec![
        (words("paths --all"), 0),
        (words("paths --json"), 0),
        (words("lab list"), 0),
        (words("lab list --json"), 0),
        (words("lab check scenario.toml"), 0),
        (words("bond check policy.toml"), 0),
        (words("bond check --json policy.toml"), 0),
        (words("flows schema"), 0),
        (words("flows schema --json"), 0),
        (words("radio profiles"), 0),
        (words("radio profiles lte"), 0),
        (words("radio profiles --json"), 0),
        (words("radio check lte"), 0),
        (words("radio energy day.csv --profile lte"), 0),
        (words("radio energy day.csv --profile lte --json"), 0),
        (words("radio whatif day.csv --profile lte --batch 5min"), 0),
        (words("radio simulate day.csv --profile lte --policy makeidle"), 0),
        (words("radio generate --heartbeat 30s --duration 1h"), 0),
        (words("--help"), 0),
        (words("--version"), 0),
        (words("completions bash"), 0),
        (words("completions zsh"), 0),
    ]
}

/// Commands that say something on standard error.
fn stderr_commands() -> Vec<(Vec<&'static str>, i32)> {
    let words = |line: &'static str| line.split(' ').collect::<Vec<_>>();
    vec![
        (words("paths --to nowhere"), 2),
        (words("lab shell"), 2),
        (words("bond check warned.toml"), 0),
        (words("lab check no-such-file"), 1),
        (words("bond check no-such-file"), 1),
        (words("bond status --name nobody-runs-this"), 1),
        (words("flows no-such-file"), 1),
        (words("radio energy no-such-file --profile lte"), 1),
        (words("get http://127.0.0.1:1/nobody-listens -o nothing"), 1),
        (words("get"), 2),
    ]
}

/// A folder with the files that the commands name.
fn files() -> manyways_tests::Folder {
    let folder = folder();
    let write = |name: &str, text: &str| {
        std::fs::write(folder.path().join(name), text).expect("room for a file");
    };
    write("day.csv", TRACE);
    write("policy.toml", POLICY);
    write("warned.toml", WARNED);
    write("scenario.toml", "name = \"one\"\n[link.wifi]\n");
    folder
}

fn command(folder: &Path, words: &[&str]) -> Command {
    let mut command = manyways();
    // All that is logged goes to standard error, too.
    command.args(words).current_dir(folder).env("MANYWAYS_LOG", "trace");
    command
}

/// Exit status of a command with this standard output and standard error.
fn ends(mut command: Command, stdout: impl Into<Stdio>, stderr: impl Into<Stdio>) -> ExitStatus {
    let mut running = Running::start(command.stdout(stdout).stderr(stderr));
    running.wait(PATIENCE).expect("it ends")
}

/// A pipe without a reader.
fn unread() -> io::PipeWriter {
    let (reader, writer) = io::pipe().expect("a pipe");
    drop(reader);
    writer
}

fn full() -> File {
    File::options().write(true).open("/dev/full").expect("it is there")
}

#[test]
fn a_reader_that_has_read_enough_ends_no_command_with_an_error() {
    let folder = files();
    for (words, code) in stdout_commands() {
        let said = File::create(folder.path().join("said")).unwrap();
        let mut quiet = command(folder.path(), &words);
        quiet.env_remove("MANYWAYS_LOG");
        let status = ends(quiet, unread(), said);
        let output = std::fs::read_to_string(folder.path().join("said")).unwrap();
        assert_eq!((status.code(), output.as_str()), (Some(code), ""), "{words:?}");
    }
}

#[test]
fn a_full_disk_behind_standard_output_is_one_sentence_and_exit_code_1() {
    let folder = files();
    for (words, _) in stdout_commands() {
        let said = File::create(folder.path().join("said")).unwrap();
        let mut quiet = command(folder.path(), &words);
        quiet.env_remove("MANYWAYS_LOG");
        let status = ends(quiet, full(), said);
        let output = std::fs::read_to_string(folder.path().join("said")).unwrap();
        assert_eq!(status.code(), Some(1), "{words:?}: {output}");
        let is_sentence = output.lines().count() == 1 && output.contains("No space left on device");
        assert!(is_sentence && output.starts_with("manyways: cannot write"), "{words:?}: {output}");
    }
}

#[test]
fn a_standard_error_that_takes_nothing_changes_no_exit_code() {
    let folder = files();
    for (words, code) in stdout_commands().into_iter().chain(stderr_commands()) {
        let status = ends(command(folder.path(), &words), Stdio::null(), full());
        assert_eq!(status.code(), Some(code), "{words:?} into a full standard error");
        let status = ends(command(folder.path(), &words), Stdio::null(), unread());
        assert_eq!(status.code(), Some(code), "{words:?} into a closed pipe");
    }
}

// Slow: every command, with each combination of closed descriptors.
#[test]
fn descriptors_that_are_closed_from_the_start_change_no_exit_code() {
    let folder = files();
    for (words, code) in stdout_commands().into_iter().chain(stderr_commands()) {
        for closed in [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"] {
            let inner = command(folder.path(), &words);
            let mut shell = Command::new("sh");
            let script = format!("exec \"$0\" \"$@\" {closed}");
            shell.args(["-c", &script]).arg(inner.get_program()).args(inner.get_args());
            let set = inner.get_envs().filter_map(|(name, value)| Some((name, value?)));
            let done = finish(shell.envs(set).current_dir(folder.path()));
            assert_eq!(done.code(), code, "{words:?} {closed}: {}", done.stderr);
            assert!(!done.stderr.contains("panicked"), "{words:?} {closed}: {}", done.stderr);
        }
    }
}
