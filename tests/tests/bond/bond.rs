//! Client and gateway of a bond as processes, and their logs.

use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use manyways_tests::{Running, finish, manyways};
use serde_json::Value;

use crate::clock;
use crate::world::{GATEWAY, World, eventually};

/// Addresses of the client's proxies.
pub const SOCKS: &str = "127.0.0.1:1080";
pub const CONNECT: &str = "127.0.0.1:3128";

/// A client or gateway. Dropping it ends the process with SIGTERM.
pub struct End {
    pub process: Running,
    log: PathBuf,
}

impl End {
    /// Starts `manyways bond` with these arguments in the namespace of the calling thread. The log
    /// has the level `info`. Programs in the world's `bin` replace those of the system.
    pub fn start(world: &World, name: &str, words: &[&str]) -> Self {
        let log = (0..)
            .map(|count| world.path(&format!("{name}.{count}.log")))
            .find(|path| !path.exists())
            .expect("some number is free");
        let mut command = manyways();
        // A control socket that is separate from those of other tests.
        command.env("LAB_DIR", world.path(""));
        // State of earlier runs must not affect a test.
        command.env("XDG_STATE_HOME", world.path("state"));
        command.env("MANYWAYS_LOG", "info").arg("bond").args(words);
        let clock = world.path("clock");
        if clock.exists() {
            command.env("LD_PRELOAD", clock::library());
            command.env("FAKETIME_TIMESTAMP_FILE", clock).env("FAKETIME_NO_CACHE", "1");
            command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        let programs = world.path("bin");
        if programs.exists() {
            let path = std::env::var("PATH").unwrap_or_default();
            command.env("PATH", format!("{}:{path}", programs.display()));
        }
        let process = world.start(&log, &mut command);
        Self { process, log }
    }

    /// The whole log so far.
    pub fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Number of log lines that contain `words`.
    pub fn times(&self, words: &str) -> usize {
        self.said().lines().filter(|line| line.contains(words)).count()
    }

    /// Waits until at least `times` log lines contain `words`.
    #[track_caller]
    pub fn says_times(&self, words: &str, times: usize) {
        let what = format!("{words:?}, {times} times");
        eventually(&what, || (self.times(words) >= times).then_some(()));
    }

    /// Waits until a log line contains `words`.
    #[track_caller]
    pub fn says(&self, words: &str) {
        self.says_times(words, 1);
    }

    /// Resident memory in bytes.
    pub fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.pid()));
        let status = status.expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let amount = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
        amount.map(|kib: u64| kib * 1024).expect("a process has memory")
    }

    /// Number of open file descriptors.
    pub fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.process.pid())).map_or(0, Iterator::count)
    }
}

impl Drop for End {
    /// Prints the log if the test has failed.
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}:\n{}", self.log.display(), self.said());
        }
    }
}

/// Creates a key and returns its public key.
#[track_caller]
pub fn key(path: &Path) -> String {
    let made = finish(manyways().args(["bond", "keygen"]).arg(path)).succeeded();
    made.stdout.trim().to_owned()
}

/// The keys of a gateway and of its authorized client.
pub struct Keys<'a> {
    world: &'a World,
    pub gateway: String,
    pub client: String,
}

impl<'a> Keys<'a> {
    #[track_caller]
    pub fn new(world: &'a World) -> Self {
        let gateway = key(&world.path("gateway.key"));
        let client = key(&world.path("client.key"));
        let keys = Self { world, gateway, client };
        keys.allow(&format!("{} phone\n", keys.client));
        keys
    }

    /// Replaces the allow file atomically.
    pub fn allow(&self, list: &str) {
        let path = self.world.path("allow");
        fs::write(path.with_extension("new"), list).expect("room for a line");
        fs::rename(path.with_extension("new"), path).expect("the same folder");
    }

    /// Starts the gateway with further options, and waits until it listens.
    #[track_caller]
    pub fn gateway(&self, more: &[&str]) -> End {
        self.gateway_at(&format!("{GATEWAY}:4433"), more)
    }

    /// Starts the gateway at another address.
    #[track_caller]
    pub fn gateway_at(&self, listen: &str, more: &[&str]) -> End {
        let (key, allow) = (self.file("gateway.key"), self.file("allow"));
        let words = ["gateway", "--listen", listen, "--key", &key, "--allow", &allow];
        let words = [&words[..], more].concat();
        let end = self.world.host(|| End::start(self.world, "gateway", &words));
        end.says("listens on");
        end
    }

    /// Starts a client with both proxies and further options.
    pub fn client_at(&self, gateway: &str, more: &[&str]) -> End {
        let key = self.file("client.key");
        let words = ["client", "--gateway", gateway, "--gateway-key", &self.gateway, "--key", &key];
        let doors = ["--socks", SOCKS, "--http-proxy", CONNECT];
        let words = [&words[..], &doors, more].concat();
        self.world.device(|| End::start(self.world, "client", &words))
    }

    /// Starts a client with the same key, and with no proxies except those in the options.
    pub fn doorless(&self, more: &[&str]) -> End {
        let (to, key) = (format!("{GATEWAY}:4433"), self.file("client.key"));
        let words = ["client", "--gateway", &to, "--gateway-key", &self.gateway, "--key", &key];
        let words = [&words[..], more].concat();
        self.world.device(|| End::start(self.world, "doorless", &words))
    }

    /// Starts a client for proxies only, and waits until both networks are up.
    #[track_caller]
    pub fn client(&self) -> End {
        let end = self.client_at(&format!("{GATEWAY}:4433"), &["--intercept", "none"]);
        end.says("wifi is up");
        end.says("lte is up");
        end
    }

    /// Starts a client that intercepts the device's traffic, and waits until both networks are up.
    #[track_caller]
    pub fn transparent(&self, more: &[&str]) -> End {
        let end = self.client_at(&format!("{GATEWAY}:4433"), more);
        end.says("wifi is up");
        end.says("lte is up");
        self.world.device(|| eventually("the rules are there", || table().then_some(())));
        if more.contains(&"closed") {
            // With this fail mode the rules refuse all traffic until the gateway has answered.
            end.says("intercepted");
        }
        end
    }

    pub fn file(&self, name: &str) -> String {
        self.world.path(name).display().to_string()
    }
}

/// Returns the same field of each network in the status of the client with this name.
#[track_caller]
pub fn networks(world: &World, client: &str, field: &str) -> Vec<Value> {
    let mut ask = manyways();
    ask.env("LAB_DIR", world.path("")).args(["bond", "status", "--json", "--name", client]);
    let status = finish(&mut ask).succeeded().stdout;
    let status: Value = serde_json::from_str(&status).expect("it is JSON");
    let networks = status["paths"].as_array().expect("a list");
    networks.iter().map(|network| network[field].clone()).collect()
}

/// Whether the rules of a transparent proxy are installed in the namespace of the calling thread.
pub fn table() -> bool {
    let list = ["list", "table", "inet", "manyways-bond"];
    finish(Command::new("nft").args(list)).status.success()
}

/// Reads a connection to its end.
#[track_caller]
pub fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).expect("it ends well");
    all
}

/// Skips the test if a requirement of all tests in this folder is missing.
#[macro_export]
macro_rules! needs_bond {
    ($($more:expr),*) => {
        manyways_tests::needs!(
            manyways_tests::Need::Root,
            manyways_tests::Need::Command("ip"),
            manyways_tests::Need::Command("nft"),
            manyways_tests::Need::Command("unshare"),
            $(manyways_tests::Need::Command($more)),*
        );
    };
}
