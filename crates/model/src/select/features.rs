//! The inputs of a trained model, by name.

use manyways_unit::Size;

use super::indicator::{Indicator, Indicators};

/// A network's role in a trained model.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Role {
    Wifi,
    Lte,
}

/// Size, closed form, and the indicators of two roles.
const COUNT: usize = 2 + 2 * Indicator::ALL.len();

/// An input of a model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Feature(usize);

/// The values of all inputs; NaN where one is unknown.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Features([f64; COUNT]);

impl Role {
    pub const ALL: [Self; 2] = [Self::Wifi, Self::Lte];

    /// Name in models, tables and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wifi => "wifi",
            Self::Lte => "lte",
        }
    }
}

impl Feature {
    /// ln of the bytes.
    pub const SIZE: Self = Self(0);
    /// ln of the seconds of the closed form.
    pub const CLOSED: Self = Self(1);

    pub fn of(role: Role, indicator: Indicator) -> Self {
        Self(2 + role as usize * Indicator::ALL.len() + indicator as usize)
    }

    /// All of them, in the order of tables.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..COUNT).map(Self)
    }

    /// `size`, `closed`, or `ROLE.INDICATOR`.
    pub fn name(self) -> String {
        match self.0 {
            0 => "size".to_owned(),
            1 => "closed".to_owned(),
            index => {
                let (role, indicator) =
                    ((index - 2) / Indicator::ALL.len(), (index - 2) % Indicator::ALL.len());
                format!("{}.{}", Role::ALL[role].name(), Indicator::ALL[indicator].name())
            }
        }
    }

    /// The feature with this name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "size" => return Some(Self::SIZE),
            "closed" => return Some(Self::CLOSED),
            _ => {}
        }
        let (role, indicator) = name.split_once('.')?;
        let role = Role::ALL.into_iter().find(|one| one.name() == role)?;
        Some(Self::of(role, Indicator::named(indicator)?))
    }
}

impl Features {
    /// Of a transfer, with the seconds that the closed form expects for the choice that is predicted.
    pub fn new(size: Size, closed: f64, networks: &[(Role, &Indicators)]) -> Self {
        let mut values = [f64::NAN; COUNT];
        values[Feature::SIZE.0] = (size.as_bytes().max(1) as f64).ln();
        values[Feature::CLOSED.0] = closed.max(1e-9).ln();
        for (role, indicators) in networks {
            for (indicator, known) in indicators.iter() {
                values[Feature::of(*role, indicator).0] = known.value;
            }
        }
        Self(values)
    }

    #[inline]
    pub fn get(&self, feature: Feature) -> f64 {
        self.0[feature.0]
    }

    /// Sets a value; NaN means unknown.
    pub fn set(&mut self, feature: Feature, value: f64) {
        self.0[feature.0] = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_feature_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<String> = Feature::all().map(Feature::name).collect();
        assert_eq!(names.len(), COUNT);
        assert!(names.contains("lte.rsrp") && names.contains("wifi.udp-rate"));
        assert!(Feature::all().all(|one| Feature::named(&one.name()) == Some(one)));
        for unknown in ["", "rsrp", "wifi.", "wifi.no", "wlan.rsrp"] {
            assert_eq!(Feature::named(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn values_have_the_places_of_their_names() {
        use manyways_unit::Time;
        let (mut wifi, mut lte) = (Indicators::default(), Indicators::default());
        wifi.set(Time::ZERO, Indicator::Rssi, -60.0);
        lte.set(Time::ZERO, Indicator::Rsrp, -97.0);
        lte.set(Time::ZERO, Indicator::OwnRate, 7.0);
        let networks = [(Role::Lte, &lte), (Role::Wifi, &wifi)];
        let features = Features::new(Size::from_bytes(1_000), 0.5, &networks);
        let known = |one: Feature| {
            let value = features.get(one);
            (!value.is_nan()).then(|| format!("{} {value:.3}", one.name()))
        };
        let found: Vec<String> = Feature::all().filter_map(known).collect();
        assert_eq!(
            found,
            [
                "size 6.908",
                "closed -0.693",
                "wifi.rssi -60.000",
                "lte.rsrp -97.000",
                "lte.own-rate 7.000"
            ]
        );
        let empty = Features::new(Size::ZERO, 0.0, &[]);
        assert_eq!(empty.get(Feature::SIZE), 0.0);
        assert!(empty.get(Feature::CLOSED).is_finite());
    }
}
