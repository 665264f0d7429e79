//! Output files of a lab: captures and the event log.

use std::fs;
use std::path::Path;
use std::process::Command;

use manyways_lab::event::{LabEvent, LaneDirection, LinkSample};
use manyways_record::event::{self, Log};
use manyways_tests::{Need, SHELL, finish, folder, manyways, needs};

use crate::running::{nginx, script_in};

fn timeline(file: &Path) -> Log<LabEvent> {
    event::parse(&fs::read(file).expect("a timeline was written")).expect("it reads")
}

/// The last sample of one direction of a link.
fn last(log: &Log<LabEvent>, link: &str, direction: LaneDirection) -> LinkSample {
    let sample = |event: &LabEvent| match event {
        LabEvent::LinkSample(sample) if sample.link == link && sample.direction == direction => {
            Some(sample.clone())
        }
        _ => None,
    };
    log.records.iter().rev().find_map(|record| sample(&record.event)).expect("a sample")
}

/// The packets of a capture, one line of tcpdump for each.
fn packets(file: &Path, filter: &str) -> Vec<String> {
    let mut tcpdump = Command::new("tcpdump");
    let done = finish(tcpdump.args(["-nn", "-v", "-r"]).arg(file).arg(filter)).expect_success();
    // With -v a packet has several lines; only the first one contains the IP header.
    done.stdout.lines().filter(|line| line.contains(" IP (tos ")).map(str::to_owned).collect()
}

#[test]
fn a_capture_has_every_packet_once() {
    needs!(Need::Root, Need::Command("tcpdump"), Need::Command("ping"));
    let files = folder();
    let captures = files.path().join("new/captures");
    let log = files.path().join("timeline");
    let options =
        ["--link", "wifi", "--link", "lte:up-loss=100%", "--link", "idle"].map(str::to_owned);
    let records = ["--pcap", captures.to_str().unwrap(), "--timeline", log.to_str().unwrap()];
    let options: Vec<&str> = options.iter().map(String::as_str).chain(records).collect();
    script_in(
        &options,
        "ping -q -c 5 -i 0.01 -I wifi 198.18.0.1 >/dev/null && \
         ping -q -c 2 -i 0.01 -W 1 -I lte 198.18.0.1 >/dev/null; [ $? = 1 ]",
    )
    .expect_success();

    assert_eq!(packets(&captures.join("wifi.pcapng"), "").len(), 10);
    assert_eq!(packets(&captures.join("wifi.pcapng"), "src 10.64.1.2").len(), 5);
    assert_eq!(packets(&captures.join("wifi.pcapng"), "dst 10.64.1.2").len(), 5);
    assert_eq!(packets(&captures.join("lte.pcapng"), "").len(), 2);
    assert_eq!(packets(&captures.join("lte-dropped.pcapng"), "").len(), 2);
    assert_eq!(packets(&captures.join("idle.pcapng"), "").len(), 0);
    assert!(!captures.join("wifi-dropped.pcapng").exists());

    let log = timeline(&log);
    assert_eq!(log.header.tool, "lab");
    // An echo request has 84 bytes.
    for direction in [LaneDirection::Down, LaneDirection::Up] {
        let wifi = last(&log, "wifi", direction);
        assert_eq!((wifi.delivered_bytes, wifi.rate_bps), (5 * 84, None));
        assert_eq!(last(&log, "idle", direction).delivered_bytes, 0);
    }
    assert_eq!(last(&log, "lte", LaneDirection::Up).dropped_packets.loss, 2);
    assert_eq!(last(&log, "lte", LaneDirection::Down).delivered_bytes, 0);
}

/// The kernel passes super-packets of up to 64 KB; on the link they are packets of the MTU.
#[test]
fn a_capture_and_the_counters_agree_on_tcp() {
    needs!(Need::Root, Need::Command("tcpdump"), Need::Command("nginx"), Need::Command("curl"));
    let files = folder();
    let (captures, log) = (files.path().join("captures"), files.path().join("timeline"));
    let [far, command] = nginx();
    let link = "wifi:down=80mbit,up=80mbit,delay=1ms,mtu=1400";
    let records = ["--pcap", captures.to_str().unwrap(), "--timeline", log.to_str().unwrap()];
    let options = [&["--link", link, &far, &command][..], &records].concat();
    script_in(
        &options,
        "curl -sS -o /dev/null http://198.18.0.1/1M && \
         while ss -Htan | grep -qvE 'LISTEN|TIME-WAIT'; do :; done",
    )
    .expect_success();

    let length = |line: &String| -> u64 {
        let (_, rest) = line.rsplit_once("length ").expect("tcpdump -v tells the length");
        rest.trim_end_matches(')').parse().expect("a number")
    };
    let down: Vec<u64> =
        packets(&captures.join("wifi.pcapng"), "src 198.18.0.1").iter().map(length).collect();
    assert!(down.iter().all(|length| *length <= 1400), "{down:?}");
    let sample = last(&timeline(&log), "wifi", LaneDirection::Down);
    assert_eq!(sample.delivered_bytes, down.iter().sum::<u64>());
    assert!(sample.delivered_bytes > 1_000_000);
    assert_eq!(sample.rate_bps, Some(80_000_000));
}

#[test]
fn the_timeline_tells_what_was_changed_and_what_ran() {
    needs!(Need::Root, Need::Command("ip"));
    let files = folder();
    let file = |name: &str| files.path().join(name);
    let log = file("log").display().to_string();
    let name = crate::running::name("changes");
    script_in(
        &["--link", "wifi", "--name", &name, "--timeline", &log],
        "manyways lab set --lab $LAB_NAME wifi down=5mbit up-delay=2ms",
    )
    .expect_success();
    let changes = |log: &Log<LabEvent>| -> Vec<(u64, String, Vec<String>)> {
        let change = |record: &event::Record<LabEvent>| match &record.event {
            LabEvent::LinkChange { link, set } => {
                Some((record.time.as_nanos() / 1_000_000, link.clone(), set.clone()))
            }
            _ => None,
        };
        log.records.iter().filter_map(change).collect()
    };
    let read = timeline(&file("log"));
    assert_eq!(changes(&read).len(), 1);
    assert_eq!(changes(&read)[0].1, "wifi");
    assert_eq!(changes(&read)[0].2, ["down=5mbit", "up-delay=2ms"]);
    assert_eq!(read.header.subject, Some(name));

    let text = "name = \"log\"\n[link.wifi]\ndown = \"5mbit\"\n\
                [[event]]\nat = \"50ms\"\nlink = \"wifi\"\nloss = \"100%\"\n\
                [[event]]\nat = \"150ms\"\nlink = \"wifi\"\ndown = \"1mbit\"\nstate = \"silent\"\n\
                [[workload]]\nname = \"first\"\nrun = \"sh $FILES/workload\"\n";
    // The workload ends after the events.
    let workload = format!("{SHELL} eventually grep -qs silent {}; exit 3", file("log").display());
    fs::write(file("workload"), workload).unwrap();
    fs::write(file("log.toml"), text).unwrap();
    let mut command = manyways();
    command.env("FILES", files.path());
    command.args(["lab", "run", "--timeline", &log]).arg(file("log.toml"));
    assert_eq!(finish(&mut command).code(), 1);
    let read = timeline(&file("log"));
    let changes = changes(&read);
    let set: Vec<_> = changes.iter().map(|(_, _, set)| set.join(" ")).collect();
    assert_eq!(set, ["loss=100%", "down=1mbit state=silent"]);
    // The times are planned and not measured: they are 100 ms apart on every machine.
    assert!((100..=101).contains(&(changes[1].0 - changes[0].0)), "{changes:?}");
    let workload = |event: &LabEvent| match event {
        LabEvent::WorkloadStart { workload } => Some(format!("start {workload}")),
        LabEvent::WorkloadEnd { workload, exit, .. } => Some(format!("end {workload} {exit:?}")),
        _ => None,
    };
    let ran: Vec<_> = read.records.iter().filter_map(|record| workload(&record.event)).collect();
    assert_eq!(ran, ["start first", "end first Some(3)"]);
    assert_eq!(last(&read, "wifi", LaneDirection::Down).rate_bps, Some(1_000_000));
}
