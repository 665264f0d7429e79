//! Captures of a phone that opens a web site. Their snap length is 96 bytes: DNS queries are
//! complete, ClientHellos are truncated, and most responses are incomplete. The expected counts are
//! from a program without shared code. Skipped if the captures are absent, because they are not
//! part of the project; `MANYWAYS_CAPTURES` is their folder.
#![allow(clippy::disallowed_methods, reason = "a test is a shell: it opens the files")]
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::path::{Path, PathBuf};

use manyways_unit::Time;
use manyways_wire::capture::{LinkType, Reader, Step};
use manyways_wire::dns::Transport;
use manyways_wire::frame::{self, IpPacket, SkipReason};
use manyways_wire::tcp::{Flags, Segment};
use manyways_wire::{Peek, dns, http, tls};

/// Protocol of the modem's multiplexing on these phones.
const QUALCOMM_MAP: u16 = 0x00f9;

/// Returns the captures; empty if they are absent.
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

/// Decodes each frame of a capture, with whether the clock stepped back before it.
fn frames(file: &[u8]) -> Vec<(Result<IpPacket<'_>, SkipReason>, bool)> {
    let (mut reader, mut at, mut frames, mut last) = (Reader::default(), 0, Vec::new(), None);
    while at < file.len() {
        match reader.step(&file[at..]).unwrap() {
            Step::Packet(packet, length) => {
                let link = reader.interfaces()[packet.interface].link;
                assert_eq!(link, LinkType::SLL);
                let found = frame::ip_packet(link, packet.bytes, packet.length);
                frames.push((found, last.is_some_and(|last| packet.at < last)));
                last = Some(packet.at);
                at += length;
            }
            Step::Other(length) => at += length,
            Step::More(length) => panic!("it ends before {length} bytes"),
        }
    }
    frames
}

#[test]
fn every_packet_of_the_recordings_is_read() {
    let recordings = recordings();
    if recordings.is_empty() {
        return;
    }
    let (mut packets, mut steps, mut modem, mut others) = (0, 0, 0, 0);
    let (mut segments, mut hellos, mut carried) = (0, 0, 0);
    for (found, is_back) in recordings.iter().flat_map(|recording| frames(recording)) {
        packets += 1;
        steps += u32::from(is_back);
        match found {
            Ok(IpPacket { protocol: 6, payload, payload_length: length, .. }) => {
                let segment = Segment::read(payload, length).unwrap();
                segments += 1;
                hellos += u32::from(segment.flags.has(Flags::SYN));
                carried += u64::from(segment.length);
            }
            Ok(_) => others += 1,
            Err(reason) => {
                assert_eq!(reason, SkipReason::Protocol(QUALCOMM_MAP));
                modem += 1;
            }
        }
    }
    assert_eq!([packets, steps, modem, others], [13_718, 2_117, 4_133, 728]);
    assert_eq!((segments, hellos, carried), (8_857, 425, 9_804_821));
}

/// Returns the ports of a TCP segment or a UDP datagram, its captured payload, and the original
/// length of the payload.
fn payload<'a>(found: &IpPacket<'a>) -> Option<(u16, u16, &'a [u8], usize)> {
    match found.protocol {
        6 => {
            let segment = Segment::read(found.payload, found.payload_length)?;
            Some((
                segment.source_port,
                segment.destination_port,
                segment.payload,
                segment.length as usize,
            ))
        }
        17 => {
            let (ports, there) = found.payload.split_at_checked(8)?;
            let port = |at: usize| u16::from_be_bytes([ports[at], ports[at + 1]]);
            Some((port(0), port(2), there, found.payload_length - 8))
        }
        _ => None,
    }
}

#[test]
fn phones_begin_to_say_hello_and_ask_for_names() {
    let recordings = recordings();
    if recordings.is_empty() {
        return;
    }
    let (mut hellos, mut sized, mut heads, mut questions, mut answers) = (0, 0, 0, 0, 0);
    for recording in &recordings {
        for found in frames(recording).into_iter().filter_map(|(found, _)| found.ok()) {
            let Some((from, to, there, length)) = payload(&found) else { continue };
            match found.protocol {
                6 if there.starts_with(&[22, 3]) && there.get(5) == Some(&1) => {
                    let Peek::More(whole) = tls::client_hello(there) else { panic!("{there:x?}") };
                    hellos += 1;
                    assert!(whole <= length, "{whole} are more than the {length} that were sent");
                    // With the record's length in the capture, the hint is exact: each record was
                    // one segment.
                    sized += u32::from(there.len() >= 9 && whole == length);
                }
                6 if there.starts_with(b"GET ") => {
                    assert_eq!(tls::client_hello(there), Peek::No);
                    assert!(matches!(http::head(there), Peek::More(_)));
                    heads += 1;
                }
                17 if to == 53 => {
                    let asked = dns::query(there);
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

/// The names of four queries are truncated, and most responses contain only an alias. The reference
/// program matched messages by endpoints and ID.
#[test]
fn what_phones_ask_for_is_joined_with_answers_that_are_cut() {
    let recordings = recordings();
    if recordings.is_empty() {
        return;
    }
    let (mut asked, mut answered, mut unknown, mut addresses, mut learnt) = (0, 0, 0, 0, 0);
    for recording in &recordings {
        let mut lookups = dns::Lookups::default();
        for (found, _) in frames(recording) {
            let Some(found) = found.ok().filter(|found| found.protocol == 17) else { continue };
            let Some((from, to, there, length)) = payload(&found) else { continue };
            let (from, to) = ((found.source, from).into(), (found.destination, to).into());
            let info = lookups.handle(Time::ZERO, Transport::Udp, from, to, there, length);
            learnt += u32::from(info.resolution.is_some());
        }
        assert_eq!(lookups.unparsed(), 0);
        lookups.finish();
        for lookup in std::iter::from_fn(|| lookups.poll()) {
            unknown += u32::from(lookup.question.is_none());
            asked += lookup.queries;
            answered += u32::from(lookup.queried_at.is_some() && lookup.response.is_some());
            addresses += lookup.response.map_or(0, |reply| reply.addresses.len() as u32);
        }
    }
    assert_eq!([asked, answered, unknown, addresses, learnt], [340, 313, 4, 32, 32]);
}
