//! Captures of complete sessions.

use manyways_unit::Span;
use manyways_wire::bluetooth::{Close, Direction, Layer};

use crate::generator::{FORMATS, Format, Generator};
use crate::harness::{
    DLCI, HANDLE, PHONE_CID, Rng, UIH, WATCH, WATCH_CID, at, open_channel, open_stream, read,
    session,
};

const DIRECTIONS: [(Direction, u16); 2] =
    [(Direction::Sent, WATCH_CID), (Direction::Received, PHONE_CID)];

#[test]
fn streams_come_out_as_they_went_in() {
    for (seed, format) in FORMATS.into_iter().enumerate() {
        let (generator, truth) = session(seed as u64, 400);
        let analysed = read(&generator.file(format, 1 << 16));
        for ((direction, cid), ground_truth) in DIRECTIONS.into_iter().zip(&truth) {
            let stream = analysed.stream(direction, cid, Some(DLCI));
            assert_eq!(analysed.bytes(stream), ground_truth.bytes, "{format:?}");
            assert_eq!(analysed.times(stream), ground_truth.times);
            assert_eq!(stream.packets, ground_truth.times.len() as u64);
            assert_eq!((stream.bytes, stream.uncaptured), (ground_truth.bytes.len() as u64, 0));
            assert_eq!(
                (stream.first, stream.last),
                (ground_truth.times.first().copied(), ground_truth.times.last().copied())
            );
            assert_eq!(stream.peer.unwrap().to_string(), "02:11:22:33:44:55");
            assert_eq!((stream.id.handle, stream.id.server_channel()), (HANDLE, Some(3)));
            assert_eq!((stream.psm, stream.mtu), (Some(3), Some(330)));
            assert_eq!(stream.opened, Some(at(ground_truth.opened)));
            assert_eq!(stream.ended, (at(ground_truth.ended), Close::Closed));
            assert_eq!((stream.incomplete, stream.dropped), (0, 0));
        }
        let none = manyways_wire::bluetooth::Counts {
            commands: 1,
            events: analysed.counts.events,
            acl: analysed.counts.acl,
            ..Default::default()
        };
        assert_eq!(analysed.counts, none, "nothing is left over");
        // All frames belong to the channel, and only its streams have pieces.
        assert!(
            analysed.pieces.iter().all(|piece| piece.0.dlci == Some(DLCI) && piece.1 == Some(3))
        );
        assert_eq!(analysed.streams.iter().filter(|stream| stream.id.dlci.is_none()).count(), 2);
    }
}

#[test]
fn stalls_are_as_long_as_there_were_no_credits() {
    let mut stalls = 0;
    for seed in 0..20 {
        let (generator, truth) = session(seed, 300);
        let analysed = read(&generator.file(Format::H4, 1 << 16));
        for ((direction, cid), ground_truth) in DIRECTIONS.into_iter().zip(&truth) {
            let credits = analysed.stream(direction, cid, Some(DLCI)).credits.unwrap();
            assert_eq!((credits.stalls, credits.stalled), ground_truth.stalls());
            let all =
                |sign: i64| ground_truth.credits.values().map(|it| (it * sign).max(0)).sum::<i64>();
            assert_eq!((credits.granted, credits.spent), (all(1) as u64, all(-1) as u64));
            stalls += credits.stalls;
        }
    }
    assert!(stalls > 100, "there is something to see: {stalls}");
}

#[test]
fn packets_are_with_the_controller_until_it_is_done() {
    let (generator, truth) = session(3, 200);
    let analysed = read(&generator.file(Format::H4, 1 << 16));
    let sent = analysed.stream(Direction::Sent, WATCH_CID, Some(DLCI));
    let completion = &sent.completion;
    // Medians have an error of at most 0.8 %.
    let median = completion.median().unwrap().as_millis_f64();
    assert!((median / 7.5 - 1.0).abs() < 0.008, "{median}");
    assert_eq!(completion.min(), Some(Span::from_micros(7_500)));
    // Each part of a packet counts, and so do packets that only grant credits.
    assert!(completion.count() > truth[0].times.len() as u64);
    assert_eq!(analysed.stream(Direction::Received, PHONE_CID, Some(DLCI)).completion.count(), 0);
    let channel = analysed.stream(Direction::Sent, WATCH_CID, None);
    assert!(channel.completion.count() > completion.count());
}

#[test]
fn messages_have_names_and_say_what_they_say() {
    let (generator, _) = session(1, 30);
    let analysed = read(&generator.file(Format::Monitor, 1 << 16));
    let names: Vec<_> = analysed.names().into_iter().filter(|name| *name != "Credits").collect();
    let expected = [
        "Create Connection",
        "Connection Complete",
        "Connection Request",
        "Connection Response",
        "Connection Response",
        "Configuration Request",
        "Configuration Response",
        "Configuration Request",
        "Configuration Response",
        "SABM",
        "UA",
        "PN",
        "PN",
        "SABM",
        "UA",
        "MSC",
        "MSC",
        "DISC",
        "UA",
        "Disconnection Request",
        "Disconnection Response",
        "Disconnection Complete",
    ];
    assert_eq!(names, expected);
    let complete = analysed.control("Connection Complete");
    assert_eq!((complete.at, complete.layer), (at(1_090_000), Layer::Hci));
    assert_eq!((complete.handle, complete.peer.unwrap().0), (Some(HANDLE), WATCH));
    assert_eq!(complete.values, [("status", 0), ("link type", 1)]);
    assert_eq!(complete.direction, Some(Direction::Received));
    assert_eq!(analysed.control("Create Connection").peer, complete.peer);
    let request = analysed.control("Connection Request");
    assert_eq!(request.values, [("psm", 3), ("scid", u64::from(PHONE_CID))]);
    assert_eq!((request.cid, request.handle, request.peer), (Some(1), Some(HANDLE), complete.peer));
    assert_eq!(request.direction, Some(Direction::Sent));
    let configuration = analysed.control("Configuration Request");
    assert_eq!(configuration.value("mtu"), Some(990));
    let pn = analysed.control("PN");
    assert_eq!((pn.layer, pn.dlci, pn.cid), (Layer::Rfcomm, Some(DLCI), Some(WATCH_CID)));
    let said = ["command", "flow control", "frame size", "credits"].map(|name| pn.value(name));
    assert_eq!(said, [Some(1), Some(15), Some(330), Some(7)]);
    assert_eq!(
        (analysed.control("MSC").dlci, analysed.control("MSC").value("signals")),
        (Some(DLCI), Some(0x8d))
    );
    let over = analysed.control("Disconnection Complete");
    assert_eq!((over.peer, over.value("reason")), (complete.peer, Some(0x16)));
    assert!(analysed.names().contains(&"Credits"));
}

#[test]
fn modes_and_roles_are_said() {
    let mut generator = Generator::new(HANDLE);
    generator.connected(WATCH);
    generator.command(0x0803, &[0x0b, 0, 0x20, 3, 0x90, 1, 4, 0, 1, 0]);
    generator.event(0x14, &[0, 0x0b, 0, 2, 0x20, 3]);
    generator.event(0x12, &[0, 0x55, 0x44, 0x33, 0x22, 0x11, 0x02, 1]);
    generator.event(0x7f, &[1, 2, 3]);
    generator.event(0x3e, &[2, 1, 0]);
    generator.event(0x3e, &[3, 0, 0x0b, 0, 0x18, 0, 4, 0, 0xc8, 0]);
    let analysed = read(&generator.file(Format::Flags, 1 << 16));
    let names = [
        "Connection Complete",
        "Sniff Mode",
        "Mode Change",
        "Role Change",
        "LE Connection Update Complete",
    ];
    assert_eq!(analysed.names(), names);
    let mode = analysed.control("Mode Change");
    assert_eq!(mode.values, [("status", 0), ("mode", 2), ("interval", 800)]);
    assert_eq!(mode.peer.unwrap().0, WATCH);
    assert_eq!(analysed.control("Sniff Mode").value("min interval"), Some(400));
    assert_eq!(analysed.control("Role Change").peer.unwrap().0, WATCH);
    assert_eq!(analysed.control("LE Connection Update Complete").value("latency"), Some(4));
    assert_eq!(analysed.counts.events, 6);
}

#[test]
fn a_channel_that_is_not_rfcomm_is_a_stream() {
    let mut generator = Generator::new(HANDLE);
    generator.connected(WATCH);
    open_channel(&mut generator, 0x1001, PHONE_CID, WATCH_CID);
    // Responses in reverse order, one of which is a refusal.
    generator.signal(false, 0x02, 70, &[0x17, 0x60]);
    generator.signal(false, 0x02, 71, &[0x19, 0x61]);
    generator.signal(true, 0x03, 71, &[0, 0x61, 2, 0]);
    generator.signal(true, 0x03, 70, &[0x41, 0x60, 0, 0]);
    let mut rng = Rng(5);
    let (up, down, other) = (rng.bytes(900), rng.bytes(500), rng.bytes(10));
    generator.l2cap(true, WATCH_CID, &up);
    generator.l2cap(false, PHONE_CID, &down);
    generator.l2cap(true, 0x60, &other);
    generator.l2cap(true, 4, b"attribute");
    let analysed = read(&generator.file(Format::H4, 1 << 16));
    for (direction, cid, psm, mtu, bytes) in [
        (Direction::Sent, WATCH_CID, 0x1001, Some(1010), &up),
        (Direction::Received, PHONE_CID, 0x1001, Some(990), &down),
        (Direction::Sent, 0x60, 0x17, None, &other),
        (Direction::Received, 0x41, 0x17, None, &vec![]),
    ] {
        let stream = analysed.stream(direction, cid, None);
        assert_eq!((stream.psm, stream.mtu), (Some(psm), mtu));
        assert_eq!(analysed.bytes(stream), **bytes);
        assert_eq!(stream.credits, None);
        assert_eq!(stream.ended.1, Close::CaptureEnd);
    }
    // The fixed channel is counted, and the refused request opened none.
    let fixed = analysed.stream(Direction::Sent, 4, None);
    assert_eq!((fixed.packets, fixed.bytes, analysed.bytes(fixed)), (1, 9, vec![]));
    assert_eq!(analysed.streams.len(), 5);
}

#[test]
fn a_mode_with_sequence_numbers_is_counted_only() {
    let mut generator = Generator::new(HANDLE);
    generator.connected(WATCH);
    open_channel(&mut generator, 0x1001, PHONE_CID, WATCH_CID);
    // The mode option: ERTM, with a window and timeouts.
    generator.signal(true, 0x04, 90, &[WATCH_CID, 0, 0x0904, 0x0803, 0x0003, 0, 0, 0]);
    generator.l2cap(true, WATCH_CID, &[1; 50]);
    let analysed = read(&generator.file(Format::H4, 1 << 16));
    let stream = analysed.stream(Direction::Sent, WATCH_CID, None);
    assert_eq!((stream.packets, stream.bytes, analysed.pieces.len()), (1, 50, 0));
    let modes: Vec<_> = analysed.controls.iter().filter_map(|it| it.value("mode")).collect();
    assert_eq!(modes, [3]);
}

/// An LE channel with credits, whose messages have several segments.
#[test]
fn le_channels_have_credits_and_messages() {
    for code in [0x14, 0x17] {
        let mut generator = Generator::new(0x40);
        generator.max_packet_len = 27;
        generator.connected_le(WATCH);
        let opened = match code {
            0x14 => {
                generator.signal_on(5, true, 0x14, 7, &[0x80, PHONE_CID, 512, 64, 3]);
                generator.signal_on(5, false, 0x15, 7, &[WATCH_CID, 256, 64, 2, 0])
            }
            _ => {
                generator.signal_on(5, true, 0x17, 7, &[0x80, 512, 64, 3, PHONE_CID, 0x42]);
                generator.signal_on(5, false, 0x18, 7, &[256, 64, 2, 0, WATCH_CID, 0])
            }
        };
        let message: Vec<u8> = (0..150).collect();
        let first = [&150_u16.to_le_bytes()[..], &message[..62]].concat();
        generator.wait(10_000);
        generator.l2cap(true, WATCH_CID, &first);
        let stalled = generator.l2cap(true, WATCH_CID, &message[62..126]);
        generator.wait(40_000);
        let granted = generator.signal_on(5, false, 0x16, 8, &[WATCH_CID, 10]);
        generator.l2cap(true, WATCH_CID, &message[126..]);
        let last = generator.l2cap(true, WATCH_CID, &[1, 0, 77]);
        let back = generator.l2cap(false, PHONE_CID, &[2, 0, 8, 9]);
        generator.disconnected(0x13);
        let analysed = read(&generator.file(Format::H4, 1 << 16));
        let sent = analysed.stream(Direction::Sent, WATCH_CID, None);
        assert_eq!(analysed.bytes(sent), [&message[..], &[77]].concat());
        assert_eq!((sent.psm, sent.mtu, sent.packets, sent.bytes), (Some(0x80), Some(256), 4, 151));
        assert_eq!((sent.opened, sent.last), (Some(at(opened)), Some(at(last))));
        let credits = sent.credits.unwrap();
        assert_eq!((credits.granted, credits.spent, credits.stalls), (12, 4, 1));
        assert_eq!(credits.stalled, Span::from_micros(granted - stalled));
        let received = analysed.stream(Direction::Received, PHONE_CID, None);
        assert_eq!((analysed.bytes(received), received.last), (vec![8, 9], Some(at(back))));
        assert_eq!(received.mtu, Some(512));
        let credits = received.credits.unwrap();
        assert_eq!((credits.granted, credits.spent, credits.stalls), (3, 1, 0));
        assert_eq!(received.ended.1, Close::Disconnected);
        assert_eq!(analysed.control("LE Connection Complete").value("interval"), Some(24));
        assert_eq!(
            analysed.control("Flow Control Credit").values,
            [("cid", u64::from(WATCH_CID)), ("credits", 10)]
        );
        assert_eq!(analysed.streams.len(), 2);
    }
}

#[test]
fn without_credits_their_bit_means_nothing() {
    let mut generator = Generator::new(HANDLE);
    generator.connected(WATCH);
    open_channel(&mut generator, 3, PHONE_CID, WATCH_CID);
    generator.frame(true, WATCH_CID, (0, UIH, None), &[0x83, 0x11, DLCI, 0xf0, 7, 0, 127, 0, 0, 7]);
    generator.frame(false, PHONE_CID, (0, UIH, None), &[0x81, 0x11, DLCI, 0, 7, 0, 127, 0, 0, 0]);
    generator.frame(true, WATCH_CID, (DLCI, 0x3f, None), &[]);
    generator.frame(false, PHONE_CID, (DLCI, 0x73, None), &[]);
    generator.frame(true, WATCH_CID, (DLCI, UIH | 0x10, None), b"plain");
    generator.frame(false, PHONE_CID, (DLCI, 0x0f, None), &[]);
    let analysed = read(&generator.file(Format::H4, 1 << 16));
    let sent = analysed.stream(Direction::Sent, WATCH_CID, Some(DLCI));
    assert_eq!((analysed.bytes(sent), sent.credits), (b"plain".to_vec(), None));
    assert_eq!((sent.mtu, sent.ended.1), (Some(127), Close::Closed));
}

#[test]
fn numbers_that_are_used_again_are_other_streams() {
    let mut generator = Generator::new(HANDLE);
    for is_reset in [false, true] {
        generator.connected(WATCH);
        open_channel(&mut generator, 3, PHONE_CID, WATCH_CID);
        open_stream(&mut generator);
        generator.frame(true, WATCH_CID, (DLCI, UIH, None), b"hello");
        // The end of the connection was not captured, or there was none.
        if is_reset {
            generator.event(0x0e, &[1, 0x03, 0x0c, 0]);
            generator.wait(1);
        }
    }
    generator.connected([7; 6]);
    let analysed = read(&generator.file(Format::H4, 1 << 16));
    let all: Vec<_> = analysed.streams.iter().filter(|stream| stream.bytes == 5).collect();
    assert_eq!(all.len(), 2);
    assert_ne!(all[0].id.number, all[1].id.number);
    assert!(all.iter().all(|stream| stream.ended.1 == Close::Disconnected));
    let mut numbers: Vec<_> = analysed.streams.iter().map(|stream| stream.id.number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..analysed.streams.len() as u64).collect::<Vec<_>>());
}

#[test]
fn adapters_are_told_apart() {
    for format in [Format::Monitor, Format::PcapMonitor] {
        let mut generator = Generator::new(HANDLE);
        for adapter in [0, 1] {
            generator.adapter = adapter;
            generator.connected([adapter as u8; 6]);
            open_channel(
                &mut generator,
                [0x1001, 0x1003][usize::from(adapter)],
                PHONE_CID,
                WATCH_CID,
            );
        }
        generator.l2cap(true, WATCH_CID, b"of one");
        generator.adapter = 0;
        generator.l2cap(true, WATCH_CID, b"of zero");
        generator.event(0x0e, &[1, 0x03, 0x0c, 0]);
        let analysed = read(&generator.file(format, 1 << 16));
        let of = |adapter: u16| {
            let is_it = |stream: &&_| {
                let stream: &manyways_wire::bluetooth::StreamSummary = stream;
                stream.id.adapter == adapter && stream.bytes > 0 && stream.psm.is_some()
            };
            let stream = analysed.streams.iter().find(is_it).unwrap();
            (stream.peer.unwrap().0, stream.psm, analysed.bytes(stream), stream.ended.1)
        };
        assert_eq!(of(0), ([0; 6], Some(0x1001), b"of zero".to_vec(), Close::Disconnected));
        assert_eq!(of(1), ([1; 6], Some(0x1003), b"of one".to_vec(), Close::CaptureEnd));
    }
}
