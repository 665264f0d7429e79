//! Set (b): Wi-Fi of a recorded walk beside a cellular log with signals, which was recorded elsewhere.
//! The combination is made up; each of its sides is real.

use manyways_rig::order::shuffle;
use manyways_unit::{Random, Rate};

use super::place::{LONGEST, Place, Signals, capacity};
use super::recorded::Recording;
use super::signal_log::{Second, SignalLog};

/// How many places there are, the same number per walk.
const PLACES: usize = 40;
/// Seed of the combinations, the parts of the logs and the round trips.
const SEED: u64 = 0x7374_6565_7202;
/// Purposes of the seed, beside the indices of places: the order of the logs, the combinations of a
/// walk and, counted from the last one, the part of a log.
const LOGS: u64 = 1_000_000;
const COMBINATIONS: u64 = 2_000_000;
const PARTS: u64 = 3_000_000;

/// A Wi-Fi recording beside a part of a log.
#[derive(Clone, Debug)]
pub struct Crossing<'a> {
    pub recording: &'a Recording,
    pub log: &'a SignalLog,
    /// First second of the log.
    pub first: usize,
}

/// Crosses each walk with logs that no other walk is crossed with. Places of different walks
/// alternate.
pub fn crossings<'a>(recordings: &'a [Recording], logs: &'a [SignalLog]) -> Vec<Crossing<'a>> {
    let mut walks: Vec<u32> = recordings.iter().map(|recording| recording.walk).collect();
    walks.sort_unstable();
    walks.dedup();
    let mut shuffled: Vec<&SignalLog> = logs.iter().collect();
    shuffle(&mut shuffled, Random::for_purpose(SEED, LOGS).next_u64());

    let per_walk: Vec<Vec<(&Recording, &SignalLog)>> = walks
        .iter()
        .enumerate()
        .map(|(index, walk)| {
            let of_walk = recordings.iter().filter(|recording| recording.walk == *walk);
            let share = || shuffled.iter().skip(index).step_by(walks.len());
            let mut all: Vec<_> =
                of_walk.flat_map(|recording| share().map(move |log| (recording, *log))).collect();
            let purpose = COMBINATIONS + u64::from(*walk);
            shuffle(&mut all, Random::for_purpose(SEED, purpose).next_u64());
            all
        })
        .collect();
    let mut found = Vec::new();
    for index in 0..PLACES {
        let Some(all) = per_walk.get(index % walks.len().max(1)) else { break };
        let Some((recording, log)) = all.get(index / walks.len() % all.len().max(1)) else {
            continue;
        };
        let spare = log.seconds.len().saturating_sub(part(recording));
        let first = Random::for_purpose(SEED, PARTS + index as u64).up_to(spare as u64);
        found.push(Crossing { recording, log, first: first as usize });
    }
    found
}

/// Seconds of a log that a place uses: enough for a transfer that begins at its end, so that only a
/// shorter log repeats.
fn part(recording: &Recording) -> usize {
    (recording.seconds + LONGEST) as usize
}

/// One place per crossing. It has the Wi-Fi rates of the recording; its LTE rates and signals are
/// those of the log, in all of its modes.
///
/// # Errors
/// One sentence, if a log is empty.
pub fn places(recordings: &[Recording], logs: &[SignalLog]) -> Result<Vec<Place>, String> {
    let place = |(index, crossing): (usize, &Crossing<'_>)| {
        let Crossing { recording, log, first } = crossing;
        let seconds: Vec<&Second> = log.seconds.iter().skip(*first).take(part(recording)).collect();
        let rates: Vec<Rate> = seconds.iter().map(|second| second.down).collect();
        let down = [recording.wifi.clone(), capacity(&log.name, rates)?];
        let name = format!("b-{}-{}-{first}", recording.name, log.name);
        let (group, length) = (recording.walk.to_string(), recording.seconds);
        let mut random = Random::for_purpose(SEED, index as u64);
        let mut place = Place::new(name, group, length, down, &mut random);
        place.signals[1] =
            Signals(seconds.into_iter().map(|second| second.signals.clone()).collect());
        Ok(place)
    };
    crossings(recordings, logs).iter().enumerate().map(place).collect()
}
