//! Who the energy is for.

use std::collections::HashMap;
use std::hash::Hash;

use super::{Choice, Direction, Packet, Profile};

/// What an application, or whatever else owns packets, has caused.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Share {
    /// Packets.
    pub packets: u64,
    /// Bytes that were sent, and that were received.
    pub bytes: [u64; 2],
    /// Joules of transfers: the gaps that its packets ended, and their bits.
    pub transfer: f64,
    /// Joules for which the radio stayed awake behind its packets, and to let it go then.
    pub tail: f64,
    /// Joules to bring the radio back for its packets.
    pub promotion: f64,
    /// How often its packets found the radio released.
    pub switches: u64,
}

impl Share {
    /// All of it, in joules.
    pub fn total(&self) -> f64 {
        self.transfer + self.tail + self.promotion
    }
}

/// Divides what a radio takes under the network's timers among the owners of its packets.
///
/// A silence belongs to whoever sent or received last, up to the moment at which the network lets go
/// of the radio; what is taken behind that (paging) is nobody's. What brings it back belongs to whose
/// packet does. These are the rules of Qian et al., "Profiling resource usage for mobile
/// applications", MobiSys 2011. Who does not send at all does not save all of its share: others
/// would have tails of their own in its place.
#[derive(Clone, Debug)]
pub struct Shares<K> {
    choice: Choice,
    burst_gap: f64,
    power: [f64; 2],
    bit: [f64; 2],
    all: HashMap<K, Share>,
    /// At most so many owners.
    most: usize,
    /// All owners that came later.
    others: Share,
    idle: f64,
    last: Option<K>,
}

impl<K: Copy + Eq + Hash> Shares<K> {
    /// At most so many owners are told apart.
    pub fn new(profile: &Profile, most: usize) -> Self {
        let transfer = &profile.transfer;
        Self {
            choice: Choice::of(profile),
            burst_gap: transfer.burst_gap.as_secs_f64(),
            power: [transfer.send.as_watts(), transfer.receive.as_watts()],
            bit: [transfer.send_per_mbit, transfer.receive_per_mbit]
                .map(|energy| energy.as_joules() / 1e6),
            all: HashMap::new(),
            most,
            others: Share::default(),
            idle: 0.0,
            last: None,
        }
    }

    fn of(&mut self, owner: K) -> &mut Share {
        if self.all.len() < self.most || self.all.contains_key(&owner) {
            return self.all.entry(owner).or_default();
        }
        &mut self.others
    }

    /// The next packet, so many seconds after the one before it. Says what the tail before it took, and
    /// what is its own: transfer and promotion.
    pub fn next(&mut self, owner: K, packet: &Packet, gap: Option<f64>) -> (f64, f64) {
        let mut tail = 0.0;
        let way = usize::from(packet.direction == Direction::Down);
        let mut transfer = f64::from(packet.bytes) * 8.0 * self.bit[way];
        let mut promotion = 0.0;
        let mut is_released = false;
        match gap {
            Some(gap) if gap <= self.burst_gap => transfer += gap * self.power[way],
            Some(gap) => {
                tail = self.silence(gap);
                promotion = self.choice.stay.promotion(gap);
                is_released = self.choice.stay.is_released(gap);
            }
            None => {
                promotion = self.choice.stay.promotion(f64::INFINITY);
                is_released = true;
            }
        }
        let share = self.of(owner);
        share.packets += 1;
        share.bytes[way] += u64::from(packet.bytes);
        share.transfer += transfer;
        share.promotion += promotion;
        share.switches += u64::from(is_released);
        self.last = Some(owner);
        (tail, transfer + promotion)
    }

    /// Nothing comes any more. Says what the last tail takes.
    pub fn end(&mut self) -> f64 {
        self.silence(self.choice.stay.released().next_up())
    }

    fn silence(&mut self, gap: f64) -> f64 {
        let Some(owner) = self.last else { return 0.0 };
        let released = self.choice.stay.released();
        let all = self.choice.stay.energy(gap);
        let tail = match gap > released {
            // With what it takes to be let go.
            true => self.choice.stay.energy(released.next_up()),
            false => all,
        };
        self.idle += all - tail;
        self.of(owner).tail += tail;
        tail
    }

    /// Everybody's, and that of all who came later than those.
    pub fn all(&self) -> (&HashMap<K, Share>, &Share) {
        (&self.all, &self.others)
    }

    /// Joules that are nobody's: of the radio while it is released.
    pub fn idle(&self) -> f64 {
        self.idle
    }
}

#[cfg(test)]
mod tests {
    use manyways_unit::Span;

    use super::*;
    use crate::radio::meter::Meter;
    use crate::radio::policy::NEVER;
    use crate::radio::{profiles, workload};

    #[test]
    fn shares_add_up_to_what_the_radio_takes() {
        for (name, _) in profiles::all() {
            let profile = profiles::named(name).unwrap().unwrap();
            let mut shares = Shares::new(&profile, 4);
            let mut meter = Meter::new(&profile);
            let mut last = None;
            for packet in workload::mixed(3, Span::from_secs(40_000)) {
                let gap = last.map(|last| packet.at.since(last).as_secs_f64());
                match gap {
                    None => meter.begin(&packet),
                    Some(gap) => {
                        meter.next(&packet, gap, NEVER);
                    }
                }
                shares.next(packet.app, &packet, gap);
                last = Some(packet.at);
            }
            meter.end(NEVER);
            shares.end();
            let (all, others) = shares.all();
            assert_eq!(all.len(), 4);
            let each = || all.values().chain([others]);
            let sum = each().map(Share::total).sum::<f64>() + shares.idle();
            let total = meter.account().total();
            assert!((sum / total - 1.0).abs() < 1e-9, "{name}: {sum} {total}");
            assert_eq!(each().map(|share| share.packets).sum::<u64>(), meter.account().packets);
            assert_eq!(each().map(|share| share.switches).sum::<u64>(), meter.account().switches);
        }
    }

    #[test]
    fn a_tail_is_whose_packet_was_the_last_one() {
        let profile = profiles::named("att-hspa").unwrap().unwrap();
        let mut shares = Shares::new(&profile, 10);
        let packet = Packet {
            at: manyways_unit::Time::ZERO,
            direction: Direction::Up,
            bytes: 100,
            app: 0,
            session: 0,
        };
        shares.next("first", &packet, None);
        shares.next("second", &packet, Some(2.0));
        shares.next("first", &packet, Some(60.0));
        shares.end();
        let (all, _) = shares.all();
        let (first, second) = (all["first"], all["second"]);
        let whole = 6.2 * 0.916 + 10.4 * 0.659 + 0.55;
        assert!((first.tail - (2.0 * 0.916 + whole)).abs() < 1e-9, "{first:?}");
        assert!((second.tail - whole).abs() < 1e-9, "{second:?}");
        assert!((first.promotion - 1.1).abs() < 1e-9 && second.promotion == 0.0);
        assert_eq!((first.switches, second.switches), (2, 0));
    }
}
