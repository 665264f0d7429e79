//! Sums the energy of a trace, gap by gap.

use manyways_unit::Span;

use super::{Direction, Packet, Profile, SleepTradeoff};

/// Energy of a radio in joules.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Account {
    pub packets: u64,
    /// Sent, received.
    pub bytes: [u64; 2],
    /// Time in transfers, by the direction of the packet at the end of each gap.
    pub transfer_time: [Span; 2],
    /// Joules of transfers, including the energy per bit.
    pub transfer_energy: [f64; 2],
    /// Time in each state of the profile, without transfers.
    pub state_time: Vec<Span>,
    /// Joules in each state of the profile, without transfers.
    pub state_energy: Vec<f64>,
    /// Number of states before the first released one.
    pub connected_states: usize,
    /// Joules of demotions, by timers and by fast dormancy.
    pub demotion_energy: f64,
    /// Joules of promotions.
    pub promotion_energy: f64,
    /// Packets that found the radio released, including the first one.
    pub promotion_count: u64,
    /// Number of fast dormancies.
    pub dormancies: u64,
    /// Sum of the waits before them.
    pub wait_time: Span,
}

impl Account {
    /// In joules.
    pub fn total(&self) -> f64 {
        self.transfer_energy.iter().chain(&self.state_energy).sum::<f64>()
            + self.demotion_energy
            + self.promotion_energy
    }

    /// Joules in connected states without a transfer, of demotions and of promotions: the part that
    /// a policy can change.
    pub fn tail_energy(&self) -> f64 {
        self.state_energy[..self.connected_states].iter().sum::<f64>()
            + self.demotion_energy
            + self.promotion_energy
    }

    #[inline]
    fn add_states(&mut self, parts: impl Iterator<Item = (usize, Span, f64, f64)>) {
        for (state, duration, joules, demotion) in parts {
            self.state_time[state] += duration;
            self.state_energy[state] += joules;
            self.demotion_energy += demotion;
        }
    }
}

/// Accounts a trace. The times of its packets do not depend on the radio (open loop).
#[derive(Clone, Debug)]
pub struct Meter {
    tradeoff: SleepTradeoff,
    burst_gap: Span,
    /// Watts, and joules per bit, by direction.
    power: [f64; 2],
    per_bit: [f64; 2],
    account: Account,
}

impl Meter {
    /// Creates a meter of a radio that is released.
    pub fn new(profile: &Profile) -> Self {
        let transfer = &profile.transfer;
        let tradeoff = SleepTradeoff::of(profile);
        let states = profile.states.len();
        Self {
            burst_gap: transfer.burst_gap,
            power: [transfer.send.as_watts(), transfer.receive.as_watts()],
            per_bit: [transfer.send_per_mbit, transfer.receive_per_mbit]
                .map(|energy| energy.as_joules() / 1e6),
            tradeoff,
            account: Account {
                state_time: vec![Span::ZERO; states],
                state_energy: vec![0.0; states],
                connected_states: profile.states.iter().take_while(|state| !state.is_idle).count(),
                ..Account::default()
            },
        }
    }

    pub fn tradeoff(&self) -> &SleepTradeoff {
        &self.tradeoff
    }

    /// The energy so far.
    pub fn account(&self) -> &Account {
        &self.account
    }

    fn add_transfer(&mut self, packet: &Packet) -> usize {
        let direction = usize::from(packet.direction == Direction::Down);
        self.account.packets += 1;
        self.account.bytes[direction] += u64::from(packet.bytes);
        self.account.transfer_energy[direction] +=
            f64::from(packet.bytes) * 8.0 * self.per_bit[direction];
        direction
    }

    /// Adds the first packet, which finds the radio in its last state.
    pub fn push_first(&mut self, packet: &Packet) {
        self.add_transfer(packet);
        self.account.promotion_energy += self.tradeoff.stay.promotion(Span::MAX);
        self.account.promotion_count += 1;
    }

    /// Adds a packet and the gap before it, with fast dormancy strictly after `wait`.
    ///
    /// A gap within a burst takes the power of a transfer; fast dormancy within it adds the energy
    /// of the switch. Returns whether the packet found the radio released.
    #[inline]
    pub fn push(&mut self, packet: &Packet, gap: Span, wait: Span) -> bool {
        let direction = self.add_transfer(packet);
        let sleeps = wait < gap && wait < self.tradeoff.stay.idle_after();
        if gap <= self.burst_gap {
            self.account.transfer_time[direction] += gap;
            self.account.transfer_energy[direction] += gap.as_secs_f64() * self.power[direction];
            if sleeps {
                self.add_dormancy(wait);
                self.account.promotion_energy += self.tradeoff.dormancy.promotion(Span::ZERO);
                self.account.promotion_count += 1;
            }
            return sleeps;
        }
        let is_released = self.add_gap(gap, sleeps.then_some(wait));
        let after = match sleeps {
            true => self.tradeoff.dormancy.promotion(gap - wait),
            false => self.tradeoff.stay.promotion(gap),
        };
        self.account.promotion_energy += after;
        self.account.promotion_count += u64::from(is_released);
        is_released
    }

    /// Ends the trace with a tail or fast dormancy after `wait`. The account ends when the radio is
    /// released.
    pub fn finish(&mut self, wait: Span) {
        if wait < self.tradeoff.stay.idle_after() {
            self.add_gap(wait, Some(wait));
        } else {
            self.account.add_states(self.tradeoff.stay.energy_by_state_until_idle());
        }
    }

    fn add_dormancy(&mut self, wait: Span) {
        self.account.demotion_energy += self.tradeoff.demotion;
        self.account.dormancies += 1;
        self.account.wait_time += wait;
    }

    /// Returns whether the radio is released at the end.
    fn add_gap(&mut self, gap: Span, sleeps: Option<Span>) -> bool {
        let Self { tradeoff, account, .. } = self;
        let awake = sleeps.unwrap_or(gap);
        account.add_states(tradeoff.stay.energy_by_state(awake));
        if sleeps.is_none() {
            return tradeoff.stay.is_idle(gap);
        }
        account.add_states(tradeoff.dormancy.energy_by_state(gap - awake));
        self.add_dormancy(awake);
        true
    }
}

/// The policy that knows the next gap and goes idle at once if that takes less energy: the lower
/// bound without delaying packets. A gap outside of a burst is compared with the threshold.
#[derive(Clone, Debug)]
pub struct Oracle {
    tradeoff: SleepTradeoff,
    burst_gap: Span,
    threshold: Span,
}

impl Oracle {
    pub fn new(profile: &Profile) -> Self {
        let tradeoff = SleepTradeoff::of(profile);
        let burst_gap = profile.transfer.burst_gap;
        Self { threshold: tradeoff.threshold(), tradeoff, burst_gap }
    }

    /// Whether to go idle immediately before a gap; `None` is the end of the trace.
    pub fn goes_idle(&self, gap: Option<Span>) -> bool {
        match gap {
            Some(gap) => gap > self.threshold && gap > self.burst_gap,
            None => self.tradeoff.demotion <= self.tradeoff.stay.energy_until_idle(),
        }
    }
}

#[cfg(test)]
mod tests;
