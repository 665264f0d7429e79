use manyways_trace::scenario::{Discipline, QueueLimit, QueueSpec};

use super::*;
use crate::Packet;
use crate::packet::Train;

const TARGET: Span = Span::from_millis(5);
const INTERVAL: Span = Span::from_millis(100);

/// A queue of packets of 1500 bytes that leave one every 10 ms.
struct TestQueue {
    queue: Queue,
    codel: Codel,
    next_id: u64,
}

impl TestQueue {
    fn new() -> Self {
        let spec = QueueSpec { limit: QueueLimit::Unlimited, discipline: Discipline::DropTail };
        let codel = Codel::new(TARGET, INTERVAL);
        Self { queue: Queue::new(spec, None), codel, next_id: 0 }
    }

    fn arrive(&mut self, millis: u64, packets: u64) {
        for _ in 0..packets {
            let packet = Packet::single(self.next_id, Size::from_bytes(1_500));
            let arrived = Time::from_millis(millis);
            self.queue.push(Train { packet, first: 0, end: 1, arrived });
            self.next_id += 1;
        }
    }

    /// Dequeues every 10 ms from `from` until before `until`. Returns dropped ids and times in ms.
    fn serve(&mut self, from: u64, until: u64) -> Vec<(u64, u64)> {
        let mut gone = Vec::new();
        for millis in (from..until).step_by(10) {
            let now = Time::from_millis(millis);
            self.codel.dequeue(now, &mut self.queue, |segment| gone.push((segment.id, millis)));
        }
        gone
    }
}

#[test]
fn drops_come_faster_with_the_square_root_of_their_count() {
    let mut line = TestQueue::new();
    line.arrive(0, 100);
    // Above target since 10 ms, so that the first is dropped an interval later. The next are due at
    // 110 + 100 = 210, then 210 + 100/√2 = 280.7, + 100/√3 = 338.4, + 100/√4 = 388.4, + 100/√5 =
    // 433.2, + 100/√6 = 474.0 ms, each at the first departure after that.
    let gone = line.serve(0, 480);
    assert_eq!(gone, [(11, 110), (22, 210), (31, 290), (37, 340), (43, 390), (49, 440)]);
    assert_eq!(line.serve(480, 490), [(54, 480)]);
}

#[test]
fn dropping_ends_below_target_and_resumes_at_the_last_good_count() {
    let mut line = TestQueue::new();
    line.arrive(0, 100);
    assert_eq!(line.serve(0, 400).len(), 5);
    assert_eq!((line.codel.count, line.codel.last_count), (5, 1));
    // Drain the queue, then add a packet that does not wait.
    while line.queue.pop().is_some() {}
    line.arrive(400, 1);
    assert_eq!(line.serve(400, 410), []);
    assert!(!line.codel.dropping);
    // Above target again from 420 ms on: the first drop is at 520 ms, and as 5 - 1 = 4 is the
    // count it starts with, the next is due at 520 + 100/√4 = 570 ms, then + 100/√5 = 614.7 ms.
    line.arrive(410, 100);
    let gone: Vec<_> = line.serve(420, 630).iter().map(|gone| gone.1).collect();
    assert_eq!(gone, [520, 570, 620]);
}

#[test]
fn after_sixteen_intervals_dropping_starts_at_one() {
    let mut line = TestQueue::new();
    line.arrive(0, 100);
    assert_eq!(line.serve(0, 400).len(), 5);
    let due = line.codel.drop_next;
    while line.queue.pop().is_some() {}
    line.arrive(400, 1);
    line.serve(400, 410);
    line.arrive(1_930, 100);
    // First drop at 2,040 ms: more than 16 × 100 ms after 433 ms.
    assert!(Time::from_millis(2_040).since(due) >= INTERVAL * 16);
    let gone: Vec<_> = line.serve(1_940, 2_160).iter().map(|gone| gone.1).collect();
    assert_eq!(gone, [2_040, 2_140]);
}

#[test]
fn one_waiting_packet_is_never_dropped() {
    let mut line = TestQueue::new();
    for millis in (0..2_000).step_by(10) {
        line.arrive(millis, 1);
        // The packet waits 50 ms, but no packet waits after it.
        let now = Time::from_millis(millis + 50);
        line.codel.dequeue(now, &mut line.queue, |_| panic!("dropped the only packet"));
    }
}

#[test]
fn less_than_an_interval_above_target_is_a_burst() {
    let mut line = TestQueue::new();
    for burst in 0..10 {
        let start = burst * 1_000;
        line.arrive(start, 10);
        assert_eq!(line.serve(start, start + 200), []);
    }
}

#[test]
fn an_empty_queue_has_no_packet() {
    let mut line = TestQueue::new();
    assert!(line.codel.dequeue(Time::ZERO, &mut line.queue, |_| ()).is_none());
}
