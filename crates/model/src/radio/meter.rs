//! Adds up what a radio takes, silence by silence.

use super::{Choice, Direction, Packet, Profile};

/// What a radio has taken, in joules and seconds.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Account {
    /// Packets.
    pub packets: u64,
    /// Bytes that were sent, and that were received.
    pub bytes: [u64; 2],
    /// Seconds of transfers, by the direction of the packet that ended each of their gaps.
    pub transfer_secs: [f64; 2],
    /// Joules of these, with what the bits themselves took.
    pub transfer: [f64; 2],
    /// Seconds in each state of the profile without a transfer.
    pub state_secs: Vec<f64>,
    /// Joules of these.
    pub states: Vec<f64>,
    /// How many states are not released: the first ones.
    pub awake: usize,
    /// Joules to enter states, by timers and by the device.
    pub demotions: f64,
    /// Joules to be brought back by packets.
    pub promotions: f64,
    /// Packets that found the radio released, the first one among them.
    pub switches: u64,
    /// How often the device itself went to sleep.
    pub sleeps: u64,
    /// Seconds for which it had waited before it did.
    pub waits: f64,
}

impl Account {
    /// All of it, in joules.
    pub fn total(&self) -> f64 {
        self.transfer.iter().chain(&self.states).sum::<f64>() + self.demotions + self.promotions
    }

    /// What was spent to be awake without a transfer, and to go to sleep and be brought back, in
    /// joules: what a policy can save.
    pub fn tail(&self) -> f64 {
        self.states[..self.awake].iter().sum::<f64>() + self.demotions + self.promotions
    }
}

/// Follows a trace. Its packets are where they are, whatever the radio does (open loop).
#[derive(Clone, Debug)]
pub struct Meter {
    choice: Choice,
    burst_gap: f64,
    /// Watts, and joules a bit, by direction.
    power: [f64; 2],
    bit: [f64; 2],
    account: Account,
}

impl Meter {
    /// Nothing has passed yet: the radio is released.
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

    /// What there is to decide between.
    pub fn choice(&self) -> &Choice {
        &self.choice
    }

    /// What was taken so far.
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

    /// The first packet, which finds the radio in its last state.
    pub fn begin(&mut self, packet: &Packet) {
        self.carry(packet);
        self.account.promotions += self.choice.stay.promotion(f64::INFINITY);
        self.account.switches += 1;
    }

    /// The next packet, so many seconds after the one before it, where the device was to go to sleep
    /// strictly after `wait` seconds.
    ///
    /// A gap that belongs to a transfer takes what a transfer takes; who sleeps in it pays for the
    /// switch besides. Says whether the packet found the radio released.
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

    /// Nothing comes any more: the radio goes through its tail, or to sleep before that, and the
    /// account ends when it is released.
    pub fn end(&mut self, wait: f64) {
        let released = self.choice.stay.released();
        let sleeps = wait < released;
        // Just behind the timer, so that what it takes to be released is counted.
        let end = if sleeps { wait } else { released.next_up() };
        self.silence(end, sleeps.then_some(wait));
    }

    fn sleep(&mut self, wait: f64) {
        self.account.demotions += self.choice.demotion;
        self.account.sleeps += 1;
        self.account.waits += wait;
    }

    /// Whether the radio is released at the end of it.
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

/// Knows what comes, and sleeps at once where that takes less: the least that can be had without
/// delaying a packet. For a gap that is no part of a transfer this compares it with the threshold.
#[derive(Clone, Debug)]
pub struct Oracle {
    choice: Choice,
    burst_gap: f64,
    threshold: f64,
}

impl Oracle {
    /// That of a profile.
    pub fn new(profile: &Profile) -> Self {
        let choice = Choice::of(profile);
        let burst_gap = profile.transfer.burst_gap.as_secs_f64();
        Self { threshold: choice.threshold(), choice, burst_gap }
    }

    /// Whether to sleep right after a packet that is followed by such a gap; none is the end.
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
