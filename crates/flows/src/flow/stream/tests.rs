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
struct Passing {
    stream: Stream,
    origin: u32,
    /// Round-trip time between the capture point and the sender.
    far: Option<Span>,
    /// Identification of the next packet.
    packet: u16,
}

impl Passing {
    fn new(origin: u32) -> Self {
        let bytes = header(origin, 0, 0x10, &[]);
        let mut stream = Stream::new(&Segment::read(&bytes, bytes.len()).unwrap());
        stream.set_mss(MSS);
        Self { stream, origin, far: None, packet: 0 }
    }

    fn segment(&mut self, at: u64, from: u32, to: u32, options: &[u8]) -> Seen {
        self.flagged(at, from, to, 0x10, options)
    }

    fn flagged(&mut self, at: u64, from: u32, to: u32, flags: u8, options: &[u8]) -> Seen {
        let bytes = header(self.origin.wrapping_add(from), 0, flags, options);
        let mut segment = Segment::read(&bytes, bytes.len() + (to - from) as usize).unwrap();
        segment.packet = self.packet;
        self.stream.sends(Time::from_millis(at), &segment, self.far)
    }

    /// Passes segment `number`.
    fn sends(&mut self, at: u64, number: u32) -> Seen {
        self.segment(at, number * MSS, (number + 1) * MSS, &[])
    }

    fn stamped(&mut self, at: u64, number: u32, stamp: u32) -> Seen {
        self.segment(at, number * MSS, (number + 1) * MSS, &stamps(stamp, 0))
    }

    fn says(&mut self, at: u64, bytes: u32, window: u64, options: &[u8]) {
        let bytes = header(7, self.origin.wrapping_add(bytes), 0x10, options);
        let ack = Segment::read(&bytes, bytes.len()).unwrap();
        self.stream.is_acked(Time::from_millis(at), &ack, window);
    }

    /// Passes an ACK of all segments before `number`.
    fn acks(&mut self, at: u64, number: u32) {
        self.says(at, number * MSS, 60_000, &[]);
    }

    /// Passes an ACK with SACK blocks.
    fn sacks(&mut self, at: u64, number: u32, ranges: &[(u32, u32)]) {
        let place = |number: u32| self.origin.wrapping_add(number * MSS);
        let blocks: Vec<_> = ranges.iter().map(|(b, e)| (place(*b), place(*e))).collect();
        self.says(at, number * MSS, 60_000, &sack(&blocks));
    }

    fn counts(&self) -> Counts {
        self.stream.counts()
    }
}

fn median(passing: &Passing) -> Option<Span> {
    passing.stream.near().median()
}

#[test]
fn an_acknowledgement_is_measured_from_the_last_segment_that_it_covers() {
    for origin in [0, 5, u32::MAX - 2_500] {
        let mut passing = Passing::new(origin);
        for number in 0..20 {
            let at = u64::from(number) * 100;
            passing.sends(at, 2 * number);
            passing.sends(at + 10, 2 * number + 1);
            passing.acks(at + 17, 2 * number + 2);
        }
        assert_eq!(
            (median(&passing), passing.stream.near().count()),
            (Some(Span::from_millis(7)), 20)
        );
        let counts = passing.counts();
        assert_eq!(
            (counts.data_segments, counts.bytes, counts.most_in_flight),
            (40, 40_000, 2_000)
        );
        assert_eq!((counts.again, counts.lost_behind, counts.unseen), (Again::default(), 0, 0));
    }
}

#[test]
fn an_acknowledgement_that_is_recorded_as_earlier_than_its_segment_is_no_measure() {
    let mut passing = Passing::new(0);
    passing.sends(100, 0);
    passing.acks(99, 1);
    passing.sends(200, 1);
    passing.acks(200, 2);
    assert_eq!(passing.stream.near().count(), 0);
    passing.sends(300, 2);
    passing.acks(307, 3);
    assert_eq!(passing.stream.near().least(), Some(Span::from_millis(7)));
}

#[test]
fn merged_segments_count_as_the_ones_that_they_were_and_are_acknowledged_in_parts() {
    let mut passing = Passing::new(0);
    passing.segment(0, 0, 10_000, &[]);
    passing.acks(20, 2);
    passing.acks(22, 10);
    assert_eq!(passing.counts().data_segments, 10);
    assert_eq!((passing.stream.near().count(), median(&passing)), (2, Some(Span::from_millis(21))));
}

#[test]
fn an_acknowledgement_that_was_held_back_is_no_measure() {
    let mut passing = Passing::new(0);
    for number in 0..5 {
        passing.sends(100 * u64::from(number), number);
        passing.acks(100 * u64::from(number) + 5, number + 1);
    }
    passing.sends(1_000, 5);
    passing.acks(1_045, 6);
    assert_eq!((passing.counts().held_back, passing.stream.near().count()), (1, 5));
    // One ACK for two segments.
    passing.sends(2_000, 6);
    passing.sends(2_000, 7);
    passing.acks(2_050, 8);
    assert_eq!((passing.counts().held_back, passing.stream.near().count()), (1, 6));
}

/// Segment 1 of six is lost after the capture point, and retransmitted at 30 ms.
fn with_loss(acks: impl Fn(&mut Passing)) -> Passing {
    let mut passing = Passing::new(0);
    for number in 0..6 {
        passing.sends(u64::from(number), number);
    }
    passing.acks(10, 1);
    acks(&mut passing);
    assert_eq!(
        passing.sends(30, 1),
        Seen {
            is_again: true,
            in_flight: 5_000,
            begin: passing.stream.first() + 1_000,
            end: passing.stream.first() + 2_000,
            ..Seen::default()
        }
    );
    passing
}

#[test]
fn what_repeated_acknowledgements_ask_for_was_lost_behind() {
    let mut passing = with_loss(|passing| (12..16).for_each(|at| passing.acks(at, 1)));
    assert_eq!(passing.counts().again, Again { fast: 1, ..Again::default() });
    assert_eq!((passing.counts().lost_behind, passing.counts().lost_before), (1, 0));
    let before = passing.stream.near().count();
    passing.acks(40, 2);
    assert_eq!(passing.stream.near().count(), before, "nobody knows which copy that is for");
    passing.acks(41, 6);
    assert_eq!(passing.stream.near().count(), before, "they waited for what was missing");
}

#[test]
fn what_was_in_order_no_more_is_no_measure() {
    // The second segment overtook the first after the capture point.
    let mut passing = Passing::new(0);
    passing.sends(0, 0);
    passing.sends(1, 1);
    passing.says(5, 0, 60_000, &[]);
    passing.says(6, 0, 60_000, &[]);
    passing.acks(20, 2);
    assert_eq!(passing.stream.near().count(), 0);
    // A segment has old and new bytes.
    let mut passing = Passing::new(0);
    passing.sends(0, 0);
    let seen = passing.segment(30, 500, 1_500, &[]);
    assert!(seen.is_new && seen.is_again);
    passing.says(40, 1_500, 60_000, &[]);
    assert_eq!(passing.stream.near().count(), 0);
}

#[test]
fn an_end_from_long_ago_ends_nothing() {
    let mut passing = Passing::new(5_000);
    passing.sends(0, 0);
    passing.acks(5, 1);
    // One FIN before all sent data, and one within acknowledged data.
    let bytes = header(4_000, 0, 0x11, &[]);
    let segment = Segment::read(&bytes, bytes.len()).unwrap();
    passing.stream.sends(Time::from_millis(6), &segment, None);
    passing.flagged(7, 100, 100, 0x11, &[]);
    assert_eq!((passing.stream.fin(), passing.stream.length()), (None, 1_000));
    assert_eq!(passing.stream.acked(), passing.stream.first() + 1_000);
    // A FIN that is acknowledged already, and whose first copy did not pass.
    passing.says(10, 1_001, 60_000, &[]);
    passing.flagged(20, 1_000, 1_000, 0x11, &[]);
    assert_eq!(passing.stream.length(), 1_000);
}

#[test]
fn who_has_sent_all_that_there_was_says_so() {
    let mut passing = Passing::new(0);
    assert!(passing.flagged(0, 0, 0, 0x02, &[]).was_dry, "nothing was sent before");
    let mut next = |from, to, flags| passing.flagged(1, from, to, flags, &[]).was_dry;
    assert!(next(1, 1_001, 0x10), "a SYN says nothing of data");
    assert!(!next(1_001, 1_301, 0x10), "the one before was full");
    assert!(!next(1_301, 1_601, 0x18), "the one before filled up a window");
    assert!(next(1_601, 2_601, 0x10), "the one before was short and the last");
}

#[test]
fn what_sack_asks_for_was_lost_behind() {
    let passing = with_loss(|passing| passing.sacks(15, 1, &[(2, 6)]));
    assert_eq!(passing.counts().again, Again { fast: 1, ..Again::default() });
    assert_eq!(passing.counts().lost_behind, 1);
    // Two segments after a gap may have been reordered.
    let mut passing = with_loss(|passing| passing.sacks(15, 1, &[(2, 4)]));
    assert_eq!(passing.counts().again, Again { timeout: 1, ..Again::default() });
    // Retransmissions after a timeout belong to it; the timeout counts once.
    passing.sends(31, 4);
    assert_eq!(passing.counts().again, Again { timeout: 2, ..Again::default() });
}

#[test]
fn silence_makes_a_timer_send_the_first_again_and_a_probe_the_last() {
    let mut passing = Passing::new(0);
    (0..3).for_each(|number| _ = passing.sends(0, number));
    passing.sends(40, 2);
    assert_eq!(passing.counts().again, Again { probe: 1, ..Again::default() });
    passing.sends(300, 0);
    assert_eq!(passing.counts().again, Again { probe: 1, timeout: 1, ..Again::default() });
    let alone = |silence| {
        let mut passing = Passing::new(0);
        passing.sends(0, 0);
        passing.sends(silence, 0);
        passing.counts().again
    };
    assert_eq!(alone(50), Again { probe: 1, ..Again::default() });
    assert_eq!(alone(250), Again { timeout: 1, ..Again::default() });
}

#[test]
fn what_the_receiver_had_already_was_no_loss() {
    // DSACK reports it immediately…
    let mut passing = with_loss(|passing| passing.sacks(15, 1, &[(2, 6)]));
    passing.sacks(40, 6, &[(1, 2)]);
    let expected = (Again { spurious: 1, ..Again::default() }, 0);
    assert_eq!((passing.counts().again, passing.counts().lost_behind), expected);
    // …and a repeated report is not counted again.
    passing.sacks(41, 6, &[(1, 2)]);
    assert_eq!((passing.counts().again, passing.counts().lost_behind), expected);
    // …or within the SACKed bytes after a gap.
    let mut passing = with_loss(|passing| passing.sacks(15, 1, &[(2, 6)]));
    passing.sends(33, 4);
    assert_eq!(passing.counts().lost_behind, 2);
    passing.sacks(40, 1, &[(4, 5), (2, 6)]);
    assert_eq!((passing.counts().again.fast, passing.counts().again.spurious), (1, 1));
    assert_eq!(passing.counts().lost_behind, 1);
    // Bytes that the receiver has already acknowledged.
    let mut passing = Passing::new(0);
    passing.sends(0, 0);
    passing.acks(5, 1);
    passing.sends(300, 0);
    assert_eq!((passing.counts().again, passing.counts().lost_behind), expected);
}

#[test]
fn of_several_copies_one_came_twice_each_time_that_it_is_said() {
    // The first copy was lost, the second arrived, and its ACK was lost.
    let mut passing = with_loss(|passing| passing.sacks(15, 1, &[(2, 6)]));
    passing.sends(300, 1);
    assert_eq!((passing.counts().again.all(), passing.counts().lost_behind), (2, 2));
    passing.sacks(310, 6, &[(1, 2)]);
    assert_eq!((passing.counts().again.fast, passing.counts().again.spurious), (1, 1));
    assert_eq!(passing.counts().lost_behind, 1);
    // So the first copy had arrived as well.
    passing.sacks(311, 6, &[(1, 2)]);
    assert_eq!((passing.counts().again.spurious, passing.counts().lost_behind), (2, 0));
    // Lost before the capture point, retransmitted, and retransmitted again although acknowledged…
    let mut passing = Passing::new(0);
    passing.sends(0, 0);
    passing.sends(1, 2);
    passing.sacks(2, 1, &[(2, 3)]);
    passing.sends(30, 1);
    passing.acks(31, 3);
    passing.sends(300, 1);
    let before = passing.counts();
    assert_eq!((before.lost_before, before.again.all(), before.again.spurious), (1, 2, 1));
    // …about which the DSACK adds nothing.
    passing.sacks(301, 3, &[(1, 2)]);
    assert_eq!(passing.counts(), before);
    // Ten segments were retransmitted twice, the second time spuriously, as DSACKs report one by
    // one.
    let mut passing = Passing::new(0);
    passing.sends(0, 0);
    passing.segment(1, 1_000, 11_000, &[]);
    passing.acks(10, 1);
    passing.segment(300, 1_000, 11_000, &[]);
    passing.segment(700, 1_000, 11_000, &[]);
    assert_eq!(passing.counts().lost_behind, 20);
    for number in [5, 4, 1, 2, 3, 8, 6, 7, 9, 10] {
        passing.sacks(710, 11, &[(number, number + 1)]);
    }
    assert_eq!((passing.counts().again.spurious, passing.counts().lost_behind), (10, 10));
    // Reports for parts of a segment count as one segment.
    let mut passing = with_loss(|passing| passing.sacks(15, 1, &[(2, 6)]));
    for (begin, end) in [(1_000, 1_300), (1_700, 2_000), (1_300, 1_700)] {
        passing.says(40, 6_000, 60_000, &sack(&[(begin, end)]));
    }
    assert_eq!((passing.counts().again.spurious, passing.counts().lost_behind), (1, 0));
    // One of two segments that one DSACK reports.
    let mut passing = with_loss(|passing| passing.sacks(15, 1, &[(3, 6)]));
    passing.sends(31, 2);
    passing.sacks(40, 6, &[(1, 3)]);
    assert_eq!((passing.counts().again.spurious, passing.counts().lost_behind), (2, 0));
}

#[test]
fn a_copy_that_the_network_made_says_nothing_of_one_that_was_sent_again() {
    let mut passing = Passing::new(0);
    passing.stamped(0, 0, 10);
    passing.stamped(1, 2, 11);
    passing.says(2, 1_000, 60_000, &sack(&[(2_000, 3_000)]));
    passing.stamped(30, 1, 40);
    passing.stamped(30, 1, 40);
    passing.says(40, 3_000, 60_000, &sack(&[(1_000, 2_000)]));
    let counts = passing.counts();
    assert_eq!((counts.lost_before, counts.unseen, counts.duplicated), (1, 0, 1));
    assert_eq!((counts.again.all(), counts.again.spurious), (1, 0));
}

#[test]
fn two_copies_that_nobody_sent_twice_are_no_loss() {
    let mut passing = Passing::new(0);
    for number in 0..3 {
        passing.stamped(10, number, 77);
        passing.stamped(10, number, 77);
    }
    let counts = passing.counts();
    assert_eq!((counts.duplicated, counts.again.all(), counts.lost_behind), (3, 0, 0));
}

#[test]
fn packets_with_two_numbers_were_sent_twice() {
    let copies = |numbers: [u16; 2]| {
        let mut passing = Passing::new(0);
        passing.far = Some(Span::from_millis(40));
        for packet in numbers {
            passing.packet = packet;
            passing.sends(10, 0);
        }
        passing.says(11, 1_000, 60_000, &[]);
        assert_eq!(passing.stream.near().count() == 0, numbers[0] != numbers[1]);
        // The receiver got both copies.
        passing.says(12, 1_000, 60_000, &sack(&[(0, 1_000)]));
        let counts = passing.counts();
        assert_eq!((counts.lost_behind, counts.again.all()), (0, counts.again.spurious));
        (counts.duplicated, counts.again.spurious)
    };
    assert_eq!(copies([0x753a, 0x753b]), (0, 1));
    assert_eq!(copies([0x753a, 0x753a]), (1, 0));
    assert_eq!(copies([0, 0]), (1, 0), "of a sender that numbers nothing");
}

/// A phone acknowledges within 1 ms, and the server is 19 ms away.
#[test]
fn nobody_sends_again_what_is_missing_before_the_sender_can_hear_of_that() {
    let fills = |at| {
        let mut passing = Passing::new(0);
        passing.far = Some(Span::from_millis(19));
        passing.sends(0, 0);
        passing.acks(1, 1);
        passing.sends(30, 2);
        passing.sacks(30, 1, &[(2, 3)]);
        passing.sends(at, 1);
        let counts = passing.counts();
        (counts.reordered, counts.again.all(), counts.lost_before)
    };
    assert_eq!([fills(31), fills(49)], [(1, 0, 0); 2], "it was overtaken");
    assert_eq!(fills(51), (0, 1, 1));
    // Nor are bytes that passed: the first copy waited in a queue, and a timeout sent another one.
    let twice = |at| {
        let mut passing = Passing::new(0);
        passing.far = Some(Span::from_millis(19));
        passing.stamped(0, 0, 10);
        passing.says(1, 1_000, 60_000, &stamps(7, 10));
        passing.stamped(300, 1, 20);
        passing.stamped(at, 1, 290);
        let Counts { again, lost_behind, duplicated, .. } = passing.counts();
        (again.spurious, again.all(), lost_behind, duplicated)
    };
    assert_eq!([twice(301), twice(319)], [(1, 1, 0, 0); 2]);
    assert_eq!(twice(330), (0, 1, 1, 0));
}

#[test]
fn what_comes_late_is_told_from_what_is_sent_again_by_the_senders_clock() {
    let late = |stamp, at| {
        let mut passing = Passing::new(0);
        passing.stamped(0, 0, 100);
        passing.stamped(2, 2, 102);
        passing.stamped(at, 1, stamp);
        let counts = passing.counts();
        (counts.reordered, counts.lost_before, counts.again.all())
    };
    assert_eq!(late(102, 60), (1, 0, 0), "of the same moment, however long it took");
    assert_eq!(late(101, 3), (1, 0, 0));
    assert_eq!(late(162, 60), (0, 1, 1));
    // Without timestamps, the minimum time of a retransmission decides.
    let plain = |at| {
        let mut passing = Passing::new(0);
        passing.sends(0, 0);
        passing.acks(20, 1);
        passing.sends(30, 2);
        passing.sends(at, 1);
        let counts = passing.counts();
        (counts.reordered, counts.lost_before)
    };
    assert_eq!((plain(45), plain(55)), ((1, 0), (0, 1)));
}

#[test]
fn a_gap_is_lost_before_once_however_it_is_filled() {
    let mut passing = Passing::new(0);
    passing.sends(0, 0);
    passing.sends(1, 5);
    for at in 2..8 {
        passing.acks(at, 1);
    }
    for number in [2, 4, 1, 3] {
        passing.sends(40 + u64::from(number), number);
    }
    let counts = passing.counts();
    assert_eq!((counts.lost_before, counts.again.fast, counts.unseen), (4, 4, 0));
    passing.acks(60, 6);
    assert_eq!((passing.counts().unseen, passing.stream.in_flight()), (0, 0));
}

#[test]
fn a_gap_may_be_filled_by_what_goes_on_behind_it() {
    let mut passing = Passing::new(0);
    passing.sends(0, 0);
    passing.segment(1, 2_000, 3_000, &[]);
    let seen = passing.segment(40, 1_000, 4_000, &[]);
    assert!(seen.is_new && seen.is_again);
    passing.acks(60, 4);
    assert_eq!((passing.counts().lost_before, passing.counts().unseen), (1, 0));
}

#[test]
fn an_acknowledgement_tells_of_what_was_sent_before_it() {
    let mut passing = Passing::new(0);
    passing.sends(0, 0);
    passing.acks(5, 1);
    // Segments 1 and 2 were lost before the capture point, as an empty segment after them shows.
    passing.segment(40, 3_000, 3_000, &[]);
    passing.segment(41, 3_000, 3_000, &[]);
    assert_eq!(passing.counts().again, Again::default());
    assert!(passing.sends(300, 1).is_new && passing.sends(340, 2).is_new);
    assert_eq!((passing.counts().again.timeout, passing.counts().lost_before), (2, 2));
    passing.acks(345, 3);
    assert_eq!((passing.counts().unseen, passing.stream.length()), (0, 3_000));
    // Outside the window it does not belong to this stream.
    passing.segment(400, 80_000, 80_000, &[]);
    passing.sends(700, 3);
    // Bytes that arrive shortly after were reordered, by an empty segment or in the capture.
    passing.segment(710, 5_000, 5_000, &[]);
    passing.sends(711, 4);
    passing.acks(720, 5);
    assert_eq!((passing.counts().reordered, passing.counts().lost_before), (0, 2));
    // The window is unknown in a capture of one direction.
    let mut passing = Passing::new(0);
    passing.sends(0, 0);
    passing.segment(40, 3_000, 3_000, &[]);
    passing.sends(300, 1);
    assert_eq!(passing.counts().lost_before, 0);
    // Timestamps show which segment was sent first, however late it arrives.
    for (stamp, lost) in [(80, 0), (90, 0), (91, 1)] {
        let mut passing = Passing::new(0);
        passing.stamped(0, 0, 50);
        passing.says(5, 1_000, 60_000, &stamps(7, 50));
        passing.segment(40, 2_000, 2_000, &stamps(90, 7));
        passing.stamped(300, 1, stamp);
        assert_eq!(
            (passing.counts().lost_before, passing.counts().reordered),
            (lost, 0),
            "{stamp}"
        );
    }
}

#[test]
fn what_a_probe_makes_the_receiver_ask_for_is_no_timers() {
    let mut passing = Passing::new(0);
    passing.sends(0, 0);
    passing.acks(10, 1);
    // Segment 1 is lost before the capture point, segment 2 after it.
    passing.sends(11, 2);
    passing.sends(100, 2);
    assert_eq!(passing.counts().again.probe, 1);
    passing.sacks(110, 1, &[(2, 3)]);
    passing.sends(120, 1);
    assert_eq!((passing.counts().again.fast, passing.counts().again.timeout), (1, 0));
}

#[test]
fn an_acknowledgement_of_what_did_not_pass_measures_nothing() {
    let mut passing = Passing::new(0);
    passing.sends(0, 0);
    passing.sends(30, 2);
    // Segment 1 is not in the capture; this ACK covers it.
    passing.acks(50, 2);
    assert_eq!(passing.stream.near().count(), 0);
    passing.acks(52, 3);
    assert_eq!(passing.stream.near().least(), Some(Span::from_millis(22)));
}

#[test]
fn what_is_acknowledged_and_never_passed_the_capture_missed() {
    let mut passing = Passing::new(0);
    passing.sends(0, 0);
    passing.sends(1, 2);
    passing.acks(10, 3);
    assert_eq!((passing.counts().unseen, passing.counts().lost_before), (1_000, 0));
    // Also at the end; the rest is not a gap.
    passing.acks(20, 5);
    assert_eq!(passing.counts().unseen, 3_000);
    passing.sends(30, 5);
    passing.acks(35, 6);
    assert_eq!(passing.counts().unseen, 3_000);
    assert_eq!(passing.counts().lost_before + passing.counts().lost_behind, 0);
    // Segments that seemed lost before, but arrived twice.
    let mut passing = Passing::new(0);
    passing.sends(0, 0);
    passing.sends(1, 2);
    (2..6).for_each(|at| passing.acks(at, 1));
    passing.sends(40, 1);
    passing.sacks(45, 3, &[(1, 2)]);
    assert_eq!((passing.counts().lost_before, passing.counts().unseen), (0, 1_000));
}

#[test]
fn questions_are_no_data() {
    let mut passing = Passing::new(0);
    passing.sends(0, 0);
    passing.acks(5, 1);
    passing.segment(1_000, 999, 999, &[]);
    passing.segment(2_000, 999, 1_000, &[]);
    assert_eq!((passing.counts().keep_alives, passing.counts().data_segments), (2, 1));
    passing.says(2_500, 1_000, 0, &[]);
    passing.segment(3_000, 999, 999, &[]);
    passing.segment(3_500, 1_000, 1_001, &[]);
    let counts = passing.counts();
    assert_eq!((counts.window_probes, counts.keep_alives, counts.again.all()), (2, 2, 0));
}

#[test]
fn what_is_remembered_is_bounded() {
    let mut passing = Passing::new(0);
    for number in 0..10_000 {
        passing.sends(0, 2 * number);
    }
    let holes = |stream: &Stream| stream.trouble.as_ref().unwrap().holes.len();
    assert_eq!((passing.stream.sent.len(), holes(&passing.stream)), (OUTSTANDING, HOLES));
    for number in 0..10_000 {
        passing.sends(900, 2 * number);
    }
    assert!(passing.stream.trouble.unwrap().resent.len() <= OUTSTANDING);
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
        let mut passing = Passing::new(origin);
        for (at, (is_data, number, more, stamp, is_wild)) in steps.into_iter().enumerate() {
            let at = at as u64;
            match (is_data, is_wild) {
                (true, false) => {
                    let options = stamps(stamp, 0);
                    passing.segment(at, number * 500, (number + more) * 500, &options);
                }
                (true, true) => _ = passing.segment(at, number << 27, (number << 27) + more, &[]),
                (false, false) => passing.says(at, number * 500, 1_000, &[]),
                (false, true) => passing.sacks(at, number, &[(more, number + more)]),
            }
            let stream = &passing.stream;
            prop_assert!(stream.acked <= stream.top);
            let order: Vec<u64> = stream.sent.iter().flat_map(|sent| <[u64; 2]>::from(sent.places(stream.top))).collect();
            prop_assert!(order.is_sorted(), "{order:?}");
            let holes = stream.trouble.iter().flat_map(|trouble| &trouble.holes);
            prop_assert!(holes.into_iter().all(|hole| hole.begin < hole.end));
        }
    }
}
