//! Links that share an air: Bluetooth and 2.4 GHz Wi-Fi use the same frequencies.
//!
//! While another link of its air is busy, a link runs at a part of its rate, in both directions:
//! Bluetooth at 0.53 of it, Wi-Fi at 0.93. A link is busy while one of its directions sends a packet,
//! or a packet waits and may be sent: not while the link is paused or waits for its radio. The two
//! directions of a link do not disturb each other.
//!
//! # Source and deviations
//! The figures are from Zhu et al., "Understanding the Networking Performance of Wear OS"
//! (SIGMETRICS 2019), section 3.4: a phone sends in bulk over Bluetooth and over Wi-Fi with a limit of
//! 1 Mbit/s at the same time; at 2.4 GHz, Bluetooth loses 47 % and Wi-Fi 7 % of the throughput that
//! they have beside Wi-Fi at 5 GHz. The paper states neither the direction nor the throughput of
//! faster Wi-Fi.
//!
//! - The same parts apply between links of one kind, which the paper does not measure, and do not
//!   decrease with more than one other busy link. This is not the contention of stations for a
//!   channel: two Wi-Fi links together carry 1.86 times the rate of one.
//! - The parts change when a link becomes busy or idle, whatever its rate: a Bluetooth link is
//!   slowed as much by a slow Wi-Fi link as by a fast one, which is busy for a shorter time.
//! - A link with unlimited capacity is never busy and is not slowed.

use manyways_trace::scenario::NetworkKind;
use manyways_unit::Time;

use crate::Pipe;

/// Part of its capacity that a link uses, in hundredths, from 1 to 100.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Share(u8);

impl Share {
    pub const FULL: Self = Self(100);

    /// Returns the part that a link of this kind uses while another link of its air is busy.
    const fn beside_others(kind: NetworkKind) -> Self {
        match kind {
            NetworkKind::Bluetooth => Self(53),
            NetworkKind::Wifi => Self(93),
            NetworkKind::Cellular | NetworkKind::Ethernet => Self::FULL,
        }
    }

    /// Converts an amount of the whole capacity: a packet that needs `amount` of it with the share
    /// `before` needs the result with this one. Rounds up, so that no packet is early.
    pub fn of_whole(self, amount: u128, before: Self) -> u128 {
        if self == before {
            return amount;
        }
        (amount * u128::from(before.0)).div_ceil(u128::from(self.0))
    }
}

/// A link that can share an air.
pub trait Member {
    /// Returns both directions of the link.
    fn directions(&mut self) -> [&mut Pipe; 2];
}

/// The links of one air.
///
/// Call [`advance`](Self::advance) before each call of a method of their pipes with the same time, and
/// before [`next_wakeup`](Self::next_wakeup). Outputs and their times then do not depend on additional
/// calls: a packet on the wire continues at another rate from the moment at which another link becomes
/// busy or idle. A pipe that is ahead of `advance` gets its new rate late by as much.
#[derive(Clone, Debug)]
pub struct Medium {
    stations: Vec<Station>,
    /// Time of the latest `advance`.
    now: Time,
    /// The next time at which a link may become busy or idle.
    next: Option<Time>,
}

#[derive(Clone, Copy, Debug)]
struct Station {
    /// Index of the link.
    link: usize,
    kind: NetworkKind,
    is_busy: bool,
}

impl Medium {
    /// Creates the air of these links: their indexes in the list of [`advance`](Self::advance), and
    /// their kinds. A link of another kind than Bluetooth and Wi-Fi has its whole rate.
    pub fn new(links: impl IntoIterator<Item = (usize, NetworkKind)>) -> Self {
        let station = |(link, kind)| Station { link, kind, is_busy: false };
        Self { stations: links.into_iter().map(station).collect(), now: Time::ZERO, next: None }
    }

    /// Processes all events of the links up to `now`, in the order of time, and sets their rates.
    /// Packets and changes since the previous call count as of its time. Time must not go back; an
    /// earlier `now` is replaced by the latest one.
    ///
    /// # Panics
    /// If `links` is shorter than an index in [`new`](Self::new).
    pub fn advance(&mut self, now: Time, links: &mut [impl Member]) {
        let mut at = self.now;
        loop {
            self.set_shares(at, links);
            match self.next {
                Some(next) if next <= now => at = next,
                _ => break,
            }
        }
        self.now = self.now.max(now);
    }

    /// Returns the latest time of the next [`advance`](Self::advance) call, in addition to the
    /// wake-ups of the pipes: a packet may depart earlier than its pipe expects when another link
    /// becomes idle. `None` if no two links are busy.
    pub fn next_wakeup(&self) -> Option<Time> {
        let busy = self.stations.iter().filter(|station| station.is_busy);
        self.next.filter(|_| busy.count() > 1)
    }

    fn set_shares(&mut self, now: Time, links: &mut [impl Member]) {
        for station in &mut self.stations {
            let [one, other] = links[station.link].directions();
            // Both are advanced.
            station.is_busy = one.is_busy(now) | other.is_busy(now);
        }
        let busy = self.stations.iter().filter(|station| station.is_busy).count();
        self.next = None;
        for station in &self.stations {
            let share = match busy > usize::from(station.is_busy) {
                true => Share::beside_others(station.kind),
                false => Share::FULL,
            };
            for pipe in links[station.link].directions() {
                pipe.set_share(now, share);
                self.next = [self.next, pipe.next_change()].into_iter().flatten().min();
            }
        }
    }
}

#[cfg(test)]
mod tests;
