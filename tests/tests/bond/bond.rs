//! Client and gateway of a bond as processes, and their logs.

use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use manyways_tests::testbed::Logged;
use manyways_tests::{finish, manyways};
use serde_json::Value;

use crate::clock;
use crate::testbed::{GATEWAY, Testbed, eventually};

/// Addresses of the client's proxies.
pub const SOCKS: &str = "127.0.0.1:1080";
pub const CONNECT: &str = "127.0.0.1:3128";

/// Starts `manyways bond` with these arguments in the namespace of the calling thread. The log has
/// the level `info`. Programs in the testbed's `bin` replace those of the system.
pub fn start(testbed: &Testbed, name: &str, words: &[&str]) -> Logged {
    let log = (0..)
        .map(|count| testbed.path(&format!("{name}.{count}.log")))
        .find(|path| !path.exists())
        .expect("some number is free");
    let mut command = manyways();
    // A control socket that is separate from those of other tests.
    command.env("LAB_DIR", testbed.path(""));
    // State of earlier runs must not affect a test.
    command.env("XDG_STATE_HOME", testbed.path("state"));
    command.env("MANYWAYS_LOG", "info").arg("bond").args(words);
    let clock = testbed.path("clock");
    if clock.exists() {
        command.env("LD_PRELOAD", clock::faketime_path());
        command.env("FAKETIME_TIMESTAMP_FILE", clock).env("FAKETIME_NO_CACHE", "1");
        command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    }
    if let Ok(limit) = fs::read_to_string(testbed.path("open-files")) {
        command.env("OPEN_FILES", limit);
    }
    let programs = testbed.path("bin");
    if programs.exists() {
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", programs.display()));
    }
    testbed.start(log, &mut command)
}

/// Creates a key and returns its public key.
#[track_caller]
pub fn key(path: &Path) -> String {
    let made = finish(manyways().args(["bond", "keygen"]).arg(path)).expect_success();
    made.stdout.trim().to_owned()
}

/// The keys of a gateway and of its authorized client.
pub struct Keys<'a> {
    testbed: &'a Testbed,
    pub gateway: String,
    pub client: String,
}

impl<'a> Keys<'a> {
    #[track_caller]
    pub fn new(testbed: &'a Testbed) -> Self {
        let gateway = key(&testbed.path("gateway.key"));
        let client = key(&testbed.path("client.key"));
        let keys = Self { testbed, gateway, client };
        keys.allow(&format!("{} phone\n", keys.client));
        keys
    }

    /// Replaces the allow file atomically.
    pub fn allow(&self, list: &str) {
        let path = self.testbed.path("allow");
        fs::write(path.with_extension("new"), list).expect("room for a line");
        fs::rename(path.with_extension("new"), path).expect("the same folder");
    }

    /// Starts the gateway with this limit of open files, and waits until it listens.
    #[track_caller]
    pub fn gateway_with_open_files(&self, limit: u32) -> Logged {
        let file = self.testbed.path("open-files");
        fs::write(&file, limit.to_string()).expect("room for a number");
        let gateway = self.gateway(&[]);
        fs::remove_file(file).expect("it is there");
        gateway
    }

    /// Starts the gateway with further options, and waits until it listens.
    #[track_caller]
    pub fn gateway(&self, more: &[&str]) -> Logged {
        self.gateway_at(&format!("{GATEWAY}:4433"), more)
    }

    /// Starts the gateway at another address.
    #[track_caller]
    pub fn gateway_at(&self, listen: &str, more: &[&str]) -> Logged {
        let (key, allow) = (self.file("gateway.key"), self.file("allow"));
        let words = ["gateway", "--listen", listen, "--key", &key, "--allow", &allow];
        let words = [&words[..], more].concat();
        let end = self.testbed.host(|| start(self.testbed, "gateway", &words));
        end.says("listens on");
        end
    }

    /// Starts a client with both proxies and further options.
    pub fn client_at(&self, gateway: &str, more: &[&str]) -> Logged {
        let key = self.file("client.key");
        let words = ["client", "--gateway", gateway, "--gateway-key", &self.gateway, "--key", &key];
        let doors = ["--socks", SOCKS, "--http-proxy", CONNECT];
        let words = [&words[..], &doors, more].concat();
        self.testbed.device(|| start(self.testbed, "client", &words))
    }

    /// Starts a client with the same key, and with no proxies except those in the options.
    pub fn client_without_proxies(&self, more: &[&str]) -> Logged {
        let (to, key) = (format!("{GATEWAY}:4433"), self.file("client.key"));
        let words = ["client", "--gateway", &to, "--gateway-key", &self.gateway, "--key", &key];
        let words = [&words[..], more].concat();
        self.testbed.device(|| start(self.testbed, "doorless", &words))
    }

    /// Starts a client for proxies only, and waits until both networks are up.
    #[track_caller]
    pub fn client(&self) -> Logged {
        let end = self.client_at(&format!("{GATEWAY}:4433"), &["--intercept", "none"]);
        end.says("wifi is up");
        end.says("lte is up");
        end
    }

    /// Starts a client that intercepts the device's traffic, and waits until both networks are up.
    #[track_caller]
    pub fn transparent(&self, more: &[&str]) -> Logged {
        let end = self.client_at(&format!("{GATEWAY}:4433"), more);
        end.says("wifi is up");
        end.says("lte is up");
        self.testbed.device(|| eventually("the rules are there", || has_rules().then_some(())));
        if more.contains(&"closed") {
            // With this fail mode the rules refuse all traffic until the gateway has answered.
            // Not "intercepted" alone: the message before the answer contains that word, too.
            end.says("are intercepted");
        }
        end
    }

    pub fn file(&self, name: &str) -> String {
        self.testbed.path(name).display().to_string()
    }
}

/// Returns the status of the client with this name.
#[track_caller]
pub fn client_status(testbed: &Testbed, client: &str) -> Value {
    let mut command = manyways();
    command.env("LAB_DIR", testbed.path("")).args(["bond", "status", "--json", "--name", client]);
    let status = finish(&mut command).expect_success().stdout;
    serde_json::from_str(&status).expect("it is JSON")
}

/// Returns the same field of each network in the status of the client with this name.
#[track_caller]
pub fn network_fields(testbed: &Testbed, client: &str, field: &str) -> Vec<Value> {
    let status = client_status(testbed, client);
    let networks = status["paths"].as_array().expect("a list");
    networks.iter().map(|network| network[field].clone()).collect()
}

/// Whether the rules of a transparent proxy are installed in the namespace of the calling thread.
pub fn has_rules() -> bool {
    let list = ["list", "table", "inet", "manyways-bond"];
    finish(Command::new("nft").args(list)).status.success()
}

/// Reads a connection to its end.
#[track_caller]
pub fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
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
