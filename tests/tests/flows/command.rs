//! Errors of `manyways flows`, and its end by a signal.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;

use manyways_tests::{Finished, finish, folder, manyways};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// More bytes than a pipe and a reader's buffer hold together.
const MANY: u32 = 4_000;
/// More bytes than a pipe holds.
const PIPE: usize = 1 << 16;
const ETHERNET: u32 = 1;

/// A capture of UDP datagrams of 100 bytes, each of another flow.
fn capture(packets: u32) -> Vec<u8> {
    let mut bytes = header(ETHERNET);
    for number in 0..packets {
        let mut frame = vec![0; 12];
        frame.extend([0x08, 0x00, 0x45, 0, 0, 86, 0, 0, 0, 0, 64, 17, 0, 0]);
        frame.extend([10, 0, (number >> 8) as u8, number as u8, 192, 0, 2, 1]);
        frame.extend([0x9c, 0x40, 0x0f, 0xa0, 0, 66, 0, 0]);
        frame.resize(100, 7);
        record(&mut bytes, number, &frame);
    }
    bytes
}

fn header(link: u32) -> Vec<u8> {
    let mut bytes = 0xa1b2_c3d4_u32.to_le_bytes().to_vec();
    bytes.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend([65_535, link].map(u32::to_le_bytes).concat());
    bytes
}

/// A packet at `millis` milliseconds.
fn record(bytes: &mut Vec<u8>, millis: u32, frame: &[u8]) {
    let length = frame.len() as u32;
    let numbers = [1_700_000_000 + millis / 1_000, millis % 1_000 * 1_000, length, length];
    bytes.extend(numbers.map(u32::to_le_bytes).concat());
    bytes.extend(frame);
}

fn flows(words: &[&Path]) -> Finished {
    finish(manyways().arg("flows").args(words))
}

/// A command that runs until a signal, and the writing end of its standard input.
fn waiting(words: &[&Path]) -> (Child, impl Write + use<>) {
    let mut command = manyways();
    command.arg("flows").args(words).process_group(0);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let input = child.stdin.take().expect("piped");
    (child, input)
}

fn signalled(child: Child, signal: Signal) -> Output {
    let pid = i32::try_from(child.id()).expect("a pid is an i32");
    kill(Pid::from_raw(pid), signal).expect("it runs");
    child.wait_with_output().expect("it ends")
}

/// All bytes beyond the capacity of the pipe were read, and count.
fn keeps_what_was_read(done: &Output, signal: Signal) {
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(128 + signal as i32), "{said}");
    assert!(said.contains("stopped before the end") && !said.contains("middle"), "{said}");
    let document: Value = serde_json::from_slice(&done.stdout).expect("a document");
    let min = MANY as usize - PIPE / 116 - 1;
    let packets = document["packets"].as_u64().expect("a number") as usize;
    assert!((min..=MANY as usize).contains(&packets), "{packets} of {MANY}, not {min}");
    assert_eq!(document["is_stopped"], true);
}

#[test]
fn a_signal_ends_a_run_that_waits_for_standard_input_and_keeps_what_was_read() {
    for (signal, threads) in [(Signal::SIGTERM, "--threads=1"), (Signal::SIGINT, "--threads=2")] {
        let words = ["-", "--json", threads].map(Path::new);
        let (child, mut input) = waiting(&words);
        // The writer stays open and writes nothing more.
        input.write_all(&capture(MANY)).expect("it reads");
        keeps_what_was_read(&signalled(child, signal), signal);
        drop(input);
    }
}

#[test]
fn a_signal_ends_a_run_that_waits_for_a_fifo_and_keeps_what_was_read() {
    let dir = folder();
    let fifo = dir.path().join("fifo");
    finish(Command::new("mkfifo").arg(&fifo)).expect_success();
    let (child, _) = waiting(&[&fifo, Path::new("--json")]);
    // Opens when the reader has opened its end.
    let mut writer = File::options().write(true).open(&fifo).expect("it opens");
    writer.write_all(&capture(MANY)).expect("it reads");
    keeps_what_was_read(&signalled(child, Signal::SIGTERM), Signal::SIGTERM);
}

#[test]
fn a_signal_ends_a_run_on_a_fifo_that_nobody_writes_to() {
    let dir = folder();
    let fifo = dir.path().join("fifo");
    finish(Command::new("mkfifo").arg(&fifo)).expect_success();
    let (child, _) = waiting(&[&fifo]);
    let open = format!("/proc/{}/fd", child.id());
    let has_opened = || {
        let files = fs::read_dir(&open).into_iter().flatten().flatten();
        files.into_iter().any(|file| fs::read_link(file.path()).is_ok_and(|file| file == fifo))
    };
    while !has_opened() {
        thread::yield_now();
    }
    let done = signalled(child, Signal::SIGTERM);
    assert_eq!(done.status.code(), Some(143), "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn what_is_no_capture_is_one_error_and_no_summary() {
    let dir = folder();
    let file = |name: &str, bytes: &[u8]| {
        fs::write(dir.path().join(name), bytes).expect("a file is written");
        dir.path().join(name)
    };
    let random: Vec<u8> =
        (0..9_999_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let out = dir.path().join("out");
    let cases = [
        (file("empty", b""), "the capture is empty"),
        (file("notes.txt", b"what passed today\n"), "not a capture"),
        (file("random", &random), "not a capture"),
        (
            file("zeros.pcap", &[header(ETHERNET), vec![0; 1 << 20]].concat()),
            "not written completely",
        ),
    ];
    for (path, reason) in &cases {
        for more in [&[][..], &[Path::new("--json")], &[Path::new("-o"), &out]] {
            let done = flows(&[&[path.as_path()], more].concat());
            assert_eq!((done.code(), done.stdout.as_str()), (1, ""), "{}", done.stderr);
            let lines: Vec<&str> = done.stderr.lines().collect();
            assert_eq!(lines.len(), 2, "{}", done.stderr);
            assert!(lines[0].contains(reason) && lines[0].contains(path.to_str().unwrap_or("?")));
            assert!(lines[1].starts_with("hint: captures are pcap, pcapng or btsnoop"));
            assert!(!out.exists());
        }
    }
    let both = flows(&[&cases[0].0, &cases[1].0]);
    assert_eq!((both.code(), both.stdout.as_str()), (1, ""));
    assert!(both.stderr.contains("none of 2 captures can be read"), "{}", both.stderr);
    // Together with a readable capture it is still an error.
    let good = file("good.pcap", &capture(3));
    let done = flows(&[&good, &cases[1].0]);
    assert_eq!(done.code(), 1);
    assert!(done.stdout.contains("Packets      3 in 2 captures"), "{}", done.stdout);
    assert!(done.stderr.contains("hint: the results cover the packets before"), "{}", done.stderr);
}

#[test]
fn zeros_behind_the_packets_are_told_and_are_no_packets() {
    let dir = folder();
    let path = dir.path().join("a.pcap");
    let whole = capture(3);
    fs::write(&path, [&whole[..], &vec![0; 1 << 20]].concat()).expect("a file is written");
    let done = flows(&[&path]);
    assert_eq!(done.code(), 1);
    assert!(done.stdout.contains("Packets      3 in 1 capture"), "{}", done.stdout);
    let place = format!("not written completely (at byte {})", whole.len());
    assert!(done.stderr.contains(&place), "{}", done.stderr);
}

#[test]
fn packets_that_are_not_ip_are_told_by_their_reason() {
    let dir = folder();
    let path = dir.path().join("a.pcap");
    // From a phone: the Linux cooked header, with Qualcomm's number.
    let mut bytes = header(113);
    for number in 0..5 {
        let frame = [&[0, 4, 2, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xf9][..], &[7; 60]].concat();
        record(&mut bytes, number, &frame);
    }
    fs::write(&path, &bytes).expect("a file is written");
    let done = flows(&[&path]).expect_success();
    assert!(done.stdout.contains("Not IP       Qualcomm MAP (0x00f9) 5\n"), "{}", done.stdout);
    // Truncated before any header.
    let mut cut = header(ETHERNET);
    (0..9).for_each(|number| record(&mut cut, number, &[0; 10]));
    fs::write(&path, &cut).expect("a file is written");
    let done = flows(&[&path]).expect_success();
    assert!(
        done.stdout.contains("Not IP       truncated or broken before IP 9\n"),
        "{}",
        done.stdout
    );
    assert!(done.stderr.contains("9 packets, more than half, are truncated"), "{}", done.stderr);
    // An unsupported link type is an error that contains its name.
    let mut other = header(239);
    record(&mut other, 0, &[0; 60]);
    fs::write(&path, &other).expect("a file is written");
    let done = flows(&[&path]);
    assert_eq!(done.code(), 1);
    assert!(
        done.stderr.contains("cannot decode 1 packet: link type 239 (NFLOG)"),
        "{}",
        done.stderr
    );
    assert!(
        done.stderr.contains("hint: capture on the interface of the packets"),
        "{}",
        done.stderr
    );
}

#[test]
fn packets_that_are_not_read_are_told_with_their_number_and_a_hint() {
    let dir = folder();
    let path = dir.path().join("a.pcap");
    let packet = |protocol: u8, payload: &[u8]| {
        let length = (20 + payload.len()) as u8;
        let head = [0x45, 0, 0, length, 0, 7, 0, 0, 64, protocol, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2];
        [&[2; 12][..], &[8, 0], &head, payload].concat()
    };
    let mut bytes = header(ETHERNET);
    for number in 0..3 {
        record(&mut bytes, number, &packet(47, &[&[0, 0, 0x88, 0x3e][..], &[0; 40]].concat()));
    }
    record(&mut bytes, 3, &packet(1, &[8, 0, 0, 0]));
    // UDP with a truncated header.
    record(&mut bytes, 4, &packet(17, &[0, 53, 0, 53]));
    fs::write(&path, &bytes).expect("a file is written");
    let done = flows(&[&path]).expect_success();
    for words in [
        "UDP 0, other IP 4, not IP 0, UDP truncated or malformed 1\n",
        "3 packets in GRE protocol 0x883e (WCCP): not read (capture before or after the tunnel)\n",
        "1 packet in IP protocol 1 (ICMP)\n",
    ] {
        assert!(done.stdout.contains(words), "{words}: {}", done.stdout);
    }
    let done = flows(&[&path, Path::new("--json")]).expect_success();
    for words in ["\"udp_broken\":1", "\"carrier\":\"gre-protocol\",\"number\":34878"] {
        assert!(done.stdout.replace([' ', '\n'], "").contains(words), "{words}: {}", done.stdout);
    }
}

#[test]
fn the_error_of_a_filter_points_at_its_place_on_lines_of_its_own() {
    let words = ["none.pcap", "--filter", "host 10.0.0.1 and\nport htttp"].map(Path::new);
    let done = flows(&words);
    assert_eq!((done.code(), done.stdout.as_str()), (2, ""), "{}", done.stderr);
    let lines: Vec<&str> = done.stderr.lines().collect();
    let expected = [
        "manyways: `htttp` is not a port",
        "  host 10.0.0.1 and port htttp",
        "                         ^^^^^",
        "hint: a port is a number up to 65535 or a well-known name: port 443, port https",
    ];
    assert_eq!(lines, expected);
}

/// The document of a run on these packets, with the time of each in milliseconds.
fn document(packets: &[(u32, Vec<u8>)], words: &[&str]) -> (Value, String) {
    let dir = folder();
    let file = dir.path().join("a.pcap");
    let mut bytes = header(ETHERNET);
    packets.iter().for_each(|(at, frame)| record(&mut bytes, *at, frame));
    fs::write(&file, bytes).expect("a file is written");
    let words: Vec<&Path> =
        [file.as_path()].into_iter().chain(words.iter().map(Path::new)).collect();
    let text = flows(&words).expect_success().stdout;
    let done = flows(&[&words[..], &[Path::new("--json")]].concat()).expect_success();
    (serde_json::from_str(&done.stdout).expect("a document"), text)
}

/// A datagram of the first flow of [`capture`].
fn datagram() -> Vec<u8> {
    capture(1)[24 + 16..].to_vec()
}

#[test]
fn the_idle_timeout_applies_to_udp() {
    let dir = folder();
    let packets = [(0, datagram()), (150_000, datagram()), (460_000, datagram())];
    for (idle, rows) in [(None, 2), (Some("--idle=100"), 3), (Some("--idle=400"), 1)] {
        let out = dir.path().join(idle.unwrap_or("default"));
        let out = ["-o", out.to_str().expect("a path"), "--force"];
        let words: Vec<&str> = out.into_iter().chain(idle).collect();
        let (document, _) = document(&packets, &words);
        let tables = document["tables"].as_array().expect("tables");
        let udp = tables.iter().find(|table| table["name"] == "udp").expect("a table");
        assert_eq!(udp["rows"], rows, "{idle:?}");
    }
}

#[test]
fn packets_in_another_order_than_that_of_time_are_told_with_a_hint() {
    let order = [95_000, 0, 1_000, 2_000];
    let packets = order.map(|at| (at, datagram()));
    let (document, text) = document(&packets, &[]);
    assert_eq!((&document["seconds"], &document["recorded_seconds"]), (&95.0.into(), &95.0.into()));
    assert_eq!(document["clock_steps_back"], 1);
    assert!(text.contains("4 in 1 capture, 400 B, 95 s\n"), "{text}");
    assert!(text.contains("Time order   1 packet is earlier than the packet before"), "{text}");
    assert!(text.contains("reordercap") && text.contains("mergecap"), "{text}");
}

#[test]
fn hosts_of_arp_match_a_filter() {
    let arp = |tag: &[u8]| {
        let head = [&[0xff; 6][..], &[2; 6], tag, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]].concat();
        [&head[..], &[2; 6], &[10, 0, 0, 1], &[0; 6], &[10, 0, 0, 2]].concat()
    };
    let packets = [(0, arp(&[])), (1, arp(&[0x81, 0, 0, 7])), (2, datagram())];
    for (filter, count) in [
        ("host 10.0.0.1", 2),
        ("dst host 10.0.0.2", 2),
        ("src net 10.0.0.0/24", 3),
        ("arp host 10.0.0.1 and not vlan", 1),
        ("host 10.0.0.3", 0),
    ] {
        let (document, _) = document(&packets, &["--filter", filter]);
        assert_eq!(document["packets"], count, "{filter}");
    }
}

#[test]
fn a_folder_whose_links_make_a_loop_is_read_once() {
    let dir = folder();
    fs::write(dir.path().join("a.pcap"), capture(3)).expect("a file is written");
    symlink(".", dir.path().join("loop")).expect("a link is made");
    symlink("nowhere", dir.path().join("gone")).expect("a link is made");
    let done = flows(&[dir.path()]).expect_success();
    assert!(done.stdout.contains("Packets      3 in 1 capture"), "{}", done.stdout);
    assert!(
        done.stderr.contains("skipped in folders, because they are not captures: 1 file"),
        "{}",
        done.stderr
    );
}

#[test]
fn no_command_writes_over_what_it_reads_or_into_a_folder_that_it_reads() {
    let dir = folder();
    let path = |name: &str| dir.path().join(name);
    let captures = path("captures");
    fs::create_dir(&captures).expect("a folder is made");
    let one = captures.join("a.pcap");
    fs::write(&one, capture(3)).expect("a file is written");
    let tables = path("tables");
    let [o, force, report, packets] = ["-o", "--force", "--report", "--packets"].map(Path::new);
    flows(&[&captures, o, &tables, packets]).expect_success();
    let refused = |words: &[&str]| {
        let mut command = manyways();
        let done = finish(command.current_dir(dir.path()).args(words));
        assert_eq!((done.code(), done.stdout.as_str()), (2, ""), "{words:?}: {}", done.stderr);
        let is_told = done.stderr.contains("which is an input")
            || done.stderr.contains("is both input and output")
            || done.stderr.contains("is used twice");
        assert!(is_told && done.stderr.contains("hint: "), "{words:?}: {}", done.stderr);
    };
    refused(&["flows", "captures", "-o", "captures"]);
    refused(&["flows", "captures", "-o", "./tables/../captures", "--force"]);
    refused(&["flows", "captures", "--report", "captures/a.pcap"]);
    refused(&["flows", "align", "captures", "server=captures", "-o", "captures"]);
    refused(&["flows", "export", "tables", "--format", "csv", "-o", "tables", "--force"]);
    refused(&[
        "flows",
        "export",
        "tables",
        "--format",
        "ipfix",
        "-o",
        "tables/udp.parquet",
        "--force",
    ]);
    refused(&["flows", "ask", "tables", "rtt", "--plot", "tables/rtt.svg"]);
    let radio = ["radio", "energy", "tables", "--profile", "lte"];
    refused(&[&radio[..], &["--timeline", "tables/packets.parquet"]].concat());
    refused(&[&radio[..], &["--report", "tables/day.html"]].concat());
    let radio = ["radio", "simulate", "tables", "--profile", "lte"];
    refused(&[&radio[..], &["--parquet", "tables/runs.parquet"]].concat());
    let infer = ["radio", "infer", "tables", "--power", "p.csv", "--profile", "lte", "-o"];
    refused(&[&infer[..], &["tables/mine.toml"]].concat());
    assert_eq!(fs::read(&one).expect("it is there"), capture(3));
    // A report may be in the folder of the captures, and tables in a folder below it.
    flows(&[&captures, report, &captures.join("a.html")]).expect_success();
    flows(&[&captures, o, &captures.join("tables"), force]).expect_success();
}

#[test]
fn tables_do_not_go_over_sets_of_a_live_capture() {
    let dir = folder();
    let (path, sets) = (dir.path().join("a.pcap"), dir.path().join("sets"));
    fs::write(&path, capture(3)).expect("a file is written");
    fs::create_dir_all(sets.join("shard=2026-01-31T12-00-00Z")).expect("folders are made");
    for force in [&[][..], &[Path::new("--force")]] {
        let done = flows(&[&[path.as_path(), Path::new("-o"), &sets], force].concat());
        assert_eq!((done.code(), done.stdout.as_str()), (1, ""));
        assert!(done.stderr.contains("contains sets of tables"), "{}", done.stderr);
        assert_eq!(fs::read_dir(&sets).expect("it is there").count(), 1);
    }
}
