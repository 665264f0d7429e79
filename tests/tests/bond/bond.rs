//! The two ends of a bond as processes, and what they say.

use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use manyways_tests::{Running, finish, manyways};
use serde_json::Value;

use crate::clock;
use crate::world::{GATEWAY, World, eventually};

/// Where the client listens for applications that are told to.
pub const SOCKS: &str = "127.0.0.1:1080";
pub const CONNECT: &str = "127.0.0.1:3128";

/// One end. Dropping it ends it with SIGTERM.
pub struct End {
    pub process: Running,
    log: PathBuf,
}

impl End {
    /// Starts `manyways bond` with these words where the calling thread is. Its log says who came
    /// and went. Programs in the world's `bin` take the place of the system's.
    pub fn start(world: &World, name: &str, words: &[&str]) -> Self {
        let log = (0..)
            .map(|count| world.path(&format!("{name}.{count}.log")))
            .find(|path| !path.exists())
            .expect("some number is free");
        let mut command = manyways();
        // Where it can be asked, apart from those of other tests.
        command.env("LAB_DIR", world.path(""));
        // What is remembered of other months, or other gateways, is of no use to other tests.
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

    /// All that it has said.
    pub fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// How many of its lines contain these words.
    pub fn times(&self, words: &str) -> usize {
        self.said().lines().filter(|line| line.contains(words)).count()
    }

    /// Waits until so many of its lines contain these words.
    #[track_caller]
    pub fn says_times(&self, words: &str, times: usize) {
        let what = format!("{words:?}, {times} times");
        eventually(&what, || (self.times(words) >= times).then_some(()));
    }

    /// Waits until it says these words.
    #[track_caller]
    pub fn says(&self, words: &str) {
        self.says_times(words, 1);
    }

    /// The memory that it has, in bytes.
    pub fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.pid()));
        let status = status.expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let amount = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
        amount.map(|kib: u64| kib * 1024).expect("a process has memory")
    }

    /// How many descriptors it has open.
    pub fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.process.pid())).map_or(0, Iterator::count)
    }
}

impl Drop for End {
    /// A test that failed shows what the ends had to say about it.
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}:\n{}", self.log.display(), self.said());
        }
    }
}

/// Makes a key, and gives its public half.
#[track_caller]
pub fn key(path: &Path) -> String {
    let made = finish(manyways().args(["bond", "keygen"]).arg(path)).succeeded();
    made.stdout.trim().to_owned()
}

/// The keys of a gateway and of a client that it knows.
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

    /// Writes the list of those that the gateway knows.
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

    /// The same at another address.
    #[track_caller]
    pub fn gateway_at(&self, listen: &str, more: &[&str]) -> End {
        let (key, allow) = (self.file("gateway.key"), self.file("allow"));
        let words = ["gateway", "--listen", listen, "--key", &key, "--allow", &allow];
        let words = [&words[..], more].concat();
        let end = self.world.host(|| End::start(self.world, "gateway", &words));
        end.says("listens on");
        end
    }

    /// Starts a client with its doors open, and with further options.
    pub fn client_at(&self, gateway: &str, more: &[&str]) -> End {
        let key = self.file("client.key");
        let words = ["client", "--gateway", gateway, "--gateway-key", &self.gateway, "--key", &key];
        let doors = ["--socks", SOCKS, "--http-proxy", CONNECT];
        let words = [&words[..], &doors, more].concat();
        self.world.device(|| End::start(self.world, "client", &words))
    }

    /// Starts a client of the same key without any door but those that the options name.
    pub fn doorless(&self, more: &[&str]) -> End {
        let (to, key) = (format!("{GATEWAY}:4433"), self.file("client.key"));
        let words = ["client", "--gateway", &to, "--gateway-key", &self.gateway, "--key", &key];
        let words = [&words[..], more].concat();
        self.world.device(|| End::start(self.world, "doorless", &words))
    }

    /// A client for proxies only, with both networks up.
    #[track_caller]
    pub fn client(&self) -> End {
        let end = self.client_at(&format!("{GATEWAY}:4433"), &["--intercept", "none"]);
        end.says("wifi is up");
        end.says("lte is up");
        end
    }

    /// A client that takes in what the device sends, with both networks up.
    #[track_caller]
    pub fn transparent(&self, more: &[&str]) -> End {
        let end = self.client_at(&format!("{GATEWAY}:4433"), more);
        end.says("wifi is up");
        end.says("lte is up");
        self.world.device(|| eventually("the rules are there", || table().then_some(())));
        if more.contains(&"closed") {
            // Until the gateway has answered, they refuse all.
            end.says("intercepted");
        }
        end
    }

    pub fn file(&self, name: &str) -> String {
        self.world.path(name).display().to_string()
    }
}

/// What the client of this name says of its networks: the same field of each.
#[track_caller]
pub fn networks(world: &World, client: &str, field: &str) -> Vec<Value> {
    let mut ask = manyways();
    ask.env("LAB_DIR", world.path("")).args(["bond", "status", "--json", "--name", client]);
    let status = finish(&mut ask).succeeded().stdout;
    let status: Value = serde_json::from_str(&status).expect("it is JSON");
    let networks = status["paths"].as_array().expect("a list");
    networks.iter().map(|network| network[field].clone()).collect()
}

/// Whether the rules of a transparent proxy are installed where the calling thread is.
pub fn table() -> bool {
    let list = ["list", "table", "inet", "manyways-bond"];
    finish(Command::new("nft").args(list)).status.success()
}

/// Reads to the end of a connection.
#[track_caller]
pub fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).expect("it ends well");
    all
}

/// Every test here needs these.
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
