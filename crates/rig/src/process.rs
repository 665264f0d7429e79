//! Processes with bounded run time that end with the test.

use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;

use manyways_sys::signal::with_defaults;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use crate::fault;
use crate::patience::PATIENCE;

/// A process of a test that runs for longer hangs. Scripts of tests wait for events themselves, each
/// for [`PATIENCE`], so that this is the last resort.
const PROCESS_TIMEOUT: Duration = PATIENCE.saturating_mul(2);
/// Time between SIGTERM and SIGKILL.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// An ended process and its output.
#[derive(Debug)]
pub struct Finished {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Finished {
    /// Returns the exit code.
    ///
    /// # Panics
    /// If a signal ended the process.
    #[track_caller]
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| {
            panic!("ended by signal {:?}\n{}{}", self.status.signal(), self.stdout, self.stderr)
        })
    }

    /// Returns the value unchanged if the exit code is 0.
    ///
    /// # Panics
    /// If the exit code is not 0; the message contains the output.
    #[track_caller]
    pub fn expect_success(self) -> Self {
        assert!(self.status.success(), "{}\n{}{}", self.status, self.stdout, self.stderr);
        self
    }
}

/// Runs a command without input until it ends.
///
/// # Panics
/// If the command cannot be started, reports a panic, or runs for twice [`PATIENCE`]; it is killed
/// then.
#[track_caller]
pub fn finish(command: &mut Command) -> Finished {
    let mut running = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let child = running.child.as_mut().expect("nobody has waited yet");
    let stdout = read_in_thread(child.stdout.take().expect("piped above"));
    let stderr = read_in_thread(child.stderr.take().expect("piped above"));
    let status = running.wait(PROCESS_TIMEOUT);
    // A child process that was left behind would keep the pipes open.
    drop(running);
    let said = |reader: thread::JoinHandle<Vec<u8>>| {
        String::from_utf8_lossy(&reader.join().expect("reading does not panic")).into_owned()
    };
    let (stdout, stderr) = (said(stdout), said(stderr));
    assert_no_panic(&stderr);
    let status = status.unwrap_or_else(|| {
        panic!("{command:?} runs for more than {PROCESS_TIMEOUT:?}\n{stdout}{stderr}")
    });
    Finished { status, stdout, stderr }
}

/// A panic of the program under test is a fault, also in a test that would not notice it.
///
/// # Panics
/// If the output of a program reports a panic in a crate other than this one.
#[track_caller]
pub fn assert_no_panic(output: &str) {
    fault!(!reports_panic(output), "a program panicked:\n{output}");
}

/// Whether the output of a program reports a panic in a crate other than this one.
pub fn reports_panic(output: &str) -> bool {
    let mut places = output.split("panicked at ").skip(1);
    places.any(|place| place.starts_with("crates/") && !place.starts_with("crates/rig/"))
}

fn read_in_thread(mut from: impl Read + Send + 'static) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).expect("a pipe can be read");
        bytes
    })
}

/// A process in a separate process group. Dropping it ends the group as [`Running::end`] does.
#[derive(Debug)]
pub struct Running {
    /// `None` once a thread waits for the process.
    child: Option<Child>,
    /// The lock makes the type `Sync`.
    ended: Option<Mutex<mpsc::Receiver<ExitStatus>>>,
    status: Option<ExitStatus>,
    pid: Pid,
}

impl Running {
    /// Starts the process without input, with the default action for every signal. `command`
    /// determines where the output goes.
    ///
    /// # Panics
    /// If the process cannot be started.
    #[track_caller]
    pub fn start(command: &mut Command) -> Self {
        let child = with_defaults(command)
            .stdin(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
        let pid = Pid::from_raw(i32::try_from(child.id()).expect("a pid is an i32"));
        Self { child: Some(child), ended: None, status: None, pid }
    }

    /// The process id, which is also the id of the group.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    /// Standard output, if the command pipes it; only the first call returns it.
    pub fn stdout(&mut self) -> Option<impl Read + Send + use<>> {
        self.child.as_mut()?.stdout.take()
    }

    /// Sends a signal to the process, but not to its group.
    pub fn signal(&self, signal: Signal) {
        if self.status.is_none() {
            kill(self.pid, signal).expect("a child that nobody waited for can be signalled");
        }
    }

    /// Waits for the end of the process; `None` if it runs for longer than `timeout`.
    pub fn wait(&mut self, timeout: Duration) -> Option<ExitStatus> {
        if self.status.is_none() {
            let ended = self.ended.get_or_insert_with(|| {
                let mut child = self.child.take().expect("only the waiting thread takes it");
                let (done, ended) = mpsc::channel();
                thread::spawn(move || done.send(child.wait().expect("a child can be waited for")));
                Mutex::new(ended)
            });
            let ended = ended.get_mut().expect("no other thread has it");
            self.status = ended.recv_timeout(timeout).ok();
        }
        self.status
    }

    /// Ends the group: with SIGTERM, and with SIGKILL after at most 10 s.
    pub fn end(&mut self) {
        // Errors mean that the group has no processes left, which is the goal.
        if self.status.is_none() {
            let _ = killpg(self.pid, Signal::SIGTERM);
            let _ = self.wait(KILL_TIMEOUT);
        }
        let _ = killpg(self.pid, Signal::SIGKILL);
        let _ = self.wait(KILL_TIMEOUT);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_has_a_code_and_words() {
        let done = finish(Command::new("sh").args(["-c", "echo out; echo err >&2; exit 3"]));
        assert_eq!((done.code(), &*done.stdout, &*done.stderr), (3, "out\n", "err\n"));
    }

    #[test]
    fn a_program_that_panics_is_a_fault() {
        assert_no_panic("thread 'main' (7) panicked at crates/rig/src/lib.rs:1:1:\nan expectation");
        let script = "echo \"thread 'main' (7) panicked at crates/net/src/lib.rs:1:1:\" >&2";
        let found = std::panic::catch_unwind(|| finish(Command::new("sh").args(["-c", script])));
        let message = found.expect_err("it panics");
        let message = message.downcast_ref::<String>().expect("a formatted message");
        assert!(message.starts_with(crate::FAULT), "{message}");
    }

    /// A shell starts a background job with SIGINT ignored, and a shell cannot trap a signal that
    /// was ignored at its start.
    #[test]
    fn a_harness_in_the_background_starts_commands_that_can_be_interrupted() {
        const IN_BACKGROUND: &str = "MANYWAYS_TESTS_IN_BACKGROUND";
        if std::env::var_os(IN_BACKGROUND).is_some() {
            let script = "trap 'exit 3' INT QUIT HUP TERM; kill -INT $$; exit 4";
            assert_eq!(finish(Command::new("sh").args(["-c", script])).code(), 3);
            return;
        }
        let script = "trap '' INT QUIT HUP TERM; exec \"$0\" \"$@\"";
        let mut again = Command::new("sh");
        again.args(["-c", script]).arg(std::env::current_exe().unwrap());
        let name =
            "process::tests::a_harness_in_the_background_starts_commands_that_can_be_interrupted";
        // The shell has to ignore the signals itself, so the harness functions cannot start it.
        let done = again.args(["--exact", name]).env(IN_BACKGROUND, "yes").output().unwrap();
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && said.contains("1 passed"), "{said}");
    }

    #[test]
    fn dropping_ends_the_whole_group() {
        let mut command = Command::new("sh");
        // The read ends when the pipe is closed, that is after the shell and its child have ended.
        command.args(["-c", "sleep 1000 & echo started; wait"]).stdout(Stdio::piped());
        let mut running = Running::start(&mut command);
        let mut stdout = running.stdout().unwrap();
        let mut started = [0; 8];
        stdout.read_exact(&mut started).unwrap();
        drop(running);
        let mut rest = Vec::new();
        stdout.read_to_end(&mut rest).unwrap();
        assert_eq!((&started, rest.len()), (b"started\n", 0));
    }
}
