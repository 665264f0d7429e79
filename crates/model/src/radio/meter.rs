//! Sums the energy of a trace, gap by gap.

use super::{Choice, Direction, Packet, Profile};

/// Energy of a radio in joules, and times in seconds.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Account {
    pub packets: u64,
    /// Sent, received.
    pub bytes: [u64; 2],
    /// Seconds of transfers, by the direction of the packet at the end of each gap.
    pub transfer_secs: [f64; 2],
    /// Joules of transfers, including the energy per bit.
    pub transfer: [f64; 2],
    /// Seconds in each state of the profile, without transfers.
    pub state_secs: Vec<f64>,
    /// Joules in each state of the profile, without transfers.
    pub states: Vec<f64>,
    /// Number of states before the first released one.
    pub awake: usize,
    /// Joules of demotions, by timers and by fast dormancy.
    pub demotions: f64,
    /// Joules of promotions.
    pub promotions: f64,
    /// Packets that found the radio released, including the first one.
    pub switches: u64,
    /// Number of fast dormancies.
    pub sleeps: u64,
    /// Sum of the waits before them, in seconds.
    pub waits: f64,
}

impl Account {
    /// In joules.
    pub fn total(&self) -> f64 {
        self.transfer.iter().chain(&self.states).sum::<f64>() + self.demotions + self.promotions
    }

    /// Joules in connected states without a transfer, of demotions and of promotions: the part that
    /// a policy can change.
    pub fn tail(&self) -> f64 {
        self.states[..self.awake].iter().sum::<f64>() + self.demotions + self.promotions
    }
}

/// Accounts a trace. The times of its packets do not depend on the radio (open loop).
#[derive(Clone, Debug)]
pub struct Meter {
    choice: Choice,
    burst_gap: f64,
    /// Watts, and joules per bit, by direction.
    power: [f64; 2],
    bit: [f64; 2],
    account: Account,
}

impl Meter {
    /// Creates a meter of a radio that is released.
    pub fn new(profile: &Profile) -> Self {
        let transfer = &profile.transfer;
        let choice = Choice::of(profile);
        let states = profile.states.len();
        Self {
            burst_gap: transfer.burst_gap.as_secs_f64(),
            power: [transfer.send.as_watts(), transfer.receive.as_watts()],
            bit: [transfer.send_per_mbit, transfer.receive_per_mbit]
                .map(|energy| energy.as_joules() / 1e6),
            choice,
            account: Account {
                state_secs: vec![0.0; states],
                states: vec![0.0; states],
                awake: profile.states.iter().take_while(|state| !state.is_released).count(),
                ..Account::default()
            },
        }
    }

    pub fn choice(&self) -> &Choice {
        &self.choice
    }

    /// The energy so far.
    pub fn account(&self) -> &Account {
        &self.account
    }

    fn carry(&mut self, packet: &Packet) -> usize {
        let way = usize::from(packet.direction == Direction::Down);
        self.account.packets += 1;
        self.account.bytes[way] += u64::from(packet.bytes);
        self.account.transfer[way] += f64::from(packet.bytes) * 8.0 * self.bit[way];
        way
    }

    /// Adds the first packet, which finds the radio in its last state.
    pub fn begin(&mut self, packet: &Packet) {
        self.carry(packet);
        self.account.promotions += self.choice.stay.promotion(f64::INFINITY);
        self.account.switches += 1;
    }

    /// Adds a packet `gap` seconds after the previous one, with fast dormancy strictly after `wait`
    /// seconds.
    ///
    /// A gap within a burst takes the power of a transfer; fast dormancy within it adds the energy
    /// of the switch. Returns whether the packet found the radio released.
    #[inline]
    pub fn next(&mut self, packet: &Packet, gap: f64, wait: f64) -> bool {
        let way = self.carry(packet);
        let sleeps = wait < gap && wait < self.choice.stay.released();
        if gap <= self.burst_gap {
            self.account.transfer_secs[way] += gap;
            self.account.transfer[way] += gap * self.power[way];
            if sleeps {
                self.sleep(wait);
                self.account.promotions += self.choice.sleep.promotion(0.0);
                self.account.switches += 1;
            }
            return sleeps;
        }
        let is_released = self.silence(gap, sleeps.then_some(wait));
        let after = match sleeps {
            true => self.choice.sleep.promotion(gap - wait),
            false => self.choice.stay.promotion(gap),
        };
        self.account.promotions += after;
        self.account.switches += u64::from(is_released);
        is_released
    }

    /// Ends the trace with a tail or fast dormancy after `wait` seconds. The account ends when the
    /// radio is released.
    pub fn end(&mut self, wait: f64) {
        let released = self.choice.stay.released();
        let sleeps = wait < released;
        // Strictly after the timer, so that the demotion is included.
        let end = if sleeps { wait } else { released.next_up() };
        self.silence(end, sleeps.then_some(wait));
    }

    fn sleep(&mut self, wait: f64) {
        self.account.demotions += self.choice.demotion;
        self.account.sleeps += 1;
        self.account.waits += wait;
    }

    /// Returns whether the radio is released at the end.
    fn silence(&mut self, gap: f64, sleeps: Option<f64>) -> bool {
        let Self { choice, account, .. } = self;
        let awake = sleeps.unwrap_or(gap);
        for (state, secs, joules, demotion) in choice.stay.parts(awake) {
            account.state_secs[state] += secs;
            account.states[state] += joules;
            account.demotions += demotion;
        }
        if sleeps.is_none() {
            return choice.stay.is_released(gap);
        }
        for (state, secs, joules, demotion) in choice.sleep.parts(gap - awake) {
            account.state_secs[state] += secs;
            account.states[state] += joules;
            account.demotions += demotion;
        }
        self.sleep(awake);
        true
    }
}

/// The policy that knows the next gap and goes idle at once if that takes less energy: the lower
/// bound without delaying packets. A gap outside of a burst is compared with the threshold.
#[derive(Clone, Debug)]
pub struct Oracle {
    choice: Choice,
    burst_gap: f64,
    threshold: f64,
}

impl Oracle {
    pub fn new(profile: &Profile) -> Self {
        let choice = Choice::of(profile);
        let burst_gap = profile.transfer.burst_gap.as_secs_f64();
        Self { threshold: choice.threshold(), choice, burst_gap }
    }

    /// Whether to go idle immediately before a gap of `gap` seconds; `None` is the end of the
    /// trace.
    pub fn sleeps(&self, gap: Option<f64>) -> bool {
        match gap {
            Some(gap) => gap > self.threshold && gap > self.burst_gap,
            None => {
                self.choice.demotion
                    <= self.choice.stay.energy(self.choice.stay.released().next_up())
            }
        }
    }
}

#[cfg(test)]
mod tests;
