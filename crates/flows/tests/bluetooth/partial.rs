//! Incomplete and invalid captures.

use manyways_unit::Time;
use manyways_wire::bluetooth::{
    CHANNELS, CONNECTIONS, Direction, Ending, Event, Host, OUTSTANDING, STREAMS,
};
use manyways_wire::capture::{Interface, LinkType, Packet};
use proptest::prelude::*;

use crate::generator::{Format, Generator, Kind};
use crate::world::{
    DLCI, HANDLE, OWN, THEIRS, UIH, WATCH, at, opens_channel, opens_stream, read, session,
};

#[test]
fn of_packets_that_are_cut_the_length_is_known() {
    let (phone, truth) = session(2, 200);
    let seen = read(&phone.file(Format::H4, 40));
    for (direction, cid, truth) in
        [(Direction::Sent, THEIRS, &truth[0]), (Direction::Received, OWN, &truth[1])]
    {
        let stream = seen.stream(direction, cid, Some(DLCI));
        assert_eq!(
            (stream.bytes, stream.packets),
            (truth.bytes.len() as u64, truth.times.len() as u64)
        );
        assert_eq!(seen.times(stream), truth.times);
        // Each piece has its offset, and is the start of the original bytes.
        let (mut place, mut there) = (0, 0);
        for (_, _, _, bytes, length) in seen.pieces.iter().filter(|piece| piece.0 == stream.id) {
            assert_eq!(bytes[..], truth.bytes[place..place + bytes.len()]);
            place += *length as usize;
            there += bytes.len() as u64;
        }
        assert!(there > 0 && stream.uncaptured == stream.bytes - there && stream.uncaptured > 0);
        // Credits precede the truncation.
        let credits = stream.credits.unwrap();
        assert_eq!((credits.stalls, credits.stalled), truth.stalls());
    }
}

#[test]
fn what_is_cut_too_short_is_not_guessed() {
    let (phone, _) = session(2, 100);
    // Packet type, ACL and L2CAP headers, and two bytes: signals are not readable.
    let seen = read(&phone.file(Format::H4, 11));
    assert!(seen.pieces.iter().all(|piece| piece.1.is_none() && piece.0.dlci.is_none()));
    assert!(seen.streams.iter().all(|stream| stream.psm.is_none()));
    // The channel ID is not captured, either.
    let seen = read(&phone.file(Format::H4, 8));
    assert!(seen.streams.is_empty() && seen.counts.broken == 0);
    // Credits beyond the truncation: their number is unknown.
    let mut phone = Generator::new(HANDLE);
    phone.connected(WATCH);
    opens_channel(&mut phone, 3, OWN, THEIRS);
    opens_stream(&mut phone);
    phone.frame(false, OWN, (DLCI, UIH, Some(3)), &[]);
    let last = phone.records.iter().rposition(|record| record.kind == Kind::Acl).unwrap();
    let whole = read(&phone.file(Format::H4, 1 << 16));
    assert_eq!(whole.stream(Direction::Sent, THEIRS, Some(DLCI)).credits.unwrap().granted, 8);
    let credits = |there: usize| {
        let mut host = Host::default();
        for (index, record) in phone.records.iter().enumerate() {
            pass(&mut host, record, if index == last { there } else { record.bytes.len() });
        }
        host.finish(|_| {});
        let of = |event| match event {
            Event::Stream(stream) if stream.id.dlci.is_some() => Some(stream.credits.is_some()),
            _ => None,
        };
        let headless = host.counts().headless;
        (std::iter::from_fn(|| host.poll()).filter_map(of).collect::<Vec<_>>(), headless)
    };
    assert_eq!(credits(11), (vec![false, true], 0));
    // A frame without its length cannot be assigned to a connection.
    assert_eq!(credits(10).1, 1);
}

/// Passes a record with `there` captured bytes.
fn pass(host: &mut Host, record: &crate::generator::Record, there: usize) {
    let link = if record.kind == Kind::Acl { LinkType::HCI_DATA } else { LinkType::HCI_CONTROL };
    let interface = Interface { link, snap: 0, name: String::new(), lost: 0 };
    let packet = Packet {
        at: at(record.at),
        interface: 0,
        bytes: &record.bytes[..there],
        length: record.bytes.len(),
        is_sent: Some(record.is_sent),
        lost_before: 0,
        steps_back: false,
    };
    host.handle(&interface, &packet, |_| {});
}

#[test]
fn a_capture_that_begins_in_the_middle() {
    let (mut phone, truth) = session(4, 300);
    let begin = truth[0].times[10].max(truth[1].times[10]);
    phone.records.retain(|record| at(record.at) > begin);
    let seen = read(&phone.file(Format::H4, 1 << 16));
    for (direction, cid) in [(Direction::Sent, THEIRS), (Direction::Received, OWN)] {
        let stream = seen.stream(direction, cid, None);
        assert_eq!((stream.psm, stream.peer, stream.opened), (None, None, None));
        assert_eq!((stream.credits, stream.mtu), (None, None));
        assert!(stream.packets > 50 && seen.bytes(stream).len() as u64 == stream.bytes);
        // The packets that the controller held before are unknown.
        assert_eq!(stream.completion.count(), 0);
    }
    assert!(seen.streams.iter().all(|stream| stream.id.dlci.is_none()), "RFCOMM is not guessed");
    // Nor from the response alone.
    let mut phone = Generator::new(HANDLE);
    phone.signal(false, 0x03, 1, &[THEIRS, OWN, 0, 0]);
    phone.frame(true, THEIRS, (DLCI, UIH, None), b"hello");
    let seen = read(&phone.file(Format::H4, 1 << 16));
    let stream = seen.stream(Direction::Sent, THEIRS, None);
    assert_eq!((stream.psm, stream.bytes), (None, 9));
    assert!(stream.opened.is_some());
}

#[test]
fn after_a_pause_it_is_known_again_what_the_controller_has() {
    let mut phone = Generator::new(HANDLE);
    // A packet from before the capture is completed now.
    phone.event(0x13, &[1, 0x0b, 0, 1, 0]);
    phone.l2cap(true, 0x50, b"first");
    phone.wait(1_900_000);
    phone.l2cap(true, 0x50, b"not yet");
    phone.wait(2_100_000);
    phone.l2cap(true, 0x50, b"measured");
    let seen = read(&phone.file(Format::H4, 1 << 16));
    assert_eq!(seen.stream(Direction::Sent, 0x50, None).completion.count(), 1);
}

#[test]
fn a_stream_whose_opening_was_missed_has_no_credits() {
    let mut phone = Generator::new(HANDLE);
    phone.connected(WATCH);
    opens_channel(&mut phone, 3, OWN, THEIRS);
    phone.frame(true, THEIRS, (DLCI, UIH, Some(2)), b"hello");
    phone.frame(false, OWN, (DLCI, UIH, None), b"back");
    let seen = read(&phone.file(Format::H4, 1 << 16));
    let sent = seen.stream(Direction::Sent, THEIRS, Some(DLCI));
    assert_eq!((seen.bytes(sent), sent.credits, sent.opened), (b"hello".to_vec(), None, None));
    let received = seen.stream(Direction::Received, OWN, Some(DLCI));
    assert_eq!((seen.bytes(received), received.credits), (b"back".to_vec(), None));
}

#[test]
fn parts_that_were_missed() {
    let mut phone = Generator::new(HANDLE);
    phone.connected(WATCH);
    opens_channel(&mut phone, 0x1001, OWN, THEIRS);
    let message: Vec<u8> = (0..=255).cycle().take(900).collect();
    for _ in 0..3 {
        phone.l2cap(false, OWN, &message);
    }
    let mut parts = 0;
    // The last two parts of the first message, and the first part of the second.
    phone.records.retain(|record| {
        let is_part = record.bytes.len() > 100 && record.kind == Kind::Acl;
        parts += u32::from(is_part);
        !is_part || ![4, 5, 6].contains(&parts)
    });
    let seen = read(&phone.file(Format::H4, 1 << 16));
    let stream = seen.stream(Direction::Received, OWN, None);
    // Continuations may belong to the second message: only its first part is certain.
    let pieces: Vec<_> = seen.pieces.iter().map(|piece| (piece.3.len(), piece.4)).collect();
    assert_eq!(pieces, [(196, 900), (900, 900)]);
    assert_eq!((stream.packets, stream.incomplete, stream.uncaptured), (2, 1, 704));
    assert_eq!((seen.counts.broken, seen.counts.orphans), (1, 2));
    assert_eq!(seen.bytes(stream)[..196], message[..196]);
}

#[test]
fn a_capture_that_says_what_it_lost() {
    let mut phone = Generator::new(HANDLE);
    phone.connected(WATCH);
    opens_channel(&mut phone, 3, OWN, THEIRS);
    opens_stream(&mut phone);
    phone.frame(true, THEIRS, (DLCI, UIH, None), &[7; 300]);
    let lost = phone.at - 50;
    phone.frame(true, THEIRS, (DLCI, UIH, None), b"after");
    // The second part of the long message.
    let place = phone.records.iter().rposition(|record| record.kind == Kind::Acl).unwrap();
    let gap = phone.records[..place].iter().rposition(|record| record.kind == Kind::Acl).unwrap();
    phone.records.remove(gap);
    let file = phone.file_with_losses(Format::H4, 1 << 16, &|at| u32::from(at > lost));
    let seen = read(&file);
    assert_eq!(seen.counts.lost, 1);
    let sent = seen.stream(Direction::Sent, THEIRS, Some(DLCI));
    assert_eq!((sent.packets, sent.bytes, sent.incomplete, sent.missed), (2, 305, 1, 1));
    let pieces: Vec<_> = seen.pieces.iter().map(|piece| (piece.3.len(), piece.4)).collect();
    // Of 200 bytes, 8 are headers: 4 of L2CAP and 4 of the frame.
    assert_eq!(pieces, [(192, 300), (5, 5)]);
    assert_eq!((sent.credits, sent.uncaptured), (None, 108));
}

#[test]
fn without_a_direction_nothing_is_followed() {
    let (phone, _) = session(2, 20);
    let mut host = Host::default();
    let link = LinkType::HCI_H4;
    let interface = Interface { link, snap: 0, name: String::new(), lost: 0 };
    for record in &phone.records {
        let bytes = [&[record.kind as u8], &record.bytes[..]].concat();
        let length = bytes.len();
        let (at, is_sent) = (at(record.at), None);
        let packet = Packet {
            at,
            interface: 0,
            bytes: &bytes,
            length,
            is_sent,
            lost_before: 0,
            steps_back: false,
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
    let mut phone = Generator::new(0);
    for handle in 0..2 * CONNECTIONS as u16 {
        phone.handle = handle;
        phone.l2cap(true, 0x40, b"x");
    }
    let seen = read(&phone.file(Format::H4, 1 << 16));
    assert_eq!(seen.counts.evicted, CONNECTIONS as u64);
    let evicted: Vec<_> =
        seen.streams.iter().filter(|stream| stream.ended.1 == Ending::Evicted).collect();
    assert!(evicted.iter().all(|stream| usize::from(stream.id.handle) < CONNECTIONS));
    assert_eq!((seen.streams.len(), evicted.len()), (2 * CONNECTIONS, CONNECTIONS));

    let mut phone = Generator::new(HANDLE);
    for cid in 0..2 * STREAMS as u16 {
        phone.l2cap(true, 0x40 + cid, b"x");
    }
    let seen = read(&phone.file(Format::H4, 1 << 16));
    let evicted: Vec<_> = seen.streams.iter().filter(|it| it.ended.1 == Ending::Evicted).collect();
    assert_eq!(evicted.len(), STREAMS);
    assert!(evicted.iter().all(|stream| usize::from(stream.id.cid) < 0x40 + STREAMS));

    let mut phone = Generator::new(HANDLE);
    for index in 0..2 * CHANNELS as u16 {
        phone.signal(true, 0x02, 1, &[0x1001, 0x100 + index]);
        phone.signal(false, 0x03, 1, &[0x300 + index, 0x100 + index, 0, 0]);
    }
    let seen = read(&phone.file(Format::H4, 1 << 16));
    let evicted = seen.streams.iter().filter(|stream| stream.ended.1 == Ending::Evicted).count();
    assert_eq!(evicted, 2 * CHANNELS, "two for each");

    // A controller that has never reported completions is ignored when it starts to.
    let mut phone = Generator::new(HANDLE);
    phone.connected(WATCH);
    phone.air = 1_000_000;
    for _ in 0..=OUTSTANDING {
        phone.l2cap(true, 0x40, b"x");
    }
    let seen = read(&phone.file(Format::H4, 1 << 16));
    assert_eq!(seen.stream(Direction::Sent, 0x40, None).completion.count(), 0);
}

proptest! {
    #[test]
    fn however_it_is_cut_what_is_there_is_right(snap in 0_usize..300, seed in 0_u64..50) {
        let (phone, truth) = session(seed, 40);
        let seen = read(&phone.file(Format::H4, snap));
        for (direction, truth) in [Direction::Sent, Direction::Received].into_iter().zip(&truth) {
            let mut place = 0;
            let of = |id: &manyways_wire::bluetooth::StreamId| {
                id.direction == direction && id.dlci == Some(DLCI)
            };
            for (_, _, _, bytes, length) in seen.pieces.iter().filter(|piece| of(&piece.0)) {
                let end = place + *length as usize;
                prop_assert_eq!(&bytes[..], &truth.bytes[place..place + bytes.len()]);
                place = end;
            }
            prop_assert!(place == truth.bytes.len() || place == 0);
        }
    }

    #[test]
    fn no_change_of_a_capture_panics(
        seed in 0_u64..20,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..60),
        missing in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
        snap in 8_usize..400,
    ) {
        let (mut phone, _) = session(seed, 40);
        for index in missing {
            phone.records.remove(index.index(phone.records.len()));
        }
        for (index, byte) in changes {
            let record = index.index(phone.records.len());
            let bytes = &mut phone.records[record].bytes;
            let place = usize::from(byte) % 24 % bytes.len();
            bytes[place] = bytes[place].wrapping_add(byte | 1);
        }
        let seen = read(&phone.file(Format::Monitor, snap));
        for stream in &seen.streams {
            let of = |piece: &&(_, _, _, Vec<u8>, u64)| piece.0 == stream.id;
            let (mut bytes, mut there) = (0, 0);
            for (_, _, _, piece, length) in seen.pieces.iter().filter(of) {
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
            LinkType::HCI_NOTE,
            LinkType::ETHERNET,
        ];
        let mut host = Host::default();
        for (link, is_sent, bytes, more) in &packets {
            let link = links[usize::from(*link)];
            let interface = Interface { link, snap: 0, name: "hci99999".into(), lost: 0 };
            let length = bytes.len() + more;
            let (at, lost_before) = (Time::ZERO, (*more % 17 == 0).into());
            let packet =
                Packet { at, interface: 0, bytes, length, is_sent: *is_sent, lost_before, steps_back: false };
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
