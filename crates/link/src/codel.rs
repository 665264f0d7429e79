//! CoDel (RFC 8289): drops packets if the queueing delay stays too high for too long.

use manyways_unit::{Size, Span, Time};

use crate::packet::Segment;
use crate::queue::Queue;

/// The state of RFC 8289, section 5.3, with the RFC's names.
///
/// Where the RFC leaves a choice: MAXPACKET is the size of the largest packet so far, because a
/// pipe has no MTU. The count with which dropping resumes follows the text of the RFC, as in Linux.
#[derive(Clone, Debug)]
pub(crate) struct Codel {
    target: Span,
    interval: Span,
    first_above: Option<Time>,
    drop_next: Time,
    count: u64,
    last_count: u64,
    dropping: bool,
    max_packet: Size,
}

impl Codel {
    pub fn new(target: Span, interval: Span) -> Self {
        Self {
            target,
            interval,
            first_above: None,
            drop_next: Time::ZERO,
            count: 0,
            last_count: 0,
            dropping: false,
            max_packet: Size::ZERO,
        }
    }

    /// Returns the next packet for the wire; `None` if the queue is empty. Passes dropped packets
    /// to `drop`.
    pub fn dequeue(
        &mut self,
        now: Time,
        queue: &mut Queue,
        mut drop: impl FnMut(Segment),
    ) -> Option<Segment> {
        let (mut head, mut ok_to_drop) = self.take(now, queue)?;
        if self.dropping {
            if !ok_to_drop {
                self.dropping = false;
            }
            while self.dropping && now >= self.drop_next {
                drop(head);
                self.count += 1;
                match self.take(now, queue) {
                    Some(next) => (head, ok_to_drop) = next,
                    None => {
                        self.dropping = false;
                        return None;
                    }
                }
                if ok_to_drop {
                    self.drop_next = self.control_law(self.drop_next);
                } else {
                    self.dropping = false;
                }
            }
        } else if ok_to_drop {
            drop(head);
            let next = self.take(now, queue);
            self.dropping = true;
            // Soon after the previous cycle: start with the drop rate that had worked there.
            let worked = self.count - self.last_count;
            let recent = now.since(self.drop_next) < self.interval * 16;
            self.count = if worked > 1 && recent { worked } else { 1 };
            self.drop_next = self.control_law(now);
            self.last_count = self.count;
            return next.map(|(head, _)| head);
        }
        Some(head)
    }

    /// Returns the oldest packet, and whether the queueing delays so far allow dropping it.
    fn take(&mut self, now: Time, queue: &mut Queue) -> Option<(Segment, bool)> {
        let Some(head) = queue.pop() else {
            self.first_above = None;
            return None;
        };
        self.max_packet = self.max_packet.max(head.size);
        let sojourn = now.since(head.arrived);
        if sojourn < self.target || queue.waiting().size <= self.max_packet {
            self.first_above = None;
            return Some((head, false));
        }
        let first_above = *self.first_above.get_or_insert(now + self.interval);
        Some((head, now >= first_above))
    }

    fn control_law(&self, from: Time) -> Time {
        // IEEE 754 defines square root and division exactly: the result is the same on every
        // machine.
        from + Span::from_nanos(
            (self.interval.as_nanos() as f64 / (self.count as f64).sqrt()) as u64,
        )
    }
}

#[cfg(test)]
mod tests;
