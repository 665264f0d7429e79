//! Incomplete and invalid captures.

use manyways_unit::Time;
use manyways_wire::bluetooth::{
    Close, Direction, Event, Host, MAX_CHANNELS, MAX_CONNECTIONS, MAX_IN_FLIGHT, MAX_STREAMS,
};
use manyways_wire::capture::{Interface, LinkType, Packet};
use proptest::prelude::*;

use crate::generator::{Format, Generator, Kind};
use crate::harness::{
    DLCI, HANDLE, PHONE_CID, UIH, WATCH, WATCH_CID, at, open_channel, open_stream, read, session,
};

#[test]
fn of_packets_that_are_cut_the_length_is_known() {
    let (generator, truth) = session(2, 200);
    let analysed = read(&generator.file(Format::H4, 40));
    for (direction, cid, ground_truth) in
        [(Direction::Sent, WATCH_CID, &truth[0]), (Direction::Received, PHONE_CID, &truth[1])]
    {
        let stream = analysed.stream(direction, cid, Some(DLCI));
        assert_eq!(
            (stream.bytes, stream.packets),
            (ground_truth.bytes.len() as u64, ground_truth.times.len() as u64)
        );
        assert_eq!(analysed.times(stream), ground_truth.times);
        // Each piece has its offset, and is the start of the original bytes.
        let (mut offset, mut there) = (0, 0);
        for (_, _, _, bytes, length) in analysed.pieces.iter().filter(|piece| piece.0 == stream.id)
        {
            assert_eq!(bytes[..], ground_truth.bytes[offset..offset + bytes.len()]);
            offset += *length as usize;
            there += bytes.len() as u64;
        }
        assert!(there > 0 && stream.uncaptured == stream.bytes - there && stream.uncaptured > 0);
        // Credits precede the truncation.
        let credits = stream.credits.unwrap();
        assert_eq!((credits.stalls, credits.stalled), ground_truth.stalls());
    }
}

#[test]
fn what_is_cut_too_short_is_not_guessed() {
    let (generator, _) = session(2, 100);
    // Packet type, ACL and L2CAP headers, and two bytes: signals are not readable.
    let analysed = read(&generator.file(Format::H4, 11));
    assert!(analysed.pieces.iter().all(|piece| piece.1.is_none() && piece.0.dlci.is_none()));
    assert!(analysed.streams.iter().all(|stream| stream.psm.is_none()));
    // The channel ID is not captured, either.
    let analysed = read(&generator.file(Format::H4, 8));
    assert!(analysed.streams.is_empty() && analysed.counts.malformed == 0);
    // Credits beyond the truncation: their number is unknown.
    let mut generator = Generator::new(HANDLE);
    generator.connected(WATCH);
    open_channel(&mut generator, 3, PHONE_CID, WATCH_CID);
    open_stream(&mut generator);
    generator.frame(false, PHONE_CID, (DLCI, UIH, Some(3)), &[]);
    let last = generator.records.iter().rposition(|record| record.kind == Kind::Acl).unwrap();
    let whole = read(&generator.file(Format::H4, 1 << 16));
    assert_eq!(whole.stream(Direction::Sent, WATCH_CID, Some(DLCI)).credits.unwrap().granted, 8);
    let credits = |there: usize| {
        let mut host = Host::default();
        for (index, record) in generator.records.iter().enumerate() {
            pass(&mut host, record, if index == last { there } else { record.bytes.len() });
        }
        host.finish(|_| {});
        let of = |event| match event {
            Event::Stream(stream) if stream.id.dlci.is_some() => Some(stream.credits.is_some()),
            _ => None,
        };
        let headless = host.counts().truncated;
        (std::iter::from_fn(|| host.poll()).filter_map(of).collect::<Vec<_>>(), headless)
    };
    assert_eq!(credits(11), (vec![false, true], 0));
    // A frame without its length cannot be assigned to a connection.
    assert_eq!(credits(10).1, 1);
}

/// Passes a record with `there` captured bytes.
fn pass(host: &mut Host, record: &crate::generator::Record, there: usize) {
    let link = if record.kind == Kind::Acl { LinkType::HCI_DATA } else { LinkType::HCI_CONTROL };
    let interface = Interface { link, snap_length: 0, name: String::new(), dropped: 0 };
    let packet = Packet {
        at: at(record.at),
        interface: 0,
        bytes: &record.bytes[..there],
        length: record.bytes.len(),
        is_sent: Some(record.is_sent),
        dropped_before: 0,
        is_out_of_order: false,
    };
    host.handle(&interface, &packet, |_| {});
}

#[test]
fn a_capture_that_begins_in_the_middle() {
    let (mut generator, truth) = session(4, 300);
    let begin = truth[0].times[10].max(truth[1].times[10]);
    generator.records.retain(|record| at(record.at) > begin);
    let analysed = read(&generator.file(Format::H4, 1 << 16));
    for (direction, cid) in [(Direction::Sent, WATCH_CID), (Direction::Received, PHONE_CID)] {
        let stream = analysed.stream(direction, cid, None);
        assert_eq!((stream.psm, stream.peer, stream.opened), (None, None, None));
        assert_eq!((stream.credits, stream.mtu), (None, None));
        assert!(stream.packets > 50 && analysed.bytes(stream).len() as u64 == stream.bytes);
        // The packets that the controller held before are unknown.
        assert_eq!(stream.completion.count(), 0);
    }
    assert!(
        analysed.streams.iter().all(|stream| stream.id.dlci.is_none()),
        "RFCOMM is not guessed"
    );
    // Nor from the response alone.
    let mut generator = Generator::new(HANDLE);
    generator.signal(false, 0x03, 1, &[WATCH_CID, PHONE_CID, 0, 0]);
    generator.frame(true, WATCH_CID, (DLCI, UIH, None), b"hello");
    let analysed = read(&generator.file(Format::H4, 1 << 16));
    let stream = analysed.stream(Direction::Sent, WATCH_CID, None);
    assert_eq!((stream.psm, stream.bytes), (None, 9));
    assert!(stream.opened.is_some());
}

#[test]
fn after_a_pause_it_is_known_again_what_the_controller_has() {
    let mut generator = Generator::new(HANDLE);
    // A packet from before the capture is completed now.
    generator.event(0x13, &[1, 0x0b, 0, 1, 0]);
    generator.l2cap(true, 0x50, b"first");
    generator.wait(1_900_000);
    generator.l2cap(true, 0x50, b"not yet");
    generator.wait(2_100_000);
    generator.l2cap(true, 0x50, b"measured");
    let analysed = read(&generator.file(Format::H4, 1 << 16));
    assert_eq!(analysed.stream(Direction::Sent, 0x50, None).completion.count(), 1);
}

#[test]
fn a_stream_whose_opening_was_missed_has_no_credits() {
    let mut generator = Generator::new(HANDLE);
    generator.connected(WATCH);
    open_channel(&mut generator, 3, PHONE_CID, WATCH_CID);
    generator.frame(true, WATCH_CID, (DLCI, UIH, Some(2)), b"hello");
    generator.frame(false, PHONE_CID, (DLCI, UIH, None), b"back");
    let analysed = read(&generator.file(Format::H4, 1 << 16));
    let sent = analysed.stream(Direction::Sent, WATCH_CID, Some(DLCI));
    assert_eq!((analysed.bytes(sent), sent.credits, sent.opened), (b"hello".to_vec(), None, None));
    let received = analysed.stream(Direction::Received, PHONE_CID, Some(DLCI));
    assert_eq!((analysed.bytes(received), received.credits), (b"back".to_vec(), None));
}

#[test]
fn parts_that_were_missed() {
    let mut generator = Generator::new(HANDLE);
    generator.connected(WATCH);
    open_channel(&mut generator, 0x1001, PHONE_CID, WATCH_CID);
    let message: Vec<u8> = (0..=255).cycle().take(900).collect();
    for _ in 0..3 {
        generator.l2cap(false, PHONE_CID, &message);
    }
    let mut parts = 0;
    // The last two parts of the first message, and the first part of the second.
    generator.records.retain(|record| {
        let is_part = record.bytes.len() > 100 && record.kind == Kind::Acl;
        parts += u32::from(is_part);
        !is_part || ![4, 5, 6].contains(&parts)
    });
    let analysed = read(&generator.file(Format::H4, 1 << 16));
    let stream = analysed.stream(Direction::Received, PHONE_CID, None);
    // Continuations may belong to the second message: only its first part is certain.
    let pieces: Vec<_> = analysed.pieces.iter().map(|piece| (piece.3.len(), piece.4)).collect();
    assert_eq!(pieces, [(196, 900), (900, 900)]);
    assert_eq!((stream.packets, stream.incomplete, stream.uncaptured), (2, 1, 704));
    assert_eq!((analysed.counts.malformed, analysed.counts.orphan_fragments), (1, 2));
    assert_eq!(analysed.bytes(stream)[..196], message[..196]);
}

#[test]
fn a_capture_that_says_what_it_lost() {
    let mut generator = Generator::new(HANDLE);
    generator.connected(WATCH);
    open_channel(&mut generator, 3, PHONE_CID, WATCH_CID);
    open_stream(&mut generator);
    generator.frame(true, WATCH_CID, (DLCI, UIH, None), &[7; 300]);
    let lost = generator.at - 50;
    generator.frame(true, WATCH_CID, (DLCI, UIH, None), b"after");
    // The second part of the long message.
    let offset = generator.records.iter().rposition(|record| record.kind == Kind::Acl).unwrap();
    let gap =
        generator.records[..offset].iter().rposition(|record| record.kind == Kind::Acl).unwrap();
    generator.records.remove(gap);
    let file = generator.file_with_losses(Format::H4, 1 << 16, &|at| u32::from(at > lost));
    let analysed = read(&file);
    assert_eq!(analysed.counts.dropped, 1);
    let sent = analysed.stream(Direction::Sent, WATCH_CID, Some(DLCI));
    assert_eq!((sent.packets, sent.bytes, sent.incomplete, sent.dropped), (2, 305, 1, 1));
    let pieces: Vec<_> = analysed.pieces.iter().map(|piece| (piece.3.len(), piece.4)).collect();
    // Of 200 bytes, 8 are headers: 4 of L2CAP and 4 of the frame.
    assert_eq!(pieces, [(192, 300), (5, 5)]);
    assert_eq!((sent.credits, sent.uncaptured), (None, 108));
}

#[test]
fn without_a_direction_nothing_is_followed() {
    let (generator, _) = session(2, 20);
    let mut host = Host::default();
    let link = LinkType::HCI_H4;
    let interface = Interface { link, snap_length: 0, name: String::new(), dropped: 0 };
    for record in &generator.records {
        let bytes = [&[record.kind as u8], &record.bytes[..]].concat();
        let length = bytes.len();
        let (at, is_sent) = (at(record.at), None);
        let packet = Packet {
            at,
            interface: 0,
            bytes: &bytes,
            length,
            is_sent,
            dropped_before: 0,
            is_out_of_order: false,
        };
        host.handle(&interface, &packet, |_| panic!("there is data"));
    }
    host.finish(|_| {});
    assert_eq!(host.counts().undirected, host.counts().acl);
    let names: Vec<_> = std::iter::from_fn(|| host.poll())
        .map(|event| match event {
            Event::Control(control) => control.name,
            Event::Stream(stream) => panic!("{stream:?}"),
        })
        .collect();
    assert_eq!(names, ["Create Connection", "Connection Complete", "Disconnection Complete"]);
}

#[test]
fn there_are_limits() {
    let mut generator = Generator::new(0);
    for handle in 0..2 * MAX_CONNECTIONS as u16 {
        generator.handle = handle;
        generator.l2cap(true, 0x40, b"x");
    }
    let analysed = read(&generator.file(Format::H4, 1 << 16));
    assert_eq!(analysed.counts.evicted, MAX_CONNECTIONS as u64);
    let evicted: Vec<_> =
        analysed.streams.iter().filter(|stream| stream.ended.1 == Close::Evicted).collect();
    assert!(evicted.iter().all(|stream| usize::from(stream.id.handle) < MAX_CONNECTIONS));
    assert_eq!((analysed.streams.len(), evicted.len()), (2 * MAX_CONNECTIONS, MAX_CONNECTIONS));

    let mut generator = Generator::new(HANDLE);
    for cid in 0..2 * MAX_STREAMS as u16 {
        generator.l2cap(true, 0x40 + cid, b"x");
    }
    let analysed = read(&generator.file(Format::H4, 1 << 16));
    let evicted: Vec<_> =
        analysed.streams.iter().filter(|it| it.ended.1 == Close::Evicted).collect();
    assert_eq!(evicted.len(), MAX_STREAMS);
    assert!(evicted.iter().all(|stream| usize::from(stream.id.cid) < 0x40 + MAX_STREAMS));

    let mut generator = Generator::new(HANDLE);
    for index in 0..2 * MAX_CHANNELS as u16 {
        generator.signal(true, 0x02, 1, &[0x1001, 0x100 + index]);
        generator.signal(false, 0x03, 1, &[0x300 + index, 0x100 + index, 0, 0]);
    }
    let analysed = read(&generator.file(Format::H4, 1 << 16));
    let evicted = analysed.streams.iter().filter(|stream| stream.ended.1 == Close::Evicted).count();
    assert_eq!(evicted, 2 * MAX_CHANNELS, "two for each");

    // A controller that has never reported completions is ignored when it starts to.
    let mut generator = Generator::new(HANDLE);
    generator.connected(WATCH);
    generator.controller_delay = 1_000_000;
    for _ in 0..=MAX_IN_FLIGHT {
        generator.l2cap(true, 0x40, b"x");
    }
    let analysed = read(&generator.file(Format::H4, 1 << 16));
    assert_eq!(analysed.stream(Direction::Sent, 0x40, None).completion.count(), 0);
}

proptest! {
    #[test]
    fn however_it_is_cut_what_is_there_is_right(snap in 0_usize..300, seed in 0_u64..50) {
        let (generator, truth) = session(seed, 40);
        let analysed = read(&generator.file(Format::H4, snap));
        for (direction, ground_truth) in [Direction::Sent, Direction::Received].into_iter().zip(&truth) {
            let mut offset = 0;
            let of = |id: &manyways_wire::bluetooth::StreamId| {
                id.direction == direction && id.dlci == Some(DLCI)
            };
            for (_, _, _, bytes, length) in analysed.pieces.iter().filter(|piece| of(&piece.0)) {
                let end = offset + *length as usize;
                prop_assert_eq!(&bytes[..], &ground_truth.bytes[offset..offset + bytes.len()]);
                offset = end;
            }
            prop_assert!(offset == ground_truth.bytes.len() || offset == 0);
        }
    }

    #[test]
    fn no_change_of_a_capture_panics(
        seed in 0_u64..20,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..60),
        missing in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
        snap in 8_usize..400,
    ) {
        let (mut generator, _) = session(seed, 40);
        for index in missing {
            generator.records.remove(index.index(generator.records.len()));
        }
        for (index, byte) in changes {
            let record = index.index(generator.records.len());
            let bytes = &mut generator.records[record].bytes;
            let offset = usize::from(byte) % 24 % bytes.len();
            bytes[offset] = bytes[offset].wrapping_add(byte | 1);
        }
        let analysed = read(&generator.file(Format::Monitor, snap));
        for stream in &analysed.streams {
            let of = |piece: &&(_, _, _, Vec<u8>, u64)| piece.0 == stream.id;
            let (mut bytes, mut there) = (0, 0);
            for (_, _, _, piece, length) in analysed.pieces.iter().filter(of) {
                bytes += length;
                there += piece.len() as u64;
            }
            prop_assert!(bytes <= stream.bytes && there <= stream.bytes);
            prop_assert!(stream.first <= stream.last);
        }
    }

    #[test]
    fn any_packets_are_read(
        packets in prop::collection::vec(
            (0_u8..8, any::<Option<bool>>(), prop::collection::vec(any::<u8>(), 0..60), 0_usize..100),
            0..40,
        ),
    ) {
        let links = [
            LinkType::HCI_H4,
            LinkType::HCI_H4_DIRECTED,
            LinkType::BLUETOOTH_MONITOR,
            LinkType::HCI_DATA,
            LinkType::HCI_CONTROL,
            LinkType::HCI_SYNCHRONOUS,
            LinkType::HCI_MONITOR_OTHER,
            LinkType::ETHERNET,
        ];
        let mut host = Host::default();
        for (link, is_sent, bytes, more) in &packets {
            let link = links[usize::from(*link)];
            let interface = Interface { link, snap_length: 0, name: "hci99999".into(), dropped: 0 };
            let length = bytes.len() + more;
            let (at, dropped_before) = (Time::ZERO, (*more % 17 == 0).into());
            let packet =
                Packet { at, interface: 0, bytes, length, is_sent: *is_sent, dropped_before, is_out_of_order: false };
            host.handle(&interface, &packet, |data| {
                assert!(data.piece.bytes.len() as u64 <= data.piece.length);
            });
        }
        host.finish(|_| {});
        let counts = host.counts();
        let all = [counts.commands, counts.events, counts.acl, counts.synchronous, counts.other];
        prop_assert_eq!(all.iter().sum::<u64>(), packets.len() as u64);
    }
}
