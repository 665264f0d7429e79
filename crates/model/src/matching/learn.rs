//! Keys that matter, found by comparing recorded requests with each other.

use std::collections::HashMap;

use super::compare::Learned;
use super::index::Entry;
use super::shape::Class;

/// Pairs of a group that are examined.
const MAX_EXAMINED: usize = 1_000_000;

/// Value and response of the first request with some other pairs.
type First = (Option<u64>, Option<u64>);

/// Finds keys that alone distinguish two requests of a group: in both, all other pairs are equal,
/// except those that differ in each run.
pub(super) fn learn(entries: &[Entry], places: &[u32]) -> Learned {
    let mut learned = Learned::default();
    let group = || places.iter().filter_map(|place| entries.get(*place as usize));
    let first = group().next().and_then(|entry| entry.response);
    learned.is_uniform =
        places.len() > 1 && first.is_some() && group().all(|entry| entry.response == first);
    // Without a key, by the sum of the hashes of the other pairs.
    let mut others: HashMap<(u64, u64), First> = HashMap::new();
    let mut whole: HashMap<u64, Option<u64>> = HashMap::new();
    let mut examined = 0;
    for entry in group() {
        examined += entry.atoms.len();
        if examined > MAX_EXAMINED {
            break;
        }
        let stable = || entry.atoms.iter().filter(|atom| atom.class != Class::Volatile);
        let sum = stable().fold(0_u64, |sum, atom| sum.wrapping_add(atom.hash()));
        whole.entry(sum).or_insert(entry.response);
        for atom in stable() {
            let key = (atom.key, sum.wrapping_sub(atom.hash()));
            let (value, response) =
                *others.entry(key).or_insert((Some(atom.value), entry.response));
            if value != Some(atom.value) {
                learned.note(atom.key, response == entry.response);
            }
        }
    }
    for ((key, rest), (_, response)) in &others {
        if let Some(other) = whole.get(rest) {
            learned.note(*key, other == response);
        }
    }
    let Learned { deciding, harmless, .. } = &mut learned;
    harmless.retain(|key| !deciding.contains(key));
    learned
}

impl Learned {
    fn note(&mut self, key: u64, are_responses_equal: bool) {
        if are_responses_equal { &mut self.harmless } else { &mut self.deciding }.insert(key);
    }
}
