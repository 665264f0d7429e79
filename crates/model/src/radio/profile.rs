//! Radio profiles: power and timers of each state.

mod read;
mod write;

use manyways_unit::Span;

pub use self::read::{
    MAX_DURATION, MAX_ENERGY, MAX_POWER, MAX_STATES, MAX_TEXT, ProfileError, parse,
};
pub use self::write::write;
use super::{Energy, Power};

/// Access technology of a profile.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Technology {
    /// UMTS and HSPA, or CDMA2000.
    ThreeG,
    Lte,
    /// 5G New Radio, with or without an LTE anchor.
    Nr,
    Wifi,
    Bluetooth,
}

/// A radio.
///
/// States are in the order of demotion without traffic, from the state that transfers data to the
/// last one. A packet causes a promotion to the first state.
#[derive(Clone, PartialEq, Debug)]
pub struct Profile {
    /// One line for the user.
    pub title: String,
    pub technology: Technology,
    /// Powers during transfers.
    pub transfer: Transfer,
    /// At least two.
    pub states: Vec<State>,
    /// Index of the state of fast dormancy.
    pub dormant: usize,
}

/// Power and energy of transfers.
#[derive(Clone, PartialEq, Debug)]
pub struct Transfer {
    /// Power while sending.
    pub send: Power,
    /// Power while receiving.
    pub receive: Power,
    /// Additional energy per million bits sent; numerically mW per Mbit/s.
    pub send_per_mbit: Energy,
    /// Additional energy per million bits received.
    pub receive_per_mbit: Energy,
    /// Gaps up to this length belong to a transfer.
    pub burst_gap: Span,
    /// Source of these values.
    pub source: String,
}

/// An RRC state without a transfer.
#[derive(Clone, PartialEq, Debug)]
pub struct State {
    /// Name in the specifications of its technology.
    pub name: String,
    /// Power outside the on duration.
    pub power: Power,
    /// DRX or paging cycle.
    pub drx: Option<Drx>,
    /// Time without a packet until the next state; `None` in the last state.
    pub timer: Option<Span>,
    /// Energy of the demotion into this state, by timer or fast dormancy.
    pub demotion: Energy,
    /// Energy of the promotion out of this state.
    pub promotion: Energy,
    /// Time that a packet waits for the promotion.
    pub promotion_delay: Span,
    /// Whether the network has released the RRC connection, so that a promotion counts as a switch
    /// (with its signalling).
    pub is_idle: bool,
    /// Source of these values.
    pub source: String,
}

/// DRX or paging: the on duration at the start of each cycle.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Drx {
    pub cycle: Span,
    /// On duration; at most the cycle.
    pub on_duration: Span,
    /// Power in the on duration.
    pub power: Power,
}

impl Profile {
    /// Multiplies the energies of all demotions and promotions.
    pub fn with_switch_factor(mut self, factor: f64) -> Self {
        for state in &mut self.states {
            state.demotion = Energy::joules(state.demotion.as_joules() * factor);
            state.promotion = Energy::joules(state.promotion.as_joules() * factor);
        }
        self
    }

    /// Sets the energy of a release to this share of the energy of switching the data connection
    /// off. Profiles contain one half, as Deng's thesis does (§4.6.1).
    pub fn with_release_share(mut self, share: f64) -> Self {
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

    /// Name in profile files.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, one)| *one == self).map_or("", |(name, _)| name)
    }
}
