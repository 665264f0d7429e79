//! Attributes energy to the owners of packets.

use std::collections::HashMap;
use std::hash::Hash;

use super::{Choice, Direction, Packet, Profile};

/// Energy of an owner of packets, such as an application.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Share {
    pub packets: u64,
    /// Sent, received.
    pub bytes: [u64; 2],
    /// Joules of the gaps that its packets ended within transfers, and of their bits.
    pub transfer: f64,
    /// Joules of tails after its packets, including the demotions.
    pub tail: f64,
    /// Joules of promotions for its packets.
    pub promotion: f64,
    /// Packets that found the radio released.
    pub switches: u64,
}

impl Share {
    /// In joules.
    pub fn total(&self) -> f64 {
        self.transfer + self.tail + self.promotion
    }
}

/// Attributes the energy under the network's timers to the owners of packets.
///
/// The energy of a gap is attributed to the owner of the last packet until the network releases the
/// radio. Energy after that (paging) is not attributed. A promotion is attributed to the owner of
/// the packet that caused it. These are the rules of Qian et al., "Profiling resource usage for
/// mobile applications", MobiSys 2011. An owner without traffic would not save its full share,
/// because others would have more tails.
#[derive(Clone, Debug)]
pub struct Shares<K> {
    choice: Choice,
    burst_gap: f64,
    power: [f64; 2],
    bit: [f64; 2],
    all: HashMap<K, Share>,
    /// Maximum number of separate owners.
    most: usize,
    /// Sum of all further owners.
    others: Share,
    idle: f64,
    last: Option<K>,
}

impl<K: Copy + Eq + Hash> Shares<K> {
    /// Distinguishes at most `most` owners.
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

    /// Adds a packet `gap` seconds after the previous one (`None` for the first). Returns the
    /// energy of the tail before it, and the sum of its transfer and promotion.
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

    /// Ends the trace and returns the energy of the last tail.
    pub fn end(&mut self) -> f64 {
        self.silence(self.choice.stay.released().next_up())
    }

    fn silence(&mut self, gap: f64) -> f64 {
        let Some(owner) = self.last else { return 0.0 };
        let released = self.choice.stay.released();
        let all = self.choice.stay.energy(gap);
        let tail = match gap > released {
            // Including the demotion to the released state.
            true => self.choice.stay.energy(released.next_up()),
            false => all,
        };
        self.idle += all - tail;
        self.of(owner).tail += tail;
        tail
    }

    /// The share of each owner, and the sum of all further owners.
    pub fn all(&self) -> (&HashMap<K, Share>, &Share) {
        (&self.all, &self.others)
    }

    /// Joules that are not attributed: of the released radio.
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
    fn shares_add_up_to_the_total() {
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
