//! Far hosts: addresses of the far side with names, each at its own distance.

use std::fs;
use std::time::Duration;

use manyways_tests::{
    Lab, Need, Outcome, conclusive, fault, finish, folder, manyways, max_lateness, needs,
};

use crate::running::{TWO_LINKS, lab_shell, script_in, shared_host};

const NEAR: &str = "93.184.216.34";
const NEAR_V6: &str = "2606:2800:220::1";
/// In the same networks as the near ones.
const FAR: &str = "93.184.216.35";
const FAR_V6: &str = "2606:2800:220::2";
const EXTRA: Duration = Duration::from_millis(40);

/// The links, and two near and two far addresses.
fn options() -> Vec<String> {
    let mut options: Vec<String> = TWO_LINKS.map(str::to_owned).into();
    for host in [
        format!("{NEAR},name=near.example,name=both.example"),
        format!("{NEAR_V6},name=near.example,name=Both.Example."),
        format!("{FAR},name=far.example,name=both.example,extra-rtt=40ms"),
        format!("{FAR_V6},extra-rtt=40ms,name=far.example"),
    ] {
        options.extend(["--far-host".to_owned(), host]);
    }
    options
}

fn with_options<T>(use_them: impl FnOnce(&[&str]) -> T) -> T {
    let options = options();
    use_them(&options.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Prints the median round-trip time in milliseconds from link $1 to address $2. The first packet
/// also pays for the look-up of the route.
const MEDIAN: &str = "median() { ping -n -i 0.01 -c 22 -W 30 -I $1 $2 | \
    sed -n 's/.*icmp_seq=.*time=\\([0-9.]*\\) ms/\\1/p' | tail -n +2 | sort -n | sed -n 11p; };";

#[test]
fn each_far_host_has_its_distance_over_every_link() {
    needs!(Need::Root, Need::Command("ip"), Need::Command("ping"));
    conclusive(|| {
        let lab = with_options(Lab::start);
        let mut wrong = Vec::new();
        for link in ["wifi", "lte"] {
            for (near, far) in [(NEAR, FAR), (NEAR_V6, FAR_V6)] {
                let script = format!("{MEDIAN} median {link} {near}; median {link} {far}");
                let seen = lab.device(&script).expect_success().stdout;
                let medians: Vec<f64> = seen.lines().flat_map(str::parse).collect();
                let [near_rtt, far_rtt] = medians[..] else { panic!("no two medians: {seen}") };
                let extra = far_rtt - near_rtt - EXTRA.as_secs_f64() * 1e3;
                if extra.abs() > 1.0 {
                    wrong.push(format!("{link}: {near} {near_rtt} ms, {far} {far_rtt} ms"));
                }
            }
        }
        let status = lab.status().to_string();
        Outcome { wrong, lateness: max_lateness(&status) }
    });
}

/// Sends to the far host and then to the near one in a burst, and prints the order of the answers.
/// Each payload has its number; the answer to the last one of each host ends the experiment.
const BURST: &str = r#"
import socket, sys
near, far = ((address, 7) for address in sys.argv[1:3])
client = socket.socket(socket.AF_INET6 if ":" in near[0] else socket.AF_INET, socket.SOCK_DGRAM)
for number in range(20):
    for name, to in [("far", far), ("near", near)]:
        client.sendto(f"{name} {number}".encode(), to)
seen = []
while len(seen) < 40:
    seen.append(client.recv(99).decode())
for name in ["near", "far"]:
    print(*[one.split()[1] for one in seen if one.startswith(name)])
print(seen.index("near 19") < seen.index("far 0"))
"#;

/// Answers datagrams from the address to which they were sent.
const ECHO: &str = r#"
import selectors, socket, sys
ready = selectors.DefaultSelector()
for address in sys.argv[1:]:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    server = socket.socket(family, socket.SOCK_DGRAM)
    server.bind((address, 7))
    ready.register(server, selectors.EVENT_READ)
while True:
    for key, _ in ready.select():
        key.fileobj.sendto(*key.fileobj.recvfrom(99))
"#;

/// 20 datagrams take less than 40 ms on any machine that is not stopped meanwhile.
#[test]
fn packets_of_a_near_host_overtake_those_of_a_far_one() {
    needs!(Need::Root, Need::Command("ip"), Need::Command("python3"));
    let files = folder();
    let file = |name: &str| files.path().join(name).display().to_string();
    fs::write(file("echo"), ECHO).expect("room for a script");
    fs::write(file("burst"), BURST).expect("room for a script");
    let order = (0..20).map(|number| number.to_string()).collect::<Vec<_>>().join(" ");
    conclusive(|| {
        let echo = format!("exec python3 {} {NEAR} {FAR} {NEAR_V6} {FAR_V6}", file("echo"));
        let lab = with_options(|all| Lab::start(&[all, &["--far", &echo]].concat()));
        let mut wrong = Vec::new();
        for (near, far) in [(NEAR, FAR), (NEAR_V6, FAR_V6)] {
            let script = format!("python3 {} {near} {far}", file("burst"));
            let seen = lab.device(&script).expect_success().stdout;
            if seen != format!("{order}\n{order}\nTrue\n") {
                wrong.push(format!("{near}, {far}: {seen}"));
            }
        }
        Outcome { wrong, lateness: max_lateness(&lab.status().to_string()) }
    });
}

#[test]
fn names_of_far_hosts_resolve_on_every_link_and_no_others() {
    needs!(Need::Root, Need::Command("ip"), Need::Command("getent"));
    let script = "for family in ahostsv4 ahostsv6; do for name in near far both; do \
                    echo $name $(getent $family $name.example | \
                      sed -n 's/ *STREAM.*//p' | sort); \
                  done; done; \
                  getent ahosts other.example || echo none";
    let expected = format!(
        "near {NEAR}\nfar {FAR}\nboth {NEAR} {FAR}\n\
         near {NEAR_V6}\nfar {FAR_V6}\nboth {NEAR_V6}\nnone\n"
    );
    let seen = with_options(|all| script_in(all, script)).expect_success().stdout;
    assert_eq!(seen, expected);
    // Each gateway answers: without the first link, the second one is asked.
    let lab = with_options(Lab::start);
    lab.set(&["wifi", "state=no-carrier"]).expect_success();
    assert_eq!(lab.device(script).expect_success().stdout, expected);
}

/// Sends every byte back.
const MIRROR: &str = r#"
import socket, sys, threading
def mirror(peer):
    while part := peer.recv(1 << 20):
        peer.sendall(part)
    peer.close()
server = socket.create_server((sys.argv[1], 7), family=socket.AF_INET6)
while True:
    threading.Thread(target=mirror, args=(server.accept()[0],), daemon=True).start()
"#;

/// Sends 20 MB over the link and prints whether the same bytes come back.
const TRANSFER: &str = r#"
import os, socket, sys, threading
address, link = sys.argv[1:3]
peer = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
peer.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, link.encode())
peer.connect((address, 7))
data = os.urandom(20_000_000)
def send():
    peer.sendall(data)
    peer.shutdown(socket.SHUT_WR)
threading.Thread(target=send).start()
back = bytearray()
while part := peer.recv(1 << 20):
    back += part
print(back == data)
"#;

/// The kernels send super-packets.
#[test]
fn a_transfer_with_a_far_host_arrives_whole_over_every_link() {
    needs!(Need::Root, Need::Command("ip"), Need::Command("python3"));
    let files = folder();
    let file = |name: &str| files.path().join(name).display().to_string();
    fs::write(file("mirror"), MIRROR).expect("room for a script");
    fs::write(file("transfer"), TRANSFER).expect("room for a script");
    let far = format!("exec python3 {} {FAR_V6}", file("mirror"));
    let lab = with_options(|all| Lab::start(&[all, &["--far", &far]].concat()));
    for link in ["wifi", "lte"] {
        let done = lab.device(&format!("python3 {} {FAR_V6} {link}", file("transfer")));
        let done = done.expect_success();
        fault!(done.stdout == "True\n", "{link}: other bytes come back: {}", done.stderr);
    }
}

#[test]
fn far_hosts_are_in_the_status() {
    needs!(Need::Root, Need::Command("ip"));
    let lab = with_options(Lab::start);
    let status = lab.status();
    let far = status["far_hosts"].as_array().expect("a list");
    let addresses: Vec<_> = far.iter().map(|one| one["address"].as_str().unwrap()).collect();
    assert_eq!(addresses, [NEAR, NEAR_V6, FAR, FAR_V6]);
    assert_eq!(far[0]["names"], serde_json::json!(["near.example", "both.example"]));
    let extra: Vec<_> = far.iter().map(|one| one["extra_rtt_seconds"].as_f64().unwrap()).collect();
    assert_eq!(extra, [0.0, 0.0, 0.04, 0.04]);
}

#[test]
fn a_lab_has_a_thousand_far_hosts() {
    needs!(Need::Root, Need::Command("ip"), Need::Command("ping"));
    let address = |number: u32| match number % 2 {
        0 => format!("93.184.{}.{}", number >> 8, number & 255),
        _ => format!("2606:2800:220::{number:x}"),
    };
    let hosts = (0..1_000).map(|number| format!("{},name=n{number}.example", address(number)));
    let options: Vec<String> = hosts.flat_map(|host| ["--far-host".to_owned(), host]).collect();
    let mut all: Vec<&str> = options.iter().map(String::as_str).collect();
    all.extend(TWO_LINKS);
    let last = [998, 999].map(address);
    let script = format!(
        "getent ahosts n998.example n999.example | grep -c STREAM; \
         for to in {} {}; do ping -q -c 1 -W 30 $to >/dev/null || echo $to does not answer; done",
        last[0], last[1]
    );
    assert_eq!(script_in(&all, &script).expect_success().stdout, "2\n");
}

#[test]
fn a_scenario_runs_with_far_hosts() {
    needs!(Need::Root, Need::Command("ip"), Need::Command("ping"));
    let files = folder();
    let file = files.path().join("a.toml");
    let workload = "ping -q -c 1 -W 30 far.example && ping -q -c 1 -W 30 198.18.0.1";
    let text = format!(
        "name = \"far\"\n[link.wifi]\ndelay = \"1ms\"\n\
         [[workload]]\nname = \"ping\"\nrun = \"{workload}\"\n"
    );
    fs::write(&file, text).expect("room for a scenario");
    let _guard = shared_host();
    let mut command = manyways();
    command
        .args(["lab", "run"])
        .arg(&file)
        .args(["--far-host", &format!("{FAR},name=far.example")]);
    finish(&mut command).expect_success();
}

#[test]
fn a_far_host_that_makes_no_sense_is_refused() {
    for (options, message) in [
        (&["--far-host", "example.com"][..], "`example.com` is not an IPv4 or IPv6 address"),
        (&["--far-host", "10.64.1.1"], "the lab uses it itself"),
        (&["--far-host", FAR, "--far-host", FAR], "two far hosts have the address 93.184.216.35"),
        (&["--host", "a", "--host", "b", "--far-host", "198.18.0.2"], "the lab uses it itself"),
        (&["--far-host", "1.2.3.4,name=a..b"], "`a..b` is not a host name"),
    ] {
        let _guard = shared_host();
        let done = finish(lab_shell(&TWO_LINKS).args(options).args(["--", "true"]));
        assert_eq!(done.code(), 2, "{}", done.stderr);
        assert!(done.stderr.contains(message), "{options:?}: {}", done.stderr);
    }
}
