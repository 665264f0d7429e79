//! Foreign archives and the members that are refused; the comparison with a recording.

use flate2::Compression;
use manyways_unit::Time;

use super::super::format::{DEFLATED, Directory, END_LENGTH, Entry, STORED, deflate};
use super::*;
use crate::archive::{Archive, Body, Exchange, Protocol, Request, Response, Timings};

/// A member, right or wrong.
#[derive(Clone)]
struct Member {
    name: String,
    local_name: String,
    content: Vec<u8>,
    entry: Entry,
}

fn stored(name: &str, content: &[u8]) -> Member {
    let mut crc = flate2::Crc::new();
    crc.update(content);
    let size = content.len() as u64;
    let entry = Entry { offset: 0, flags: 0, method: STORED, crc: crc.sum(), packed: size, size };
    Member { name: name.into(), local_name: name.into(), content: content.into(), entry }
}

fn deflated(name: &str, content: &[u8]) -> Member {
    let Member { mut entry, .. } = stored(name, content);
    let packed = deflate(content, Compression::best()).unwrap();
    (entry.method, entry.packed) = (DEFLATED, packed.len() as u64);
    Member { name: name.into(), local_name: name.into(), content: packed, entry }
}

fn body(content: &[u8]) -> Member {
    stored(&body_name(&digest(content)), content)
}

/// An archive of a HAR and other members.
fn zip_of(members: &[Member]) -> Vec<u8> {
    zip_with(&stored(HAR_NAME, HAR.as_bytes()), members)
}

fn zip_with(har: &Member, members: &[Member]) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for member in [har].into_iter().chain(members) {
        let entry = Entry { offset: file.len() as u64, ..member.entry };
        file.extend(entry.local_header(&member.local_name));
        file.extend(&member.content);
        entry.put_entry(&member.name, &mut directory);
    }
    let (start, length) = (file.len() as u64, directory.len() as u64);
    file.append(&mut directory);
    Directory { start, length, count: members.len() as u64 + 1 }.put_end(&mut file);
    file
}

fn refusal(members: &[Member]) -> String {
    open(&zip_of(members)).unwrap_err().to_string()
}

/// The error of reading the only body.
fn unreadable(member: Member) -> String {
    let file = zip_of(&[member]);
    let mut reader = open(&file).unwrap();
    let digest = *reader.digests().next().unwrap();
    let whole = reader.body(&digest).unwrap_err().to_string();
    let mut parts = reader.open_body(&digest).unwrap();
    let parts = io::copy(&mut parts, &mut io::sink()).unwrap_err().to_string();
    assert_eq!(whole, parts);
    whole
}

#[test]
fn unsafe_names_are_refused() {
    let long = format!("{}/../x", "a".repeat(200));
    for name in
        ["../x", "a/../b", "..", "bodies/..", "/etc/passwd", "a\\b", "..\\x", "C:x", "c:/x", &long]
    {
        let expected = format!("member {:.120} has an unsafe name", name.replace('\\', "\\\\"));
        let sentence = refusal(&[stored(name, b"x")]);
        assert!(sentence.starts_with(&expected), "{sentence}");
    }
    let sentence = refusal(&[stored("/\u{1b}[2J", b"x")]);
    assert!(sentence.starts_with("member /\\x1b[2J has"), "{sentence}");
}

#[test]
fn unknown_members_are_ignored() {
    let upper = format!("bodies/{}", digest(b"x").to_string().to_uppercase());
    let mut odd = stored("odd", b"x");
    odd.entry.method = 99;
    let names = ["bodies/", "..a", "a..", "readme:x", "bodies/12", "x/har.har", &upper];
    let mut members: Vec<Member> = names.iter().map(|name| stored(name, b"x")).collect();
    members.push(odd);
    let file = zip_of(&members);
    let mut reader = open(&file).unwrap();
    assert_eq!((reader.ignored(), reader.digests().count()), (8, 0));
    assert_eq!(reader.har().unwrap(), HAR);
}

#[test]
fn members_of_equal_names_are_refused() {
    for twice in [body(b"x"), stored("readme", b"x")] {
        let sentence = refusal(&[twice.clone(), twice.clone()]);
        assert_eq!(sentence, format!("member {} is in the archive twice", twice.name));
    }
    assert_eq!(refusal(&[stored(HAR_NAME, b"")]), "member har.har is in the archive twice");
}

#[test]
fn encrypted_members_are_refused() {
    for (bit, name) in [(0, body_name(&digest(b"x"))), (6, "readme".into()), (13, "x".into())] {
        let mut member = stored(&name, b"x");
        member.entry.flags = 1 << bit;
        assert_eq!(refusal(&[member]), format!("member {name} is encrypted"));
    }
}

#[test]
fn other_methods_are_refused() {
    let mut member = body(b"x");
    member.entry.method = 12;
    let name = member.name.clone();
    let expected = format!("member {name} is compressed by method 12, not by deflate");
    assert_eq!(refusal(&[member]), expected);
}

#[test]
fn long_members_are_refused() {
    let mut member = deflated(&body_name(&digest(b"")), b"");
    (member.entry.size, member.entry.packed) = (MAX_BODY + 1, MAX_BODY / 2);
    let sentence = refusal(&[member]);
    assert!(sentence.ends_with("has 1073741825 bytes, more than 1073741824"), "{sentence}");
}

#[test]
fn a_member_that_expands_too_much_is_refused() {
    let zeros = vec![0; 2 << 20];
    let name = body_name(&digest(&zeros));
    let expected = format!("member {name} expands to more than 250 times its length");
    assert_eq!(refusal(&[deflated(&name, &zeros)]), expected);
    // Up to 1 MiB there is no limit.
    let zeros = &zeros[..1 << 20];
    let file = zip_of(&[deflated(&body_name(&digest(zeros)), zeros)]);
    assert_eq!(whole_bodies(&file).len(), 1);
}

#[test]
fn a_member_is_not_longer_or_shorter_than_the_directory_states() {
    let content = b"abc".repeat(50);
    for size in [0, 149, 151, 1000] {
        let mut member = deflated(&body_name(&digest(&content)), &content);
        member.entry.size = size;
        let expected = format!("member {} does not have the length", member.name);
        let sentence = unreadable(member);
        assert!(sentence.starts_with(&expected), "{size}: {sentence}");
    }
    let mut member = body(b"abc");
    member.entry.packed = 2;
    assert!(refusal(&[member]).contains("does not have the length"));
}

#[test]
fn a_body_with_another_hash_than_its_name_is_refused() {
    let member = stored(&body_name(&digest(b"x")), b"y");
    let name = member.name.clone();
    let found = digest(b"y");
    let expected = format!("member {name} has the wrong hash: the SHA-256 of its bytes is {found}");
    assert_eq!(unreadable(member), expected);
}

#[test]
fn damaged_members_are_refused() {
    let mut wrong_crc = body(b"x");
    wrong_crc.entry.crc ^= 1;
    let mut wrong_stream = deflated(&body_name(&digest(b"xyz")), b"xyz");
    wrong_stream.content[0] = 7;
    for member in [wrong_crc, wrong_stream] {
        let expected = format!("member {} is damaged", member.name);
        assert_eq!(unreadable(member), expected);
    }
}

#[test]
fn a_member_with_another_header_than_its_entry_is_refused() {
    let mut member = body(b"x");
    member.local_name = body_name(&digest(b"y"));
    let names = [member.name.clone(), HAR_NAME.to_string()];
    let mut file = zip_of(&[member]);
    file[0] = b'Q';
    let mut reader = open(&file).unwrap();
    let errors = [reader.body(&digest(b"x")).unwrap_err(), reader.har().unwrap_err()];
    for (error, name) in errors.iter().zip(names) {
        let reason = "differs from its entry in the directory, or is not there";
        assert_eq!(error.to_string(), format!("member {name} {reason}"));
    }
}

#[test]
fn overlapping_members_are_refused() {
    let (mut first, second) = (stored("readme", b""), body(b"x"));
    // The content of the first body has the second one.
    let inside = [second.entry.local_header(&second.name), b"x".to_vec()].concat();
    first.name = body_name(&digest(&inside));
    first.local_name = first.name.clone();
    first.entry = body(&inside).entry;
    first.content = Vec::new();
    let sentence = refusal(&[first.clone(), second]);
    assert_eq!(
        sentence,
        format!("member {} overlaps the member behind it or the directory", first.name)
    );
    let mut long = body(b"x");
    (long.entry.packed, long.entry.size) = (2, 2);
    assert!(refusal(&[long]).contains("overlaps"));
}

#[test]
fn a_har_has_to_be_text_and_there() {
    let text = [b"{\"log", &[0xff][..], b"\": {}}"].concat();
    let file = zip_with(&stored(HAR_NAME, &text), &[]);
    let error = open(&file).unwrap().har().unwrap_err();
    assert_eq!(error.to_string(), "har.har is not UTF-8 at byte 5");
    let file = zip_with(&stored("har.txt", HAR.as_bytes()), &[]);
    assert_eq!(open(&file).unwrap_err().to_string(), "the archive has no member har.har");
}

#[test]
fn files_that_are_not_whole_archives_are_refused() {
    let file = archive(&bodies());
    let error = |bytes: &[u8]| open(bytes).unwrap_err();
    for bytes in [&b""[..], b"PK", HAR.as_bytes(), &file[1..], &file[..file.len() - 1]] {
        assert!(matches!(error(bytes), ContainerError::NoDirectory), "{}", error(bytes));
    }
    let end = file.len() - END_LENGTH;
    let changed = |at: usize| {
        let mut bytes = file.clone();
        bytes[at] += 1;
        error(&bytes)
    };
    assert!(matches!(changed(end + 4), ContainerError::Split));
    assert!(matches!(changed(end + 8), ContainerError::Split));
    assert!(matches!(changed(end + 16), ContainerError::NoDirectory));
    let directory = u32::from_le_bytes(*file[end + 16..].first_chunk().unwrap()) as usize;
    let ContainerError::Directory { at } = changed(directory) else { panic!("is read") };
    assert_eq!(at as usize, directory);
    let mut count = file.clone();
    for at in [8, 10] {
        count[end + at] += 1;
    }
    assert!(matches!(error(&count), ContainerError::Directory { .. }));
}

/// A recording: each exchange has a response with a body.
fn recording(bodies: &[(&[u8], u64)]) -> Archive {
    let exchange = |(content, length): &(&[u8], u64)| {
        let protocol = Protocol::Http11;
        let (decoded_length, is_length_announced) = (None, true);
        let digest = (!content.is_empty()).then(|| digest(content));
        let body = Body { length: *length, decoded_length, digest, is_length_announced };
        Exchange {
            connection: None,
            stream: None,
            page: None,
            started: Time::ZERO,
            timings: Timings::default(),
            request: Request {
                method: "GET".into(),
                url: "https://a.example/".into(),
                protocol,
                fields: Vec::new(),
                body: None,
                trailers: Vec::new(),
            },
            response: Some(Response {
                status: 200,
                reason: String::new(),
                protocol,
                fields: Vec::new(),
                interim: Vec::new(),
                body: Some(body),
                trailers: Vec::new(),
                arrivals: Vec::new(),
            }),
            think: None,
            abort: None,
        }
    };
    Archive { exchanges: bodies.iter().map(exchange).collect(), ..Archive::default() }
}

#[test]
fn a_recording_is_compared_with_its_file() {
    let mut damaged = body(b"damaged");
    damaged.entry.crc ^= 1;
    let wrong = stored(&body_name(&digest(b"right")), b"wrong");
    let file = zip_of(&[body(b"one"), body(b"two"), body(b"unused"), wrong, damaged]);
    let mut archive = recording(&[
        (b"one", 3),
        (b"two", 4),
        (b"right", 5),
        (b"missing", 7),
        (b"", 9),
        (b"damaged", 7),
        (b"missing", 7),
    ]);
    let request = &mut archive.exchanges[0].request;
    request.body = recording(&[(b"two", 2)]).exchanges[0].response.as_ref().unwrap().body;
    let problems = check(&mut open(&file).unwrap(), &archive);
    let sentences: Vec<String> = problems.iter().map(Problem::to_string).collect();
    let [right, missing, wrong, unused] =
        [&b"right"[..], b"missing", b"wrong", b"unused"].map(digest);
    let damaged = body_name(&digest(b"damaged"));
    assert_eq!(
        sentences,
        [
            "exchange 1: the body of the request has 3 bytes, not 2".to_string(),
            "exchange 2: the body of the response has 3 bytes, not 4".into(),
            format!(
                "exchange 3: the body of the response has the wrong hash: {wrong}, not {right}"
            ),
            format!("exchange 4: the body of the response is missing ({missing})"),
            format!(
                "exchange 6: the body of the response cannot be read: member {damaged} is damaged"
            ),
            format!("exchange 7: the body of the response is missing ({missing})"),
            format!("no exchange has the body {unused}"),
        ]
    );
    assert_eq!(check(&mut open(&zip_of(&[])).unwrap(), &recording(&[(b"", 3)])), []);
}
