//! Built-in profiles.

use super::profile::{self, Profile, ProfileError};

/// Sorted by name.
const ALL: [(&str, &str); 15] = [
    ("3g-i997", include_str!("../../profiles/3g-i997.toml")),
    ("3g-imap", include_str!("../../profiles/3g-imap.toml")),
    ("3g-inspire", include_str!("../../profiles/3g-inspire.toml")),
    ("5g-mmwave", include_str!("../../profiles/5g-mmwave.toml")),
    ("5g-nsa", include_str!("../../profiles/5g-nsa.toml")),
    ("5g-sa", include_str!("../../profiles/5g-sa.toml")),
    ("att-hspa", include_str!("../../profiles/att-hspa.toml")),
    ("bluetooth", include_str!("../../profiles/bluetooth.toml")),
    ("delphi-lte", include_str!("../../profiles/delphi-lte.toml")),
    ("delphi-wifi", include_str!("../../profiles/delphi-wifi.toml")),
    ("lte", include_str!("../../profiles/lte.toml")),
    ("tmobile-3g", include_str!("../../profiles/tmobile-3g.toml")),
    ("verizon-3g", include_str!("../../profiles/verizon-3g.toml")),
    ("verizon-lte", include_str!("../../profiles/verizon-lte.toml")),
    ("wifi", include_str!("../../profiles/wifi.toml")),
];

/// A profile with its built-in name, or with the path of its file.
#[derive(Clone, PartialEq, Debug)]
pub struct Known {
    pub name: String,
    pub profile: Profile,
}

/// Name and text of each profile.
pub fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    ALL.into_iter()
}

/// The profile of this name; `None` if there is no such profile.
///
/// # Errors
/// Never fails in practice: a test reads every profile.
pub fn named(name: &str) -> Option<Result<Profile, ProfileError>> {
    let (_, text) = ALL.iter().find(|(one, _)| *one == name)?;
    Some(profile::parse(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::radio::SleepTradeoff;

    #[test]
    fn every_profile_reads_and_every_number_has_a_source() {
        for (name, text) in all() {
            let profile = profile::parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(!profile.transfer.source.is_empty(), "{name}");
            assert!(profile.states.iter().all(|state| !state.source.is_empty()), "{name}");
        }
        assert!(all().is_sorted(), "the list is sorted by name");
        assert!(named("lte").is_some() && named("wimax").is_none());
    }

    #[test]
    fn thresholds_are_those_that_were_reckoned() {
        for (name, threshold) in [
            ("att-hspa", 1.10 / 0.916),
            ("tmobile-3g", 0.857 * 3.6),
            ("verizon-3g", 0.857 * 1.2),
            ("verizon-lte", 0.857 * 0.6),
        ] {
            let tradeoff = SleepTradeoff::of(&named(name).unwrap().unwrap());
            let found = tradeoff.threshold();
            let difference = found.as_secs_f64() - threshold;
            assert!(difference.abs() < 1e-6, "{name}: {found}");
            let spent = tradeoff.stay.cost(found);
            assert!((spent - tradeoff.switch_energy().as_joules()).abs() < 1e-9, "{name}: {spent}");
        }
    }
}
