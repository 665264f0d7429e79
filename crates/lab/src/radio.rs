//! The radios of links, which delay both directions of a link until the radio is connected.
//!
//! `manyways-link` has no radios: its pipes are only held until a given time. This module runs the
//! state machine of `manyways-model` and computes that time.

use manyways_model::radio::{Direction, Profile, StateMachine, profiles};
use manyways_model::radio::{ProfileError, profile};
use manyways_trace::scenario::{LinkSpec, RadioSpec};
use manyways_unit::Time;
use manyways_unit::nearest::nearest;

/// Reasons why the radio of a link is invalid.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RadioError {
    /// No profile has this name.
    #[error("link `{link}`: there is no radio profile `{name}`")]
    Unknown {
        /// Name of the link.
        link: String,
        /// As the user wrote it.
        name: String,
    },
    /// The file is not a valid profile.
    #[error("link `{link}`: rrc: `{source_name}`: {error}")]
    Profile {
        /// Name of the link.
        link: String,
        /// As the user wrote it.
        source_name: String,
        error: ProfileError,
    },
}

impl RadioError {
    pub fn link(&self) -> &str {
        match self {
            Self::Unknown { link, .. } | Self::Profile { link, .. } => link,
        }
    }

    /// Returns a hint for the user.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Unknown { name, .. } => {
                let names = || profiles::all().map(|(name, _)| name);
                Some(match nearest(name, names()) {
                    Some(nearest) => format!("did you mean `{nearest}`?"),
                    None => {
                        let names: Vec<&str> = names().collect();
                        format!("use one of {}, or a file like ./radio.toml", names.join(", "))
                    }
                })
            }
            Self::Profile { error, .. } => error.hint.clone(),
        }
    }
}

/// Returns the profile of a link's radio; `None` if the link has no radio.
///
/// # Errors
/// If the profile does not exist, or the file is not a valid profile.
pub fn profile_of(link: &LinkSpec) -> Result<Option<Profile>, RadioError> {
    let Some(RadioSpec { source, text }) = &link.radio else { return Ok(None) };
    let read = match text {
        Some(text) => profile::parse(text),
        None => profiles::named(source)
            .ok_or_else(|| RadioError::Unknown { link: link.name.clone(), name: source.clone() })?,
    };
    read.map(Some).map_err(|error| RadioError::Profile {
        link: link.name.clone(),
        source_name: source.clone(),
        error,
    })
}

/// State and counters of a link's radio.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RadioStats {
    /// Name of the current state.
    pub state: String,
    /// Whether packets wait for a promotion.
    pub is_promoting: bool,
    /// Promotions by the state before; all states except the first one.
    pub promotions: Vec<(String, u64)>,
    /// Number of times the device requested fast dormancy with effect.
    pub dormancies: u64,
}

impl RadioStats {
    /// Returns the promotions from all states.
    pub fn total_promotions(&self) -> u64 {
        self.promotions.iter().map(|(_, count)| count).sum()
    }
}

/// The radio of one link.
pub struct Radio {
    profile: Profile,
    rrc_state: StateMachine,
    /// Promotions, by the index of the state before.
    promotions: Vec<u64>,
    dormancies: u64,
}

impl Radio {
    /// Creates a radio that is idle until the first packet.
    pub fn new(profile: Profile) -> Self {
        Self {
            rrc_state: StateMachine::new(&profile),
            promotions: vec![0; profile.states.len()],
            dormancies: 0,
            profile,
        }
    }

    /// Makes the radio idle, as at the start. Counters stay.
    pub fn restart(&mut self) {
        self.rrc_state = StateMachine::new(&self.profile);
    }

    /// Handles a packet. `busy` is the last time, up to now, at which the link's wires were busy.
    /// Returns the time until which the wires are held.
    pub fn on_packet(&mut self, now: Time, busy: Option<Time>, direction: Direction) -> Time {
        self.update(now, busy);
        self.rrc_state.pass(now, direction);
        self.rrc_state.promotion_end().unwrap_or(now)
    }

    /// Requests fast dormancy.
    pub fn request_dormancy(&mut self, now: Time, busy: Option<Time>) {
        self.update(now, busy);
        let can = self.rrc_state.request_dormancy(now);
        self.dormancies += u64::from(can);
        tracing::debug!(can, "a radio is sent to sleep");
    }

    /// Returns state and counters; `busy` as in [`Radio::on_packet`].
    pub fn stats(&mut self, now: Time, busy: Option<Time>) -> RadioStats {
        self.update(now, busy);
        let state = self.rrc_state.state(now);
        let states = self.profile.states.iter().zip(&self.promotions).skip(1);
        RadioStats {
            state: self.profile.states[state].name.clone(),
            is_promoting: self.rrc_state.promotion_end().is_some(),
            promotions: states.map(|(state, count)| (state.name.clone(), *count)).collect(),
            dormancies: self.dormancies,
        }
    }

    fn update(&mut self, now: Time, busy: Option<Time>) {
        // Count the end of the promotion first: waiting packets passed from that time.
        if let Some(opened) = self.rrc_state.promotion_end().filter(|opens| *opens <= now) {
            self.count_promotion(opened);
        }
        // Set before its timers run to now: they start when the wires became idle.
        if let Some(busy) = busy {
            self.rrc_state.extend_transfer(busy);
        }
        self.count_promotion(now);
    }

    fn count_promotion(&mut self, now: Time) {
        while let Some(change) = self.rrc_state.poll(now) {
            if change.state == 0 {
                self.promotions[change.previous] += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests;
