//! Export formats, and tables from other sources, on the command line. tshark is the reference for
//! IPFIX.

use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use manyways_tests::{Finished, Need, finish, folder, manyways, needs};

/// Start of the capture, in seconds.
const START: u64 = 1_700_000_000;
const SYN: u8 = 2;
const ACK: u8 = 16;
const FIN: u8 = 1;
const HTTP: &[u8] = b"GET /a HTTP/1.1\r\nHost: www.example.net\r\n\r\n";
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// A capture of raw IP packets at these milliseconds.
fn capture(path: &Path, packets: &[(u64, Vec<u8>)]) {
    let mut bytes = 0xa1b2_3c4d_u32.to_le_bytes().to_vec();
    bytes.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend([65_535_u32, 101].map(u32::to_le_bytes).concat());
    for (millis, packet) in packets {
        let (seconds, nanos) = (START + millis / 1_000, millis % 1_000 * 1_000_000 + 7);
        let length = packet.len() as u64;
        let head = [seconds, nanos, length, length].map(|number| (number as u32).to_le_bytes());
        bytes.extend(head.concat());
        bytes.extend(packet);
    }
    fs::write(path, bytes).expect("a capture is written");
}

fn ip(from: &str, to: &str, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let ends = [from, to].map(|end| end.parse::<IpAddr>().expect("an address"));
    let mut bytes;
    match ends {
        [IpAddr::V4(from), IpAddr::V4(to)] => {
            bytes = vec![0x45, 0];
            bytes.extend((20 + payload.len() as u16).to_be_bytes());
            bytes.extend([0, 0, 0, 0, 64, protocol, 0, 0]);
            bytes.extend([from.octets(), to.octets()].concat());
        }
        [IpAddr::V6(from), IpAddr::V6(to)] => {
            bytes = vec![0x60, 0, 0, 0];
            bytes.extend((payload.len() as u16).to_be_bytes());
            bytes.extend([protocol, 64]);
            bytes.extend([from.octets(), to.octets()].concat());
        }
        _ => panic!("{from} and {to} are of two kinds"),
    }
    bytes.extend(payload);
    bytes
}

fn tcp(ports: [u16; 2], numbers: [u32; 2], flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = ports.map(u16::to_be_bytes).concat();
    bytes.extend(numbers.map(u32::to_be_bytes).concat());
    bytes.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    bytes.extend(payload);
    bytes
}

fn udp(ports: [u16; 2], payload: &[u8]) -> Vec<u8> {
    let mut bytes = ports.map(u16::to_be_bytes).concat();
    bytes.extend([(8 + payload.len() as u16).to_be_bytes(), [0; 2]].concat());
    bytes.extend(payload);
    bytes
}

/// An HTTP conversation, another over IPv6 without a name, and a datagram without a response.
fn some_flows(path: &Path) {
    let (up, down) = ([40_000, 80], [80, 40_000]);
    let (client, server) = ("10.0.0.7", "192.0.2.1");
    let asked = 101 + HTTP.len() as u32;
    let answered = 501 + RESPONSE.len() as u32;
    let out = |segment: Vec<u8>| ip(client, server, 6, &segment);
    let back = |segment: Vec<u8>| ip(server, client, 6, &segment);
    let (six, far) = ("2001:db8::7", "2001:db8:1::1");
    capture(
        path,
        &[
            (0, out(tcp(up, [100, 0], SYN, b""))),
            (20, back(tcp(down, [500, 101], SYN | ACK, b""))),
            (21, out(tcp(up, [101, 501], ACK, b""))),
            (30, out(tcp(up, [101, 501], ACK, HTTP))),
            (40, ip(six, far, 17, &udp([50_000, 4_000], b"question"))),
            (60, ip(far, six, 17, &udp([4_000, 50_000], b"a longer answer"))),
            (70, ip(client, "198.51.100.9", 17, &udp([50_001, 4_001], b"lost"))),
            (80, back(tcp(down, [501, asked], ACK, RESPONSE))),
            (90, out(tcp(up, [asked, answered], FIN | ACK, b""))),
            (110, back(tcp(down, [answered, asked + 1], FIN | ACK, b""))),
        ],
    );
}

fn flows(words: &[&str]) -> Finished {
    finish(manyways().arg("flows").args(words))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of a test is text")
}

#[test]
fn tshark_shows_the_flows_of_an_ipfix_file() {
    needs!(Need::Command("tshark"));
    let dir = folder();
    let file = |name: &str| dir.path().join(name);
    some_flows(&file("a.pcap"));
    flows(&[text(&file("a.pcap")), "-o", text(&file("tables"))]).expect_success();
    let (tables, out) = (file("tables"), file("x.ipfix"));
    let words = ["export", text(&tables), "--format", "ipfix", "-o", text(&out)];
    let said = flows(&words).expect_success();
    assert!(said.stdout.starts_with("tcp (1 row), udp (2 rows) in "), "{}", said.stdout);
    let fields = [
        "cflow.srcaddr",
        "cflow.srcaddrv6",
        "cflow.dstaddr",
        "cflow.dstaddrv6",
        "cflow.srcport",
        "cflow.dstport",
        "cflow.protocol",
        "cflow.packets",
        "cflow.octets",
        "cflow.biflow_direction",
    ];
    let mut tshark = Command::new("tshark");
    tshark.arg("-r").arg(file("x.ipfix")).args(["-T", "fields"]);
    tshark.args(fields.map(|field| format!("-e{field}")));
    let shown = finish(&mut tshark).expect_success().stdout;
    let shown: Vec<Vec<&str>> =
        shown.trim_end().split('\t').map(|field| field.split(',').collect()).collect();
    // Packets and IP bytes of both directions of each flow.
    let expected: [&[&str]; 10] = [
        &["10.0.0.7", "10.0.0.7"],
        &["2001:db8::7"],
        &["192.0.2.1", "198.51.100.9"],
        &["2001:db8:1::1"],
        &["40000", "50000", "50001"],
        &["80", "4000", "4001"],
        &["6", "17", "17"],
        &["4", "3", "1", "1", "1"],
        &["202", "163", "56", "63", "32"],
        &["1", "1", "1"],
    ];
    assert_eq!(shown, expected);
    // tshark decodes all fields, including the times.
    let mut tshark = Command::new("tshark");
    let all = finish(tshark.arg("-r").arg(file("x.ipfix")).arg("-V")).expect_success().stdout;
    for line in [
        "StartTime: Nov 14, 2023 22:13:20.000000007",
        "EndTime: Nov 14, 2023 22:13:20.110000007",
        "(Reverse Type 2 PKTS)",
    ] {
        assert!(all.contains(line), "{line} is not in\n{all}");
    }
    assert!(!all.contains("Malformed") && !all.contains("Unknown"), "{all}");
}

#[test]
fn tables_come_as_csv_and_as_logs() {
    let dir = folder();
    let file = |name: &str| dir.path().join(name);
    some_flows(&file("a.pcap"));
    let tables = file("tables");
    flows(&[text(&file("a.pcap")), "-o", text(&tables)]).expect_success();
    let csv = ["export", text(&tables), "--format", "csv"];
    let several = flows(&csv);
    assert_eq!((several.code(), several.stdout.as_str()), (2, ""));
    assert!(several.stderr.contains("--table"), "{}", several.stderr);
    let one = flows(&[&csv[..], &["--table", "udp"]].concat()).expect_success().stdout;
    assert_eq!(one.lines().count(), 3);
    assert!(
        one.contains(
            ",2001:db8::7,50000,2001:db8:1::1,4000,client,2023-11-14T22:13:20.040000007Z,"
        )
    );
    let out = file("csv");
    flows(&[&csv[..], &["-o", text(&out)]].concat()).expect_success();
    assert_eq!(fs::read_to_string(out.join("udp.csv")).expect("a table"), one);
    let again = flows(&[&csv[..], &["-o", text(&out)]].concat());
    assert_eq!(again.code(), 1);
    assert!(again.stderr.contains("already exists") && again.stderr.contains("--force"));
    let said =
        flows(&[&csv[..], &["-o", text(&out), "--force", "--json"]].concat()).expect_success();
    let said: serde_json::Value = serde_json::from_str(&said.stdout).expect("a document");
    assert_eq!(said["path"], text(&out));
    let written = said["written"].as_array().expect("a list");
    let of_udp = written.iter().find(|one| one["name"] == "udp.csv").expect("a table");
    assert_eq!((&of_udp["rows"], &of_udp["skipped"]), (&2.into(), &0.into()));
    let both = flows(&[&csv[..], &["--table", "udp", "-o", "-", "--json"]].concat());
    assert_eq!((both.code(), both.stdout.as_str()), (2, ""));
    let wrong = flows(&[&csv[..], &["--table", "nothing"]].concat());
    assert_eq!(wrong.code(), 2);
    assert!(
        wrong.stderr.contains("the tables are: ") && wrong.stderr.contains("udp"),
        "{}",
        wrong.stderr
    );
    let logs = file("logs");
    flows(&["export", text(&tables), "--format", "tstat", "-o", text(&logs)]).expect_success();
    let tcp = fs::read_to_string(logs.join("log_tcp_complete")).expect("a log");
    assert!(tcp.starts_with("#15#c_ip:1 c_port:2 ") && tcp.lines().count() == 2, "{tcp}");
    let udp = fs::read_to_string(logs.join("log_udp_complete")).expect("a log");
    let last = udp.lines().next_back().unwrap_or_default();
    assert_eq!(
        last,
        "10.0.0.7 50001 1700000000070.000007 0.000000 4 1 1 0 0 198.51.100.9 4001 0 0 0 0 0 0 0 -"
    );
    let foreign = flows(&["export", text(dir.path()), "--format", "csv", "--table", "tcp"]);
    assert_eq!(foreign.code(), 1);
    assert!(foreign.stderr.contains("has no tables of flows"), "{}", foreign.stderr);
}

#[test]
fn who_reads_may_go() {
    let dir = folder();
    let file = |name: &str| dir.path().join(name);
    // More than the capacity of a pipe.
    let packets: Vec<(u64, Vec<u8>)> = (0..4_000_u64)
        .map(|n| (n, ip("10.0.0.7", "192.0.2.1", 17, &udp([10_000 + n as u16, 4_000], b"x"))))
        .collect();
    capture(&file("a.pcap"), &packets);
    flows(&[text(&file("a.pcap")), "-o", text(&file("tables"))]).expect_success();
    let mut command = manyways();
    command
        .args(["flows", "export"])
        .arg(file("tables"))
        .args(["--format", "csv", "--table", "udp"]);
    let mut export =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    drop(export.stdout.take());
    let done = export.wait_with_output().expect("it ends");
    assert!(done.status.success() && done.stderr.is_empty(), "{done:?}");
}

#[test]
fn what_is_known_from_elsewhere_is_in_the_tables() {
    let dir = folder();
    let file = |name: &str, what: &str| {
        let path = dir.path().join(name);
        fs::write(&path, what).expect("a file is written");
        path
    };
    let pcap = dir.path().join("a.pcap");
    some_flows(&pcap);
    let pools = file("pools", "prefix,handheld,system\n10.0.0.0/8,yes,\n2001:db8::/64,no,linux\n");
    let owners = file("owners", "2001:db8:1::/48,AS64496,\"Example, Inc.\",Fast\n");
    let told = format!("{}.5,2001:db8::7,far.example,2001:db8:1::1\n", START - 1);
    let names = file("names", &told);
    let hosts = file("hosts", "198.51.100.9 printer.example printer\n");
    let tables = dir.path().join("tables");
    let words = [
        text(&pcap),
        "-o",
        text(&tables),
        "--pools",
        text(&pools),
        "--organisations",
        text(&owners),
        "--dns",
        text(&names),
        "--dns",
        text(&hosts),
    ];
    flows(&words).expect_success();
    let csv = flows(&["export", text(&tables), "--format", "csv", "--table", "udp"])
        .expect_success()
        .stdout;
    let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    let of = |row: usize, name: &str| {
        let column = rows[0].iter().position(|column| *column == name).expect("a column");
        rows[row][column]
    };
    assert_eq!((of(1, "name"), of(1, "name_source")), ("far.example", "dns"));
    assert_eq!((of(2, "name"), of(2, "name_source")), ("printer.example", "hosts"));
    assert!(csv.contains("\"Example, Inc.\",64496,Fast,linux,false"), "{csv}");
    assert_eq!((of(2, "is_handheld"), of(2, "system")), ("true", ""));
    // The built-in table is no longer used, and errors are reported before captures are read.
    for (option, what, said) in [
        ("--pools", "\n10.0.0.0/8,perhaps,\n", "line 2: the second field must be"),
        ("--organisations", "10.0.0.0/8\n", "line 1: a line has 4 fields"),
        ("--dns", "a\nb\n", "line 1: a line is"),
    ] {
        let wrong = file("wrong", what);
        let done = flows(&["no-such-capture", option, text(&wrong)]);
        assert_eq!(done.code(), 2, "{}", done.stderr);
        assert!(
            done.stderr.contains(said) && done.stderr.contains("docs/flows.md"),
            "{}",
            done.stderr
        );
    }
    let done = flows(&[text(&pcap), "--pools", "no-such-file"]);
    assert_eq!(done.code(), 2);
    assert!(done.stderr.contains("cannot read no-such-file"), "{}", done.stderr);
}

#[test]
fn the_schema_is_for_programs_as_well() {
    let json = flows(&["schema", "--json"]).expect_success().stdout;
    let document: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
    assert_eq!(document["version"], 3);
    let tables = document["tables"].as_array().expect("a list");
    let chapters = flows(&["schema"]).expect_success().stdout;
    assert_eq!(chapters.matches("\n## ").count() + 1, tables.len());
}
