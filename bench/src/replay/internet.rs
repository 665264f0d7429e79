//! A lab that stands for the internet: servers at real addresses, each at its own distance.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use manyways_rig::Authority;
use manyways_rig::launch::DriveError;
use manyways_rig::programs::quoted;
use manyways_rig::{Server, ServerConfig};
use manyways_unit::Span;

use crate::shell::Shell;

/// Name of the first server; all names are below it.
pub const NAME: &str = "www.example.test";
/// Address of the first server; the others follow it.
const FIRST: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 10);

/// The options of `manyways lab shell`, and the files of the servers.
pub struct Internet<'a> {
    pub shell: &'a Shell<'a>,
    pub authority: Authority,
    options: Vec<String>,
}

impl<'a> Internet<'a> {
    /// Servers without processes: one for each of `extra`, its round-trip time in addition to that of
    /// the link.
    ///
    /// # Errors
    /// The certificates cannot be written.
    pub fn new(shell: &'a Shell<'a>, link: &str, extra: &[Span]) -> Result<Self, DriveError> {
        let names: Vec<String> = (0..extra.len()).map(name).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let authority = Authority::new(shell.folder(), &names)?;
        let mut options = vec!["--link".to_owned(), link.to_owned()];
        for (index, extra) in extra.iter().enumerate() {
            let extra = extra.as_nanos() / 1_000;
            let host = format!("{},name={},extra-rtt={extra}us", address(index), name(index));
            options.extend(["--far-host".to_owned(), host]);
        }
        Ok(Self { shell, authority, options })
    }

    /// Adds nginx with the files of the folder `root` at all addresses.
    ///
    /// # Errors
    /// nginx is not installed, or a file cannot be written.
    pub fn with_nginx(mut self, config: &str, servers: usize) -> Result<Self, DriveError> {
        let own = self.shell.path("nginx");
        std::fs::create_dir_all(&own).map_err(manyways_rig::launch::system("make a folder"))?;
        let at = |port| (0..servers).map(|index| (address(index), port).into()).collect::<Vec<_>>();
        let site = ServerConfig {
            root: &self.root(),
            plain: &at(80),
            secure: &at(443),
            authority: Some(&self.authority),
            extra_config: config,
        };
        let server = Server::nginx(&own, &site)?;
        let words = server.command().iter().map(|word| quoted(word.as_ref()));
        let words = words.collect::<Vec<_>>().join(" ");
        self.options.extend(["--far".to_owned(), format!("exec {words}")]);
        Ok(self)
    }

    /// Adds a server, a command for `/bin/sh`. `$1` is an address.
    pub fn with_server(mut self, command: impl Into<String>) -> Self {
        self.options.extend(["--far".to_owned(), command.into()]);
        self
    }

    /// The folder of nginx's files.
    pub fn root(&self) -> PathBuf {
        self.shell.path("root")
    }

    /// Runs a shell script on the device. `$RECORD` begins a recording whose file, options and command
    /// follow.
    ///
    /// # Errors
    /// The inner one is the last lines that a failed script printed.
    pub fn run(&self, script: &str, timeout: Span) -> Result<Result<String, String>, DriveError> {
        self.run_with("", script, timeout)
    }

    /// The same with other options of `lab shell`, as words of a shell.
    ///
    /// # Errors
    /// Those of [`run`](Self::run).
    pub fn run_with(
        &self,
        more: &str,
        script: &str,
        timeout: Span,
    ) -> Result<Result<String, String>, DriveError> {
        let authority = self.authority.authority();
        // Its folder has no character that a shell knows.
        let record = format!("$MANYWAYS record --internet --origin-ca {}", authority.display());
        let script = format!("RECORD=\"{record}\"\n{script}");
        let program = format!("exec \"$MANYWAYS\" lab shell {more} \"$@\"");
        self.start(&program, &script, timeout)
    }

    /// Records a shell script on the device, with the recorder beside the servers. The last line of the
    /// output has the processor time of the recorder without its lab, in clock ticks.
    ///
    /// # Errors
    /// Those of [`run`](Self::run).
    pub fn record(
        &self,
        script: &str,
        timeout: Span,
    ) -> Result<Result<String, String>, DriveError> {
        let authority = self.authority.authority();
        let program = format!(
            "rm -f recorded.zip
             \"$MANYWAYS\" record -o recorded.zip --origin-ca {} \"$@\" & recorder=$!
             last=0
             while [ -d /proc/$recorder ]; do
                 ticks=$(cat /proc/$recorder/task/[0-9]*/stat 2>/dev/null |
                     awk '$2 ~ /recorder|archive/ {{ all += $14 + $15 }} END {{ print all + 0 }}')
                 [ $ticks -lt $last ] || last=$ticks
                 sleep 0.1
             done
             wait $recorder
             echo $last",
            authority.display()
        );
        self.start(&program, script, timeout)
    }

    fn start(
        &self,
        program: &str,
        script: &str,
        timeout: Span,
    ) -> Result<Result<String, String>, DriveError> {
        let mut command = self.shell.command(Path::new("/bin/sh"));
        command.args(["-euc", program, "manyways"]).args(&self.options);
        self.shell.finish(command.args(["--", "sh", "-euc", script]), timeout)
    }
}

/// Name of a server.
pub fn name(index: usize) -> String {
    match index {
        0 => NAME.to_owned(),
        _ => format!("s{index}.{NAME}"),
    }
}

/// Address of a server.
pub fn address(index: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(FIRST.to_bits() + index as u32)
}
