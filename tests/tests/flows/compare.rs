//! Comparison with tcptrace and tshark: equal values, or an explained difference.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use manyways_tests::{Need, finish, missing, needs};

use crate::rows::{Row, Tables};
use crate::testbed::{NEEDS, Testbed};

/// Both endpoints, by the prefixes of our columns and of tcptrace's.
const ENDPOINTS: [(&str, &str); 2] = [("up", "a2b"), ("down", "b2a")];

/// Arguments of the connections, and the bytes that each endpoint then sends.
const CONNECTIONS: [(&str, i64, i64); 5] = [
    ("read bulk 2000000", 13, 2_000_000),
    ("put 1500000", 1_500_013, 6),
    ("ask 10 0.05 0.02 5000", 160, 50_000),
    ("read every 0.01 50 700", 18, 35_000),
    ("read bulk 1", 7, 1),
];

/// The maximum payload of a segment in this test, and the maximum number of segments per captured
/// packet.
const MAX_SEGMENT: i64 = 1_448;
const MAX_MERGED: i64 = 65_536 / MAX_SEGMENT;

/// One connection of tcptrace: its columns by name.
type TcptraceRow = BTreeMap<String, String>;

/// Counters of tshark for the segments of one endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct TsharkCounts {
    frames: i64,
    payload: i64,
    ip: i64,
    retransmitted: i64,
    out_of_order: i64,
    /// Whether there are ACKs after data that had not passed.
    has_ack_gap: bool,
    /// Number of frames that repeat some bytes, and carry others for the first time although later
    /// ones had passed.
    partly_lost: i64,
}

/// Connections by the client's port.
fn tcptrace(file: &Path) -> BTreeMap<i64, TcptraceRow> {
    let done = finish(Command::new("tcptrace").args(["-l", "-r", "-n", "--csv"]).arg(file));
    let done = done.expect_success();
    let mut lines = done.stdout.lines().filter(|line| line.contains(',') && !line.starts_with('#'));
    let split = |line: &str| line.split(',').map(|part| part.trim().to_owned()).collect::<Vec<_>>();
    let names = lines.next().map(split).expect("tcptrace says what its columns are");
    let traced = lines.map(|line| names.iter().cloned().zip(split(line)).collect::<TcptraceRow>());
    traced.map(|one| (number(&one, "port_a") as i64, one)).collect()
}

#[track_caller]
fn number(traced: &TcptraceRow, name: &str) -> f64 {
    let text = traced.get(name).unwrap_or_else(|| panic!("tcptrace has no {name}"));
    text.parse().unwrap_or_else(|_| panic!("tcptrace says of {name}: {text}"))
}

/// Number of conversations, and the counters of each endpoint, by the client's port.
fn tshark(file: &Path) -> (usize, BTreeMap<(i64, &'static str), TsharkCounts>) {
    let run = |words: &[&str]| {
        let mut tshark = Command::new("tshark");
        finish(tshark.args(["-n", "-r"]).arg(file).args(words)).expect_success().stdout
    };
    let talks = run(&["-q", "-z", "conv,tcp"]).lines().filter(|line| line.contains("<->")).count();
    let fields = [
        "srcport",
        "dstport",
        "len",
        "seq",
        "analysis.retransmission",
        "analysis.out_of_order",
        "analysis.lost_segment",
    ];
    let fields: String = fields.iter().map(|name| format!(" -e tcp.{name}")).collect();
    let words: Vec<&str> = ["-Y", "tcp", "-T", "fields", "-e", "ip.len"]
        .into_iter()
        .chain(fields.split_whitespace())
        .collect();
    let mut ends: BTreeMap<_, TsharkCounts> = BTreeMap::new();
    let mut passed: BTreeMap<_, Vec<bool>> = BTreeMap::new();
    for line in run(&words).lines() {
        let parts: Vec<&str> = line.split('\t').collect();
        let [ip, from, to, payload, seq, again, out_of_order, lost] = parts[..] else {
            panic!("{line}")
        };
        let whole = |text: &str| text.parse::<i64>().unwrap_or_else(|_| panic!("{line}"));
        let key = if from == "80" { (whole(to), "down") } else { (whole(from), "up") };
        let end = ends.entry(key).or_default();
        end.frames += 1;
        end.ip += whole(ip);
        end.payload += whole(payload);
        // tshark sets this flag also for fast and spurious retransmissions.
        end.retransmitted += i64::from(!again.is_empty());
        end.out_of_order += i64::from(!out_of_order.is_empty());
        end.has_ack_gap |= !lost.is_empty() && payload == "0";
        let passed = passed.entry(key).or_default();
        end.partly_lost += i64::from(is_partly_lost(passed, whole(seq), whole(payload)));
    }
    (talks, ends)
}

/// Adds a segment to the bytes that `passed`, by relative sequence number. Returns whether below
/// the highest byte so far some of its bytes had passed and others had not; new bytes do not count.
fn is_partly_lost(passed: &mut Vec<bool>, seq: i64, payload: i64) -> bool {
    let (from, to) = (seq as usize, (seq + payload) as usize);
    let old = passed.get(from..to.min(passed.len())).unwrap_or_default();
    let is_partly = old.contains(&true) && old.contains(&false);
    passed.resize(passed.len().max(to), false);
    passed[from..to].fill(true);
    is_partly
}

#[test]
fn only_a_segment_over_a_gap_and_its_edge_is_partly_lost() {
    let mut passed = Vec::new();
    let segments = [(1, 100), (201, 100), (101, 150), (301, 100), (351, 100), (1, 50)];
    let partly = segments.map(|(seq, payload)| is_partly_lost(&mut passed, seq, payload));
    assert_eq!(partly, [false, false, true, false, false, false]);
}

/// Retransmitted segments of any cause. The other programs also count SYNs and FINs.
fn retransmitted(flow: &Row, end: &str) -> i64 {
    const KINDS: [&str; 6] = [
        "retransmitted_fast",
        "retransmitted_timeout",
        "retransmitted_probe",
        "retransmitted_spurious",
        "syns_again",
        "fins_again",
    ];
    KINDS.iter().map(|kind| flow.count(&format!("{end}_{kind}"))).sum()
}

struct Differences<'a> {
    subject: &'a str,
    /// Lateness of the lab in milliseconds.
    late: f64,
    all: &'a mut Vec<String>,
}

impl Differences<'_> {
    fn check_equal<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, ours: T, theirs: T) {
        self.check(ours == theirs, || format!("{what}: {ours:?}, they say {theirs:?}"));
    }

    fn check(&mut self, is_right: bool, why: impl FnOnce() -> String) {
        if !is_right {
            self.all.push(format!("{}: {}", self.subject, why()));
        }
    }
}

/// Compares one endpoint with tcptrace. `skips` is whether an ACK without data was sent after data
/// that had been lost before the capture point: tcptrace ignores these ACKs, so our number of lost
/// segments may be larger. tcptrace counts a frame with lost and with retransmitted bytes only as a
/// retransmission: our number of lost segments may be larger by the number of these, `partly_lost`.
fn with_tcptrace(
    flow: &Row,
    traced: &TcptraceRow,
    (end, theirs): (&str, &str),
    (skips, partly_lost): (bool, i64),
    wrong: &mut Differences<'_>,
) {
    let count = |name: &str| flow.count(&format!("{end}_{name}"));
    let said = |name: &str| number(traced, &format!("{name}_{theirs}"));
    wrong.check_equal("packets", count("packets"), said("total_packets") as i64);
    wrong.check_equal("bytes", count("bytes"), said("actual_data_bytes") as i64);
    // tcptrace reports only that a segment passed twice; if the first copy was lost before the
    // capture point, it counts the second one as out of order, like reordered segments. And it
    // counts captured packets, which may contain several segments: our number of retransmissions of
    // merged segments may be larger.
    let (twice, late) = (said("rexmt_data_pkts") as i64, said("outoforder_pkts") as i64);
    let (again, reordered) = (retransmitted(flow, end), count("reordered"));
    let merged = said("max_segm_size") as i64 > MAX_SEGMENT;
    // Each packet may end with a short segment.
    let more = if merged { said("rexmt_data_bytes") as i64 / MAX_SEGMENT + twice } else { 0 };
    let missing = count("lost_before") + reordered;
    let untold = if skips { count("lost_before") } else { 0 };
    let max = twice.max(more) + late + untold;
    wrong.check((twice + late..=max).contains(&(again + reordered)), || {
        format!("again {again}, overtaken {reordered}; they say {twice} again, {late} out of order")
    });
    wrong.check((late..=late + untold.max(partly_lost)).contains(&missing), || {
        format!("lost before or overtaken: {missing}, they say {late}")
    });
    // tcptrace also requires that no later segment passed before the ACK, but prints tenths of
    // milliseconds, and includes SYNs, which have a separate column here, and FINs: its minimum can
    // be that of the FIN, if all other packets were later.
    let near = if end == "up" { "up_remote_rtt" } else { "local_rtt" };
    let shake = if end == "up" { "handshake_server_rtt" } else { "handshake_client_rtt" };
    let millis = |name: &str| flow.number(name).map(|seconds| seconds * 1_000.0);
    let is_near = |ours: f64, theirs: f64| (ours - theirs).abs() <= 0.051;
    if let Some(shake) = millis(shake) {
        let theirs = said("RTT_from_3WHS");
        wrong.check(is_near(shake, theirs), || format!("handshake {shake} ms, they say {theirs}"));
    }
    if let Some(min) = millis(&format!("{near}_min")) {
        let (ours, theirs) = (millis(shake).map_or(min, |it| it.min(min)), said("RTT_min"));
        let is_later = (theirs..theirs + wrong.late).contains(&ours);
        let is_right = is_near(ours, theirs) || is_later && ours <= said("RTT_max") + 0.051;
        wrong.check(is_right, || format!("least {ours} ms, they say {theirs}"));
    }
    // tcptrace has the mean instead of the median; they differ by at most one standard deviation. Of
    // less than three samples it prints 0, and one of them can be that of the FIN.
    if let Some(median) = millis(near) {
        let (mean, deviation) = (said("RTT_avg"), said("RTT_stdev"));
        let deviates = if deviation == 0.0 { wrong.late } else { deviation };
        wrong.check((median - mean).abs() <= deviates + 0.5, || {
            format!("median {median} ms, they say {mean} and a deviation of {deviation}")
        });
    }
}

/// Compares one endpoint with tshark.
fn with_tshark(flow: &Row, end: &str, counts: TsharkCounts, wrong: &mut Differences<'_>) {
    let count = |name: &str| flow.count(&format!("{end}_{name}"));
    let ours = [count("packets"), count("bytes"), count("ip_bytes")];
    wrong.check_equal("packets, bytes, IP bytes", ours, [counts.frames, counts.payload, counts.ip]);
    // tshark classifies retransmissions as out of order by a limit of a few milliseconds: only the
    // sum is comparable. It counts captured packets.
    let again = retransmitted(flow, end) + count("reordered");
    let theirs = counts.retransmitted + counts.out_of_order;
    let max = if count("data_segments") > count("packets") { theirs * MAX_MERGED } else { theirs };
    wrong.check((theirs..=max).contains(&again), || format!("again {again}, they say {counts:?}"));
}

/// A packet that is later than this can cause a retransmission: Linux waits for 200 ms and more.
const LATE: Duration = Duration::from_millis(100);

// Slow: three labs, each with two captures that three programs analyse.
#[test]
fn tcptrace_and_tshark_agree() {
    needs!(NEEDS, Need::Command("tcptrace"), Need::Command("ethtool"));
    let has_tshark = missing(&[Need::Command("tshark")]).is_none();
    if !has_tshark {
        eprintln!("without tshark, which is not there");
    }
    let apart = "ethtool -K net tso off gso off gro off >/dev/null";
    let clean = "net:down=40mbit,up=40mbit,delay=15ms,queue=1s";
    let lossy = "net:down=40mbit,up=40mbit,delay=15ms,loss=2%";
    let (mut wrong, mut sums) = (Vec::new(), BTreeMap::<_, i64>::new());
    let (mut kept, mut untraced, mut clean_lateness) = (Vec::new(), 0, Duration::ZERO);
    for (world, link, before) in [
        ("clean", clean, apart),
        ("lossy", lossy, apart),
        ("merged", "net:delay=15ms,loss=1%", "true"),
    ] {
        let links = vec![link.to_owned()];
        let clients: String =
            CONNECTIONS.iter().map(|(words, ..)| format!("$PEER client {words}\n")).collect();
        let captured = Testbed {
            links,
            server_setup: before,
            captures_at_server: true,
            seed: 3,
            ..Testbed::default()
        }
        .run(&format!("{before}\n{clients}"));
        let late = captured.lateness().as_secs_f64() * 1_000.0;
        let ports = captured.ports();
        assert_eq!(ports.len(), CONNECTIONS.len(), "{}", captured.stdout);
        for side in ["net", "net-server"] {
            let file = captured.path(&format!("{side}.pcap"));
            let (tables, traced) = (Tables::of(&file), tcptrace(&file));
            assert_eq!(tables.table("tcp").len(), CONNECTIONS.len(), "{world}, {side}: {ports:?}");
            let (talks, sharked) =
                if has_tshark { tshark(&file) } else { (CONNECTIONS.len(), BTreeMap::new()) };
            assert_eq!(talks, CONNECTIONS.len(), "{world}");
            for (port, (words, up, down)) in ports.iter().zip(CONNECTIONS) {
                let flow = tables.flow(*port);
                // On rare occasions tcptrace lists four of the five connections that tshark and the
                // script of the clients agree on.
                let Some(traced) = traced.get(&i64::from(*port)) else {
                    eprintln!("{world}, {side}: tcptrace omits port {port} of {ports:?}");
                    untraced += 1;
                    continue;
                };
                for (end, unique) in ENDPOINTS.into_iter().zip([up, down]) {
                    let of = format!("{world}, {side}, {words}, {}", end.0);
                    let mut wrong = Differences { subject: &of, late, all: &mut wrong };
                    // The true value, which tshark finds if the last copy of each segment passed.
                    let said = number(traced, &format!("unique_bytes_sent_{}", end.1)) as i64;
                    wrong.check_equal("unique bytes", unique, said);
                    let said = sharked.get(&(i64::from(*port), end.0));
                    // Unknown without tshark.
                    let skips = said.is_none_or(|counts| counts.has_ack_gap);
                    let partly_lost = said.map_or(0, |counts| counts.partly_lost);
                    with_tcptrace(flow, traced, end, (skips, partly_lost), &mut wrong);
                    if let Some(counts) = said {
                        with_tshark(flow, end.0, *counts, &mut wrong);
                    }
                    *sums.entry((world, side)).or_default() += retransmitted(flow, end.0);
                }
            }
        }
        if world == "clean" {
            clean_lateness = captured.lateness();
        }
        kept.push(captured);
    }
    eprintln!("sent again: {sums:?}");
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(untraced <= usize::from(has_tshark), "tcptrace omits {untraced} connections");
    // The comparison must not be empty.
    for ((world, side), sum) in sums {
        let least = if world == "lossy" { 20 } else { i64::from(world == "merged") };
        assert!(sum >= least, "{world}, {side}: {sum}");
        // A sender retransmits without a loss only if a packet was later than its timeout.
        assert!(world != "clean" || sum == 0 || clean_lateness > LATE, "{side}: {sum}");
    }
}
