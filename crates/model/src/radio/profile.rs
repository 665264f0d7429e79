//! A radio as data: what it spends in which state, and when it leaves it.

mod read;
mod write;

use manyways_unit::Span;

pub use self::read::{LONGEST, MAX_STATES, MAX_TEXT, MOST_ENERGY, MOST_POWER, ProfileError, parse};
pub use self::write::write;
use super::{Energy, Power};

/// What kind of network a radio is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Technology {
    /// UMTS and HSPA, or CDMA2000.
    ThreeG,
    /// LTE.
    Lte,
    /// 5G New Radio, with or without an LTE anchor.
    Nr,
    /// Wi-Fi.
    Wifi,
    /// Bluetooth.
    Bluetooth,
}

/// A radio.
///
/// Its states are in the order in which it goes through them when nothing passes, from the one in
/// which data is transferred to the one in which it stays. A packet brings it back into the first.
#[derive(Clone, PartialEq, Debug)]
pub struct Profile {
    /// One line for people.
    pub title: String,
    /// What it is for.
    pub technology: Technology,
    /// While packets follow each other.
    pub transfer: Transfer,
    /// At least two.
    pub states: Vec<State>,
    /// The state into which the device can go by itself (fast dormancy), by its place.
    pub dormant: usize,
}

/// What a transfer takes.
#[derive(Clone, PartialEq, Debug)]
pub struct Transfer {
    /// While packets go out, and while they come in.
    pub send: Power,
    /// See [`Transfer::send`].
    pub receive: Power,
    /// More for each million bits that go out: the same number as mW for each Mbit/s.
    pub send_per_mbit: Energy,
    /// The same for what comes in.
    pub receive_per_mbit: Energy,
    /// A gap of at most this between two packets belongs to a transfer.
    pub burst_gap: Span,
    /// Where these numbers are from.
    pub source: String,
}

/// A state without a transfer.
#[derive(Clone, PartialEq, Debug)]
pub struct State {
    /// As its technology calls it.
    pub name: String,
    /// What it takes, but for when it listens.
    pub power: Power,
    /// It listens again and again, as discontinuous reception and paging do.
    pub listens: Option<Listens>,
    /// It is left for the next one after so long without a packet. The last one has none.
    pub timer: Option<Span>,
    /// What it takes to enter it, by a timer or by the device's own wish.
    pub demotion: Energy,
    /// What it takes to be brought back by a packet, and how long that packet waits.
    pub promotion: Energy,
    /// See [`State::promotion`].
    pub promotion_delay: Span,
    /// The network keeps nothing for the device here, so that coming back is a switch: what
    /// signalling is counted by.
    pub is_released: bool,
    /// Where these numbers are from.
    pub source: String,
}

/// Discontinuous reception: at the beginning of every cycle it listens.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Listens {
    /// From one time to the next.
    pub cycle: Span,
    /// For how long; at most the cycle.
    pub lasts: Span,
    /// What that takes.
    pub power: Power,
}

impl Profile {
    /// The same radio, of which going to sleep and being brought back takes so many times as much.
    pub fn with_switches(mut self, factor: f64) -> Self {
        for state in &mut self.states {
            state.demotion = Energy::joules(state.demotion.as_joules() * factor);
            state.promotion = Energy::joules(state.promotion.as_joules() * factor);
        }
        self
    }

    /// The same radio, where to release it takes so large a share of what turning the data connection
    /// off takes. Profiles have a half, as Deng's thesis does (§4.6.1).
    pub fn with_turn_off(mut self, share: f64) -> Self {
        for state in &mut self.states {
            state.demotion = Energy::joules(state.demotion.as_joules() * share / 0.5);
        }
        self
    }
}

impl Technology {
    const NAMES: [(&'static str, Self); 5] = [
        ("3g", Self::ThreeG),
        ("lte", Self::Lte),
        ("nr", Self::Nr),
        ("wifi", Self::Wifi),
        ("bluetooth", Self::Bluetooth),
    ];

    /// As a profile calls it.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, one)| *one == self).map_or("", |(name, _)| name)
    }
}
