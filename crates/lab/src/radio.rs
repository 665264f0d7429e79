//! The radios of links: what a link's two directions wait for before they carry anything.
//!
//! `manyways-link` knows no radio: it is told until when its wires are held. This is who steps the
//! machine of `manyways-model` and says so.

use manyways_model::radio::profile::{self, ProfileError};
use manyways_model::radio::{Direction, Machine, Profile, profiles};
use manyways_trace::scenario::{LinkSpec, RadioSpec};
use manyways_unit::Time;
use manyways_unit::nearest::nearest;

/// Why a link has no such radio.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RadioError {
    /// No profile has that name.
    #[error("link `{link}`: there is no radio profile `{name}`")]
    Unknown {
        /// The link's name.
        link: String,
        /// As the user wrote it.
        name: String,
    },
    /// The file is no profile.
    #[error("link `{link}`: rrc: `{source_name}`: {error}")]
    Profile {
        /// The link's name.
        link: String,
        /// As the user named it.
        source_name: String,
        /// What is wrong with it.
        error: ProfileError,
    },
}

impl RadioError {
    /// The link's name.
    pub fn link(&self) -> &str {
        match self {
            Self::Unknown { link, .. } | Self::Profile { link, .. } => link,
        }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Unknown { name, .. } => {
                let names = || profiles::all().map(|(name, _)| name);
                Some(match nearest(name, names()) {
                    Some(nearest) => format!("did you mean `{nearest}`?"),
                    None => {
                        let names: Vec<&str> = names().collect();
                        format!("it is one of {}, or a file like ./radio.toml", names.join(", "))
                    }
                })
            }
            Self::Profile { error, .. } => error.hint.clone(),
        }
    }
}

/// The profile of a link's radio; none where it has no radio.
///
/// # Errors
/// Where there is no such profile, or the file is none.
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

/// What a link's radio does, and has done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RadioStats {
    /// The name of the state that it is in.
    pub state: String,
    /// Whether packets wait for it.
    pub is_waking: bool,
    /// How often packets brought it back, by the state in which they found it; all states but the
    /// first one.
    pub promotions: Vec<(String, u64)>,
    /// How often the device itself sent it to sleep.
    pub sleeps: u64,
}

impl RadioStats {
    /// How often packets brought it back, from whatever state.
    pub fn all_promotions(&self) -> u64 {
        self.promotions.iter().map(|(_, count)| count).sum()
    }
}

/// The radio of one link.
pub struct Radio {
    profile: Profile,
    machine: Machine,
    /// By the state in which packets found it.
    promotions: Vec<u64>,
    sleeps: u64,
}

impl Radio {
    /// One that is asleep, and stays so until something is to pass.
    pub fn new(profile: Profile) -> Self {
        Self {
            machine: Machine::new(&profile),
            promotions: vec![0; profile.states.len()],
            sleeps: 0,
            profile,
        }
    }

    /// It is asleep again, as at the start. What was counted stays.
    pub fn restart(&mut self) {
        self.machine = Machine::new(&self.profile);
    }

    /// A packet comes; `busy` is when the link's wires last carried something, up to now. Gives
    /// until when they are held.
    pub fn pass(&mut self, now: Time, busy: Option<Time>, direction: Direction) -> Time {
        self.follow(now, busy);
        self.machine.pass(now, direction);
        self.machine.opens().unwrap_or(now)
    }

    /// The device wants it to be dormant.
    pub fn sleep(&mut self, now: Time, busy: Option<Time>) {
        self.follow(now, busy);
        let can = self.machine.sleep(now);
        self.sleeps += u64::from(can);
        tracing::debug!(can, "a radio is sent to sleep");
    }

    /// What it does now; `busy` as in [`Radio::pass`].
    pub fn stats(&mut self, now: Time, busy: Option<Time>) -> RadioStats {
        self.follow(now, busy);
        let state = self.machine.state(now);
        let states = self.profile.states.iter().zip(&self.promotions).skip(1);
        RadioStats {
            state: self.profile.states[state].name.clone(),
            is_waking: self.machine.opens().is_some(),
            promotions: states.map(|(state, count)| (state.name.clone(), *count)).collect(),
            sleeps: self.sleeps,
        }
    }

    fn follow(&mut self, now: Time, busy: Option<Time>) {
        // Awake at last, and no further: what has waited passed from then on.
        if let Some(opened) = self.machine.opens().filter(|opens| *opens <= now) {
            self.count(opened);
        }
        // Before its timers run to now: they begin where the wires fell silent.
        if let Some(busy) = busy {
            self.machine.busy(busy);
        }
        self.count(now);
    }

    fn count(&mut self, now: Time) {
        while let Some(change) = self.machine.poll(now) {
            if change.entered == 0 {
                self.promotions[change.left] += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests;
