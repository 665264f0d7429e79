//! The weight of equal and of different pairs.

use std::collections::HashSet;

use super::reading::{Atom, Fields};
use super::shape::Class;

/// Scores from here on answer a request.
pub(super) const THRESHOLD: f64 = 0.85;
/// The same where all recorded requests, of which there are several, have equal responses: then no
/// answer is wrong, as for beacons.
pub(super) const UNIFORM_THRESHOLD: f64 = 0.5;

/// Weight of equal method, host and path.
const BASE: u32 = 200;

/// Keys of a group of recorded requests that were found to matter, or not to.
#[derive(Clone, Debug, Default)]
pub(super) struct Learned {
    /// Keys that alone distinguish requests with different responses.
    pub deciding: HashSet<u64>,
    /// Keys that alone distinguish requests with equal responses.
    pub harmless: HashSet<u64>,
    /// All of several requests have equal responses.
    pub is_uniform: bool,
}

/// Result of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Comparison {
    pub equal: u32,
    pub different: u32,
    /// An object differs.
    pub is_excluded: bool,
}

impl Comparison {
    pub(super) fn score(self) -> f64 {
        f64::from(self.equal) / f64::from(self.equal + self.different)
    }

    /// Whether this is the better candidate.
    pub(super) fn is_better(self, other: Self) -> bool {
        let product = |a: Self, b: Self| u64::from(a.equal) * u64::from(b.equal + b.different);
        product(self, other) > product(other, self)
    }

    fn change(&mut self, key: u64, class: Class, learned: &Learned, weight: u32) {
        let decides =
            class == Class::Identity || class != Class::Volatile && learned.deciding.contains(&key);
        self.is_excluded |= decides;
        self.different += match class {
            _ if decides => 600,
            Class::Token | Class::Volatile => 1,
            _ if learned.harmless.contains(&key) => 15,
            _ => weight,
        };
    }

    fn alone(&mut self, atom: Atom, learned: &Learned) {
        let weight = if atom.class == Class::Word { 200 } else { 150 };
        self.change(atom.key, atom.class, learned, weight);
    }
}

/// Weight of a pair that is equal.
fn weight(class: Class) -> u32 {
    match class {
        Class::Volatile | Class::Token => 2,
        Class::Number => 150,
        Class::Word => 200,
        Class::Identity => 300,
    }
}

/// Compares two sorted lists of pairs as multisets. The values of a key that are not equal are paired
/// in their order.
pub(super) fn compare(recorded: &[Atom], asked: &[Atom], learned: &Learned) -> Comparison {
    let mut result = Comparison { equal: BASE, ..Comparison::default() };
    each_difference(recorded, asked, |equal, recorded, asked| match (recorded, asked) {
        _ if equal => result.equal += recorded.map_or(0, |atom| weight(atom.class)),
        (Some(recorded), Some(asked)) => {
            let (low, high) = (recorded.class.min(asked.class), recorded.class.max(asked.class));
            let class = if high == Class::Identity || low > Class::Token { high } else { low };
            result.change(
                recorded.key,
                class,
                learned,
                if class == Class::Word { 400 } else { 150 },
            );
        }
        (Some(atom), None) | (None, Some(atom)) => result.alone(atom, learned),
        (None, None) => {}
    });
    result
}

/// Calls a function for each pair of two sorted lists: for an equal one with true and both, else with
/// those that differ.
pub(super) fn each_difference(
    recorded: &[Atom],
    asked: &[Atom],
    mut run: impl FnMut(bool, Option<Atom>, Option<Atom>),
) {
    let (mut recorded, mut asked) = (recorded, asked);
    while let Some(key) = match (recorded.first(), asked.first()) {
        (Some(a), Some(b)) => Some(a.key.min(b.key)),
        (a, b) => a.or(b).map(|atom| atom.key),
    } {
        let count = |atoms: &[Atom]| atoms.iter().take_while(|atom| atom.key == key).count();
        let (left, rest) = recorded.split_at(count(recorded));
        recorded = rest;
        let (right, rest) = asked.split_at(count(asked));
        asked = rest;
        if let ([a], [b]) = (left, right) {
            run(a.value == b.value, Some(*a), Some(*b));
            continue;
        }
        several(left, right, &mut run);
    }
}

/// The values of one key, sorted.
fn several(left: &[Atom], right: &[Atom], run: &mut impl FnMut(bool, Option<Atom>, Option<Atom>)) {
    let (mut only_left, mut only_right) = (Vec::new(), Vec::new());
    let (mut left, mut right) = (left.iter().peekable(), right.iter().peekable());
    loop {
        match (left.peek(), right.peek()) {
            (Some(a), Some(b)) if a.value == b.value => {
                run(true, Some(**a), Some(**b));
                left.next();
                right.next();
            }
            (Some(a), Some(b)) if a.value < b.value => only_left.extend(left.next().copied()),
            (Some(_), None) => only_left.extend(left.next().copied()),
            (_, Some(_)) => only_right.extend(right.next().copied()),
            (None, None) => break,
        }
    }
    for place in 0..only_left.len().max(only_right.len()) {
        run(false, only_left.get(place).copied(), only_right.get(place).copied());
    }
}

/// Adds the fields of the head, which weigh little.
pub(super) fn compare_fields(recorded: &Fields, asked: &Fields, result: &mut Comparison) {
    let mut field = |is_known: bool, is_equal: bool, weight: u32| {
        if is_known {
            *(if is_equal { &mut result.equal } else { &mut result.different }) += weight;
        }
    };
    // 0 and 2 (`*/*`) accept everything.
    let wants = |fields: &Fields| !matches!(fields.accept, 0 | 2);
    field(wants(recorded) && wants(asked), recorded.accept == asked.accept, 30);
    let both = |a: u64, b: u64| a != 0 && b != 0;
    field(both(recorded.origin, asked.origin), recorded.origin == asked.origin, 5);
    let (a, b) = (recorded.requested_with, asked.requested_with);
    field(a != 0 || b != 0, a == b, 5);
}
