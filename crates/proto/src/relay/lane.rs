//! The buffer of a lender for one direction.

use std::collections::VecDeque;

use manyways_unit::{Size, Span, Time};

use super::{Class, Frame};

/// Time after which a datagram is not worth passing on, as in the mux.
const DATAGRAM_TIMEOUT: Span = Span::from_millis(150);
/// Maximum bytes of datagrams that wait.
const MAX_DATAGRAM_BYTES: u64 = 512 << 10;
/// Memory of a frame in bytes besides its sealed message: its entry in a queue, which may have twice
/// the capacity that it needs, and the allocation. Frames may be empty.
const FRAME_COST: u64 = 128;

/// Frames that wait for one of the two connections; `P` is a sealed message.
#[derive(Debug)]
pub struct Lane<P> {
    /// Maximum memory of bulk and control frames that wait.
    limit: Size,
    bulk: VecDeque<(u64, Option<P>)>,
    control: VecDeque<(u64, P)>,
    datagrams: VecDeque<(Time, u64, P)>,
    bulk_bytes: u64,
    control_bytes: u64,
    datagram_bytes: u64,
    /// The next number that the sender has to use, by class.
    next: [u64; 3],
    received: u64,
    dropped_datagrams: u64,
    recalled: u64,
}

/// Counters of a lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LaneStatus {
    /// Bytes of all sealed messages that have come.
    pub received: Size,
    /// Bytes of sealed messages that wait.
    pub backlog: Size,
    pub dropped_datagrams: u64,
    /// Bytes of bulk frames that were not passed on, because their sender recalled them.
    pub recalled: Size,
}

/// A frame that a sender of a bond does not send: the connection is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaneError {
    /// A number is missing or repeated.
    #[error("a {class} frame has the number {number}, not {expected}")]
    Number { class: Class, number: u64, expected: u64 },
    /// A frame that only a lender sends.
    #[error("a frame that only a lender sends")]
    FromLender,
}

impl<P: AsRef<[u8]>> Lane<P> {
    /// Creates an empty lane that accepts more while less than `limit` of memory is in use.
    pub fn new(limit: Size) -> Self {
        Self {
            limit,
            bulk: VecDeque::new(),
            control: VecDeque::new(),
            datagrams: VecDeque::new(),
            bulk_bytes: 0,
            control_bytes: 0,
            datagram_bytes: 0,
            next: [0; 3],
            received: 0,
            dropped_datagrams: 0,
            recalled: 0,
        }
    }

    /// Whether the lender may read more from the sender. A limit for each frame would make the sender
    /// wait in the middle of one.
    pub fn has_room(&self) -> bool {
        // A recalled frame keeps its place.
        let frames = (self.bulk.len() + self.control.len()) as u64;
        let memory = self.bulk_bytes + self.control_bytes + frames * FRAME_COST;
        memory < self.limit.as_bytes()
    }

    /// Processes a frame of the sender.
    ///
    /// # Errors
    /// If no sender of a bond sends it.
    pub fn receive(&mut self, now: Time, frame: Frame<P>) -> Result<(), LaneError> {
        match frame {
            Frame::Sealed { class, number, sealed } => {
                let expected = &mut self.next[usize::from(class.code())];
                if number != *expected {
                    return Err(LaneError::Number { class, number, expected: *expected });
                }
                *expected += 1;
                let bytes = sealed.as_ref().len() as u64;
                self.received += bytes;
                match class {
                    Class::Bulk => {
                        self.bulk_bytes += bytes;
                        self.bulk.push_back((number, Some(sealed)));
                    }
                    Class::Control => {
                        self.control_bytes += bytes;
                        self.control.push_back((number, sealed));
                    }
                    Class::Datagram => {
                        self.datagram_bytes += bytes;
                        self.datagrams.push_back((now, number, sealed));
                        while self.datagram_memory() > MAX_DATAGRAM_BYTES {
                            self.drop_datagram();
                        }
                    }
                }
            }
            Frame::Recall { first, last } => self.recall(first, last),
            Frame::Dropped { .. } | Frame::Leave => return Err(LaneError::FromLender),
        }
        Ok(())
    }

    /// Returns the next frame for the receiver. `holds_control` is whether control frames wait until
    /// there are others to pass on.
    pub fn poll(&mut self, now: Time, holds_control: bool) -> Option<Frame<P>> {
        self.poll_urgent(now, holds_control).or_else(|| self.poll_bulk())
    }

    /// Returns the next frame that overtakes bulk frames.
    pub fn poll_urgent(&mut self, now: Time, holds_control: bool) -> Option<Frame<P>> {
        // Others keep the radio on anyway. A control frame that states which bulk frames may be missing
        // must not come behind them.
        let holds_control = holds_control && self.bulk.is_empty() && self.datagrams.is_empty();
        if !holds_control && let Some((number, sealed)) = self.control.pop_front() {
            self.control_bytes -= sealed.as_ref().len() as u64;
            return Some(Frame::Sealed { class: Class::Control, number, sealed });
        }
        while self.datagrams.front().is_some_and(|(at, ..)| now.since(*at) > DATAGRAM_TIMEOUT) {
            self.drop_datagram();
        }
        if let Some((_, number, sealed)) = self.datagrams.pop_front() {
            self.datagram_bytes -= sealed.as_ref().len() as u64;
            return Some(Frame::Sealed { class: Class::Datagram, number, sealed });
        }
        None
    }

    /// Returns the next bulk frame.
    pub fn poll_bulk(&mut self) -> Option<Frame<P>> {
        let (number, sealed) = self.bulk.pop_front()?;
        let Some(sealed) = sealed else { return Some(Frame::Dropped { number }) };
        self.bulk_bytes -= sealed.as_ref().len() as u64;
        Some(Frame::Sealed { class: Class::Bulk, number, sealed })
    }

    /// Whether bulk frames wait.
    pub fn has_bulk(&self) -> bool {
        !self.bulk.is_empty()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.bulk.is_empty() && self.control.is_empty() && self.datagrams.is_empty()
    }

    pub fn status(&self) -> LaneStatus {
        LaneStatus {
            received: Size::from_bytes(self.received),
            backlog: Size::from_bytes(self.bulk_bytes + self.control_bytes + self.datagram_bytes),
            dropped_datagrams: self.dropped_datagrams,
            recalled: Size::from_bytes(self.recalled),
        }
    }

    /// Empties the bulk frames of these numbers that still wait.
    fn recall(&mut self, first: u64, last: u64) {
        let start = self.bulk.partition_point(|(number, _)| *number < first);
        for (_, sealed) in self.bulk.range_mut(start..).take_while(|(number, _)| *number <= last) {
            let bytes = sealed.take().map_or(0, |sealed| sealed.as_ref().len() as u64);
            self.bulk_bytes -= bytes;
            self.recalled += bytes;
        }
    }

    fn datagram_memory(&self) -> u64 {
        self.datagram_bytes + self.datagrams.len() as u64 * FRAME_COST
    }

    fn drop_datagram(&mut self) {
        if let Some((_, _, sealed)) = self.datagrams.pop_front() {
            self.datagram_bytes -= sealed.as_ref().len() as u64;
            self.dropped_datagrams += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_millis(1_000);

    fn lane() -> Lane<Vec<u8>> {
        Lane::new(Size::from_bytes(1_000))
    }

    fn sealed(class: Class, number: u64, length: usize) -> Frame<Vec<u8>> {
        Frame::Sealed { class, number, sealed: vec![number as u8; length] }
    }

    /// The classes and numbers of everything that waits; a dropped frame has no class.
    fn drain(lane: &mut Lane<Vec<u8>>, now: Time) -> Vec<(Option<Class>, u64)> {
        let frames = std::iter::from_fn(|| lane.poll(now, false));
        let known = frames.map(|frame| match frame {
            Frame::Sealed { class, number, .. } => (Some(class), number),
            Frame::Dropped { number } => (None, number),
            other => panic!("{other:?}"),
        });
        known.collect()
    }

    #[test]
    fn control_goes_first_then_datagrams_then_bulk_each_in_order() {
        let mut lane = lane();
        use Class::{Bulk, Control, Datagram};
        for (class, number) in [(Bulk, 0), (Datagram, 0), (Bulk, 1), (Control, 0), (Control, 1)] {
            lane.receive(NOW, sealed(class, number, 10)).unwrap();
        }
        assert_eq!(lane.status().backlog, Size::from_bytes(50));
        let expected = [(Control, 0), (Control, 1), (Datagram, 0), (Bulk, 0), (Bulk, 1)];
        assert_eq!(drain(&mut lane, NOW), expected.map(|(class, number)| (Some(class), number)));
        assert!(lane.is_empty());
        assert_eq!(
            lane.status(),
            LaneStatus { received: Size::from_bytes(50), ..LaneStatus::default() }
        );
    }

    #[test]
    fn control_frames_wait_on_demand() {
        let mut lane = lane();
        lane.receive(NOW, sealed(Class::Control, 0, 10)).unwrap();
        assert_eq!(lane.poll(NOW, true), None);
        assert!(!lane.is_empty() && lane.poll(NOW, false).is_some());
    }

    #[test]
    fn control_frames_do_not_wait_where_others_are_passed_on() {
        for class in [Class::Bulk, Class::Datagram] {
            let mut lane = lane();
            lane.receive(NOW, sealed(class, 0, 10)).unwrap();
            // It states that the bulk frame may be missing.
            lane.receive(NOW, sealed(Class::Control, 0, 10)).unwrap();
            lane.receive(NOW, Frame::Recall { first: 0, last: 0 }).unwrap();
            let first = lane.poll(NOW, true);
            assert!(
                matches!(first, Some(Frame::Sealed { class: Class::Control, .. })),
                "{first:?}"
            );
            assert!(lane.poll(NOW, true).is_some() && lane.is_empty());
        }
    }

    #[test]
    fn a_lane_accepts_more_while_less_than_its_limit_waits() {
        let mut lane = lane();
        lane.receive(NOW, sealed(Class::Bulk, 0, 871)).unwrap();
        assert!(lane.has_room());
        lane.receive(NOW, sealed(Class::Bulk, 1, 800)).unwrap();
        assert!(!lane.has_room());
        lane.poll(NOW, false).unwrap();
        assert!(lane.has_room());
    }

    #[test]
    fn recalled_frames_are_replaced_if_they_still_wait() {
        let mut lane = lane();
        for number in 0..5 {
            lane.receive(NOW, sealed(Class::Bulk, number, 100)).unwrap();
        }
        lane.poll(NOW, false).unwrap();
        for _ in 0..2 {
            lane.receive(NOW, Frame::Recall { first: 0, last: 2 }).unwrap();
        }
        lane.receive(NOW, Frame::Recall { first: 4, last: u64::MAX }).unwrap();
        let status = lane.status();
        assert_eq!(
            (status.recalled, status.backlog),
            (Size::from_bytes(300), Size::from_bytes(100))
        );
        let bulk = Some(Class::Bulk);
        assert_eq!(drain(&mut lane, NOW), [(None, 1), (None, 2), (bulk, 3), (None, 4)]);
        lane.receive(NOW, sealed(Class::Bulk, 5, 100)).unwrap();
        assert_eq!(drain(&mut lane, NOW), [(bulk, 5)], "a later one is not meant");
    }

    #[test]
    fn datagrams_that_wait_too_long_or_are_too_many_are_dropped() {
        let mut lane = lane();
        lane.receive(NOW, sealed(Class::Datagram, 0, 10)).unwrap();
        lane.receive(NOW + Span::from_millis(1), sealed(Class::Datagram, 1, 10)).unwrap();
        let datagram = Some(Class::Datagram);
        assert_eq!(drain(&mut lane, NOW + Span::from_millis(151)), [(datagram, 1)]);
        assert_eq!(lane.status().dropped_datagrams, 1);
        for number in 2..60 {
            lane.receive(NOW, sealed(Class::Datagram, number, 10_000)).unwrap();
        }
        assert_eq!(drain(&mut lane, NOW).len() as u64, MAX_DATAGRAM_BYTES / 10_128);
    }

    #[test]
    fn frames_without_bytes_do_not_fill_the_memory() {
        for class in [Class::Bulk, Class::Control] {
            let (mut lane, mut count) = (lane(), 0);
            while lane.has_room() && count < 1_000 {
                lane.receive(NOW, sealed(class, count, 0)).unwrap();
                // A recalled frame keeps its place, too.
                lane.receive(NOW, Frame::Recall { first: 0, last: count }).unwrap();
                count += 1;
            }
            assert_eq!(count, 8, "{class}");
            lane.poll(NOW, false).unwrap();
            assert!(lane.has_room());
        }
        let mut lane = lane();
        for number in 0..10_000 {
            lane.receive(NOW, sealed(Class::Datagram, number, 0)).unwrap();
        }
        assert_eq!(drain(&mut lane, NOW).len() as u64, MAX_DATAGRAM_BYTES / FRAME_COST);
    }

    #[test]
    fn numbers_that_are_not_in_order_are_refused() {
        for number in [0, 2] {
            let mut lane = lane();
            lane.receive(NOW, sealed(Class::Control, 0, 1)).unwrap();
            lane.receive(NOW, sealed(Class::Bulk, 0, 1)).unwrap();
            let error = LaneError::Number { class: Class::Bulk, number, expected: 1 };
            assert_eq!(lane.receive(NOW, sealed(Class::Bulk, number, 1)), Err(error));
        }
        assert_eq!(lane().receive(NOW, Frame::Dropped { number: 0 }), Err(LaneError::FromLender));
    }
}
