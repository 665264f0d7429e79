//! Captures on a phone over 4G: received packets are merged by the kernel, recorded after packets
//! that were sent later, and acknowledged within 100 us.
//!
//! The captures are not part of the project, and are expected next to the checkout. The reference
//! is tshark, and for round-trip times by window the round-trip times by timestamps of the same
//! flows.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, iter};

use manyways_tests::{Need, finish, folder, needs};
use manyways_wire::capture::{Reader, Step};
use manyways_wire::frame;

use crate::rows::{Row, Tables};

/// Both endpoints of a packet, sender first: addresses and ports.
type Endpoints = [(String, i64); 2];

fn captures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/captures/phone")
}

fn files() -> Vec<PathBuf> {
    let files =
        fs::read_dir(captures()).expect("a folder").map(|file| file.expect("a file").path());
    let mut files: Vec<_> = files
        .filter(|file| file.extension().is_some_and(|extension| extension == "pcap"))
        .collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

/// Output of tshark: these fields of the matching packets, separated by tabs.
fn tshark(file: &Path, filter: &str, fields: &[&str]) -> Vec<Vec<String>> {
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-r"]).arg(file).args(["-Y", filter, "-T", "fields", "-E", "occurrence=f"]);
    for field in fields {
        tshark.args(["-e", *field]);
    }
    let lines = finish(&mut tshark).expect_success().stdout;
    lines.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

fn ends(row: &Row) -> Endpoints {
    ["client", "server"].map(|end| {
        let address = row.text(end).expect("an address").to_owned();
        (address, row.count(&format!("{end}_port")))
    })
}

/// Packets, bytes of payload and bytes of IP of each endpoint.
fn counts<'a>(rows: impl Iterator<Item = &'a Row>) -> BTreeMap<Endpoints, [i64; 3]> {
    let mut all = BTreeMap::new();
    for row in rows {
        let [client, server] = ends(row);
        for (end, way) in [("up", [client.clone(), server.clone()]), ("down", [server, client])] {
            let said =
                ["packets", "bytes", "ip_bytes"].map(|name| row.count(&format!("{end}_{name}")));
            add(&mut all, way, said);
        }
    }
    all.retain(|_, [packets, ..]| *packets > 0);
    all
}

fn add(all: &mut BTreeMap<Endpoints, [i64; 3]>, way: Endpoints, more: [i64; 3]) {
    let sums = all.entry(way).or_default();
    sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
}

#[test]
fn every_packet_counts() {
    needs!(Need::File(&captures().display().to_string()), Need::Command("tshark"));
    let fields = [
        "ip.src",
        "ipv6.src",
        "ip.dst",
        "ipv6.dst",
        "ip.len",
        "ipv6.plen",
        "tcp.srcport",
        "udp.srcport",
        "tcp.dstport",
        "udp.dstport",
        "tcp.len",
        "udp.length",
    ];
    for file in files() {
        let tables = Tables::of(&file);
        for (table, filter) in [("tcp", "tcp and !icmp and !icmpv6"), ("udp", "udp and !icmp")] {
            let mut theirs = BTreeMap::new();
            for line in tshark(&file, filter, &fields) {
                let [source, source6, to, to6, ip, ip6, ..] = &line[..] else { panic!("{line:?}") };
                let either = |one: &String, other: &String| {
                    if one.is_empty() { other.clone() } else { one.clone() }
                };
                let number = |at: usize| {
                    let text = either(&line[at], &line[at + 1]);
                    text.parse::<i64>().unwrap_or_else(|_| panic!("{line:?}"))
                };
                let way = [(either(source, source6), number(6)), (either(to, to6), number(8))];
                let header = if table == "tcp" { 0 } else { 8 };
                let whole = number(4) + if ip.is_empty() && !ip6.is_empty() { 40 } else { 0 };
                add(&mut theirs, way, [1, number(10) - header, whole]);
            }
            let ours = counts(tables.table(table).iter());
            assert_eq!(ours, theirs, "{table} of {}", file.display());
        }
    }
}

#[test]
fn nothing_is_answered_before_a_round_trip() {
    needs!(Need::File(&captures().display().to_string()));
    let mut count = 0;
    for file in files() {
        let tables = Tables::of(&file);
        let flows: BTreeMap<_, _> =
            tables.table("tcp").iter().map(|row| (row.integer("flow"), row)).collect();
        for exchange in tables.table("exchanges") {
            let Some(flow) = flows.get(&exchange.integer("flow")) else { continue };
            let trips = ["handshake_server_rtt", "up_remote_rtt_min", "remote_rtt_min", "rtt_min"];
            let trips = trips.iter().filter_map(|name| flow.number(name));
            let shortest = trips.fold(f64::INFINITY, f64::min);
            let response = exchange.number("response_time").expect("a time");
            assert!(shortest.is_infinite() || response >= shortest, "{exchange:?} {flow:?}");
            assert!(response > 0.0, "{exchange:?}");
            count += 1;
        }
    }
    assert!(count > 100, "{count}");
}

#[test]
fn questions_to_name_servers_are_dns() {
    needs!(Need::File(&captures().display().to_string()));
    let mut count = 0;
    for file in files() {
        let tables = Tables::of(&file);
        let asked: Vec<_> = tables.table("dns").iter().map(|row| row.text("client")).collect();
        for row in tables.table("udp").iter().filter(|row| row.count("server_port") == 53) {
            assert_eq!(row.text("protocol"), Some("dns"), "{row:?}");
            assert!(asked.contains(&row.text("client")));
            count += 1;
        }
    }
    assert!(count > 100, "{count}");
}

/// The same capture without timestamps: each timestamps option is replaced with padding.
fn without_timestamps(capture: &[u8]) -> Vec<u8> {
    const TCP: u8 = 6;
    const STAMPS: u8 = 8;
    let mut bytes = capture.to_vec();
    let (mut reader, mut at) = (Reader::default(), 0);
    loop {
        match reader.step(&capture[at..]).expect("a capture") {
            Step::More(_) => return bytes,
            Step::Other(length) => at += length,
            Step::Packet(packet, length) => {
                at += length;
                let link = reader.interfaces()[packet.interface].link;
                let Ok(found) = frame::ip_packet(link, packet.bytes, packet.length) else {
                    continue;
                };
                if found.protocol != TCP || found.payload.len() < 20 {
                    continue;
                }
                let begins = found.payload.as_ptr() as usize - capture.as_ptr() as usize;
                let header = usize::from(found.payload[12] >> 4) * 4;
                let end = begins + header.min(found.payload.len());
                let mut option = begins + 20;
                while option + 1 < end && bytes[option] != 0 {
                    let length = match bytes[option] {
                        1 => 1,
                        _ => usize::from(bytes[option + 1]).max(2),
                    };
                    if bytes[option] == STAMPS {
                        bytes[option..(option + length).min(end)].fill(1);
                    }
                    option += length;
                }
            }
        }
    }
}

/// For flows with timestamps, the window alone yields nearly the same round-trip times.
#[test]
fn the_window_tells_what_stamps_tell() {
    needs!(Need::File(&captures().display().to_string()));
    let folder = folder();
    let (mut ratios, mut reported, mut windows) = (Vec::new(), 0, 0);
    for file in files() {
        let stripped = folder.path().join("stripped.pcap");
        fs::write(&stripped, without_timestamps(&fs::read(&file).expect("a capture")))
            .expect("room");
        let (stamped, plain) = (Tables::of(&file), Tables::of(&stripped));
        let key = |row: &Row| (ends(row), row.integer("started"));
        let by_window: BTreeMap<_, _> =
            plain.table("tcp").iter().map(|row| (key(row), row)).collect();
        for row in stamped.table("tcp").iter().chain(plain.table("tcp")) {
            let trips = ["rtt", "local_rtt", "remote_rtt", "up_rtt", "up_remote_rtt"];
            let of = trips.iter().flat_map(|name| [name.to_string(), format!("{name}_min")]);
            for name in of.chain(iter::once("handshake_server_rtt".to_owned())) {
                assert!(row.number(&name).is_none_or(|span| span > 0.0), "{name}: {row:?}");
            }
        }
        for row in stamped.table("tcp") {
            reported += usize::from(row.number("rtt").is_some());
            let window = by_window[&key(row)];
            windows += usize::from(window.number("remote_rtt").is_some());
            assert_ne!(window.text("rtt_method"), Some("stamps"));
            let both = row.number("remote_rtt").zip(window.number("remote_rtt"));
            if let (Some("stamps"), Some((truth, said))) = (row.text("rtt_method"), both) {
                ratios.push(said / truth);
            }
        }
    }
    ratios.sort_by(f64::total_cmp);
    eprintln!("{reported} flows with round trips, {windows} by windows alone: {ratios:.2?}");
    assert!(ratios.len() >= 20, "{ratios:.2?}");
    let right = ratios.iter().filter(|ratio| (0.5..=2.0).contains(*ratio)).count();
    assert!(right * 20 >= ratios.len() * 19, "{right} of {ratios:.2?}");
    let median = ratios[ratios.len() / 2];
    assert!((0.8..1.25).contains(&median), "{median}");
}
