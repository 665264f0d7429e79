//! Probes with a probe server.

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use manyways_tests::testbed::{Logged, Namespace, eventually, ip};
use manyways_tests::{Folder, Lab, Need, Running, finish, folder, manyways, needs};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::results;

/// The server, on the networks of all links of a lab.
const SERVER: &str = "198.18.0.1:7464";

/// The keys of a probe server, of a client that may use it, and of one that may not.
pub struct Keys {
    server: String,
    files: Folder,
}

impl Keys {
    pub fn new() -> Self {
        let files = folder();
        let key = |name: &str| {
            let path = files.path().join(name);
            finish(manyways().args(["bond", "keygen"]).arg(path)).expect_success().stdout
        };
        let (server, client) = (key("server"), key("client"));
        key("stranger");
        let allow = files.path().join("allow");
        fs::write(&allow, format!("{} device\n", client.trim())).expect("room for a file");
        Self { server: server.trim().to_owned(), files }
    }

    /// Starts the server in a namespace, with these more options.
    pub fn start(&self, host: &Namespace, listen: &str, more: &[&str]) -> Logged {
        let mut command = manyways();
        command.args(["probe", "server", "--listen", listen, "--key"]).arg(self.file("server"));
        command.arg("--allow").arg(self.file("allow")).args(more);
        let server = host.run(|| Logged::start(self.file("server.log"), &mut command));
        server.says("probe server on");
        server
    }

    /// The command of a probe, with the key of `client`.
    pub fn probe(&self, words: &str, server: &str, client: &str) -> Command {
        let (probe, more) = words.split_once(' ').unwrap_or((words, ""));
        let mut command = manyways();
        command.args(["probe", probe, server, "--server-key", &self.server, "--key"]);
        command.arg(self.file(client)).arg("--json").args(more.split_whitespace());
        command
    }

    fn file(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }
}

/// A lab with a probe server on its origin, and a client that may use it.
struct World {
    server: Logged,
    lab: Lab,
    device: Namespace,
    keys: Keys,
}

impl World {
    fn new(links: &[&str]) -> Self {
        Self::with(links, &[])
    }

    /// The server has these more options.
    fn with(links: &[&str], more: &[&str]) -> Self {
        let keys = Keys::new();
        let links: Vec<&str> = links.iter().flat_map(|link| ["--link", link]).collect();
        let lab = Lab::start(&links);
        let server = keys.start(&lab.namespace(Some("origin")), SERVER, more);
        let device = lab.namespace(None);
        Self { server, lab, device, keys }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.keys.file(name)
    }

    /// The command of a probe, with the key of `client`.
    fn command(&self, words: &str, client: &str) -> Command {
        self.keys.probe(words, SERVER, client)
    }

    fn probe(&self, words: &str) -> Value {
        let done = self.device.finish(&mut self.command(words, "client"));
        results(&done).into_iter().next().expect("a result")
    }

    /// Starts a probe; its output goes into the file.
    fn start(&self, words: &str) -> Running {
        let output = fs::File::create(self.file("output")).expect("room for a file");
        self.device.start(self.command(words, "client").stdout(output).stderr(Stdio::null()))
    }

    /// The result of a started probe.
    fn end(&self, mut running: Running) -> Value {
        eventually("the probe ends", || running.wait(std::time::Duration::from_millis(50)));
        let text = fs::read_to_string(self.file("output")).expect("the output is there");
        let document: Value = serde_json::from_str(&text).expect("it is JSON");
        document["results"][0].clone()
    }

    /// Waits until the link has delivered this many bytes.
    fn delivered(&self, bytes: u64) {
        let down = || self.lab.status()["links"][0]["down"]["delivered_bytes"].as_u64();
        eventually("the link delivers", || down().filter(|delivered| *delivered >= bytes));
    }
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("a number instead of {value}"))
}

/// Nothing was sent or received beyond the prediction.
fn is_within_prediction(result: &Value) {
    for direction in ["up", "down"] {
        let bytes = |cost: &str| result[cost][direction].as_u64();
        assert!(bytes("used") <= bytes("predicted"), "{result:#}");
    }
}

#[test]
fn throughput_is_that_of_the_link_and_never_more() {
    needs!(Need::Root, Need::Command("ip"));
    let world = World::new(&["wifi:down=20mbit,up=8mbit,delay=5ms,queue=150ms"]);
    for (more, mbit) in [("", 20.0), ("--up", 8.0)] {
        let result = world.probe(&format!("tcp --duration 3s {more}"));
        assert_eq!(result["ending"], "complete", "{result:#}");
        let rate = number(&result["tcp"]["rate"]) / 1e6;
        // A busy machine makes it slower, and nothing faster; the burst after a pause is small.
        assert!((mbit * 0.5..mbit * 1.05).contains(&rate), "{rate} of {mbit}: {result:#}");
        assert!(result["tcp"]["samples"].as_array().is_some_and(|samples| !samples.is_empty()));
        is_within_prediction(&result);
    }
}

#[test]
fn every_datagram_of_a_burst_is_counted() {
    needs!(Need::Root, Need::Command("ip"));
    let world = World::new(&["wifi:down=20mbit,up=20mbit,delay=5ms"]);
    for more in ["", "--up"] {
        let result = world.probe(&format!("udp -n 300 --rate 2mbit {more}"));
        let udp = &result["udp"];
        let counts = (&udp["sent"], &udp["received"], &udp["duplicates"]);
        assert_eq!(counts, (&300.into(), &300.into(), &0.into()), "{result:#}");
        assert_eq!(udp["loss"], 0.0);
        is_within_prediction(&result);
    }
}

#[test]
fn a_full_queue_is_bufferbloat() {
    needs!(Need::Root, Need::Command("ip"));
    let world = World::new(&["wifi:down=5mbit,up=5mbit,delay=5ms,queue=400ms"]);
    let result = world.probe("load --only up --duration 4s");
    let up = &result["load"]["directions"][0];
    assert_eq!(up["direction"], "up", "{result:#}");
    assert_eq!(up["bufferbloat"], true, "{result:#}");
    assert!(number(&up["loaded_median"]) > number(&up["idle_median"]) + 0.1, "{result:#}");
    is_within_prediction(&result);
}

#[test]
fn the_faster_network_is_the_better_one_for_large_files() {
    needs!(Need::Root, Need::Command("ip"));
    let world =
        World::new(&["wifi:down=3mbit,up=3mbit,delay=5ms", "lte:down=20mbit,up=10mbit,delay=20ms"]);
    let series = world.file("series.parquet");
    for round in 1..=2 {
        let mut command = world.command("compare --bytes 300KB --pings 5", "client");
        let done = world.device.finish(command.arg("--parquet").arg(&series)).expect_success();
        let document: Value = serde_json::from_str(&done.stdout).expect("it is JSON");
        assert_eq!(document["schema"], "manyways.probe-compare/1");
        assert_eq!(document["after"], 1.0);
        assert_eq!(document["complete"], true, "{document:#}");
        let large = &document["purposes"][2];
        assert_eq!(large["purpose"], "10mb");
        let expected = (&"lte".into(), &"rate".into());
        assert_eq!((&large["best"], &large["reason"]), expected, "{document:#}");
        let networks = document["networks"].as_array().expect("a list of networks");
        assert!(networks.iter().all(|network| network["together"].is_u64()), "{document:#}");
        // The file has the earlier comparisons too.
        let page = world.file("page.html");
        let mut report = manyways();
        report.args(["probe", "report"]).arg(&series).arg("-o").arg(&page);
        finish(&mut report).expect_success();
        let page = fs::read_to_string(page).expect("the page is there");
        assert!(page.contains(&format!("{round} comparisons of 2 networks")), "{page}");
    }
}

#[test]
fn a_stranger_gets_nothing() {
    needs!(Need::Root, Need::Command("ip"));
    let world = World::new(&["wifi:delay=5ms"]);
    let mut command = world.command("tcp", "stranger");
    let done = world.device.finish(&mut command);
    assert_eq!(done.code(), 1, "{}", done.stdout);
    let result = results(&done).remove(0);
    let message = result["message"].as_str().expect("a sentence");
    assert!(message.ends_with("does not know the key of this client"), "{message}");
    let server: SocketAddr = SERVER.parse().expect("an address");
    // Neither a connection without TLS nor a datagram without a token has an answer.
    let answered = world.device.run(|| {
        let mut stream = std::net::TcpStream::connect(server).expect("the port is open");
        let _ = stream.write_all(&[b'x'; 4_096]);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        // An alert of TLS is all that may come.
        assert!(answer.len() < 100, "{answer:?}");
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").expect("a port is free");
        for length in [0, 1, 16, 64, 1_400] {
            socket.send_to(&vec![7; length], server).expect("a datagram leaves");
        }
        socket.set_nonblocking(true).expect("a socket can be told");
        // A known client is served after all that came before.
        let result = world.probe("udp -n 20");
        assert_eq!(result["udp"]["received"], 20, "{result:#}");
        socket.recv(&mut [0; 64]).is_ok()
    });
    assert!(!answered);
}

#[test]
fn an_order_beyond_the_limits_of_the_server_is_refused_with_the_limit() {
    needs!(Need::Root, Need::Command("ip"));
    let limits = ["--max-duration", "2s", "--max-rate", "4mbit", "--max-bytes", "2MB"];
    let world = World::with(&["wifi:down=20mbit,delay=5ms"], &limits);
    let long = world.probe("tcp --duration 5s");
    assert!(long["message"].as_str().is_some_and(|text| text.contains("2 s")), "{long:#}");
    let fast = world.probe("udp --rate 10mbit");
    assert!(fast["message"].as_str().is_some_and(|text| text.contains("4")), "{fast:#}");
    let slow = world.probe("tcp --duration 1s --full");
    assert!(number(&slow["tcp"]["rate"]) < 5e6, "{slow:#}");
    // The bytes of an hour end.
    for _ in 0..6 {
        let result = world.probe("tcp --duration 2s --full");
        if result["ending"] == "failed" {
            let message = result["message"].as_str().expect("a sentence");
            assert!(message.contains("2 MB"), "{message}");
            return;
        }
    }
    panic!("2 MB are never used up");
}

/// A transfer during which `disturb` is called.
fn disturbed(disturb: impl FnOnce(&World)) -> Value {
    let world = World::new(&["wifi:down=4mbit,up=4mbit,delay=5ms"]);
    let running = world.start("tcp --duration 30s --full");
    world.delivered(200_000);
    disturb(&world);
    let result = world.end(running);
    assert_eq!(result["ending"], "failed", "{result:#}");
    assert!(result["tcp"]["bytes"].as_u64() > Some(50_000), "{result:#}");
    result
}

#[test]
fn a_lost_network_ends_a_probe_with_what_it_has() {
    needs!(Need::Root, Need::Command("ip"));
    let result = disturbed(|world| world.device.run(|| drop(ip("link set wifi down"))));
    assert_eq!(result["message"], "wifi is gone or down", "{result:#}");
}

#[test]
fn a_killed_server_ends_a_probe_with_what_it_has() {
    needs!(Need::Root, Need::Command("ip"));
    let result = disturbed(|world| world.server.process.signal(Signal::SIGKILL));
    let message = result["message"].as_str().expect("a sentence");
    assert!(message.contains("was lost"), "{message}");
}

#[test]
fn a_data_limit_ends_a_transfer_and_keeps_its_bytes() {
    needs!(Need::Root, Need::Command("ip"));
    let world = World::new(&["wifi:down=10mbit,delay=5ms"]);
    let result = world.probe("tcp --cap 1MB --duration 5s --full");
    assert_eq!(result["ending"], "data-limit", "{result:#}");
    let used = |direction: &str| result["used"][direction].as_u64().expect("a number");
    assert!(used("up") + used("down") <= 1_000_000, "{result:#}");
    assert!(result["tcp"]["bytes"].as_u64() > Some(100_000), "{result:#}");
}

#[test]
fn a_small_data_limit_suffices_for_a_small_probe() {
    needs!(Need::Root, Need::Command("ip"));
    let world = World::new(&["wifi:down=10mbit,up=10mbit,delay=5ms"]);
    let used = |result: &Value| {
        let bytes = |direction: &str| result["used"][direction].as_u64().expect("a number");
        bytes("up") + bytes("down")
    };
    for more in ["", " --up"] {
        let burst = world.probe(&format!("udp -n 100 --cap 100KB{more}"));
        assert_eq!(burst["ending"], "complete", "{burst:#}");
        assert_eq!(burst["udp"]["received"], 100, "{burst:#}");
        let transfer = world.probe(&format!("tcp --cap 200KB{more}"));
        assert_eq!(transfer["ending"], "data-limit", "{transfer:#}");
        assert!(transfer["tcp"]["bytes"].as_u64() >= Some(80_000), "{transfer:#}");
        for (result, cap) in [(burst, 100_000), (transfer, 200_000)] {
            assert!(used(&result) <= cap, "{result:#}");
            is_within_prediction(&result);
        }
    }
}
