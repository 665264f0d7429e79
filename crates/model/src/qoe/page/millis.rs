//! Times in JSON, as milliseconds, and sizes, as bytes.

/// Too early and invalid times become zero.
fn from_millis(millis: f64) -> manyways_unit::Time {
    manyways_unit::Time::from_nanos((millis * 1e6).round() as u64)
}

pub(super) mod time {
    use manyways_unit::Time;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(time: &Time, to: S) -> Result<S::Ok, S::Error> {
        (time.as_nanos() as f64 / 1e6).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Time, D::Error> {
        f64::deserialize(from).map(super::from_millis)
    }
}

pub(super) mod option {
    use manyways_unit::Time;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(time: &Option<Time>, to: S) -> Result<S::Ok, S::Error> {
        time.map(|time| time.as_nanos() as f64 / 1e6).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Time>, D::Error> {
        Ok(Option::deserialize(from)?.map(super::from_millis))
    }
}

pub(super) mod size {
    use manyways_unit::Size;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(size: &Size, to: S) -> Result<S::Ok, S::Error> {
        size.as_bytes().serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Size, D::Error> {
        u64::deserialize(from).map(Size::from_bytes)
    }
}
