//! Runs of shell scripts in a folder that goes with them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;

use manyways_rig::launch::{DriveError, system};
use manyways_rig::measure::end_of;
use manyways_sys::signal::Termination;
use manyways_unit::Span;
use tempfile::TempDir;

use crate::options::Setup;

/// Programs and values for the experiments of a family.
pub struct Tools {
    /// The program under test.
    pub manyways: PathBuf,
    /// This program.
    pub own: PathBuf,
    /// Signals that end the whole benchmark.
    pub termination: Termination,
    /// Seed of every order.
    pub seed: u64,
}

impl Tools {
    /// # Errors
    /// One sentence, if the path of this program is unknown.
    pub fn new(setup: Setup) -> Result<Self, String> {
        let own = std::env::current_exe();
        let own = own.map_err(|error| format!("cannot tell where this is: {error}"))?;
        let Setup { manyways, termination, seed } = setup;
        Ok(Self { manyways, own, termination, seed })
    }
}

/// A folder in which scripts run. In their environment, `MANYWAYS` is the program under test and `BENCH`
/// is this program.
pub struct Shell<'a> {
    tools: &'a Tools,
    folder: TempDir,
}

impl<'a> Shell<'a> {
    pub fn new(tools: &'a Tools) -> Result<Self, DriveError> {
        let folder = tempfile::Builder::new().prefix("manyways-bench").tempdir();
        Ok(Self { tools, folder: folder.map_err(system("make a folder"))? })
    }

    /// The program under test.
    pub fn manyways(&self) -> &Path {
        &self.tools.manyways
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> Result<(), DriveError> {
        std::fs::write(self.path(name), content).map_err(system("write a file"))
    }

    /// A command in the folder.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.folder());
        command.env("MANYWAYS", &self.tools.manyways).env("BENCH", &self.tools.own);
        // The bundles of this machine have nothing to do with the servers.
        for name in ["SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "PIP_CERT"] {
            command.env_remove(name);
        }
        command.stdin(Stdio::null());
        command
    }

    /// Runs a script. It is killed after `timeout`.
    ///
    /// # Errors
    /// The inner one is the last lines that a failed script printed.
    pub fn run(&self, script: &str, timeout: Span) -> Result<Result<String, String>, DriveError> {
        let mut command = self.command(Path::new("/bin/sh"));
        command.args(["-euc", script]);
        self.finish(&mut command, timeout)
    }

    /// Runs a command of this folder, and returns what it printed. It is killed after `timeout`.
    ///
    /// # Errors
    /// The inner one is the last lines that a failed command printed.
    pub fn finish(
        &self,
        command: &mut Command,
        timeout: Span,
    ) -> Result<Result<String, String>, DriveError> {
        // Drives run at the same time.
        let files = tempfile::tempdir_in(self.folder()).map_err(system("make a folder"))?;
        let file = |name: &str| std::fs::File::create(files.path().join(name));
        let read = |name: &str| std::fs::read(files.path().join(name));
        command.stdout(file("out").map_err(system("make a file"))?);
        command.stderr(file("said").map_err(system("make a file"))?);
        let mut child = command.spawn().map_err(system("start a contender"))?;
        let (_, failed) = end_of(&mut child, timeout, Some(&self.tools.termination))?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let out = text(read("out").map_err(system("read a file"))?);
        let Some(reason) = failed else { return Ok(Ok(out)) };
        let said = text(read("said").map_err(system("read a file"))?);
        let last: Vec<&str> = said.lines().rev().take(3).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        Ok(Err(format!("{reason}: {}", last.join("; "))))
    }
}

/// Runs tasks, some at a time, and returns their results in the order of the tasks.
///
/// # Errors
/// The first error of a task, after which no further one begins.
pub fn side_by_side<T: Sync, R: Send>(
    tasks: &[T],
    jobs: usize,
    run: impl Fn(&T) -> Result<R, DriveError> + Sync,
) -> Result<Vec<R>, DriveError> {
    let waiting = Mutex::new(tasks.iter().enumerate());
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
    let stop = || *waiting.lock().unwrap_or_else(PoisonError::into_inner) = [].iter().enumerate();
    let work = || -> Result<Vec<(usize, R)>, DriveError> {
        let mut done = Vec::new();
        while let Some((index, task)) = next() {
            let result = run(task);
            if result.is_err() {
                stop();
            }
            done.push((index, result?));
        }
        Ok(done)
    };
    let mut all = thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(work)).collect();
        let mut all = Vec::new();
        for worker in workers {
            all.extend(worker.join().map_err(|_| {
                system("join a thread")(std::io::Error::other("it has panicked"))
            })??);
        }
        Ok::<_, DriveError>(all)
    })?;
    all.sort_by_key(|(index, _)| *index);
    Ok(all.into_iter().map(|(_, result)| result).collect())
}
