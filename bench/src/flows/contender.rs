//! Programs that read captures, and their command lines.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use manyways_rig::cell::Contender as _;
use manyways_rig::programs::{program, version};
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

/// A program that reads a capture and reports its flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// `manyways flows`.
    Manyways {
        /// Number of threads that analyse packets.
        threads: u8,
        /// Whether tables are written.
        tables: bool,
    },
    /// `manyways flows` of a binary that was built without profile-guided optimization.
    Untrained {
        /// Number of threads that analyse packets.
        threads: u8,
    },
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
        match self {
            Self::Manyways { threads, tables: false } => format!("manyways-{threads}"),
            Self::Manyways { threads, tables: true } => format!("manyways-{threads}-tables"),
            Self::Untrained { threads } => format!("manyways-{threads}-untrained"),
            Self::Twice => "manyways-1-twice".to_owned(),
            Self::TShark => "tshark".to_owned(),
            Self::TcpTrace => "tcptrace".to_owned(),
            Self::NfStream => "nfstream".to_owned(),
        }
    }
}

impl Contender {
    /// Whether the contender is pinned to a single core.
    pub fn is_on_one_core(self) -> bool {
        !matches!(
            self,
            Self::Manyways { threads: 2.., .. } | Self::Untrained { threads: 2.. } | Self::Twice
        )
    }

    /// Rough speed for the estimated duration.
    pub fn packets_per_second(self) -> f64 {
        match self {
            Self::Manyways { .. } | Self::Untrained { .. } | Self::Twice => 1.5e6,
            Self::TShark => 0.1e6,
            Self::TcpTrace => 0.5e6,
            Self::NfStream => 0.2e6,
        }
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
        Self { manyways, untrained, tshark, tcptrace, nfstream: nfstream() }
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

    /// The program that is started; `None` if it is not installed.
    pub fn file(&self, who: Contender) -> Option<&Path> {
        match who {
            Contender::Manyways { .. } | Contender::Twice => Some(&self.manyways),
            Contender::Untrained { .. } => self.untrained.as_deref(),
            Contender::TShark => self.tshark.as_deref(),
            Contender::TcpTrace => self.tcptrace.as_deref(),
            Contender::NfStream => self.nfstream.as_ref().ok().map(|(python, _)| python.as_path()),
        }
    }

    /// The command that reads a capture; `-` is standard input.
    ///
    /// # Errors
    /// The reason why the contender cannot run.
    pub fn command(
        &self,
        who: Contender,
        capture: &Path,
        tables: &Path,
    ) -> Result<Command, String> {
        let there = |program: &Option<PathBuf>, name: &str| {
            program.clone().ok_or_else(|| format!("{name} is not installed (scripts/setup bench)"))
        };
        let mut words: Vec<&OsStr> = Vec::new();
        let threads;
        let file = match who {
            Contender::Manyways { threads: count, tables: with } => {
                threads = count.to_string();
                words.extend(["flows", "--threads", &threads].map(OsStr::new));
                if with {
                    words.extend(["--force".as_ref(), "-o".as_ref(), tables.as_os_str()]);
                }
                words.push(capture.as_os_str());
                self.manyways.clone()
            }
            Contender::Untrained { threads: count } => {
                threads = count.to_string();
                words.extend(["flows", "--threads", &threads].map(OsStr::new));
                words.push(capture.as_os_str());
                let missing = || format!("{} was not named (--untrained)", who.name(&[]));
                self.untrained.clone().ok_or_else(missing)?
            }
            Contender::Twice => {
                // The second command fails if the machine has no core 1.
                let both = "taskset -c 0 \"$0\" flows --threads 1 \"$1\" & \
                            taskset -c 1 \"$0\" flows --threads 1 \"$1\"; \
                            code=$?; wait $! && exit $code";
                words.extend(["-c", both].map(OsStr::new));
                words.extend([self.manyways.as_os_str(), capture.as_os_str()]);
                PathBuf::from("sh")
            }
            Contender::TShark => {
                words.extend(["-n", "-q", "-z", "conv,tcp", "-r"].map(OsStr::new));
                words.push(capture.as_os_str());
                there(&self.tshark, "tshark")?
            }
            Contender::TcpTrace => {
                words.extend([OsStr::new("-lW"), OsStr::new("-n"), capture.as_os_str()]);
                there(&self.tcptrace, "tcptrace")?
            }
            Contender::NfStream => {
                let (python, script) = self.nfstream.as_ref().map_err(Clone::clone)?;
                words.extend([script.path().as_os_str(), capture.as_os_str()]);
                python.clone()
            }
        };
        let mut command = match who.is_on_one_core() {
            // The last core, because interrupts and other processes prefer the first.
            true => {
                let core = std::thread::available_parallelism().map_or(1, usize::from) - 1;
                let mut command = Command::new("taskset");
                command.arg("-c").arg(core.to_string()).arg(file);
                command
            }
            false => Command::new(file),
        };
        command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(command)
    }
}

/// A virtual environment in the cache folder that scripts/setup uses for tools.
fn nfstream() -> Result<(PathBuf, tempfile::NamedTempFile), String> {
    let folder = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let cache = folder("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(folder("HOME")?).join(".cache")))
        .ok_or("NFStream: there is no home folder to install it in")?;
    let root = cache.join("manyways/bench-venv");
    let python = root.join("bin/python");
    let is_there = |python: &Path| {
        let ask = "import importlib.metadata as m, nfstream; print(m.version('nfstream'))";
        let said = Command::new(python).args(["-c", ask]).stdin(Stdio::null()).output();
        said.is_ok_and(|said| said.stdout.trim_ascii() == NFSTREAM.as_bytes())
    };
    if !is_there(&python) {
        eprintln!("installing NFStream {NFSTREAM} into {} (once)", root.display());
        let wanted = format!("nfstream=={NFSTREAM}");
        run(Command::new("python3").args(["-m", "venv"]).arg(&root))?;
        run(Command::new(&python).args(["-m", "pip", "install", "--quiet", &wanted]))?;
        if !is_there(&python) {
            return Err(format!("NFStream {NFSTREAM} was installed but cannot be used"));
        }
    }
    let script = tempfile::Builder::new().suffix(".py").tempfile();
    let script = script.map_err(|error| format!("NFStream: no place for a script: {error}"))?;
    std::fs::write(script.path(), SCRIPT).map_err(|error| error.to_string())?;
    Ok((python, script))
}

/// Runs one step of an installation. The error has only the exit status: the package mirror in its
/// output is irrelevant to a reader of the report.
fn run(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("NFStream cannot be installed: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("NFStream {NFSTREAM} cannot be installed ({})", output.status)),
    }
}
