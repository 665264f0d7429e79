//! Live captures on an interface, compared with tcpdump.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use manyways_tests::testbed::{Namespace, ip};
use manyways_tests::{
    Finished, Folder, Need, SHELL, finish, folder, manyways, manyways_path, needs,
};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use serde_json::Value;

use crate::testbed::Testbed;

/// The script runs on the first host; `$PEER` is the program of both endpoints, and
/// `live NAME ARGUMENTS` captures on the cable in the background.
const HOSTS: &str = r#"
set -e
trap 'kill -9 $(jobs -p) 2>/dev/null || true' EXIT
far() { nsenter --net=$FAR "$@"; }
far python3 $PEERS serve &
serves() { far ss -Hltn 'sport = :80' | grep -q .; }
eventually serves
PEER="python3 $PEERS client --server"
begun() { kill -0 $LIVE && grep -qs 'capturing on' $OUT/$1.err; }
live() {
    name=$1; shift
    $MANYWAYS flows "$@" >$OUT/$name.out 2>$OUT/$name.err & LIVE=$!; LIVES="$LIVES $LIVE"
    eventually begun $name
}
"#;

/// Sends datagrams from the second host, in frames with a VLAN tag.
const TAGGED: &str = r#"
import socket
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
link.bind(("far", 0))
head = "ffffffffffff 020000000002 81002007 0800 4500001f 00004000 40110000 c0000202 c0000201"
for _ in range(7):
    link.send(bytes.fromhex(head + "1389 138a 000b 0000 616263"))
"#;

/// The programs and rights that [`hosts`] needs.
const NEEDS: Need = Need::All(&[
    Need::Root,
    Need::Command("tcpdump"),
    Need::Command("python3"),
    Need::Command("ip"),
    Need::Command("nsenter"),
    Need::Command("setpriv"),
]);

/// Runs a script on the first of two hosts with a cable.
#[track_caller]
fn hosts(script: &str) -> (Folder, Finished) {
    let out = folder();
    fs::write(out.path().join("script"), format!("{SHELL}{HOSTS}{script}"))
        .expect("room for a script");
    let (near, far) = (Namespace::new(), Namespace::new());
    for host in [&near, &far] {
        let off = "net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1";
        host.finish(Command::new("sysctl").arg("-qw").args(off.split(' '))).expect_success();
    }
    near.connect(("near", "192.0.2.1/24"), &far, ("far", "192.0.2.2/24"));
    near.run(|| ip("link set lo up"));
    // Without ARP, only these programs send packets.
    let addresses = ["02:00:00:00:00:01", "02:00:00:00:00:02"];
    for (host, name, own, other) in [(&near, "near", 1, 2), (&far, "far", 2, 1)] {
        let (own, mac) = (addresses[own - 1], addresses[other - 1]);
        host.run(|| ip(&format!("link set {name} address {own}")));
        host.run(|| ip(&format!("neigh replace 192.0.2.{other} lladdr {mac} dev {name}")));
    }
    let mut command = Command::new("sh");
    command.arg(out.path().join("script")).env("FAR", far.path());
    command.env("OUT", out.path()).env("MANYWAYS", manyways_path());
    command.env("TAGGED", TAGGED);
    command.env("PEERS", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/flows/peer.py"));
    let done = near.finish(&mut command);
    let said = |name: &str| fs::read_to_string(out.path().join(name)).unwrap_or_default();
    eprintln!("{}{}", said("live.err"), done.stderr);
    (out, done.expect_success())
}

/// Returns the rows of a table of one folder, as text.
#[track_caller]
fn rows(folder: &Path, table: &str) -> Vec<String> {
    rows_of(folder, table, |_, _| true)
}

/// Returns the rows without the columns that may differ between two captures of one interface,
/// sorted. Between two namespaces, the kernel timestamps a received packet separately for each
/// capture, and if the two directions are processed on two cores, each capture has its own order.
/// Round-trip times, bytes in flight and the initial window depend on both.
#[track_caller]
fn timeless(folder: &Path, table: &str) -> Vec<String> {
    const DIFFERENT: [&str; 5] = ["icwnd", "in_flight", "limited", "delayed_acks", "rtt"];
    let epoch = 1_500_000_000_000_000_000..2_500_000_000_000_000_000;
    let mut rows = rows_of(folder, table, |name, value| match value {
        _ if DIFFERENT.iter().any(|part| name.contains(part)) => false,
        Field::Double(_) => false,
        Field::Long(value) => name == "flow" || !epoch.contains(value),
        _ => true,
    });
    rows.sort_unstable();
    rows
}

#[track_caller]
fn rows_of(folder: &Path, table: &str, is_told: impl Fn(&str, &Field) -> bool) -> Vec<String> {
    let path = folder.join(format!("{table}.parquet"));
    let file = fs::File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let reader = SerializedFileReader::new(file).expect("it is whole");
    let rows = reader.get_row_iter(None).expect("its schema is ours");
    let tell = |row: Row| -> String {
        let told = row.get_column_iter().filter(|(name, value)| is_told(name, value));
        told.map(|(name, value)| format!(" {name}: {value},")).collect()
    };
    rows.map(|row| tell(row.expect("it is whole"))).collect()
}

/// Returns the sets in a folder, and its other files.
#[track_caller]
fn sets(folder: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("it is there").path()).collect();
    paths.sort();
    paths.into_iter().partition(|path| path.to_string_lossy().contains("/shard=20"))
}

#[track_caller]
fn document(path: &Path) -> Value {
    let text =
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).expect("JSON")
}

/// Returns the number after `name: ` in a row.
#[track_caller]
fn number(row: &str, name: &str) -> u64 {
    let (_, rest) =
        row.split_once(&format!(" {name}: ")).unwrap_or_else(|| panic!("{name}: {row}"));
    rest.split([',', '}']).next().and_then(|text| text.trim().parse().ok()).expect("a number")
}

#[test]
fn a_live_capture_says_what_is_said_of_its_own_file_and_of_tcpdumps() {
    needs!(NEEDS);
    let (out, _) = hosts(
        r#"
live live --live near -o $OUT/live --rotate 24h --packets --save-capture --json
tcpdump -i near --time-stamp-precision=nano -s 2048 --immediate-mode -B 8192 -U -w $OUT/near.pcap 2>$OUT/dump.log & DUMP=$!
eventually grep -qs listening $OUT/dump.log
$PEER 192.0.2.2 read bulk 3000000 & A=$!
$PEER 192.0.2.2 web 0 0 100000:0.05:0.1 2000:0:0 500:0.02:0
$PEER 192.0.2.2 put 200000
wait $A
printf '%s\n' "$TAGGED" > $OUT/tagged.py
far python3 $OUT/tagged.py
# The last packet: nobody answers it, and both captures end after it.
ping -q -b -n -c 1 -W 0.1 -p 6d616e7977617973 192.0.2.255 >/dev/null 2>&1 || true
eventually grep -qs manywaysmanyways $OUT/near.pcap
kill -TERM $LIVE; wait $LIVE
kill -INT $DUMP; wait $DUMP
$MANYWAYS flows $OUT/near.pcap -o $OUT/file --packets >/dev/null
$MANYWAYS flows $OUT/live/shard=*/capture.pcapng -o $OUT/own --packets >/dev/null
"#,
    );
    let (live, file) = (out.path().join("live"), out.path().join("file"));
    let (found, others) = sets(&live);
    assert!(found.len() == 1 && others.is_empty(), "{found:?} {others:?}");
    let (said, expected) =
        (document(&found[0].join("flows.json")), document(&file.join("flows.json")));
    for name in ["packets", "bytes", "flows", "valid_flows", "server_bytes", "not_ip_packets"] {
        assert_eq!(said[name], expected[name], "{name}");
    }
    assert_eq!(said["capture_lost"], 0);
    assert_eq!((&said["flows"], &said["tcp_broken"]), (&3.into(), &0.into()));
    // The kernel removes the VLAN tag of a frame, but counts its bytes.
    let mut tcpdump = Command::new("tcpdump");
    let tagged =
        finish(tcpdump.args(["-nn", "-r"]).arg(out.path().join("near.pcap")).arg("vlan 7"));
    assert_eq!(tagged.expect_success().stdout.lines().count(), 7);
    let tables = [("tcp", 3), ("udp", 1), ("http", 3), ("seconds", 3), ("packets", 100)];
    for (table, min) in tables {
        let rows = rows(&found[0], table);
        assert!(rows.len() >= min, "{table}: {}", rows.len());
        assert_eq!(rows, self::rows(&out.path().join("own"), table), "{table}");
        assert_eq!(timeless(&found[0], table), timeless(&file, table), "{table}");
    }
    let printed = document(&out.path().join("live.out"));
    assert_eq!(printed["flows"], 3);
}

#[test]
fn a_flow_that_outlasts_sets_has_one_row_with_all_of_its_bytes() {
    needs!(NEEDS);
    let (out, _) = hosts(
        r#"
live kept --live near -o $OUT/kept --rotate 1 --keep 2
live live --live near -o $OUT/live --rotate 1 --threads 2
$PEER 192.0.2.2 read every 0.1 35 20000 | tee $OUT/told
kill -INT $LIVES
wait $LIVE
for one in $LIVES; do wait $one; done
"#,
    );
    let (found, others) = sets(&out.path().join("live"));
    assert!(found.len() >= 4 && others.is_empty(), "{found:?} {others:?}");
    let flows: Vec<String> = found.iter().flat_map(|set| rows(set, "tcp")).collect();
    assert_eq!(flows.len(), 1, "{flows:#?}");
    assert_eq!(number(&flows[0], "down_bytes"), 700_000);
    assert_eq!(number(&flows[0], "down_unseen"), 0, "{}", flows[0]);
    // The row is in the last set, and its seconds are in the sets of their times.
    assert_eq!(rows(found.last().expect("there are some"), "tcp"), flows);
    let seconds: Vec<u64> = found
        .iter()
        .map(|set| rows(set, "seconds").iter().map(|row| number(row, "down_bytes")).sum())
        .collect();
    assert_eq!(seconds.iter().sum::<u64>(), 700_000, "{seconds:?}");
    assert!(seconds.iter().filter(|bytes| **bytes > 0).count() >= 3, "{seconds:?}");
    let of = |set: &PathBuf, name: &str| document(&set.join("flows.json"))[name].as_u64();
    let packets: Option<u64> = found.iter().map(|set| of(set, "packets")).sum();
    let (last, flow) = (found.last().expect("there are some"), &flows[0]);
    let all = number(flow, "up_packets") + number(flow, "down_packets");
    let arp: Option<u64> = found.iter().map(|set| of(set, "not_ip_packets")).sum();
    assert_eq!(packets, arp.map(|arp| arp + all));
    assert_eq!(of(last, "flows"), Some(1));
    assert_eq!(of(&found[0], "flows"), Some(0));
    let (kept, others) = sets(&out.path().join("kept"));
    assert!(kept.len() == 2 && others.is_empty(), "{kept:?} {others:?}");
    assert_eq!(rows(&kept[1], "tcp").len(), 1);
    let output = fs::read_to_string(out.path().join("live.out")).expect("it said something");
    let words = format!("{} sets in", found.len());
    assert!(output.contains("TCP flows    1, 100.00 %") && output.contains(&words), "{output}");
}

#[test]
fn what_a_killed_one_left_is_no_hindrance() {
    needs!(NEEDS);
    let (out, _) = hosts(
        r#"
live first --live near -o $OUT/live --rotate 1 --save-capture
$PEER 192.0.2.2 read every 0.1 10000 1000 & READER=$!
stopped_between_sets() {
    kill -STOP $LIVE
    ls -a $OUT/live > $OUT/left
    grep -q '^shard=20' $OUT/left && grep -q '^.part=20' $OUT/left && return
    kill -CONT $LIVE; return 1
}
eventually stopped_between_sets
kill -KILL $LIVE; wait $LIVE || true
kill $READER; wait $READER || true
closed() { [ -z "$(ss -Htn; far ss -Htn)" ]; }
eventually closed
live live --live near -o $OUT/live
$PEER 192.0.2.2 read bulk 1000
$MANYWAYS flows --live near -o $OUT/live 2>$OUT/busy && exit 1
kill -TERM $LIVE; wait $LIVE
$MANYWAYS flows --live near -o $OUT/short --duration 1
"#,
    );
    let left = fs::read_to_string(out.path().join("left")).expect("a list");
    assert!(left.contains(".part=20") && left.contains("\nshard=20"), "{left}");
    assert!(left.contains(".pcapng"), "{left}");
    let (found, others) = sets(&out.path().join("live"));
    assert!(found.len() >= 2 && others.is_empty(), "{found:?} {others:?}");
    for set in &found {
        assert_eq!(document(&set.join("flows.json"))["is_stopped"], false);
        for table in ["tcp", "udp", "http", "dns", "devices"] {
            rows(set, table);
        }
    }
    assert_eq!(rows(found.last().expect("there are some"), "tcp").len(), 1);
    let busy = fs::read_to_string(out.path().join("busy")).expect("a failure");
    assert!(busy.contains("another live capture writes into"), "{busy}");
}

#[test]
fn packets_that_found_no_room_are_reported() {
    needs!(NEEDS);
    let (out, _) = hosts(
        r#"
live live --live near -o $OUT/live --rotate 24h --snap 65535 --buffer 512KiB --save-capture
kill -STOP $LIVE
$PEER 192.0.2.2 read bulk 20000000
kill -CONT $LIVE
kill -TERM $LIVE; wait $LIVE
$MANYWAYS flows $OUT/live/shard=*/capture.pcapng --json >$OUT/again
"#,
    );
    let (found, _) = sets(&out.path().join("live"));
    let said = document(&found[0].join("flows.json"));
    let lost = said["capture_lost"].as_u64().expect("a number");
    assert!(lost > 0 && said["captures"][0]["lost"] == lost, "{said}");
    let again = document(&out.path().join("again"));
    for name in ["packets", "capture_lost", "flows", "uncaptured_bytes"] {
        assert_eq!(again[name], said[name], "{name}");
    }
    let printed = fs::read_to_string(out.path().join("live.out")).expect("it said something");
    assert!(
        printed.contains("Not captured") && printed.contains("by the capture's own count"),
        "{printed}"
    );
    let warned = fs::read_to_string(out.path().join("live.err")).expect("it said something");
    assert!(warned.contains("not captured") && warned.contains("--buffer"), "{warned}");
}

#[test]
fn an_interface_without_a_header_and_all_of_them() {
    needs!(NEEDS);
    let testbed = Testbed { links: vec!["l0:delay=5ms".into()], ..Testbed::default() };
    let script = format!(
        r#"
MANYWAYS={}
for name in l0 any lo; do
    $MANYWAYS flows --live $name --json >$OUT/$name.out 2>$OUT/$name.err & LIVES="$LIVES $!"
    eventually grep -qs 'capturing on' $OUT/$name.err
done
$PEER client read bulk 300000
kill -TERM $LIVES
for one in $LIVES; do wait $one; done
"#,
        manyways_path().display()
    );
    let captured = testbed.run(&script);
    for name in ["l0", "any"] {
        let said = document(&captured.path(&format!("{name}.out")));
        let count = |name: &str| said[name].as_u64().expect("a number");
        assert_eq!((count("flows"), count("valid_flows")), (1, 1), "{name}: {said}");
        // The kernel may retransmit segments on a loaded machine.
        let repeated = 1448 * count("retransmitted");
        let bytes = count("server_bytes");
        assert!((300_000..=300_000 + repeated).contains(&bytes), "{name}: {said}");
        assert_eq!(said["captures"][0]["name"], *name);
        assert_eq!(said["not_ip_packets"], 0);
    }
    assert_eq!(document(&captured.path("lo.out"))["packets"], 0);
}

#[test]
fn who_may_not_capture_or_has_no_such_interface_is_told() {
    needs!(NEEDS);
    let missing = finish(manyways().args(["flows", "--live", "nope0"]));
    assert_eq!(missing.code(), 1);
    assert!(missing.stderr.contains("there is no interface nope0"), "{}", missing.stderr);
    assert!(missing.stderr.contains("hint: the interfaces are: lo"), "{}", missing.stderr);
    let dir = folder();
    let mut without = Command::new("setpriv");
    without.args(["--bounding-set=-net_raw", "--inh-caps=-net_raw", "--"]).arg(manyways_path());
    let refused =
        finish(without.args(["flows", "--live", "lo", "-o"]).arg(dir.path().join("sets")));
    assert_eq!(refused.code(), 1);
    assert!(refused.stderr.contains("capturing packets is not allowed"), "{}", refused.stderr);
    assert!(refused.stderr.contains("setcap cap_net_raw"), "{}", refused.stderr);
    assert!(!dir.path().join("sets").exists());
}

/// An interface that reappears is not captured again. Earlier packets are kept.
#[test]
fn an_interface_that_goes_away_ends_it() {
    needs!(NEEDS);
    let (out, _) = hosts(
        r#"
live live --live near -o $OUT/live
$PEER 192.0.2.2 read bulk 1000
ip link set near down; ip link set near up
$PEER 192.0.2.2 read bulk 1000
ip link set near down
eventually grep -qs 'Network is down' $OUT/live.err
ip link del near
wait $LIVE && exit 1
true
"#,
    );
    // Two, if a rotation was due meanwhile.
    let (found, _) = sets(&out.path().join("live"));
    assert_eq!(found.iter().map(|set| rows(set, "tcp").len()).sum::<usize>(), 2);
    let output = fs::read_to_string(out.path().join("live.err")).expect("it said something");
    assert!(output.contains("near: the interface was removed"), "{output}");
}
