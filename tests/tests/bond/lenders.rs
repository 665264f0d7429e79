//! Paths over other devices: pairing, lending, and lenders that go away or do not do their part.

use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

use manyways_tests::testbed::{Logged, Namespace};
use manyways_tests::{Finished, Running, finish, folder, manyways};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::bond::{CONNECT, Keys, client_status, start};
use crate::needs_bond;
use crate::resolver::Resolver;
use crate::testbed::{GATEWAY, OBJECT_LENGTH, PATIENCE, SERVER, Testbed, eventually};

/// A laptop with Wi-Fi, a phone with LTE, and a link between them.
pub const LINKS: [&str; 3] = [
    "wifi:down=3mbit,up=3mbit,delay=4ms,device=laptop",
    "lte:down=6mbit,up=6mbit,delay=9ms,device=phone",
    "lan:delay=1ms,between=laptop:phone",
];
/// Where the lender listens.
pub const LENDER: &str = "10.64.3.1:4434";
/// Where the gateway serves its metrics.
const METRICS: &str = "127.0.0.1:9101";
/// The gateway of the tests has a private address.
pub const PERMIT: [&str; 2] = ["--permit", "198.18.0.0/15"];

/// A laptop and a phone, and a gateway.
pub struct Devices<'a> {
    testbed: &'a Testbed,
    keys: &'a Keys<'a>,
    pub phone: Namespace,
}

impl<'a> Devices<'a> {
    pub fn new(testbed: &'a Testbed, keys: &'a Keys<'a>) -> Self {
        Self { testbed, keys, phone: testbed.lab.device_namespace("phone") }
    }

    /// Starts a lender on the phone, and waits until it listens.
    #[track_caller]
    pub fn lend(&self, more: &[&str]) -> Logged {
        let words = ["lend", "--listen", LENDER, "--via", "lte", "--name", "phone"];
        let words = [&words[..], &PERMIT, more].concat();
        let lender = self.phone.run(|| start(self.testbed, "lender", &words));
        lender.says("other devices find this one");
        lender
    }

    /// Pairs the laptop with the phone.
    pub fn pair(&self, code: &str) -> Finished {
        self.pair_as(code, "client.key", "laptop")
    }

    /// Pairs a device with this key and name.
    pub fn pair_as(&self, code: &str, key: &str, name: &str) -> Finished {
        let (key, gateway) = (self.keys.file(key), format!("{GATEWAY}:4433"));
        let words = ["bond", "pair", LENDER, "--code", code, "--name", name, "--json"];
        let to = ["--gateway", &gateway, "--gateway-key", &self.keys.gateway, "--key", &key];
        let mut command = manyways();
        command.env("XDG_STATE_HOME", self.testbed.path("state")).args(words).args(to);
        self.testbed.device(|| finish(&mut command))
    }

    /// Starts a client on the laptop that has paired.
    #[track_caller]
    pub fn client(&self) -> Logged {
        self.client_with(&[])
    }

    #[track_caller]
    pub fn client_with(&self, more: &[&str]) -> Logged {
        let words = ["--intercept", "none", "--via", "wifi", "--carrier", "tcp"];
        let words = [&words[..], more].concat();
        let client = self.keys.client_at(&format!("{GATEWAY}:4433"), &words);
        client.says("wifi is up");
        client
    }

    /// The phone, as the status of the client shows it.
    pub fn path(&self) -> Value {
        let status = client_status(self.testbed, "default");
        let paths = status["paths"].as_array().expect("a list");
        paths.iter().find(|one| one["name"] == "phone").expect("the path").clone()
    }

    pub fn bytes_over_phone(&self) -> u64 {
        self.path()["received_bytes"].as_u64().expect("a number")
    }

    /// Ends the pairing at one of the devices: the other one has this name.
    #[track_caller]
    fn unpair(&self, other: &str) -> Value {
        let mut command = manyways();
        command.env("XDG_STATE_HOME", self.testbed.path("state"));
        let done = finish(command.args(["bond", "unpair", other, "--json"])).expect_success();
        serde_json::from_str(&done.stdout).expect("it is JSON")
    }

    /// Starts a download of the object by the laptop.
    pub fn download(&self) -> Running {
        self.download_from(SERVER[0])
    }

    fn download_from(&self, host: &str) -> Running {
        let url = format!("http://{host}/object");
        let out = self.testbed.path("received");
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--proxy", &format!("http://{CONNECT}"), &url, "-o"]).arg(out);
        self.testbed.device(|| Running::start(&mut curl))
    }

    /// Starts a download, and waits until bytes come over the phone.
    #[track_caller]
    pub fn download_over_phone(&self) -> Running {
        let before = self.bytes_over_phone();
        let download = self.download();
        let uses = || (self.bytes_over_phone() > before + 50_000).then_some(());
        eventually("it uses the phone", uses);
        download
    }

    #[track_caller]
    pub fn is_complete(&self, mut download: Running) {
        let end = download.wait(PATIENCE).expect("it ends");
        assert!(end.success());
        let [received, sent] = ["received", "root/object"]
            .map(|name| fs::read(self.testbed.path(name)).expect("a file"));
        assert_eq!(received.len() as u64, OBJECT_LENGTH);
        assert!(received == sent, "the bytes are wrong");
    }
}

/// The code that a lender shows.
#[track_caller]
pub fn code(lender: &Logged) -> String {
    lender.says("the code is ");
    let text = lender.said();
    let (_, rest) = text.rsplit_once("the code is ").expect("it was shown");
    rest.chars().take(6).collect()
}

/// Another code: a wrong one.
fn other(code: &str) -> String {
    format!("{:06}", (code.parse::<u32>().expect("digits") + 1) % 1_000_000)
}

/// The command has failed with these words.
#[track_caller]
pub fn fails(finished: Finished, words: &str) {
    assert_eq!(finished.code(), 1, "{}", finished.stderr);
    assert!(finished.stderr.contains(words), "no {words:?} in {}", finished.stderr);
}

#[test]
fn a_paired_phone_lends_its_network_goes_away_and_comes_back() {
    needs_bond!("curl", "nginx");
    let testbed = Testbed::new(&LINKS);
    let keys = Keys::new(&testbed);
    let _gateway = keys.gateway(&["--metrics", METRICS]);
    let _web = testbed.web_server();
    let devices = Devices::new(&testbed, &keys);
    let lender = devices.lend(&[]);
    devices.pair(&code(&lender)).expect_success();
    lender.says("paired with laptop");

    let client = devices.client();
    client.says("phone is up");
    devices.is_complete(devices.download());
    let bytes = devices.bytes_over_phone();
    assert!(bytes > OBJECT_LENGTH / 5, "{bytes}");
    let metrics = testbed
        .host(|| finish(Command::new("curl").args(["-sS", &format!("http://{METRICS}/metrics")])));
    let metrics = metrics.expect_success().stdout;
    for name in ["path_delivery_seconds", "lender_backlog_bytes"] {
        let line = format!("manyways_bond_gateway_{name}{{client=\"phone\",path=\"1\"");
        assert!(metrics.contains(&line), "no {line} in {metrics}");
    }

    // It vanishes in the middle of a download.
    let download = devices.download_over_phone();
    lender.process.signal(Signal::SIGKILL);
    devices.is_complete(download);
    client.says("phone is down");

    // A client takes a lender that comes back, and one that pairs while it runs.
    let lender = devices.lend(&[]);
    client.says_times("phone is up", 2);
    let unpaired = devices.unpair("phone");
    let expected = json!({
        "schema": "manyways.bond-unpair/1", "name": "phone", "borrower": false, "lender": true
    });
    assert_eq!(unpaired, expected);
    client.says_times("phone is down", 2);
    lender.says("laptop no longer uses it");
}

#[test]
fn a_transfer_ends_well_when_its_lender_does_not() {
    needs_bond!("curl", "nginx");
    let testbed = Testbed::new(&LINKS);
    let keys = Keys::new(&testbed);
    let gateway = keys.gateway(&[]);
    let _web = testbed.web_server();
    let devices = Devices::new(&testbed, &keys);
    let lender = devices.lend(&[]);
    devices.pair(&code(&lender)).expect_success();

    // Its network is silent from the beginning.
    testbed.set("lte", "state=silent");
    let client = devices.client();
    client.says("phone: the gateway does not answer over the lent network");
    devices.is_complete(devices.download());
    testbed.set("lte", "state=up");
    client.says("phone is up");

    // Its user ends the pairing in the middle of a transfer.
    let download = devices.download_over_phone();
    let expected = json!({
        "schema": "manyways.bond-unpair/1", "name": "laptop", "borrower": true, "lender": false
    });
    assert_eq!(devices.unpair("laptop"), expected);
    devices.is_complete(download);
    lender.says("laptop no longer uses it");
    client.says("phone: it is no longer paired with this device");
    assert_eq!(lender.times("laptop no longer uses it"), 1, "{}", lender.said());
    assert_eq!(client.times("phone is down"), 1, "{}", client.said());
    assert_eq!(client.times("no longer paired"), 1, "{}", client.said());

    // The client uses it at once when they are paired again. Its network becomes silent.
    drop(lender);
    let lender = devices.lend(&["--pair"]);
    devices.pair(&code(&lender)).expect_success();
    client.says_times("also uses the network of phone", 2);
    client.says_times("phone is up", 2);
    let download = devices.download_over_phone();
    testbed.set("lte", "state=silent");
    devices.is_complete(download);
    testbed.set("lte", "state=up");
    eventually("the phone works", || (devices.path()["state"] == "up").then_some(()));

    // The gateway is restarted, at first without lenders.
    let ups = client.times("phone is up");
    drop(gateway);
    let gateway = keys.gateway(&["--no-lenders"]);
    client.says("phone: the gateway permits no lenders");
    devices.is_complete(devices.download());
    assert_ne!(devices.path()["state"], "up");
    drop(gateway);
    let _gateway = keys.gateway(&[]);
    client.says_times("phone is up", ups + 1);
    devices.is_complete(devices.download_over_phone());
}

#[test]
fn a_code_is_for_one_device_and_three_guesses() {
    needs_bond!();
    let testbed = Testbed::new(&LINKS);
    let keys = Keys::new(&testbed);
    let devices = Devices::new(&testbed, &keys);
    // The devices store nothing that depends on the gateway.
    let lender = devices.lend(&[]);
    let right = code(&lender);
    for words in ["the code is wrong; 2 more tries", "1 more tries", "wrong 3 times"] {
        fails(devices.pair(&other(&right)), words);
    }
    fails(devices.pair(&right), "p in the window");
    drop(lender);

    let lender = devices.lend(&["--pair"]);
    let right = code(&lender);
    fails(devices.pair(&other(&right)), "2 more tries");
    let paired = devices.pair(&right).expect_success();
    let paired: Value = serde_json::from_str(&paired.stdout).expect("it is JSON");
    let (schema, name) = (&paired["schema"], &paired["name"]);
    assert_eq!((schema, name), (&json!("manyways.bond-pair/1"), &json!("phone")));
    assert_eq!(paired["address"], LENDER);
    assert!(paired["public_key"].as_str().is_some_and(|key| key.len() > 40), "{paired}");
    fails(devices.pair(&right), "shows no code");
}

#[test]
fn a_lender_leaves_at_its_limit_and_has_seen_nothing() {
    needs_bond!("curl", "nginx");
    let captures = folder();
    let testbed = Testbed::with_options(&LINKS, &["--pcap", &captures.path().to_string_lossy()]);
    let keys = Keys::new(&testbed);
    let _resolver = Resolver::start(&testbed);
    let _gateway = keys.gateway(&[]);
    let _web = testbed.web_server();
    let devices = Devices::new(&testbed, &keys);
    let marker = "a-marker-that-no-lender-sees".repeat(40_000);
    fs::write(testbed.path("root/object"), &marker).expect("room for a file");

    let lender = devices.lend(&["--limit", "300KB"]);
    devices.pair(&code(&lender)).expect_success();
    let client = devices.client();
    client.says("phone is up");
    let host = "hidden-from-lenders.example";
    let mut download = devices.download_from(host);
    lender.says("uses the network");
    eventually("it uses the phone", || (devices.bytes_over_phone() > 100_000).then_some(()));
    for words in [&marker[..20], host] {
        assert!(!memory_contains(lender.process.pid(), words), "{words} at the lender");
        assert!(memory_contains(client.process.pid(), words), "the search does not find {words}");
    }
    lender.says("the limit is reached");
    assert!(download.wait(PATIENCE).expect("it ends").success());
    assert_eq!(fs::read_to_string(testbed.path("received")).expect("a file"), marker);
    client.says("phone is down");
    let status = client_status(&testbed, "default");
    assert_eq!(status["totals"]["duplicate_bytes"], 0, "{}", status["totals"]);
    lender.says("laptop is not served: it has stopped to lend, or its limit is used up");

    // The captures are complete when the lab has ended.
    drop((lender, client));
    drop(testbed);
    for name in ["lte", "lan"] {
        let path = captures.path().join("phone").join(format!("{name}.pcapng"));
        let captured = fs::read(path).expect("a capture of the phone");
        assert!(captured.len() > 300_000, "{name}: {} bytes", captured.len());
        let contains =
            |words: &str| captured.windows(words.len()).any(|bytes| bytes == words.as_bytes());
        assert!(!contains(&marker[..20]) && !contains(host), "{name}");
    }
}

/// Whether the writable memory of a process contains these words.
fn memory_contains(pid: i32, words: &str) -> bool {
    const PAGE: u64 = 4096;
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("the process runs");
    let [memory, pages] = ["mem", "pagemap"]
        .map(|name| fs::File::open(format!("/proc/{pid}/{name}")).expect("root may read it"));
    // Unlike a search in this process, it is fast in a debug build.
    let mut command = Command::new("grep");
    command.args(["-a", "-c", "-F", words]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut search = command.spawn().expect("grep is there");
    let mut to = search.stdin.take().expect("it is piped");
    for line in maps.lines().filter(|line| line.contains(" rw")) {
        let (range, _) = line.split_once(' ').expect("fields");
        let (start, end) = range.split_once('-').expect("a range");
        let [start, end] =
            [start, end].map(|text| u64::from_str_radix(text, 16).expect("an address"));
        // An allocator reserves gigabytes: only the pages that exist are read.
        let mut entries = vec![0; ((end - start) / PAGE * 8) as usize];
        let count = pages.read_at(&mut entries, start / PAGE * 8).unwrap_or(0);
        let is_there = |entry: &[u8]| entry[7] & 0xc0 != 0;
        let entries: Vec<&[u8]> = entries[..count].chunks_exact(8).collect();
        let mut at = start;
        for run in entries.chunk_by(|one, next| is_there(one) == is_there(next)) {
            let length = run.len() as u64 * PAGE;
            if is_there(run[0]) {
                let mut content = vec![0; length as usize];
                let count = memory.read_at(&mut content, at).unwrap_or(0);
                to.write_all(&content[..count]).expect("it reads everything");
                to.write_all(b"\n").expect("it reads everything");
            }
            at += length;
        }
    }
    drop(to);
    search.wait().expect("it ends").success()
}
