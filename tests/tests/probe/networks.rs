//! Probes of emulated networks.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use manyways_tests::testbed::{accept, eventually};
use manyways_tests::{Lab, Need, finish, folder, manyways, needs};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::results;

const LINKS: [&str; 4] = ["--link", "wifi:delay=7ms", "--link", "lte:delay=20ms"];
/// The server of a lab, on the networks of all its links.
const SERVER: &str = "198.18.0.1";

fn on<'a>(results: &'a [Value], network: &str) -> &'a Value {
    let found = results.iter().find(|result| result["interface"] == network);
    found.unwrap_or_else(|| panic!("{network} in {results:#?}"))
}

#[test]
fn each_network_has_its_own_round_trip() {
    needs!(Need::Root, Need::Command("ip"));
    let lab = Lab::start(&LINKS);
    for method in ["", "--tcp 81"] {
        let words = format!("manyways probe ping {SERVER} --count 5 --json {method}");
        let results = results(&lab.device(&words).expect_success());
        for (network, least) in [("wifi", 0.014), ("lte", 0.040)] {
            let result = on(&results, network);
            assert_eq!(result["ending"], "complete", "{result:#}");
            let ping = &result["ping"];
            assert_eq!((&ping["sent"], &ping["received"]), (&5.into(), &5.into()), "{ping:#}");
            let median = ping["median"].as_f64().expect("a number");
            assert!(median >= least, "{network}: {median}");
            for direction in ["up", "down"] {
                let bytes = |cost: &str| result[cost][direction].as_u64();
                assert!(bytes("used") <= bytes("predicted"), "{result:#}");
            }
        }
    }
}

#[test]
fn a_silent_network_has_no_round_trip() {
    needs!(Need::Root, Need::Command("ip"));
    let lab = Lab::start(&LINKS);
    lab.set(&["lte", "state=silent"]).expect_success();
    let words = format!("manyways probe ping {SERVER} --count 2 --timeout 300ms --json");
    let results = results(&lab.device(&words).expect_success());
    let ping = &on(&results, "lte")["ping"];
    assert_eq!((&ping["received"], &ping["median"]), (&0.into(), &Value::Null), "{ping:#}");
    assert_eq!(ping["loss"], 1.0, "{ping:#}");
}

#[test]
fn a_data_limit_ends_a_probe_and_keeps_its_result() {
    needs!(Need::Root, Need::Command("ip"));
    let lab = Lab::start(&LINKS);
    let words = format!("manyways probe ping {SERVER} --via wifi --cap 500B --json");
    let results = results(&lab.device(&words).expect_success());
    let result = on(&results, "wifi");
    assert_eq!((&result["ending"], &result["ping"]["sent"]), (&"data-limit".into(), &2.into()));
}

/// Answers each connection with this response, until the returned thread's listener is gone.
fn serve(lab: &Lab, port: u16, response: &'static str) {
    let address: SocketAddr = format!("{SERVER}:{port}").parse().expect("an address");
    let listener = lab.namespace(Some("origin")).listen(address);
    thread::spawn(move || {
        loop {
            let (mut stream, _) = accept(&listener);
            let mut head = [0; 4_096];
            let _ = stream.read(&mut head);
            let _ = stream.write_all(response.as_bytes());
        }
    });
}

#[test]
fn an_address_of_this_host_is_measured_over_its_loopback() {
    needs!(Need::Root, Need::Command("ip"));
    let lab = Lab::start(&LINKS[..2]);
    let listener = lab.namespace(None).listen("127.0.0.1:81".parse().expect("an address"));
    thread::spawn(move || {
        loop {
            let (mut stream, _) = accept(&listener);
            let _ = stream.read(&mut [0; 4_096]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n");
            let _ = stream.write_all(&[b'x'; 100_000]);
        }
    });
    for host in ["127.0.0.1", "localhost"] {
        let words = format!("manyways probe http http://{host}:81/ --json");
        let all = results(&lab.device(&words).expect_success());
        let [result] = &all[..] else { panic!("one network: {all:#?}") };
        assert_eq!(result["interface"], "lo", "{result:#}");
        assert_eq!(result["http"]["body_bytes"], 100_000, "{result:#}");
        // Each packet is sent and received by the same interface.
        assert_ne!(result["disturbed"], true, "{result:#}");
    }
}

#[test]
fn a_login_page_is_told_from_the_internet() {
    needs!(Need::Root, Need::Command("ip"));
    let lab = Lab::start(&LINKS[..2]);
    serve(&lab, 81, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
    let login = "HTTP/1.1 302 Found\r\nLocation: http://login.test/\r\nContent-Length: 0\r\n\r\n";
    serve(&lab, 82, login);
    let portal = |port: u16| {
        let words = format!("manyways probe portal http://{SERVER}:{port}/ --json");
        results(&lab.device(&words).expect_success()).remove(0)["portal"].clone()
    };
    assert_eq!(portal(81)["verdict"], "validated");
    let captive = portal(82);
    assert_eq!(
        (&captive["verdict"], &captive["login"]),
        (&"captive".into(), &"http://login.test/".into())
    );
    let nobody = portal(83);
    assert_eq!(nobody["verdict"], "no-internet", "{nobody:#}");
}

#[test]
fn the_phases_of_a_request_are_measured() {
    needs!(Need::Root, Need::Command("ip"));
    let lab = Lab::start(&LINKS[..2]);
    serve(&lab, 81, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcde");
    let words = format!("manyways probe http http://{SERVER}:81/ --json");
    let result = results(&lab.device(&words).expect_success()).remove(0);
    let http = &result["http"];
    assert_eq!((&http["status"], &http["body_bytes"]), (&200.into(), &5.into()), "{http:#}");
    for phase in ["connect", "first_byte"] {
        assert!(http[phase].as_f64() >= Some(0.014), "{http:#}");
    }
}

#[test]
fn a_second_probe_on_an_interface_waits_for_the_first() {
    needs!(Need::Root, Need::Command("ip"));
    let lab = Lab::start(&LINKS[..2]);
    let folder = folder();
    let device = lab.namespace(None);
    let start = |name: &str, count: &str, more: &[&str]| {
        let output = File::create(folder.path().join(name)).expect("room for a file");
        let words = ["probe", "ping", SERVER, "--interval", "50ms", "--json", "--count", count];
        device.start(manyways().args(words).args(more).stdout(output))
    };
    let mut first = start("one", "5000", &[]);
    // The first one runs while it holds the name that the second one needs.
    let is_begun = || fs::read_to_string("/proc/thread-self/net/unix").ok();
    device.run(|| {
        eventually("the first probe has its turn", || {
            is_begun().filter(|sockets| sockets.contains("@manyways-probe-"))
        })
    });
    let mut second = start("two", "2", &[]);
    // It would wait as long as the second one if it took its turn.
    let mut parallel = start("three", "2", &["--parallel"]);
    eventually("the parallel probe ends", || parallel.wait(Duration::from_millis(50)));
    assert!(second.wait(Duration::ZERO).is_none(), "the second probe has its turn");
    first.signal(Signal::SIGINT);
    for running in [&mut first, &mut second] {
        eventually("the probe ends", || running.wait(Duration::from_millis(50)));
    }
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).expect("its output");
    let stdout = read("one") + &read("two");
    let mut documents = serde_json::Deserializer::from_str(&stdout).into_iter::<Value>();
    let mut next = || documents.next().expect("two documents").expect("it is JSON");
    let (one, two) = (next()["results"][0].clone(), next()["results"][0].clone());
    let number = |value: &Value| value.as_f64().expect("a number");
    let end = number(&one["started"]) + number(&one["used"]["duration"]);
    assert!(number(&two["started"]) >= end, "{one:#}{two:#}");
}

#[test]
fn a_program_is_a_probe_within_its_limits() {
    needs!(Need::Root, Need::Command("ip"));
    let lab = Lab::start(&LINKS[..2]);
    let exec = |options: &str, script: &str| {
        let words =
            format!("manyways probe exec --json {options} -- sh -c '{script}' x {{interface}}");
        results(&lab.device(&words).expect_success()).remove(0)
    };
    let done = exec("", "echo \"{\\\"on\\\": \\\"$1 $MANYWAYS_INTERFACE\\\"}\"; exit 3");
    assert_eq!(done["ending"], "complete", "{done:#}");
    assert_eq!(
        (&done["exec"]["output"]["on"], &done["exec"]["exit_code"]),
        (&"wifi wifi".into(), &3.into())
    );
    let ended = exec("--duration 300ms", "echo begun; sleep 1000");
    assert_eq!(
        (&ended["ending"], &ended["exec"]["output"]),
        (&"prediction".into(), &"begun\n".into())
    );
    let flood = format!("ping -q -i 0.002 -s 1000 {SERVER} >/dev/null; sleep 1000");
    let limited = exec("--up 20KB --down 1MB --duration 1m", &flood);
    assert_eq!(limited["ending"], "prediction", "{limited:#}");
    assert!(limited["message"].as_str().is_some_and(|text| text.contains("sent")), "{limited:#}");
}

/// Answers every query for an A record with this address, also for names that do not exist.
fn lying_name_server(lab: &Lab, address: SocketAddr, answer: [u8; 4]) {
    let socket = lab.namespace(Some("origin")).bind(address);
    thread::spawn(move || {
        let mut query = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut query) {
            let Some(question) = query.get(12..length) else { continue };
            let name = question.iter().position(|byte| *byte == 0).unwrap_or(0);
            let Some(question) = question.get(..name + 5) else { continue };
            let is_a = question[name + 1..name + 3] == [0, 1];
            let mut reply = query[..2].to_vec();
            reply.extend([0x81, 0x80, 0, 1, 0, u8::from(is_a), 0, 0, 0, 0]);
            reply.extend(question);
            if is_a {
                reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
                reply.extend(answer);
            }
            let _ = socket.send_to(&reply, from);
        }
    });
}

#[test]
fn a_lying_name_server_is_found_out() {
    needs!(Need::Root, Need::Command("ip"));
    let lab = Lab::start(&LINKS[..2]);
    // Two addresses of the origin.
    let (liar, honest) = ("198.18.0.1", "198.18.0.2");
    lab.namespace(Some("origin")).run(|| {
        finish(Command::new("ip").args(["addr", "add", &format!("{honest}/32"), "dev", "lo"]));
    });
    let at = |address: &str| format!("{address}:53").parse().expect("an address");
    lying_name_server(&lab, at(liar), [10, 0, 0, 1]);
    lying_name_server(&lab, at(honest), [192, 0, 2, 80]);
    let dns = |more: &str| {
        let words =
            format!("manyways probe dns example.org --server {liar} --count 1 --json {more}");
        results(&lab.device(&words).expect_success()).remove(0)["dns"].clone()
    };
    let alone = dns("");
    assert_eq!((&alone["lie"], &alone["rewrites_missing_names"]), (&Value::Null, &true.into()));
    let compared = dns(&format!("--compare-with {honest}"));
    assert_eq!(compared["lie"], "private", "{compared:#}");
}

#[test]
fn an_unknown_name_and_an_unknown_interface_are_sentences() {
    needs!(Need::Root, Need::Command("ip"));
    let lab = Lab::start(&LINKS[..2]);
    let done = lab.device("manyways probe ping no-such-name.invalid --json");
    assert_eq!(done.code(), 1, "{}", done.stdout);
    let result = results(&done).remove(0);
    assert_eq!((&result["ending"], &result["ping"]), (&"failed".into(), &Value::Null));
    assert!(result["message"].as_str().is_some_and(|text| text.contains("no-such-name.invalid")));
    let done = lab.device(&format!("manyways probe ping {SERVER} --via nowhere"));
    assert_eq!(done.code(), 2);
    assert!(done.stderr.contains("hint: the interfaces are"), "{}", done.stderr);
    let done = lab.device(&format!("manyways probe ping {SERVER} --count 0"));
    assert_eq!(done.code(), 2);
    assert!(done.stderr.contains("the count is from 1"), "{}", done.stderr);
}

#[test]
fn a_user_without_rights_can_use_the_probes_that_need_none() {
    needs!(Need::Root, Need::Command("ip"), Need::Command("setpriv"));
    let lab = Lab::start(&LINKS[..2]);
    serve(&lab, 81, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
    let run = |words: &str| {
        let user = "setpriv --reuid 65534 --regid 65534 --clear-groups --";
        lab.device(&format!("{user} manyways probe {words} --json"))
    };
    for words in [
        format!("http http://{SERVER}:81/"),
        format!("portal http://{SERVER}:81/"),
        "dns origin.lab --count 1".to_owned(),
        format!("ping {SERVER} --tcp 81 --count 2"),
    ] {
        let result = results(&run(&words).expect_success()).remove(0);
        assert_eq!(result["ending"], "complete", "{words}: {result:#}");
    }
    // Echoes need a group.
    let groups = |range: &str| {
        let file = "/proc/sys/net/ipv4/ping_group_range";
        lab.namespace(None).run(|| fs::write(file, range).expect("root may change it"));
    };
    groups("1 0");
    let ping = format!("ping {SERVER} --count 2");
    let done = run(&ping);
    assert_eq!(done.code(), 1, "{}", done.stdout);
    let result = results(&done).remove(0);
    let message = result["message"].as_str().expect("a sentence");
    assert!(message.contains("net.ipv4.ping_group_range"), "{message}");
    groups("65534 65534");
    let result = results(&run(&ping).expect_success()).remove(0);
    assert_eq!(result["ping"]["received"], 2, "{result:#}");
}

#[test]
fn a_clock_that_jumps_changes_no_duration() {
    needs!(Need::Root, Need::Command("ip"), Need::Command("faketime"));
    let lab = Lab::start(&LINKS[..2]);
    let folder = folder();
    let clock = folder.path().join("clock");
    let path = |name: &str| folder.path().join(name);
    // Whole files, because the probe reads them at any time.
    let set = |offset: &str| {
        fs::write(path("new"), offset).expect("room for a file");
        fs::rename(path("new"), &clock).expect("it is the same folder");
    };
    set("+0");
    let mut command = manyways();
    let words = ["probe", "ping", SERVER, "--interval", "50ms", "--json", "--count", "60"];
    command.env("LD_PRELOAD", faketime_path()).env("FAKETIME_TIMESTAMP_FILE", &clock);
    command.env("FAKETIME_NO_CACHE", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    let output = File::create(path("output")).expect("room for a file");
    let mut running = lab.namespace(None).start(command.args(words).stdout(output));
    let sent = || lab.status()["links"][0]["up"]["delivered_packets"].as_u64();
    for (packets, offset) in [(10, "+1h"), (25, "-1h")] {
        eventually("the link delivers", || sent().filter(|sent| *sent >= packets));
        set(offset);
    }
    eventually("the probe ends", || running.wait(Duration::from_millis(50)));
    let text = fs::read_to_string(path("output")).expect("its output");
    let document: Value = serde_json::from_str(&text).expect("it is JSON");
    let result = &document["results"][0];
    assert_eq!((&result["ending"], &result["ping"]["received"]), (&"complete".into(), &60.into()));
    let number = |value: &Value| value.as_f64().expect("a number");
    let used = number(&result["used"]["duration"]);
    assert!((2.9..1_800.0).contains(&used), "{result:#}");
    assert!(number(&result["ping"]["max"]) < 1_800.0, "{result:#}");
    // The wall clock at the start of the probe, which is right in this test.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64();
    let since = now - number(&result["started"]);
    assert!((used - 1.0..1_800.0).contains(&since), "{since}: {result:#}");
}

/// The library, in the folder of Debian's package.
fn faketime_path() -> PathBuf {
    let folders = fs::read_dir("/usr/lib").expect("a system has libraries");
    let names = folders.flatten().map(|entry| entry.path().join("faketime/libfaketimeMT.so.1"));
    names.into_iter().find(|path| path.exists()).expect("faketime is installed")
}
