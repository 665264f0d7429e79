//! Programs that read captures, and their command lines.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use manyways_rig::cell::Contender as _;
use manyways_rig::machine::cores;
use manyways_rig::programs::{program, python_with, version};
use manyways_trace::scenario::LinkSpec;

/// The measured release of NFStream.
const NFSTREAM: &str = "6.6.0";

/// Iterates over all flows, as NFStream's first example does. Its child processes run this file
/// again, so the main process needs the `__main__` guard.
const SCRIPT: &str = "\
import sys
from nfstream import NFStreamer
if __name__ == '__main__':
    flows = NFStreamer(source=sys.argv[1], n_meters=1)
    print(sum(1 for _ in flows))
";

/// The second command fails if the machine has no core 1.
const TWICE: &str = "taskset -c 0 \"$0\" flows --threads 1 \"$1\" & \
                     taskset -c 1 \"$0\" flows --threads 1 \"$1\"; \
                     code=$?; wait $! && exit $code";

/// A program that reads a capture and reports its flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// `manyways flows`; `threads` analyse packets, and `tables` are written.
    Manyways { threads: u8, tables: bool },
    /// `manyways flows` of a binary that was built without profile-guided optimization.
    Untrained { threads: u8 },
    /// `manyways flows --threads 1` twice concurrently, on two cores: the upper bound of the gain
    /// of a second core on this machine.
    Twice,
    /// `tshark -z conv,tcp`.
    TShark,
    /// `tcptrace -lW`.
    TcpTrace,
    /// NFStream with its default settings and one meter.
    NfStream,
}

impl manyways_rig::cell::Contender for Contender {
    fn name(&self, _links: &[LinkSpec]) -> String {
        self.row().0
    }
}

impl Contender {
    /// Name, arguments, and rough speed in packets per second. The arguments are separated by
    /// spaces; [`Programs::command`] replaces words in capitals.
    fn row(self) -> (String, String, f64) {
        let own = |threads, name, options| {
            let arguments = format!("flows --threads {threads}{options} CAPTURE");
            (format!("manyways-{threads}{name}"), arguments, 1.5e6)
        };
        let (name, arguments, speed) = match self {
            Self::Manyways { threads, tables: false } => return own(threads, "", ""),
            Self::Manyways { threads, .. } => return own(threads, "-tables", " --force -o TABLES"),
            Self::Untrained { threads } => return own(threads, "-untrained", ""),
            Self::Twice => ("manyways-1-twice", "-c TWICE MANYWAYS CAPTURE", 1.5e6),
            Self::TShark => ("tshark", "-n -q -z conv,tcp -r CAPTURE", 0.1e6),
            Self::TcpTrace => ("tcptrace", "-lW -n CAPTURE", 0.5e6),
            Self::NfStream => ("nfstream", "SCRIPT CAPTURE", 0.2e6),
        };
        (name.to_owned(), arguments.to_owned(), speed)
    }

    /// Rough speed for the estimated duration.
    pub fn packets_per_second(self) -> f64 {
        self.row().2
    }

    /// Whether the contender is pinned to a single core.
    fn is_on_one_core(self) -> bool {
        !matches!(
            self,
            Self::Manyways { threads: 2.., .. } | Self::Untrained { threads: 2.. } | Self::Twice
        )
    }
}

/// Paths of the installed contenders.
#[derive(Debug)]
pub struct Programs {
    pub manyways: PathBuf,
    untrained: Option<PathBuf>,
    tshark: Option<PathBuf>,
    tcptrace: Option<PathBuf>,
    /// Python of NFStream's virtual environment and its script, or the reason why it is not
    /// available.
    nfstream: Result<(PathBuf, tempfile::NamedTempFile), String>,
}

impl Programs {
    /// Searches for the other programs, and installs NFStream if possible.
    pub fn find(manyways: PathBuf, untrained: Option<PathBuf>) -> Self {
        let [tshark, tcptrace] = ["tshark", "tcptrace"].map(program);
        let script = || {
            let script = tempfile::Builder::new().suffix(".py").tempfile()?;
            std::fs::write(script.path(), SCRIPT).map(|()| script)
        };
        let nfstream = python_with("nfstream", NFSTREAM).and_then(|python| {
            let script = script().map_err(|error| format!("NFStream: no script: {error}"))?;
            Ok((python, script))
        });
        Self { manyways, untrained, tshark, tcptrace, nfstream }
    }

    /// Names and versions of the other programs.
    pub fn versions(&self) -> Vec<String> {
        let mut all = Vec::new();
        all.extend(self.tshark.as_ref().and_then(|file| version(file, "--version")));
        // tcptrace fails when it prints its version among other text.
        all.extend(self.tcptrace.as_ref().map(|_| "tcptrace 6.6.7".to_owned()));
        all.extend(self.nfstream.as_ref().ok().map(|_| format!("NFStream {NFSTREAM}")));
        all
    }

    /// The program that reads captures for a contender.
    ///
    /// # Errors
    /// The reason why the contender cannot run.
    pub fn file(&self, who: Contender) -> Result<&Path, String> {
        let missing = || format!("{} is not installed (scripts/setup bench)", who.name(&[]));
        let program = match who {
            Contender::Manyways { .. } | Contender::Twice => Some(&self.manyways),
            Contender::Untrained { .. } => {
                let missing = || format!("{} was not named (--untrained)", who.name(&[]));
                return self.untrained.as_deref().ok_or_else(missing);
            }
            Contender::TShark => self.tshark.as_ref(),
            Contender::TcpTrace => self.tcptrace.as_ref(),
            Contender::NfStream => Some(&self.nfstream.as_ref().map_err(Clone::clone)?.0),
        };
        program.map(PathBuf::as_path).ok_or_else(missing)
    }

    /// The command that reads a capture; `-` is standard input.
    ///
    /// # Errors
    /// The reason why the contender cannot run.
    pub fn command(
        &self,
        contender: Contender,
        capture: &Path,
        tables: &Path,
    ) -> Result<Command, String> {
        let file = match contender {
            Contender::Twice => Path::new("sh"),
            _ => self.file(contender)?,
        };
        let mut command = match contender.is_on_one_core() {
            // The last core, because interrupts and other processes prefer the first.
            true => {
                let mut command = Command::new("taskset");
                command.arg("-c").arg((cores() - 1).to_string()).arg(file);
                command
            }
            false => Command::new(file),
        };
        for word in contender.row().1.split(' ') {
            match (word, &self.nfstream) {
                ("CAPTURE", _) => command.arg(capture),
                ("TABLES", _) => command.arg(tables),
                ("MANYWAYS", _) => command.arg(&self.manyways),
                ("SCRIPT", Ok((_, script))) => command.arg(script.path()),
                ("TWICE", _) => command.arg(TWICE),
                _ => command.arg(word),
            };
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(command)
    }
}
