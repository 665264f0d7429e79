//! Limits of the observer, and those that the endpoints set.

use super::frames::{integer, string};
use super::*;

/// A head in frames of the usual maximum length.
fn long_head(stream: u32, block: &[u8]) -> Vec<u8> {
    let mut frames = frame(1, END_STREAM, stream, &[]);
    for part in block.chunks(16_384) {
        frames.extend(continuation(stream, 0, part));
    }
    [&frames[..], &continuation(stream, END_HEADERS, &[])].concat()
}

#[test]
fn a_head_has_a_maximum_length_compressed_and_decompressed() {
    let outcome = |block: &[u8]| {
        let mut harness = Harness::new();
        let read = harness.passes(Client, &long_head(1, block)).map_err(|fault| fault.what);
        read.map(|()| harness.seen.len())
    };
    let too_long = Err("a head that is too long");
    // Padding of an integer makes a block long, but not its fields.
    let update = [0x3f, 0x80, 0x80, 0x80, 0];
    let fill = |length: usize| {
        let mut block = update.repeat((length - GET.len()) / update.len());
        block.resize(length - GET.len(), 0x20);
        [&block[..], GET].concat()
    };
    assert_eq!(outcome(&fill(MAX_BLOCK_LENGTH)), Ok(2));
    assert_eq!(outcome(&fill(MAX_BLOCK_LENGTH + 1)), too_long);

    // Entries of 4 KB in one byte each.
    let value = vec![b'x'; 4_000];
    let entry = [GET, &integer(0x40, 6, 0), &string(b"a"), &string(&value)].concat();
    let counted = 42 + 43 + 38;
    let full = (MAX_HEAD_SIZE - counted) / (4_001 + 32);
    assert_eq!(outcome(&[&entry[..], &vec![0xbe; full - 1]].concat()), Ok(2));
    assert_eq!(outcome(&[&entry[..], &vec![0xbe; full]].concat()), too_long);

    let fields = |count| [GET, &[0, 1, b'a', 0].repeat(count)].concat();
    assert_eq!(outcome(&fields(MAX_FIELDS)), Ok(2));
    assert_eq!(outcome(&fields(MAX_FIELDS + 1)), Err("too many fields"));
}

#[test]
fn endless_heads_and_settings_end() {
    let mut harness = Harness::new();
    harness.pass(Client, &[frame(1, 0, 1, GET)]);
    let part = continuation(1, 0, &[0x20; 16_384]);
    let read = (0..1_000).try_for_each(|_| harness.passes(Client, &part));
    assert_eq!(read.map_err(|fault| fault.what), Err("a head that is too long"));
    let mut harness = Harness::new();
    let read = (0..64).try_for_each(|_| harness.passes(Client, &settings(&[(1, 0)])));
    assert_eq!(read, Ok(()));
    harness.pass(Server, &[frame(4, ACK, 0, &[])]);
    harness.pass(Client, &[settings(&[])]);
    let what = "more settings than are acknowledged";
    assert_eq!(harness.passes(Client, &settings(&[])), Err(Fault { from: Client, what }));
}

#[test]
fn open_streams_are_limited_and_closed_ones_need_no_memory() {
    let mut harness = Harness::new();
    let ids = |from: u32, count: usize| (0..count as u32).map(move |index| from + 2 * index);
    // Requests that are reset at once.
    for id in ids(1, 3 * MAX_OPEN_STREAMS) {
        harness.pass(Client, &[headers(id, END_STREAM, GET), reset(id, 8)]);
        harness.seen.clear();
        assert!(!harness.observer.is_busy());
    }
    let first = 1 + 6 * MAX_OPEN_STREAMS as u32;
    let open: Vec<_> = ids(first, MAX_OPEN_STREAMS - 1).map(|id| headers(id, 0, GET)).collect();
    harness.pass(Client, &open);
    harness.pass(Server, &[promise(first, 2, GET), reset(first, 0), promise(first, 4, GET)]);
    let one_more = harness.passes(Server, &promise(first, 6, GET));
    assert_eq!(one_more.map_err(|fault| fault.what), Err("more requests than are answered"));
    let aborted = harness.seen.iter().filter(|seen| matches!(seen, Seen::Abort(..))).count();
    assert_eq!(aborted, MAX_OPEN_STREAMS + 1);
}

#[test]
fn settings_of_one_endpoint_limit_the_other_one() {
    let ack = frame(4, ACK, 0, &[]);
    // A table of 8192 bytes, then the fields.
    let update = |fields: &[u8]| [&integer(0x20, 5, 8_192)[..], fields].concat();
    let mut harness = Harness::new();
    harness.pass(Server, &[settings(&[(1, 100), (9, 7), (1, 8_192), (5, 20_000)])]);
    // Both before and after the acknowledgment.
    harness.pass(Client, &[headers(1, END_STREAM, &update(GET)), frame(99, 0, 0, &[0; 20_000])]);
    harness.pass(Client, std::slice::from_ref(&ack));
    harness.pass(Client, &[headers(3, END_STREAM, &update(GET)), frame(99, 0, 0, &[0; 20_000])]);
    // The settings are none of the client.
    let read = harness.passes(Server, &headers(3, END_STREAM, &update(&[0x88])));
    let what = "heads that need more memory than permitted";
    assert_eq!(read, Err(Fault { from: Server, what }));

    let mut harness = Harness::new();
    harness.pass(Server, &[settings(&[(1, 8_192), (5, 20_000)])]);
    harness.pass(Server, &[settings(&[(1, 8_191), (5, 19_999)])]);
    harness.pass(Client, &[ack.clone(), headers(1, END_STREAM, &update(GET))]);
    harness.pass(Client, &[frame(99, 0, 0, &[0; 20_000]), ack.clone()]);
    harness.pass(Client, &[frame(99, 0, 0, &[0; 19_999])]);
    let read = harness.passes(Client, &headers(3, END_STREAM, &update(GET)));
    assert_eq!(read, Err(Fault { from: Client, what }));

    let mut harness = Harness::new();
    harness.pass(Server, &[settings(&[(5, 20_000)]), settings(&[(5, 16_384)])]);
    harness.pass(Client, &[ack.clone(), ack.clone(), ack, frame(99, 0, 0, &[0; 16_384])]);
    let what = "a frame that is longer than permitted";
    let read = harness.passes(Client, &frame(99, 0, 0, &[0; 16_385]));
    assert_eq!(read, Err(Fault { from: Client, what }));
}
