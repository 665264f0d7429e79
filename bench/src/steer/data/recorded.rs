//! Set (a): Wi-Fi and LTE recorded at the same time. Rates only, so that round trips are drawn and
//! there are no signals.

use manyways_rig::links::Pair;
use manyways_trace::scenario::CapacitySpec;
use manyways_unit::Random;

use super::place::Place;

/// Seed of the round trips.
const SEED: u64 = 0x7374_6565_7201;

/// A recorded pair.
#[derive(Clone, Debug)]
pub struct Recording {
    pub name: String,
    /// Number of the walk, the group of its recordings.
    pub walk: u32,
    /// Length in seconds.
    pub seconds: u64,
    pub wifi: CapacitySpec,
    pub lte: CapacitySpec,
}

impl Recording {
    /// `None` if the name does not begin with the number of a walk.
    pub fn of(pair: &Pair) -> Option<Self> {
        let [wifi, lte] = <[_; 2]>::try_from(pair.links()).ok()?;
        let periods = [&wifi, &lte].map(manyways_rig::links::period);
        let seconds = periods.into_iter().flatten().max()?.as_secs_f64() as u64;
        let walk = pair.name.split('_').next()?.parse().ok()?;
        let (wifi, lte) = (wifi.down.capacity, lte.down.capacity);
        Some(Self { name: pair.name.clone(), walk, seconds, wifi, lte })
    }
}

/// One place per recording.
pub fn places(recordings: &[Recording]) -> Vec<Place> {
    let place = |(index, recording): (usize, &Recording)| {
        let mut random = Random::for_purpose(SEED, index as u64);
        let Recording { name, walk, seconds, wifi, lte } = recording.clone();
        Place::new(format!("a-{name}"), walk.to_string(), seconds, [wifi, lte], &mut random)
    };
    recordings.iter().enumerate().map(place).collect()
}
