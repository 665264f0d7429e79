//! Storage for many large values by index.

/// Size of a part in bytes; a power of two, because allocators round up.
const PART: usize = 1 << 18;

/// Values by index. They are stored in large parts without the rounding of an allocation per value,
/// and they never move, while a single vector would be copied to grow.
#[derive(Debug)]
pub(super) struct Slab<T> {
    parts: Vec<Vec<Option<T>>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { parts: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Values per part.
    const EACH: usize =
        if size_of::<Option<T>>() < PART { PART / size_of::<Option<T>>() } else { 1 };

    /// Stores a value. Returns its index.
    pub(super) fn insert(&mut self, thing: T) -> u32 {
        if let Some(place) = self.free.pop() {
            if let Some(slot) = self.slot(place) {
                *slot = Some(thing);
            }
            return place;
        }
        if self.parts.last().is_none_or(|part| part.len() == Self::EACH) {
            self.parts.push(Vec::with_capacity(Self::EACH));
        }
        let before = (self.parts.len() - 1) * Self::EACH;
        let Some(part) = self.parts.last_mut() else { return 0 };
        part.push(Some(thing));
        (before + part.len() - 1) as u32
    }

    pub(super) fn get(&self, place: u32) -> Option<&T> {
        let place = place as usize;
        self.parts.get(place / Self::EACH)?.get(place % Self::EACH)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, place: u32) -> Option<&mut T> {
        self.slot(place)?.as_mut()
    }

    /// Removes a value and frees its index.
    pub(super) fn take(&mut self, place: u32) -> Option<T> {
        let thing = self.slot(place)?.take()?;
        self.free.push(place);
        Some(thing)
    }

    /// Returns all values with their indices, in ascending order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let places = 0_u32..;
        let all = places.zip(self.parts.iter().flatten());
        all.filter_map(|(place, thing)| Some((place, thing.as_ref()?)))
    }

    /// Number of indices in use or free.
    #[cfg(test)]
    pub(super) fn places(&self) -> usize {
        self.parts.iter().map(Vec::len).sum()
    }

    fn slot(&mut self, place: u32) -> Option<&mut Option<T>> {
        let place = place as usize;
        self.parts.get_mut(place / Self::EACH)?.get_mut(place % Self::EACH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_used_again() {
        let mut slab = Slab::default();
        let places: Vec<u32> = (0..1_200).map(|number| slab.insert(number)).collect();
        assert_eq!(places, (0..1_200).collect::<Vec<u32>>());
        assert_eq!((slab.take(511), slab.take(512), slab.take(512)), (Some(511), Some(512), None));
        assert_eq!((slab.get(511), slab.get(513), slab.get(1_200)), (None, Some(&513), None));
        assert_eq!(slab.iter().count(), 1_198);
        assert_eq!(slab.iter().nth(511), Some((513, &513)));
        assert_eq!((slab.insert(7), slab.insert(8), slab.insert(9)), (512, 511, 1_200));
        *slab.get_mut(512).unwrap() += 5;
        assert_eq!((slab.get(512), slab.places()), (Some(&12), 1_201));
    }
}
