//! Paths over other devices: pairing, lending, and lenders that go away or do not do their part.

use std::fs;
use std::os::unix::fs::FileExt;

use manyways_tests::testbed::{Logged, Namespace};
use manyways_tests::{Finished, Running, finish, manyways};
use nix::sys::signal::Signal;

use crate::bond::{CONNECT, Keys, client_status, start};
use crate::needs_bond;
use crate::testbed::{GATEWAY, OBJECT_LENGTH, PATIENCE, SERVER, Testbed, eventually};

/// A laptop with Wi-Fi, a phone with LTE, and a link between them.
const LINKS: [&str; 3] = [
    "wifi:down=3mbit,up=3mbit,delay=4ms,device=laptop",
    "lte:down=6mbit,up=6mbit,delay=9ms,device=phone",
    "lan:delay=1ms,between=laptop:phone",
];
/// Where the lender listens.
const LENDER: &str = "10.64.3.1:4434";
/// The gateway of the tests has a private address.
const PERMIT: [&str; 2] = ["--permit", "198.18.0.0/15"];

/// A laptop and a phone, and a gateway.
struct Devices<'a> {
    testbed: &'a Testbed,
    keys: &'a Keys<'a>,
    phone: Namespace,
}

impl<'a> Devices<'a> {
    fn new(testbed: &'a Testbed, keys: &'a Keys<'a>) -> Self {
        Self { testbed, keys, phone: testbed.lab.device_namespace("phone") }
    }

    /// Starts a lender on the phone, and waits until it listens.
    #[track_caller]
    fn lend(&self, more: &[&str]) -> Logged {
        let words = ["lend", "--listen", LENDER, "--via", "lte", "--name", "phone"];
        let words = [&words[..], &PERMIT, more].concat();
        let lender = self.phone.run(|| start(self.testbed, "lender", &words));
        lender.says("other devices find this one");
        lender
    }

    /// Pairs the laptop with the phone.
    fn pair(&self, code: &str) -> Finished {
        let (key, gateway) = (self.keys.file("client.key"), format!("{GATEWAY}:4433"));
        let words = ["bond", "pair", LENDER, "--code", code, "--name", "laptop"];
        let to = ["--gateway", &gateway, "--gateway-key", &self.keys.gateway, "--key", &key];
        let mut command = manyways();
        command.env("XDG_STATE_HOME", self.testbed.path("state")).args(words).args(to);
        self.testbed.device(|| finish(&mut command))
    }

    /// Starts a client on the laptop that has paired.
    #[track_caller]
    fn client(&self) -> Logged {
        let more = ["--intercept", "none", "--via", "wifi", "--carrier", "tcp"];
        let client = self.keys.client_at(&format!("{GATEWAY}:4433"), &more);
        client.says("wifi is up");
        client
    }

    fn bytes_over(&self, path: &str) -> u64 {
        let status = client_status(self.testbed, "default");
        let paths = status["paths"].as_array().expect("a list");
        let path = paths.iter().find(|one| one["name"] == path).expect("the path");
        path["received_bytes"].as_u64().expect("a number")
    }

    /// Starts a download of the object by the laptop.
    fn download(&self) -> Running {
        let url = format!("http://{}/object", SERVER[0]);
        let out = self.testbed.path("received");
        let mut curl = std::process::Command::new("curl");
        curl.args(["-sS", "--proxy", &format!("http://{CONNECT}"), &url, "-o"]).arg(out);
        self.testbed.device(|| Running::start(&mut curl))
    }

    #[track_caller]
    fn is_complete(&self, mut download: Running) {
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
fn code(lender: &Logged) -> String {
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
fn fails(finished: Finished, words: &str) {
    assert_eq!(finished.code(), 1, "{}", finished.stderr);
    assert!(finished.stderr.contains(words), "no {words:?} in {}", finished.stderr);
}

#[test]
fn a_paired_phone_lends_its_network_goes_away_and_comes_back() {
    needs_bond!("curl", "nginx");
    let testbed = Testbed::new(&LINKS);
    let keys = Keys::new(&testbed);
    let _gateway = keys.gateway(&[]);
    let _web = testbed.web_server();
    let devices = Devices::new(&testbed, &keys);
    let lender = devices.lend(&[]);
    devices.pair(&code(&lender)).expect_success();
    lender.says("paired with laptop");

    let client = devices.client();
    client.says("phone is up");
    devices.is_complete(devices.download());
    assert!(devices.bytes_over("phone") > OBJECT_LENGTH / 5, "{}", devices.bytes_over("phone"));

    // It vanishes in the middle of a download.
    let before = devices.bytes_over("phone");
    let download = devices.download();
    eventually("it uses the phone", || {
        (devices.bytes_over("phone") > before + 50_000).then_some(())
    });
    lender.process.signal(Signal::SIGKILL);
    devices.is_complete(download);
    client.says("phone is down");

    // A client takes a lender that comes back, and one that pairs while it runs.
    let lender = devices.lend(&[]);
    client.says_times("phone is up", 2);
    let unpaired = finish(
        manyways().env("XDG_STATE_HOME", testbed.path("state")).args(["bond", "unpair", "phone"]),
    );
    unpaired.expect_success();
    client.says_times("phone is down", 2);
    lender.says("laptop no longer uses it");
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
    devices.pair(&right).expect_success();
    fails(devices.pair(&right), "shows no code");
}

#[test]
fn a_lender_leaves_at_its_limit_and_has_seen_nothing() {
    needs_bond!("curl", "nginx");
    let testbed = Testbed::new(&LINKS);
    let keys = Keys::new(&testbed);
    let _gateway = keys.gateway(&[]);
    let _web = testbed.web_server();
    let devices = Devices::new(&testbed, &keys);
    let marker = "a-marker-that-no-lender-sees".repeat(40_000);
    fs::write(testbed.path("root/object"), &marker).expect("room for a file");

    let lender = devices.lend(&["--limit", "300KB"]);
    devices.pair(&code(&lender)).expect_success();
    let client = devices.client();
    client.says("phone is up");
    let mut download = devices.download();
    lender.says("uses the network");
    eventually("it uses the phone", || (devices.bytes_over("phone") > 100_000).then_some(()));
    assert!(!memory_contains(lender.process.pid(), &marker.as_bytes()[..20]));
    assert!(
        memory_contains(client.process.pid(), &marker.as_bytes()[..20]),
        "the search finds nothing"
    );
    lender.says("the limit is reached");
    assert!(download.wait(PATIENCE).expect("it ends").success());
    assert_eq!(fs::read_to_string(testbed.path("received")).expect("a file"), marker);
    client.says("phone is down");
    let status = client_status(&testbed, "default");
    assert_eq!(status["totals"]["duplicate_bytes"], 0, "{}", status["totals"]);
    lender.says("laptop is not served: it has stopped to lend, or its limit is used up");
}

/// Whether the writable memory of a process contains these bytes.
fn memory_contains(pid: i32, bytes: &[u8]) -> bool {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("the process runs");
    let memory = fs::File::open(format!("/proc/{pid}/mem")).expect("root may read it");
    maps.lines().filter(|line| line.contains(" rw")).any(|line| {
        let (range, _) = line.split_once(' ').expect("fields");
        let (start, end) = range.split_once('-').expect("a range");
        let [start, end] =
            [start, end].map(|text| u64::from_str_radix(text, 16).expect("an address"));
        let mut content = vec![0; (end - start) as usize];
        let count = memory.read_at(&mut content, start).unwrap_or(0);
        content[..count].windows(bytes.len()).any(|window| window == bytes)
    })
}
