use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ::parquet::file::reader::{FileReader, SerializedFileReader};

use super::*;
use manyways_flows::analysis::{Aggregator, Analysis, Counters, Settings, Summary};
use manyways_record::table::{Batch, Schema};
use manyways_unit::Span;
use manyways_wire::capture::{Reader, Step};

/// A capture of `flows` connections between clients and servers, each with a request and a later
/// response.
pub(super) fn capture(flows: u8, format: impl Fn(u64) -> u64) -> Vec<u8> {
    let mut bytes = 0xa1b2_3c4d_u32.to_le_bytes().to_vec();
    bytes.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend([65_535_u32, 1].map(u32::to_le_bytes).concat());
    let mut packets = Vec::new();
    for flow in 0..flows {
        let start = u64::from(flow) * 7;
        let mut say = |at: u64, is_up: bool, numbers: [u32; 2], flags: u8, payload: &[u8]| {
            packets.push((start + at, frame(flow, is_up, numbers, flags, payload)));
        };
        say(0, true, [100, 0], 0x02, b"");
        say(20, false, [500, 101], 0x12, b"");
        say(21, true, [101, 501], 0x10, b"");
        let question = b"GET /a HTTP/1.1\r\nHost: www.example.net\r\n\r\n";
        say(30, true, [101, 501], 0x18, question);
        let asked = 101 + question.len() as u32;
        let answer =
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 5\r\n\r\nhello";
        say(80, false, [501, asked], 0x18, answer);
        let answered = 501 + answer.len() as u32;
        say(90, true, [asked, answered], 0x11, b"");
        say(110, false, [answered, asked + 1], 0x11, b"");
    }
    packets.sort_by_key(|(at, _)| *at);
    for (millis, frame) in packets {
        let at = format(1_700_000_000_000 + millis);
        bytes.extend(((at / 1_000) as u32).to_le_bytes());
        bytes.extend(((at % 1_000) as u32 * 1_000_000).to_le_bytes());
        bytes.extend([frame.len() as u32; 2].map(u32::to_le_bytes).concat());
        bytes.extend(frame);
    }
    bytes
}

fn frame(flow: u8, is_up: bool, numbers: [u32; 2], flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 12];
    bytes.extend([0x08, 0x00, 0x45, 0]);
    bytes.extend((40 + payload.len() as u16).to_be_bytes());
    bytes.extend([0, 0, 0, 0, 64, 6, 0, 0]);
    let (client, server) = ([10, 0, 0, flow], [192, 0, 2, flow % 3]);
    let (from, to) = if is_up { (client, server) } else { (server, client) };
    bytes.extend(from.into_iter().chain(to));
    let ports = if is_up { [40_000_u16, 80] } else { [80, 40_000] };
    bytes.extend(ports.map(u16::to_be_bytes).concat());
    bytes.extend(numbers.map(u32::to_be_bytes).concat());
    bytes.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    bytes.extend(payload);
    bytes
}

fn plan(threads: u8) -> RunOptions {
    RunOptions::new(Settings::default(), threads)
}

/// The rows of a table, as text.
pub(super) fn rows(folder: &Path, table: &str) -> Vec<String> {
    let file = fs::File::open(folder.join(format!("{table}.parquet"))).unwrap();
    let reader = SerializedFileReader::new(file).unwrap();
    reader.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect()
}

pub(super) fn analyze(files: &[std::path::PathBuf], threads: u8, out: &Path) -> RunReport {
    let sources = Sources::find(files).unwrap();
    let mut folder = Folder::create(out, false).unwrap();
    let outcome =
        run(&sources.captures, &plan(threads), Some(&mut folder), &Progress::default()).unwrap();
    folder.finish("{}").unwrap();
    outcome
}

#[test]
fn packets_on_the_border_of_two_blocks_are_whole() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.pcap");
    let mut bytes = capture(250, |at| at);
    for later in 1..5 {
        bytes.extend(&capture(250, |at| at + later * 1_000_000)[24..]);
    }
    // Each block of the capture has 256 KiB.
    assert!(bytes.len() > 600_000, "{}", bytes.len());
    fs::write(&file, bytes).unwrap();
    let sources = Sources::find(&[file]).unwrap();
    for threads in [1, 3] {
        let outcome = run(&sources.captures, &plan(threads), None, &Progress::default()).unwrap();
        assert_eq!(outcome.captures[0].error, None);
        let (packets, summary) = (outcome.counters.packets, &outcome.summary);
        assert_eq!((packets, summary.flows, summary.valid), (8_750, 1_250, 1_250));
    }
}

#[test]
fn tables_are_the_same_however_many_cores_look() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.pcap");
    fs::write(&file, capture(40, |at| at)).unwrap();
    let one = analyze(std::slice::from_ref(&file), 1, &dir.path().join("one"));
    let three = analyze(&[file], 3, &dir.path().join("three"));
    assert_eq!(one.counters, three.counters);
    assert_eq!((one.counters.packets, one.summary.flows, one.summary.valid), (280, 40, 40));
    for table in ["tcp", "http", "seconds", "devices"] {
        let rows = rows(&dir.path().join("one"), table);
        assert_eq!(rows, self::rows(&dir.path().join("three"), table), "{table}");
        assert!(rows.len() >= 40, "{table}");
    }
    let tcp = rows(&dir.path().join("one"), "tcp");
    // Half a round trip in each direction, in addition to the think time of the server.
    assert!(tcp[0].contains("requests: 1") && tcp[0].contains("\"www.example.net\""), "{}", tcp[0]);
    let http = rows(&dir.path().join("one"), "http");
    assert!(
        http[0].contains("response_time: 0.05") && http[0].contains("declared: 5"),
        "{}",
        http[0]
    );
    assert!(!http[0].contains("hello") && !tcp[0].contains("hello"));
}

/// A capture with packets from several buffers of the kernel: many are earlier than the previous
/// packet, which mostly belongs to another flow.
#[test]
fn steps_of_the_clock_are_counted_in_the_order_of_the_capture() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.pcap");
    let bytes = capture(40, |at| if at % 5 == 0 { at - 9 } else { at });
    let (mut rest, mut times) = (&bytes[24..], Vec::new());
    while let Some(header) = rest.first_chunk::<16>() {
        let number = |at: usize| u32::from_le_bytes(*header[at..].first_chunk().unwrap());
        times.push((number(0), number(4)));
        rest = &rest[16 + number(8) as usize..];
    }
    let steps = times.windows(2).filter(|pair| pair[1] < pair[0]).count() as u64;
    assert!(steps > 20, "{steps}");
    fs::write(&file, bytes).unwrap();
    let sources = Sources::find(&[file]).unwrap();
    for threads in [1, 2, 3, 5] {
        let outcome = run(&sources.captures, &plan(threads), None, &Progress::default()).unwrap();
        assert_eq!(outcome.counters.clock_steps_back, steps, "{threads} threads");
    }
    // The steps are those of the capture, whatever the filter.
    let filter = Some(Arc::new("host 10.0.0.7".parse().unwrap()));
    let mut plan = plan(3);
    plan.settings.filter = filter;
    let outcome = run(&sources.captures, &plan, None, &Progress::default()).unwrap();
    assert_eq!((outcome.counters.packets, outcome.counters.clock_steps_back), (7, steps));
}

/// Two captures in one file, the second of which is the earlier one.
#[test]
fn the_recorded_time_does_not_depend_on_the_order_of_packets() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.pcap");
    let late = capture(60, |at| at + 95_000);
    fs::write(&file, [&late[..], &capture(60, |at| at)[24..]].concat()).unwrap();
    let sources = Sources::find(&[file]).unwrap();
    for threads in [1, 3] {
        let outcome = run(&sources.captures, &plan(threads), None, &Progress::default()).unwrap();
        let (first, last) = outcome.captures[0].times.unwrap();
        assert!(last.since(first) > Span::from_secs(95), "{threads} threads");
        assert_eq!(outcome.recorded(), outcome.lasted(), "{threads} threads");
    }
}

#[test]
fn compressed_captures_and_folders_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("captures");
    fs::create_dir(&folder).unwrap();
    let bytes = capture(3, |at| at);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&bytes).unwrap();
    fs::write(folder.join("1.pcap.gz"), gzip.finish().unwrap()).unwrap();
    // Half an hour later.
    let later = capture(4, |at| at + 1_800_000);
    fs::write(folder.join("2.pcap.zst"), zstd::encode_all(&later[..], 1).unwrap()).unwrap();
    fs::write(folder.join("notes.txt"), "no capture").unwrap();
    let sources = Sources::find(std::slice::from_ref(&folder)).unwrap();
    assert_eq!((sources.captures.len(), sources.skipped.len()), (2, 1));
    let outcome = run(&sources.captures, &plan(2), None, &Progress::default()).unwrap();
    assert_eq!((outcome.summary.flows, outcome.captures[1].packets), (7, 28));
    let pattern = folder.join("*.gz");
    assert_eq!(Sources::find(&[pattern]).unwrap().captures.len(), 1);
    assert!(matches!(Sources::find(&[folder.join("x*")]), Err(SourceError::Pattern(_))));
    assert!(matches!(Sources::find(&[folder.join("none")]), Err(SourceError::Read { .. })));
    fs::write(folder.join("3.xz"), [0xfd, b'7', b'z', b'X', 0]).unwrap();
    let sources = Sources::find(&[folder.join("3.xz")]).unwrap();
    let outcome = run(&sources.captures, &plan(1), None, &Progress::default()).unwrap();
    assert!(outcome.captures[0].error.as_ref().unwrap().contains("xz"));
}

#[test]
fn folders_whose_links_make_a_loop_are_read_once() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("captures");
    fs::create_dir_all(folder.join("day")).unwrap();
    fs::write(folder.join("day/a.pcap"), capture(1, |at| at)).unwrap();
    fs::write(folder.join("empty"), "").unwrap();
    let links =
        [("loop", "."), ("day/up", ".."), ("again", "day"), ("self", "self"), ("gone", "x")];
    for (link, target) in links {
        symlink(target, folder.join(link)).unwrap();
    }
    let sources = Sources::find(std::slice::from_ref(&folder)).unwrap();
    let names: Vec<String> = sources.captures.iter().map(Source::name).collect();
    assert_eq!(names.len(), 1, "{names:?}");
    assert!(names[0].ends_with("a.pcap"), "{names:?}");
    assert_eq!(sources.skipped.len(), 3);
    // A named folder is read as often as it is named.
    let both = [folder.join("day"), folder.join("again")];
    assert_eq!(Sources::find(&both).unwrap().captures.len(), 2);
}

#[test]
fn compressed_files_in_a_folder_are_recognized_by_content() {
    let dir = tempfile::tempdir().unwrap();
    let gzip = |bytes: &[u8]| {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(bytes).unwrap();
        gzip.finish().unwrap()
    };
    fs::write(dir.path().join("a.pcap.gz"), gzip(&capture(1, |at| at))).unwrap();
    fs::write(dir.path().join("page.1.gz"), gzip(b".TH page of a manual")).unwrap();
    let sources = Sources::find(&[dir.path().to_owned()]).unwrap();
    assert_eq!((sources.captures.len(), sources.skipped.len()), (1, 1));
}

#[test]
fn tables_never_replace_sets_of_a_live_capture_or_the_input() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    fs::create_dir_all(out.join("shard=2026-01-31T12-00-00Z")).unwrap();
    for may_replace in [false, true] {
        assert!(matches!(Folder::create(&out, may_replace), Err(FolderError::Sets(_))));
    }
    let (read, other) = (dir.path().join("read"), dir.path().join("other"));
    fs::create_dir(&read).unwrap();
    symlink("read", dir.path().join("link")).unwrap();
    let inputs = [read.clone()];
    for same in [read, dir.path().join("link"), dir.path().join("other/../read")] {
        fs::create_dir_all(&other).unwrap();
        let refused = Folder::check_distinct(&same, &inputs);
        assert!(matches!(refused, Err(FolderError::Input(_))), "{}", same.display());
    }
    Folder::check_distinct(&other, &inputs).unwrap();
    Folder::check_distinct(&inputs[0].join("tables"), &inputs).unwrap();
    Folder::check_distinct(&inputs[0], &[inputs[0].join("a.pcap")]).unwrap();
}

#[test]
fn a_failed_run_leaves_no_folder() {
    let dir = tempfile::tempdir().unwrap();
    let (new, old) = (dir.path().join("new"), dir.path().join("old"));
    fs::create_dir(&old).unwrap();
    for out in [&new, &old] {
        let mut folder = Folder::create(out, false).unwrap();
        run(&[], &plan(1), Some(&mut folder), &Progress::default()).unwrap();
        assert!(fs::read_dir(out).unwrap().count() > 0);
    }
    assert!(!new.exists());
    assert_eq!(fs::read_dir(old).unwrap().count(), 0);
}

#[test]
fn an_interrupted_capture_keeps_its_rows_and_has_no_fault() {
    let bytes = capture(200, |at| at);
    // Truncated within a packet, like a file that is still being written.
    let there = bytes.len() - 10;
    for threads in [1, 3] {
        let progress = Progress::default();
        let (near, mut far) = std::io::pipe().unwrap();
        let source =
            Source::from_path(Path::new(&format!("/proc/self/fd/{}", near.as_raw_fd()))).unwrap();
        let outcome = std::thread::scope(|scope| {
            let work = scope.spawn(|| run(&[source], &plan(threads), None, &progress).unwrap());
            far.write_all(&bytes[..there]).unwrap();
            // The writer stays open without writing: all bytes were read, and the reader waits.
            while progress.read.load(Ordering::Relaxed) < there as u64 {
                std::thread::yield_now();
            }
            progress.stop.store(true, Ordering::Relaxed);
            work.join().unwrap()
        });
        assert_eq!(outcome.captures[0].error, None, "{threads}");
        assert_eq!(outcome.counters.packets, 200 * 7 - 1, "{threads}");
    }
}

#[test]
fn a_capture_continued_in_another_file_has_one_row_per_flow() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = capture(5, |at| at);
    // Between two packets: the third one after the header.
    let mut cut = 24;
    for _ in 0..9 {
        let length = u32::from_le_bytes(*bytes[cut + 8..].first_chunk().unwrap());
        cut += 16 + length as usize;
    }
    let (first, second) = (dir.path().join("1"), dir.path().join("2"));
    fs::write(&first, &bytes[..cut]).unwrap();
    fs::write(&second, [&bytes[..24], &bytes[cut..]].concat()).unwrap();
    let whole = dir.path().join("whole");
    fs::write(&whole, &bytes).unwrap();
    analyze(&[first.clone(), second], 2, &dir.path().join("parts"));
    analyze(&[whole], 2, &dir.path().join("once"));
    assert_eq!(rows(&dir.path().join("parts"), "tcp"), rows(&dir.path().join("once"), "tcp"));
    // The same capture with a clock that is one hour behind is a separate recording.
    let early = dir.path().join("early");
    fs::write(&early, capture(5, |at| at - 3_600_000)).unwrap();
    let outcome = analyze(&[first, early], 1, &dir.path().join("apart"));
    assert_eq!(outcome.captures.len(), 2);
    assert!(outcome.summary.flows > 5);
}

#[test]
fn rows_before_a_fault_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = capture(2, |at| at);
    for (name, bytes, error) in [
        ("cut", bytes[..bytes.len() - 3].to_vec(), "ends in the middle"),
        ("none", b"plain text".to_vec(), "not a capture"),
        ("long", [&bytes[..], &[0xff; 40]].concat(), "invalid length"),
        ("gzip", vec![0x1f, 0x8b, 8, 0, 1, 2, 3], "cannot be read"),
        ("empty", Vec::new(), "the capture is empty"),
    ] {
        let file = dir.path().join(name);
        fs::write(&file, bytes).unwrap();
        let outcome = analyze(&[file], 2, &dir.path().join(format!("{name}.out")));
        let found = outcome.captures[0].error.clone().unwrap_or_default();
        assert!(found.contains(error), "{name}: {found}");
    }
    assert_eq!(rows(&dir.path().join("cut.out"), "tcp").len(), 2);
    assert_eq!(rows(&dir.path().join("long.out"), "tcp").len(), 2);
}

#[test]
fn rows_of_a_truncated_compressed_capture_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let mut bytes = capture(250, |at| at);
    for hour in 1..4 {
        bytes.extend(&capture(250, |at| at + hour * 3_600_000)[24..]);
    }
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&bytes).unwrap();
    let zstd = zstd::encode_all(&bytes[..], 1).unwrap();
    for (name, mut compressed) in [("gzip", gzip.finish().unwrap()), ("zstd", zstd)] {
        let file = dir.path().join(name);
        compressed.truncate(compressed.len() / 4 * 3);
        fs::write(&file, &compressed).unwrap();
        let mut left = Vec::new();
        let end = match name {
            "gzip" => flate2::read::GzDecoder::new(&compressed[..]).read_to_end(&mut left),
            _ => zstd::Decoder::new(&compressed[..]).unwrap().read_to_end(&mut left),
        };
        assert!(end.is_err() && left.len() > 100_000);
        let plain = dir.path().join("plain");
        fs::write(&plain, &left).unwrap();
        let expected = analyze(&[plain], 1, &dir.path().join(format!("{name}.plain")));
        let outcome = analyze(&[file], 1, &dir.path().join(format!("{name}.out")));
        let capture = &outcome.captures[0];
        assert!(capture.error.as_ref().unwrap().contains("cannot be read"), "{capture:?}");
        assert_eq!(capture.packets, expected.captures[0].packets, "{name}");
    }
}

#[test]
fn results_are_replaced_only_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let file = dir.path().join("a.pcap");
    fs::write(&file, capture(1, |at| at)).unwrap();
    analyze(&[file], 1, &out);
    let mut names: Vec<String> = fs::read_dir(&out)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert!(names.contains(&"flows.json".to_owned()) && names.contains(&"tcp.parquet".to_owned()));
    assert!(names.iter().all(|name| !name.ends_with(".part")), "{names:?}");
    assert!(matches!(Folder::create(&out, false), Err(FolderError::HasResults(_))));
    // An unfinished run leaves the earlier results.
    let before = rows(&out, "tcp");
    let mut folder = Folder::create(&out, true).unwrap();
    let sources = Sources::find(&[dir.path().join("a.pcap")]).unwrap();
    run(&sources.captures, &plan(1), Some(&mut folder), &Progress::default()).unwrap();
    drop(folder);
    assert_eq!(rows(&out, "tcp"), before);
}

/// Analyses a capture with a new set before each of these packets. Returns the counters, the number
/// of flows in the statistics, and the number of rows of each table over all sets.
fn analyze_in_sets(
    bytes: &[u8],
    turns: &[usize],
) -> (Counters, [u64; 3], BTreeMap<&'static str, usize>) {
    let mut settings = Settings::default();
    settings.packets = true;
    let mut aggregator = Aggregator::new(&settings).with_recent();
    let (mut analysis, mut reader) = (Analysis::new(settings), Reader::default());
    let (mut counters, mut sums, mut rows) = (Counters::default(), [0; 3], BTreeMap::new());
    let mut over = |aggregator: &mut Aggregator, analysis: &mut Analysis, is_end: bool| {
        std::iter::from_fn(|| analysis.poll()).for_each(|record| aggregator.add(record));
        let each = |schema: &Schema, batch: &Batch| {
            *rows.entry(schema.table).or_default() += batch.rows();
        };
        if is_end {
            aggregator.flush(true, each)
        } else {
            aggregator.rotate(each)
        }
        counters.add(&analysis.take_counters());
        let recent = aggregator.take_recent();
        let [up, down] = recent.bytes;
        sums.iter_mut().zip([recent.flows, up, down]).for_each(|(sum, part)| *sum += part);
    };
    let (mut at, mut index) = (0, 0);
    while let Ok(Step::Packet(_, length) | Step::Other(length)) = reader.clone().step(&bytes[at..])
    {
        if let Ok(Step::Packet(packet, _)) = reader.step(&bytes[at..]) {
            if turns.contains(&index) {
                over(&mut aggregator, &mut analysis, false);
            }
            analysis.handle_packet(&reader.interfaces()[0], &packet);
            index += 1;
        }
        at += length;
    }
    analysis.finish();
    over(&mut aggregator, &mut analysis, true);
    (counters, sums, rows)
}

#[test]
fn rotation_never_loses_or_repeats_a_row() {
    let bytes = capture(5, |at| at);
    let whole = analyze_in_sets(&bytes, &[]);
    assert_eq!((whole.0.packets, whole.1[0], whole.2["tcp"], whole.2["packets"]), (35, 5, 5, 35));
    for set_index in 0..35 {
        let found = analyze_in_sets(&bytes, &[set_index, 20]);
        assert_eq!((found.0, found.1), (whole.0.clone(), whole.1), "{set_index}");
        for (table, rows) in &found.2 {
            // A device that occurs in several sets has a row in each.
            assert!(*table == "devices" || rows == &whole.2[table], "{set_index}: {table}");
        }
    }
}

/// Statistics of the flows of a capture, with rows written after each record or at the end.
fn summarize(bytes: &[u8], is_eager: bool) -> Summary {
    let mut aggregator = Aggregator::new(&Settings::default()).without_tables();
    let (mut analysis, mut reader) = (Analysis::new(Settings::default()), Reader::default());
    let mut add = |analysis: &mut Analysis| {
        for record in std::iter::from_fn(|| analysis.poll()) {
            aggregator.add(record);
            if is_eager {
                aggregator.flush(false, |schema, _| panic!("a table of {}", schema.table));
            }
        }
    };
    let mut at = 0;
    loop {
        match reader.step(&bytes[at..]).unwrap() {
            Step::Packet(packet, length) => {
                at += length;
                analysis.handle_packet(&reader.interfaces()[0], &packet);
            }
            Step::Other(length) => at += length,
            Step::More(_) => break,
        }
        add(&mut analysis);
    }
    analysis.finish();
    add(&mut analysis);
    aggregator.flush(true, |schema, _| panic!("a table of {}", schema.table));
    aggregator.summary().clone()
}

#[test]
fn the_summary_does_not_depend_on_the_time_of_flushes() {
    let bytes = capture(40, |at| at);
    let (eager, late) = (summarize(&bytes, true), summarize(&bytes, false));
    assert_eq!((late.flows, late.servers(10).0.len()), (40, 1));
    assert_eq!((eager.flows, eager.bytes, eager.valid), (late.flows, late.bytes, late.valid));
    assert_eq!(eager.servers(10).0[0].0, late.servers(10).0[0].0);
    assert_eq!(eager.servers(10).0[0].1.bytes, late.servers(10).0[0].1.bytes);
}

#[test]
fn a_replaced_run_leaves_no_table() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.pcap");
    fs::write(&file, capture(1, |at| at)).unwrap();
    let sources = Sources::find(&[file]).unwrap();
    let out = dir.path().join("out");
    let write = |packets| {
        let mut plan = plan(1);
        plan.settings.packets = packets;
        let mut folder = Folder::create(&out, true).unwrap();
        run(&sources.captures, &plan, Some(&mut folder), &Progress::default()).unwrap();
        folder.finish("{}").unwrap();
    };
    write(true);
    fs::write(out.join("mine.parquet"), "of another program").unwrap();
    assert!(out.join("packets.parquet").exists());
    write(false);
    assert!(!out.join("packets.parquet").exists() && out.join("tcp.parquet").exists());
    assert!(out.join("mine.parquet").exists());
}

/// Number of packets in a file that match, as counted by tcpdump.
fn counted_by_tcpdump(file: &Path, filter: &str) -> Option<u64> {
    let mut tcpdump = std::process::Command::new("tcpdump");
    let done = tcpdump.args(["-nn", "--count", "-r"]).arg(file).arg(filter).output().ok()?;
    assert!(done.status.success(), "{filter}: {}", String::from_utf8_lossy(&done.stderr));
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    Some(said.split_whitespace().next()?.parse().unwrap())
}

#[test]
fn a_filter_matches_the_same_packets_as_tcpdump() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.pcap");
    let mut bytes = capture(9, |at| at);
    // Other protocols, an IPv6 packet, and ARP.
    let other = |protocol: u8, ether: [u8; 2]| {
        let mut frame = frame(1, true, [1, 1], 0x10, b"");
        frame[23] = protocol;
        frame[12..14].copy_from_slice(&ether);
        frame
    };
    let mut six = [&[0; 12][..], &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, 17, 64]].concat();
    six.extend([[0x20; 16], [0x30; 16]].concat());
    six.extend([0, 53, 0x9c, 0x40, 0, 8, 0, 0]);
    for frame in [other(17, [8, 0]), other(1, [8, 0]), other(89, [8, 0]), other(0, [8, 6]), six] {
        bytes.extend([1_700_000_100_u32, 0].map(u32::to_le_bytes).concat());
        bytes.extend([frame.len() as u32; 2].map(u32::to_le_bytes).concat());
        bytes.extend(frame);
    }
    fs::write(&file, bytes).unwrap();
    let sources = Sources::find(std::slice::from_ref(&file)).unwrap();
    for filter in [
        "tcp",
        "not tcp",
        "ip6 or arp",
        "host 10.0.0.3 or 10.0.0.4",
        "not src net 10.0.0.0/29 and tcp",
        "src net 10.0.0.0/29 or dst host 192.0.2.1 and port 80",
        "tcp port 80 or 443",
        "udp port 40000 or 53",
        "src port http and len > 60",
        "portrange 30000-50000 and not udp",
        "less 54 or greater 100",
        "icmp or proto 89 or (udp and not ip6)",
        "!(tcp || udp)",
        "src or dst net 192.0.2 && dst portrange 1-100",
    ] {
        let mut plan = plan(2);
        plan.settings.filter = Some(Arc::new(filter.parse().unwrap()));
        let outcome = run(&sources.captures, &plan, None, &Progress::default()).unwrap();
        let Some(wanted) = counted_by_tcpdump(&file, filter) else {
            eprintln!("skipped: tcpdump is not installed");
            return;
        };
        assert_eq!(outcome.counters.packets, wanted, "{filter}");
        assert!(wanted > 0, "{filter}");
    }
}
