//! Runs of shell scripts in a folder that goes with them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use manyways_rig::launch::{DriveError, system};
use manyways_rig::measure::end_of;
use manyways_unit::Span;
use tempfile::TempDir;

use super::Replay;

/// A folder in which scripts run. In their environment, `MANYWAYS` is the program under test and `BENCH`
/// is this program.
pub struct Shell<'a> {
    replay: &'a Replay,
    folder: TempDir,
}

impl<'a> Shell<'a> {
    pub fn new(replay: &'a Replay) -> Result<Self, DriveError> {
        let folder = tempfile::Builder::new().prefix("manyways-bench").tempdir();
        Ok(Self { replay, folder: folder.map_err(system("make a folder"))? })
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
        command.env("MANYWAYS", &self.replay.manyways).env("BENCH", &self.replay.own);
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
        let (_, failed) = end_of(&mut child, timeout, Some(&self.replay.termination))?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let out = text(read("out").map_err(system("read a file"))?);
        let Some(reason) = failed else { return Ok(Ok(out)) };
        let said = text(read("said").map_err(system("read a file"))?);
        let last: Vec<&str> = said.lines().rev().take(3).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        Ok(Err(format!("{reason}: {}", last.join("; "))))
    }
}
