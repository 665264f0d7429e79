use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};

use manyways_link::segment::Gso;

use super::*;

/// Returns a TCP super-packet of three segments over IPv4; the checksum is left to the device.
fn super_packet() -> (Vec<u8>, Offload) {
    let mut packet = vec![0x45, 0, 0, 0, 0, 9, 0x40, 0, 64, 6, 0, 0, 10, 64, 1, 2, 198, 18, 0, 1];
    packet.extend([0xc3, 0x50, 1, 187, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x18, 4, 0, 0, 0, 0, 0]);
    packet.extend((0..2_500).map(|i| i as u8));
    let length = (packet.len() as u16).to_be_bytes();
    packet[2..4].copy_from_slice(&length);
    (packet, Offload { gso: Gso::TcpV4, gso_size: 1_000, ..Offload::default() })
}

fn datagram() -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 9, 17, 64];
    packet.extend([0xfd, 0, 0, 0x64, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    packet.extend([0xfd, 0, 0, 0x18, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    packet.extend([0, 1, 0, 2, 0, 9, 0xe4, 0x57, b'!']);
    packet
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// Returns the blocks of a file: kind and body.
fn blocks(mut file: &[u8]) -> Vec<(u32, &[u8])> {
    let mut blocks = Vec::new();
    while !file.is_empty() {
        let length = word(file, 4) as usize;
        assert_eq!((length % 4, word(file, length - 4) as usize), (0, length));
        blocks.push((word(file, 0), &file[8..length - 4]));
        file = &file[length..];
    }
    blocks
}

fn options(mut bytes: &[u8]) -> Vec<(u16, &[u8])> {
    let mut options = Vec::new();
    loop {
        let (code, length) = (word(bytes, 0) as u16, (word(bytes, 0) >> 16) as usize);
        if code == 0 {
            assert_eq!((length, bytes.len()), (0, 4), "the end is last");
            return options;
        }
        options.push((code, &bytes[4..4 + length]));
        bytes = &bytes[4 + length.next_multiple_of(4)..];
    }
}

struct WrittenPacket<'a> {
    at: u64,
    packet: &'a [u8],
    options: Vec<(u16, &'a [u8])>,
}

fn packet(body: &[u8]) -> WrittenPacket<'_> {
    let length = word(body, 12) as usize;
    assert_eq!((word(body, 0), word(body, 16) as usize), (0, length));
    WrittenPacket {
        at: u64::from(word(body, 4)) << 32 | u64::from(word(body, 8)),
        packet: &body[20..20 + length],
        options: options(&body[20 + length.next_multiple_of(4)..]),
    }
}

#[test]
fn a_file_contains_the_wire_packets() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wifi.pcapng");
    let mut writer = PcapWriter::create(&path, "wifi").unwrap();
    writer.set_epoch(Span::from_secs(1_000_000_000));
    let (tcp, offload) = super_packet();
    writer.record(Time::from_nanos(5_000_000_001), Side::Inside, &tcp, &offload);
    let (udp, plain) = (datagram(), Offload::default());
    writer.record_slice(Time::from_millis(6_000), Side::Outside, &udp[..40], &udp[40..], &plain);
    writer.record_drop(Time::from_millis(7_000), Side::Outside, Cause::Aqm, &[], &udp, &plain);
    assert_eq!(writer.finish().unwrap(), CaptureCounts { passed: 4, dropped: 1, omitted: 0 });

    let file = std::fs::read(&path).unwrap();
    let blocks = blocks(&file);
    let kinds: Vec<u32> = blocks.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [0x0a0d_0d0a, 1, 6, 6, 6, 6, 5]);
    assert_eq!(word(blocks[0].1, 0), 0x1a2b_3c4d);
    assert_eq!((word(blocks[1].1, 0), word(blocks[1].1, 4)), (101, 0));
    assert_eq!(options(&blocks[1].1[8..]), [(2, &b"wifi"[..]), (9, &[9])]);
    let plan = segment::plan(&tcp, &offload).unwrap();
    assert_eq!(plan.segments, 3);
    for index in 0..3 {
        let seen = packet(blocks[2 + index].1);
        assert_eq!(seen.at, 1_000_000_005_000_000_001);
        let mut wire = Vec::new();
        segment::wire(&tcp, &offload, &plan, index as u32, &mut wire);
        assert_eq!(seen.packet, wire);
        assert_eq!(seen.options, [(2, &2_u32.to_ne_bytes()[..])]);
    }
    let seen = packet(blocks[5].1);
    assert_eq!(seen.at, 1_000_000_006_000_000_000);
    assert_eq!((seen.packet, seen.options[0].1), (&udp[..], &1_u32.to_ne_bytes()[..]));
    let statistics = options(&blocks[6].1[12..]);
    assert_eq!(statistics[2..], [(4, &4_u64.to_ne_bytes()[..]), (5, &[0; 8])]);

    let file = std::fs::read(folder.path().join("wifi-dropped.pcapng")).unwrap();
    let blocks = self::blocks(&file);
    assert_eq!(options(&blocks[1].1[8..])[0], (2, &b"wifi-dropped"[..]));
    let seen = packet(blocks[2].1);
    assert_eq!((seen.at, seen.packet), (1_000_000_007_000_000_000, &udp[..]));
    assert_eq!(seen.options[1], (1, &b"dropped: aqm"[..]));
    assert_eq!((blocks[3].0, blocks.len()), (5, 4));

    // A new capture without drops removes the file of drops of the previous one.
    PcapWriter::create(&path, "wifi").unwrap().finish().unwrap();
    assert!(!folder.path().join("wifi-dropped.pcapng").exists());
}

#[test]
fn a_killed_lab_leaves_a_file_that_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wifi.pcapng");
    let mut writer = PcapWriter::create(&path, "wifi").unwrap();
    let (tcp, offload) = super_packet();
    writer.record(Time::ZERO, Side::Inside, &tcp, &offload);
    writer.flush();
    let file = std::fs::read(&path).unwrap();
    let kinds: Vec<u32> = blocks(&file).iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [0x0a0d_0d0a, 1, 6, 6, 6]);
    // Without an epoch, the first packet has the current time.
    let at = packet(blocks(&file)[2].1).at;
    let now = Clock::start().epoch().as_nanos();
    assert!(at <= now && now - at < 3_600_000_000_000, "{at} {now}");
}

#[test]
fn a_malformed_packet_is_written_unsegmented() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("odd.pcapng");
    let mut writer = PcapWriter::create(&path, "odd").unwrap();
    let (tcp, mut offload) = super_packet();
    offload.gso = Gso::TcpV6;
    writer.record(Time::ZERO, Side::Inside, &tcp, &offload);
    writer.finish().unwrap();
    let file = std::fs::read(&path).unwrap();
    assert_eq!(packet(blocks(&file)[2].1).packet, tcp);
}

/// A disk that blocks until the test releases it.
struct Stuck {
    reached: Sender<()>,
    go_on: Receiver<()>,
}

impl Write for Stuck {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.reached.send(());
        let _ = self.go_on.recv();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_slow_disk_loses_packets_and_counts_them() {
    let (reached, at_disk) = channel();
    let (release, go_on) = channel();
    release.send(()).unwrap(); // the file header
    let output = Output::start(Box::new(Stuck { reached, go_on }), "slow").unwrap();
    let mut writer = PcapWriter::start(output, Box::new(|| unreachable!())).unwrap();
    at_disk.recv().unwrap();
    let (packet, plain) = (vec![0x45; 60_000], Offload::default());
    writer.record(Time::ZERO, Side::Inside, &packet, &plain);
    writer.shared.lock().flushes_requested += 1; // like a flush, but without waiting for its end
    writer.shared.work.notify_one();
    at_disk.recv().unwrap(); // now the writer has taken that one, and blocks
    let room = MAX_QUEUED_BYTES / (packet.len() + PacketEntry::HEADER);
    for _ in 0..room + 7 {
        writer.record(Time::ZERO, Side::Inside, &packet, &plain);
    }
    assert!(writer.shared.lock().bytes.len() <= MAX_QUEUED_BYTES);
    drop(release);
    let written = writer.finish().unwrap();
    assert_eq!(written, CaptureCounts { passed: 1 + room as u64, dropped: 0, omitted: 7 });
}

#[test]
fn a_failed_file_of_drops_is_reported_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wifi.pcapng");
    let output = Output::start(Box::new(File::create(&path).unwrap()), "wifi").unwrap();
    let open = || Err(io::ErrorKind::PermissionDenied.into());
    let mut writer = PcapWriter::start(output, Box::new(open)).unwrap();
    let (packet, plain) = (datagram(), Offload::default());
    writer.record_drop(Time::ZERO, Side::Outside, Cause::Loss, &[], &packet, &plain);
    writer.record(Time::ZERO, Side::Outside, &packet, &plain);
    assert_eq!(writer.finish().unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    assert_eq!(blocks(&std::fs::read(&path).unwrap()).len(), 4, "the rest is there");
}

/// A full disk.
struct Full {
    left: usize,
}

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.left = self.left.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_reported_at_the_end() {
    let output = Output::start(Box::new(Full { left: 300 }), "full").unwrap();
    let mut writer = PcapWriter::start(output, Box::new(|| unreachable!())).unwrap();
    let (tcp, offload) = super_packet();
    for _ in 0..3 {
        writer.record(Time::ZERO, Side::Inside, &tcp, &offload);
        writer.flush();
    }
    assert_eq!(writer.finish().unwrap_err().kind(), io::ErrorKind::StorageFull);
}

#[test]
fn tcpdump_finds_correct_checksums_in_a_capture() {
    if Command::new("tcpdump").arg("--version").output().is_err() {
        eprintln!("skipped: tcpdump is not installed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wifi.pcapng");
    let mut writer = PcapWriter::create(&path, "wifi").unwrap();
    writer.set_epoch(Span::from_secs(1_000_000_000));
    let (tcp, offload) = super_packet();
    writer.record(Time::from_nanos(5_000_000_001), Side::Inside, &tcp, &offload);
    writer.record(Time::from_millis(7_000), Side::Outside, &datagram(), &Offload::default());
    writer.finish().unwrap();
    // The user of tcpdump may not be allowed to read the folder, so tcpdump reads from a pipe.
    let output = Command::new("tcpdump")
        .args(["-nn", "-vv", "-tt", "--time-stamp-precision=nano", "-r", "-"])
        .stdin(File::open(&path).unwrap())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(text.matches("1000000005.000000001 IP").count(), 3, "{text}");
    assert_eq!(text.matches("(correct)").count(), 3, "{text}");
    assert!(text.contains("[udp sum ok]"), "{text}");
    assert!(!text.contains("bad "), "{text}");
    for part in ["seq 1:1001", "seq 1000:2000", "seq 2000:2500", "Flags [P.]"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(text.contains("1000000007.000000000 IP6"), "{text}");
}
