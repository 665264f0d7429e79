use std::io::Write;

use super::*;

fn read(trace: &mut Trace) -> Result<(Vec<Packet>, TraceStats), TraceError> {
    let mut packets = Vec::new();
    let stats = trace.read(&Progress::default(), |packet| packets.push(*packet))?;
    Ok((packets, stats))
}

fn open(path: &Path) -> Result<Trace, TraceError> {
    Trace::open(path, &PacketSelection::default(), &Progress::default())
}

/// A pcap file with IP packets at these milliseconds: addresses, ports, payload bytes.
fn capture(datagrams: &[(u64, [u8; 2], [u16; 2], u16)]) -> Vec<u8> {
    let mut file = Vec::new();
    file.extend(0xa1b2_3c4d_u32.to_le_bytes());
    file.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    file.extend(65_535_u32.to_le_bytes());
    file.extend(101_u32.to_le_bytes());
    for (millis, [from, to], ports, payload) in datagrams {
        let length = 28 + payload;
        let secs = (millis / 1_000) as u32;
        file.extend(secs.to_le_bytes());
        file.extend(((millis % 1_000) as u32 * 1_000_000).to_le_bytes());
        file.extend(u32::from(length).to_le_bytes());
        file.extend(u32::from(length).to_le_bytes());
        file.extend([0x45, 0]);
        file.extend(length.to_be_bytes());
        file.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, *from, 10, 0, 0, *to]);
        file.extend(ports[0].to_be_bytes());
        file.extend(ports[1].to_be_bytes());
        file.extend((payload + 8).to_be_bytes());
        file.extend([0, 0]);
        file.extend(vec![0; usize::from(*payload)]);
    }
    file
}

const TALK: [(u64, [u8; 2], [u16; 2], u16); 3] = [
    (1_000, [1, 2], [40_000, 9_000], 100),
    (1_050, [2, 1], [9_000, 40_000], 200),
    (9_000, [1, 3], [40_001, 9_001], 50),
];

#[test]
fn lines_are_read_again_and_again_also_compressed() {
    let text = "time,bytes,direction,app,port\n1,60,up,mail,993\n2.5,1500,down,mail,993\n";
    let folder = tempfile::tempdir().unwrap();
    let (plain, packed) = (folder.path().join("a.csv"), folder.path().join("a.csv.gz"));
    fs::write(&plain, text).unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(text.as_bytes()).unwrap();
    fs::write(&packed, gzip.finish().unwrap()).unwrap();
    for path in [plain, packed] {
        let mut trace = open(&path).unwrap();
        for _ in 0..2 {
            let (packets, stats) = read(&mut trace).unwrap();
            assert_eq!(packets.len(), 2);
            assert_eq!((packets[1].bytes, packets[1].direction), (1_500, Direction::Down));
            assert_eq!(stats.last, Some(Time::from_millis(2_500)));
            assert_eq!(trace.apps(), [App { name: "mail".to_owned(), port: Some(993) }]);
        }
    }
}

#[test]
fn a_capture_is_a_trace_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcap");
    fs::write(&path, capture(&TALK)).unwrap();
    let mut trace = open(&path).unwrap();
    let TraceFormat::Table { _kept: TempFiles::Folder(TempFolder(temp)), .. } = &trace.format
    else {
        panic!()
    };
    let temp = temp.clone();
    assert!(temp.is_dir());
    let (packets, _) = read(&mut trace).unwrap();
    let what: Vec<_> = packets.iter().map(|one| (one.bytes, one.direction)).collect();
    assert_eq!(what, [(128, Direction::Up), (228, Direction::Down), (78, Direction::Up)]);
    assert_eq!(packets[1].at.since(packets[0].at), Span::from_millis(50));
    assert_eq!(packets[0].session, packets[1].session);
    assert_ne!(packets[0].session, packets[2].session);
    let ports: Vec<_> = trace.apps().iter().map(|app| app.port).collect();
    assert_eq!(ports, [Some(9_000), Some(9_001)]);
    drop(trace);
    assert!(!temp.exists());
}

/// Without configured addresses, the sender of an echo request is the device.
#[test]
fn echo_requests_are_sent_and_replies_are_received() {
    let ping = [1_u64, 2].map(|second| (second * 1_000, [1, 2], [0, 0], 56));
    let pong = [1_u64, 2].map(|second| (second * 1_000 + 30, [2, 1], [0, 0], 56));
    let mut file = capture(&[ping[0], pong[0], ping[1], pong[1]]);
    let (header, packet) = (24, 16 + 84);
    for number in 0..4 {
        let ip = header + number * packet + 16;
        file[ip + 9] = 1;
        file[ip + 20] = if number % 2 == 0 { 8 } else { 0 };
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ping.pcap");
    fs::write(&path, file).unwrap();
    let ways = |local: &[&str]| {
        let local = local.iter().map(|prefix| prefix.parse().unwrap()).collect();
        let selection = PacketSelection { local, network: None };
        let mut trace = Trace::open(&path, &selection, &Progress::default()).unwrap();
        read(&mut trace).unwrap().0.iter().map(|packet| packet.direction).collect::<Vec<_>>()
    };
    use Direction::{Down, Up};
    assert_eq!(ways(&[]), [Up, Down, Up, Down]);
    assert_eq!(ways(&["10.0.0.1"]), [Up, Down, Up, Down]);
    assert_eq!(ways(&["10.0.0.2"]), [Down, Up, Down, Up]);
}

#[test]
fn folders_of_killed_processes_are_removed() {
    let home = tempfile::tempdir().unwrap();
    // No process has the number 0.
    let names =
        ["manyways-radio-0-3", "manyways-radio-x", "other-0-3"].map(|name| home.path().join(name));
    let own = home.path().join(format!("{TEMP_PREFIX}{}-0", std::process::id()));
    for path in names.iter().chain([&own]) {
        fs::create_dir(path).unwrap();
    }
    remove_stale_folders(home.path());
    assert_eq!(names.map(|path| path.exists()), [false, true, true]);
    assert!(own.exists());
}

#[test]
fn errors_name_the_fault() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let fault = |path: &Path| {
        let error = open(path).and_then(|mut trace| read(&mut trace)).unwrap_err();
        assert!(!error.hint().is_empty(), "{error}");
        error.to_string().replace(&*folder.path().to_string_lossy(), "")
    };
    assert_eq!(fault(&write("a", b"")), "there is no packet in /a");
    assert_eq!(fault(&write("b", b"time,bytes,direction\n")), "there is no packet in /b");
    assert_eq!(fault(&write("c", b"time,bytes\n")), "/c, line 1: there is no column `direction`");
    let unsorted = b"time,bytes,direction\n2,1,up\n1,1,up\n";
    assert_eq!(
        fault(&write("d", unsorted)),
        "/d, line 3: the time is earlier than in the line before"
    );
    assert_eq!(
        fault(&write("e", b"time,bytes,direction\n\xff\n")),
        "/e, line 2: the line is not UTF-8 text"
    );
    let long = [b"time,bytes,direction\n1,1,".as_slice(), &[b'x'; 1 << 20]].concat();
    assert_eq!(fault(&write("f", &long)), "/f, line 2: the line has more than 4096 bytes");
    assert!(fault(&folder.path().join("none")).starts_with("cannot read /none"));
    assert_eq!(fault(folder.path()), " has no tables of flows");
    assert_eq!(fault(&write("g", &capture(&[]))), "there is no packet in /g");
    let parquet = fault(&write("h", b"PAR1 and no more"));
    assert!(parquet.starts_with("/h cannot be read"), "{parquet}");
}

#[test]
fn a_truncated_capture_reports_the_fault_and_keeps_its_packets() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcap");
    let whole = capture(&TALK);
    fs::write(&path, &whole[..whole.len() - 10]).unwrap();
    let mut trace = open(&path).unwrap();
    assert_eq!(trace.errors().len(), 1);
    assert_eq!(read(&mut trace).unwrap().0.len(), 2);
}

/// A capture of a link type that is not read, or of frames without IP, is not empty.
#[test]
fn a_capture_without_a_packet_that_can_be_decoded_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcap");
    let fault = |file: &[u8]| {
        fs::write(&path, file).unwrap();
        let error = open(&path).and_then(|mut trace| read(&mut trace)).unwrap_err();
        let text = error.to_string().replace(&*path.display().to_string(), "a.pcap");
        (text, error.hint())
    };
    let mut file = capture(&TALK);
    file[20..24].copy_from_slice(&147_u32.to_le_bytes());
    let (text, hint) = fault(&file);
    assert_eq!(text, "cannot decode any packet of a.pcap: 3 packets, link type 147");
    assert!(hint.contains("Ethernet"), "{hint}");
    let mut arp = capture(&TALK[..1]);
    arp[20..24].copy_from_slice(&1_u32.to_le_bytes());
    arp[52..54].copy_from_slice(&[8, 6]);
    assert_eq!(fault(&arp).0, "cannot decode any packet of a.pcap: 1 packet, ARP (0x0806)");
}

/// One packet of 2015 in a capture of 2023.
#[test]
fn a_wild_clock_does_not_make_years_of_idle_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcap");
    let year = 365 * 86_400_000;
    let wild = (1_430_000_000_000, [1, 2], [40_000, 9_000], 10);
    let now = 1_430_000_000_000 + 8 * year;
    let real = [0, 50, 8_000].map(|later| (now + later, [1, 2], [40_000, 9_000], 100));
    for (packets, counted, sides) in [
        (vec![wild, real[0], real[1], real[2]], [-60_000, 0, 50, 8_000], (1, 3)),
        (
            vec![real[0], real[1], real[2], (now + 9 * year, [1, 2], [1, 2], 9)],
            [0, 50, 8_000, 68_000],
            (3, 1),
        ),
    ] {
        fs::write(&path, capture(&packets)).unwrap();
        let mut trace = open(&path).unwrap();
        let [gap] = *trace.long_gaps() else { panic!("{:?}", trace.long_gaps()) };
        assert_eq!((gap.packets_before, gap.packets_after), sides);
        let (packets, stats) = read(&mut trace).unwrap();
        let millis = |packet: &Packet| packet.at.as_nanos() as i64 / 1_000_000 - now as i64;
        assert_eq!(packets.iter().map(millis).collect::<Vec<_>>(), counted);
        assert_eq!(stats.lasts(), 68.0);
    }
    // The same as text and as a table.
    let text = folder.path().join("a.csv");
    fs::write(&text, "time,bytes,direction\n1,60,up\n1700000000,60,up\n1700000001,60,up\n")
        .unwrap();
    let table_path = folder.path().join("packets.parquet");
    table(&table_path, [1, year, year + 1].map(|at| (at, None, None)));
    for path in [text, table_path] {
        let mut trace = open(&path).unwrap();
        assert_eq!(trace.long_gaps().len(), 1);
        let lasts = read(&mut trace).unwrap().1.lasts();
        assert!((60.0..=61.0).contains(&lasts), "{lasts}");
    }
}

#[test]
fn a_capture_of_an_unread_link_type_says_so_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcap");
    let mut bytes = capture(&TALK);
    // The link type of a pcap file: one for private use.
    bytes[20..24].copy_from_slice(&147_u32.to_le_bytes());
    fs::write(&path, bytes).unwrap();
    let mut trace = open(&path).unwrap();
    assert_eq!(trace.unread_links().count(), 0);
    let text = read(&mut trace).unwrap_err().to_string();
    assert!(text.contains("cannot decode any packet"), "{text}");
}

#[test]
fn a_trace_of_another_network_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("packets.parquet");
    table(&path, [(0, Some("wifi"), None), (1, Some("wifi"), None)]);
    let selection = PacketSelection { network: Some("cellular"), ..PacketSelection::default() };
    let mut trace = Trace::open(&path, &selection, &Progress::default()).unwrap();
    let text = read(&mut trace).unwrap_err().to_string();
    assert!(
        text.ends_with("has no packet of a cellular network: 2 packets of other networks"),
        "{text}"
    );
}

#[test]
fn a_trace_from_a_seed_is_the_same_each_time() {
    let made = |app: &str| TraceGenerator {
        app: app.to_owned(),
        seed: 7,
        duration: Span::from_secs(7_200),
    };
    let mut trace = Trace::generated(made("mixed-day")).unwrap();
    let first = read(&mut trace).unwrap();
    assert_eq!(first, read(&mut trace).unwrap());
    assert!(trace.apps().len() > 1);
    assert!(matches!(Trace::generated(made("none")), Err(TraceError::UnknownModel(_))));
}

#[test]
fn reading_stops_on_request() {
    let generator = TraceGenerator {
        app: "mixed-day".to_owned(),
        seed: 7,
        duration: Span::from_secs(30 * 86_400),
    };
    let mut trace = Trace::generated(generator).unwrap();
    let progress = Progress::default();
    let mut count = 0;
    let seen = trace.read(&progress, |_| {
        count += 1;
        progress.stop.store(count > 10_000, Ordering::Relaxed);
    });
    let stats = seen.unwrap();
    assert!(stats.is_stopped && stats.packets < 10_000 + 2 * STOP_CHECK_INTERVAL, "{stats:?}");
}

/// A table of packets: milliseconds, network, flow.
fn table(path: &Path, rows: impl IntoIterator<Item = (u64, Option<&'static str>, Option<u64>)>) {
    use manyways_flows::analysis::{FlowId, FlowPacket};
    use manyways_record::table::Schema;
    let mut batch = Batch::of::<FlowPacket>();
    for (millis, network, flow) in rows {
        let row = FlowPacket {
            at: Time::from_millis(millis),
            length: 100,
            is_up: true,
            interface: 0,
            network,
            flow: flow.map(FlowId),
            application: flow.map(|flow| format!("app-{flow}")),
        };
        batch.push(&row, None);
    }
    let schema = Schema::of::<FlowPacket>();
    manyways_capture::write_table(path, &schema, &batch).unwrap();
}

#[test]
fn only_packets_of_one_kind_of_network_where_the_table_says_which() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("packets.parquet");
    let rows = [(0, Some("wifi"), Some(1)), (1, Some("cellular"), Some(2)), (2, None, None)];
    table(&path, rows);
    for (network, count, left_out) in
        [(None, 3, 0), (Some("cellular"), 2, 1), (Some("bluetooth"), 1, 2)]
    {
        let selection = PacketSelection { network, ..PacketSelection::default() };
        let mut trace = Trace::open(&path, &selection, &Progress::default()).unwrap();
        let (packets, stats) = read(&mut trace).unwrap();
        assert_eq!((packets.len(), stats.skipped), (count, left_out), "{network:?}");
    }
    let mut trace = open(&path).unwrap();
    read(&mut trace).unwrap();
    let names: Vec<&str> = trace.apps().iter().map(|app| app.name.as_str()).collect();
    assert_eq!(names, ["app-1", "app-2", ""]);
}

/// Writer threads can swap neighbouring packets.
#[test]
fn packets_a_little_out_of_order_are_put_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("packets.parquet");
    // Blocks of 1 000 rows, swapped in pairs.
    let at = |row: u64| ((row / 1_000) ^ 1) * 1_000 + row % 1_000;
    table(&path, (0..20_000).map(|row| (at(row), None, Some(row % 7))));
    let (packets, _) = read(&mut open(&path).unwrap()).unwrap();
    assert!(packets.is_sorted_by_key(|packet| packet.at) && packets.len() == 20_000);
    // A larger displacement is an error.
    table(&path, (0..20_000).map(|row| (20_000 - row, None, None)));
    let error = read(&mut open(&path).unwrap()).unwrap_err().to_string();
    assert!(error.contains("is earlier than the packets before it"), "{error}");
}
