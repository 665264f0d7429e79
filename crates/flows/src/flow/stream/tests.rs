use proptest::prelude::*;

use super::*;

const MSS: u32 = 1_000;

/// A TCP header.
fn header(seq: u32, ack: u32, flags: u8, options: &[u8]) -> Vec<u8> {
    let mut options = options.to_vec();
    options.resize(options.len().next_multiple_of(4), 0);
    let mut bytes = vec![0, 80, 0x80, 0];
    bytes.extend([seq.to_be_bytes(), ack.to_be_bytes()].concat());
    bytes.extend([((20 + options.len()) << 2) as u8, flags, 0x10, 0, 0, 0, 0, 0]);
    bytes.extend(options);
    bytes
}

fn stamps(value: u32, echo: u32) -> Vec<u8> {
    [&[1, 1, 8, 10][..], &value.to_be_bytes(), &echo.to_be_bytes()].concat()
}

fn sack(blocks: &[(u32, u32)]) -> Vec<u8> {
    let mut bytes = vec![1, 1, 5, (2 + 8 * blocks.len()) as u8];
    bytes.extend(blocks.iter().flat_map(|(b, e)| [b.to_be_bytes(), e.to_be_bytes()].concat()));
    bytes
}

/// A stream of segments of 1,000 bytes; sequence numbers count from `origin`. Times are in
/// milliseconds.
struct Harness {
    stream: Stream,
    origin: u32,
    /// Round-trip time between the capture point and the sender.
    min_sender_rtt: Option<Span>,
    /// Identification of the next packet.
    ip_id: u16,
}

impl Harness {
    fn new(origin: u32) -> Self {
        let bytes = header(origin, 0, 0x10, &[]);
        let mut stream = Stream::new(&Segment::read(&bytes, bytes.len()).unwrap());
        stream.set_mss(MSS as u16);
        Self { stream, origin, min_sender_rtt: None, ip_id: 0 }
    }

    fn segment(&mut self, at: u64, from: u32, to: u32, options: &[u8]) -> SegmentOutcome {
        self.flagged(at, from, to, 0x10, options)
    }

    fn flagged(
        &mut self,
        at: u64,
        from: u32,
        to: u32,
        flags: u8,
        options: &[u8],
    ) -> SegmentOutcome {
        let bytes = header(self.origin.wrapping_add(from), 0, flags, options);
        let mut segment = Segment::read(&bytes, bytes.len() + (to - from) as usize).unwrap();
        segment.ip_id = self.ip_id;
        self.stream.on_segment(Time::from_millis(at), &segment, self.min_sender_rtt)
    }

    /// Passes segment `number`.
    fn sends(&mut self, at: u64, number: u32) -> SegmentOutcome {
        self.segment(at, number * MSS, (number + 1) * MSS, &[])
    }

    fn stamped(&mut self, at: u64, number: u32, tsval: u32) -> SegmentOutcome {
        self.segment(at, number * MSS, (number + 1) * MSS, &stamps(tsval, 0))
    }

    fn ack_with_window(&mut self, at: u64, bytes: u32, window: u64, options: &[u8]) {
        let bytes = header(7, self.origin.wrapping_add(bytes), 0x10, options);
        let ack = Segment::read(&bytes, bytes.len()).unwrap();
        self.stream.on_ack(Time::from_millis(at), &ack, window);
    }

    /// Passes an ACK of all segments before `number`.
    fn acks(&mut self, at: u64, number: u32) {
        self.ack_with_window(at, number * MSS, 60_000, &[]);
    }

    /// Passes an ACK with SACK blocks.
    fn sacks(&mut self, at: u64, number: u32, ranges: &[(u32, u32)]) {
        let place = |number: u32| self.origin.wrapping_add(number * MSS);
        let blocks: Vec<_> = ranges.iter().map(|(b, e)| (place(*b), place(*e))).collect();
        self.ack_with_window(at, number * MSS, 60_000, &sack(&blocks));
    }

    fn counts(&self) -> Counts {
        self.stream.counts()
    }
}

fn median(harness: &Harness) -> Option<Span> {
    harness.stream.receiver_rtt().median()
}

#[test]
fn an_acknowledgement_is_measured_from_the_last_segment_that_it_covers() {
    for origin in [0, 5, u32::MAX - 2_500] {
        let mut harness = Harness::new(origin);
        for number in 0..20 {
            let at = u64::from(number) * 100;
            harness.sends(at, 2 * number);
            harness.sends(at + 10, 2 * number + 1);
            harness.acks(at + 17, 2 * number + 2);
        }
        assert_eq!(
            (median(&harness), harness.stream.receiver_rtt().count()),
            (Some(Span::from_millis(7)), 20)
        );
        let counts = harness.counts();
        assert_eq!((counts.data_segments, counts.bytes, counts.max_in_flight), (40, 40_000, 2_000));
        assert_eq!(
            (counts.retransmissions, counts.lost_after, counts.uncaptured),
            (Retransmissions::default(), 0, 0)
        );
    }
}

#[test]
fn an_acknowledgement_that_is_recorded_as_earlier_than_its_segment_is_no_measure() {
    let mut harness = Harness::new(0);
    harness.sends(100, 0);
    harness.acks(99, 1);
    harness.sends(200, 1);
    harness.acks(200, 2);
    assert_eq!(harness.stream.receiver_rtt().count(), 0);
    harness.sends(300, 2);
    harness.acks(307, 3);
    assert_eq!(harness.stream.receiver_rtt().min(), Some(Span::from_millis(7)));
}

#[test]
fn merged_segments_count_as_the_ones_that_they_were_and_are_acknowledged_in_parts() {
    let mut harness = Harness::new(0);
    harness.segment(0, 0, 10_000, &[]);
    harness.acks(20, 2);
    harness.acks(22, 10);
    assert_eq!(harness.counts().data_segments, 10);
    assert_eq!(
        (harness.stream.receiver_rtt().count(), median(&harness)),
        (2, Some(Span::from_millis(21)))
    );
}

#[test]
fn an_acknowledgement_that_was_held_back_is_no_measure() {
    let mut harness = Harness::new(0);
    for number in 0..5 {
        harness.sends(100 * u64::from(number), number);
        harness.acks(100 * u64::from(number) + 5, number + 1);
    }
    harness.sends(1_000, 5);
    harness.acks(1_045, 6);
    assert_eq!((harness.counts().delayed_acks, harness.stream.receiver_rtt().count()), (1, 5));
    // One ACK for two segments.
    harness.sends(2_000, 6);
    harness.sends(2_000, 7);
    harness.acks(2_050, 8);
    assert_eq!((harness.counts().delayed_acks, harness.stream.receiver_rtt().count()), (1, 6));
}

#[test]
fn an_acknowledgement_of_one_segment_of_many_was_in_a_queue() {
    let mut harness = Harness::new(0);
    // A queue that grows: a segment each 2 ms, of which one each 4 ms leaves the queue.
    let mut acks = 0;
    for at in 0..200 {
        if at % 2 == 0 {
            harness.sends(at, at as u32 / 2);
        }
        if at >= 24 && at % 4 == 0 {
            acks += 1;
            harness.acks(at, acks);
        }
    }
    let counts = (harness.counts().delayed_acks, harness.stream.receiver_rtt().count());
    assert_eq!(counts, (0, 44));
    // The times grow from 24 to 110 ms, and the median of many is within 0.8 %.
    let median = median(&harness).unwrap().as_secs_f64();
    assert!((median / 0.067 - 1.0).abs() < 0.008, "{median}");
}

/// Segment 1 of six is lost after the capture point, and retransmitted at 30 ms.
fn with_loss(acks: impl Fn(&mut Harness)) -> Harness {
    let mut harness = Harness::new(0);
    for number in 0..6 {
        harness.sends(u64::from(number), number);
    }
    harness.acks(10, 1);
    acks(&mut harness);
    assert_eq!(
        harness.sends(30, 1),
        SegmentOutcome {
            is_retransmission: true,
            in_flight: 5_000,
            begin: harness.stream.first() + 1_000,
            end: harness.stream.first() + 2_000,
            ..SegmentOutcome::default()
        }
    );
    harness
}

#[test]
fn what_repeated_acknowledgements_ask_for_was_lost_behind() {
    let mut harness = with_loss(|harness| (12..16).for_each(|at| harness.acks(at, 1)));
    assert_eq!(
        harness.counts().retransmissions,
        Retransmissions { fast: 1, ..Retransmissions::default() }
    );
    assert_eq!((harness.counts().lost_after, harness.counts().lost_before), (1, 0));
    let before = harness.stream.receiver_rtt().count();
    harness.acks(40, 2);
    assert_eq!(
        harness.stream.receiver_rtt().count(),
        before,
        "nobody knows which copy that is for"
    );
    harness.acks(41, 6);
    assert_eq!(harness.stream.receiver_rtt().count(), before, "they waited for what was missing");
}

#[test]
fn what_was_in_order_no_more_is_no_measure() {
    // The second segment overtook the first after the capture point.
    let mut harness = Harness::new(0);
    harness.sends(0, 0);
    harness.sends(1, 1);
    harness.ack_with_window(5, 0, 60_000, &[]);
    harness.ack_with_window(6, 0, 60_000, &[]);
    harness.acks(20, 2);
    assert_eq!(harness.stream.receiver_rtt().count(), 0);
    // A segment has old and new bytes.
    let mut harness = Harness::new(0);
    harness.sends(0, 0);
    let outcome = harness.segment(30, 500, 1_500, &[]);
    assert!(outcome.is_new && outcome.is_retransmission);
    harness.ack_with_window(40, 1_500, 60_000, &[]);
    assert_eq!(harness.stream.receiver_rtt().count(), 0);
}

#[test]
fn an_end_from_long_ago_ends_nothing() {
    let mut harness = Harness::new(5_000);
    harness.sends(0, 0);
    harness.acks(5, 1);
    // One FIN before all sent data, and one within acknowledged data.
    let bytes = header(4_000, 0, 0x11, &[]);
    let segment = Segment::read(&bytes, bytes.len()).unwrap();
    harness.stream.on_segment(Time::from_millis(6), &segment, None);
    harness.flagged(7, 100, 100, 0x11, &[]);
    assert_eq!((harness.stream.fin(), harness.stream.unique_bytes()), (None, 1_000));
    assert_eq!(harness.stream.acked(), harness.stream.first() + 1_000);
    // A FIN that is acknowledged already, and whose first copy did not pass.
    harness.ack_with_window(10, 1_001, 60_000, &[]);
    harness.flagged(20, 1_000, 1_000, 0x11, &[]);
    assert_eq!(harness.stream.unique_bytes(), 1_000);
}

#[test]
fn who_has_sent_all_that_there_was_says_so() {
    let mut harness = Harness::new(0);
    assert!(harness.flagged(0, 0, 0, 0x02, &[]).was_app_limited, "nothing was sent before");
    let mut next = |from, to, flags| harness.flagged(1, from, to, flags, &[]).was_app_limited;
    assert!(next(1, 1_001, 0x10), "a SYN says nothing of data");
    assert!(!next(1_001, 1_301, 0x10), "the one before was full");
    assert!(!next(1_301, 1_601, 0x18), "the one before filled up a window");
    assert!(next(1_601, 2_601, 0x10), "the one before was short and the last");
}

#[test]
fn what_sack_asks_for_was_lost_behind() {
    let harness = with_loss(|harness| harness.sacks(15, 1, &[(2, 6)]));
    assert_eq!(
        harness.counts().retransmissions,
        Retransmissions { fast: 1, ..Retransmissions::default() }
    );
    assert_eq!(harness.counts().lost_after, 1);
    // Two segments after a gap may have been reordered.
    let mut harness = with_loss(|harness| harness.sacks(15, 1, &[(2, 4)]));
    assert_eq!(
        harness.counts().retransmissions,
        Retransmissions { timeout: 1, ..Retransmissions::default() }
    );
    // Retransmissions after a timeout belong to it; the timeout counts once.
    harness.sends(31, 4);
    assert_eq!(
        harness.counts().retransmissions,
        Retransmissions { timeout: 2, ..Retransmissions::default() }
    );
}

#[test]
fn silence_makes_a_timer_send_the_first_again_and_a_probe_the_last() {
    let mut harness = Harness::new(0);
    (0..3).for_each(|number| _ = harness.sends(0, number));
    harness.sends(40, 2);
    assert_eq!(
        harness.counts().retransmissions,
        Retransmissions { probe: 1, ..Retransmissions::default() }
    );
    harness.sends(300, 0);
    assert_eq!(
        harness.counts().retransmissions,
        Retransmissions { probe: 1, timeout: 1, ..Retransmissions::default() }
    );
    let alone = |silence| {
        let mut harness = Harness::new(0);
        harness.sends(0, 0);
        harness.sends(silence, 0);
        harness.counts().retransmissions
    };
    assert_eq!(alone(50), Retransmissions { probe: 1, ..Retransmissions::default() });
    assert_eq!(alone(250), Retransmissions { timeout: 1, ..Retransmissions::default() });
}

#[test]
fn what_the_receiver_had_already_was_no_loss() {
    // DSACK reports it immediately…
    let mut harness = with_loss(|harness| harness.sacks(15, 1, &[(2, 6)]));
    harness.sacks(40, 6, &[(1, 2)]);
    let expected = (Retransmissions { spurious: 1, ..Retransmissions::default() }, 0);
    assert_eq!((harness.counts().retransmissions, harness.counts().lost_after), expected);
    // …and a repeated report is not counted again.
    harness.sacks(41, 6, &[(1, 2)]);
    assert_eq!((harness.counts().retransmissions, harness.counts().lost_after), expected);
    // …or within the SACKed bytes after a gap.
    let mut harness = with_loss(|harness| harness.sacks(15, 1, &[(2, 6)]));
    harness.sends(33, 4);
    assert_eq!(harness.counts().lost_after, 2);
    harness.sacks(40, 1, &[(4, 5), (2, 6)]);
    assert_eq!(
        (harness.counts().retransmissions.fast, harness.counts().retransmissions.spurious),
        (1, 1)
    );
    assert_eq!(harness.counts().lost_after, 1);
    // Bytes that the receiver has already acknowledged.
    let mut harness = Harness::new(0);
    harness.sends(0, 0);
    harness.acks(5, 1);
    harness.sends(300, 0);
    assert_eq!((harness.counts().retransmissions, harness.counts().lost_after), expected);
}

#[test]
fn of_several_copies_one_came_twice_each_time_that_it_is_said() {
    // The first copy was lost, the second arrived, and its ACK was lost.
    let mut harness = with_loss(|harness| harness.sacks(15, 1, &[(2, 6)]));
    harness.sends(300, 1);
    assert_eq!((harness.counts().retransmissions.total(), harness.counts().lost_after), (2, 2));
    harness.sacks(310, 6, &[(1, 2)]);
    assert_eq!(
        (harness.counts().retransmissions.fast, harness.counts().retransmissions.spurious),
        (1, 1)
    );
    assert_eq!(harness.counts().lost_after, 1);
    // So the first copy had arrived as well.
    harness.sacks(311, 6, &[(1, 2)]);
    assert_eq!((harness.counts().retransmissions.spurious, harness.counts().lost_after), (2, 0));
    // Lost before the capture point, retransmitted, and retransmitted again although acknowledged…
    let mut harness = Harness::new(0);
    harness.sends(0, 0);
    harness.sends(1, 2);
    harness.sacks(2, 1, &[(2, 3)]);
    harness.sends(30, 1);
    harness.acks(31, 3);
    harness.sends(300, 1);
    let before = harness.counts();
    assert_eq!(
        (before.lost_before, before.retransmissions.total(), before.retransmissions.spurious),
        (1, 2, 1)
    );
    // …about which the DSACK adds nothing.
    harness.sacks(301, 3, &[(1, 2)]);
    assert_eq!(harness.counts(), before);
    // Ten segments were retransmitted twice, the second time spuriously, as DSACKs report one by
    // one.
    let mut harness = Harness::new(0);
    harness.sends(0, 0);
    harness.segment(1, 1_000, 11_000, &[]);
    harness.acks(10, 1);
    harness.segment(300, 1_000, 11_000, &[]);
    harness.segment(700, 1_000, 11_000, &[]);
    assert_eq!(harness.counts().lost_after, 20);
    for number in [5, 4, 1, 2, 3, 8, 6, 7, 9, 10] {
        harness.sacks(710, 11, &[(number, number + 1)]);
    }
    assert_eq!((harness.counts().retransmissions.spurious, harness.counts().lost_after), (10, 10));
    // Reports for parts of a segment count as one segment.
    let mut harness = with_loss(|harness| harness.sacks(15, 1, &[(2, 6)]));
    for (begin, end) in [(1_000, 1_300), (1_700, 2_000), (1_300, 1_700)] {
        harness.ack_with_window(40, 6_000, 60_000, &sack(&[(begin, end)]));
    }
    assert_eq!((harness.counts().retransmissions.spurious, harness.counts().lost_after), (1, 0));
    // One of two segments that one DSACK reports.
    let mut harness = with_loss(|harness| harness.sacks(15, 1, &[(3, 6)]));
    harness.sends(31, 2);
    harness.sacks(40, 6, &[(1, 3)]);
    assert_eq!((harness.counts().retransmissions.spurious, harness.counts().lost_after), (2, 0));
}

#[test]
fn a_copy_that_the_network_made_says_nothing_of_one_that_was_sent_again() {
    let mut harness = Harness::new(0);
    harness.stamped(0, 0, 10);
    harness.stamped(1, 2, 11);
    harness.ack_with_window(2, 1_000, 60_000, &sack(&[(2_000, 3_000)]));
    harness.stamped(30, 1, 40);
    harness.stamped(30, 1, 40);
    harness.ack_with_window(40, 3_000, 60_000, &sack(&[(1_000, 2_000)]));
    let counts = harness.counts();
    assert_eq!((counts.lost_before, counts.uncaptured, counts.duplicated), (1, 0, 1));
    assert_eq!((counts.retransmissions.total(), counts.retransmissions.spurious), (1, 0));
}

#[test]
fn two_copies_that_nobody_sent_twice_are_no_loss() {
    let mut harness = Harness::new(0);
    for number in 0..3 {
        harness.stamped(10, number, 77);
        harness.stamped(10, number, 77);
    }
    let counts = harness.counts();
    assert_eq!((counts.duplicated, counts.retransmissions.total(), counts.lost_after), (3, 0, 0));
}

#[test]
fn packets_with_two_numbers_were_sent_twice() {
    let copies = |numbers: [u16; 2]| {
        let mut harness = Harness::new(0);
        harness.min_sender_rtt = Some(Span::from_millis(40));
        for packet in numbers {
            harness.ip_id = packet;
            harness.sends(10, 0);
        }
        harness.ack_with_window(11, 1_000, 60_000, &[]);
        assert_eq!(harness.stream.receiver_rtt().count() == 0, numbers[0] != numbers[1]);
        // The receiver got both copies.
        harness.ack_with_window(12, 1_000, 60_000, &sack(&[(0, 1_000)]));
        let counts = harness.counts();
        assert_eq!(
            (counts.lost_after, counts.retransmissions.total()),
            (0, counts.retransmissions.spurious)
        );
        (counts.duplicated, counts.retransmissions.spurious)
    };
    assert_eq!(copies([0x753a, 0x753b]), (0, 1));
    assert_eq!(copies([0x753a, 0x753a]), (1, 0));
    assert_eq!(copies([0, 0]), (1, 0), "of a sender that numbers nothing");
}

/// A phone acknowledges within 1 ms, and the server is 19 ms away.
#[test]
fn nobody_sends_again_what_is_missing_before_the_sender_can_hear_of_that() {
    let fills = |at| {
        let mut harness = Harness::new(0);
        harness.min_sender_rtt = Some(Span::from_millis(19));
        harness.sends(0, 0);
        harness.acks(1, 1);
        harness.sends(30, 2);
        harness.sacks(30, 1, &[(2, 3)]);
        harness.sends(at, 1);
        let counts = harness.counts();
        (counts.reordered, counts.retransmissions.total(), counts.lost_before)
    };
    assert_eq!([fills(31), fills(49)], [(1, 0, 0); 2], "it was overtaken");
    assert_eq!(fills(51), (0, 1, 1));
    // Nor are bytes that passed: the first copy waited in a queue, and a timeout sent another one.
    let twice = |at| {
        let mut harness = Harness::new(0);
        harness.min_sender_rtt = Some(Span::from_millis(19));
        harness.stamped(0, 0, 10);
        harness.ack_with_window(1, 1_000, 60_000, &stamps(7, 10));
        harness.stamped(300, 1, 20);
        harness.stamped(at, 1, 290);
        let Counts { retransmissions: again, lost_after: lost_behind, duplicated, .. } =
            harness.counts();
        (again.spurious, again.total(), lost_behind, duplicated)
    };
    assert_eq!([twice(301), twice(319)], [(1, 1, 0, 0); 2]);
    assert_eq!(twice(330), (0, 1, 1, 0));
}

#[test]
fn what_comes_late_is_told_from_what_is_sent_again_by_the_senders_clock() {
    let late = |tsval, at| {
        let mut harness = Harness::new(0);
        harness.stamped(0, 0, 100);
        harness.stamped(2, 2, 102);
        harness.stamped(at, 1, tsval);
        let counts = harness.counts();
        (counts.reordered, counts.lost_before, counts.retransmissions.total())
    };
    assert_eq!(late(102, 60), (1, 0, 0), "of the same moment, however long it took");
    assert_eq!(late(101, 3), (1, 0, 0));
    assert_eq!(late(162, 60), (0, 1, 1));
    // Without timestamps, the minimum time of a retransmission decides.
    let plain = |at| {
        let mut harness = Harness::new(0);
        harness.sends(0, 0);
        harness.acks(20, 1);
        harness.sends(30, 2);
        harness.sends(at, 1);
        let counts = harness.counts();
        (counts.reordered, counts.lost_before)
    };
    assert_eq!((plain(45), plain(55)), ((1, 0), (0, 1)));
}

#[test]
fn a_gap_is_lost_before_once_however_it_is_filled() {
    let mut harness = Harness::new(0);
    harness.sends(0, 0);
    harness.sends(1, 5);
    for at in 2..8 {
        harness.acks(at, 1);
    }
    for number in [2, 4, 1, 3] {
        harness.sends(40 + u64::from(number), number);
    }
    let counts = harness.counts();
    assert_eq!((counts.lost_before, counts.retransmissions.fast, counts.uncaptured), (4, 4, 0));
    harness.acks(60, 6);
    assert_eq!((harness.counts().uncaptured, harness.stream.in_flight()), (0, 0));
}

#[test]
fn a_gap_may_be_filled_by_what_goes_on_behind_it() {
    let mut harness = Harness::new(0);
    harness.sends(0, 0);
    harness.segment(1, 2_000, 3_000, &[]);
    let outcome = harness.segment(40, 1_000, 4_000, &[]);
    assert!(outcome.is_new && outcome.is_retransmission);
    harness.acks(60, 4);
    assert_eq!((harness.counts().lost_before, harness.counts().uncaptured), (1, 0));
}

#[test]
fn an_acknowledgement_tells_of_what_was_sent_before_it() {
    let mut harness = Harness::new(0);
    harness.sends(0, 0);
    harness.acks(5, 1);
    // Segments 1 and 2 were lost before the capture point, as an empty segment after them shows.
    harness.segment(40, 3_000, 3_000, &[]);
    harness.segment(41, 3_000, 3_000, &[]);
    assert_eq!(harness.counts().retransmissions, Retransmissions::default());
    assert!(harness.sends(300, 1).is_new && harness.sends(340, 2).is_new);
    assert_eq!((harness.counts().retransmissions.timeout, harness.counts().lost_before), (2, 2));
    harness.acks(345, 3);
    assert_eq!((harness.counts().uncaptured, harness.stream.unique_bytes()), (0, 3_000));
    // Outside the window it does not belong to this stream.
    harness.segment(400, 80_000, 80_000, &[]);
    harness.sends(700, 3);
    // Bytes that arrive shortly after were reordered, by an empty segment or in the capture.
    harness.segment(710, 5_000, 5_000, &[]);
    harness.sends(711, 4);
    harness.acks(720, 5);
    assert_eq!((harness.counts().reordered, harness.counts().lost_before), (0, 2));
    // The window is unknown in a capture of one direction.
    let mut harness = Harness::new(0);
    harness.sends(0, 0);
    harness.segment(40, 3_000, 3_000, &[]);
    harness.sends(300, 1);
    assert_eq!(harness.counts().lost_before, 0);
    // Timestamps show which segment was sent first, however late it arrives.
    for (tsval, lost) in [(80, 0), (90, 0), (91, 1)] {
        let mut harness = Harness::new(0);
        harness.stamped(0, 0, 50);
        harness.ack_with_window(5, 1_000, 60_000, &stamps(7, 50));
        harness.segment(40, 2_000, 2_000, &stamps(90, 7));
        harness.stamped(300, 1, tsval);
        assert_eq!(
            (harness.counts().lost_before, harness.counts().reordered),
            (lost, 0),
            "{tsval}"
        );
    }
}

#[test]
fn what_a_probe_makes_the_receiver_ask_for_is_no_timers() {
    let mut harness = Harness::new(0);
    harness.sends(0, 0);
    harness.acks(10, 1);
    // Segment 1 is lost before the capture point, segment 2 after it.
    harness.sends(11, 2);
    harness.sends(100, 2);
    assert_eq!(harness.counts().retransmissions.probe, 1);
    harness.sacks(110, 1, &[(2, 3)]);
    harness.sends(120, 1);
    assert_eq!(
        (harness.counts().retransmissions.fast, harness.counts().retransmissions.timeout),
        (1, 0)
    );
}

#[test]
fn an_acknowledgement_of_what_did_not_pass_measures_nothing() {
    let mut harness = Harness::new(0);
    harness.sends(0, 0);
    harness.sends(30, 2);
    // Segment 1 is not in the capture; this ACK covers it.
    harness.acks(50, 2);
    assert_eq!(harness.stream.receiver_rtt().count(), 0);
    harness.acks(52, 3);
    assert_eq!(harness.stream.receiver_rtt().min(), Some(Span::from_millis(22)));
}

#[test]
fn what_is_acknowledged_and_never_passed_the_capture_missed() {
    let mut harness = Harness::new(0);
    harness.sends(0, 0);
    harness.sends(1, 2);
    harness.acks(10, 3);
    assert_eq!((harness.counts().uncaptured, harness.counts().lost_before), (1_000, 0));
    assert_eq!(harness.stream.unique_bytes(), 2_000);
    // Also at the end; the rest is not a gap.
    harness.acks(20, 5);
    assert_eq!((harness.counts().uncaptured, harness.stream.unique_bytes()), (3_000, 2_000));
    harness.sends(30, 5);
    assert_eq!(harness.stream.unique_bytes(), 3_000);
    harness.acks(35, 6);
    assert_eq!(harness.counts().uncaptured, 3_000);
    assert_eq!(harness.counts().lost_before + harness.counts().lost_after, 0);
    // Segments that seemed lost before, but arrived twice.
    let mut harness = Harness::new(0);
    harness.sends(0, 0);
    harness.sends(1, 2);
    (2..6).for_each(|at| harness.acks(at, 1));
    harness.sends(40, 1);
    harness.sacks(45, 3, &[(1, 2)]);
    assert_eq!((harness.counts().lost_before, harness.counts().uncaptured), (0, 1_000));
}

#[test]
fn gaps_that_are_forgotten_are_not_captured() {
    let mut harness = Harness::new(0);
    let gaps = MAX_HOLES as u32 + 20;
    for number in 0..=gaps {
        harness.sends(1, 2 * number);
    }
    assert_eq!(harness.stream.unique_bytes(), u64::from(gaps + 1) * 1_000);
}

#[test]
fn sack_blocks_beyond_all_windows_are_ignored() {
    for (block, samples) in [((2, 3), 0), ((20_000, 20_001), 1)] {
        let mut harness = Harness::new(0);
        harness.sends(0, 0);
        harness.sacks(10, 1, &[block]);
        assert_eq!(harness.stream.receiver_rtt().count(), samples, "{block:?}");
    }
}

#[test]
fn questions_are_no_data() {
    let mut harness = Harness::new(0);
    harness.sends(0, 0);
    harness.acks(5, 1);
    harness.segment(1_000, 999, 999, &[]);
    harness.segment(2_000, 999, 1_000, &[]);
    assert_eq!((harness.counts().keep_alives, harness.counts().data_segments), (2, 1));
    harness.ack_with_window(2_500, 1_000, 0, &[]);
    harness.segment(3_000, 999, 999, &[]);
    harness.segment(3_500, 1_000, 1_001, &[]);
    let counts = harness.counts();
    assert_eq!(
        (counts.window_probes, counts.keep_alives, counts.retransmissions.total()),
        (2, 2, 0)
    );
}

#[test]
fn what_is_remembered_is_bounded() {
    let mut harness = Harness::new(0);
    for number in 0..10_000 {
        harness.sends(0, 2 * number);
    }
    let holes = |stream: &Stream| stream.loss.as_ref().unwrap().holes.len();
    assert_eq!(
        (harness.stream.sent.len(), holes(&harness.stream)),
        (MAX_UNACKED_SEGMENTS, MAX_HOLES)
    );
    for number in 0..10_000 {
        harness.sends(900, 2 * number);
    }
    assert!(harness.stream.loss.unwrap().pending.len() <= MAX_UNACKED_SEGMENTS);
}

proptest! {
    #[test]
    fn whatever_passes_the_order_holds(
        origin in any::<u32>(),
        steps in prop::collection::vec(
            (any::<bool>(), 0_u32..30, 0_u32..4, 0_u32..3, any::<bool>()),
            1..120,
        ),
    ) {
        let mut harness = Harness::new(origin);
        for (at, (is_data, number, more, tsval, is_wild)) in steps.into_iter().enumerate() {
            let at = at as u64;
            match (is_data, is_wild) {
                (true, false) => {
                    let options = stamps(tsval, 0);
                    harness.segment(at, number * 500, (number + more) * 500, &options);
                }
                (true, true) => _ = harness.segment(at, number << 27, (number << 27) + more, &[]),
                (false, false) => harness.ack_with_window(at, number * 500, 1_000, &[]),
                (false, true) => harness.sacks(at, number, &[(more, number + more)]),
            }
            let stream = &harness.stream;
            prop_assert!(stream.acked <= stream.captured_end);
            let order: Vec<u64> = stream.sent.iter().flat_map(|sent| <[u64; 2]>::from(sent.offsets(stream.captured_end))).collect();
            prop_assert!(order.is_sorted(), "{order:?}");
            let holes = stream.loss.iter().flat_map(|loss| &loss.holes);
            prop_assert!(holes.into_iter().all(|hole| hole.begin < hole.end));
        }
    }
}

#[test]
fn a_packet_is_lost_at_most_once_and_without_data_not_at_all() {
    // One packet fills three gaps.
    let mut harness = Harness::new(0);
    for (begin, end) in [(0, 100), (110, 200), (210, 300), (310, 400)] {
        harness.segment(begin.into(), begin, end, &[]);
    }
    harness.segment(2_000, 0, 400, &[]);
    let counts = harness.counts();
    assert_eq!((counts.lost_before, counts.retransmissions.total()), (1, 1));
    // SYN and FIN.
    let mut harness = Harness::new(0);
    for at in [0, 1_000, 3_000] {
        harness.flagged(at, 0, 0, 0x02, &[]);
    }
    harness.segment(3_100, 1, 51, &[]);
    for at in [3_200, 3_500, 4_100] {
        harness.flagged(at, 51, 51, 0x11, &[]);
    }
    let counts = harness.counts();
    assert_eq!((counts.syns_again, counts.fins_again, counts.data_segments), (2, 2, 1));
    assert_eq!((counts.lost_before + counts.lost_after, counts.retransmissions.total()), (0, 0));
    // A copy that the network made.
    let mut harness = Harness::new(0);
    (0..2).for_each(|_| _ = harness.flagged(0, 0, 0, 0x02, &[]));
    assert_eq!((harness.counts().syns_again, harness.counts().duplicated), (0, 1));
}

#[test]
fn without_the_option_the_segments_of_the_flow_tell_their_size() {
    let merged = |first: u32| {
        let bytes = header(0, 0, 0x10, &[]);
        let mut stream = Stream::new(&Segment::read(&bytes, bytes.len()).unwrap());
        for length in [first, 14_480] {
            let segment = Segment::read(&bytes, bytes.len() + length as usize).unwrap();
            stream.on_segment(Time::ZERO, &segment, None);
        }
        stream.counts().data_segments
    };
    assert_eq!((merged(1_448), merged(1_400), merged(20)), (11, 12, 11));
}

#[test]
fn a_probe_with_the_next_byte_is_data_once() {
    let mut harness = Harness::new(0);
    harness.sends(0, 0);
    harness.ack_with_window(5, 1_000, 0, &[]);
    for at in [500, 1_500, 3_500] {
        harness.segment(at, 1_000, 1_001, &[]);
        harness.ack_with_window(at + 1, 1_000, 0, &[]);
    }
    harness.ack_with_window(4_000, 1_000, 60_000, &[]);
    harness.sends(4_010, 1);
    harness.acks(4_020, 2);
    let counts = harness.counts();
    assert_eq!((counts.window_probes, counts.keep_alives), (3, 0));
    assert_eq!((counts.retransmissions.total(), counts.lost_after), (0, 0));
    assert_eq!((harness.stream.unique_bytes(), counts.uncaptured), (2_000, 0));
    // The receiver takes the byte, and the window stays closed.
    let mut harness = Harness::new(0);
    harness.sends(0, 0);
    harness.ack_with_window(5, 1_000, 0, &[]);
    harness.segment(500, 1_000, 1_001, &[]);
    harness.ack_with_window(501, 1_001, 0, &[]);
    harness.segment(1_500, 1_001, 1_002, &[]);
    let counts = harness.counts();
    assert_eq!((counts.window_probes, counts.retransmissions.total()), (2, 0));
    assert_eq!((harness.stream.unique_bytes(), counts.uncaptured), (1_002, 0));
    // A byte beyond a window that is full and not closed is data.
    let mut harness = Harness::new(0);
    harness.ack_with_window(0, 0, 1_000, &[]);
    harness.sends(0, 0);
    harness.segment(500, 1_000, 1_001, &[]);
    let counts = harness.counts();
    assert_eq!((counts.window_probes, counts.keep_alives, counts.data_segments), (0, 0, 2));
}

#[test]
fn bytes_that_are_recorded_after_their_acknowledgement_are_captured() {
    let late = |delay: u64| {
        let mut harness = Harness::new(0);
        harness.sends(0, 0);
        harness.acks(5, 3);
        harness.sends(5 + delay, 1);
        harness.sends(5 + delay, 2);
        let counts = harness.counts();
        let again = counts.retransmissions;
        assert_eq!(again.total(), again.spurious);
        (harness.stream.unique_bytes(), counts.uncaptured, again.spurious)
    };
    assert_eq!(late(1), (3_000, 0, 0), "the capture recorded them late");
    assert_eq!(late(300), (3_000, 2_000, 2), "their first copy is not in the capture");
}

#[test]
fn a_late_syn_is_that_of_its_stream() {
    for origin in [0, 1, 5_000, u32::MAX] {
        let mut harness = Harness::new(origin);
        harness.segment(0, 0, 1_000, &[]);
        let before = harness.stream.data_start();
        let bytes = header(origin.wrapping_sub(1), 0, 0x02, &[]);
        let syn = Segment::read(&bytes, bytes.len()).unwrap();
        assert!(harness.stream.is_own_syn(&syn));
        harness.stream.on_segment(Time::from_millis(1), &syn, None);
        assert_eq!((harness.stream.data_start(), harness.stream.first()), (before, before - 1));
        assert_eq!((harness.stream.unique_bytes(), harness.counts().syns_again), (1_000, 0));
    }
}
