use manyways_unit::{Span, Time};

use super::*;
use crate::Packet;

fn queue(limit: QueueLimit, discipline: Discipline) -> Queue {
    Queue::new(QueueSpec { limit, discipline }, Some(Rate::from_mbps(1)))
}

fn bytes(bytes: u64) -> QueueLimit {
    QueueLimit::Bytes(Size::from_bytes(bytes))
}

fn train(id: u64, segments: u32, segment: u64, last: u64) -> Train {
    let (segment, last) = (Size::from_bytes(segment), Size::from_bytes(last));
    let packet = Packet { id, segments, segment, last };
    Train { packet, first: 0, end: segments, arrived: Time::ZERO }
}

/// Enqueues a train and returns the dropped segments: `(id, first, count)`.
fn admit(queue: &mut Queue, train: Train) -> Vec<(u64, u32, u32)> {
    let mut gone = Vec::new();
    queue.admit(train, |train| gone.push((train.packet.id, train.first, train.count())));
    gone
}

fn content(queue: &mut Queue) -> Vec<(u64, u32)> {
    std::iter::from_fn(|| queue.pop()).map(|segment| (segment.id, segment.index)).collect()
}

#[test]
fn drop_tail_takes_the_leading_segments_that_fit() {
    let mut queue = queue(bytes(3_500), Discipline::DropTail);
    assert_eq!(admit(&mut queue, train(1, 4, 1_000, 200)), []);
    assert_eq!(queue.waiting(), Count { packets: 4, size: Size::from_bytes(3_200) });
    assert_eq!(admit(&mut queue, train(2, 2, 250, 60)), [(2, 1, 1)]);
    assert_eq!(admit(&mut queue, train(3, 1, 51, 51)), [(3, 0, 1)]);
    assert_eq!(admit(&mut queue, train(4, 1, 50, 50)), []);
    assert_eq!(content(&mut queue), [(1, 0), (1, 1), (1, 2), (1, 3), (2, 0), (4, 0)]);
    assert_eq!(queue.waiting(), Count::default());
}

#[test]
fn a_small_last_segment_does_not_jump_over_a_gap() {
    let mut queue = queue(bytes(2_100), Discipline::DropTail);
    assert_eq!(admit(&mut queue, train(1, 4, 1_000, 100)), [(1, 2, 2)]);
    assert_eq!(content(&mut queue), [(1, 0), (1, 1)]);
}

#[test]
fn a_limit_in_packets_counts_segments() {
    let mut queue = queue(QueueLimit::Packets(3), Discipline::DropTail);
    assert_eq!(admit(&mut queue, train(1, 2, 1_000, 1_000)), []);
    assert_eq!(admit(&mut queue, train(2, 5, 9_000, 1)), [(2, 1, 4)]);
    assert_eq!(queue.pop().unwrap().index, 0);
    assert_eq!(admit(&mut queue, train(3, 1, 1, 1)), []);
    assert_eq!(content(&mut queue), [(1, 1), (2, 0), (3, 0)]);
}

#[test]
fn a_limit_in_time_is_that_of_the_rate_and_at_least_one_packet() {
    // 24 ms × 1 Mbit/s = 3,000 bytes.
    let mut two = queue(QueueLimit::Time(Span::from_millis(24)), Discipline::DropTail);
    assert_eq!(admit(&mut two, train(1, 3, 1_500, 1_500)), [(1, 2, 1)]);
    // 1 ms × 1 Mbit/s = 125 bytes.
    let mut one = queue(QueueLimit::Time(Span::from_millis(1)), Discipline::DropTail);
    assert_eq!(admit(&mut one, train(1, 2, 1_500, 1_500)), [(1, 1, 1)]);
    // There is no rate to multiply with.
    let spec = QueueSpec {
        limit: QueueLimit::Time(Span::from_millis(1)),
        discipline: Discipline::DropTail,
    };
    assert_eq!(admit(&mut Queue::new(spec, None), train(1, 100, 1_500, 1_500)), []);
}

#[test]
fn drop_head_lets_the_oldest_go() {
    let mut queue = queue(bytes(3_000), Discipline::DropHead);
    assert_eq!(admit(&mut queue, train(1, 3, 1_000, 1_000)), []);
    assert_eq!(admit(&mut queue, train(2, 1, 1_200, 1_200)), [(1, 0, 1), (1, 1, 1)]);
    assert_eq!(content(&mut queue), [(1, 2), (2, 0)]);
}

#[test]
fn drop_head_drops_the_packets_own_first_segments_too() {
    let mut queue = queue(QueueLimit::Packets(2), Discipline::DropHead);
    assert_eq!(admit(&mut queue, train(1, 4, 1_000, 1_000)), [(1, 0, 1), (1, 1, 1)]);
    assert_eq!(content(&mut queue), [(1, 2), (1, 3)]);
}

#[test]
fn a_packet_that_can_never_fit_drops_no_other() {
    let mut queue = queue(bytes(1_000), Discipline::DropHead);
    assert_eq!(admit(&mut queue, train(1, 1, 900, 900)), []);
    assert_eq!(admit(&mut queue, train(2, 1, 1_001, 1_001)), [(2, 0, 1)]);
    assert_eq!(content(&mut queue), [(1, 0)]);
}

#[test]
fn a_smaller_limit_keeps_waiting_packets() {
    let mut queue = queue(QueueLimit::Unlimited, Discipline::DropTail);
    assert_eq!(admit(&mut queue, train(1, 5, 1_000, 1_000)), []);
    let spec = QueueSpec { limit: bytes(2_000), discipline: Discipline::DropTail };
    queue.set(spec, None);
    assert_eq!(queue.waiting().packets, 5);
    assert_eq!(admit(&mut queue, train(2, 1, 1, 1)), [(2, 0, 1)]);
    let spec = QueueSpec { limit: bytes(2_000), discipline: Discipline::DropHead };
    queue.set(spec, None);
    let gone = admit(&mut queue, train(3, 1, 1_000, 1_000));
    assert_eq!(gone, [(1, 0, 1), (1, 1, 1), (1, 2, 1), (1, 3, 1)]);
}

#[test]
fn segments_without_bytes_need_no_room() {
    let mut queue = queue(bytes(0), Discipline::DropTail);
    assert_eq!(admit(&mut queue, train(1, 3, 0, 0)), []);
    assert_eq!(admit(&mut queue, train(2, 3, 0, 1)), [(2, 2, 1)]);
}
