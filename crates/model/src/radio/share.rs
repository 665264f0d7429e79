//! Attributes energy to the owners of packets.

use std::collections::HashMap;
use std::hash::Hash;

use manyways_unit::Span;

use super::{Direction, Packet, Profile, SleepTradeoff};

/// Energy of an owner of packets, such as an application.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct EnergyShare {
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
    pub promotion_count: u64,
}

impl EnergyShare {
    /// Adds the share of another owner.
    pub fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.bytes[0] += other.bytes[0];
        self.bytes[1] += other.bytes[1];
        self.transfer += other.transfer;
        self.tail += other.tail;
        self.promotion += other.promotion;
        self.promotion_count += other.promotion_count;
    }

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
pub struct EnergyShares<K> {
    tradeoff: SleepTradeoff,
    burst_gap: Span,
    power: [f64; 2],
    per_bit: [f64; 2],
    all: HashMap<K, EnergyShare>,
    /// Maximum number of separate owners.
    max_owners: usize,
    /// Sum of all further owners.
    others: EnergyShare,
    idle_energy: f64,
    last_owner: Option<K>,
}

impl<K: Copy + Eq + Hash> EnergyShares<K> {
    /// Distinguishes at most `max` owners.
    pub fn new(profile: &Profile, max: usize) -> Self {
        let transfer = &profile.transfer;
        Self {
            tradeoff: SleepTradeoff::of(profile),
            burst_gap: transfer.burst_gap,
            power: [transfer.send.as_watts(), transfer.receive.as_watts()],
            per_bit: [transfer.send_per_mbit, transfer.receive_per_mbit]
                .map(|energy| energy.as_joules() / 1e6),
            all: HashMap::new(),
            max_owners: max,
            others: EnergyShare::default(),
            idle_energy: 0.0,
            last_owner: None,
        }
    }

    fn share_of(&mut self, owner: K) -> &mut EnergyShare {
        if self.all.len() < self.max_owners || self.all.contains_key(&owner) {
            return self.all.entry(owner).or_default();
        }
        &mut self.others
    }

    /// Adds a packet and the gap before it (`None` for the first). Returns the energy of the tail
    /// before it, and the sum of its transfer and promotion.
    pub fn push(&mut self, owner: K, packet: &Packet, gap: Option<Span>) -> (f64, f64) {
        let mut tail = 0.0;
        let direction = usize::from(packet.direction == Direction::Down);
        let mut transfer = f64::from(packet.bytes) * 8.0 * self.per_bit[direction];
        let mut promotion = 0.0;
        let mut is_released = false;
        match gap {
            Some(gap) if gap <= self.burst_gap => {
                transfer += gap.as_secs_f64() * self.power[direction]
            }
            Some(gap) => {
                tail = self.add_gap(gap);
                promotion = self.tradeoff.stay.promotion(gap);
                is_released = self.tradeoff.stay.is_idle(gap);
            }
            None => {
                promotion = self.tradeoff.stay.promotion(Span::MAX);
                is_released = true;
            }
        }
        let share = self.share_of(owner);
        share.packets += 1;
        share.bytes[direction] += u64::from(packet.bytes);
        share.transfer += transfer;
        share.promotion += promotion;
        share.promotion_count += u64::from(is_released);
        self.last_owner = Some(owner);
        (tail, transfer + promotion)
    }

    /// Ends the trace and returns the energy of the last tail.
    pub fn finish(&mut self) -> f64 {
        let Some(owner) = self.last_owner else { return 0.0 };
        let tail = self.tradeoff.stay.energy_until_idle();
        self.share_of(owner).tail += tail;
        tail
    }

    fn add_gap(&mut self, gap: Span) -> f64 {
        let Some(owner) = self.last_owner else { return 0.0 };
        let released = self.tradeoff.stay.idle_after();
        let all = self.tradeoff.stay.energy(gap);
        let tail = match gap > released {
            true => self.tradeoff.stay.energy_until_idle(),
            false => all,
        };
        self.idle_energy += all - tail;
        self.share_of(owner).tail += tail;
        tail
    }

    /// The share of each owner, and the sum of all further owners.
    pub fn all(&self) -> (&HashMap<K, EnergyShare>, &EnergyShare) {
        (&self.all, &self.others)
    }

    /// Joules that are not attributed: of the released radio.
    pub fn idle_energy(&self) -> f64 {
        self.idle_energy
    }
}

#[cfg(test)]
mod tests {
    use crate::radio::span;
    use manyways_unit::Span;

    use super::*;
    use crate::radio::meter::Meter;
    use crate::radio::policy::NEVER;
    use crate::radio::{profiles, workload};

    #[test]
    fn shares_add_up_to_the_total() {
        for (name, _) in profiles::all() {
            let profile = profiles::named(name).unwrap().unwrap();
            let mut shares = EnergyShares::new(&profile, 4);
            let mut meter = Meter::new(&profile);
            let mut last = None;
            for packet in workload::mixed(3, Span::from_secs(40_000)) {
                let gap = last.map(|last| packet.at.since(last));
                match gap {
                    None => meter.push_first(&packet),
                    Some(gap) => {
                        meter.push(&packet, gap, NEVER);
                    }
                }
                shares.push(packet.app, &packet, gap);
                last = Some(packet.at);
            }
            meter.finish(NEVER);
            shares.finish();
            let (all, others) = shares.all();
            assert_eq!(all.len(), 4);
            let each = || all.values().chain([others]);
            let sum = each().map(EnergyShare::total).sum::<f64>() + shares.idle_energy();
            let total = meter.account().total();
            assert!((sum / total - 1.0).abs() < 1e-9, "{name}: {sum} {total}");
            assert_eq!(each().map(|share| share.packets).sum::<u64>(), meter.account().packets);
            assert_eq!(
                each().map(|share| share.promotion_count).sum::<u64>(),
                meter.account().promotion_count
            );
        }
    }

    #[test]
    fn a_tail_is_whose_packet_was_the_last_one() {
        let profile = profiles::named("att-hspa").unwrap().unwrap();
        let mut shares = EnergyShares::new(&profile, 10);
        let packet = Packet {
            at: manyways_unit::Time::ZERO,
            direction: Direction::Up,
            bytes: 100,
            app: 0,
            session: 0,
        };
        shares.push("first", &packet, None);
        shares.push("second", &packet, Some(span(2.0)));
        shares.push("first", &packet, Some(span(60.0)));
        shares.finish();
        let (all, _) = shares.all();
        let (first, second) = (all["first"], all["second"]);
        let whole = 6.2 * 0.916 + 10.4 * 0.659 + 0.55;
        assert!((first.tail - (2.0 * 0.916 + whole)).abs() < 1e-9, "{first:?}");
        assert!((second.tail - whole).abs() < 1e-9, "{second:?}");
        assert!((first.promotion - 1.1).abs() < 1e-9 && second.promotion == 0.0);
        assert_eq!((first.promotion_count, second.promotion_count), (2, 0));
    }
}
