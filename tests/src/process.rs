//! Processes that end with the test, and in bounded time.

use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use manyways_sys::signal::with_defaults;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

/// Far more than any test needs: who reaches it hangs.
const PATIENCE: Duration = Duration::from_secs(120);
/// What a process gets to clean up after SIGTERM.
const GRACE: Duration = Duration::from_secs(10);

/// A process that has ended, and all that it said.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Finished {
    /// The exit code.
    ///
    /// # Panics
    /// When a signal ended it.
    #[track_caller]
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| {
            panic!("ended by signal {:?}\n{}{}", self.status.signal(), self.stdout, self.stderr)
        })
    }

    /// The same, when it ended with exit code 0.
    ///
    /// # Panics
    /// When it did not, with all that it said.
    #[track_caller]
    pub fn succeeded(self) -> Self {
        assert!(self.status.success(), "{}\n{}{}", self.status, self.stdout, self.stderr);
        self
    }
}

/// Runs a command to its end, without input.
///
/// # Panics
/// When it cannot be started, or takes so long that it must hang; it is killed then.
#[track_caller]
pub fn finish(command: &mut Command) -> Finished {
    let mut running = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let child = running.child.as_mut().expect("nobody has waited yet");
    let stdout = read_aside(child.stdout.take().expect("piped above"));
    let stderr = read_aside(child.stderr.take().expect("piped above"));
    let status = running.wait(PATIENCE);
    let status = status.unwrap_or_else(|| panic!("{command:?} runs for more than {PATIENCE:?}"));
    // Or a child that it left behind would hold the pipes open.
    drop(running);
    let said = |reader: thread::JoinHandle<Vec<u8>>| {
        String::from_utf8_lossy(&reader.join().expect("reading does not panic")).into_owned()
    };
    Finished { status, stdout: said(stdout), stderr: said(stderr) }
}

fn read_aside(mut from: impl Read + Send + 'static) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).expect("a pipe can be read");
        bytes
    })
}

/// A process in a group of its own. Dropping it ends the group: first with SIGTERM, so that it can
/// clean up, then with SIGKILL.
#[derive(Debug)]
pub struct Running {
    /// The process, until a thread of its own waits for it.
    child: Option<Child>,
    ended: Option<mpsc::Receiver<ExitStatus>>,
    status: Option<ExitStatus>,
    pid: Pid,
}

impl Running {
    /// Starts it without input, and with the default action of every signal. What it says goes where
    /// `command` sends it.
    ///
    /// # Panics
    /// When it cannot be started.
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

    /// Its process id, which is also that of its group.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    /// Its standard output, where the command pipes it; once.
    pub fn stdout(&mut self) -> Option<impl Read + Send + use<>> {
        self.child.as_mut()?.stdout.take()
    }

    /// Sends it a signal; the process alone, not its group.
    pub fn signal(&self, signal: Signal) {
        if self.status.is_none() {
            kill(self.pid, signal).expect("a child that nobody waited for can be signalled");
        }
    }

    /// Waits until it ends, or nothing when it has not after `patience`.
    pub fn wait(&mut self, patience: Duration) -> Option<ExitStatus> {
        if self.status.is_none() {
            let ended = self.ended.get_or_insert_with(|| {
                let mut child = self.child.take().expect("only the waiting thread takes it");
                let (done, ended) = mpsc::channel();
                thread::spawn(move || done.send(child.wait().expect("a child can be waited for")));
                ended
            });
            self.status = ended.recv_timeout(patience).ok();
        }
        self.status
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Errors say that nobody of the group is left, which is what this is for.
        if self.status.is_none() {
            let _ = killpg(self.pid, Signal::SIGTERM);
            let _ = self.wait(GRACE);
        }
        let _ = killpg(self.pid, Signal::SIGKILL);
        let _ = self.wait(GRACE);
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

    /// A shell starts a background job with SIGINT ignored, and what a shell finds ignored it cannot
    /// trap.
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
        // Not by the harness: the shell has to ignore the signals itself.
        let done = again.args(["--exact", name]).env(IN_BACKGROUND, "yes").output().unwrap();
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && said.contains("1 passed"), "{said}");
    }

    #[test]
    fn dropping_ends_the_whole_group() {
        let mut command = Command::new("sh");
        // Ends when the pipe does, that is when both the shell and its child are gone.
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
