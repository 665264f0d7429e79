//! The upper bound of the cost of a probe, and whether a running probe stays within it.
//!
//! A probe describes itself as a [`Plan`]: the transfers that it intends, with upper bounds. The
//! plan predicts the [`Cost`], and an [`Allowance`] compares the running probe with it.

use manyways_unit::{Size, Span, Time};

use crate::radio::{Direction, Energy, Meter, NEVER, Packet, Profile};

/// One transfer of a probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transfer {
    /// Start, from that of the probe.
    pub start: Span,
    /// Maximum duration.
    pub duration: Span,
    /// Maximum bytes sent and received, with IP headers.
    pub up: Size,
    pub down: Size,
}

/// The transfers of a probe, in the order of their starts.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Plan {
    transfers: Vec<Transfer>,
}

/// The use of a network by a probe, predicted or measured.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cost {
    /// Bytes sent and received, with IP headers.
    pub up: Size,
    pub down: Size,
    pub duration: Span,
    /// Of the radio, with its tail; `None` without a profile of the radio.
    pub energy: Option<Energy>,
}

impl Plan {
    /// A plan of these transfers; sorts them.
    pub fn new(mut transfers: Vec<Transfer>) -> Self {
        transfers.sort_by_key(|transfer| transfer.start);
        Self { transfers }
    }

    /// The same transfer, `count` times, from one start to the next after `interval`.
    pub fn repeated(transfer: Transfer, count: u64, interval: Span) -> Self {
        let nth = |index| Transfer { start: transfer.start + interval * index, ..transfer };
        Self { transfers: (0..count).map(nth).collect() }
    }

    /// Adds another plan, `pause` after the end of this one.
    pub fn then(mut self, pause: Span, next: &Self) -> Self {
        let start = if self.transfers.is_empty() { Span::ZERO } else { self.duration() + pause };
        let moved = |transfer: &Transfer| Transfer { start: start + transfer.start, ..*transfer };
        self.transfers.extend(next.transfers.iter().map(moved));
        self
    }

    /// The latest end of a transfer.
    pub fn duration(&self) -> Span {
        let end = |transfer: &Transfer| transfer.start + transfer.duration;
        self.transfers.iter().map(end).max().unwrap_or_default()
    }

    /// The predicted cost. With the profile of a radio, its energy too: the radio is released at
    /// the start, and every transfer is as long and as large as it may be.
    pub fn cost(&self, radio: Option<&Profile>) -> Cost {
        let sum = |part: fn(&Transfer) -> Size| {
            let bytes = self.transfers.iter().map(|transfer| part(transfer).as_bytes());
            Size::from_bytes(bytes.fold(0, u64::saturating_add))
        };
        Cost {
            up: sum(|transfer| transfer.up),
            down: sum(|transfer| transfer.down),
            duration: self.duration(),
            energy: radio.map(|radio| self.energy(radio)),
        }
    }

    fn energy(&self, radio: &Profile) -> Energy {
        let mut meter = Meter::new(radio);
        let mut last = None;
        for packet in self.transfers.iter().flat_map(|one| packets(one, radio)) {
            match last {
                None => meter.push_first(&packet),
                Some(last) => {
                    meter.push(&packet, packet.at.since(last), NEVER);
                }
            }
            // Transfers of a plan may overlap.
            last = Some(last.map_or(packet.at, |last: Time| last.max(packet.at)));
        }
        if last.is_some() {
            meter.finish(NEVER);
        }
        Energy::joules(meter.account().total())
    }
}

/// Packets of a transfer that uses its whole duration: each direction in equal parts, close enough
/// to each other to be one burst.
fn packets(transfer: &Transfer, radio: &Profile) -> impl Iterator<Item = Packet> {
    /// Of a transfer, against plans of days.
    const MAX_PACKETS: u64 = 10_000;
    let gap = radio.transfer.burst_gap.as_nanos().max(1);
    let steps = (transfer.duration.as_nanos() / gap + 1).min(MAX_PACKETS);
    let Transfer { start, duration, up, down } = *transfer;
    let packet = move |index: u64| {
        let at = Time::ZERO + start + Span::from_nanos(duration.as_nanos() / steps * index);
        let part = |all: Size| {
            let bytes = all.as_bytes();
            let part = bytes / (steps + 1) + u64::from(index < bytes % (steps + 1));
            u32::try_from(part).unwrap_or(u32::MAX)
        };
        let each = [(Direction::Up, part(up)), (Direction::Down, part(down))];
        each.into_iter().filter(|(_, bytes)| *bytes > 0).map(move |(direction, bytes)| Packet {
            at,
            direction,
            bytes,
            app: 0,
            session: 0,
        })
    };
    (0..=steps).flat_map(packet)
}

/// The limit that stops a probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LimitReached {
    /// More bytes than predicted would be sent.
    #[error("the probe has sent the {0} that it predicted")]
    Up(Size),
    /// More bytes than predicted would be received.
    #[error("the probe has received the {0} that it predicted")]
    Down(Size),
    /// The probe takes longer than predicted.
    #[error("the probe has taken the {0} that it predicted")]
    Duration(Span),
    /// The data limit of the user.
    #[error("the data limit of {0} is reached")]
    Cap(Size),
}

/// The cost of a running probe so far, and its limits.
#[derive(Clone, Debug)]
pub struct Allowance {
    started: Time,
    predicted: Cost,
    /// Limit of the user on the bytes of both directions.
    cap: Option<Size>,
    /// Bytes of earlier probes that count for the cap.
    spent: Size,
    up: u64,
    down: u64,
    /// Total of the pauses that have ended.
    paused: Span,
    paused_at: Option<Time>,
}

impl Allowance {
    /// A probe that starts `now`. `cap` limits the bytes of both directions together, with those
    /// that earlier probes have spent.
    pub fn new(now: Time, predicted: Cost, cap: Option<Size>, spent: Size) -> Self {
        Self {
            started: now,
            predicted,
            cap,
            spent,
            up: 0,
            down: 0,
            paused: Span::ZERO,
            paused_at: None,
        }
    }

    /// Counts bytes that were sent and received.
    pub fn charge(&mut self, up: Size, down: Size) {
        self.up = self.up.saturating_add(up.as_bytes());
        self.down = self.down.saturating_add(down.as_bytes());
    }

    /// Takes back bytes that were charged, but neither sent nor received.
    pub fn refund(&mut self, up: Size, down: Size) {
        self.up = self.up.saturating_sub(up.as_bytes());
        self.down = self.down.saturating_sub(down.as_bytes());
    }

    /// Begins a pause, which does not count as duration.
    pub fn pause(&mut self, now: Time) {
        self.paused_at.get_or_insert(now);
    }

    /// Ends a pause.
    pub fn resume(&mut self, now: Time) {
        if let Some(since) = self.paused_at.take() {
            self.paused += now.since(since);
        }
    }

    /// Time since the start without pauses.
    fn duration(&self, now: Time) -> Span {
        self.paused_at.unwrap_or(now).since(self.started).saturating_sub(self.paused)
    }

    /// The cost so far.
    pub fn used(&self, now: Time) -> Cost {
        Cost {
            up: Size::from_bytes(self.up),
            down: Size::from_bytes(self.down),
            duration: self.duration(now),
            energy: None,
        }
    }

    /// Whether the probe may send `up` and receive `down` more bytes at this time.
    ///
    /// # Errors
    /// The limit that it would pass.
    pub fn check(&self, now: Time, up: Size, down: Size) -> Result<(), LimitReached> {
        let Cost { up: max_up, down: max_down, duration, .. } = self.predicted;
        let up = self.up.saturating_add(up.as_bytes());
        let down = self.down.saturating_add(down.as_bytes());
        let both = up.saturating_add(down).saturating_add(self.spent.as_bytes());
        if let Some(cap) = self.cap.filter(|cap| both > cap.as_bytes()) {
            return Err(LimitReached::Cap(cap));
        }
        if up > max_up.as_bytes() {
            return Err(LimitReached::Up(max_up));
        }
        if down > max_down.as_bytes() {
            return Err(LimitReached::Down(max_down));
        }
        if self.duration(now) > duration {
            return Err(LimitReached::Duration(duration));
        }
        Ok(())
    }

    /// When the predicted duration ends; `None` during a pause.
    pub fn deadline(&self) -> Option<Time> {
        let deadline = self.started + self.predicted.duration + self.paused;
        self.paused_at.is_none().then_some(deadline)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::radio::profiles;

    fn transfer(start: u64, duration: u64, up: u64, down: u64) -> Transfer {
        Transfer {
            start: Span::from_millis(start),
            duration: Span::from_millis(duration),
            up: Size::from_bytes(up),
            down: Size::from_bytes(down),
        }
    }

    #[test]
    fn a_plan_is_the_sum_of_its_transfers() {
        let ping = Plan::repeated(transfer(0, 1_000, 84, 84), 10, Span::from_secs(1));
        let load = Plan::new(vec![transfer(0, 5_000, 10_000, 1_000_000)]);
        let cost = ping.then(Span::from_millis(500), &load).cost(None);
        assert_eq!((cost.up, cost.down), (Size::from_bytes(10_840), Size::from_bytes(1_000_840)));
        assert_eq!((cost.duration, cost.energy), (Span::from_millis(15_500), None));
        assert_eq!(Plan::default().cost(None).duration, Span::ZERO);
    }

    #[test]
    fn energy_has_the_tail_and_grows_with_gaps() {
        let lte = profiles::named("lte").unwrap().unwrap();
        let energy = |plan: &Plan| plan.cost(Some(&lte)).energy.unwrap().as_joules();
        let one = Plan::new(vec![transfer(0, 50, 84, 84)]);
        let tail = crate::radio::TailEnergy::from_state(&lte, 0).energy_until_idle();
        assert!(energy(&one) > tail, "{} {tail}", energy(&one));
        assert!(energy(&one) < tail + 2.0, "{} {tail}", energy(&one));
        let many = Plan::repeated(transfer(0, 50, 84, 84), 10, Span::from_secs(1));
        assert!(energy(&many) > energy(&one) + 5.0, "{} {}", energy(&many), energy(&one));
        assert_eq!(energy(&Plan::default()), 0.0);
    }

    #[test]
    fn a_limit_is_told_before_it_is_passed() {
        let plan = Plan::new(vec![transfer(0, 1_000, 100, 1_000)]);
        let now = Time::from_millis(500);
        let mut allowance = Allowance::new(now, plan.cost(None), None, Size::ZERO);
        let bytes = Size::from_bytes;
        assert_eq!(allowance.check(now, bytes(100), bytes(1_000)), Ok(()));
        allowance.charge(bytes(60), bytes(400));
        let refused = allowance.check(now, bytes(41), bytes(0));
        assert_eq!(refused, Err(LimitReached::Up(bytes(100))));
        let refused = allowance.check(now, bytes(0), bytes(601)).unwrap_err();
        assert_eq!(refused.to_string(), "the probe has received the 1 KB that it predicted");
        let end = allowance.deadline().expect("no pause");
        assert_eq!(allowance.check(end, bytes(0), bytes(0)), Ok(()));
        let late = end + Span::from_nanos(1);
        let refused = allowance.check(late, bytes(0), bytes(0));
        assert_eq!(refused, Err(LimitReached::Duration(Span::from_secs(1))));
        // A pause of a minute after half a second.
        let minute = Span::from_secs(60);
        allowance.pause(now + Span::from_millis(500));
        assert_eq!(allowance.deadline(), None);
        allowance.resume(now + Span::from_millis(500) + minute);
        assert_eq!(allowance.deadline(), Some(end + minute));
        assert_eq!(allowance.check(end + minute, bytes(0), bytes(0)), Ok(()));
        assert_eq!(allowance.used(end + minute).duration, Span::from_secs(1));
        assert!(allowance.check(late + minute, bytes(0), bytes(0)).is_err());
        allowance.refund(bytes(60), bytes(401));
        let used = allowance.used(now);
        assert_eq!((used.up, used.down), (bytes(0), bytes(0)));
        let capped = Allowance::new(now, plan.cost(None), Some(bytes(700)), bytes(200));
        let refused = capped.check(now, bytes(1), bytes(500));
        assert_eq!(refused, Err(LimitReached::Cap(bytes(700))));
    }

    proptest! {
        /// However a probe asks, it never exceeds its prediction, nor the data limit.
        #[test]
        fn a_probe_that_asks_first_stays_within_its_prediction(
            up in 0_u64..10_000, down in 0_u64..10_000, cap in proptest::option::of(0_u64..15_000),
            spent in 0_u64..5_000,
            packets in proptest::collection::vec((0_u64..3_000, 0_u64..3_000, 0_u64..400), 0..50),
        ) {
            let (bytes, plan) = (Size::from_bytes, Plan::new(vec![transfer(0, 1_000, up, down)]));
            let mut now = Time::from_millis(7);
            let cap = cap.map(bytes);
            let mut allowance = Allowance::new(now, plan.cost(None), cap, bytes(spent));
            let mut is_over = false;
            for (up, down, pause) in packets {
                now += Span::from_millis(pause);
                if allowance.check(now, bytes(up), bytes(down)).is_ok() {
                    allowance.charge(bytes(up), bytes(down));
                    prop_assert!(!is_over || now <= allowance.deadline().expect("no pause"));
                }
                is_over |= now > allowance.deadline().expect("no pause");
            }
            let used = allowance.used(now);
            prop_assert!(used.up <= bytes(up) && used.down <= bytes(down));
            let both = (used.up + used.down).as_bytes();
            prop_assert!(both == 0 || cap.is_none_or(|cap| both + spent <= cap.as_bytes()));
        }

        #[test]
        fn packets_carry_all_bytes_within_the_transfer(
            start in 0_u64..10_000, duration in 0_u64..30_000, up in 0_u64..1 << 30,
            down in 0_u64..1 << 30,
        ) {
            let one = transfer(start, duration, up, down);
            let radio = profiles::named("lte").unwrap().unwrap();
            let end = Time::ZERO + one.start + one.duration;
            let mut sums = [0, 0];
            for packet in packets(&one, &radio) {
                prop_assert!(packet.at >= Time::ZERO + one.start && packet.at <= end);
                sums[usize::from(packet.direction == Direction::Down)] += u64::from(packet.bytes);
            }
            prop_assert_eq!(sums, [up, down]);
        }
    }
}
