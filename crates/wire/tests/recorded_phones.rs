//! Recordings of a phone that opens a web site each. Only the first 96 bytes of a packet are in
//! them: questions to name servers are whole, hellos have their beginning, and hardly an answer is
//! whole. The counts are those of a program that shares no code with this one. Skipped where the
//! recordings are absent, as none of them is ours to ship; `MANYWAYS_CAPTURES` names their folder.
#![allow(clippy::disallowed_methods, reason = "a test is a shell: it opens the files")]
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::path::{Path, PathBuf};

use manyways_wire::{Peek, dns, http, tls};

/// What a TCP segment or a UDP datagram carries.
struct Payload<'a> {
    protocol: u8,
    from: u16,
    to: u16,
    /// As much of it as was recorded.
    there: &'a [u8],
    /// How long it was when it was sent.
    length: usize,
}

/// The bytes of each recording, or none where they are absent.
fn recordings() -> Vec<Vec<u8>> {
    let folder = std::env::var_os("MANYWAYS_CAPTURES").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/captures"),
        PathBuf::from,
    );
    let Ok(entries) = std::fs::read_dir(folder.join("phone")) else {
        eprintln!("skipped: the recordings of phones are absent");
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "pcap"));
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

fn short(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// What is carried by the packets of a little-endian pcap file with Linux's cooked headers.
fn payloads(file: &[u8]) -> Vec<Payload<'_>> {
    let number = |at: usize| u32::from_le_bytes(*file[at..].first_chunk().unwrap());
    assert_eq!((number(0), number(20)), (0xa1b2_c3d4, 113));
    let (mut at, mut payloads) = (24, Vec::new());
    while at < file.len() {
        let end = at + 16 + number(at + 8) as usize;
        payloads.extend(payload(&file[at + 16..end]));
        at = end;
    }
    payloads
}

fn payload(frame: &[u8]) -> Option<Payload<'_>> {
    let packet = &frame[16..];
    let (protocol, length, rest) = match short(frame, 14) {
        0x0800 => {
            let header = usize::from(packet[0] & 0xf) * 4;
            (packet[9], usize::from(short(packet, 2)) - header, &packet[header..])
        }
        0x86dd => (packet[6], usize::from(short(packet, 4)), &packet[40..]),
        _ => return None,
    };
    let header = match protocol {
        6 => usize::from(rest[12] >> 4) * 4,
        17 => 8,
        _ => return None,
    };
    let (from, to) = (short(rest, 0), short(rest, 2));
    Some(Payload { protocol, from, to, there: rest.get(header..)?, length: length - header })
}

#[test]
fn phones_begin_to_say_hello_and_ask_for_names() {
    let recordings = recordings();
    if recordings.is_empty() {
        return;
    }
    let (mut hellos, mut sized, mut heads, mut questions, mut answers) = (0, 0, 0, 0, 0);
    for recording in &recordings {
        for Payload { protocol, from, to, there, length } in payloads(recording) {
            match protocol {
                6 if there.starts_with(&[22, 3]) && there.get(5) == Some(&1) => {
                    let Peek::More(whole) = tls::client_hello(there) else { panic!("{there:x?}") };
                    hellos += 1;
                    assert!(whole <= length, "{whole} are more than the {length} that were sent");
                    // Where its length is there, the hint is exact: each was one segment.
                    sized += u32::from(there.len() >= 9 && whole == length);
                }
                6 if there.starts_with(b"GET ") => {
                    assert_eq!(tls::client_hello(there), Peek::No);
                    assert!(matches!(http::head(there), Peek::More(_)));
                    heads += 1;
                }
                17 if to == 53 => {
                    let asked = dns::question(there);
                    assert_eq!(asked.is_some(), there.len() == length, "{there:x?}");
                    questions += u32::from(asked.is_some());
                }
                17 if from == 53 => {
                    assert!(there.len() == length || dns::answer(there).is_none());
                    answers += u32::from(dns::answer(there).is_some());
                }
                _ => {}
            }
        }
    }
    assert_eq!([hellos, sized, heads, questions, answers], [189, 113, 11, 336, 5]);
}
